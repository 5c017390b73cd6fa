//! Checks the documentation: every plan in the guides is valid.

use std::{
    fs,
    path::{Path, PathBuf},
};

use belay_e2e::{Home, belay::repository};

/// Every file below a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
    found
}

/// The fenced blocks of a page that are in this language, each with the line on which it begins.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<(usize, &'t str)> {
    let fence = format!("```{language}\n");
    text.match_indices(&fence)
        .map(|(at, _)| {
            let body = &text[at + fence.len()..];
            (text[..at].lines().count() + 1, &body[..body.find("```").expect("a block is closed")])
        })
        .collect()
}

/// Every plan that the guides show is accepted as it stands; those marked `yaml refused` are refused.
#[test]
fn every_plan_in_the_guides_is_valid() {
    let home = Home::new();
    // The models that the guides name. Nobody asks them.
    let model = "{api: chat, base_url: 'http://127.0.0.1:9/v1', model: m, window: 16384, price: {input: 1, output: 2}}";
    // The tools of an MCP server that they name, which is not installed here: declared, they are tools of the same names.
    let tool = "{command: ['true'], parameters: {additionalProperties: true}}";
    let tools = format!("{{git.git_add: {tool}, git.git_commit: {tool}}}");
    let agents = "{claude: {}, codex: {}, opencode: {}}";
    let settings = format!("models: {{coder: {model}, critic: {model}}}\ntools: {tools}\nagents: {agents}\n");
    let config = home.file("config.yaml", settings);
    let _server = home.serve_with(&["--config", &config]);
    let mut seen = 0;
    let mut pages = files(&repository().join("docs"), "md");
    pages.push(repository().join("README.md"));
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for (language, code) in [("yaml", 0), ("json", 0), ("yaml refused", 2)] {
            for (line, plan) in blocks(&text, language).into_iter().filter(|(_, block)| block.contains("steps")) {
                let name = if language == "json" { "plan.json" } else { "plan.yaml" };
                let ended = home.run(["plan", "validate", &home.file(name, plan)]);
                assert_eq!(ended.code, code, "{}:{line}: {}", page.display(), ended.talk);
                seen += 1;
            }
        }
    }
    assert!(seen > 6, "the guides have plans, and they are found: {seen}");
}

/// The plans in docs/user-guide/plans.md that are marked `yaml run` complete.
#[test]
fn every_plan_that_is_meant_to_run_completes() {
    let home = Home::new();
    let _server = home.serve();
    let text = fs::read_to_string(repository().join("docs/user-guide/plans.md")).unwrap();
    let plans = blocks(&text, "yaml run");
    assert!(plans.len() > 2, "{}", plans.len());
    for (line, plan) in plans {
        let ended = home.run(["run", &home.file("plan.yaml", plan)]);
        assert_eq!(ended.code, 0, "line {line}: {}{}", ended.out, ended.talk);
    }
}

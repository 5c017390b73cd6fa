//! The documentation keeps its promises: every reason has its page, every page its reason, and every plan in the guides is a good one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use belay_e2e::{Home, belay::repository};

/// What makes an error and takes its reason: the calls in whose arguments a reason may stand.
const MAKERS: [&str; 8] =
    ["error", "failure", "failed", "refused", "ToolFailure::new", "Failure::new", "Report::new", "Self::new"];
/// What stands right before a reason that is chosen in one place and used in another.
const CHOICES: [&str; 6] = ["=>", "=> (", "unwrap_or(", "map_or(", "Some(", "{"];
/// The one gRPC code that is no error.
const NO_ERROR: &str = "OK";

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

/// The source without comments and without its tests, which may name any reason.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n")
}

/// The text literals that are a word in capitals, each with the code before it.
fn words(code: &str) -> impl Iterator<Item = (&str, &str)> {
    let quotes: Vec<usize> = code.match_indices('"').map(|(at, _)| at).collect();
    let between: Vec<(usize, usize)> = quotes.windows(2).map(|pair| (pair[0], pair[1])).collect();
    between.into_iter().filter_map(|(from, to)| {
        let word = &code[from + 1..to];
        let is_word = word.len() > 1
            && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            && !word.ends_with('_');
        is_word.then(|| (word, code[..from].trim_end()))
    })
}

/// The name of the call whose arguments end here, such as `Report::new`; empty for a tuple and outside of any.
fn caller(before: &str) -> &str {
    let mut depth = 0;
    for (at, character) in before.char_indices().rev() {
        match character {
            ')' => depth += 1,
            '(' if depth == 0 => {
                let call = &before[..at];
                let name = call.rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').map_or(0, |end| end + 1);
                return &call[name..];
            }
            '(' => depth -= 1,
            ';' if depth == 0 => return "",
            _ => {}
        }
    }
    ""
}

fn is_reason(word: &str, before: &str) -> bool {
    let caller = caller(before);
    let made = MAKERS.iter().any(|maker| caller == *maker || caller.ends_with(&format!("::{maker}")));
    // Other things are chosen by a single word as well; a gRPC code's own name is.
    let line = before.rsplit('\n').next().unwrap_or_default();
    let chosen =
        CHOICES.iter().any(|choice| before.ends_with(choice)) && (word.contains('_') || line.contains("Code::"));
    // Or a gRPC code and its reason are chosen together.
    let paired = line.contains("=> (Code::") && line.ends_with(',');
    // Variables of the environment, OpenTelemetry's and Belay's own, are asked for by their names.
    let is_variable = word.starts_with("OTEL_") || word.starts_with("BELAY_");
    // One that several places give is a constant of its own name.
    let named = word.contains('_') && before.ends_with(&format!("const {word}: &str ="));
    (made || chosen || paired || named) && word != NO_ERROR && !is_variable
}

/// Every reason that the services and the command line give, with a file that gives it; the codes of gRPC have their names in the contract.
fn reasons() -> BTreeMap<String, PathBuf> {
    let mut reasons = BTreeMap::new();
    for folder in ["services", "clients/cli/src", "proto/src"] {
        for path in files(&repository().join(folder), "rs") {
            let is_test = path
                .components()
                .any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs" | "benches")));
            if is_test {
                continue;
            }
            let code = code(&path);
            let found = words(&code).filter(|(word, before)| is_reason(word, before));
            reasons.extend(found.map(|(word, _)| (word.to_owned(), path.clone())));
        }
    }
    reasons
}

#[test]
fn reasons_are_found_however_they_are_written() {
    let code = "error(\n    Code::Internal,\n    \"ONE\", x); Report::new(stop.exit(), \"TWO\", y); status::error(c, \"THREE\", z);\n\
                let a = if b { \"FO_UR\" } else { \"FI_VE\" }; c.unwrap_or(\"SI_X\"); Some(\"SEV_EN\"); Code::F => \"EIGHT\",\n\
                S::F => \"FULL\", Code::Ok => \"OK\"; const NI_NE: &str = \"NI_NE\"; const O: &str = \"O_T\"; env(\"HOME\"); [\"ID\", \"AGE\"]; x(\"WAL\", error(a)); error(a); y(\"NO\")";
    let found: Vec<&str> = words(code).filter(|(word, before)| is_reason(word, before)).map(|(word, _)| word).collect();
    assert_eq!(found, ["ONE", "TWO", "THREE", "FO_UR", "FI_VE", "SI_X", "SEV_EN", "EIGHT", "NI_NE"]);
}

/// S2-FR-063: whoever reads a code on the screen finds its page.
#[test]
fn every_reason_has_a_page_and_every_page_a_reason() {
    let folder = repository().join("docs/errors");
    let pages: BTreeSet<String> = files(&folder, "md")
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "README")
        .collect();
    let reasons = reasons();
    let without_page: Vec<_> = reasons.iter().filter(|(reason, _)| !pages.contains(*reason)).collect();
    assert!(without_page.is_empty(), "reasons without a page in docs/errors: {without_page:#?}");
    let without_reason: Vec<_> = pages.iter().filter(|page| !reasons.contains_key(*page)).collect();
    assert!(without_reason.is_empty(), "pages of reasons that nothing gives any more: {without_reason:?}");

    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    for page in &pages {
        assert!(index.contains(&format!("[{page}]({page}.md)")), "the index leaves out {page}");
        let text = fs::read_to_string(folder.join(format!("{page}.md"))).unwrap();
        assert!(text.starts_with(&format!("# {page}\n")), "{page}.md begins with its name");
        for part in ["**Why it happens.**", "**What to do.**"] {
            assert!(text.contains(part), "{page}.md says {part}");
        }
    }
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
fn every_plan_in_the_guides_is_a_good_one() {
    let home = Home::new();
    let _server = home.serve();
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

/// The plans in docs/user-guide/plans.md that are marked `yaml run` do what they say: they complete.
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

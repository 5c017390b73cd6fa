//! `research` in workspaces and folders with documents. S3-13, X26: it takes a question, sources and a depth, and answers with cited findings.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::Path,
};

use belay_network::{DraftProfile, DraftRule, Profiles};
use belay_redaction::Redactor;
use belay_settings::{File, Research as ResearchSettings};
use belay_sqlite::{Lane, Threads};
use belay_workspace::{FileKind, Metadata, RelPath, ViewError};
use tempfile::TempDir;

use super::*;
use crate::{
    MayRead, Mount, Registry, StopRequest, View, ViewHandle, digests::content_digest, proxy::ProxyHolder, stop::Stop,
    tools::tests::TestWorkspace,
};

/// The settings of a runner that searches these folders, with its state beside them.
fn commands(text: &str, state: &Path) -> CommandSettings {
    let rule = DraftRule { host: "search.example.com".to_owned(), ..DraftRule::default() };
    let search = DraftProfile { name: "search".to_owned(), rules: vec![rule], ..DraftProfile::default() };
    let profiles = "network: {profiles: {search: {rules: [{host: search.example.com}]}}}\n";
    let research: ResearchSettings = File::parse(&format!("{profiles}{text}"), None).unwrap().research;
    CommandSettings::default()
        .with_profiles(Profiles::new(&[search]).unwrap())
        .with_research(research, state.to_owned())
}

fn tool(settings: CommandSettings) -> Research {
    let settings = Arc::new(settings);
    let proxy = Arc::new(ProxyHolder::new(&settings));
    Research::new(HttpHost::new(&settings, proxy), &settings)
}

/// A tool without settings.
fn plain() -> Research {
    tool(CommandSettings::default())
}

const WEB: &str = "research: {web: {url: 'https://search.example.com/search', profile: search}}";

/// A folder with documents, the state directory of a runner that searches it, and the tool of that runner.
struct Documents {
    folder: TempDir,
    state: TempDir,
    tool: Research,
}

impl Documents {
    fn with(files: &[(&str, &str)]) -> Self {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (path, text) in files {
            let place = folder.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        let tool = tool(commands(&Self::settings(folder.path()), state.path()));
        Self { folder, state, tool }
    }

    fn settings(folder: &Path) -> String {
        format!("research: {{roots: [{{name: handbook, path: {}}}]}}", folder.display())
    }

    /// The tool of the same runner after a restart.
    fn restarted(&self) -> Research {
        tool(commands(&Self::settings(self.folder.path()), self.state.path()))
    }

    fn index(&self) -> std::path::PathBuf {
        let kept: Vec<_> =
            fs::read_dir(self.state.path().join("research")).unwrap().map(|entry| entry.unwrap().path()).collect();
        kept.into_iter().find(|path| path.extension() == Some(OsStr::new("db"))).unwrap()
    }
}

async fn ask(workspace: &TestWorkspace, tool: &Research, arguments: Value) -> Value {
    let mut result = workspace.call(tool, arguments).await.unwrap();
    result["content"]["result"].take()
}

/// The findings as `root/path:first-last`.
fn cited(result: &Value) -> Vec<String> {
    let shown = |finding: &Value| {
        let root = finding["root"].as_str().map(|root| format!("{root}/")).unwrap_or_default();
        let (path, lines) = (finding["path"].as_str().unwrap(), &finding["lines"]);
        format!("{root}{path}:{}-{}", lines["start"], lines["end"])
    };
    result["findings"].as_array().unwrap().iter().map(shown).collect()
}

/// What was left out, as `reason count`.
fn left_out(result: &Value) -> Vec<String> {
    let shown = |left: &Value| match left["count"].as_u64() {
        Some(count) => format!("{} {count}", left["reason"].as_str().unwrap()),
        None => left["reason"].as_str().unwrap().to_owned(),
    };
    result["left_out"].as_array().unwrap().iter().map(shown).collect()
}

/// S3-13.
#[tokio::test]
async fn findings_are_cited_with_lines_and_digests() {
    let text = "# Calls\n\nA call is sent again.\n\nA lost call is recovered by its class.\n";
    let workspace =
        TestWorkspace::with(&[("docs/calls.md", text), ("src/a.rs", "fn recover_lost_call() {}\n"), ("b", "other\n")]);
    let result = ask(&workspace, &plain(), json!({"query": "How is a lost call recovered?"})).await;
    assert_eq!(cited(&result), ["src/a.rs:1-1", "docs/calls.md:5-5"], "the shorter one says less besides");
    let first = &result["findings"][1];
    assert_eq!(first["extract"], "A lost call is recovered by its class.");
    assert_eq!(
        (first["digest"].as_str().unwrap(), &first["matched"]),
        (&*content_digest(text.as_bytes()), &json!("all_words"))
    );
    assert_eq!(first["source"], "documentation");
    assert_eq!((&result["depth"], &result["query"]), (&json!("medium"), &json!("How is a lost call recovered?")));
    assert_eq!(result["searched"], json!({"files": 3, "bytes": text.len() + 26 + 6, "results": 0, "pages": 0}));
    assert_eq!(left_out(&result), Vec::<String>::new());
    let scores: Vec<f64> =
        result["findings"].as_array().unwrap().iter().map(|finding| finding["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|one, other| one >= other) && scores[0] > 0.0, "{scores:?}");
    let here = ask(&workspace, &plain(), json!({"query": "lost call", "path": "src"})).await;
    assert_eq!(cited(&here), ["src/a.rs:1-1"]);
    let file = ask(&workspace, &plain(), json!({"query": "lost call", "path": "src/a.rs", "depth": "shallow"})).await;
    assert_eq!((cited(&file), &file["depth"]), (vec!["src/a.rs:1-1".to_owned()], &json!("shallow")));
    assert_eq!(workspace.changes(), 0);
    let gone = workspace.call(&plain(), json!({"query": "x", "path": "none"})).await.unwrap_err();
    assert_eq!(gone.reason, "FILE_NOT_FOUND");
}

/// S3-13: an index belongs to one call, so that each sees its own view.
#[tokio::test]
async fn a_call_finds_what_its_view_has() {
    let workspace = TestWorkspace::with(&[("a.md", "old words"), ("b.md", "old words")]);
    workspace.call(&crate::tools::WriteFile, json!({"path": "a.md", "content": "fresh words"})).await.unwrap();
    workspace.call(&crate::tools::DeleteFile, json!({"path": "b.md"})).await.unwrap();
    assert_eq!(cited(&ask(&workspace, &plain(), json!({"query": "fresh words"})).await), ["a.md:1-1"]);
    assert_eq!(
        cited(&ask(&workspace, &plain(), json!({"query": "old", "depth": "shallow"})).await),
        Vec::<String>::new()
    );
}

/// S3-13: what is no text, too large, or holds keys is counted and not shown; Git's and Belay's own files and links are no documents.
#[tokio::test]
async fn what_is_not_searched_is_said() {
    let workspace = TestWorkspace::with(&[
        ("text.md", "needle"),
        (".env", "needle=1"),
        ("keys/id_ed25519", "needle"),
        (".env.example", "needle here"),
        (".git/config", "needle"),
        ("sub/.git/HEAD", "needle"),
        ("sub/.belay/note", "needle"),
        ("state/gate.key", "needle"),
        ("state/gate.db", "needle"),
        ("link", "-> text.md"),
        ("sub/line\nbreak.md", "needle three"),
    ]);
    fs::write(workspace.root.join(".belay/note"), "needle").unwrap();
    fs::write(workspace.root.join("binary"), b"needle\0").unwrap();
    fs::write(workspace.root.join("latin1.txt"), b"needle caf\xe9\n").unwrap();
    fs::write(workspace.root.join("large.txt"), "needle ".repeat(200_000)).unwrap();
    let name = OsStr::from_bytes(b"n\xff.md");
    fs::write(workspace.root.join(name), "needle two").unwrap();
    workspace.fifo("pipe");
    let _outside = workspace.link_outside("out");
    let result = ask(&workspace, &plain(), json!({"query": "needle", "depth": "deep"})).await;
    let mut paths: Vec<&str> =
        result["findings"].as_array().unwrap().iter().map(|finding| finding["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, [".env.example", "hex:6eff2e6d64", "latin1.txt", "sub/line\nbreak.md", "text.md"]);
    assert_eq!(left_out(&result), ["binary 1", "too_large 1", "secret_file 2"]);
    assert!(result.to_string().contains("caf\u{fffd}"), "{result}");
    let named = ask(&workspace, &plain(), json!({"query": "needle", "path": ".env"})).await;
    assert_eq!((cited(&named).len(), left_out(&named)), (0, vec!["secret_file 1".to_owned()]));
    let of_git = ask(&workspace, &plain(), json!({"query": "needle", "path": ".git"})).await;
    assert_eq!((cited(&of_git).len(), left_out(&of_git)), (0, vec!["of_git 1".to_owned()]));
}

/// A file that the policy does not let the call read is not searched, whatever its arguments name.
#[tokio::test]
async fn what_the_policy_denies_is_not_searched() {
    let workspace = TestWorkspace::with(&[("private/a.md", "needle"), ("b.md", "needle")]);
    let mut invocation = Invocation::for_test(json!({"query": "needle"}), Some(workspace.view()));
    invocation.may_read = MayRead::new(|path: &RelPath| !path.as_text().starts_with("private/"));
    let result = plain().call(invocation).await.unwrap()["content"]["result"].take();
    assert_eq!(
        (cited(&result), left_out(&result)),
        (vec!["b.md:1-1".to_owned()], vec!["denied_by_policy 1".to_owned()])
    );
}

/// S3-13: what looks like a secret is neither found nor shown. A name that does is the file's: another tool takes it back, and where it is shown it is hidden, as in every result.
#[tokio::test]
async fn a_secret_in_a_document_is_neither_found_nor_shown() {
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let text = format!("the token is {secret} for needle\n");
    let named = format!("{secret}.md");
    let workspace = TestWorkspace::with(&[("a.md", &text), (&named, "needle")]);
    let documents = Documents::with(&[("b.md", &text)]);
    let result = ask(&workspace, &documents.tool, json!({"query": "needle token"})).await;
    for path in ["a.md", "b.md"] {
        let found = result["findings"].as_array().unwrap().iter().find(|finding| finding["path"] == path).unwrap();
        assert_eq!(found["extract"], format!("the token is {} for needle", "*".repeat(secret.len())));
        assert_eq!(found["digest"], content_digest(text.as_bytes()), "of the file as it is");
    }
    let words = fs::read(documents.index()).unwrap();
    assert!(!words.to_ascii_lowercase().windows(20).any(|part| part == b"0123456789abcdefghij"));
    let result = ask(&workspace, &documents.tool, json!({"query": "0123456789abcdefghijABCDEFGHIJ012345"})).await;
    let found: Vec<_> = cited(&result).into_iter().filter(|found| !found.starts_with(secret)).collect();
    assert_eq!(found, Vec::<String>::new());
}

/// S3-13: the depth bounds what is asked, read and found.
#[tokio::test]
async fn the_depth_bounds_the_findings_and_the_files() {
    let workspace = TestWorkspace::with(&[]);
    for n in 0..2_100 {
        fs::write(workspace.root.join(format!("{n:04}.md")), "needle in a document\n").unwrap();
    }
    for (depth, findings, files, says) in [
        ("shallow", 5, 2_000, vec!["file_limit".to_owned()]),
        ("medium", 10, 2_100, vec![]),
        ("deep", 25, 2_100, vec![]),
    ] {
        let result = ask(&workspace, &plain(), json!({"query": "needle", "depth": depth})).await;
        assert_eq!(result["findings"].as_array().unwrap().len(), findings, "{depth}");
        assert_eq!((&result["searched"]["files"], left_out(&result)), (&json!(files), says), "{depth}");
    }
    // Less strict forms are asked at once only by a deeper call.
    let workspace =
        TestWorkspace::with(&[("both.md", "green lock\n"), ("one.md", "a lock\n"), ("begins.md", "locksmith\n")]);
    let found = async |depth| cited(&ask(&workspace, &plain(), json!({"query": "green lock", "depth": depth})).await);
    assert_eq!(found("shallow").await, ["both.md:1-1"]);
    assert_eq!(found("medium").await, ["both.md:1-1", "one.md:1-1"]);
    assert_eq!(found("deep").await, ["both.md:1-1", "one.md:1-1", "begins.md:1-1"]);
}

/// S3-13: bad input is refused by field, and no question is an error of the index.
#[tokio::test]
async fn bad_input_is_refused_by_field() {
    let registry = Registry::new([Box::new(plain()) as Box<dyn Tool>]).unwrap();
    for (arguments, field) in [
        (json!({}), "arguments"),
        (json!({"query": ""}), "arguments/query"),
        (json!({"query": 7}), "arguments/query"),
        (json!({"query": "x".repeat(20_001)}), "arguments/query"),
        (json!({"query": "x", "sources": ["internet"]}), "arguments/sources/0"),
        (json!({"query": "x", "sources": []}), "arguments/sources"),
        (json!({"query": "x", "sources": ["web", "web"]}), "arguments/sources"),
        (json!({"query": "x", "sources": "web"}), "arguments/sources"),
        (json!({"query": "x", "depth": "abyssal"}), "arguments/depth"),
        (json!({"query": "x", "root": "y"}), "arguments"),
    ] {
        let refused = registry.refusal("research", &arguments).unwrap_or_else(|| panic!("{arguments}"));
        assert!(refused.starts_with(&format!("{field}: ")), "{refused}");
    }
    let workspace = TestWorkspace::with(&[("a", "one AND \"two\"")]);
    for query in [" \n\t", "?!…", "🦀", "\"", "* - ()"] {
        let refused = workspace.call(&plain(), json!({"query": query})).await.unwrap_err();
        assert!(
            refused.reason == "INVALID_ARGUMENTS" && refused.message.starts_with("arguments/query: "),
            "{refused:?}"
        );
    }
    let long = "lock ".repeat(4_000);
    for query in ["one\" OR \"two", "NEAR(one two)", "text: one*", "-one ^two", "🦀 two", "a\0b", &long] {
        ask(&workspace, &plain(), json!({"query": query, "depth": "deep"})).await;
    }
    assert_eq!(cited(&ask(&workspace, &plain(), json!({"query": "\"AND\" (\"two\")"})).await), ["a:1-1"]);
}

/// S3-13, X26: `web` without a search endpoint is refused, and left out where there is something else to search.
#[tokio::test]
async fn the_web_needs_a_search_endpoint() {
    let workspace = TestWorkspace::with(&[("a", "needle")]);
    let web = json!({"query": "needle", "sources": ["web"]});
    let refused = workspace.call(&plain(), web.clone()).await.unwrap_err();
    assert!(
        refused.message.starts_with("arguments/sources: ") && refused.message.contains("`research.web`"),
        "{refused:?}"
    );
    let planned = plain().check_planned(&web);
    assert!(planned.len() == 1 && planned[0].refused && planned[0].pointer == "/sources", "{planned:?}");
    let both = json!({"query": "needle", "sources": ["web", "documentation"]});
    assert_eq!(plain().check_planned(&both), []);
    let result = ask(&workspace, &plain(), both).await;
    assert_eq!((cited(&result), left_out(&result)), (vec!["a:1-1".to_owned()], vec!["no_endpoint".to_owned()]));
    assert_eq!(result["left_out"][0]["source"], "web");
}

/// S3-13: only a call that asks for the web has a network, which a policy sees; in air-gapped mode it has none.
#[test]
fn the_network_follows_the_sources() {
    let state = tempfile::tempdir().unwrap();
    let open = tool(commands(WEB, state.path()));
    let shut = tool(commands(WEB, state.path()).air_gapped_for_test());
    let network = |tool: &Research, sources: Value, asked| {
        let arguments = if sources.is_null() { json!({}) } else { json!({"sources": sources}) };
        tool.network_of(&arguments, asked).map(|profile| profile.map(|profile| profile.name.clone()))
    };
    let search = Ok(Some("search".to_owned()));
    for sources in [json!(["web"]), json!(["documentation", "web"]), json!(["${x.result}"]), json!("${x.result}")] {
        assert_eq!(network(&open, sources.clone(), None), search, "{sources}");
    }
    assert_eq!(network(&open, json!(["web"]), Some("registries")), Ok(Some("registries".to_owned())));
    assert!(matches!(network(&open, json!(["web"]), Some("other")), Err(NetworkProblem::NoProfile { .. })));
    for sources in [json!(null), json!(["documentation"])] {
        assert_eq!(network(&open, sources.clone(), None), Ok(None));
        assert_eq!(network(&open, sources, Some("registries")), Err(NetworkProblem::NoCommand));
    }
    assert_eq!(network(&shut, json!(["documentation", "web"]), None), Ok(None));
    assert!(matches!(network(&shut, json!(["web"]), None), Err(NetworkProblem::AirGapped { .. })));
    assert_eq!(open.network(None), Ok(None), "it is offered in air-gapped mode");
    assert!(!open.takes_network());
    let recovery = |tool: &Research, arguments: &str| tool.recovery_of(arguments);
    assert_eq!(recovery(&open, r#"{"sources": ["web"]}"#), Some(Recovery::Idempotent));
    assert_eq!((recovery(&open, "{}"), recovery(&plain(), r#"{"sources": ["web"]}"#)), (None, None));
    let paths = |arguments: Value| open.intent(&arguments).paths;
    assert_eq!(paths(json!({})), ["."]);
    assert_eq!(paths(json!({"sources": ["web"]})), Vec::<String>::new());
    assert_eq!(paths(json!({"path": "a/../b"})), ["a/../b"]);
}

#[tokio::test]
async fn without_a_network_the_web_is_left_out() {
    let (workspace, state) = (TestWorkspace::with(&[("a", "needle")]), tempfile::tempdir().unwrap());
    let shut = tool(commands(WEB, state.path()).air_gapped_for_test());
    let result = ask(&workspace, &shut, json!({"query": "needle", "sources": ["documentation", "web"]})).await;
    assert_eq!((cited(&result), left_out(&result)), (vec!["a:1-1".to_owned()], vec!["air_gapped".to_owned()]));
}

/// S3-13: folders with documents are searched besides the workspace, and their index follows what changes.
#[tokio::test]
async fn a_folder_with_documents_is_kept_up_to_date() {
    let workspace = TestWorkspace::with(&[("own.md", "the needle of the workspace\n")]);
    let documents =
        Documents::with(&[("guide/a.md", "# Guide\n\nA needle.\n"), ("b.md", "hay\n"), ("c.md", "needle\n")]);
    let asks = json!({"query": "needle"});
    let result = ask(&workspace, &documents.tool, asks.clone()).await;
    let mut all = cited(&result);
    all.sort_unstable();
    assert_eq!(all, ["handbook/c.md:1-1", "handbook/guide/a.md:3-3", "own.md:1-1"]);
    assert_eq!(result["searched"]["files"], 4);
    // Replaced by one of the same length and time, removed, and new.
    let b = documents.folder.path().join("b.md");
    let written = fs::metadata(&b).unwrap().modified().unwrap();
    fs::write(documents.folder.path().join("b.new"), "pin\n").unwrap();
    fs::rename(documents.folder.path().join("b.new"), &b).unwrap();
    fs::File::options().write(true).open(&b).unwrap().set_modified(written).unwrap();
    fs::remove_file(documents.folder.path().join("c.md")).unwrap();
    fs::write(documents.folder.path().join("d.md"), "another needle\n").unwrap();
    let mut again = cited(&ask(&workspace, &documents.restarted(), asks.clone()).await);
    again.sort_unstable();
    assert_eq!(again, ["handbook/d.md:1-1", "handbook/guide/a.md:3-3", "own.md:1-1"]);
    assert_eq!(cited(&ask(&workspace, &documents.tool, json!({"query": "pin"})).await), ["handbook/b.md:1-1"]);
    assert_eq!(cited(&ask(&workspace, &documents.tool, json!({"query": "hay"})).await), Vec::<String>::new());
    assert_eq!(fs::metadata(documents.index()).unwrap().permissions().mode() & 0o777, 0o600);
    // An index of a folder that the settings name no more is removed.
    let other = Documents { folder: tempfile::tempdir().unwrap(), ..documents };
    let before = other.index();
    ask(&workspace, &other.restarted(), asks).await;
    assert!(!before.exists() && other.index() != before);
}

/// S3-13: nothing outside of a folder with documents is read, and no key in it.
#[tokio::test]
async fn a_folder_with_documents_is_not_left() {
    let workspace = TestWorkspace::with(&[]);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.md"), "needle").unwrap();
    let documents =
        Documents::with(&[("a.md", "needle"), (".env", "needle"), (".git/x", "needle"), (".belay/x", "needle")]);
    let folder = documents.folder.path();
    symlink(outside.path(), folder.join("out")).unwrap();
    symlink(outside.path().join("secret.md"), folder.join("file.md")).unwrap();
    symlink(".", folder.join("loop")).unwrap();
    fs::write(folder.join("binary"), b"needle\0").unwrap();
    fs::write(folder.join(OsStr::from_bytes(b"\xff.md")), b"needle \xff").unwrap();
    let pipe = folder.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let result = ask(&workspace, &documents.tool, json!({"query": "needle"})).await;
    let mut found = cited(&result);
    found.sort_unstable();
    assert_eq!(found, ["handbook/a.md:1-1", "handbook/hex:ff2e6d64:1-1"]);
    assert_eq!(left_out(&result), ["binary 1", "secret_file 1"]);
    assert_eq!(
        left_out(&ask(&workspace, &documents.tool, json!({"query": "needle"})).await),
        ["binary 1", "secret_file 1"]
    );
}

/// S3-13: a folder that cannot be searched is named, and everything else is.
#[tokio::test]
async fn a_folder_that_is_gone_or_none_is_said() {
    let workspace = TestWorkspace::with(&[("a.md", "needle")]);
    let documents = Documents::with(&[("b.md", "needle")]);
    let folder = documents.folder.path().to_owned();
    let moved = folder.with_extension("moved");
    fs::rename(&folder, &moved).unwrap();
    let says = async |reason: &str| {
        let result = ask(&workspace, &documents.tool, json!({"query": "needle"})).await;
        assert_eq!((cited(&result), left_out(&result)), (vec!["a.md:1-1".to_owned()], vec![reason.to_owned()]));
        let left = &result["left_out"][0];
        assert!(left["root"] == "handbook" && left["message"].as_str().unwrap().contains("research.roots"), "{left}");
    };
    says("root_missing").await;
    fs::write(&folder, "needle").unwrap();
    says("root_not_a_folder").await;
    fs::remove_file(&folder).unwrap();
    symlink(&moved, &folder).unwrap();
    says("root_not_a_folder").await;
    fs::remove_file(&folder).unwrap();
    fs::rename(&moved, &folder).unwrap();
    if !rustix::process::geteuid().is_root() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o0)).unwrap();
        says("root_unreadable").await;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let result = ask(&workspace, &documents.tool, json!({"query": "needle"})).await;
    assert_eq!(cited(&result).len(), 2);
}

/// S3-13: an index that is damaged is made anew, whatever the damage is.
#[tokio::test]
async fn a_damaged_index_is_made_anew() {
    let workspace = TestWorkspace::with(&[]);
    let documents = Documents::with(&[("a.md", "needle")]);
    for n in 0..300 {
        fs::write(documents.folder.path().join(format!("{n}.md")), format!("document {n} of many words {}", n * 7919))
            .unwrap();
    }
    let asks = json!({"query": "needle"});
    let expected = ["handbook/a.md:1-1"];
    assert_eq!(cited(&ask(&workspace, &documents.tool, asks.clone()).await), expected);
    let index = documents.index();
    let whole = fs::read(&index).unwrap();
    let half = whole.len() / 2;
    for damaged in [
        b"this is not a database, and longer than its header would be: ".repeat(4),
        whole[..half].to_vec(),
        [&whole[..4096], &vec![0xa5; whole.len() - 4096]].concat(),
        [&whole[..half], &vec![0; whole.len() - half]].concat(),
        Vec::new(),
    ] {
        for end in ["-wal", "-shm"] {
            let _ = fs::remove_file(index.with_extension(format!("db{end}")));
        }
        fs::write(&index, damaged).unwrap();
        let result = ask(&workspace, &documents.tool, asks.clone()).await;
        assert_eq!((cited(&result), left_out(&result)), (expected.map(str::to_owned).to_vec(), vec![]));
    }
    // Where there can be no index, the answer says so.
    fs::remove_file(&index).unwrap();
    fs::create_dir(&index).unwrap();
    let result = ask(&workspace, &documents.tool, asks).await;
    assert_eq!((cited(&result).len(), left_out(&result)), (0, vec!["index_failed".to_owned()]));
}

/// S3-13: calls at the same time have the same answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_at_the_same_time_share_an_index() {
    let documents = Documents::with(&[]);
    for n in 0..500 {
        fs::write(documents.folder.path().join(format!("{n}.md")), format!("needle number{n}")).unwrap();
    }
    // One runner, and another with the same state: calls do not rely on the order of one process alone.
    let (one, other) = (documents.tool.clone(), documents.restarted());
    let calls = (0..8).map(|n| {
        let tool = if n % 2 == 0 { one.clone() } else { other.clone() };
        tokio::spawn(async move {
            let workspace = TestWorkspace::with(&[]);
            let result = ask(&workspace, &tool, json!({"query": format!("number{}", n * 60)})).await;
            (cited(&result), left_out(&result))
        })
    });
    for (n, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), (vec![format!("handbook/{}.md:1-1", n * 60)], vec![]));
    }
}

/// A view of one file, whose reading waits until it is told to go on.
struct Slow(std::sync::mpsc::Sender<()>, Mutex<std::sync::mpsc::Receiver<()>>);

impl View for Slow {
    fn read(&self, _path: &RelPath, _start: u64, _length: Option<u64>) -> Result<Vec<u8>, ViewError> {
        self.0.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
        Ok(b"needle".to_vec())
    }

    fn size(&self, _path: &RelPath) -> Result<u64, ViewError> {
        Ok(6)
    }

    fn metadata(&self, path: &RelPath) -> Result<Metadata, ViewError> {
        Err(ViewError::NotFound { path: path.to_string() })
    }

    fn list(&self, _path: &RelPath) -> Result<Vec<(RelPath, FileKind)>, ViewError> {
        Ok(["a", "b"].map(|name| (RelPath::parse(name).unwrap(), FileKind::File)).into())
    }

    fn write(&mut self, _path: &RelPath, _bytes: &[u8], _mode: Option<u32>) -> Result<(), ViewError> {
        Err(ViewError::Root)
    }

    fn remove(&mut self, _path: &RelPath) -> Result<(), ViewError> {
        Err(ViewError::Root)
    }

    fn mount(&self) -> Option<Mount> {
        None
    }
}

/// S3-13: a call that is asked to stop ends, and reads no other file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_call_ends_between_files() {
    let (reads, has_read) = std::sync::mpsc::channel();
    let (go, goes) = std::sync::mpsc::channel();
    let view = ViewHandle::new(Box::new(Slow(reads, Mutex::new(goes))), Lane::new(Threads::Real, 1));
    let (stop, stopped) = tokio::sync::watch::channel(Stop::No);
    let mut invocation = Invocation::for_test(json!({"query": "needle"}), Some(view.clone()));
    invocation.stop = StopRequest::new(stopped);
    let call = tokio::spawn(plain().call(invocation));
    let has_read = tokio::task::spawn_blocking(move || {
        has_read.recv().unwrap();
        has_read
    });
    let has_read = has_read.await.unwrap();
    stop.send(Stop::Gracefully).unwrap();
    assert_eq!(call.await.unwrap().unwrap_err().class, belay_proto::v1::ErrorClass::Cancelled);
    go.send(()).unwrap();
    view.take().await.unwrap();
    assert!(has_read.try_recv().is_err(), "the second file is not read");
}

/// S3-13: a call whose time for reading is over answers with what it has, and says so.
#[tokio::test]
async fn without_time_the_answer_says_what_is_left_out() {
    let workspace = TestWorkspace::with(&[("a/a.md", "needle"), ("b.md", "needle")]);
    let documents = Documents::with(&[("b.md", "needle")]);
    let reading = Reading::default();
    reading.is_late_now();
    let question = Arc::new(Question::new("needle"));
    let bounds = Depth::Medium.bounds(Duration::from_secs(60));
    let of_roots = documents.tool.roots.search(&question, bounds, &reading).await.unwrap();
    let answer = |found| result(&question, Depth::Medium, found, 10)["content"]["result"].take();
    assert_eq!(left_out(&answer(of_roots)), ["time_limit"]);
    let search = move |view: &mut dyn View| {
        workspace::search(
            view,
            &RelPath::root(),
            (&question, &bounds),
            (&MayRead::default(), &Redactor::new()),
            &reading,
        )
    };
    let of_workspace = in_view_until(Some(&workspace.view()), search).await.unwrap();
    let question = Question::new("needle");
    let shown = result(&question, Depth::Medium, of_workspace, 10)["content"]["result"].take();
    assert_eq!((left_out(&shown), cited(&shown)), (vec!["time_limit".to_owned()], vec![]));
    // There is time again.
    assert_eq!(cited(&ask(&workspace, &documents.tool, json!({"query": "needle"})).await).len(), 3);
}

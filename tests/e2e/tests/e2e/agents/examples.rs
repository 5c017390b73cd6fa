//! The plans of docs/examples in which models work.

use std::fs;

use belay_e2e::belay::repository;
use serde_json::{Value, json};

use super::script::{Ask, Scene};

/// A folder with settings that have the models of the examples, and what an example is run with.
fn scene(script: impl Fn(&Ask) -> belay_model_server::Reply + Send + Sync + 'static) -> Scene {
    let scene = Scene::new(script);
    let model = format!("{{api: chat, base_url: '{}', model: m, window: 100000}}", scene.server.base_url());
    scene.home.file("config.yaml", format!("models:\n  coder: {model}\n  critic: {model}\n"));
    scene
}

fn example(name: &str) -> String {
    repository().join("docs/examples").join(name).display().to_string()
}

/// S2-FR-026, S2-NFR-004: two models look at the same file at once, what does not follow the schema goes back to them, and what both have found is merged.
#[test]
fn two_models_review_a_file_side_by_side() {
    let scene = scene(|ask| {
        let finds = |findings: &[(u32, &str)]| {
            let findings: Vec<Value> =
                findings.iter().map(|(line, what)| json!({"line": line, "what": what})).collect();
            ask.completes(json!({"findings": findings}))
        };
        let is_critic = ask.task.contains("for the first time");
        match (ask.turn, is_critic) {
            (1, _) => ask.calls("read_file", json!({"path": "notes.md"})),
            (2, false) => finds(&[(0, "no line has this number")]),
            (_, false) => finds(&[(1, "The sum is wrong."), (2, "There is no such file.")]),
            (_, true) => finds(&[(2, "Who is meant?"), (1, "The sum is wrong.")]),
        }
    });
    scene.home.file("w/notes.md", "1 + 1 = 3\nThey wrote it to none.txt.\n");
    let plan = example("review.yaml");
    let ended = scene.home.run(scene.words(&plan, &["--approve", "auto", "--input", "file=notes.md"]));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(
        scene.file("review.md"),
        "# notes.md\n\n- line 1: The sum is wrong.\n- line 2: There is no such file.\n- line 2: Who is meant?\n"
    );
    assert_eq!(scene.execution()["outputs"], json!({"findings": 3}));
    let refused = scene.asks().iter().any(|ask| ask.told().iter().any(|told| told.contains("findings/0/line")));
    assert!(refused, "{:?}", scene.asks().iter().map(Ask::told).collect::<Vec<_>>());
}

/// S3-13: a question is answered in words from what was found; a source that was not found, or a statement that the judge does not find in the extracts, goes back to the model.
#[test]
fn a_question_is_answered_from_documents_with_its_sources() {
    let scene = scene(|ask| {
        if ask.body.to_string().contains("verdict") {
            let met = !ask.task.contains("always");
            return ask.calls("verdict", json!({"met": met, "why": "No extract says `always`."}));
        }
        let answers = |answer: &str, source: &str| ask.completes(json!({"answer": answer, "sources": [source]}));
        match ask.turn {
            1 => answers("The port is 8080.", "guess.md"),
            2 => answers("The port is always 8080.", "docs/ports.md"),
            _ => answers("The port is 8080.", "docs/ports.md"),
        }
    });
    fs::create_dir(scene.home.path("w/docs")).unwrap();
    scene.home.file("w/docs/ports.md", "# Ports\n\nThe service listens on port 8080.\n");
    scene.home.file("w/other.md", "port 9090\n");
    let plan = example("answer.yaml");
    let inputs = ["--input", "question=Which port does the service listen on?", "--input", "folder=docs"];
    let ended = scene.home.run(scene.words(&plan, &[&["--approve", "auto"][..], &inputs].concat()));
    assert_eq!(ended.code, 0, "{ended:?}");
    let outputs = &scene.execution()["outputs"];
    assert_eq!((&outputs["answer"], &outputs["sources"]), (&json!("The port is 8080."), &json!(["docs/ports.md"])));
    let turns: Vec<Ask> = scene.asks().into_iter().filter(|ask| !ask.body.to_string().contains("verdict")).collect();
    assert!(turns[0].task.contains("listens on port 8080") && !turns[0].task.contains("9090"), "{}", turns[0].task);
    let told: Vec<String> = turns.iter().map(|ask| ask.told().join(" ")).collect();
    assert!(told[1].contains("POSTCONDITION_FAILED") && told[2].contains("No extract says"), "{told:?}");
}

const SERVICE: &str = "import hashlib

from app.auth import AuthService
from app.user import User


class MemoryAuthService(AuthService):
    def __init__(self):
        self.users = {}

    def register(self, name, password):
        if name in self.users:
            raise ValueError('the name is taken')
        self.users[name] = User(name, hashlib.sha256(password.encode()).hexdigest())

    def login(self, name, password):
        user = self.users.get(name)
        return user is not None and user.password == hashlib.sha256(password.encode()).hexdigest()
";

const TESTS: &str = "import unittest

from app.memory_auth import MemoryAuthService


class Logins(unittest.TestCase):
    def test_logins(self):
        service = MemoryAuthService()
        service.register('ada', 'right')
        self.assertTrue(service.login('ada', 'right'))
        self.assertFalse(service.login('ada', 'wrong'))
        with self.assertRaises(ValueError):
            service.register('ada', 'other')
";

/// S2-FR-026, S2-FR-028, S2-FR-078: a task plan whose steps name no arguments. A model reads what there is and writes what is wanted; what its step's verification finds missing goes back to it, and in
/// the end the tests of what it wrote run.
#[test]
fn a_model_carries_out_a_task_plan() {
    let scene = scene(|ask| {
        let writes = |tool: &str, path: &str, content: &str| ask.calls(tool, json!({"path": path, "content": content}));
        let title = ask.task.lines().next().unwrap_or_default().to_owned();
        match (title.as_str(), ask.turn) {
            ("Create the User entity", 1) => ask.completes(json!("done, it says")),
            // By the name that the plan has for the tool.
            ("Create the User entity", 2) => writes(
                "WriteFile",
                "app/user.py",
                "class User:\n    def __init__(self, name, password):\n        self.name, self.password = name, password\n",
            ),
            ("Create the interface of the service", 1) => writes(
                "write_file",
                "app/auth.py",
                "from abc import ABC, abstractmethod\n\n\nclass AuthService(ABC):\n    @abstractmethod\n    def register(self, name, password): ...\n\n    @abstractmethod\n    \
                 def login(self, name, password): ...\n",
            ),
            ("Implement the service", 1) => ask.says(
                "First what there is.",
                &[("read_file", json!({"path": "app/user.py"})), ("read_file", json!({"path": "app/auth.py"}))],
            ),
            ("Implement the service", 2) => writes("write_file", "app/memory_auth.py", SERVICE),
            ("Add unit tests", 1) => writes("write_file", "test_auth.py", &TESTS.replace("'wrong'", "'right'")),
            ("Add unit tests", 2) | ("Create the User entity", 3) => ask.completes(json!("It is there.")),
            ("Add unit tests", 3) => writes("write_file", "test_auth.py", TESTS),
            ("Document the service", 1) => {
                writes("write_file", "AUTH.md", "`register(name, password)`, then `login`.\n")
            }
            _ => ask.completes(json!("It is there.")),
        }
    });
    let plan = example("user-service.json");
    let ended = scene.home.run(scene.words(&plan, &["--approve", "auto"]));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(scene.file("app/memory_auth.py"), SERVICE);
    assert_eq!(scene.file("test_auth.py"), TESTS);
    assert!(!scene.file("AUTH.md").is_empty());
    let told: Vec<String> = scene.asks().iter().flat_map(Ask::told).collect();
    let missing = |what: &str| told.iter().any(|told| told.contains("POSTCONDITION_FAILED") && told.contains(what));
    assert!(missing("app/user.py"), "a claim is checked: {told:?}");
    assert!(missing("unittest"), "tests that fail are no tests that are done: {told:?}");
    let entries = fs::read_dir(scene.home.path("w")).unwrap().count();
    assert!(entries >= 3, "the folder has what was written");
}

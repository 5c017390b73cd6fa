//! `code_exec` with real interpreters. S3-11, S3-16.

use std::sync::Arc;

use belay_proto::v1::tool_call_output::Stream;
use belay_tool_runner::{
    Tool as _, ToolResult, ViewHandle,
    tools::{CodeExec, RunTerminal},
};
use serde_json::{Value, json};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, Recorder, block_on, enforcement, invocation, sh},
};

pub(crate) const TESTS: &[Test] = tests![
    a_result_has_the_type_that_the_code_gives_it,
    the_variables_of_the_context_are_visible,
    node_has_the_same,
    a_shell_returns_text,
    nothing_of_a_call_is_visible_in_the_next,
    what_cannot_be_returned_is_said,
    a_failure_has_the_line_of_the_code,
    large_values_go_in_and_come_out,
];

fn run_in(view: &ViewHandle, arguments: Value) -> ToolResult {
    run_recorded(view, arguments).0
}

/// With what the code has written to standard error.
fn run_recorded(view: &ViewHandle, arguments: Value) -> (ToolResult, String) {
    let (tool, recorder) = (CodeExec::new(RunTerminal::new(enforcement())), Arc::<Recorder>::default());
    let ended = block_on(tool.call(invocation(arguments, view, Arc::clone(&recorder) as _)));
    (ended, String::from_utf8(recorder.of(Stream::Stderr)).unwrap())
}

/// The reason of a failure, with its message and what was written to standard error.
fn failed(arguments: Value) -> (String, String) {
    let (ended, stderr) = run_recorded(&Fixture::new().view(), arguments.clone());
    let failure = ended.expect_err(&arguments.to_string());
    (failure.reason, format!("{}\n{stderr}", failure.message))
}

fn run(arguments: Value) -> ToolResult {
    run_in(&Fixture::new().view(), arguments)
}

fn returned(arguments: Value) -> Value {
    let ended = run(arguments.clone()).unwrap_or_else(|failure| panic!("{arguments}: {failure:?}"));
    ended["content"]["result"].clone()
}

fn lacks(program: &str) -> Option<Verdict> {
    let has = Fixture::new().call(sh(&format!("command -v {program}"))).is_ok();
    (!has).then(|| Verdict::Skipped(format!("{program} is not installed in /usr")))
}

macro_rules! needs {
    ($program:literal) => {
        if let Some(skipped) = lacks($program) {
            return skipped;
        }
    };
}

// S3-11: `2 + 2` gives 4.
fn a_result_has_the_type_that_the_code_gives_it() -> Verdict {
    needs!("python3");
    assert_eq!(returned(json!({"code": "result = 2 + 2"})), 4);
    assert_eq!(
        returned(json!({"code": "result = {'a': [1, None, 'é\\n', True]}"})),
        json!({"a": [1, null, "é\n", true]})
    );
    assert_eq!(returned(json!({"code": "print('x')"})), Value::Null);
    let ended = run(json!({"code": "print('out'); import sys; print('err', file=sys.stderr); result = 1"})).unwrap();
    assert_eq!((&ended["stdout"], &ended["stderr"]), (&json!("out\n"), &json!("err\n")));
    Verdict::Passed
}

fn the_variables_of_the_context_are_visible() -> Verdict {
    needs!("python3");
    let context = json!({"x": 10, "names": ["a", "b"], "text": "it's \"so\"\n\u{0}"});
    let code = "def double(): return x * 2\nresult = [double(), len(names), text]";
    assert_eq!(returned(json!({"code": code, "context": context})), json!([20, 2, "it's \"so\"\n\u{0}"]));
    // Modules of the workspace, and its files.
    let fixture = Fixture::new();
    std::fs::write(fixture.workspace.join("mine.py"), "answer = 42\n").unwrap();
    for name in ["json", "os", "traceback", "linecache"] {
        std::fs::write(fixture.workspace.join(format!("{name}.py")), "raise ImportError('of the workspace')\n")
            .unwrap();
    }
    let view = fixture.view();
    let code = "import mine\nopen('made', 'w').write(open('file').read())\nresult = mine.answer";
    assert_eq!(run_in(&view, json!({"code": code})).unwrap()["content"]["result"], 42);
    assert_eq!(fixture.read_in(&view, "made"), "as it was\n");
    Verdict::Passed
}

fn node_has_the_same() -> Verdict {
    needs!("node");
    let run = |code: &str| json!({"code": code, "language": "node", "context": {"x": 10, "list": [1, 2]}});
    assert_eq!(returned(run("result = x + list.length")), 12);
    assert_eq!(returned(run("const result = {a: [x, null]}; // the end")), json!({"a": [10, null]}));
    assert_eq!(
        returned(run("const fs = require('fs'); result = (await fs.promises.readFile('file')).toString()")),
        "as it was\n"
    );
    assert_eq!(returned(run("x")), Value::Null);
    for (code, says) in [
        ("result = NaN", "it has the number NaN"),
        ("result = {f() {}}", "a value of the kind function"),
        ("result = 10n", "BigInt"),
        ("result = new Set([1])", "an object of the class Set"),
        ("\n\nthrow new Error('broken')", "code:3"),
        ("\n\nlet x = ;", "code:3"),
        ("let let = 1", "SyntaxError"),
    ] {
        let (_, said) = failed(run(code));
        assert!(said.contains(says), "{code}: {said}");
    }
    Verdict::Passed
}

fn a_shell_returns_text() -> Verdict {
    let run =
        |code: &str| json!({"code": code, "language": "sh", "context": {"n": 3, "text": "a  'b'\n$c", "list": [1]}});
    assert_eq!(returned(run("result=$((n + 1))")), "4");
    assert_eq!(returned(run("result=\"$text|$list\"")), "a  'b'\n$c|[1]");
    assert_eq!(returned(run("true")), Value::Null);
    assert_eq!(returned(run("set -eu; result=")), "");
    // No name of the context stands for what is around the code.
    let context = json!({"belay_code": "echo other", "belay_status": "7", "belay_digits": "00"});
    let ended = self::run(json!({"code": "echo own", "language": "sh", "context": context})).unwrap();
    assert_eq!(ended["stdout"], "own\n");
    let (_, said) = failed(run("result=x; PATH=/nowhere"));
    assert!(said.contains("cannot be returned"), "{said}");
    let reserved = json!({"code": "true", "language": "sh", "context": {"LD_PRELOAD": "x"}});
    assert_eq!(failed(reserved).0, "INVALID_ARGUMENTS");
    assert_eq!(returned(run("result=$(cat file; echo x)")), "as it was\nx");
    let (reason, said) = failed(run("echo no >&2; false"));
    assert!(reason == "COMMAND_FAILED" && said.ends_with("\nno\n"), "{said}");
    assert_eq!(failed(run("exit 3")).0, "COMMAND_FAILED");
    Verdict::Passed
}

fn nothing_of_a_call_is_visible_in_the_next() -> Verdict {
    needs!("python3");
    let fixture = Fixture::new();
    let first = "import os, subprocess\nkept = 1\nos.environ['KEPT'] = '1'\nopen('/tmp/kept', 'w').close()\nopen(os.path.expanduser('~/kept'), 'w').close()\nsubprocess.Popen(['sleep', '600'])";
    run_in(&fixture.view(), json!({"code": first})).unwrap();
    let second = "import os\nresult = ['kept' in globals(), 'KEPT' in os.environ, os.path.exists('/tmp/kept'), os.path.exists(os.path.expanduser('~/kept')), 'BELAY_OUTPUT' in os.environ]";
    assert_eq!(
        run_in(&fixture.view(), json!({"code": second})).unwrap()["content"]["result"],
        json!([false, false, false, false, false])
    );
    Verdict::Passed
}

fn what_cannot_be_returned_is_said() -> Verdict {
    needs!("python3");
    for (code, says) in [
        ("result = {1, 2}", "cannot be returned as JSON"),
        ("result = float('nan')", "cannot be returned as JSON"),
        ("result = []\nresult.append(result)", "cannot be returned as JSON"),
        ("result = 10 ** 400", "digits"),
    ] {
        let (_, said) = failed(json!({"code": code}));
        assert!(said.contains(says), "{code}: {said}");
    }
    Verdict::Passed
}

fn a_failure_has_the_line_of_the_code() -> Verdict {
    needs!("python3");
    let (reason, said) = failed(json!({"code": "x = 1\n\nraise ValueError('broken here')\n"}));
    assert_eq!(reason, "COMMAND_FAILED");
    assert!(said.contains("File \"code\", line 3"), "{said}");
    assert!(said.contains("raise ValueError('broken here')") && !said.contains("exec(compile"), "{said}");
    assert!(failed(json!({"code": "def ("})).1.contains("SyntaxError"));
    assert_eq!(failed(json!({"code": "import sys; sys.exit(4)"})).0, "COMMAND_FAILED");
    assert_eq!(failed(json!({"code": "import time; time.sleep(600)", "timeout_ms": 300})).0, "TIMEOUT");
    Verdict::Passed
}

fn large_values_go_in_and_come_out() -> Verdict {
    needs!("python3");
    let text = "é".repeat(300_000);
    let asked = json!({"code": "result = len(text), text[:400_000]", "context": {"text": text}});
    assert_eq!(returned(asked), json!([300_000, text]));
    let (_, said) = failed(json!({"code": "result = 'x' * 2_000_000"}));
    assert!(said.contains("more than 1048576 bytes"), "{said}");
    Verdict::Passed
}

//! Results that are too large for a message between the services: what a step returned is what people read, byte for byte.

use std::fs;

use belay_e2e::Home;
use serde_json::Value;

const POLICY: &str = "terminal_commands: auto\nnon_interactive_policy: auto\n";

/// A command that prints half a megabyte, a read of a file of one, and a step that gets what both returned.
const PLAN: &str = "id: large
steps:
  - {id: print, tool: run_terminal, arguments: {command: [seq, '1', '90000']}}
  - {id: read, tool: read_file, arguments: {path: large.txt}}
  - {id: write, tool: write_file, arguments: {path: copy.txt, content: '${print.result.stdout}${read.result.content}'}}
";

/// B-09: large results come through runner, executor, store and client whole, and templates read them. Each command has services of its own.
#[test]
fn a_large_result_is_read_byte_for_byte() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    // 1 MiB in lines that differ, some of them with characters of several bytes.
    let mut text: String = (0..).map(|line| format!("line {line}: größe \"{}\"\n", line * 7)).take(50_000).collect();
    text.truncate(text.floor_char_boundary(1 << 20));
    fs::write(home.path("w/large.txt"), &text).unwrap();
    home.file("plan.yaml", PLAN);
    home.file("policy.yaml", POLICY);
    let run = ["run", "plan.yaml", "--workspace", "w", "--id", "e1", "--policy", "policy.yaml", "--approve", "auto"];
    let ended = home.run(run);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.talk);
    let numbers: String = (1..=90_000).map(|number| format!("{number}\n")).collect();

    let result = |step: &str| -> Value {
        let (code, found) = home.json(&["executions", "get", "e1", "--step", step]);
        assert_eq!(code, 0);
        found["output"].clone()
    };
    let printed = result("print");
    assert!(printed["stdout"] == numbers && printed["stdout_bytes"] == numbers.len(), "it is what the command wrote");
    let read = result("read");
    assert!(text.len() > (1 << 20) - 4 && read["content"] == text, "it is what the file has");
    assert!(fs::read_to_string(home.path("w/copy.txt")).unwrap() == numbers + &text, "templates read both");
}

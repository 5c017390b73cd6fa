//! The requested operation in a few lines: the command as one would type it, or the tool and its arguments.

use belay_grant::{Kind, Subject};
use serde_json::Value;

use belay_text::visible;

use super::text::{number, shortened};

/// The longest command that is shown in full, in characters.
const MAX_COMMAND_CHARS: usize = 8_000;

/// The longest value of an argument that is shown in full, in characters.
const MAX_VALUE_CHARS: usize = 2_000;

/// The maximum number of arguments shown.
const MAX_ARGUMENTS: usize = 40;

/// The longest one-line description, in characters.
const MAX_OPERATION_CHARS: usize = 200;

/// The arguments that name what a tool works on, in the order in which they are shown.
const MAIN_ARGUMENTS: [&str; 8] = ["method", "url", "path", "from", "source", "to", "destination", "query"];

/// The first line is a summary. For a call that has not run, the other lines show all its arguments, because there is no effect yet.
pub(super) fn headline(subject: &Subject) -> String {
    let first = first_line(subject);
    if subject.kind == Kind::Effect {
        return first;
    }
    let mut lines = vec![first];
    let runs_own_command = has_own_command(subject);
    let is_shown = |name: &str, value: &Value| match subject.command.is_empty() {
        true => MAIN_ARGUMENTS.contains(&name) && value.is_string(),
        // The folder is shown with the workspace.
        false => runs_own_command && matches!(name, "command" | "cwd"),
    };
    match serde_json::from_str(&subject.arguments) {
        Ok(Value::Object(arguments)) => {
            let rest: Vec<_> = arguments.iter().filter(|(name, value)| !is_shown(name, value)).collect();
            for (name, value) in rest.iter().take(MAX_ARGUMENTS) {
                lines.push(format!("  {}: {}", visible(&shortened(name, 200)), shown_value(value)));
            }
            if rest.len() > MAX_ARGUMENTS {
                lines.push(format!("  … {} more arguments", number(rest.len() - MAX_ARGUMENTS)));
            }
        }
        _ => lines.push(format!("  {}", visible(&shortened(&subject.arguments, MAX_VALUE_CHARS)))),
    }
    lines.join("\n")
}

/// Whether the command is the argument `command` of the call. The arguments of other tools may have any name, and their command says nothing of them.
fn has_own_command(subject: &Subject) -> bool {
    let arguments = serde_json::from_str::<Value>(&subject.arguments).unwrap_or_default();
    arguments["command"] == Value::from(subject.command.as_slice())
}

/// The operation in one line of moderate length, for lists.
pub(crate) fn operation(subject: &Subject) -> String {
    shortened(&first_line(subject), MAX_OPERATION_CHARS)
}

fn first_line(subject: &Subject) -> String {
    let tool = visible(&shortened(&subject.tool, 200));
    if !subject.command.is_empty() {
        let words: Vec<String> = subject.command.iter().map(|word| quoted(word)).collect();
        return format!("{tool}: {}", visible(&shortened(&words.join(" "), MAX_COMMAND_CHARS)));
    }
    let arguments = serde_json::from_str::<Value>(&subject.arguments).unwrap_or_default();
    let values = MAIN_ARGUMENTS.iter().filter_map(|name| arguments.get(name)?.as_str());
    let values: Vec<String> = values.map(|value| visible(&shortened(&quoted(value), MAX_VALUE_CHARS))).collect();
    match values.is_empty() {
        true => tool,
        false => format!("{tool} {}", values.join(" ")),
    }
}

fn shown_value(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    visible(&shortened(&text, MAX_VALUE_CHARS))
}

/// A word with shell quoting, for reading only: nothing here is run by a shell.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_alphanumeric() || "-_./:=@%+,~^".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for character in word.chars() {
        if matches!(character, '"' | '\\' | '$' | '`') {
            text.push('\\');
        }
        text.push(character);
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preview::tests::subject;

    fn call(tool: &str, arguments: &str, command: &[&str]) -> Subject {
        Subject {
            kind: Kind::Call,
            tool: tool.into(),
            arguments: arguments.into(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..subject()
        }
    }

    /// S2-X-17: a request shows the kind of operation and what it works on.
    #[test]
    fn a_command_reads_as_one_would_type_it() {
        let line = |command: &[&str]| headline(&call("run_terminal", "{}", command));
        assert_eq!(line(&["git", "commit", "-m", "x y"]), r#"run_terminal: git commit -m "x y""#);
        assert_eq!(line(&["git", "commit", "-m", ""]), r#"run_terminal: git commit -m """#);
        assert_eq!(line(&["echo", "a;b", "$HOME", "\"", "`id`"]), r#"run_terminal: echo "a;b" "\$HOME" "\"" "\`id\`""#);
        assert_eq!(line(&["a b"]), r#"run_terminal: "a b""#, "one word with a space in it is not two words");
    }

    #[test]
    fn a_command_cannot_end_its_own_line() {
        let line = headline(&call("run_terminal", "{}", &["sh", "-c", "ls\nrm -rf .\u{1b}[1A\u{202e}"]));
        assert_eq!(line, "run_terminal: sh -c \"ls<U+000A>rm -rf .<U+001B>[1A<U+202E>\"");
        let long = headline(&call("run_terminal", "{}", &["sh", &"x".repeat(10_000)]));
        assert!(long.ends_with(" more characters"), "{long}");
        assert!(operation(&call("run_terminal", "{}", &["sh", &"x".repeat(10_000)])).chars().count() < 250);
    }

    /// B-03: environment and other arguments that change what a command does are shown too.
    #[test]
    fn a_command_shows_its_other_arguments() {
        let arguments =
            r#"{"check":false,"command":["make"],"cwd":"src","env":{"MAKEFLAGS":"--eval=$(shell ./x)\u001b[1A"}}"#;
        let make = call("run_terminal", arguments, &["make"]);
        let env = r#"{"MAKEFLAGS":"--eval=$(shell ./x)\u001b[1A"}"#;
        assert_eq!(headline(&make), format!("run_terminal: make\n  check: false\n  env: {env}"));
        assert_eq!(headline(&Subject { kind: Kind::Effect, ..make }), "run_terminal: make");
    }

    /// B-03: the arguments of a tool whose command is not theirs are all shown, whatever their names.
    #[test]
    fn an_argument_named_as_that_of_a_command_is_shown() {
        let shell = call("shell.run", r#"{"command":"rm -rf ~","cwd":"/"}"#, &["node", "server.js"]);
        assert_eq!(headline(&shell), "shell.run: node server.js\n  command: rm -rf ~\n  cwd: /");
    }

    #[test]
    fn a_file_tool_says_which_file() {
        let mut delete = call("delete_file", r#"{"path":"notes.txt"}"#, &[]);
        assert_eq!(headline(&delete), "delete_file notes.txt");
        delete.arguments = r#"{"path":"a\u001b[2K\nb"}"#.into();
        assert_eq!(headline(&delete), "delete_file \"a<U+001B>[2K<U+000A>b\"");
        let post = call("http_request", r#"{"method":"POST","url":"https://a.example/b?c","json":{"d":1}}"#, &[]);
        assert_eq!(headline(&post), "http_request POST \"https://a.example/b?c\"\n  json: {\"d\":1}");
        let moved = call("move_file", r#"{"from":"a","to":"b"}"#, &[]);
        assert_eq!(headline(&moved), "move_file a b");
    }

    #[test]
    fn a_call_that_has_not_run_shows_all_its_arguments() {
        let write = call("write_file", r#"{"content":"one\ntwo","path":"a.txt","mode":420}"#, &[]);
        assert_eq!(headline(&write), "write_file a.txt\n  content: one<U+000A>two\n  mode: 420");
        assert_eq!(headline(&Subject { kind: Kind::Effect, ..write }), "write_file a.txt");
        assert_eq!(headline(&call("odd", "no json\u{7}", &[])), "odd\n  no json<U+0007>");
        assert_eq!(headline(&call("odd", r#"{"path":{"a":1}}"#, &[])), "odd\n  path: {\"a\":1}");
    }
}

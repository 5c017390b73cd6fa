//! `code_exec`: runs a few lines of Python, JavaScript or shell in the sandbox, with values as their variables, and returns their `result`.
//!
//! It is `run_terminal` with an interpreter and a few lines around the code; policy, sandbox and effect are the same. S3-11.

use std::{path::PathBuf, sync::Arc, time::Duration};

use belay_network::Profile;
use belay_policy::ToolKind;
use belay_proto::v1::{ErrorClass, WriteBound};
use belay_reasons as reasons;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    RunTerminal,
    files::{Work, invalid, read_arguments},
    run_terminal::MAX_WORD_BYTES,
};
use crate::{
    Annotations, CallIntent, Invocation, NetworkProblem, PlannedProblem, Recovery, Tool, ToolFailure, ToolSpec, Touches,
};

/// The most bytes of code and context together: what all words of a command may have on Linux with a stack of 8 MiB is 2 MiB.
const MAX_BYTES: usize = 1536 * 1024;

/// A language, by its interpreter.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Language {
    #[default]
    Python,
    Node,
    Sh,
}

impl Language {
    /// The program that runs it.
    fn program(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "node",
            Self::Sh => "sh",
        }
    }

    /// The option that takes code.
    fn option(self) -> &'static str {
        match self {
            Self::Python | Self::Sh => "-c",
            Self::Node => "-e",
        }
    }

    /// The language of a call's arguments, which the schema has checked.
    fn of(arguments: &Value) -> Self {
        Self::deserialize(&arguments["language"]).unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Arguments {
    code: String,
    #[serde(default)]
    language: Language,
    #[serde(default)]
    context: Map<String, Value>,
    timeout_ms: Option<u64>,
}

/// The tool.
pub struct CodeExec {
    terminal: RunTerminal,
}

impl CodeExec {
    /// Has `terminal` run the interpreters.
    pub fn new(terminal: RunTerminal) -> Self {
        Self { terminal }
    }
}

impl Tool for CodeExec {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "code_exec",
            aliases: &["CODE_EXEC"],
            description: "Runs a few lines of Python, JavaScript (node) or shell in the workspace, in the sandbox of run_terminal. The members of `context` are variables of the code; \
                          what it calls `result` is returned. Nothing but changed files is there for the next call. Its changes are kept only if it succeeds.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["code"],
  "properties": {
    "code": {"type": "string", "minLength": 1, "description": "The code. What it calls `result` is returned.", "examples": ["result = 2 + 2"]},
    "language": {"type": "string", "enum": ["python", "node", "sh"], "default": "python", "description": "The language of the code."},
    "context": {
      "type": "object",
      "default": {},
      "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
      "description": "The variables that the code has, by name. In a shell, texts are as they are, and everything else is JSON.",
      "examples": [{"x": 10}]
    },
    "timeout_ms": {
      "type": "integer",
      "minimum": 1,
      "maximum": 86400000,
      "description": "A time limit in milliseconds, if shorter than that of the call."
    }
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["content", "stdout", "stderr", "stdout_bytes", "stderr_bytes", "truncated"],
  "properties": {
    "content": {
      "type": "object",
      "additionalProperties": false,
      "required": ["result"],
      "properties": {"result": {"description": "What the code calls `result`; null if it does not. Of a shell it is text."}},
      "description": "What the code has returned."
    },
    "stdout": {"type": "string", "description": "The standard output; if it is longer, its first and last 512 KiB."},
    "stderr": {"type": "string", "description": "The standard error, likewise."},
    "stdout_bytes": {"type": "integer", "description": "The full length of the standard output, in bytes."},
    "stderr_bytes": {"type": "integer", "description": "The full length of the standard error, in bytes."},
    "truncated": {"type": "boolean", "description": "Whether the middle of either stream was left out."},
    "stdout_lossy": {"type": "boolean", "description": "Set when `stdout` has bytes that are not UTF-8: U+FFFD stands for them."},
    "stderr_lossy": {"type": "boolean", "description": "The same of `stderr`."}
  }
}"#,
            recovery: Recovery::Transactional,
            touches: Touches::Changes,
            kind: ToolKind::Terminal,
            default_timeout: Duration::from_secs(300),
            annotations: Annotations { title: "Run code", destructive: true, idempotent: false, open_world: false },
        }
    }

    /// The command as a person would type it: the interpreter and the code, in a shell with its variables.
    fn intent(&self, arguments: &Value) -> CallIntent {
        let language = Language::of(arguments);
        let code = arguments["code"].as_str().unwrap_or_default();
        let command = [language.program(), language.option(), code];
        self.terminal.intent(&json!({"command": command, "env": environment(language, &arguments["context"])}))
    }

    fn check_planned(&self, arguments: &Value) -> Vec<PlannedProblem> {
        let language = Language::of(arguments);
        let env = environment(language, &arguments["context"]);
        let mut problems = self.terminal.check_planned(&json!({"command": [language.program()], "env": env}));
        for problem in &mut problems {
            problem.pointer = match problem.pointer.strip_prefix("/env/") {
                Some(name) => format!("/context/{name}"),
                None => "/language".to_owned(),
            };
        }
        problems
    }

    fn enforced(&self) -> Vec<String> {
        self.terminal.enforced()
    }

    fn write_bounds(&self) -> Vec<WriteBound> {
        self.terminal.write_bounds()
    }

    fn kept_caches(&self, namespace: &str, workspace: &std::path::Path) -> std::io::Result<Vec<PathBuf>> {
        self.terminal.kept_caches(namespace, workspace)
    }

    fn takes_network(&self) -> bool {
        true
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        self.terminal.network(asked)
    }

    fn may_ask_about_hosts(&self) -> bool {
        self.terminal.may_ask_about_hosts()
    }

    fn stop_grace(&self) -> Duration {
        self.terminal.stop_grace()
    }

    fn call(&self, invocation: Invocation) -> Work {
        let terminal = self.terminal.clone();
        Box::pin(async move {
            let arguments: Arguments = read_arguments(invocation.arguments.clone())?;
            let (language, timeout_ms) = (arguments.language, arguments.timeout_ms);
            let env = environment(language, &invocation.arguments["context"]);
            let mut command = json!({"command": command(arguments)?, "env": env});
            if let Some(timeout_ms) = timeout_ms {
                command["timeout_ms"] = timeout_ms.into();
            }
            let ended = terminal.call(Invocation { arguments: command, ..invocation }).await?;
            result(language, ended)
        })
    }
}

/// The command that runs the code.
///
/// Code and context are words of it, in pieces, since no word may be long: a file of the workspace would be a change, and a name for it might be taken.
fn command(arguments: Arguments) -> Result<Vec<String>, ToolFailure> {
    let Arguments { code, language, context, timeout_ms: _ } = arguments;
    let around = match language {
        Language::Python => include_str!("code_exec/python.py"),
        Language::Node => include_str!("code_exec/node.js"),
        Language::Sh => include_str!("code_exec/sh.sh"),
    };
    let mut of_variables = 0;
    let mut words: Vec<String> = [language.program(), language.option(), around].map(str::to_owned).into();
    match language {
        Language::Python => words.extend(pieces(&payload(code, context)?)),
        Language::Node => {
            words.push("--".to_owned());
            words.extend(pieces(&payload(code, context)?));
        }
        Language::Sh => {
            // The name of the program, in its messages.
            words.push("code".to_owned());
            words.push(word("code", code)?);
            for (name, value) in &context {
                of_variables += name.len() + word(&format!("context/{name}"), text_in_shell(value))?.len();
            }
        }
    }
    if words.iter().map(String::len).sum::<usize>() + of_variables > MAX_BYTES {
        return Err(too_large("code and context have", MAX_BYTES));
    }
    Ok(words)
}

/// The variables of a shell: those that rules, and the operator's word about reserved ones, know as the variables of a command.
fn environment(language: Language, context: &Value) -> Map<String, Value> {
    let members = context.as_object().into_iter().flatten().filter(|_| language == Language::Sh);
    members.map(|(name, value)| (name.clone(), text_in_shell(value).into())).collect()
}

/// A value as a shell has it: a text as it is, anything else as JSON.
fn text_in_shell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Code and context as one JSON text.
fn payload(code: String, context: Map<String, Value>) -> Result<String, ToolFailure> {
    let text = json!({"code": code, "context": context}).to_string();
    if text.len() > MAX_BYTES { Err(too_large("code and context have", MAX_BYTES)) } else { Ok(text) }
}

/// A text in pieces that words can have.
fn pieces(text: &str) -> Vec<String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(MAX_WORD_BYTES));
        pieces.push(piece.to_owned());
        rest = after;
    }
    pieces
}

/// A text as a word of a command.
fn word(field: &str, text: String) -> Result<String, ToolFailure> {
    if text.contains('\0') {
        return Err(invalid(format!("arguments/{field}: contains NUL, which no argument of a program can")));
    }
    if text.len() > MAX_WORD_BYTES {
        Err(too_large(&format!("arguments/{field}: has"), MAX_WORD_BYTES))
    } else {
        Ok(text)
    }
}

fn too_large(what: &str, limit: usize) -> ToolFailure {
    let message =
        format!("{what} more than {limit} bytes: write them to a file of the workspace, and have the code read it");
    ToolFailure::new(ErrorClass::InvalidArguments, reasons::TOO_LARGE, message)
}

/// The tool's result when the interpreter has ended well.
fn result(language: Language, ended: Value) -> Result<Value, ToolFailure> {
    let Value::Object(mut ended) = ended else { return Err(invalid_result("the interpreter has no result")) };
    let outputs = ended.remove("outputs");
    ended.remove("exit_code");
    // Code that ends the interpreter itself returns nothing.
    let returned = match (language, outputs) {
        (_, None) => Value::Null,
        (Language::Sh, Some(outputs)) => text_of(outputs["digits"].as_str().unwrap_or_default())?.into(),
        (Language::Python | Language::Node, Some(mut outputs)) => outputs["result"].take(),
    };
    ended.insert("content".to_owned(), json!({"result": returned}));
    Ok(Value::Object(ended))
}

/// The text whose bytes these hexadecimal digits are.
fn text_of(digits: &str) -> Result<String, ToolFailure> {
    let bytes = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(|| invalid_result("`result` is not UTF-8"))
}

fn invalid_result(why: &str) -> ToolFailure {
    ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, format!("The code has ended, and {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arguments: Value) -> Result<Vec<String>, ToolFailure> {
        command(serde_json::from_value(arguments).unwrap())
    }

    #[test]
    fn code_and_context_are_words_in_pieces() {
        let text = "é".repeat(100_000);
        let words = words(json!({"code": "result = x", "context": {"x": text}})).unwrap();
        assert_eq!((words[0].as_str(), words[1].as_str()), ("python3", "-c"));
        assert!(words.len() == 5 && words.iter().all(|word| word.len() <= MAX_WORD_BYTES));
        let given: Value = serde_json::from_str(&words[3..].concat()).unwrap();
        assert_eq!(given, json!({"code": "result = x", "context": {"x": text}}));
    }

    #[test]
    fn a_shell_has_texts_as_they_are_and_json_for_the_rest() {
        let context = json!({"n": 1, "text": "a 'b'\nc", "list": [1, "x"]});
        let words = words(json!({"code": "ls", "language": "sh", "context": context})).unwrap();
        assert_eq!(words[3..], ["code", "ls"]);
        let expected = json!({"list": "[1,\"x\"]", "n": "1", "text": "a 'b'\nc"});
        assert_eq!(Value::Object(environment(Language::Sh, &context)), expected);
        assert!(environment(Language::Python, &context).is_empty());
    }

    #[test]
    fn what_no_command_can_have_is_refused_by_its_field() {
        let long = "x".repeat(200_000);
        let refused = words(json!({"code": "ls", "language": "sh", "context": {"long": long}})).unwrap_err();
        assert!(
            refused.message.starts_with("arguments/context/long: has more than 131071 bytes"),
            "{}",
            refused.message
        );
        let many: Map<String, Value> = (0..20).map(|n| (format!("v{n}"), "x".repeat(100_000).into())).collect();
        let refused = words(json!({"code": "ls", "language": "sh", "context": many})).unwrap_err();
        assert!(refused.message.contains("code and context have more than"), "{}", refused.message);
        let refused = words(json!({"code": "a\0b", "language": "sh"})).unwrap_err();
        assert!(refused.message.starts_with("arguments/code: contains NUL"), "{}", refused.message);
        assert!(words(json!({"code": "a = '\0'"})).is_ok(), "JSON has another form for it");
        let refused = words(json!({"code": "x".repeat(2 << 20)})).unwrap_err();
        assert!(refused.message.contains("code and context have more than 1572864 bytes"), "{}", refused.message);
    }

    #[test]
    fn a_rule_sees_the_command_that_a_person_would_type() {
        let tool = CodeExec::new(RunTerminal::new(&crate::Enforcement::unavailable("this is a test")));
        let of = |arguments: Value| tool.intent(&arguments).command;
        assert_eq!(of(json!({"code": "result = 1"})), ["python3", "-c", "result = 1"]);
        assert_eq!(of(json!({"code": "rm -rf .", "language": "sh"})), ["sh", "-c", "rm -rf ."]);
        assert_eq!(of(json!({"code": "1", "language": "node"})), ["node", "-e", "1"]);
        // A rule that allows a command has to name its variables.
        let shell = json!({"code": "ls", "language": "sh", "context": {"LS_COLORS": "x", "n": 1}});
        assert_eq!(tool.intent(&shell).environment, ["LS_COLORS", "n"]);
        let problems = tool.check_planned(&json!({"code": "ls", "language": "sh", "context": {"LD_PRELOAD": "x"}}));
        assert!(problems.iter().any(|problem| problem.pointer == "/context/LD_PRELOAD" && problem.refused));
    }

    #[test]
    fn a_shells_result_is_text() {
        let ended = |digits: &str| json!({"exit_code": 0, "stdout": "", "outputs": {"digits": digits}});
        assert_eq!(result(Language::Sh, ended("61c3a90a")).unwrap()["content"], json!({"result": "aé\n"}));
        assert_eq!(result(Language::Sh, ended("")).unwrap()["content"], json!({"result": ""}));
        assert_eq!(result(Language::Sh, ended("ff")).unwrap_err().reason, "INVALID_RESULT");
        assert_eq!(result(Language::Python, json!({"stdout": ""})).unwrap()["content"], json!({"result": null}));
    }
}

//! The tools that the operator declares in the settings: programs that run as `run_terminal` runs them, with arguments and results of their own.

use std::sync::Arc;

use belay_policy::ToolKind;
use belay_proto::v1::{ErrorClass, WriteBound};
use belay_reasons as reasons;
use belay_sandbox::WORKSPACE;
use belay_settings::{CommandTool, Piece, ToolOutput, ToolRecovery, Word, Words};
use serde_json::{Value, json};

use super::{
    RunTerminal,
    files::{Work, invalid, path},
    judged,
};
use crate::{
    Annotations, Invocation, Operation, PlannedProblem, Recovery, Tool, ToolFailure, ToolResult, ToolSpec, Touches,
};

/// The longest word of a command, in bytes: `MAX_ARG_STRLEN` of Linux, without the NUL at its end.
const MAX_WORD_BYTES: usize = 128 * 1024 - 1;

/// The format by which a schema says that an argument is a path in the workspace.
const PATH_FORMAT: &str = "workspace-path";

/// A declared tool.
pub struct Declared(Arc<Declaration>);

struct Declaration {
    spec: ToolSpec,
    declared: CommandTool,
    terminal: RunTerminal,
}

/// Keeps a text for the life of the process, as the tools that are built in do. Tools are declared once, when a runner starts.
fn kept(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// The variables that a tool's program starts with, as `run_terminal` takes them.
fn environment(declared: &CommandTool) -> Value {
    declared.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
}

impl Declared {
    /// A tool whose program `terminal` runs.
    pub fn new(declared: &CommandTool, terminal: RunTerminal) -> Self {
        let aliases: Vec<&'static str> = declared.aliases.iter().map(|alias| kept(alias)).collect();
        let result = match (&declared.result, declared.output) {
            (Some(schema), _) => kept(&schema.to_string()),
            (None, ToolOutput::Json) => "true",
            (None, ToolOutput::Text) => r#"{"type": "string"}"#,
            (None, ToolOutput::Command) => terminal.spec().result,
        };
        let (recovery, touches) = match declared.recovery {
            // Nothing that it writes is kept.
            ToolRecovery::ReadOnly => (Recovery::ReadOnly, Touches::Reads),
            ToolRecovery::Idempotent => (Recovery::Idempotent, Touches::Changes),
            ToolRecovery::Transactional => (Recovery::Transactional, Touches::Changes),
            ToolRecovery::Manual => (Recovery::Manual, Touches::Changes),
        };
        let spec = ToolSpec {
            name: kept(&declared.name),
            aliases: Box::leak(aliases.into_boxed_slice()),
            description: kept(&declared.description),
            parameters: kept(&declared.parameters.to_string()),
            result,
            recovery,
            touches,
            kind: ToolKind::Terminal,
            default_timeout: declared.timeout,
            annotations: Annotations {
                title: kept(&declared.title),
                destructive: declared.destructive && declared.recovery != ToolRecovery::ReadOnly,
                idempotent: declared.idempotent,
                open_world: declared.open_world,
            },
        };
        Self(Arc::new(Declaration { spec, declared: declared.clone(), terminal }))
    }
}

impl Declaration {
    /// The value of an argument: the call's, else the default of its schema.
    fn value<'a>(&'a self, arguments: &'a Value, name: &str) -> Option<&'a Value> {
        arguments.get(name).or_else(|| self.declared.parameters["properties"][name].get("default"))
    }

    /// Whether an argument is a path in the workspace.
    fn is_path(&self, name: &str) -> bool {
        self.declared.parameters["properties"][name]["format"] == PATH_FORMAT
    }

    /// The arguments of `run_terminal` that carry out a call.
    fn command(&self, arguments: &Value) -> Result<Value, ToolFailure> {
        let mut command = Vec::new();
        for Words { words, optional } in &self.declared.command {
            let words: Option<Result<Vec<String>, _>> = words.iter().map(|word| self.word(arguments, word)).collect();
            match words {
                Some(words) => command.extend(words?),
                None if *optional => {}
                // The settings were checked: only `null` for an argument that may not be left out gets here.
                None => return Err(invalid("arguments: one that the command needs is not given")),
            }
        }
        let cwd = if self.declared.cwd.is_empty() { "." } else { &self.declared.cwd };
        Ok(json!({"command": command, "cwd": cwd, "env": environment(&self.declared)}))
    }

    /// A word with its arguments filled in: text as it is, anything else as JSON. `None` when one of them is not given.
    fn word(&self, arguments: &Value, word: &Word) -> Option<Result<String, ToolFailure>> {
        let mut filled = String::new();
        for piece in word {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Argument(name) => match self.value(arguments, name)? {
                    Value::String(text) if text.contains('\0') => {
                        let message = format!("arguments/{name}: contains NUL, which no argument of a program can");
                        return Some(Err(invalid(message)));
                    }
                    Value::String(text) if self.is_path(name) => match path(name, text) {
                        // The program may run in another directory.
                        // The name as it is, and not as it is shown.
                        Ok(path) => match std::str::from_utf8(path.as_bytes()) {
                            Ok(text) => filled.extend([WORKSPACE, "/", if path.is_root() { "." } else { text }]),
                            Err(_) => return Some(Err(invalid(format!("arguments/{name}: is not UTF-8")))),
                        },
                        Err(outside) => return Some(Err(outside)),
                    },
                    Value::String(text) => filled.push_str(text),
                    other => filled.push_str(&other.to_string()),
                },
            }
            if filled.len() > MAX_WORD_BYTES {
                let name = match piece {
                    Piece::Text(_) => "",
                    Piece::Argument(name) => name.as_str(),
                };
                let message = format!(
                    "arguments/{name}: is longer than an argument of a program can be ({MAX_WORD_BYTES} bytes): write it to a file of the \
                     workspace, and pass the path"
                );
                return Some(Err(ToolFailure::new(ErrorClass::InvalidArguments, reasons::TOO_LARGE, message)));
            }
        }
        Some(Ok(filled))
    }

    /// What the tool returns when its program has ended well.
    fn result(&self, ended: Value) -> ToolResult {
        let printed = ended["stdout"].as_str().unwrap_or_default();
        let unusable = |why: String| {
            let message = format!("The tool `{}` {why}", self.declared.name);
            ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, message)
        };
        match self.declared.output {
            ToolOutput::Command => Ok(ended),
            ToolOutput::Json | ToolOutput::Text if ended["truncated"] == true => {
                let bytes = &ended["stdout_bytes"];
                Err(unusable(format!(
                    "printed {bytes} bytes, of which the middle is not kept: write large results to a file of the workspace."
                )))
            }
            // U+FFFD would stand for them, and nobody would know for what.
            ToolOutput::Json | ToolOutput::Text if ended["stdout_lossy"] == true => Err(unusable(
                "printed bytes that are no UTF-8: have it print text in UTF-8, or write them to a file of the workspace.".to_owned(),
            )),
            ToolOutput::Text => Ok(printed.strip_suffix('\n').unwrap_or(printed).into()),
            ToolOutput::Json => belay_json::read(printed).map_err(|refused| {
                unusable(format!(
                    "has to print one JSON value to its standard output, and printed what cannot be taken: {refused}."
                ))
            }),
        }
    }
}

impl Tool for Declared {
    fn spec(&self) -> ToolSpec {
        self.0.spec.clone()
    }

    fn operation(&self, arguments: &Value) -> Operation {
        let Declaration { declared, terminal, .. } = &*self.0;
        let command = self.0.command(arguments).unwrap_or_else(|_| json!({}));
        let properties = declared.parameters["properties"].as_object();
        let of_paths = properties.into_iter().flatten().filter(|(name, _)| self.0.is_path(name));
        let paths = of_paths.filter_map(|(name, _)| self.0.value(arguments, name)?.as_str().map(judged)).collect();
        Operation { paths, ..terminal.operation(&command) }
    }

    fn check_planned(&self, _arguments: &Value) -> Vec<PlannedProblem> {
        let Declaration { declared, terminal, .. } = &*self.0;
        let program = match declared.command.first().map(|first| first.words.as_slice()) {
            Some([word]) => match word.as_slice() {
                [Piece::Text(program)] => program.as_str(),
                _ => "",
            },
            _ => "",
        };
        let mut problems = terminal.check_planned(&json!({"command": [program], "env": environment(declared)}));
        for problem in &mut problems {
            // They are of the operator's declaration, not of an argument.
            problem.pointer.clear();
            problem.message = format!("the tool `{}` cannot run: {}", declared.name, problem.message);
        }
        problems
    }

    fn enforced(&self) -> Vec<String> {
        self.0.terminal.enforced()
    }

    fn write_bounds(&self) -> Vec<WriteBound> {
        self.0.terminal.write_bounds()
    }

    fn kept_caches(&self, namespace: &str, workspace: &std::path::Path) -> std::io::Result<Vec<std::path::PathBuf>> {
        self.0.terminal.kept_caches(namespace, workspace)
    }

    fn stop_grace(&self) -> std::time::Duration {
        self.0.terminal.stop_grace()
    }

    fn call(&self, invocation: Invocation) -> Work {
        let command = self.0.command(&invocation.arguments);
        let this = Arc::clone(&self.0);
        Box::pin(async move {
            let ended = this.terminal.call(Invocation { arguments: command?, ..invocation }).await?;
            this.result(ended)
        })
    }
}

#[cfg(test)]
mod tests;

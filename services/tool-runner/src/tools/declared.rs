//! The tools that the operator declares in the settings: programs that run as `run_terminal` runs them, with arguments and results of their own.

use std::sync::Arc;

use belay_condition::Condition;
use belay_network::Profile;
use belay_policy::ToolKind;
use belay_proto::v1::{ErrorClass, WriteBound};
use belay_reasons as reasons;
use belay_sandbox::WORKSPACE;
use belay_settings::{CommandTool, Piece, ToolOutput, ToolRecovery, Word, Words};
use serde_json::{Value, json};

use super::{
    RunTerminal,
    declaration::{kept, recovery},
    files::{Work, invalid, path},
    judged,
    run_terminal::MAX_WORD_BYTES,
};
use crate::{
    Annotations, CallIntent, Invocation, NetworkProblem, PlannedProblem, Tool, ToolFailure, ToolResult, ToolSpec,
};

/// The format by which a schema says that an argument is a path in the workspace.
const PATH_FORMAT: &str = "workspace-path";

/// A declared tool.
pub struct DeclaredTool(Arc<Declaration>);

struct Declaration {
    spec: ToolSpec,
    declared: CommandTool,
    terminal: RunTerminal,
    /// Requirements that have to hold before its program runs, and once that has ended well.
    before: Vec<Requirement>,
    after: Vec<Requirement>,
}

/// An expression that has to be true.
struct Requirement {
    source: String,
    condition: Condition,
}

impl Requirement {
    fn all(sources: &[String], variables: &[&str]) -> Vec<Self> {
        let read = |source: &String| Self {
            source: source.clone(),
            condition: Condition::new(source, variables).expect("the settings were checked"),
        };
        sources.iter().map(read).collect()
    }
}

/// The variables of a call's conditions.
struct Variables {
    arguments: Value,
    context: Option<Value>,
    output: Option<Value>,
}

/// Why the plan's context has no value.
const NO_CONTEXT: &str = "the plan has no context";

/// The first of these conditions that does not hold, with the reason where it is neither true nor false.
fn first_broken(conditions: &[Requirement], variables: &Variables) -> Option<String> {
    let Variables { arguments, context, output } = variables;
    let known = [("arguments", Some(arguments)), ("context", context.as_ref()), ("output", output.as_ref())];
    let values: Vec<(&str, &Value)> = known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let absent = if context.is_none() { &[("context", NO_CONTEXT)][..] } else { &[] };
    conditions.iter().find_map(|Requirement { source, condition }| match condition.evaluate_with(&values, absent) {
        Ok(true) => None,
        Ok(false) => Some(format!("`{source}`")),
        Err(error) => Some(format!("`{source}`, which has no value: {error}")),
    })
}

/// The variables that a tool's program starts with, as `run_terminal` takes them.
fn environment(declared: &CommandTool) -> Value {
    declared.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
}

impl DeclaredTool {
    /// A tool whose program `terminal` runs.
    pub fn new(declared: &CommandTool, terminal: RunTerminal) -> Self {
        let aliases: Vec<&'static str> = declared.aliases.iter().map(|alias| kept(alias)).collect();
        let result = match (&declared.result, declared.output) {
            (Some(schema), _) => kept(&schema.to_string()),
            (None, ToolOutput::Json) => "true",
            (None, ToolOutput::Text) => r#"{"type": "string"}"#,
            (None, ToolOutput::Command) => terminal.spec().result,
        };
        let (recovery, touches) = recovery(declared.recovery);
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
        let before = Requirement::all(&declared.preconditions, CommandTool::BEFORE);
        let after = Requirement::all(&declared.postconditions, CommandTool::AFTER);
        Self(Arc::new(Declaration { spec, declared: declared.clone(), terminal, before, after }))
    }
}

impl Declaration {
    /// The arguments of a call with the defaults of those that it does not give.
    fn with_defaults(&self, arguments: &Value) -> Value {
        let names = self.declared.parameters["properties"].as_object().into_iter().flat_map(|named| named.keys());
        let given = names.filter_map(|name| Some((name.clone(), self.value(arguments, name)?.clone())));
        Value::Object(given.chain(arguments.as_object().cloned().unwrap_or_default()).collect())
    }

    /// Checks what has to hold before its program runs, or after it: S4-20.
    async fn check(
        self: &Arc<Self>,
        arguments: &Value,
        context: Option<&str>,
        output: Option<&Value>,
    ) -> Result<(), ToolFailure> {
        let is_after = output.is_some();
        if (if is_after { &self.after } else { &self.before }).is_empty() {
            return Ok(());
        }
        let context = context.and_then(|context| serde_json::from_str(context).ok());
        let variables = Variables { arguments: self.with_defaults(arguments), context, output: output.cloned() };
        let this = Arc::clone(self);
        // An expression may take some tens of milliseconds.
        let evaluate = move || first_broken(if is_after { &this.after } else { &this.before }, &variables);
        let broken = tokio::task::spawn_blocking(evaluate).await.unwrap_or_else(|error| Some(error.to_string()));
        let Some(broken) = broken else { return Ok(()) };
        let name = &self.declared.name;
        Err(match is_after {
            false => ToolFailure::new(
                ErrorClass::PreconditionFailed,
                reasons::PRECONDITION_FAILED,
                format!("A precondition of the tool `{name}` does not hold: {broken}."),
            ),
            true => ToolFailure::new(
                ErrorClass::PostconditionFailed,
                reasons::POSTCONDITION_FAILED,
                format!("A postcondition of the tool `{name}` does not hold: {broken}."),
            ),
        })
    }

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

    /// The tool's result when its program has ended well.
    fn result(&self, ended: Value) -> ToolResult {
        let printed = ended["stdout"].as_str().unwrap_or_default();
        let unusable = |why: String| {
            let message = format!("The tool `{}` {why}", self.declared.name);
            ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, message)
        };
        match self.declared.output {
            ToolOutput::Command => Ok(ended),
            ToolOutput::Json | ToolOutput::Text if !ended["outputs"].is_null() => Err(unusable(
                "has outputs in `$BELAY_OUTPUT`, and returns what it prints: have it print them, or declare `output: command`.".to_owned(),
            )),
            ToolOutput::Json | ToolOutput::Text if ended["truncated"] == true => {
                let bytes = &ended["stdout_bytes"];
                Err(unusable(format!(
                    "printed {bytes} bytes, of which the middle is not kept: write large results to a file of the workspace."
                )))
            }
            // U+FFFD would stand for them, and nobody would know for what.
            ToolOutput::Json | ToolOutput::Text if ended["stdout_lossy"] == true => Err(unusable(
                "printed bytes that are not UTF-8: have it print text in UTF-8, or write them to a file of the workspace.".to_owned(),
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

impl Tool for DeclaredTool {
    fn spec(&self) -> ToolSpec {
        self.0.spec.clone()
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        let Declaration { declared, terminal, .. } = &*self.0;
        let command = self.0.command(arguments).unwrap_or_else(|_| json!({}));
        let properties = declared.parameters["properties"].as_object();
        let of_paths = properties.into_iter().flatten().filter(|(name, _)| self.0.is_path(name));
        let paths = of_paths.filter_map(|(name, _)| self.0.value(arguments, name)?.as_str().map(judged)).collect();
        CallIntent { paths, credentials: declared.reveals.clone(), ..terminal.intent(&command) }
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

    fn takes_network(&self) -> bool {
        // Nor does a program that has the value of a credential reach hosts that its operator has not named.
        self.0.declared.network.is_none() && self.0.declared.reveals.is_empty()
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        // A step may ask for another profile than the operator's default: the policy decides about either.
        self.0.terminal.network(asked.or(self.0.declared.network.as_deref()))
    }

    fn reveals(&self) -> Vec<String> {
        self.0.declared.reveals.iter().map(|name| self.0.terminal.shown_reveal(name)).collect()
    }

    fn may_ask_about_hosts(&self) -> bool {
        self.0.terminal.may_ask_about_hosts()
    }

    fn asks(&self) -> bool {
        self.0.declared.asks
    }

    fn stop_grace(&self) -> std::time::Duration {
        self.0.terminal.stop_grace()
    }

    fn call(&self, invocation: Invocation) -> Work {
        let command = self.0.command(&invocation.arguments);
        let this = Arc::clone(&self.0);
        Box::pin(async move {
            let (arguments, context) = (invocation.arguments.clone(), invocation.context.clone());
            let (command, reveals) = (command?, this.declared.reveals.clone());
            this.check(&arguments, context.as_deref(), None).await?;
            let ended = this.terminal.call(Invocation { arguments: command, reveals, ..invocation }).await?;
            let output = this.result(ended)?;
            this.check(&arguments, context.as_deref(), Some(&output)).await?;
            Ok(output)
        })
    }
}

#[cfg(test)]
mod tests;

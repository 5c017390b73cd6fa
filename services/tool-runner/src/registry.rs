//! The tools a runner offers. A tool is one file in `tools/` and one line in [`crate::tools::built_in`].

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use belay_json_schema::{InvalidSchema, Schema, Violation};
use belay_policy::ToolKind;
use belay_proto::v1;
use serde_json::Value;
use thiserror::Error;

use crate::ViewHandle;

/// What may be done about a call whose end nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It changes nothing: it may always run again, and needs no durable row.
    ReadOnly,
    /// Running twice is the same as running once.
    Idempotent,
    /// It works in a view whose effect is committed in one step: a call that was lost left nothing behind.
    Transactional,
    /// It reaches out of the workspace: it never runs again by itself.
    Manual,
}

impl Recovery {
    pub(crate) fn to_proto(self) -> v1::RecoveryClass {
        match self {
            Self::ReadOnly => v1::RecoveryClass::ReadOnly,
            Self::Idempotent => v1::RecoveryClass::Idempotent,
            Self::Transactional => v1::RecoveryClass::Transactional,
            Self::Manual => v1::RecoveryClass::Manual,
        }
    }
}

/// What callers may assume about a tool; the terms of the Model Context Protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Annotations {
    /// It may remove or overwrite.
    pub destructive: bool,
    /// Called again with the same arguments it has no further effect. This is about what it does, not about what may be done after a
    /// loss: a command in a view may be sent again, and still appends a second line.
    pub idempotent: bool,
    /// It reaches out of the workspace.
    pub open_world: bool,
}

/// What a tool does to a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touches {
    /// It has none.
    #[default]
    Nothing,
    /// It reads.
    Reads,
    /// It changes files: its call gets a view, and what it changed there is its effect.
    Changes,
}

/// What a tool is asked to do, in the terms of a policy. Paths are as the author wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// The argument vector of a command; empty for other tools.
    pub command: Vec<String>,
    /// The name of the program that the command starts, when it lies on the `PATH` outside the workspace; `None` for any other program and
    /// for other tools.
    pub program: Option<String>,
    /// The names of the environment variables that the command is given.
    pub environment: Vec<String>,
    /// The directory in which a command runs; empty for the workspace's root.
    pub working_directory: String,
    /// The paths that the arguments name.
    pub paths: Vec<String>,
}

/// Something that will be wrong with a planned call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// The argument, as a JSON pointer.
    pub pointer: String,
    /// What will be wrong, and what to do.
    pub message: String,
    /// Whether the call is refused as it is planned, by the operator's settings; otherwise the problem may be gone when it is made.
    pub refused: bool,
}

/// What a tool says of itself.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// The canonical name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// What it does, for people and models.
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub parameters: &'static str,
    /// JSON Schema of the result.
    pub result: &'static str,
    /// What may be done after a loss.
    pub recovery: Recovery,
    /// What it does to a workspace.
    pub touches: Touches,
    /// Which of a policy's simple settings speaks about it.
    pub kind: ToolKind,
    /// The time limit of one call when nobody sets one.
    pub default_timeout: Duration,
    /// What callers may assume.
    pub annotations: Annotations,
}

/// Where a tool's output goes while it works.
pub trait Output: Send + Sync {
    /// The next piece of one stream, as the tool wrote it. Never blocks for long; what nobody can hold is left out.
    fn write(&self, stream: v1::tool_call_output::Stream, bytes: &[u8]);
}

/// One call, as a tool sees it.
#[derive(Clone)]
pub struct Invocation {
    /// The call's name.
    pub name: String,
    /// The attempt it belongs to, from 1.
    pub attempt: u32,
    /// The arguments; they fit the schema.
    pub arguments: Value,
    /// Its view of the workspace, where it touches one.
    pub view: Option<ViewHandle>,
    /// Where its output goes while it works.
    pub output: Arc<dyn Output>,
    /// The trace it belongs to, for the environment of a command.
    pub trace: v1::TraceContext,
    /// What holds around the work, by the names of layers. A tool that runs something in the sandbox sets it as soon as that runs; it stays
    /// empty where nothing ran there.
    pub enforced: Arc<OnceLock<Vec<String>>>,
    /// How long it may take. The runner keeps to it too; a command is told, so that its launcher outlives nobody.
    pub limit: Duration,
}

/// Why a tool did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFailure {
    /// The class, which decides about another attempt.
    pub class: v1::ErrorClass,
    /// A stable word for programs.
    pub reason: String,
    /// One sentence for a person.
    pub message: String,
}

impl ToolFailure {
    /// A failure from its parts. The reason is a constant of `belay_reasons`, whose row lists the class.
    pub fn new(class: v1::ErrorClass, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let reason = reason.into();
        debug_assert!(
            belay_reasons::find(&reason).is_none_or(|row| {
                row.classes.iter().any(|listed| class.as_str_name().trim_start_matches("ERROR_CLASS_") == listed.name())
            }),
            "the row of {reason} in services/shared/reasons does not list {class:?}"
        );
        Self { class, reason, message: message.into() }
    }
}

/// How a tool's work ends.
pub type ToolResult = Result<Value, ToolFailure>;

/// A tool.
pub trait Tool: Send + Sync + 'static {
    /// What it says of itself.
    fn spec(&self) -> ToolSpec;

    /// What it is asked to do, for a policy to judge before anything happens. The arguments fit the schema.
    fn operation(&self, _arguments: &Value) -> Operation {
        Operation::default()
    }

    /// What can be told of a call before it is made, such as a program that will not be there. The arguments are as a plan has them, before
    /// its templates are filled in.
    fn foresee(&self, _arguments: &Value) -> Vec<Foreseen> {
        Vec::new()
    }

    /// The layers that will hold around its work, by name, as far as the start of the runner found; none for a tool that runs inside the
    /// runner.
    fn enforced(&self) -> Vec<String> {
        Vec::new()
    }

    /// The bounds on what it can write, and what enforces them; none for a tool that runs inside the runner.
    fn write_bounds(&self) -> Vec<v1::WriteBound> {
        Vec::new()
    }

    /// Does the work. Dropping the future stops it: what works in the view then has to let go of it soon.
    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>>;
}

/// A tool that has been checked.
pub(crate) struct Registered {
    pub(crate) spec: ToolSpec,
    pub(crate) parameters: Parameters,
    pub(crate) result: Schema,
    pub(crate) tool: Box<dyn Tool>,
}

/// The schema of a tool's arguments.
pub(crate) struct Parameters {
    schema: Schema,
    text: Value,
    secret: Vec<String>,
}

impl Parameters {
    fn new(text: &'static str) -> Result<Self, InvalidSchema> {
        let schema = Schema::new(text)?;
        let text: Value = serde_json::from_str(text).expect("a schema is JSON");
        let mut secret = Vec::new();
        mark(&text, String::new(), &mut secret);
        Ok(Self { schema, text, secret })
    }

    /// The arguments that the schema marks as secret, as JSON pointers in which `*` stands for every member or item.
    pub(crate) fn secret(&self) -> &[String] {
        &self.secret
    }

    /// Everything that is wrong with arguments, each with the example that the schema gives for its place.
    pub(crate) fn violations(&self, arguments: &Value) -> Vec<Violation> {
        let mut violations = self.schema.violations(arguments);
        for violation in &mut violations {
            let example = self.text.pointer(&format!("/properties{}/examples/0", violation.pointer));
            if let Some(example) = example.filter(|_| !violation.pointer.is_empty()) {
                violation.message = format!("{}; an example: {example}", violation.message);
            }
        }
        violations
    }
}

/// Collects what a schema marks as secret (`"writeOnly": true` or `"x-secret": true`) in and below a place. References are not followed:
/// the mark has to stand where the parameter does.
fn mark(schema: &Value, place: String, secret: &mut Vec<String>) {
    if schema["writeOnly"] == true || schema["x-secret"] == true {
        secret.push(place);
        return;
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        mark(member, format!("{place}/{}", name.replace('~', "~0").replace('/', "~1")), secret);
    }
    for every in ["items", "additionalProperties"] {
        schema.get(every).into_iter().for_each(|member| mark(member, format!("{place}/*"), secret));
    }
    for choice in ["allOf", "anyOf", "oneOf"] {
        schema[choice].as_array().into_iter().flatten().for_each(|part| mark(part, place.clone(), secret));
    }
}

/// The tools a runner offers, by every name they have.
#[derive(Clone)]
pub struct Registry {
    by_name: BTreeMap<&'static str, Arc<Registered>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// Why tools cannot be offered.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Two tools have the same name.
    #[error("two tools are called `{0}`")]
    NameTaken(&'static str),
    /// A tool's schema is none.
    #[error("tool `{tool}`: {source}")]
    Schema {
        /// The tool.
        tool: &'static str,
        /// What is wrong with it.
        source: InvalidSchema,
    },
}

impl Registry {
    /// Offers these tools.
    ///
    /// # Errors
    /// [`RegistryError`] when a name is taken or a schema is none.
    pub fn new(tools: impl IntoIterator<Item = Box<dyn Tool>>) -> Result<Self, RegistryError> {
        let mut by_name = BTreeMap::new();
        for tool in tools {
            let spec = tool.spec();
            let refused = |source| RegistryError::Schema { tool: spec.name, source };
            let parameters = Parameters::new(spec.parameters).map_err(refused)?;
            let result = Schema::new(spec.result).map_err(refused)?;
            let registered = Arc::new(Registered { spec: spec.clone(), parameters, result, tool });
            for name in std::iter::once(spec.name).chain(spec.aliases.iter().copied()) {
                if by_name.insert(name, Arc::clone(&registered)).is_some() {
                    return Err(RegistryError::NameTaken(name));
                }
            }
        }
        Ok(Self { by_name })
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Registered>> {
        self.by_name.get(name).map(Arc::clone)
    }

    /// Every tool once, by its canonical name.
    pub(crate) fn tools(&self) -> impl Iterator<Item = v1::Tool> {
        self.by_name.iter().filter(|(name, tool)| **name == tool.spec.name).map(|(_, tool)| describe(&tool.spec))
    }
}

fn describe(spec: &ToolSpec) -> v1::Tool {
    v1::Tool {
        name: spec.name.into(),
        aliases: spec.aliases.iter().map(|&alias| alias.into()).collect(),
        description: spec.description.into(),
        parameters_schema: spec.parameters.into(),
        result_schema: spec.result.into(),
        recovery: spec.recovery.to_proto().into(),
        default_timeout: Some(belay_proto::duration(spec.default_timeout)),
        annotations: Some(v1::ToolAnnotations {
            read_only: spec.recovery == Recovery::ReadOnly,
            destructive: spec.annotations.destructive,
            idempotent: spec.recovery == Recovery::ReadOnly || spec.annotations.idempotent,
            open_world: spec.annotations.open_world,
        }),
    }
}

#[cfg(test)]
impl Registry {
    /// The first thing that is wrong with arguments for a tool, with its place.
    pub(crate) fn refusal(&self, tool: &str, arguments: &Value) -> Option<String> {
        let violations = self.find(tool).expect("the tool is offered").parameters.violations(arguments);
        violations.first().map(|violation| format!("arguments{}: {}", violation.pointer, violation.message))
    }
}

#[cfg(test)]
impl Invocation {
    /// A call whose output nobody hears.
    pub(crate) fn for_test(arguments: Value, view: Option<ViewHandle>) -> Self {
        struct Nobody;
        impl Output for Nobody {
            fn write(&self, _stream: v1::tool_call_output::Stream, _bytes: &[u8]) {}
        }
        Self {
            name: "namespaces/default/executions/e/steps/s/calls/1.1".into(),
            attempt: 1,
            arguments,
            view,
            output: Arc::new(Nobody),
            trace: v1::TraceContext::default(),
            enforced: Arc::default(),
            limit: Duration::from_secs(60),
        }
    }
}

//! The tools of a runner. A tool is one file in `tools/` and one line in [`crate::tools::built_in`].

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use belay_json_schema::{InvalidSchema, Schema, Violation, secret_places};
use belay_network::Profile;
use belay_policy::{Intent, NetworkAccess, ToolKind};
use belay_proto::v1;
use belay_workspace::RelPath;
use serde_json::Value;
use thiserror::Error;

use crate::{NetworkProblem, StopRequest, ViewHandle, questions::Questions};

/// The recovery of a call whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It changes nothing: it may always run again, and needs no durable row.
    ReadOnly,
    /// Idempotent.
    Idempotent,
    /// Its effect is committed atomically: a lost call had no effect.
    Transactional,
    /// It has effects outside the workspace, so it never runs again automatically.
    Manual,
}

impl Recovery {
    /// The recovery of a call with this network: what a command did on one cannot be discarded, so the call never runs again automatically, unless the operator says
    /// of the profile that commands only fetch.
    pub(crate) fn with_network(self, network: Option<&Profile>) -> Self {
        match network {
            Some(profile) if !profile.fetch_only => Self::Manual,
            Some(_) | None => self,
        }
    }

    pub(crate) fn to_proto(self) -> v1::RecoveryClass {
        match self {
            Self::ReadOnly => v1::RecoveryClass::ReadOnly,
            Self::Idempotent => v1::RecoveryClass::Idempotent,
            Self::Transactional => v1::RecoveryClass::Transactional,
            Self::Manual => v1::RecoveryClass::Manual,
        }
    }
}

/// Assumptions that callers may make about a tool, in the terms of the Model Context Protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Annotations {
    /// A short name for people; the tool's name when empty.
    pub title: &'static str,
    /// It may remove or overwrite data.
    pub destructive: bool,
    /// Calling it again with the same arguments has no further effect. This describes the tool, not recovery: a lost command may be sent
    /// again because its view is gone, although a second run would append a second line.
    pub idempotent: bool,
    /// It interacts with systems outside the workspace.
    pub open_world: bool,
}

/// The use that a tool makes of a workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touches {
    /// It uses no workspace.
    #[default]
    Nothing,
    /// It reads files.
    Reads,
    /// It changes files. Its call works in a view, and the changes there are its effect.
    Changes,
}

/// The intent of a call, in the terms of a policy. Paths are as the author wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallIntent {
    /// The argument vector of a command; empty for other tools.
    pub command: Vec<String>,
    /// The name of the program that the command starts, when it lies on the `PATH` outside the workspace; `None` for any other program and
    /// for other tools.
    pub program: Option<String>,
    /// The names of the environment variables that the call sets.
    pub environment: Vec<String>,
    /// The working directory of a command; empty for the root of the workspace.
    pub working_directory: String,
    /// The paths that the arguments name.
    pub paths: Vec<String>,
    /// The hosts of the network profile that the call asks for.
    pub hosts: Vec<String>,
    /// The name of the network profile that the call asks for; `None` for its own loopback alone.
    pub network: Option<String>,
    /// The names of the credentials that it would use: those whose values its program gets, and those that the rules of the profile have.
    pub credentials: Vec<String>,
}

impl CallIntent {
    /// The intent as a policy judges it before the call runs.
    pub(crate) fn for_policy<'a>(&'a self, tool: &'a RegisteredTool) -> Intent<'a> {
        Intent {
            tool: tool.spec.name,
            kind: tool.spec.kind,
            command: &self.command,
            program: self.program.as_deref(),
            working_directory: &self.working_directory,
            environment: &self.environment,
            paths: &self.paths,
            network: self.network.as_deref().map(|profile| NetworkAccess { profile, hosts: &self.hosts }),
            credentials: &self.credentials,
        }
    }
}

/// A problem of a planned call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedProblem {
    /// The argument, as a JSON pointer.
    pub pointer: String,
    /// The problem, and what to do.
    pub message: String,
    /// Whether the operator's settings reject the call as planned. Otherwise the problem may be gone when the call runs.
    pub refused: bool,
}

/// The specification of a tool.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// The canonical name.
    pub name: &'static str,
    /// Other names.
    pub aliases: &'static [&'static str],
    /// Its purpose, for people and models.
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub parameters: &'static str,
    /// JSON Schema of the result.
    pub result: &'static str,
    /// The recovery class.
    pub recovery: Recovery,
    /// The use that it makes of a workspace.
    pub touches: Touches,
    /// The kind by which the policy's simple settings select it.
    pub kind: ToolKind,
    /// The default time limit of a call.
    pub default_timeout: Duration,
    /// Assumptions that callers may make.
    pub annotations: Annotations,
}

/// Receives the output of a running tool.
pub trait Output: Send + Sync {
    /// Appends to one stream. Does not block for long; output beyond the buffer is dropped.
    fn write(&self, stream: v1::tool_call_output::Stream, bytes: &[u8]);

    /// Hides these values in what is written from now on, and in the result.
    fn hide(&self, values: &[String]);
}

/// A call, as a tool sees it.
#[derive(Clone)]
pub struct Invocation {
    /// The call's name.
    pub name: String,
    /// The attempt it belongs to, from 1.
    pub attempt: u32,
    /// The arguments, valid against the schema.
    pub arguments: Value,
    /// Its view of the workspace, if it uses one.
    pub view: Option<ViewHandle>,
    /// Receives its output.
    pub output: Arc<dyn Output>,
    /// The means by which people are asked while it runs; `None` for a call that does not ask.
    pub questions: Option<Questions>,
    /// The trace it belongs to, for the environment of a command.
    pub trace: v1::TraceContext,
    /// The context in which the plan was asked for, as JSON; `None` where there is none.
    pub context: Option<String>,
    /// The names of the active sandbox layers. A tool that runs a process in the sandbox sets it once the process runs; it stays empty
    /// otherwise.
    pub enforced: Arc<OnceLock<Vec<String>>>,
    /// Its time limit. The runner enforces it too; the launcher of a command gets it so that no launcher outlives its call.
    pub limit: Duration,
    /// Tells that it is to end.
    pub stop: StopRequest,
    /// Set by a tool that runs a process when its call was stopped before the process was started: then it had no effect, whatever its recovery.
    pub never_began: Arc<AtomicBool>,
    /// The network profile of its command; `None` for its own loopback alone.
    pub network: Option<Arc<Profile>>,
    /// The credentials whose values its program gets, by name.
    pub reveals: Vec<String>,
    /// Whether its program may ask, over [`Self::questions`]. Without it, they are for its network alone.
    pub asks: bool,
    /// The use that the command made of the profile. A tool that runs one sets it once it has ended.
    pub network_use: Arc<OnceLock<v1::NetworkUse>>,
    /// What it may read of the workspace beyond the paths that its arguments name.
    pub may_read: MayRead,
}

/// Says of each file of the workspace whether the policy lets a call read it: for tools that return parts of files that their arguments do not name.
#[derive(Clone)]
pub struct MayRead(Arc<dyn Fn(&RelPath) -> bool + Send + Sync>);

impl MayRead {
    /// Asks `judge` about each file.
    pub fn new(judge: impl Fn(&RelPath) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Whether it may be read.
    pub fn allows(&self, path: &RelPath) -> bool {
        self.0(path)
    }
}

impl Default for MayRead {
    /// Every file may be read.
    fn default() -> Self {
        Self::new(|_| true)
    }
}

/// Why a tool failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFailure {
    /// The class, which decides whether the step is retried.
    pub class: v1::ErrorClass,
    /// A stable code for programs.
    pub reason: String,
    /// A message for people.
    pub message: String,
    /// Facts for programs, by the keys of `belay_proto::facts`.
    pub metadata: BTreeMap<String, String>,
    /// The limit that was reached, when that is the failure.
    pub rate_limit: Option<Box<RateLimit>>,
}

/// A limit of a service that a tool uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// How long to wait before another attempt can succeed; `None` where that is not known.
    pub retry_after: Option<Duration>,
    /// The quota that is used up.
    pub quota: v1::QuotaState,
}

impl ToolFailure {
    /// Creates a failure. The reason is a constant of `belay_reasons`, whose row lists the class.
    pub fn new(class: v1::ErrorClass, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let reason = reason.into();
        debug_assert!(
            belay_reasons::find(&reason).is_none_or(|row| {
                row.classes.iter().any(|listed| class.as_str_name().trim_start_matches("ERROR_CLASS_") == listed.name())
            }),
            "the row of {reason} in services/shared/reasons does not list {class:?}"
        );
        Self { class, reason, message: message.into(), metadata: BTreeMap::new(), rate_limit: None }
    }

    /// Adds a fact for programs.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }
}

/// The result of a tool.
pub type ToolResult = Result<Value, ToolFailure>;

/// A tool.
pub trait Tool: Send + Sync + 'static {
    /// The specification.
    fn spec(&self) -> ToolSpec;

    /// The intent of the call, for the policy to judge before the tool runs. The arguments are valid against the schema.
    fn intent(&self, _arguments: &Value) -> CallIntent {
        CallIntent::default()
    }

    /// The problems of a planned call, such as a program that is not installed. Templates in the arguments are not filled in yet.
    fn check_planned(&self, _arguments: &Value) -> Vec<PlannedProblem> {
        Vec::new()
    }

    /// The names of the sandbox layers around its work, as probed at startup; none for a tool that runs inside the runner.
    fn enforced(&self) -> Vec<String> {
        Vec::new()
    }

    /// The bounds on what it can write, and what enforces them; none for a tool that runs inside the runner.
    fn write_bounds(&self) -> Vec<v1::WriteBound> {
        Vec::new()
    }

    /// The directories of the caches that its calls may change in this namespace and workspace. They see them below changes of their own, which are merged
    /// when the call commits.
    ///
    /// # Errors
    /// When a directory cannot be made.
    fn kept_caches(&self, _namespace: &str, _workspace: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    /// The network profile of a call that asks for this one: of the command that the tool runs, or of its requests.
    ///
    /// # Errors
    /// When the tool reaches no hosts, or has to and no profile is asked for; when there is no such profile.
    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        if asked.is_some() { Err(NetworkProblem::NoCommand) } else { Ok(None) }
    }

    /// The network profile of a call with these arguments; by default, that of [`Self::network`]. Templates in the arguments of a planned call are not filled in
    /// yet.
    ///
    /// # Errors
    /// As [`Self::network`].
    fn network_of(&self, _arguments: &Value, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        self.network(asked)
    }

    /// Whether its calls have the network profile of their plan where their step names none: it runs a command or makes requests, its operator has said nothing
    /// of its network, and its program has no value of a credential.
    fn takes_network(&self) -> bool {
        false
    }

    /// The recovery of a call with these arguments, as JSON, under whatever network; `None` for that of the specification and of the network.
    fn recovery_of(&self, _arguments: &str) -> Option<Recovery> {
        None
    }

    /// Whether its calls may ask while they run ([`Invocation::questions`]).
    fn asks(&self) -> bool {
        false
    }

    /// Whether some network profile that its calls may have asks people about hosts.
    fn may_ask_about_hosts(&self) -> bool {
        false
    }

    /// The credentials whose values its program gets, as an approval says it.
    fn reveals(&self) -> Vec<String> {
        Vec::new()
    }

    /// How long a call has to end after it was asked to ([`Invocation::stop`]), before its future is dropped. What it returns meanwhile does not count.
    fn stop_grace(&self) -> Duration {
        Duration::ZERO
    }

    /// Runs the tool. Dropping the future cancels it; work in the view then has to release the view soon.
    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>>;
}

/// A tool whose schemas are valid.
pub(crate) struct RegisteredTool {
    pub(crate) spec: ToolSpec,
    pub(crate) parameters: Parameters,
    pub(crate) result: Schema,
    /// The parts of the result that its schema marks as secret, as JSON pointers in which `*` stands for every member or item.
    pub(crate) secret_result: Vec<String>,
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
        let secret = secret_places(&text);
        Ok(Self { schema, text, secret })
    }

    /// The arguments that the schema marks as secret, as JSON pointers in which `*` stands for every member or item.
    pub(crate) fn secret(&self) -> &[String] {
        &self.secret
    }

    /// The violations of the schema, each with the example that the schema gives for its position.
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

/// The tools, by name and alias.
#[derive(Clone)]
pub struct Registry {
    by_name: BTreeMap<&'static str, Arc<RegisteredTool>>,
    servers: Arc<[v1::ToolServer]>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// Why a registry cannot be built.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Two tools have the same name.
    #[error("two tools have the name `{0}`")]
    NameTaken(&'static str),
    /// A schema is invalid.
    #[error("tool `{tool}`: `{part}`: {source}")]
    Schema {
        /// The tool.
        tool: &'static str,
        /// The schema: `parameters` or `result`.
        part: &'static str,
        /// The problem.
        source: InvalidSchema,
    },
}

impl Registry {
    /// Registers tools.
    ///
    /// # Errors
    /// [`RegistryError`] when a name is taken or a schema is invalid.
    pub fn new(tools: impl IntoIterator<Item = Box<dyn Tool>>) -> Result<Self, RegistryError> {
        let mut by_name = BTreeMap::new();
        for tool in tools {
            let spec = tool.spec();
            let refused = |part| move |source| RegistryError::Schema { tool: spec.name, part, source };
            let parameters = Parameters::new(spec.parameters).map_err(refused("parameters"))?;
            let result = Schema::new(spec.result).map_err(refused("result"))?;
            let secret_result = secret_places(&serde_json::from_str(spec.result).expect("a schema is JSON"));
            let registered = Arc::new(RegisteredTool { spec: spec.clone(), parameters, result, secret_result, tool });
            for name in std::iter::once(spec.name).chain(spec.aliases.iter().copied()) {
                if by_name.insert(name, Arc::clone(&registered)).is_some() {
                    return Err(RegistryError::NameTaken(name));
                }
            }
        }
        Ok(Self { by_name, servers: Arc::default() })
    }

    /// Sets the servers that tools are of.
    #[must_use]
    pub(crate) fn with_servers(self, servers: impl IntoIterator<Item = v1::ToolServer>) -> Self {
        Self { servers: servers.into_iter().collect(), ..self }
    }

    /// The servers that tools are of, and those that offer none.
    pub(crate) fn servers(&self) -> &[v1::ToolServer] {
        &self.servers
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        self.by_name.get(name).map(Arc::clone)
    }

    /// Every tool once, sorted by its canonical name.
    pub(crate) fn tools(&self) -> impl Iterator<Item = v1::Tool> {
        self.by_name.iter().filter(|(name, tool)| **name == tool.spec.name).map(|(_, tool)| describe(tool))
    }
}

fn describe(RegisteredTool { spec, tool, .. }: &RegisteredTool) -> v1::Tool {
    // A tool with a network of its own has it in every call. One whose profile is missing is refused when it is called.
    let network = tool.network(None).ok().flatten();
    let recovery = spec.recovery.with_network(network.as_deref());
    v1::Tool {
        name: spec.name.into(),
        aliases: spec.aliases.iter().map(|&alias| alias.into()).collect(),
        description: spec.description.into(),
        parameters_schema: spec.parameters.into(),
        result_schema: spec.result.into(),
        recovery: recovery.to_proto().into(),
        default_timeout: Some(belay_proto::duration(spec.default_timeout)),
        takes_network: tool.takes_network(),
        annotations: Some(v1::ToolAnnotations {
            read_only: Some(recovery == Recovery::ReadOnly),
            destructive: Some(spec.annotations.destructive),
            idempotent: Some(recovery == Recovery::ReadOnly || spec.annotations.idempotent),
            open_world: Some(spec.annotations.open_world || network.is_some()),
            title: spec.annotations.title.into(),
        }),
    }
}

#[cfg(test)]
impl Registry {
    /// The first violation of a tool's arguments.
    pub(crate) fn refusal(&self, tool: &str, arguments: &Value) -> Option<String> {
        let violations = self.find(tool).expect("the tool is offered").parameters.violations(arguments);
        violations.first().map(|violation| format!("arguments{}: {}", violation.pointer, violation.message))
    }
}

impl Invocation {
    /// An invocation of the runner itself, which belongs to no execution and asks nobody.
    pub(crate) fn of_runner(view: Option<ViewHandle>, output: Arc<dyn Output>) -> Self {
        Self {
            name: "namespaces/default/executions/runner/steps/runner/calls/1.1".into(),
            attempt: 1,
            arguments: Value::Null,
            view,
            output,
            questions: None,
            trace: v1::TraceContext::default(),
            context: None,
            enforced: Arc::default(),
            limit: Duration::from_secs(60),
            network: None,
            reveals: Vec::new(),
            asks: false,
            network_use: Arc::default(),
            stop: StopRequest::never(),
            never_began: Arc::default(),
            may_read: MayRead::default(),
        }
    }

    /// An invocation that drops its output.
    #[cfg(test)]
    pub(crate) fn for_test(arguments: Value, view: Option<ViewHandle>) -> Self {
        struct Discard;
        impl Output for Discard {
            fn write(&self, _stream: v1::tool_call_output::Stream, _bytes: &[u8]) {}

            fn hide(&self, _values: &[String]) {}
        }
        let name = "namespaces/default/executions/e/steps/s/calls/1.1".into();
        Self { name, arguments, ..Self::of_runner(view, Arc::new(Discard)) }
    }
}

#[cfg(test)]
mod tests {
    use belay_network::{DraftProfile, DraftRule, Profiles};

    use super::*;

    #[test]
    fn a_call_with_a_network_is_not_repeated_unless_its_profile_only_fetches() {
        let rule = DraftRule { host: "a.example.com".to_owned(), ..DraftRule::default() };
        let draft = DraftProfile { name: "ci".to_owned(), rules: vec![rule], ..DraftProfile::default() };
        let profiles = Profiles::new(&[draft]).unwrap();
        for of_tool in [Recovery::ReadOnly, Recovery::Idempotent, Recovery::Transactional, Recovery::Manual] {
            assert_eq!(of_tool.with_network(None), of_tool);
            assert_eq!(of_tool.with_network(profiles.find("ci")), Recovery::Manual);
            assert_eq!(of_tool.with_network(profiles.find("registries")), of_tool);
        }
    }
}

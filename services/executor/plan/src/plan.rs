//! The checked plan.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use belay_reasons::ErrorClass;
use serde_json::Value;

use crate::{
    AuditLevel, Budget, CallDraft, CheckDraft, Condition, Escalation, FormDraft, Input, OnError, PlanDraft,
    RecoveryStrategy, RetryPolicy, RunWhen, StepDraft, StepKindDraft, StepProblem, Template, WaitDraft, path::shown,
    recovery::MAX_QUEUED_ATTEMPTS,
};

/// A valid plan: ids are unique, dependencies exist and form no cycle, templates are well formed and name steps, and all values are within
/// their limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) stop_on_error: bool,
    pub(crate) parallelism: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) escalation: Option<Escalation>,
    pub(crate) resources: BTreeMap<String, u32>,
    pub(crate) audit_level: Option<AuditLevel>,
    pub(crate) allowed_commands: Option<Vec<String>>,
    pub(crate) budget: Option<Budget>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) dry_run: bool,
    pub(crate) inputs: BTreeMap<String, Input>,
    pub(crate) steps: Vec<Arc<StepSpec>>,
    /// By step: the steps that depend on it, ascending.
    pub(crate) dependents: Vec<Vec<usize>>,
    pub(crate) index: HashMap<String, usize>,
}

/// What a plan says about one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSpec {
    pub(crate) id: String,
    /// As it was written: empty when the id serves.
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) group: String,
    pub(crate) depends_on: Vec<String>,
    pub(crate) dependencies: Vec<usize>,
    pub(crate) run_when: RunWhen,
    pub(crate) condition: Option<Condition>,
    pub(crate) for_each: Option<Template>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) exclusive: bool,
    pub(crate) verbatim: Vec<String>,
    pub(crate) retry: RetryPolicy,
    pub(crate) on_error: OnError,
    pub(crate) fallback: Vec<OtherCall>,
    pub(crate) compensate: Option<OtherCall>,
    pub(crate) resources: Vec<String>,
    pub(crate) preconditions: Vec<Check>,
    pub(crate) postconditions: Vec<Check>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) budget: Option<Budget>,
    pub(crate) kind: StepKind,
}

/// What has to hold before or after a step's call.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// An expression that has to be true.
    Condition(Condition),
    /// A path in the workspace that has to exist: a call that has to complete.
    File(ToolStep),
    /// A program that has to end with exit code 0: a call that has to complete.
    Command(ToolStep),
}

impl Check {
    /// The tool that looks for a file.
    pub(crate) const FILE_TOOL: &str = "file_info";
    /// The tool that runs a command.
    pub(crate) const COMMAND_TOOL: &str = COMMAND_TOOL;
    /// Where the path and the command stand in the arguments of these tools.
    const PATH: &str = "path";
    const COMMAND: &str = "command";

    /// The call that it takes; `None` for an expression.
    pub fn call(&self) -> Option<&ToolStep> {
        match self {
            Self::Condition(_) => None,
            Self::File(call) | Self::Command(call) => Some(call),
        }
    }

    /// What has to hold, as part of a sentence.
    pub fn in_words(&self) -> String {
        let CheckDraft { condition, file, command } = self.to_draft();
        match self {
            Self::Condition(_) => format!("`{}` must be true", shown(&condition)),
            Self::File(_) => format!("the file `{}` must exist", shown(&file)),
            Self::Command(_) => format!("`{}` must succeed", shown(&command.join(" "))),
        }
    }

    fn to_draft(&self) -> CheckDraft {
        match self {
            Self::Condition(condition) => {
                CheckDraft { condition: condition.source().to_owned(), ..CheckDraft::default() }
            }
            Self::File(call) => {
                let path = call.arguments.source()[Self::PATH].as_str().unwrap_or_default().to_owned();
                CheckDraft { file: path, ..CheckDraft::default() }
            }
            Self::Command(call) => {
                let words = call.arguments.source()[Self::COMMAND].as_array().into_iter().flatten();
                let words = words.map(|word| word.as_str().unwrap_or_default().to_owned());
                CheckDraft { command: words.collect(), ..CheckDraft::default() }
            }
        }
    }
}

/// The call that a check takes, before it is checked: its tool and its arguments; `None` for an expression.
pub(crate) fn call_of(check: &CheckDraft) -> Option<(&'static str, Value)> {
    if !check.file.is_empty() {
        return Some((Check::FILE_TOOL, serde_json::json!({Check::PATH: check.file})));
    }
    (!check.command.is_empty()).then(|| (Check::COMMAND_TOOL, serde_json::json!({Check::COMMAND: check.command})))
}

/// Which of a step's checks one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum CheckPlace {
    /// One before its call, by its position.
    Before(usize),
    /// One after its call, by its position.
    After(usize),
}

impl CheckPlace {
    /// Where the check stands in its step, as an RFC 6901 JSON pointer: `/preconditions/0`.
    pub fn pointer(self) -> String {
        match self {
            Self::Before(place) => format!("/preconditions/{place}"),
            Self::After(place) => format!("/postconditions/{place}"),
        }
    }
}

/// A call of a step with the arguments that are taken verbatim: one of its `calls`, or one beside its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OtherCall {
    pub(crate) call: ToolStep,
    pub(crate) verbatim: Vec<String>,
}

/// What a step does. The enum is exhaustive, so that the compiler finds all code that a new kind affects.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// One call of one tool.
    Tool(ToolStep),
    /// Several calls of tools, side by side.
    Calls(CallsStep),
    /// A wait.
    Wait(WaitStep),
    /// An execution of another plan.
    Plan(PlanStep),
}

impl StepKind {
    /// Whether a step of this kind holds one of the plan's `parallelism` slots while it works. A step that holds none starts as soon as it is
    /// ready.
    pub fn needs_slot(&self) -> bool {
        match self {
            Self::Tool(_) | Self::Calls(_) | Self::Plan(_) => true,
            Self::Wait(_) => false,
        }
    }
}

/// A step that makes several calls of tools, side by side. Each is carried out as a step of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct CallsStep {
    pub(crate) calls: Vec<OtherCall>,
}

impl CallsStep {
    /// The calls, in the order of their results; at least one.
    pub fn calls(&self) -> impl ExactSizeIterator<Item = &ToolStep> {
        self.calls.iter().map(|listed| &listed.call)
    }

    /// The calls, each with the names of the arguments that it takes verbatim.
    pub fn as_written(&self) -> impl ExactSizeIterator<Item = (&ToolStep, &[String])> {
        self.calls.iter().map(|listed| (&listed.call, &listed.verbatim[..]))
    }
}

/// A step that is an execution of another plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanStep {
    /// The other plan.
    pub plan: Arc<Plan>,
    /// The values of its inputs: always an object.
    pub inputs: Template,
}

/// A step that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitStep {
    /// What it waits for.
    pub wait_for: WaitFor,
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitFor {
    /// For this long.
    Duration(Duration),
    /// Until this point in time: microseconds since the Unix epoch.
    Time(i64),
    /// For a signal of this name.
    Signal(String),
    /// For a person's answer to this form.
    Form(FormSpec),
}

/// A form that a person answers.
#[derive(Clone, Debug, PartialEq)]
pub struct FormSpec {
    /// An object with the strings `title`, which is empty when the step's title serves, and `description`.
    pub texts: Template,
    /// The JSON Schema of the answer.
    pub schema: Value,
}

impl FormSpec {
    /// The title as it was written; empty when the step's title serves.
    pub fn title(&self) -> &str {
        self.texts.source()[TITLE].as_str().unwrap_or_default()
    }

    /// The description as it was written.
    pub fn description(&self) -> &str {
        self.texts.source()[DESCRIPTION].as_str().unwrap_or_default()
    }

    /// The texts of a form, before they are checked.
    pub(crate) fn texts_of(form: &FormDraft) -> Value {
        serde_json::json!({TITLE: form.title, DESCRIPTION: form.description})
    }
}

/// The members of [`FormSpec::texts`].
const TITLE: &str = "title";
const DESCRIPTION: &str = "description";

/// What of a plan is checked with knowledge that is not in it.
#[derive(Clone, Copy, Debug)]
pub enum Planned<'a> {
    /// The call of a step.
    Call(PlannedCall<'a>),
    /// The schema of a form.
    Form {
        /// The step.
        step: PlannedStep<'a>,
        /// The schema, an object within the limits.
        schema: &'a Value,
    },
    /// The schema of a step's output.
    Output {
        /// The step.
        step: PlannedStep<'a>,
        /// The schema, an object within the limits.
        schema: &'a Value,
    },
    /// The condition of a step, or one that is checked before or after its call.
    Condition {
        /// The step.
        step: PlannedStep<'a>,
        /// Which check it is; `None` for the step's own condition.
        place: Option<CheckPlace>,
        /// The condition.
        condition: &'a Condition,
    },
}

/// A step of a plan, or of a plan that is a step of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedStep<'a> {
    /// The step's index in the outermost plan, from 0.
    pub step: usize,
    /// Where the step itself stands in that one, as an RFC 6901 JSON pointer: `/plan/steps/2`; empty for a step of the outermost plan.
    pub within: &'a str,
}

impl<'a> PlannedStep<'a> {
    /// A problem of the field of the step at this pointer.
    pub fn problem(self, pointer: &str, message: String) -> StepProblem {
        StepProblem { step: self.step, pointer: format!("{}{pointer}", self.within), message }
    }
}

impl<'a> Planned<'a> {
    /// The step that it belongs to.
    pub(crate) fn step(&self) -> PlannedStep<'a> {
        match self {
            Self::Call(call) => call.step,
            Self::Form { step, .. } | Self::Output { step, .. } | Self::Condition { step, .. } => *step,
        }
    }

    /// The same, in a plan whose commands may start these programs.
    pub(crate) fn allowing(self, allowed_commands: Option<&'a [String]>) -> Self {
        match self {
            Self::Call(call) => Self::Call(PlannedCall { allowed_commands, ..call }),
            Self::Form { .. } | Self::Output { .. } | Self::Condition { .. } => self,
        }
    }

    /// The same, of another step.
    pub(crate) fn of(self, step: PlannedStep<'a>) -> Self {
        match self {
            Self::Call(call) => Self::Call(PlannedCall { step, ..call }),
            Self::Form { schema, .. } => Self::Form { step, schema },
            Self::Output { schema, .. } => Self::Output { step, schema },
            Self::Condition { place, condition, .. } => Self::Condition { step, place, condition },
        }
    }
}

/// The call of a step whose tool is named, in a plan that may have other problems.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall<'a> {
    /// The step.
    pub step: PlannedStep<'a>,
    /// Which of the step's calls it is.
    pub place: CallPlace,
    /// The tool's name, or one of its aliases, as it was written.
    pub tool: &'a str,
    /// The arguments: always an object; `None` when they could not be read.
    pub arguments: Option<&'a Template>,
    /// The programs that commands of its plan may start; `None`: any.
    pub allowed_commands: Option<&'a [String]>,
}

impl PlannedCall<'_> {
    /// A problem of the field of the call at this pointer: `/tool`, `/arguments/path`.
    pub fn problem(&self, field: &str, message: String) -> StepProblem {
        self.step.problem(&self.place.pointer(field), message)
    }
}

/// Which of a step's calls one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallPlace {
    /// Its own.
    Own,
    /// One of several, by its position.
    Listed(usize),
    /// One that takes the place of its own, by its position.
    Fallback(usize),
    /// The one that undoes what it has done.
    Compensate,
    /// One that a check takes.
    Check(CheckPlace),
}

impl CallPlace {
    /// Where a field of the call stands in its step, as an RFC 6901 JSON pointer: `/tool`, `/fallback/0/arguments/path`.
    pub fn pointer(self, field: &str) -> String {
        match self {
            Self::Own => field.to_owned(),
            Self::Listed(place) => format!("/calls/{place}{field}"),
            Self::Fallback(place) => format!("/fallback/{place}{field}"),
            Self::Compensate => format!("/compensate{field}"),
            // The author writes a path or a command, and no tool.
            Self::Check(place) => {
                let inner = field.strip_prefix("/arguments").unwrap_or_default();
                format!("{}{}", place.pointer(), inner.replacen("/path", "/file", 1))
            }
        }
    }
}

/// A step that is one call of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolStep {
    /// The tool's name, or one of its aliases, as it was written.
    pub tool: String,
    /// The arguments: always an object.
    pub arguments: Template,
}

/// The tool that runs a command, by its canonical name.
pub const COMMAND_TOOL: &str = "run_terminal";

/// Why a plan with this list of programs does not start the program of a command, given as the tool's arguments; `None` when it does, and where there is
/// no program. Programs are compared as they are written: `/usr/bin/git` is not `git`.
pub fn not_allowed(allowed_commands: Option<&[String]>, arguments: &Value) -> Option<String> {
    let allowed = allowed_commands?;
    let program = arguments["command"][0].as_str().filter(|program| allowed.iter().all(|name| name != program))?;
    let list = match allowed {
        [] => "is empty".to_owned(),
        names => format!("has {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")),
    };
    Some(format!(
        "`{}` is not one of the programs that the plan's `allowed_commands` {list}: add it there, or use another",
        shown(program)
    ))
}

impl Plan {
    /// The author's name for the plan.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What the plan is for, for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Whether the first failed step stops the execution.
    pub fn stop_on_error(&self) -> bool {
        self.stop_on_error
    }

    /// How many levels of plans are in the plans of its steps: 0 when no step has one.
    pub fn nested_levels(&self) -> usize {
        let of_step = |step: &Arc<StepSpec>| match step.kind() {
            StepKind::Plan(PlanStep { plan, .. }) => 1 + plan.nested_levels(),
            StepKind::Tool(_) | StepKind::Calls(_) | StepKind::Wait(_) => 0,
        };
        self.steps.iter().map(of_step).max().unwrap_or(0)
    }

    /// How many steps may run at once; at least 1.
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// The longest time the whole execution may take; `None` means no limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// What follows when steps have failed; `None` when the execution ends.
    pub fn escalation(&self) -> Option<&Escalation> {
        self.escalation.as_ref()
    }

    /// How many steps may use a resource of this name at the same time; at least 1.
    pub fn capacity(&self, resource: &str) -> usize {
        self.resources.get(resource).map_or(1, |&capacity| usize::try_from(capacity.max(1)).unwrap_or(usize::MAX))
    }

    /// How much of the audit log is listed when nothing else is asked for; `None` when the author said nothing.
    pub fn audit_level(&self) -> Option<AuditLevel> {
        self.audit_level
    }

    /// The programs that its commands may start, of those that the policy allows; `None`: all of these.
    pub fn allowed_commands(&self) -> Option<&[String]> {
        self.allowed_commands.as_deref()
    }

    /// The labels of its executions, beside those that a start gives.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Whether a start of it only says what would happen.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The values that an execution is started with, by their names.
    pub fn inputs(&self) -> &BTreeMap<String, Input> {
        &self.inputs
    }

    /// The steps, in the plan's order. A step may depend on a later one.
    pub fn steps(&self) -> &[Arc<StepSpec>] {
        &self.steps
    }

    /// The position in [`Plan::steps`] of the step with this id.
    pub fn step_index(&self, id: &str) -> Option<usize> {
        self.index.get(id).copied()
    }

    /// The positions of the steps that depend on a step, ascending.
    ///
    /// # Panics
    /// When `step` is not the position of a step.
    pub fn dependents(&self, step: usize) -> &[usize] {
        &self.dependents[step]
    }

    /// The same with this time limit of each step that calls a tool or carries out a plan, in plans of steps as well.
    #[must_use]
    pub fn with_step_timeout(&self, timeout: Duration) -> Self {
        fn limit(draft: &mut PlanDraft, timeout: Duration) {
            for step in draft.steps.iter_mut().filter(|step| step.kind.retried_as().is_some()) {
                step.timeout = Some(timeout);
                if let StepKindDraft::Plan { plan, .. } = &mut step.kind {
                    limit(plan, timeout);
                }
            }
        }
        let mut draft = self.to_draft();
        limit(&mut draft, timeout);
        Self::stored(draft).expect("a time limit makes no plan invalid")
    }

    /// The most that the calls of all steps may use; `None` means no limit.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// Whether it, or one of its steps, has a budget.
    pub fn has_budgets(&self) -> bool {
        self.budget.is_some() || self.steps.iter().any(|step| step.budget.is_some())
    }

    /// The plan as a draft; [`Plan::new`] and [`Plan::stored`] make the same plan of it.
    pub fn to_draft(&self) -> PlanDraft {
        PlanDraft {
            id: self.id.clone(),
            description: self.description.clone(),
            inputs: self.inputs.clone(),
            steps: self.steps.iter().map(|step| step.to_draft()).collect(),
            stop_on_error: self.stop_on_error,
            parallelism: u32::try_from(self.parallelism).expect("it came from a u32"),
            timeout: self.timeout,
            escalation: self.escalation.clone(),
            on_error: OnError::new(),
            resources: self.resources.clone(),
            audit_level: self.audit_level,
            allowed_commands: self.allowed_commands.clone(),
            budget: self.budget,
            labels: self.labels.clone(),
            dry_run: self.dry_run,
        }
    }
}

impl StepSpec {
    /// Unique in the plan.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A short line for people; the id when the author gave none.
    pub fn title(&self) -> &str {
        if self.title.is_empty() { &self.id } else { &self.title }
    }

    /// What the step is for, and why, as its author wrote it; often empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The id of the outermost group that it was written in, for people; empty when it stands in none.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The positions of the steps that must have completed first, those named in templates included; ascending and unique.
    pub fn dependencies(&self) -> &[usize] {
        &self.dependencies
    }

    /// The dependencies that the author listed, as they were written.
    pub fn depends_on(&self) -> &[String] {
        &self.depends_on
    }

    /// After which ends of its dependencies it runs.
    pub fn run_when(&self) -> RunWhen {
        self.run_when
    }

    /// What has to be true for it to run, once its dependencies allow it.
    pub fn condition(&self) -> Option<&Condition> {
        self.condition.as_ref()
    }

    /// The list for each entry of which it runs; `None` when it runs once.
    pub fn for_each(&self) -> Option<&Template> {
        self.for_each.as_ref()
    }

    /// The calls that take the place of its own, one after the other, when all attempts of the one before have failed.
    pub fn fallback(&self) -> impl ExactSizeIterator<Item = &ToolStep> {
        self.fallback.iter().map(|fallback| &fallback.call)
    }

    /// The call that undoes what it has done.
    pub fn compensate(&self) -> Option<&ToolStep> {
        self.compensate.as_ref().map(|other| &other.call)
    }

    /// All calls that it may make itself to complete: its own, then those that take its place; none for a step that calls no tool, or several.
    pub fn calls(&self) -> impl Iterator<Item = &ToolStep> {
        let own = match &self.kind {
            StepKind::Tool(call) => Some(call),
            StepKind::Calls(_) | StepKind::Wait(_) | StepKind::Plan(_) => None,
        };
        own.into_iter().chain(self.fallback())
    }

    /// The calls that it makes side by side; `None` for a step of another kind.
    pub fn several(&self) -> Option<&CallsStep> {
        match &self.kind {
            StepKind::Calls(several) => Some(several),
            StepKind::Tool(_) | StepKind::Wait(_) | StepKind::Plan(_) => None,
        }
    }

    /// The calls that it makes side by side, in the order of their results; none for a step of another kind.
    pub fn listed_calls(&self) -> impl Iterator<Item = &ToolStep> {
        self.several().into_iter().flat_map(CallsStep::calls)
    }

    /// Whether steps of its own do its work, one for each entry of its list or for each of its calls.
    pub fn has_entries(&self) -> bool {
        self.for_each.is_some() || self.several().is_some()
    }

    /// The most that its calls may use; `None` means no limit of its own.
    pub fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    /// What it uses that no other step may use at the same time; ascending and unique.
    pub fn resources(&self) -> &[String] {
        &self.resources
    }

    /// What has to hold before each of its attempts.
    pub fn preconditions(&self) -> &[Check] {
        &self.preconditions
    }

    /// What has to hold once its call has ended with a result.
    pub fn postconditions(&self) -> &[Check] {
        &self.postconditions
    }

    /// One of its checks; `None` when it has none there.
    pub fn check(&self, place: CheckPlace) -> Option<&Check> {
        match place {
            CheckPlace::Before(place) => self.preconditions.get(place),
            CheckPlace::After(place) => self.postconditions.get(place),
        }
    }

    /// The JSON Schema of its output.
    pub fn output_schema(&self) -> Option<&Value> {
        self.output_schema.as_ref()
    }

    /// The longest time for all attempts and the waits between them; `None` means no limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The longest time for one attempt; `None` means [`Self::timeout`], and the tool's default where there is none either.
    pub fn attempt_timeout(&self) -> Option<Duration> {
        self.attempt_timeout
    }

    /// Whether no other call may commit in the workspace while the step's call runs.
    pub fn exclusive(&self) -> bool {
        self.exclusive
    }

    /// When to retry.
    pub fn retry(&self) -> &RetryPolicy {
        &self.retry
    }

    /// What follows when it has failed for good with a failure of this class.
    pub fn recovery(&self, class: ErrorClass) -> Option<RecoveryStrategy> {
        self.on_error.get(&class).copied()
    }

    /// Whether an earlier result may take the place of its call's.
    pub fn may_use_cache(&self) -> bool {
        self.on_error.values().any(|strategy| *strategy == RecoveryStrategy::UseCache)
    }

    /// Whether a rate limit pauses its execution until there is room again.
    pub fn queues_for_later(&self) -> bool {
        self.retry.rate_limit.queues_for_later() || self.is_queued_on_error()
    }

    /// How many attempts it may have when they fail with this class.
    pub fn max_attempts(&self, class: ErrorClass) -> u32 {
        match class {
            ErrorClass::RateLimit if self.is_queued_on_error() => self.retry.max_attempts.max(MAX_QUEUED_ATTEMPTS),
            _ => self.retry.max_attempts,
        }
    }

    fn is_queued_on_error(&self) -> bool {
        self.recovery(ErrorClass::RateLimit) == Some(RecoveryStrategy::QueueForLater)
    }

    /// The form that a person has to answer, when the step waits for that.
    pub fn form(&self) -> Option<&FormSpec> {
        match &self.kind {
            StepKind::Wait(WaitStep { wait_for: WaitFor::Form(form) }) => Some(form),
            StepKind::Wait(WaitStep { wait_for: WaitFor::Duration(_) | WaitFor::Time(_) | WaitFor::Signal(_) })
            | StepKind::Tool(_)
            | StepKind::Calls(_)
            | StepKind::Plan(_) => None,
        }
    }

    /// What the step does.
    pub fn kind(&self) -> &StepKind {
        &self.kind
    }

    /// The step as a draft.
    pub fn to_draft(&self) -> StepDraft {
        let kind = match &self.kind {
            StepKind::Tool(ToolStep { tool, arguments }) => {
                StepKindDraft::Tool { tool: tool.clone(), arguments: arguments.source().clone() }
            }
            StepKind::Calls(CallsStep { calls }) => {
                StepKindDraft::Calls { calls: calls.iter().map(OtherCall::to_draft).collect() }
            }
            StepKind::Plan(PlanStep { plan, inputs }) => {
                StepKindDraft::Plan { plan: Box::new(plan.to_draft()), inputs: inputs.source().clone() }
            }
            StepKind::Wait(WaitStep { wait_for }) => StepKindDraft::Wait {
                wait: match wait_for {
                    WaitFor::Duration(duration) => WaitDraft { duration: Some(*duration), ..WaitDraft::default() },
                    WaitFor::Time(micros) => WaitDraft { until: Some(*micros), ..WaitDraft::default() },
                    WaitFor::Signal(signal) => WaitDraft { signal: signal.clone(), ..WaitDraft::default() },
                    WaitFor::Form(form) => WaitDraft {
                        form: Some(FormDraft {
                            title: form.title().to_owned(),
                            description: form.description().to_owned(),
                            schema: form.schema.clone(),
                        }),
                        ..WaitDraft::default()
                    },
                },
            },
        };
        StepDraft {
            id: self.id.clone(),
            title: self.title.clone(),
            group: self.group.clone(),
            description: self.description.clone(),
            depends_on: self.depends_on.clone(),
            run_when: self.run_when,
            condition: self.condition.as_ref().map(|condition| condition.source().to_owned()).unwrap_or_default(),
            for_each: self.for_each.as_ref().map(|list| list.source().clone()),
            timeout: self.timeout,
            attempt_timeout: self.attempt_timeout,
            exclusive: self.exclusive,
            verbatim: self.verbatim.clone(),
            retry: (self.retry != RetryPolicy::default()).then(|| self.retry.clone()),
            on_error: self.on_error.clone(),
            fallback: self.fallback.iter().map(OtherCall::to_draft).collect(),
            compensate: self.compensate.as_ref().map(OtherCall::to_draft),
            resources: self.resources.clone(),
            preconditions: self.preconditions.iter().map(Check::to_draft).collect(),
            postconditions: self.postconditions.iter().map(Check::to_draft).collect(),
            output_schema: self.output_schema.clone(),
            budget: self.budget,
            kind,
        }
    }
}

impl OtherCall {
    fn to_draft(&self) -> CallDraft {
        let Self { call: ToolStep { tool, arguments }, verbatim } = self;
        CallDraft { tool: tool.clone(), arguments: arguments.source().clone(), verbatim: verbatim.clone() }
    }
}

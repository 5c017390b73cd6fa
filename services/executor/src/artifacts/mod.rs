//! The artifacts of an execution, derived from its events: the outputs of its steps and the files that its calls committed, each with what it derives
//! from. Nothing about artifacts is stored, so that nothing can differ from the events.

mod page;
mod provenance;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use belay_execution::{
    Body, ChildEnd, ChildEvent, CommittedFile, Event, ExecutionEvent, Json, OperationId, Payload, Receipt, Resolution,
    StepEvent, StepId, Timestamp, ToolCallEnd, ToolCallEvent, WaitEnd, WaitEvent,
};
use belay_plan::Plan;
use belay_proto::{payload::JSON_MEDIA_TYPE, v1};
use belay_redaction::Redactor;

pub(crate) use self::{
    page::{Page, Wanted},
    provenance::{Graph, Lineage},
};
use crate::{secrets::shown, wire};

/// How many paths of an execution are known to have been written, so that a file can derive from the one that it replaces. Later ones derive from no file.
const MAX_KNOWN_PATHS: usize = 100_000;

/// What stands between a step's id and the number of an entry of its list, in the id of the step for that entry. No id in a plan has it.
const ENTRY: char = '~';

/// What the id of a step ends with that undoes another.
const COMPENSATE: &str = "~compensate";

/// Identifies an artifact within its execution: by the event that made it and, for a file, its place in that. A step's attempt would not do: a step whose
/// output a principal gives twice, with a retry in between, has two outputs in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ArtifactId {
    sequence: u64,
    /// From 1; 0 for an output.
    file: u32,
}

impl ArtifactId {
    fn output(sequence: u64) -> Self {
        Self { sequence, file: 0 }
    }

    /// The id in this form, if it can be one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?;
        let (sequence, file) = match text.split_once('.') {
            None => (number(text)?, 0),
            Some((sequence, file)) => (number(sequence)?, u32::try_from(number(file)?).ok().filter(|file| *file > 0)?),
        };
        let id = Self { sequence, file };
        // `007` is no other name of `7`.
        (id.to_string() == text).then_some(id)
    }

    /// The event that made it.
    pub(crate) fn sequence(self) -> u64 {
        self.sequence
    }

    /// Its name in the execution of this name.
    pub(crate) fn name(self, execution: &str) -> String {
        format!("{execution}/artifacts/{self}")
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            0 => write!(f, "{}", self.sequence),
            file => write!(f, "{}.{file}", self.sequence),
        }
    }
}

/// An artifact, as it is made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made {
    pub(crate) id: ArtifactId,
    pub(crate) step: StepId,
    pub(crate) attempt: u32,
    /// The call that made it.
    pub(crate) call: Option<OperationId>,
    pub(crate) time: Timestamp,
    /// The outputs that it derives from, by the events that made them.
    pub(crate) outputs: Arc<[u64]>,
    /// The file that it replaces.
    pub(crate) replaces: Option<ArtifactId>,
    pub(crate) content: Content,
}

/// What an artifact is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Output(Payload),
    File(CommittedFile),
}

impl Made {
    /// The artifacts that it derives from.
    fn derives_from(&self) -> impl Iterator<Item = ArtifactId> {
        self.outputs.iter().map(|output| ArtifactId::output(*output)).chain(self.replaces)
    }

    /// The artifact as the contract has it, with its secrets hidden.
    pub(crate) fn message(&self, execution: &str, redactor: &Redactor) -> v1::Artifact {
        let common = v1::Artifact {
            name: self.id.name(execution),
            step_id: self.step.as_str().to_owned(),
            attempt: i32::try_from(self.attempt).unwrap_or(i32::MAX),
            tool_call: self.call.as_ref().map(|call| wire::call_name(execution, call)).unwrap_or_default(),
            sequence: i64::try_from(self.id.sequence).unwrap_or(i64::MAX),
            create_time: Some(wire::time(self.time)),
            derives_from: self.derives_from().map(|id| id.name(execution)).collect(),
            ..v1::Artifact::default()
        };
        match &self.content {
            Content::Output(payload) => {
                let (size_bytes, digest) = match payload {
                    Payload::Inline(json) => {
                        let text = shown_text(json, redactor);
                        (text.len() as u64, belay_execution::digest(text.as_bytes()))
                    }
                    Payload::Blob(blob) => (blob.size, blob.digest.to_string()),
                };
                let size_bytes = i64::try_from(size_bytes).unwrap_or(i64::MAX);
                let media_type = JSON_MEDIA_TYPE.to_owned();
                v1::Artifact { kind: v1::artifact::Kind::Output.into(), media_type, size_bytes, digest, ..common }
            }
            Content::File(file) => {
                let artifact = v1::Artifact {
                    kind: v1::artifact::Kind::File.into(),
                    size_bytes: i64::try_from(file.size).unwrap_or(i64::MAX),
                    digest: file.digest.clone(),
                    path: file.path.clone(),
                    change: wire::change_to(file.change).into(),
                    file_type: wire::file_type_to(file.file_type).into(),
                    mode: i32::try_from(file.mode).unwrap_or_default(),
                    ..common
                };
                shown(redactor, artifact)
            }
        }
    }
}

/// An output as readers get it: the text of events, with the secrets hidden that are known now.
pub(crate) fn shown_text(json: &Json, redactor: &Redactor) -> String {
    match shown(redactor, wire::inline(json)).content {
        Some(v1::payload::Content::Json(text)) => text,
        Some(v1::payload::Content::Blob(_)) | None => String::new(),
    }
}

/// Finds the artifacts in events, which it is given in order from the first.
#[derive(Debug, Default)]
pub(crate) struct Artifacts {
    plan: Option<Plan>,
    /// The last output of each step that has one.
    latest: HashMap<StepId, u64>,
    /// What the attempts that are under way derive from.
    sources: HashMap<StepId, Arc<[u64]>>,
    /// What the steps will have as outputs that complete next.
    results: HashMap<StepId, (Payload, Option<OperationId>)>,
    /// Calls under way that checks of their steps take: what they return is not the step's output.
    checks: HashSet<OperationId>,
    /// How many entries the lists have that steps run for.
    entries: HashMap<StepId, usize>,
    /// What signals carried that no step has taken.
    signals: HashMap<u64, Json>,
    /// The last file at a path, by the path's hash, with the hash of its content's digest.
    written: HashMap<u64, (ArtifactId, u64)>,
}

impl Artifacts {
    /// Takes the next event, and returns what it made.
    pub(crate) fn apply(&mut self, event: &Event) -> Vec<Made> {
        match &event.body {
            Body::Execution(body) => {
                self.execution(event.sequence, body);
                Vec::new()
            }
            Body::Step { step, attempt, event: body } => self.step(event, step, *attempt, body).into_iter().collect(),
            Body::ToolCall { call, event: ToolCallEvent::Requested(request) } => {
                if request.check.is_some() {
                    self.checks.insert(call.clone());
                }
                Vec::new()
            }
            Body::ToolCall { call, event: ToolCallEvent::Ended(end) } => self.call_ended(event, call, end),
            Body::Wait { wait, event: WaitEvent::Ended(end) } => {
                self.wait_ended(wait, end);
                Vec::new()
            }
            Body::Child { child, event: ChildEvent::Ended(ChildEnd::Completed { output }) } => {
                self.results.insert(child.step.clone(), (output.clone().into(), None));
                Vec::new()
            }
            Body::Child {
                event:
                    ChildEvent::Started(_)
                    | ChildEvent::Created
                    | ChildEvent::Paused
                    | ChildEvent::Resumed
                    | ChildEvent::Ended(ChildEnd::Failed { .. } | ChildEnd::Cancelled),
                ..
            }
            | Body::ToolCall { event: ToolCallEvent::Held(_) | ToolCallEvent::Dispatched, .. }
            | Body::Wait { event: WaitEvent::Started(_), .. }
            | Body::Approval { .. } => Vec::new(),
        }
    }

    fn execution(&mut self, sequence: u64, event: &ExecutionEvent) {
        match event {
            ExecutionEvent::Created(created) => self.plan = Some(created.plan.clone()),
            ExecutionEvent::PlanUpdated(updated) => self.plan = Some(updated.plan.clone()),
            // Their outputs are void from now on.
            ExecutionEvent::Retried(retried) => {
                for step in &retried.steps {
                    self.latest.remove(step);
                    self.ended(step);
                }
            }
            // Those that undid the same steps before do so again.
            ExecutionEvent::CompensationStarted { steps } => {
                for step in steps {
                    let undoes = StepId::from(format!("{step}{COMPENSATE}"));
                    self.latest.remove(&undoes);
                    self.ended(&undoes);
                }
            }
            ExecutionEvent::SignalReceived(received) => {
                self.signals.insert(sequence, received.payload.clone());
            }
            ExecutionEvent::Started
            | ExecutionEvent::Paused { .. }
            | ExecutionEvent::Resumed
            | ExecutionEvent::CancelRequested { .. }
            | ExecutionEvent::Recovered { .. }
            | ExecutionEvent::DeadlineExceeded
            | ExecutionEvent::AwaitingApproval
            | ExecutionEvent::Finished(_) => {}
        }
    }

    fn step(&mut self, event: &Event, step: &StepId, attempt: u32, body: &StepEvent) -> Option<Made> {
        match body {
            StepEvent::Started => {
                let sources = self.outputs_before(step);
                self.sources.insert(step.clone(), sources);
            }
            StepEvent::OutputSet { output, .. } => {
                // It derives from what the principal knew.
                self.sources.remove(step);
                self.results.insert(step.clone(), (output.clone().into(), None));
            }
            StepEvent::Resolved { resolution: Resolution::Completed(result), .. } => {
                self.results.insert(step.clone(), (result.clone().into(), None));
            }
            StepEvent::Completed { .. } => {
                let outputs = self.sources_of(step);
                let (payload, call) = self.results.remove(step)?;
                self.ended(step);
                self.latest.insert(step.clone(), event.sequence);
                return Some(Made {
                    id: ArtifactId::output(event.sequence),
                    step: step.clone(),
                    attempt,
                    call,
                    time: event.time,
                    outputs,
                    replaces: None,
                    content: Content::Output(payload),
                });
            }
            StepEvent::ItemsListed { items } => {
                self.entries.insert(step.clone(), items.len());
            }
            StepEvent::ItemsCollected { output } => {
                // It is made of the outputs of the steps for the entries.
                let entries = (0..self.entries.get(step).copied().unwrap_or_default())
                    .filter_map(|index| self.latest.get(format!("{step}{ENTRY}{index}").as_str()).copied());
                let sources = self.sources_of(step).iter().copied().chain(entries).collect();
                self.sources.insert(step.clone(), sources);
                self.results.insert(step.clone(), (output.clone(), None));
            }
            StepEvent::Failed { .. } | StepEvent::Skipped { .. } | StepEvent::Cancelled { .. } => self.ended(step),
            StepEvent::RetryScheduled { .. }
            | StepEvent::FallbackSwitched { .. }
            | StepEvent::OutcomeUnknown { .. }
            | StepEvent::Resolved { resolution: Resolution::Failed | Resolution::Again, .. }
            | StepEvent::SkipRequested { .. }
            | StepEvent::RetryAdvanced { .. }
            | StepEvent::RetryCancelled { .. } => {}
        }
        None
    }

    fn ended(&mut self, step: &StepId) {
        self.sources.remove(step);
        self.results.remove(step);
    }

    /// The outputs, as of now, of the steps that a step depends on or reads. One for an entry of a list has what the step of the list has, and one that
    /// undoes another what that one has, and its output.
    fn outputs_before(&self, step: &StepId) -> Arc<[u64]> {
        let Some(plan) = &self.plan else { return Arc::default() };
        let undone = step.strip_suffix(COMPENSATE);
        let of = undone.unwrap_or(step.as_str());
        let planned = of.split_once(ENTRY).map_or(of, |(list, _)| list);
        let Some(index) = plan.step_index(planned) else { return Arc::default() };
        let dependencies = plan.steps()[index].dependencies().iter();
        let before = dependencies.filter_map(|on| self.latest.get(plan.steps()[*on].id()).copied());
        before.chain(undone.and_then(|undone| self.latest.get(undone).copied())).collect()
    }

    fn sources_of(&self, step: &StepId) -> Arc<[u64]> {
        self.sources.get(step).cloned().unwrap_or_default()
    }

    fn call_ended(&mut self, event: &Event, call: &OperationId, end: &ToolCallEnd) -> Vec<Made> {
        let is_own = !self.checks.remove(call);
        match end {
            ToolCallEnd::Completed { result, receipt } => {
                if is_own {
                    self.results.insert(call.step.clone(), (result.clone(), Some(call.clone())));
                }
                self.committed(event, call, receipt)
            }
            ToolCallEnd::Failed { receipt, .. } => self.committed(event, call, receipt),
            ToolCallEnd::Denied { .. } | ToolCallEnd::Cancelled { .. } | ToolCallEnd::OutcomeUnknown { .. } => {
                Vec::new()
            }
        }
    }

    fn committed(&mut self, event: &Event, call: &OperationId, receipt: &Receipt) -> Vec<Made> {
        let outputs = self.sources_of(&call.step);
        let made = (1_u32..).zip(&receipt.files).map(|(number, file)| {
            let id = ArtifactId { sequence: event.sequence, file: number };
            Made {
                id,
                step: call.step.clone(),
                attempt: call.attempt,
                call: Some(call.clone()),
                time: event.time,
                outputs: Arc::clone(&outputs),
                replaces: self.replaced(id, file),
                content: Content::File(file.clone()),
            }
        });
        made.collect()
    }

    /// The file that `file` replaces or deletes, if it is the one that an earlier call wrote: the runner certifies what was there.
    fn replaced(&mut self, id: ArtifactId, file: &CommittedFile) -> Option<ArtifactId> {
        let path = hash(&file.path);
        let before = self.written.get(&path).copied();
        if !file.digest.is_empty() && (before.is_some() || self.written.len() < MAX_KNOWN_PATHS) {
            self.written.insert(path, (id, hash(&file.digest)));
        } else {
            self.written.remove(&path);
        }
        let is_same = |digest| !file.previous_digest.is_empty() && digest == hash(&file.previous_digest);
        before.filter(|(_, digest)| is_same(*digest)).map(|(id, _)| id)
    }

    fn wait_ended(&mut self, wait: &OperationId, end: &WaitEnd) {
        let output = match end {
            WaitEnd::Elapsed => Some(Json::from_text("null")),
            WaitEnd::Signalled { sequence } => self.signals.remove(sequence),
            WaitEnd::Answered { answer } => Some(answer.clone()),
            WaitEnd::Declined { .. } | WaitEnd::Refused { .. } | WaitEnd::TimedOut | WaitEnd::Cancelled => None,
        };
        if let Some(output) = output {
            self.results.insert(wait.step.clone(), (output.into(), None));
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;

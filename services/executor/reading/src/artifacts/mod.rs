//! The artifacts of an execution, derived from its events: the outputs of its steps and the files that its calls committed, each with what it derives
//! from. Nothing about artifacts is stored, so that nothing can differ from the events.

mod filter;
mod page;
mod provenance;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use belay_execution::{
    Body, CommittedFile, Event, ExecutionEvent, OperationEnd, OperationEvent, OperationId, Payload, Resolution,
    StepEvent, StepId, StepOutput, Timestamp,
};
use belay_plan::{Plan, compensated_step, compensation_id, entry_id, planned_step};

pub use self::{
    filter::{ArtifactFilter, Kind},
    page::{ArtifactPage, Page, Selection},
    provenance::{Graph, Lineage},
};

/// How many paths of an execution are known to have been written, so that a file can derive from the one that it replaces. Later ones derive from no file.
const MAX_KNOWN_PATHS: usize = 100_000;

/// Identifies an artifact within its execution: by the event that made it and, for a file, its place in that. A step's attempt would not do: a step whose
/// output a principal gives twice, with a retry in between, has two outputs in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactId {
    sequence: u64,
    /// From 1; 0 for an output.
    file: u32,
}

impl ArtifactId {
    fn output(sequence: u64) -> Self {
        Self { sequence, file: 0 }
    }

    /// The id in this form, if it can be one.
    pub fn parse(text: &str) -> Option<Self> {
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
    pub fn sequence(self) -> u64 {
        self.sequence
    }

    /// Its name in the execution of this name.
    pub fn name(self, execution: &str) -> String {
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

/// An artifact.
#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    /// Its id.
    pub id: ArtifactId,
    /// The step that made it.
    pub step: StepId,
    /// The step's attempt; 0 when none was needed.
    pub attempt: u32,
    /// The call that made it.
    pub call: Option<OperationId>,
    /// When it was made.
    pub time: Timestamp,
    /// The outputs that it derives from, by the events that made them.
    pub outputs: Arc<[u64]>,
    /// The file that it replaces.
    pub replaces: Option<ArtifactId>,
    /// The output or the file that it is.
    pub content: Content,
}

/// The content of an artifact.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The output of a step.
    Output(Payload),
    /// A file that a call committed.
    File(CommittedFile),
}

impl Artifact {
    /// The artifacts that it derives from.
    pub fn derives_from(&self) -> impl Iterator<Item = ArtifactId> {
        self.outputs.iter().map(|output| ArtifactId::output(*output)).chain(self.replaces)
    }
}

/// The artifacts that an event made, with the facts about them that only earlier events determine. All other facts are in the events themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The step whose artifacts they are.
    pub step: StepId,
    /// The outputs that they derive from, by the events that made them.
    outputs: Arc<[u64]>,
    origin: Origin,
}

/// Where the events say what an artifact is.
#[derive(Clone, Debug, PartialEq)]
enum Origin {
    /// An output, whose value is in the event with this sequence.
    Output { value: u64 },
    /// The files of the call that ended with the event.
    Files(Arc<[FileEntry]>),
}

/// A file of an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileEntry {
    /// The file that it replaces.
    replaces: Option<ArtifactId>,
    /// The length of its path, in bytes.
    path_bytes: u32,
}

impl Entry {
    /// The files; none for an output.
    fn files(&self) -> &[FileEntry] {
        match &self.origin {
            Origin::Output { .. } => &[],
            Origin::Files(files) => files,
        }
    }

    /// The ids of the artifacts, when the event has this sequence.
    fn ids(&self, sequence: u64) -> impl Iterator<Item = ArtifactId> + use<> {
        let numbers = match &self.origin {
            Origin::Output { .. } => 0..=0,
            Origin::Files(files) => 1..=u32::try_from(files.len()).unwrap_or(u32::MAX),
        };
        numbers.map(move |file| ArtifactId { sequence, file })
    }

    /// Whether the event with this sequence made the artifact.
    fn has(&self, id: ArtifactId) -> bool {
        match &self.origin {
            Origin::Output { .. } => id.file == 0,
            Origin::Files(files) => (1..=files.len()).contains(&(id.file as usize)),
        }
    }

    /// The sequences of the events that [`Entry::artifact`] needs, when the entry's own is this one.
    fn sequences(&self, sequence: u64) -> impl Iterator<Item = u64> + use<> {
        let value = match &self.origin {
            Origin::Output { value } => Some(*value),
            Origin::Files(_) => None,
        };
        value.into_iter().chain([sequence])
    }

    /// The artifact with this id; `None` when the events are not those that the entry was made from.
    fn artifact(&self, id: ArtifactId, events: &HashMap<u64, Event>) -> Option<Artifact> {
        let event = events.get(&id.sequence)?;
        let (attempt, call, replaces, content) = match &self.origin {
            Origin::Output { value } => {
                let (payload, call) = value_of(events.get(value)?)?;
                let Body::Step { attempt, .. } = &event.body else { return None };
                (*attempt, call, None, Content::Output(payload))
            }
            Origin::Files(files) => {
                let Body::Operation { id: call, event: OperationEvent::Ended(end) } = &event.body else { return None };
                let index = (id.file as usize).checked_sub(1)?;
                let file = end.files().get(index)?.clone();
                (call.attempt, Some(call.clone()), files.get(index)?.replaces, Content::File(file))
            }
        };
        let (step, outputs, time) = (self.step.clone(), Arc::clone(&self.outputs), event.time);
        Some(Artifact { id, step, attempt, call, time, outputs, replaces, content })
    }
}

/// The value that an event has for its step's output, and the call that returned it.
fn value_of(event: &Event) -> Option<(Payload, Option<OperationId>)> {
    match &event.body {
        Body::Execution(ExecutionEvent::SignalReceived(received)) => Some((received.payload.clone().into(), None)),
        Body::Step { event: StepEvent::OutputSet { output, .. }, .. } => Some((output.clone().into(), None)),
        Body::Step { event: StepEvent::Resolved { resolution: Resolution::Completed(result), .. }, .. } => {
            Some((result.clone().into(), None))
        }
        Body::Step { event: StepEvent::ItemsCollected { output }, .. } => Some((output.clone(), None)),
        Body::Step { event: StepEvent::CachedResultUsed { result, .. }, .. } => Some((result.clone(), None)),
        Body::Operation { id: call, event: OperationEvent::Ended(end) } => match end.output()? {
            StepOutput::Value(value) => Some((value, Some(call.clone()).filter(|_| end.is_of_call()))),
            StepOutput::OfSignal { .. } => None,
        },
        Body::Execution(_) | Body::Step { .. } | Body::Operation { .. } => None,
    }
}

/// Finds the artifacts in events, which it is given in order from the first and with their secrets: two paths that are shown alike are two.
#[derive(Debug, Default)]
pub struct Artifacts {
    /// The steps that each step of the plan depends on or reads.
    dependencies: HashMap<StepId, Box<[StepId]>>,
    /// The last output of each step that has one.
    latest: HashMap<StepId, u64>,
    /// The outputs that the attempts under way derive from.
    sources: HashMap<StepId, Arc<[u64]>>,
    /// The events with the values that the steps will have as outputs that complete next.
    results: HashMap<StepId, u64>,
    /// Operations in flight whose end gives their steps no output: checks, and questions of calls.
    without_output: HashSet<OperationId>,
    /// How many entries the lists have that steps run for.
    entries: HashMap<StepId, usize>,
    /// The signals that no step has taken, by the events that have them.
    signals: HashSet<u64>,
    /// The last file at a path, by the path's hash, with the hash of its content's digest.
    written: HashMap<u64, (ArtifactId, u64)>,
}

impl Artifacts {
    /// Takes the next event, and returns what it made.
    pub fn apply(&mut self, event: &Event) -> Option<Entry> {
        match &event.body {
            Body::Execution(body) => {
                self.execution(event.sequence, body);
                None
            }
            Body::Step { step, event: body, .. } => self.step(event.sequence, step, body),
            Body::Operation { id, event: OperationEvent::Requested(work) } => {
                if !work.gives_output() {
                    self.without_output.insert(id.clone());
                }
                None
            }
            Body::Operation { id, event: OperationEvent::Ended(end) } => self.operation_ended(event.sequence, id, end),
            Body::Operation {
                event:
                    OperationEvent::Held(_)
                    | OperationEvent::Asked { .. }
                    | OperationEvent::Decided { .. }
                    | OperationEvent::Dispatched
                    | OperationEvent::Reported(_),
                ..
            } => None,
        }
    }

    fn execution(&mut self, sequence: u64, event: &ExecutionEvent) {
        match event {
            ExecutionEvent::Created(created) => self.planned(&created.plan),
            ExecutionEvent::PlanUpdated(updated) => self.planned(&updated.plan),
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
                    let undoes = StepId::from(compensation_id(step));
                    self.latest.remove(&undoes);
                    self.ended(&undoes);
                }
            }
            ExecutionEvent::SignalReceived(_) => {
                self.signals.insert(sequence);
            }
            ExecutionEvent::LimitsRequested
            | ExecutionEvent::LimitsAcquired
            | ExecutionEvent::Started
            | ExecutionEvent::Paused { .. }
            | ExecutionEvent::BudgetReported(_)
            | ExecutionEvent::Resumed
            | ExecutionEvent::CancelRequested { .. }
            | ExecutionEvent::Recovered { .. }
            | ExecutionEvent::DeadlineExceeded
            | ExecutionEvent::AwaitingApproval
            | ExecutionEvent::Finished(_) => {}
        }
    }

    fn planned(&mut self, plan: &Plan) {
        let ids: Vec<StepId> = plan.steps().iter().map(|step| StepId::from(step.id())).collect();
        let on = plan.steps().iter().map(|step| step.dependencies().iter().map(|on| ids[*on].clone()).collect());
        self.dependencies = ids.iter().cloned().zip(on).collect();
    }

    fn step(&mut self, sequence: u64, step: &StepId, body: &StepEvent) -> Option<Entry> {
        match body {
            StepEvent::Started => {
                let sources = self.outputs_before(step);
                self.sources.insert(step.clone(), sources);
            }
            // It derives from what the principal knew, or from what the earlier call had.
            StepEvent::OutputSet { .. } | StepEvent::CachedResultUsed { .. } => {
                self.sources.remove(step);
                self.results.insert(step.clone(), sequence);
            }
            StepEvent::Resolved { resolution: Resolution::Completed(_), .. } => {
                self.results.insert(step.clone(), sequence);
            }
            StepEvent::Completed { .. } => {
                let outputs = self.sources_of(step);
                let value = self.results.remove(step)?;
                self.ended(step);
                self.latest.insert(step.clone(), sequence);
                return Some(Entry { step: step.clone(), outputs, origin: Origin::Output { value } });
            }
            StepEvent::ItemsListed { first, items } => {
                self.entries.insert(step.clone(), first + items.len());
            }
            StepEvent::ItemsCollected { .. } => {
                // It is made of the outputs of the steps for the entries.
                let entries = (0..self.entries.get(step).copied().unwrap_or_default())
                    .filter_map(|index| self.latest.get(entry_id(step, index).as_str()).copied());
                let sources = self.sources_of(step).iter().copied().chain(entries).collect();
                self.sources.insert(step.clone(), sources);
                self.results.insert(step.clone(), sequence);
            }
            StepEvent::Failed { .. } | StepEvent::Skipped { .. } | StepEvent::Cancelled { .. } => self.ended(step),
            StepEvent::RetryScheduled { .. }
            | StepEvent::FallbackSwitched { .. }
            | StepEvent::OutcomeUnknown { .. }
            | StepEvent::Resolved { resolution: Resolution::Failed | Resolution::Again, .. }
            | StepEvent::SkipRequested { .. }
            | StepEvent::ConversationCarriedOver { .. }
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
        let undone = compensated_step(step);
        let of = undone.unwrap_or(step.as_str());
        let Some(dependencies) = self.dependencies.get(planned_step(of)) else { return Arc::default() };
        let before = dependencies.iter().filter_map(|on| self.latest.get(on).copied());
        before.chain(undone.and_then(|undone| self.latest.get(undone).copied())).collect()
    }

    fn sources_of(&self, step: &StepId) -> Arc<[u64]> {
        self.sources.get(step).cloned().unwrap_or_default()
    }

    fn operation_ended(&mut self, sequence: u64, id: &OperationId, end: &OperationEnd) -> Option<Entry> {
        let gives_output = !self.without_output.remove(id);
        let value = end.output().filter(|_| gives_output).and_then(|output| match output {
            StepOutput::Value(_) => Some(sequence),
            StepOutput::OfSignal { sequence } => self.signals.take(&sequence),
        });
        if let Some(value) = value {
            self.results.insert(id.step.clone(), value);
        }
        let files = end.files();
        let numbered = (1_u32..).zip(files).map(|(number, file)| FileEntry {
            replaces: self.replaced(ArtifactId { sequence, file: number }, file),
            path_bytes: u32::try_from(file.path.len()).unwrap_or(u32::MAX),
        });
        let files: Arc<[FileEntry]> = numbered.collect();
        let outputs = self.sources_of(&id.step);
        (!files.is_empty()).then(|| Entry { step: id.step.clone(), outputs, origin: Origin::Files(files) })
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
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;

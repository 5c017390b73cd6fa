//! Reads of an execution's events, for what is derived from them.

use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
    sync::Arc,
};

use belay_execution::{Event, StepId, Workspace};
use belay_journal::{ExecutionKey, Transition};
use belay_proto::v1::{AuditLevel, ExecutionEvent, execution_event::Kind};
use belay_reading::{
    artifacts::{Artifact, Selection},
    event_index::EventIndex,
};
use belay_reasons as reasons;
use belay_redaction::Redactor;
use belay_service_kit::status;
use tonic::{Code, Status};

use crate::{
    ExecutionReader,
    names::ExecutionName,
    store::journal_reads::{corrupt, undecodable, unreadable},
    wire,
};

/// How many artifacts are in memory at once with the events that say what they are.
pub(super) const MAX_SELECTED: usize = 128;

/// An execution whose events are read.
pub(super) struct History<'a> {
    reading: &'a Arc<ExecutionReader>,
    pub(super) key: ExecutionKey,
    /// Hides its secrets, as far as they are known now.
    pub(super) redactor: Redactor,
    /// Its random identity.
    pub(super) uid: String,
    /// Its workspace.
    pub(super) workspace: Workspace,
    /// How much of the audit log its plan wants to be listed.
    pub(super) audit_level: AuditLevel,
}

impl<'a> History<'a> {
    /// The history of an execution that has this step, if one is named. `parent` is what the caller named.
    pub(super) async fn of(
        reading: &'a Arc<ExecutionReader>,
        name: &ExecutionName,
        step: Option<&str>,
        parent: &str,
    ) -> Result<Self, Status> {
        let looked = reading.follower.look(name, |seen| {
            let has_step = step.is_none_or(|step| seen.execution.step_key(&StepId::from(step)).is_some());
            let created = seen.execution.created();
            let audit_level = wire::audit_level_to(seen.execution.plan().audit_level());
            has_step.then(|| (seen.redactor(), created.uid.clone(), created.workspace.clone(), audit_level))
        });
        let found = looked.await?;
        let (redactor, uid, workspace, audit_level) =
            found.ok_or_else(|| no_step(name, step.unwrap_or_default(), parent))?;
        let key = reading.follower.find(name).await?.key;
        Ok(Self { reading, key, redactor, uid, workspace, audit_level })
    }

    /// Selects from the index of the events, as [`Follower::select`](crate::feeds::Follower::select) does.
    pub(super) async fn select<T>(&self, select: impl FnMut(&EventIndex, bool) -> Option<T>) -> Result<T, Status> {
        self.reading.follower.select(self.key, self.page(), select).await
    }

    /// The artifacts of a selection, as they are shown, in parts: `see` gets them in order until it breaks.
    pub(super) async fn artifacts(
        &self,
        selection: &Selection,
        mut see: impl FnMut(Artifact) -> ControlFlow<()>,
    ) -> Result<(), Status> {
        for part in selection.parts(MAX_SELECTED) {
            let mut events = HashMap::new();
            self.at(&part.sequences(), |event| drop(events.insert(event.sequence, event))).await?;
            for artifact in part.artifacts(&events) {
                let artifact = artifact.ok_or_else(|| corrupt("An event of the execution is not what it was."))?;
                if see(artifact).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Gives the events with these sequences to `see`, in order and as they are shown. None of them may have a plan.
    pub(super) async fn at(&self, sequences: &BTreeSet<u64>, mut see: impl FnMut(Event)) -> Result<(), Status> {
        let Self { reading, key, .. } = *self;
        let mut read_up_to = 0;
        while let Some(&next) = sequences.range(read_up_to + 1..).next() {
            // As many transitions as there are events close by: one of these is most often in each.
            let limit = sequences.range(next..next + self.page() as u64).count();
            let read = reading.follower.read(move |reader| reader.read(key, next - 1, limit)).await;
            let transitions = read.map_err(|error| unreadable(&error))?;
            let last = transitions.last().filter(|last| last.last_sequence() >= next);
            let from = std::mem::replace(&mut read_up_to, last.map_or(u64::MAX - 1, Transition::last_sequence));
            for transition in &transitions {
                if sequences.range(transition.first_sequence..=transition.last_sequence()).next().is_none() {
                    continue;
                }
                let messages = wire::decode_all(transition).map_err(|error| undecodable(&error, &reading.sealer))?;
                let is_meant = |sequence: u64| sequence > from && sequences.contains(&sequence);
                let meant = messages.into_iter().filter(|event| u64::try_from(event.sequence).is_ok_and(is_meant));
                for event in wire::to_events(meant, |_| None) {
                    see(event.map_err(|error| undecodable(&error, &reading.sealer))?);
                }
            }
        }
        Ok(())
    }

    /// Gives the events after one to `see`, each with its sequence, in order and as watchers get them, until it breaks or there are no more. At first no more
    /// are read than `wanted` and one.
    pub(super) async fn watched(
        &self,
        after: u64,
        wanted: usize,
        mut see: impl FnMut(u64, ExecutionEvent) -> ControlFlow<()>,
    ) -> Result<(), Status> {
        let Self { reading, key, .. } = *self;
        let feed = reading.feed(key);
        let (mut cursor, mut limit) = (after, self.page().min(wanted.saturating_add(1)));
        loop {
            let read = reading.follower.read(move |reader| reader.read(key, cursor, limit)).await;
            let transitions = read.map_err(|error| unreadable(&error))?;
            let Some(last) = transitions.last() else { return Ok(()) };
            let from = std::mem::replace(&mut cursor, last.last_sequence());
            limit = self.page();
            // A client that is shown an event and then asks for the execution gets it with that event.
            feed.raise(cursor);
            for transition in &transitions {
                for message in wire::decode_all(transition).map_err(|error| undecodable(&error, &reading.sealer))? {
                    let sequence = u64::try_from(message.sequence).unwrap_or(0);
                    if sequence > from && see(sequence, message).is_break() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn page(&self) -> usize {
        self.reading.thresholds.watch_page.max(1)
    }

    /// Gives the events after one to `see`, in order and as they are shown, until it breaks or there are no more. Only the plan is as it is carried out, since
    /// a secret that is hidden in it could hide what a step reads.
    pub(super) async fn read(&self, after: u64, mut see: impl FnMut(&Event) -> ControlFlow<()>) -> Result<(), Status> {
        let Self { reading, key, .. } = *self;
        let page = self.page();
        let (mut cursor, mut first) = (after, None);
        loop {
            let read = reading.follower.read(move |reader| reader.read(key, cursor, page)).await;
            let transitions = read.map_err(|error| unreadable(&error))?;
            let Some(last) = transitions.last() else { return Ok(()) };
            let from = cursor;
            cursor = last.last_sequence();
            for transition in &transitions {
                for message in self.messages(transition, &mut first).await? {
                    let sequence = u64::try_from(message.sequence).unwrap_or(0);
                    if sequence <= from {
                        continue;
                    }
                    let facts = transition.facts.as_deref();
                    for event in wire::to_events([message], |_| facts) {
                        if see(&event.map_err(|error| undecodable(&error, &reading.sealer))?).is_break() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    async fn messages(
        &self,
        transition: &Transition,
        first: &mut Option<Transition>,
    ) -> Result<Vec<ExecutionEvent>, Status> {
        let Self { reading, key, .. } = *self;
        let mut messages = wire::decode_all(transition).map_err(|error| undecodable(&error, &reading.sealer))?;
        if transition.facts.is_none() {
            return Ok(messages);
        }
        // What is sealed is opened with the uid, which the first event has.
        if first.is_none() && transition.first_sequence > 1 {
            let read = reading.follower.read(move |reader| reader.read(key, 0, 1)).await;
            *first = read.map_err(|error| unreadable(&error))?.into_iter().next();
        }
        let wrapped = reading.follower.read(move |reader| reader.seal_key(key)).await;
        let wrapped = wrapped.map_err(|error| unreadable(&error))?;
        let both: Vec<Transition> = first.iter().chain([transition]).cloned().collect();
        let (opened, _) = reading.sealer.open(&both, wrapped.as_deref())?;
        if first.is_none() {
            *first = Some(transition.clone());
        }
        for message in &mut messages {
            let opened = || opened.iter().find(|opened| opened.sequence == message.sequence);
            match (&mut message.kind, opened().and_then(|opened| opened.kind.as_ref())) {
                (Some(Kind::ExecutionCreated(shown)), Some(Kind::ExecutionCreated(opened))) => {
                    shown.plan.clone_from(&opened.plan);
                }
                (Some(Kind::ExecutionPlanUpdated(shown)), Some(Kind::ExecutionPlanUpdated(opened))) => {
                    shown.plan.clone_from(&opened.plan);
                }
                _ => {}
            }
        }
        Ok(messages)
    }
}

/// The error of a step that an execution does not have.
fn no_step(name: &ExecutionName, step: &str, parent: &str) -> Status {
    let message = format!("Execution `{}` has no step `{step}`.", name.id);
    status::error(Code::NotFound, reasons::STEP_NOT_FOUND, message).with("name", parent).into()
}

//! Reads an execution's events in order, for what is derived from all of them.

use std::{ops::ControlFlow, sync::Arc};

use belay_execution::{Event, StepId, Workspace};
use belay_journal::{ExecutionKey, Transition};
use belay_proto::v1::{AuditLevel, ExecutionEvent, execution_event::Kind};
use belay_redaction::Redactor;
use tonic::Status;

use super::list_tool_calls::no_step;
use crate::{
    ExecutionRegistry,
    journal_reads::{undecodable, unreadable},
    names::ExecutionName,
    wire,
};

/// An execution whose events are read.
pub(super) struct History<'a> {
    registry: &'a Arc<ExecutionRegistry>,
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
        registry: &'a Arc<ExecutionRegistry>,
        name: &ExecutionName,
        step: Option<&str>,
        parent: &str,
    ) -> Result<Self, Status> {
        let looked = registry.follower.look(name, |seen| {
            let has_step = step.is_none_or(|step| seen.execution.step_key(&StepId::from(step)).is_some());
            let created = seen.execution.created();
            let audit_level = wire::audit_level_to(seen.execution.plan().audit_level());
            has_step.then(|| (seen.redactor(), created.uid.clone(), created.workspace.clone(), audit_level))
        });
        let found = looked.await?;
        let (redactor, uid, workspace, audit_level) =
            found.ok_or_else(|| no_step(name, step.unwrap_or_default(), parent))?;
        let key = registry.follower.find(name).await?.key;
        Ok(Self { registry, key, redactor, uid, workspace, audit_level })
    }

    /// Gives the events after one to `see`, in order and as they are shown, until it breaks or there are no more. Only the plan is as it is carried out, since
    /// a secret that is hidden in it could hide what a step reads.
    pub(super) async fn read(&self, after: u64, mut see: impl FnMut(&Event) -> ControlFlow<()>) -> Result<(), Status> {
        let Self { registry, key, .. } = *self;
        let page = registry.thresholds.watch_page.max(1);
        let (mut cursor, mut first) = (after, None);
        loop {
            let read = registry.follower.read(move |reader| reader.read(key, cursor, page)).await;
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
                        if see(&event.map_err(|error| undecodable(&error, &registry.vault))?).is_break() {
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
        let Self { registry, key, .. } = *self;
        let mut messages = wire::decode_all(transition).map_err(|error| undecodable(&error, &registry.vault))?;
        if transition.facts.is_none() {
            return Ok(messages);
        }
        // What is sealed is opened with the uid, which the first event has.
        if first.is_none() && transition.first_sequence > 1 {
            let read = registry.follower.read(move |reader| reader.read(key, 0, 1)).await;
            *first = read.map_err(|error| unreadable(&error))?.into_iter().next();
        }
        let wrapped = registry.follower.read(move |reader| reader.seal_key(key)).await;
        let wrapped = wrapped.map_err(|error| unreadable(&error))?;
        let both: Vec<Transition> = first.iter().chain([transition]).cloned().collect();
        let (opened, _) = registry.vault.open(&both, wrapped.as_deref())?;
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

//! Calls, folded from the events: their requests, the approvals they waited for, and their ends.

use std::collections::BTreeMap;

use belay_proto::v1::{self, execution_event::Kind, payload};
use serde_json::Value;

/// The contents of the blobs of an execution, by their digests.
pub(super) type Blobs = BTreeMap<String, String>;

/// A call, according to the events.
pub(super) struct Call<'a> {
    pub(super) step: usize,
    /// Whether it is exclusive.
    pub(super) exclusive: bool,
    /// The planned step that the call is made for, and the entry of a list.
    pub(super) planned: Option<v1::ToolStep>,
    pub(super) entry: Option<Value>,
    /// The number of the call among those of its step, from 0: its own, or one that takes its place. Then its round: how many attempts the step had
    /// made when it was last made to run again.
    pub(super) which: usize,
    pub(super) round: i32,
    pub(super) request: &'a v1::ToolCallRequested,
    pub(super) holds: Vec<Hold<'a>>,
    pub(super) ends: Vec<&'a v1::ExecutionEvent>,
    blobs: &'a Blobs,
}

/// An approval that a call waited for.
pub(super) struct Hold<'a> {
    pub(super) need: &'a v1::ApprovalNeed,
    pub(super) asked: Option<&'a v1::ApprovalRequested>,
    pub(super) decided: Option<&'a v1::ApprovalDecided>,
    /// The principal who decided.
    pub(super) decided_by: &'a str,
}

impl<'a> Call<'a> {
    pub(super) fn new(step: usize, exclusive: bool, request: &'a v1::ToolCallRequested, blobs: &'a Blobs) -> Self {
        let (planned, entry, which, round) = (None, None, 0, 0);
        Self { step, exclusive, planned, entry, which, round, request, holds: Vec::new(), ends: Vec::new(), blobs }
    }

    /// The JSON of a payload of its execution.
    pub(super) fn json(&self, payload: Option<&v1::Payload>) -> Value {
        json(payload, self.blobs)
    }

    /// How it ended; `None` unless it ended exactly once.
    pub(super) fn end(&self) -> Option<&'a Kind> {
        match self.ends[..] {
            [end] => end.kind.as_ref(),
            _ => None,
        }
    }

    /// Records that the call starts to wait, or continues.
    pub(super) fn hold(&mut self, event: &'a v1::ExecutionEvent, kind: &'a Kind) -> Result<(), String> {
        let need = match kind {
            Kind::ToolCallEffectProposed(v1::ToolCallEffectProposed { need })
            | Kind::ToolCallApprovalRequired(v1::ToolCallApprovalRequired { need }) => need.as_ref(),
            _ => None,
        };
        if let Some(need) = need {
            self.holds.push(Hold { need, asked: None, decided: None, decided_by: "" });
            return Ok(());
        }
        let misfit = || format!("{kind:?} without a question");
        match kind {
            Kind::ApprovalRequested(asked) => {
                let hold = self.holds.last_mut().filter(|hold| hold.asked.is_none() && hold.decided.is_none());
                hold.ok_or_else(misfit)?.asked = Some(asked);
            }
            // Nothing is let run that was not approved.
            Kind::ToolCallDispatched(_) => {
                let is_approved = |hold: &Hold<'_>| {
                    hold.need.kind() == v1::approval_need::Kind::Call
                        && hold.decided.is_some_and(|decided| decided.decision() == v1::Decision::Approve)
                };
                if !self.holds.last().is_some_and(is_approved) {
                    return Err("it was dispatched without an approval".to_owned());
                }
            }
            Kind::ApprovalDecided(decided) => {
                let hold = self.holds.last_mut().filter(|hold| hold.decided.is_none());
                let hold = hold.ok_or_else(misfit)?;
                hold.decided = Some(decided);
                hold.decided_by = event.actor.as_ref().map_or("", |actor| &actor.principal);
            }
            _ => {}
        }
        Ok(())
    }

    /// The run whose result it completed with.
    pub(super) fn completed_with(&self) -> Option<usize> {
        match self.end() {
            Some(Kind::ToolCallCompleted(completed)) => {
                self.json(completed.result.as_ref())["run"].as_u64().and_then(|run| usize::try_from(run).ok())
            }
            _ => None,
        }
    }

    /// The consequence of a second effect of this call.
    pub(super) fn twice(&self) -> &'static str {
        let is_approved = |decided: &v1::ApprovalDecided| decided.decision() == v1::Decision::Approve;
        match self.holds.iter().any(|hold| hold.decided.is_some_and(is_approved)) {
            true => ", and its grant was spent twice",
            false => "",
        }
    }

    pub(super) fn arguments(&self) -> Value {
        self.json(self.request.arguments.as_ref())
    }
}

/// The JSON of a payload of an execution with these blobs.
pub(super) fn json(payload: Option<&v1::Payload>, blobs: &Blobs) -> Value {
    match payload.and_then(|payload| payload.content.as_ref()) {
        Some(payload::Content::Json(text)) => serde_json::from_str(text).unwrap_or_default(),
        Some(payload::Content::Blob(blob)) => {
            blobs.get(&blob.digest).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        }
        None => Value::Null,
    }
}

//! A tool runner and a gate that play a script: each call runs once under its own name, each question is asked once, and what came of it
//! is kept for whoever asks again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    time::Duration,
};

use belay_execution::{
    Actor, ApprovalRequirement, Body, Decision, ErrorClass, Failure, Json, ModelUsage, OperationEnd, OperationEvent,
    OperationId, PendingApproval, Receipt, StepLayers, SubjectKind, Timestamp, ToolCallEnd, ToolCallRequest,
};

use belay_plan::{MODEL_TOOL, is_own_tool};

use super::{Happening, story::requirement};

/// How a call ends.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Completed(Json),
    Failed(Failure),
    /// By a policy, or because somebody said no.
    Denied(Failure),
    /// Although nobody asked for it, or on request; the failure says why.
    Cancelled(Option<Failure>),
    Unknown(Failure),
}

/// A question for which a call is held.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) kind: SubjectKind,
    /// The decision, and how long after the question; `None` when nobody answers.
    pub(crate) answer: Option<(Decision, Duration)>,
    /// The workspace has changed by the time of the commit.
    pub(crate) conflicts: bool,
}

/// The script's reply to one call.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) latency: Duration,
    /// How long stopping it takes; `None` when it cannot be stopped and ends as it would have ended anyway.
    pub(crate) stops_in: Option<Duration>,
    /// The questions for which it is held, first before its work, then before its commit.
    pub(crate) questions: Vec<Question>,
}

/// From the call and how many calls its step made before.
pub(crate) type Script = Box<dyn Fn(&OperationId, usize) -> Reply>;

pub(crate) struct Runner {
    script: Script,
    calls: BTreeMap<OperationId, Call>,
}

struct Call {
    /// `None` for a call that was stopped before it arrived.
    request: Option<ToolCallRequest>,
    outcome: Outcome,
    latency: Duration,
    stops_in: Option<Duration>,
    questions: VecDeque<Question>,
    /// How many questions were answered.
    answered: usize,
    /// When the gate heard of the question.
    asked: Option<Timestamp>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Held from this moment on.
    Held(Timestamp),
    /// Over at this moment.
    Ends(Timestamp),
}

/// What a model's server has counted: now and then nothing, and now and then more than anybody has expected.
fn usage_of(request: &ToolCallRequest, outcome: &Outcome) -> Option<ModelUsage> {
    // One counts nothing.
    if request.arguments.inline().is_some_and(|arguments| arguments.as_str().contains("\"model\":\"small\"")) {
        return None;
    }
    let bytes = request.arguments.size();
    let input_tokens = match bytes % 7 {
        0 => return None,
        1 => bytes * 3,
        _ => bytes / 4,
    };
    let output_tokens = if matches!(outcome, Outcome::Completed(_)) { 20 } else { 0 };
    Some(ModelUsage {
        input_tokens,
        output_tokens,
        cost_micros: Some(input_tokens + 2 * output_tokens),
        ..ModelUsage::default()
    })
}

fn conflict() -> Failure {
    Failure::new(ErrorClass::Transient, "CONFLICT", "The workspace changed under the call.")
}

impl Call {
    /// Begins its work, or is held before it.
    fn go_on(&mut self, now: Timestamp) {
        self.phase = match self.questions.front().map(|question| question.kind) {
            Some(SubjectKind::Call) => Phase::Held(now),
            Some(SubjectKind::Effect) => Phase::Held(now.saturating_add(self.latency)),
            None => Phase::Ends(now.saturating_add(self.latency)),
        };
    }

    fn requirement(&self, id: &OperationId, question: &Question) -> ApprovalRequirement {
        ApprovalRequirement { kind: question.kind, ..requirement(&format!("sha256:{id} #{}", self.answered)) }
    }
}

impl Runner {
    pub(crate) fn new(script: Script) -> Self {
        Self { script, calls: BTreeMap::new() }
    }

    /// Starts a call, or attaches to it, or lets it run that was held before its work.
    pub(crate) fn send(&mut self, id: &OperationId, request: &ToolCallRequest, granted: bool, now: Timestamp) {
        let first = OperationId { attempt: 0, number: 0, ..id.clone() };
        let before = self.calls.range(&first..id).count();
        if let Some(layers) = request.layers.as_ref().filter(|_| !self.calls.contains_key(id)) {
            self.check_layers(id, layers, now);
        }
        match self.calls.entry(id.clone()) {
            Entry::Occupied(mut known) => {
                let call = known.get_mut();
                assert!(
                    call.request.as_ref().is_none_or(|known| known == request),
                    "{id} was sent again with other arguments"
                );
                let held = matches!(call.phase, Phase::Held(since) if since <= now);
                if granted && held && call.questions.front().is_some_and(|question| question.kind == SubjectKind::Call)
                {
                    call.questions.pop_front();
                    (call.answered, call.asked) = (call.answered + 1, None);
                    call.go_on(now);
                }
            }
            Entry::Vacant(place) => {
                let Reply { mut outcome, mut latency, stops_in, mut questions } = (self.script)(id, before);
                if latency > request.timeout {
                    outcome =
                        Outcome::Failed(Failure::new(ErrorClass::Timeout, "TOOL_TIMEOUT", "The tool took too long."));
                    latency = request.timeout;
                }
                // What has not completed has no effect to ask about.
                let completes = matches!(outcome, Outcome::Completed(_));
                questions.retain(|question| completes || question.kind == SubjectKind::Call);
                let (request, questions) = (Some(request.clone()), questions.into());
                let (answered, asked, phase) = (0, None, Phase::Ends(now));
                let mut call = Call { request, outcome, latency, stops_in, questions, answered, asked, phase };
                call.go_on(now);
                place.insert(call);
            }
        }
    }

    /// Asserts that the layers with which a call of a step with one effect begins were kept in this run of the step; the call that commits begins with all of
    /// them.
    fn check_layers(&self, id: &OperationId, layers: &StepLayers, now: Timestamp) {
        let mut kept = BTreeMap::new();
        for (other, call) in &self.calls {
            let place = call.request.as_ref().and_then(|request| request.layers.as_ref());
            let Some(place) = place.filter(|place| (&place.step, place.round) == (&layers.step, layers.round)) else {
                continue;
            };
            let ended = matches!(call.phase, Phase::Ends(at) if at <= now);
            if let (Some(entry), Some(layer), true) = (place.entry, self.layer(other), ended) {
                kept.insert(entry, layer);
            }
            assert!(ended || layers.entry.is_some(), "{id} commits while {other} runs");
            let has_committed = place.entry.is_none() && ended && matches!(call.outcome, Outcome::Completed(_));
            assert!(!has_committed, "{id} is made after {other} has committed");
        }
        let begins_with: BTreeSet<&String> = layers.begin_with.iter().collect();
        let kept: BTreeSet<&String> = kept.values().collect();
        assert_eq!(begins_with.len(), layers.begin_with.len(), "{id} begins with a layer twice: {layers:?}");
        match layers.entry {
            Some(_) => assert!(begins_with.is_subset(&kept), "{id} begins with {layers:?}, and {kept:?} are kept"),
            None => assert_eq!(begins_with, kept, "{id} does not commit what was kept"),
        }
    }

    /// The layer that a call which has completed leaves for the effect of its step: one that only looks leaves none, nor does one that the executor carries
    /// out itself, and what a check writes is no part of the effect.
    fn layer(&self, id: &OperationId) -> Option<String> {
        let call = &self.calls[id];
        let request = call.request.as_ref()?;
        let is_of_tool = request.check.is_none() && !is_own_tool(&request.tool) && request.tool != "look";
        let leaves = request.layers.as_ref()?.entry.is_some() && is_of_tool;
        (leaves && matches!(call.outcome, Outcome::Completed(_))).then(|| format!("layer of {id}"))
    }

    /// The gate hears of the question.
    pub(crate) fn ask(&mut self, id: &OperationId, now: Timestamp) {
        self.calls.get_mut(id).expect("only what was sent is held").asked.get_or_insert(now);
    }

    /// An approved effect is put in place; doing it twice does it once.
    pub(crate) fn commit(&mut self, id: &OperationId, now: Timestamp) {
        let call = self.calls.get_mut(id).expect("only what was sent is held");
        if let (Phase::Held(_), Some(question)) = (call.phase, call.questions.pop_front()) {
            assert_eq!(question.kind, SubjectKind::Effect, "{id} has no effect yet");
            assert!(matches!(question.answer, Some((Decision::Approved, _))), "{id} was committed without a yes");
            if question.conflicts {
                call.outcome = Outcome::Cancelled(Some(conflict()));
            }
            call.phase = Phase::Ends(now);
        }
    }

    /// A held call is given up.
    pub(crate) fn discard(&mut self, id: &OperationId, failure: Failure, now: Timestamp) {
        let call = self.calls.get_mut(id).expect("only what was sent is held");
        if let Phase::Held(_) = call.phase {
            call.outcome = Outcome::Denied(failure);
            call.phase = Phase::Ends(now);
        }
    }

    /// Stops a call, also one that never arrived.
    pub(crate) fn stop(&mut self, id: &OperationId, now: Timestamp) {
        let call = self.calls.entry(id.clone()).or_insert(Call {
            request: None,
            outcome: Outcome::Cancelled(None),
            latency: Duration::ZERO,
            stops_in: None,
            questions: VecDeque::new(),
            answered: 0,
            asked: None,
            phase: Phase::Ends(now),
        });
        let stopped_at = call.stops_in.take().map(|stops_in| now.saturating_add(stops_in));
        match call.phase {
            Phase::Held(since) => {
                let at = if since <= now { now } else { stopped_at.unwrap_or(since).min(since) };
                (call.outcome, call.phase) = (Outcome::Cancelled(None), Phase::Ends(at));
            }
            Phase::Ends(ends_at) => {
                if let Some(at) = stopped_at.filter(|at| *at < ends_at) {
                    (call.outcome, call.phase) = (Outcome::Cancelled(None), Phase::Ends(at));
                }
            }
        }
    }

    /// Returns the next update about a call that the executor receives, and its time, given the hold that it knows; only the end once it is `stopping`.
    pub(crate) fn next(
        &self,
        id: &OperationId,
        known: Option<&PendingApproval>,
        stopping: bool,
    ) -> Option<(Timestamp, Happening)> {
        let call = self.calls.get(id)?;
        let about_call = |event| (None, Body::Operation { id: id.clone(), event });
        let about_approval = |event| Body::Operation { id: id.clone(), event };
        let since = match call.phase {
            Phase::Ends(at) => {
                return Some((at, about_call(OperationEvent::Ended(OperationEnd::ToolCall(self.end(id))))));
            }
            Phase::Held(_) if stopping => return None,
            Phase::Held(since) => since,
        };
        let question = call.questions.front().expect("held for something");
        let requirement = call.requirement(id, question);
        let Some(pending) = known.filter(|pending| pending.requirement == requirement) else {
            return Some((since, about_call(OperationEvent::Held(Box::new(requirement)))));
        };
        let asked = call.asked?;
        let approval = format!("namespaces/default/approvals/{id} #{}", call.answered);
        if pending.approval.is_none() {
            let subject_digest = requirement.subject_digest;
            return Some((asked, (None, about_approval(OperationEvent::Asked { approval, subject_digest }))));
        }
        let (decision, after) = question.answer.filter(|_| pending.decided.is_none())?;
        let reason = "as I see it".to_owned();
        let decided = about_approval(OperationEvent::Decided { approval, decision, reason });
        Some((asked.saturating_add(after), (Some(Actor::new("ann")), decided)))
    }

    /// Returns the end of a call, as the executor records it.
    fn end(&self, id: &OperationId) -> ToolCallEnd {
        let output_bytes = match &self.calls[id].outcome {
            Outcome::Completed(result) => result.as_str().len() as u64,
            _ => 0,
        };
        let layer = self.layer(id).unwrap_or_default();
        let request = self.calls[id].request.as_ref();
        let usage = request
            .filter(|request| request.tool == MODEL_TOOL)
            .and_then(|request| usage_of(request, &self.calls[id].outcome));
        let receipt = Receipt { ledger_id: "ledger".to_owned(), output_bytes, layer, usage, ..Receipt::default() };
        match self.calls[id].outcome.clone() {
            Outcome::Completed(result) => ToolCallEnd::Completed { result: result.into(), receipt: Box::new(receipt) },
            Outcome::Failed(failure) => ToolCallEnd::Failed { failure, receipt: Box::new(receipt) },
            Outcome::Denied(failure) => ToolCallEnd::Denied { failure, receipt: Box::new(receipt) },
            Outcome::Cancelled(failure) => ToolCallEnd::Cancelled { failure, grant_nonce: String::new() },
            Outcome::Unknown(failure) => {
                ToolCallEnd::OutcomeUnknown { failure, grant_nonce: String::new(), network: None }
            }
        }
    }
}

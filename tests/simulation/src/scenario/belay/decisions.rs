//! Audits approvals: compares what the policy requires with people's decisions, the gate's grants and the grants that the runner spent.

use std::collections::{BTreeMap, BTreeSet};

use belay_grant::{Grant, GrantExpectation, SignedBytes, Subject, digest_of};
use belay_proto::v1::approval_need;
use belay_proto::v1::execution_event::Kind;
use belay_proto::v1::wait_ended::Cause;
use belay_proto::{
    runner_v1::{self, answer_tool_call_request::Reply},
    v1::{self, ApprovalMode, approval, tool_call},
};

use super::audit::{Evidence, Violations};
use super::calls::{Call, Hold};
use super::outside::Run;
use super::people::PERSON;
use super::policy::{self, Needs, POLICY};
use super::records::{Deletion, StoredData, leads_to, may_become};
use crate::trace;

/// Every call of every execution, with the execution's approval mode.
pub(super) type Calls<'a> = BTreeMap<String, (ApprovalMode, Call<'a>)>;

/// Invariant 3 of REQUIREMENTS, B-03 and B-05: nothing that requires a person happens without a grant for it that was spent once, and only
/// a person's decision leads to one.
pub(super) fn audit(
    evidence: &Evidence<'_>,
    gone: &BTreeMap<String, Deletion>,
    runs: &[Run],
    calls: &Calls<'_>,
) -> Violations {
    let mut violations = approvals(evidence, gone, calls);
    violations.extend(forms(evidence));
    violations.extend(questions(evidence, gone, runs));
    let mut spent = BTreeMap::new();
    for (name, (mode, call)) in calls {
        let one = CallAudit { evidence, runs, name, mode: *mode, call };
        let found = one.audit();
        violations.extend(found.err().into_iter().map(|what| format!("{name}: {what}")));
        if let Some(nonce) = nonce(call)
            && let Some(other) = spent.insert(nonce, name)
        {
            violations.push(format!("the grant {nonce} was spent twice: on {other} and on {name}"));
        }
    }
    violations
}

/// The nonce of the grant with which a call continued.
fn nonce<'a>(call: &Call<'a>) -> Option<&'a str> {
    let receipt = match call.end()? {
        Kind::ToolCallCompleted(completed) => completed.receipt.as_ref(),
        Kind::ToolCallFailed(failed) => failed.receipt.as_ref(),
        Kind::ToolCallDenied(denied) => denied.receipt.as_ref(),
        _ => None,
    };
    receipt.map(|receipt| &*receipt.grant_nonce).filter(|nonce| !nonce.is_empty())
}

/// Audits the gate's data: every approval has its digest, is decided as people observed, and has at most one grant.
fn approvals(evidence: &Evidence<'_>, gone: &BTreeMap<String, Deletion>, calls: &Calls<'_>) -> Violations {
    let StoredData { approvals, grants, asked, .. } = evidence.stored;
    let mut violations = Violations::new();
    for (name, approval) in approvals {
        if approval.kind() == approval_need::Kind::Form {
            if digest_of(&approval.subject) != approval.subject_digest {
                violations.push(format!("{name} is not the form that it says: {approval:?}"));
            }
            trace::count(if approval.state() == approval::State::Pending { "forms left open" } else { "forms closed" });
            continue;
        }
        let subject = Subject::parse(&approval.subject);
        let is_about = |subject: &Subject| {
            subject.execution == approval.execution
                && approval.call.starts_with(&format!("{}/steps/{}/calls/", subject.execution, subject.step))
        };
        if digest_of(&approval.subject) != approval.subject_digest || !subject.is_ok_and(|subject| is_about(&subject)) {
            violations.push(format!("{name} is not about what it says: {approval:?}"));
        }
        if !calls.contains_key(&approval.call) && !gone.contains_key(&approval.execution) {
            violations.push(format!("{name} is about {}, whose intent is gone", approval.call));
        }
        trace::count(match approval.state() {
            approval::State::Pending => "approvals left open",
            approval::State::Expired => "approvals expired",
            approval::State::Cancelled => "approvals cancelled",
            approval::State::Stale => "approvals stale",
            _ => "approvals decided",
        });
    }
    for (name, asked) in asked {
        let Some(now) = approvals.get(name) else {
            // With its execution.
            if !asked.shown.values().any(|shown| gone.contains_key(&shown.execution)) {
                violations.push(format!("{name} was shown and is gone"));
            }
            continue;
        };
        let asked_again = |before| evidence.observed.may_be_asked_again(now.kind(), before);
        for (revision, shown) in &asked.shown {
            let may_become = may_become(shown.state(), now.state()) || asked_again(shown.state());
            if *revision > now.revision || !may_become {
                violations
                    .push(format!("{name} was {:?} at revision {revision}, which is gone: {now:?}", shown.state()));
            }
        }
        if asked.decided.is_some_and(|decided| !leads_to(decided, now.state()) || now.decided_by != PERSON) {
            violations.push(format!("{name} was decided {:?}, which is gone: it is {:?}", asked.decided, now.state()));
        }
    }
    let nonces: Vec<_> = grants.values().filter_map(|grant| parse(grant).map(|grant| grant.nonce)).collect();
    if nonces.iter().collect::<BTreeSet<_>>().len() != grants.len() {
        violations.push("two grants have the same nonce, or one cannot be read".to_owned());
    }
    violations
}

/// Each form is asked once and answered at most once, by the person, and no acknowledged answer is lost.
fn forms(evidence: &Evidence<'_>) -> Violations {
    let mut violations = Violations::new();
    for (name, kept) in &evidence.stored.executions {
        let mut asked = BTreeMap::<String, &str>::new();
        for event in &kept.events {
            let wait = belay_proto::call_name(name, event);
            match &event.kind {
                Some(Kind::ApprovalRequested(requested)) => drop(asked.insert(wait, &requested.approval)),
                Some(Kind::WaitEnded(ended)) => {
                    let approval = asked.remove(&wait);
                    let by = event.actor.as_ref().map_or("", |actor| &actor.principal);
                    let is_answered = ended.cause() == Cause::Answered;
                    if is_answered && (approval.is_none() || by != PERSON) {
                        violations.push(format!("{wait} was answered by `{by}`, about {approval:?}"));
                    }
                    let given = approval.and_then(|approval| evidence.stored.asked.get(approval)?.answer.as_ref());
                    let Some(given) = given else { continue };
                    let taken = ended.answer.as_ref().and_then(v1::Payload::as_json);
                    let is_lost = match ended.cause() {
                        Cause::Answered => taken != Some(given.as_str()),
                        // The answer came when nobody needed it any more.
                        Cause::TimedOut | Cause::Cancelled => false,
                        // No call asks for the execution here.
                        Cause::Held
                        | Cause::Declined
                        | Cause::Refused
                        | Cause::Unspecified
                        | Cause::Elapsed
                        | Cause::Signalled => true,
                    };
                    if is_lost {
                        violations.push(format!("{wait} was answered {given}, and ended by {ended:?}"));
                    }
                }
                _ => {}
            }
        }
    }
    violations
}

/// Checks that a run was told about a question exactly what was recorded of that question, which the call of that run has asked.
fn questions(evidence: &Evidence<'_>, gone: &BTreeMap<String, Deletion>, runs: &[Run]) -> Violations {
    let mut violations = Violations::new();
    // By title: the asking call, and how the question ended.
    let mut known = BTreeMap::<&str, (String, Option<&v1::WaitEnded>)>::new();
    for (name, kept) in &evidence.stored.executions {
        let mut open = BTreeMap::<String, &str>::new();
        for event in &kept.events {
            let wait = belay_proto::call_name(name, event);
            match &event.kind {
                Some(Kind::WaitStarted(started)) if started.asking_call > 0 => {
                    let title = started.form.as_ref().map_or("", |form| &form.title);
                    let asking = v1::ExecutionEvent { operation: started.asking_call, ..event.clone() };
                    open.insert(wait, title);
                    if known.insert(title, (belay_proto::call_name(name, &asking), None)).is_some() {
                        violations.push(format!("{title} was asked twice"));
                    }
                }
                Some(Kind::WaitEnded(ended)) => {
                    if let Some(question) = open.remove(&wait).and_then(|title| known.get_mut(title)) {
                        question.1 = Some(ended);
                    }
                }
                _ => {}
            }
        }
    }
    for run in runs {
        let execution = run.call.split("/steps/").next().unwrap_or_default();
        for (title, reply) in run.told.iter().filter(|_| !gone.contains_key(execution)) {
            let agrees = match known.get(title.as_str()) {
                Some((call, Some(ended))) if *call == run.call => match (reply, ended.cause()) {
                    (Reply::Answer(answer), Cause::Answered) => Some(answer) == ended.answer.as_ref(),
                    (Reply::Declined(_), Cause::Declined | Cause::Refused) | (Reply::TimedOut(_), Cause::TimedOut) => {
                        true
                    }
                    _ => false,
                },
                _ => false,
            };
            if !agrees {
                let recorded = known.get(title.as_str());
                violations.push(format!("{title} was told {reply:?}, and what is recorded is {recorded:?}"));
            }
        }
    }
    violations
}

fn parse(grant: &runner_v1::Grant) -> Option<Grant> {
    serde_json::from_slice(&grant.body).ok()
}

/// A call.
struct CallAudit<'a> {
    evidence: &'a Evidence<'a>,
    runs: &'a [Run],
    name: &'a str,
    mode: ApprovalMode,
    call: &'a Call<'a>,
}

impl CallAudit<'_> {
    fn audit(&self) -> Result<(), String> {
        for hold in &self.call.holds {
            self.hold(hold)?;
        }
        self.ran()?;
        let Some(end) = self.call.end() else { return Ok(()) };
        match end {
            Kind::ToolCallCompleted(_) => self.completed()?,
            Kind::ToolCallDenied(denied) => self.denied(denied)?,
            // A grant of the gate's is never refused.
            Kind::ToolCallFailed(v1::ToolCallFailed { failure: Some(failure), .. })
                if matches!(&*failure.reason, "GRANT_REFUSED" | "UNAPPROVED_RESULT" | "INTERNAL") =>
            {
                return Err(format!("it was approved and could not go on: {failure:?}"));
            }
            _ => {}
        }
        let Some(known) = self.evidence.stored.calls.get(self.name) else { return Ok(()) };
        if self.evidence.damaged.contains(self.name) {
            // The runner knows no more than that it does not know.
            return Ok(());
        }
        if self.evidence.repeated.contains(self.name) && known.state() == tool_call::State::AwaitingApproval {
            trace::count("repeated calls held");
            return Ok(());
        }
        let agrees = match (known.state(), end) {
            (tool_call::State::Completed, end) => matches!(end, Kind::ToolCallCompleted(_)),
            (tool_call::State::AwaitingApproval, _) => false,
            (_, end) => !matches!(end, Kind::ToolCallCompleted(_)),
        };
        if agrees { Ok(()) } else { Err(format!("the runner says {:?}, and the executor {end:?}", known.state())) }
    }

    /// The requirements of the policy, given what a run did.
    fn needs(&self, run: Option<&Run>) -> Needs {
        let effect = run.and_then(|run| run.effect.as_ref());
        let needs = policy::needs(self.mode, &self.call.request.tool, &self.call.arguments(), effect);
        match &self.call.request.layers {
            None => needs,
            // What it did is decided about with its step.
            Some(layers) if !layers.entry.is_empty() => Needs { after: false, ..needs },
            Some(layers) => Needs { after: self.commits_something() && self.asks(layers), ..needs },
        }
    }

    /// Whether one of the calls that left layers did what people decide about.
    fn asks(&self, layers: &v1::StepLayers) -> bool {
        let left = |run: &&Run| {
            let id = run.effect.as_ref().map(|effect| effect.commit.as_str());
            layers.layers.iter().any(|layer| layer.split('.').next() == id)
        };
        let needs = |run: &Run| policy::needs(self.mode, run.tool, &run.arguments, run.effect.as_ref());
        self.runs.iter().filter(left).any(|run| needs(run).after)
    }

    fn commits_something(&self) -> bool {
        match self.call.end() {
            Some(Kind::ToolCallCompleted(completed)) => {
                completed.receipt.as_ref().is_some_and(|receipt| !receipt.effect_digest.is_empty())
            }
            _ => true,
        }
    }

    /// Each approval was decided by someone who may decide.
    fn hold(&self, hold: &Hold<'_>) -> Result<(), String> {
        let Some(decided) = hold.decided else { return Ok(()) };
        if decided.approval.is_empty() {
            let fits = match self.mode {
                ApprovalMode::Fail => decided.decision() == v1::Decision::Deny,
                ApprovalMode::Skip => decided.decision() == v1::Decision::Skip,
                _ => false,
            };
            trace::count("decisions by the approval mode");
            return if fits { Ok(()) } else { Err(format!("nobody was asked in mode {:?}: {decided:?}", self.mode)) };
        }
        if hold.asked.is_none_or(|asked| asked.approval != decided.approval) {
            return Err(format!("another question was decided than was asked: {decided:?}"));
        }
        let now = self.evidence.stored.approvals.get(&decided.approval).cloned();
        let kept: Vec<_> = now.into_iter().chain(self.evidence.archive.approvals(&decided.approval)).collect();
        if kept.is_empty() {
            return Err(format!("{} was decided and is gone", decided.approval));
        }
        let by =
            if decided.decision() == v1::Decision::Expire || self.mode == ApprovalMode::Auto { POLICY } else { PERSON };
        let fits = |kept: &v1::Approval| {
            kept.call == self.name
                && kept.kind == hold.need.kind
                && kept.subject_digest == hold.need.subject_digest
                && leads_to(decided.decision(), kept.state())
                && kept.decided_by == by
                && hold.decided_by == by
        };
        if kept.iter().any(fits) {
            Ok(())
        } else {
            Err(format!("{decided:?} for {:?} does not follow from {kept:?}", hold.need))
        }
    }

    /// However it ended: a forbidden call never runs, and a call that requires approval runs only after it.
    fn ran(&self) -> Result<(), String> {
        let needs = self.needs(None);
        if !self.runs.iter().any(|run| run.call == self.name) {
            return Ok(());
        }
        if needs.denied {
            return Err("the policy forbids it, and it ran".to_owned());
        }
        match needs.before && self.approved(approval_need::Kind::Call).is_none() {
            true => Err("it ran, and nobody had said yes".to_owned()),
            false => Ok(()),
        }
    }

    /// The last approval of this kind.
    fn approved(&self, kind: approval_need::Kind) -> Option<&Hold<'_>> {
        let is_yes = |decided: &v1::ApprovalDecided| decided.decision() == v1::Decision::Approve;
        self.call.holds.iter().rfind(|hold| hold.need.kind() == kind && hold.decided.is_some_and(is_yes))
    }

    fn completed(&self) -> Result<(), String> {
        let run = self.call.completed_with().and_then(|run| self.runs.get(run));
        let needs = self.needs(run);
        if needs.denied {
            return Err("the policy forbids it, and it completed".to_owned());
        }
        let (before, after) = (self.approved(approval_need::Kind::Call), self.approved(approval_need::Kind::Effect));
        if (before.is_some(), after.is_some()) != (needs.before, needs.after) {
            return Err(format!(
                "the policy asks for {needs:?}, and it completed with a yes before: {}, after: {}",
                before.is_some(),
                after.is_some()
            ));
        }
        let Some(hold) = after.or(before) else {
            return match nonce(self.call) {
                None => Ok(()),
                Some(nonce) => Err(format!("nobody was asked, and the grant {nonce} was spent")),
            };
        };
        trace::count("calls on a grant");
        self.granted(hold)
    }

    /// The grant of its last approval is signed by the gate, only for this call, and was the one that was spent.
    fn granted(&self, hold: &Hold<'_>) -> Result<(), String> {
        let approval = hold.decided.map(|decided| &*decided.approval).unwrap_or_default();
        let now = self.evidence.stored.grants.get(approval).cloned();
        let grants: Vec<_> = now.into_iter().chain(self.evidence.archive.grants(approval)).collect();
        let mut outcome = Err(format!("it completed on {approval}, of which there is no grant"));
        for grant in grants {
            outcome = self.granted_by(hold, grant);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn granted_by(&self, hold: &Hold<'_>, grant: runner_v1::Grant) -> Result<(), String> {
        let runner_v1::Grant { body, signature, key_id } = grant;
        let policy_revision = hold.need.decision.as_ref().map_or(0, |decision| decision.policy_revision);
        let grant: Option<Grant> = serde_json::from_slice(&body).ok();
        let now = grant.map_or(0, |grant| grant.not_before);
        let expected =
            GrantExpectation { call: self.name, subject_digest: &hold.need.subject_digest, policy_revision, now };
        let grant = Grant::verify(&SignedBytes { body, signature, key_id }, self.evidence.keys, expected)
            .map_err(|error| format!("it completed on a grant that is not good: {error}"))?;
        if nonce(self.call) != Some(&grant.nonce) {
            return Err(format!("it completed on {:?}, and not on its own grant {}", nonce(self.call), grant.nonce));
        }
        Ok(())
    }

    /// A call that is denied was forbidden by the policy, or a person denied it.
    fn denied(&self, denied: &v1::ToolCallDenied) -> Result<(), String> {
        let reason = denied.failure.as_ref().map(|failure| &*failure.reason).unwrap_or_default();
        if reason == "POLICY_DENIED" {
            let mut runs = self.runs.iter().filter(|run| run.call == self.name);
            let is_forbidden = self.needs(None).denied || runs.any(|run| self.needs(Some(run)).denied);
            return if is_forbidden {
                Ok(())
            } else {
                Err("the policy does not forbid it, and it was denied".to_owned())
            };
        }
        let decided = self.call.holds.last().and_then(|hold| hold.decided).map(v1::ApprovalDecided::decision);
        use v1::Decision as D;
        match decided {
            Some(D::Deny | D::Skip | D::Expire) => Ok(()),
            other => Err(format!("it was denied ({reason}), and {other:?} had been decided")),
        }
    }
}

//! What a person is asked about a call, and what came of it.

use belay_reasons as reasons;

use crate::{ApprovalMode, ErrorClass, Failure, Timestamp};

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedKind {
    /// The call itself: it has not run.
    Call,
    /// What the call changed in its view: it has run, and nothing is committed.
    Effect,
}

/// Why a runner holds a call back. The decision is bound to `subject_digest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What the decision is about.
    pub kind: NeedKind,
    /// `sha256:` over the bytes of what the decision is about.
    pub subject_digest: String,
    /// The rule that asks.
    pub decision: PolicyDecision,
    /// What would change; nothing for a call.
    pub effect: EffectSummary,
}

/// What a policy lets happen, from the mildest to the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs and is committed.
    Auto,
    /// It runs in a view, and what it changed is judged.
    Preview,
    /// A person decides.
    Prompt,
    /// No.
    Deny,
}

/// What a policy said, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDecision {
    /// What may happen.
    pub verdict: Verdict,
    /// The id of the rule that said so.
    pub rule: String,
    /// The reason it gives, for people.
    pub reason: String,
    /// The revision of the policy.
    pub policy_revision: i64,
}

/// What a call changed, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectSummary {
    /// How many files, links and folders it makes.
    pub created: u32,
    /// How many it overwrites or gives other rights.
    pub modified: u32,
    /// How many it removes.
    pub deleted: u32,
    /// The first of the paths, sorted; how many is the runner's choice.
    pub changes: Vec<PathChange>,
}

/// What happens to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The path, relative to the workspace.
    pub path: String,
    /// What happens to it.
    pub kind: ChangeKind,
    /// What a person should look at twice, in the runner's words.
    pub flags: Vec<String>,
}

/// How a path changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Nothing was there.
    Created,
    /// It becomes another.
    Modified,
    /// It goes.
    Deleted,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes, once.
    Approved,
    /// No.
    Denied,
    /// No, and the step is left out instead of failing.
    Skipped,
    /// Nobody decided before the policy's time limit, which is as good as no.
    Expired,
}

/// A call that its runner holds back until somebody has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What is to be decided.
    pub need: Need,
    /// Since when.
    pub since: Timestamp,
    /// The approval at the gate, once it is known that the gate has it.
    pub approval: Option<String>,
    /// What was decided.
    pub decided: Option<Decided>,
}

/// A decision, and where in the list of events it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What was decided.
    pub decision: Decision,
    /// Who, as authenticated; empty when the execution's approval mode decided.
    pub principal: String,
    /// Why, in that person's words.
    pub reason: String,
    /// The number of its event.
    pub sequence: u64,
}

impl Hold {
    /// What was decided, if anybody has.
    pub fn decision(&self) -> Option<Decision> {
        self.decided.as_ref().map(|decided| decided.decision)
    }

    /// What the call's failure says when it is given up: nothing while it may still go on.
    pub fn denial(&self, mode: ApprovalMode) -> Option<Failure> {
        let decided = self.decided.as_ref()?;
        let asked = mode == ApprovalMode::Wait;
        let reason = match decided.decision {
            Decision::Approved => return None,
            _ if !asked => reasons::NON_INTERACTIVE,
            Decision::Skipped => reasons::APPROVAL_SKIPPED,
            Decision::Denied | Decision::Expired => reasons::APPROVAL_DENIED,
        };
        let PolicyDecision { rule, reason: why, .. } = &self.need.decision;
        let said = if decided.reason.is_empty() { "no reason given" } else { decided.reason.as_str() };
        let message = match (decided.decision, asked) {
            (Decision::Expired, true) => format!("Nobody decided in time, which counts as no (rule {rule}: {why})."),
            (Decision::Skipped, true) => format!("{} left the step out: {said}", decided.principal),
            (_, true) => format!("{} said no: {said}", decided.principal),
            (_, false) if decided.principal.is_empty() => {
                format!("Policy asks a person (rule {rule}: {why}), and the execution was started to ask nobody.")
            }
            (_, false) => format!("Policy asks a person (rule {rule}: {why}), and nobody is asked: {said}"),
        };
        Some(Failure::new(ErrorClass::ApprovalDenied, reason, message))
    }
}

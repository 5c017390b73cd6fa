//! A call on its way: its request, the policy that judges it, and its approval.

use std::{borrow::Cow, sync::Arc};

use belay_grant::Network;
use belay_network::Profile;
use belay_policy::{Decision, Intent, Policy, ToolKind, Verdict};
use belay_proto::{
    runner_v1,
    v1::{self, tool_call::State},
};
use belay_workspace::RelPath;
use serde_json::Value;

use super::{Call, CallRequest, judge::Judge, record};
use crate::{
    CallIntent, MayRead, Recovery,
    ledger::{JudgementInput, Row, SpentGrant},
    network_profiles,
    policy::CallPolicy,
    registry::RegisteredTool,
    subject::parts,
};

/// The tool that rules about reading a file name.
const READ_FILE: &str = "read_file";

/// A verified approval of a call that waited before its tool ran.
#[derive(Clone)]
pub(super) struct VerifiedApproval {
    pub(super) spends: SpentGrant,
    /// Whether a person signed the approval, as opposed to the policy.
    pub(super) by_person: bool,
    /// The call as it waited, restored if the grant turns out to be spent.
    pub(super) waiting: Arc<runner_v1::ToolCall>,
    /// The network that was approved.
    pub(super) network: Option<Network>,
    /// The credentials whose values its program was approved to get.
    pub(super) reveals: Vec<String>,
}

/// A running call.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) call: Call,
    pub(super) request: CallRequest,
    pub(super) policy: CallPolicy,
    pub(super) approved: Option<VerifiedApproval>,
}

/// The intent of a call, and the policy's decision on it.
pub(super) struct JudgedIntent {
    pub(super) intent: CallIntent,
    pub(super) decision: Decision,
}

impl Job {
    /// Whether the call never runs again automatically.
    pub(super) fn is_manual(&self) -> bool {
        self.request.recovery() == Recovery::Manual
    }

    pub(super) fn judge(&self, intent: &JudgedIntent) -> Judge {
        let spec = &self.request.tool.spec;
        // Only a person has seen the paths, so only their approval covers them; if the policy approved, the effect is judged like any
        // other.
        let by_person = self.approved.as_ref().is_some_and(|approved| approved.by_person);
        let covered = if by_person { intent.intent.paths.clone() } else { Vec::new() };
        let basis = JudgementInput { intent: intent.decision.verdict, covered };
        let step = parts(&self.request.name).1.to_owned();
        Judge { policy: self.policy.policy.clone(), tool: spec.name.to_owned(), kind: spec.kind, step, basis }
    }

    /// The same job, which hides these values too from now on.
    pub(super) fn hiding(&self, secrets: &[String]) -> Cow<'_, Self> {
        if secrets.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut started = (*self.call.started).clone();
        started.secrets.extend(secrets.iter().filter(|value| !self.call.started.secrets.contains(value)).cloned());
        let secrets = Arc::new(self.call.secrets.with_found(secrets));
        let call = Call { started: Arc::new(started), secrets, ..self.call.clone() };
        Cow::Owned(Self { call, ..self.clone() })
    }

    /// What the tool may read beyond the paths of its arguments: what the policy lets it read, and lets `read_file`, because a rule about reading names that. A
    /// person who has approved the call has approved what waits for approval, and nothing that is denied.
    pub(super) fn may_read(&self) -> MayRead {
        let (policy, tool) = (self.policy.policy.clone(), self.request.tool.spec.name);
        let by_person = self.approved.as_ref().is_some_and(|approved| approved.by_person);
        MayRead::new(move |path| {
            let paths = [path.as_text()];
            [tool, READ_FILE].iter().all(|tool| {
                let intent = Intent {
                    tool,
                    kind: ToolKind::FileRead,
                    command: &[],
                    program: None,
                    working_directory: ".",
                    environment: &[],
                    paths: &paths,
                    network: None,
                    credentials: &[],
                };
                match policy.intent(&intent).verdict {
                    Verdict::Auto | Verdict::Preview => true,
                    Verdict::Prompt => by_person,
                    Verdict::Deny => false,
                }
            })
        })
    }

    /// Additions to the policy's rules with which the call may run; none where that would show a secret.
    pub(super) fn rules_for_intent(&self, intent: &JudgedIntent) -> Vec<String> {
        let asked = intent.intent.for_policy(&self.request.tool);
        self.unhidden(self.policy.policy.rules_for_intent(parts(&self.request.name).1, &asked))
    }

    /// These rules, unless a secret is in one of them: as people are shown it, it would be another rule.
    pub(super) fn unhidden(&self, rules: Vec<String>) -> Vec<String> {
        let is_whole = |rule: &String| self.call.secrets.text(rule) == *rule;
        if rules.iter().all(is_whole) { rules } else { Vec::new() }
    }

    pub(super) fn decision(&self, decision: &Decision) -> v1::PolicyDecision {
        record::decision(decision, self.policy.revision)
    }

    /// The grant that a call spends by ending in this state: none if it is cancelled or denied.
    pub(super) fn used(&self, state: State) -> Option<&SpentGrant> {
        let unspent = matches!(state, State::Cancelled | State::Denied);
        self.approved.as_ref().map(|approved| &approved.spends).filter(|_| !unspent)
    }

    /// The row of the call. A MANUAL call has spent its grant before it started; any other spends it with this row.
    pub(super) fn row(&self, call: runner_v1::ToolCall, ended: bool) -> Row {
        let spends = self.used(call.state()).filter(|_| !self.is_manual()).cloned();
        Row { digest: self.call.digest.to_string(), ended, call, staged: None, pending: None, spends, removes: None }
    }
}

/// Evaluates the policy on the intent of a call. Paths are normalised first, so that their spelling does not matter; their names stay as they are.
pub(super) fn judge_intent(
    policy: &Policy,
    tool: &RegisteredTool,
    arguments: &Value,
    network: Option<&Profile>,
) -> JudgedIntent {
    let mut intent = tool.tool.intent(arguments);
    if let Some(profile) = network {
        intent.network = Some(profile.name.clone());
        // A tool that asks one host names it.
        for name in network_profiles::credentials(profile, &intent.hosts) {
            if !intent.credentials.contains(&name) {
                intent.credentials.push(name);
            }
        }
        if intent.hosts.is_empty() {
            intent.hosts = network_profiles::hosts(profile);
        }
    }
    for path in intent.paths.iter_mut().chain([&mut intent.working_directory]) {
        if let Ok(plain) = RelPath::parse(path) {
            *path = if plain.is_root() { ".".to_owned() } else { plain.as_text() };
        }
    }
    let decision = policy.intent(&intent.for_policy(tool));
    JudgedIntent { intent, decision }
}

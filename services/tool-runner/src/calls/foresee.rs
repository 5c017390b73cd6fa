//! The policy's decision about a call that has not been made.

use belay_network::Profile;
use belay_policy::{Decision, Verdict};
use belay_proto::v1;
use serde_json::Value;

use super::{
    decide::{self, Admission},
    job::judge_intent,
    record,
};
use crate::{policy::CallPolicy, registry::RegisteredTool};

/// The decision about a call before it runs. A call whose effect cannot be judged in a view waits for approval where the policy wants to see it.
pub(crate) fn foresee(
    policy: &CallPolicy,
    tool: &RegisteredTool,
    arguments: &Value,
    network: Option<&Profile>,
) -> v1::PolicyDecision {
    let decision = judge_intent(&policy.policy, tool, arguments, network).decision;
    let verdict = match decide::admit(decision.verdict, tool.spec.recovery, tool.spec.touches, false) {
        Admission::Ask => Verdict::Prompt,
        Admission::Refuse | Admission::Run => decision.verdict,
    };
    record::decision(&Decision { verdict, ..decision }, policy.revision)
}

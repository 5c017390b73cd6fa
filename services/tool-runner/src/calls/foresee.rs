//! What the policy decides about a call that has not been made.

use belay_policy::{Decision, Verdict};
use belay_proto::v1;
use serde_json::Value;

use super::{
    decide::{self, Before},
    record,
    run::judge_intent,
};
use crate::{policy::CallPolicy, registry::Registered};

/// The decision about a call before it runs. A call whose effect cannot be judged in a view waits for approval where the policy wants to see it.
pub(crate) fn foresee(policy: &CallPolicy, tool: &Registered, arguments: &Value) -> v1::PolicyDecision {
    let decision = judge_intent(&policy.policy, tool, arguments).decision;
    let verdict = match decide::before(decision.verdict, tool.spec.recovery, tool.spec.touches, false) {
        Before::Ask => Verdict::Prompt,
        Before::Refuse | Before::Run => decision.verdict,
    };
    record::decision(&Decision { verdict, ..decision }, policy.revision)
}

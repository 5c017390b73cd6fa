//! The policy of the simulation, and its decisions, computed without the services.

use std::sync::Arc;

use belay_proto::v1::ApprovalMode;
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::outside::Effect;
use super::tools::{ASK, COMMAND, LOOK, PUBLISH, PUT, REMOVE, SEND, WIPE};

/// The prefix of files that may be written without approval.
pub(super) const FREE: &str = "free-";
/// The prefix of files whose changes require approval.
pub(super) const SHOWN: &str = "shown-";
/// The prefix of files for which the call requires approval before it runs.
pub(super) const ASKED: &str = "asked-";
/// The prefix of files that must not be changed.
pub(super) const KEPT: &str = "kept-";

/// The principal of decisions by the policy.
pub(super) const POLICY: &str = "policy";

/// Two policies in YAML, which are equal but have different revisions. The seed chooses what is decided without a person, and whether approvals
/// expire.
pub(super) fn generate(random: &mut StdRng) -> [Arc<str>; 2] {
    let alone = ["auto", "auto", "skip", "fail"][random.random_range(0..4)];
    let expiry = if random.random_bool(0.4) { "approvals: {expire_after: 1s}\n" } else { "" };
    let first = format!(
        "file_write: auto
file_delete: prompt
non_interactive_policy: {alone}
{expiry}rules:
  - {{id: harmless, on: intent, tools: [{LOOK}, {PUT}, {SEND}, {COMMAND}, {ASK}], decide: auto}}
  - {{id: publishing, on: intent, tools: [{PUBLISH}], decide: prompt, reason: it stays published}}
  - {{id: wiping, on: intent, tools: [{WIPE}], decide: deny, reason: nothing would be left}}
  - {{id: asked-first, on: intent, paths: ['{ASKED}*'], decide: prompt}}
  - {{id: shown-after, on: effect, paths: ['{SHOWN}*'], decide: prompt}}
  - {{id: kept, on: effect, paths: ['{KEPT}*'], decide: deny}}
"
    );
    let second = match random.random_bool(0.3) {
        true => format!("{first}  - {{id: unmet, on: effect, paths: ['nothing'], decide: deny}}\n"),
        false => first.clone(),
    };
    [first.into(), second.into()]
}

/// The requirements of the policy for a call to complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Needs {
    /// An approval before it runs.
    pub(super) before: bool,
    /// An approval of its effect.
    pub(super) after: bool,
    /// It is denied.
    pub(super) denied: bool,
}

/// The requirements of the policy in an execution with this mode. `effect`: what the call changed, if it ran in a view.
pub(super) fn needs(mode: ApprovalMode, tool: &str, arguments: &Value, effect: Option<&Effect>) -> Needs {
    let declared = arguments["path"].as_str();
    let before = tool == PUBLISH || declared.is_some_and(|path| path.starts_with(ASKED));
    let mut needs = Needs { before, denied: tool == WIPE, after: false };
    for path in effect.into_iter().flat_map(|effect| effect.after.keys()) {
        needs.denied |= path.starts_with(KEPT);
        // A person's approval of the call covers the path that it named, and the policy's own does not.
        let is_approved = before && mode != ApprovalMode::Auto && declared == Some(path);
        needs.after |= !is_approved && (tool == REMOVE || path.starts_with(SHOWN));
    }
    needs
}

/// The approval mode of an execution: mostly WAIT.
pub(super) fn approval_mode(random: &mut StdRng) -> ApprovalMode {
    match random.random_range(0..100) {
        0..60 => ApprovalMode::Wait,
        60..75 => ApprovalMode::Auto,
        75..88 => ApprovalMode::Fail,
        _ => ApprovalMode::Skip,
    }
}

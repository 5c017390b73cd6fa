//! Executions of a step's plan: their starts and ends.

use crate::{Allotment, Failure, Json, Timestamp, digest};

/// How much of a step's id stands in that of its child.
const MAX_STEP_CHARS: usize = 40;

/// A child as it is started.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Child {
    /// The last part of its name. It is in the namespace of this execution.
    pub execution: String,
    /// The values of its plan's inputs: an object.
    pub inputs: Json,
    /// When the time limits of the step end it; `None` means no limit but that of its plan.
    pub until: Option<Timestamp>,
    /// The share of the budgets of the step and its plan that it may use; `None` where nothing is limited.
    pub allotment: Option<Allotment>,
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildEnd {
    /// It completed.
    Completed {
        /// The step's output.
        output: Json,
    },
    /// It failed, could not be started, or was cancelled by another principal.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// It was cancelled with this execution.
    Cancelled,
}

/// The id of a child: what people can tell of the step's id, and a digest of which attempt of which step of which execution it is.
pub(crate) fn child_id(uid: &str, step: &str, attempt: u32, number: u32) -> String {
    let shown = step.chars().take(MAX_STEP_CHARS);
    let shown: String = shown.map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let whole = digest(format!("{uid} {step} {attempt} {number}").as_bytes());
    let digits = whole.rsplit(':').next().unwrap_or_default();
    format!("{shown}-{}", &digits[..digits.len().min(16)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child's id is one of an execution, whatever its step is called, and no other attempt has it.
    #[test]
    fn the_id_of_a_child_follows_from_its_step_and_attempt() {
        let id = |uid, step, attempt| child_id(uid, step, attempt, 1);
        let ids = [
            id("u", "Build.it_all~3", 1),
            id("u", "Build.it_all~3", 2),
            id("v", "Build.it_all~3", 1),
            id("u", &"x".repeat(128), 1),
        ];
        assert!(ids[0].starts_with("build-it-all-3-"), "{ids:?}");
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{ids:?}");
        for id in ids {
            assert!(id.len() <= 64 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        }
    }
}

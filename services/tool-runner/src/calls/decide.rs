//! Decision tables: what a policy verdict means for a call. Pure.

use belay_policy::Verdict;

use crate::{Recovery, Touches};

/// The next step of a call that has not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It ends as DENIED.
    Refuse,
    /// It waits for approval.
    Ask,
    Run,
}

/// The next step after the verdict on an intent. `approved`: a grant for this call was verified.
pub(super) fn admit(verdict: Verdict, recovery: Recovery, touches: Touches, approved: bool) -> Admission {
    // Only an effect that stays in a view can be previewed.
    let can_be_previewed =
        recovery == Recovery::ReadOnly || recovery == Recovery::Transactional && touches == Touches::Changes;
    match verdict {
        Verdict::Deny => Admission::Refuse,
        Verdict::Auto => Admission::Run,
        Verdict::Preview if can_be_previewed => Admission::Run,
        Verdict::Preview | Verdict::Prompt if approved => Admission::Run,
        Verdict::Preview | Verdict::Prompt => Admission::Ask,
    }
}

/// The next step of a call that has run and changed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffectDecision {
    /// Its effect is discarded.
    Refuse,
    /// Its effect waits for approval.
    Ask,
    /// Its effect is committed.
    Commit,
}

/// The next step after the verdict on an effect. `approved`: a grant for this effect was verified.
pub(super) fn decide_effect(verdict: Verdict, approved: bool) -> EffectDecision {
    match verdict {
        Verdict::Deny => EffectDecision::Refuse,
        Verdict::Auto => EffectDecision::Commit,
        Verdict::Preview | Verdict::Prompt if approved => EffectDecision::Commit,
        Verdict::Preview | Verdict::Prompt => EffectDecision::Ask,
    }
}

/// Whether a call without a row gets one when it ends. A call without a row runs again after a loss, so only classes that must not run
/// twice need one; a commit writes its row in any case.
pub(super) fn ends_with_a_row(recovery: Recovery) -> bool {
    match recovery {
        Recovery::ReadOnly | Recovery::Transactional => false,
        Recovery::Idempotent | Recovery::Manual => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_on_an_intent() {
        use {Admission::*, Recovery::*, Touches::*, Verdict::*};
        for (verdict, recovery, touches, approved, expected) in [
            (Deny, ReadOnly, Nothing, false, Refuse),
            (Deny, Transactional, Changes, true, Refuse),
            (Auto, Manual, Nothing, false, Run),
            (Auto, Transactional, Changes, false, Run),
            (Preview, Transactional, Changes, false, Run),
            (Preview, ReadOnly, Reads, false, Run),
            (Preview, ReadOnly, Nothing, false, Run),
            // Effects outside the workspace, and repeated ones, cannot be previewed.
            (Preview, Manual, Changes, false, Ask),
            (Preview, Manual, Nothing, true, Run),
            (Preview, Idempotent, Nothing, false, Ask),
            (Preview, Transactional, Nothing, false, Ask),
            (Prompt, ReadOnly, Reads, false, Ask),
            (Prompt, Transactional, Changes, false, Ask),
            (Prompt, Transactional, Changes, true, Run),
            (Prompt, Manual, Nothing, true, Run),
        ] {
            assert_eq!(
                admit(verdict, recovery, touches, approved),
                expected,
                "{verdict:?} {recovery:?} {touches:?} {approved}"
            );
        }
    }

    #[test]
    fn verdicts_on_an_effect() {
        use {EffectDecision::*, Verdict::*};
        for (verdict, approved, expected) in [
            (Auto, false, Commit),
            (Auto, true, Commit),
            (Preview, false, Ask),
            (Prompt, false, Ask),
            (Prompt, true, Commit),
            (Deny, false, Refuse),
            (Deny, true, Refuse),
        ] {
            assert_eq!(decide_effect(verdict, approved), expected, "{verdict:?} {approved}");
        }
    }
}

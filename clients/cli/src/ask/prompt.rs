//! The approval prompt as a state machine over the typed lines. Only `a` or `approve` approves.

use belay_proto::v1::Decision;

/// The longest reason the gate takes (`DecideApprovalRequest.reason`), in characters.
const MAX_REASON_CHARS: usize = 2_000;

/// Where the questions are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// Waiting for a letter.
    #[default]
    Choosing,
    /// Waiting for the reason of a denial.
    Denying,
}

/// The step that follows a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Ask again; say this before, if it is not empty.
    Again(&'static str),
    /// Show everything, then ask again.
    ShowAll,
    /// Say what the letters do, then ask again.
    Help,
    /// The person has decided.
    Decided(Decision, String),
    /// The person leaves without a decision.
    Leave,
}

impl Prompt {
    /// The prompt, for a window of this many columns.
    pub(crate) fn question(self, columns: usize) -> &'static str {
        match (self, columns) {
            (Prompt::Choosing, ..60) => "[A]pprove [D]eny [S]kip [V]iew [Q]uit >",
            (Prompt::Choosing, _) => "[A]pprove  [D]eny  [S]kip  [V]iew all  [?] help  [Q]uit >",
            (Prompt::Denying, ..60) => "Reason (Enter to go back):",
            (Prompt::Denying, _) => "Reason (sent to the planner; Enter to go back):",
        }
    }

    /// Handles a typed line; `None` at the end of the input.
    pub(crate) fn take(&mut self, line: Option<&str>) -> Reply {
        let Some(line) = line else { return Reply::Leave };
        let line = line.trim();
        match *self {
            Prompt::Choosing => match line.to_lowercase().as_str() {
                "a" | "approve" => Reply::Decided(Decision::Approve, String::new()),
                "d" | "deny" => {
                    *self = Prompt::Denying;
                    Reply::Again("")
                }
                "s" | "skip" => Reply::Decided(Decision::Skip, String::new()),
                "v" | "view" => Reply::ShowAll,
                "?" | "h" | "help" => Reply::Help,
                "q" | "quit" => Reply::Leave,
                "" => Reply::Again("no decision yet: type a letter and Enter"),
                _ => Reply::Again("no decision yet: type a, d, s, v, q or ?"),
            },
            Prompt::Denying if line.is_empty() => {
                *self = Prompt::Choosing;
                Reply::Again("no decision yet")
            }
            Prompt::Denying if line.chars().count() > MAX_REASON_CHARS => {
                Reply::Again("a reason has at most 2,000 characters")
            }
            Prompt::Denying => Reply::Decided(Decision::Deny, line.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reply to the last of these lines: each before it has to leave the question open.
    fn after(lines: &[&str]) -> Reply {
        let mut prompt = Prompt::default();
        let (last, before) = lines.split_last().expect("a line");
        for line in before {
            assert!(matches!(prompt.take(Some(line)), Reply::Again(_) | Reply::ShowAll | Reply::Help), "{line:?}");
        }
        prompt.take(Some(last))
    }

    // S2-X-17: approve, deny, view full, skip step.
    #[test]
    fn each_letter_does_what_it_says() {
        for yes in ["a", "A", " approve \t", "APPROVE"] {
            assert_eq!(after(&[yes]), Reply::Decided(Decision::Approve, String::new()));
        }
        assert_eq!(after(&["s"]), Reply::Decided(Decision::Skip, String::new()));
        assert_eq!(after(&["v"]), Reply::ShowAll);
        assert_eq!(after(&["?"]), Reply::Help);
        assert_eq!(after(&["v", "v", "a"]), Reply::Decided(Decision::Approve, String::new()));
        assert_eq!(after(&["q"]), Reply::Leave);
    }

    // B-03: nothing but the word for it approves.
    #[test]
    fn enter_and_garbage_decide_nothing() {
        for line in ["", " ", "y", "yes", "ok", "aa", "a d", "approve it", "1", "\u{430}", "\u{1b}[A", "a\u{0}"] {
            assert!(matches!(after(&[line]), Reply::Again(hint) if hint.starts_with("no decision yet")), "{line:?}");
        }
        assert_eq!(Prompt::default().take(None), Reply::Leave);
    }

    #[test]
    fn a_denial_has_a_reason_and_can_be_taken_back() {
        assert_eq!(after(&["d", " wrong file "]), Reply::Decided(Decision::Deny, "wrong file".to_owned()));
        assert_eq!(after(&["d", "a"]), Reply::Decided(Decision::Deny, "a".to_owned()), "a reason is no command");
        assert_eq!(after(&["d", "", "a"]), Reply::Decided(Decision::Approve, String::new()));
        assert_eq!(
            after(&["d", &"x".repeat(MAX_REASON_CHARS + 1), "y"]),
            Reply::Decided(Decision::Deny, "y".to_owned())
        );
        let mut prompt = Prompt::Denying;
        assert_eq!(prompt.take(None), Reply::Leave);
    }
}

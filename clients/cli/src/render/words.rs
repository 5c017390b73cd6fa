//! The contract's enumerations and small messages in words. The words for states are the ones that `--state` takes.

use std::time::Duration;

use belay_proto::v1::{
    EffectSummary, Execution, Failure, Payload, PolicyDecision, SkipReason, StepStatus, StepTotals, TraceContext,
    WaitingReason, approval, execution, payload::Content, step_status, waiting_reason::Kind,
};

use super::{
    text::{Style, clean, shorten},
    time,
};

/// The longest value that is shown inside a line, in characters.
const LONGEST_VALUE: usize = 100;

/// An execution's state, such as `timed_out`.
pub(crate) fn execution_state(state: execution::State) -> String {
    word(state.as_str_name(), "STATE_")
}

/// A step's state, such as `backing_off`.
pub(crate) fn step_state(state: step_status::State) -> String {
    word(state.as_str_name(), "STATE_")
}

/// An enumeration's value without its prefix, in small letters.
pub(crate) fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

/// How an execution's state looks.
pub(crate) fn execution_style(state: execution::State) -> Style {
    use execution::State;
    match state {
        State::Completed => Style::Good,
        State::Failed | State::Partial | State::TimedOut => Style::Bad,
        State::Paused | State::AwaitingApproval | State::Cancelling | State::Cancelled => Style::Warn,
        _ => Style::Plain,
    }
}

/// How a step's state looks.
pub(crate) fn step_style(state: step_status::State) -> Style {
    use step_status::State;
    match state {
        State::Completed => Style::Good,
        State::Failed => Style::Bad,
        State::AwaitingApproval | State::BackingOff | State::OutcomeUnknown | State::Cancelled => Style::Warn,
        State::Pending | State::Ready | State::Skipped => Style::Dim,
        _ => Style::Plain,
    }
}

/// `file not found: a.txt (FILE_NOT_FOUND)`.
pub(crate) fn failure(failure: &Failure) -> String {
    match (failure.message.as_str(), reason(failure)) {
        ("", reason) => reason,
        (message, reason) => format!("{message} ({reason})"),
    }
}

/// A failure's stable word: its reason, else its class.
pub(crate) fn reason(failure: &Failure) -> String {
    match failure.reason.as_str() {
        "" => failure.error_class().as_str_name().trim_start_matches("ERROR_CLASS_").to_owned(),
        reason => reason.to_owned(),
    }
}

/// `because fetch failed`.
pub(crate) fn skipped(reason: SkipReason, because: &str) -> String {
    let step = if because.is_empty() { "a step" } else { because };
    match reason {
        SkipReason::DependencyFailed => format!("because {step} failed"),
        SkipReason::DependencySkipped => format!("because {step} did not run to its end"),
        SkipReason::StopOnError => format!("because {step} failed, and the plan stops on an error"),
        SkipReason::Cancelled => "because the execution was cancelled".to_owned(),
        SkipReason::TimedOut => "because the execution ran out of time".to_owned(),
        SkipReason::ApprovalSkipped => "because a person said to leave it out".to_owned(),
        SkipReason::NonInteractive => "because a person would have to be asked, and nobody is".to_owned(),
        SkipReason::Unspecified => "for a reason that this version of belay does not know".to_owned(),
    }
}

/// A value, short enough to stand inside a line.
pub(crate) fn payload(payload: &Payload) -> String {
    match &payload.content {
        Some(Content::Json(text)) => shorten(&clean(text), LONGEST_VALUE),
        Some(Content::Blob(blob)) => format!("({} bytes, {})", blob.size_bytes, blob.digest),
        None => String::new(),
    }
}

/// What is waited for, since when and who ends it: `waits for a tool runner: runner-1 (since 12s)`.
pub(crate) fn waiting(reason: &WaitingReason, now: Duration) -> String {
    let what = match reason.kind() {
        Kind::Timer => match reason.until.as_ref().and_then(time::since_epoch) {
            Some(until) => {
                format!("goes on in {}", time::short(Duration::from_secs(until.saturating_sub(now).as_secs())))
            }
            None => "waits for a moment in time".to_owned(),
        },
        Kind::Approval => "waits for a decision".to_owned(),
        Kind::Resume => "is paused until somebody resumes it".to_owned(),
        Kind::Outcome => "a call's outcome is unknown; a person has to look".to_owned(),
        Kind::Runner => "waits for a tool runner".to_owned(),
        Kind::Call => "waits for a running call".to_owned(),
        Kind::Workspace => "waits for room on a disk".to_owned(),
        Kind::Limit => "waits for its turn".to_owned(),
        Kind::Unspecified => "waits".to_owned(),
    };
    let who = if reason.who.is_empty() { String::new() } else { format!(": {}", reason.who) };
    match time::between(reason.since.as_ref(), Some(now)) {
        Some(since) => format!("{what}{who} (since {})", time::short(Duration::from_secs(since.as_secs()))),
        None => format!("{what}{who}"),
    }
}

/// `2 completed, 1 failed`; only what there is.
pub(crate) fn totals(totals: &StepTotals) -> String {
    let parts = [
        (totals.completed, "completed"),
        (totals.failed, "failed"),
        (totals.skipped, "skipped"),
        (totals.cancelled, "cancelled"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if parts.is_empty() { "no step ended".to_owned() } else { parts.join(", ") }
}

/// The command that shows an approval, by its name.
pub(crate) fn show_approval(name: &str) -> String {
    crate::next::about(&["approvals", "show"], name, &[])
}

/// An approval's state, such as `pending`.
pub(crate) fn approval_state(state: approval::State) -> String {
    word(state.as_str_name(), "STATE_")
}

/// How an approval's state looks.
pub(crate) fn approval_style(state: approval::State) -> Style {
    use approval::State;
    match state {
        State::Pending => Style::Warn,
        State::Approved | State::Consumed => Style::Good,
        State::Denied | State::Expired => Style::Bad,
        _ => Style::Dim,
    }
}

/// `3 files: +2 ~1`; only the counts there are.
pub(crate) fn effect(effect: &EffectSummary) -> String {
    let total = effect.created.saturating_add(effect.modified).saturating_add(effect.deleted);
    let counts = [(effect.created, '+'), (effect.modified, '~'), (effect.deleted, '-')];
    let counts: String =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, sign)| format!(" {sign}{count}")).collect();
    match total {
        0 => "no file".to_owned(),
        1 => format!("1 file:{counts}"),
        _ => format!("{total} files:{counts}"),
    }
}

/// `Deleting asks first. (rule file_delete)`.
pub(crate) fn decision(decision: &PolicyDecision) -> String {
    match (decision.reason.as_str(), decision.rule.as_str()) {
        ("", "") => "the policy asks".to_owned(),
        ("", rule) => format!("rule {rule}"),
        (reason, "") => reason.to_owned(),
        (reason, rule) => format!("{reason} (rule {rule})"),
    }
}

/// What a person should look at twice, as a sentence about a file.
pub(crate) fn flag(flag: &str) -> String {
    match flag {
        "protected" => "is protected: programs execute or obey it unasked",
        "bare_repository" => "steers a bare Git repository",
        "executable" => "becomes executable",
        "link_leaves" => "is a link that leads out of the workspace",
        "odd_name" => "has a name with characters that cannot be seen or do not belong in names",
        "case_collision" => "differs from another name only in upper and lower case",
        "set_id_stripped" => "asked to run as its owner, and that was taken away",
        "made_writable" => "becomes writable for everybody",
        other => return format!("is marked {other}"),
    }
    .to_owned()
}

/// `1 step`, `3 steps`.
pub(crate) fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

/// The retries a step has used and may use, `2/3`, as sources call it; the first attempt is no retry.
pub(crate) fn retries(step: Option<&StepStatus>, retry_count: i32) -> String {
    match step.map(|step| step.max_attempts - 1).filter(|most| *most >= retry_count) {
        Some(most) => format!("{retry_count}/{most}"),
        None => retry_count.to_string(),
    }
}

/// The trace id inside the execution's `traceparent`, if the trace is recorded: of another one there is nothing to look at.
pub(crate) fn trace_id(execution: &Execution) -> Option<String> {
    let TraceContext { traceparent, tracestate } = execution.trace.as_ref()?;
    let trace = belay_all_in_one::TraceContext::parse(traceparent, tracestate).ok()?;
    trace.is_sampled().then(|| trace.trace_id())
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::ErrorClass;
    use pbjson_types::Timestamp;

    use super::*;

    #[test]
    fn states_are_the_words_of_the_filters() {
        assert_eq!(execution_state(execution::State::TimedOut), "timed_out");
        assert_eq!(step_state(step_status::State::BackingOff), "backing_off");
    }

    #[test]
    fn waits_say_for_what_since_when_and_for_whom() {
        let now = Duration::from_secs(1_000);
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let runner = WaitingReason {
            kind: Kind::Runner.into(),
            since: at(988),
            who: "runner-1".to_owned(),
            ..Default::default()
        };
        assert_eq!(waiting(&runner, now), "waits for a tool runner: runner-1 (since 12s)");
        let timer = WaitingReason { kind: Kind::Timer.into(), until: at(1_004), ..Default::default() };
        assert_eq!(waiting(&timer, now), "goes on in 4s");
    }

    #[test]
    fn a_failure_without_a_reason_shows_its_class() {
        let crash =
            Failure { error_class: ErrorClass::Crash.into(), message: "killed".to_owned(), ..Default::default() };
        assert_eq!(failure(&crash), "killed (CRASH)");
        let reason = Failure { reason: "TOOL_NOT_FOUND".to_owned(), ..Default::default() };
        assert_eq!(failure(&reason), "TOOL_NOT_FOUND");
    }

    #[test]
    fn an_effect_is_its_counts() {
        let effect_of =
            |created, modified, deleted| effect(&EffectSummary { created, modified, deleted, ..Default::default() });
        assert_eq!(effect_of(2, 1, 0), "3 files: +2 ~1");
        assert_eq!(effect_of(0, 0, 1), "1 file: -1");
        assert_eq!(effect_of(0, 0, 0), "no file");
    }

    #[test]
    fn a_decision_names_its_rule_and_reason() {
        let asked = PolicyDecision {
            rule: "file_delete".to_owned(),
            reason: "Deleting asks.".to_owned(),
            ..Default::default()
        };
        assert_eq!(decision(&asked), "Deleting asks. (rule file_delete)");
        assert_eq!(decision(&PolicyDecision::default()), "the policy asks");
    }

    // S1-34: the status reads "retrying (X/3)", where X counts retries.
    #[test]
    fn retries_are_counted_without_the_first_attempt() {
        let step = StepStatus { max_attempts: 4, ..Default::default() };
        assert_eq!(retries(Some(&step), 2), "2/3");
        assert_eq!(retries(None, 2), "2");
    }
}

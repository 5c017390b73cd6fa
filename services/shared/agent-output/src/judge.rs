//! Judges whether an agent has done its task.

use std::time::Duration;

use crate::{AgentError, Class, End, Format, LastLines, Patterns, Report, classify};

/// How an agent was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// By an event that it has reported.
    ByEvent,
    /// By its exit code and its last lines.
    ByOutput,
}

impl Judged {
    /// The name in the facts of a failure.
    pub fn word(self) -> &'static str {
        match self {
            Self::ByEvent => "event",
            Self::ByOutput => "output",
        }
    }
}

/// The failure of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentFailure {
    /// The class, which decides whether it is asked again.
    pub class: Class,
    /// The source of the class.
    pub by: Judged,
    /// The reason, after the name of the agent: `failed: …`.
    pub message: String,
    /// The HTTP status of its model's server.
    pub status: Option<u16>,
    /// How long to wait before another attempt.
    pub retry_after: Option<Duration>,
}

/// Judges an agent that has ended. `exit_code` is `None` where it was ended some time after its final event. `lines` are the last lines that are no events, of
/// standard output and of standard error: what its own tools have printed is in neither.
///
/// # Errors
/// The failure, where it has not done its task. Its final event and its exit code have to agree.
pub fn judge(
    format: Format,
    exit_code: Option<i32>,
    report: &Report,
    lines: [&LastLines; 2],
    patterns: &Patterns,
) -> Result<(), AgentFailure> {
    let code = exit_code.unwrap_or(0);
    let class_by_output = |message: &str| {
        let said = LastLines::from(message);
        let streams = [&said, lines[0], lines[1]].map(|lines| lines.iter().collect::<Vec<_>>());
        classify(Some(code), false, streams, patterns)
    };
    let by_output = |message: String| {
        let class = class_by_output("");
        let message = match class {
            Class::RateLimit => format!("{message}; by its last lines, a rate limit"),
            Class::Fatal => format!("{message}; by its last lines, an error that no retry repairs"),
            Class::Crash | Class::AgentUnavailable | Class::Transient => message,
        };
        AgentFailure { class, by: Judged::ByOutput, message, status: None, retry_after: None }
    };
    let ended = || format!("exited with code {code}");
    match (&report.end, code) {
        // Whatever it has said: it was killed, or could not run a program.
        (_, 126 | 127 | 137) => Err(by_output(ended())),
        (Some(End::Success), 0) => Ok(()),
        (Some(End::Success), _) => Err(by_output(format!("reported success, and {}", ended()))),
        (Some(End::Failure(error)), _) => Err(of_error(format, error, code, &class_by_output)),
        (None, 0) if !format.has_final_event() => Ok(()),
        (None, _) if format.has_final_event() => match &report.error {
            Some(error) => Err(of_error(format, error, code, &class_by_output)),
            None => {
                let failure = by_output(format!("ended without its final event ({})", ended()));
                let status = status_of_exit_code(format, code);
                Err(AgentFailure {
                    class: status.and_then(class_of_status).unwrap_or(failure.class),
                    status,
                    ..failure
                })
            }
        },
        (None, _) => Err(by_output(ended())),
    }
}

/// The failure that an agent has reported.
fn of_error(format: Format, error: &AgentError, code: i32, by_output: &dyn Fn(&str) -> Class) -> AgentFailure {
    let AgentError { message, status, retry_after } = error;
    let status = status.or_else(|| status_of_exit_code(format, code));
    let (class, by) = match status.and_then(class_of_status) {
        Some(class) => (class, Judged::ByEvent),
        None => (by_output(message), Judged::ByOutput),
    };
    let of_status = status.map(|status| format!(" (status {status} of its model's server)")).unwrap_or_default();
    let message = if message.is_empty() { "it gives no reason" } else { message };
    AgentFailure { class, by, message: format!("failed: {message}{of_status}"), status, retry_after: *retry_after }
}

/// The class by the status of a model's server.
fn class_of_status(status: u16) -> Option<Class> {
    Some(match status {
        // Also: no money left.
        402 | 429 => Class::RateLimit,
        401 | 403 => Class::Fatal,
        // The request is wrong for this model, or there is no such model: another agent may do.
        400 | 404 | 413 | 422 => Class::AgentUnavailable,
        408 | 409 | 425 | 500..=599 => Class::Transient,
        _ => return None,
    })
}

/// The status in the exit code of an agent that exits with the status modulo 256.
fn status_of_exit_code(format: Format, code: i32) -> Option<u16> {
    let status = u16::try_from(code).ok()?.checked_add(256)?;
    (format == Format::Gemini && (400..512).contains(&status)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(format: Format, code: i32, end: Option<End>, said: &str) -> Result<(), (Class, &'static str, String)> {
        let report = Report { end, ..Report::default() };
        let lines = LastLines::from(said);
        judge(format, Some(code), &report, [&lines, &LastLines::default()], &Patterns::of_agents())
            .map_err(|failure| (failure.class, failure.by.word(), failure.message))
    }

    fn failure(message: &str, status: Option<u16>) -> Option<End> {
        Some(End::Failure(AgentError { message: message.to_owned(), status, retry_after: None }))
    }

    #[test]
    fn a_final_event_and_the_exit_code_have_to_agree() {
        let of = |code, end| judged(Format::Codex, code, end, "").map_err(|(class, by, _)| (class, by));
        assert_eq!(of(0, Some(End::Success)), Ok(()));
        assert_eq!(of(1, Some(End::Success)), Err((Class::Transient, "output")));
        assert_eq!(of(0, None), Err((Class::Transient, "output")));
        assert_eq!(of(0, failure("no", None)), Err((Class::Transient, "output")));
        assert_eq!(of(0, failure("no", Some(401))), Err((Class::Fatal, "event")));
        for code in [126, 127] {
            assert_eq!(of(code, Some(End::Success)), Err((Class::AgentUnavailable, "output")));
        }
        assert_eq!(of(137, Some(End::Success)), Err((Class::Crash, "output")));
        // One that was ended after its final event.
        let report = Report { end: Some(End::Success), ..Report::default() };
        let none = LastLines::default();
        assert_eq!(judge(Format::Claude, None, &report, [&none, &none], &Patterns::default()), Ok(()));
    }

    #[test]
    fn a_status_decides_before_words() {
        let of = |status| judged(Format::Claude, 1, failure("permission denied", Some(status)), "").unwrap_err();
        for (status, class) in [
            (401, Class::Fatal),
            (402, Class::RateLimit),
            (404, Class::AgentUnavailable),
            (429, Class::RateLimit),
            (500, Class::Transient),
            (529, Class::Transient),
        ] {
            let (found, by, message) = of(status);
            assert_eq!((found, by), (class, "event"), "{status}");
            assert!(message.contains(&format!("status {status}")), "{message}");
        }
        assert_eq!(judged(Format::Claude, 1, failure("authentication_failed", None), "").unwrap_err().0, Class::Fatal);
    }

    #[test]
    fn an_exit_code_may_be_a_status() {
        for (code, class) in
            [(145, Class::Fatal), (173, Class::RateLimit), (244, Class::Transient), (41, Class::Transient)]
        {
            assert_eq!(judged(Format::Gemini, code, failure("busy", None), "").unwrap_err().0, class, "{code}");
        }
        assert_eq!(judged(Format::Codex, 173, failure("busy", None), "").unwrap_err().0, Class::Transient);
        assert_eq!(judged(Format::Gemini, 145, None, "").unwrap_err().0, Class::Fatal);
    }

    #[test]
    fn an_agent_that_writes_text_is_judged_by_its_exit_code_and_its_last_lines() {
        let of = |code, said: &str| judged(Format::Text, code, None, said).map_err(|(class, ..)| class);
        assert_eq!(of(0, "429"), Ok(()));
        assert_eq!(of(1, "Error: 429"), Err(Class::RateLimit));
        assert_eq!(of(1, "Invalid API key"), Err(Class::Fatal));
        assert_eq!(of(1, &format!("429\n{}", "fine\n".repeat(100))), Err(Class::Transient));
        // Long lines are cut singly, and do not push out the one that says it.
        let long = format!("429\n{}", format!("{}\n", "x".repeat(1 << 10)).repeat(99));
        assert_eq!(of(1, &long), Err(Class::RateLimit));
        assert_eq!(of(127, ""), Err(Class::AgentUnavailable));
        assert_eq!(of(137, "429"), Err(Class::Crash));
    }

    #[test]
    fn the_last_error_counts_where_an_agent_does_not_report_its_end() {
        let error =
            AgentError { message: "busy".to_owned(), status: Some(429), retry_after: Some(Duration::from_secs(7)) };
        let report = Report { error: Some(error), ..Report::default() };
        let none = LastLines::default();
        let failed = judge(Format::Opencode, Some(1), &report, [&none, &none], &Patterns::default()).unwrap_err();
        assert_eq!((failed.class, failed.retry_after), (Class::RateLimit, Some(Duration::from_secs(7))));
    }
}

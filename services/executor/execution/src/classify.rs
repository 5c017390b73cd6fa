//! Classifies the failure of a program by its exit code and by the end of its output.
//!
//! The classes, their order and the phrases are those of an agents' supervisor, whose programs are command lines of models: they say in words that a
//! quota is used up or a key is wrong, and exit with 1 for everything.

use crate::{ErrorClass, Failure, LastOutput};

/// How many of the last lines of a stream are looked through for a rate limit.
const RATE_LIMIT_LINES: usize = 100;

/// How many for what no retry mends.
const FATAL_LINES: usize = 50;

/// Phrases of a rate limit.
const RATE_LIMIT: [&str; 4] = ["rate limit", "429", "too many requests", "quota exceeded"];

/// Phrases of what no retry mends.
const FATAL: [&str; 3] = ["authentication failed", "invalid api key", "permission denied"];

/// The class of a program's failure. `exit_code` is `None` when it ended otherwise, `ran_out_of_memory` when the kernel killed it for that, `output` the
/// ends of its streams. A crash comes before a rate limit, that before what no retry mends, that before a program that is not there; everything else may
/// pass by itself.
pub fn classify(exit_code: Option<i32>, ran_out_of_memory: bool, output: &LastOutput) -> ErrorClass {
    let LastOutput { stdout, stderr, .. } = output;
    let says =
        |phrases: &[&str], lines: usize| [stdout, stderr].into_iter().any(|text| has_phrase(text, phrases, lines));
    match exit_code {
        _ if ran_out_of_memory => ErrorClass::Crash,
        Some(137) => ErrorClass::Crash,
        _ if says(&RATE_LIMIT, RATE_LIMIT_LINES) => ErrorClass::RateLimit,
        _ if says(&FATAL, FATAL_LINES) => ErrorClass::Fatal,
        Some(126 | 127) => ErrorClass::AgentUnavailable,
        _ if [stdout, stderr].into_iter().any(|text| names_no_program(text)) => ErrorClass::AgentUnavailable,
        _ => ErrorClass::Transient,
    }
}

/// A program's failure with the class that its output gives it; any other as it is.
pub(crate) fn by_output(failure: &Failure) -> Failure {
    let (Some(code), Some(output)) = (failure.metadata.get(belay_reasons::facts::EXIT_CODE), &failure.last_output)
    else {
        return failure.clone();
    };
    let class = classify(code.parse().ok(), false, output);
    let what = match class {
        ErrorClass::Crash => "a crash",
        ErrorClass::RateLimit => "a rate limit",
        ErrorClass::Fatal => "an error that no retry is_fixable",
        ErrorClass::AgentUnavailable => "a program that is not there",
        _ => return Failure { class, ..failure.clone() },
    };
    let message = format!("{}; by its exit code and output, {what}.", failure.message.trim_end_matches('.'));
    Failure { class, message, ..failure.clone() }
}

fn last_lines(text: &str, lines: usize) -> impl Iterator<Item = String> {
    text.lines().rev().take(lines).map(str::to_lowercase)
}

fn has_phrase(text: &str, phrases: &[&str], lines: usize) -> bool {
    last_lines(text, lines).any(|line| phrases.iter().any(|phrase| line.contains(phrase)))
}

fn names_no_program(text: &str) -> bool {
    let no_file = |line: &str| line.split_once("no such file").is_some_and(|(_, rest)| rest.contains("codex"));
    last_lines(text, FATAL_LINES).any(|line| line.contains("command not found") || no_file(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: i32, stderr: &str) -> ErrorClass {
        classify(Some(code), false, &LastOutput { stderr: stderr.to_owned(), ..LastOutput::default() })
    }

    /// S1-02, S1-03, S1-05, S1-06, S1-07, S1-08, S1-09, S1-10, S1-37: each class, in any case, by its signs.
    #[test]
    fn each_class_is_known_by_its_signs() {
        assert_eq!(class(137, ""), ErrorClass::Crash);
        assert_eq!(classify(Some(1), true, &LastOutput::default()), ErrorClass::Crash);
        for said in ["Rate limit reached", "HTTP 429", "Too Many Requests", "QUOTA EXCEEDED"] {
            assert_eq!(class(1, said), ErrorClass::RateLimit, "{said}");
        }
        for said in ["Authentication failed.", "error: Invalid API key", "Permission denied (publickey)"] {
            assert_eq!(class(1, said), ErrorClass::Fatal, "{said}");
        }
        for (code, said) in
            [(126, ""), (127, ""), (1, "sh: codex: command not found"), (1, "No such file or directory: 'codex'")]
        {
            assert_eq!(class(code, said), ErrorClass::AgentUnavailable, "{code} {said}");
        }
        assert_eq!(class(1, "No such file or directory: 'data'"), ErrorClass::Transient);
        assert_eq!(class(2, "it broke"), ErrorClass::Transient);
        let on_stdout = LastOutput { stdout: "429".to_owned(), ..LastOutput::default() };
        assert_eq!(classify(None, false, &on_stdout), ErrorClass::RateLimit);
    }

    /// A reader of the failure learns why it is tried again in a minute, or not at all.
    #[test]
    fn a_failure_says_how_it_was_classified() {
        let mut failure = Failure::new(ErrorClass::Transient, "COMMAND_FAILED", "`sh` exited with code 1.");
        assert_eq!(by_output(&failure), failure, "it has no exit code");
        failure.metadata.insert("exit_code".to_owned(), "1".to_owned());
        let of = |stderr: &str| {
            let output = LastOutput { stderr: stderr.to_owned(), ..LastOutput::default() };
            by_output(&Failure { last_output: Some(output.into()), ..failure.clone() })
        };
        assert_eq!(of("429").message, "`sh` exited with code 1; by its exit code and output, a rate limit.");
        assert_eq!(of("invalid api key").class, ErrorClass::Fatal);
        assert_eq!(of("it broke").message, "`sh` exited with code 1.");
    }

    /// S1-04, S1-37: of several signs the worse one counts.
    #[test]
    fn a_crash_comes_first_and_what_may_pass_last() {
        let all = "429\npermission denied\ncommand not found";
        assert_eq!(class(137, all), ErrorClass::Crash);
        assert_eq!(class(127, all), ErrorClass::RateLimit);
        assert_eq!(class(127, "permission denied\ncommand not found"), ErrorClass::Fatal);
        assert_eq!(class(1, "command not found"), ErrorClass::AgentUnavailable);
    }

    /// S1-10: what was said long before is not the reason.
    #[test]
    fn only_the_last_lines_count() {
        let after = |said: &str, lines: usize| format!("{said}\n{}", "fine\n".repeat(lines));
        assert_eq!(class(1, &after("429", 99)), ErrorClass::RateLimit);
        assert_eq!(class(1, &after("429", 100)), ErrorClass::Transient);
        assert_eq!(class(1, &after("permission denied", 49)), ErrorClass::Fatal);
        assert_eq!(class(1, &after("permission denied", 50)), ErrorClass::Transient);
    }
}

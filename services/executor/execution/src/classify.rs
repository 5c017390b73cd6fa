//! Classifies the failure of a program by its exit code and by the end of its output, for plans that ask for it.

use belay_agent_output::{Class, Patterns};
use belay_reasons::facts;

use crate::{ErrorClass, Failure, LastOutput};

/// The class of a program's failure. `exit_code` is `None` when it ended otherwise, `ran_out_of_memory` when the kernel killed it for that, `output` the
/// ends of its streams.
pub fn classify(exit_code: Option<i32>, ran_out_of_memory: bool, output: &LastOutput) -> ErrorClass {
    let streams = [&output.stdout, &output.stderr].map(|text| text.lines());
    match belay_agent_output::classify(exit_code, ran_out_of_memory, streams, &Patterns::default()) {
        Class::Crash => ErrorClass::Crash,
        Class::RateLimit => ErrorClass::RateLimit,
        Class::Fatal => ErrorClass::Fatal,
        Class::AgentUnavailable => ErrorClass::AgentUnavailable,
        Class::Transient => ErrorClass::Transient,
    }
}

/// A program's failure with the class that its output gives it; any other as it is, and that of an agent, which its tool has classified by more than the end of
/// its output.
pub(crate) fn by_output(failure: &Failure) -> Failure {
    let (Some(code), Some(output), None) =
        (failure.metadata.get(facts::EXIT_CODE), &failure.last_output, failure.metadata.get(facts::CLASSIFIED_BY))
    else {
        return failure.clone();
    };
    let class = classify(code.parse().ok(), false, output);
    let what = match class {
        ErrorClass::Crash => "a crash",
        ErrorClass::RateLimit => "a rate limit",
        ErrorClass::Fatal => "an error that no retry repairs",
        ErrorClass::AgentUnavailable => "a program that is not there",
        _ => return Failure { class, ..failure.clone() },
    };
    let message = format!("{}; by its exit code and output, {what}.", failure.message.trim_end_matches('.'));
    Failure { class, message, ..failure.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S1-02: the classes are those of failures.
    #[test]
    fn each_class_is_one_of_failures() {
        let class = |code, stderr: &str| {
            classify(Some(code), false, &LastOutput { stderr: stderr.to_owned(), ..LastOutput::default() })
        };
        for (code, said, expected) in [
            (137, "", ErrorClass::Crash),
            (1, "429", ErrorClass::RateLimit),
            (1, "invalid api key", ErrorClass::Fatal),
            (127, "", ErrorClass::AgentUnavailable),
            (1, "", ErrorClass::Transient),
        ] {
            assert_eq!(class(code, said), expected, "{said}");
        }
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
        assert!(of("invalid api key").message.ends_with("an error that no retry repairs."));
        assert_eq!(of("it broke").message, "`sh` exited with code 1.");
        // An agent's words are not searched again.
        failure.metadata.insert("classified_by".to_owned(), "event".to_owned());
        let output = LastOutput { stdout: "429".to_owned(), ..LastOutput::default() };
        let of_agent = Failure { last_output: Some(output.into()), ..failure.clone() };
        assert_eq!(by_output(&of_agent), of_agent);
    }
}

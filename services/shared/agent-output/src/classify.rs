//! Classifies the failure of a program by its exit code and by its last lines.
//!
//! The classes, their order and the phrases are those of an agents' supervisor, whose programs are command lines of models: they say in words that a
//! quota is used up or a key is wrong, and exit with 1 for everything.

/// How many of the last lines of a stream are looked through for a rate limit.
const RATE_LIMIT_LINES: usize = 100;

/// How many for an error that no retry repairs.
const FATAL_LINES: usize = 50;

/// Phrases of a rate limit.
const RATE_LIMIT: [&str; 4] = ["rate limit", "429", "too many requests", "quota exceeded"];

/// Phrases of an error that no retry repairs.
const FATAL: [&str; 3] = ["authentication failed", "invalid api key", "permission denied"];

/// The class of a program's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It was killed from outside.
    Crash,
    /// A quota is used up.
    RateLimit,
    /// No retry repairs it.
    Fatal,
    /// The program, or one that it needs, is not there, or cannot do this task.
    AgentUnavailable,
    /// It may pass.
    Transient,
}

/// Phrases that count beside the built-in ones, in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Phrases of a rate limit.
    pub rate_limit: Vec<String>,
    /// Phrases of an error that no retry repairs.
    pub fatal: Vec<String>,
}

impl Patterns {
    /// Phrases of agents whose quota is used up or whose key is wrong, as seen in 2026.
    pub fn of_agents() -> Self {
        let phrases = [
            "you've hit your",
            "usage limit reached",
            "credit balance is too low",
            "selected model is at capacity",
            "rate_limit",
        ];
        Self {
            rate_limit: phrases.map(str::to_owned).to_vec(),
            fatal: ["authentication_failed", "failed to authenticate", "401 unauthorized"].map(str::to_owned).to_vec(),
        }
    }

    /// These phrases and others.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.rate_limit.extend(others.rate_limit.iter().cloned());
        self.fatal.extend(others.fatal.iter().cloned());
        self
    }
}

/// The class of a program's failure. `exit_code` is `None` when it ended otherwise, `ran_out_of_memory` when the kernel killed it for that, `streams` are the
/// ends of its streams. A crash comes before a rate limit, that before an error that no retry repairs, that before a program that is not there; everything
/// else may pass.
pub fn classify<'a, Lines>(
    exit_code: Option<i32>,
    ran_out_of_memory: bool,
    streams: impl IntoIterator<Item = Lines>,
    patterns: &Patterns,
) -> Class
where
    Lines: IntoIterator<Item = &'a str>,
    Lines::IntoIter: DoubleEndedIterator,
{
    let last = |lines: Lines| lines.into_iter().rev().take(RATE_LIMIT_LINES).map(str::to_lowercase).collect();
    let streams: Vec<Vec<String>> = streams.into_iter().map(last).collect();
    let says = |phrases: &[&str], own: &[String], count: usize| {
        let own: Vec<String> = own.iter().map(|phrase| phrase.to_lowercase()).collect();
        let mut lines = streams.iter().flat_map(|lines| lines.iter().take(count));
        lines.any(|line| {
            phrases.iter().any(|phrase| line.contains(phrase)) || own.iter().any(|phrase| line.contains(phrase))
        })
    };
    match exit_code {
        _ if ran_out_of_memory => Class::Crash,
        Some(137) => Class::Crash,
        _ if says(&RATE_LIMIT, &patterns.rate_limit, RATE_LIMIT_LINES) => Class::RateLimit,
        _ if says(&FATAL, &patterns.fatal, FATAL_LINES) => Class::Fatal,
        Some(126 | 127) => Class::AgentUnavailable,
        _ if streams.iter().flat_map(|lines| lines.iter().take(FATAL_LINES)).any(|line| names_no_program(line)) => {
            Class::AgentUnavailable
        }
        _ => Class::Transient,
    }
}

fn names_no_program(line: &str) -> bool {
    let no_file = line.split_once("no such file").is_some_and(|(_, rest)| rest.contains("codex"));
    line.contains("command not found") || no_file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: i32, said: &str) -> Class {
        classify(Some(code), false, [said.lines()], &Patterns::default())
    }

    /// S1-02, S1-03, S1-05, S1-06, S1-07, S1-08, S1-09, S1-10, S1-37: each class, in any case, by its signs.
    #[test]
    fn each_class_is_known_by_its_signs() {
        assert_eq!(class(137, ""), Class::Crash);
        assert_eq!(classify(Some(1), true, [""; 0].map(str::lines), &Patterns::default()), Class::Crash);
        for said in ["Rate limit reached", "HTTP 429", "Too Many Requests", "QUOTA EXCEEDED"] {
            assert_eq!(class(1, said), Class::RateLimit, "{said}");
        }
        for said in ["Authentication failed.", "error: Invalid API key", "Permission denied (publickey)"] {
            assert_eq!(class(1, said), Class::Fatal, "{said}");
        }
        for (code, said) in
            [(126, ""), (127, ""), (1, "sh: codex: command not found"), (1, "No such file or directory: 'codex'")]
        {
            assert_eq!(class(code, said), Class::AgentUnavailable, "{code} {said}");
        }
        assert_eq!(class(1, "No such file or directory: 'data'"), Class::Transient);
        assert_eq!(class(2, "it broke"), Class::Transient);
        let both = classify(None, false, ["429", ""].map(str::lines), &Patterns::default());
        assert_eq!(both, Class::RateLimit);
    }

    /// S1-04, S1-37: of several signs the worse one counts.
    #[test]
    fn a_crash_comes_first_and_what_may_pass_last() {
        let all = "429\npermission denied\ncommand not found";
        assert_eq!(class(137, all), Class::Crash);
        assert_eq!(class(127, all), Class::RateLimit);
        assert_eq!(class(127, "permission denied\ncommand not found"), Class::Fatal);
        assert_eq!(class(1, "command not found"), Class::AgentUnavailable);
    }

    /// S1-10: what was said long before is not the reason.
    #[test]
    fn only_the_last_lines_count() {
        let after = |said: &str, lines: usize| format!("{said}\n{}", "fine\n".repeat(lines));
        assert_eq!(class(1, &after("429", 99)), Class::RateLimit);
        assert_eq!(class(1, &after("429", 100)), Class::Transient);
        assert_eq!(class(1, &after("permission denied", 49)), Class::Fatal);
        assert_eq!(class(1, &after("permission denied", 50)), Class::Transient);
    }

    /// S1-40: phrases of the operator count as the built-in ones do, in any case.
    #[test]
    fn phrases_of_the_operator_count_too() {
        let own = Patterns { rate_limit: vec!["Slow Down".to_owned()], fatal: vec!["seat expired".to_owned()] };
        let class = |said: &str| classify(Some(1), false, [said.lines()], &own);
        assert_eq!(
            [class("please slow down"), class("Seat expired"), class("429")],
            [Class::RateLimit, Class::Fatal, Class::RateLimit]
        );
        let shipped = Patterns::of_agents().and(&own);
        for said in ["You've hit your weekly limit", "Usage limit reached", "Credit balance is too low", "SLOW DOWN"] {
            assert_eq!(classify(Some(1), false, [said.lines()], &shipped), Class::RateLimit, "{said}");
        }
    }
}

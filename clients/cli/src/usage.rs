//! Errors of the command line: the mistake and what was probably meant, never the usage text.

use std::ffi::OsString;

use belay_all_in_one::SERVICES;
use belay_reasons as reasons;
use clap::{
    Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser as _,
    error::{ContextKind, ContextValue, Error, ErrorKind},
    parser::ValueSource,
};

use crate::{
    args::{Format, command_line, wants_json},
    cli::Cli,
    exit::Exit,
    failure::Report,
    next,
    screen::Screen,
};

/// Words of other tools and their commands here.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("help", &["--help"]),
    ("ls", &["executions", "list"]),
    ("list", &["executions", "list"]),
    ("ps", &["executions", "list"]),
    ("history", &["executions", "list"]),
    ("status", &["executions", "get"]),
    ("get", &["executions", "get"]),
    ("show", &["executions", "get"]),
    ("describe", &["executions", "get"]),
    ("log", &["logs"]),
    ("output", &["logs"]),
    ("files", &["artifacts", "list"]),
    ("provenance", &["artifacts", "lineage"]),
    ("lineage", &["artifacts", "lineage"]),
    ("events", &["executions", "events"]),
    ("timeline", &["executions", "timeline"]),
    ("watch", &["executions", "watch"]),
    ("tail", &["executions", "watch"]),
    ("attach", &["executions", "watch"]),
    ("cancel", &["executions", "cancel"]),
    ("stop", &["executions", "cancel"]),
    ("kill", &["executions", "cancel"]),
    ("pause", &["executions", "pause"]),
    ("resume", &["executions", "resume"]),
    ("retry", &["executions", "retry"]),
    ("fork", &["executions", "fork"]),
    ("continue", &["executions", "resume"]),
    ("start", &["run"]),
    ("exec", &["run"]),
    ("execute", &["run"]),
    ("apply", &["run"]),
    ("validate", &["plan", "validate"]),
    ("check", &["plan", "validate"]),
    ("lint", &["plan", "validate"]),
    ("graph", &["plan", "graph"]),
    ("skip", &["approvals", "skip"]),
    ("pending", &["approvals", "list"]),
    ("inbox", &["approvals", "list"]),
    ("server", &["serve"]),
    ("init", &["config", "show"]),
    ("version", &["--version"]),
];
/// How much a word must resemble a command to be suggested; 1 is the same.
const ALIKE: f64 = 0.7;

/// Reads the command line. A value that is given and empty is refused: a script whose variable is unset would have given none, and a key that is to
/// prevent a second start would prevent nothing.
pub(crate) fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Cli, Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(line)?;
    if let Some(name) = empty(&command, &matches) {
        let message = format!("{name} is empty: give it a value, or leave it out");
        return Err(command.error(ErrorKind::InvalidValue, message));
    }
    Cli::from_arg_matches(&matches)
}

/// The name of a flag, a variable or an argument that has an empty value.
fn empty(command: &Command, matches: &ArgMatches) -> Option<String> {
    let source = |arg: &Arg| {
        let id = arg.get_id().as_str();
        matches.try_contains_id(id).is_ok_and(|is_there| is_there).then(|| matches.value_source(id)).flatten()
    };
    let is_empty = |arg: &&Arg| {
        // Without the flag its text is empty for some.
        let is_given = matches!(source(arg), Some(ValueSource::CommandLine | ValueSource::EnvVariable));
        let values = matches.try_get_raw(arg.get_id().as_str()).ok().flatten();
        is_given && values.is_some_and(|mut values| values.any(std::ffi::OsStr::is_empty))
    };
    let found = command.get_arguments().find(is_empty).map(|arg| {
        let variable = arg.get_env().filter(|_| source(arg) == Some(ValueSource::EnvVariable));
        match (variable, arg.get_long()) {
            (Some(variable), _) => format!("the variable {}", variable.display()),
            (None, Some(long)) => format!("`--{long}`"),
            (None, None) => {
                format!("`{}`", arg.get_value_names().and_then(|names| names.first()).map_or("argument", |name| name))
            }
        }
    });
    found.or_else(|| {
        let (name, inner) = matches.subcommand()?;
        empty(command.find_subcommand(name)?, inner)
    })
}

/// Prints help and versions as they are, and everything else as an error.
pub(crate) fn print(error: &Error, arguments: &[String]) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe has no reader.
            let _ = error.print();
            Exit::OK
        }
        _ => {
            let format = if wants_json(arguments) { Format::Json } else { Format::Text };
            let report = report(error, &command_line(arguments).words);
            Screen::of_process(format).report(&report);
            report.exit
        }
    }
}

fn report(error: &Error, words: &[String]) -> Report {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(wrong))) => unknown(wrong, words),
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand, _) => missing(words),
        _ => mistyped(&error.render().to_string(), words),
    }
}

/// clap's words without its usage and its pointer to the help.
fn mistyped(rendered: &str, words: &[String]) -> Report {
    let mut lines = rendered
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let message = lines.next().unwrap_or("the command line is not valid");
    let mut report = Report::new(reasons::INVALID_USAGE, message.strip_prefix("error: ").unwrap_or(message));
    report.details = lines.map(str::to_owned).collect();
    report.next(next::help_of(&Cli::command(), &words.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// The report on an unknown command: what was probably meant, with the other words as they were typed.
fn unknown(wrong: &str, words: &[String]) -> Report {
    let at = words.iter().position(|word| word == wrong).unwrap_or(0);
    let (before, after) = (&words[..at], words.get(at + 1..).unwrap_or_default());
    let path: Vec<&str> = before.iter().map(String::as_str).collect();
    let report = Report::new(
        reasons::INVALID_USAGE,
        format!("there is no command `{}`", [&path[..], &[wrong]].concat().join(" ")),
    );
    if path.is_empty() && SERVICES.contains(&wrong) {
        return report
            .detail(format!(
                "`belay {wrong}` is the service as a process of its own: its name comes first, its flags after it"
            ))
            .next(next::command(&[wrong, "--help"]));
    }
    let Some(meant) = meant(wrong, &path) else {
        return report.next(next::help_of(&Cli::command(), &path));
    };
    let meant: Vec<&str> = meant.iter().map(String::as_str).collect();
    let report = report.detail(format!("did you mean `belay {}`?", [&path[..], &meant[..]].concat().join(" ")));
    if meant == ["--help"] {
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        return report.next(next::help_of(&Cli::command(), &after));
    }
    let mut line: Vec<&str> = [&path[..], &meant[..]].concat();
    line.extend(after.iter().map(String::as_str));
    // Commands about one execution need one.
    let needs_one = matches!(
        line[..],
        ["executions", "get" | "watch" | "events" | "timeline" | "cancel" | "pause" | "resume"]
            | ["artifacts", "list"]
            | ["why" | "logs" | "audit"]
    );
    if after.is_empty() && needs_one {
        line.push("@last");
    }
    match Cli::try_parse_from(["belay"].iter().chain(&line)) {
        Ok(_) => report.next(next::command(&line)),
        Err(_) => report.next(next::help_of(&Cli::command(), &line)),
    }
}

/// The command that a word means: what another tool calls so, otherwise the one with the most similar name.
fn meant(wrong: &str, path: &[&str]) -> Option<Vec<String>> {
    let elsewhere = ELSEWHERE.iter().find(|(word, _)| path.is_empty() && *word == wrong);
    if let Some((_, words)) = elsewhere {
        return Some(words.iter().map(|word| (*word).to_owned()).collect());
    }
    let root = Cli::command();
    let at = path.iter().try_fold(&root, |at, word| at.find_subcommand(word))?;
    let likeness = |name: &str| {
        // Two letters that changed places are one mistake.
        let distance = strsim::damerau_levenshtein(name, wrong);
        if distance <= 1 { 1.0 } else { strsim::jaro_winkler(name, wrong) }
    };
    let likely = at.get_subcommands().map(|command| (likeness(command.get_name()), command.get_name().to_owned()));
    let (likeness, name) = likely.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness >= ALIKE).then(|| vec![name])
}

/// The report on a group of commands that was typed alone: the commands in it.
fn missing(words: &[String]) -> Report {
    let root = Cli::command();
    let mut at = &root;
    let mut path = Vec::new();
    for word in words {
        let Some(next) = at.find_subcommand(word) else { break };
        path.push(word.as_str());
        at = next;
    }
    let verbs: Vec<_> = at.get_subcommands().collect();
    let report = Report::new(reasons::INVALID_USAGE, format!("`belay {}` needs a command", path.join(" ")));
    let width = verbs.iter().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    let mut report = verbs.iter().fold(report, |report, verb| {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        report.detail(format!("{:width$}  {}", verb.get_name(), about.lines().next().unwrap_or_default()))
    });
    report.next = Some(match verbs.iter().any(|verb| verb.get_name() == "list") {
        true => next::command(&[&path[..], &["list"]].concat()),
        false => next::help_of(&Cli::command(), &path),
    });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_of(line: &str) -> String {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = parse(arguments.iter().map(OsString::from)).expect_err("mistyped");
        report(&error, &command_line(&arguments).words).lines().iter().map(|line| line.render(false) + "\n").collect()
    }

    #[test]
    fn a_mistyped_command_gets_a_suggestion_and_no_usage() {
        assert_eq!(
            report_of("belay executions lst --limit 3"),
            "error: there is no command `executions lst`\n\
             \x20 did you mean `belay executions list`?\n\
             next: belay executions list --limit 3\n\
             code: INVALID_USAGE (belay explain INVALID_USAGE)\n"
        );
    }

    /// `--request-id "$BUILD"` with no BUILD ran twice.
    #[test]
    fn a_value_that_is_given_is_not_empty() {
        for (line, name) in [
            ("run --request-id  plan.yaml", "`--request-id`"),
            ("run --id= plan.yaml", "`--id`"),
            ("approvals list --execution=", "`--execution`"),
            ("--namespace= executions list", "`--namespace`"),
            ("executions cancel ", "`ID`"),
        ] {
            let told = report_of(&format!("belay {line}"));
            assert!(
                told.starts_with(&format!("error: {name} is empty: give it a value, or leave it out\n")),
                "{line}: {told}"
            );
        }
        let label = ["belay", "run", "--label", "team=", "plan.yaml"].map(OsString::from);
        assert!(parse(label).is_ok(), "an empty value of a label is a value");
        assert!(parse(["belay", "executions", "cancel", "e1"].map(OsString::from)).is_ok(), "it has no reason");
    }

    #[test]
    fn words_of_other_tools_get_a_suggestion() {
        for (typed, next) in [
            ("help", "belay --help"),
            ("help run", "belay run --help"),
            ("rnu plan.yaml", "belay run plan.yaml"),
            ("ls", "belay executions list"),
            ("status", "belay executions get @last"),
            ("log e1", "belay logs e1"),
            ("log", "belay logs @last"),
            ("resume", "belay executions resume @last"),
            ("start", "belay run --help"),
            ("zzzz", "belay --help"),
            ("executions zzzz", "belay executions --help"),
        ] {
            let told = report_of(&format!("belay {typed}"));
            assert!(told.contains(&format!("\nnext: {next}\n")), "{typed}: {told}");
        }
    }

    /// Every suggestion is a command.
    #[test]
    fn every_word_of_other_tools_leads_to_a_command() {
        let root = Cli::command();
        for (word, meant) in ELSEWHERE {
            assert!(root.find_subcommand(word).is_none(), "{word} is a command");
            if !meant[0].starts_with('-') {
                let found = meant.iter().try_fold(&root, |at, word| at.find_subcommand(word));
                assert!(found.is_some(), "{word}: {meant:?}");
            }
        }
    }

    #[test]
    fn a_group_alone_lists_its_commands() {
        let told = report_of("belay executions");
        assert!(told.starts_with("error: `belay executions` needs a command\n  list        List executions"), "{told}");
        assert!(
            told.contains("\n  cancel      Stop executions") && told.contains("\nnext: belay executions list\n"),
            "{told}"
        );
        assert!(self::report_of("belay plan").contains("\nnext: belay plan --help\n"));
    }

    #[test]
    fn a_wrong_value_says_how_to_write_it() {
        let told = report_of("belay run plan.yaml --wait-timeout soon");
        assert!(told.contains("write it like 90s, 15m, 1h30m or 2d"), "{told}");
        assert!(told.contains("next: belay run --help\n") && !told.contains("Usage"), "{told}");
    }
}

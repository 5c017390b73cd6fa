//! What is said when a command is mistyped: the mistake and what was probably meant, never the usage text.

use clap::{
    CommandFactory as _,
    error::{Error, ErrorKind},
};

use crate::{
    args::{Cli, Format, wants_json},
    exit::Exit,
    failure::{Failure, Report},
    screen::Screen,
};

/// Prints help and versions as they are, and everything else as an error.
pub(crate) fn tell(error: &Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe leaves nobody to tell.
            let _ = error.print();
            Exit::OK
        }
        _ => {
            let arguments: Vec<String> =
                std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
            let format = if wants_json(&arguments) { Format::Json } else { Format::Text };
            let report = report(&error.render().to_string(), &arguments);
            Screen::of_process(format).report(&report);
            report.exit
        }
    }
}

/// clap's words without its usage and its pointer to the help.
fn report(rendered: &str, arguments: &[String]) -> Report {
    let mut lines = rendered
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let message = lines.next().unwrap_or("this cannot be understood");
    let mut report = Failure::refused("INVALID_USAGE", message.strip_prefix("error: ").unwrap_or(message));
    report.details = lines.map(str::to_owned).collect();
    report.next(format!("{} --help", command(arguments)))
}

/// The command that was meant, as far as it was typed well: `belay executions`.
fn command(arguments: &[String]) -> String {
    let root = Cli::command();
    let mut at = &root;
    let mut words = vec![root.get_name()];
    for argument in arguments.iter().skip(1) {
        if let Some(next) = at.find_subcommand(argument) {
            at = next;
            words.push(next.get_name());
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn told(line: &str) -> String {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&arguments).expect_err("mistyped");
        report(&error.render().to_string(), &arguments).lines().iter().map(|line| line.render(false) + "\n").collect()
    }

    #[test]
    fn a_mistyped_command_gets_a_suggestion_and_no_usage() {
        assert_eq!(
            told("belay executions lst"),
            "error: unrecognized subcommand 'lst'\n\
             \x20 tip: a similar subcommand exists: 'list'\n\
             next: belay executions --help\n\
             code: INVALID_USAGE (docs/errors/INVALID_USAGE.md)\n"
        );
    }

    #[test]
    fn a_wrong_value_says_how_to_write_it() {
        let told = told("belay run plan.yaml --wait-timeout soon");
        assert!(told.contains("write it like 90s, 15m, 1h30m or 2d"), "{told}");
        assert!(told.contains("next: belay run --help\n") && !told.contains("Usage"), "{told}");
    }
}

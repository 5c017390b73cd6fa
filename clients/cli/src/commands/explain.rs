//! `belay explain`.

use belay_reasons::{self as reasons, EXIT_CODES, ExitCode, Reason, Topic, exit_code};
use serde_json::{Value, json};

use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    next,
    render::text::{Line, Style, table},
};

/// Explain an error code or an exit code: what happened, and what to do
///
/// Without a code, lists them all. Needs no server.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay explain WORKSPACE_FULL\n  belay explain 35"))]
pub(crate) struct Explain {
    /// The code at the end of an error, such as WORKSPACE_FULL, or the number that a command ended with
    #[arg(value_name = "CODE")]
    code: Option<String>,
}

/// Explains it.
pub(crate) fn explain(context: &Context, verb: &Explain) -> Result<Exit, Failure> {
    let (lines, value) = match verb.code.as_deref() {
        None => (all(), json!({ "codes": reasons::ALL.iter().map(as_json).collect::<Vec<_>>() })),
        Some(text) => match text.trim().parse::<u8>() {
            Ok(number) => {
                let exit = exit_code(number).ok_or_else(|| no_exit_code(number))?;
                (exit_lines(exit), exit_as_json(exit))
            }
            Err(_) => {
                let reason = reasons::find(text).ok_or_else(|| no_code(text))?;
                (lines(reason), as_json(reason))
            }
        },
    };
    match (context.screen.format, value.get("codes").and_then(Value::as_array)) {
        (Format::Text, _) => context.screen.print(&lines)?,
        (Format::Jsonl, Some(codes)) => {
            for code in codes {
                context.screen.print_json(code)?;
            }
        }
        (Format::Json | Format::Jsonl, _) => context.screen.print_json(&value)?,
    }
    Ok(Exit::OK)
}

fn facts(rows: &[(&str, &str)]) -> Vec<Line> {
    rows.iter().map(|(name, value)| Line::new("  ").column(Style::Dim, *name, 15).and(Style::Plain, *value)).collect()
}

fn lines(reason: &Reason) -> Vec<Line> {
    let mut lines = vec![Line::default().and(Style::Strong, reason.name)];
    let exit =
        format!("{} ({})", reason.exit, exit_code(reason.exit).map_or("", |exit| exit.what).trim_end_matches('.'));
    let retryable = match reason.retryable {
        true => "yes: the same command, request or call may succeed unchanged",
        false => "no: not before something has changed",
    };
    let classes = reason.classes.iter().map(|class| class.name()).collect::<Vec<_>>().join(" or ");
    let mut rows = vec![("what happened", reason.what), ("what to do", reason.advice), ("exit code", &exit)];
    if !classes.is_empty() {
        rows.push(("error class", &classes));
    }
    rows.push(("retryable", retryable));
    lines.extend(facts(&rows));
    lines
}

fn exit_lines(exit: &ExitCode) -> Vec<Line> {
    let mut lines = vec![Line::default().and(Style::Strong, format!("exit code {}", exit.code))];
    let codes = with_exit(exit).collect::<Vec<_>>().join(", ");
    let mut rows = vec![("what happened", exit.what), ("what to do", exit.advice)];
    if !codes.is_empty() {
        rows.push(("codes", &codes));
    }
    lines.extend(facts(&rows));
    lines
}

/// The reasons that lead to an exit code.
fn with_exit(exit: &ExitCode) -> impl Iterator<Item = &'static str> {
    let code = exit.code;
    reasons::ALL.iter().filter(move |reason| reason.exit == code).map(|reason| reason.name)
}

/// Every code with the first sentence of what it means, by topic; then the exit codes.
fn all() -> Vec<Line> {
    let first = |text: &str| text.split_once(". ").map_or(text.trim_end_matches('.'), |(first, _)| first).to_owned();
    let mut lines = Vec::new();
    for topic in Topic::ALL {
        lines.push(Line::default().and(Style::Strong, topic.title()));
        let rows = reasons::ALL.iter().filter(|reason| reason.topic == topic);
        let cells = |reason: &Reason| vec![(Style::Plain, reason.name.to_owned()), (Style::Dim, first(reason.what))];
        lines.extend(table(&rows.map(cells).collect::<Vec<_>>()));
    }
    lines.push(Line::default().and(Style::Strong, "Exit codes"));
    let cells = |exit: &ExitCode| vec![(Style::Plain, exit.code.to_string()), (Style::Dim, first(exit.what))];
    lines.extend(table(&EXIT_CODES.iter().map(cells).collect::<Vec<_>>()));
    lines
}

fn as_json(reason: &Reason) -> Value {
    json!({
        "code": reason.name,
        "message": reason.what,
        "advice": reason.advice,
        "exitCode": reason.exit,
        "retryable": reason.retryable,
        "errorClasses": reason.classes.iter().map(|class| format!("ERROR_CLASS_{}", class.name())).collect::<Vec<_>>(),
        "grpcCodes": reason.codes.iter().map(|code| code.name()).collect::<Vec<_>>(),
    })
}

fn exit_as_json(exit: &ExitCode) -> Value {
    json!({
        "exitCode": exit.code,
        "message": exit.what,
        "advice": exit.advice,
        "codes": with_exit(exit).collect::<Vec<_>>(),
    })
}

fn no_exit_code(number: u8) -> Failure {
    let known = EXIT_CODES.iter().map(|exit| exit.code.to_string()).collect::<Vec<_>>().join(", ");
    Report::new(reasons::INVALID_USAGE, format!("`belay` has no exit code {number}"))
        .detail(format!("it ends with {known}"))
        .next(next::command(&["explain"]))
        .into()
}

fn no_code(text: &str) -> Failure {
    let report = Report::new(reasons::INVALID_USAGE, format!("there is no code `{text}`"));
    match reasons::similar(text).as_slice() {
        [] => report.next(next::command(&["explain"])),
        [likeliest, ..] => {
            let all = reasons::similar(text).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            report.detail(format!("did you mean {all}?")).next(next::command(&["explain", likeliest]))
        }
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(lines: &[Line]) -> String {
        lines.iter().map(|line| line.render(false) + "\n").collect()
    }

    #[test]
    fn a_code_is_explained() {
        let text = screen(&lines(reasons::find("store_full").unwrap()));
        assert!(text.starts_with("STORE_FULL\n  what happened  The disk of the state directory is full"), "{text}");
        assert!(text.contains("  exit code      1 (A fault of Belay"), "{text}");
        let text = screen(&exit_lines(exit_code(33).unwrap()));
        assert!(text.starts_with("exit code 33\n") && text.contains("POLICY_DENIED, PROGRAM_NOT_ALLOWED"), "{text}");
    }

    #[test]
    fn everything_is_listed() {
        let text = screen(&all());
        assert!(reasons::ALL.iter().all(|reason| text.contains(reason.name)) && text.contains("35"));
    }

    #[test]
    fn an_unknown_code_gets_a_suggestion() {
        let report = no_code("WORKSPACE_FUL").report();
        assert_eq!((report.exit, report.next.as_deref()), (Exit::REFUSED, Some("belay explain WORKSPACE_FULL")));
        assert_eq!(no_code("zzz").report().next.as_deref(), Some("belay explain"));
        assert_eq!(no_exit_code(77).report().next.as_deref(), Some("belay explain"));
    }
}

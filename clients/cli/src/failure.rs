//! Errors, reported once: one screen for people, one object for programs.

mod lost;

use std::{io, time::Duration};

use belay_all_in_one::{ConfigError, RefusedPolicy, StartError};
use belay_proto::{code_name, v1::PlanViolation};
use belay_reasons as reasons;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use self::lost::LostRequest;
use crate::{
    exit::Exit,
    next,
    render::{
        json,
        text::{Line, Style},
        time,
        violation::{LocatedViolation, Source},
    },
};

/// The name of a plan from standard input.
pub(crate) const STDIN: &str = "<stdin>";

/// The name of a plan that was made from `--task`, in the place of a file's.
pub(crate) const TASK: &str = "--task";

/// The most violations that are shown on a screen; `-o json` has them all.
const VIOLATIONS_SHOWN: usize = 6;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Everything has been said: the process ends with this code.
    Quiet(Exit),
    /// The reader of standard output has closed it.
    ClosedPipe,
    /// An error to report.
    Report(Box<Report>),
}

/// A screen about one failure.
#[derive(Debug)]
pub(crate) struct Report {
    /// How the process ends.
    pub(crate) exit: Exit,
    /// A stable identifier; Belay's own are in the table of `belay_reasons`.
    pub(crate) code: String,
    /// The failure, in one sentence.
    pub(crate) message: String,
    /// The lines that the screen has instead of `error: MESSAGE`; empty for most.
    pub(crate) heading: Vec<Line>,
    /// Where and why, a line each.
    pub(crate) details: Vec<String>,
    /// The field that is wrong, as its author wrote it.
    pub(crate) field: Option<String>,
    /// Whether the same command may succeed when it is given again.
    pub(crate) retryable: bool,
    /// How long to wait before that.
    pub(crate) retry_after: Option<Duration>,
    /// The command to type next.
    pub(crate) next: Option<String>,
    /// Other commands that lead on; the screen has them below `next`.
    pub(crate) also: Vec<String>,
    /// The problems of the plan.
    pub(crate) violations: Vec<LocatedViolation>,
    /// The plan that is wrong.
    pub(crate) source: Option<Source>,
}

impl Failure {
    /// A fault of Belay or of the machine.
    pub(crate) fn internal(message: impl Into<String>) -> Failure {
        Report::new(reasons::INTERNAL, message).into()
    }

    /// The report, for tests of what leads to it.
    #[cfg(test)]
    pub(crate) fn report(self) -> Report {
        match self {
            Failure::Report(report) => *report,
            other => panic!("nothing to say: {other:?}"),
        }
    }
}

impl Report {
    /// A report that says only what failed. The exit code and whether it is retryable are the table's.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Report {
        let reason = reasons::find(code);
        Report {
            exit: reason.map_or(Exit::INTERNAL, |reason| Exit(reason.exit)),
            code: code.to_owned(),
            message: message.into(),
            heading: Vec::new(),
            details: Vec::new(),
            field: None,
            retryable: reason.is_some_and(|reason| reason.retryable),
            retry_after: None,
            next: None,
            also: Vec::new(),
            violations: Vec::new(),
            source: None,
        }
    }

    /// A report on an argument that cannot be used.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Report {
        Report { field: Some(field.to_owned()), ..Report::new(reasons::INVALID_USAGE, message) }
    }

    /// With another line on where and why.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Report {
        self.details.push(line.into());
        self
    }

    /// With another exit code than the table's.
    pub(crate) fn exit(mut self, exit: Exit) -> Report {
        self.exit = exit;
        self
    }

    /// With what the table says to do.
    pub(crate) fn advice(self) -> Report {
        match reasons::find(&self.code) {
            Some(reason) => self.detail(reason.advice),
            None => self,
        }
    }

    /// With the command to type next; see [`crate::next`].
    pub(crate) fn next(mut self, command: impl Into<String>) -> Report {
        self.next = Some(command.into());
        self
    }

    /// A plan that the server refused.
    pub(crate) fn of_plan(source: &Source, violations: Vec<LocatedViolation>) -> Report {
        let problems =
            if violations.len() == 1 { "1 problem".to_owned() } else { format!("{} problems", violations.len()) };
        Report {
            field: first_field(&violations),
            violations,
            source: Some(source.clone()),
            next: match source.name.as_str() {
                STDIN => None,
                // What such a plan is refused for are a model or a tool that are not there.
                TASK => Some(next::command(&["models", "list"])),
                file => Some(next::command(&["plan", "validate", file])),
            },
            ..Report::new(reasons::PLAN_REFUSED, format!("the plan {} is refused: {problems}", source.name))
        }
    }

    /// A policy that cannot be used.
    pub(crate) fn of_policy(refused: &RefusedPolicy) -> Report {
        let name = refused.path.display().to_string();
        let source = Source { name: name.clone(), text: refused.text.clone() };
        let violations: Vec<LocatedViolation> = refused
            .violations
            .iter()
            .map(|violation| placed(&violation.field, violation.line, &violation.message, &source.text).into())
            .collect();
        let message = match (&refused.unreadable, violations.len()) {
            (Some(why), _) => format!("the policy {name} cannot be read: {why}"),
            (None, 1) => format!("the policy {name} is refused: 1 problem"),
            (None, many) => format!("the policy {name} is refused: {many} problems"),
        };
        Report {
            field: first_field(&violations),
            violations,
            source: Some(source),
            next: refused.unreadable.is_none().then(|| next::command(&["policy", "check", &name])),
            ..Report::new(reasons::POLICY_INVALID, message)
        }
    }

    /// Operator's settings that cannot be used.
    pub(crate) fn of_config(error: &ConfigError) -> Report {
        let name = error.path().display().to_string();
        let (what, text, violations) = match error {
            ConfigError::Refused { text, violations, .. } => ("settings file", text, violations),
            ConfigError::RulesRefused { text, violations, .. } => ("file of rules", text, violations),
            _ => return Report::new(reasons::CONFIG_INVALID, error.to_string()),
        };
        let violations: Vec<LocatedViolation> = violations
            .iter()
            .map(|violation| placed(&violation.field, violation.line, &violation.message, text).into())
            .collect();
        let problems =
            if violations.len() == 1 { "1 problem".to_owned() } else { format!("{} problems", violations.len()) };
        Report {
            field: first_field(&violations),
            violations,
            source: Some(Source { name: name.clone(), text: text.clone() }),
            next: matches!(error, ConfigError::Refused { .. })
                .then(|| next::command(&["config", "show", "--config", &name])),
            ..Report::new(reasons::CONFIG_INVALID, format!("the {what} {name} is refused: {problems}"))
        }
    }

    /// A refusal by the services.
    pub(crate) fn of_status(status: &Status) -> Report {
        if let Some(lost) = LostRequest::of(status) {
            return Report::gone(&lost);
        }
        let details = status.get_error_details();
        let info = details.error_info();
        let reason = info.map(|info| info.reason.clone()).filter(|reason| !reason.is_empty());
        let mut metadata: Vec<_> = info.map(|info| info.metadata.clone()).unwrap_or_default().into_iter().collect();
        metadata.sort();
        let violations = details.bad_request().map(|request| request.field_violations.as_slice()).unwrap_or_default();

        let message = if status.message().is_empty() { status.code().description() } else { status.message() };
        let code = reason.as_deref().unwrap_or(code_name(status.code()));
        let mut report = Report::new(code, message);
        if reasons::find(code).is_none() {
            // A reason of a newer service: its gRPC code decides.
            let worth = Report::new(code_name(status.code()), "");
            report = Report { exit: worth.exit, retryable: worth.retryable, ..report };
        }
        report.retry_after = details.retry_info().and_then(|info| info.retry_delay);
        report.retryable |= report.retry_after.is_some();
        let described = violations.iter().map(|violation| match violation.field.as_str() {
            "" => violation.description.clone(),
            field => format!("{field}: {}", violation.description),
        });
        report.details.extend(described.filter(|line| line != message));
        if let Some(field) =
            violations.first().map(|violation| violation.field.as_str()).filter(|field| !field.is_empty())
        {
            report.message = as_typed(field, &report.message);
            report.details = report.details.iter().map(|line| as_typed(field, line)).collect();
            report.field = Some(flag_of(field).unwrap_or(field).to_owned());
        }
        for (key, value) in metadata {
            if key == "next_command" {
                report.next = next::of_server(&value);
            } else {
                report.details.push(format!("{}: {value}", camel(&key)));
            }
        }
        if matches!(status.code(), Code::Unauthenticated) {
            report.details.push("set BELAY_TOKEN, or give --token".to_owned());
        }
        // A service that gives a reason for being unavailable is running: starting another would not help.
        if report.next.is_none() && (reason.is_none() || status.code() != Code::Unavailable) {
            report.next = next_command(status.code());
        }
        report
    }

    /// The server was there when the command began, and is not any more.
    fn gone(lost: &LostRequest) -> Report {
        let (message, cause, advice) = match lost {
            LostRequest::BeforeAsked(cause) => (
                "the server ended before the request was sent, and no other has taken its place",
                cause,
                "nothing was sent: give the command again",
            ),
            LostRequest::BeforeAnswered(cause) => (
                "the connection to the server broke before it had answered",
                cause,
                "the server may have ended, before or after it did what was requested: check, or give the command again",
            ),
        };
        let mut report = Report::new(reasons::SERVER_UNREACHABLE, message);
        report.details = vec![cause.clone(), advice.to_owned()];
        report.retryable = true;
        report
    }

    /// The embedded services did not start.
    pub(crate) fn of_start(error: &StartError) -> Report {
        let mut report = Report::new(error.code(), error.to_string());
        report.next = match error.code() {
            reasons::PRINCIPAL_REFUSED => Some(next::command(&["principals", "list"])),
            reasons::INSECURE_LISTEN => Some(next::command(&["serve", "--listen", "127.0.0.1:7433"])),
            _ => None,
        };
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            // Some messages contain their cause.
            let cause_text = cause.to_string();
            if !report.message.contains(&cause_text) {
                report.details.push(cause_text);
            }
            source = cause.source();
        }
        report.advice()
    }

    /// The command to type next: `next`, unless it is what was just typed; otherwise the command that explains the code.
    fn next_command(&self) -> String {
        match &self.next {
            Some(next) if !next::is_typed(next) => next.clone(),
            _ => next::explain(&self.code),
        }
    }

    /// The screen, the most important line first.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let mut lines = match self.heading.as_slice() {
            [] => vec![Line::default().and(Style::Bad, "error").and(Style::Plain, format!(": {}", self.message))],
            heading => heading.to_vec(),
        };
        for violation in self.violations.iter().take(VIOLATIONS_SHOWN) {
            lines.extend(violation.lines(self.source.as_ref()));
        }
        if let Some(more @ 1..) = self.violations.len().checked_sub(VIOLATIONS_SHOWN) {
            lines.push(Line::new(format!("  … and {more} more; `-o json` shows all")));
        }
        lines.extend(self.details.iter().map(|detail| Line::new(format!("  {detail}"))));
        if let Some(wait) = self.retry_after {
            lines.push(Line::new(format!("  again in {}", time::short(wait))));
        }
        let next = self.next_command();
        lines.push(next::line(&next));
        lines.extend(self.also.iter().filter(|also| **also != next && !next::is_typed(also)).map(next::also));
        let explain = match reasons::find(&self.code) {
            Some(reason) if next != next::explain(reason.name) => format!(" (belay explain {})", reason.name),
            _ => String::new(),
        };
        lines.push(Line::default().and(Style::Dim, format!("code: {}{explain}", self.code)));
        lines
    }

    /// The same for programs, in the manner of proto3 JSON: empty fields are left out, durations are `"1.500s"`. `code`, `message`,
    /// `retryable` and `nextCommand` are always there; `violations` for files that were refused only.
    pub(crate) fn json(&self) -> Value {
        let mut value = json!({
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
            "nextCommand": self.next_command(),
        });
        if !self.details.is_empty() {
            value["details"] = self.details.clone().into();
        }
        if let Some(field) = &self.field {
            value["field"] = field.clone().into();
        }
        if let Some(wait) = self.retry_after {
            value["retryAfter"] = json::duration(wait);
        }
        if !self.violations.is_empty() {
            value["violations"] = self.violations.iter().filter_map(LocatedViolation::json).collect();
        }
        value
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Failure::Report(Box::new(report))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Report::of_status(&status).into()
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match &error {
            StartError::Policy(refused) => Report::of_policy(refused).into(),
            StartError::Config(error) => Report::of_config(error).into(),
            _ => Report::of_start(&error).into(),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Report::of_config(&error).into()
    }
}

impl From<RefusedPolicy> for Failure {
    fn from(refused: RefusedPolicy) -> Self {
        Report::of_policy(&refused).into()
    }
}

impl From<json::JsonError> for Failure {
    fn from(error: json::JsonError) -> Self {
        Failure::internal(error.to_string())
    }
}

fn first_field(violations: &[LocatedViolation]) -> Option<String> {
    violations.first().map(|found| found.violation.field.clone()).filter(|field| !field.is_empty())
}

/// A violation with its column: that of the field's last name in its line, else of the line's first letter.
fn placed(field: &str, number: u32, message: &str, text: &str) -> PlanViolation {
    let line = usize::try_from(number).ok().and_then(|line| line.checked_sub(1));
    let text = line.and_then(|line| text.lines().nth(line)).unwrap_or_default();
    let last = field.rsplit('.').next().unwrap_or_default();
    let last = last.split('[').next().unwrap_or_default();
    let place = text.find(last).filter(|_| !last.is_empty()).or_else(|| text.find(|c: char| !c.is_whitespace()));
    let column = place.map_or(0, |place| text[..place].chars().count() + 1);
    PlanViolation {
        field: field.to_owned(),
        message: message.to_owned(),
        line: i32::try_from(number).unwrap_or(i32::MAX),
        column: i32::try_from(column).unwrap_or(0),
    }
}

impl From<io::Error> for Failure {
    /// Only output is written with `?`; all other I/O errors say what the command was doing.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            // EIO from a terminal: it was closed.
            _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Failure::ClosedPipe,
            _ => Failure::internal(format!("the output cannot be written: {error}")),
        }
    }
}

fn next_command(code: Code) -> Option<String> {
    match code {
        Code::NotFound => Some(next::command(&["executions", "list"])),
        Code::InvalidArgument => Some(next::help()),
        _ => None,
    }
}

/// The flag in which a field of a request was typed.
fn flag_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "execution_id" => "--id",
        "request_id" => "--request-id",
        "workspace" => "--workspace",
        "start_time" => "--at",
        "page_token" => "--page-token",
        "parent" => "--namespace",
        _ if field == "labels" || field.starts_with("labels[") || field.starts_with("labels.") => "--label",
        _ => return None,
    })
}

/// A sentence about a field with the field as it was typed: ``execution_id: `A` is not valid`` becomes `` `--id A` is not valid``.
fn as_typed(field: &str, sentence: &str) -> String {
    let (Some(flag), Some(rest)) = (flag_of(field), sentence.strip_prefix(field).and_then(|s| s.strip_prefix(": ")))
    else {
        return sentence.to_owned();
    };
    match rest.strip_prefix('`') {
        Some(value) => format!("`{flag} {value}"),
        None => format!("{flag}: {rest}"),
    }
}

/// `decided_by` as `decidedBy`, as everything else is called.
fn camel(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| {
        let mut letters = word.chars();
        all + &letters.next().map(|letter| letter.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    })
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    fn screen(report: &Report) -> String {
        report.lines().iter().map(|line| line.render(false) + "\n").collect()
    }

    fn violation(field: &str, message: &str, line: i32, column: i32) -> PlanViolation {
        PlanViolation { field: field.to_owned(), message: message.to_owned(), line, column }
    }

    #[test]
    fn a_refused_plan_reads_like_a_compiler() {
        let source = Source {
            name: "plan.yaml".to_owned(),
            text: "id: p\nsteps:\n  - {id: b, title: \"日本\", depends_on: [aa]}\n".to_owned(),
        };
        let report = Report::of_plan(
            &source,
            vec![
                violation("steps[0].depends_on[0]", "there is no step `aa`; did you mean `a`?", 3, 41).into(),
                violation("timeout", "must not be negative", 0, 0).into(),
            ],
        );
        assert_eq!(
            screen(&report),
            "error: the plan plan.yaml is refused: 2 problems\n\
             plan.yaml:3:41: steps[0].depends_on[0]: there is no step `aa`; did you mean `a`?\n\
             \x20     3 |   - {id: b, title: \"日本\", depends_on: [aa]}\n\
             \x20       |                                           ^\n\
             plan.yaml: timeout: must not be negative\n\
             next: belay plan validate plan.yaml\n\
             code: PLAN_REFUSED (belay explain PLAN_REFUSED)\n"
        );
        let value = report.json();
        assert_eq!(value["field"], "steps[0].depends_on[0]");
        assert_eq!(value["violations"][0]["line"], 3);
        assert_eq!(report.exit, Exit::REFUSED);
    }

    #[test]
    fn a_broken_policy_reads_like_a_compiler_too() {
        let violation = |field: &str, line, message: &str| belay_all_in_one::PolicyViolation {
            field: field.to_owned(),
            line,
            message: message.to_owned(),
        };
        let refused = RefusedPolicy {
            path: "policy.yaml".into(),
            text: "file_write: auto\nrules:\n  - {id: a, decide: maybe}\n".to_owned(),
            violations: vec![violation("rules[0].decide", 3, "must be auto, preview, prompt or deny")],
            unreadable: None,
        };
        let report = Report::of_policy(&refused);
        assert_eq!(
            screen(&report),
            "error: the policy policy.yaml is refused: 1 problem\n\
             policy.yaml:3:13: rules[0].decide: must be auto, preview, prompt or deny\n\
             \x20     3 |   - {id: a, decide: maybe}\n\
             \x20       |             ^\n\
             next: belay policy check policy.yaml\n\
             code: POLICY_INVALID (belay explain POLICY_INVALID)\n"
        );
        assert_eq!((report.exit, report.field.as_deref()), (Exit::REFUSED, Some("rules[0].decide")));
        let missing = RefusedPolicy { unreadable: Some("no such file".to_owned()), violations: vec![], ..refused };
        assert!(Report::of_policy(&missing).message.ends_with("cannot be read: no such file"));
    }

    #[test]
    fn many_problems_stay_on_one_screen() {
        let source = Source { name: "p".to_owned(), text: String::new() };
        let report =
            Report::of_plan(&source, (0..20).map(|i| violation(&format!("steps[{i}]"), "bad", 0, 0).into()).collect());
        assert!(screen(&report).contains("  … and 14 more; `-o json` shows all\n"));
        assert_eq!(report.json()["violations"].as_array().map(Vec::len), Some(20));
    }

    #[test]
    fn a_refusal_by_the_services_names_field_reason_and_next_command() {
        let mut details = ErrorDetails::with_bad_request_violation("labels", "at most 64");
        details.set_error_info(
            "LABELS_TOO_MANY",
            "belay.dev",
            [("limit".to_owned(), "64".to_owned()), ("next_command".to_owned(), "belay run".to_owned())],
        );
        details.set_retry_info(Some(Duration::from_millis(1_500)));
        let report = Report::of_status(&Status::with_error_details(Code::InvalidArgument, "refused\x1b[2J", details));
        assert_eq!(
            screen(&report),
            "error: refused<U+001B>[2J\n  --label: at most 64\n  limit: 64\n  again in 1.5s\nnext: belay run\n\
             code: LABELS_TOO_MANY\n"
        );
        assert_eq!(
            report.json(),
            json!({
                "code": "LABELS_TOO_MANY", "message": "refused\x1b[2J", "details": ["--label: at most 64", "limit: 64"],
                "field": "--label", "retryable": true, "retryAfter": "1.500s", "nextCommand": "belay run",
            })
        );
        assert_eq!(report.exit, Exit::REFUSED);
    }

    #[test]
    fn a_bare_status_still_says_what_to_do() {
        let report = Report::of_status(&Status::unavailable(""));
        assert_eq!((report.code.as_str(), report.exit, report.retryable), ("UNAVAILABLE", Exit::INTERNAL, true));
        assert!(report.json()["nextCommand"] == "belay explain UNAVAILABLE");
        let details = ErrorDetails::with_error_info("RUNNER_UNAVAILABLE", "belay.dev", []);
        let report = Report::of_status(&Status::with_error_details(Code::Unavailable, "no runner", details));
        assert_eq!(report.json()["nextCommand"], "belay explain RUNNER_UNAVAILABLE", "another server would not help");
    }

    #[test]
    fn a_closed_pipe_is_no_error_to_talk_about() {
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::ClosedPipe));
    }
}

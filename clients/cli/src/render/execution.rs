//! Executions on the screen: one in full, many in a table, and the summary at the end of one.

use std::{collections::BTreeMap, time::Duration};

use belay_proto::v1::{
    EffectSummary, Execution, ExecutionRemoved, Failure, Step, ToolCall, execution, payload::Content, step::State,
    waiting_reason,
};
use belay_reasons as reasons;
use unicode_width::UnicodeWidthStr as _;

use super::{
    call, output,
    picture::{has_ended, machine_time, waited_for_people},
    text::{Line, Style, shorten, table},
    time, words,
};
use crate::{
    exit::Exit,
    failure::Report,
    follow::is_over,
    names,
    next::{self, about, of_server},
};

/// How wide the state is in a watch of all executions: `awaiting_approval` and a gap.
const STATE_COLUMNS: usize = 19;

/// The most failed steps that the end of an execution shows; `executions get` shows all.
const FAILED_SHOWN: usize = 5;
/// The longest call that it shows of a step, in characters.
const MAX_CALL_CHARS: usize = 40;

/// The most lines of each stream that the end of a failed execution shows of a step's last output, and `executions get` of an attempt's.
const OUTPUT_AT_END: usize = 10;
const OUTPUT_IN_FULL: usize = 40;

/// Everything a person asks about one execution.
pub(crate) fn full(execution: &Execution, is_driven: bool, now: Duration) -> Vec<Line> {
    let state = execution.state();
    let mut lines = vec![
        Line::default()
            .and(Style::Strong, names::id(&execution.name))
            .and(Style::Plain, "  ")
            .and(words::execution_style(state), words::execution_state(state))
            .and(Style::Plain, format!("  {}", took_in_words(execution, now).unwrap_or_default())),
    ];
    lines.extend(table(&facts(execution)));
    if !execution.steps.is_empty() {
        lines.push(Line::default().and(Style::Strong, "steps"));
        lines.extend(table(&execution.steps.iter().map(|step| step_row(step, now)).collect::<Vec<_>>()));
    }
    lines.extend(execution.steps.iter().flat_map(failed_attempts));
    if let (true, Some(failure)) = (execution.steps.is_empty(), &execution.failure) {
        lines.push(Line::default().and(Style::Bad, words::failure(failure)));
    }
    if !is_over(state) {
        lines.extend(
            execution
                .waiting
                .iter()
                .filter(|reason| !words::is_own_call(reason))
                .map(|reason| Line::default().and(Style::Warn, words::waiting(reason, now))),
        );
    }
    lines.push(next::line(next_command(execution, is_driven)));
    lines
}

/// One step, how each of its calls ended, and its output.
pub(crate) fn step(step: &Step, made: &[ToolCall], now: Duration) -> Vec<Line> {
    let mut lines = table(&[step_row(step, now)]);
    match made {
        [] => lines.extend(failed_attempts(step)),
        [only] => lines.extend(failure_of(only)),
        _ => lines.extend(calls(made, now)),
    }
    if let Some(Content::Json(output)) = step.output.as_ref().and_then(|output| output.content.as_ref()) {
        let pretty = serde_json::from_str::<serde_json::Value>(output).map(|value| format!("{value:#}"));
        lines.push(Line::default().and(Style::Strong, "output"));
        lines.extend(pretty.as_ref().unwrap_or(output).lines().map(Line::new));
    }
    lines
}

/// Why each of a step's attempts failed, with what its program wrote last. An attempt that has nothing to add to the step's row is left out.
fn failed_attempts(step: &Step) -> Vec<Line> {
    let mut lines = Vec::new();
    for failed in &step.failed_attempts {
        let Some(failure) = &failed.failure else { continue };
        let mut more = words::details(failure);
        more.extend(output::last(failure, OUTPUT_IN_FULL));
        if more.is_empty() && step.failed_attempts.len() == 1 {
            continue;
        }
        let attempt = match step.max_attempts {
            ..=1 => String::new(),
            most => format!(", attempt {} of {most}", failed.attempt),
        };
        let when = failed.end_time.as_ref().map(|end| format!(", {}", time::date_and_time(end))).unwrap_or_default();
        let heading = Line::new("  ").and(Style::Strong, &step.step_id).and(Style::Dim, format!("{attempt}{when}: "));
        lines.push(heading.and(Style::Plain, words::failure(failure)));
        lines.extend(more.iter().map(|text| Line::new("     ").and(Style::Plain, text)));
    }
    lines
}

/// Calls of tools, one row each; below each that failed what its program wrote last.
pub(crate) fn calls(calls: &[ToolCall], now: Duration) -> Vec<Line> {
    let rows: Vec<_> = calls.iter().map(|call| call_row(call, now)).collect();
    let more = calls.iter().map(failure_of);
    table(&rows).into_iter().zip(more).flat_map(|(row, more)| std::iter::once(row).chain(more)).collect()
}

fn call_row(call: &ToolCall, now: Duration) -> Vec<(Style, String)> {
    let end = call.end_time.as_ref().map_or(Some(now), time::since_epoch);
    let number = match call.operation {
        ..=1 => format!("attempt {}", call.attempt),
        number => format!("attempt {}, call {number}", call.attempt),
    };
    vec![
        (words::call_style(call.state()), words::call_state(call.state())),
        (Style::Strong, call.step_id.clone()),
        (Style::Plain, number),
        (Style::Plain, call.tool.clone()),
        (Style::Dim, call.request_time.as_ref().map(time::date_and_time).unwrap_or_default()),
        (Style::Plain, time::between(call.request_time.as_ref(), end).map(time::short).unwrap_or_default()),
        (Style::Plain, call.failure.as_ref().map(words::failure).unwrap_or_default()),
    ]
}

/// What there is to say of a call's failure besides its reason: the details, and what its program wrote last.
fn failure_of(call: &ToolCall) -> Vec<Line> {
    let more = |failure: &Failure| {
        words::details(failure).into_iter().chain(output::last(failure, OUTPUT_IN_FULL)).collect::<Vec<_>>()
    };
    let more = call.failure.as_ref().map(more).unwrap_or_default();
    more.iter().map(|text| Line::new("     ").and(Style::Plain, text)).collect()
}

fn facts(execution: &Execution) -> Vec<Vec<(Style, String)>> {
    let started_by =
        if execution.principal.is_empty() { String::new() } else { format!(" by {}", execution.principal) };
    let created = execution.create_time.as_ref().map(|created| time::date_and_time(created) + &started_by);
    let totals = execution.totals.as_ref().map(|totals| format!("{} of {}", words::totals(totals), totals.total));
    let facts = [
        ("plan", Some(execution.plan_id.clone())),
        ("fork of", Some(names::id(&execution.forked_from).to_owned())),
        ("accepted", created),
        ("started", execution.start_time.as_ref().map(time::date_and_time)),
        ("ended", execution.end_time.as_ref().map(time::date_and_time)),
        (
            "deadline",
            execution.deadline_time.as_ref().filter(|_| execution.end_time.is_none()).map(time::date_and_time),
        ),
        ("steps", totals),
        ("used", words::spent(execution)),
        ("workspace", Some(execution.workspace.clone())),
        ("labels", Some(labels(execution))),
        ("trace", words::trace_id(execution)),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| {
            Some(vec![(Style::Dim, name.to_owned()), (Style::Plain, value.filter(|value| !value.is_empty())?)])
        })
        .collect()
}

fn step_row(step: &Step, now: Duration) -> Vec<(Style, String)> {
    let state = step.state();
    let attempts = match step.attempt {
        ..=1 => String::new(),
        attempt => format!("attempt {attempt} of {}", step.max_attempts),
    };
    let took = match has_ended(state) {
        true => machine_time(step),
        false => time::between(step.start_time.as_ref(), Some(now)).map(|took| took.saturating_sub(waited(step, now))),
    };
    let took = took.map(time::short).unwrap_or_default();
    let mut notes = Vec::new();
    if let Some(waited) = waited_for_people(step) {
        notes.push(format!("and {} waiting for approval", time::short(waited)));
    }
    if state == State::Skipped {
        notes.push(words::skipped(step.skip_reason(), &step.skipped_because));
    } else if let Some(failure) = step.failure.as_ref().filter(|_| state != State::Completed) {
        notes.push(words::failure(failure));
    }
    notes.extend(step.cached_result.as_ref().map(words::cached));
    if let Some(waiting) = step.waiting.as_ref().filter(|_| !has_ended(state)) {
        notes.push(words::waiting(waiting, now));
    }
    let id = if step.title.is_empty() || step.title == step.step_id {
        step.step_id.clone()
    } else {
        format!("{} ({})", step.step_id, step.title)
    };
    vec![
        (words::step_style(state), words::step_state(state)),
        (Style::Strong, id),
        (Style::Plain, call::kind_of(step)),
        (Style::Plain, took),
        (Style::Plain, attempts),
        (Style::Plain, notes.join("; ")),
    ]
}

/// How long a step that has not ended has waited for decisions.
fn waited(step: &Step, now: Duration) -> Duration {
    let before = step.approval_wait.as_ref().map(time::duration).unwrap_or_default();
    let waits = step.waiting.as_ref().filter(|_| step.state() == State::AwaitingApproval);
    before + time::between(waits.and_then(|waits| waits.begin_time.as_ref()), Some(now)).unwrap_or_default()
}

/// From the acceptance to the end, or to now: `12s`, or `12s, and 40s waiting for approval`, where the first is the machine's.
pub(super) fn took_in_words(execution: &Execution, now: Duration) -> Option<String> {
    let end = execution.end_time.as_ref().map_or(Some(now), time::since_epoch);
    let whole = time::between(execution.create_time.as_ref(), end)?;
    let before = execution.approval_wait.as_ref().map(time::duration).unwrap_or_default();
    // It has done nothing else since the last of its steps began to wait.
    let is_waiting = execution.state() == execution::State::AwaitingApproval;
    let waits = execution.waiting.iter().filter(|wait| is_waiting && wait.kind() == waiting_reason::Kind::Approval);
    let since = waits.filter_map(|wait| time::since_epoch(wait.begin_time.as_ref()?)).max();
    let waited = before + since.map(|since| now.saturating_sub(since)).unwrap_or_default();
    let machine = time::short(whole.saturating_sub(waited));
    Some(match waited.as_secs() {
        0 => machine,
        _ => format!("{machine}, and {} waiting for approval", time::short(waited)),
    })
}

/// The command to type next about an execution; one that no process drives has to be resumed, in any state.
fn next_command(execution: &Execution, is_driven: bool) -> String {
    let name = execution.name.as_str();
    let said = execution.waiting.iter().map(|reason| reason.next_command.as_str()).find(|command| !command.is_empty());
    match execution.state() {
        state if !is_over(state) && (state == execution::State::Paused || !is_driven) => {
            about(&["executions", "resume"], name, &[])
        }
        state if is_over(state) => about(&["executions", "get"], name, &["-o", "json"]),
        _ => said.and_then(of_server).unwrap_or_else(|| about(&["executions", "watch"], name, &[])),
    }
}

/// `a=b team=x`.
fn labels(execution: &Execution) -> String {
    execution.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// A table of executions in BASIC view, the columns' names first.
pub(crate) fn list(executions: &[Execution], now: Duration) -> Vec<Line> {
    let heading = ["ID", "STATE", "PLAN", "AGE", "BY", "LABELS"].map(|name| (Style::Dim, name.to_owned())).to_vec();
    let rows = executions.iter().map(|execution| {
        let state = execution.state();
        let age = time::between(execution.create_time.as_ref(), Some(now)).map(time::short).unwrap_or_default();
        vec![
            (Style::Strong, names::id(&execution.name).to_owned()),
            (words::execution_style(state), words::execution_state(state)),
            (Style::Plain, execution.plan_id.clone()),
            (Style::Plain, age),
            (Style::Plain, execution.principal.clone()),
            (Style::Dim, labels(execution)),
        ]
    });
    table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

/// One execution as it is now, for a watch of all: `failed  e1  deploy  12s  TOOL_FAILED`.
pub(crate) fn changed(execution: &Execution, now: Duration) -> Line {
    let state = execution.state();
    let took = took_in_words(execution, now).unwrap_or_default();
    let waits: Vec<String> =
        execution.waiting.iter().map(|reason| words::word(reason.kind().as_str_name(), "KIND_")).collect();
    let mut line = Line::default()
        .column(words::execution_style(state), words::execution_state(state), STATE_COLUMNS)
        .and(Style::Strong, names::id(&execution.name))
        .and(Style::Plain, format!("  {}  {took}", execution.plan_id));
    if let Some(failure) = &execution.failure {
        line = line.and(Style::Bad, format!("  {}", words::reason(failure)));
    }
    if !waits.is_empty() {
        line = line.and(Style::Warn, format!("  waits for {}", waits.join(", ")));
    }
    line
}

/// One execution that a watch of all is to forget.
pub(crate) fn removed(removed: &ExecutionRemoved) -> Line {
    let what = if removed.deleted { "deleted" } else { "no longer matches" };
    Line::default().column(Style::Dim, what, STATE_COLUMNS).and(Style::Strong, names::id(&removed.name))
}

/// The last lines about an execution that ended well or that a command controls.
pub(crate) fn summary(execution: &Execution, now: Duration) -> Vec<Line> {
    use execution::State;
    let state = execution.state();
    let took = took_in_words(execution, now).unwrap_or_default();
    let mark = match state {
        State::Completed => "✓ ",
        State::Partial | State::Cancelled => "- ",
        _ => "",
    };
    let what = match state {
        State::Cancelling => format!("is being cancelled (running for {took})"),
        State::Cancelled => format!("was cancelled after {took}"),
        State::Paused => format!("paused after {took}"),
        _ => format!("{} in {took}", words::execution_state(state)),
    };
    let mut lines = vec![headline(execution, mark, &what), Line::new(format!("  {}", place(execution)))];
    lines.extend(unattended(execution));
    let command = match is_over(state) {
        true => about(&["executions", "get"], &execution.name, &[]),
        false => next_command(execution, true),
    };
    lines.push(next::line(command));
    lines
}

/// `✓ tidy completed in 12s · 3 completed`.
fn headline(execution: &Execution, mark: &str, what: &str) -> Line {
    let style = words::execution_style(execution.state());
    let totals = execution.totals.as_ref().map(|totals| format!(" · {}", words::totals(totals)));
    Line::default()
        .and(style, mark)
        .and(Style::Strong, words::title(execution))
        .and(Style::Plain, " ")
        .and(style, what)
        .and(Style::Plain, totals.unwrap_or_default())
}

/// `execution e1 in /home/me/src`.
fn place(execution: &Execution) -> String {
    let workspace = match execution.workspace.as_str() {
        "" => String::new(),
        folder => format!(" in {folder}"),
    };
    format!("execution {}{workspace}", names::id(&execution.name))
}

/// The most steps that a line names.
const STEPS_NAMED: usize = 5;

/// What no person approved, by rule: first the calls that needed approval and got it automatically.
fn unattended(execution: &Execution) -> Vec<Line> {
    let mut by_rule: BTreeMap<(bool, &str), (Vec<&str>, EffectSummary)> = BTreeMap::new();
    for step in &execution.steps {
        let Some(let_by) = &step.authorization else { continue };
        let is_policy = let_by.approver == "policy";
        if !is_policy && !let_by.approver.is_empty() {
            continue;
        }
        let (steps, effect) = by_rule.entry((!is_policy, &let_by.rule)).or_default();
        steps.push(&step.step_id);
        effect.created += let_by.created;
        effect.modified += let_by.modified;
        effect.deleted += let_by.deleted;
    }
    let line = |((alone, rule), (steps, effect)): (&(bool, &str), &(Vec<&str>, EffectSummary))| {
        let how = if *alone { "allowed by rule" } else { "approved automatically, asked by rule" };
        let named: Vec<&str> = steps.iter().take(STEPS_NAMED).copied().collect();
        let more = steps.len().checked_sub(STEPS_NAMED).filter(|more| *more > 0);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        let style = if *alone { Style::Dim } else { Style::Warn };
        Line::default()
            .and(style, format!("{how} {rule}: "))
            .and(Style::Plain, format!("{} ({}{more})", words::effect(effect), named.join(", ")))
    };
    by_rule.iter().map(line).collect()
}

/// The report, printed last and once, on an execution that ended in any other way.
pub(crate) fn report(execution: &Execution) -> Report {
    use execution::State as Ended;
    let failure = execution.failure.as_ref();
    let failed_with = || failure.map_or(reasons::EXECUTION_FAILED.to_owned(), words::reason);
    let (code, mark, what) = match execution.state() {
        Ended::Cancelled => (reasons::EXECUTION_CANCELLED.to_owned(), "- ", "was cancelled"),
        Ended::TimedOut => (reasons::EXECUTION_TIMED_OUT.to_owned(), "✗ ", "ran out of the time that its plan allows"),
        Ended::Partial => (failed_with(), "✗ ", "failed in part"),
        _ => (failed_with(), "✗ ", "failed"),
    };
    // The execution has ended: no clock is needed.
    let took = execution.end_time.and_then(|_| took_in_words(execution, Duration::ZERO));
    let what = format!("{what}{}", took.map(|took| format!(" after {took}")).unwrap_or_default());
    let totals = execution.totals.as_ref().map(|totals| format!(": {}", words::totals(totals))).unwrap_or_default();
    let message = format!("execution {} {what}{totals}", names::id(&execution.name));
    let mut report = Report::new(&code, message).exit(Exit::of_execution(execution));
    report.heading.push(headline(execution, mark, &what));
    report.heading.extend(failed_steps(execution, &code));
    report.details.push(place(execution));
    report.details.extend(words::trace_id(execution).map(|trace| format!("trace {trace}")));
    report.retryable = failure.is_some_and(|failure| failure.retryable);
    let get = about(&["executions", "get"], &execution.name, &[]);
    if code != reasons::NON_INTERACTIVE {
        report.also.push(about(&["executions", "retry"], &execution.name, &[]));
        return report.next(get);
    }
    match next::run_again(&["--approve", "prompt"]) {
        Some(again) => {
            report.also.push(get);
            report.next(again)
        }
        None => report.next(get),
    }
}

fn failed(execution: &Execution) -> impl Iterator<Item = &Step> {
    execution.steps.iter().filter(|step| step.state() == State::Failed)
}

/// Why an execution failed, step by step: `build  cargo test · exit 101 · attempt 2 of 2`, and below it what the program wrote last. The reason
/// stands beside a step where it differs from the `code` of the execution.
fn failed_steps(execution: &Execution, code: &str) -> Vec<Line> {
    let shown: Vec<&Step> = failed(execution).take(FAILED_SHOWN).collect();
    let ids = shown.iter().map(|step| step.step_id.width()).max().unwrap_or(0);
    let planned = |id: &str| execution.plan.as_ref()?.steps.iter().find(|step| step.id == id).map(call::of_step);
    let mut lines = Vec::new();
    for step in &shown {
        let call = planned(&step.step_id).unwrap_or_else(|| call::kind_of(step));
        let mut parts = vec![shorten(&call, MAX_CALL_CHARS)];
        parts.extend(step.failure.as_ref().map(words::ending));
        if step.max_attempts > 1 {
            parts.push(format!("attempt {} of {}", step.attempt, step.max_attempts));
        }
        parts.extend(step.failure.as_ref().map(words::reason).filter(|reason| reason != code));
        let line = Line::new("  ").column(Style::Strong, &step.step_id, ids).and(Style::Plain, "  ");
        lines.push(line.and(Style::Plain, parts.join(" · ")).hanging(ids + 4));
        let more = step
            .failure
            .iter()
            .flat_map(|failure| words::details(failure).into_iter().chain(output::last(failure, OUTPUT_AT_END)));
        lines.extend(more.map(|text| Line::new(format!("     {text}")).hanging(7)));
    }
    if let Some(more @ 1..) = failed(execution).count().checked_sub(FAILED_SHOWN) {
        lines.push(Line::default().and(Style::Dim, format!("  … and {more} more failed")));
    }
    if let (true, Some(failure)) = (shown.is_empty(), &execution.failure) {
        lines.push(Line::new(format!("  {}", words::failure(failure))));
    }
    lines
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{
        ErrorClass, Failure, LastOutput, SkipReason, StepAttempt, StepTotals, ToolStepDetail, TraceContext,
        WaitingReason, step,
    };
    use pbjson_types::Timestamp;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_795_230_300);

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds: 1_795_230_245 + seconds, nanos: 0 })
    }

    fn step(id: &str, state: State) -> Step {
        Step {
            step_id: id.to_owned(),
            detail: Some(step::Detail::Tool(ToolStepDetail { tool: "read_file".to_owned() })),
            state: state.into(),
            max_attempts: 1,
            ..Default::default()
        }
    }

    fn failed() -> Execution {
        let failure = Failure {
            message: "no such file: a".to_owned(),
            reason: "FILE_NOT_FOUND".to_owned(),
            error_class: ErrorClass::SandboxViolation.into(),
            ..Default::default()
        };
        Execution {
            name: "namespaces/default/executions/e1".to_owned(),
            state: execution::State::Failed.into(),
            plan_id: "quickstart".to_owned(),
            principal: "me".to_owned(),
            create_time: at(0),
            end_time: at(12),
            approval_wait: Some(Duration::from_secs(2).into()),
            totals: Some(StepTotals { total: 3, completed: 1, failed: 1, skipped: 1, ..Default::default() }),
            steps: vec![
                Step {
                    attempt: 1,
                    start_time: at(0),
                    end_time: at(4),
                    approval_wait: Some(Duration::from_secs(3).into()),
                    ..step("a", State::Completed)
                },
                Step {
                    attempt: 2,
                    max_attempts: 2,
                    start_time: at(4),
                    end_time: at(12),
                    failure: Some(failure.clone()),
                    ..step("b", State::Failed)
                },
                Step {
                    skip_reason: SkipReason::DependencyFailed.into(),
                    skipped_because: "b".to_owned(),
                    ..step("c", State::Skipped)
                },
            ],
            failure: Some(failure),
            trace: Some(TraceContext {
                traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
                ..Default::default()
            }),
            labels: [("team".to_owned(), "x".to_owned()), ("a".to_owned(), "b".to_owned())].into(),
            ..Default::default()
        }
    }

    fn screen(lines: &[Line]) -> String {
        lines.iter().map(|line| line.render(false) + "\n").collect()
    }

    #[test]
    fn one_execution_tells_why_it_failed_without_being_asked_twice() {
        assert_eq!(
            screen(&full(&failed(), true, NOW)),
            "e1  failed  10s, and 2s waiting for approval\n\
             \x20 plan      quickstart\n\
             \x20 accepted  2026-11-21 03:04:05Z by me\n\
             \x20 ended     2026-11-21 03:04:17Z\n\
             \x20 steps     1 completed, 1 failed, 1 skipped of 3\n\
             \x20 labels    a=b team=x\n\
             \x20 trace     4bf92f3577b34da6a3ce929d0e0e4736\n\
             steps\n\
             \x20 completed  a  read_file  1s                  and 3s waiting for approval\n\
             \x20 failed     b  read_file  8s  attempt 2 of 2  no such file: a (FILE_NOT_FOUND)\n\
             \x20 skipped    c  read_file                      depends on b, which failed\n\
             next: belay executions get e1 -o json\n"
        );
    }

    #[test]
    fn what_a_failed_command_printed_is_shown_with_its_line_breaks() {
        let mut execution = failed();
        let output = LastOutput { stdout: "test adds ... FAILED\n3 != 0\n".to_owned(), ..Default::default() };
        let failure = |output| Failure {
            message: "`cargo` exited with code 101.".to_owned(),
            reason: "COMMAND_FAILED".to_owned(),
            metadata: [("exit_code".to_owned(), "101".to_owned())].into(),
            last_output: output,
            ..Default::default()
        };
        let attempt =
            |attempt, output| StepAttempt { attempt, failure: Some(failure(output)), end_time: at(attempt.into()) };
        execution.steps[1].failure = Some(failure(Some(output.clone())));
        execution.steps[1].failed_attempts = vec![attempt(1, None), attempt(2, Some(output))];
        let shown = screen(&full(&execution, true, NOW));
        let attempts = "\x20 b, attempt 1 of 2, 2026-11-21 03:04:06Z: `cargo` exited with code 101. (COMMAND_FAILED)\n\
             \x20 b, attempt 2 of 2, 2026-11-21 03:04:07Z: `cargo` exited with code 101. (COMMAND_FAILED)\n\
             \x20    │ test adds ... FAILED\n\
             \x20    │ 3 != 0\nnext: ";
        assert!(shown.contains(attempts), "{shown}");
        let shown = screen(&report(&execution).lines());
        let end = "\x20 b  read_file · exit 101 · attempt 2 of 2 · COMMAND_FAILED\n\
             \x20    │ test adds ... FAILED\n\
             \x20    │ 3 != 0\n\
             \x20 execution e1\n";
        assert!(shown.contains(end), "{shown}");
    }

    #[test]
    fn the_end_of_a_failed_one_names_step_reason_and_way_out() {
        let report = report(&failed());
        assert_eq!(
            screen(&report.lines()),
            "✗ quickstart failed after 10s, and 2s waiting for approval · 1 completed, 1 failed, 1 skipped\n\
             \x20 b  read_file · no such file: a · attempt 2 of 2\n\
             \x20 execution e1\n\
             \x20 trace 4bf92f3577b34da6a3ce929d0e0e4736\n\
             next: belay executions get e1\n\
             \x20     belay executions retry e1\n\
             code: FILE_NOT_FOUND (belay explain FILE_NOT_FOUND)\n"
        );
        assert_eq!(report.exit, Exit::SANDBOX_VIOLATION);
    }

    // The time that a person takes is never the machine's, even while the wait lasts.
    #[test]
    fn one_that_waits_for_a_person_shows_that_time_apart() {
        let since = |seconds| WaitingReason {
            kind: waiting_reason::Kind::Approval.into(),
            begin_time: at(seconds),
            ..Default::default()
        };
        let waits = |id, began| Step {
            attempt: 1,
            start_time: at(0),
            waiting: Some(since(began)),
            ..step(id, State::AwaitingApproval)
        };
        let waiting = Execution {
            name: "namespaces/default/executions/e1".to_owned(),
            state: execution::State::AwaitingApproval.into(),
            create_time: at(0),
            approval_wait: Some(Duration::from_secs(10).into()),
            steps: vec![waits("a", 3), waits("b", 35)],
            waiting: vec![since(3), since(35)],
            ..Default::default()
        };
        assert_eq!(
            screen(&full(&waiting, true, NOW)),
            "e1  awaiting_approval  25s, and 30s waiting for approval\n\
             \x20 accepted  2026-11-21 03:04:05Z\n\
             steps\n\
             \x20 awaiting_approval  a  read_file  3s     waiting for approval (52s)\n\
             \x20 awaiting_approval  b  read_file  35s    waiting for approval (20s)\n\
             waiting for approval (52s)\n\
             waiting for approval (20s)\n\
             next: belay executions watch e1\n"
        );
    }

    #[test]
    fn a_list_answers_at_a_glance() {
        let running = Execution {
            name: "namespaces/default/executions/e2".to_owned(),
            state: execution::State::Running.into(),
            plan_id: "p".to_owned(),
            create_time: at(40),
            ..Default::default()
        };
        assert_eq!(
            screen(&list(&[running, failed()], NOW)),
            "  ID  STATE    PLAN        AGE  BY  LABELS\n\
             \x20 e2  running  p           15s\n\
             \x20 e1  failed   quickstart  55s  me  a=b team=x\n"
        );
    }

    #[test]
    fn the_next_command_fits_the_state() {
        let next = |state: execution::State, said: &str, is_driven: bool| {
            let waiting = vec![WaitingReason { next_command: said.to_owned(), ..Default::default() }];
            let execution = Execution { name: "x/e".to_owned(), state: state.into(), waiting, ..Default::default() };
            next_command(&execution, is_driven)
        };
        assert_eq!(next(execution::State::Running, "", true), "belay executions watch e");
        assert_eq!(next(execution::State::Running, "belay approve x", true), "belay approve x");
        assert_eq!(next(execution::State::Running, "do this", true), "belay executions watch e");
        assert_eq!(next(execution::State::Running, "belay approve x", false), "belay executions resume e");
        assert_eq!(next(execution::State::Paused, "", true), "belay executions resume e");
        assert_eq!(next(execution::State::Completed, "", false), "belay executions get e -o json");
    }

    #[test]
    fn a_good_end_is_short() {
        let completed = Execution {
            state: execution::State::Completed.into(),
            workspace: "/w".to_owned(),
            approval_wait: None,
            totals: Some(StepTotals { total: 3, completed: 3, ..Default::default() }),
            ..failed()
        };
        assert_eq!(
            screen(&summary(&completed, NOW)),
            "✓ quickstart completed in 12s · 3 completed\n  execution e1 in /w\nnext: belay executions get e1\n"
        );
    }
}

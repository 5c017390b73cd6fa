//! The end of an execution: the summary of one that ended well, and the report on any other.

use std::{collections::BTreeMap, time::Duration};

use belay_proto::v1::{EffectSummary, Execution, Step, execution, step::State};
use belay_reasons as reasons;
use unicode_width::UnicodeWidthStr as _;

use super::{next_command, outputs, took_in_words};
use crate::{
    exit::Exit,
    failure::Report,
    follow::is_over,
    names,
    next::{self, about},
    render::{
        call, output,
        text::{Line, Style, shorten},
        words,
    },
};

/// The most failed steps that the end of an execution shows; `executions get` shows all.
const FAILED_SHOWN: usize = 5;
/// The longest call that it shows of a step, in characters.
const MAX_CALL_CHARS: usize = 40;

/// The most lines of each stream of a step's last output that are shown.
const OUTPUT_AT_END: usize = 10;

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
    lines.extend(outputs(execution));
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

/// The changes that no person approved, by rule: first the calls that needed approval and got it automatically.
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
    report.heading.extend(outputs(execution));
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

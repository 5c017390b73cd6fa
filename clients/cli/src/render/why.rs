//! Why an execution has not ended, or how it came to its end: the most important line first, on one screen. The server says what the reasons are; here they
//! are put into words.

use std::time::Duration;

use belay_proto::v1::{
    Action, Cause, EffectSummary, Execution, ExplainExecutionResponse, Explanation, Failure, StepAttempt,
    WaitingReason,
    action::Verb,
    cause::Kind,
    execution,
    subject::{self, Kind as Subject},
    waiting_reason,
};

use super::{
    call,
    execution::took_in_words,
    output,
    text::{Line, Style, shorten},
    time, words,
};
use crate::{
    follow::is_over,
    names,
    next::{self, about},
};

/// The most lines of a failed step's output that are shown: of one stream, or of each where there are two.
const OUTPUT_OF_ONE: usize = 10;
const OUTPUT_OF_EACH: usize = 5;
/// How many columns of a line of output are shown where there is no window.
const OUTPUT_COLUMNS: usize = 160;
/// The longest message of a failure, in characters.
const MAX_MESSAGE_CHARS: usize = 300;
/// The longest call of a step, in characters.
const MAX_CALL_CHARS: usize = 60;
/// The most waits, attempts and details of a failure that are shown; the others are counted.
const WAITS_SHOWN: usize = 4;
const ATTEMPTS_SHOWN: usize = 2;
const DETAILS_SHOWN: usize = 2;
/// The most steps that a line names.
const STEPS_NAMED: usize = 4;
/// How wide the names of the facts are.
const FACT_COLUMNS: usize = 11;

/// The screen, for a window of so many columns.
pub(crate) fn lines(explained: &ExplainExecutionResponse, columns: Option<usize>, now: Duration) -> Vec<Line> {
    let columns = columns.unwrap_or(OUTPUT_COLUMNS);
    let mut lines = explained.explanation.iter().flat_map(|own| of_one(own, columns, now)).collect::<Vec<_>>();
    for child in &explained.children {
        lines.extend(of_one(child, columns, now).into_iter().map(|line| Line::new("  ").with(line)));
    }
    lines.extend(next_lines(explained));
    lines
}

fn of_one(explanation: &Explanation, columns: usize, now: Duration) -> Vec<Line> {
    let Some(execution) = &explanation.execution else { return Vec::new() };
    match (is_over(execution.state()), first_failed(explanation)) {
        (false, _) => unfinished(execution, explanation, now),
        (true, Some(cause)) => failed(execution, explanation, cause, columns, now),
        (true, None) => ended(execution, explanation, now),
    }
}

/// The command to type next, and the code of a failure.
fn next_lines(explained: &ExplainExecutionResponse) -> Vec<Line> {
    let next = next(explained);
    let mut lines = vec![next::line(&next)];
    let ended = explained.explanation.as_ref().filter(|own| is_over(state(own)));
    match ended.map(|own| (own, first_failed(own))) {
        Some((own, Some(cause))) => {
            // What a program printed is with the innermost execution.
            let innermost = explained.children.iter().rev().find_map(|child| Some((child, first_failed(child)?)));
            let (of, failed) = innermost.unwrap_or((own, cause));
            lines.push(next::also(about(&["logs"], name(of), &[&failed.step_id, "--failed"])));
            lines.push(code(&words::reason(cause.failure.as_ref().unwrap_or(&Failure::default()))));
        }
        Some((_, None)) => {}
        None => {
            let mut others: Vec<String> = commands(explained).filter(|other| *other != next).collect();
            others.sort();
            others.dedup();
            lines.extend(others.iter().map(next::also));
        }
    }
    lines
}

/// The command to type next.
pub(crate) fn next(explained: &ExplainExecutionResponse) -> String {
    let own = explained.explanation.as_ref();
    let (state, name) = (own.map(state).unwrap_or_default(), own.map(name).unwrap_or_default());
    let look = || match state {
        execution::State::Completed => about(&["logs"], name, &[]),
        state if is_over(state) => about(&["executions", "get"], name, &[]),
        _ => about(&["executions", "watch"], name, &[]),
    };
    commands(explained).next().unwrap_or_else(look)
}

/// The commands that do what can be done now, the best first.
fn commands(explained: &ExplainExecutionResponse) -> impl Iterator<Item = String> {
    explained.next_actions.iter().filter_map(command)
}

/// The command that does it; `None` where no command of this program does.
fn command(action: &Action) -> Option<String> {
    let execution = action.execution.as_str();
    let subject = action.subject.as_ref().and_then(|subject| subject.kind.as_ref());
    Some(match (action.verb(), subject) {
        (Verb::Approve | Verb::Deny, Some(Subject::Approval(name))) => about(&["approvals", "show"], name, &[]),
        (Verb::AnswerForm, Some(Subject::Form(name))) => about(&["approvals", "answer"], name, &[]),
        (Verb::SendSignal, Some(Subject::Signal(signal))) => about(&["executions", "signal"], execution, &[signal]),
        (Verb::Resolve, Some(Subject::StepId(step))) => about(&["executions", "resolve"], execution, &[step]),
        (Verb::Resume, _) => about(&["executions", "resume"], execution, &[]),
        (Verb::RaiseBudget, _) => about(&["executions", "edit-plan"], execution, &["FILE"]),
        (Verb::Retry, _) => about(&["executions", "retry"], execution, &[]),
        (Verb::Explain, Some(Subject::Execution(name))) => about(&["why"], name, &[]),
        _ => return None,
    })
}

fn state(explanation: &Explanation) -> execution::State {
    explanation.execution.as_ref().map(Execution::state).unwrap_or_default()
}

fn name(explanation: &Explanation) -> &str {
    explanation.execution.as_ref().map_or("", |execution| &execution.name)
}

/// The failure of the step that failed first.
fn first_failed(explanation: &Explanation) -> Option<&Cause> {
    of_kind(explanation, Kind::StepFailure).next()
}

fn of_kind(explanation: &Explanation, kind: Kind) -> impl Iterator<Item = &Cause> {
    explanation.causes.iter().filter(move |cause| cause.kind() == kind)
}

fn unfinished(execution: &Execution, explanation: &Explanation, now: Duration) -> Vec<Line> {
    let title = words::title(execution);
    let waits: Vec<(&Cause, WaitingReason)> =
        explanation.causes.iter().filter_map(|cause| Some((cause, wait_of(cause)?))).collect();
    let has = |kinds: &[Kind]| explanation.causes.iter().any(|cause| kinds.contains(&cause.kind()));
    let (mark, style, what) = match execution.state() {
        execution::State::Paused => ("! ", Style::Warn, "is paused"),
        execution::State::Cancelling => ("! ", Style::Warn, "is being stopped, and waits for calls to end"),
        _ if has(&[Kind::NoDriver]) => ("! ", Style::Warn, "does not continue: no process drives it"),
        execution::State::AwaitingApproval => ("? ", Style::Warn, "is waiting for a decision"),
        _ if has(&[Kind::ServiceAway, Kind::ClockDifference, Kind::SandboxUnavailable]) => {
            ("! ", Style::Warn, "is waiting for a service")
        }
        _ if has(&[Kind::Call, Kind::Child]) || waits.is_empty() => ("", Style::Plain, "is running"),
        _ => ("", Style::Warn, "is waiting"),
    };
    let mut lines = vec![
        Line::default().and(style, mark).and(Style::Strong, title).and(Style::Plain, " ").and(style, what),
        about_execution(execution, now),
    ];
    lines.extend(of_kind(explanation, Kind::Cancellation).map(|cause| fact("cancelled", by(cause).trim_start())));
    for (cause, wait) in waits.iter().take(WAITS_SHOWN) {
        lines.extend(of_wait(cause, wait, now));
    }
    if let Some(more @ 1..) = (waits.len() + left_out(explanation.left_out_causes)).checked_sub(WAITS_SHOWN) {
        lines.push(Line::default().and(Style::Dim, format!("  … and {more} more waits")));
    }
    lines.extend(first_failed(explanation).map(|cause| {
        let failure = cause.failure.as_ref().map(message).unwrap_or_default();
        fact("failed", format!("{}: {failure}", cause.step_id))
    }));
    lines
}

/// ` by person:ann: wrong plan`.
fn by(cancellation: &Cause) -> String {
    let Cause { principal, reason, .. } = cancellation;
    let by = if principal.is_empty() { String::new() } else { format!(" by {principal}") };
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    by + &reason
}

/// The wait that a cause is; `None` for what is no wait, or is said of the whole execution.
fn wait_of(cause: &Cause) -> Option<WaitingReason> {
    use waiting_reason::Kind as Wait;
    let is_of_gate = || {
        let subject = cause.subject.as_ref().and_then(|subject| subject.kind.as_ref());
        matches!(subject, Some(Subject::Service(service)) if *service == subject::Service::ApprovalGate as i32)
    };
    let kind = match cause.kind() {
        Kind::Pause | Kind::Budget => Wait::Resume,
        Kind::Fault => Wait::Fault,
        Kind::ServiceAway if is_of_gate() => Wait::Approval,
        Kind::ServiceAway | Kind::ClockDifference | Kind::SandboxUnavailable => Wait::Runner,
        Kind::Approval => Wait::Approval,
        Kind::Form => Wait::Form,
        Kind::Outcome => Wait::Outcome,
        Kind::Signal => Wait::Signal,
        Kind::WorkspaceFull | Kind::WorkspaceReadOnly => Wait::Workspace,
        Kind::Limit | Kind::ExecutionLimit => Wait::Limit,
        Kind::Backoff => Wait::Timer,
        Kind::Time => Wait::Time,
        Kind::Child => Wait::Child,
        Kind::ExclusiveCall | Kind::Call => Wait::Call,
        // A newer server may have kinds that this version does not know.
        Kind::Unspecified => Wait::Unspecified,
        Kind::NoDriver | Kind::StepFailure | Kind::StepCancellation | Kind::Cancellation | Kind::TimeLimit => {
            return None;
        }
    };
    let Cause { begin_time, until_time, who, principal, .. } = cause.clone();
    Some(WaitingReason { kind: kind.into(), begin_time, until_time, who, principal, next_command: String::new() })
}

/// `  tidy       waiting for approval (2m): delete notes.txt` and for whom.
fn of_wait(cause: &Cause, wait: &WaitingReason, now: Duration) -> Vec<Line> {
    let call = Some(cause).filter(|cause| !cause.tool.is_empty());
    let call = call.map(|cause| format!(": {}", shorten(&planned(cause), MAX_CALL_CHARS)));
    let attempts = (cause.attempt > 1).then(|| format!(", attempt {} of {}", cause.attempt, cause.max_attempts));
    let style = if cause.kind() == Kind::Call { Style::Plain } else { Style::Warn };
    let mut lines = vec![
        Line::new("  ")
            .column(Style::Strong, &cause.step_id, FACT_COLUMNS)
            .and(style, words::waiting(wait, now))
            .and(Style::Plain, attempts.unwrap_or_default() + &call.unwrap_or_default())
            .hanging(FACT_COLUMNS + 2),
    ];
    if matches!(cause.kind(), Kind::Budget | Kind::ExecutionLimit | Kind::Pause) && !cause.reason.is_empty() {
        lines.push(fact("", &cause.reason));
    }
    // For what is not said by the wait itself.
    if cause.kind() == Kind::Approval && !cause.who.is_empty() {
        lines.push(fact("", format!("asked of {}", cause.who)));
    }
    if let (Some(failure), Kind::Backoff) = (&cause.failure, cause.kind()) {
        lines.push(fact("", format!("failed before: {}", message(failure))));
    }
    if let (Some(until), Kind::Signal | Kind::Form) = (&cause.until_time, cause.kind()) {
        lines.push(fact("", format!("fails at {} without it", time::date_and_time(until))));
    }
    lines
}

fn failed(execution: &Execution, explanation: &Explanation, cause: &Cause, columns: usize, now: Duration) -> Vec<Line> {
    let unknown = Failure::default();
    let failure = cause.failure.as_ref().unwrap_or(&unknown);
    let mut lines = vec![
        Line::default()
            .and(Style::Bad, "✗ ")
            .and(Style::Strong, &cause.step_id)
            .and(Style::Bad, " failed: ")
            .and(Style::Plain, message(failure)),
        about_execution(execution, now),
    ];
    let attempts = match cause.max_attempts {
        ..=1 => String::new(),
        most => format!(", attempt {} of {most}", cause.attempt),
    };
    lines.push(fact("call", shorten(&planned(cause), MAX_CALL_CHARS) + &attempts));
    lines.extend(words::details(failure).into_iter().take(DETAILS_SHOWN).map(|detail| fact("", detail)));
    let streams = failure
        .last_output
        .as_ref()
        .map_or(0, |last| [&last.stdout, &last.stderr].iter().filter(|stream| !stream.trim().is_empty()).count());
    let most = if streams > 1 { OUTPUT_OF_EACH } else { OUTPUT_OF_ONE };
    let output = output::last(failure, most);
    lines.extend(output.iter().map(|text| Line::new("     ").and(Style::Plain, text).cut(columns)));
    lines.extend(before(cause));
    lines.extend(also_failed(explanation));
    lines.extend(changed(explanation));
    lines.extend(skipped(explanation));
    lines
}

/// An execution that ended without a failed step.
fn ended(execution: &Execution, explanation: &Explanation, now: Duration) -> Vec<Line> {
    use execution::State as Of;
    let by = of_kind(explanation, Kind::Cancellation).next().map(by);
    let (mark, style, what) = match execution.state() {
        Of::Completed => ("✓ ", Style::Good, "completed: nothing failed".to_owned()),
        Of::Cancelled => ("- ", Style::Warn, format!("was cancelled{}", by.unwrap_or_default())),
        Of::TimedOut => ("✗ ", Style::Bad, "ran out of the time that its plan allows".to_owned()),
        Of::Partial => (
            "✗ ",
            Style::Bad,
            "ended in part: nothing failed, and a step was skipped that others needed, or all were".to_owned(),
        ),
        _ => ("✗ ", Style::Bad, "failed".to_owned()),
    };
    let mut lines = vec![
        Line::default()
            .and(style, mark)
            .and(Style::Strong, words::title(execution))
            .and(Style::Plain, " ")
            .and(style, what),
        about_execution(execution, now),
    ];
    lines.extend(execution.failure.as_ref().map(|failure| fact("failure", message(failure))));
    let stopped: Vec<&str> = of_kind(explanation, Kind::StepCancellation).map(|cause| cause.step_id.as_str()).collect();
    if !stopped.is_empty() {
        lines.push(fact(
            "stopped",
            format!("{} while running: {}", words::steps(stopped.len()), named(&stopped, stopped.len())),
        ));
    }
    lines.extend(changed(explanation));
    lines.extend(match execution.state() {
        Of::Partial => skipped_first(explanation),
        _ => skipped(explanation),
    });
    lines
}

/// `  execution  e1 (plan tidy) partial after 31s: 4 completed, 1 failed of 6 steps`.
fn about_execution(execution: &Execution, now: Duration) -> Line {
    let took = took_in_words(execution, now).unwrap_or_default();
    let after = if is_over(execution.state()) { "after" } else { "for" };
    let totals = execution.totals.as_ref();
    let of = totals.map(|totals| {
        let total = words::steps(usize::try_from(totals.total).unwrap_or_default());
        match totals.completed + totals.failed + totals.skipped + totals.cancelled {
            0 => format!(": none of {total} has ended"),
            _ => format!(": {} of {total}", words::totals(totals)),
        }
    });
    let state = words::execution_state(execution.state());
    fact("execution", format!("{}, {state} {after} {took}{}", names::id(&execution.name), of.unwrap_or_default()))
}

fn fact(name: &str, text: impl AsRef<str>) -> Line {
    Line::new("  ").column(Style::Dim, name, FACT_COLUMNS).and(Style::Plain, text).hanging(FACT_COLUMNS + 2)
}

fn code(reason: &str) -> Line {
    let explain = match belay_reasons::find(reason) {
        Some(known) => format!(" (belay explain {})", known.name),
        None => String::new(),
    };
    Line::default().and(Style::Dim, format!("code: {reason}{explain}"))
}

fn message(failure: &Failure) -> String {
    shorten(&words::failure(failure), MAX_MESSAGE_CHARS)
}

/// The call of a step, as the plan has it; a single word when it is in no plan.
fn planned(cause: &Cause) -> String {
    match &cause.spec {
        Some(spec) => call::of_step(spec),
        None if !cause.tool.is_empty() => cause.tool.clone(),
        None if cause.subject.as_ref().is_some_and(|subject| matches!(subject.kind, Some(Subject::Execution(_)))) => {
            "plan".to_owned()
        }
        None => "wait".to_owned(),
    }
}

/// The attempts before the last one.
fn before(cause: &Cause) -> Vec<Line> {
    let earlier: Vec<&StepAttempt> =
        cause.failed_attempts.iter().filter(|failed| failed.attempt < cause.attempt).collect();
    let mut lines = Vec::new();
    let left_out = earlier.len().saturating_sub(ATTEMPTS_SHOWN);
    if left_out > 0 {
        lines.push(fact("before", format!("… {left_out} earlier attempts")));
    }
    for failed in &earlier[left_out..] {
        let name = if lines.is_empty() { "before" } else { "" };
        let failure = failed.failure.as_ref().map(message).unwrap_or_default();
        lines.push(fact(name, format!("attempt {}: {failure}", failed.attempt)));
    }
    lines
}

/// The steps that failed after the first.
fn also_failed(explanation: &Explanation) -> Option<Line> {
    let others: Vec<&str> =
        of_kind(explanation, Kind::StepFailure).skip(1).map(|cause| cause.step_id.as_str()).collect();
    let all = others.len() + left_out(explanation.left_out_causes);
    (!others.is_empty()).then(|| fact("also", format!("{} failed: {}", words::steps(all), named(&others, all))))
}

/// The changes of the execution in the workspace by its end: `3 created, 1 modified (write: 3 created; stamp: 1 modified)`.
fn changed(explanation: &Explanation) -> Option<Line> {
    let mut whole = EffectSummary::default();
    let mut steps = Vec::new();
    for change in &explanation.changes {
        let Some(given) = &change.authorization else { continue };
        let (created, modified, deleted) = (given.created, given.modified, given.deleted);
        let own = EffectSummary { created, modified, deleted, ..Default::default() };
        whole.created += created;
        whole.modified += modified;
        whole.deleted += deleted;
        steps.push(format!("{}: {}", change.step_id, words::effect(&own)));
    }
    let all = steps.len() + left_out(explanation.left_out_changes);
    let more = all.checked_sub(steps.len().min(STEPS_NAMED)).filter(|more| *more > 0);
    let more = more.map(|more| format!("; and {} more", words::steps(more))).unwrap_or_default();
    let by_step = steps.iter().take(STEPS_NAMED).cloned().collect::<Vec<_>>().join("; ");
    Some(match steps.len() {
        0 => fact("changed", "nothing in the workspace"),
        1 => fact("changed", by_step),
        _ => fact("changed", format!("{} ({by_step}{more})", words::effect(&whole))),
    })
}

/// The steps that were skipped because of failed or cancelled ones, directly or not.
fn skipped(explanation: &Explanation) -> Option<Line> {
    let follows = explanation.skipped_steps.iter().filter(|step| step.follows_failure);
    let ids: Vec<&str> = follows.map(|step| step.step_id.as_str()).collect();
    let all = ids.len() + left_out(explanation.left_out_skipped_steps);
    (!ids.is_empty()).then(|| fact("skipped", format!("{} because of it: {}", words::steps(all), named(&ids, all))))
}

/// The first step that was skipped where none failed, and why; and how many more were.
fn skipped_first(explanation: &Explanation) -> Option<Line> {
    let mut skipped = explanation.skipped_steps.iter();
    let first = skipped.next()?;
    let why = words::skipped(first.skip_reason(), &first.skipped_because, &first.skipped_group);
    let ids: Vec<&str> = skipped.map(|step| step.step_id.as_str()).collect();
    let all = ids.len() + left_out(explanation.left_out_skipped_steps);
    let more = if ids.is_empty() { String::new() } else { format!("; {all} more: {}", named(&ids, all)) };
    Some(fact("skipped", format!("{}: {why}{more}", first.step_id)))
}

fn left_out(count: i32) -> usize {
    usize::try_from(count).unwrap_or_default()
}

/// `a, b, c and 12 more`, of so many.
fn named(ids: &[&str], all: usize) -> String {
    let more = all.checked_sub(ids.len().min(STEPS_NAMED)).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    ids.iter().take(STEPS_NAMED).copied().collect::<Vec<_>>().join(", ") + &more
}

#[cfg(test)]
mod tests;

//! Why an execution has not ended, or how it came to its end: the most important line first, on one screen.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use belay_proto::v1::{
    EffectSummary, Execution, Failure, SkipReason, Step, StepAttempt, WaitingReason, execution,
    step::{Detail, State},
    waiting_reason::Kind,
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

/// Who cancelled an execution, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cancelled {
    /// The principal; empty when no principal asked for it.
    pub(crate) by: String,
    /// The reason that was given; may be empty.
    pub(crate) reason: String,
}

impl Cancelled {
    /// ` by person:ann: wrong plan`.
    fn words(&self) -> String {
        let by = if self.by.is_empty() { String::new() } else { format!(" by {}", self.by) };
        let reason = if self.reason.is_empty() { String::new() } else { format!(": {}", self.reason) };
        by + &reason
    }
}

/// The steps that explain the state of an execution: those that failed, that it waits for, that changed something, and that were skipped.
pub(crate) fn explains(step: &Step) -> bool {
    let changed = step.authorization.as_ref().is_some_and(|given| given.created + given.modified + given.deleted > 0);
    changed
        || step.waiting.is_some()
        || matches!(step.state(), State::Running | State::Failed | State::Skipped | State::Cancelled)
}

/// The executions of steps that explain the state of an execution, by name: of the step that failed first, or of those that it waits for.
pub(crate) fn children(execution: &Execution) -> Vec<&str> {
    match is_over(execution.state()) {
        true => first_failed(execution).and_then(call::child_of).into_iter().collect(),
        false => call::awaited_children(execution).take(WAITS_SHOWN).collect(),
    }
}

/// The screen, for a window of so many columns. `children` are the executions of steps that explain its state, and those that explain theirs; `is_driven`
/// says whether a process carries the execution on.
pub(crate) fn lines(
    execution: &Execution,
    children: &[Execution],
    cancelled: Option<&Cancelled>,
    is_driven: bool,
    columns: Option<usize>,
    now: Duration,
) -> Vec<Line> {
    let explained = |execution: &Execution, cancelled| match (is_over(execution.state()), first_failed(execution)) {
        (false, _) => unfinished(execution, cancelled, is_driven, now),
        (true, Some(step)) => failed(execution, step, columns.unwrap_or(OUTPUT_COLUMNS), now),
        (true, None) => ended(execution, cancelled, now),
    };
    let mut lines = explained(execution, cancelled);
    for child in children {
        lines.extend(explained(child, None).into_iter().map(|line| Line::new("  ").with(line)));
    }
    lines.extend(next_lines(execution, children, is_driven));
    lines
}

/// What to type, and the code of a failure.
fn next_lines(execution: &Execution, children: &[Execution], is_driven: bool) -> Vec<Line> {
    let next = next(execution, children, is_driven);
    let mut lines = vec![next::line(&next)];
    match first_failed(execution).filter(|_| is_over(execution.state())) {
        Some(step) => {
            // What a program printed is with the innermost execution.
            let innermost = children.iter().rev().find_map(|child| Some((child, first_failed(child)?)));
            let (of, failed) = innermost.unwrap_or((execution, step));
            lines.push(next::also(about(&["logs"], &of.name, &[&failed.step_id, "--failed"])));
            lines.push(code(&words::reason(step.failure.as_ref().unwrap_or(&Failure::default()))));
        }
        None if is_over(execution.state()) => {}
        None => {
            let mut others: Vec<String> = asked_of(execution, children).filter(|other| *other != next).collect();
            others.sort();
            others.dedup();
            lines.extend(others.iter().map(next::also));
        }
    }
    lines
}

/// The commands that end what these executions wait for, of the waits that are shown. What a child is waited for is said by its own.
fn asked_of<'a>(execution: &'a Execution, children: &'a [Execution]) -> impl Iterator<Item = String> + 'a {
    let waits = [execution].into_iter().chain(children).flat_map(|execution| {
        let mut waits = waits(execution);
        waits.truncate(WAITS_SHOWN);
        waits
    });
    let is_answered = move |wait: &WaitingReason| wait.kind() == Kind::Child && !children.is_empty();
    waits.filter(move |(_, wait)| !is_answered(wait)).filter_map(|(_, wait)| next::of_server(&wait.next_command))
}

/// The command to type next.
pub(crate) fn next(execution: &Execution, children: &[Execution], is_driven: bool) -> String {
    use execution::State as Of;
    let name = execution.name.as_str();
    let resume = || about(&["executions", "resume"], name, &[]);
    // What carried out the plan of a step is started again by the execution of that step.
    let retried = execution.parent_step.split_once("/steps/").map_or(name, |(parent, _)| parent);
    let retry = || about(&["executions", "retry"], retried, &[]);
    match execution.state() {
        Of::Failed | Of::Partial if first_failed(execution).is_some() => retry(),
        Of::Completed => about(&["logs"], name, &[]),
        // What was stopped goes on from there, with a time limit that begins again.
        Of::Cancelled | Of::TimedOut => retry(),
        state if is_over(state) => about(&["executions", "get"], name, &[]),
        // It is paused because of what failed: resuming it would only let it end.
        Of::Paused
            if first_failed(execution).is_some()
                // One that is being undone cannot run again.
                && execution.steps.iter().all(|step| {
                    matches!(step.state(), State::Completed | State::Failed | State::Skipped | State::Cancelled)
                }) =>
        {
            about(&["executions", "retry"], name, &[])
        }
        Of::Paused => resume(),
        _ if !is_driven => resume(),
        _ => asked_of(execution, children).next().unwrap_or_else(|| about(&["executions", "watch"], name, &[])),
    }
}

/// The failed step that failed first.
fn first_failed(execution: &Execution) -> Option<&Step> {
    let failed = execution.steps.iter().filter(|step| step.state() == State::Failed);
    failed.min_by_key(|step| step.end_time.as_ref().and_then(time::since_epoch))
}

fn unfinished(execution: &Execution, cancelled: Option<&Cancelled>, is_driven: bool, now: Duration) -> Vec<Line> {
    let title = words::title(execution);
    let waits: Vec<(Option<&Step>, &WaitingReason)> = waits(execution);
    let (mark, style, what) = match execution.state() {
        execution::State::Paused => ("! ", Style::Warn, "is paused"),
        execution::State::Cancelling => ("! ", Style::Warn, "is being stopped, and waits for calls to end"),
        _ if !is_driven => ("! ", Style::Warn, "does not continue: no process drives it"),
        execution::State::AwaitingApproval => ("? ", Style::Warn, "is waiting for a decision"),
        _ if waits.iter().any(|(_, wait)| words::is_service_away(wait)) => {
            ("! ", Style::Warn, "is waiting for a service")
        }
        _ if execution.steps.iter().any(|step| step.state() == State::Running) => ("", Style::Plain, "is running"),
        _ if waits.is_empty() => ("", Style::Plain, "is running"),
        _ => ("", Style::Warn, "is waiting"),
    };
    let mut lines = vec![
        Line::default().and(style, mark).and(Style::Strong, title).and(Style::Plain, " ").and(style, what),
        about_execution(execution, now),
    ];
    lines.extend(cancelled.map(|cancelled| fact("cancelled", cancelled.words().trim_start())));
    for (step, wait) in waits.iter().take(WAITS_SHOWN) {
        lines.extend(of_wait(execution, *step, wait, now));
    }
    if let Some(more @ 1..) = waits.len().checked_sub(WAITS_SHOWN) {
        lines.push(Line::default().and(Style::Dim, format!("  … and {more} more waits")));
    }
    lines.extend(first_failed(execution).map(|step| {
        let failure = step.failure.as_ref().map(message).unwrap_or_default();
        fact("failed", format!("{}: {failure}", step.step_id))
    }));
    lines
}

/// What an execution waits for, with the step of each wait: first what a person has to end, its own running calls last.
fn waits(execution: &Execution) -> Vec<(Option<&Step>, &WaitingReason)> {
    let of_steps = execution.steps.iter().filter_map(|step| Some((Some(step), step.waiting.as_ref()?)));
    let mut waits: Vec<_> = of_steps.collect();
    let is_known = |waits: &[(Option<&Step>, &WaitingReason)], wait: &WaitingReason| {
        waits
            .iter()
            .any(|(_, known)| (known.kind(), known.begin_time, &known.who) == (wait.kind(), wait.begin_time, &wait.who))
    };
    for wait in &execution.waiting {
        if !is_known(&waits, wait) {
            waits.push((None, wait));
        }
    }
    waits.sort_by_key(|(_, wait)| match wait.kind() {
        Kind::Resume | Kind::Fault => 0,
        _ if words::is_service_away(wait) => 1,
        Kind::Approval | Kind::Form | Kind::Outcome => 2,
        Kind::Signal | Kind::Workspace | Kind::Limit => 3,
        _ if words::is_own_call(wait) => 5,
        _ => 4,
    });
    waits
}

/// `  tidy       waiting for approval (2m): delete notes.txt` and for whom.
fn of_wait(execution: &Execution, step: Option<&Step>, wait: &WaitingReason, now: Duration) -> Vec<Line> {
    let about = step.map_or("", |step| step.step_id.as_str());
    let tool = step.filter(|step| matches!(step.detail, Some(Detail::Tool(_))));
    let call = tool.map(|step| format!(": {}", shorten(&planned(execution, step), MAX_CALL_CHARS)));
    let attempts =
        step.filter(|step| step.attempt > 1).map(|step| format!(", attempt {} of {}", step.attempt, step.max_attempts));
    let style = if words::is_own_call(wait) { Style::Plain } else { Style::Warn };
    let mut lines = vec![
        Line::new("  ")
            .column(Style::Strong, about, FACT_COLUMNS)
            .and(style, words::waiting(wait, now))
            .and(Style::Plain, attempts.unwrap_or_default() + &call.unwrap_or_default())
            .hanging(FACT_COLUMNS + 2),
    ];
    // For what is not said by the wait itself.
    if wait.kind() == Kind::Approval && !words::is_service_away(wait) && !wait.who.is_empty() {
        lines.push(fact("", format!("asked of {}", wait.who)));
    }
    if wait.kind() == Kind::Timer
        && let Some(failure) = step.and_then(|step| step.failure.as_ref())
    {
        lines.push(fact("", format!("failed before: {}", message(failure))));
    }
    if let (Some(until), Kind::Signal | Kind::Form) = (&wait.until_time, wait.kind()) {
        lines.push(fact("", format!("fails at {} without it", time::date_and_time(until))));
    }
    lines
}

fn failed(execution: &Execution, step: &Step, columns: usize, now: Duration) -> Vec<Line> {
    let unknown = Failure::default();
    let failure = step.failure.as_ref().unwrap_or(&unknown);
    let mut lines = vec![
        Line::default()
            .and(Style::Bad, "✗ ")
            .and(Style::Strong, &step.step_id)
            .and(Style::Bad, " failed: ")
            .and(Style::Plain, message(failure)),
        about_execution(execution, now),
    ];
    let attempts = match step.max_attempts {
        ..=1 => String::new(),
        most => format!(", attempt {} of {most}", step.attempt),
    };
    lines.push(fact("call", shorten(&planned(execution, step), MAX_CALL_CHARS) + &attempts));
    lines.extend(words::details(failure).into_iter().take(DETAILS_SHOWN).map(|detail| fact("", detail)));
    let streams = failure
        .last_output
        .as_ref()
        .map_or(0, |last| [&last.stdout, &last.stderr].iter().filter(|stream| !stream.trim().is_empty()).count());
    let most = if streams > 1 { OUTPUT_OF_EACH } else { OUTPUT_OF_ONE };
    let output = output::last(failure, most);
    lines.extend(output.iter().map(|text| Line::new("     ").and(Style::Plain, text).cut(columns)));
    lines.extend(before(step));
    lines.extend(also_failed(execution, step));
    lines.extend(changed(execution));
    lines.extend(skipped(execution));
    lines
}

/// An execution that ended without a failed step.
fn ended(execution: &Execution, cancelled: Option<&Cancelled>, now: Duration) -> Vec<Line> {
    use execution::State as Of;
    let by = cancelled.map(Cancelled::words);
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
    let stopped: Vec<&str> = execution
        .steps
        .iter()
        .filter(|step| step.state() == State::Cancelled)
        .map(|step| step.step_id.as_str())
        .collect();
    if !stopped.is_empty() {
        lines.push(fact("stopped", format!("{} while running: {}", words::steps(stopped.len()), named(&stopped))));
    }
    lines.extend(changed(execution));
    lines.extend(match execution.state() {
        Of::Partial => skipped_first(execution),
        _ => skipped(execution),
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

/// What a step does, as the plan says it.
fn planned(execution: &Execution, step: &Step) -> String {
    let spec = execution.plan.iter().flat_map(|plan| &plan.steps).find(|spec| spec.id == step.step_id);
    spec.map_or_else(|| call::kind_of(step), call::of_step)
}

/// What was tried before the last attempt.
fn before(step: &Step) -> Vec<Line> {
    let earlier: Vec<&StepAttempt> =
        step.failed_attempts.iter().filter(|failed| failed.attempt < step.attempt).collect();
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

fn also_failed(execution: &Execution, shown: &Step) -> Option<Line> {
    let others: Vec<&str> = execution
        .steps
        .iter()
        .filter(|step| step.state() == State::Failed && step.step_id != shown.step_id)
        .map(|step| step.step_id.as_str())
        .collect();
    (!others.is_empty()).then(|| fact("also", format!("{} failed: {}", words::steps(others.len()), named(&others))))
}

/// What the execution had changed in the workspace by its end: `3 created, 1 modified (write: 3 created; stamp: 1 modified)`.
fn changed(execution: &Execution) -> Option<Line> {
    let mut whole = EffectSummary::default();
    let mut steps = Vec::new();
    for step in &execution.steps {
        let Some(given) = &step.authorization else { continue };
        if given.created + given.modified + given.deleted == 0 {
            continue;
        }
        let (created, modified, deleted) = (given.created, given.modified, given.deleted);
        let own = EffectSummary { created, modified, deleted, ..Default::default() };
        whole.created += created;
        whole.modified += modified;
        whole.deleted += deleted;
        steps.push(format!("{}: {}", step.step_id, words::effect(&own)));
    }
    let more = steps.len().checked_sub(STEPS_NAMED).filter(|more| *more > 0);
    let more = more.map(|more| format!("; and {} more", words::steps(more))).unwrap_or_default();
    let by_step = steps.iter().take(STEPS_NAMED).cloned().collect::<Vec<_>>().join("; ");
    Some(match steps.len() {
        0 => fact("changed", "nothing in the workspace"),
        1 => fact("changed", by_step),
        _ => fact("changed", format!("{} ({by_step}{more})", words::effect(&whole))),
    })
}

/// The steps that were skipped because of failed or cancelled ones, directly or not.
fn skipped(execution: &Execution) -> Option<Line> {
    let mut because_of: HashMap<&str, Vec<&Step>> = HashMap::new();
    let (mut open, mut reached): (Vec<&str>, HashSet<&str>) = (Vec::new(), HashSet::new());
    for step in &execution.steps {
        match step.state() {
            State::Failed | State::Cancelled => open.push(&step.step_id),
            State::Skipped if matches!(step.skip_reason(), SkipReason::Cancelled | SkipReason::TimedOut) => {
                reached.insert(&step.step_id);
            }
            State::Skipped => because_of.entry(&step.skipped_because).or_default().push(step),
            _ => {}
        }
    }
    while let Some(id) = open.pop() {
        for step in because_of.remove(id).unwrap_or_default() {
            // One whose condition was false would have been skipped without the failure, too.
            if step.skip_reason() != SkipReason::ConditionFalse && reached.insert(&step.step_id) {
                open.push(&step.step_id);
            }
        }
    }
    let in_order = execution.steps.iter().map(|step| step.step_id.as_str()).filter(|id| reached.contains(id));
    let ids: Vec<&str> = in_order.collect();
    (!ids.is_empty()).then(|| fact("skipped", format!("{} because of it: {}", words::steps(ids.len()), named(&ids))))
}

/// The first step that was skipped where none failed, and why; and how many more were.
fn skipped_first(execution: &Execution) -> Option<Line> {
    let mut skipped = execution.steps.iter().filter(|step| step.state() == State::Skipped);
    let first = skipped.next()?;
    let why = words::skipped(first.skip_reason(), &first.skipped_because);
    let ids: Vec<&str> = skipped.map(|step| step.step_id.as_str()).collect();
    let more = if ids.is_empty() { String::new() } else { format!("; {} more: {}", ids.len(), named(&ids)) };
    Some(fact("skipped", format!("{}: {why}{more}", first.step_id)))
}

/// `a, b, c and 12 more`.
fn named(ids: &[&str]) -> String {
    let more = ids.len().checked_sub(STEPS_NAMED).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    ids.iter().take(STEPS_NAMED).copied().collect::<Vec<_>>().join(", ") + &more
}

#[cfg(test)]
mod tests;

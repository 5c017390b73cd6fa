//! The rows of a running execution: what is redrawn while an execution runs, and what stays of each step that has ended.

use std::time::Duration;

use belay_proto::v1::{WaitingReason, step::State, waiting_reason};

use super::{
    ID_COLUMNS, TrackedExecution,
    steps::{has_ended, machine_time, waited_for_people},
};
use crate::{
    follow::is_over,
    next,
    render::{
        text::{Line, Style, shorten},
        time, words,
    },
};

/// The most active and the most pending steps that are shown; the others are counted, so that the picture fits a small window.
pub(super) const STEPS_SHOWN: usize = 8;
pub(super) const NEXT_SHOWN: usize = 3;
/// The longest error inside a line, in characters.
const MAX_ERROR_CHARS: usize = 200;
/// The window width where there is no terminal.
const COLUMNS: usize = 80;

impl TrackedExecution {
    /// The rows that are redrawn while it runs, for a window of this many columns: progress, active steps, what they wait for, next
    /// steps.
    pub(crate) fn rows(&self, now: Duration, columns: usize, approvals_announced: bool) -> Vec<Line> {
        let is_active = |state: State| {
            matches!(
                state,
                State::Running | State::AwaitingApproval | State::Waiting | State::BackingOff | State::OutcomeUnknown
            )
        };
        let steps = || self.execution.steps.iter().enumerate();
        let active: Vec<usize> = steps().filter(|(_, step)| is_active(step.state())).map(|(place, _)| place).collect();
        let mut lines = vec![self.header(now, columns)];
        lines.extend(active.iter().take(STEPS_SHOWN).map(|place| self.step_row(*place, now, columns)));
        if let Some(more @ 1..) = active.len().checked_sub(STEPS_SHOWN) {
            lines.push(Line::default().and(Style::Dim, format!("  … and {more} more active")));
        }
        // A step's own row says that it waits for approval.
        let is_news = |reason: &WaitingReason| !(approvals_announced && words::is_pending_approval(reason));
        for wait in self.each_wait(is_news, |reason| words::waiting(reason, now)) {
            let line = Line::default().and(Style::Warn, format!("! {wait}"));
            lines.extend(line.fold(columns.saturating_sub(1).max(1)));
        }
        if !is_over(self.execution.state()) {
            let next = || steps().filter(|(_, step)| matches!(step.state(), State::Pending | State::Ready));
            lines.extend(next().take(NEXT_SHOWN).map(|(place, _)| self.step_row(place, now, columns)));
            if let Some(more @ 1..) = next().count().checked_sub(NEXT_SHOWN) {
                lines.push(Line::default().and(Style::Dim, format!("  … and {more} more pending")));
            }
        }
        lines
    }

    /// `tidy  3 of 6 · 1 running · 1 waiting for approval                12s`. Parts that do not fit are left out from the end.
    fn header(&self, now: Duration, columns: usize) -> Line {
        let count = |state: State| self.execution.steps.iter().filter(|step| step.state() == state).count();
        let ended = self.execution.steps.iter().filter(|step| has_ended(step.state())).count();
        let parts = [
            (count(State::Running), "running", Style::Plain),
            (count(State::AwaitingApproval), "waiting for approval", Style::Warn),
            (count(State::Waiting), "waiting", Style::Plain),
            (count(State::BackingOff), "retrying", Style::Warn),
            (count(State::Failed), "failed", Style::Bad),
        ];
        let since = time::between(self.execution.create_time.as_ref(), Some(now)).unwrap_or_default();
        let since = Line::default().and(Style::Dim, time::short(Duration::from_secs(since.as_secs())));
        let room = columns.saturating_sub(since.width() + 3);
        let mut line = Line::default()
            .and(Style::Strong, shorten(words::title(&self.execution), ID_COLUMNS * 2))
            .and(Style::Plain, format!("  {ended} of {}", words::steps(self.execution.steps.len())))
            .cut(room);
        for (count, what, style) in parts.into_iter().filter(|(count, ..)| *count > 0) {
            let longer = line.clone().and(Style::Dim, " · ").and(style, format!("{count} {what}"));
            if longer.width() > room {
                break;
            }
            line = longer;
        }
        at_the_edge(line, since, columns)
    }

    /// A step as one row: its state first, what it does, and how long.
    fn step_row(&self, place: usize, now: Duration, columns: usize) -> Line {
        let step = &self.execution.steps[place];
        let error = || {
            step.failure.as_ref().map(|failure| shorten(&words::failure(failure), MAX_ERROR_CHARS)).unwrap_or_default()
        };
        let since = self.since[place].or(step.start_time);
        let elapsed = time::between(since.as_ref(), Some(now)).unwrap_or_default();
        let ticking = Line::default().and(Style::Dim, time::short(Duration::from_secs(elapsed.as_secs())));
        let what = self.what(place);
        let attempt = || match step.attempt {
            ..=1 => String::new(),
            attempt => format!("attempt {attempt} of {} · ", step.max_attempts),
        };
        let (style, mark, text, right) = match step.state() {
            State::BackingOff => {
                let until = step.waiting.as_ref().and_then(|waiting| time::since_epoch(waiting.until_time.as_ref()?));
                let wait = time::short(until.unwrap_or(now).saturating_sub(now));
                let retries = words::retries(Some(step), step.attempt);
                (Style::Warn, "↻", format!("retrying ({retries}) in {wait} · {}", error()), Line::default())
            }
            State::AwaitingApproval => (Style::Warn, "?", format!("waiting for approval · {what}"), ticking),
            State::OutcomeUnknown => {
                (Style::Warn, "!", format!("outcome unknown, a person has to look · {}", error()), ticking)
            }
            State::Pending | State::Ready => {
                let open = |id: &&String| self.step(id).is_some_and(|step| !has_ended(step.state()));
                let after: Vec<&str> = self.depends_on[place].iter().filter(open).map(String::as_str).collect();
                let text = if after.is_empty() { what } else { format!("after {}", after.join(", ")) };
                (Style::Dim, "·", text, Line::default())
            }
            State::Completed
            | State::Failed
            | State::Skipped
            | State::Cancelled
            | State::Compensating
            | State::Compensated => {
                return self.ended_row(place, columns);
            }
            State::Waiting => {
                let until = step.waiting.as_ref().and_then(|waiting| time::since_epoch(waiting.until_time.as_ref()?));
                let left = until.map(|until| format!(" · {} left", time::short(until.saturating_sub(now))));
                (Style::Plain, "◦", what + &left.unwrap_or_default(), ticking)
            }
            State::Running | State::Unspecified => {
                let child = step.waiting.as_ref().filter(|waiting| waiting.kind() == waiting_reason::Kind::Child);
                let child = child.map(|waiting| format!(" · {}", waiting.who)).unwrap_or_default();
                (Style::Strong, "●", attempt() + &what + &child, ticking)
            }
        };
        let text_style = if matches!(step.state(), State::Pending | State::Ready) { Style::Dim } else { Style::Plain };
        self.row(place, style, mark, Line::default().and(text_style, text), right, columns)
    }

    /// A step in words: its title, if it has one, and its call.
    fn what(&self, place: usize) -> String {
        let step = &self.execution.steps[place];
        match step.title.as_str() {
            title if title.is_empty() || title == step.step_id => self.calls[place].clone(),
            title => format!("{title} · {}", self.calls[place]),
        }
    }

    /// The row that stays of a step that has ended.
    pub(crate) fn ended(&self, step_id: &str, columns: Option<usize>) -> Option<Line> {
        let &place = self.places.get(step_id)?;
        has_ended(self.execution.steps[place].state()).then(|| self.ended_row(place, columns.unwrap_or(COLUMNS)))
    }

    fn ended_row(&self, place: usize, columns: usize) -> Line {
        let step = &self.execution.steps[place];
        let attempts = match step.attempt {
            ..=1 => String::new(),
            attempts => format!(" · {attempts} attempts"),
        };
        let (style, mark, text) = match step.state() {
            State::Failed => {
                let why = step.failure.as_ref().map(words::failure).unwrap_or_default();
                (Style::Bad, "✗", format!("{why}{attempts}"))
            }
            State::Skipped => (Style::Dim, "-", format!("skipped: {}", words::skipped_step(step))),
            State::Cancelled => (Style::Warn, "-", "cancelled".to_owned()),
            State::Compensated => (Style::Dim, "↶", format!("undone: {}", self.what(place))),
            _ => {
                let cached = step.cached_result.as_ref().map(|source| format!(", {}", words::cached(source)));
                (Style::Good, "✓", format!("{}{attempts}{}", self.what(place), cached.unwrap_or_default()))
            }
        };
        let took = machine_time(step).map(time::short).unwrap_or_default();
        let waited = waited_for_people(step).map(|waited| format!("{} for approval + ", time::short(waited)));
        let right = Line::default().and(Style::Dim, waited.unwrap_or_default() + &took);
        let text_style = if step.state() == State::Skipped { Style::Dim } else { Style::Plain };
        self.row(place, style, mark, Line::default().and(text_style, text), right, columns)
    }

    fn row(&self, place: usize, style: Style, mark: &str, text: Line, right: Line, columns: usize) -> Line {
        let ids = self.id_columns.min(columns / 4);
        let id = shorten(&self.execution.steps[place].step_id, ids.max(1));
        let left = Line::default()
            .and(style, mark)
            .and(Style::Plain, " ")
            .column(Style::Strong, id, ids)
            .and(Style::Plain, "  ");
        at_the_edge(left.with(text), right, columns)
    }

    /// The waits of the execution, other than its own calls and timers, each with the command to type next; without durations, and, if every
    /// event has been shown, without what events announce.
    pub(crate) fn waits_for(&self, events_shown: bool) -> Vec<String> {
        self.each_wait(|reason| !(events_shown && words::is_announced_by_event(reason)), words::waited_for)
    }

    /// The waits of the execution, other than its own calls and timers; each with the command to type next.
    fn each_wait(
        &self,
        wanted: impl Fn(&WaitingReason) -> bool,
        said: impl Fn(&WaitingReason) -> String,
    ) -> Vec<String> {
        if is_over(self.execution.state()) {
            return Vec::new();
        }
        let mut waits: Vec<String> = Vec::new();
        for reason in &self.execution.waiting {
            if reason.kind() == waiting_reason::Kind::Timer || words::is_own_call(reason) || !wanted(reason) {
                continue;
            }
            let next =
                next::of_server(&reason.next_command).map(|command| format!("; next: {command}")).unwrap_or_default();
            waits.push(said(reason) + &next);
        }
        waits.truncate(STEPS_SHOWN);
        waits
    }
}

/// A row with something at its right edge, which is cut last.
fn at_the_edge(left: Line, right: Line, columns: usize) -> Line {
    // As in the rows that are redrawn, the last column stays free.
    let columns = columns.saturating_sub(1);
    if right.width() == 0 || right.width() + ID_COLUMNS > columns {
        return left.cut(columns);
    }
    let room = columns - right.width() - 2;
    let left = left.cut(room);
    let gap = columns - right.width() - left.width();
    left.trimmed().and(Style::Plain, " ".repeat(gap)).with(right)
}

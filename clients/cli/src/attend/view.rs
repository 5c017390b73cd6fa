//! The view that a person has of an execution under way.

use std::{io, time::Duration};

use belay_proto::v1::{
    ApprovalMode, ExecutionEvent, ExecutionView, GetExecutionRequest, ToolCallFailed, ToolCallOutput,
    execution_event::Kind, tool_call_output::Stream,
};

use super::{attendance::Attendance, children};
use crate::{
    args::Format,
    ask::{self, AskOutcome, Question, Queue},
    clock,
    connect::Client,
    failure::Failure,
    follow::{WatchItem, is_over},
    history, names,
    render::{
        approval::Turn,
        call::awaited_children,
        event,
        event_description::describe,
        live::LiveRows,
        output::{self, Outputs},
        result::lines::EventLines,
        text::{Line, Style},
        tracked_execution::TrackedExecution,
    },
    screen::{Screen, Terminal},
};

/// How long the server may take to say what the execution waits for; without an answer the next request follows.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The most lines of each stream that are shown of a failed call's last output.
const OUTPUT_SHOWN: usize = 20;

/// The view that the user has of an execution under way.
pub(super) struct View {
    screen: Screen,
    tracked: Option<TrackedExecution>,
    outputs: Outputs,
    last_sequence: i64,
    /// Moving lines: on standard output for people, on standard error beside JSON for programs.
    live: Option<(LiveRows<Terminal>, Terminal)>,
    /// Whether a person at the terminal is asked for decisions.
    asks: bool,
    /// The approvals that wait for a decision in the executions of steps, by name.
    asked_by_children: Vec<String>,
    /// Whether all events are shown, so that what they announce need not be repeated.
    from_start: bool,
    /// Lines for programs.
    lines: EventLines,
    /// Whether every event is a line, with the arguments and the result of each call.
    verbose: bool,
    /// The waits that were last printed, without their durations.
    printed_waits: Vec<String>,
    /// Lines held back while a question is open, so that nothing is printed between the question and the answer.
    held_back: Option<Vec<Line>>,
}

impl View {
    pub(super) fn new(screen: Screen, attendance: &Attendance) -> View {
        let Attendance { after, asks, shape, verbose, .. } = *attendance;
        let live = match screen.format {
            Format::Text if screen.output_moves => Some((Terminal::Output, screen.output_colours)),
            Format::Json if screen.talk_moves => Some((Terminal::Talk, screen.talk_colours)),
            _ => None,
        };
        let live = live.map(|(terminal, colours)| (LiveRows::new(terminal, colours), terminal));
        View {
            screen,
            tracked: None,
            outputs: Outputs::default(),
            last_sequence: after,
            live,
            asks,
            asked_by_children: Vec::new(),
            from_start: after == 0,
            lines: EventLines::new(shape),
            verbose,
            printed_waits: Vec::new(),
            held_back: None,
        }
    }

    pub(super) fn screen(&self) -> Screen {
        self.screen
    }

    /// The approvals that wait for a decision, by name.
    pub(super) fn asked(&self) -> impl Iterator<Item = &str> {
        self.tracked.iter().flat_map(TrackedExecution::asked).chain(self.asked_by_children.iter().map(String::as_str))
    }

    pub(super) fn last_sequence(&self) -> i64 {
        self.last_sequence
    }

    /// Whether everything that has happened so far has been shown.
    pub(super) fn is_caught_up(&self) -> bool {
        self.tracked.as_ref().is_some_and(|tracked| {
            let execution = tracked.execution();
            !is_over(execution.state()) && self.last_sequence >= execution.last_sequence
        })
    }

    pub(super) fn show(&mut self, seen: WatchItem) -> Result<(), Failure> {
        if let Some(line) = history::news(&seen) {
            self.talk(line)?;
        }
        match seen {
            WatchItem::Snapshot(execution) => {
                self.tracked = Some(match self.tracked.take() {
                    Some(tracked) => tracked.renewed(*execution),
                    None => TrackedExecution::new(*execution),
                });
            }
            WatchItem::Event(event) => self.show_event(&event)?,
            WatchItem::Reset(last) => self.last_sequence = last,
            WatchItem::Lost { .. } | WatchItem::Back => {}
        }
        self.redraw();
        Ok(())
    }

    /// Whether the person at the terminal will be asked about every call that needs approval.
    fn asks_about(&self, tracked: &TrackedExecution) -> bool {
        let mode = tracked.execution().approval_mode();
        self.asks && matches!(mode, ApprovalMode::Wait | ApprovalMode::Unspecified)
    }

    /// Whether a piece of a stream is shown: what a model answers stands in the line of its turn as well, and what it thinks is for those who ask for all.
    fn shows(&self, piece: &ToolCallOutput) -> bool {
        match piece.stream() {
            Stream::Answer => self.verbose || self.live.is_some(),
            Stream::Reasoning => self.verbose,
            Stream::Stdout | Stream::Stderr | Stream::Unspecified => true,
        }
    }

    fn show_event(&mut self, event: &ExecutionEvent) -> Result<(), Failure> {
        self.last_sequence = self.last_sequence.max(event.sequence);
        let Some(tracked) = &mut self.tracked else {
            return Ok(());
        };
        tracked.apply(event);
        let is_asked = self.tracked.as_ref().is_some_and(|tracked| self.asks_about(tracked));
        let Some(tracked) = &self.tracked else { return Ok(()) };
        // Output that was shown while the command ran is not repeated.
        let unseen = match &event.kind {
            Some(Kind::ToolCallFailed(ToolCallFailed { failure: Some(failure), .. })) if !self.outputs.has(event) => {
                output::last(failure, OUTPUT_SHOWN)
            }
            _ => Vec::new(),
        };
        let mut lines = match &event.kind {
            Some(Kind::ToolCallOutput(piece)) if self.shows(piece) => self.outputs.take(event, piece),
            _ if event.operation > 0 => self.outputs.end(event),
            _ => Vec::new(),
        };
        let described = describe(event);
        lines.extend(match &self.live {
            None => event::line(event, tracked),
            Some(_) if self.verbose && !described.ends_step() => event::line(event, tracked),
            Some((_, terminal)) => tracked
                .ended(&event.step_id, Some(terminal.size().0))
                .filter(|_| described.ends_step())
                .or_else(|| event::news(event, tracked).filter(|_| described.is_milestone))
                .filter(|_| !(is_asked && described.leads_to_question())),
        });
        if self.verbose {
            lines.extend(event::details(event));
        }
        lines.extend(unseen.iter().map(|text| output::of_step(&event.step_id, text)));
        match self.screen.format {
            Format::Jsonl => {
                if let Some(line) = self.lines.take(event, tracked)? {
                    self.screen.print_json(&line)?;
                }
            }
            Format::Json if self.live.is_none() => {}
            Format::Json | Format::Text => self.print(lines)?,
        }
        Ok(())
    }

    /// Lines that stay.
    fn print(&mut self, lines: Vec<Line>) -> io::Result<()> {
        match (&mut self.held_back, &mut self.live) {
            (Some(held_back), _) => held_back.extend(lines),
            (None, _) if lines.is_empty() => {}
            (None, Some((live, terminal))) => live.print(&lines, terminal.size())?,
            (None, None) => self.screen.print(&lines)?,
        }
        Ok(())
    }

    /// Asks about pending approvals, and withdraws questions that are no longer pending. Only if the execution waits for a person.
    pub(super) fn ask(
        &mut self,
        questions: &mut Queue,
        put: impl FnOnce(&str, Turn) -> Question,
    ) -> Result<(), Failure> {
        let Some(tracked) = &self.tracked else { return Ok(()) };
        if !self.asks_about(tracked) || is_over(tracked.execution().state()) {
            return Ok(());
        }
        let was_open = questions.is_open();
        let withdrawn = questions.update(self.asked(), put);
        if let Some(name) = &withdrawn {
            self.screen.say(&Line::default());
            let id = names::id(name);
            self.screen.say(&Line::default().and(Style::Warn, format!("{id} was already decided")));
        }
        match questions.is_open() {
            true if !was_open || withdrawn.is_some() => self.hold_back(),
            false if was_open => self.release()?,
            _ => {}
        }
        Ok(())
    }

    /// Prints the outcome of a question, and continues; `false` when the person leaves.
    pub(super) fn answered(&mut self, answer: Result<AskOutcome, Failure>) -> Result<bool, Failure> {
        let continues = match answer {
            Ok(AskOutcome::Decided(approval)) => {
                self.screen.say(&ask::decision_line(&approval));
                true
            }
            Ok(AskOutcome::Left) => false,
            // Another person was faster, or the gate is unavailable: the approval can be decided elsewhere.
            Err(Failure::Report(report)) => {
                report.lines().iter().for_each(|line| self.screen.say(line));
                true
            }
            Err(failure) => return Err(failure),
        };
        self.release()?;
        Ok(continues)
    }

    fn hold_back(&mut self) {
        self.held_back.get_or_insert_default();
        if let Some((live, _)) = &mut self.live {
            // A closed terminal cannot be asked.
            let _ = live.clear();
        }
    }

    fn release(&mut self) -> io::Result<()> {
        let held_back = self.held_back.take().unwrap_or_default();
        self.print(held_back)?;
        self.redraw();
        Ok(())
    }

    /// Asks the server what the execution waits for. Without an answer the next request follows.
    pub(super) async fn wait_for(&mut self, client: &mut Client, name: &str) -> Result<(), Failure> {
        let request = GetExecutionRequest { name: name.to_owned(), view: ExecutionView::Basic.into() };
        let answer = tokio::time::timeout(ANSWER_WITHIN, client.get_execution(request)).await;
        let (Ok(Ok(answer)), Some(tracked)) = (answer, &mut self.tracked) else {
            return Ok(());
        };
        let execution = answer.into_inner();
        if execution.last_sequence >= tracked.execution().last_sequence {
            tracked.wait_for(execution.waiting);
        }
        if self.live.is_none() && self.held_back.is_none() {
            let steady = tracked.waits_for(self.from_start);
            if self.printed_waits != steady {
                steady.iter().for_each(|wait| self.screen.say(&Line::default().and(Style::Warn, wait)));
                self.printed_waits = steady;
            }
        }
        self.redraw();
        Ok(())
    }

    /// Reads which approvals the executions of steps wait for: no event of this execution says that. Without an answer the last ones remain.
    pub(super) async fn look_at_children(&mut self, client: &mut Client) {
        let Some(tracked) = self.tracked.as_ref().filter(|tracked| self.asks_about(tracked)) else { return };
        let names = awaited_children(tracked.execution()).map(str::to_owned).collect();
        if let Ok(Ok(asked)) = tokio::time::timeout(ANSWER_WITHIN, children::asked(client, names)).await {
            self.asked_by_children = asked;
        }
    }

    fn talk(&mut self, line: Line) -> io::Result<()> {
        if self.live.is_some() {
            return self.print(vec![line]);
        }
        self.screen.say(&line);
        Ok(())
    }

    pub(super) fn redraw(&mut self) {
        if self.held_back.is_some() {
            return;
        }
        if let (Some((live, terminal)), Some(tracked)) = (&mut self.live, &self.tracked) {
            let size = terminal.size();
            // A closed terminal is noticed when lines are printed.
            let announced = self.from_start || self.asks;
            let _ = live.draw(&tracked.rows(clock::now(), size.0, announced), size);
        }
    }
}

impl Drop for View {
    /// Prints what was held back before the outcome.
    fn drop(&mut self) {
        if let Some(lines) = self.held_back.take() {
            self.screen.say(&Line::default());
            let _ = self.print(lines);
        }
    }
}

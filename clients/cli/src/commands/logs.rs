//! `belay logs`.

use std::ops::ControlFlow;

use belay_proto::v1::{ExecutionEvent, GetStepRequest, Step, StepView, execution_event::Kind};
use serde_json::{Value, json};

use crate::{
    args::{ExecutionArg, Format, help},
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    history::{self, ReadEnd},
    lookup, next, read,
    render::{
        event,
        event_description::describe,
        json,
        logs::{self, Logs, OutputFilter, StepOutput},
        text::{Line, Style},
        tracked_execution::TrackedExecution,
        words,
    },
    screen::Screen,
};

/// Print what the steps of an execution printed and returned, in the order in which they ended
///
/// With STEP, the output of that step alone, for other programs: its standard output on standard output, its standard error on standard error. Of a call
/// that failed, the last 4 KiB of each are kept.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay logs @last --failed\n  belay logs @last build | less"))]
pub(crate) struct Print {
    #[command(flatten)]
    which: ExecutionArg,
    /// Only this step, as it is
    #[arg(value_name = "STEP")]
    step: Option<String>,
    /// Only steps and attempts that failed
    #[arg(long)]
    failed: bool,
    /// Continue until the execution or the step has ended
    #[arg(long, short)]
    follow: bool,
}

/// Prints the outputs.
pub(crate) async fn logs(context: &Context, verb: Print) -> Result<Exit, Failure> {
    let Print { which, step, failed, follow } = verb;
    let (screen, wanted) = (context.screen, OutputFilter { step, failed });
    context
        .with_session(Requirement::Records, async |session| {
            let name = lookup::resolve(&mut session.client, &context.namespace, &which.id).await?;
            if let Some(step) = &wanted.step {
                check(&mut session.client, &name, step).await?;
            }
            let mut logs = Logs::new(wanted.clone());
            let is_raw = wanted.step.is_some();
            let mut printer = Printer { screen, execution: name.clone(), is_raw, count: 0, steps: Vec::new() };
            // A step that is started again after its end ends twice: its output is the last.
            let is_last_wanted = is_raw && !wanted.failed && !follow;
            let (mut last, mut waiting) = (None, WaitReport::default());
            let see = async |client: &mut Client, tracked: &TrackedExecution, event: &ExecutionEvent| {
                if let Some(ended) = logs.take(event) {
                    match is_last_wanted {
                        true => last = Some(ended),
                        false => printer.print(client, ended, tracked).await?,
                    }
                }
                if follow {
                    waiting.see(event, tracked).iter().for_each(|line| screen.say(line));
                }
                let is_over = follow && describe(event).ends_step() && wanted.step.as_ref() == Some(&event.step_id);
                Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            let until = if follow { ReadEnd::End } else { ReadEnd::Now };
            let tracked = history::read(session, &screen, &name, 0, until, see).await?;
            if let Some(ended) = last {
                printer.print(&mut session.client, ended, &tracked).await?;
            }
            match screen.format {
                Format::Json => screen.print_json(&json!({ "steps": printer.steps }))?,
                Format::Text if printer.count == 0 => screen.say(&Line::new(logs::nothing(&wanted, &tracked))),
                Format::Text | Format::Jsonl => {}
            }
            Ok(Exit::OK)
        })
        .await
}

/// Refuses a step that the execution does not have.
async fn check(client: &mut Client, execution: &str, step: &str) -> Result<(), Failure> {
    let request = GetStepRequest { name: format!("{execution}/steps/{step}"), view: StepView::Basic.into() };
    let found = client.get_step(request).await;
    found.map_err(|status| Report::of_status(&status).next(next::about(&["executions", "get"], execution, &[])))?;
    Ok(())
}

/// Tells what an execution waits for while its outputs are followed.
#[derive(Default)]
struct WaitReport {
    /// The last event when the reading began.
    began_at: Option<i64>,
}

impl WaitReport {
    /// The lines after an event: once the current waits, then those that begin. Waits of the past are left out.
    fn see(&mut self, event: &ExecutionEvent, tracked: &TrackedExecution) -> Vec<Line> {
        let began_at = *self.began_at.get_or_insert(tracked.execution().last_sequence);
        let begins_wait = matches!(
            event.kind,
            Some(Kind::ApprovalRequested(_) | Kind::ExecutionPaused(_) | Kind::StepOutcomeUnknown(_))
        );
        match event.sequence {
            now if now == began_at => {
                let waits = tracked.waits_for(false);
                waits.into_iter().map(|wait| Line::default().and(Style::Warn, wait)).collect()
            }
            later if later > began_at && begins_wait => event::line(event, tracked).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

struct Printer {
    screen: Screen,
    /// The execution's name.
    execution: String,
    /// Whether the output is that of one step, for another program.
    is_raw: bool,
    /// How many outputs have been printed.
    count: usize,
    /// The steps that are printed as one object at the end.
    steps: Vec<Value>,
}

impl Printer {
    async fn print(&mut self, client: &mut Client, mut ended: Step, tracked: &TrackedExecution) -> Result<(), Failure> {
        read::with_output(client, &self.execution, &mut ended).await?;
        ended.name = format!("{}/steps/{}", self.execution, ended.step_id);
        match self.screen.format {
            Format::Json => self.steps.push(json::of(&ended)?),
            Format::Jsonl => self.screen.print_json(&json::of(&ended)?)?,
            Format::Text => self.show(&ended, tracked)?,
        }
        Ok(())
    }

    fn show(&mut self, ended: &Step, tracked: &TrackedExecution) -> Result<(), Failure> {
        // For another program it is what was recorded.
        let answer = if self.is_raw { None } else { logs::answer(ended, tracked) };
        let printed = answer.unwrap_or_else(|| logs::printed(ended));
        let is_empty = printed.output.as_str().is_empty() && printed.error.as_str().is_empty();
        let failure = ended.failure.as_ref().map(words::failure);
        if self.is_raw && is_empty && failure.is_none() {
            return Ok(());
        }
        self.count += 1;
        let StepOutput { output, error, truncated } = printed;
        let truncated = truncated.then(|| Line::default().and(Style::Dim, "… earlier output is not kept"));
        if self.is_raw {
            let failure =
                failure.map(|failure| logs::heading(ended, tracked).and(Style::Plain, format!("  {failure}")));
            failure.iter().chain(&truncated).for_each(|line| self.screen.say(line));
            self.screen.print_text(&output)?;
            self.screen.say_text(&error);
            return Ok(());
        }
        self.screen.print(&[logs::heading(ended, tracked)])?;
        let failure = failure.map(|failure| Line::new("  ").and(Style::Bad, failure));
        let truncated = truncated.map(|line| Line::new("  ").with(line));
        self.screen.print(&failure.into_iter().chain(truncated).collect::<Vec<_>>())?;
        self.screen.print_text(&output.indented())?;
        if !error.as_str().is_empty() {
            self.screen.print(&[Line::default().and(Style::Dim, "--- standard error")])?;
            self.screen.print_text(&error.indented())?;
        }
        Ok(())
    }
}

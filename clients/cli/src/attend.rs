//! Watches an execution to its end: shows its events, asks a person for decisions, survives broken connections, and exits as the execution
//! ended.

mod attendance;
mod children;
mod view;

use std::{cell::RefCell, rc::Rc, time::Duration};

use belay_all_in_one::{EmbeddedServices, StartError};
use belay_proto::v1::{
    Execution, ExecutionView, ResumeExecutionRequest, WatchExecutionRequest, WatchExecutionResponse, execution::State,
};
use belay_reasons as reasons;
use futures::{FutureExt as _, StreamExt as _};
use tokio::{
    sync::Mutex,
    time::{Instant, MissedTickBehavior},
};
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt as _;

use crate::{
    args::Format,
    ask::{self, Question, Queue, Terminal},
    clock,
    connect::{Client, GateConnector, Session},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    follow::{self, HEARTBEAT, WatchItem, Watchable},
    history, names, next, read,
    refused::refused,
    render::{
        approval::Turn,
        execution, json,
        text::{Line, Style},
        time, words,
    },
    screen::Screen,
    signals::{Signals, Stop},
};
pub(crate) use attendance::Attendance;
use view::View;

/// The interval at which the live rows are redrawn, so that seconds tick evenly.
const REDRAW: Duration = Duration::from_millis(250);
/// The interval at which the server is asked what the execution waits for, since no event reports an unavailable service; below a second.
const ASK_AGAIN: Duration = Duration::from_millis(750);
/// After this many failed tries in a row (some 6 s) this process takes the place of a server that has ended. A `belay serve` that is being
/// restarted is back sooner.
const TRIES_BEFORE_DRIVING: u32 = 6;
/// How long recording the pause may take before the screen says so.
const PAUSES_SILENTLY: Duration = Duration::from_millis(500);
/// The most pending approvals that are named at the end.
const ASKED_SHOWN: usize = 3;

/// Why the watching ended.
enum End {
    /// The execution ended.
    Finished,
    /// Every event has been shown, and no process drives the execution.
    Idle,
    /// A signal stopped this process.
    Stopped(Stop),
    /// The longest wait is over.
    WaitedLongEnough,
    /// The watching itself failed.
    Failed(Failure),
}

/// Watches to the end, closes the session, and prints the outcome.
pub(crate) async fn attend(
    context: &Context,
    mut session: Session,
    signals: &mut Signals,
    attendance: Attendance,
) -> Result<Exit, Failure> {
    let mut view = View::new(context.screen, &attendance);
    let end = watch(&mut session, signals, &attendance, &mut view).await;
    let last = view.last_sequence();
    let asked: Vec<String> = view.asked().map(words::show_approval).collect();
    drop(view);

    let embedded = session.is_embedded();
    let finished = match end {
        End::Finished => Some(ended(&mut session, &attendance.name, context.screen.format).await),
        _ => None,
    };
    match &end {
        End::Stopped(stop) if embedded && *stop != Stop::HangUp => pause(context, session, &attendance.name).await,
        _ => session.close().await,
    }
    match (end, finished) {
        (_, Some(execution)) => conclude(context, &execution?),
        (end, None) => {
            if matches!(end, End::Stopped(_)) {
                for command in asked.iter().take(ASKED_SHOWN) {
                    context.screen.say(&Line::default().and(Style::Warn, format!("waiting for approval: {command}")));
                }
            }
            Err(left(context, &attendance, end, embedded, last))
        }
    }
}

/// An execution that has ended. The process that has driven it may have ended with it: then it is read from where it is recorded.
async fn ended(session: &mut Session, name: &str, format: Format) -> Result<Execution, Failure> {
    match read::execution(&mut session.client, name, format).await {
        // It only reads, so that it does not matter whether the request was lost on its way or its answer.
        Err(status) if Report::of_status(&status).code == reasons::SERVER_UNREACHABLE => {
            session.reconnect(true).await?;
            Ok(read::execution(&mut session.client, name, format).await?)
        }
        read => Ok(read?),
    }
}

/// Closes the session, and says so when recording the pause takes longer than [`PAUSES_SILENTLY`].
async fn pause(context: &Context, session: Session, name: &str) {
    let mut closed = std::pin::pin!(session.close());
    if tokio::time::timeout(PAUSES_SILENTLY, &mut closed).await.is_err() {
        let line = format!("pausing {}: press Ctrl-C again to end at once", names::id(name));
        context.screen.say(&Line::new(line));
        closed.await;
    }
}

/// Prints the outcome of an execution that ended.
fn conclude(context: &Context, ended: &Execution) -> Result<Exit, Failure> {
    let exit = Exit::of_execution(ended);
    match context.screen.format {
        Format::Json => {
            let mut value = json::of(ended)?;
            if let Some(failure) = value.get_mut("failure") {
                failure["nextCommand"] = next::about(&["executions", "get"], &ended.name, &[]).into();
            }
            context.screen.print_json(&value)?;
        }
        Format::Jsonl => {}
        Format::Text if matches!(exit, Exit::OK | Exit::PARTIAL) => {
            let ended = context.target.with_workspace(ended.clone());
            context.screen.print(&execution::summary(&ended, clock::now()))?
        }
        Format::Text => {
            return Err(execution::report(&context.target.with_workspace(ended.clone())).into());
        }
    }
    Ok(exit)
}

/// The report when the execution has not ended: it is kept, and `next` returns to it.
fn left(context: &Context, attendance: &Attendance, end: End, embedded: bool, last: i64) -> Failure {
    let id = names::id(&attendance.name);
    let resume = next::about(&["executions", "resume"], &attendance.name, &[]);
    let (kept, next) = match embedded {
        true => ("it is paused", resume.clone()),
        false => (
            "it continues on the server",
            next::about(&["executions", "watch"], &attendance.name, &["--after", &last.to_string()]),
        ),
    };
    match end {
        End::Stopped(stop) => {
            context.screen.say(&Line::new(format!("stopped watching {id}: {kept}")));
            context.screen.say(&next::line(&next));
            Failure::Quiet(stop.exit())
        }
        End::WaitedLongEnough => {
            let max_wait = time::short(attendance.max_wait.unwrap_or_default());
            let mut report =
                Report::new(reasons::WAIT_TIMEOUT, format!("execution {id} has not ended within {max_wait}: {kept}"));
            report.retryable = true;
            report.next(next).into()
        }
        End::Idle => history::not_driven(&attendance.name).into(),
        End::Failed(Failure::ClosedPipe) if attendance.drive => Failure::Quiet(Exit::CLOSED_PIPE),
        // Refused permanently: the same request would be refused again.
        End::Failed(Failure::Report(mut report)) if report.exit == Exit::REFUSED => {
            report.next.get_or_insert_with(|| next::about(&["executions", "get"], &attendance.name, &[]));
            Failure::Report(report)
        }
        End::Failed(Failure::Report(mut report)) => {
            report.details.push(format!("execution {id}: nothing that was recorded is lost"));
            report.next = Some(next);
            Failure::Report(report)
        }
        End::Failed(failure) => failure,
        End::Finished => Failure::internal("an execution that ended has its own last word"),
    }
}

async fn watch(session: &mut Session, signals: &mut Signals, attendance: &Attendance, view: &mut View) -> End {
    let started = Instant::now();
    let connection = Connection {
        client: RefCell::new(session.client.clone()),
        to_gate: RefCell::new(session.to_gate()),
        embedded: RefCell::new(session.embedded()),
    };
    let screen = view.screen();
    let terminal = Rc::new(Mutex::new(Terminal::default()));
    let put = |name: &str, turn| {
        let to_gate = connection.to_gate.borrow().clone();
        question(screen, to_gate, &terminal, name, turn, &attendance.name)
    };
    let mut questions = Queue::default();
    let watched = AttendedExecution { session, attendance, connection: &connection };
    let mut seen = std::pin::pin!(follow::follow(watched, Some(attendance.after)));
    let mut ticks = tokio::time::interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ask_at = started + ASK_AGAIN;
    let deadline = attendance.max_wait.and_then(|max_wait| started.checked_add(max_wait));
    let over = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    let mut over = std::pin::pin!(over);

    loop {
        let shown = tokio::select! {
            biased;
            stop = signals.next() => return End::Stopped(stop),
            () = &mut over => return End::WaitedLongEnough,
            reason = connection.failed() => return End::Failed(Report::of_start(&reason).into()),
            answer = questions.answer() => match view.answered(answer) {
                Ok(true) => Ok(()),
                Ok(false) => return End::Stopped(Stop::Interrupt),
                Err(failure) => Err(failure),
            },
            next = seen.next() => {
                match next {
                    None => return End::Finished,
                    Some(Err(failure)) => return End::Failed(failure),
                    Some(Ok(next)) => {
                        if next == WatchItem::Back {
                            questions.begin_again();
                        }
                        view.show(next)
                    }
                }
            }
            _ = ticks.tick() => {
                if Instant::now() >= ask_at {
                    ask_at = Instant::now() + ASK_AGAIN;
                    let mut client = connection.client.borrow().clone();
                    let shown = view.wait_for(&mut client, &attendance.name).await;
                    if attendance.asks {
                        view.look_at_children(&mut client).await;
                    }
                    shown
                } else {
                    view.redraw();
                    Ok(())
                }
            }
        };
        let shown = shown.and_then(|()| match attendance.asks {
            true => view.ask(&mut questions, put),
            false => Ok(()),
        });
        if let Err(failure) = shown {
            return End::Failed(failure);
        }
        if connection.is_embedded() && !attendance.drive && view.is_caught_up() {
            return End::Idle;
        }
    }
}

/// Asks the person at the terminal, who watches an execution, about one approval.
fn question(
    screen: Screen,
    to_gate: GateConnector,
    terminal: &Rc<Mutex<Terminal>>,
    name: &str,
    turn: Turn,
    watched: &str,
) -> Question {
    let (terminal, name, watched) = (Rc::clone(terminal), name.to_owned(), watched.to_owned());
    async move {
        let mut gate = to_gate.client().await?;
        let asked = ask::get(&mut gate, &name).await?;
        let turn = Turn { is_of_child: asked.execution != watched, ..turn };
        ask::ask(screen, &mut gate, &mut *terminal.lock().await, asked, turn).await
    }
    .boxed_local()
}

/// The parts of the session that are used while the watch borrows it.
struct Connection {
    /// For questions beside the watch.
    client: RefCell<Client>,
    /// For questions to a person.
    to_gate: RefCell<GateConnector>,
    /// The services, where they run in this process.
    embedded: RefCell<Option<Rc<EmbeddedServices>>>,
}

impl Connection {
    fn is_embedded(&self) -> bool {
        self.embedded.borrow().is_some()
    }

    /// Returns when the store of this process's services has failed: the execution could not make progress.
    async fn failed(&self) -> StartError {
        let embedded = self.embedded.borrow().clone();
        match embedded {
            Some(embedded) => embedded.failed().await,
            None => std::future::pending().await,
        }
    }
}

/// An execution of a session, for `follow`.
struct AttendedExecution<'a> {
    session: &'a mut Session,
    attendance: &'a Attendance,
    connection: &'a Connection,
}

impl Watchable for AttendedExecution<'_> {
    type Messages = Streaming<WatchExecutionResponse>;

    async fn watch(&mut self, cursor: &str, include_earlier_events: bool) -> Result<Self::Messages, Status> {
        let request = WatchExecutionRequest {
            name: self.attendance.name.clone(),
            cursor: cursor.to_owned(),
            heartbeat_interval: Some(HEARTBEAT.into()),
            view: ExecutionView::Full.into(),
            include_earlier_events,
        };
        Ok(self.session.client.watch_execution(request).await?.into_inner())
    }

    async fn reconnect(&mut self, tries: u32) -> Result<(), Failure> {
        let was_embedded = self.session.is_embedded();
        self.session.reconnect(self.attendance.drive && tries >= TRIES_BEFORE_DRIVING).await?;
        self.connection.client.replace(self.session.client.clone());
        self.connection.to_gate.replace(self.session.to_gate());
        self.connection.embedded.replace(self.session.embedded());
        if self.session.is_embedded() && !was_embedded {
            take_up(&mut self.session.client, &self.attendance.name).await?;
        }
        Ok(())
    }
}

/// Resumes the execution if it is paused, or drives it if no process does. One that is already driven stays as it is.
pub(crate) async fn take_up(client: &mut Client, name: &str) -> Result<Execution, Failure> {
    let request = ResumeExecutionRequest { name: name.to_owned(), ..Default::default() };
    match client.resume_execution(request).await {
        Ok(execution) => Ok(execution.into_inner()),
        Err(status) if status.code() == Code::FailedPrecondition => {
            // One that ran when it was asked may have ended since.
            let state = status.get_details_error_info().and_then(|info| info.metadata.get("state").cloned());
            let ran = state.is_some_and(|state| matches!(&*state, "PENDING" | "RUNNING" | "AWAITING_APPROVAL"));
            let execution = read::execution(client, name, Format::Text).await?;
            match execution.state() {
                State::Pending | State::Running | State::AwaitingApproval => Ok(execution),
                _ if ran => Ok(execution),
                _ => Err(refused(&status, name)),
            }
        }
        Err(status) => Err(refused(&status, name)),
    }
}

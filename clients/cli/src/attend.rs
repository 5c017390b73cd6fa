//! Stays with an execution to its end: shows what happens, survives broken connections, ends as the execution does.

use std::{cell::RefCell, io, rc::Rc, time::Duration};

use belay_all_in_one::{Embedded, StartError};
use belay_proto::v1::{
    Execution, ExecutionEvent, ExecutionView, GetExecutionRequest, ResumeExecutionRequest, WatchExecutionRequest,
    WatchExecutionResponse, execution::State,
};
use futures::StreamExt as _;
use indicatif::ProgressDrawTarget;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::{Code, Status, Streaming};

use crate::{
    args::Format,
    clock,
    commands::{Context, executions::refused},
    connect::{Client, Session},
    exit::Exit,
    failure::{Failure, Report},
    follow::{self, HEARTBEAT, Seen, Watchable, is_over},
    names,
    render::{
        event, execution, json,
        live::Live,
        picture::Picture,
        text::{Line, Style},
        time,
    },
    screen::Screen,
    signals::{Signals, Stop},
};

/// How often moving lines are redrawn: often enough for seconds to tick evenly.
const REDRAW: Duration = Duration::from_millis(250);
/// After so much silence the server is asked what the execution waits for, since no event says that.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// And so often again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// After so many tries in a row (some 6 s) the place of a server that has gone is taken by this process. A `belay serve` that is only being
/// restarted needs less.
const TRIES_BEFORE_DRIVING: u32 = 6;

/// What to stay with, and for how long.
pub(crate) struct Attendance {
    /// The execution's full name.
    pub(crate) name: String,
    /// Events after this one are shown; 0 for all.
    pub(crate) after: i64,
    /// Whether this process carries the execution out if no server does.
    pub(crate) drive: bool,
    /// The longest stay; `None` for as long as it takes.
    pub(crate) longest: Option<Duration>,
}

/// Why the watching ended.
enum End {
    /// The execution ended.
    Finished,
    /// All there is has been shown, and nobody drives the execution on.
    Idle,
    /// Somebody stopped this process.
    Stopped(Stop),
    /// The longest stay is over.
    WaitedLongEnough,
    /// The watching itself failed.
    Failed(Failure),
}

/// Stays to the end, closes the session, says the last word.
pub(crate) async fn attend(
    context: &Context,
    mut session: Session,
    signals: &mut Signals,
    attendance: Attendance,
) -> Result<Exit, Failure> {
    let mut view = View::new(context.screen, attendance.after);
    let end = watch(&mut session, signals, &attendance, &mut view).await;
    let last = view.last_sequence();
    drop(view);

    let embedded = session.is_embedded();
    let finished = match end {
        End::Finished => Some(get(&mut session.client, &attendance.name).await),
        _ => None,
    };
    session.close().await;
    match (end, finished) {
        (_, Some(execution)) => conclude(context, &execution?),
        (end, None) => Err(left(context, &attendance, end, embedded, last)),
    }
}

/// The last word on an execution that ended.
fn conclude(context: &Context, ended: &Execution) -> Result<Exit, Failure> {
    let exit = Exit::of_execution(ended);
    match context.screen.format {
        Format::Json => context.screen.print_json(&json::of(ended)?)?,
        Format::Jsonl => {}
        Format::Text if exit == Exit::OK => context.screen.print(&execution::summary(ended, clock::now()))?,
        Format::Text => return Err(execution::report(ended).into()),
    }
    Ok(exit)
}

/// The last word when the execution did not end: it is never lost, and this is how to come back to it.
fn left(context: &Context, attendance: &Attendance, end: End, embedded: bool, last: i64) -> Failure {
    let id = names::id(&attendance.name);
    let resume = format!("belay executions resume {id}");
    let (kept, next) = match embedded {
        true => ("it is kept, and goes on when it is resumed", resume.clone()),
        false => ("it goes on at the server", format!("belay executions watch {id} --after {last}")),
    };
    match end {
        End::Stopped(stop) => {
            context.screen.say(&Line::new(format!("stopped watching {id}: {kept}")));
            context.screen.say(&execution::next(&next));
            Failure::Quiet(stop.exit())
        }
        End::WaitedLongEnough => {
            let longest = time::short(attendance.longest.unwrap_or_default());
            let mut report = Report::new(
                Exit::TIMED_OUT,
                "WAIT_TIMEOUT",
                format!("execution {id} has not ended within {longest}: {kept}"),
            );
            report.retryable = true;
            report.next(next).into()
        }
        End::Idle => Failure::refused(
            "EXECUTION_NOT_DRIVEN",
            format!("execution {id} has not ended, and no server drives it on"),
        )
        .next(resume)
        .into(),
        End::Failed(Failure::ClosedPipe) if attendance.drive => Failure::Quiet(Exit::CLOSED_PIPE),
        // Refused for good: there is nothing to come back to by the same way.
        End::Failed(Failure::Report(mut report)) if report.exit == Exit::REFUSED => {
            report.next.get_or_insert_with(|| format!("belay executions get {id}"));
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
    let connection =
        Connection { client: RefCell::new(session.client.clone()), embedded: RefCell::new(session.embedded()) };
    let watched = Watched { session, attendance, connection: &connection };
    let mut seen = std::pin::pin!(follow::follow(watched, Some(attendance.after)));
    let mut ticks = tokio::time::interval(REDRAW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ask_at = started + ASK_AFTER;
    let deadline = attendance.longest.and_then(|longest| started.checked_add(longest));
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
            reason = connection.failed() => return End::Failed(store_failed(&reason).into()),
            next = seen.next() => {
                ask_at = Instant::now() + ASK_AFTER;
                match next {
                    None => return End::Finished,
                    Some(Err(failure)) => return End::Failed(failure),
                    Some(Ok(next)) => view.show(next),
                }
            }
            _ = ticks.tick() => {
                if Instant::now() >= ask_at {
                    ask_at = Instant::now() + ASK_AGAIN;
                    let mut client = connection.client.borrow().clone();
                    view.wait_for(&mut client, &attendance.name).await
                } else {
                    view.redraw();
                    Ok(())
                }
            }
        };
        if let Err(failure) = shown {
            return End::Failed(failure);
        }
        if connection.is_embedded() && !attendance.drive && view.is_caught_up() {
            return End::Idle;
        }
    }
}

/// The store takes no more. What to do about it comes before the command that goes on.
fn store_failed(reason: &StartError) -> Report {
    let mut report = Report::of_start(reason);
    report.details.extend(report.next.take());
    report
}

/// What is known of the session while the watch has it.
struct Connection {
    /// For questions beside the watch.
    client: RefCell<Client>,
    /// The services, where they run in this process.
    embedded: RefCell<Option<Rc<Embedded>>>,
}

impl Connection {
    fn is_embedded(&self) -> bool {
        self.embedded.borrow().is_some()
    }

    /// Answers when the store of this process's own services has failed: nothing would ever happen again.
    async fn failed(&self) -> StartError {
        let embedded = self.embedded.borrow().clone();
        match embedded {
            Some(embedded) => embedded.failed().await,
            None => std::future::pending().await,
        }
    }
}

/// One execution of a session, as `follow` wants it.
struct Watched<'a> {
    session: &'a mut Session,
    attendance: &'a Attendance,
    connection: &'a Connection,
}

impl Watchable for Watched<'_> {
    type Messages = Streaming<WatchExecutionResponse>;

    async fn watch(&mut self, after: Option<i64>) -> Result<Self::Messages, Status> {
        let request = WatchExecutionRequest {
            name: self.attendance.name.clone(),
            after_sequence: after,
            heartbeat_interval: Some(HEARTBEAT.into()),
        };
        Ok(self.session.client.watch_execution(request).await?.into_inner())
    }

    async fn reconnect(&mut self, tries: u32) -> Result<(), Failure> {
        let was_embedded = self.session.is_embedded();
        self.session.reconnect(self.attendance.drive && tries >= TRIES_BEFORE_DRIVING).await?;
        self.connection.client.replace(self.session.client.clone());
        self.connection.embedded.replace(self.session.embedded());
        if self.session.is_embedded() && !was_embedded {
            take_up(&mut self.session.client, &self.attendance.name).await?;
        }
        Ok(())
    }
}

/// Lets the services drive the execution on, whether it was paused or its last driver has gone. One that is at work or has ended stays as
/// it is.
pub(crate) async fn take_up(client: &mut Client, name: &str) -> Result<Execution, Failure> {
    let request = ResumeExecutionRequest { name: name.to_owned(), ..Default::default() };
    match client.resume_execution(request).await {
        Ok(execution) => Ok(execution.into_inner()),
        Err(status) if status.code() == Code::FailedPrecondition => {
            let execution = get(client, name).await?;
            match execution.state() {
                State::Pending | State::Running => Ok(execution),
                _ => Err(refused(&status, name)),
            }
        }
        Err(status) => Err(refused(&status, name)),
    }
}

async fn get(client: &mut Client, name: &str) -> Result<Execution, Failure> {
    let request = GetExecutionRequest { name: name.to_owned(), view: ExecutionView::Full.into() };
    Ok(client.get_execution(request).await?.into_inner())
}

/// What the user sees of an execution under way.
struct View {
    screen: Screen,
    picture: Option<Picture>,
    last_sequence: i64,
    /// Moving lines: on standard output for people, on standard error beside JSON for programs.
    live: Option<Live>,
    /// What holds it up, as it was last told, without the seconds that pass.
    told: Vec<String>,
}

impl View {
    fn new(screen: Screen, after: i64) -> View {
        let live = match screen.format {
            Format::Text if screen.output_moves => Some(Live::new(ProgressDrawTarget::stdout(), screen.output_colours)),
            Format::Json if screen.talk_moves => Some(Live::new(ProgressDrawTarget::stderr(), screen.talk_colours)),
            _ => None,
        };
        View { screen, picture: None, last_sequence: after, live, told: Vec::new() }
    }

    fn last_sequence(&self) -> i64 {
        self.last_sequence
    }

    /// Whether everything that has happened so far has been shown.
    fn is_caught_up(&self) -> bool {
        self.picture.as_ref().is_some_and(|picture| {
            let execution = picture.execution();
            !is_over(execution.state()) && self.last_sequence >= execution.last_sequence
        })
    }

    fn show(&mut self, seen: Seen) -> Result<(), Failure> {
        match seen {
            Seen::Snapshot(execution) => self.picture = Some(Picture::new(*execution)),
            Seen::Event(event) => self.show_event(&event)?,
            Seen::Lost { why, wait } => {
                self.talk(
                    &Line::default()
                        .and(Style::Warn, format!("connection lost ({why}); trying again in {}", time::short(wait))),
                )?;
            }
            Seen::Back => self.talk(&Line::default().and(Style::Good, "connected again"))?,
        }
        self.redraw();
        Ok(())
    }

    fn show_event(&mut self, event: &ExecutionEvent) -> Result<(), Failure> {
        self.last_sequence = self.last_sequence.max(event.sequence);
        let Some(picture) = &mut self.picture else {
            return Ok(());
        };
        picture.apply(event);
        match (&self.live, self.screen.format) {
            (Some(live), _) => {
                if let Some(line) = event::line(event, picture).filter(|_| event::is_milestone(event)) {
                    live.print(&line)?;
                }
            }
            (None, Format::Text) => self.screen.print(event::line(event, picture).as_slice())?,
            (None, Format::Jsonl) => self.screen.print_json(&json::of(event)?)?,
            (None, Format::Json) => {}
        }
        Ok(())
    }

    /// Asks what holds it up. Without an answer the next question will do.
    async fn wait_for(&mut self, client: &mut Client, name: &str) -> Result<(), Failure> {
        let request = GetExecutionRequest { name: name.to_owned(), view: ExecutionView::Basic.into() };
        let answer = tokio::time::timeout(ASK_AFTER, client.get_execution(request)).await;
        let (Ok(Ok(answer)), Some(picture)) = (answer, &mut self.picture) else {
            return Ok(());
        };
        let execution = answer.into_inner();
        let now = clock::now();
        if execution.last_sequence == picture.execution().last_sequence {
            picture.wait_for(execution.waiting);
        }
        if self.live.is_none() {
            let waits = picture.waits(now);
            let steady: Vec<String> = waits.iter().map(|wait| without_time(wait)).collect();
            if self.told != steady {
                self.told = steady;
                waits.iter().for_each(|wait| self.screen.say(&Line::default().and(Style::Warn, wait)));
            }
        }
        self.redraw();
        Ok(())
    }

    fn talk(&self, line: &Line) -> io::Result<()> {
        match &self.live {
            Some(live) => live.print(line),
            None => {
                self.screen.say(line);
                Ok(())
            }
        }
    }

    fn redraw(&mut self) {
        if let (Some(live), Some(picture)) = (&mut self.live, &self.picture) {
            live.draw(&picture.lines(clock::now()));
        }
    }
}

/// A wait's words without the part that changes every second.
fn without_time(wait: &str) -> String {
    match (wait.find(" (since "), wait.rfind(')')) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &wait[..from], &wait[to + 1..]),
        _ => wait.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_once_however_long_it_takes() {
        let words = without_time("waits for a tool runner: r1 (since 3s); next: belay serve");
        assert_eq!(words, "waits for a tool runner: r1; next: belay serve");
        assert_eq!(words, without_time("waits for a tool runner: r1 (since 8s); next: belay serve"));
    }
}

//! A server while it runs: its session, the questions that it asks people, and its end.

use std::{
    io::{self, PipeReader, PipeWriter},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_mcp::{Host, McpError, Question, Reply, Session};
use belay_proto::{
    facts,
    runner_v1::answer_tool_call_request::Reply as PersonsReply,
    v1::{ErrorClass, Form, tool_call_output::Stream},
};
use belay_reasons as reasons;
use belay_sandbox::{Status, Timer};
use belay_settings::McpServer;
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{Map, Value, json};
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    time::timeout,
};

use crate::{
    Invocation, Output, Questions, ToolFailure,
    tools::run_terminal::{Additions, Asker, CommandResult, Ran, RunConditions, RunTerminal, ServerClient, judge},
};

/// The longest title of a question, in characters: all of its words are in the description.
const MAX_TITLE: usize = 200;

/// The largest question, in bytes: as of a tool of the operator's own.
const MAX_QUESTION: usize = 64 << 10;

/// How long a server may take to end once its input is closed: some write their files only then.
const END: Duration = Duration::from_secs(2);

/// The arguments of `run_terminal` that start a server.
pub(super) fn command(server: &McpServer) -> Value {
    let env: Map<String, Value> =
        server.env.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    let cwd = if server.cwd.is_empty() { "." } else { &server.cwd };
    json!({"command": server.command, "cwd": cwd, "env": env})
}

/// The outcome of the work with a session; `None` where the server ended before anything came of it.
pub(super) type Done<T> = Option<Result<T, McpError>>;

/// Runs a server for one piece of work with a session of it, and waits until its last process has ended. `known` is the revision that it spoke before.
pub(super) async fn with_server<T: Send + 'static>(
    terminal: &RunTerminal,
    server: &McpServer,
    known: Option<&str>,
    invocation: Invocation,
    work: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, McpError>> + Send + 'static,
) -> Result<(Ran, Done<T>), ToolFailure> {
    let done: Arc<Mutex<Done<T>>> = Arc::default();
    let (kept, output) = (Arc::clone(&done), Arc::clone(&invocation.output));
    let (name, start_timeout) = (server.name.clone(), server.start_timeout);
    let known = known.map(str::to_owned);
    let client = move |asker| -> ServerClient {
        Box::new(move |from, to, timer| {
            let host = ServerHost { server: name, asker, output, timer: Arc::new(PausableTimer::new(timer)) };
            exchange(from, to, Arc::new(host), (start_timeout, known), work, kept).boxed()
        })
    };
    let invocation = Invocation { arguments: command(server), reveals: server.reveals.clone(), ..invocation };
    let ran = terminal.serve(invocation, Additions::default(), client).await?;
    let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((ran, done))
}

/// Does the work with a session, keeps what has come of it, and ends the session. Returns how long the server may take to end.
async fn exchange<T>(
    from: PipeReader,
    to: PipeWriter,
    host: Arc<dyn Host>,
    (start_timeout, known): (Duration, Option<String>),
    work: impl for<'a> FnOnce(&'a Session) -> BoxFuture<'a, Result<T, McpError>>,
    kept: Arc<Mutex<Done<T>>>,
) -> Duration {
    let keep = |done| *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    let session = match start(from, to, host, start_timeout, known.as_deref()).await {
        Ok(session) => session,
        Err(error) => {
            keep(Err(error));
            return Duration::ZERO;
        }
    };
    let done = work(&session).await;
    let grace = if done.is_ok() { END } else { Duration::ZERO };
    // Before the session ends: the server may be gone with its input.
    keep(done);
    session.end().await;
    grace
}

async fn start(
    from: PipeReader,
    to: PipeWriter,
    host: Arc<dyn Host>,
    start_timeout: Duration,
    known: Option<&str>,
) -> Result<Session, McpError> {
    let pipes = Receiver::from_owned_fd(from.into()).and_then(|from| Ok((from, Sender::from_owned_fd(to.into())?)));
    let (from, to) = pipes.map_err(|error: io::Error| McpError::NotStarted(error.to_string()))?;
    timeout(start_timeout, Session::start(from, to, host, known)).await.unwrap_or_else(|_| {
        let seconds = start_timeout.as_secs();
        Err(McpError::NotStarted(format!("{seconds} s have passed (`start_timeout` of the server in the settings)")))
    })
}

/// The failure of a server that has not done its work.
pub(super) fn failed(server: &McpServer, ran: Ran, error: Option<McpError>) -> ToolFailure {
    let Ran { program, limit, has_network, result, .. } = ran;
    let CommandResult { outcome, output, outputs, loopback, refusal, .. } = result;
    let status = outcome.status;
    let broken = |what: String| {
        let message = format!("The MCP server `{}` {what}.", server.name);
        ToolFailure::new(ErrorClass::Transient, reasons::MCP_SERVER_FAILED, message)
    };
    match (status, error) {
        // It ended before it had answered.
        (Status::Exited(code), Some(McpError::Ended | McpError::NotStarted(_)) | None) => {
            broken(format!("exited with code {code} before it answered")).with(facts::EXIT_CODE, code)
        }
        (Status::Exited(_) | Status::Killed, Some(error)) => broken(error.to_string()),
        // A limit, a signal or a cancellation says more than that the pipe has ended.
        _ => {
            let ran = RunConditions { check: true, limit, loopback, has_network, refusal };
            match judge(&program, outcome, (&output, &outputs), &ran) {
                Err(failure) => failure,
                Ok(_) => broken("ended before it answered".to_owned()),
            }
        }
    }
}

/// Whether what a server wrote in its view may be less than it has said: it was ended while it still worked, and not because its time after the answer was over.
pub(super) fn is_cut(status: Status) -> bool {
    match status {
        Status::Exited(_) | Status::Killed => false,
        Status::Signalled(_) | Status::TimedOut | Status::DiskLimit(_) | Status::Lost => true,
    }
}

/// The people and the output behind a server.
struct ServerHost {
    server: String,
    /// `None` where people are not asked.
    asker: Option<Asker>,
    output: Arc<dyn Output>,
    timer: Arc<PausableTimer>,
}

impl Host for ServerHost {
    fn ask(&self, Question { message, schema }: Question) -> BoxFuture<'static, Reply> {
        let Some(Asker { questions, calls, .. }) = self.asker.clone() else {
            return futures::future::ready(Reply::Cancelled).boxed();
        };
        let schema = schema.to_string();
        if message.len() + schema.len() > MAX_QUESTION {
            return futures::future::ready(Reply::Cancelled).boxed();
        }
        let first = message.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        let title: String = format!("{}: {first}", self.server).chars().take(MAX_TITLE).collect();
        let form = Form { title, description: message, schema };
        let timer = Arc::clone(&self.timer);
        async move {
            // A permit for each question that is open: too many calls wait already.
            let Ok(_permit) = calls.try_acquire_owned() else { return Reply::Cancelled };
            // Dropped after the receiver, also when the server does not wait any more.
            let _withdrawn = WithdrawOnDrop(questions.clone());
            let Ok(reply) = questions.ask(form, None) else { return Reply::Cancelled };
            let _paused = timer.stop();
            match reply.await {
                Ok(PersonsReply::Answer(answer)) => {
                    let answer = answer.as_json().and_then(|json| belay_json::read(json).ok());
                    answer.map_or(Reply::Cancelled, Reply::Answer)
                }
                Ok(PersonsReply::Declined(_)) => Reply::Declined,
                Ok(PersonsReply::TimedOut(_)) | Err(_) => Reply::Cancelled,
            }
        }
        .boxed()
    }

    fn report(&self, line: &str) {
        self.output.write(Stream::Stderr, format!("{line}\n").as_bytes());
    }
}

/// Withdraws a question whose reply is not waited for any more.
struct WithdrawOnDrop(Questions);

impl Drop for WithdrawOnDrop {
    fn drop(&mut self) {
        self.0.withdraw_abandoned();
    }
}

/// The timer of a command, which stands still while questions are open.
struct PausableTimer(Mutex<(Option<Timer>, usize)>);

impl PausableTimer {
    fn new(timer: io::Result<Timer>) -> Self {
        let timer =
            timer.inspect_err(|error| tracing::warn!(%error, "The time limit of a server runs also while it asks"));
        Self(Mutex::new((timer.ok(), 0)))
    }

    /// Stops it until the guard is dropped.
    fn stop(self: &Arc<Self>) -> PausedTimer {
        self.change(|open| *open += 1);
        PausedTimer(Arc::clone(self))
    }

    fn change(&self, change: impl FnOnce(&mut usize)) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (timer, open) = &mut *held;
        let was_open = *open > 0;
        change(open);
        let told = match (timer, was_open, *open > 0) {
            (Some(timer), false, true) => timer.stop(),
            (Some(timer), true, false) => timer.go_on(),
            _ => Ok(()),
        };
        if let Err(error) = told {
            tracing::warn!(%error, "Cannot change the time limit of a server");
        }
    }
}

/// Keeps the timer still while a question is open.
struct PausedTimer(Arc<PausableTimer>);

impl Drop for PausedTimer {
    fn drop(&mut self) {
        self.0.change(|open| *open -= 1);
    }
}

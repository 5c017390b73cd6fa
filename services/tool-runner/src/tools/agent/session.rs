//! A run of an agent: it is started, given its task, read, and ended when it goes on after its final event.

use std::{
    io::{self, PipeReader, PipeWriter},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use belay_agent_output::Reader;
use belay_proto::v1::{ErrorClass, tool_call_output::Stream};
use belay_reasons as reasons;
use belay_sandbox::{Mount, MountKind};
use futures::FutureExt as _;
use tokio::{
    io::AsyncWriteExt as _,
    net::unix::pipe::{Receiver, Sender},
    time::{Instant, sleep_until},
};

use super::{
    configured::ConfiguredAgent,
    outcome::{self, Ended},
    preset::{command, config_target},
    prompt::{self, PromptFile},
};
use crate::{
    Invocation, Output, ToolFailure, ToolResult,
    tools::run_terminal::{self, Additions, ServerClient},
};

/// The longest line that is kept, in bytes.
const MAX_LINE: usize = 1 << 20;

/// How many bytes are read at a time.
const READ_BYTES: usize = 16 << 10;

/// Runs an agent on a task.
pub(super) async fn call(configured: Arc<ConfiguredAgent>, invocation: Invocation) -> ToolResult {
    let agent = &configured.agent;
    if let Some(why) = configured.missing_config() {
        let message = format!("The agent `{}` cannot run: {why}.", agent.name);
        return Err(ToolFailure::new(ErrorClass::AgentUnavailable, reasons::AGENT_FAILED, message));
    }
    let task = invocation.arguments["task"].as_str().unwrap_or_default().to_owned();
    let prompt = configured.prompts_in.clone().map(|directory| write_prompt(directory, task.clone()));
    let prompt = match prompt {
        Some(prompt) => Some(prompt.await?),
        None => None,
    };
    let config = agent.config_dir.clone().map(|source| Mount {
        source,
        target: config_target(agent.format).into(),
        kind: MountKind::Scratch,
    });
    let additions = Additions {
        mounts: config.into_iter().chain(prompt.as_ref().map(PromptFile::mount)).collect(),
        env: prompt.iter().map(|_| (prompt::VARIABLE.to_owned(), PromptFile::target().into())).collect(),
        max_tokens: agent.max_tokens,
    };
    let heard = Arc::new(Heard {
        reader: Mutex::new(Some(Reader::new(agent.format))),
        is_over: AtomicBool::new(false),
        unread: OnceLock::new(),
    });
    let (kept, output, linger) = (Arc::clone(&heard), Arc::clone(&invocation.output), agent.linger);
    let client = move |_asker| -> ServerClient {
        Box::new(move |from, to, _timer| exchange(from, to, task, kept, output, linger).boxed())
    };
    let arguments = command(agent, &invocation.arguments);
    let invocation = Invocation { arguments, reveals: agent.reveals.clone(), ..invocation };
    let ran = configured.terminal.serve(invocation, additions, client).await;
    let ran = ran.map_err(|failure| of_settings(&agent.name, failure))?;
    drop(prompt);
    if let Some(why) = heard.unread.get() {
        return Err(run_terminal::lost(&ran.program, why));
    }
    let reader = heard.lock().take().unwrap_or_else(|| Reader::new(agent.format));
    let (report, lines, shown) = reader.finish();
    let ended = Ended { ran, report, lines, shown, was_over: heard.is_over.load(Ordering::Acquire) };
    outcome::of(agent, ended, configured.clock.now_micros())
}

/// The failure of a command that did not start, about the settings that it is made of: the plan has given no such arguments.
fn of_settings(agent: &str, failure: ToolFailure) -> ToolFailure {
    let Some((argument, why)) = failure.message.strip_prefix("arguments/").and_then(|rest| rest.split_once(": "))
    else {
        return failure;
    };
    let field = argument.split('/').next().unwrap_or(argument);
    let message = format!("The agent `{agent}` cannot run (`agents.{agent}.{field}` in the settings): {why}");
    ToolFailure { message, ..failure }
}

async fn write_prompt(directory: PathBuf, task: String) -> Result<PromptFile, ToolFailure> {
    let written = tokio::task::spawn_blocking(move || PromptFile::write(&directory, &task)).await;
    let error = match written {
        Ok(Ok(file)) => return Ok(file),
        Ok(Err(error)) => error,
        Err(error) => io::Error::other(error),
    };
    let reason = crate::disk_errors::disk_reason(&error).unwrap_or(reasons::INTERNAL);
    let class = if reason == reasons::INTERNAL { ErrorClass::Internal } else { ErrorClass::Transient };
    let message =
        format!("The task of the agent cannot be written into the state directory of the tool runner: {error}.");
    Err(ToolFailure::new(class, reason, message))
}

/// What has been heard of an agent.
struct Heard {
    reader: Mutex<Option<Reader>>,
    /// Whether it is ended, where it is, because it goes on after its final event.
    is_over: AtomicBool,
    /// Why it could not be read.
    unread: OnceLock<String>,
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Option<Reader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a line.
    fn line(&self, line: &str, output: &dyn Output) {
        if let Some(reader) = &mut *self.lock() {
            output.write(Stream::Stdout, reader.line(line).as_bytes());
        }
    }

    fn long_line(&self, beginning: &str, output: &dyn Output) {
        if let Some(reader) = &mut *self.lock() {
            output.write(Stream::Stdout, reader.long_line(beginning).as_bytes());
        }
    }

    fn ends(&self) -> u32 {
        self.lock().as_ref().map_or(0, Reader::ends)
    }

    fn has_ended(&self) -> bool {
        self.lock().as_ref().is_some_and(Reader::has_ended)
    }
}

/// Gives an agent its task, and reads what it writes. Returns how long it may go on.
async fn exchange(
    from: PipeReader,
    to: PipeWriter,
    task: String,
    heard: Arc<Heard>,
    output: Arc<dyn Output>,
    linger: Duration,
) -> Duration {
    let pipes = Receiver::from_owned_fd(from.into()).and_then(|from| Ok((from, Sender::from_owned_fd(to.into())?)));
    let (from, mut to) = match pipes {
        Ok(pipes) => pipes,
        Err(error) => {
            // It is ended, and that is no cancellation.
            let _ = heard.unread.set(error.to_string());
            return Duration::ZERO;
        }
    };
    let give = async move {
        // An agent that does not read it does without.
        let _ = to.write_all(task.as_bytes()).await;
        drop(to);
    };
    let read = listen(from, &heard, &*output, linger);
    tokio::pin!(give, read);
    let mut is_given = false;
    loop {
        tokio::select! {
            () = &mut give, if !is_given => is_given = true,
            is_over = &mut read => {
                // One that has closed its output may go on as long as one that has not.
                heard.is_over.store(heard.has_ended(), Ordering::Release);
                return match (is_over, heard.has_ended()) {
                    (true, _) => Duration::ZERO,
                    (false, true) => linger,
                    // It has no limit but its own.
                    (false, false) => Duration::MAX,
                };
            }
        }
    }
}

/// Reads an agent's output to its end, or until it has gone on for too long after its final event; whether that is so.
async fn listen(from: Receiver, heard: &Heard, output: &dyn Output, linger: Duration) -> bool {
    let mut lines = Lines::default();
    let mut over_at: Option<Instant> = None;
    let mut ends = 0;
    loop {
        let over = async {
            match over_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = over => return true,
            ready = from.readable() => if ready.is_err() { return false },
        }
        let mut piece = [0; READ_BYTES];
        match from.try_read(&mut piece) {
            Ok(0) => {
                lines.finish(heard, output);
                return false;
            }
            Ok(read) => lines.add(&piece[..read], heard, output),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
        let (has_ended, ends_now) = (heard.has_ended(), heard.ends());
        // It may have begun anew and ended again meanwhile.
        let since_then = over_at.filter(|_| ends_now == ends);
        over_at = has_ended.then(|| since_then.unwrap_or_else(|| Instant::now() + linger));
        ends = ends_now;
        // One that is always ready yields to other tasks.
        tokio::task::yield_now().await;
    }
}

/// Cuts bytes into lines.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    /// Whether the line is too long, and its rest is dropped.
    is_long: bool,
}

impl Lines {
    fn add(&mut self, bytes: &[u8], heard: &Heard, output: &dyn Output) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        let first = pieces.next().unwrap_or_default();
        self.keep(first);
        for piece in pieces {
            self.end(heard, output);
            self.keep(piece);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.line.len());
        self.is_long |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The output has ended: what stands there without an end is a line too.
    fn finish(&mut self, heard: &Heard, output: &dyn Output) {
        if !self.line.is_empty() {
            self.end(heard, output);
        }
    }

    /// The line has ended.
    fn end(&mut self, heard: &Heard, output: &dyn Output) {
        let text = String::from_utf8_lossy(self.line.strip_suffix(b"\r").unwrap_or(&self.line));
        if self.is_long {
            heard.long_line(&text, output)
        } else {
            heard.line(&text, output)
        }
        if self.line.capacity() > READ_BYTES {
            self.line = Vec::new();
        }
        self.line.clear();
        self.is_long = false;
    }
}

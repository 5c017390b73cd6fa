//! The `belay` command as people and scripts use it: its output line by line, its exit code, its signals.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{binary, watchdog::UnderWay};

/// The maximum time without a line, in every wait.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum time of a wait, however many lines there are: a command that says the same again and again waits for something too.
const LONGEST: Duration = Duration::from_secs(240);

/// A user's folder: plans in it, and a state directory of its own.
#[derive(Debug)]
pub struct Home {
    folder: TempDir,
    _under_way: UnderWay,
}

impl Home {
    /// An empty one.
    ///
    /// # Panics
    /// When no temporary folder can be created.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self { folder, _under_way: UnderWay::begin() }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Writes a file, and gives its path as an argument.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file can be written");
        path.into_os_string().into_string().expect("temporary folders have plain names")
    }

    /// `belay` with a clean environment, and without a terminal.
    pub fn belay<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BELAY_")) {
            command.env_remove(name);
        }
        command.env("BELAY_STATE_DIR", self.state());
        command.env("XDG_CONFIG_HOME", self.path("config")).env("XDG_DATA_HOME", self.path("data"));
        command
    }

    /// Runs `belay` to its end.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> CommandEnd {
        RunningCommand::start(self.belay(arguments)).end()
    }

    /// Runs `belay … -o json` to its end, and parses its output.
    ///
    /// # Panics
    /// When that is not JSON, or standard error is not empty.
    pub fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let ended = self.run(arguments.iter().chain(&["-o", "json"]));
        assert_eq!(ended.talk, "", "programs read standard output alone");
        (ended.code, serde_json::from_str(&ended.out).expect("JSON on standard output"))
    }

    /// Asks until the answer, in JSON, is right, and returns it.
    ///
    /// # Panics
    /// When it is not after as many questions as take longer than anything takes on a busy machine.
    pub fn json_until(&self, arguments: &[&str], is_right: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..2_000 {
            let (code, answer) = self.json(arguments);
            if code == 0 && is_right(&answer) {
                return answer;
            }
            last = answer;
        }
        panic!("{arguments:?}: {last}");
    }

    /// Starts `belay` in the background.
    pub fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> RunningCommand {
        RunningCommand::start(self.belay(arguments))
    }

    /// Starts `belay serve`, and waits until it serves.
    pub fn serve(&self) -> RunningCommand {
        self.serve_with(&[])
    }

    /// The same with more arguments.
    pub fn serve_with(&self, more: &[&str]) -> RunningCommand {
        let mut server = self.start(["serve"].iter().chain(more));
        server.wait_for("keeps data in");
        server
    }

    /// The events of an execution, from the JSON output of `executions watch`.
    ///
    /// # Panics
    /// When the output is not JSON, or has a gap.
    pub fn events(&self, id: &str) -> Vec<Value> {
        let ended = self.run(["executions", "watch", id, "-o", "jsonl"]);
        events(&ended.out)
    }
}

/// Events, one a line.
///
/// # Panics
/// When one is not JSON, or is missing.
pub fn events(lines: &str) -> Vec<Value> {
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line is an event")).collect();
    for (place, event) in events.iter().enumerate() {
        assert_eq!(event["sequence"], (place + 1).to_string(), "events have no gap");
    }
    events
}

/// The number of events of this kind and, unless it is empty, of this step.
pub fn count(events: &[Value], kind: &str, step: &str) -> usize {
    events.iter().filter(|event| event.get(kind).is_some() && (step.is_empty() || event["stepId"] == step)).count()
}

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub talk: String,
}

/// A running command; dropping this value kills it.
#[derive(Debug)]
pub struct RunningCommand {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    lines: Option<Receiver<String>>,
    talk: Receiver<String>,
    seen: String,
    talked: String,
}

impl RunningCommand {
    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: Command) -> Self {
        let mut running = Self::start_unread(command);
        running.lines = running.out.take().map(lines);
        running
    }

    /// Starts it without reading its output; [`Self::close_output`] closes the pipe.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_unread(mut command: Command) -> Self {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command can be started");
        let out = child.stdout.take().map(BufReader::new);
        let talk = lines(BufReader::new(child.stderr.take().expect("it is piped")));
        Self { child, out, lines: None, talk, seen: String::new(), talked: String::new() }
    }

    /// Waits for a line of standard output that contains these words.
    ///
    /// # Panics
    /// When it does not come.
    pub fn wait_for(&mut self, words: &str) -> String {
        let lines = self.lines.as_ref().expect("the output is read");
        wait(lines, words, &mut self.seen).unwrap_or_else(|| {
            panic!("{words:?} did not come after:\n{}\n{}", self.seen, self.talk.try_iter().collect::<String>())
        })
    }

    /// Waits for a line of standard error that contains these words.
    ///
    /// # Panics
    /// When it does not come.
    pub fn wait_for_talk(&mut self, words: &str) -> String {
        wait(&self.talk, words, &mut self.talked)
            .unwrap_or_else(|| panic!("{words:?} was not said after:\n{}", self.talked))
    }

    /// Reads one line, then closes the pipe.
    ///
    /// # Panics
    /// When there is none.
    pub fn close_output(&mut self) -> String {
        let mut line = String::new();
        let mut out = self.out.take().expect("nobody else reads the output");
        assert_ne!(out.read_line(&mut line).expect("the output is text"), 0, "it has something to say");
        line
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it has already ended.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(mut self) {
        self.stop();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it prints nothing for a minute and does not end, or does not end within four.
    pub fn end(mut self) -> CommandEnd {
        if let Some(lines) = self.lines.take() {
            rest(&lines, &mut self.seen);
        }
        let mut talk = std::mem::take(&mut self.talked);
        rest(&self.talk, &mut talk);
        let status = self.child.wait().expect("a child can be waited for");
        CommandEnd { code: status.code().unwrap_or(-1), out: std::mem::take(&mut self.seen), talk }
    }

    fn stop(&mut self) {
        // An error means that it has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lines as they arrive, each with its line end.
fn lines(mut reader: BufReader<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The next line of a wait that began then.
fn next(lines: &Receiver<String>, began: Instant) -> Result<String, RecvTimeoutError> {
    lines.recv_timeout(TIMEOUT.min(LONGEST.saturating_sub(began.elapsed())))
}

/// The first line that contains these words; all lines up to it are added to `seen`. `None` when it does not come.
fn wait(lines: &Receiver<String>, words: &str, seen: &mut String) -> Option<String> {
    let began = Instant::now();
    while let Ok(line) = next(lines, began) {
        seen.push_str(&line);
        if line.contains(words) {
            return Some(line);
        }
    }
    None
}

/// Reads everything until the other end is closed.
fn rest(lines: &Receiver<String>, into: &mut String) {
    let began = Instant::now();
    loop {
        match next(lines, began) {
            Ok(line) => into.push_str(&line),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => panic!("the command does not end; so far:\n{into}"),
        }
    }
}

/// The folder of this repository.
///
/// # Panics
/// Whether commands have the Python of this machine. Where they have none, the test says so and is skipped, which CI does not do.
pub fn has_python(test: &str) -> bool {
    let is_there = Path::new("/usr/bin/python3").exists();
    if !is_there {
        let is_ci = std::env::var("CI").as_deref() == Ok("true");
        assert!(!is_ci, "/usr/bin/python3 is not installed, and CI skips nothing");
        eprintln!("{test}: skipped, since there is no /usr/bin/python3 here");
    }
    is_there
}

/// When this package has been moved out of it.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this package is tests/e2e")
}

//! A workspace, a view of it, and a tool to call in it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use belay_proto::v1::{TraceContext, tool_call_output::Stream};
use belay_sqlite::{Lane, Threads};
use belay_tool_runner::{
    Enforcement, Invocation, MayRead, Output, SandboxSettings, StopRequest, Tool, ToolFailure, ToolResult, ViewHandle,
    tools::RunTerminal,
};
use belay_workspace::Workspace;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// The sandbox of this machine, probed once.
pub(crate) fn enforcement() -> &'static Enforcement {
    static PROBED: OnceLock<Enforcement> = OnceLock::new();
    PROBED.get_or_init(|| Enforcement::probed(SandboxSettings::default()))
}

/// A workspace with one file, whose views commands run in.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) workspace: PathBuf,
    opened: Workspace,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The sandbox, not file modes, has to keep commands out.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("file"), "as it was\n").unwrap();
        let opened = Workspace::open(&workspace, &[]).unwrap();
        Self { folder, workspace, opened }
    }

    /// A new view.
    pub(crate) fn view(&self) -> ViewHandle {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("call-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        ViewHandle::new(Box::new(self.opened.view(&id).unwrap()), Lane::new(Threads::Real, 4))
    }

    /// Calls the tool in a new view.
    pub(crate) fn call(&self, arguments: Value) -> ToolResult {
        self.call_in(&self.view(), arguments)
    }

    /// Calls the tool in a view.
    pub(crate) fn call_in(&self, view: &ViewHandle, arguments: Value) -> ToolResult {
        block_on(RunTerminal::new(enforcement()).call(invocation(arguments, view, Arc::new(Recorder::default()))))
    }

    pub(crate) fn fail(&self, arguments: Value) -> ToolFailure {
        self.call(arguments).expect_err("the command fails")
    }

    /// Runs a shell script that has to succeed, and returns its standard output.
    pub(crate) fn script(&self, script: &str) -> String {
        let result = self.call(sh(script)).unwrap_or_else(|failure| panic!("{failure:?}"));
        result["stdout"].as_str().unwrap().to_owned()
    }

    /// Removes what views have left.
    pub(crate) fn clear(&self) {
        assert!(self.opened.has_to_clear());
        self.opened.clear().unwrap();
    }

    /// A file as a view shows it after a command.
    pub(crate) fn read_in(&self, view: &ViewHandle, path: &str) -> String {
        let path = belay_workspace::RelPath::parse(path).unwrap();
        let bytes = block_on(view.work(move |view| view.read(&path, 0, None))).unwrap().unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

pub(crate) fn sh(script: &str) -> Value {
    json!({"command": ["sh", "-c", script]})
}

pub(crate) fn invocation(arguments: Value, view: &ViewHandle, output: Arc<dyn Output>) -> Invocation {
    Invocation {
        name: "namespaces/default/executions/e/steps/s/calls/1.1".into(),
        attempt: 1,
        arguments,
        view: Some(view.clone()),
        output,
        questions: None,
        trace: TraceContext { traceparent: "00-aa-bb-01".into(), tracestate: "vendor=1".into() },
        context: None,
        enforced: Arc::default(),
        // Long enough that no test depends on it: a test of another limit hangs if that limit is broken.
        limit: Duration::from_secs(86_400),
        stop: StopRequest::never(),
        never_began: Arc::default(),
        network: None,
        reveals: Vec::new(),
        asks: false,
        network_use: Arc::default(),
        may_read: MayRead::default(),
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Records output.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<(Stream, Vec<u8>)>>);

impl Recorder {
    pub(crate) fn of(&self, wanted: Stream) -> Vec<u8> {
        let recorder = self.0.lock().unwrap();
        recorder.iter().filter(|(stream, _)| *stream == wanted).flat_map(|(_, bytes)| bytes.clone()).collect()
    }
}

impl Output for Recorder {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        self.0.lock().unwrap().push((stream, bytes.to_vec()));
    }

    fn hide(&self, _values: &[String]) {}
}

/// Forwards output to a channel.
pub(crate) struct Forwarder(mpsc::UnboundedSender<Vec<u8>>);

impl Forwarder {
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Vec<u8>>) {
        let (teller, forwarder) = mpsc::unbounded_channel();
        (Arc::new(Self(teller)), forwarder)
    }
}

impl Output for Forwarder {
    fn write(&self, _stream: Stream, bytes: &[u8]) {
        let _ = self.0.send(bytes.to_vec());
    }

    fn hide(&self, _values: &[String]) {}
}

/// A number of seconds that no other process sleeps for, by which the processes are found.
pub(crate) fn nap() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 2_000_000 + process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The host's processes whose command is `sleep <nap>`.
pub(crate) fn sleepers(nap: &str) -> Vec<i32> {
    let command = format!("sleep\0{nap}\0");
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == command.as_bytes()))
        .collect()
}

//! A cancelled execution: programs are asked to end, have a while for it, and are killed when an operator wants that.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use belay_e2e::{
    Home,
    belay::{RunningCommand, count},
};
use serde_json::Value;

const SETTINGS: &str = "commands: {stop_grace: GRACE}";

/// A program that says `ready`, and that runs until it is told to end.
fn plan(trap: &str, nap: &str) -> String {
    format!(
        "id: long\nsteps:\n\
         - {{id: first, tool: write_file, arguments: {{path: made, content: x}}, compensate: {{tool: delete_file, arguments: {{path: made}}}}}}\n\
         - id: serve\n  tool: run_terminal\n  depends_on: [first]\n  verbatim: [command]\n  arguments:\n    command: [sh, -c, \"trap '{trap}' TERM; echo changed > made; sleep {nap} & echo ready; wait; while :; do sleep {nap} & wait; done\"]\n"
    )
}

struct Scene {
    home: Home,
    run: RunningCommand,
}

impl Scene {
    /// An execution whose program is ready.
    fn new(trap: &str, nap: &str, grace: &str) -> Self {
        let home = Home::new();
        fs::create_dir(home.path("w")).unwrap();
        let plan = home.file("plan.yaml", plan(trap, nap));
        let settings = home.file("config.yaml", SETTINGS.replace("GRACE", grace));
        let arguments =
            ["run", &plan, "--workspace", "w", "--config", &settings, "--approve", "auto", "--id", "x", "-o", "text"];
        let mut run = home.start(arguments);
        run.wait_for("│ ready");
        wait_until_running(nap);
        Self { home, run }
    }

    /// The events of the execution, which has to be cancelled.
    fn ended(self) -> (Home, Vec<Value>) {
        let ended = self.run.end();
        assert_eq!(ended.code, 1, "{ended:?}");
        let (_, execution) = self.home.json(&["executions", "get", "x"]);
        assert_eq!(execution["state"], "STATE_CANCELLED");
        let events = self.home.events("x");
        (self.home, events)
    }
}

/// Whether a process sleeps so long.
fn is_running(nap: &str) -> bool {
    let sleeps = |folder: &Path| {
        let words = fs::read(folder.join("cmdline")).unwrap_or_default();
        words == format!("sleep\0{nap}\0").into_bytes()
    };
    fs::read_dir("/proc").unwrap().flatten().any(|entry| sleeps(&entry.path()))
}

/// The trace of a program that was asked to end, by which it is seen that it was: nothing else of a cancelled call stays.
fn tidying(test: u32) -> String {
    format!("1.{test}{:07}", std::process::id())
}

/// Watches whether a program tidies up.
struct Watch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<bool>,
}

impl Watch {
    fn start(test: u32) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let look = move || {
            while !over.load(Ordering::Relaxed) {
                if is_running(&tidying(test)) {
                    return true;
                }
                // It tidies up for a second or more, and other tests need the processor.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            false
        };
        Self { is_over, thread: std::thread::spawn(look) }
    }

    /// Whether it has done so until now.
    fn has_seen(self) -> bool {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// How long the programs of a test sleep, by which their processes are found: tests run side by side.
fn nap(test: u32) -> String {
    format!("{}.{}", 86_400 + test, std::process::id())
}

/// The shell may not have executed it yet, or again.
fn wait_until_running(nap: &str) {
    while !is_running(nap) {
        std::thread::yield_now();
    }
}

/// S1-26, S1-29: every process of a program is asked to end, and it can do what it has to then. Once the execution is cancelled no process is left, what the program
/// changed is not there, and what was done before is undone.
#[test]
fn a_cancelled_program_can_tidy_up() {
    let scene = Scene::new(&format!("sleep {}; exit 0", tidying(1)), &nap(1), "1h");
    let watch = Watch::start(1);
    let cancelled = scene.home.run(["executions", "cancel", "x", "--reason", "enough"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert!(!is_running(&nap(1)), "no process is left when the cancellation is acknowledged");
    assert!(watch.has_seen(), "it was asked, and had its time");
    let (home, events) = scene.ended();
    assert!(!home.path("w/made").exists(), "what was done before was undone");
    assert_eq!(count(&events, "stepCompleted", "first~compensate"), 1);
    let asked: Vec<_> = events.iter().filter_map(|event| event.get("executionCancelRequested")).collect();
    assert_eq!(asked, [&serde_json::json!({"reason": "enough"})]);
    assert_eq!(count(&events, "stepRetryScheduled", ""), 0, "nothing is tried again");
}

/// S1-26: a program that does not listen is killed when its time is over, which is the operator's to set.
#[test]
fn a_program_that_does_not_end_is_killed() {
    let scene = Scene::new(&format!("sleep {}", tidying(2)), &nap(2), "1s");
    let watch = Watch::start(2);
    let cancelled = scene.home.run(["executions", "cancel", "x"]);
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    assert!(!is_running(&nap(2)));
    assert!(watch.has_seen(), "it was asked first");
    scene.ended();
}

/// S1-27: a kill does not wait, not even for a program that has an hour, and undoes nothing.
#[test]
fn a_killed_program_is_not_asked() {
    for asked_first in [false, true] {
        let scene = Scene::new(&format!("sleep {}", tidying(3)), &nap(3), "1h");
        let watch = Watch::start(3);
        let cancelling = asked_first.then(|| {
            let cancelling = scene.home.start(["executions", "cancel", "x"]);
            while scene.home.json(&["executions", "get", "x"]).1["state"] != "STATE_CANCELLING" {}
            cancelling
        });
        wait_until_running(&nap(3));
        if asked_first {
            let again = scene.home.run(["executions", "cancel", "x"]);
            assert!(again.code == 2 && again.talk.contains("A cancellation with `kill` does not wait"), "{again:?}");
        }
        let killed = scene.home.run(["executions", "cancel", "x", "--kill", "--reason", "now"]);
        assert_eq!(killed.code, 0, "{killed:?}");
        assert!(!is_running(&nap(3)));
        if let Some(cancelling) = cancelling {
            assert_eq!(cancelling.end().code, 0, "the first command sees the end too");
        }
        assert_eq!(watch.has_seen(), asked_first);
        let (home, events) = scene.ended();
        assert_eq!(
            fs::read_to_string(home.path("w/made")).unwrap(),
            "x",
            "nothing is undone, and nothing is committed"
        );
        let kills: Vec<_> = events.iter().filter(|event| event["executionCancelRequested"]["kill"] == true).collect();
        assert_eq!(kills.len(), 1);
        assert_eq!(count(&events, "executionCancelRequested", ""), 1 + usize::from(asked_first));
    }
}

/// B-06, B-07: the process that runs everything is killed while a program is asked to end. Once it is started again and the execution is cancelled, nothing
/// of what the program has written is left in the workspace.
#[test]
fn a_cancelled_program_leaves_nothing_when_everything_was_killed() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let settings = home.file("config.yaml", SETTINGS.replace("GRACE", "1h"));
    // Nothing else is done in the workspace: the next call there would remove it as well.
    let nap = nap(5);
    let plan = home.file(
        "plan.yaml",
        format!("id: long\nsteps:\n- {{id: a, tool: run_terminal, arguments: {{command: [sh, -c, 'trap true TERM; echo x > made; echo ready; while :; do sleep {nap} & wait; done']}}}}\n"),
    );
    let mut server = home.serve_with(&["--config", &settings]);
    let mut run = home.start(["run", &plan, "--workspace", "w", "--approve", "auto", "--id", "x", "-o", "text"]);
    run.wait_for("│ ready");
    let cancelling = home.start(["executions", "cancel", "x"]);
    while home.json(&["executions", "get", "x"]).1["state"] != "STATE_CANCELLING" {}
    server.kill();
    drop(run);
    drop(cancelling);
    let views = home.path("w/.belay/views");
    assert_eq!(fs::read_dir(&views).unwrap().count(), 1, "the program's view is left");
    server = home.serve_with(&["--config", &settings]);
    home.run(["executions", "watch", "x"]);
    assert_eq!(home.json(&["executions", "get", "x"]).1["state"], "STATE_CANCELLED");
    assert_eq!(fs::read_dir(&views).unwrap().count(), 0);
    drop(server);
}

/// A program outside of Belay's control that ends well within its time has done what it was to do: its result counts, and nothing is unknown.
#[test]
fn what_completes_when_it_is_asked_to_end_has_completed() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let tools = "
tools:
  send:
    command: [sh, -c, 'trap \"echo sent; exit 0\" TERM; sleep 86404.04 & echo ready; wait']
    output: text
    recovery: manual
commands: {stop_grace: 1h}
";
    let settings = home.file("config.yaml", tools);
    let plan = home.file("plan.yaml", "{id: p, steps: [{id: send, tool: send}]}");
    let arguments = ["run", &plan, "--workspace", "w", "--config", &settings, "--approve", "auto", "--id", "x"];
    let mut run = home.start(arguments);
    run.wait_for("│ ready");
    let late = home.run(["executions", "cancel", "x"]);
    assert_eq!(late.code, 2, "{late:?}");
    assert!(late.talk.contains("it ended before it could be cancelled"), "{late:?}");
    assert_eq!(run.end().code, 0);
    let (_, execution) = home.json(&["executions", "get", "x"]);
    assert_eq!(execution["state"], "STATE_COMPLETED");
    assert_eq!(execution["steps"][0]["output"], "ready\nsent", "{execution}");
}

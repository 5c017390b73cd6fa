//! Commands that try to fill the disk on which the server keeps its state.

use std::{fs, path::PathBuf, process::Command};

use belay_e2e::{
    Home,
    belay::{CommandEnd, count},
};
use serde_json::json;

/// A small file system over a whole home, with state directory, settings, workspace and all; gone with this value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(home: &Home) -> Option<Self> {
        let folder = home.path("");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=320m,nr_inodes=100000,mode=755", "none"])
            .arg(&folder)
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// A plan whose steps are shell scripts, each on its own.
fn plan(home: &Home, id: &str, scripts: &[&str]) -> String {
    let step = |(n, script): (usize, &&str)| json!({"id": format!("s{n}"), "tool": "run_terminal", "arguments": {"command": ["sh", "-c", script]}});
    let steps: Vec<_> = scripts.iter().enumerate().map(step).collect();
    home.file(&format!("{id}.yaml"), json!({"id": id, "parallelism": 4, "steps": steps}).to_string())
}

fn run(home: &Home, id: &str, scripts: &[&str]) -> CommandEnd {
    let plan = plan(home, id, scripts);
    home.run(["run", &plan, "--id", id, "--workspace", "w", "--approve", "auto"])
}

/// Writes for ever, and no faster than an ordinary disk: memory would be full before a launcher is scheduled on a machine at work with other
/// tests.
const SLOW: &str = "slow() { while :; do head -c 1000000 /dev/zero; sleep 0.005; done; }\necho begun\n";

/// Each runs until it is ended.
const FILLS: [(&str, &str); 6] = [
    ("fallocate", "for n in 1 2 3 4 5 6; do fallocate -l 100M $n; done; slow > rest"),
    ("several-writers", "for n in 1 2 3; do slow > $n & done; wait"),
    ("many-files", "n=0; while :; do : > $n; n=$((n + 1)); test $((n % 100)) -gt 0 || sleep 0.005; done"),
    ("no-name", "exec 3> a; rm a; slow >&3"),
    ("sparse", "truncate -s 10G a; slow | dd of=a bs=1M conv=notrunc"),
    ("scratch", "slow > /tmp/a"),
];

/// A command that fills the disk under the stores ends with its reason. The server lives, and what runs beside it continues.
#[test]
fn a_command_that_fills_the_disk_ends_alone() {
    let home = Home::new();
    let Some(_disk) = SmallDisk::over(&home) else {
        return eprintln!(
            "a_command_that_fills_the_disk_ends_alone: skipped, since no file system can be mounted here"
        );
    };
    fs::create_dir(home.path("w")).unwrap();
    // Half of the disk: what writers take while the machine is at work with other things.
    home.file("config.yaml", "commands: {reserve: {size: 160MiB, files: 50000}}");
    let server = home.serve_with(&["--config", "config.yaml"]);
    for store in ["journal.db", "ledger.db", "gate.db"] {
        let ballast = home.state().join(format!("{store}.ballast"));
        assert_eq!(fs::metadata(ballast).unwrap().len(), 5 << 20, "a 64th of the disk");
    }
    // It writes something itself, and waits for the end of the others.
    let beside =
        plan(&home, "beside", &["head -c 1000000 /dev/zero > kept; while ! test -e /tmp/end; do sleep 0.1; done"]);
    let beside = home.start(["run", &beside, "--id", "beside", "--workspace", "w", "--approve", "auto"]);
    let beside_goes_on = |after: &str| {
        let (_, execution) = home.json(&["executions", "get", "beside"]);
        assert_eq!(execution["state"], "STATE_RUNNING", "after {after}: {execution:#}");
    };
    for (id, script) in FILLS {
        let ended = run(&home, id, &[&format!("{SLOW}{script}")]);
        assert_eq!(ended.code, 30, "{id}: {}", ended.talk);
        assert!(ended.talk.contains("DISK_LIMIT") && ended.talk.contains("commands.reserve."), "{id}: {}", ended.talk);
        let (_, execution) = home.json(&["executions", "get", id]);
        let failure = &execution["steps"][0]["failure"];
        assert_eq!(failure["code"], "DISK_LIMIT", "{execution:#}");
        assert_eq!(failure["lastOutput"]["stdout"], "begun\n", "{execution:#}");
        let events = home.events(id);
        let failed = events.iter().find_map(|event| event.get("toolCallFailed")).unwrap();
        let bounds = failed["receipt"]["writeBounds"].as_array().unwrap();
        let reserve = bounds.iter().find(|bound| bound["place"] == "reserve").unwrap();
        assert_eq!((&reserve["mechanism"], &reserve["bytes"]), (&json!("MECHANISM_WATCHER"), &json!("167772160")));
        beside_goes_on(id);
    }
    // Four at once.
    let together = ["a", "b", "/tmp/a", "~/a"].map(|file| format!("{SLOW}slow > {file}"));
    let ended = run(&home, "together", &together.each_ref().map(String::as_str));
    assert_eq!(ended.code, 30, "{}", ended.talk);
    assert_eq!(count(&home.events("together"), "toolCallFailed", ""), 4);
    // Nothing of all that is in the workspace, and the one beside has not noticed.
    let left: Vec<_> = fs::read_dir(home.path("w")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".belay"]);
    beside_goes_on("together");
    // Its scratch lies beside its view, which is the only one left.
    for view in fs::read_dir(home.path("w/.belay/views")).unwrap() {
        fs::write(view.unwrap().path().join("scratch/tmp/end"), "").unwrap();
    }
    assert_eq!(beside.end().code, 0);
    assert_eq!(fs::metadata(home.path("w/kept")).unwrap().len(), 1_000_000);
    server.signal(rustix::process::Signal::TERM);
    let ended = server.end();
    assert_eq!(ended.code, 0, "{}", ended.talk);
}

/// A budget names the setting that raises it, before the disk is near its end.
#[test]
fn a_command_over_its_budget_is_told_the_setting() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("config.yaml", "commands: {view: {size: 16MiB, files: 1000}, scratch: {tmp: 16MiB, home: 16MiB}}");
    for (id, script, setting) in [
        ("view", "while :; do head -c 1M /dev/zero >> a; head -c 1M /dev/zero >> b; done", "commands.view.size"),
        ("files", "n=0; while :; do : > $n; n=$((n + 1)); done", "commands.view.files"),
        (
            "tmp",
            "while :; do head -c 1M /dev/zero >> /tmp/a; head -c 1M /dev/zero >> /tmp/b; done",
            "commands.scratch.tmp",
        ),
    ] {
        let plan = plan(&home, id, &[script]);
        let ended =
            home.run(["run", &plan, "--id", id, "--workspace", "w", "--approve", "auto", "--config", "config.yaml"]);
        assert_eq!(ended.code, 30, "{id}: {}", ended.talk);
        assert!(ended.talk.contains("DISK_LIMIT") && ended.talk.contains(setting), "{id}: {}", ended.talk);
    }
}

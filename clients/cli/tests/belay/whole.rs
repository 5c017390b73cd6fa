//! The command with its services, inside of it or in a `belay serve` beside it.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{terminal::AtTerminal, text};

/// Writes a file, deletes another, and has a step after that.
const TIDY: &str = "
id: tidy
steps:
  - {id: write, tool: write_file, arguments: {path: new.txt, content: x}}
  - {id: tidy, tool: delete_file, arguments: {path: notes.txt}, depends_on: [write]}
  - {id: after, tool: noop, depends_on: [tidy]}
";

/// A user's folder: a state directory, a workspace with a file in it, a plan.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.path("work")).unwrap();
        std::fs::write(home.notes(), "hello\n").unwrap();
        home.write("plan.yaml", TIDY);
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn notes(&self) -> PathBuf {
        self.path("work/notes.txt")
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn belay(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
        for name in ["BELAY_SERVER", "BELAY_TOKEN", "BELAY_GATE", "BELAY_POLICY", "BELAY_LOG"] {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).env("NO_COLOR", "1");
        command.env("BELAY_STATE_DIR", self.path("state")).env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.belay(arguments).output().unwrap()
    }

    fn tidy(&self, flags: &[&str]) -> Output {
        let plan = ["run", "plan.yaml", "--workspace", "work"];
        self.run(&[&plan, flags].concat())
    }

    /// Starts a command and reads its output up to a line with these words.
    pub(crate) fn start(&self, arguments: &[&str], until: &str) -> RunningCommand {
        let mut child = self.belay(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        // What comes later is read, too, or the command would wait for it.
        let (lines, seen) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(|line| drop(lines.send(line))));
        let started = RunningCommand(child);
        let mut before = String::new();
        loop {
            match seen.recv_timeout(Duration::from_secs(60)) {
                Ok(line) if line.contains(until) => return started,
                Ok(line) => before = before + &line + "\n",
                Err(error) => panic!("{until:?} does not come ({error}), after:\n{before}"),
            }
        }
    }
}

/// A command under way; killed with this value.
pub(crate) struct RunningCommand(Child);

impl RunningCommand {
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub(crate) fn end(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn last_line(bytes: &[u8]) -> &str {
    text(bytes).lines().last().unwrap_or_default()
}

// S2-X-19: a deletion needs approval by default; where no person can be asked, the file stays.
#[test]
fn a_deletion_that_no_person_can_approve_does_not_happen() {
    let home = Home::new();
    for flags in [&["--approve", "fail"][..], &["--no-input"], &[]] {
        let output = home.tidy(flags);
        assert_eq!(output.status.code(), Some(33), "{}", text(&output.stderr));
        assert_eq!(last_line(&output.stderr), "code: NON_INTERACTIVE (belay explain NON_INTERACTIVE)");
        assert!(home.notes().exists() && home.path("work/new.txt").exists());
    }
}

// S2-X-18, S2-X-19: the policy may approve without a person; then the next step follows.
#[test]
fn a_deletion_that_the_policy_approves_goes_on() {
    let home = Home::new();
    let output = home.tidy(&["--approve", "auto", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["totals"]["completed"], 3);
    assert!(!home.notes().exists());

    home.write("strict.yaml", "non_interactive_policy: fail\n");
    std::fs::write(home.notes(), "hello\n").unwrap();
    let output = home.tidy(&["--approve", "auto", "--policy", "strict.yaml"]);
    assert_eq!(output.status.code(), Some(33), "{}", text(&output.stderr));
    assert!(home.notes().exists());
}

// Without a terminal, what needs approval in a copy is approved automatically, and the end says so; protected files are not.
#[test]
fn without_a_terminal_what_needs_approval_in_a_copy_is_approved() {
    let home = Home::new();
    let in_copy = |flags: &[&str]| {
        let mut command = home.belay(&[&["run", "plan.yaml", "--copy-of", "work"], flags].concat());
        command.env("XDG_DATA_HOME", home.path("data")).output().unwrap()
    };
    let output = in_copy(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (said, out) = (text(&output.stderr), text(&output.stdout));
    let copy = home.path("data/belay/copies/work-1");
    assert!(
        said.starts_with(
            "plan tidy: 3 steps, one at a time\n  write  write new.txt\n  tidy   delete notes.txt  after write\n"
        ),
        "{said}"
    );
    assert!(
        said.contains(&format!(
            " works in {}, a copy that is kept\nno terminal, and the workspace is a copy",
            copy.display()
        )),
        "{said}"
    );
    assert!(out.contains("\napproved automatically, asked by rule file_delete: 1 deleted (tidy)\n"), "{out}");
    assert!(home.notes().exists() && !copy.join("notes.txt").exists() && copy.join("new.txt").exists());
    assert_eq!(in_copy(&["--no-input"]).status.code(), Some(33));

    home.write(
        "plan.yaml",
        "{id: p, steps: [{id: hook, tool: write_file, arguments: {path: .git/hooks/pre-commit, content: x}}]}",
    );
    let output = in_copy(&[]);
    assert_eq!(output.status.code(), Some(33), "{}", text(&output.stderr));
}

// A mistyped state directory is not an empty one, and looking makes none; what needs no records works without.
#[test]
fn commands_that_read_make_no_state_directory() {
    let home = Home::new();
    let id = ["executions", "get", "x"];
    for reads in [
        &["executions", "list"][..],
        &id,
        &["executions", "watch", "x"],
        &["executions", "cancel", "x"],
        &["executions", "resume", "x"],
        &["approvals", "list"],
        &["approvals", "show", "x"],
        &["deny", "x", "--reason", "no"],
    ] {
        let output = home.run(&[reads, &["--state-dir", "bealy"]].concat());
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{reads:?}");
        let said = text(&output.stderr);
        assert!(
            said.starts_with("error: nothing is kept in bealy: ") && said.contains("code: STATE_DIR_MISSING"),
            "{said}"
        );
    }
    for works in [&["tools", "list"][..], &["plan", "validate", "plan.yaml"], &["run", "--dry-run", "plan.yaml"]] {
        let output = home.run(&[works, &["--state-dir", "bealy"]].concat());
        assert_eq!(output.status.code(), Some(0), "{works:?}: {}", text(&output.stderr));
    }
    assert!(!home.path("bealy").exists() && !home.path("state").exists());
    std::fs::create_dir(home.path("empty")).unwrap();
    assert_eq!(home.run(&["executions", "list", "--state-dir", "empty"]).status.code(), Some(2));
    assert_eq!(std::fs::read_dir(home.path("empty")).unwrap().count(), 0, "nor does it fill one");
}

// The rest of a list is had by its token, which JSON gives, or with all of it at once.
#[test]
fn lists_come_page_by_page_or_whole() {
    let home = Home::new();
    home.write("plan.yaml", "{id: p, steps: [{id: a, tool: noop}]}");
    let _server = home.start(&["serve"], "keeps data in");
    for id in ["e1", "e2", "e3"] {
        assert_eq!(home.run(&["run", "plan.yaml", "--id", id]).status.code(), Some(0));
    }
    let list = |flags: &[&str]| home.run(&[&["executions", "list"], flags].concat());
    let ids = |output: &Output| -> Vec<String> {
        text(&output.stdout).lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let first = list(&["--limit", "2"]);
    assert_eq!(ids(&first), ["e3", "e2"]);
    let page: Value = serde_json::from_slice(&list(&["--limit", "2", "-o", "json"]).stdout).unwrap();
    let token = page["nextPageToken"].as_str().unwrap();
    assert_eq!(text(&first.stderr), format!("more available: use --page-token {token} or --all\n"));
    let rest = list(&["--page-token", token]);
    assert_eq!((ids(&rest), text(&rest.stderr)), (vec!["e1".to_owned()], ""));
    assert_eq!(ids(&list(&["--all"])), ["e3", "e2", "e1"]);
    assert_eq!(list(&["--all", "--limit", "2"]).status.code(), Some(2));
    let wrong = list(&["--page-token", "nonsense"]);
    assert!(
        wrong.status.code() == Some(2) && text(&wrong.stderr).contains("--page-token: "),
        "{}",
        text(&wrong.stderr)
    );
    let none = home.run(&["executions", "list", "--namespace", "defualt"]);
    assert_eq!(
        text(&none.stderr),
        "namespace `defualt` has no executions; did you mean `default`?\nnext: belay executions list\n"
    );
    let none = home.run(&["approvals", "list", "--namespace", "team-x"]);
    assert!(text(&none.stderr).starts_with("namespace `team-x` has no executions; `default` has\n"));
    let none = home.run(&["executions", "get", "@last", "--namespace", "defualt"]);
    let said = text(&none.stderr);
    assert!(said.contains("did you mean `default`?\nnext: belay executions get @last\n"), "{said}");
    let run = home.run(&["run", "plan.yaml", "--namespace", "defalt"]);
    assert!(text(&run.stderr).starts_with("namespace `defalt` is new; there is also `default`\n"));
    let none = home.run(&["executions", "list", "--state", "failed"]);
    assert_eq!(text(&none.stderr), "no execution in namespace default is failed\n");
    assert!(text(&home.run(&["approvals", "list", "--all"]).stderr).starts_with("no approval in namespace default"));
}

// `--approve auto` never covers protected files; the end lists what was approved automatically, with the rule.
#[test]
fn approving_in_advance_lets_nothing_protected_through_and_says_what_it_did() {
    let home = Home::new();
    home.write(
        "plan.yaml",
        "{id: p, steps: [{id: hook, tool: write_file, arguments: {path: .git/hooks/pre-commit, content: x}}]}",
    );
    let output = home.tidy(&["--approve", "auto"]);
    assert_eq!(output.status.code(), Some(33), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--approve prompt"), "{}", text(&output.stderr));
    assert!(!home.path("work/.git").exists());

    home.write(
        "plan.yaml",
        "{id: q, steps: [{id: new, tool: write_file, arguments: {path: new.txt, content: x}},
          {id: gone, tool: delete_file, depends_on: [new], arguments: {path: notes.txt}}]}",
    );
    let output = home.tidy(&["--approve", "auto"]);
    let said = text(&output.stdout).to_owned();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(said.contains("approved automatically, asked by rule file_delete: 1 deleted (gone)"), "{said}");
    assert!(said.contains("allowed by rule file_write: 1 created (new)"), "{said}");
}

// S2-FR-052, S2-X-19: a pending approval holds the step until a person decides from another process.
#[test]
fn an_approval_from_another_process_is_taken_while_a_server_runs() {
    let home = Home::new();
    let server = home.start(&["serve"], "keeps data in");
    let flags = ["run", "plan.yaml", "--workspace", "work", "--id", "e1", "--approve", "prompt"];
    let run = home.start(&flags, "waiting for approval; next: belay approvals show ");
    assert!(home.notes().exists());
    let shown = home.run(&["executions", "get", "e1"]);
    assert!(text(&shown.stdout).contains("e1  awaiting_approval"), "{}", text(&shown.stdout));
    assert!(last_line(&shown.stdout).starts_with("next: belay approvals show "), "{}", text(&shown.stdout));
    let approved = home.run(&["approve", "@last", "--yes"]);
    assert_eq!(approved.status.code(), Some(0), "{}", text(&approved.stderr));
    assert!(text(&approved.stdout).contains("deletes  notes.txt  -1\n    1 - hello\n"));
    assert_eq!(run.end(), Some(0));
    assert!(!home.notes().exists());

    let again = home.run(&["deny", "@last", "--reason", "too late"]);
    assert_eq!(
        (again.status.code(), last_line(&again.stderr)),
        (Some(2), "code: ALREADY_DECIDED (belay explain ALREADY_DECIDED)")
    );
    home.write("other.yaml", "file_write: deny\n");
    let ignored = home.run(&["run", "plan.yaml", "--workspace", "work", "--policy", "other.yaml"]);
    assert!(text(&ignored.stderr).contains("--policy other.yaml is ignored: the services run already"));
    server.signal(Signal::INT);
    assert_eq!(server.end(), Some(0));
}

// S0-11, S2-FR-057: an interruption leaves the approval pending; it can be decided while no process drives the execution.
#[test]
fn an_interrupted_run_is_decided_and_resumed() {
    let home = Home::new();
    let flags = ["run", "plan.yaml", "--workspace", "work", "--id", "e1", "--approve", "prompt"];
    let run = home.start(&flags, "waiting for approval; next: belay approvals show ");
    run.signal(Signal::INT);
    assert_eq!(run.end(), Some(130));
    let listed = home.run(&["approvals", "list", "--state", "pending", "--execution", "e1"]);
    assert_eq!(text(&listed.stdout).lines().count(), 2, "{}", text(&listed.stderr));
    let approved = home.run(&["approve", "@last", "--yes"]);
    assert!(home.notes().exists(), "no process drives it");
    assert_eq!(last_line(&approved.stdout), "next: belay executions resume e1");
    let resumed = home.run(&["executions", "resume", "e1"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    assert!(!home.notes().exists());
}

// S2-X-17: a denial's reason goes back with the failure.
#[test]
fn a_denial_leaves_the_file_and_says_why() {
    let home = Home::new();
    let _server = home.start(&["serve"], "keeps data in");
    let flags = ["run", "plan.yaml", "--workspace", "work", "--id", "e1", "--approve", "prompt"];
    let run = home.start(&flags, "waiting for approval; next: belay approvals show ");
    let denied = home.run(&["deny", "@last", "--reason", "keep the notes"]);
    assert_eq!(denied.status.code(), Some(0), "{}", text(&denied.stderr));
    assert_eq!(run.end(), Some(33));
    let shown = home.run(&["executions", "get", "e1"]);
    assert!(text(&shown.stdout).contains("keep the notes"), "{}", text(&shown.stdout));
    assert!(home.notes().exists());
}

#[test]
fn a_broken_policy_is_refused_before_anything_happens() {
    let home = Home::new();
    home.write("bad.yaml", "file_write: auto\nfile_delte: deny\n");
    let expected = "bad.yaml:2:1: file_delte: ";
    for arguments in [&["policy", "check", "bad.yaml"][..], &["run", "plan.yaml", "--policy", "bad.yaml"]] {
        let output = home.run(arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
        let told = text(&output.stderr);
        assert!(told.contains(expected) && told.contains("      2 | file_delte: deny\n        | ^\n"), "{told}");
        assert!(last_line(&output.stderr).starts_with("code: POLICY_INVALID"), "{}", text(&output.stderr));
    }
    assert!(!Path::new(&home.path("state/journal.db")).exists());
    let missing = home.belay(&["run", "plan.yaml"]).env("BELAY_POLICY", "nowhere.yaml").output().unwrap();
    assert!(
        missing.status.code() == Some(2) && text(&missing.stderr).contains("the policy nowhere.yaml cannot be read")
    );
}

// S2-FR-049: one policy file, and two namespaces in which the same plan ends differently.
#[test]
fn a_namespace_can_have_a_policy_of_its_own() {
    let home = Home::new();
    home.write("p.yaml", "file_delete: auto\nnamespaces:\n  infra:\n    file_write: deny\n");
    let checked = home.run(&["policy", "check", "p.yaml"]);
    let told = text(&checked.stdout);
    assert!(told.contains("in namespace infra") && told.matches("file_delete").count() == 1, "{told}");
    let refused = home.tidy(&["--policy", "p.yaml", "--namespace", "infra"]);
    assert_eq!(last_line(&refused.stderr), "code: POLICY_DENIED (belay explain POLICY_DENIED)");
    assert!(!home.path("work/new.txt").exists());
    let free = home.tidy(&["--policy", "p.yaml"]);
    assert_eq!(free.status.code(), Some(0), "{}", text(&free.stderr));
    assert!(home.path("work/new.txt").exists());
}

// S2-X-18, S2-X-26: the user's own policy holds, and its refusal ends with 33.
#[test]
fn the_users_own_policy_holds() {
    let home = Home::new();
    home.write("config/belay/policy.yaml", "file_write: deny\n");
    let output = home.tidy(&["--approve", "auto"]);
    assert_eq!(
        (output.status.code(), last_line(&output.stderr)),
        (Some(33), "code: POLICY_DENIED (belay explain POLICY_DENIED)")
    );
    assert!(!home.path("work/new.txt").exists());
}

// B-10: what is missing on this machine is said, and the exit code tells whether commands run.
#[test]
fn the_doctor_tells_the_truth() {
    let home = Home::new();
    let output = home.run(&["doctor", "--workspace", "work", "-o", "json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let can_run = value["commandsCanRun"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if can_run { 0 } else { 1 }));
    assert_eq!(value["selfTest"]["passed"], can_run);
    assert!(
        value["sandbox"]["layers"]
            .as_array()
            .is_some_and(|layers| layers.iter().any(|layer| layer["name"] == "landlock"))
    );
    assert_eq!(
        (&value["workspace"]["problem"], &value["policy"]["settings"]["file_delete"]),
        (&Value::Null, &"prompt".into())
    );
    home.write("plan.yaml", "{id: p, steps: [{id: a, tool: run_terminal, arguments: {command: [sh, -c, 'exit 0']}}]}");
    let run = home.tidy(&["--approve", "auto"]);
    assert_eq!(run.status.success(), can_run, "{}", text(&run.stderr));

    home.write("bad.yaml", "nonsense: 1\n");
    let output = home.belay(&["doctor"]).env("BELAY_POLICY", "bad.yaml").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "no command runs under a policy that cannot be read");
    assert!(text(&output.stdout).contains("bad.yaml:1:1: nonsense"), "{}", text(&output.stdout));
}

/// B-27: every failed attempt keeps the end of what its command printed, redacted, with its line breaks.
#[test]
fn what_a_failed_command_printed_is_kept() {
    let home = Home::new();
    let fails = "echo adds: FAILED; echo '  left: 3'; echo password=Tr4il1ngS3cret >&2; exit 101";
    let plan = format!(
        "
id: fails
stop_on_error: false
steps:
  - id: test
    tool: run_terminal
    arguments: {{command: [sh, -c, \"{fails}\"]}}
    retry: {{max_attempts: 2, backoff: [10ms]}}
  - {{id: slow, tool: run_terminal, arguments: {{command: [sh, -c, 'echo begun; sleep 60'], timeout_ms: 800}}}}
  - {{id: killed, tool: run_terminal, arguments: {{command: [sh, -c, 'echo dying >&2; kill -9 $$']}}}}
"
    );
    home.write("plan.yaml", &plan);
    let run = home.belay(&["run", "plan.yaml", "--workspace", "work", "--id", "e1"]).env("BELAY_LOG", "info").output();
    let run = run.unwrap();
    let told = text(&run.stderr);
    assert_eq!(run.status.code(), Some(30), "{told}");
    let end =
        " · exit 101 · attempt 2 of 2\n     │ adds: FAILED\n     │   left: 3\n     │ password=[REDACTED]\n  slow ";
    assert!(told.contains("\n✗ fails failed after ") && told.contains("\n  test    sh -c "), "{told}");
    assert!(told.contains(end), "{told}");
    for line in [
        &["An execution was accepted", "execution=namespaces/default/executions/e1", "task_id=\"fails\""][..],
        &["A step has failed", "step_id=\"test\"", "attempt=2", "reason=\"COMMAND_FAILED\"", "class=\"TRANSIENT\""],
        &["A step has failed", "step_id=\"slow\"", "reason=\"TIMEOUT\"", "class=\"TIMEOUT\""],
        &["The execution has ended", "state=\"FAILED\"", "reason=", "failed=3"],
    ] {
        assert!(
            told.lines().any(|told| told.contains("INFO") && line.iter().all(|word| told.contains(word))),
            "{told}"
        );
    }

    let shown = home.run(&["executions", "get", "e1"]);
    let attempts = [
        "  test, attempt 1 of 2, 20",
        "Z: `sh` exited with code 101. (COMMAND_FAILED)\n     │ adds: FAILED\n     │   left: 3\n",
    ];
    assert!(attempts.iter().all(|part| text(&shown.stdout).contains(part)), "{}", text(&shown.stdout));
    let value: Value = serde_json::from_slice(&home.run(&["executions", "get", "e1", "-o", "json"]).stdout).unwrap();
    let last = |step: usize, stream: &str| value["steps"][step]["failure"]["lastOutput"][stream].as_str();
    assert_eq!(last(0, "stdout"), Some("adds: FAILED\n  left: 3\n"));
    assert_eq!(last(0, "stderr"), Some("password=[REDACTED]\n"));
    assert_eq!((last(1, "stdout"), last(2, "stderr")), (Some("begun\n"), Some("dying\n")));
    assert_eq!(value["steps"][0]["failedAttempts"][0]["failure"]["lastOutput"]["stdout"], "adds: FAILED\n  left: 3\n");

    // The attempts at one step: how each ended, when, and what it wrote last.
    let shown_step = home.run(&["executions", "get", "e1", "--step", "test"]);
    let step = text(&shown_step.stdout);
    for attempt in ["  failed  test  attempt 1  run_terminal  20", "  failed  test  attempt 2  run_terminal  20"] {
        assert!(step.contains(attempt), "{step}");
    }
    assert_eq!(step.matches("`sh` exited with code 101. (COMMAND_FAILED)\n     │ adds: FAILED\n").count(), 2, "{step}");
    let calls = home.run(&["executions", "get", "e1", "--calls"]);
    assert_eq!(text(&calls.stdout).matches("  attempt 1  run_terminal  20").count(), 3, "{}", text(&calls.stdout));
    assert!(text(&calls.stdout).contains("  timed_out  slow  "), "{}", text(&calls.stdout));
    let of_test = home.run(&["executions", "get", "e1", "--step", "test", "--calls", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&of_test.stdout).unwrap();
    let codes = |call: &Value| (call["attempt"].clone(), call["state"].clone(), call["failure"]["code"].clone());
    let expected = [1, 2].map(|attempt| (attempt.into(), "STATE_FAILED".into(), "COMMAND_FAILED".into()));
    assert_eq!(listed["toolCalls"].as_array().unwrap().iter().map(codes).collect::<Vec<_>>(), expected, "{listed}");
    let no_step = home.run(&["executions", "get", "e1", "--step", "tset", "--calls"]);
    assert_eq!(no_step.status.code(), Some(2), "{}", text(&no_step.stderr));
    assert!(text(&no_step.stderr).contains("next: belay executions get e1"), "{}", text(&no_step.stderr));

    let events = home.run(&["executions", "watch", "e1", "-o", "jsonl"]);
    let failed: Vec<&str> = text(&events.stdout).lines().filter(|line| line.contains("\"toolCallFailed\"")).collect();
    assert_eq!((failed.len(), failed.iter().filter(|line| line.contains("lastOutput")).count()), (4, 4), "{failed:?}");
    let watched = home.run(&["executions", "watch", "e1"]);
    assert!(text(&watched.stdout).contains("  test │ adds: FAILED\n"), "{}", text(&watched.stdout));
    let nowhere = [
        &shown.stdout,
        &shown_step.stdout,
        &calls.stdout,
        &of_test.stdout,
        &events.stdout,
        &watched.stdout,
        &run.stderr,
        &run.stdout,
    ];
    assert!(nowhere.iter().all(|output| !text(output).contains("Tr4il1ngS3cret")));
}

/// An outer plan whose steps carry out plans: one deletes a file, the other has a plan in which a person is asked for a form.
const NESTED: &str = "
id: outer
steps:
  - id: tidy
    plan: {id: inner, steps: [{id: gone, tool: delete_file, arguments: {path: notes.txt}}]}
  - id: ask
    depends_on: [tidy]
    plan:
      id: middle
      steps:
        - id: deep
          plan:
            id: innermost
            steps: [{id: size, wait: {form: {title: How large?, schema: {type: object, properties: {size: {type: string}}, required: [size]}}}}]
";

// S2-FR-052: a person at the terminal is asked for what the executions of steps wait for, however deep, and for nothing that another has decided.
#[test]
fn a_run_asks_for_what_the_executions_of_its_steps_wait_for() {
    let home = Home::new();
    home.write("nested.yaml", NESTED);
    let _server = home.start(&["serve"], "keeps data in");
    let mut person = AtTerminal::start(home.belay(&["run", "nested.yaml", "--workspace", "work", "--id", "outer"]));
    let first = person.wait_for("[Q]uit >");
    assert!(first.contains("? gone in tidy-") && first.contains("notes.txt"), "{first}");
    let waiting = home.run(&["approvals", "list", "-o", "json"]);
    let waiting: Value = serde_json::from_slice(&waiting.stdout).unwrap();
    let id = waiting["approvals"][0]["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(home.run(&["approve", &id, "--yes"]).status.code(), Some(0));
    person.wait_for("was already decided");
    let second = person.wait_for("[Q]uit >");
    assert!(second.contains("How large?"), "{second}");
    person.types("a");
    person.wait_for("size:");
    person.types("9");
    person.wait_for("[Y]es");
    person.types("y");
    let (code, rest) = person.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(!home.notes().exists() && rest.contains("answered"), "{rest}");
}

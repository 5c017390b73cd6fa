//! All services in one process, which is killed at random times: `belay run`, the commands that resume it, and `belay serve`.

use std::{fs, time::Duration};

use belay_e2e::{
    Home,
    belay::{RunningCommand, count},
    folder::left_in,
    orphans,
};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tokio::time::Instant;

/// Changes by commands in `asked` require approval; without a person, the policy approves.
const POLICY: &str = "
terminal_commands: auto
non_interactive_policy: auto
rules:
  - {id: show-me, on: effect, paths: ['asked/**'], decide: prompt, reason: Somebody looks at these.}
";

const STEPS: usize = 24;

/// Steps that each append their line; every third does it where a person is asked.
fn plan() -> String {
    let step = |n: usize| {
        let more = if n % 3 == 2 { format!(" && mkdir -p asked && echo s{n} >> asked/s{n}") } else { String::new() };
        let depends_on = if n == 0 { String::new() } else { format!("s{}", n - 1) };
        let script = format!("echo s{n} >> log.txt{more} # marked-by-the-test");
        format!(
            "  - {{id: s{n}, tool: run_terminal, depends_on: [{depends_on}], arguments: {{command: [sh, -c, '{script}']}}}}\n"
        )
    };
    (0..STEPS).fold("id: append\nsteps:\n".to_owned(), |plan, n| plan + &step(n))
}

/// A home with a workspace `w`, the plan and the policy.
fn home() -> Home {
    orphans::adopt();
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("plan.yaml", plan());
    home.file("policy.yaml", POLICY);
    home
}

async fn assert_done_once(home: &Home, context: &str) {
    let expected: String = (0..STEPS).map(|n| format!("s{n}\n")).collect();
    assert_eq!(fs::read_to_string(home.path("w/log.txt")).unwrap(), expected, "{context}");
    let events = home.events("e1");
    assert_eq!(count(&events, "stepCompleted", ""), STEPS, "{context}");
    assert_eq!(count(&events, "toolCallCompleted", ""), STEPS, "{context}");
    // A command that opens the workspace clears up what a lost one left.
    let checked = home.run(["run", "plan.yaml", "--workspace", "w", "--dry-run"]);
    assert_eq!(checked.code, 0, "{}", checked.talk);
    assert!(left_in(&home.path("w")).is_empty(), "{context}");
    orphans::gone().await;
}

/// Kills at random times, about half of them during the start of the services, however long that takes.
struct Killer {
    random: SmallRng,
    start: Duration,
    kills: usize,
}

impl Killer {
    fn new(home: &Home, seed: u64) -> Self {
        // A command that starts the services, and asks them one thing.
        let begun = Instant::now();
        assert_eq!(home.run(["tools", "list"]).code, 0);
        Self { random: SmallRng::seed_from_u64(seed), start: begun.elapsed(), kills: 0 }
    }

    fn kill(&mut self, running: RunningCommand) {
        let share = self.random.random_range(0.05..2.5);
        std::thread::sleep(self.start.mul_f64(share).min(Duration::from_secs(2)));
        running.kill();
        self.kills += 1;
    }
}

/// B-01, B-07, S2-FR-057, S2-FR-058, S2-X-31: a run that is killed, and killed again whenever it is resumed, writes every line once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_killed_again_and_again_writes_every_line_once() {
    let (home, seed) = (home(), 7);
    let mut killer = Killer::new(&home, seed);
    let run = [
        "run",
        "plan.yaml",
        "--workspace",
        "w",
        "--id",
        "e1",
        "--request-id",
        "r",
        "--policy",
        "policy.yaml",
        "--approve",
        "auto",
    ];
    // Started again until it is accepted; the request id makes that one execution.
    while home.run(["executions", "get", "e1"]).code != 0 {
        killer.kill(home.start(run));
        assert!(killer.kills < 60, "it is accepted at last");
    }
    loop {
        let (_, execution) = home.json(&["executions", "get", "e1"]);
        if execution["state"] == "STATE_COMPLETED" {
            break;
        }
        if killer.kills < 12 {
            killer.kill(home.start(["executions", "resume", "e1"]));
        } else {
            let ended = home.run(["executions", "resume", "e1"]);
            assert_eq!(ended.code, 0, "{}{}", ended.out, ended.talk);
        }
    }
    println!("{} kills", killer.kills);
    assert_done_once(&home, &format!("seed {seed}")).await;
}

/// The same for a server, with a watcher and a person who decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_again_and_again_writes_every_line_once() {
    let (home, seed) = (home(), 8);
    let mut killer = Killer::new(&home, seed);
    let serve = || home.start(["serve", "--policy", "policy.yaml"]);
    let mut server = home.serve_with(&["--policy", "policy.yaml"]);
    let started = home.run([
        "run",
        "plan.yaml",
        "--workspace",
        "w",
        "--id",
        "e1",
        "--approve",
        "prompt",
        "--wait-timeout",
        "1ms",
    ]);
    assert_eq!(started.code, 34, "{}", started.talk);
    for kill in 0.. {
        let is_last = kill >= 12;
        if is_last {
            server.wait_for("keeps data in");
        } else {
            killer.kill(server);
            server = serve();
            if killer.random.random_bool(0.5) {
                continue;
            }
            server.wait_for("keeps data in");
        }
        // There may be nothing to decide, or the server may be killed meanwhile.
        home.run(["approve", "@last", "--yes"]);
        if is_last {
            break;
        }
    }
    while home.json(&["executions", "get", "e1"]).1["state"] != "STATE_COMPLETED" {
        home.run(["approve", "@last", "--yes"]);
    }
    server.kill();
    assert_done_once(&home, &format!("seed {seed}")).await;
}

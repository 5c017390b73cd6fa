//! Steps that append to files, and people who decide, while every process is killed with SIGKILL at random times.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use belay_e2e::{
    Client, Person, Runner, Service, Services,
    client::{name, retry},
    folded_execution::FoldedExecution,
    folder::{cleared, content},
    orphans,
    runner::{reason, request},
};
use belay_proto::{
    gate_v1, runner_v1,
    v1::{self, Approval, Decision, approval, approval_need, execution::State, execution_event::Kind},
};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tonic::Code;

/// Commands are allowed; their changes in `asked` require approval, and bash requires approval before it runs.
const POLICY: &str = "
terminal_commands: auto
rules:
  - {id: show-me, on: effect, paths: ['asked/**'], decide: prompt, reason: Somebody looks at these.}
  - {id: ask-first, on: intent, tools: [run_terminal], programs: [bash], decide: prompt, reason: A shell can do anything.}
";

/// How a step gets its line into the file.
#[derive(Clone, Copy)]
enum ApprovalPoint {
    /// Without approval.
    Free,
    /// Its effect needs approval.
    Shown,
    /// It needs approval before it runs.
    AskedFirst,
}

fn step(id: &str, how: ApprovalPoint, depends_on: &str) -> String {
    let (shell, more) = match how {
        ApprovalPoint::Free => ("sh", String::new()),
        ApprovalPoint::Shown => ("sh", format!(" && mkdir -p asked && echo {id} >> asked/{id}")),
        ApprovalPoint::AskedFirst => ("bash", String::new()),
    };
    let script = format!("echo {id} >> log.txt{more} # marked-by-the-test");
    // An attempt fails after several conflicts in a row, which may happen when many steps append concurrently.
    let retry = "{max_attempts: 20, backoff: [50ms]}";
    format!(
        "  - {{id: {id}, tool: run_terminal, arguments: {{command: [{shell}, -c, '{script}']}}, depends_on: [{depends_on}], retry: {retry}}}\n"
    )
}

/// Steps that depend on each other: their lines are in this order.
fn chain(steps: usize) -> String {
    let how = [ApprovalPoint::Free, ApprovalPoint::Shown, ApprovalPoint::Free, ApprovalPoint::AskedFirst];
    (0..steps).fold("id: chain\nsteps:\n".to_owned(), |plan, n| {
        let depends_on = if n == 0 { String::new() } else { format!("s{}", n - 1) };
        plan + &step(&format!("s{n}"), how[n % how.len()], &depends_on)
    })
}

/// Steps that append to one file concurrently, so that their commits conflict, and one that depends on all of them.
fn fan(steps: usize) -> String {
    let mut plan = "id: fan\nparallelism: 3\nsteps:\n".to_owned();
    for n in 0..steps {
        plan += &step(&format!("s{n}"), if n == 1 { ApprovalPoint::Shown } else { ApprovalPoint::Free }, "");
    }
    let all: Vec<String> = (0..steps).map(|n| format!("s{n}")).collect();
    plan + &step("last", ApprovalPoint::Free, &all.join(", "))
}

/// Each line occurs once, in an order that the plan allows.
fn assert_lines(log: &str, steps: usize, is_chain: bool, context: &str) {
    let lines: Vec<&str> = log.lines().collect();
    let expected: Vec<String> = (0..steps).map(|n| format!("s{n}")).collect();
    if is_chain {
        assert_eq!(lines, expected, "{context}");
        return;
    }
    let (last, side_by_side) = lines.split_last().expect("something was written");
    assert_eq!(*last, "last", "{context}: {lines:?}");
    assert_eq!(side_by_side.len(), steps, "{context}: {lines:?}");
    assert_eq!(
        BTreeSet::from_iter(side_by_side),
        expected.iter().map(String::as_str).collect::<BTreeSet<_>>().iter().collect(),
        "{context}"
    );
}

/// The end of every execution, whatever happened meanwhile.
fn assert_told(picture: &FoldedExecution, steps: usize, context: &str) {
    let failure = picture.events().iter().rev().find_map(|event| match &event.kind {
        Some(Kind::StepFailed(failed)) => failed.failure.clone(),
        _ => None,
    });
    assert_eq!(picture.state(), Some(State::Completed), "{context}: {failure:?}");
    assert_eq!(picture.count(|kind| matches!(kind, Kind::StepCompleted(_))), steps, "{context}");
    assert_eq!(
        picture.count(|kind| matches!(kind, Kind::ToolCallCompleted(_))),
        steps,
        "{context}: one call of each completes"
    );
    let nonces: Vec<&str> = picture
        .events()
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::ToolCallCompleted(completed)) => completed.receipt.as_ref(),
            _ => None,
        })
        .map(|receipt| receipt.grant_nonce.as_str())
        .filter(|nonce| !nonce.is_empty())
        .collect();
    assert_eq!(nonces.len(), nonces.iter().collect::<BTreeSet<_>>().len(), "{context}: no grant is spent twice");
    assert!(!nonces.is_empty(), "{context}: somebody was asked");
}

/// Approves every pending approval until it is dropped.
async fn approve_all(person: Person, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    loop {
        let question = person.question("").await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
        // It may have been cancelled or decided meanwhile.
        if let Err(status) = person.decide(&question, Decision::Approve).await {
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        }
    }
}

/// Executions one after another until there were enough kills; returns their ids, workspaces and events.
struct Worker {
    client: Client,
    work: PathBuf,
    number: usize,
    kills: Arc<AtomicUsize>,
}

struct FinishedRun {
    id: String,
    workspace: PathBuf,
    steps: usize,
    is_chain: bool,
    picture: FoldedExecution,
}

const KILLS: usize = 60;

impl Worker {
    async fn run(self) -> Vec<FinishedRun> {
        let mut done = Vec::new();
        while self.kills.load(Ordering::SeqCst) < KILLS {
            let id = format!("w{}-{}", self.number, done.len());
            let workspace = self.work.join(&id);
            fs::create_dir(&workspace).unwrap();
            let (is_chain, steps) = if self.number.is_multiple_of(2) { (true, 8) } else { (false, 6) };
            let plan = if is_chain { chain(steps) } else { fan(steps) };
            self.client.start_in(&id, &plan, &workspace).await;
            let picture = self.client.watch_to_the_end(&id).await;
            done.push(FinishedRun { id, workspace, steps, is_chain, picture });
        }
        done
    }
}

/// Kills one or two services at random times, and restarts them after a while in which the others continue.
async fn kill_at_random(services: &mut Services, kills: &AtomicUsize, random: &mut SmallRng) -> String {
    let mut diary = String::new();
    while kills.load(Ordering::SeqCst) < KILLS {
        tokio::time::sleep(Duration::from_millis(random.random_range(20..1200))).await;
        let victims: Vec<Service> = match random.random_range(0..8) {
            0 => vec![Service::Runner, Service::Executor],
            1 => vec![Service::Gate, Service::Executor],
            2 | 3 => vec![Service::Gate],
            4 | 5 => vec![Service::Runner],
            _ => vec![Service::Executor],
        };
        let away = if random.random_bool(0.3) { random.random_range(0..600) } else { 0 };
        writeln!(diary, "{victims:?} for {away} ms").unwrap();
        for victim in &victims {
            services.kill(*victim).await;
            kills.fetch_add(1, Ordering::SeqCst);
        }
        tokio::time::sleep(Duration::from_millis(away)).await;
        for victim in victims {
            services.launch(victim);
        }
    }
    diary
}

/// B-01, B-07, S2-FR-052, S2-FR-054, S2-FR-055, S2-FR-056, S2-FR-057, S2-FR-058, S2-NFR-005, S2-NFR-006, S2-NFR-007: executor, runner and
/// gate are killed at any time, and every line is written exactly once, in order, with a grant that can be spent once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_is_written_exactly_once_whoever_dies() {
    let seed = std::env::var("BELAY_SEED").ok().map_or(0xB31A, |seed| seed.parse().expect("BELAY_SEED is a number"));
    println!("seed {seed}");
    orphans::adopt();
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::under(folder.path(), POLICY).await;
    let client = Client::new(&services.socket());
    let person = Person::at(&services.people());
    let answers = tokio::spawn(approve_all(person.clone(), seed + 1));

    let kills = Arc::new(AtomicUsize::new(0));
    let work = services.workspace("random");
    let worker = |number| {
        let (client, work, kills) = (client.clone(), work.clone(), Arc::clone(&kills));
        tokio::spawn(Worker { client, work, number, kills }.run())
    };
    let workers: Vec<_> = (0..4).map(worker).collect();
    let diary = kill_at_random(&mut services, &kills, &mut SmallRng::seed_from_u64(seed)).await;
    println!("{diary}");
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.expect("the worker's executions end"));
    }
    answers.abort();

    for FinishedRun { id, workspace, steps, is_chain, picture } in &all {
        let context = format!("{id}, seed {seed}");
        assert_told(picture, if *is_chain { *steps } else { steps + 1 }, &context);
        picture.assert_equals(&client.get(id).await);
        let log = fs::read_to_string(workspace.join("log.txt")).unwrap_or_default();
        assert_lines(&log, *steps, *is_chain, &context);
    }
    println!("{} executions lived through {} kills", all.len(), kills.load(Ordering::SeqCst));

    let workspaces: Vec<&PathBuf> = all.iter().map(|done| &done.workspace).collect();
    // The executor has acknowledged every stored outcome to the runner, whatever was lost before.
    Runner::new(&services.runner()).until_all_is_acknowledged().await;
    used_grants_stay_used(&mut services, &person, &workspaces).await;
    nothing_is_left(&mut services, &workspaces).await;
}

/// No grant of these executions can be spent again.
async fn used_grants_stay_used(services: &mut Services, person: &Person, workspaces: &[&PathBuf]) {
    let all = || workspaces.iter().map(|workspace| content(workspace)).collect::<Vec<_>>();
    let before = all();
    let mut used = 0;
    for asked in decided_approvals(person).await {
        let request = gate_v1::GetGrantRequest { approval: asked.name.clone() };
        let gate = Person::at(&services.gate()).as_service();
        let Ok(grant) = retry(|| async { gate.clone().get_grant(request.clone()).await }).await else { continue };
        use_again(&Runner::new(&services.runner()), &asked, grant).await;
        used += 1;
    }
    assert!(used > 0, "grants can be had again, so they have to be worthless");
    assert_eq!(all(), before);
}

/// The approvals, as soon as none is pending.
async fn decided_approvals(person: &Person) -> Vec<Approval> {
    let mut open = Vec::new();
    for _ in 0..1000 {
        let approvals = person.list().await;
        open = approvals.iter().filter(|approval| approval.state() == approval::State::Pending).cloned().collect();
        if open.is_empty() {
            return approvals;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("these are still pending: {open:?}");
}

async fn use_again(runner: &Runner, asked: &Approval, grant: runner_v1::Grant) {
    let refused = match asked.kind() {
        approval_need::Kind::Effect => {
            let commit = runner_v1::CommitEffectRequest { name: asked.call.clone(), grant: Some(grant), fence: None };
            runner.raw().commit_effect(commit).await.map(tonic::Response::into_inner)
        }
        _ => {
            let again = request(&asked.call, "run_terminal", r#"{"command":["bash","-c","echo again >> log.txt"]}"#);
            runner.call(runner_v1::CallToolRequest { grant: Some(grant), ..again }).await
        }
    };
    let status = match refused {
        Err(status) => status,
        // A runner that was killed since then does not remember that the call was acknowledged: to it this is a new one, which a person has to
        // be asked about, whatever grant comes with it.
        Ok(call) => {
            let is_held_first =
                asked.kind() == approval_need::Kind::Call && call.receipt.is_none_or(|it| it.grant_nonce.is_empty());
            assert!(
                is_held_first && call.state == v1::tool_call::State::AwaitingApproval as i32,
                "{} went on",
                asked.call
            );
            return;
        }
    };
    let (code, reason) = reason(&status);
    assert!(
        matches!(code, Code::NotFound | Code::FailedPrecondition | Code::PermissionDenied | Code::AlreadyExists),
        "{reason}: {status}"
    );
}

/// At the end, no view, no staged effect and no process is left.
async fn nothing_is_left(services: &mut Services, workspaces: &[&PathBuf]) {
    // Opening a workspace after a crash cleans it up.
    let runner = Runner::new(&services.runner());
    for workspace in workspaces {
        let request = runner_v1::CheckWorkspaceRequest { workspace: workspace.to_str().unwrap().into() };
        retry(|| async { runner.raw().check_workspace(request.clone()).await }).await.unwrap();
        cleared(workspace).await;
    }
    services.kill(Service::Runner).await;
    orphans::gone().await;
}

/// B-01, S2-FR-052, S2-FR-053, S2-FR-057: a decision that is made while a service is down is carried out when it is up again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_is_kept_while_other_services_are_down() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::under(folder.path(), POLICY).await;
    let client = Client::new(&services.socket());
    let person = Person::at(&services.people());
    let cases = [
        ("executor", vec![Service::Executor]),
        ("runner", vec![Service::Runner]),
        ("both", vec![Service::Runner, Service::Executor]),
    ];
    for (id, away) in cases {
        for (kind, how) in [("shown", ApprovalPoint::Shown), ("first", ApprovalPoint::AskedFirst)] {
            let id = format!("{id}-{kind}");
            let workspace = services.workspace(&id);
            let plan = format!("id: one\nsteps:\n{}{}", step("s0", how, ""), step("s1", ApprovalPoint::Free, "s0"));
            client.start_in(&id, &plan, &workspace).await;
            let question = person.question(&name(&id)).await;
            for service in &away {
                services.kill(*service).await;
            }
            let decided = person.decide(&question, Decision::Approve).await.unwrap();
            assert_eq!(decided.state(), approval::State::Approved);
            // The gate may be killed too, before it has sent the decision.
            services.restart(Service::Gate).await;
            assert!(!workspace.join("log.txt").exists(), "nobody is there to do it");
            for service in away.iter().rev() {
                services.launch(*service);
            }
            let picture = client.watch_to_the_end(&id).await;
            assert_told(&picture, 2, &id);
            assert_eq!(fs::read_to_string(workspace.join("log.txt")).unwrap(), "s0\ns1\n", "{id}");
            picture.assert_equals(&client.get(&id).await);
            let consumed = person.approval_in(&name(&id), approval::State::Consumed).await;
            assert_eq!(consumed.name, question.name, "{id}");
        }
    }
}

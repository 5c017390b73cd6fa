//! The cost of a step that a model carries out, beside a server that answers at once: what a turn takes, what it stores, and what steps that wait need.

use std::{collections::HashMap, fs, path::Path, sync::Arc, time::Duration};

use belay_bench::stats;
use belay_proto::v1::{
    self, Decision, ExecutionEvent, approval_service_client::ApprovalServiceClient, execution_event::Kind, step_spec,
    watch_approvals_response::Content,
};
use belay_service_kit::{Clock as _, SystemClock, net};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{
    sync::{Barrier, mpsc::UnboundedReceiver},
    time::Instant,
};

use crate::{
    Result,
    belay::{Belay, NAMESPACE},
    model_server::{Exchange, MODEL, ModelServer, Reply, Words, turn},
    place::Place,
    proc,
    strace::{self, FlushCount},
    subject::{Subject as _, within},
};

/// The size of the prompts of which a turn is measured.
const PROMPT: usize = 64 << 10;

/// The size of the prompts of which a late turn is compared with an early one: in both, the task alone is too large for an event.
const COMPARED_PROMPT: usize = 96 << 10;

/// The early turn.
const EARLY: u32 = 20;

/// How many turns are measured for one, from ten before it on.
const AROUND: usize = 20;

/// The bytes of each result of which older ones are archived.
const RESULT: u32 = 4 << 10;

/// The bytes of the file from the beginning of one result to that of the next. They overlap, so that a call of the plan can write the file.
const BETWEEN_RESULTS: u32 = 400;

/// The time between two words of a stream.
const BETWEEN_WORDS: Duration = Duration::from_millis(5);

/// How many executions are started at once that then wait.
const AT_ONCE: usize = 64;

/// How many of them are woken, one after the other.
const WOKEN: usize = 20;

/// When memory is read after the last of them began to wait: the executions have left the executor's memory by then.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// The tool as which a turn is recorded.
const ASK_MODEL: &str = "ask_model";

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// How many executions there are of each kind of which turns are measured.
    pub(crate) executions: u32,
    /// The turn that is compared with the early one.
    pub(crate) late: u32,
    /// How many turns there are of which prompts are compared.
    pub(crate) covered: u32,
    /// How many answers come at once, word by word.
    pub(crate) streams: u32,
    /// How many words each of them has.
    pub(crate) words: u32,
    /// The steps that wait.
    pub(crate) waiting: Waiting,
}

/// So many steps, each of which waits for a person in this turn.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) steps: u32,
    pub(crate) turns: u32,
}

/// A round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AgentsRound {
    /// From the intent of a turn with one call to that of the next, less the time of the model's server: the p50 in microseconds.
    pub(crate) turn_us: u64,
    /// The time of the server, which is not in it: the p50 in microseconds.
    pub(crate) server_us: u64,
    /// User and system time of all processes for such a turn, in microseconds.
    pub(crate) cpu_us: f64,
    /// Flushes of all processes for each turn.
    pub(crate) flushes: FlushCount,
    /// The p50 of turns around the early and the late one, with prompts of the same size, in microseconds.
    pub(crate) early_us: u64,
    pub(crate) late_us: u64,
    /// How much of all prompts is the beginning of the one before, in percent.
    pub(crate) covered_percent: f64,
    /// The CPU time of the executor while all answers come, for each second.
    pub(crate) stream_cores: f64,
    /// How many words of each answer came in a second.
    pub(crate) words_per_second: f64,
    pub(crate) waiting: WaitingSteps,
}

/// Steps that wait.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WaitingSteps {
    pub(crate) steps: u32,
    /// The memory (PSS) of gate, runner and executor before the first of them, in KiB: idle, once one step was carried out.
    pub(crate) idle_kib: [u64; 3],
    /// The same once all of them wait.
    pub(crate) waiting_kib: [u64; 3],
    /// The memory of an executor that has carried out nothing, in KiB, and of one that has started beside the steps that wait.
    pub(crate) fresh_kib: u64,
    pub(crate) restarted_kib: u64,
    /// From a decision to the first event that the executor records of it, and to the next question to the model: the medians in milliseconds.
    pub(crate) woken_ms: f64,
    pub(crate) asked_ms: f64,
}

impl WaitingSteps {
    /// How much more memory the executor has, in KiB: the one that has made the turns than it had idle, and one that has started beside them than one that has
    /// carried out nothing.
    pub(crate) fn executor_kib(&self) -> [f64; 2] {
        let more = |kib: u64, than: u64| kib as f64 - than as f64;
        [more(self.waiting_kib[2], self.idle_kib[2]), more(self.restarted_kib, self.fresh_kib)]
    }
}

/// Measures everything, each on new stores.
///
/// # Errors
/// When a step is not completed, or prompts have not the size that they should have.
pub(crate) async fn measure(binaries: &Path, root: &Path, scale: Scale) -> Result<AgentsRound> {
    let Turns { turn_us, server_us, cpu_us, early_us, late_us } = turns(binaries, root, scale).await?;
    let flushes = flushes(binaries, root, scale.late).await?;
    let covered_percent = covered(binaries, root, scale.covered).await?;
    let [stream_cores, words_per_second] = streams(binaries, root, scale).await?;
    let waiting = waiting(binaries, root, scale.waiting).await?;
    Ok(AgentsRound {
        turn_us,
        server_us,
        cpu_us,
        flushes,
        early_us,
        late_us,
        covered_percent,
        stream_cores,
        words_per_second,
        waiting,
    })
}

/// Starts Belay with a model whose server answers so.
async fn start(binaries: &Path, place: &Place, server: &ModelServer, for_gate: &[&str]) -> Result<Belay> {
    let config = place.file("config.yaml");
    fs::write(&config, server.settings())?;
    let config = config.display().to_string();
    Belay::start_with(binaries, place, for_gate, &["--config", &config]).await
}

/// A server whose model calls a tool that does nothing for as long as it may, and then completes the step.
async fn idle_model(calls: u32) -> Result<(ModelServer, UnboundedReceiver<Exchange>)> {
    let script = move |body: &str| match turn(body) {
        turn if turn <= calls && !body.contains(BRIEF) => Reply::noop(turn),
        turn if turn <= BRIEF_CALLS => Reply::noop(turn),
        _ => Reply::complete(),
    };
    ModelServer::start(script).await
}

/// The beginning of a task whose model calls few times.
const BRIEF: &str = "Be brief.";

/// How many times it calls then.
const BRIEF_CALLS: u32 = 2 * EARLY;

/// What turns take, as a round has it.
struct Turns {
    turn_us: u64,
    server_us: u64,
    cpu_us: f64,
    early_us: u64,
    late_us: u64,
}

async fn turns(binaries: &Path, root: &Path, scale: Scale) -> Result<Turns> {
    let place = Place::new(root)?;
    let (server, mut exchanges) = idle_model(scale.late + BRIEF_CALLS / 2).await?;
    let belay = start(binaries, &place, &server, &[]).await?;
    // Warms everything up, and says how much the turns add to a prompt.
    let first = "Work.".to_owned();
    let task_bytes = first.len();
    let first = converse(&belay, &mut exchanges, first).await?;
    let added = |turn: u32| Some(first.get(turn as usize - 1)?.prompt_bytes - task_bytes);
    let (early, late) = added(EARLY).zip(added(scale.late)).ok_or("the model was not asked often enough")?;
    let task = |start: &str, prompt: usize, added: usize| {
        let more = prompt.saturating_sub(added + start.len());
        format!("{start}{}", ".".repeat(more))
    };

    let (mut all, mut soon, mut later) = (Vec::new(), Vec::new(), Vec::new());
    let mut cpu = Duration::ZERO;
    for _ in 0..scale.executions {
        let before = proc::cpu_time(&belay.pids())?;
        all.extend(converse(&belay, &mut exchanges, task(BRIEF, PROMPT, early)).await?);
        cpu += proc::cpu_time(&belay.pids())?.saturating_sub(before);
        let turns = converse(&belay, &mut exchanges, task(BRIEF, COMPARED_PROMPT, early)).await?;
        soon.extend(around(&turns, EARLY)?);
        let turns = converse(&belay, &mut exchanges, task("", COMPARED_PROMPT, late)).await?;
        later.extend(around(&turns, scale.late)?);
    }
    let p50 = |turns: &[MeasuredTurn], of: fn(&MeasuredTurn) -> u64| {
        stats::percentile(&mut turns.iter().map(of).collect::<Vec<_>>(), 50).ok_or("no turn was measured")
    };
    Ok(Turns {
        turn_us: p50(&all, |turn| turn.own_us)?,
        server_us: p50(&all, |turn| turn.server_us)?,
        cpu_us: cpu.as_secs_f64() * 1e6 / all.len() as f64,
        early_us: p50(&soon, |turn| turn.own_us)?,
        late_us: p50(&later, |turn| turn.own_us)?,
    })
}

/// A turn that another one follows.
#[derive(Clone, Copy)]
struct MeasuredTurn {
    /// From its intent to that of the next, less the server's time, in microseconds.
    own_us: u64,
    server_us: u64,
    /// The size of its request.
    prompt_bytes: usize,
}

/// The turns around this one.
fn around(turns: &[MeasuredTurn], turn: u32) -> Result<Vec<MeasuredTurn>> {
    let first = turn as usize - AROUND / 2;
    let around = turns.get(first..first + AROUND).ok_or("the model was not asked often enough")?;
    let is_of_size = |turn: &MeasuredTurn| turn.prompt_bytes.abs_diff(COMPARED_PROMPT) < COMPARED_PROMPT / 20;
    if !around.iter().all(is_of_size) {
        return Err(format!("the prompts around turn {turn} have not the size that they should have").into());
    }
    Ok(around.to_vec())
}

/// Carries a task out; its turns.
async fn converse(
    belay: &Belay,
    exchanges: &mut UnboundedReceiver<Exchange>,
    task: String,
) -> Result<Vec<MeasuredTurn>> {
    let name = belay.begin_plan(plan(vec![agent(task, &["noop"])])).await?;
    belay.finish(std::slice::from_ref(&name), 1).await?;
    let asked = asked_at(&belay.events(&name, |_| false).await?);
    let answered: Vec<Exchange> = std::iter::from_fn(|| exchanges.try_recv().ok()).collect();
    if asked.len() != answered.len() {
        return Err(
            format!("{} turns are recorded, and the model was asked {} times", asked.len(), answered.len()).into()
        );
    }
    let turns = asked.windows(2).zip(&answered).map(|(pair, exchange)| MeasuredTurn {
        own_us: u64::try_from(pair[1] - pair[0]).unwrap_or(0).saturating_sub(exchange.took_us),
        server_us: exchange.took_us,
        prompt_bytes: exchange.body.len(),
    });
    Ok(turns.collect())
}

/// When the model was to be asked, in microseconds since the Unix epoch.
fn asked_at(events: &[ExecutionEvent]) -> Vec<i64> {
    let is_turn = |event: &&ExecutionEvent| matches!(&event.kind, Some(Kind::ToolCallRequested(request)) if request.tool == ASK_MODEL);
    events.iter().filter(is_turn).map(time).collect()
}

fn time(event: &ExecutionEvent) -> i64 {
    event.record_time.as_ref().map_or(0, belay_proto::micros)
}

/// The flushes of all processes for each turn with one call.
async fn flushes(binaries: &Path, root: &Path, calls: u32) -> Result<FlushCount> {
    let place = Place::new(root)?;
    let (server, mut exchanges) = idle_model(calls).await?;
    let belay = start(binaries, &place, &server, &[]).await?;
    let task = ".".repeat(PROMPT);
    let pids = belay.pids();
    let counted = strace::flushes_of(&pids, &place, async {
        let turns = converse(&belay, &mut exchanges, task).await?;
        Ok(turns.len())
    });
    Ok(counted.await?.map(|(turns, flushes)| flushes / turns as f64))
}

/// How much of the prompts of so many turns is the beginning of the one before, in percent, when each call returns some KiB.
async fn covered(binaries: &Path, root: &Path, turns: u32) -> Result<f64> {
    let place = Place::new(root)?;
    let script = move |body: &str| match turn(body) {
        turn if turn < turns => {
            let part = json!({"path": "text.txt", "offset": turn * BETWEEN_RESULTS, "length": RESULT});
            Reply::Call { tool: "read_file", arguments: part }
        }
        _ => Reply::complete(),
    };
    let (server, mut exchanges) = ModelServer::start(script).await?;
    let belay = start(binaries, &place, &server, &[]).await?;
    let line = |number: u32| format!("{number:015}\n");
    let text: String = (0..(turns * BETWEEN_RESULTS + RESULT) / 16).map(line).collect();
    let arguments = json!({"path": "text.txt", "content": text}).to_string();
    let write = v1::ToolStep {
        tool: "write_file".into(),
        arguments: Some(v1::Payload::of_json(arguments)),
        ..Default::default()
    };
    let write = v1::StepSpec { id: "write".into(), kind: Some(step_spec::Kind::Tool(write)), ..Default::default() };
    let read =
        v1::StepSpec { depends_on: vec!["write".into()], ..agent("Sum up text.txt.".to_owned(), &["read_file"]) };
    let name = belay.begin_plan(plan(vec![write, read])).await?;
    belay.finish(std::slice::from_ref(&name), 2).await?;
    let prompts = std::iter::from_fn(|| exchanges.try_recv().ok()).map(|exchange| messages(&exchange.body));
    let prompts: Vec<String> = prompts.collect::<Result<_>>()?;
    if prompts.len() != turns as usize {
        return Err(format!("the model was asked {} times instead of {turns}", prompts.len()).into());
    }
    Ok(common_percent(&prompts))
}

/// The messages of a request, without the bracket that ends them.
fn messages(body: &str) -> Result<String> {
    let body: Value = serde_json::from_str(body)?;
    let mut messages = body["messages"].to_string();
    messages.pop();
    Ok(messages)
}

/// How much of all prompts is the beginning of the one before, in percent of their bytes.
fn common_percent(prompts: &[String]) -> f64 {
    let common = |pair: &[String]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
    let covered: usize = prompts.windows(2).map(common).sum();
    let all: usize = prompts.iter().map(String::len).sum();
    covered as f64 * 100.0 / all as f64
}

/// The executor's CPU time for each second in which all answers come word by word, and the words of each in a second.
async fn streams(binaries: &Path, root: &Path, scale: Scale) -> Result<[f64; 2]> {
    let place = Place::new(root)?;
    let begins = Arc::new(Barrier::new(scale.streams as usize + 1));
    let words = Words { count: scale.words, interval: BETWEEN_WORDS, begins: Arc::clone(&begins) };
    let (server, mut exchanges) = ModelServer::start(move |_| Reply::Words(words.clone())).await?;
    let belay = start(binaries, &place, &server, &[]).await?;
    let mut names = Vec::new();
    for _ in 0..scale.streams {
        names.push(belay.begin_plan(plan(vec![agent("Write.".to_owned(), &[])])).await?);
    }
    let pid = [belay.executor_pid()];
    within("the first word of each answer", async { Ok(begins.wait().await) }).await?;
    let (began, before) = (Instant::now(), proc::cpu_time(&pid)?);
    for _ in 0..scale.streams {
        within("the last word of an answer", async { Ok(exchanges.recv().await) }).await?;
    }
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), proc::cpu_time(&pid)?.saturating_sub(before));
    belay.finish(&names, 1).await?;
    Ok([cpu.as_secs_f64() / seconds, f64::from(scale.words) / seconds])
}

/// Starts steps that wait for a person in the middle of their work; what they need in memory, and how soon some of them go on.
///
/// # Errors
/// When a step does not wait, or does not go on.
pub(crate) async fn waiting(binaries: &Path, root: &Path, Waiting { steps, turns }: Waiting) -> Result<WaitingSteps> {
    let place = Place::new(root)?;
    let policy = place.file("policy.yaml");
    fs::write(&policy, "file_write: prompt\n")?;
    let script = move |body: &str| match turn(body) {
        turn if body.contains(BRIEF) && turn > BRIEF_CALLS => Reply::complete(),
        turn if turn < turns => Reply::noop(turn),
        turn if turn == turns => {
            let arguments = json!({"path": "notes.txt", "content": "written by the bench\n"});
            Reply::Call { tool: "write_file", arguments }
        }
        _ => Reply::complete(),
    };
    let (server, mut exchanges) = ModelServer::start(script).await?;
    let mut belay = start(binaries, &place, &server, &["--policy", &policy.display().to_string()]).await?;
    let [_, _, fresh_kib] = of_each(&belay)?;
    // Code that has never run takes no memory, and would be counted as that of the steps.
    let first = belay.begin_plan(plan(vec![agent(BRIEF.to_owned(), &["noop", "write_file"])])).await?;
    belay.finish(std::slice::from_ref(&first), 1).await?;
    while exchanges.try_recv().is_ok() {}
    tokio::time::sleep(SETTLED_AFTER).await;
    let idle_kib = of_each(&belay)?;
    let mut gate = ApprovalServiceClient::new(net::connect_lazy(&place.socket("gate.sock")));
    let request = v1::WatchApprovalsRequest { parent: NAMESPACE.into(), ..Default::default() };
    let mut watch = gate.watch_approvals(request).await?.into_inner();
    let (mut started, mut approvals) = (0, HashMap::new());
    while approvals.len() < steps as usize {
        while started < steps as usize && started - approvals.len() < AT_ONCE {
            belay.begin_plan(plan(vec![agent("Work.".to_owned(), &["noop", "write_file"])])).await?;
            started += 1;
        }
        let message = within("an approval", async { Ok(watch.message().await?) }).await?;
        if let Some(Content::Approval(approval)) = message.and_then(|message| message.content) {
            approvals.insert(approval.execution, (approval.name, approval.subject_digest));
        }
        // They would be kept until the end.
        while exchanges.try_recv().is_ok() {}
    }
    drop(watch);
    tokio::time::sleep(SETTLED_AFTER).await;
    let waiting_kib = of_each(&belay)?;
    while exchanges.try_recv().is_ok() {}

    let (mut woken, mut asked) = (Vec::new(), Vec::new());
    for (execution, (name, subject_digest)) in approvals.into_iter().take(WOKEN) {
        let request = v1::DecideApprovalRequest {
            name,
            subject_digest,
            decision: Decision::Approve.into(),
            ..Default::default()
        };
        let decided_at = SystemClock.now_micros();
        gate.decide_approval(request).await?;
        let next = within("the next turn", async { Ok(exchanges.recv().await.ok_or("the server has ended")?) }).await?;
        asked.push((next.came_at - decided_at) as f64 / 1e3);
        belay.finish(std::slice::from_ref(&execution), 1).await?;
        let events = belay.events(&execution, |_| false).await?;
        let first = events.iter().map(time).find(|time| *time > decided_at).ok_or("a decision was not recorded")?;
        woken.push((first - decided_at) as f64 / 1e3);
    }
    belay.lose_executor(&place).await?;
    tokio::time::sleep(SETTLED_AFTER).await;
    let [_, _, restarted_kib] = of_each(&belay)?;
    let median = |of: Vec<f64>| stats::median(of).ok_or("no step was woken");
    let (woken_ms, asked_ms) = (median(woken)?, median(asked)?);
    Ok(WaitingSteps { steps, idle_kib, waiting_kib, fresh_kib, restarted_kib, woken_ms, asked_ms })
}

/// The memory (PSS) of gate, runner and executor in KiB.
fn of_each(belay: &Belay) -> Result<[u64; 3]> {
    let of_each = belay.pids().into_iter().map(|pid| proc::resident_kib(&[pid])).collect::<Result<Vec<_>>>()?;
    of_each.try_into().map_err(|_| "Belay has three processes".into())
}

/// A step in which the model has this task and these tools.
fn agent(task: String, tools: &[&str]) -> v1::StepSpec {
    let tools = tools.iter().map(|&tool| tool.into()).collect();
    let agent = v1::AgentStep { model: MODEL.into(), task, tools, max_turns: 1000, ..Default::default() };
    v1::StepSpec { id: "work".into(), kind: Some(step_spec::Kind::Agent(Box::new(agent))), ..Default::default() }
}

fn plan(steps: Vec<v1::StepSpec>) -> v1::Plan {
    v1::Plan { id: "agents".into(), steps, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_prompt_before_begins_with_is_covered() {
        let prompts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert!((common_percent(&prompts(&["aaaa", "aaaabbbb", "aaaabbbbcccc"])) - 50.0).abs() < 1e-9);
        assert!((common_percent(&prompts(&["ab", "xb"])) - 0.0).abs() < 1e-9);
    }

    #[test]
    fn only_questions_to_the_model_are_turns() {
        let event = |micros, tool: &str| ExecutionEvent {
            record_time: Some(belay_proto::timestamp(micros)),
            kind: Some(Kind::ToolCallRequested(v1::ToolCallRequested { tool: tool.into(), ..Default::default() })),
            ..Default::default()
        };
        let events = [event(1_000_000, ASK_MODEL), event(1_000_400, "noop"), event(1_000_900, ASK_MODEL)];
        assert_eq!(asked_at(&events), [1_000_000, 1_000_900]);
    }
}

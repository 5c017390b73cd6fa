//! The executions of a run: each kind with its plan, what a client does to it meanwhile, and how it has to end.

use std::{fs, path::Path, time::Duration};

use belay_e2e::client::name;
use belay_proto::v1::{self, Decision, execution::State, execution_event::Kind as Event, step};
use rand::{Rng as _, rngs::SmallRng, seq::SliceRandom as _};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    check::{self, CommandEnd},
    readers::{refused, wait_for},
    soak::Soak,
    wrong::{CheckResult, Wrong, id},
};

/// The longest time that one execution of the mix takes.
const LONGEST: Duration = Duration::from_secs(200);

/// The share of executions that are deleted once they have been compared.
const DELETED: f64 = 0.7;

/// A kind of execution.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A list of 200 small children, 64 at a time.
    Many,
    /// Children one after the other, each with the output of the one before.
    Chain,
    /// Children of children.
    Nested,
    /// A list whose entries end in another order than they begin.
    List,
    /// Steps one after the other that append to a file, as a command and as a declared tool.
    Lines,
    /// Steps side by side that append to one file, so that their commits conflict.
    Fan,
    /// A step that fails and is retried by a client.
    Retry,
    /// A child that fails and whose step is retried by a client.
    RetryChild,
    /// Another execution from the middle of one that has completed.
    Fork,
    /// Waits for a time and for a signal.
    Wait,
    /// Effects that a person approves or denies.
    Approvals,
    /// Children that are cancelled with their parent.
    Cancel,
    /// Children that are paused and resumed with their parent.
    Pause,
    /// Files in the folder that an execution without a workspace gets.
    Unnamed,
}

/// The kinds that the first two workers carry out: whole lists and chains of children.
const CHILDREN: [Kind; 3] = [Kind::Many, Kind::Chain, Kind::Many];

/// The kinds that every other worker carries out, in an order of its own.
const ALL: [Kind; 14] = [
    Kind::Many,
    Kind::Chain,
    Kind::Nested,
    Kind::List,
    Kind::Lines,
    Kind::Fan,
    Kind::Retry,
    Kind::RetryChild,
    Kind::Fork,
    Kind::Wait,
    Kind::Approvals,
    Kind::Cancel,
    Kind::Pause,
    Kind::Unnamed,
];

/// Carries out one execution after the other until the run is over.
pub(crate) async fn work(soak: &Soak, worker: u64) {
    let mut random = soak.random(worker);
    let mut kinds = Vec::new();
    for number in 0.. {
        if soak.is_over() {
            return;
        }
        if kinds.is_empty() {
            kinds = if worker < 2 { CHILDREN.to_vec() } else { ALL.to_vec() };
            kinds.shuffle(&mut random);
        }
        let kind = kinds.pop().expect("it was filled");
        let id = format!("{}-{worker}-{number}", format!("{kind:?}").to_lowercase());
        let one = MixedExecution { soak: soak.clone(), id: id.clone(), random: soak.random(random.random()) };
        // A task of its own, so that a panic of a comparison is a difference like any other.
        let task = tokio::spawn(tokio::time::timeout(LONGEST, one.carry_out(kind)));
        let wrong = match task.await {
            Ok(Ok(Ok(()))) => continue,
            Ok(Ok(Err(wrong))) => *wrong,
            Ok(Err(_)) => Wrong::new(&id, "", format!("it does not end within {LONGEST:?}")),
            Err(panic) => Wrong::new(&id, "", format!("a comparison failed: {panic}; see above")),
        };
        return soak.report(wrong);
    }
}

/// An execution of the mix, and those that come of it.
struct MixedExecution {
    soak: Soak,
    id: String,
    random: SmallRng,
}

impl MixedExecution {
    async fn carry_out(mut self, kind: Kind) -> CheckResult {
        match kind {
            Kind::Many => self.many().await,
            Kind::Chain => self.chain().await,
            Kind::Nested => self.nested().await,
            Kind::List => self.list().await,
            Kind::Lines => self.lines().await,
            Kind::Fan => self.fan().await,
            Kind::Retry => self.retry(false).await,
            Kind::RetryChild => self.retry(true).await,
            Kind::Fork => self.fork().await,
            Kind::Wait => self.wait().await,
            Kind::Approvals => self.approvals().await,
            Kind::Cancel => self.cancel().await,
            Kind::Pause => self.pause().await,
            Kind::Unnamed => self.unnamed().await,
        }
    }

    /// Starts the execution; `workspace` is empty for one that names none.
    async fn start(&self, workspace: &str, plan: &Value) {
        let request = v1::StartExecutionRequest { workspace: workspace.to_owned(), ..Default::default() };
        self.soak.client().start_with(&self.id, &plan.to_string(), request).await;
    }

    /// The same in a new workspace or, as often as not, without one: for plans that change no files.
    async fn start_anywhere(&mut self, plan: &Value) {
        let workspace = if self.random.random_bool(0.5) { self.workspace() } else { String::new() };
        self.start(&workspace, plan).await;
    }

    fn workspace(&self) -> String {
        self.soak.workspace(&self.id).into_os_string().into_string().expect("temporary folders have plain names")
    }

    /// Compares the execution at its end, which has to be this one; then some are deleted.
    async fn end(&mut self, state: State) -> CheckResult {
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(state)?;
        self.delete_some(&ended).await
    }

    async fn many(&mut self) -> CheckResult {
        let entries: Vec<u32> = (0..200).collect();
        let plan = json!({"id": "many", "parallelism": 64, "steps": [
            {"id": "in", "for_each": entries, "inputs": {"n": "${item.value}"}, "plan": one_noop()},
            {"id": "after", "tool": "noop", "arguments": {"output": "${in.result[199].outputs.x}"}},
        ]});
        self.start_anywhere(&plan).await;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;
        require_output(&ended, "after", &json!(199))?;
        self.delete_some(&ended).await
    }

    async fn chain(&mut self) -> CheckResult {
        let length = 40;
        let value = self.random.random_range(0..1_000_000);
        let step = |at: u32| {
            let input = if at == 0 { json!(value) } else { json!(format!("${{s{}.result.outputs.x}}", at - 1)) };
            json!({"id": format!("s{at}"), "inputs": {"n": input}, "plan": one_noop()})
        };
        let mut steps: Vec<Value> = (0..length).map(step).collect();
        let last = format!("${{s{}.result.outputs.x}}", length - 1);
        steps.push(json!({"id": "after", "tool": "noop", "arguments": {"output": last}}));
        self.start_anywhere(&json!({"id": "chain", "steps": steps})).await;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;
        require_output(&ended, "after", &json!(value))?;
        self.delete_some(&ended).await
    }

    async fn nested(&mut self) -> CheckResult {
        self.start_anywhere(&nested(6, 5)).await;
        self.end(State::Completed).await
    }

    async fn list(&mut self) -> CheckResult {
        let entries: Vec<u32> = (0..60).map(|_| self.random.random_range(0..40)).collect();
        let plan = json!({"id": "list", "parallelism": self.random.random_range(2..32), "steps": [
            {"id": "given", "tool": "noop", "arguments": {"output": entries}},
            {"id": "each", "for_each": "${given.result}", "tool": "noop",
             "arguments": {"sleep_ms": "${item.value}", "output": {"n": "${item.value}", "at": "${item.index}"}}},
            {"id": "flaky", "for_each": "${each.result}", "tool": "noop", "retry": {"max_attempts": 3, "backoff": ["5ms"]},
             "arguments": {"fail": "not yet", "fail_attempts": 1, "output": "${item.value.n}"}},
        ]});
        self.start_anywhere(&plan).await;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;
        require_output(&ended, "flaky", &json!(entries))?;
        self.delete_some(&ended).await
    }

    async fn lines(&mut self) -> CheckResult {
        let workspace = self.workspace();
        let steps = line_steps(8);
        self.start(&workspace, &json!({"id": "lines", "steps": lines(&steps)})).await;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;
        check::lines(&self.soak, &ended, &Path::new(&workspace).join("log"), &steps)?;
        self.delete_some(&ended).await
    }

    async fn fan(&mut self) -> CheckResult {
        let workspace = self.workspace();
        let names = line_steps(6);
        let mut steps = lines(&names);
        for step in &mut steps {
            step["depends_on"] = json!([]);
            step["retry"] = json!({"max_attempts": 40, "backoff": ["20ms"]});
        }
        self.start(&workspace, &json!({"id": "fan", "parallelism": 3, "steps": steps})).await;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;
        check::lines(&self.soak, &ended, &Path::new(&workspace).join("log"), &names)?;
        self.delete_some(&ended).await
    }

    /// The step `b` fails as long as there is no file `there`; what it has written until then is dropped.
    async fn retry(&mut self, in_child: bool) -> CheckResult {
        let workspace = self.workspace();
        let command = |word: &str, then: &str| json!({"command": ["sh", "-c", format!("echo {word} >> log{then}")]});
        let failing = json!({"id": "b", "tool": "run_terminal", "arguments": command("b", " && test -f there")});
        let failing = if in_child { json!({"id": "b", "plan": {"id": "in", "steps": [failing]}}) } else { failing };
        let mut steps = vec![json!({"id": "a", "tool": "run_terminal", "arguments": command("a", "")}), failing];
        steps.push(json!({"id": "c", "tool": "run_terminal", "arguments": command("c", "")}));
        for at in 1..steps.len() {
            steps[at]["depends_on"] = json!([steps[at - 1]["id"]]);
        }
        self.start(&workspace, &json!({"id": "retry", "steps": steps})).await;
        let first = check::end(&self.soak, &self.id).await?;
        first.require(State::Partial)?;
        let (log, names) = (Path::new(&workspace).join("log"), ["a", "b", "c"].map(str::to_owned));
        check::lines(&self.soak, &first, &log, &names)?;

        fs::write(Path::new(&workspace).join("there"), "").expect("a file can be written");
        self.soak.retries(&self.id);
        let request = v1::RetryExecutionRequest { name: name(&self.id), ..Default::default() };
        let retried = self.soak.ask(|| async { self.soak.client().raw().retry_execution(request.clone()).await }).await;
        retried.map_err(|status| refused(&self.id, "RetryExecution", &status))?;
        let picture = self.until_completed().await?;
        let ended = check::compare(&self.soak, &self.id, picture).await?;
        ended.require(State::Completed)?;
        check::lines(&self.soak, &ended, &log, &names)?;
        self.delete_some(&ended).await
    }

    /// Watches an execution that was retried to its second end: a watch from the first event on sees both.
    async fn until_completed(&self) -> CheckResult<belay_e2e::folded_execution::FoldedExecution> {
        loop {
            let picture = check::watch(&self.soak, &self.id).await?;
            if picture.count(|kind| matches!(kind, Event::ExecutionFinished(_))) == 2 {
                return Ok(picture);
            }
        }
    }

    async fn fork(&mut self) -> CheckResult {
        let workspace = self.workspace();
        let steps = line_steps(6);
        self.start(&workspace, &json!({"id": "lines", "steps": lines(&steps)})).await;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;

        let from = self.random.random_range(1..steps.len());
        let fork = format!("{}-fork", self.id);
        let other = self.soak.workspace(&fork);
        let request = v1::ForkExecutionRequest {
            name: name(&self.id),
            execution_id: fork.clone(),
            from_step: steps[from].clone(),
            workspace: other.display().to_string(),
            ..Default::default()
        };
        let forked = self.soak.ask(|| async { self.soak.client().raw().fork_execution(request.clone()).await }).await;
        forked.map_err(|status| refused(&self.id, "ForkExecution", &status))?;
        let second = check::end(&self.soak, &fork).await?;
        second.require(State::Completed)?;
        check::lines(&self.soak, &second, &other.join("log"), &steps[from..])?;
        // The first stays as it is.
        check::lines(&self.soak, &ended, &Path::new(&workspace).join("log"), &steps)?;
        self.delete_some(&second).await?;
        self.delete_some(&ended).await
    }

    async fn wait(&mut self) -> CheckResult {
        let (time, value) = (self.random.random_range(50..600), self.random.random_range(0..1_000));
        let plan = json!({"id": "wait", "parallelism": 4, "steps": [
            {"id": "time", "wait": {"for": format!("{time}ms")}},
            {"id": "signal", "wait": {"signal": "go"}},
            {"id": "after", "tool": "noop", "depends_on": ["time"], "arguments": {"output": "${signal.result}"}},
        ]});
        self.start_anywhere(&plan).await;
        self.soak.is_alive(&self.id);
        let longest = Duration::from_millis(self.random.random_range(50..400));
        if let Some(early) = wait_for(&self.soak, &self.id, longest).await?
            && early.end_time.is_some()
        {
            let what = format!("it is {:?} before its signal was sent", early.state());
            return Err(Box::new(Wrong::new(&self.id, "signal", what)));
        }
        let request = v1::SignalExecutionRequest {
            name: name(&self.id),
            signal: "go".into(),
            payload: Some(v1::Payload::of_json(value.to_string())),
            ..Default::default()
        };
        let sent = self.soak.ask(|| async { self.soak.client().raw().signal_execution(request.clone()).await }).await;
        sent.map_err(|status| refused(&self.id, "SignalExecution", &status))?;
        wait_for(&self.soak, &self.id, LONGEST).await?;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;
        require_output(&ended, "after", &json!(value))?;
        self.delete_some(&ended).await
    }

    /// Each step that a person has approved has its line, and no other.
    async fn approvals(&mut self) -> CheckResult {
        let workspace = self.workspace();
        let names = line_steps(4);
        let step = |name: &String| {
            let script = format!("mkdir -p asked && echo {name} >> asked/{name}");
            json!({"id": name, "tool": "run_terminal", "arguments": {"command": ["sh", "-c", script]}})
        };
        let steps: Vec<Value> = names.iter().map(step).collect();
        self.start(&workspace, &json!({"id": "asked", "parallelism": 4, "steps": steps})).await;
        let (soak, id) = (self.soak.clone(), self.id.clone());
        let watching = tokio::spawn(async move { check::watch(&soak, &id).await });
        while !watching.is_finished() {
            let full_name = name(&self.id);
            let approvals = self.soak.person().list().await;
            let pending = |approval: &&v1::Approval| {
                approval.execution == full_name && approval.state() == v1::approval::State::Pending
            };
            for approval in approvals.iter().filter(pending) {
                let decision = if self.random.random_bool(0.6) { Decision::Approve } else { Decision::Deny };
                match self.soak.person().decide(approval, decision).await {
                    Ok(_) => self.soak.count("approvals decided", 1),
                    // Its subject has changed meanwhile.
                    Err(status) if status.code() == Code::FailedPrecondition => {}
                    Err(status) => return Err(refused(&self.id, "DecideApproval", &status)),
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let picture = watching.await.expect("it does not panic")?;
        let ended = check::compare(&self.soak, &self.id, picture).await?;
        for name in &names {
            let decided = ended.picture.events().iter().rev().find_map(|event| match &event.kind {
                Some(Event::ApprovalDecided(decided)) if event.step_id == *name => Some(decided.decision()),
                _ => None,
            });
            let state = ended.steps.get(name).map(v1::Step::state);
            let is_so = match decided {
                Some(Decision::Approve) => state == Some(step::State::Completed),
                Some(Decision::Deny) => state == Some(step::State::Failed),
                _ => false,
            };
            if !is_so {
                return ended.wrong(name, format!("it is {state:?}, and the decision was {decided:?}"));
            }
            let file = Path::new(&workspace).join("asked").join(name);
            check::lines(&self.soak, &ended, &file, std::slice::from_ref(name))?;
        }
        self.delete_some(&ended).await
    }

    async fn cancel(&mut self) -> CheckResult {
        self.start_anywhere(&nested(20, 40)).await;
        self.until_children_end(3).await?;
        let request = v1::CancelExecutionRequest {
            name: name(&self.id),
            kill: self.random.random_bool(0.5),
            ..Default::default()
        };
        let state =
            match self.soak.ask(|| async { self.soak.client().raw().cancel_execution(request.clone()).await }).await {
                Ok(_) => State::Cancelled,
                Err(status) if status.code() == Code::FailedPrecondition => State::Completed,
                Err(status) => return Err(refused(&self.id, "CancelExecution", &status)),
            };
        self.end(state).await
    }

    async fn pause(&mut self) -> CheckResult {
        self.start_anywhere(&nested(12, 30)).await;
        for round in 1..3 {
            self.until_children_end(round).await?;
            let request = v1::PauseExecutionRequest {
                name: name(&self.id),
                discard_calls: self.random.random_bool(0.5),
                ..Default::default()
            };
            match self.soak.ask(|| async { self.soak.client().raw().pause_execution(request.clone()).await }).await {
                Ok(_) => {}
                // It has ended.
                Err(status) if status.code() == Code::FailedPrecondition => break,
                Err(status) => return Err(refused(&self.id, "PauseExecution", &status)),
            }
            tokio::time::sleep(Duration::from_millis(self.random.random_range(0..100))).await;
            let request = v1::ResumeExecutionRequest { name: name(&self.id), ..Default::default() };
            match self.soak.ask(|| async { self.soak.client().raw().resume_execution(request.clone()).await }).await {
                Ok(_) => {}
                Err(status) if status.code() == Code::FailedPrecondition => break,
                Err(status) => return Err(refused(&self.id, "ResumeExecution", &status)),
            }
        }
        self.end(State::Completed).await
    }

    /// Returns once so many children of the execution have ended, or it has.
    async fn until_children_end(&self, count: usize) -> CheckResult {
        let watch = self.soak.client().watch(&self.id, "").await;
        let mut stream = watch.map_err(|status| refused(&self.id, "WatchExecution", &status))?;
        let mut ended = 0;
        while let Some(message) =
            stream.message().await.map_err(|status| refused(&self.id, "WatchExecution", &status))?
        {
            if let Some(v1::watch_execution_response::Content::Event(event)) = message.content {
                match event.kind {
                    Some(Event::ChildStarted(child)) => self.soak.is_alive(&child.execution_id),
                    Some(Event::ChildEnded(_)) => ended += 1,
                    _ => {}
                }
            }
            if ended >= count {
                break;
            }
        }
        Ok(())
    }

    async fn unnamed(&mut self) -> CheckResult {
        let content = format!("{} {}", self.id, self.random.random_range(0..1_000_000));
        let plan = json!({"id": "unnamed", "steps": [
            {"id": "write", "tool": "write_file", "arguments": {"path": "a", "content": content}},
            {"id": "append", "tool": "run_terminal", "depends_on": ["write"], "arguments": {"command": ["sh", "-c", "echo >> a; echo x >> a"]}},
            {"id": "read", "tool": "read_file", "depends_on": ["append"], "arguments": {"path": "a"}},
            {"id": "in", "depends_on": ["read"], "inputs": {"n": "${read.result.content}"}, "plan": one_noop()},
            {"id": "after", "tool": "noop", "arguments": {"output": "${in.result.outputs.x}"}},
        ]});
        self.start("", &plan).await;
        let ended = check::end(&self.soak, &self.id).await?;
        ended.require(State::Completed)?;
        require_output(&ended, "after", &json!(format!("{content}\nx\n")))?;
        self.soak.count("steps with effects compared", 1);
        self.delete_some(&ended).await
    }

    /// Deletes most of the executions that have been compared, with all that they have started.
    async fn delete_some(&mut self, ended: &CommandEnd) -> CheckResult {
        if !self.random.random_bool(DELETED) {
            return Ok(());
        }
        let mut names = vec![id(&ended.execution.name).to_owned()];
        let mut at = 0;
        while at < names.len() {
            let steps =
                if at == 0 { ended.execution.steps.clone() } else { self.soak.client().get(&names[at]).await.steps };
            for step in steps {
                if let Some(step::Detail::Plan(child)) = step.detail
                    && !child.execution.is_empty()
                {
                    names.push(id(&child.execution).to_owned());
                }
            }
            at += 1;
        }
        for (at, deleted) in names.iter().enumerate() {
            self.soak.deletes(deleted);
            let request = v1::DeleteExecutionRequest { name: name(deleted), ..Default::default() };
            match self.soak.ask(|| async { self.soak.client().raw().delete_execution(request.clone()).await }).await {
                Ok(_) => self.soak.count("executions deleted", 1),
                // A child that was cancelled before it was created, or was deleted with its parent.
                Err(status) if status.code() == Code::NotFound && at > 0 => {}
                Err(status) => return Err(refused(deleted, "DeleteExecution", &status)),
            }
            let request = v1::GetExecutionRequest { name: name(deleted), ..Default::default() };
            match self.soak.ask(|| async { self.soak.client().raw().get_execution(request.clone()).await }).await {
                Err(status) if status.code() == Code::NotFound => {}
                shown => {
                    return Err(Box::new(Wrong::new(
                        deleted,
                        "",
                        format!("it is deleted, and GetExecution returned {shown:?}"),
                    )));
                }
            }
        }
        Ok(())
    }
}

/// A plan of one `noop`, which returns its input.
fn one_noop() -> Value {
    json!({"id": "one", "inputs": {"n": {}}, "steps": [{"id": "x", "tool": "noop", "arguments": {"output": "${inputs.n}"}}]})
}

/// A list of children, each with a call of so many milliseconds and a child of its own.
fn nested(entries: u32, milliseconds: u32) -> Value {
    let inner = json!({"id": "inner", "inputs": {"n": {}}, "steps": [
        {"id": "a", "tool": "noop", "arguments": {"sleep_ms": milliseconds, "output": "${inputs.n}"}},
        {"id": "deeper", "inputs": {"n": "${a.result}"}, "plan": one_noop()},
    ]});
    let entries: Vec<u32> = (0..entries).collect();
    json!({"id": "nested", "parallelism": 4, "steps": [
        {"id": "each", "for_each": entries, "inputs": {"n": "${item.value}"}, "plan": inner},
    ]})
}

/// The ids of steps that append to a file.
fn line_steps(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("s{at}")).collect()
}

/// Steps one after the other, each of which appends its id to the file `log`: every other one with the declared tool.
fn lines(steps: &[String]) -> Vec<Value> {
    let step = |(at, id): (usize, &String)| {
        let before: Vec<&String> = at.checked_sub(1).map(|before| &steps[before]).into_iter().collect();
        if at % 2 == 0 {
            let command = ["sh", "-c", &format!("echo {id} >> log")];
            json!({"id": id, "depends_on": before, "tool": "run_terminal", "arguments": {"command": command}})
        } else {
            json!({"id": id, "depends_on": before, "tool": "tally", "arguments": {"word": id, "path": "log"}})
        }
    };
    steps.iter().enumerate().map(step).collect()
}

fn require_output(ended: &CommandEnd, step: &str, expected: &Value) -> CheckResult {
    let output = ended.output(step);
    if output.as_ref() == Some(expected) {
        return Ok(());
    }
    ended.wrong(step, format!("its output is {output:?} and not {expected}"))
}

//! Belay's three processes, and the client that drives them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use belay_bench::stats;
use belay_proto::v1::{
    self, ExecutionEvent, execution::State, execution_event::Kind, executor_service_client::ExecutorServiceClient,
    start_execution_request::Source, step_spec, watch_execution_response::Content,
};
use belay_service_kit::{
    Clock as _, SystemClock,
    net::{self, Address},
};
use futures::future;
use tonic::transport::Channel;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{
    Result,
    place::Place,
    process::Process,
    subject::{Load, Speed, Subject, Work, within},
};

/// The interval of health checks while a service starts.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The namespace of all executions.
pub(crate) const NAMESPACE: &str = "namespaces/default";

/// Belay, running, on unix sockets.
pub(crate) struct Belay {
    /// The approval gate and the tool runner, where they are processes of their own.
    others: Vec<Process>,
    /// The executor, or `belay serve`.
    executor: Process,
    program: PathBuf,
    /// More arguments of the executor.
    for_executor: Vec<String>,
    client: ExecutorServiceClient<Channel>,
}

impl Belay {
    /// Starts `belay serve`, one process with all services, and returns when it serves.
    pub(crate) async fn serve(binaries: &Path, place: &Place) -> Result<Self> {
        let program = binaries.join("belay");
        // Sockets lie in the state directory, and their paths may have 107 bytes only.
        let state = place.file("serve");
        let mut executor =
            Process::start(&program, "serve", &["--state-dir", &state.display().to_string()], place.state())?;
        let socket = Address::Unix(state.join("executor.sock"));
        serves(&mut executor, &socket, "belay.v1.ExecutorService").await?;
        let client = ExecutorServiceClient::new(net::connect_lazy(&socket));
        Ok(Self { others: Vec::new(), executor, program, for_executor: Vec::new(), client })
    }

    /// Starts an approval gate, a tool runner and an executor, each in a process of its own, and returns when all serve.
    pub(crate) async fn start(binaries: &Path, place: &Place) -> Result<Self> {
        Self::start_with(binaries, place, &[], &[]).await
    }

    /// The same, with more arguments for the gate and for the executor.
    pub(crate) async fn start_with(
        binaries: &Path,
        place: &Place,
        for_gate: &[&str],
        for_executor: &[&str],
    ) -> Result<Self> {
        let program = binaries.join("belay");
        let gate = start_gate(&program, place, for_gate).await?;
        let socket = place.socket("runner.sock");
        let state = place.file("runner").display().to_string();
        let (door, key) = (place.socket("gate-service.sock").to_string(), place.file("gate").join("gate.pub"));
        let key = key.display().to_string();
        let arguments = ["--listen", &socket.to_string(), "--state-dir", &state, "--gate", &door, "--gate-key", &key];
        let mut runner = Process::start(&program, "tool-runner", &arguments, place.state())?;
        serves(&mut runner, &socket, "belay.runner.v1.ToolRunnerService").await?;
        let for_executor: Vec<String> = for_executor.iter().map(|&argument| argument.to_owned()).collect();
        let executor = start_executor(&program, place, &for_executor).await?;
        let client = ExecutorServiceClient::new(net::connect_lazy(&place.socket("executor.sock")));
        Ok(Self { others: vec![gate, runner], executor, program, for_executor, client })
    }

    /// Kills the executor with SIGKILL and starts it again on the same state. Returns when it serves.
    pub(crate) async fn lose_executor(&mut self, place: &Place) -> Result<()> {
        self.without_executor(place, async || Ok(())).await.map(drop)
    }

    /// Kills the executor with SIGKILL, does something, and starts it again on the same state. Returns when it serves: the time from the start
    /// of its process to that.
    pub(crate) async fn without_executor(
        &mut self,
        place: &Place,
        then: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<Duration> {
        self.executor.kill().await?;
        then().await?;
        let began = SystemClock.now_micros();
        self.executor = start_executor(&self.program, place, &self.for_executor).await?;
        Ok(Duration::from_micros(u64::try_from(SystemClock.now_micros() - began).unwrap_or(0)))
    }

    /// Starts executions, all at once, and returns their names when all are accepted.
    pub(crate) async fn begin(&self, load: Load) -> Result<Vec<String>> {
        let request = v1::StartExecutionRequest {
            parent: NAMESPACE.into(),
            source: Some(Source::Plan(plan(load))),
            ..Default::default()
        };
        let starts = (0..load.executions).map(|_| {
            let (mut client, request) = (self.client.clone(), request.clone());
            async move { client.start_execution(request).await }
        });
        let started = async { Ok(future::try_join_all(starts).await?) };
        let started = within("accepting executions", started).await.map_err(|error| self.executor.explain(error))?;
        Ok(started.into_iter().map(|execution| execution.into_inner().name).collect())
    }

    /// Starts one execution of a plan and returns its name.
    pub(crate) async fn begin_plan(&self, plan: v1::Plan) -> Result<String> {
        let source = Some(Source::Plan(plan));
        self.begin_request(v1::StartExecutionRequest { parent: NAMESPACE.into(), source, ..Default::default() }).await
    }

    /// Starts one execution and returns its name.
    pub(crate) async fn begin_request(&self, request: v1::StartExecutionRequest) -> Result<String> {
        Ok(self.client.clone().start_execution(request).await?.into_inner().name)
    }

    /// Accepts one execution, of which nothing starts before [`Self::resume`].
    pub(crate) async fn begin_paused(&self, load: Load) -> Result<String> {
        let source = Some(Source::Plan(plan(load)));
        let parent = NAMESPACE.into();
        self.begin_request(v1::StartExecutionRequest { parent, source, start_paused: true, ..Default::default() }).await
    }

    /// Resumes an execution.
    pub(crate) async fn resume(&self, name: &str) -> Result<()> {
        let request = v1::ResumeExecutionRequest { name: name.into(), ..Default::default() };
        self.client.clone().resume_execution(request).await?;
        Ok(())
    }

    /// A client of the executor.
    pub(crate) fn client(&self) -> ExecutorServiceClient<Channel> {
        self.client.clone()
    }

    pub(crate) fn executor_pid(&self) -> u32 {
        self.executor.pid()
    }

    /// Cancels an execution and returns when it has ended.
    pub(crate) async fn cancel(&self, name: &str) -> Result<()> {
        let request = v1::CancelExecutionRequest { name: name.into(), ..Default::default() };
        self.client.clone().cancel_execution(request).await?;
        within("the end of an execution", self.wait(name)).await.map(drop)
    }

    /// Waits until executions have ended. An error if one did not complete every step.
    pub(crate) async fn finish(&self, names: &[String], steps: u32) -> Result<Vec<v1::Execution>> {
        let ended = future::try_join_all(names.iter().map(|name| self.wait(name)));
        let ended = within("the end of an execution", ended).await.map_err(|error| self.executor.explain(error))?;
        for execution in &ended {
            let completed = execution.totals.map_or(0, |totals| totals.completed);
            if execution.state() != State::Completed || u32::try_from(completed) != Ok(steps) {
                let state = execution.state().as_str_name();
                let why =
                    execution.failure.as_ref().map_or("no failure is recorded", |failure| failure.message.as_str());
                let wrong = format!("{} ended as {state} with {completed} of {steps} steps: {why}", execution.name);
                return Err(self.executor.explain(wrong.into()));
            }
        }
        Ok(ended)
    }

    async fn wait(&self, name: &str) -> Result<v1::Execution> {
        loop {
            let request = v1::WaitExecutionRequest { name: name.into(), longest_wait: None };
            let execution = self.client.clone().wait_execution(request).await?.into_inner();
            if execution.end_time.is_some() {
                return Ok(execution);
            }
        }
    }

    /// The events of an execution from the first on, until `enough` returns true or the execution has ended.
    pub(crate) async fn events(
        &self,
        name: &str,
        mut enough: impl FnMut(&Kind) -> bool,
    ) -> Result<Vec<ExecutionEvent>> {
        self.events_until(name, |event| event.kind.as_ref().is_some_and(&mut enough)).await
    }

    /// The same by the whole event.
    pub(crate) async fn events_until(
        &self,
        name: &str,
        mut enough: impl FnMut(&ExecutionEvent) -> bool,
    ) -> Result<Vec<ExecutionEvent>> {
        let request = v1::WatchExecutionRequest {
            name: name.into(),
            include_earlier_events: true,
            ..v1::WatchExecutionRequest::default()
        };
        let mut events = Vec::new();
        let watching = async {
            let mut stream = self.client.clone().watch_execution(request).await?.into_inner();
            while let Some(message) = stream.message().await? {
                let Some(Content::Event(event)) = message.content else {
                    continue;
                };
                let last = enough(&event);
                events.push(event);
                if last {
                    break;
                }
            }
            Ok(())
        };
        within("an event", watching).await.map_err(|error| self.executor.explain(error))?;
        Ok(events)
    }
}

impl Subject for Belay {
    fn pids(&self) -> Vec<u32> {
        self.others.iter().chain([&self.executor]).map(Process::pid).collect()
    }

    /// The clock runs from the first acceptance to the last end, as the executor recorded them.
    async fn run(&mut self, load: Load) -> Result<Speed> {
        let names = self.begin(load).await?;
        let ended = self.finish(&names, load.steps).await?;
        let times = |time: fn(&v1::Execution) -> Option<_>| {
            ended.iter().filter_map(time).map(|time| belay_proto::micros(&time))
        };
        let (first, last) = (times(|e| e.create_time).min(), times(|e| e.end_time).max());
        let micros =
            last.zip(first).map(|(last, first)| last - first).filter(|&micros| micros > 0).ok_or("no time passed")?;
        // Read at the end, so that no watcher affects the result; and only for one execution, because with more the throughput matters.
        let mut latencies = match names.as_slice() {
            [one] => step_latencies(&self.events(one, |_| false).await?),
            _ => Vec::new(),
        };
        Ok(Speed {
            p50_us: stats::percentile(&mut latencies, 50),
            p99_us: stats::percentile(&mut latencies, 99),
            steps_per_second: load.total() * 1e6 / micros as f64,
        })
    }
}

async fn start_gate(program: &Path, place: &Place, more: &[&str]) -> Result<Process> {
    let socket = place.socket("gate.sock");
    let (listen, door) = (socket.to_string(), place.socket("gate-service.sock").to_string());
    let (runner, state) = (place.socket("runner.sock").to_string(), place.file("gate").display().to_string());
    let arguments = ["--listen", &listen, "--service-listen", &door, "--runner", &runner, "--state-dir", &state];
    let arguments = [&arguments, more].concat();
    let mut process = Process::start(program, "approval-gate", &arguments, place.state())?;
    serves(&mut process, &socket, "belay.v1.ApprovalService").await?;
    Ok(process)
}

async fn start_executor(program: &Path, place: &Place, more: &[String]) -> Result<Process> {
    let socket = place.socket("executor.sock");
    let (listen, runner) = (socket.to_string(), place.socket("runner.sock").to_string());
    let state = place.file("executor").display().to_string();
    let gate = place.socket("gate-service.sock").to_string();
    let arguments = ["--listen", &listen, "--state-dir", &state, "--runner", &runner, "--gate", &gate];
    let arguments: Vec<&str> = arguments.into_iter().chain(more.iter().map(String::as_str)).collect();
    let mut process = Process::start(program, "executor", &arguments, place.state())?;
    serves(&mut process, &socket, "belay.v1.ExecutorService").await?;
    Ok(process)
}

/// Checks the service's health until it serves.
async fn serves(process: &mut Process, address: &Address, service: &str) -> Result<()> {
    let mut client = HealthClient::new(net::connect_lazy(address));
    let asking = async {
        loop {
            process.check()?;
            let request = HealthCheckRequest { service: service.into() };
            if client.check(request).await.is_ok_and(|health| health.get_ref().status() == ServingStatus::Serving) {
                return Ok(());
            }
            tokio::time::sleep(HEALTH_CHECK_INTERVAL).await;
        }
    };
    within(&format!("the start of {service}"), asking).await
}

/// A load's steps, one after the other.
fn plan(load: Load) -> v1::Plan {
    let call = |n| {
        let written =
            || ("write_file", serde_json::json!({"path": format!("{n}.txt"), "content": "written by the bench\n"}));
        let (tool, arguments) = match load.work {
            Work::Nothing => ("noop", serde_json::json!({})),
            Work::ReadFile if n > 0 => ("read_file", serde_json::json!({"path": "0.txt"})),
            Work::WriteFile | Work::ReadFile => written(),
            Work::Command => ("run_terminal", serde_json::json!({"command": ["true"]})),
            Work::Print => ("run_terminal", serde_json::json!({"command": ["seq", "1", "150000"]})),
        };
        v1::ToolStep {
            tool: tool.into(),
            arguments: Some(v1::Payload::of_json(arguments.to_string())),
            ..Default::default()
        }
    };
    let step =
        |n| v1::StepSpec { id: format!("s{n}"), kind: Some(step_spec::Kind::Tool(call(n))), ..Default::default() };
    v1::Plan { id: "bench".into(), steps: (0..load.steps).map(step).collect(), parallelism: 1, ..Default::default() }
}

/// From each call's request to the next one's, in microseconds: a whole turn of intent, call, result and commit.
pub(crate) fn step_latencies(events: &[ExecutionEvent]) -> Vec<u64> {
    let requested = |event: &&ExecutionEvent| matches!(event.kind, Some(Kind::ToolCallRequested(_)));
    let times = events.iter().filter(requested).filter_map(|event| event.record_time.as_ref());
    let times: Vec<i64> = times.map(belay_proto::micros).collect();
    times.windows(2).map(|pair| u64::try_from(pair[1] - pair[0]).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_lasts_until_the_next_call_is_requested() {
        let event = |micros, kind| ExecutionEvent {
            record_time: Some(belay_proto::timestamp(micros)),
            kind: Some(kind),
            ..Default::default()
        };
        let request = || Kind::ToolCallRequested(v1::ToolCallRequested::default());
        let events = [
            event(1_000_000, request()),
            event(1_000_300, Kind::StepCompleted(v1::StepCompleted::default())),
            event(1_000_400, request()),
            event(1_000_900, request()),
        ];
        assert_eq!(step_latencies(&events), [400, 500]);
        assert_eq!(step_latencies(&events[..1]), [0; 0]);
    }
}

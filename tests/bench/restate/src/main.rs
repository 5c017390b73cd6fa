//! The subject that Belay is compared with: steps that do nothing, carried out by Restate.
//!
//! A service on Restate's own SDK, whose handlers are the bench's plans written as code. Restate calls it over HTTP/2; the bench asks it over stdin
//! and stdout what it ran.

use std::{
    collections::VecDeque,
    error::Error,
    io::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use restate_sdk::prelude::{
    Context, ContextClient as _, ContextSideEffects as _, DurableFuturesUnordered, Endpoint, HttpServer, Json,
    RunFuture as _, TerminalError,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, stdin},
    net::TcpListener,
};

/// A plan of steps one after the other.
#[derive(Deserialize, Serialize)]
struct Steps {
    steps: u32,
    /// How many of them are compared, at the beginning and at the end.
    compared: usize,
}

/// A plan of tasks that depend on earlier ones.
#[derive(Deserialize, Serialize)]
struct Wide {
    /// The dependencies of each task.
    tasks: Vec<Vec<usize>>,
    /// How many tasks run at once.
    parallelism: usize,
}

/// When a plan ran, and how long its steps took, in microseconds.
#[derive(Deserialize, Serialize)]
struct Times {
    began_us: u64,
    ended_us: u64,
    p50_us: u64,
    p99_us: u64,
    /// The p50 of the first steps.
    first_us: u64,
    /// The p50 of the last steps.
    last_us: u64,
}

/// The bodies that have run in this process.
#[derive(Default)]
struct Ran {
    /// How many bodies of steps, those that ran again included.
    bodies: u64,
    /// When each attempt at a handler began, and when it ran its first body: a later attempt runs no body whose result is durable.
    attempts: Vec<[u64; 2]>,
}

struct Bench(Arc<Mutex<Ran>>);

#[restate_sdk::service]
impl Bench {
    /// Each step is a `run`: the next one begins when its result is durable.
    #[handler]
    async fn steps(&self, context: Context<'_>, plan: Json<Steps>) -> Result<Json<Times>, TerminalError> {
        let plan = plan.into_inner();
        let attempt = Attempt::begin(&self.0);
        for number in 0..plan.steps {
            let body = attempt.clone();
            context
                .run(move || async move {
                    body.body();
                    Ok(())
                })
                .name(format!("s{number}"))
                .await?;
        }
        Ok(Json(attempt.end(plan.compared)))
    }

    /// Each step is a call of another handler: the call is durable as well as its result.
    #[handler]
    async fn calls(&self, context: Context<'_>, plan: Json<Steps>) -> Result<Json<Times>, TerminalError> {
        let plan = plan.into_inner();
        let attempt = Attempt::begin(&self.0);
        for _ in 0..plan.steps {
            attempt.body();
            context.service_client::<ToolClient<'_>>().noop().call().await?;
        }
        Ok(Json(attempt.end(plan.compared)))
    }

    /// Each task is a call, since the SDK waits for several calls at once, but not for several `run`s.
    #[handler]
    async fn wide(&self, context: Context<'_>, plan: Json<Wide>) -> Result<Json<Times>, TerminalError> {
        let plan = plan.into_inner();
        let attempt = Attempt::begin(&self.0);
        let mut open: Vec<usize> = plan.tasks.iter().map(Vec::len).collect();
        let mut dependents = vec![Vec::new(); plan.tasks.len()];
        for (task, depends_on) in plan.tasks.iter().enumerate() {
            depends_on.iter().for_each(|source| dependents[*source].push(task));
        }
        let mut ready: VecDeque<usize> = (0..open.len()).filter(|task| open[*task] == 0).collect();
        let (mut running, mut begun) = (DurableFuturesUnordered::new(), Vec::new());
        loop {
            while running.len() < plan.parallelism {
                let Some(task) = ready.pop_front() else { break };
                running.push(context.service_client::<ToolClient<'_>>().noop().call());
                begun.push(task);
            }
            let Some((index, ended)) = running.next().await? else { break };
            ended?;
            for dependent in &dependents[begun[index]] {
                open[*dependent] -= 1;
                if open[*dependent] == 0 {
                    ready.push_back(*dependent);
                }
            }
        }
        if begun.len() != plan.tasks.len() {
            return Err(TerminalError::new("the tasks depend on each other in a circle"));
        }
        Ok(Json(attempt.end(0)))
    }
}

struct Tool;

#[restate_sdk::service]
impl Tool {
    #[handler]
    async fn noop(&self, _: Context<'_>) -> Result<String, TerminalError> {
        Ok("null".into())
    }
}

/// An attempt at a handler.
#[derive(Clone)]
struct Attempt {
    ran: Arc<Mutex<Ran>>,
    began_us: u64,
    /// When each body of this attempt ran.
    bodies: Arc<Mutex<Vec<u64>>>,
}

impl Attempt {
    fn begin(ran: &Arc<Mutex<Ran>>) -> Self {
        Self { ran: Arc::clone(ran), began_us: now_us(), bodies: Arc::default() }
    }

    /// The body of a step: it does nothing, and that it ran is noted.
    fn body(&self) {
        let now = now_us();
        let mut bodies = lock(&self.bodies);
        bodies.push(now);
        let mut ran = lock(&self.ran);
        ran.bodies += 1;
        if bodies.len() == 1 {
            ran.attempts.push([self.began_us, now]);
        }
    }

    fn end(&self, compared: usize) -> Times {
        let bodies = lock(&self.bodies);
        // From one body to the next: a whole turn.
        let turns: Vec<u64> = bodies.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        let compared = compared.min(turns.len());
        Times {
            began_us: self.began_us,
            ended_us: now_us(),
            p50_us: percentile(&turns, 50),
            p99_us: percentile(&turns, 99),
            first_us: percentile(&turns[..compared], 50),
            last_us: percentile(&turns[turns.len() - compared..], 50),
        }
    }
}

/// The nearest rank, as in the bench; 0 when there are no values.
fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100);
    values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The clock of the whole machine, which the bench compares with its own.
fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1_000).unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the port it listens on. Then, for each line with a time, prints how many bodies have run, and when the first one ran in an attempt that
/// began after that time.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&listener.local_addr()?.port().to_string())?;
    let ran = Arc::<Mutex<Ran>>::default();
    let endpoint = Endpoint::builder().bind(Bench(Arc::clone(&ran))).bind(Tool).build();
    tokio::spawn(HttpServer::new(endpoint).serve(listener));
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let since: u64 = line.parse()?;
        let answer = {
            let ran = lock(&ran);
            let first = ran.attempts.iter().filter(|[began, _]| *began > since).map(|[_, body]| *body).min();
            serde_json::json!({"bodies": ran.bodies, "first_us": first})
        };
        say(&answer.to_string())?;
    }
    Ok(())
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

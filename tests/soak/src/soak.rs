//! The state that workers and readers share: the clients, what was found wrong, and the executions to look at.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use belay_e2e::{Client, Person};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tokio::sync::Notify;
use tonic::{Code, Response, Status};

use crate::server::{Server, StoppedServer};
use crate::wrong::Wrong;

/// The number of executions that readers choose from.
const MAX_RECENT: usize = 64;

/// How often a request is sent again.
const MAX_RETRIES: usize = 500;

/// The delay before a request is sent again.
const BACKOFF: Duration = Duration::from_millis(10);

/// Counters that must be above 0 in every run: a run in which nothing happens compares nothing.
const COUNTED: [&str; 7] = [
    "children compared",
    "collected lists compared",
    "executions ended",
    "reads after an end",
    "steps with effects compared",
    "waits",
    "updates watched",
];

impl Wrong {
    /// The text that a person reads.
    pub(crate) fn shown(&self, server: &StoppedServer) -> String {
        let Self { execution, step, what, events } = self;
        let mut text = format!("WRONG: {what}");
        if !execution.is_empty() {
            text += &format!("\n  execution {execution}");
        }
        if !step.is_empty() {
            text += &format!("\n  step {step}");
        }
        for event in events {
            text += &format!("\n    {event}");
        }
        if !execution.is_empty() {
            text += &format!(
                "\n  look: {}\n        {}",
                server.look("why", execution),
                server.look("executions watch", execution)
            );
        }
        text
    }
}

/// A run of the soak.
#[derive(Clone)]
pub(crate) struct Soak(Arc<Inner>);

struct Inner {
    client: Client,
    reader: Client,
    person: Person,
    workspaces: PathBuf,
    seed: u64,
    is_over: AtomicBool,
    has_failed: Notify,
    wrongs: Mutex<Vec<Wrong>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    recent: Mutex<VecDeque<String>>,
    deleted: Mutex<HashSet<String>>,
    retried: Mutex<HashSet<String>>,
}

impl Soak {
    /// A run against this server.
    pub(crate) fn new(server: &Server, seed: u64) -> Self {
        Self(Arc::new(Inner {
            client: Client::new(&server.socket()),
            reader: Client::new(&server.socket()),
            person: Person::at(&server.people()),
            workspaces: server.workspaces(),
            seed,
            is_over: AtomicBool::new(false),
            has_failed: Notify::new(),
            wrongs: Mutex::default(),
            counts: Mutex::default(),
            recent: Mutex::default(),
            deleted: Mutex::default(),
            retried: Mutex::default(),
        }))
    }

    /// The client that starts and changes executions.
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// A client with a connection of its own, which only reads.
    pub(crate) fn reader(&self) -> &Client {
        &self.0.reader
    }

    /// Sends a request, and again while the answer is UNAVAILABLE, which asks for that, at most for some seconds.
    pub(crate) async fn ask<T, F>(&self, mut send: impl FnMut() -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        for _ in 0..MAX_RETRIES {
            match send().await {
                Err(status) if status.code() == Code::Unavailable => self.count("answers UNAVAILABLE", 1),
                answer => return answer.map(Response::into_inner),
            }
            tokio::time::sleep(BACKOFF).await;
        }
        send().await.map(Response::into_inner)
    }

    /// The person who decides about approvals.
    pub(crate) fn person(&self) -> &Person {
        &self.0.person
    }

    /// The random choices of one task.
    pub(crate) fn random(&self, task: u64) -> SmallRng {
        SmallRng::seed_from_u64(self.0.seed.wrapping_mul(1_000).wrapping_add(task))
    }

    /// A new workspace.
    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        let path = self.0.workspaces.join(name);
        std::fs::create_dir(&path).expect("a folder can be made");
        path
    }

    /// Has the workers start no more executions.
    pub(crate) fn stop(&self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }

    /// Whether the workers are to start no more executions.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::SeqCst)
    }

    /// Records a difference, which ends the run.
    pub(crate) fn report(&self, wrong: Wrong) {
        lock(&self.0.wrongs).push(wrong);
        self.0.has_failed.notify_one();
    }

    /// Returns once a difference was recorded.
    pub(crate) async fn failed(&self) {
        loop {
            let notified = self.0.has_failed.notified();
            if !lock(&self.0.wrongs).is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// The differences so far.
    pub(crate) fn take_wrongs(&self) -> Vec<Wrong> {
        std::mem::take(&mut *lock(&self.0.wrongs))
    }

    /// Counts what has happened.
    pub(crate) fn count(&self, what: &'static str, times: usize) {
        *lock(&self.0.counts).entry(what).or_default() += times as u64;
    }

    /// The counts in one line.
    pub(crate) fn counts(&self) -> String {
        let counts = lock(&self.0.counts);
        let counts: Vec<String> = counts.iter().map(|(what, times)| format!("{times} {what}")).collect();
        format!("soak: {}", counts.join(", "))
    }

    /// Reports what did not happen in the run, unless it was cut short.
    pub(crate) fn require_all_counted(&self) {
        if !lock(&self.0.wrongs).is_empty() {
            return;
        }
        let missing: Vec<_> = COUNTED.into_iter().filter(|what| !lock(&self.0.counts).contains_key(what)).collect();
        if !missing.is_empty() {
            self.report(Wrong::new("", "", format!("the run had none of these: {}", missing.join(", "))));
        }
    }

    /// Has readers look at an execution from now on.
    pub(crate) fn is_alive(&self, id: &str) {
        let mut recent = lock(&self.0.recent);
        recent.push_back(id.to_owned());
        if recent.len() > MAX_RECENT {
            recent.pop_front();
        }
    }

    /// An execution among those that began last.
    pub(crate) fn recent(&self, random: &mut SmallRng) -> Option<String> {
        let recent = lock(&self.0.recent);
        (!recent.is_empty()).then(|| recent[random.random_range(0..recent.len())].clone())
    }

    /// Notes that an execution is about to be deleted.
    pub(crate) fn deletes(&self, id: &str) {
        lock(&self.0.deleted).insert(id.to_owned());
    }

    /// Whether somebody deletes or has deleted an execution.
    pub(crate) fn is_deleted(&self, id: &str) -> bool {
        lock(&self.0.deleted).contains(id)
    }

    /// Notes that an execution is about to resume after its end.
    pub(crate) fn retries(&self, id: &str) {
        lock(&self.0.retried).insert(id.to_owned());
    }

    /// Whether an execution may have gone on after its end.
    pub(crate) fn is_retried(&self, id: &str) -> bool {
        lock(&self.0.retried).contains(id)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

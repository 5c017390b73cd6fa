//! Records what a call asked for.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::{Duration, Instant};

use crate::{
    report::{Connection, CredentialUse, ModelUse, Report, Route},
    usage::Tokens,
};

/// The most characters of a host in a report: a name has at most 253.
const MAX_HOST: usize = 260;
/// The most characters of a rule or a sentence in a report.
const MAX_RULE: usize = 1_000;

/// The bytes of a connection, and when the last of them passed.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// In milliseconds since the log was begun.
    pub(crate) active: AtomicU64,
}

/// The record of one call.
#[derive(Debug)]
pub(crate) struct Log {
    begun: Instant,
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// How many of the entries are refused connections and questions.
    refused: usize,
    unlisted: u64,
    questions: u64,
    /// The number of refusals, listed or not.
    refusals: u64,
    /// The questions that are listed: their names, and whether they were allowed.
    asked: HashSet<(String, bool)>,
    is_over_budget: bool,
    /// How often each credential went to each host.
    credentials: BTreeMap<(String, String), u64>,
    models: ModelUse,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    counters: Arc<Counters>,
    is_open: bool,
}

/// A connection that is open. Its end is recorded when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenEntry {
    log: Arc<Log>,
    place: Option<usize>,
    pub(crate) counters: Arc<Counters>,
}

impl Log {
    /// A log that lists at most this many.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the log was begun, in milliseconds.
    pub(crate) fn milliseconds(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment at which the log was begun.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    fn add(&self, state: &mut State, connection: Connection, counters: Arc<Counters>, is_open: bool) -> Option<usize> {
        // Refusals and questions, of which a command can make any number, never take the place of what was reached.
        let takes_less = !connection.is_allowed || connection.route == Route::NameServer;
        if state.entries.len() >= self.max || (takes_less && state.refused >= self.max / 2) {
            state.unlisted += 1;
            return None;
        }
        state.refused += usize::from(takes_less);
        state.entries.push(Entry { connection, counters, is_open });
        Some(state.entries.len() - 1)
    }

    fn connection(&self, route: Route, host: &str, port: u16, is_allowed: bool, rule: &str) -> Connection {
        let shown = host.chars().take(MAX_HOST).flat_map(|c| c.escape_debug()).collect();
        let (sent_bytes, received_bytes, duration) = (0, 0, Duration::ZERO);
        let (rule, started_after) = (rule.chars().take(MAX_RULE).collect(), self.begun.elapsed());
        let failure = String::new();
        Connection {
            host: shown,
            port,
            route,
            is_allowed,
            rule,
            failure,
            sent_bytes,
            received_bytes,
            started_after,
            duration,
        }
    }

    /// Records a refusal.
    pub(crate) fn refuse(&self, route: Route, host: &str, port: u16, message: &str) {
        let connection = self.connection(route, host, port, false, message);
        let mut state = self.state();
        state.refusals += 1;
        self.add(&mut state, connection, Arc::default(), false);
    }

    /// Records that an allowed host was not reached.
    pub(crate) fn fail(&self, route: Route, host: &str, port: u16, message: &str) {
        let failure = message.chars().take(MAX_RULE).collect();
        let connection = Connection { failure, ..self.connection(route, host, port, true, "") };
        self.add(&mut self.state(), connection, Arc::default(), false);
    }

    /// Records a question to the name server.
    pub(crate) fn question(&self, name: &str, is_allowed: bool, rule: &str) {
        let mut state = self.state();
        state.questions += 1;
        state.refusals += u64::from(!is_allowed);
        let known = (name.to_owned(), is_allowed);
        if state.asked.contains(&known) {
            return;
        }
        let connection = self.connection(Route::NameServer, name, 0, is_allowed, rule);
        if self.add(&mut state, connection, Arc::default(), false).is_some() {
            state.asked.insert(known);
        }
    }

    /// Records a connection that begins.
    pub(crate) fn open(self: &Arc<Self>, route: Route, host: &str, port: u16, rule: &str) -> OpenEntry {
        let counters = Arc::new(Counters::default());
        counters.active.store(self.milliseconds(), Ordering::Relaxed);
        let connection = self.connection(route, host, port, true, rule);
        let place = self.add(&mut self.state(), connection, Arc::clone(&counters), true);
        OpenEntry { log: Arc::clone(self), place, counters }
    }

    /// Records that a request to a host carries a credential.
    pub(crate) fn use_credential(&self, name: &str, host: &str) {
        *self.state().credentials.entry((name.to_owned(), host.to_owned())).or_default() += 1;
    }

    /// Records the answer of a model.
    pub(crate) fn use_model(&self, tokens: Tokens, is_estimated: bool) {
        let models = &mut self.state().models;
        models.tokens.input = models.tokens.input.saturating_add(tokens.input);
        models.tokens.cached = models.tokens.cached.saturating_add(tokens.cached);
        models.tokens.output = models.tokens.output.saturating_add(tokens.output);
        models.answers += 1;
        models.estimated += u64::from(is_estimated);
    }

    /// The tokens of all answers of models so far.
    pub(crate) fn model_tokens(&self) -> u64 {
        self.state().models.tokens.total()
    }

    /// Records that a request to a model is refused, since the tokens are used up.
    pub(crate) fn refuse_model(&self) {
        self.state().models.refused += 1;
    }

    /// Records that the budget of bytes is used up.
    pub(crate) fn is_over_budget(&self) {
        self.state().is_over_budget = true;
    }

    /// Everything that was recorded so far.
    pub(crate) fn report(&self) -> Report {
        let state = self.state();
        let connections = state.entries.iter().map(|entry| {
            let mut connection = entry.connection.clone();
            connection.sent_bytes = entry.counters.sent.load(Ordering::Relaxed);
            connection.received_bytes = entry.counters.received.load(Ordering::Relaxed);
            if entry.is_open {
                connection.duration = self.begun.elapsed().saturating_sub(connection.started_after);
            }
            connection
        });
        Report {
            connections: connections.collect(),
            models: state.models,
            unlisted: state.unlisted,
            questions: state.questions,
            refusals: state.refusals,
            is_over_budget: state.is_over_budget,
            credentials: state
                .credentials
                .iter()
                .map(|((name, host), count)| CredentialUse { name: name.clone(), host: host.clone(), count: *count })
                .collect(),
            is_lost: false,
        }
    }
}

impl OpenEntry {
    /// Turns the record into that of an allowed host that was not reached.
    pub(crate) fn fail(self, message: &str) {
        let mut state = self.log.state();
        if let Some(entry) = self.place.and_then(|place| state.entries.get_mut(place)) {
            entry.connection.failure = message.chars().take(MAX_RULE).collect();
        }
    }

    /// Turns the record into that of a refusal: what was sent did not fit.
    pub(crate) fn refuse(self, message: &str) {
        let mut state = self.log.state();
        state.refusals += 1;
        if let Some(entry) = self.place.and_then(|place| state.entries.get_mut(place)) {
            entry.connection.is_allowed = false;
            entry.connection.rule = message.chars().take(MAX_RULE).collect();
        }
    }
}

impl Drop for OpenEntry {
    fn drop(&mut self) {
        let mut state = self.log.state();
        if let Some(entry) = self.place.and_then(|place| state.entries.get_mut(place)) {
            entry.is_open = false;
            entry.connection.duration = self.log.begun.elapsed().saturating_sub(entry.connection.started_after);
        }
    }
}

//! A client's connection to the executor, and which refusals are expected.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use belay_proto::v1::executor_service_client::ExecutorServiceClient;
use belay_service_kit::status;
use rand::Rng;
use rand::rngs::StdRng;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::super::hosts;
use super::super::records::Observations;
use crate::trace;

/// How long an RPC may take before its connection is replaced: turmoil's TCP does not retransmit what a partition dropped.
pub(in super::super) const RPC_TIMEOUT: Duration = Duration::from_millis(1000);

/// Expected reasons: the request may be sent again later, or the execution's state forbids it.
const EXPECTED: [&str; 13] = [
    "EXECUTION_ENDED",
    "FENCED",
    "LIMIT_REACHED",
    "NOTHING_TO_RETRY",
    "PLAN_REFUSED",
    "PLAN_REVISION_MISMATCH",
    "RUNNER_UNAVAILABLE",
    "STOPPING",
    "STORE_FAILED",
    "STORE_FULL",
    "WORKSPACE_FAILED",
    "WRONG_STATE",
    "LEDGER_UNAVAILABLE",
];

/// A client's connection to the executor, replaced after every failure.
pub(in super::super) struct Connection {
    client: ExecutorServiceClient<Channel>,
    /// Where it connects to.
    uri: &'static str,
    pub(super) observed: Observations,
    /// Whether the requested execution was lost with the journal.
    is_lost: bool,
    /// The executions that were not there any more because retention had deleted them.
    pub(super) taken: BTreeSet<String>,
    /// Whether the executor has answered the last request that it does not carry it out.
    pub(super) is_refused: bool,
    /// Why the executor has refused the last plan.
    pub(super) plan_refused: Option<String>,
    /// Whether the requested execution may not be there, yet or any more.
    pub(in super::super) may_be_missing: bool,
}

impl Connection {
    pub(in super::super) fn new(observed: &Observations) -> Self {
        Self::to(hosts::EXECUTOR_URI, observed)
    }

    /// A connection to the executor, or to the reader of its journal where there is one: for requests that change nothing.
    pub(in super::super) fn to_either(observed: &Observations, random: &mut StdRng) -> Self {
        if observed.has_reader() && random.random_bool(0.5) {
            trace::count("connections to the one that only reads");
            return Self::to(hosts::READER_URI, observed);
        }
        Self::new(observed)
    }

    /// The same connection, or a new one to either of them where there is a reader.
    pub(in super::super) fn or_either(self, random: &mut StdRng) -> Self {
        if self.observed.has_reader() { Self::to_either(&self.observed, random) } else { self }
    }

    fn to(uri: &'static str, observed: &Observations) -> Self {
        Self {
            client: connect(uri),
            uri,
            observed: observed.clone(),
            is_lost: false,
            taken: BTreeSet::new(),
            is_refused: false,
            plan_refused: None,
            may_be_missing: false,
        }
    }

    /// Another connection for requests that are sent at the same time, on the same way.
    pub(super) fn another(&self) -> Self {
        Self { client: self.client.clone(), ..Self::new(&self.observed) }
    }

    /// Sends a request; `None` when there is no response, or an expected refusal.
    pub(in super::super) async fn ask<T, Fut>(
        &mut self,
        ask: impl FnOnce(ExecutorServiceClient<Channel>) -> Fut,
    ) -> Option<T>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        self.is_refused = false;
        let answer = self.try_ask(ask).await;
        if let Err(Some(status)) = &answer {
            self.refused(status);
        }
        answer.ok()
    }

    /// Sends a request; `Err` with the refusal, of which nothing is recorded, or without one when there is no response.
    pub(in super::super) async fn try_ask<T, Fut>(
        &mut self,
        ask: impl FnOnce(ExecutorServiceClient<Channel>) -> Fut,
    ) -> Result<T, Option<Status>>
    where
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        match tokio::time::timeout(RPC_TIMEOUT, ask(self.client.clone())).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(Some),
            Err(_) => {
                trace::event("no answer");
                self.client = connect(self.uri);
                Err(None)
            }
        }
    }

    /// Whether an execution that was requested was lost with the journal, or retention has deleted it.
    pub(in super::super) fn is_gone(&self, name: &str) -> bool {
        self.is_lost || self.taken.contains(name)
    }

    /// Whether what a refusal does not find may be lost with the journal.
    fn may_be_lost(&self, status: &Status) -> bool {
        let is_known = || status::fact(status, "name").is_some_and(|name| self.observed.is_known(&name));
        self.observed.execution_may_be_gone() && !is_known()
    }

    /// Whether a client has asked to delete what a refusal does not find.
    fn may_be_deleted(&self, status: &Status) -> bool {
        status::fact(status, "name").is_some_and(|name| self.observed.deletions().contains_key(&name))
    }

    /// The execution that a refusal names, when retention has deleted it.
    fn taken(&self, status: &Status) -> Option<String> {
        status::fact(status, "name").filter(|name| self.observed.is_taken(name))
    }

    /// Records a refusal, which is a violation unless it is expected.
    pub(in super::super) fn refused(&mut self, status: &Status) {
        let (code, message) = (status.code(), status.message());
        trace::event(format_args!("refused: {code:?} {message}"));
        let reason = status::reason(status);
        let is_ours = std::error::Error::source(status).is_none();
        self.is_refused = matches!(code, Code::FailedPrecondition | Code::InvalidArgument | Code::NotFound);
        self.plan_refused = (reason.as_deref() == Some("PLAN_REFUSED")).then(|| message.to_owned());
        match reason.as_deref() {
            Some(reason) if EXPECTED.contains(&reason) => {}
            Some("EXECUTION_NOT_FOUND") if self.may_be_missing => {}
            Some("EXECUTION_NOT_FOUND") if self.may_be_lost(status) => self.is_lost = true,
            Some("EXECUTION_NOT_FOUND" | "EXECUTION_DELETED") if let Some(name) = self.taken(status) => {
                trace::count("requests about what was not kept");
                self.taken.insert(name);
            }
            // By a client, whose answer may be on its way or lost.
            Some("EXECUTION_NOT_FOUND") if self.may_be_deleted(status) => {}
            Some("EXECUTION_DELETED") if !self.observed.deletions().is_empty() => {}
            Some(reason @ "EXECUTION_NOT_FOUND") => {
                self.observed.violation(format_args!("what was observed is gone: {reason}: {message}"));
            }
            Some(reason) => self.observed.violation(format_args!("{reason}: {message}")),
            None if is_ours && matches!(code, Code::Internal | Code::DataLoss | Code::InvalidArgument) => {
                self.observed.violation(format_args!("{code:?}: {message}"));
            }
            None => self.client = connect(self.uri),
        }
    }
}

pub(in super::super) fn connect(uri: &'static str) -> ExecutorServiceClient<Channel> {
    ExecutorServiceClient::new(hosts::channel(uri))
}

//! The gate behind its methods: the store, the key, the active policy, and the timer that expires approvals.

use belay_reasons::StoreFault;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use belay_grant::{Keys, SigningKey};
use belay_group_commit::CommitError;
use belay_policy::Policies;
use belay_proto::v1::Approval;
use belay_reasons as reasons;
use belay_redaction::Redactor;
use belay_service_kit::{Clock, Ids, Limit, Shutdown, status};
use belay_sqlite::SqliteError;
use belay_telemetry::{RpcSpan, Telemetry, TraceContext, semconv};
use thiserror::Error;
use tokio::sync::{Mutex, watch};
use tonic::{Code, Status, metadata::MetadataMap};

use crate::{
    ActivePolicy, Parts, Store,
    decide::Refusal,
    feed::Head,
    form::AnswerKey,
    policy::{self, StoredPolicyError},
    preview::OpenedSubject,
    runner::RunnerClient,
    store::StoreFailure,
};

/// The timer's longest sleep: the wall clock may be set, and a laptop may be suspended.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The timer's delay before it retries a failed expiry.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Creates approvals, stores decisions, and signs grants.
pub struct Gate {
    pub(crate) store: Store,
    pub(crate) key: SigningKey,
    pub(crate) keys: Keys,
    pub(crate) answer_key: AnswerKey,
    pub(crate) runner: RunnerClient,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Ids,
    pub(crate) redactor: Redactor,
    pub(crate) telemetry: Telemetry,
    pub(crate) shutdown: Shutdown,
    /// The approval whose files were read last.
    pub(crate) opened: Mutex<Option<Arc<OpenedSubject>>>,
    /// The limit of open approvals.
    pub(crate) approvals: Limit,
    /// The limit of previews rendered at once.
    pub(crate) previews: Limit,
    /// The limit of requests that watch approvals.
    pub(crate) watchers: Limit,
    policy: watch::Sender<Arc<ActivePolicy>>,
    /// Held while the policy is replaced.
    publishing: Mutex<()>,
}

/// Why the gate does not start, or does not accept a policy.
#[derive(Debug, Error)]
pub enum GateError {
    /// The store cannot be read.
    #[error("the store of approvals cannot be read")]
    Unreadable(#[source] SqliteError),
    /// The store cannot be written.
    #[error("the store of approvals cannot be written")]
    Unwritable(#[source] CommitError<SqliteError>),
    /// The policy in the store cannot be trusted.
    #[error("the store of approvals is damaged: put a backup in its place")]
    Policy(#[from] StoredPolicyError),
}

impl Gate {
    /// Publishes the policy, loads what is pending, and expires what is due.
    ///
    /// # Errors
    /// [`GateError`] when the store cannot be used.
    pub async fn open(parts: Parts) -> Result<Arc<Self>, GateError> {
        let Parts { store, key, policies, runner, clock, ids, redactor, telemetry, shutdown, limits } = parts;
        let active = publish(&store, &policies, &key).await?;
        let keys = Keys::new([key.verifying_key()]);
        let answer_key = AnswerKey::new(&key);
        let gate = Arc::new(Self {
            store,
            key,
            keys,
            answer_key,
            runner,
            clock,
            ids,
            redactor,
            telemetry,
            shutdown,
            opened: Mutex::default(),
            approvals: Limit::new("services.gate.approvals", "open approvals", limits.approvals.value),
            previews: Limit::new("services.gate.previews", "previews being rendered", limits.previews.value),
            watchers: Limit::new("services.gate.watchers", "watching requests", limits.watchers.value),
            policy: watch::Sender::new(Arc::new(active)),
            publishing: Mutex::new(()),
        });
        let timer = expire_on_time(Arc::downgrade(&gate), gate.store.follow(), gate.shutdown.clone());
        drop(tokio::spawn(timer));
        Ok(gate)
    }

    /// The active policy.
    pub fn policy(&self) -> Arc<ActivePolicy> {
        self.policy.borrow().clone()
    }

    /// Returns when another service has seen a later position of the store: the gate has to stop.
    pub async fn failed(&self) -> SqliteError {
        SqliteError::Fault(StoreFault::Behind(self.store.stores().behind().await.to_string()))
    }

    /// Activates a policy under a new revision, unless it equals the active one.
    ///
    /// # Errors
    /// [`GateError`] when it cannot be stored; the active policy then stays active.
    pub async fn set_policy(&self, policies: &Policies) -> Result<Arc<ActivePolicy>, GateError> {
        let _one_at_a_time = self.publishing.lock().await;
        let active = Arc::new(publish(&self.store, policies, &self.key).await?);
        self.policy.send_if_modified(|last| {
            let changed = *last != active;
            *last = Arc::clone(&active);
            changed
        });
        Ok(active)
    }

    /// Begins the span of a request.
    pub(crate) fn begin_request(&self, method: &'static str, metadata: &MetadataMap) -> RpcSpan {
        RpcSpan::begin(&self.telemetry, method, TraceContext::of(metadata), self.clock.now_micros())
    }

    /// Ends the span of a request that returned an approval.
    pub(crate) fn end_request(&self, mut request: RpcSpan, answer: &Result<Approval, Status>) {
        if let Ok(approval) = answer {
            request.attribute(semconv::BELAY_APPROVAL, approval.name.clone());
            request.attribute(semconv::BELAY_STATE, approval.state().as_str_name().trim_start_matches("STATE_"));
        }
        request.end(answer, self.clock.now_micros());
    }

    pub(crate) fn follow_policy(&self) -> watch::Receiver<Arc<ActivePolicy>> {
        self.policy.subscribe()
    }

    /// Expires all due approvals, so that none of them is shown as pending.
    pub(crate) async fn expire_due(&self) -> Result<(), Status> {
        let now = self.clock.now_micros();
        match self.store.follow().borrow().next_expiry {
            Some(due) if due <= now => {}
            _ => return Ok(()),
        }
        self.store.lapse(now).await.map_err(|error| unwritable(&error))
    }
}

async fn publish(store: &Store, policies: &Policies, key: &SigningKey) -> Result<ActivePolicy, GateError> {
    let stored = store.policy().await.map_err(GateError::Unreadable)?;
    let last = stored.as_ref().map(|stored| stored.revision);
    // A store that was accepted although it is behind may lack the revision that runners have; seconds since the Unix epoch are above any revision.
    let least = store.stores().own().generation.div_euclid(1_000_000);
    let active = policy::next(stored, policies, key, least)?;
    if last != Some(active.signed.revision) {
        store.keep_policy(active.signed.clone()).await.map_err(GateError::Unwritable)?;
    }
    Ok(active)
}

/// Expires approvals when they are due, as long as the gate exists.
async fn expire_on_time(gate: Weak<Gate>, mut head: watch::Receiver<Head>, shutdown: Shutdown) {
    let mut shortest = Duration::ZERO;
    loop {
        let next = head.borrow_and_update().next_expiry;
        let nap = {
            let Some(gate) = gate.upgrade() else { return };
            let until = next.map(|next| next.saturating_sub(gate.clock.now_micros()));
            until.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)).clamp(shortest, MAX_SLEEP))
        };
        let due = async {
            match nap {
                Some(nap) => tokio::time::sleep(nap).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            changed = head.changed() => match changed {
                Ok(()) => shortest = Duration::ZERO,
                Err(_) => return,
            },
            () = due => {
                let Some(gate) = gate.upgrade() else { return };
                if let Err(error) = gate.expire_due().await {
                    tracing::error!(error = error.message(), "Due approvals could not be expired; retrying");
                }
                let stuck = head.borrow().next_expiry.is_some_and(|due| due <= gate.clock.now_micros());
                shortest = if stuck { RETRY_DELAY } else { Duration::ZERO };
            }
        }
    }
}

pub(crate) fn unreadable(error: &SqliteError) -> Status {
    let code = match error {
        SqliteError::Fault(StoreFault::Corrupt(_)) | SqliteError::Row(_) => Code::DataLoss,
        _ => Code::Unavailable,
    };
    status::error(code, error.reason(), format!("The approvals cannot be read: {error}.")).into()
}

pub(crate) fn unwritable(error: &StoreFailure) -> Status {
    let (reason, code) = match error {
        CommitError::Failed(error @ (SqliteError::Fault(StoreFault::Corrupt(_)) | SqliteError::Row(_))) => {
            (error.reason(), Code::DataLoss)
        }
        CommitError::Failed(error) => (error.reason(), Code::Unavailable),
        CommitError::Stopped => (reasons::STOPPING, Code::Unavailable),
    };
    status::error(code, reason, format!("The change could not be stored, and nothing was changed: {error}.")).into()
}

/// The error of a deletion whose bytes are still in a file.
pub(crate) fn log_in_use() -> Status {
    let message = "The approvals are deleted, and a reader such as `belay store check` keeps their bytes in the store's write-ahead log \
                   until it ends: retry.";
    status::error(Code::Unavailable, reasons::STORE_LOCKED, message).into()
}

pub(crate) fn no_approval(name: &str) -> Status {
    status::error(Code::NotFound, reasons::APPROVAL_NOT_FOUND, format!("There is no approval `{name}`."))
        .with("name", name)
        .into()
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let (reason, code) = match &refusal {
            Refusal::NotAPerson(_) => (reasons::NOT_A_PERSON, Code::PermissionDenied),
            Refusal::OwnRequest(_) => (reasons::OWN_REQUEST, Code::PermissionDenied),
            Refusal::DigestMismatch { .. } => (reasons::DIGEST_MISMATCH, Code::FailedPrecondition),
            Refusal::AlreadyDecided { .. } => (reasons::ALREADY_DECIDED, Code::FailedPrecondition),
            Refusal::OtherRequest => (reasons::REQUEST_ID_REUSED, Code::AlreadyExists),
            Refusal::Revealed => (reasons::TOO_MANY_REVEALS, Code::ResourceExhausted),
            Refusal::IsForm => (reasons::FORM_NEEDS_ANSWER, Code::FailedPrecondition),
            Refusal::NoForm => (reasons::NO_FORM, Code::FailedPrecondition),
            Refusal::Fenced { .. } => (reasons::FENCED, Code::FailedPrecondition),
        };
        let error = status::error(code, reason, refusal.to_string());
        match refusal {
            Refusal::Fenced { newest, .. } => error.with("newest", newest),
            Refusal::AlreadyDecided { state, by } => error.with("state", state.as_str_name()).with("decided_by", by),
            _ => error,
        }
        .into()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use belay_proto::v1::{Approval, approval::State};
    use belay_service_kit::net;
    use belay_settings::GateLimits;
    use belay_sqlite::{Location, Threads};
    use tokio::time::Instant;

    use super::*;
    use crate::{
        names::approval_of,
        store::{ApprovalContent, NewApproval},
    };

    /// Goes with tokio's paused clock.
    #[derive(Debug)]
    struct PausedClock(Instant);

    impl Clock for PausedClock {
        fn now_micros(&self) -> i64 {
            i64::try_from(self.0.elapsed().as_micros()).unwrap()
        }
    }

    pub(crate) async fn gate(folder: &std::path::Path) -> Arc<Gate> {
        let (trigger, shutdown) = Shutdown::new();
        std::mem::forget(trigger);
        let parts = Parts {
            store: Store::open(&Location::file(folder.join("gate.db")), Threads::Inline, || "id".into()).unwrap(),
            key: SigningKey::from_bytes(&[1; 32]),
            policies: Policies::preset(),
            runner: RunnerClient::new(net::connect_lazy(&net::Address::Unix(folder.join("absent"))), None).unwrap(),
            clock: Arc::new(PausedClock(Instant::now())),
            ids: Ids::seeded(1),
            redactor: Redactor::new(),
            telemetry: Telemetry::off(|bytes| bytes.fill(1)),
            shutdown,
            limits: GateLimits::default(),
        };
        Gate::open(parts).await.unwrap()
    }

    pub(crate) async fn ask(gate: &Gate, call: &str, expires_after: Option<Duration>) -> Approval {
        let now = gate.clock.now_micros();
        let basic = Approval {
            name: approval_of("default", call, ""),
            state: State::Pending.into(),
            expire_time: expires_after.map(|after| belay_proto::timestamp(now + after.as_micros() as i64)),
            ..Approval::default()
        };
        let rendered = ApprovalContent::Preview(Default::default());
        let new = NewApproval { basic, namespace: "default".into(), fence: 0, subject: Vec::new(), rendered };
        gate.store.create(new).await.unwrap().unwrap()
    }

    async fn state(gate: &Gate, approval: &Approval) -> State {
        gate.store.get(&approval.name).await.unwrap().unwrap().state()
    }

    /// B-04: with a limit an approval is denied at its time and no sooner; the timer does it without a request.
    #[tokio::test(start_paused = true)]
    async fn the_timer_wakes_when_an_approval_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let gate = gate(folder.path()).await;
        let hour = Duration::from_secs(3600);
        let later = ask(&gate, "later", Some(hour * 48)).await;
        let sooner = ask(&gate, "sooner", Some(hour)).await;
        let never = ask(&gate, "never", None).await;
        let (began, mut head) = (Instant::now(), gate.store.follow());
        for (approval, after) in [(&sooner, hour), (&later, hour * 48)] {
            let revision = head.borrow_and_update().revision;
            head.wait_for(|head| head.revision > revision).await.unwrap();
            let waited = began.elapsed();
            assert!((after..after + Duration::from_secs(1)).contains(&waited), "{waited:?} instead of {after:?}");
            assert_eq!(state(&gate, approval).await, State::Expired);
        }
        tokio::time::advance(hour * 24 * 3650).await;
        gate.expire_due().await.unwrap();
        assert_eq!(state(&gate, &never).await, State::Pending, "after ten years");
    }
}

//! The policy that this runner enforces: signed by the gate, durable, and replaced only by a newer revision.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_grant::{InvalidSeal, Keys, SignedBytes};
use belay_policy::{InvalidPolicy, Policy, RevisedPolicies};
use belay_proto::{
    gate_v1::{self, approval_gate_service_client::ApprovalGateServiceClient},
    v1,
};
use belay_service_kit::{Ids, Retry, ServiceChannel};
use thiserror::Error;
use tonic::{Request, Status, metadata::MetadataValue};

use crate::{
    Ledger,
    ledger::{Entry, LedgerFailure},
    lock::lock,
    subject::namespace,
};

/// The current policy, and the gate keys that verify a new one.
pub struct PolicyHolder {
    keys: Keys,
    ledger: Arc<Ledger>,
    current: Mutex<Option<ActivePolicy>>,
    /// Serialises offers.
    offer_lock: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct ActivePolicy {
    revised: Arc<RevisedPolicies>,
    body: Vec<u8>,
}

/// The policy for one call, of its namespace.
#[derive(Clone)]
pub(crate) struct CallPolicy {
    /// The revision of the file that it is from.
    pub(crate) revision: i64,
    pub(crate) policy: Policy,
}

/// The offered policy is the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyAcceptance {
    /// It is newer than the previous one, and durable.
    New,
    /// It was the current policy already.
    Same,
}

/// Why an offered policy is rejected.
#[derive(Debug, Error)]
pub enum PolicyRefusal {
    /// The gate did not sign it.
    #[error("the policy is not signed by the gate: {0}")]
    Signature(#[from] InvalidSeal),
    /// Its body is invalid.
    #[error("the policy is invalid: {0}")]
    Unreadable(#[from] InvalidPolicy),
    /// Its revision differs from the signed one.
    #[error("the policy claims revision {claimed}, but the signed body is revision {signed}")]
    Revision {
        /// Beside the signed body.
        claimed: i64,
        /// In the signed body.
        signed: i64,
    },
    /// It is not newer.
    #[error("policy revision {offered} is not newer than the current revision {current}")]
    NotNewer {
        /// The offered revision.
        offered: i64,
        /// The current revision.
        current: i64,
    },
    /// The ledger cannot be written.
    #[error("the policy cannot be stored: {0}")]
    NotDurable(#[from] LedgerFailure),
}

impl PolicyHolder {
    /// Starts with the policy from the ledger if one of these keys signed it, else without one.
    pub(crate) fn new(keys: Keys, ledger: Arc<Ledger>, kept: Option<v1::SignedPolicy>) -> Self {
        let current = kept.and_then(|kept| match read(&keys, &kept) {
            Ok(revised) => Some(ActivePolicy { revised: Arc::new(revised), body: kept.body }),
            Err(refused) => {
                tracing::warn!(%refused, "The stored policy is not valid any more; the runner has no policy until the gate publishes one");
                None
            }
        });
        Self { keys, ledger, current: Mutex::new(current), offer_lock: tokio::sync::Mutex::default() }
    }

    /// The keys that verify policies and grants.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The current policy, if there is one.
    pub fn current(&self) -> Option<Arc<RevisedPolicies>> {
        self.active().map(|active| active.revised)
    }

    /// The current policy for a call, if there is one.
    pub(crate) fn of_call(&self, call: &str) -> Option<CallPolicy> {
        self.of_namespace(namespace(call))
    }

    /// The current policy of a namespace, if there is one.
    pub(crate) fn of_namespace(&self, namespace: &str) -> Option<CallPolicy> {
        let revised = self.current()?;
        Some(CallPolicy { revision: revised.revision, policy: revised.policies.of(namespace).clone() })
    }

    fn active(&self) -> Option<ActivePolicy> {
        lock(&self.current).clone()
    }

    /// Makes a policy the current one, if the gate signed it and it is newer. It is durable before it takes effect.
    ///
    /// # Errors
    /// [`PolicyRefusal`]; the current policy stays.
    pub async fn offer(&self, offered: v1::SignedPolicy) -> Result<PolicyAcceptance, PolicyRefusal> {
        let revised = read(&self.keys, &offered)?;
        let _serialised = self.offer_lock.lock().await;
        if let Some(active) = self.active() {
            let (offered_revision, current_revision) = (revised.revision, active.revised.revision);
            if offered_revision == current_revision && offered.body == active.body {
                return Ok(PolicyAcceptance::Same);
            }
            if offered_revision <= current_revision {
                return Err(PolicyRefusal::NotNewer { offered: offered_revision, current: current_revision });
            }
        }
        let body = offered.body.clone();
        self.ledger.write(Entry::Policy(offered)).await?;
        let active = ActivePolicy { revised: Arc::new(revised), body };
        *lock(&self.current) = Some(active);
        Ok(PolicyAcceptance::New)
    }

    /// Follows the policies that the gate publishes, for as long as it is polled. `ids` varies the delays between tries.
    pub async fn follow_gate(&self, gate: GateChannel, ids: &Ids) {
        let mut retry = Retry::new(Duration::from_millis(200), Duration::from_secs(10));
        loop {
            match self.watch(&gate, &mut retry).await {
                Ok(()) => tracing::info!("The approval gate ended the policy watch; reconnecting"),
                Err(status) => tracing::warn!(%status, "Cannot watch the policy at the approval gate; retrying"),
            }
            retry.pause(ids).await;
        }
    }

    async fn watch(&self, gate: &GateChannel, retry: &mut Retry) -> Result<(), Status> {
        let mut request = Request::new(gate_v1::WatchPolicyRequest {});
        if let Some(token) = &gate.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        let mut updates =
            ApprovalGateServiceClient::new(gate.channel.clone()).watch_policy(request).await?.into_inner();
        while let Some(message) = updates.message().await? {
            let Some(offered) = message.policy else {
                retry.succeeded();
                continue;
            };
            let revision = offered.revision;
            match self.offer(offered).await {
                Ok(PolicyAcceptance::New) => tracing::info!(revision, "A new policy is in force"),
                Ok(PolicyAcceptance::Same) => {}
                // The gate sends a revision once per watch; a new watch sends it again.
                Err(refused @ PolicyRefusal::NotDurable(_)) => return Err(Status::unavailable(refused.to_string())),
                Err(refused) => tracing::error!(revision, %refused, "Rejected a policy"),
            }
            retry.succeeded();
        }
        Ok(())
    }
}

/// Verifies and decodes a signed policy.
fn read(keys: &Keys, offered: &v1::SignedPolicy) -> Result<RevisedPolicies, PolicyRefusal> {
    let v1::SignedPolicy { revision, body, signature, key_id } = offered.clone();
    let signed = SignedBytes { body, signature, key_id };
    signed.verify_policy(keys)?;
    let revised = RevisedPolicies::from_bytes(&signed.body)?;
    if revised.revision != revision {
        return Err(PolicyRefusal::Revision { claimed: revision, signed: revised.revision });
    }
    Ok(revised)
}

/// A channel to the approval gate, with credentials.
#[derive(Clone)]
pub struct GateChannel {
    channel: ServiceChannel,
    token: Option<MetadataValue<tonic::metadata::Ascii>>,
}

/// The token is not a valid header value.
#[derive(Clone, Copy, Debug, Error)]
#[error("the gate token has characters that are not allowed in a header")]
pub struct InvalidToken;

impl GateChannel {
    /// Sends `token` with every request.
    ///
    /// # Errors
    /// [`InvalidToken`] when the token is not a valid header value.
    pub fn new(channel: impl Into<ServiceChannel>, token: Option<&str>) -> Result<Self, InvalidToken> {
        let token = token.map(|token| format!("Bearer {token}").parse().map_err(|_| InvalidToken)).transpose()?;
        Ok(Self { channel: channel.into(), token })
    }
}

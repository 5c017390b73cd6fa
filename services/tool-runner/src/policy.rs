//! The policy this runner enforces: signed by the gate, kept through restarts, and only ever replaced by a newer one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_grant::{Invalid, Keys, Signed};
use belay_policy::{InvalidPolicy, Revised};
use belay_proto::v1::{self, approval_gate_service_client::ApprovalGateServiceClient};
use belay_service_kit::ServiceChannel;
use thiserror::Error;
use tonic::{Request, Status, metadata::MetadataValue};

use crate::{
    Ledger,
    ledger::{Entry, LedgerFailure},
};

/// The policy that holds, and the gate's keys, which decide what may take its place.
pub struct PolicyHolder {
    keys: Keys,
    ledger: Arc<Ledger>,
    current: Mutex<Option<Held>>,
    /// Held by the one offer that is being taken.
    taking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Held {
    revised: Arc<Revised>,
    body: Vec<u8>,
}

/// An offered policy holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is newer than the one before, and kept.
    New,
    /// It is the one that holds already.
    Same,
}

/// Why an offered policy does not hold.
#[derive(Debug, Error)]
pub enum Refused {
    /// The gate did not sign it.
    #[error("the policy is not the gate's: {0}")]
    Signature(#[from] Invalid),
    /// It cannot be read.
    #[error("the policy cannot be read: {0}")]
    Unreadable(#[from] InvalidPolicy),
    /// It says another revision outside than inside.
    #[error("the policy says it is revision {said}, and what is signed is revision {signed}")]
    Revision {
        /// Outside of what is signed.
        said: i64,
        /// In what is signed.
        signed: i64,
    },
    /// It is not newer.
    #[error("revision {offered} of the policy is not newer than {held}, which holds")]
    NotNewer {
        /// The one that was offered.
        offered: i64,
        /// The one that holds.
        held: i64,
    },
    /// It cannot be kept.
    #[error("the policy cannot be kept: {0}")]
    NotDurable(#[from] LedgerFailure),
}

impl PolicyHolder {
    /// The policy that the ledger kept, if it is signed with one of these keys; none otherwise.
    pub(crate) fn new(keys: Keys, ledger: Arc<Ledger>, kept: Option<v1::SignedPolicy>) -> Self {
        let current = kept.and_then(|kept| match read(&keys, &kept) {
            Ok(revised) => Some(Held { revised: Arc::new(revised), body: kept.body }),
            Err(refused) => {
                tracing::warn!(%refused, "The policy from before does not hold any more");
                None
            }
        });
        Self { keys, ledger, current: Mutex::new(current), taking: tokio::sync::Mutex::default() }
    }

    /// The keys whose signatures count.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The policy that holds now.
    pub fn current(&self) -> Option<Arc<Revised>> {
        self.held().map(|held| held.revised)
    }

    fn held(&self) -> Option<Held> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a policy if the gate signed it and it is newer than the one that holds. It is durable before it holds.
    ///
    /// # Errors
    /// [`Refused`]; what held before goes on holding.
    pub async fn offer(&self, offered: v1::SignedPolicy) -> Result<Accepted, Refused> {
        let revised = read(&self.keys, &offered)?;
        let _one_at_a_time = self.taking.lock().await;
        if let Some(held) = self.held() {
            let (offered_revision, held_revision) = (revised.revision, held.revised.revision);
            if offered_revision == held_revision && offered.body == held.body {
                return Ok(Accepted::Same);
            }
            if offered_revision <= held_revision {
                return Err(Refused::NotNewer { offered: offered_revision, held: held_revision });
            }
        }
        let body = offered.body.clone();
        self.ledger.write(Entry::Policy(offered)).await?;
        let held = Held { revised: Arc::new(revised), body };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(Accepted::New)
    }

    /// Takes every policy that the gate publishes, for as long as it is polled.
    pub async fn follow_gate(&self, gate: GateChannel) {
        const SHORTEST: Duration = Duration::from_millis(200);
        const LONGEST: Duration = Duration::from_secs(10);
        let mut pause = SHORTEST;
        loop {
            match self.watch(&gate, &mut pause, SHORTEST).await {
                Ok(()) => tracing::info!("The approval gate ended its watch of the policy"),
                Err(status) => tracing::warn!(%status, "The approval gate cannot be asked for the policy"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST);
        }
    }

    async fn watch(&self, gate: &GateChannel, pause: &mut Duration, shortest: Duration) -> Result<(), Status> {
        let mut request = Request::new(v1::WatchPolicyRequest {});
        if let Some(token) = &gate.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        let mut news = ApprovalGateServiceClient::new(gate.channel.clone()).watch_policy(request).await?.into_inner();
        while let Some(message) = news.message().await? {
            let Some(offered) = message.policy else {
                *pause = shortest;
                continue;
            };
            let revision = offered.revision;
            match self.offer(offered).await {
                Ok(Accepted::New) => tracing::info!(revision, "A new policy holds"),
                Ok(Accepted::Same) => {}
                // The gate says it once in a watch: the next one brings it again.
                Err(refused @ Refused::NotDurable(_)) => return Err(Status::unavailable(refused.to_string())),
                Err(refused) => tracing::error!(revision, %refused, "A policy was refused"),
            }
            *pause = shortest;
        }
        Ok(())
    }
}

/// The policy in signed bytes.
fn read(keys: &Keys, offered: &v1::SignedPolicy) -> Result<Revised, Refused> {
    let v1::SignedPolicy { revision, body, signature, key_id } = offered.clone();
    let signed = Signed { body, signature, key_id };
    signed.verify_policy(keys)?;
    let revised = Revised::from_bytes(&signed.body)?;
    if revised.revision != revision {
        return Err(Refused::Revision { said: revision, signed: revised.revision });
    }
    Ok(revised)
}

/// A way to the approval gate.
#[derive(Clone)]
pub struct GateChannel {
    channel: ServiceChannel,
    token: Option<MetadataValue<tonic::metadata::Ascii>>,
}

/// A token that cannot stand in a header.
#[derive(Clone, Copy, Debug, Error)]
#[error("the gate's token holds characters that cannot be sent")]
pub struct BadToken;

impl GateChannel {
    /// A gate behind a channel; `token` is shown with every request.
    ///
    /// # Errors
    /// [`BadToken`] when it cannot stand in a header.
    pub fn new(channel: impl Into<ServiceChannel>, token: Option<&str>) -> Result<Self, BadToken> {
        let token = token.map(|token| format!("Bearer {token}").parse().map_err(|_| BadToken)).transpose()?;
        Ok(Self { channel: channel.into(), token })
    }
}

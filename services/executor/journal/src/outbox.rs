//! Messages for webhooks that are still to be sent.

use crate::ExecutionKey;

/// The number that identifies a message within a store. No other message ever gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxKey(pub i64);

/// A message for a webhook, stored in the same step as the transition that causes it. It has no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxMessage {
    /// The webhook's name in the settings.
    pub webhook: String,
    /// The message's id, the same however often it is sent.
    pub id: String,
    /// The body that is sent.
    pub body: String,
    /// The time of the transition, in microseconds since the Unix epoch.
    pub created_at: i64,
}

/// A stored message, which stays until it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its key.
    pub key: OutboxKey,
    /// The execution that it is about. Both are deleted together.
    pub execution: ExecutionKey,
    /// The message.
    pub message: OutboxMessage,
    /// How many attempts to send it have failed.
    pub attempts: u32,
    /// When to send it, in microseconds since the Unix epoch: at first the time of the transition.
    pub next_at: i64,
}

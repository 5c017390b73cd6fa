//! Messages between executions of a store.

use crate::ExecutionKey;

/// A message that an execution sends with one of its transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxMessage {
    /// The execution that it is for. Without it in the store, the message is dropped.
    pub to: ExecutionKey,
    /// The revision of the sender after the transition: the sequence of its last event.
    pub revision: u64,
    /// The content.
    pub content: InboxContent,
}

/// The content of a message about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxContent {
    /// It carries out the plan of a step of the recipient, and has ended.
    ChildEnded,
}

/// A message in the inbox of an execution. One of each sender is kept, the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// The execution that it is for.
    pub to: ExecutionKey,
    /// The sender.
    pub from: ExecutionKey,
    /// The revision of the sender.
    pub revision: u64,
    /// The content.
    pub content: InboxContent,
}

/// A message that its recipient takes out of its inbox. A later one of the same sender stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenMessage {
    /// The sender.
    pub from: ExecutionKey,
    /// The revision of the sender, as the message has it, or a later one.
    pub revision: u64,
}

/// The changes of inboxes that are committed with a transition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxChanges {
    /// The messages that the execution sends.
    pub sent: Vec<InboxMessage>,
    /// The messages to this execution that are recorded with the transition: they leave its inbox.
    pub taken: Vec<TakenMessage>,
}

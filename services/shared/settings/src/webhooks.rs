//! The section `webhooks`: who is told what happens to executions.

use std::{path::PathBuf, time::Duration};

use crate::ValueWithOrigin;

/// An event that can be sent to a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebhookEvent {
    /// An execution has ended, and a step of it has failed or its time was over.
    Failed,
    /// An execution begins to wait for a person.
    Waiting,
    /// An execution has ended, however it did.
    Finished,
}

impl WebhookEvent {
    /// The values in the file, which are also the types of the messages.
    pub(crate) const WORDS: [(&'static str, Self); 3] = [
        ("execution.failed", Self::Failed),
        ("execution.waiting", Self::Waiting),
        ("execution.finished", Self::Finished),
    ];

    /// The value in the file, and the type of the message.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "execution.failed",
            Self::Waiting => "execution.waiting",
            Self::Finished => "execution.finished",
        }
    }
}

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its name, by which its owed deliveries are found again after a restart.
    pub name: String,
    /// Where messages are posted to: an `http` or `https` URL without credentials.
    pub url: ValueWithOrigin<String>,
    /// The events to send.
    pub events: ValueWithOrigin<Vec<WebhookEvent>>,
    /// The file with the secret that messages are signed with.
    pub secret_file: ValueWithOrigin<PathBuf>,
    /// How long the receiver has to answer.
    pub timeout: ValueWithOrigin<Duration>,
    /// How long a delivery is tried.
    pub give_up_after: ValueWithOrigin<Duration>,
}

//! Waits: their conditions and ends.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Decision, Json, Timestamp, digest};

/// The condition of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitCondition {
    /// A point in time.
    Time {
        /// When it ends.
        until: Timestamp,
    },
    /// A signal.
    Signal {
        /// The signal's name.
        signal: String,
        /// When the step's time limit ends the wait; `None` means no limit.
        until: Option<Timestamp>,
    },
    /// A person's answer to a form.
    Form {
        /// The form.
        form: Arc<Form>,
        /// When the step's time limit ends the wait; `None` means no limit.
        until: Option<Timestamp>,
    },
    /// A person's answer to a question of a call that runs. The call continues with it; its step does not wait.
    Question {
        /// The number of the call within the attempt.
        call: u32,
        /// The id that the tool runner has given the question: another one whenever it runs the call.
        question: Arc<str>,
        /// The question, as a form.
        form: Arc<Form>,
        /// When the question's own time limit ends the wait; `None` means no limit.
        until: Option<Timestamp>,
        /// Whether an answer may hold for the execution; see [`holds_for_execution`].
        may_hold: bool,
    },
}

/// The outcome of a question of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuestionReply {
    /// A person answered it.
    Answered(Json),
    /// Nobody will answer it.
    Declined {
        /// Why.
        reason: String,
    },
    /// Its time limit ran out first.
    TimedOut,
}

/// A form that a person answers, with its templates resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Form {
    /// The question, in one line.
    pub title: String,
    /// The context that a person needs to answer.
    pub description: String,
    /// The JSON Schema of the answer.
    pub schema: Json,
    /// `sha256:` over [`Self::subject`]. An answer is bound to it.
    pub subject_digest: String,
}

impl Form {
    /// A form with its digest.
    pub fn new(title: String, description: String, schema: &Value) -> Self {
        let form = Self { title, description, schema: Json::canonical(schema), subject_digest: String::new() };
        Self { subject_digest: digest(form.subject().as_str().as_bytes()), ..form }
    }

    /// The exact text that is digested, and that the gate keeps.
    pub fn subject(&self) -> Json {
        let Self { title, description, schema, .. } = self;
        Json::canonical(&json!({"title": title, "description": description, "schema": schema.value()}))
    }
}

impl WaitCondition {
    /// The signal that it waits for.
    pub fn signal(&self) -> Option<&str> {
        match self {
            Self::Time { .. } | Self::Form { .. } | Self::Question { .. } => None,
            Self::Signal { signal, .. } => Some(signal),
        }
    }

    /// The form that a person has to answer.
    pub fn form(&self) -> Option<&Arc<Form>> {
        match self {
            Self::Time { .. } | Self::Signal { .. } => None,
            Self::Form { form, .. } | Self::Question { form, .. } => Some(form),
        }
    }

    /// The call that asks, by its number within the attempt, and the id of the question; `None` for what a step waits for.
    pub fn question(&self) -> Option<(u32, &Arc<str>)> {
        match self {
            Self::Question { call, question, .. } => Some((*call, question)),
            Self::Time { .. } | Self::Signal { .. } | Self::Form { .. } => None,
        }
    }

    /// When the wait ends, if nothing ends it before.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Time { until } => Some(*until),
            Self::Signal { until, .. } | Self::Form { until, .. } | Self::Question { until, .. } => *until,
        }
    }
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The time has come.
    Elapsed,
    /// The signal came.
    Signalled {
        /// The sequence number of the event that brought it.
        sequence: u64,
    },
    /// A person, the event's actor, answered the form.
    Answered {
        /// The answer.
        answer: Json,
    },
    /// An answer to the same form of an earlier call holds for the execution.
    Held {
        /// The sequence number of the event with the answer.
        sequence: u64,
    },
    /// Nobody will answer the form. The event's actor declined it, or the execution's approval mode when there is none.
    Declined {
        /// Whether the step fails (denied) or is skipped.
        decision: Decision,
        /// The reason that was given.
        reason: String,
    },
    /// The approval gate refuses to ask the form.
    Refused {
        /// The service's message.
        message: String,
    },
    /// The time limit ran out first: the step's, or the question's.
    TimedOut,
    /// The execution was stopped, or the call that asks has ended.
    Cancelled,
}

/// The most answers that hold for an execution. Further ones hold for their calls alone.
pub const MAX_HELD_ANSWERS: usize = 1_000;

/// Whether a person has given an answer for all calls of the execution that ask the same: its member `for` is `execution`.
pub(crate) fn holds_for_execution(answer: &Json) -> bool {
    answer.value().get("for").is_some_and(|scope| scope == "execution")
}

/// The most questions of a call that are open at once. The tool runner refuses more.
pub const MAX_OPEN_QUESTIONS: usize = 10;

/// The most questions that a call asks. What became of them is kept until it ends.
pub const MAX_QUESTIONS: usize = 1_000;

impl WaitEnd {
    /// The end in a word, for messages, which never have what a person has answered.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Elapsed => "elapsed",
            Self::Signalled { .. } => "signalled",
            Self::Answered { .. } => "answered",
            Self::Held { .. } => "held",
            Self::Declined { .. } => "declined",
            Self::Refused { .. } => "refused",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
        }
    }
}

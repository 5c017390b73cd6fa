//! Values that are inline, or in a blob when they are too large for that.

use std::sync::Arc;

use belay_agent::ModelWindow;
use belay_model::Price;
use belay_plan::{CheckPlace, Condition, ConditionValues};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Amounts, Json, NamespaceHold, Timestamp};

/// How many bytes of blobs one step's templates may read.
pub const MAX_READ_BYTES: u64 = 64 * 1024 * 1024;

/// A value that a tool takes or returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// The value.
    Inline(Json),
    /// Where the value is.
    Blob(BlobRef),
}

/// A reference to a JSON value in the store of blobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlobRef {
    /// The digest that names it.
    pub digest: Arc<str>,
    /// Its size in bytes with its secrets hidden.
    pub size: u64,
    /// Whether it has secrets that are hidden.
    pub redacted: bool,
}

impl Payload {
    /// The value, if it is inline.
    pub fn inline(&self) -> Option<&Json> {
        match self {
            Self::Inline(json) => Some(json),
            Self::Blob(_) => None,
        }
    }

    /// The blob, if the value is in one.
    pub fn blob(&self) -> Option<&BlobRef> {
        match self {
            Self::Inline(_) => None,
            Self::Blob(blob) => Some(blob),
        }
    }

    /// The size of the value in bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Inline(json) => json.as_str().len() as u64,
            Self::Blob(blob) => blob.size,
        }
    }
}

impl From<Json> for Payload {
    fn from(json: Json) -> Self {
        Self::Inline(json)
    }
}

/// A blob that a decision needs.
#[derive(Clone, Copy, Debug)]
pub enum BlobValue<'a> {
    /// Its value.
    Known(&'a Value),
    /// It cannot be read, for this reason, and never will be.
    Unreadable(&'a str),
    /// It is not at hand. The caller gets it and decides again; nothing that needs it is decided before.
    Wanted,
}

/// The result of the evaluation of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionResult {
    /// Whether it holds.
    Known(bool),
    /// It has no value, for this reason.
    Failed(String),
    /// It needs the value of a variable that has none, for this reason.
    Absent(String),
    /// It is not known yet. The caller evaluates it and decides again; the step does not start before.
    Wanted,
}

/// Whether an execution may have more steps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Free,
    /// Not now. The caller gets room and decides again; the steps are not added before.
    Wanted,
    /// Never: it would have more steps than this, the most that one execution may have.
    Beyond(usize),
}

/// Whether a call may begin, as far as the budget of its namespace goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The namespace has no budget.
    Unlimited,
    /// The call may begin, and this is held for it.
    Held(NamespaceHold),
    /// The call has to wait: calls in flight hold what is left, or the amounts are not known yet. The caller decides again.
    Wanted,
    /// The budget of the window is used up.
    Exhausted {
        /// The words for people.
        reason: String,
        /// When the window ends.
        until: Timestamp,
    },
}

/// The identity of a call: two calls with the same one are the same call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallIdentity {
    /// The tool's canonical name.
    pub tool: String,
    /// The digest of the arguments, with their templates resolved.
    pub arguments_digest: String,
}

/// A result that may take the place of another call's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierResult {
    /// The call that returned it.
    pub call: CallIdentity,
    /// The result.
    pub result: Payload,
    /// When the call returned it.
    pub completed_at: Timestamp,
}

/// An earlier result of a call, in another execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedResult {
    /// There is one.
    Known {
        /// The result.
        result: Json,
        /// The name of the execution in which a call returned it.
        execution: String,
        /// When.
        completed_at: Timestamp,
    },
    /// There is none.
    Absent,
    /// It is not known yet. The caller looks for it and decides again; the step does not end before.
    Wanted,
}

/// What is known of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// Its window.
    pub window: ModelWindow,
    /// How many tokens its answers may have.
    pub max_output: u64,
    /// What it costs; `None` where that is not known.
    pub price: Option<Price>,
}

/// The blobs of an execution, as far as its decisions need them. Reading and writing them is left to the caller.
pub trait Blobs {
    /// The value of a blob that a template reads. The implementation remembers the blobs that it does not have.
    fn value(&self, blob: &BlobRef) -> BlobValue<'_>;

    /// The value as events have it: in a blob when it is too large to be inline. The implementation stores the blob before the events.
    fn payload(&self, json: Json) -> Payload;

    /// Whether the condition of the step with this id holds with these values of its variables, or the reasons why they have none. What evaluates expressions knows no execution, and takes time: the
    /// implementation may remember what is to be evaluated, and have it the next time.
    /// `place` is that of a check before or after the step's call.
    fn evaluate(
        &self,
        step: &str,
        place: Option<CheckPlace>,
        condition: &Condition,
        variables: ConditionValues,
    ) -> ConditionResult;

    /// Whether the output of the step with this id fits a schema; [`ConditionResult::Failed`] says what does not. As [`Self::evaluate`], it may have the answer
    /// the next time.
    fn validate(&self, step: &str, schema: &Value, output: Value) -> ConditionResult;

    /// The last result that the same call returned in an earlier execution of the same plan. The implementation remembers what was asked for.
    fn earlier_result(&self, call: &CallIdentity) -> CachedResult {
        let _ = call;
        CachedResult::Absent
    }

    /// Whether a call may begin, as far as the budget of the namespace goes. The implementation remembers what it holds for the call, until the event that
    /// records it is stored.
    fn admit(&self, needed: Amounts) -> Admission {
        let _ = needed;
        Admission::Unlimited
    }

    /// Whether the budget of the namespace, for which an execution is paused, has room again.
    fn has_namespace_room(&self) -> bool {
        false
    }

    /// Whether the execution may have all of its limits now. The implementation remembers what it has to look up.
    fn limit_room(&self) -> LimitRoom {
        LimitRoom::Free
    }

    /// What is known of the model of this name; `None` when there is none.
    fn model(&self, name: &str) -> Option<ModelFacts> {
        let _ = name;
        None
    }

    /// Whether this many steps may be added for the entries of the list of the step with this id. The implementation remembers what was asked for.
    fn room(&self, step: &str, steps: usize) -> Room {
        let _ = (step, steps);
        Room::Free
    }
}

/// Whether an execution may have all of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRoom {
    /// It may, as far as is known.
    Free,
    /// It may not: a limit is full, or it is not its turn.
    Full {
        /// The limit that is full and refuses, by its position among those of the execution.
        refused: Option<usize>,
    },
    /// That has to be looked up.
    Wanted,
}

/// An execution without blobs: every value is inline, and conditions wait for a driver that evaluates them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBlobs;

impl Blobs for NoBlobs {
    fn value(&self, _: &BlobRef) -> BlobValue<'_> {
        BlobValue::Unreadable("there is no store of blobs")
    }

    fn payload(&self, json: Json) -> Payload {
        json.into()
    }

    fn evaluate(&self, _: &str, _: Option<CheckPlace>, _: &Condition, _: ConditionValues) -> ConditionResult {
        ConditionResult::Wanted
    }

    fn validate(&self, _: &str, _: &Value, _: Value) -> ConditionResult {
        ConditionResult::Wanted
    }
}

//! The blobs that the decisions of one driver read and make.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::Arc,
};

use belay_agent::ModelWindow;
use belay_execution::{
    Admission, Amounts, BlobRef, BlobValue, CachedResult, CallIdentity, ConditionResult, Json, LimitRoom, ModelFacts,
    Payload, Room, Timestamp,
};
use belay_plan::{CheckPlace, Condition, ConditionValues};
use serde_json::Value;

use crate::{
    intake::conditions::{Evaluation, EvaluationKey, NoAnswer, Question, ToEvaluate},
    models::Models,
    owned::namespace_usage::PendingUsage,
    store::{blobs::NewBlob, secrets::Secrets},
};

/// The blobs that the decisions of one driver read and make.
pub(crate) struct BlobContext<'a> {
    pub(crate) uid: &'a str,
    /// Values of more bytes than this become blobs.
    pub(crate) max_inline: usize,
    /// The models of the settings.
    pub(crate) models: &'a Models,
    pub(crate) resolved: &'a ResolvedData,
    pub(crate) secrets: RefCell<&'a mut Secrets>,
    pub(crate) made: RefCell<&'a mut NewBlobs>,
    /// The steps that the execution has or will have by its decisions, how many it may have now, and the most that it may ever have.
    pub(crate) steps: Cell<usize>,
    pub(crate) room: usize,
    pub(crate) most_steps: usize,
    /// Data that a decision needs and that is not at hand.
    pub(crate) missing: RefCell<MissingData>,
    pub(crate) random: &'a dyn Fn() -> [u8; 32],
    /// The budget of the namespace; `None` when it has none.
    pub(crate) usage: RefCell<Option<&'a mut PendingUsage>>,
    /// The time by which windows of that budget begin and end.
    pub(crate) now: Timestamp,
}

/// Data that was fetched for a decision.
#[derive(Default)]
pub(crate) struct ResolvedData {
    /// Blobs, by their digests.
    pub(crate) blobs: HashMap<Arc<str>, Result<Value, String>>,
    /// Answers to questions about the conditions, checks and outputs of steps.
    pub(crate) evaluated: HashMap<EvaluationKey, Result<bool, NoAnswer>>,
    /// Earlier results of calls; `None` where there is none.
    pub(crate) earlier: HashMap<CallIdentity, Option<FoundResult>>,
    /// Whether the execution may have its limits.
    pub(crate) limit_room: Option<LimitRoom>,
}

/// An earlier result of a call.
#[derive(Clone)]
pub(crate) struct FoundResult {
    pub(crate) result: Json,
    /// The name of the execution in which a call returned it.
    pub(crate) execution: String,
    pub(crate) completed_at: Timestamp,
}

/// Data that a decision needs.
#[derive(Default)]
pub(crate) struct MissingData {
    pub(crate) blobs: Vec<BlobRef>,
    pub(crate) evaluations: Vec<ToEvaluate>,
    /// The calls of which an earlier result is looked for.
    pub(crate) calls: Vec<CallIdentity>,
    /// How many steps the execution has to have in memory, and for the list of which step.
    pub(crate) room: Option<(String, usize)>,
    /// The budget data of the namespace that are needed.
    pub(crate) usage: Option<MissingUsage>,
    /// Whether it is needed how the execution stands in its limits.
    pub(crate) limits: bool,
}

/// The budget data of the namespace that a decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingUsage {
    /// The amounts, which are not known yet.
    Amounts,
    /// Room: calls in flight hold all that is left.
    Room,
}

/// The blobs that a driver has made since its last commit, and their originals until the operations have started.
#[derive(Default)]
pub(crate) struct NewBlobs {
    pub(crate) new: Vec<NewBlob>,
    pub(crate) originals: HashMap<Arc<str>, Json>,
}

impl belay_execution::Blobs for BlobContext<'_> {
    fn value(&self, blob: &BlobRef) -> BlobValue<'_> {
        match self.resolved.blobs.get(&blob.digest) {
            Some(Ok(value)) => BlobValue::Known(value),
            Some(Err(why)) => BlobValue::Unreadable(why),
            None => {
                self.missing.borrow_mut().blobs.push(blob.clone());
                BlobValue::Wanted
            }
        }
    }

    fn model(&self, name: &str) -> Option<ModelFacts> {
        let model = self.models.get(name)?.model();
        // A limit of the answer that is large by default must not leave a small window without room for the prompt.
        let window = ModelWindow { tokens: model.window, max_output: model.max_output.min(model.window / 4) };
        Some(ModelFacts { window, max_output: model.max_output, price: model.price })
    }

    fn payload(&self, json: Json) -> Payload {
        if json.as_str().len() <= self.max_inline {
            return json.into();
        }
        let new = self.secrets.borrow_mut().blob(self.uid, &json, self.random);
        let reference = new.reference.clone();
        let mut made = self.made.borrow_mut();
        made.originals.insert(Arc::clone(&reference.digest), json);
        made.new.push(new);
        Payload::Blob(reference)
    }

    fn evaluate(
        &self,
        step: &str,
        place: Option<CheckPlace>,
        condition: &Condition,
        variables: ConditionValues,
    ) -> ConditionResult {
        let what = place.map_or(Question::Condition, Question::Check);
        self.ask(step, what, || Evaluation::Condition { expression: condition.expression().to_owned(), variables })
    }

    fn validate(&self, step: &str, schema: &Value, output: Value) -> ConditionResult {
        self.ask(step, Question::Output, || Evaluation::Output { schema: schema.clone(), output })
    }

    fn earlier_result(&self, call: &CallIdentity) -> CachedResult {
        match self.resolved.earlier.get(call) {
            Some(Some(FoundResult { result, execution, completed_at })) => CachedResult::Known {
                result: result.clone(),
                execution: execution.clone(),
                completed_at: *completed_at,
            },
            Some(None) => CachedResult::Absent,
            None => {
                self.missing.borrow_mut().calls.push(call.clone());
                CachedResult::Wanted
            }
        }
    }

    fn admit(&self, needed: Amounts) -> Admission {
        let mut usage = self.usage.borrow_mut();
        let Some(usage) = usage.as_mut() else { return Admission::Unlimited };
        let admission = usage.admit(needed, self.now);
        let missing = match &admission {
            None => Some(MissingUsage::Amounts),
            Some(Admission::Wanted) => Some(MissingUsage::Room),
            Some(Admission::Unlimited | Admission::Held(_) | Admission::Exhausted { .. }) => None,
        };
        self.missing.borrow_mut().usage = missing;
        admission.unwrap_or(Admission::Wanted)
    }

    fn has_namespace_room(&self) -> bool {
        let usage = self.usage.borrow();
        let Some(usage) = usage.as_ref() else { return true };
        let has_room = usage.account().has_room(self.now);
        if has_room.is_none() {
            self.missing.borrow_mut().usage = Some(MissingUsage::Amounts);
        }
        has_room == Some(true)
    }

    fn limit_room(&self) -> LimitRoom {
        self.resolved.limit_room.unwrap_or_else(|| {
            self.missing.borrow_mut().limits = true;
            LimitRoom::Wanted
        })
    }

    fn room(&self, step: &str, steps: usize) -> Room {
        let all = self.steps.get() + steps;
        if steps > 0 && all > self.most_steps {
            return Room::Beyond(self.most_steps);
        }
        if steps == 0 || all <= self.room {
            self.steps.set(all);
            return Room::Free;
        }
        // The first that waits is served first.
        self.missing.borrow_mut().room.get_or_insert_with(|| (step.to_owned(), all));
        Room::Wanted
    }
}

impl BlobContext<'_> {
    fn ask(&self, step: &str, what: Question, work: impl FnOnce() -> Evaluation) -> ConditionResult {
        let key = EvaluationKey { step: step.to_owned(), what };
        match self.resolved.evaluated.get(&key) {
            Some(Ok(holds)) => ConditionResult::Known(*holds),
            Some(Err(NoAnswer::Failed(why))) => ConditionResult::Failed(why.clone()),
            Some(Err(NoAnswer::Absent(why))) => ConditionResult::Absent(why.clone()),
            None => {
                self.missing.borrow_mut().evaluations.push(ToEvaluate { key, work: work() });
                ConditionResult::Wanted
            }
        }
    }
}

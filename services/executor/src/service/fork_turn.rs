//! A fork that begins after a turn of a step's model.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use belay_execution::{
    BlobRef, BlobValue, Blobs, Body, CarriedLayers, CarriedOverTurns, ConditionResult, Event, Execution, Json, NoBlobs,
    NotCarriedOver, Payload, StepEvent, StepId, ToolCallEnd,
};
use belay_journal::ExecutionKey;
use belay_plan::{CheckPlace, Condition, ConditionValues, Plan, StepKind};
use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use serde_json::Value;
use tonic::{Code, Status};

use crate::{
    ExecutionRegistry,
    names::ExecutionName,
    store::{
        blobs::{Opener, Unreadable, owner},
        replayed_execution::ReplayedExecution,
    },
};

/// The bytes that a conversation may have which another execution takes over.
const MAX_CONVERSATION_BYTES: usize = 16 << 20;

/// The bytes of large values that are read for one conversation.
const MAX_READ_BYTES: u64 = 64 << 20;

/// How many of the files that have changed since are named.
const MAX_NAMED: usize = 50;

/// The turn after which a request forks an execution; `None` for one that begins with whole steps.
///
/// # Errors
/// INVALID_ARGUMENT, which names the field.
pub(super) fn of_request(
    from_step: &str,
    after_turn: Option<i32>,
    model: &str,
    on_current_files: bool,
) -> Result<Option<u32>, Status> {
    let invalid = |field, what: &str| Err(status::invalid(field, what).into());
    if from_step.is_empty() && (after_turn.is_some() || !model.is_empty()) {
        return invalid("from_step", "must name the step whose model is meant");
    }
    if on_current_files && after_turn.is_none() {
        return invalid("on_current_files", "is about the files of a turn: name that with after_turn");
    }
    match after_turn.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(turn)) if turn > 0 => Ok(Some(turn)),
        Some(_) => invalid("after_turn", "must be 1 or more; leave it out to begin the step anew"),
    }
}

/// Has another model carry out a step of a plan. Those that take over when it does not answer stay.
///
/// # Errors
/// INVALID_ARGUMENT for a step without a goal.
pub(super) fn ask(plan: &mut v1::Plan, step: &StepId, model: String) -> Result<(), Status> {
    let found = plan.steps.iter_mut().find(|planned| planned.id == step.as_str());
    let Some(v1::step_spec::Kind::Agent(agent)) = found.and_then(|planned| planned.kind.as_mut()) else {
        let message = format!("is for a step with a goal, and step `{step}` has none");
        return Err(status::invalid("model", message).into());
    };
    agent.fallback.retain(|other| *other != model);
    agent.model = model;
    Ok(())
}

/// A turn of another execution's step.
pub(super) struct OfTurn<'a> {
    pub(super) step: &'a StepId,
    pub(super) turn: u32,
    pub(super) origin: &'a ExecutionName,
    pub(super) key: ExecutionKey,
    /// Whether the fork works in the folder of the origin.
    pub(super) is_same_folder: bool,
    pub(super) on_current_files: bool,
}

impl OfTurn<'_> {
    /// The event with which the step of the fork begins with the conversation up to the turn.
    ///
    /// # Errors
    /// Why it cannot: INVALID_ARGUMENT for what is wrong with the turn, FILES_NOT_KEPT for the files that there were after it.
    pub(super) async fn carried(
        &self,
        registry: &Arc<ExecutionRegistry>,
        origin: &ReplayedExecution,
        plan: &Plan,
        why: &str,
    ) -> Result<Body, Status> {
        let &Self { step, turn, .. } = self;
        let CarriedOverTurns { conversation, round, layers, ended_by, spent } = self.turns(registry, origin).await?;
        self.check_limit(plan)?;
        let bytes = conversation.as_str().len();
        if bytes > MAX_CONVERSATION_BYTES {
            let message = format!(
                "the conversation up to turn {turn} has {bytes} bytes, and a fork can begin with {MAX_CONVERSATION_BYTES}: name an earlier turn"
            );
            return Err(status::invalid("after_turn", message).into());
        }
        if belay_json::is_too_deep_text(conversation.as_str()) {
            let message = format!(
                "a value in the conversation up to turn {turn} is nested too deeply to be taken over: name an earlier turn"
            );
            return Err(status::invalid("after_turn", message).into());
        }
        let layers = match layers {
            Some(layers) if layers.is_empty() => None,
            Some(layers) if self.is_same_folder => {
                Some(CarriedLayers { execution: self.origin.to_string(), round, layers })
            }
            Some(_) if !self.on_current_files => {
                let message = format!(
                    "What the calls of step `{step}` had changed after turn {turn} is kept beside the folder of `{}`, and cannot be used in another one. \
                     Leave out `--workspace`, or add `--on-current-files` to continue with the files of that folder.",
                    self.origin.id
                );
                return Err(status::error(Code::FailedPrecondition, reasons::FILES_NOT_KEPT, message).into());
            }
            None if !self.on_current_files => return Err(self.files_not_kept(registry, ended_by).await?),
            Some(_) | None => None,
        };
        let why = format!("{why}, after turn {turn}");
        let event = StepEvent::ConversationCarriedOver {
            conversation: conversation.into(),
            turns: turn,
            layers,
            spent,
            reason: why,
        };
        Ok(Body::Step { step: step.clone(), attempt: 0, event })
    }

    /// Refuses a turn after which the plan allows no other.
    fn check_limit(&self, plan: &Plan) -> Result<(), Status> {
        let step = plan.steps().iter().find(|planned| planned.id() == self.step.as_str());
        let Some(StepKind::Agent(agent)) = step.map(|step| step.kind()) else { return Ok(()) };
        if self.turn < agent.max_turns() {
            return Ok(());
        }
        let message = format!(
            "turn {} is the last that the plan allows step `{}` (`agent.max_turns` is {}): name an earlier turn",
            self.turn,
            self.step,
            agent.max_turns()
        );
        Err(status::invalid("after_turn", message).into())
    }

    /// The conversation, for which the blobs of the execution are read that it is in.
    async fn turns(
        &self,
        registry: &Arc<ExecutionRegistry>,
        origin: &ReplayedExecution,
    ) -> Result<CarriedOverTurns, Status> {
        let opener = origin.secrets.own_key().map(|key| Opener {
            owner: owner(self.origin),
            uid: origin.execution.created().uid.as_str().into(),
            key: key.clone(),
        });
        let (mut at_hand, mut bytes) = (AtHand::default(), 0);
        loop {
            if let Some(carried) = origin.execution.turns_to_carry_over(self.step, self.turn, &at_hand) {
                return carried.map_err(|refused| self.refused(&origin.execution, refused));
            }
            let wanted = at_hand.wanted.take();
            bytes += wanted.iter().map(|blob| blob.size).sum::<u64>();
            if bytes > MAX_READ_BYTES {
                let message = format!(
                    "the results of the turns up to {} have more than {MAX_READ_BYTES} bytes together: name an earlier turn",
                    self.turn
                );
                return Err(status::invalid("after_turn", message).into());
            }
            for blob in wanted {
                let read = match &opener {
                    Some(opener) => registry.reading.blobs.value(opener, &blob).await,
                    None => Err(Unreadable::Missing),
                };
                let value = match read {
                    Err(unreadable) if unreadable.is_temporary() => return Err(unreadable.status(&blob.digest)),
                    read => read.map_err(|unreadable| unreadable.to_string()),
                };
                at_hand.values.insert(Arc::clone(&blob.digest), value);
            }
        }
    }

    fn refused(&self, execution: &Execution, refused: NotCarriedOver) -> Status {
        let (step, origin) = (self.step, &self.origin.id);
        let message = match refused {
            NotCarriedOver::NoStep(step) => {
                let message = format!("Execution `{origin}` has no step `{step}`.");
                return status::error(Code::NotFound, reasons::STEP_NOT_FOUND, message).into();
            }
            NotCarriedOver::Damaged(failure) => {
                return status::error(Code::DataLoss, reasons::BLOB_DAMAGED, failure.message).into();
            }
            NotCarriedOver::NoGoal(step) => format!("is for a step with a goal, and step `{step}` has none"),
            NotCarriedOver::NoTurn { last: 0, .. } => {
                format!(
                    "the model of step `{step}` has answered no turn in execution `{origin}`: leave it out to begin the step anew"
                )
            }
            NotCarriedOver::NoTurn { turn, last } => {
                format!(
                    "the model of step `{step}` has not answered turn {turn} in execution `{origin}`, whose last one is {last}"
                )
            }
            NotCarriedOver::Open(call) => {
                let turn = self.turn;
                format!("step `{call}`, a call of turn {turn}, has not ended: wait for it, or name an earlier turn")
            }
            NotCarriedOver::Completed(turn) => {
                format!(
                    "with turn {turn} the model has completed step `{step}`, and no turn can follow: name an earlier turn"
                )
            }
            NotCarriedOver::EarlierExecution(turns) => {
                let earlier = &execution.created().forked_from;
                format!(
                    "the first {turns} turns of step `{step}` are those of `{earlier}`: fork that one, or name a later turn"
                )
            }
        };
        status::invalid("after_turn", message).into()
    }

    /// The refusal of a fork that would continue with other files than there were after the turn.
    async fn files_not_kept(&self, registry: &Arc<ExecutionRegistry>, ended_by: u64) -> Result<Status, Status> {
        let stored = registry.reads.events(self.key).await?;
        let (step, turn) = (self.step, self.turn);
        let ChangedFiles { paths, more } = changed_since(&stored.events, ended_by);
        let named = match (paths.as_slice(), more) {
            ([], _) => "The execution has changed no file since, as far as its calls know; others may have.".to_owned(),
            (paths, 0) => format!("The execution has changed since: {}.", paths.join(", ")),
            (paths, more) => format!("The execution has changed since: {}, and {more} more.", paths.join(", ")),
        };
        let message = format!(
            "The files as they were after turn {turn} of step `{step}` are not kept. {named} Add `--on-current-files` to continue with the files as they are now."
        );
        let refused = status::error(
            Code::FailedPrecondition,
            reasons::FILES_NOT_KEPT,
            stored.secrets.redactor().redact_text(&message).text,
        );
        Ok(refused.with("step", step).into())
    }
}

/// Files that calls have committed.
struct ChangedFiles {
    /// The first of their paths, as they are shown.
    paths: Vec<String>,
    /// How many there are beyond these.
    more: u64,
}

/// The files that the calls have committed that ended after this event.
fn changed_since(events: &[Event], ended_by: u64) -> ChangedFiles {
    let (mut paths, mut unlisted) = (BTreeSet::new(), 0);
    let ends = events.iter().filter(|event| event.sequence > ended_by).filter_map(|event| event.body.call_end());
    for (_, end) in ends {
        if let ToolCallEnd::Completed { receipt, .. } | ToolCallEnd::Failed { receipt, .. } = end {
            paths.extend(receipt.files.iter().map(|file| file.path.as_str()));
            unlisted += receipt.unlisted_files;
        }
    }
    let more = unlisted + paths.len().saturating_sub(MAX_NAMED) as u64;
    let paths = paths.into_iter().take(MAX_NAMED).map(|path| format!("`{}`", path));
    ChangedFiles { paths: paths.collect(), more }
}

/// The blobs that were read.
#[derive(Default)]
struct AtHand {
    values: BTreeMap<Arc<str>, Result<Value, String>>,
    wanted: std::cell::RefCell<Vec<BlobRef>>,
}

impl Blobs for AtHand {
    fn value(&self, blob: &BlobRef) -> BlobValue<'_> {
        match self.values.get(&blob.digest) {
            Some(Ok(value)) => BlobValue::Known(value),
            Some(Err(why)) => BlobValue::Unreadable(why),
            None => {
                self.wanted.borrow_mut().push(blob.clone());
                BlobValue::Wanted
            }
        }
    }

    fn payload(&self, json: Json) -> Payload {
        NoBlobs.payload(json)
    }

    fn evaluate(
        &self,
        step: &str,
        place: Option<CheckPlace>,
        condition: &Condition,
        variables: ConditionValues,
    ) -> ConditionResult {
        NoBlobs.evaluate(step, place, condition, variables)
    }

    fn validate(&self, step: &str, schema: &Value, output: Value) -> ConditionResult {
        NoBlobs.validate(step, schema, output)
    }
}

//! Conversations that are carried over from one execution into another: what there is of one up to a turn.

use std::collections::BTreeMap;

use belay_agent::{CarriedConversation, CarriedTurn, Turn, Wanted, WantedCall};
use belay_plan::AgentStep;
use thiserror::Error;

use super::{
    conversation::{
        TAKEOVER, TurnOutcome, call_at, carried_by, conversation, is_told, offered_names, outcome_of_turn,
        rebase_after, with_planned,
    },
    files,
    reading::{Reading, outcome},
};
use crate::{
    Amounts, Blobs, Execution, Failure, Json, StepId, StepKey, StepState,
    state::{AgentEntry, StepRecord},
    steps::layers,
};

/// The conversation of a step with its model up to a turn, and what its calls had changed then.
#[derive(Clone, Debug, PartialEq)]
pub struct CarriedOverTurns {
    /// The conversation: `belay_agent::CarriedConversation` as JSON.
    pub conversation: Json,
    /// The attempt at the step.
    pub round: u32,
    /// The layers of what the calls had changed; `None` when each call has committed its own changes, or when those of the step were committed.
    pub layers: Option<Vec<String>>,
    /// The number of the event with which the last of these turns and their calls ended.
    pub ended_by: u64,
    /// The amounts that the step has used of its budget.
    pub spent: Amounts,
}

/// Why a conversation cannot be carried over.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NotCarriedOver {
    /// There is no such step in the plan.
    #[error("there is no step `{0}`")]
    NoStep(StepId),
    /// No model carries out the step.
    #[error("step `{0}` has no `agent`")]
    NoGoal(StepId),
    /// The model has not answered such a turn.
    #[error("turn {turn} was not answered; {last} turns were")]
    NoTurn {
        /// The turn.
        turn: u32,
        /// The last turn that was.
        last: u32,
    },
    /// A call of the turn has not ended.
    #[error("`{0}` has not ended")]
    Open(StepId),
    /// The turn is one of those with which the step of a fork began, and what its calls had changed is known to the first execution alone.
    #[error("the step begins with {0} turns of another execution")]
    EarlierExecution(u32),
    /// With this turn the model has completed the step.
    #[error("the step was completed with turn {0}")]
    Completed(u32),
    /// A value cannot be read.
    #[error("{}", .0.message)]
    Damaged(Failure),
}

impl Execution {
    /// The conversation of a step with its model as it was after a turn; `None` while a value is not at hand.
    ///
    /// # Errors
    /// [`NotCarriedOver`].
    pub fn turns_to_carry_over(
        &self,
        step: &StepId,
        turn: u32,
        blobs: &dyn Blobs,
    ) -> Option<Result<CarriedOverTurns, NotCarriedOver>> {
        let found = self.step_key(step.as_str()).filter(|&key| self.is_planned(key));
        let Some(key) = found else { return Some(Err(NotCarriedOver::NoStep(step.clone()))) };
        let record = &self.steps[key];
        let Some(agent) = record.spec.agent() else { return Some(Err(NotCarriedOver::NoGoal(step.clone()))) };
        let entries = match self.entries_up_to(record, turn) {
            Ok(entries) => entries,
            Err(refused) => return Some(Err(refused)),
        };
        let mut reading = Reading::new(blobs);
        let turns = conversation(self, (key, entries), None, &mut |record, payload| reading.value(record, payload));
        if let Some(open) = self.unlisted_calls(record, agent, entries, &turns) {
            return Some(Err(open));
        }
        let TurnOutcome { results, message } = outcome_of_turn(self, (key, agent), entries, &turns, &mut reading);
        let whole = self.cut_texts(key, entries, &turns, &mut reading);
        let carried =
            turns.into_iter().filter_map(|turn| Some(CarriedTurn { asked: turn.asked, answered: turn.answered? }));
        let carried = CarriedConversation { turns: carried.collect(), results, message, whole };
        let conversation = match reading.done(carried)? {
            Ok(carried) => Json::canonical(&serde_json::to_value(carried).unwrap_or_default()),
            Err(damaged) => return Some(Err(NotCarriedOver::Damaged(damaged))),
        };
        let is_commit = |&entry: &StepKey| {
            let entry = &self.steps[entry];
            entry.commits_step() && entry.state == StepState::Completed
        };
        let is_kept = record.has_one_effect() && !record.items.current().iter().any(is_commit);
        let ended = entries.iter().map(|&entry| self.steps[entry].completed_by).max();
        Some(Ok(CarriedOverTurns {
            conversation,
            round: record.attempt,
            layers: is_kept.then(|| layers::kept_by(self, entries)),
            ended_by: ended.unwrap_or_default(),
            spent: record.account.spent,
        }))
    }

    /// The entries of a step up to the last call of a turn, if all of them have ended and another turn can follow.
    fn entries_up_to<'a>(&'a self, record: &'a StepRecord, turn: u32) -> Result<&'a [StepKey], NotCarriedOver> {
        let entries = record.items.current();
        let answered = |key: &StepKey| match self.steps[*key].agent_entry()? {
            AgentEntry::Turn(turn) => is_told(self, *key, None).then_some(turn),
            _ => None,
        };
        let before = record.carried.as_ref().map_or(0, |carried| carried.turns);
        if (1..=before).contains(&turn) {
            return Err(NotCarriedOver::EarlierExecution(before));
        }
        let last = entries.iter().filter_map(answered).next_back().unwrap_or(before);
        let place = entries.iter().rposition(|key| answered(key) == Some(turn));
        let place = place.ok_or(NotCarriedOver::NoTurn { turn, last })?;
        let is_turn = |key: &StepKey| matches!(self.steps[*key].agent_entry(), Some(AgentEntry::Turn(_)));
        let calls = entries[place + 1..].iter().take_while(|key| !is_turn(key)).count();
        let (upto, calls) = (&entries[..=place + calls], &entries[place + 1..=place + calls]);
        for &key in calls {
            let call = &self.steps[key];
            if !call.state.is_terminal() {
                return Err(NotCarriedOver::Open(call.id.clone()));
            }
        }
        let has_completed = |key: &StepKey| {
            let call = &self.steps[*key];
            call.is_completion() && call.state == StepState::Completed
        };
        let goes_on = entries.len() > upto.len();
        if calls.iter().any(has_completed) && !goes_on {
            return Err(NotCarriedOver::Completed(turn));
        }
        Ok(upto)
    }

    /// The refusal of a turn whose calls are not listed yet: it is not known what comes of them.
    fn unlisted_calls(
        &self,
        record: &StepRecord,
        agent: &AgentStep,
        entries: &[StepKey],
        turns: &[Turn],
    ) -> Option<NotCarriedOver> {
        let last = &self.steps[*entries.last()?];
        let is_last = record.items.current().len() == entries.len() && !record.state.is_terminal();
        if !is_last || last.asked_model().is_none() {
            return None;
        }
        let names = offered_names(self, agent);
        let wanted = turns.last()?.answered.as_ref()?.wanted(&with_planned(&names, agent));
        let is_call = |wanted: &WantedCall<'_>| matches!(wanted.wanted, Wanted::Call(_) | Wanted::Complete);
        wanted.iter().any(is_call).then(|| NotCarriedOver::Open(last.id.clone()))
    }

    /// The whole texts of these entries of which the model has read the beginning alone, by the ids with which it can read the rest.
    fn cut_texts(
        &self,
        step: StepKey,
        entries: &[StepKey],
        turns: &[Turn],
        reading: &mut Reading<'_>,
    ) -> BTreeMap<String, String> {
        let earlier = carried_by(&self.steps[step], &mut |record, payload| reading.value(record, payload));
        let mut whole = earlier.map_or_else(BTreeMap::new, |carried| carried.whole.clone());
        for turn in turns {
            for (place, call) in turn.answered.iter().flat_map(|answered| answered.calls.iter().enumerate()) {
                let Some(record) = call_at(self, entries, turn.asked.turn, place) else { continue };
                let returned = reading.returned(record);
                let outcome = outcome(record, returned.as_ref());
                let text = outcome.text();
                if outcome.result(&call.id).text != text {
                    whole.insert(call.id.clone(), text);
                }
            }
            if let Some(record) = rebase_after(self, entries, turn.asked.turn) {
                let returned = reading.returned(record);
                whole.insert(belay_agent::conflict_id(turn.asked.turn), outcome(record, returned.as_ref()).text());
            }
        }
        if let Some(record) = rebase_after(self, entries, TAKEOVER) {
            let returned = reading.returned(record);
            whole.insert(belay_agent::conflict_id(TAKEOVER), outcome(record, returned.as_ref()).text());
        }
        for place in 0.. {
            let Some(record) = files::file_at(self, entries, place) else { break };
            let returned = reading.returned(record);
            whole.insert(belay_agent::file_id(place), belay_agent::file_text(&outcome(record, returned.as_ref())));
        }
        whole
    }
}

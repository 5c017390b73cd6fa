//! Steps in which a model works towards a goal. Each turn of the model and each call that it asks for is a step of its own, as each entry of a list is: so a call
//! has its attempts, its approval, its slot and its unknown outcome, and what came of it is there for the next turn.
//!
//! Asking the model is a call that the executor carries out itself. Its arguments are what the turn adds to the conversation, its result is the answer: both are recorded
//! before anything follows from them, and the prompt is made of nothing else (`belay-agent`). The call with which the model ends the step is one as well: `postconditions`
//! and `output_schema` of the step are checks of that call, and what does not hold goes back to the model.

mod carried;
mod conversation;
mod files;
mod reading;

use belay_agent::Wanted;
use belay_plan::{AgentStep, COMPLETION_TOOL, REBASE_TOOL};
use belay_reasons as reasons;
use serde_json::json;

use self::conversation::{answered_of, offered_names, with_planned};
use super::{entries::not_started, layers};
use crate::{
    Blobs, BudgetUnit, ErrorClass, Execution, Failure, Json, Payload, StepKey, StepState,
    state::{AgentEntry, AgentItem, CarriedTurns, StepRecord, TurnSupply},
};

pub use self::carried::{CarriedOverTurns, NotCarriedOver};
pub(crate) use self::conversation::turn_waits;
pub(super) use self::conversation::{arguments, judge_may_use, may_use, with_judge, without_price};

/// The course of a step none of whose entries is open, as far as it is known.
pub(super) enum Course {
    /// These entries follow.
    Entries(Vec<Json>),
    /// The model has completed the step with this output.
    Done(Payload),
    /// The step fails.
    Failed(Failure),
}

/// The course of a step whose model works towards a goal; `None` while a value is not at hand.
pub(super) fn course(
    execution: &Execution,
    record: &StepRecord,
    agent: &AgentStep,
    blobs: &dyn Blobs,
) -> Option<Course> {
    if let Some(failure) = not_started(execution, record) {
        return Some(Course::Failed(failure));
    }
    let entries = record.items.current();
    let entry = |key: StepKey| execution.steps[key].agent_entry();
    let last = entries.iter().enumerate().rev();
    let last = last.filter_map(|(place, &key)| match entry(key)? {
        AgentEntry::Turn(turn) => Some((place, turn)),
        AgentEntry::File { .. } | AgentEntry::Listing { .. } | AgentEntry::Found { .. } => None,
        AgentEntry::Call { .. } | AgentEntry::Completion { .. } | AgentEntry::Rebase | AgentEntry::Commit => None,
    });
    let Some((place, turn)) = last.into_iter().next() else {
        if let Some(carried) = &record.carried {
            return Some(course_after_carried(execution, record, agent, carried));
        }
        return Some(match files::due(execution, record, agent, blobs)? {
            Ok(files) if files.is_empty() => Course::Entries(vec![turn_item(record, 1, 0)]),
            Ok(files) => Course::Entries(files),
            Err(failure) => Course::Failed(failure),
        });
    };
    let asked = &execution.steps[entries[place]];
    let model = asked.asked_model().map(|(place, _)| place).unwrap_or_default();
    if asked.state != StepState::Completed {
        let has_next = model + 1 < agent.models().len();
        return Some(if has_next && gives_way(execution, entries[place], blobs)? {
            Course::Entries(vec![turn_item(record, turn, model + 1)])
        } else {
            Course::Failed(unanswered(asked, turn))
        });
    }
    let answered = match answered_of(asked, blobs)? {
        Ok(answered) => answered,
        Err(failure) => return Some(Course::Failed(failure)),
    };
    let calls = &entries[place + 1..];
    if calls.is_empty() {
        let names = offered_names(execution, agent);
        let names = with_planned(&names, agent);
        let wanted = answered.wanted(&names);
        let listed = wanted.iter().enumerate().filter_map(|(call, wanted)| match wanted.wanted {
            Wanted::Call(tool) => Some((call, agent.tools()[tool].tool.as_str())),
            Wanted::Complete => Some((call, COMPLETION_TOOL)),
            Wanted::ReadResult | Wanted::Refused(_) => None,
        });
        let asks = |call: usize| answered.calls[call].arguments.get("verify") == Some(&true.into());
        let listed =
            listed.map(|(call, tool)| call_item(record, turn, (call, tool), tool == COMPLETION_TOOL && asks(call)));
        let listed: Vec<Json> = listed.collect();
        if !listed.is_empty() {
            return Some(Course::Entries(listed));
        }
    }
    if let Some(gone) = layer_gone(execution, record, calls) {
        return Some(Course::Failed(gone));
    }
    if let Some(conflict) = conflict(execution, calls) {
        return Some(after_conflict(execution, record, agent, (turn, model, calls), conflict));
    }
    if let Some(failure) = judge_gone(execution, calls) {
        return Some(Course::Failed(failure.clone()));
    }
    let completed = calls.iter().map(|&key| &execution.steps[key]);
    let mut completed = completed.filter(|call| {
        matches!(call.agent_entry(), Some(AgentEntry::Completion { .. })) && call.state == StepState::Completed
    });
    if let Some(completion) = completed.next() {
        return Some(committed(execution, record, completion, calls.last().copied()));
    }
    if turn >= agent.max_turns() {
        let missing = refused_completion(execution, record)
            .map(|(turn, failure)| format!(" What it said to be done in turn {turn} was refused: {}", failure.message));
        let model = asked.asked_model().map_or_else(|| agent.model(), |(_, model)| model);
        return Some(Course::Failed(turn_limit(turn, model, &missing.unwrap_or_default())));
    }
    Some(Course::Entries(vec![turn_item(record, turn + 1, model)]))
}

/// The course of a step that begins with a conversation and has had no turn of its own yet.
fn course_after_carried(
    execution: &Execution,
    record: &StepRecord,
    agent: &AgentStep,
    carried: &CarriedTurns,
) -> Course {
    let entries = record.items.current();
    if let Some(layers) = &carried.layers {
        if !record.has_one_effect() {
            let message = "The plan has been changed: the step no longer has `effects: per_step`, and what the turns with which it begins had changed \
                           cannot be taken over. Write it again, or fork the first execution with `--on-current-files`.";
            return Course::Failed(Failure::new(ErrorClass::PreconditionFailed, reasons::FILES_NOT_KEPT, message));
        }
        let Some(&entry) = entries.last() else { return Course::Entries(vec![takeover_item(record)]) };
        let entry = &execution.steps[entry];
        match entry.failure.as_deref() {
            _ if entry.state == StepState::Completed => {}
            Some(failure) if is_conflict(failure) => {
                let message = format!(
                    "Others are changing the same files as the turns with which the step begins: {} Retry the step once they are done.",
                    failure.message
                );
                return Course::Failed(Failure { message, ..failure.clone() });
            }
            Some(failure) => return Course::Failed(failure.clone()),
            None => {
                let message = format!(
                    "The call that takes over what the turns of `{}` had changed was {}: without it the step cannot go on.",
                    layers.execution,
                    entry.state.word()
                );
                let failure = Failure::new(ErrorClass::ApprovalDenied, reasons::ITEMS_FAILED, message);
                return Course::Failed(failure);
            }
        }
    }
    if carried.turns >= agent.max_turns() {
        return Course::Failed(turn_limit(carried.turns, agent.model(), ""));
    }
    Course::Entries(vec![turn_item(record, carried.turns + 1, 0)])
}

/// Whether these entries have taken over what the calls of the conversation had changed, if there is something to take over.
fn have_layers(execution: &Execution, carried: &CarriedTurns, entries: &[StepKey]) -> bool {
    let takes_over = |&key: &StepKey| {
        let entry = &execution.steps[key];
        entry.takes_over_layers() && entry.state == StepState::Completed
    };
    carried.layers.is_none() || entries.iter().any(takes_over)
}

fn takeover_item(record: &StepRecord) -> Json {
    Json::canonical(&json!({"tool": REBASE_TOOL, "carried": true, "run": record.attempt}))
}

/// The failure of a step whose model has had as many turns as it may have.
fn turn_limit(turn: u32, model: &str, missing: &str) -> Failure {
    let message = format!(
        "Turn limit reached ({turn} turns): the model `{model}` has not completed the step. Raise `agent.max_turns`, or make the task smaller.{missing}"
    );
    Failure::new(ErrorClass::BudgetExhausted, reasons::TURN_LIMIT, message)
}

/// The failure of a step of which one of these calls could not begin with what the calls before it have changed, because that is gone: no later call can either. It says what
/// was used for it, since only a person or the plan's escalation begins the step again, and that is used once more.
fn layer_gone(execution: &Execution, record: &StepRecord, calls: &[StepKey]) -> Option<Failure> {
    let failures = calls.iter().filter_map(|&key| execution.steps[key].failure.as_deref());
    let of = |failure: &Failure| failure.reason == reasons::LAYER_GONE;
    let gone = failures.into_iter().find(|failure| of(failure) || failure.cause.as_deref().is_some_and(of))?;
    let spent = record.account.spent;
    let used = [BudgetUnit::Tokens, BudgetUnit::CostMicros].map(|unit| (unit, spent.of(unit)));
    let used = used.into_iter().filter(|(_, amount)| *amount > 0).map(|(unit, amount)| unit.amount_in_words(amount));
    let used = used.collect::<Vec<_>>().join(", ");
    let message = match used.as_str() {
        "" => gone.message.clone(),
        used => format!("{} Its model has used {used} for this, which stays counted.", gone.message),
    };
    Some(Failure { message, ..gone.clone() })
}

/// The failure of the completion among these calls whose judge could not be asked, also after further attempts: the model of the step cannot mend that.
fn judge_gone<'a>(execution: &'a Execution, calls: &[StepKey]) -> Option<&'a Failure> {
    let completions = calls.iter().map(|&key| &execution.steps[key]).filter(|call| call.is_completion());
    let failures = completions.filter_map(|call| call.failure.as_deref().filter(|_| call.state == StepState::Failed));
    failures.into_iter().find(|failure| is_of_model(failure))
}

/// Whether a model has failed, and not what it was asked about.
fn is_of_model(failure: &Failure) -> bool {
    let of_model = [
        reasons::CONTEXT_EXHAUSTED,
        reasons::CONTEXT_TRUNCATED_BY_SERVER,
        reasons::MODEL_ANSWER_INVALID,
        reasons::MODEL_NOT_FOUND,
        reasons::MODEL_NOT_LOCAL,
        reasons::MODEL_REFUSED,
        reasons::MODEL_TURN_LOST,
        reasons::MODEL_UNAVAILABLE,
        reasons::TIMEOUT,
    ];
    of_model.iter().any(|reason| failure.reason == *reason)
}

/// The failure of one of these calls of a turn that could not begin with what the calls before it have changed, because others have changed the same. No later call can either, and
/// nothing can be committed, whatever the model does.
fn conflict<'a>(execution: &'a Execution, calls: &[StepKey]) -> Option<&'a Failure> {
    let failures = calls.iter().filter_map(|&key| execution.steps[key].failure.as_deref());
    failures.into_iter().find(|failure| is_conflict(failure))
}

fn is_conflict(failure: &Failure) -> bool {
    let of = |failure: &Failure| failure.reason == reasons::STEP_CONFLICT;
    of(failure) || failure.cause.as_deref().is_some_and(of)
}

/// The course after a conflict with what others have changed: the changes in conflict are dropped, and the model is shown both versions, as long as it has a turn left.
fn after_conflict(
    execution: &Execution,
    record: &StepRecord,
    agent: &AgentStep,
    (turn, model, calls): (u32, usize, &[StepKey]),
    conflict: &Failure,
) -> Course {
    let calls = calls.iter().map(|&key| &execution.steps[key]);
    let rebase = calls.rev().find(|call| call.agent_entry() == Some(AgentEntry::Rebase));
    match rebase.map(|rebase| (rebase.state, rebase.failure.as_deref())) {
        _ if turn >= agent.max_turns() => Course::Failed(conflict.clone()),
        None => Course::Entries(vec![rebase_item(record, turn)]),
        Some((StepState::Completed, _)) => Course::Entries(vec![turn_item(record, turn + 1, model)]),
        // Others go on changing the same.
        Some((_, Some(failure))) if is_conflict(failure) => Course::Entries(vec![turn_item(record, turn + 1, model)]),
        Some((_, failure)) => Course::Failed(failure.unwrap_or(conflict).clone()),
    }
}

/// Whether the model of a step that has completed asks for the verification of what it has done: with the completion that was accepted last.
pub(crate) fn asks_for_verification(execution: &Execution, step: StepKey) -> bool {
    let entries = execution.steps[step].items.current().iter().rev().map(|&entry| &execution.steps[entry]);
    let mut accepted = entries.filter(|entry| entry.is_completion() && entry.state == StepState::Completed);
    accepted.next().is_some_and(StepRecord::asks_for_verification)
}

/// The last time that the model said that the step is done and was refused: the turn, and what was missing.
fn refused_completion<'a>(execution: &'a Execution, record: &StepRecord) -> Option<(u32, &'a Failure)> {
    let entries = record.items.current().iter().rev().map(|&entry| &execution.steps[entry]);
    let mut refused = entries.filter(|entry| matches!(entry.agent_entry(), Some(AgentEntry::Completion { .. })));
    refused.find_map(|entry| Some((entry.turn()?, entry.failure.as_deref()?)))
}

/// What follows once the model has completed the step: what its calls have changed is committed, if that is one effect.
fn committed(execution: &Execution, record: &StepRecord, completion: &StepRecord, last: Option<StepKey>) -> Course {
    let output = || completion.output.clone().unwrap_or_else(|| Json::from_text("null").into());
    if !record.has_one_effect() {
        return Course::Done(output());
    }
    let commit = last.map(|last| &execution.steps[last]).filter(|last| last.commits_step());
    match commit.map(|commit| (commit.state, commit.failure.as_deref())) {
        Some((StepState::Completed, _)) => Course::Done(output()),
        Some((_, Some(failure))) => Course::Failed(failure.clone()),
        Some((state, None)) => {
            let message = format!(
                "What the calls of the step have changed was not committed: the step that commits it is {}.",
                state.word()
            );
            Course::Failed(Failure::new(ErrorClass::ApprovalDenied, reasons::ITEMS_FAILED, message))
        }
        None => layers::commit(execution, record)
            .map_or_else(|| Course::Done(output()), |commit| Course::Entries(vec![commit])),
    }
}

/// Whether a step with a goal may list these entries after those that it has: the files that the model is shown before the first turn, a turn alone, the calls of one, or the call that commits what they have changed.
pub(super) fn may_list(
    execution: &Execution,
    record: &StepRecord,
    agent: &AgentStep,
    first: usize,
    items: &[Json],
) -> bool {
    let entries = record.items.current();
    let have_ended = entries.iter().all(|&entry| execution.steps[entry].state.is_terminal());
    let listed: Option<Vec<AgentEntry>> =
        items.iter().map(|item| AgentEntry::of(&AgentItem::parse(item)?, agent)).collect();
    let is_next = match listed.as_deref() {
        Some([AgentEntry::Turn(turn)]) => {
            let model = items.first().and_then(AgentItem::parse).map(|item| item.model()).unwrap_or_default();
            let begins = match &record.carried {
                Some(carried) => have_layers(execution, carried, entries),
                None => first >= agent.files().len(),
            };
            begins && is_next_turn(execution, (record, entries), agent, *turn, model)
        }
        Some(files @ [AgentEntry::File { .. } | AgentEntry::Listing { .. } | AgentEntry::Found { .. }, ..]) => {
            record.carried.is_none() && files::may_read(execution, record, agent, first, files)
        }
        Some([AgentEntry::Commit]) => execution.turns_of(record) > 0,
        Some([AgentEntry::Rebase])
            if items.first().and_then(AgentItem::parse).is_some_and(|item| item.takes_over_layers()) =>
        {
            first == 0 && record.carried.as_ref().is_some_and(|carried| carried.layers.is_some())
        }
        Some([AgentEntry::Rebase]) => {
            let is_turn = |key: &StepKey| matches!(execution.steps[*key].agent_entry(), Some(AgentEntry::Turn(_)));
            let calls = entries.iter().rposition(is_turn).map_or(&[][..], |turn| &entries[turn + 1..]);
            let is_rebase = |key: &StepKey| execution.steps[*key].agent_entry() == Some(AgentEntry::Rebase);
            conflict(execution, calls).is_some() && !calls.iter().any(is_rebase)
        }
        Some(calls @ [_, ..]) => {
            let is_call = |entry: &AgentEntry| matches!(entry, AgentEntry::Call { .. } | AgentEntry::Completion { .. });
            execution.turns_of(record) > 0 && calls.iter().all(is_call)
        }
        Some([]) | None => false,
    };
    first == entries.len() && have_ended && is_next
}

/// Whether a turn of this model can follow these entries: the next one of the model that was asked last, or the same of the next model, if that has not answered.
fn is_next_turn(
    execution: &Execution,
    (record, entries): (&StepRecord, &[StepKey]),
    agent: &AgentStep,
    turn: u32,
    model: usize,
) -> bool {
    let asked = entries.iter().rev().map(|&key| &execution.steps[key]);
    let last = asked.filter_map(|asked| Some((asked, asked.turn()?, asked.asked_model()?.0))).next();
    let (next, of_model) = match last {
        None => (1 + record.carried.as_ref().map_or(0, |carried| carried.turns), 0),
        Some((asked, last, of_model)) if asked.state == StepState::Completed => (last + 1, of_model),
        Some((_, last, of_model)) => (last, of_model + 1),
    };
    (turn, model) == (next, of_model) && turn <= agent.max_turns() && model < agent.models().len()
}

/// An entry of a step that runs again is another entry.
fn turn_item(record: &StepRecord, turn: u32, model: usize) -> Json {
    let mut item = json!({"turn": turn, "run": record.attempt});
    if model > 0 {
        item["model"] = json!(model);
    }
    if record.carried.as_ref().is_some_and(|carried| carried.turns + 1 == turn) {
        item["first"] = json!(true);
    }
    Json::canonical(&item)
}

fn call_item(record: &StepRecord, turn: u32, (call, tool): (usize, &str), verify: bool) -> Json {
    let mut item = json!({"turn": turn, "call": call, "tool": tool, "run": record.attempt});
    if verify {
        item["verify"] = json!(true);
    }
    Json::canonical(&item)
}

fn rebase_item(record: &StepRecord, turn: u32) -> Json {
    Json::canonical(&json!({"tool": REBASE_TOOL, "after_turn": turn, "run": record.attempt}))
}

/// Whether the model of a turn that has no answer gives way to the next one of its step; `None` while a value is not at hand. What a person has skipped or cancelled is asked
/// of no other model.
fn gives_way(execution: &Execution, turn: StepKey, blobs: &dyn Blobs) -> Option<bool> {
    let asked = &execution.steps[turn];
    let Some(failure) = asked.failure.as_deref().filter(|_| asked.state == StepState::Failed) else {
        return Some(false);
    };
    if failure.reason == reasons::BUDGET_EXHAUSTED {
        return budget_gives_way(execution, turn, blobs);
    }
    Some(is_of_model(failure))
}

/// Whether the budget of which a turn may use more than is left says that the next model is asked.
fn budget_gives_way(execution: &Execution, turn: StepKey, blobs: &dyn Blobs) -> Option<bool> {
    let Ok(asked) = arguments(execution, turn, blobs)? else { return Some(false) };
    let needed = may_use(execution, turn, &Json::canonical(&asked), blobs)?;
    Some(match execution.turn_supply(turn, needed) {
        TurnSupply::TooLittle { account, unit, .. } => execution.exhaustion_falls_back(account, unit),
        TurnSupply::Enough | TurnSupply::Held => false,
    })
}

/// The failure of a step whose model has not answered.
fn unanswered(asked: &StepRecord, turn: u32) -> Failure {
    match asked.failure.as_deref() {
        Some(failure) => failure.clone(),
        None => {
            let message = format!(
                "Turn {turn} of the model was {}: without its answer the step cannot go on.",
                asked.state.word()
            );
            Failure::new(ErrorClass::ApprovalDenied, reasons::ITEMS_FAILED, message)
        }
    }
}

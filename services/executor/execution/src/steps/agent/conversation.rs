//! The conversation of a step with its model: what each turn adds to it, and what the model reads. It is made of the record alone.

use std::sync::Arc;

use belay_agent::{
    Answered, Asked, Calls, CarriedConversation, ModelWindow, Offer, REPETITION_LIMIT, ResultText, Turn, Wanted,
    WantedCall,
};
use belay_model::Usage;
use belay_plan::{AgentStep, JUDGE_TOOL, ToolStep, limits::MAX_RESOLVED_BYTES};
use belay_reasons as reasons;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    super::outputs::value_of,
    files,
    reading::{Reading, outcome, resolved},
};
use crate::{
    Amounts, Blobs, ErrorClass, Execution, Failure, Json, ModelFacts, Payload, StepKey, StepRole, StepState,
    state::{AgentEntry, StepRecord},
};

/// The names by which the model knows the tools of the plan.
pub(super) fn offered_names(execution: &Execution, agent: &AgentStep) -> Vec<String> {
    let name = |ToolStep { tool, .. }: &ToolStep| {
        belay_agent::offered_name(execution.tool(tool).map_or(tool, |facts| &facts.tool))
    };
    agent.tools().iter().map(name).collect()
}

/// The same, each with the name that the plan has for it.
pub(super) fn with_planned<'a>(offered: &'a [String], agent: &'a AgentStep) -> Vec<[&'a str; 2]> {
    offered.iter().zip(agent.tools()).map(|(offered, tool)| [offered.as_str(), tool.tool.as_str()]).collect()
}

/// The answer of a turn that has completed; `None` while it is not at hand.
pub(super) fn answered_of(asked: &StepRecord, blobs: &dyn Blobs) -> Option<Result<Answered, Failure>> {
    let output = asked.output.as_ref();
    let value = match output.map(|output| value_of(&asked.id, output, blobs)) {
        None => Value::Null,
        Some(Ok(value)) => value?,
        Some(Err(failure)) => return Some(Err(failure)),
    };
    Some(Ok(read(value)))
}

/// What was recorded. A person may have given a text, or anything else, as the answer.
fn read(value: Value) -> Answered {
    match value {
        Value::String(text) => Answered { text, ..Answered::default() },
        value => Answered::deserialize(&value)
            .unwrap_or_else(|_| Answered { text: value.to_string(), ..Answered::default() }),
    }
}

/// The arguments of the call that an entry makes, as far as they are known: what a turn adds to the conversation, or what the model wants.
pub(in super::super) fn arguments(
    execution: &Execution,
    step: StepKey,
    blobs: &dyn Blobs,
) -> Option<Result<Value, Failure>> {
    let record = &execution.steps[step];
    let StepRole::Item { of, index } = record.role else { return None };
    let agent = record.spec.agent()?;
    let place = match record.agent_entry()? {
        AgentEntry::Commit | AgentEntry::Rebase => return Some(Ok(json!({}))),
        AgentEntry::Turn(turn) => {
            let (_, model) = record.asked_model()?;
            let asked = asked(execution, of, (agent, model), turn, index as usize, blobs)?;
            return Some(asked.map(|asked| serde_json::to_value(asked).unwrap_or_default()));
        }
        AgentEntry::File { place } | AgentEntry::Listing { place } => {
            return resolved(execution, of, &agent.files().get(place)?.arguments, blobs);
        }
        AgentEntry::Found { place, index } => return files::arguments(execution, of, [place, index], blobs),
        AgentEntry::Call { place, .. } | AgentEntry::Completion { place } => place,
    };
    let entries = &execution.steps[of].items.steps[..index as usize];
    let is_turn = |key: &&StepKey| matches!(execution.steps[**key].agent_entry(), Some(AgentEntry::Turn(_)));
    let turn = entries.iter().rev().find(is_turn)?;
    let answered = match answered_of(&execution.steps[*turn], blobs)? {
        Ok(answered) => answered,
        Err(failure) => return Some(Err(failure)),
    };
    let wanted = answered.calls.get(place).map(|call| call.arguments.clone()).unwrap_or_default();
    if record.agent_entry() == Some(AgentEntry::Completion { place }) && wanted.get("result").is_none() {
        let message = "complete_step: `result` is required: what the step has produced or found out.".to_owned();
        return Some(Err(Failure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message)));
    }
    let size = wanted.to_string().len();
    if size > MAX_RESOLVED_BYTES {
        let message = format!(
            "The arguments have {size} bytes, and the limit is {MAX_RESOLVED_BYTES}: write the content into a file in parts, and pass its path."
        );
        return Some(Err(Failure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message)));
    }
    Some(Ok(wanted))
}

/// What a turn adds to the conversation, or why the model is not asked again.
fn asked(
    execution: &Execution,
    step: StepKey,
    (agent, model): (&AgentStep, &str),
    turn: u32,
    index: usize,
    blobs: &dyn Blobs,
) -> Option<Result<Asked, Failure>> {
    let asked = match turn {
        1 => first(execution, step, (agent, model), blobs)?.map(|asked| (asked, Vec::new())),
        _ => later(execution, step, (agent, model), turn, index, blobs)?,
    };
    let (mut asked, mut turns) = match asked {
        Ok(asked) => asked,
        Err(failure) => return Some(Err(failure)),
    };
    let archivable = belay_agent::archivable(&turns, asked.results.len());
    turns.push(Turn { asked: Arc::new(asked.clone()), answered: None });
    let window = blobs.model(model).map(|facts| facts.window);
    let is_trimmed = window.is_some_and(|window| {
        let has_more = |percent| window.has_more_than(percent, &turns);
        window.is_too_small_for(&turns) || agent.prompt_percent().is_some_and(has_more)
    });
    if is_trimmed && archivable > asked.archived {
        // Few results may be long ones.
        asked.archived = archivable;
        if let Some(last) = turns.last_mut() {
            last.asked = Arc::new(asked.clone());
        }
    }
    Some(match window.filter(|window| window.is_too_small_for(&turns)) {
        None => Ok(asked),
        Some(ModelWindow { tokens, max_output }) => {
            let message = format!(
                "The conversation of turn {turn} does not fit into the window of the model `{}`, which has {tokens} tokens, {max_output} of them for the \
                 answer, also with all results but the last {} archived. Use a model with a larger window, or make the task smaller.",
                model,
                belay_agent::KEPT
            );
            Err(Failure::new(ErrorClass::InvalidArguments, reasons::CONTEXT_EXHAUSTED, message))
        }
    })
}

/// The failure of a turn whose cost a budget limits and nobody can know: the settings had a price for its model when the plan was accepted, and have none now.
pub(in super::super) fn without_price(
    execution: &Execution,
    step: StepKey,
    tool: &str,
    arguments: &Json,
    blobs: &dyn Blobs,
) -> Option<Failure> {
    let record = &execution.steps[step];
    let judge = (tool == JUDGE_TOOL).then(|| judge(arguments));
    let model = match &judge {
        Some(judge) => judge.as_str(),
        None => record.asked_model()?.1,
    };
    let has_none = blobs.model(model).is_some_and(|facts| facts.price.is_none());
    (has_none && execution.limits_cost(step)).then(|| {
        let message = format!(
            "A budget limits what the model `{model}` may cost, and the settings have no price for it any more: set `models.{model}.price`, or change the budget."
        );
        Failure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message)
    })
}

/// Whether the next call of a step is a turn that has to wait for what others hold of a budget; not as long as a value is not at hand.
pub(crate) fn turn_waits(execution: &Execution, step: StepKey, blobs: &dyn Blobs) -> bool {
    let record = &execution.steps[step];
    if !execution.is_shared(step) {
        return false;
    }
    if let Some(call) = record.call_due().filter(|call| call.tool == JUDGE_TOOL) {
        let told = resolved(execution, step, &call.arguments, blobs).and_then(Result::ok);
        return told.is_some_and(|told| {
            let told = Json::canonical(&with_judge(execution, step, JUDGE_TOOL, told));
            execution.has_to_wait_for(step, judge_may_use(&told, blobs))
        });
    }
    let is_turn = matches!(record.agent_entry(), Some(AgentEntry::Turn(_))) && record.makes_own_call_next();
    if !is_turn {
        return false;
    }
    let Some(Ok(asked)) = arguments(execution, step, blobs) else { return false };
    let needed = may_use(execution, step, &Json::canonical(&asked), blobs);
    needed.is_some_and(|needed| execution.has_to_wait_for(step, needed))
}

/// The amounts that a turn may use that asks this: an upper bound of the tokens of its prompt, and all that the answer may have. `None` while a value is not at hand.
pub(in super::super) fn may_use(
    execution: &Execution,
    turn: StepKey,
    asked: &Json,
    blobs: &dyn Blobs,
) -> Option<Amounts> {
    let record = &execution.steps[turn];
    let StepRole::Item { of, index } = record.role else { return Some(Amounts::default()) };
    let mut reading = Reading::new(blobs);
    let before = &execution.steps[of].items.steps[..index as usize];
    let mut turns = conversation(execution, (of, before), None, &mut |record, payload| reading.value(record, payload));
    if reading.is_wanted {
        return None;
    }
    turns.push(Turn { asked: Arc::new(serde_json::from_str(asked.as_str()).unwrap_or_default()), answered: None });
    // One that the settings do not have is not asked.
    let Some(ModelFacts { max_output, price, .. }) = blobs.model(record.asked_model()?.1) else {
        return Some(Amounts::default());
    };
    let input = belay_agent::most_tokens(&turns);
    let usage = Usage { input, output: max_output, ..Usage::default() };
    let cost_micros = price.map_or(0, |price| price.cost(&usage));
    Some(Amounts { tokens: input.saturating_add(max_output), cost_micros, ..Amounts::default() })
}

/// The arguments of a call with the model that judges, where it is one that has a criterion judged and names none: the model that says that the step is done, which may be one that
/// has taken over. All other arguments are as they were.
pub(in super::super) fn with_judge(execution: &Execution, step: StepKey, tool: &str, mut arguments: Value) -> Value {
    if tool == JUDGE_TOOL && arguments["model"].is_null() {
        let of_turn = execution.step(step).asking_model(execution).map(|(model, _)| model);
        let of_step = execution.steps[step].spec.agent().map(AgentStep::model);
        arguments["model"] = json!(of_turn.or(of_step));
    }
    arguments
}

/// The model that judges a criterion, by its name in the settings.
fn judge(arguments: &Json) -> String {
    arguments.value()["model"].as_str().unwrap_or_default().to_owned()
}

/// The amounts that a model may use that judges a criterion: an upper bound of the tokens of what it is told, and all that the answer may have.
pub(in super::super) fn judge_may_use(arguments: &Json, blobs: &dyn Blobs) -> Amounts {
    // One that the settings do not have is not asked.
    let Some(ModelFacts { max_output, price, .. }) = blobs.model(&judge(arguments)) else {
        return Amounts::default();
    };
    let input = belay_agent::judge_size(&arguments.value()) as u64;
    let usage = Usage { input, output: max_output, ..Usage::default() };
    let cost_micros = price.map_or(0, |price| price.cost(&usage));
    Amounts { tokens: input.saturating_add(max_output), cost_micros, ..Amounts::default() }
}

/// The first turn: instructions, tools and the task.
fn first(
    execution: &Execution,
    step: StepKey,
    (agent, model): (&AgentStep, &str),
    blobs: &dyn Blobs,
) -> Option<Result<Asked, Failure>> {
    let task = match resolved(execution, step, agent.task(), blobs)? {
        Ok(task) => task["task"].as_str().map_or_else(|| task["task"].to_string(), str::to_owned),
        Err(failure) => return Some(Err(failure)),
    };
    // Servers refuse a conversation in which nobody has said anything.
    if belay_text::is_blank(&task) {
        let message =
            "`agent.task` says nothing once its templates are filled in: the model would not know what to do.";
        return Some(Err(Failure::new(ErrorClass::InvalidArguments, reasons::INVALID_ARGUMENTS, message)));
    }
    let files = match files::shown(execution, step, agent, blobs)? {
        Ok(files) => files,
        Err(failure) => return Some(Err(failure)),
    };
    let record = &execution.steps[step];
    let offers = agent.tools().iter().filter_map(|call| execution.tool(&call.tool)).map(|facts| Offer {
        name: &facts.tool,
        description: &facts.description,
        parameters: serde_json::from_str(&facts.parameters).unwrap_or_default(),
    });
    let beginning = belay_agent::beginning(&offers.collect::<Vec<_>>(), record.spec.output_schema());
    Some(Ok(Asked {
        model: model.to_owned(),
        turn: 1,
        beginning: Some(beginning),
        message: [task].into_iter().chain(files).collect::<Vec<_>>().join("\n\n"),
        ..Asked::default()
    }))
}

/// A later turn: what came of the calls of the turn before.
fn later(
    execution: &Execution,
    step: StepKey,
    (agent, model): (&AgentStep, &str),
    turn: u32,
    index: usize,
    blobs: &dyn Blobs,
) -> Option<Result<(Asked, Vec<Turn>), Failure>> {
    let before = &execution.steps[step].items.steps[..index];
    let mut reading = Reading::new(blobs);
    let turns = conversation(execution, (step, before), None, &mut |record, payload| reading.value(record, payload));
    let carried = execution.steps[step].carried.as_ref().map_or(0, |carried| carried.turns);
    let TurnOutcome { results, message } = match carried + 1 == turn {
        true => carried_outcome(execution, step, before, &mut reading),
        false => outcome_of_turn(execution, (step, agent), before, &turns, &mut reading),
    };
    if let Some(failure) = reading.damaged {
        return Some(Err(failure));
    }
    if reading.is_wanted {
        return None;
    }
    if turns.len() < carried as usize {
        let message = format!(
            "The conversation of {carried} turns with which step `{}` begins cannot be read: it has {} turns. Fork the first execution again.",
            execution.steps[step].id,
            turns.len()
        );
        return Some(Err(Failure::new(ErrorClass::Internal, reasons::BLOB_DAMAGED, message)));
    }
    // What another server did says nothing about the one that is asked now.
    let is_of_model = turns.last().is_some_and(|turn| turn.asked.model == model);
    if let Some((now, then)) = belay_agent::shortened(&turns).filter(|_| is_of_model) {
        let message = format!(
            "The server of the model `{model}` counted {now} tokens in a prompt that begins with one in which it counted {then}: it shortens prompts \
             without saying so. Raise its window (`num_ctx` of Ollama), or lower `models.{model}.window`."
        );
        let failure = Failure::new(ErrorClass::InvalidResult, reasons::CONTEXT_TRUNCATED_BY_SERVER, message);
        return Some(Err(failure));
    }
    let archived = belay_agent::archived(&turns, results.len());
    let mut asked = Asked { model: model.to_owned(), turn, results, archived, message, ..Asked::default() };
    if asked.message.is_empty() && asked.results.is_empty() {
        asked.message = "Call a tool, or complete_step if the task is done.".to_owned();
    }
    let mut all = turns;
    all.push(Turn { asked: Arc::new(asked.clone()), answered: None });
    // What was done in the execution from which the conversation comes is no reason to end this one: its model begins anew.
    let repetitions = belay_agent::repetitions(&all[carried as usize..]);
    all.pop();
    if repetitions > REPETITION_LIMIT {
        let message = format!(
            "The model `{model}` has done the same {repetitions} times in a row with the same outcome, also after it was told. Its turns are steps `{}~…`.",
            execution.steps[step].id
        );
        return Some(Err(Failure::new(ErrorClass::BudgetExhausted, reasons::AGENT_STUCK, message)));
    }
    if repetitions == REPETITION_LIMIT {
        let warning = format!(
            "You have done the same {repetitions} times with the same outcome. Do something else, or say why the task cannot be done."
        );
        asked.message =
            [asked.message, warning].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    }
    Some(Ok((asked, all)))
}

/// The outcome of a turn, as the next one tells the model.
pub(super) struct TurnOutcome {
    /// The results of the calls of its answer, in their order.
    pub(super) results: Vec<ResultText>,
    /// A message beside them; empty when there is none.
    pub(super) message: String,
}

/// The outcome of the last of these turns, whose calls are the last entries.
pub(super) fn outcome_of_turn(
    execution: &Execution,
    (step, agent): (StepKey, &AgentStep),
    before: &[StepKey],
    turns: &[Turn],
    reading: &mut Reading<'_>,
) -> TurnOutcome {
    let names = offered_names(execution, agent);
    let names = with_planned(&names, agent);
    let last = turns.last();
    let turn = last.map_or(0, |turn| turn.asked.turn);
    let answered = last.and_then(|turn| turn.answered.as_ref());
    let wanted = answered.map(|answered| answered.wanted(&names)).unwrap_or_default();
    let rebase = rebase_after(execution, before, turn);
    let results = wanted.iter().enumerate().map(|(place, WantedCall { call, wanted })| {
        let refused = |text: String| ResultText { id: call.id.clone(), text, is_error: true, is_silent: false };
        match wanted {
            Wanted::Refused(why) => refused(why.clone()),
            Wanted::ReadResult => reading.earlier_result(execution, (step, before), call, turns),
            Wanted::Call(_) | Wanted::Complete => match call_at(execution, before, turn, place) {
                Some(record) if *wanted == Wanted::Complete && rebase.is_some() && record.failure.is_none() => {
                    refused(belay_agent::NOT_COMMITTED.to_owned())
                }
                Some(record) => {
                    let returned = reading.returned(record);
                    outcome(record, returned.as_ref()).result(&call.id)
                }
                None => refused("The call was not made.".to_owned()),
            },
        }
    });
    let results: Vec<ResultText> = results.collect();
    let conflict = rebase.map(|record| {
        let returned = reading.returned(record);
        belay_agent::conflict_text(turn, &outcome(record, returned.as_ref()))
    });
    TurnOutcome { results, message: conflict.unwrap_or_default() }
}

/// The number that stands for the turn before a takeover where its text is read on: the turns of the other execution have their own.
pub(super) const TAKEOVER: u32 = 0;

/// The outcome of the last turn of the conversation with which a step begins, and of taking over what its calls had changed.
fn carried_outcome(execution: &Execution, step: StepKey, before: &[StepKey], reading: &mut Reading<'_>) -> TurnOutcome {
    let record = &execution.steps[step];
    let carried = carried_by(record, &mut |record, payload| reading.value(record, payload)).unwrap_or_default();
    let taken_over = before.iter().map(|&key| &execution.steps[key]).find(|entry| entry.takes_over_layers());
    let conflict = taken_over.and_then(|entry| {
        let returned = reading.returned(entry)?;
        let has_dropped = returned["files"].as_array().is_some_and(|files| !files.is_empty());
        has_dropped.then(|| belay_agent::conflict_text(TAKEOVER, &outcome(entry, Some(&returned))))
    });
    let message = [carried.message.clone(), conflict.unwrap_or_default()];
    let message = message.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
    TurnOutcome { results: carried.results.clone(), message }
}

/// The step that makes the call at this place of the answer of a turn.
pub(super) fn call_at<'a>(
    execution: &'a Execution,
    entries: &[StepKey],
    turn: u32,
    place: usize,
) -> Option<&'a StepRecord> {
    let mut current = 0;
    entries.iter().map(|&key| &execution.steps[key]).find(|record| match record.agent_entry() {
        Some(AgentEntry::Turn(turn)) => {
            current = turn;
            false
        }
        Some(AgentEntry::Call { place: of, .. } | AgentEntry::Completion { place: of }) => {
            current == turn && of == place
        }
        Some(
            AgentEntry::File { .. }
            | AgentEntry::Listing { .. }
            | AgentEntry::Found { .. }
            | AgentEntry::Rebase
            | AgentEntry::Commit,
        )
        | None => false,
    })
}

/// The step that has dropped changes of this turn, and of those before it, that conflicted with what others had done.
pub(super) fn rebase_after<'a>(execution: &'a Execution, entries: &[StepKey], turn: u32) -> Option<&'a StepRecord> {
    let entry = |key: &StepKey| execution.steps[*key].agent_entry();
    // Several models may have been asked for it, and the last one has answered. That of a conversation with which the step begins is before all entries.
    let of = *entries.first().and_then(|&first| execution.steps[first].runs_for()).as_ref()?;
    let is_carried = turn == TAKEOVER && execution.steps[of].carried.is_some();
    let asked = entries.iter().rposition(|key| entry(key) == Some(AgentEntry::Turn(turn)));
    let later = if is_carried { 0 } else { asked? + 1 };
    let later = entries[later..].iter().take_while(|key| !matches!(entry(key), Some(AgentEntry::Turn(_))));
    let mut rebases = later.filter(|key| entry(key) == Some(AgentEntry::Rebase));
    rebases.next().map(|&key| &execution.steps[key])
}

impl Reading<'_> {
    /// The part of an earlier result for which a model asks.
    fn earlier_result(
        &mut self,
        execution: &Execution,
        (step, entries): (StepKey, &[StepKey]),
        call: &Calls,
        turns: &[Turn],
    ) -> ResultText {
        let of = call.arguments["id"].as_str().unwrap_or_default();
        let offset = usize::try_from(call.arguments["offset"].as_u64().unwrap_or_default()).unwrap_or(usize::MAX);
        let whole = belay_agent::call_place(of).and_then(|(turn, place)| call_at(execution, entries, turn, place)).map(
            |record| {
                let returned = self.returned(record);
                outcome(record, returned.as_ref()).text()
            },
        );
        let whole = whole.or_else(|| {
            let record = files::file_at(execution, entries, belay_agent::file_place(of)?)?;
            let returned = self.returned(record);
            Some(belay_agent::file_text(&outcome(record, returned.as_ref())))
        });
        let whole = whole.or_else(|| {
            let record = rebase_after(execution, entries, belay_agent::conflict_turn(of)?)?;
            let returned = self.returned(record);
            Some(outcome(record, returned.as_ref()).text())
        });
        let whole = whole.or_else(|| {
            let carried = carried_by(&execution.steps[step], &mut |record, payload| self.value(record, payload))?;
            carried.whole.get(of).cloned()
        });
        let told = || {
            turns
                .iter()
                .flat_map(|turn| &turn.asked.results)
                .find(|result| result.id == of)
                .map(|result| result.text.clone())
        };
        let (text, is_error) = match whole.or_else(told) {
            Some(text) => (belay_agent::result_part(of, &text, offset), false),
            None => (format!("There is no result with the id `{of}`."), true),
        };
        ResultText { id: call.id.clone(), text, is_error, is_silent: false }
    }
}

/// The conversation with which a step begins, if it begins with one. `value` reads what is recorded.
pub(super) fn carried_by(
    record: &StepRecord,
    value: &mut dyn FnMut(&StepRecord, &Payload) -> Value,
) -> Option<Arc<CarriedConversation>> {
    let recorded = &record.carried.as_ref()?.conversation;
    Some(record.read_turn.carried(recorded, || serde_json::from_value(value(record, recorded)).unwrap_or_default()))
}

/// The turns of a step: those with which it begins, those of these entries with an answer, and the current one. `value` reads what is recorded.
pub(super) fn conversation(
    execution: &Execution,
    (step, entries): (StepKey, &[StepKey]),
    current: Option<StepKey>,
    value: &mut dyn FnMut(&StepRecord, &Payload) -> Value,
) -> Vec<Turn> {
    let carried = carried_by(&execution.steps[step], value);
    let turns = entries.iter().filter(|&&key| is_told(execution, key, current)).map(|&key| &execution.steps[key]);
    let turns = turns.filter_map(|record| {
        let recorded = record.asked.as_ref()?;
        let parse = || serde_json::from_value(value(record, recorded)).unwrap_or_default();
        let asked = record.read_turn.asked(recorded, parse);
        let output = record.output.as_ref().filter(|_| record.state == StepState::Completed);
        let answered = output.map(|output| record.read_turn.answered(output, || read(value(record, output))));
        Some(Turn { asked, answered })
    });
    let own: Vec<Turn> = turns.collect();
    carried.iter().flat_map(|carried| carried.turns()).chain(own).collect()
}

/// Whether a step is a turn that is part of the conversation up to the current one. What a model was asked that has not answered, another one is asked anew.
pub(super) fn is_told(execution: &Execution, step: StepKey, current: Option<StepKey>) -> bool {
    let record = &execution.steps[step];
    let is_turn = matches!(record.agent_entry(), Some(AgentEntry::Turn(_)));
    is_turn && (record.state == StepState::Completed || current == Some(step))
}

impl Execution {
    /// Everything that is recorded of the conversation up to the turn that this step is, by the ids of its steps: what each turn added and was answered.
    pub fn recorded_conversation(&self, turn: StepKey) -> Vec<&Payload> {
        let (of, entries) = self.turns_up_to(turn);
        let carried = of.and_then(|of| self.steps[of].carried.as_ref()).map(|carried| &carried.conversation);
        let told = entries.iter().filter(|&&key| is_told(self, key, Some(turn)));
        let turns = told.map(|&key| &self.steps[key]);
        carried.into_iter().chain(turns.flat_map(|record| record.asked.iter().chain(record.output.as_ref()))).collect()
    }

    /// The conversation up to the turn that this step is, whose answer is not known yet. `value` has what [`Self::recorded_conversation`] names.
    pub fn conversation(&self, turn: StepKey, value: &dyn Fn(&Payload) -> Value) -> Vec<Turn> {
        let (of, entries) = self.turns_up_to(turn);
        let Some(of) = of else { return Vec::new() };
        let mut turns = conversation(self, (of, entries), Some(turn), &mut |_, payload| value(payload));
        if let Some(last) = turns.last_mut() {
            last.answered = None;
        }
        turns
    }

    fn turns_up_to(&self, turn: StepKey) -> (Option<StepKey>, &[StepKey]) {
        let StepRole::Item { of, index } = self.steps[turn].role else { return (None, &[]) };
        (Some(of), &self.steps[of].items.steps[..=index as usize])
    }

    /// How many turns have begun of a step with a goal, since it was last made to run again.
    pub(crate) fn turns_of(&self, record: &StepRecord) -> u32 {
        let entries = record.items.current().iter().rev();
        entries
            .filter_map(|&key| match self.steps[key].agent_entry()? {
                AgentEntry::Turn(turn) => Some(turn),
                AgentEntry::File { .. }
                | AgentEntry::Listing { .. }
                | AgentEntry::Found { .. }
                | AgentEntry::Call { .. }
                | AgentEntry::Completion { .. }
                | AgentEntry::Rebase
                | AgentEntry::Commit => None,
            })
            .next()
            .unwrap_or_else(|| record.carried.as_ref().map_or(0, |carried| carried.turns))
    }
}

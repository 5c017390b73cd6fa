//! Compares what is recorded of steps with a goal with what the model's server was asked and what the tools did.

use std::collections::{BTreeMap, BTreeSet};

use belay_proto::v1::{self, execution_event::Kind, step_spec};

use super::super::outside::Run;
use super::super::policy;
use super::super::tools::{PUBLISH, SEND};
use super::server::{ASK_MODEL, FORK, JUDGE, OTHER, Request, TOO_MANY};
use crate::trace;

/// What is recorded of the executions once all have ended.
pub(super) type Recorded = BTreeMap<String, (v1::Execution, Vec<v1::ExecutionEvent>)>;

/// The reasons for which a step may fail here. With a model that is lost or answers nothing so often that its attempts are used up, it has failed.
const EXPECTED: [&str; 10] = [
    "AGENT_STUCK",
    // The origin of a fork may commit, or drop, what the fork was to take over.
    "LAYER_GONE",
    "LIST_REFUSED",
    "BUDGET_EXHAUSTED",
    "MODEL_ANSWER_INVALID",
    "MODEL_REFUSED",
    "MODEL_TURN_LOST",
    "MODEL_UNAVAILABLE",
    "STEP_CONFLICT",
    "TURN_LIMIT",
];

/// Whether what the calls of each step of a plan change is one effect.
fn has_one_effect(plan: &v1::Plan) -> bool {
    let is_one = |step: &v1::StepSpec| matches!(&step.kind, Some(step_spec::Kind::Agent(agent)) if agent.effects() == v1::calls_step::Effects::PerStep);
    plan.steps.iter().all(is_one)
}

/// The number of the request whose answer has these tokens.
fn request_of(usage: &v1::ModelUsage) -> Option<usize> {
    usize::try_from(usage.output_tokens).ok()?.checked_rem(TOO_MANY as usize)?.checked_sub(1)
}

/// Compares what is recorded with what the model's server was asked and what the tools did.
pub(super) fn audit(recorded: &Recorded, requests: &[Request], runs: &[Run]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut acted_on = BTreeSet::new();
    for (name, (execution, events)) in recorded {
        let id = name.rsplit('/').next().unwrap_or_default();
        let own = |request: &&Request| request.execution == id;
        let (mut turns, mut judged) = (BTreeMap::new(), BTreeSet::new());
        let (mut ends, mut lost, mut overran, mut told) = (0, 0, false, BTreeSet::new());
        let (mut approved, mut completed) = (BTreeSet::new(), BTreeSet::new());
        let carried = events.iter().find_map(|event| match &event.kind {
            Some(Kind::StepConversationCarriedOver(carried)) => Some(carried),
            _ => None,
        });
        if let Some(carried) = carried {
            trace::count(if carried.layers.is_some() { "forks with layers" } else { "forks without layers" });
            let origin = id.strip_suffix(FORK).unwrap_or(id);
            let turn = usize::try_from(carried.turns).unwrap_or_default() + 1;
            let of = |execution: &str| {
                let is_it = |request: &&Request| {
                    request.execution == execution
                        && request.turn == turn
                        && !request.is_of_other()
                        && !request.is_judgement
                };
                requests.iter().find(is_it).map(|request| request.prompt.as_str())
            };
            // What others have changed meanwhile is said where changes are taken over.
            if let (Some(first), Some(next)) = (of(origin), of(id))
                && carried.layers.is_none()
            {
                trace::count("turns of forks that their origins have asked too");
                if first != next {
                    violations
                        .push(format!("{id} asks something else in turn {turn} than {origin}: {next} and {first}"));
                }
            }
        }
        for event in events {
            let call = belay_proto::call_name(name, event);
            match &event.kind {
                Some(Kind::ToolCallRequested(request)) => {
                    let is_turn = [ASK_MODEL, JUDGE].contains(&request.tool.as_str());
                    if request.tool == JUDGE {
                        judged.insert(call.clone());
                    }
                    if is_turn && overran {
                        violations.push(format!("{call} asks the model after the budget was overrun"));
                    }
                    let arguments = request.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
                    if is_turn && arguments.contains(&format!(r#""model":"{OTHER}""#)) {
                        trace::count("turns asked of the next model");
                    }
                    turns.insert(call, is_turn);
                }
                Some(Kind::ToolCallCompleted(completed)) if turns.get(&call) == Some(&true) => {
                    ends += 1;
                    let usage = completed.receipt.as_ref().and_then(|receipt| receipt.usage.as_ref());
                    let number = usage.and_then(request_of);
                    match number.and_then(|number| Some((number, requests.get(number)?))) {
                        Some((number, request)) if request.execution == id => {
                            if request.is_judgement != judged.contains(&call) {
                                violations.push(format!("{call} has the answer to another kind of question"));
                            }
                            if !request.is_judgement {
                                acted_on.insert(number);
                            }
                            told.insert(number);
                        }
                        _ => violations.push(format!("{call} has an answer that no request of {id} was given")),
                    }
                }
                Some(Kind::ToolCallFailed(failed)) if turns.get(&call) == Some(&true) => {
                    ends += 1;
                    let usage = failed.receipt.as_ref().and_then(|receipt| receipt.usage.as_ref());
                    told.extend(usage.and_then(request_of));
                    let reason = failed.failure.as_ref().map(|failure| failure.reason.as_str());
                    lost += usize::from(reason == Some("MODEL_TURN_LOST"));
                }
                Some(Kind::BudgetOverrun(_)) => overran = true,
                Some(Kind::ApprovalDecided(decided)) => {
                    trace::count("approvals of a model's calls decided");
                    if decided.decision() == v1::Decision::Approve {
                        approved.insert(call);
                    }
                }
                Some(Kind::ToolCallCompleted(_)) => drop(completed.insert(call)),
                _ => {}
            }
        }
        let is_one_effect = execution.plan.as_ref().is_some_and(has_one_effect);
        for run in runs.iter().filter(|run| run.call.starts_with(&format!("{name}/"))) {
            // What one effect of the step has changed is approved with that.
            let effect = run.effect.as_ref().filter(|_| !is_one_effect);
            let needs = policy::needs(execution.approval_mode(), run.tool, &run.arguments, effect);
            let is_approved = approved.contains(&run.call);
            if needs.before && !is_approved {
                violations.push(format!("{} was run without an approval", run.call));
            }
            if (needs.after && !is_approved || needs.denied) && completed.contains(&run.call) {
                violations.push(format!("{} has changed {:?} without an approval", run.call, run.effect));
            }
        }
        let asked = requests.iter().filter(own).count();
        if asked > ends {
            violations.push(format!("{id} has asked {asked} times, and {ends} ends are recorded"));
        }
        let not_recorded = asked.saturating_sub(ends - lost);
        if not_recorded > lost {
            violations
                .push(format!("{not_recorded} answers for {id} are not recorded, and {lost} are said to be lost"));
        }
        let limit = execution.plan.as_ref().and_then(|plan| plan.budget.as_ref()?.tokens);
        let counted = requests
            .iter()
            .enumerate()
            .filter(|(_, request)| own(request))
            .map(|(number, request)| request.tokens + if told.contains(&number) { request.beyond } else { 0 });
        let spent: u64 = counted.sum();
        if limit.is_some_and(|limit| spent > limit.unsigned_abs()) {
            trace::count("budgets of tokens overrun");
            if !overran {
                violations.push(format!("{id} has spent {spent} tokens, and its budget is {limit:?}"));
            }
        }
        trace::count(match execution.state() {
            v1::execution::State::Completed => "goals reached",
            _ => "goals not reached",
        });
        for step in execution.steps.iter().filter(|step| step.step_id == "one" || step.step_id == "other") {
            let reason = step.failure.as_ref().map_or("", |failure| failure.reason.as_str());
            // A call that is denied or cannot be asked about is told to the model; the effect of the whole step is that of the step.
            let is_refused = is_one_effect && ["APPROVAL_DENIED", "NON_INTERACTIVE"].contains(&reason);
            if step.state() == v1::step::State::Failed && !EXPECTED.contains(&reason) && !is_refused {
                violations.push(format!("{} failed: {:?}", step.name, step.failure));
            }
        }
        (0..lost).for_each(|_| trace::count("turns lost with their executor"));
    }
    // The same record makes the same prompt, byte for byte, and a turn that has its answer is over.
    let mut of_turn: BTreeMap<(&str, &str, usize), Vec<usize>> = BTreeMap::new();
    for (number, request) in requests.iter().enumerate().filter(|(_, request)| !request.is_judgement) {
        let step = if request.is_of_other() { "other" } else { "one" };
        of_turn.entry((&request.execution, step, request.turn)).or_default().push(number);
    }
    for ((execution, step, turn), numbers) in of_turn {
        if numbers.windows(2).any(|pair| requests[pair[0]].prompt != requests[pair[1]].prompt) {
            violations.push(format!("{execution}, {step}: turn {turn} was asked in other words the next time"));
        }
        if let Some(answered) = numbers.iter().position(|number| acted_on.contains(number))
            && answered + 1 < numbers.len()
        {
            violations.push(format!("{execution}, {step}: turn {turn} was asked again after its answer was recorded"));
        }
        (1..numbers.len()).for_each(|_| trace::count("turns asked again"));
    }
    // Only what a recorded answer wants is done, and what cannot be done again is done once.
    let mut sent = BTreeSet::new();
    for run in runs {
        let value = run.arguments["value"].as_str().unwrap_or_default();
        let number = value.split('/').nth(1).and_then(|number| number.parse::<usize>().ok());
        if !number.is_some_and(|number| acted_on.contains(&number) && requests[number].is_given) {
            violations.push(format!("{} was run for {value:?}, of an answer that is not recorded", run.call));
        }
        if [SEND, PUBLISH].contains(&run.tool) && !sent.insert(value) {
            violations.push(format!("{} was run a second time for {value:?}", run.call));
        }
        trace::count("runs for a model");
    }
    violations
}

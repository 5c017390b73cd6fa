//! Steps whose calls have one effect: which layers a call begins with, and when all of them are committed. The runner keeps what each call changes as a
//! layer, named in the call's receipt; the last entry of the step commits them.

use belay_defects::{Defect, is_planted};
use belay_plan::COMMIT_TOOL;
use serde_json::{Value, json};

use crate::{Execution, Json, StepKey, StepLayers, StepRole, StepState, state::StepRecord};

/// The place of the call that a step requests now among those that have one effect; `None` for a step of another kind.
pub(super) fn of_call(execution: &Execution, step: StepKey) -> Option<StepLayers> {
    let record = &execution.steps[step];
    let StepRole::Item { of, index } = record.role else { return None };
    let whole = &execution.steps[of];
    if !whole.has_one_effect() {
        return None;
    }
    let commits = record.commits_step();
    // What a call commits is in the record of its entry: who looks at the step sees it.
    let begin_with = if commits { committed_by(record.item.as_ref()) } else { kept(execution, whole) };
    let entry = (!commits).then_some(index);
    let taken_over = whole.carried.as_ref().filter(|_| record.takes_over_layers());
    let carried = taken_over.and_then(|carried| carried.layers.clone());
    Some(StepLayers { step: whole.id.clone(), round: whole.attempt, begin_with, entry, carried })
}

/// The entry that commits what the calls of a step have changed; `None` when they have changed nothing.
pub(super) fn commit(execution: &Execution, whole: &StepRecord) -> Option<Json> {
    let mut layers = kept(execution, whole);
    if layers.len() > 1 && is_planted(Defect::LayerLeftOut) {
        layers.remove(0);
    }
    (!layers.is_empty()).then(|| Json::canonical(&json!({"tool": COMMIT_TOOL, "layers": layers})))
}

/// The layers of the calls of a step that have completed, in the order in which these have.
fn kept(execution: &Execution, whole: &StepRecord) -> Vec<String> {
    // A model makes as many as it wants, and none of them is the one that commits.
    let calls = whole.spec.several().map_or(whole.items.current().len(), |several| several.calls().len());
    kept_by(execution, &whole.items.steps[..calls.min(whole.items.steps.len())])
}

/// The layers of these calls, as far as they have completed, likewise.
pub(super) fn kept_by(execution: &Execution, entries: &[StepKey]) -> Vec<String> {
    let entries = entries.iter().map(|&entry| &execution.steps[entry]);
    let mut kept: Vec<&StepRecord> =
        entries.filter(|entry| entry.state == StepState::Completed && !entry.layer.is_empty()).collect();
    kept.sort_by_key(|entry| entry.completed_by);
    kept.into_iter().map(|entry| entry.layer.clone()).collect()
}

fn committed_by(item: Option<&Json>) -> Vec<String> {
    let item = item.map(Json::value).unwrap_or_default();
    let layers = item["layers"].as_array().into_iter().flatten();
    layers.filter_map(Value::as_str).map(str::to_owned).collect()
}

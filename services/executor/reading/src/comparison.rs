//! The comparison of two executions: their plans, their inputs, how they ended, and how each step went and what it returned.
//!
//! Compared is what a person or a program may see of both, with secrets hidden: whether two secrets are equal is told to nobody.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use belay_execution::{StepId, digest};
use serde_json::{Map, Value, json};

/// The largest value that a change has, in bytes of JSON; of a larger one it has the size.
pub const MAX_VALUE_BYTES: usize = 1_024;

/// A step's duration differs when one is at least this many times as long as the other, and longer by [`LEAST_DIFFERENCE`].
const TIMES_AS_LONG: u32 = 2;

/// The least difference of two durations. Whatever takes less differs from run to run.
const LEAST_DIFFERENCE: Duration = Duration::from_secs(1);

/// Either of the two executions, as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Its plan as JSON, with its steps in `steps`, each with an `id`.
    pub plan: Value,
    /// Its inputs by their names; an object without fields when its plan has none.
    pub inputs: Value,
    /// Other values of the execution as a whole that are compared, by name.
    pub execution: Value,
    /// How each of its steps went, in order.
    pub steps: Vec<StepRun>,
}

/// How a step went.
#[derive(Clone, Debug)]
pub struct StepRun {
    /// The step.
    pub step: StepId,
    /// Its values that are compared, by name.
    pub facts: Map<String, Value>,
    /// How long it took, without waits for decisions; zero for one that has not ended.
    pub took: Duration,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where it is, from the outside to the inside.
    pub path: Vec<String>,
    /// The earlier execution's value; `None` where it has none.
    pub before: Option<ComparedValue>,
    /// The later execution's value; `None` where it has none.
    pub after: Option<ComparedValue>,
}

/// A value of one of the executions.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedValue {
    /// The value as JSON; `None` when it has more than [`MAX_VALUE_BYTES`].
    pub json: Option<String>,
    /// The size of its JSON in bytes.
    pub bytes: usize,
}

/// Differences in a step: at least one change.
#[derive(Clone, Debug, PartialEq)]
pub struct StepChanges {
    /// The step.
    pub step: String,
    /// The fields that differ.
    pub changes: Vec<Change>,
}

/// Differences between two executions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// In the plans, outside their steps.
    pub plan: Vec<Change>,
    /// The steps that only the later plan has, in order.
    pub added: Vec<String>,
    /// The steps that only the earlier plan has, in order.
    pub removed: Vec<String>,
    /// The steps of both plans that differ there, in the order of the later plan.
    pub planned: Vec<StepChanges>,
    /// In the inputs.
    pub inputs: Vec<Change>,
    /// In the executions as wholes.
    pub execution: Vec<Change>,
    /// The steps of both executions that went differently, in the order of the later one.
    pub steps: Vec<StepChanges>,
    /// How many steps both have that went alike.
    pub equal_steps: usize,
}

/// The digest of an output: of its JSON with sorted keys. An output that is no JSON is taken as it is.
pub fn output_digest(json: &str) -> String {
    match serde_json::from_str::<Value>(json) {
        Ok(value) => digest(value.to_string().as_bytes()),
        Err(_) => digest(json.as_bytes()),
    }
}

/// Compares two executions.
pub fn compare(mut before: Side, mut after: Side) -> Comparison {
    let mut found = Comparison::default();
    let (old, new) = (steps_of(&mut before.plan), steps_of(&mut after.plan));
    find_changes(&mut Vec::new(), Some(&before.plan), Some(&after.plan), &mut found.plan);
    let known: HashMap<&str, &Value> = old.iter().map(|(id, step)| (id.as_str(), step)).collect();
    for (id, step) in &new {
        match known.get(id.as_str()) {
            None => found.added.push(id.clone()),
            Some(planned) => found.planned.extend(step_changes(id, planned, step)),
        }
    }
    let left: HashSet<&str> = new.iter().map(|(id, _)| id.as_str()).collect();
    found.removed = old.iter().map(|(id, _)| id).filter(|id| !left.contains(id.as_str())).cloned().collect();
    find_changes(&mut Vec::new(), Some(&before.inputs), Some(&after.inputs), &mut found.inputs);
    find_changes(&mut Vec::new(), Some(&before.execution), Some(&after.execution), &mut found.execution);
    let ran: HashMap<&str, &StepRun> = before.steps.iter().map(|run| (run.step.as_str(), run)).collect();
    for run in &after.steps {
        let Some(earlier) = ran.get(run.step.as_str()) else { continue };
        match run_changes(earlier, run) {
            Some(changes) => found.steps.push(changes),
            None => found.equal_steps += 1,
        }
    }
    found
}

/// Takes the steps out of a plan, with their ids.
fn steps_of(plan: &mut Value) -> Vec<(String, Value)> {
    let steps = plan.as_object_mut().and_then(|fields| fields.remove("steps"));
    let Some(Value::Array(steps)) = steps else { return Vec::new() };
    steps.into_iter().filter_map(|step| Some((id(&step)?.to_owned(), step))).collect()
}

fn step_changes(id: &str, before: &Value, after: &Value) -> Option<StepChanges> {
    let mut changes = Vec::new();
    find_changes(&mut Vec::new(), Some(before), Some(after), &mut changes);
    (!changes.is_empty()).then(|| StepChanges { step: id.to_owned(), changes })
}

/// How differently a step went; `None` when it went alike.
fn run_changes(before: &StepRun, after: &StepRun) -> Option<StepChanges> {
    let facts = |run: &StepRun, with_duration: bool| {
        let mut facts = run.facts.clone();
        facts.extend(with_duration.then(|| ("duration".to_owned(), seconds(run.took))));
        Value::from(facts)
    };
    let (short, long) = (before.took.min(after.took), before.took.max(after.took));
    let is_longer = long.saturating_sub(short) >= LEAST_DIFFERENCE && long >= short.saturating_mul(TIMES_AS_LONG);
    step_changes(after.step.as_str(), &facts(before, is_longer), &facts(after, is_longer))
}

/// A duration as proto3 JSON writes it, in milliseconds: `"1.500s"`.
fn seconds(duration: Duration) -> Value {
    json!(format!("{}.{:03}s", duration.as_secs(), duration.subsec_millis()))
}

/// Finds the fields in which two values differ: objects field by field, and lists whose entries have ids of their own entry by entry.
fn find_changes(path: &mut Vec<String>, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let Some((old, new)) = parts(before, after) else {
        found.push(Change { path: path.clone(), before: before.map(compared), after: after.map(compared) });
        return;
    };
    let later: HashMap<&str, &Value> = new.iter().copied().collect();
    let known: HashSet<&str> = old.iter().map(|(name, _)| *name).collect();
    let both = old.iter().map(|(name, value)| (*name, Some(*value), later.get(name).copied()));
    let added = new.iter().filter(|(name, _)| !known.contains(name)).map(|(name, value)| (*name, None, Some(*value)));
    let count = found.len();
    for (name, before, after) in both.chain(added) {
        path.push(name.to_owned());
        find_changes(path, before, after, found);
        path.pop();
    }
    // They differ in what their parts do not tell: the order of entries, or that one has no parts and the other is not there.
    if found.len() == count {
        found.push(Change { path: path.clone(), before: before.map(compared), after: after.map(compared) });
    }
}

/// The parts of a value by their names.
type Parts<'a> = Vec<(&'a str, &'a Value)>;

/// The parts of two values that are compared part by part; `None` when they are compared as wholes. A value that is not there has no parts.
fn parts<'a>(before: Option<&'a Value>, after: Option<&'a Value>) -> Option<(Parts<'a>, Parts<'a>)> {
    match (before, after) {
        (None, Some(value)) => Some((Vec::new(), fields(value)?)),
        (Some(value), None) => Some((fields(value)?, Vec::new())),
        (Some(Value::Array(old)), Some(Value::Array(new))) => Some((entries(old)?, entries(new)?)),
        (Some(old), Some(new)) => Some((fields(old)?, fields(new)?)),
        (None, None) => None,
    }
}

fn fields(value: &Value) -> Option<Parts<'_>> {
    Some(value.as_object()?.iter().map(|(name, field)| (name.as_str(), field)).collect())
}

/// The entries of a list by their ids or names; `None` unless each has its own.
fn entries(list: &[Value]) -> Option<Parts<'_>> {
    let named: Option<Parts<'_>> = list.iter().map(|entry| Some((id(entry)?, entry))).collect();
    let named = named?;
    let distinct: HashSet<&str> = named.iter().map(|(id, _)| *id).collect();
    (distinct.len() == named.len()).then_some(named)
}

fn id(entry: &Value) -> Option<&str> {
    entry.get("id").or_else(|| entry.get("name"))?.as_str()
}

fn compared(value: &Value) -> ComparedValue {
    let json = value.to_string();
    let bytes = json.len();
    ComparedValue { json: (bytes <= MAX_VALUE_BYTES).then_some(json), bytes }
}

#[cfg(test)]
mod tests;

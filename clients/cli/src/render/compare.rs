//! What differs between two executions, of the same plan or of different ones: the plan, the inputs, how each step ended and what it returned. Pure, and
//! bounded however large the executions are.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use belay_proto::v1::{Execution, Step};
use serde_json::{Map, Value, json};

use super::{
    json,
    text::{Line, Style, shorten},
    time, words,
};
use crate::names;

/// The most changes that each part has; the others are counted.
const MAX_CHANGES: usize = 200;
/// The largest value that is shown, in bytes of JSON; of a larger one its size.
const MAX_VALUE_BYTES: usize = 1_024;
/// The longest value on the screen, in characters.
const MAX_VALUE_CHARS: usize = 60;
/// How many digits of a digest are on the screen.
const DIGITS_SHOWN: usize = 12;
/// A step's duration differs when one is this many times as long as the other, and longer by [`WORTH_SAYING`].
const TIMES_AS_LONG: u32 = 2;
const WORTH_SAYING: Duration = Duration::from_secs(1);

/// One of the two executions.
pub(crate) struct Side {
    /// In FULL view.
    pub(crate) execution: Execution,
    /// The digest of each step's output.
    pub(crate) outputs: HashMap<String, String>,
}

/// A field that differs. `None` where an execution does not have it.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    field: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// Changes of something that has a name.
type Named = (String, Vec<Change>);

/// What differs.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    plan: Vec<Change>,
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<Named>,
    inputs: Vec<Change>,
    execution: Vec<Change>,
    steps: Vec<Named>,
    /// How many steps both have that ran alike.
    alike: usize,
}

/// Compares two executions.
///
/// # Errors
/// When a message cannot be written as JSON.
pub(crate) fn difference(a: &Side, b: &Side) -> Result<Difference, json::Unwritable> {
    let mut found = Difference::default();
    let (mut before, mut after) = (plan(&a.execution)?, plan(&b.execution)?);
    let (mut old, new) = (steps_of(&mut before), steps_of(&mut after));
    changes("", Some(&before), Some(&after), &mut found.plan);
    for (id, step) in new {
        match old.iter().position(|(known, _)| *known == id) {
            None => found.added.push(id),
            Some(place) => {
                let mut fields = Vec::new();
                changes("", Some(&old.swap_remove(place).1), Some(&step), &mut fields);
                if !fields.is_empty() {
                    found.changed.push((id, fields));
                }
            }
        }
    }
    let gone: HashSet<String> = old.into_iter().map(|(id, _)| id).collect();
    let in_order = a.execution.steps.iter().map(|step| &step.step_id);
    found.removed = in_order.filter(|id| gone.contains(*id)).cloned().collect();
    changes("", inputs(&a.execution)?.as_ref(), inputs(&b.execution)?.as_ref(), &mut found.inputs);
    let ended = |side: &Side| {
        let execution = &side.execution;
        let code = execution.failure.as_ref().map(|failure| failure.reason.clone());
        let place = if execution.workspace.is_empty() { &execution.made_folder } else { &execution.workspace };
        json!({ "state": words::execution_state(execution.state()), "failure": code, "workspace": place })
    };
    changes("", Some(&ended(a)), Some(&ended(b)), &mut found.execution);
    let known: HashMap<&str, &Step> = a.execution.steps.iter().map(|step| (step.step_id.as_str(), step)).collect();
    for step in &b.execution.steps {
        let Some(before) = known.get(step.step_id.as_str()) else { continue };
        let fields = ran_differently((a, before), (b, step));
        match fields.is_empty() {
            true => found.alike += 1,
            false => found.steps.push((step.step_id.clone(), fields)),
        }
    }
    Ok(found)
}

/// The plan of an execution as JSON.
fn plan(execution: &Execution) -> Result<Value, json::Unwritable> {
    execution.plan.as_ref().map_or_else(|| Ok(json!({})), json::of)
}

/// Takes the steps out of a plan.
fn steps_of(plan: &mut Value) -> Vec<(String, Value)> {
    let steps = plan.as_object_mut().and_then(|fields| fields.remove("steps")).unwrap_or_default();
    let Value::Array(steps) = steps else { return Vec::new() };
    steps.into_iter().map(|step| (step["id"].as_str().unwrap_or_default().to_owned(), step)).collect()
}

fn inputs(execution: &Execution) -> Result<Option<Value>, json::Unwritable> {
    let only = Execution { inputs: execution.inputs.clone(), ..Execution::default() };
    Ok(json::of(&only)?.get_mut("inputs").map(Value::take))
}

/// How the same step ran in two executions.
fn ran_differently((a, before): (&Side, &Step), (b, after): (&Side, &Step)) -> Vec<Change> {
    let facts = |side: &Side, step: &Step| {
        let mut facts = Map::new();
        facts.insert("state".to_owned(), words::step_state(step.state()).into());
        facts.insert("attempts".to_owned(), step.attempt.into());
        facts.extend(step.failure.as_ref().map(|failure| ("failure".to_owned(), failure.reason.clone().into())));
        let digest = side.outputs.get(&step.step_id);
        facts.extend(digest.map(|digest| ("output".to_owned(), digest.clone().into())));
        Value::from(facts)
    };
    let mut fields = Vec::new();
    changes("", Some(&facts(a, before)), Some(&facts(b, after)), &mut fields);
    let (first, second) = (lasted(before), lasted(after));
    let (short, long) = (first.min(second), first.max(second));
    let is_longer = long.saturating_sub(short) >= WORTH_SAYING && long >= short.saturating_mul(TIMES_AS_LONG);
    fields.extend(is_longer.then(|| Change {
        field: "duration".to_owned(),
        before: Some(json::duration(first)),
        after: Some(json::duration(second)),
    }));
    fields
}

/// From the start of a step to its end, without the time in which it waited for decisions.
fn lasted(step: &Step) -> Duration {
    let end = step.end_time.as_ref().and_then(time::since_epoch);
    let waited = step.approval_wait.as_ref().map(time::duration).unwrap_or_default();
    time::between(step.start_time.as_ref(), end).unwrap_or_default().saturating_sub(waited)
}

/// The fields in which two values differ, objects field by field.
fn changes(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let empty = Map::new();
    let fields = |value: Option<&Value>| value.is_none_or(Value::is_object);
    let of = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&empty).clone();
    if !(fields(before) && fields(after)) {
        found.push(Change { field: path.to_owned(), before: before.map(bounded), after: after.map(bounded) });
        return;
    }
    let (old, new) = (of(before), of(after));
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added) {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        changes(&path, old.get(name), new.get(name), found);
    }
}

/// The value, or how large it is.
fn bounded(value: &Value) -> Value {
    let bytes = value.to_string().len();
    if bytes <= MAX_VALUE_BYTES { value.clone() } else { json!({ "sizeBytes": bytes }) }
}

impl Difference {
    fn is_none(&self) -> bool {
        let Difference { plan, added, removed, changed, inputs, execution, steps, alike: _ } = self;
        [plan, inputs, execution].iter().all(|changes| changes.is_empty())
            && changed.is_empty()
            && steps.is_empty()
            && added.is_empty()
            && removed.is_empty()
    }

    /// For programs.
    pub(crate) fn json(&self, a: &Side, b: &Side) -> Value {
        let mut left_out = 0;
        let mut first = |count: usize| {
            left_out += count.saturating_sub(MAX_CHANGES);
            count.min(MAX_CHANGES)
        };
        let mut fields = |changes: &[Change]| -> Vec<Value> {
            let shown = &changes[..first(changes.len())];
            let of = |change: &Change| {
                let mut value = json!({ "field": change.field });
                let sides = [("before", &change.before), ("after", &change.after)];
                sides.into_iter().for_each(|(name, side)| {
                    if let Some(side) = side {
                        value[name] = side.clone();
                    }
                });
                value
            };
            shown.iter().map(of).collect()
        };
        let mut named = |all: &[Named]| -> Vec<Value> {
            let shown = all.iter().take(MAX_CHANGES);
            shown.map(|(id, changes)| json!({ "stepId": id, "fields": fields(changes) })).collect()
        };
        let (changed, steps) = (named(&self.changed), named(&self.steps));
        let (plan, inputs, execution) = (fields(&self.plan), fields(&self.inputs), fields(&self.execution));
        let (added, removed) = (&self.added[..first(self.added.len())], &self.removed[..first(self.removed.len())]);
        first(self.changed.len());
        first(self.steps.len());
        json!({
            "executions": [a.execution.name, b.execution.name],
            "plan": { "fields": plan, "added": added, "removed": removed, "changed": changed },
            "inputs": inputs,
            "execution": execution,
            "steps": steps,
            "alike": self.alike,
            "leftOut": left_out,
        })
    }

    /// For people.
    pub(crate) fn lines(&self, a: &Side, b: &Side, now: Duration) -> Vec<Line> {
        let mut lines = vec![head("-", Style::Bad, &a.execution, now), head("+", Style::Good, &b.execution, now)];
        if self.is_none() {
            lines.push(Line::default().and(Style::Good, format!("no difference: {} alike", words::steps(self.alike))));
            return lines;
        }
        let mut plan: Vec<Line> = self.plan.iter().map(|change| line("", change)).collect();
        plan.extend(self.removed.iter().map(|id| Line::new("  ").and(Style::Bad, format!("- {id}"))));
        plan.extend(self.added.iter().map(|id| Line::new("  ").and(Style::Good, format!("+ {id}"))));
        plan.extend(of_steps(&self.changed));
        part(&mut lines, "plan", plan);
        part(&mut lines, "inputs", self.inputs.iter().map(|change| line("", change)).collect());
        part(&mut lines, "execution", self.execution.iter().map(|change| line("", change)).collect());
        part(&mut lines, "steps", of_steps(&self.steps).collect());
        if self.alike > 0 {
            lines.push(Line::default().and(Style::Dim, format!("{} ran alike", words::steps(self.alike))));
        }
        lines
    }
}

/// `- e1  plan tidy, failed after 31s`.
fn head(sign: &str, style: Style, execution: &Execution, now: Duration) -> Line {
    let state = words::execution_state(execution.state());
    let took = super::execution::took_in_words(execution, now).map(|took| format!(" after {took}")).unwrap_or_default();
    Line::default()
        .and(style, format!("{sign} "))
        .and(Style::Strong, names::id(&execution.name))
        .and(Style::Dim, format!("  plan {}, {state}{took}", execution.plan_id))
}

fn part(lines: &mut Vec<Line>, title: &str, mut changes: Vec<Line>) {
    if changes.is_empty() {
        return;
    }
    lines.push(Line::default().and(Style::Strong, title));
    let left_out = changes.len().saturating_sub(MAX_CHANGES);
    changes.truncate(MAX_CHANGES);
    lines.extend(changes);
    if left_out > 0 {
        lines.push(Line::new("  ").and(Style::Dim, format!("… and {left_out} more")));
    }
}

fn of_steps(steps: &[Named]) -> impl Iterator<Item = Line> {
    steps.iter().flat_map(|(id, changes)| changes.iter().map(|change| line(id, change)))
}

/// `  ~ build  tool.arguments.command: ["make"] → ["make","test"]`.
fn line(step: &str, Change { field, before, after }: &Change) -> Line {
    let shown = |value: &Option<Value>| match value {
        None => "none".to_owned(),
        Some(Value::String(text)) if text.starts_with("sha256:") => {
            text.chars().take("sha256:".len() + DIGITS_SHOWN).collect()
        }
        Some(value) => shorten(&json::text(value, false), MAX_VALUE_CHARS),
    };
    let mut line = Line::new("  ").and(Style::Warn, "~ ");
    if !step.is_empty() {
        line = line.and(Style::Strong, step).and(Style::Plain, "  ");
    }
    line.and(Style::Dim, format!("{field}: "))
        .and(Style::Bad, shown(before))
        .and(Style::Dim, " → ")
        .and(Style::Good, shown(after))
        .hanging(4)
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{Failure, Payload, Plan, StepSpec, ToolStep, execution, step::State, step_spec::Kind};
    use pbjson_types::Timestamp;

    use super::*;

    fn step(id: &str, state: State, attempt: i32, seconds: i64) -> Step {
        Step {
            step_id: id.to_owned(),
            state: state.into(),
            attempt,
            start_time: Some(Timestamp { seconds: 100, nanos: 0 }),
            end_time: Some(Timestamp { seconds: 100 + seconds, nanos: 0 }),
            ..Step::default()
        }
    }

    fn spec(id: &str, arguments: &str) -> StepSpec {
        let tool = ToolStep {
            tool: "run_terminal".into(),
            arguments: Some(Payload::of_json(arguments)),
            ..ToolStep::default()
        };
        StepSpec { id: id.to_owned(), kind: Some(Kind::Tool(tool)), ..StepSpec::default() }
    }

    fn side(id: &str, specs: Vec<StepSpec>, steps: Vec<Step>, outputs: &[(&str, &str)], inputs: &str) -> Side {
        let execution = Execution {
            name: format!("namespaces/default/executions/{id}"),
            plan_id: "p".to_owned(),
            state: execution::State::Completed.into(),
            plan: Some(Plan { id: "p".to_owned(), steps: specs, ..Plan::default() }),
            steps,
            inputs: Some(Payload::of_json(inputs)),
            ..Execution::default()
        };
        let outputs = outputs.iter().map(|(step, digest)| ((*step).to_owned(), format!("sha256:{digest}"))).collect();
        Side { execution, outputs }
    }

    fn before() -> Side {
        let specs = vec![spec("a", r#"{"command":["x"]}"#), spec("b", "{}"), spec("c", "{}")];
        let steps = vec![
            step("a", State::Completed, 1, 2),
            step("b", State::Completed, 1, 1),
            step("c", State::Completed, 1, 1),
        ];
        side("e1", specs, steps, &[("a", "0123456789abcdef"), ("b", "1"), ("c", "2")], r#"{"n":1,"same":2}"#)
    }

    fn after() -> Side {
        let specs = vec![spec("a", r#"{"command":["x","y"],"cwd":"z"}"#), spec("d", "{}"), spec("b", "{}")];
        let failed = Step {
            failure: Some(Failure { reason: "COMMAND_FAILED".into(), ..Failure::default() }),
            ..step("a", State::Failed, 3, 9)
        };
        let steps = vec![failed, step("d", State::Completed, 1, 1), step("b", State::Completed, 1, 1)];
        let mut side = side("e2", specs, steps, &[("b", "1"), ("d", "3")], r#"{"n":3,"same":2}"#);
        side.execution.set_state(execution::State::Failed);
        side
    }

    #[test]
    fn what_differs_is_named_and_nothing_else() {
        let (a, b) = (before(), after());
        let found = difference(&a, &b).unwrap();
        let text: Vec<String> = found.lines(&a, &b, Duration::ZERO).iter().map(|line| line.render(false)).collect();
        let expected = [
            "plan",
            "  - c",
            "  + d",
            r#"  ~ a  tool.arguments.command: ["x"] → ["x","y"]"#,
            r#"  ~ a  tool.arguments.cwd: none → "z""#,
            "inputs",
            "  ~ n: 1 → 3",
            "execution",
            r#"  ~ state: "completed" → "failed""#,
            "steps",
            "  ~ a  attempts: 1 → 3",
            "  ~ a  output: sha256:0123456789ab → none",
            r#"  ~ a  state: "completed" → "failed""#,
            r#"  ~ a  failure: none → "COMMAND_FAILED""#,
            r#"  ~ a  duration: "2s" → "9s""#,
            "1 step ran alike",
        ];
        assert!(
            text[0].starts_with("- e1  plan p, completed") && text[1].starts_with("+ e2  plan p, failed"),
            "{text:#?}"
        );
        assert_eq!(text[2..], expected);
        let json = found.json(&a, &b);
        assert_eq!(json["plan"]["added"], json!(["d"]));
        assert_eq!(json["inputs"], json!([{"field": "n", "before": 1, "after": 3}]));
        assert_eq!(json["steps"][0]["stepId"], "a");
        assert_eq!((&json["alike"], &json["leftOut"]), (&json!(1), &json!(0)));
    }

    #[test]
    fn an_execution_does_not_differ_from_itself() {
        let found = difference(&before(), &before()).unwrap();
        assert!(found.is_none());
        let lines = found.lines(&before(), &before(), Duration::ZERO);
        assert_eq!(lines[2].render(false), "no difference: 3 steps alike");
    }

    #[test]
    fn a_small_change_of_a_duration_is_none() {
        let ran = |before: i64, after: i64| {
            let (mut a, mut b) = (before_with("a", before), before_with("a", after));
            (a.outputs, b.outputs) = (HashMap::new(), HashMap::new());
            difference(&a, &b).unwrap().steps.len()
        };
        assert_eq!((ran(10, 19), ran(10, 20), ran(20, 10), ran(1, 1), ran(0, 1)), (0, 1, 1, 0, 1));
    }

    fn before_with(id: &str, seconds: i64) -> Side {
        side("e", vec![spec(id, "{}")], vec![step(id, State::Completed, 1, seconds)], &[], "{}")
    }

    #[test]
    fn a_difference_is_bounded() {
        let many = |prefix: &str| {
            let ids: Vec<String> = (0..1_000).map(|number| format!("{prefix}{number}")).collect();
            let specs = ids.iter().map(|id| spec(id, &format!(r#"{{"x":"{}"}}"#, prefix.repeat(9_000)))).collect();
            let steps = ids.iter().map(|id| step(id, State::Completed, 1, 1)).collect();
            side(prefix, specs, steps, &[], "{}")
        };
        let (a, b) = (many("a"), many("b"));
        let found = difference(&a, &b).unwrap();
        let json = found.json(&a, &b);
        assert_eq!((json["plan"]["added"].as_array().map(Vec::len), &json["leftOut"]), (Some(200), &json!(1_600)));
        assert!(found.lines(&a, &b, Duration::ZERO).len() < 220);
        // The same steps with large arguments that differ.
        let mut c = many("a");
        for step in &mut c.execution.plan.as_mut().unwrap().steps {
            *step = spec(&step.id, r#"{"x":"short"}"#);
        }
        let found = difference(&a, &c).unwrap();
        assert!(found.json(&a, &c).to_string().len() < 100_000);
        assert_eq!(found.changed[0].1[0].before, Some(json!({"sizeBytes": 9_002})));
    }
}

//! Reads lists of steps and groups: their order, and what both have.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    super::{
        fields::{Fields, Value},
        group::{Group, ReadStep, StepsAndGroups, offset_of},
        tree::Kind,
    },
    Reader,
};
use crate::{
    Dependency, Outcome, RunWhen,
    check::{JOINED_TWICE, Place, TOO_LONG},
    limits::{MAX_DURATION, MAX_NESTED_GROUPS},
    nearest,
    path::shown,
};

/// Fields that a step has, and a group does not.
const OF_A_STEP: [&str; 10] =
    ["for_each", "repeat", "tool", "calls", "effects", "wait", "arguments", "inputs", "compensate", "on_error"];

/// Fields that a plan has, and neither a step nor a group, with what to write for a group.
const OF_A_PLAN_ALONE: [(&str, &str); 2] = [
    ("stop_on_error", "write `fail_fast` on the group, or `stop_on_error` in the plan"),
    ("parallelism", "write `parallelism` in the plan, or put the steps into a `plan` of one step"),
];

/// The entries of `on`, for messages.
const OUTCOMES: &str = "outcomes, of success, failure and skipped";

/// An entry of a list of steps.
enum Entry<'n> {
    Step(Box<ReadStep<'n>>),
    Group(Box<Group<'n>>, StepsAndGroups<'n>),
}

impl<'n> Reader<'n> {
    /// A list of steps and groups. `within`: the positions of the groups that it stands in.
    pub(super) fn steps(&mut self, steps: &[Value<'n>], within: &[usize]) -> StepsAndGroups<'n> {
        let mut read = Vec::with_capacity(steps.len());
        for (position, value) in steps.iter().enumerate() {
            let mut positions = within.to_vec();
            positions.push(position);
            read.push(match value.node.field("steps") {
                Some(_) if value.node.field("plan").is_none() => self.group(value, &positions),
                _ => {
                    let (order, draft, of_plan) = self.step(value);
                    let place = Place { positions, of_plan };
                    (order, Entry::Step(Box::new(ReadStep { value: value.clone(), place, draft })))
                }
            });
        }
        self.order(&mut read, steps);
        let mut listed = StepsAndGroups::default();
        for (_, entry) in read {
            match entry {
                Entry::Step(step) => listed.steps.push(*step),
                Entry::Group(group, within) => listed.add_group(*group, within),
            }
        }
        listed
    }

    /// A group of steps; `positions` lead to it.
    fn group(&mut self, value: &Value<'n>, positions: &[usize]) -> (Option<u32>, Entry<'n>) {
        let mut group = Group {
            value: value.clone(),
            id: String::new(),
            depends_on: Vec::new(),
            run_when: RunWhen::default(),
            condition: String::new(),
            retry: None,
            timeout: None,
            fail_fast: false,
            attempt_timeout: None,
            steps: 0..0,
        };
        let Some(mut fields) = value.fields(&mut self.report, "an object with `id` and `steps`") else {
            return (None, Entry::Group(Box::new(group), StepsAndGroups::default()));
        };
        group.id = fields.take(&mut self.report, "id").map_or_else(String::new, |id| id.text(&mut self.report));
        // For the people who read the plan.
        self.optional_text(&mut fields, "title");
        self.optional_text(&mut fields, "description");
        group.depends_on = self.depends_on(&mut fields);
        group.run_when = self.run_when(&mut fields);
        if group.run_when != RunWhen::default() && group.names_outcomes() {
            let path = value.path.key("run_when");
            self.report.refuse(&path, offset_of(value, "run_when"), || JOINED_TWICE.to_owned());
            group.run_when = RunWhen::default();
        }
        group.condition = self.condition(&mut fields);
        group.retry = fields.take(&mut self.report, "retry").and_then(|value| self.retry(&value));
        // At the group, and not for each of its steps.
        group.timeout = fields.take_exactly("timeout").and_then(|value| {
            let timeout = self.duration(&value)?;
            let problem = match timeout {
                Duration::ZERO => Some("must be longer than 0"),
                timeout if timeout > MAX_DURATION => Some(TOO_LONG),
                _ => None,
            };
            if let Some(problem) = problem {
                value.refuse(&mut self.report, || problem.to_owned());
            }
            Some(timeout).filter(|_| problem.is_none())
        });
        group.fail_fast = fields.take_exactly("fail_fast").is_some_and(|value| value.flag(&mut self.report));
        group.attempt_timeout =
            fields.take(&mut self.report, "attempt_timeout").and_then(|value| self.duration(&value));
        let order = self.order_of(&mut fields);
        let steps = fields.take_exactly("steps");
        for field in OF_A_STEP {
            if let Some(value) = fields.take_refused(field) {
                value.refuse(&mut self.report, || {
                    format!("is not for a group, whose steps are steps of this plan: write `{field}` on its steps, or put them into a `plan` of one step")
                });
            }
        }
        for (field, instead) in OF_A_PLAN_ALONE {
            if let Some(value) = fields.take_refused(field) {
                value.refuse(&mut self.report, || format!("is for a plan, and not for a group: {instead}"));
            }
        }
        fields.finish(&mut self.report);
        let steps = steps.map_or_else(Vec::new, |steps| {
            let list = steps.list(&mut self.report, "steps");
            if list.is_empty() && matches!(steps.node.kind, Kind::List(_)) {
                steps.refuse(&mut self.report, || "is empty: a group has at least one step".to_owned());
            }
            list
        });
        if positions.len() > MAX_NESTED_GROUPS {
            value.refuse(&mut self.report, || {
                format!("stands in {MAX_NESTED_GROUPS} other groups, which is the limit: let a group further out have its steps")
            });
            return (order, Entry::Group(Box::new(group), StepsAndGroups::default()));
        }
        let within = self.steps(&steps, positions);
        (order, Entry::Group(Box::new(group), within))
    }

    /// The time limits of the groups that a step stands in, by their ids.
    pub(super) fn group_timeouts(&mut self, timeouts: &Value<'n>) -> BTreeMap<String, Duration> {
        let Some(entries) = timeouts.node.entries() else {
            timeouts.refuse(&mut self.report, || {
                "must be an object with a time limit for each group, such as {build: 10m}".to_owned()
            });
            return BTreeMap::new();
        };
        let mut read = BTreeMap::new();
        for entry in entries {
            let value = Value { path: timeouts.path.key(entry.key.name.clone()), node: &entry.value };
            if let Some(timeout) = self.duration(&value) {
                read.insert(entry.key.name.clone(), timeout);
            }
        }
        read
    }

    /// Sorts the steps by their `order` fields.
    fn order<T>(&mut self, read: &mut [(Option<u32>, T)], steps: &[Value<'n>]) {
        let missing: Vec<usize> = (0..read.len()).filter(|&place| read[place].0.is_none()).collect();
        if missing.len() == read.len() {
            return;
        }
        for place in missing {
            let step = &steps[place];
            self.report.refuse(&step.path.key("order"), step.node.offset, || {
                "is missing, and other steps have it: give every step an `order`, or none".to_owned()
            });
        }
        read.sort_by_key(|(order, _)| *order);
    }

    pub(super) fn order_of(&mut self, fields: &mut Fields<'n>) -> Option<u32> {
        fields.take_exactly("order").map(|value| value.whole(&mut self.report, 0..=u32::MAX).unwrap_or_default())
    }

    pub(super) fn depends_on(&mut self, fields: &mut Fields<'n>) -> Vec<Dependency> {
        let Some(value) = fields.take(&mut self.report, "depends_on") else { return Vec::new() };
        if matches!(value.node.kind, Kind::Map(_)) {
            value.refuse(&mut self.report, || {
                "must be a list of ids of steps: write [{step: ID, on: [OUTCOME, …]}]".to_owned()
            });
            return Vec::new();
        }
        let entries = value.scalars(&mut self.report, "ids of steps");
        entries.iter().map(|entry| self.dependency(entry)).collect()
    }

    /// A step by its id, or by its id and its outcomes.
    fn dependency(&mut self, entry: &Value<'n>) -> Dependency {
        if !matches!(entry.node.kind, Kind::Map(_)) {
            return entry.text(&mut self.report).into();
        }
        let Some(mut fields) = entry.fields(&mut self.report, "an id, or an object with `step` and `on`") else {
            return String::new().into();
        };
        let step = fields.take_exactly("step").map_or_else(String::new, |step| step.text(&mut self.report));
        let on = fields.take_exactly("on").and_then(|on| self.outcomes(&on));
        fields.finish(&mut self.report);
        Dependency { step, on }
    }

    /// Outcomes; `None` when none of them could be read, which has been refused then.
    fn outcomes(&mut self, value: &Value<'n>) -> Option<BTreeSet<Outcome>> {
        let words = value.scalars(&mut self.report, OUTCOMES);
        let is_empty = words.is_empty() && matches!(value.node.kind, Kind::List(_));
        let outcomes: BTreeSet<Outcome> = words.iter().filter_map(|word| self.outcome(word)).collect();
        (is_empty || !outcomes.is_empty()).then_some(outcomes)
    }

    fn outcome(&mut self, value: &Value<'n>) -> Option<Outcome> {
        let word = if let Kind::Text(word) = &value.node.kind { Some(word.as_str()) } else { None };
        let known = Outcome::WORDS.iter().find(|(known, _)| Some(*known) == word);
        if known.is_none() {
            value.refuse(&mut self.report, || {
                let given = word.map(|word| format!("is `{}`, and ", shown(word))).unwrap_or_default();
                // The words for states, which are not those for outcomes.
                let more = match word {
                    Some("completed" | "succeeded") => ": write success",
                    Some("failed") => ": write failure",
                    Some("cancelled" | "canceled") => {
                        ": a step is cancelled only while its execution is being stopped, and nothing starts then"
                    }
                    Some("none_failed") => ": write success and skipped, or `run_when: none_failed` for all of them",
                    Some("always" | "all_done") => ": write all three",
                    Some(_) | None => "",
                };
                let near = word
                    .filter(|_| more.is_empty())
                    .and_then(|word| nearest(word, Outcome::WORDS.iter().map(|(known, _)| *known)));
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                format!("{given}must be success, failure or skipped{more}{near}")
            });
        }
        known.map(|(_, outcome)| *outcome)
    }

    pub(super) fn run_when(&mut self, fields: &mut Fields<'n>) -> RunWhen {
        let Some(value) = fields.take_exactly("run_when") else { return RunWhen::default() };
        let word = if let Kind::Text(word) = &value.node.kind { Some(word.as_str()) } else { None };
        let known = RunWhen::WORDS.iter().find(|(known, _)| Some(*known) == word);
        if known.is_none() {
            value.refuse(&mut self.report, || {
                let given = match word {
                    Some("") => "is empty, and ".to_owned(),
                    Some(word) => format!("is `{}`, and ", shown(word)),
                    None => String::new(),
                };
                let near = word.and_then(|word| nearest(word, RunWhen::WORDS.iter().map(|(known, _)| *known)));
                let more = match (&value.node.kind, near) {
                    (_, Some(near)) => format!("; did you mean `{near}`?"),
                    (Kind::List(_), None) => {
                        ": to name several ends of a step, write `depends_on: [{step: ID, on: [OUTCOME, …]}]`"
                            .to_owned()
                    }
                    (_, None) => String::new(),
                };
                format!("{given}must be success, failure, always or none_failed{more}")
            });
        }
        known.map(|(_, run_when)| *run_when).unwrap_or_default()
    }
}

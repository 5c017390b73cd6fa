//! The steps of a plan and what they depend on: as levels of text, as a Mermaid flowchart, and for programs.

use std::collections::HashMap;

use belay_proto::v1::{DependencyOutcomes, Plan, RunWhen, StepSpec, step_spec};
use serde_json::{Value, json};

use super::{
    call, plan,
    text::{Line, Style, clean, shorten, table},
    words,
};

/// The longest call or condition in a node of a flowchart, in characters.
const MAX_NODE_CHARS: usize = 60;

/// A plan's steps with their dependencies.
pub(crate) struct Graph<'a> {
    plan: &'a Plan,
    /// The dependencies of each step, by their places in the plan.
    depends_on: Vec<Vec<usize>>,
    /// The level of each step, from 1: one more than the highest of those that it depends on.
    levels: Vec<usize>,
}

impl<'a> Graph<'a> {
    /// The graph of a plan that the services have accepted: it has no circle.
    pub(crate) fn of(plan: &'a Plan) -> Graph<'a> {
        let places: HashMap<&str, usize> =
            plan.steps.iter().enumerate().map(|(place, step)| (step.id.as_str(), place)).collect();
        let of_step = |step: &StepSpec| {
            let ids = call::dependencies(step, |id| places.contains_key(id) && id != step.id);
            ids.iter().filter_map(|id| places.get(id.as_str()).copied()).collect::<Vec<_>>()
        };
        let depends_on: Vec<Vec<usize>> = plan.steps.iter().map(of_step).collect();
        let levels = levels(&depends_on);
        Graph { plan, depends_on, levels }
    }

    /// A line for each step, level by level, in the plan's order within one.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let ids = self.plan.steps.iter().map(|step| step.id.as_str()).collect();
        let mut places: Vec<usize> = (0..self.plan.steps.len()).collect();
        places.sort_by_key(|place| self.levels[*place]);
        let mut before = 0;
        let rows = places.iter().map(|&place| {
            let level = self.levels[place];
            let number = if level == before { String::new() } else { level.to_string() };
            before = level;
            let mut row = vec![(Style::Warn, number)];
            row.extend(plan::row(&self.plan.steps[place], &ids));
            row
        });
        let mut lines = vec![plan::heading(self.plan)];
        lines.extend(table(&rows.collect::<Vec<_>>()));
        let how =
            "steps of one level do not wait for each other; a step starts when those that it comes after have ended";
        lines.push(Line::default().and(Style::Dim, how));
        lines
    }

    /// A flowchart in the language of Mermaid. Its nodes have numbers for names, and their labels say the rest.
    pub(crate) fn mermaid(&self) -> Vec<Line> {
        let mut lines = vec![Line::new("flowchart TD")];
        for (place, step) in self.plan.steps.iter().enumerate() {
            let mut parts = vec![escaped(&step.id)];
            if !step.title.is_empty() && step.title != step.id {
                parts.push(escaped(&shorten(&clean(&step.title), MAX_NODE_CHARS)));
            }
            parts.push(escaped(&shorten(&call::of_step(step), MAX_NODE_CHARS)));
            if !step.condition.is_empty() {
                parts.push(escaped(&format!("if {}", shorten(&clean(&step.condition), MAX_NODE_CHARS))));
            }
            let (open, close) = match step.kind {
                Some(step_spec::Kind::Wait(_)) => ("([", "])"),
                _ => ("[", "]"),
            };
            lines.push(Line::new(format!("  s{place}{open}\"{}\"{close}", parts.join("<br/>"))));
        }
        for (place, before) in self.edges() {
            let arrow = arrow(&self.plan.steps[place], &self.plan.steps[before].id);
            lines.push(Line::new(format!("  s{before} {arrow} s{place}")));
        }
        lines.into_iter().map(Line::verbatim).collect()
    }

    /// Each step with its level and its dependencies, in the plan's order.
    pub(crate) fn steps(&self) -> Vec<Value> {
        let of_step = |(place, step): (usize, &StepSpec)| {
            let depends_on: Vec<&str> =
                self.depends_on[place].iter().map(|before| self.plan.steps[*before].id.as_str()).collect();
            let mut value = json!({ "id": step.id, "level": self.levels[place], "dependsOn": depends_on });
            if step.run_when() != RunWhen::Unspecified {
                value["runWhen"] = step.run_when().as_str_name().into();
            }
            if !step.outcomes.is_empty() {
                let of_step = |named: &DependencyOutcomes| {
                    let outcomes: Vec<&str> = named.outcomes().map(|outcome| outcome.as_str_name()).collect();
                    (named.step.clone(), outcomes.into())
                };
                value["outcomes"] =
                    step.outcomes.iter().map(of_step).collect::<serde_json::Map<String, Value>>().into();
            }
            if !step.condition.is_empty() {
                value["condition"] = step.condition.clone().into();
            }
            value
        };
        self.plan.steps.iter().enumerate().map(of_step).collect()
    }

    /// Each step with each that it depends on.
    fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.depends_on.iter().enumerate().flat_map(|(place, all)| all.iter().map(move |before| (place, *before)))
    }
}

/// The edge to a step from one that it depends on, by the ends of that after which it runs: dotted when it does not run after success.
fn arrow(step: &StepSpec, before: &str) -> String {
    if let Some(outcomes) = words::outcomes_of(step, before) {
        let line = if words::runs_after_success(step, before) { "-->" } else { "-.->" };
        return format!("{line}|\"{}\"|", escaped(&outcomes));
    }
    let arrow = match step.run_when() {
        RunWhen::Failure => "-.->|\"after a failure\"|",
        RunWhen::Always => "-->|\"after any end\"|",
        RunWhen::NoneFailed => "-->|\"unless one failed\"|",
        RunWhen::Unspecified | RunWhen::Success => "-->",
    };
    arrow.to_owned()
}

/// The level of each step. Each is visited once for each dependency.
fn levels(depends_on: &[Vec<usize>]) -> Vec<usize> {
    let mut followers = vec![Vec::new(); depends_on.len()];
    let mut missing: Vec<usize> = depends_on.iter().map(Vec::len).collect();
    for (place, all) in depends_on.iter().enumerate() {
        all.iter().for_each(|before| followers[*before].push(place));
    }
    let mut levels = vec![1; depends_on.len()];
    let mut ready: Vec<usize> = (0..depends_on.len()).filter(|place| missing[*place] == 0).collect();
    while let Some(place) = ready.pop() {
        for &follower in &followers[place] {
            levels[follower] = levels[follower].max(levels[place] + 1);
            missing[follower] -= 1;
            if missing[follower] == 0 {
                ready.push(follower);
            }
        }
    }
    levels
}

/// Text in a quoted label: all that Mermaid or HTML could take for more than text is a character code.
fn escaped(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | ',' | '/' | '=' | '…');
    text.chars().map(|c| if plain(c) { c.to_string() } else { format!("#{};", u32::from(c)) }).collect()
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{Outcome, Payload, ToolStep, WaitStep, wait_step};

    use super::*;

    fn step(id: &str, after: &[&str], arguments: &str) -> StepSpec {
        let tool =
            ToolStep { tool: "noop".to_owned(), arguments: Some(Payload::of_json(arguments)), ..Default::default() };
        StepSpec {
            id: id.to_owned(),
            depends_on: after.iter().map(|id| (*id).to_owned()).collect(),
            kind: Some(step_spec::Kind::Tool(tool)),
            ..Default::default()
        }
    }

    fn of(step: &str, outcomes: &[Outcome]) -> DependencyOutcomes {
        let outcomes = outcomes.iter().map(|outcome| (*outcome).into()).collect();
        DependencyOutcomes { step: step.to_owned(), outcomes }
    }

    /// `d` needs `c`, which needs `a`; `b` needs nothing; `e` reads a value of `a`, and runs only when it failed.
    fn plan() -> Plan {
        let wait = WaitStep { condition: Some(wait_step::Condition::Signal("go".to_owned())) };
        let steps = vec![
            step("d", &["c"], "{}"),
            step("a", &[], "{}"),
            StepSpec { kind: Some(step_spec::Kind::Wait(wait)), ..step("b", &[], "{}") },
            step("c", &["a"], "{}"),
            StepSpec {
                run_when: RunWhen::Failure.into(),
                condition: "${a.failure.code} != \"x\"".to_owned(),
                title: "<b>Tell; #1</b>".to_owned(),
                ..step("e", &[], r#"{"x":"${a.failure.message}"}"#)
            },
            StepSpec { run_when: RunWhen::Always.into(), ..step("f", &["e", "b"], "{}") },
            StepSpec { outcomes: vec![of("e", &[Outcome::Skipped])], ..step("g", &["e", "b"], "{}") },
        ];
        Plan { id: "p".to_owned(), parallelism: 3, steps, ..Default::default() }
    }

    fn rendered(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.render(false)).collect()
    }

    #[test]
    fn levels_show_what_can_run_side_by_side() {
        let text = rendered(&Graph::of(&plan()).lines());
        assert_eq!(
            text[..8],
            [
                "plan p: 7 steps, up to 3 at once",
                "  1  a  noop",
                "     b  wait for the signal go",
                "  2  c  noop                               after a",
                "     e  noop {\"x\":\"${a.failure.message}\"}  after a failure of a, if ${a.failure.code} != \"x\"",
                "  3  d  noop                               after c",
                "     f  noop                               after any end of e, b",
                "     g  noop                               after b, after e (skipped)",
            ]
        );
    }

    #[test]
    fn a_flowchart_has_every_step_and_dependency_and_no_raw_text() {
        assert_eq!(
            rendered(&Graph::of(&plan()).mermaid()),
            [
                "flowchart TD",
                "  s0[\"d<br/>noop\"]",
                "  s1[\"a<br/>noop\"]",
                "  s2([\"b<br/>wait for the signal go\"])",
                "  s3[\"c<br/>noop\"]",
                "  s4[\"e<br/>#60;b#62;Tell#59; #35;1#60;/b#62;<br/>noop #123;#34;x#34;#58;#34;#36;#123;a.failure.message#125;#34;#125;<br/>if #36;#123;a.failure.code#125; #33;= #34;x#34;\"]",
                "  s5[\"f<br/>noop\"]",
                "  s6[\"g<br/>noop\"]",
                "  s3 --> s0",
                "  s1 --> s3",
                "  s1 -.->|\"after a failure\"| s4",
                "  s4 -->|\"after any end\"| s5",
                "  s2 -->|\"after any end\"| s5",
                "  s4 -.->|\"skipped\"| s6",
                "  s2 --> s6",
            ]
        );
    }

    #[test]
    fn programs_get_levels_and_dependencies() {
        let steps = Graph::of(&plan()).steps();
        assert_eq!(steps[0], json!({"id": "d", "level": 3, "dependsOn": ["c"]}));
        let tell = json!({
            "id": "e", "level": 2, "dependsOn": ["a"], "runWhen": "RUN_WHEN_FAILURE", "condition": "${a.failure.code} != \"x\"",
        });
        assert_eq!(steps[4], tell);
        let outcomes = json!({"e": ["OUTCOME_SKIPPED"]});
        assert_eq!(steps[6], json!({"id": "g", "level": 3, "dependsOn": ["e", "b"], "outcomes": outcomes}));
    }

    #[test]
    fn a_long_chain_has_as_many_levels() {
        let chain: Vec<Vec<usize>> = (0..10_000).map(|n: usize| n.checked_sub(1).into_iter().collect()).collect();
        assert_eq!(levels(&chain).last(), Some(&10_000));
    }
}

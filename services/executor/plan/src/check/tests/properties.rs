//! Properties that hold for every plan.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{draft, step, violations};
use crate::{Backoff, Plan, PlanDraft, RetryPolicy, StepDraft, StepKindDraft, limits::MAX_DURATION};

/// Steps whose dependencies point back only, half of them through templates, in a random order of the plan.
fn any_acyclic() -> impl Strategy<Value = PlanDraft> {
    (1_usize..24)
        .prop_flat_map(|count| {
            let edges = prop::collection::vec((0..count, 0..count, any::<bool>()), 0..3 * count);
            let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
            (edges, order)
        })
        .prop_map(|(edges, order)| {
            let mut steps: Vec<StepDraft> = order.iter().map(|n| step(&format!("s-{n}"), &[])).collect();
            for (from, to, listed) in edges.into_iter().filter(|(from, to, _)| from != to) {
                let (earlier, later) = (from.min(to), from.max(to));
                let position = order.iter().position(|n| *n == later).unwrap();
                let StepKindDraft::Tool { arguments, .. } = &mut steps[position].kind else { panic!("a tool step") };
                match listed {
                    true => steps[position].depends_on.push(format!("s-{earlier}").into()),
                    false => arguments[format!("from {earlier}")] = json!(format!("${{s-{earlier}.result.x}}")),
                }
            }
            draft(steps)
        })
}

/// The ids of the steps on which a step of a draft depends.
fn dependencies(step: &StepDraft) -> BTreeSet<String> {
    let StepKindDraft::Tool { arguments, .. } = &step.kind else { panic!("a tool step") };
    let named = arguments.as_object().unwrap().values().map(|value| {
        let text = value.as_str().unwrap();
        text[2..text.find('.').unwrap()].to_owned()
    });
    step.depends_on.iter().map(|on| on.step.clone()).chain(named).collect()
}

proptest! {
    // S4-07, S4-14: what has no cycle is accepted, and both directions of the graph agree.
    #[test]
    fn acyclic_plans_are_accepted(draft in any_acyclic()) {
        let plan = Plan::new(draft.clone()).unwrap();
        for (position, (step, written)) in plan.steps().iter().zip(&draft.steps).enumerate() {
            let ids: BTreeSet<String> = step.dependencies().iter().map(|&index| plan.steps()[index].id().to_owned()).collect();
            prop_assert_eq!(ids, dependencies(written));
            prop_assert!(step.dependencies().is_sorted_by(|a, b| a < b));
            prop_assert!(plan.dependents(position).is_sorted_by(|a, b| a < b));
            for other in 0..plan.steps().len() {
                prop_assert_eq!(plan.steps()[other].dependencies().contains(&position), plan.dependents(position).contains(&other));
            }
            prop_assert_eq!(plan.step_index(step.id()), Some(position));
        }
        prop_assert_eq!(Plan::new(plan.to_draft()).unwrap(), plan);
    }

    // S4-07: one edge back is a cycle, and every arrow of the message is a dependency.
    #[test]
    fn an_edge_back_is_a_cycle_that_is_truly_named(mut draft in any_acyclic(), end in any::<prop::sample::Index>()) {
        // From some step, go along dependencies as far as possible, and let the last one wait for the first.
        let start = draft.steps[end.index(draft.steps.len())].id.clone();
        let mut last = start.clone();
        while let Some(next) = draft.steps.iter().find(|step| step.id == last).and_then(|step| dependencies(step).into_iter().next()) {
            last = next;
        }
        prop_assume!(last != start);
        draft.steps.iter_mut().find(|step| step.id == last).unwrap().depends_on.push(start.into());

        let found = violations(draft.clone());
        prop_assert_eq!(found.len(), 1);
        let (_, cycle) = found[0].split_once("cyclic dependencies: ").unwrap();
        let (cycle, _) = cycle.split_once(" (").unwrap();
        let names: Vec<&str> = cycle.split(" → ").filter(|name| !name.starts_with('…')).collect();
        prop_assert_eq!(names.first(), names.last());
        prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len() - 1);
        if !cycle.contains('…') {
            for pair in names.windows(2) {
                let step = draft.steps.iter().find(|step| step.id == pair[0]).unwrap();
                prop_assert!(dependencies(step).contains(pair[1]), "{} does not depend on {}", pair[0], pair[1]);
            }
        }
    }
}

/// Any draft that is right: a shape of steps, dressed with everything else a plan can say.
fn any_draft() -> impl Strategy<Value = PlanDraft> {
    let duration = || (1_u64..MAX_DURATION.as_nanos() as u64).prop_map(Duration::from_nanos);
    let backoff = prop_oneof![
        prop::collection::vec(duration(), 0..4).prop_map(Backoff::List),
        (duration(), 1.0_f64..1e9, duration()).prop_map(|(a, factor, b)| Backoff::Exponential {
            initial: a.min(b),
            factor,
            max: a.max(b)
        }),
    ];
    let retry = (1_u32..=100, backoff).prop_map(|(max_attempts, backoff)| RetryPolicy {
        max_attempts,
        backoff,
        ..RetryPolicy::default()
    });
    let dress = (
        "\\PC{0,12}",
        prop::option::of(duration()),
        prop::option::of(duration()),
        prop::option::of(retry),
        "[a-z_./:-]{1,12}",
        prop_oneof![
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from)
        ],
    );
    let header =
        ("[a-z0-9][a-zA-Z0-9._-]{0,12}", "\\PC{0,12}", any::<bool>(), 0_u32..=256, prop::option::of(duration()));
    (any_acyclic(), prop::collection::vec(dress, 24), header).prop_map(
        |(mut draft, dresses, (id, description, stop_on_error, parallelism, timeout))| {
            for (step, dress) in draft.steps.iter_mut().zip(dresses) {
                let StepKindDraft::Tool { tool, arguments } = &mut step.kind else { panic!("a tool step") };
                (step.title, step.timeout, step.attempt_timeout, step.retry, *tool) =
                    (dress.0, dress.1, dress.2, dress.3, dress.4);
                arguments["value"] = match dress.5 {
                    Value::String(text) => Value::from(text.replace("${", "$${")),
                    other => other,
                };
            }
            PlanDraft { id, description, stop_on_error, parallelism, timeout, ..draft }
        },
    )
}

proptest! {
    #[test]
    fn a_plan_survives_its_draft_and_its_text(draft in any_draft()) {
        let plan = Plan::new(draft).unwrap();
        prop_assert_eq!(&Plan::new(plan.to_draft()).unwrap(), &plan);
        let mut written = plan.to_draft();
        // A text says 1 where a client may leave the number out.
        written.parallelism = written.parallelism.max(1);
        let json = serde_json::to_string(&written).unwrap();
        prop_assert_eq!(&serde_json::from_str::<PlanDraft>(&json).unwrap(), &plan.to_draft());
        prop_assert_eq!(&Plan::parse(crate::Format::Json, &json).unwrap(), &plan);
        let yaml = serde_saphyr::to_string(&written).unwrap();
        prop_assert_eq!(&Plan::parse(crate::Format::Yaml, &yaml).unwrap(), &plan);
    }
}

//! Checks of conversions that all tests share.
#![allow(dead_code, reason = "each test program uses some of them")]

use belay_condition::Condition;
use belay_converters::{Conversion, Format, Refusal, convert};
use belay_plan::{Plan, PlanPart};
use serde_json::{Value, json};

/// Converts a text, and checks that its plan is accepted as YAML and as JSON, and that both are the same.
///
/// # Panics
/// When the plan is refused.
pub(crate) fn accepted(format: Format, text: &str, name: &str) -> Result<Conversion, Refusal> {
    let conversion = convert(format, text, name)?;
    let (yaml, json) = (conversion.plan.to_yaml().unwrap(), conversion.plan.to_json().unwrap());
    for (format, written) in [(belay_plan::Format::Yaml, &yaml), (belay_plan::Format::Json, &json)] {
        if let Some(why) = refused(format, written) {
            panic!("{name}: the plan is refused: {why}\n{written}");
        }
    }
    let options = serde_saphyr::options! {strict_booleans: true};
    let read: serde_json::Value = serde_saphyr::from_str_with_options(&yaml, options).unwrap();
    assert_eq!(
        read,
        serde_json::from_str::<serde_json::Value>(&json).unwrap(),
        "{name}: YAML and JSON differ:\n{yaml}"
    );
    Ok(conversion)
}

/// The reasons why a plan is refused, as the executor checks it before it knows the tools.
fn refused(format: belay_plan::Format, text: &str) -> Option<String> {
    let checked = Plan::parse_with(format, text, |part| match part {
        PlanPart::Condition { step, place, condition } => {
            let variables: Vec<&str> = condition.variables().collect();
            let error = Condition::new(condition.expression(), &variables).err();
            error
                .map(|error| step.problem(&place.pointer(), condition.in_words(&error.to_string())))
                .into_iter()
                .collect()
        }
        PlanPart::Call(_) | PlanPart::Form { .. } | PlanPart::Model { .. } | PlanPart::Output { .. } => Vec::new(),
    });
    checked.err().map(|error| format!("{error:#?}"))
}

/// A document as a tree, which is written as JSON: every format reads that. Of several documents of a file, the first.
pub(crate) fn tree(text: &str) -> Value {
    let first = text.split("\n---\n").next().unwrap_or_default();
    serde_saphyr::from_str_with_options(first, serde_saphyr::options! {strict_booleans: true}).unwrap()
}

/// The plan and the list without lines, since a tree has none; or why it is refused.
pub(crate) fn outcome(format: Format, tree: &Value) -> Result<(String, Vec<String>), String> {
    let text = tree.to_string();
    let conversion =
        convert(format, &text, "sample").map_err(|refusal| format!("{}: {}", refusal.path, refusal.message))?;
    let list = conversion
        .left_out
        .into_iter()
        .map(|entry| format!("{}: {}: {}; {}", entry.path, entry.what, entry.why, entry.instead));
    Ok((conversion.plan.to_json().unwrap(), list.collect()))
}

/// The pointers of all mappings of a tree.
pub(crate) fn mappings(tree: &Value, pointer: &str, found: &mut Vec<String>) {
    match tree {
        Value::Object(members) => {
            found.push(pointer.to_owned());
            for (name, member) in members {
                mappings(member, &format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            (0..).zip(items).for_each(|(at, item): (usize, _)| mappings(item, &format!("{pointer}/{at}"), found))
        }
        _ => {}
    }
}

/// The path of a pointer, as the list writes it.
pub(crate) fn dotted(names: &[String]) -> String {
    names.iter().filter(|name| !name.is_empty()).fold(String::new(), |path, name| match name.parse::<usize>() {
        Ok(index) => format!("{path}[{index}]"),
        Err(_) if path.is_empty() => name.clone(),
        Err(_) => format!("{path}.{name}"),
    })
}

/// Whether a line of the list is about a path, or about what stands around it.
pub(crate) fn is_at_or_above(line: &str, path: &str) -> bool {
    let place = line.split(": ").next().unwrap_or_default();
    !place.is_empty() && (path == place || path.strip_prefix(place).is_some_and(|rest| rest.starts_with(['.', '['])))
}

/// The paths at which an invented key is neither in the list nor in the plan, nor refuses the document.
pub(crate) fn lost_keys(format: Format, original: &Value) -> Vec<String> {
    let mut pointers = Vec::new();
    mappings(original, "", &mut pointers);
    let mut lost = Vec::new();
    for pointer in pointers {
        let mut changed = original.clone();
        changed.pointer_mut(&pointer).expect("it was found there")["invented"] = json!("never seen before");
        let Ok((plan, list)) = outcome(format, &changed) else { continue };
        let shown = plan.contains("invented")
            || plan.contains("never seen before")
            || list.iter().any(|line| line.contains("invented"));
        // What is left out as a whole is named by the key above it.
        let names: Vec<String> = pointer.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
        let path = dotted(&names);
        if !shown && !list.iter().any(|line| is_at_or_above(line, &path)) {
            lost.push(path);
        }
    }
    lost
}

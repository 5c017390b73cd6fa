//! Damaged documents, in YAML and in JSON.

use belay_json_schema::Schema;
use belay_plan::{
    Format, InvalidPlan, Plan,
    limits::{MAX_DEPTH, MAX_VIOLATIONS},
    schema,
};
use belay_plan_tests::{bad, good, parse, value};
use proptest::{prelude::*, sample::Index, test_runner::TestCaseResult};
use serde_json::Value;

use super::{
    allocator::counted,
    check, fail,
    mutate::{mutated_text, mutated_tree, text_mutations, tree_mutations},
};
use crate::corpus::assert_readable;

/// Longer seeds make a case slow and find no more.
const MAX_SEED_BYTES: usize = 3_000;

/// The most memory that reading a document may allocate: for each of its bytes, and on top of that. Aliases repeat what they name, up to the limits
/// of a plan.
const ALLOCATED_PER_BYTE: usize = 4_000;
const ALLOCATED_AT_ALL: usize = 1 << 20;
const ALLOCATED_WITH_ALIASES: usize = 1 << 29;

/// The good examples and the bad plans of a format, as many of each, without those whose aliases make each case slow.
fn seeds(format: Format) -> Vec<String> {
    let is_quick = |text: &String| text.len() <= MAX_SEED_BYTES && !text.contains("&c [");
    let in_format = |text: &String| format == Format::Yaml || text.starts_with('{');
    let good = good::examples().into_iter().map(|example| match (format, value(example.format, &example.text)) {
        (Format::Json, Some(value)) => value.to_string(),
        _ => example.text,
    });
    let good: Vec<String> = good.filter(|text| is_quick(text) && in_format(text)).collect();
    let bad = bad::plans().into_iter().filter(|(_, plan)| plan.formats().contains(&format));
    let bad: Vec<String> = bad.map(|(_, plan)| plan.text()).filter(is_quick).collect();
    good.iter().cycle().take(bad.len()).chain(&bad).cloned().collect()
}

/// A refusal names a field or a line, within the text, in a message that can be read.
fn assert_refusal(text: &str, refused: &InvalidPlan) -> TestCaseResult {
    let found = &refused.violations;
    prop_assert!(!found.is_empty() && found.len() <= MAX_VIOLATIONS + 1, "{} violations", found.len());
    let lines = text.split('\n').count();
    for violation in found {
        assert_readable(violation);
        let is_placed = !violation.field.is_empty() || violation.line > 0;
        prop_assert!(is_placed || violation.message.ends_with("more problems are not listed"), "{violation:?}");
        prop_assert!(violation.line as usize <= lines, "{violation:?} of {lines} lines");
    }
    Ok(())
}

/// A plan that is written out and read again is the same.
fn assert_survives(plan: &Plan) -> TestCaseResult {
    let written = serde_json::to_value(plan.to_draft()).expect("a draft is JSON");
    for (format, text) in [(Format::Json, written.to_string()), (Format::Yaml, yaml(&written))] {
        match parse(format, &text) {
            Ok(again) => prop_assert_eq!(&again, plan, "{}", text),
            Err(refused) => return fail(format!("{format:?}: {refused}\n{text}")),
        }
    }
    Ok(())
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).expect("JSON can be written as YAML")
}

/// Reads a text as anybody could have sent it.
fn assert_read(format: Format, text: &str) -> TestCaseResult {
    let (read, allocated) = counted(|| parse(format, text));
    let has_aliases = format == Format::Yaml && text.contains('*');
    let limit = if has_aliases { ALLOCATED_WITH_ALIASES } else { ALLOCATED_AT_ALL + ALLOCATED_PER_BYTE * text.len() };
    prop_assert!(allocated <= limit, "{allocated} bytes were allocated for a text of {}", text.len());
    match read {
        Ok(plan) => assert_survives(&plan),
        Err(refused) => assert_refusal(text, &refused),
    }
}

fn fuzz_texts(name: &str, format: Format) {
    let seeds = seeds(format);
    assert!(seeds.len() > 100, "there are {} seeds", seeds.len());
    check(name, 3_000, (any::<Index>(), text_mutations()), |(seed, mutations)| {
        assert_read(format, &mutated_text(&seeds[seed.index(seeds.len())], &mutations))
    });
}

/// The most that aliases can repeat.
#[test]
fn what_aliases_allocate_is_bounded() {
    for (_, plan) in bad::plans().into_iter().filter(|(_, plan)| plan.name.contains("aliases")) {
        let (read, allocated) = counted(|| parse(Format::Yaml, &plan.text()));
        assert!(read.is_err() && allocated <= ALLOCATED_WITH_ALIASES, "{}: {allocated} bytes", plan.name);
        println!("{}: {allocated} bytes", plan.name);
    }
}

#[test]
fn yaml_texts() {
    fuzz_texts("documents::yaml_texts", Format::Yaml);
}

#[test]
fn json_texts() {
    fuzz_texts("documents::json_texts", Format::Json);
}

/// The fields and messages of a refusal.
fn said(refused: &InvalidPlan) -> Vec<(String, String)> {
    refused.violations.iter().map(|violation| (violation.field.clone(), violation.message.clone())).collect()
}

/// How deep lists and objects are nested.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(entries) => 1 + entries.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// A tree means the same in YAML and in JSON; what is accepted is valid by the JSON Schema.
#[test]
fn trees() {
    let schema = Schema::new(&schema().to_string()).unwrap();
    let seeds: Vec<Value> = [Format::Yaml, Format::Json]
        .iter()
        .flat_map(|&format| seeds(format).into_iter().filter_map(move |text| value(format, &text)))
        .collect();
    check("documents::trees", 1_500, (any::<Index>(), tree_mutations()), |(seed, mutations)| {
        let tree = mutated_tree(&seeds[seed.index(seeds.len())], &mutations);
        let json = tree.to_string();
        assert_read(Format::Json, &json)?;
        let in_json = parse(Format::Json, &json);
        if in_json.is_ok() {
            let violations = schema.violations(&tree);
            prop_assert!(violations.is_empty(), "accepted, and not valid: {violations:?}\n{json}");
        }
        // Beyond, YAML is refused as a whole, and JSON by its field.
        prop_assume!(depth(&tree) <= MAX_DEPTH);
        for text in [yaml(&tree), json.clone()] {
            match (&in_json, parse(Format::Yaml, &text)) {
                (Ok(one), Ok(other)) => prop_assert_eq!(one, &other, "{}", text),
                (Err(one), Err(other)) => {
                    let (mut one, mut other) = (said(one), said(&other));
                    one.sort();
                    other.sort();
                    prop_assert_eq!(one, other, "{}", text);
                }
                (one, other) => return fail(format!("JSON: {one:?}\nYAML: {other:?}\n{text}")),
            }
        }
        Ok(())
    });
}

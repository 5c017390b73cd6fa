//! Mutations of texts and of trees.

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

/// Texts that stand in plans, and texts that do not belong there.
const TOKENS: [&str; 62] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    ":",
    ": ",
    ",",
    "\n",
    "\n  ",
    "\t",
    "- ",
    "#",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "|\n",
    ">\n",
    "---\n",
    "%",
    "${",
    "}",
    "$${",
    "${a.result}",
    "${step-1.result.x[0]}",
    "${[\"a\"].output}",
    "${secret:X}",
    "null",
    "true",
    "~",
    "0",
    "-1",
    "1e999",
    "007",
    "18446744073709551616",
    "1.5",
    "10s",
    "0s",
    "1h30m",
    "2026-12-01T09:00:00Z",
    "id",
    "tool",
    "skillId",
    "steps",
    "wait",
    "condition",
    "retry",
    "depends_on",
    "\u{feff}",
    "\u{0}",
    "\u{202e}",
    "\u{43e}",
    "é",
    "🚀",
    "\\",
    "\\u0000",
    "\\ud800",
    "//",
    "a",
    " ",
];

/// A change of a text.
#[derive(Clone, Debug)]
pub(super) enum TextMutation {
    Delete(Index, usize),
    Insert(Index, &'static str),
    Repeat(Index, usize, usize),
    Move(Index, usize, Index),
}

pub(super) fn text_mutations() -> impl Strategy<Value = Vec<TextMutation>> {
    let token = prop::sample::select(&TOKENS[..]);
    let mutation = prop_oneof![
        1 => (any::<Index>(), 1_usize..30).prop_map(|(at, length)| TextMutation::Delete(at, length)),
        3 => (any::<Index>(), token).prop_map(|(at, token)| TextMutation::Insert(at, token)),
        1 => (any::<Index>(), 1_usize..40, 1_usize..20).prop_map(|(at, length, times)| TextMutation::Repeat(at, length, times)),
        1 => (any::<Index>(), 1_usize..40, any::<Index>()).prop_map(|(at, length, to)| TextMutation::Move(at, length, to)),
    ];
    prop::collection::vec(mutation, 0..5)
}

pub(super) fn mutated_text(text: &str, mutations: &[TextMutation]) -> String {
    let mut text = text.to_owned();
    for mutation in mutations {
        let place = |text: &str, at: &Index| text.floor_char_boundary(at.index(text.len() + 1));
        let part = |text: &str, at: &Index, length: usize| {
            let start = place(text, at);
            start..text.floor_char_boundary((start + length).min(text.len()))
        };
        match mutation {
            TextMutation::Delete(at, length) => text.replace_range(part(&text, at, *length), ""),
            TextMutation::Insert(at, token) => text.insert_str(place(&text, at), token),
            TextMutation::Repeat(at, length, times) => {
                let part = part(&text, at, *length);
                let repeated = text[part.clone()].repeat(*times);
                text.insert_str(part.start, &repeated);
            }
            TextMutation::Move(at, length, to) => {
                let moved: String = text.drain(part(&text, at, *length)).collect();
                text.insert_str(place(&text, to), &moved);
            }
        }
    }
    text
}

/// A change of a tree.
#[derive(Clone, Debug)]
pub(super) enum TreeMutation {
    /// Another value in the place of one.
    Replace(Index, Value),
    Remove(Index),
    /// A copy of one value in the place of another.
    Copy(Index, Index),
    /// A further field in an object, or entry in a list.
    Add(Index, &'static str, Value),
    /// Around a value, a list or an object.
    Wrap(Index, bool),
}

/// Names of fields, and some that are none.
const NAMES: [&str; 40] = [
    "id",
    "stepId",
    "title",
    "description",
    "steps",
    "tool",
    "skillId",
    "action",
    "arguments",
    "params",
    "inputs",
    "outputs",
    "depends_on",
    "dependencies",
    "run_when",
    "step",
    "on",
    "condition",
    "timeout",
    "attempt_timeout",
    "exclusive",
    "network",
    "verbatim",
    "retry",
    "max_attempts",
    "maxAttempts",
    "backoff",
    "backoffMs",
    "wait",
    "for",
    "until",
    "signal",
    "form",
    "schema",
    "order",
    "plan",
    "config",
    "parallelism",
    "nothing",
    "<<",
];

fn any_value() -> impl Strategy<Value = Value> {
    let known = vec![
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(-1),
        json!(257),
        json!(1.5),
        json!(u64::MAX),
        json!(""),
        json!("a"),
        json!("step-1"),
        json!("10s"),
        json!("0s"),
        json!("1h"),
        json!("always"),
        json!("failure"),
        json!("none_failed"),
        json!([{"step": "a", "on": ["success", "skipped"]}]),
        json!({"step": "a", "on": ["failure"]}),
        json!(["failure", "skipped"]),
        json!("${a.results[0].value}"),
        json!("2026-12-01T09:00:00Z"),
        json!([]),
        json!(["a"]),
        json!({}),
        json!({"for": "1s"}),
        json!({"signal": "go"}),
        json!({"form": {"schema": {}}}),
        json!({"max_attempts": 2}),
        json!({"maxAttempts": 2, "backoffMs": [1]}),
        json!("${a.result}"),
        json!("$${a}"),
        json!("yes"),
        json!("null"),
        json!("1e3"),
        json!("~"),
        json!("0x1F"),
        json!("1_000"),
        json!("- a"),
        json!("a: b"),
        json!("# a"),
        json!("a\nb\n"),
        json!("\u{feff}"),
        json!(" a "),
        json!("<<"),
    ];
    prop_oneof![4 => prop::sample::select(known), 1 => "\\PC{0,12}".prop_map(Value::from), 1 => any::<f64>().prop_map(Value::from)]
}

pub(super) fn tree_mutations() -> impl Strategy<Value = Vec<TreeMutation>> {
    let name = prop::sample::select(&NAMES[..]);
    let mutation = prop_oneof![
        1 => (any::<Index>(), any_value()).prop_map(|(at, value)| TreeMutation::Replace(at, value)),
        1 => any::<Index>().prop_map(TreeMutation::Remove),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(at, from)| TreeMutation::Copy(at, from)),
        3 => (any::<Index>(), name, any_value()).prop_map(|(at, name, value)| TreeMutation::Add(at, name, value)),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(at, list)| TreeMutation::Wrap(at, list)),
    ];
    prop::collection::vec(mutation, 0..4)
}

pub(super) fn mutated_tree(tree: &Value, mutations: &[TreeMutation]) -> Value {
    let mut tree = tree.clone();
    for mutation in mutations {
        let places = places(&tree);
        let place = |at: &Index| places[at.index(places.len())].clone();
        match mutation {
            TreeMutation::Replace(at, value) => *at_place(&mut tree, &place(at)) = value.clone(),
            TreeMutation::Remove(at) => remove(&mut tree, &place(at)),
            TreeMutation::Copy(at, from) => {
                let copy = at_place(&mut tree, &place(from)).clone();
                *at_place(&mut tree, &place(at)) = copy;
            }
            TreeMutation::Add(at, name, value) => match at_place(&mut tree, &place(at)) {
                Value::Object(members) => drop(members.insert((*name).to_owned(), value.clone())),
                Value::Array(entries) => entries.push(value.clone()),
                other => *other = value.clone(),
            },
            TreeMutation::Wrap(at, list) => {
                let inner = at_place(&mut tree, &place(at));
                *inner = if *list { json!([inner.take()]) } else { json!({"x": inner.take()}) };
            }
        }
    }
    tree
}

/// The pointers of all values in a tree.
fn places(tree: &Value) -> Vec<String> {
    let mut places = vec![String::new()];
    let mut next = 0;
    while let Some(place) = places.get(next).cloned() {
        next += 1;
        match tree.pointer(&place) {
            Some(Value::Object(members)) => {
                places
                    .extend(members.keys().map(|key| format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))));
            }
            Some(Value::Array(entries)) => places.extend((0..entries.len()).map(|index| format!("{place}/{index}"))),
            _ => {}
        }
    }
    places
}

fn at_place<'t>(tree: &'t mut Value, place: &str) -> &'t mut Value {
    tree.pointer_mut(place).expect("the place was found in this tree")
}

fn remove(tree: &mut Value, place: &str) {
    let Some((parent, key)) = place.rsplit_once('/') else { return };
    match at_place(tree, parent) {
        Value::Object(members) => drop(members.remove(&key.replace("~1", "/").replace("~0", "~"))),
        Value::Array(entries) => drop(key.parse().map(|index: usize| entries.remove(index))),
        _ => {}
    }
}

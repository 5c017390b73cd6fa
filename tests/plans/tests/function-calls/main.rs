//! Calls of functions as models make them: the corpus of the Berkeley Function Calling Leaderboard (`bfcl-eval` on PyPI) has thousands of functions with their schemas,
//! and the calls that are right answers. Each case is offered to a model as Belay does, answered over the Chat API in pieces, decoded, and its arguments are checked as a
//! runner checks them; then the same calls are broken in one place each.
//!
//! `fetch` gets the package once into `target/function-calls`. Where PyPI cannot be reached the test is skipped by name; with `CI=true` it fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use belay_agent::{Answered, Offer, Wanted, beginning, offered_name};
use belay_json_schema::Schema;
use belay_model::{Answer, Api, Arguments, BaseUrl, Model, Prompt, Reader, TimeLimits, ToolCalls};
use serde_json::{Map, Value, json};

/// The test.
const NAME: &str = "function_calls_are_offered_decoded_and_checked";

/// The parts of the corpus whose right answers are calls with values.
const PARTS: [&str; 8] = [
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let mut filters = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    let is_chosen = filters.peek().is_none() || filters.any(|filter| NAME.contains(filter.as_str()));
    if arguments.iter().any(|argument| argument == "--list") {
        // It is not ignored beforehand.
        if is_chosen && !arguments.iter().any(|argument| argument == "--ignored") {
            println!("{NAME}: test");
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", u8::from(is_chosen));
    let folder = here().join("../../target/function-calls");
    let is_strict = env::var_os("CI").is_some_and(|value| value == "true");
    let ([passed, failed, skipped], word) = match is_chosen.then(|| fetched(&folder)) {
        None => ([0, 0, 0], "ok"),
        Some(Err(why)) if !is_strict => {
            println!("test {NAME} ... ignored, {}", why.replace('\n', "; "));
            ([0, 0, 1], "ok")
        }
        Some(found) => match found.and_then(|()| check(&folder)) {
            Ok(counts) => {
                println!("test {NAME} ... ok\n     {counts}");
                ([1, 0, 0], "ok")
            }
            Err(why) => {
                println!("{why}\ntest {NAME} ... FAILED");
                ([0, 1, 0], "FAILED")
            }
        },
    };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Gets the corpus, unless it is there.
fn fetched(folder: &Path) -> Result<(), String> {
    if folder.join("bfcl_eval/data").is_dir() {
        return Ok(());
    }
    let output = Command::new(here().join("tests/function-calls/fetch")).arg(folder).output();
    let output = output.map_err(|error| format!("function-calls/fetch cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("bfcl-eval cannot be fetched from PyPI: {last}"))
}

#[derive(Default)]
struct Counts {
    functions: usize,
    calls: usize,
    refused: BTreeMap<&'static str, usize>,
    /// Right answers of the corpus that do not follow their own schema.
    loose: usize,
}

fn check(folder: &Path) -> Result<String, String> {
    let mut counts = Counts::default();
    for part in PARTS {
        let read = |path: String| {
            let text = fs::read_to_string(folder.join("bfcl_eval/data").join(&path))
                .map_err(|error| format!("{path}: {error}"))?;
            let lines = text
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).map_err(|error| format!("{path}: {error}")));
            lines.collect::<Result<Vec<_>, _>>()
        };
        let answers = read(format!("possible_answer/BFCL_v4_{part}.json"))?;
        let answers: BTreeMap<&str, &Value> =
            answers.iter().map(|answer| (answer["id"].as_str().unwrap_or_default(), &answer["ground_truth"])).collect();
        for case in read(format!("BFCL_v4_{part}.json"))? {
            let id = case["id"].as_str().unwrap_or_default();
            let Some(answer) = answers.get(id) else { continue };
            one(&case, answer, &mut counts).map_err(|why| format!("{id}: {why}"))?;
        }
    }
    let refused: Vec<String> = counts.refused.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let Counts { functions, calls, loose, .. } = counts;
    // A corpus that is read otherwise than meant must not look like one that passed.
    if functions < 6_000 || calls < 3_000 || counts.refused.values().any(|count| *count < 1_000) {
        return Err(format!("too little was checked: {functions} functions, {calls} calls, {refused:?}"));
    }
    Ok(format!(
        "{functions} functions, {calls} calls, {loose} not as their own schema says, refused: {}",
        refused.join(", ")
    ))
}

/// A schema of the corpus as JSON Schema has it.
fn schema(of: &Value) -> Value {
    let Value::Object(members) = of else { return of.clone() };
    let mut written = Map::new();
    for (name, value) in members {
        let value = match (name.as_str(), value) {
            ("type", Value::String(kind)) => match kind.as_str() {
                "dict" => json!("object"),
                "float" => json!("number"),
                "tuple" => json!("array"),
                "any" => continue,
                other => json!(other),
            },
            ("properties", Value::Object(named)) => named.iter().map(|(name, of)| (name.clone(), schema(of))).collect(),
            ("items", items) => schema(items),
            (_, other) => other.clone(),
        };
        written.insert(name.clone(), value);
    }
    if written.get("type") == Some(&json!("object")) && written.contains_key("properties") {
        written.insert("additionalProperties".to_owned(), json!(false));
    }
    Value::Object(written)
}

/// The first of the values that the corpus accepts for each argument; one that may be left out is.
fn values(accepted: &Value) -> Value {
    let first = |accepted: &Value| match accepted {
        Value::Array(values) => values.first().filter(|value| **value != json!("")).cloned(),
        other => Some(other.clone()),
    };
    let Value::Object(members) = accepted else { return accepted.clone() };
    let members = members.iter().filter_map(|(name, accepted)| Some((name.clone(), nested(&first(accepted)?))));
    members.collect()
}

/// Objects within an answer have lists of accepted values again.
fn nested(value: &Value) -> Value {
    match value {
        Value::Object(members) if members.values().all(Value::is_array) && !members.is_empty() => values(value),
        Value::Array(items) => items.iter().map(nested).collect(),
        other => other.clone(),
    }
}

struct Function {
    name: String,
    told: String,
    whole: Schema,
    lean: Schema,
    schema: Value,
}

fn one(case: &Value, answer: &Value, counts: &mut Counts) -> Result<(), String> {
    let functions = case["function"].as_array().ok_or("it has no functions")?;
    let named: Vec<(&str, &str, Value)> = functions
        .iter()
        .map(|function| {
            let text = |name: &str| function[name].as_str().unwrap_or_default();
            (text("name"), text("description"), schema(&function["parameters"]))
        })
        .collect();
    let offers =
        named.iter().map(|(name, description, parameters)| Offer { name, description, parameters: parameters.clone() });
    let told = serde_json::to_value(beginning(&offers.collect::<Vec<_>>(), None)).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for (place, (name, _, parameters)) in named.iter().enumerate() {
        let tool = &told["tools"][place];
        let compiled = |of: &Value| Schema::new(&of.to_string()).map_err(|error| format!("{name}: {error}"));
        all.push(Function {
            name: (*name).to_owned(),
            told: tool["name"].as_str().unwrap_or_default().to_owned(),
            whole: compiled(parameters)?,
            lean: compiled(&tool["parameters"])?,
            schema: parameters.clone(),
        });
        counts.functions += 1;
    }
    let distinct: BTreeSet<&str> = all.iter().map(|function| function.told.as_str()).collect();
    if distinct.len() < all.len() || all.iter().any(|function| function.told != offered_name(&function.name)) {
        // A plan with such tools is refused.
        return Ok(());
    }
    let wanted: Vec<(usize, Value)> = answer
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .flatten()
        .filter_map(|(name, accepted)| {
            Some((all.iter().position(|function| function.name == *name)?, values(accepted)))
        })
        .collect();
    let decoded = decoded(&all, &wanted)?;
    let offered: Vec<[&str; 2]> = all.iter().map(|function| [function.told.as_str(), function.name.as_str()]).collect();
    let answered = Answered::new(1, decoded);
    if answered.calls.len() != wanted.len() {
        return Err(format!("{} calls were decoded of {}", answered.calls.len(), wanted.len()));
    }
    for (of, (place, arguments)) in answered.wanted(&offered).iter().zip(&wanted) {
        let function = &all[*place];
        if of.wanted != Wanted::Call(*place) || of.call.arguments != *arguments {
            return Err(format!("{:?} was decoded of {} {arguments}", of, function.name));
        }
        counts.calls += 1;
        let [whole, lean] = [&function.whole, &function.lean].map(|schema| schema.violations(arguments).is_empty());
        if whole != lean {
            return Err(format!("what the model is told decides otherwise about {} {arguments}", function.name));
        }
        if !whole {
            counts.loose += 1;
            continue;
        }
        broken(function, arguments, counts)?;
    }
    Ok(())
}

/// Breaks the arguments of a call in one place, in each of several ways: it is refused, by that place.
fn broken(function: &Function, arguments: &Value, counts: &mut Counts) -> Result<(), String> {
    let required = function.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let required = required.into_iter().find(|name| arguments.get(name).is_some());
    let typed = arguments.as_object().into_iter().flatten().find(|(name, value)| {
        let kind = &function.schema["properties"][name.as_str()]["type"];
        kind.is_string() && *kind != json!("object") && !value.is_object()
    });
    let mut cases: Vec<(&'static str, Value, String, bool)> = Vec::new();
    if let Some(name) = required {
        let mut without = arguments.clone();
        without.as_object_mut().map(|members| members.remove(name));
        cases.push(("without an argument", without, name.to_owned(), true));
    }
    if let Some((name, _)) = typed {
        let mut other = arguments.clone();
        other[name] = json!({"not": "of this type"});
        cases.push(("with another type", other, name.clone(), false));
    }
    let mut more = arguments.clone();
    more["no such argument"] = json!(1);
    cases.push(("with an argument too many", more, "no such argument".to_owned(), true));
    for (what, arguments, name, is_in_words) in cases {
        let violations = function.whole.violations(&arguments);
        let names = violations.iter().any(|violation| {
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            if is_in_words { violation.message.contains(&name) } else { violation.pointer == pointer }
        });
        if !names {
            return Err(format!("{} {arguments} is not refused by `{name}`: {violations:?}", function.name));
        }
        *counts.refused.entry(what).or_default() += 1;
    }
    Ok(())
}

/// These calls as a server of the Chat API streams them: the pieces of all calls by turns, in lines that are cut anywhere.
fn decoded(all: &[Function], wanted: &[(usize, Value)]) -> Result<Answer, String> {
    let event = |value: Value| format!("data: {value}\n\n");
    let mut pieces: Vec<Vec<Value>> = Vec::new();
    for (index, (place, arguments)) in wanted.iter().enumerate() {
        let text: Vec<char> = arguments.to_string().chars().collect();
        let head = json!({"index": index, "id": format!("c{index}"), "type": "function", "function": {"name": all[*place].told, "arguments": ""}});
        let parts = text
            .chunks(7)
            .map(|part| json!({"index": index, "function": {"arguments": part.iter().collect::<String>()}}));
        pieces.push(std::iter::once(head).chain(parts).collect());
    }
    let rounds = pieces.iter().map(Vec::len).max().unwrap_or_default();
    let mut stream = String::new();
    for round in 0..rounds {
        for piece in pieces.iter().filter_map(|pieces| pieces.get(round)) {
            stream += &event(json!({"model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]}));
        }
    }
    stream += &event(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    stream += "data: [DONE]\n\n";
    let model = Model {
        name: "m".to_owned(),
        api: Api::Chat,
        base_url: BaseUrl::parse("http://127.0.0.1:1/v1").map_err(|error| error.to_string())?,
        model: "m".to_owned(),
        window: 100_000,
        max_output: 1_000,
        tool_calls: ToolCalls::Native,
        price: None,
        limits: TimeLimits::DEFAULT,
        credential: None,
    };
    let prompt = Prompt {
        instructions: String::new(),
        tools: Vec::new(),
        messages: Vec::new(),
        schema: None,
        max_output: 1_000,
    };
    let mut reader = Reader::new(&model, &prompt, "text/event-stream");
    for bytes in stream.as_bytes().chunks(61) {
        reader.push(bytes).map_err(|failure| failure.to_string())?;
    }
    let answer = reader.finish().map_err(|failure| failure.to_string())?;
    match answer.calls.iter().find(|call| matches!(call.arguments, Arguments::Invalid { .. })) {
        Some(call) => Err(format!("{call:?} has no arguments")),
        None => Ok(answer),
    }
}

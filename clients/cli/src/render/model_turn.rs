//! The turns of a model in words: S2-X-32.

use belay_proto::v1::{Payload, Receipt, Step, StepItemsListed, step};
use serde_json::Value;

use super::{
    call::{ASK, COMPLETE},
    text::{clean, shorten},
    words,
};

/// The longest text of an answer in a line, in characters.
const MAX_CHARS: usize = 160;

fn value(payload: Option<&Payload>) -> Option<Value> {
    serde_json::from_str(payload.and_then(Payload::as_json)?).ok()
}

/// The next work of a step with a goal; `None` when these are entries of another kind.
pub(crate) fn listed(listed: &StepItemsListed) -> Option<String> {
    let items: Vec<Value> = listed.items.iter().filter_map(|item| value(Some(item))).collect();
    let first = items.first()?;
    if first.get("file").or(first.get("listing")).is_some() {
        return Some(format!("{} for the model", reads(&items)));
    }
    let turn = first.get("turn")?;
    match first["tool"].as_str() {
        None if first["model"].is_number() => Some(format!("turn {turn}, of the next model")),
        None => Some(format!("turn {turn}")),
        Some(COMPLETE) => Some("the model says that the step is done".to_owned()),
        Some(_) => {
            let tools: Vec<String> = items.iter().filter_map(|item| item["tool"].as_str()).map(clean).collect();
            Some(format!("the model calls {}", tools.join(", ")))
        }
    }
}

/// The reading of files and the search for those that patterns match, before the first turn.
fn reads(items: &[Value]) -> String {
    let is_search = |item: &&Value| item.get("listing").is_some() && item.get("found").is_none();
    let patterns = items.iter().filter(is_search).count();
    let files = match items.len() - patterns {
        1 => "reads 1 file".to_owned(),
        files => format!("reads {files} files"),
    };
    let patterns_text = if patterns == 1 { "1 pattern".to_owned() } else { format!("{patterns} patterns") };
    match (patterns, items.len() - patterns) {
        (0, _) => files,
        (_, 0) => format!("looks for the files of {patterns_text}"),
        _ => format!("{files} and looks for those of {patterns_text}"),
    }
}

/// The part that a turn adds to the conversation: `asks coder: turn 2, with 1 result`.
pub(crate) fn asked(arguments: Option<&Payload>) -> String {
    let asked = value(arguments).unwrap_or_default();
    let model = asked["model"].as_str().map_or_else(|| "the model".to_owned(), clean);
    let count = asked["results"].as_array().map_or(0, Vec::len);
    let results = match count {
        0 => String::new(),
        1 => ", with 1 result".to_owned(),
        count => format!(", with {count} results"),
    };
    let archived = match asked["archived"].as_u64() {
        Some(archived) => format!(", the first {archived} archived"),
        None => String::new(),
    };
    let note = match asked["message"].as_str().filter(|_| asked["turn"] != 1) {
        Some(message) => format!(": {}", shorten(&clean(message), MAX_CHARS)),
        None => String::new(),
    };
    match &asked["turn"] {
        Value::Null => format!("asks {model}"),
        turn => format!("asks {model}: turn {turn}{results}{archived}{note}"),
    }
}

/// The answer of a model: `answers "I look first.", and calls read_file {"path":"a"} · 1501 tokens in, 1200 of them cached, 20 out`.
pub(crate) fn answered(result: Option<&Payload>, receipt: Option<&Receipt>) -> String {
    let answer = value(result).unwrap_or_default();
    let text = answer["text"].as_str().map(str::trim).filter(|text| !text.is_empty());
    let said = text.map(|text| format!("answers \"{}\"", shorten(&clean(text), MAX_CHARS)));
    let calls = answer["calls"].as_array().into_iter().flatten().map(|call| {
        let tool = call["tool"].as_str().map(clean).unwrap_or_default();
        let arguments = match call["invalid"].as_str() {
            Some(_) => " with arguments that are no object".to_owned(),
            None => format!(" {}", shorten(&clean(&call["arguments"].to_string()), MAX_CHARS)),
        };
        format!("{tool}{arguments}")
    });
    let calls: Vec<String> = calls.collect();
    let wants = (!calls.is_empty()).then(|| format!("calls {}", calls.join(", ")));
    let what = [said, wants].into_iter().flatten().collect::<Vec<_>>().join(", and ");
    let what = match (what.is_empty(), result) {
        (false, _) => what,
        (true, Some(large)) if large.as_json().is_none() => format!("answers {}", words::payload(large)),
        (true, _) => "answers nothing".to_owned(),
    };
    format!("{what}{}", used(receipt).map(|used| format!(" · {used}")).unwrap_or_default())
}

/// The whole answer for people, as text: what the model says, and a line for each of its calls. `None` for what is no answer of a model.
pub(crate) fn whole(output: Option<&Payload>) -> Option<String> {
    let answer = value(output)?;
    let calls = answer.get("calls").map_or(Some(&[][..]), |calls| calls.as_array().map(Vec::as_slice))?;
    let said = answer["text"].as_str().filter(|text| !text.trim().is_empty());
    let calls = calls.iter().map(|call| {
        let tool = call["tool"].as_str().unwrap_or_default();
        match call["invalid"].as_str() {
            Some(why) => format!("calls {tool}, with arguments that are no object: {why}"),
            None => format!("calls {tool} {}", call["arguments"]),
        }
    });
    answer.is_object().then(|| said.map(str::to_owned).into_iter().chain(calls).collect::<Vec<_>>().join("\n"))
}

/// The tokens that a turn has used; `None` where its server has counted none.
fn used(receipt: Option<&Receipt>) -> Option<String> {
    let usage = receipt?.usage.as_ref()?;
    let cached = match usage.cached_input_tokens {
        0 => String::new(),
        cached => format!(", {cached} of them cached"),
    };
    let cost = usage.cost_micros.map(|cost| format!(", {}", words::dollars(cost))).unwrap_or_default();
    Some(format!("{} tokens in{cached}, {} out{cost}", usage.input_tokens, usage.output_tokens))
}

/// Whether a step is a turn of a model.
pub(crate) fn is_turn(step: &Step) -> bool {
    matches!(&step.detail, Some(step::Detail::Tool(detail)) if detail.tool == ASK)
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::ModelUsage;
    use serde_json::json;

    use super::*;

    fn payload(value: Value) -> Payload {
        Payload::of_json(value.to_string())
    }

    // S2-X-32.
    #[test]
    fn a_turn_says_what_the_model_was_asked_and_what_it_wants_and_used() {
        let results = json!([{"id": "1.1", "text": "x"}, {"id": "1.2", "text": "y"}]);
        let second = payload(json!({"model": "coder", "turn": 2, "results": results, "archived": 3}));
        assert_eq!(asked(Some(&second)), "asks coder: turn 2, with 2 results, the first 3 archived");
        let first = payload(json!({"model": "coder", "turn": 1, "message": "the task", "tools": []}));
        assert_eq!(asked(Some(&first)), "asks coder: turn 1");
        let noted = payload(json!({"model": "coder", "turn": 3, "message": "Call a tool."}));
        assert_eq!(asked(Some(&noted)), "asks coder: turn 3: Call a tool.");
        assert_eq!(asked(None), "asks the model");

        let usage = ModelUsage {
            input_tokens: 1501,
            cached_input_tokens: 1200,
            output_tokens: 20,
            reasoning_tokens: 0,
            cost_micros: Some(12_500),
        };
        let receipt = Receipt { usage: Some(usage), ..Receipt::default() };
        let calls = json!([{"id": "1.1", "tool": "read_file", "arguments": {"path": "a"}}, {"id": "1.2", "tool": "t\u{1b}", "arguments": null, "invalid": "no"}]);
        let answer = payload(json!({"text": " I look first.\n", "calls": calls}));
        assert_eq!(
            answered(Some(&answer), Some(&receipt)),
            "answers \"I look first.\", and calls read_file {\"path\":\"a\"}, t<U+001B> with arguments that are no object · 1501 tokens in, 1200 of them cached, 20 out, $0.0125"
        );
        assert_eq!(answered(Some(&payload(json!({}))), None), "answers nothing");
        let lines =
            "I look first.\n\ncalls read_file {\"path\":\"a\"}\ncalls t\u{1b}, with arguments that are no object: no";
        assert_eq!(whole(Some(&answer)).unwrap().trim_start(), lines);
        assert_eq!(whole(Some(&payload(json!("given by a person")))), None);
    }

    #[test]
    fn what_a_step_does_next_is_a_turn_or_its_calls() {
        let of = |items: &[Value]| {
            listed(&StepItemsListed { items: items.iter().cloned().map(payload).collect(), first: 0 })
        };
        assert_eq!(of(&[json!({"turn": 2, "run": 1})]).as_deref(), Some("turn 2"));
        let calls = [json!({"turn": 1, "call": 0, "tool": "a"}), json!({"turn": 1, "call": 2, "tool": "b"})];
        assert_eq!(of(&calls).as_deref(), Some("the model calls a, b"));
        let files = StepItemsListed {
            items: [0, 1].map(|file| payload(json!({"file": file, "run": 1}))).into(),
            ..StepItemsListed::default()
        };
        assert_eq!(super::listed(&files).as_deref(), Some("reads 2 files for the model"));
        let listing = |place: u32| json!({"listing": place, "run": 1});
        assert_eq!(of(&[listing(0)]).as_deref(), Some("looks for the files of 1 pattern for the model"));
        let both = [listing(0), json!({"file": 1, "run": 1}), listing(2)];
        assert_eq!(of(&both).as_deref(), Some("reads 1 file and looks for those of 2 patterns for the model"));
        let found = json!({"listing": 0, "found": 3, "run": 1});
        assert_eq!(of(&[found]).as_deref(), Some("reads 1 file for the model"));
        let done = json!({"turn": 1, "call": 0, "tool": "complete_step"});
        assert_eq!(of(&[done]).as_deref(), Some("the model says that the step is done"));
        assert_eq!((of(&[json!("a")]), of(&[])), (None, None));
    }
}

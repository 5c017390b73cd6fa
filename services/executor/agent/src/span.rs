//! A turn as spans have it: by OpenTelemetry's conventions for generative AI, as JSON.

use serde_json::{Value, json};

use crate::{Answered, Asked};

/// The addition of a turn to the conversation: the instructions, where it begins it, and the messages. The additions of earlier turns are in their spans.
pub fn span_input(asked: &Asked) -> (Option<Value>, Value) {
    let text = |text: &str| json!({"type": "text", "content": text});
    let instructions = asked.beginning.as_ref().map(|beginning| json!([text(&beginning.instructions)]));
    let results = asked.results.iter().map(|result| {
        let part = json!({"type": "tool_call_response", "id": result.id, "response": result.text});
        json!({"role": "tool", "parts": [part]})
    });
    let message = (!asked.message.is_empty()).then(|| json!({"role": "user", "parts": [text(&asked.message)]}));
    (instructions, results.chain(message).collect())
}

/// The answer.
pub fn span_output(answered: &Answered) -> Value {
    let text = (!answered.text.is_empty()).then(|| json!({"type": "text", "content": answered.text}));
    let reasoning =
        (!answered.reasoning.is_empty()).then(|| json!({"type": "reasoning", "content": answered.reasoning}));
    let calls = answered
        .calls
        .iter()
        .map(|call| json!({"type": "tool_call", "id": call.id, "name": call.tool, "arguments": call.arguments}));
    let parts: Vec<Value> = reasoning.into_iter().chain(text).chain(calls).collect();
    let end = match (answered.calls.is_empty(), answered.is_cut) {
        (false, _) => "tool_call",
        (true, true) => "length",
        (true, false) => "stop",
    };
    json!([{"role": "assistant", "parts": parts, "finish_reason": end}])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Beginning, Calls, ResultText};

    #[test]
    fn a_turn_is_written_by_the_conventions() {
        let first = Asked {
            beginning: Some(Beginning { instructions: "Work.".into(), tools: Vec::new() }),
            message: "Do it.".into(),
            ..Asked::default()
        };
        let text = |text: &str| json!({"type": "text", "content": text});
        let user = json!([{"role": "user", "parts": [text("Do it.")]}]);
        assert_eq!(span_input(&first), (Some(json!([text("Work.")])), user));
        let result = ResultText { id: "t1c1".into(), text: "7".into(), ..ResultText::default() };
        let later = Asked { results: vec![result], ..Asked::default() };
        let part = json!({"type": "tool_call_response", "id": "t1c1", "response": "7"});
        assert_eq!(span_input(&later), (None, json!([{"role": "tool", "parts": [part]}])));
        let call = Calls { id: "t1c1".into(), tool: "look".into(), arguments: json!({"n": 1}), ..Calls::default() };
        let answered = Answered { text: "I look.".into(), calls: vec![call], ..Answered::default() };
        let call = json!({"type": "tool_call", "id": "t1c1", "name": "look", "arguments": {"n": 1}});
        let expected = json!([{"role": "assistant", "parts": [text("I look."), call], "finish_reason": "tool_call"}]);
        assert_eq!(span_output(&answered), expected);
        let end = |answered: &Answered| span_output(answered)[0]["finish_reason"].clone();
        assert_eq!(end(&Answered { is_cut: true, ..Answered::default() }), "length");
        assert_eq!(end(&Answered::default()), "stop");
    }
}

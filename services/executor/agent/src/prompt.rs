//! The prompt of a turn.

use std::{borrow::Cow, sync::Arc};

use belay_model::{CallResult, Message, Prompt};
use serde_json::Value;

use crate::{Answered, Asked, Beginning, Calls, ResultText, asked::Offered, offered_name};

/// What a model finds in the place of a result that is archived. It is the same for all, so that prompts differ in nothing else.
const ARCHIVED: &str = "[Archived: read_result returns it.]";

/// A turn as it is recorded. Its parts are shared: a conversation is put together several times for each turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// What it adds to the conversation.
    pub asked: Arc<Asked>,
    /// The answer; `None` while there is none.
    pub answered: Option<Arc<Answered>>,
}

/// The prompt with which the last of these turns is asked. `max_output`: how many tokens the answer may have.
pub fn prompt(turns: &[Turn], max_output: u64) -> Prompt {
    let beginning = turns.first().and_then(|turn| turn.asked.beginning.as_ref());
    let archived = archived_before(turns);
    let (mut messages, mut results) = (Vec::new(), 0);
    for Turn { asked, answered } in turns {
        if !asked.results.is_empty() {
            let shown = asked.results.iter().enumerate().map(|(place, result)| CallResult {
                id: result.id.clone(),
                text: shown(result, results + place, archived).to_owned(),
                is_error: result.is_error,
            });
            messages.push(Message::Results(shown.collect()));
            results += asked.results.len();
        }
        if !asked.message.is_empty() {
            messages.push(Message::User(asked.message.clone()));
        }
        let Some(answered) = answered else { continue };
        let calls =
            answered.calls.iter().map(|call| (call.id.clone(), sent_name(call), sent_arguments(call).into_owned()));
        messages.push(Message::Assistant { text: answered.text.clone(), calls: calls.collect() });
    }
    Prompt {
        instructions: beginning.map(|beginning| beginning.instructions.clone()).unwrap_or_default(),
        tools: beginning.into_iter().flat_map(|beginning| &beginning.tools).map(Offered::to_model).collect(),
        messages,
        schema: None,
        max_output,
    }
}

/// The bytes of the texts of that prompt. `has_last_answer`: whether the answer of the last turn counts as well. It is asked several times for each turn, so it copies nothing.
pub(crate) fn size(turns: &[Turn], has_last_answer: bool) -> usize {
    let beginning = turns.first().and_then(|turn| turn.asked.beginning.as_ref());
    let beginning = beginning.map_or(0, |Beginning { instructions, tools }| {
        let tools = tools.iter().map(|Offered { name, description, parameters }| {
            name.len() + description.len() + belay_json::size(parameters)
        });
        instructions.len() + tools.sum::<usize>()
    });
    let archived = archived_before(turns);
    let (mut bytes, mut results) = (beginning, 0);
    for (place, Turn { asked, answered }) in turns.iter().enumerate() {
        for result in &asked.results {
            bytes += result.id.len() + shown(result, results, archived).len();
            results += 1;
        }
        bytes += asked.message.len();
        let counts = has_last_answer || place + 1 < turns.len();
        if let Some(answered) = answered.as_ref().filter(|_| counts) {
            let calls = answered.calls.iter();
            let calls =
                calls.map(|call| call.id.len() + sent_name(call).len() + belay_json::size(&sent_arguments(call)));
            bytes += answered.text.len() + calls.sum::<usize>();
        }
    }
    bytes
}

/// How many results these turns have archived, counted from the first.
pub(crate) fn archived_before(turns: &[Turn]) -> usize {
    turns.iter().map(|turn| turn.asked.archived).max().unwrap_or_default()
}

/// The text of a result as the model reads it, which is at this place of all.
fn shown(result: &ResultText, place: usize, archived: usize) -> &str {
    if place < archived { ARCHIVED } else { &result.text }
}

/// The arguments of a call as they are sent back: an object, which is all that servers take, also where they were none.
fn sent_arguments(call: &Calls) -> Cow<'_, Value> {
    match &call.arguments {
        Value::Null => Cow::Owned(serde_json::json!({"invalid": call.written})),
        object => Cow::Borrowed(object),
    }
}

/// Servers refuse a conversation with a name that no tool can have, whoever wrote it.
fn sent_name(call: &Calls) -> String {
    let name = Some(offered_name(&call.tool)).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "_".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The size is that of the prompt itself, archived results, calls without arguments and names that no server takes included.
    #[test]
    fn the_size_is_that_of_the_prompt() {
        let result = |text: &str| ResultText { id: "t0001c001".into(), text: text.into(), ..ResultText::default() };
        let call = |tool: &str, arguments: Value, written: &str| Calls {
            id: "t0001c001".into(),
            tool: tool.into(),
            arguments,
            written: written.into(),
            ..Calls::default()
        };
        let tools =
            vec![Offered { name: "look".into(), description: "é".into(), parameters: json!({"a": [1, "\n"]}) }];
        let beginning = Beginning { instructions: "Do".into(), tools };
        let calls = vec![
            call("look", json!({"path": "\u{1f600}\""}), ""),
            call("", Value::Null, "[1"),
            call("a b", json!({}), ""),
        ];
        let answered = Arc::new(Answered { text: "I look.".into(), calls, ..Answered::default() });
        let first = Asked { beginning: Some(beginning), message: "task".into(), ..Asked::default() };
        let second = Asked { results: vec![result("one"), result("two")], archived: 1, ..Asked::default() };
        let mut turns = vec![
            Turn { asked: Arc::new(first), answered: Some(Arc::clone(&answered)) },
            Turn { asked: Arc::new(second), answered: Some(answered) },
        ];
        for has_last_answer in [true, false] {
            if !has_last_answer {
                turns[1].answered = None;
            }
            let Prompt { instructions, tools, messages, .. } = prompt(&turns, 0);
            let of_tools =
                tools.iter().map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len());
            let of_messages = messages.iter().map(|message| match message {
                Message::User(text) => text.len(),
                Message::Assistant { text, calls } => {
                    let calls = calls.iter();
                    text.len()
                        + calls.map(|(id, name, json)| id.len() + name.len() + json.to_string().len()).sum::<usize>()
                }
                Message::Results(results) => results.iter().map(|result| result.id.len() + result.text.len()).sum(),
            });
            let whole = instructions.len() + of_tools.sum::<usize>() + of_messages.sum::<usize>();
            assert_eq!(size(&turns, has_last_answer), whole);
        }
    }
}

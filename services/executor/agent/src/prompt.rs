//! The prompt of a turn.

use belay_model::{CallResult, Message, Prompt};
use serde_json::Value;

use crate::{Answered, Asked, offered_name};

/// What a model finds in the place of a result that is archived. It is the same for all, so that prompts differ in nothing else.
const ARCHIVED: &str = "[Archived: read_result returns it.]";

/// A turn as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// What it adds to the conversation.
    pub asked: Asked,
    /// The answer; `None` while there is none.
    pub answered: Option<Answered>,
}

/// The prompt with which the last of these turns is asked. `max_output`: how many tokens the answer may have.
pub fn prompt(turns: &[Turn], max_output: u64) -> Prompt {
    let beginning = turns.first().and_then(|turn| turn.asked.beginning.as_ref());
    let archived = turns.iter().map(|turn| turn.asked.archived).max().unwrap_or_default();
    let (mut messages, mut results) = (Vec::new(), 0);
    for Turn { asked, answered } in turns {
        if !asked.results.is_empty() {
            let shown = asked.results.iter().enumerate().map(|(place, result)| CallResult {
                id: result.id.clone(),
                text: if results + place < archived { ARCHIVED.to_owned() } else { result.text.clone() },
                is_error: result.is_error,
            });
            messages.push(Message::Results(shown.collect()));
            results += asked.results.len();
        }
        if !asked.message.is_empty() {
            messages.push(Message::User(asked.message.clone()));
        }
        let Some(answered) = answered else { continue };
        let calls = answered.calls.iter().map(|call| {
            // What was no object is sent back as what servers take: an object.
            let arguments = match &call.arguments {
                Value::Null => serde_json::json!({"invalid": call.written}),
                object => object.clone(),
            };
            // Servers refuse a conversation with a name that no tool can have, whoever wrote it.
            let name = Some(offered_name(&call.tool)).filter(|name| !name.is_empty());
            (call.id.clone(), name.unwrap_or_else(|| "_".to_owned()), arguments)
        });
        messages.push(Message::Assistant { text: answered.text.clone(), calls: calls.collect() });
    }
    Prompt {
        instructions: beginning.map(|beginning| beginning.instructions.clone()).unwrap_or_default(),
        tools: beginning
            .into_iter()
            .flat_map(|beginning| &beginning.tools)
            .map(crate::asked::Offered::to_model)
            .collect(),
        messages,
        schema: None,
        max_output,
    }
}

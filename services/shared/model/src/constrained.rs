//! Calls of tools by answers that follow a JSON schema, for models and servers whose tool calls are weak.

use serde_json::{Map, Value, json};

use crate::{Answer, Arguments, Call, End, Failure, Prompt, Schema, call};

/// The member with the tool's name.
const TOOL: &str = "tool";
/// The member with its arguments.
const ARGUMENTS: &str = "arguments";

/// The same prompt, with its tools in the instructions and as a schema of the answer: exactly one call.
pub(crate) fn without_tools(prompt: &Prompt) -> Prompt {
    let mut instructions = prompt.instructions.clone();
    if !instructions.is_empty() {
        instructions.push_str("\n\n");
    }
    instructions
        .push_str("Answer with one JSON object that calls one of these tools: {\"tool\": NAME, \"arguments\": {…}}.\n");
    for tool in &prompt.tools {
        instructions.push_str(&format!("\n{}: {}\narguments: {}\n", tool.name, tool.description, tool.parameters()));
    }
    let calls: Vec<Value> = prompt
        .tools
        .iter()
        .map(|tool| {
            json!({
                "type": "object",
                "properties": {TOOL: {"const": tool.name}, ARGUMENTS: tool.parameters()},
                "required": [TOOL, ARGUMENTS],
                "additionalProperties": false,
            })
        })
        .collect();
    let schema = match <[Value; 1]>::try_from(calls) {
        Ok([only]) => only,
        Err(calls) => json!({"anyOf": calls}),
    };
    // What a model has called before is shown to it as it would write it now.
    let messages = prompt.messages.iter().map(|message| match message {
        crate::Message::User(text) => crate::Message::User(text.clone()),
        crate::Message::Assistant { text, calls } => {
            let calls = calls.iter().map(|(_, name, arguments)| json!({TOOL: name, ARGUMENTS: arguments}).to_string());
            let text = std::iter::once(text.clone()).chain(calls).filter(|text| !text.is_empty());
            crate::Message::Assistant { text: text.collect::<Vec<_>>().join("\n"), calls: Vec::new() }
        }
        crate::Message::Results(results) => {
            let texts: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
            crate::Message::User(texts.join("\n\n"))
        }
    });
    Prompt {
        instructions,
        tools: Vec::new(),
        messages: messages.collect(),
        schema: Some(Schema { name: "call".to_owned(), schema }),
        max_output: prompt.max_output,
    }
}

/// The call that the text of an answer is.
///
/// # Errors
/// [`Failure::Truncated`] when the limit of its tokens cut it.
pub(crate) fn call_of(answer: Answer) -> Result<Answer, Failure> {
    match answer.end {
        End::Length => return Err(Failure::Truncated { usage: answer.usage }),
        End::Refused => return Ok(answer),
        End::Complete => {}
    }
    let invalid = |why: String| Call {
        name: String::new(),
        arguments: Arguments::Invalid { text: answer.text.clone(), why },
        server_id: String::new(),
    };
    let call = match belay_json::read(&answer.text) {
        Ok(Value::Object(mut members)) => match members.remove(TOOL) {
            Some(Value::String(name)) => {
                let arguments = match members.remove(ARGUMENTS).unwrap_or_else(|| Value::Object(Map::new())) {
                    object @ Value::Object(_) => Arguments::Object(object),
                    other => call::arguments(other.to_string()),
                };
                Call { name, arguments, server_id: String::new() }
            }
            _ => invalid(format!("The answer must be an object with the name of a tool in `{TOOL}`.")),
        },
        Ok(_) => invalid("The answer must be a JSON object.".to_owned()),
        Err(error) => invalid(format!("The answer must be one JSON object: {error}.")),
    };
    Ok(Answer { text: String::new(), calls: vec![call], ..answer })
}

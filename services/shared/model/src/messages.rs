//! Anthropic's Messages.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    Answer, Delta, End, Failure, Message, Model, Prompt, Usage,
    call::{MAX_CALLS, OpenCall, too_many_calls},
    reading::Reading,
    usage::number,
};

/// The body of a request.
///
/// The fixed part ends with a mark for the server's cache, and so does the newest message: the next request begins with all of this one.
pub(crate) fn body(model: &Model, prompt: &Prompt) -> Value {
    let mut messages = Vec::new();
    for message in &prompt.messages {
        let (role, content): (_, Vec<Value>) = match message {
            Message::User(text) => ("user", vec![text_block(text)]),
            Message::Assistant { text, calls } => {
                // What has no letter in it is refused, and so is a message with nothing.
                let text = (!text.trim().is_empty()).then(|| text_block(text));
                let calls = calls.iter().map(
                    |(id, name, arguments)| json!({"type": "tool_use", "id": id, "name": name, "input": arguments}),
                );
                ("assistant", text.into_iter().chain(calls).collect())
            }
            Message::Results(results) => {
                let results = results.iter().map(|result| {
                    json!({"type": "tool_result", "tool_use_id": result.id, "content": result.text, "is_error": result.is_error})
                });
                ("user", results.collect())
            }
        };
        if !content.is_empty() {
            messages.push(json!({"role": role, "content": content}));
        }
    }
    if let Some(Value::Object(block)) =
        messages.last_mut().and_then(|last| last["content"].as_array_mut()).and_then(|content| content.last_mut())
    {
        block.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
    let mut body = Map::new();
    body.insert("model".to_owned(), model.model.as_str().into());
    body.insert("messages".to_owned(), Value::Array(messages));
    body.insert("max_tokens".to_owned(), prompt.max_output.into());
    body.insert("stream".to_owned(), true.into());
    if !prompt.instructions.is_empty() {
        let mut instructions = text_block(&prompt.instructions);
        instructions["cache_control"] = json!({"type": "ephemeral"});
        body.insert("system".to_owned(), json!([instructions]));
    }
    if !prompt.tools.is_empty() {
        let tools = prompt
            .tools
            .iter()
            .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters()}));
        body.insert("tools".to_owned(), tools.collect());
    }
    if let Some(schema) = &prompt.schema {
        let format = json!({"type": "json_schema", "schema": schema.schema});
        body.insert("output_config".to_owned(), json!({"format": format}));
    }
    Value::Object(body)
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// An answer that is being read.
#[derive(Debug, Default)]
pub(crate) struct MessagesReading {
    text: String,
    reasoning: String,
    /// The calls by the place of their blocks.
    calls: BTreeMap<u64, OpenCall>,
    stop_reason: Option<String>,
    has_stopped: bool,
    usage: Option<Usage>,
    model: String,
}

impl MessagesReading {
    fn block(&mut self, index: u64, block: &Value) -> Result<Option<Delta>, Failure> {
        let text = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
        Ok(match text("type") {
            "tool_use" if self.calls.len() >= MAX_CALLS => return Err(too_many_calls()),
            "text" => self.add_text(text("text")),
            "thinking" => self.add_reasoning(text("thinking")),
            "tool_use" => {
                let (name, server_id) = (text("name").to_owned(), text("id").to_owned());
                let mut call = OpenCall { index, name: name.clone(), server_id, ..OpenCall::default() };
                // Empty where the arguments follow in pieces.
                let input = block.get("input").filter(|input| input.as_object().is_none_or(|input| !input.is_empty()));
                call.add(input);
                self.calls.insert(index, call);
                Some(Delta::Call(name))
            }
            _ => None,
        })
    }

    fn add_text(&mut self, text: &str) -> Option<Delta> {
        self.text.push_str(text);
        (!text.is_empty()).then(|| Delta::Text(text.to_owned()))
    }

    fn add_reasoning(&mut self, text: &str) -> Option<Delta> {
        self.reasoning.push_str(text);
        (!text.is_empty()).then(|| Delta::Reasoning(text.to_owned()))
    }

    /// Takes counts, of which later ones are sums. The tokens that the cache served or took are not in `input_tokens`.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        let known = self.usage.get_or_insert_default();
        if let Some(input) = number(usage, &["/input_tokens"]) {
            let read = number(usage, &["/cache_read_input_tokens"]).unwrap_or_default();
            let written = number(usage, &["/cache_creation_input_tokens"]).unwrap_or_default();
            known.input = input.saturating_add(read).saturating_add(written);
            known.cached_input = read;
        }
        if let Some(output) = number(usage, &["/output_tokens"]) {
            known.output = output;
        }
    }

    fn message(&mut self, message: &Value) -> Result<(), Failure> {
        if let Some(model) = message.get("model").and_then(Value::as_str) {
            model.clone_into(&mut self.model);
        }
        self.count(message.get("usage"));
        for (index, block) in message.get("content").and_then(Value::as_array).into_iter().flatten().enumerate() {
            self.block(index as u64, block)?;
        }
        self.stop(message);
        Ok(())
    }

    fn stop(&mut self, of: &Value) {
        if let Some(reason) = of.get("stop_reason").and_then(Value::as_str) {
            self.stop_reason = Some(reason.to_owned());
        }
    }
}

impl Reading for MessagesReading {
    fn event(&mut self, name: &str, value: &Value) -> Result<Vec<Delta>, Failure> {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(name);
        let index = number(value, &["/index"]).unwrap_or_default();
        let delta = value.get("delta").unwrap_or(&Value::Null);
        let text = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        let shown = match kind {
            "message_start" => {
                self.message(value.get("message").unwrap_or(&Value::Null))?;
                None
            }
            "content_block_start" => self.block(index, value.get("content_block").unwrap_or(&Value::Null))?,
            "content_block_delta" => match text("type") {
                "text_delta" => self.add_text(text("text")),
                "thinking_delta" => self.add_reasoning(text("thinking")),
                "input_json_delta" => {
                    let call = self.calls.get_mut(&index);
                    let call = call.ok_or_else(|| Failure::Malformed {
                        why: "arguments came for a call that has not begun".to_owned(),
                    })?;
                    call.text.push_str(text("partial_json"));
                    None
                }
                _ => None,
            },
            "message_delta" => {
                self.stop(delta);
                self.count(value.get("usage"));
                None
            }
            "message_stop" => {
                self.has_stopped = true;
                None
            }
            _ => None,
        };
        Ok(shown.into_iter().collect())
    }

    fn whole(&mut self, value: &Value) -> Result<(), Failure> {
        if value.get("content").is_none() {
            return Err(Failure::Malformed { why: "it has no `content`".to_owned() });
        }
        self.message(value)?;
        self.has_stopped = true;
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.has_stopped || self.stop_reason.is_some()
    }

    fn finish(mut self) -> Result<Answer, Failure> {
        let end = match self.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") if !self.calls.is_empty() => {
                return Err(Failure::Truncated { usage: self.usage });
            }
            Some("max_tokens" | "model_context_window_exceeded") => End::Length,
            Some("refusal") => {
                self.calls.clear();
                End::Refused
            }
            _ => End::Complete,
        };
        let calls = self.calls.into_values().map(OpenCall::close).collect();
        Ok(Answer { text: self.text, reasoning: self.reasoning, calls, end, usage: self.usage, model: self.model })
    }
}

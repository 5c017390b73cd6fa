//! Chat Completions, as OpenAI has made it and as local servers speak it.

use serde_json::{Map, Value, json};

use crate::{
    Answer, Delta, End, Failure, Message, Model, Prompt, Usage,
    call::{MAX_CALLS, OpenCall, too_many_calls},
    reading::Reading,
    usage::number,
};

/// The body of a request.
///
/// `max_tokens` is the older name of the limit, and the one that every local server knows; OpenAI's newer models want its Responses API.
pub(crate) fn body(model: &Model, prompt: &Prompt) -> Value {
    let mut messages = Vec::new();
    if !prompt.instructions.is_empty() {
        messages.push(json!({"role": "system", "content": prompt.instructions}));
    }
    for message in &prompt.messages {
        match message {
            Message::User(text) => messages.push(json!({"role": "user", "content": text})),
            Message::Assistant { text, calls } => {
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|(id, name, arguments)| {
                        let function = json!({"name": name, "arguments": arguments.to_string()});
                        json!({"id": id, "type": "function", "function": function})
                    })
                    .collect();
                let mut message = json!({"role": "assistant", "content": text});
                if !calls.is_empty() {
                    message["tool_calls"] = Value::Array(calls);
                }
                messages.push(message);
            }
            Message::Results(results) => messages.extend(
                results.iter().map(|result| json!({"role": "tool", "tool_call_id": result.id, "content": result.text})),
            ),
        }
    }
    let mut body = Map::new();
    body.insert("model".to_owned(), model.model.as_str().into());
    body.insert("messages".to_owned(), Value::Array(messages));
    body.insert("max_tokens".to_owned(), prompt.max_output.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters()});
            json!({"type": "function", "function": function})
        });
        body.insert("tools".to_owned(), tools.collect());
        // llama.cpp's server makes one call at a time without it.
        body.insert("parallel_tool_calls".to_owned(), true.into());
    }
    if let Some(schema) = &prompt.schema {
        let schema = json!({"name": schema.name, "strict": true, "schema": schema.schema});
        body.insert("response_format".to_owned(), json!({"type": "json_schema", "json_schema": schema}));
    }
    Value::Object(body)
}

/// An answer that is being read.
#[derive(Debug, Default)]
pub(crate) struct ChatReading {
    text: String,
    reasoning: String,
    calls: Vec<OpenCall>,
    finish: Option<String>,
    is_done: bool,
    usage: Option<Usage>,
    model: String,
}

impl ChatReading {
    /// Takes `[DONE]`.
    pub(crate) fn done(&mut self) {
        self.is_done = true;
    }

    fn choice(&mut self, choice: &Value) -> Result<Vec<Delta>, Failure> {
        let mut deltas = Vec::new();
        // A server that does not stream has the whole message.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let reasoning = delta.get("reasoning").or_else(|| delta.get("reasoning_content")).and_then(Value::as_str);
        if let Some(text) = reasoning.filter(|text| !text.is_empty()) {
            self.reasoning.push_str(text);
            deltas.push(Delta::Reasoning(text.to_owned()));
        }
        let text = text_of(delta.get("content"));
        if !text.is_empty() {
            self.text.push_str(&text);
            deltas.push(Delta::Text(text));
        }
        // A model that declines says so here instead of in its content.
        if let Some(text) = delta.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.text.push_str(text);
            self.finish = Some("content_filter".to_owned());
        }
        for piece in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            deltas.extend(self.piece(piece)?);
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            self.finish.get_or_insert_with(|| finish.to_owned());
        }
        Ok(deltas)
    }

    /// Adds a piece of a call.
    fn piece(&mut self, piece: &Value) -> Result<Option<Delta>, Failure> {
        let text = |path: &str| piece.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (id, name) = (text("/id"), text("/function/name"));
        let arguments = piece.pointer("/function/arguments");
        let index = number(piece, &["/index"]);
        // A piece without an index continues the last call, unless it names another.
        let place = match index {
            Some(index) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1),
        };
        let has_arguments = arguments.is_some_and(|arguments| !arguments.is_null() && *arguments != "");
        let continues = place.filter(|place| {
            let call = &self.calls[*place];
            let is_other = !id.is_empty() && !call.server_id.is_empty() && id != call.server_id;
            // Servers that send every call with the index 0 give each its own id (dynamo's PR 4723), or none at all and each call whole. Others repeat
            // the name in every piece of one call (llama.cpp's PR 12379).
            let may_be_next = (id.is_empty() && has_arguments) || index.is_none();
            name.is_empty() || !(is_other || (may_be_next && call.is_whole()))
        });
        match continues {
            Some(place) => {
                let call = &mut self.calls[place];
                if call.name.is_empty() {
                    name.clone_into(&mut call.name);
                }
                if call.server_id.is_empty() {
                    id.clone_into(&mut call.server_id);
                }
                call.add(arguments);
                Ok(None)
            }
            None if self.calls.len() >= MAX_CALLS => Err(too_many_calls()),
            None => {
                let index = index.unwrap_or(self.calls.len() as u64);
                let mut call =
                    OpenCall { index, name: name.to_owned(), server_id: id.to_owned(), ..OpenCall::default() };
                call.add(arguments);
                self.calls.push(call);
                Ok(Some(Delta::Call(name.to_owned())))
            }
        }
    }
}

/// A content as text: a text, or a list of parts.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect(),
        _ => String::new(),
    }
}

impl Reading for ChatReading {
    fn event(&mut self, _name: &str, value: &Value) -> Result<Vec<Delta>, Failure> {
        // In a chunk of its own, in the one that finishes, or in each: the last is the sum.
        if let Some(usage) = value.get("usage").filter(|usage| usage.is_object()) {
            self.usage = Some(Usage {
                input: number(usage, &["/prompt_tokens"]).unwrap_or_default(),
                cached_input: number(usage, &["/prompt_tokens_details/cached_tokens"]).unwrap_or_default(),
                output: number(usage, &["/completion_tokens"]).unwrap_or_default(),
                reasoning: number(usage, &["/completion_tokens_details/reasoning_tokens"]).unwrap_or_default(),
            });
        }
        if let Some(model) = value.get("model").and_then(Value::as_str).filter(|model| !model.is_empty()) {
            model.clone_into(&mut self.model);
        }
        let choices = value.get("choices").and_then(Value::as_array).into_iter().flatten();
        // One answer was asked for.
        let first = choices.filter(|choice| number(choice, &["/index"]).unwrap_or_default() == 0);
        let mut deltas = Vec::new();
        for choice in first {
            deltas.extend(self.choice(choice)?);
        }
        Ok(deltas)
    }

    fn whole(&mut self, value: &Value) -> Result<(), Failure> {
        if value.get("choices").is_none() {
            return Err(Failure::Malformed { why: "it has no `choices`".to_owned() });
        }
        self.event("", value)?;
        self.is_done = true;
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.is_done || self.finish.is_some()
    }

    fn finish(mut self) -> Result<Answer, Failure> {
        let end = match self.finish.as_deref() {
            // Arguments that reached the limit may be whole by chance.
            Some("length") if !self.calls.is_empty() => return Err(Failure::Truncated { usage: self.usage }),
            Some("length") => End::Length,
            // What was filtered may be cut anywhere.
            Some("content_filter") => {
                self.calls.clear();
                End::Refused
            }
            // The calls count, not the reason: servers write `stop` beside calls, and `tool_calls` without any.
            _ => End::Complete,
        };
        let calls = self.calls.into_iter().map(OpenCall::close).collect();
        Ok(Answer { text: self.text, reasoning: self.reasoning, calls, end, usage: self.usage, model: self.model })
    }
}

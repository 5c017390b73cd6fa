//! The Responses API, as OpenAI has made it. Nothing is stored at the server: each request has the whole conversation.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    Answer, Delta, End, Failure, Message, Model, Prompt, Usage,
    call::{MAX_CALLS, OpenCall, too_many_calls},
    reading::{Reading, message_of},
    usage::number,
};

/// The body of a request.
pub(crate) fn body(model: &Model, prompt: &Prompt) -> Value {
    let mut input = Vec::new();
    let text = |role: &str, kind: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    for message in &prompt.messages {
        match message {
            Message::User(words) => input.push(text("user", "input_text", words)),
            Message::Assistant { text: words, calls } => {
                if !words.is_empty() {
                    input.push(text("assistant", "output_text", words));
                }
                input.extend(calls.iter().map(|(id, name, arguments)| {
                    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments.to_string()})
                }));
            }
            Message::Results(results) => input.extend(
                results
                    .iter()
                    .map(|result| json!({"type": "function_call_output", "call_id": result.id, "output": result.text})),
            ),
        }
    }
    let mut body = Map::new();
    body.insert("model".to_owned(), model.model.as_str().into());
    body.insert("input".to_owned(), Value::Array(input));
    body.insert("max_output_tokens".to_owned(), prompt.max_output.into());
    body.insert("stream".to_owned(), true.into());
    body.insert("store".to_owned(), false.into());
    if !prompt.instructions.is_empty() {
        body.insert("instructions".to_owned(), prompt.instructions.as_str().into());
    }
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            // `strict` would refuse schemas with optional members.
            json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters(), "strict": false})
        });
        body.insert("tools".to_owned(), tools.collect());
        body.insert("parallel_tool_calls".to_owned(), true.into());
    }
    if let Some(schema) = &prompt.schema {
        let format = json!({"type": "json_schema", "name": schema.name, "strict": true, "schema": schema.schema});
        body.insert("text".to_owned(), json!({"format": format}));
    }
    Value::Object(body)
}

/// An answer that is being read.
#[derive(Debug, Default)]
pub(crate) struct ResponsesReading {
    text: String,
    reasoning: String,
    /// The calls by their place in the output.
    calls: BTreeMap<u64, OpenCall>,
    has_refused: bool,
    /// How the answer ended: `completed` or `incomplete`, and why.
    ended: Option<(String, String)>,
    usage: Option<Usage>,
    model: String,
}

impl ResponsesReading {
    fn call(&mut self, index: u64) -> Result<&mut OpenCall, Failure> {
        if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(&index) {
            return Err(too_many_calls());
        }
        Ok(self.calls.entry(index).or_insert_with(|| OpenCall { index, ..OpenCall::default() }))
    }

    /// Takes a call as a whole, which counts instead of its pieces.
    fn call_item(&mut self, index: u64, item: &Value) -> Result<Option<Delta>, Failure> {
        let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
        let is_new = !self.calls.contains_key(&index);
        let call = self.call(index)?;
        if !text("name").is_empty() {
            text("name").clone_into(&mut call.name);
        }
        text("call_id").clone_into(&mut call.server_id);
        let arguments = item.get("arguments").filter(|arguments| **arguments != "");
        if arguments.is_some() {
            call.text.clear();
            call.add(arguments);
        }
        Ok(is_new.then(|| Delta::Call(text("name").to_owned())))
    }

    fn end(&mut self, response: &Value) -> Result<(), Failure> {
        let text = |path: &str| response.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let status = text("/status");
        if status == "failed" || response.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Failure::Server { message: message_of(response) });
        }
        if let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) {
            self.usage = Some(Usage {
                input: number(usage, &["/input_tokens"]).unwrap_or_default(),
                cached_input: number(usage, &["/input_tokens_details/cached_tokens"]).unwrap_or_default(),
                output: number(usage, &["/output_tokens"]).unwrap_or_default(),
                reasoning: number(usage, &["/output_tokens_details/reasoning_tokens"]).unwrap_or_default(),
            });
        }
        self.model = text("/model");
        // The whole answer once more: what servers that send few events have only here.
        let output = response.get("output").and_then(Value::as_array);
        let (had_text, had_calls) = (!self.text.is_empty(), !self.calls.is_empty());
        for (index, item) in output.into_iter().flatten().enumerate() {
            match item.get("type").and_then(Value::as_str) {
                Some("function_call") if !had_calls => drop(self.call_item(index as u64, item)?),
                Some("message") if !had_text => self.message_item(item),
                _ => {}
            }
        }
        self.ended = Some((status, text("/incomplete_details/reason")));
        Ok(())
    }

    fn message_item(&mut self, item: &Value) {
        for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| part.get(key).and_then(Value::as_str);
            self.has_refused |= text("refusal").is_some();
            self.text.push_str(text("text").or_else(|| text("refusal")).unwrap_or_default());
        }
    }
}

impl Reading for ResponsesReading {
    fn event(&mut self, name: &str, value: &Value) -> Result<Vec<Delta>, Failure> {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(name);
        let delta = || value.get("delta").and_then(Value::as_str).unwrap_or_default().to_owned();
        let index = number(value, &["/output_index"]).unwrap_or_default();
        let item = value.get("item").unwrap_or(&Value::Null);
        let is_call = item.get("type").and_then(Value::as_str) == Some("function_call");
        Ok(match kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.has_refused |= kind == "response.refusal.delta";
                self.text.push_str(&delta());
                vec![Delta::Text(delta())]
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                self.reasoning.push_str(&delta());
                vec![Delta::Reasoning(delta())]
            }
            "response.output_item.added" | "response.output_item.done" if is_call => {
                self.call_item(index, item)?.into_iter().collect()
            }
            "response.function_call_arguments.delta" => {
                self.call(index)?.text.push_str(&delta());
                Vec::new()
            }
            "response.function_call_arguments.done" => {
                if let Some(text) = value.get("arguments").and_then(Value::as_str) {
                    text.clone_into(&mut self.call(index)?.text);
                }
                Vec::new()
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.end(value.get("response").unwrap_or(&Value::Null))?;
                Vec::new()
            }
            "error" => return Err(Failure::Server { message: message_of(value) }),
            _ => Vec::new(),
        })
    }

    fn whole(&mut self, value: &Value) -> Result<(), Failure> {
        if value.get("output").is_none() {
            return Err(Failure::Malformed { why: "it has no `output`".to_owned() });
        }
        self.end(value)
    }

    fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    fn finish(mut self) -> Result<Answer, Failure> {
        let (status, why) = self.ended.take().unwrap_or_default();
        let end = match (status.as_str(), why.as_str()) {
            // What was filtered may be cut anywhere.
            ("incomplete", "content_filter") => {
                self.calls.clear();
                End::Refused
            }
            ("incomplete", _) if !self.calls.is_empty() => return Err(Failure::Truncated { usage: self.usage }),
            ("incomplete", _) => End::Length,
            _ if self.has_refused => End::Refused,
            _ => End::Complete,
        };
        let calls = self.calls.into_values().map(OpenCall::close).collect();
        Ok(Answer { text: self.text, reasoning: self.reasoning, calls, end, usage: self.usage, model: self.model })
    }
}

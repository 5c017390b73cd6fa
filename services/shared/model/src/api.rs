//! The requests and readers of all APIs.

use std::time::Duration;

use serde_json::Value;

use crate::{
    Answer, Api, Delta, Failure, Model, Prompt, Refusal, ToolCalls, chat, constrained,
    failure::on_one_line,
    messages,
    reading::{Reading, message_of},
    responses,
    sse::{Event, Events},
};

/// The largest answer that is read, in bytes of its stream.
pub const MAX_ANSWER: usize = 64 << 20;
/// The largest answer that comes whole, in bytes: read at once, JSON takes many times as much memory.
const MAX_WHOLE: usize = 8 << 20;

/// A request, without the address of the server and its credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The path behind the base URL.
    pub path: &'static str,
    /// The headers besides those that every request has.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body, which is JSON; `None` for a GET.
    pub body: Option<Vec<u8>>,
}

/// The version of Anthropic's API.
const OF_MESSAGES: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

/// The request for an answer, as a stream.
pub fn request(model: &Model, prompt: &Prompt) -> HttpRequest {
    let constrained = (model.tool_calls == ToolCalls::Constrained && !prompt.tools.is_empty())
        .then(|| constrained::without_tools(prompt));
    let prompt = constrained.as_ref().unwrap_or(prompt);
    let (path, headers, body): (_, &[_], _) = match model.api {
        Api::Chat => ("/chat/completions", &[], chat::body(model, prompt)),
        Api::Responses => ("/responses", &[], responses::body(model, prompt)),
        Api::Messages => ("/messages", OF_MESSAGES, messages::body(model, prompt)),
    };
    HttpRequest { path, headers, body: Some(body.to_string().into_bytes()) }
}

/// The request for the list of models, which [`served`](crate::served) reads.
pub fn list_request(api: Api) -> HttpRequest {
    let headers: &[_] = match api {
        Api::Chat | Api::Responses => &[],
        Api::Messages => OF_MESSAGES,
    };
    HttpRequest { path: "/models", headers, body: None }
}

enum OfApi {
    Chat(chat::ChatReading),
    Responses(responses::ResponsesReading),
    Messages(messages::MessagesReading),
}

/// Reads an answer from the bytes of its stream.
pub struct Reader {
    api: OfApi,
    events: Events,
    /// The bytes of an answer that comes whole.
    whole: Option<Vec<u8>>,
    is_constrained: bool,
    bytes: usize,
    progress: u64,
}

impl Reader {
    /// Reads the answer to this prompt. A server that cannot stream answers with `application/json`.
    pub fn new(model: &Model, prompt: &Prompt, content_type: &str) -> Self {
        let api = match model.api {
            Api::Chat => OfApi::Chat(chat::ChatReading::default()),
            Api::Responses => OfApi::Responses(responses::ResponsesReading::default()),
            Api::Messages => OfApi::Messages(messages::MessagesReading::default()),
        };
        let is_json = content_type.trim_start().to_ascii_lowercase().starts_with("application/json");
        Self {
            api,
            events: Events::default(),
            whole: is_json.then(Vec::new),
            is_constrained: model.tool_calls == ToolCalls::Constrained && !prompt.tools.is_empty(),
            bytes: 0,
            progress: 0,
        }
    }

    /// Takes bytes, in whatever pieces they come. What it returns is to be shown at most.
    ///
    /// # Errors
    /// [`Failure`] when there will be no answer.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, Failure> {
        self.bytes += bytes.len();
        if self.bytes > MAX_ANSWER {
            return Err(Failure::TooLarge { limit: MAX_ANSWER });
        }
        if let Some(whole) = &mut self.whole {
            if whole.len() + bytes.len() > MAX_WHOLE {
                return Err(Failure::TooLarge { limit: MAX_WHOLE });
            }
            whole.extend_from_slice(bytes);
            // Blanks keep a connection open as comments do.
            self.progress += u64::from(bytes.iter().any(|byte| !byte.is_ascii_whitespace()));
            return Ok(Vec::new());
        }
        let mut deltas = Vec::new();
        for event in self.events.push(bytes)? {
            deltas.extend(self.event(&event)?);
        }
        // What follows a schema is no text for people.
        Ok(if self.is_constrained { Vec::new() } else { deltas })
    }

    /// How much of the answer has come. It does not grow with what only keeps the connection open.
    pub fn progress(&self) -> u64 {
        self.progress
    }

    /// In how many parts the answer has come; one if the server does not stream.
    pub fn parts(&self) -> u64 {
        if self.whole.is_some() { 1 } else { self.progress }
    }

    /// Whether the end of a streamed answer has come. What may follow it is no part of what is acted on.
    pub fn has_ended(&mut self) -> bool {
        self.whole.is_none() && self.reading().has_ended()
    }

    /// The answer, once no more bytes come.
    ///
    /// # Errors
    /// [`Failure`] when its end has not come, or nothing may follow from it.
    pub fn finish(mut self) -> Result<Answer, Failure> {
        if let Some(whole) = self.whole.take() {
            let value = serde_json::from_slice(&whole)
                .map_err(|error| Failure::Malformed { why: format!("it is not JSON: {error}") })?;
            failed(&value)?;
            self.reading().whole(&value)?;
        } else {
            // What the end of the stream has cut is no event.
            if let Ok(Some(event)) = std::mem::take(&mut self.events).finish() {
                match self.event(&event) {
                    Ok(_) | Err(Failure::Malformed { .. }) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        if !self.reading().has_ended() {
            return Err(Failure::Cut);
        }
        let answer = match self.api {
            OfApi::Chat(reading) => reading.finish(),
            OfApi::Responses(reading) => reading.finish(),
            OfApi::Messages(reading) => reading.finish(),
        }?;
        if self.is_constrained { constrained::call_of(answer) } else { Ok(answer) }
    }

    fn event(&mut self, event: &Event) -> Result<Vec<Delta>, Failure> {
        if event.data.trim() == "[DONE]" {
            if let OfApi::Chat(chat) = &mut self.api {
                chat.done();
            }
            return Ok(Vec::new());
        }
        if event.name == "ping" {
            return Ok(Vec::new());
        }
        let value: Value = serde_json::from_str(&event.data)
            .map_err(|error| Failure::Malformed { why: format!("an event is not JSON: {error}") })?;
        self.progress += 1;
        failed(&value)?;
        self.reading().event(&event.name, &value)
    }

    fn reading(&mut self) -> &mut dyn Reading {
        match &mut self.api {
            OfApi::Chat(reading) => reading,
            OfApi::Responses(reading) => reading,
            OfApi::Messages(reading) => reading,
        }
    }
}

/// The error that a server sends instead of an event, as all APIs have it.
fn failed(value: &Value) -> Result<(), Failure> {
    match value.get("error") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(Failure::Server { message: message_of(value) }),
    }
}

/// The failure of a refused request, from its status that is not a success, the time in its headers, and its body.
pub fn refusal(status: u16, retry_after: Option<Duration>, body: &[u8]) -> Failure {
    /// What servers write when a prompt is longer than the window: llama.cpp, OpenAI and vLLM, Anthropic, and others.
    const TOO_LONG: [&str; 6] = [
        "exceed_context_size",
        "context_length_exceeded",
        "maximum context length",
        "prompt is too long",
        "context window",
        "context size",
    ];
    let text = String::from_utf8_lossy(body);
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(value) => message_of(&value),
        Err(_) if text.trim_start().starts_with('<') => {
            "an HTML page, as from a proxy or another kind of server".to_owned()
        }
        Err(_) if text.trim().is_empty() => "nothing more".to_owned(),
        Err(_) => on_one_line(&text),
    };
    let lower = text.to_ascii_lowercase();
    let refusal = match status {
        401 | 403 => Refusal::Credential,
        404 | 405 => Refusal::NotFound,
        429 => Refusal::RateLimit,
        503 | 529 => Refusal::Overloaded,
        400..=499 if TOO_LONG.iter().any(|words| lower.contains(words)) => Refusal::TooLong,
        408 | 500.. => Refusal::Server,
        _ => Refusal::Invalid,
    };
    Failure::Refused { refusal, status, message, retry_after }
}

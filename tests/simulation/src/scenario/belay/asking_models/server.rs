//! A model's server that answers by chance, and counts what it is asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_executor::{Answering, ModelServer, Models};
use belay_model::{
    Answer, Api, Arguments, BaseUrl, Call, End, Failure, Limit, Message, Model, Prompt, Refusal, ServedModel,
    TimeLimits, ToolCalls, Usage,
};
use belay_model_http::{Asked, Show};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::super::policy::{ASKED, FREE, SHOWN};
use super::super::tools::{APPEND, LOOK, PUBLISH, PUT, REMOVE, SEND, WIPE};
use crate::trace;

/// The model, and the tool by which it is asked.
pub(super) const MODEL: &str = "scripted";
/// The model that takes over.
pub(super) const OTHER: &str = "other";
/// The model that forks ask: what they have of another execution says its name, and not theirs.
pub(super) const OF_FORKS: &str = "of-forks";
/// What the id of a fork has after that of its origin.
pub(super) const FORK: &str = "-fork";
pub(super) const ASK_MODEL: &str = "ask_model";
/// The tool by which it judges.
pub(super) const JUDGE: &str = "judge_criterion";
/// The most that an answer may have, in tokens.
pub(super) const MAX_OUTPUT: u64 = 2_000;
/// What an answer has more than it may, where the server counts too much.
pub(super) const TOO_MANY: u64 = 10_000;
/// What precedes the name of an execution in the task of its step.
pub(super) const MARK: &str = "Work for ";

/// A request to the model's server, which counts it whatever becomes of the answer.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// The execution that asks, and the turn.
    pub(super) execution: String,
    pub(super) turn: usize,
    pub(super) prompt: String,
    /// The tokens that the server counts, as far as the request allows them.
    pub(super) tokens: u64,
    /// Those beyond, which it counts if it has told of its count: of others nobody could know.
    pub(super) beyond: u64,
    /// Whether the answer was given, or nobody was there any more.
    pub(super) is_given: bool,
    /// Whether it asks for a judgement, and is no turn.
    pub(super) is_judgement: bool,
}

impl Request {
    /// Whether the step `other` asks, and not `one`.
    pub(super) fn is_of_other(&self) -> bool {
        let task = self.execution.strip_suffix(FORK).unwrap_or(&self.execution);
        self.prompt.contains(&format!("{task}.other "))
    }
}

/// Every request, by number. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    requests: Arc<Mutex<Vec<Request>>>,
    seed: u64,
    /// What the execution that asks has in its id after that in the task.
    suffix: &'static str,
}

impl Server {
    /// One whose answers follow from the seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    pub(super) fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a request, which another time is answered otherwise; returns its number, how long it takes, and what comes of it.
    fn begin(&self, prompt: &Prompt) -> (usize, Duration, Result<Answer, Failure>) {
        let mut requests = self.requests();
        let number = requests.len();
        let random = &mut StdRng::seed_from_u64(self.seed.wrapping_add(number as u64));
        let written = format!("{prompt:?}");
        let execution = written.split_once(MARK).and_then(|(_, rest)| rest.split(['.', ' ', '\\', '"']).next());
        let execution = format!("{}{}", execution.unwrap_or_default(), self.suffix);
        let is_answer = |message: &&Message| matches!(message, Message::Assistant { .. });
        let turn = prompt.messages.iter().filter(is_answer).count() + 1;
        let counts_too_much = random.random_bool(0.12);
        let usage = Usage {
            input: written.len() as u64 / 6,
            // By which what is recorded is known again.
            output: number as u64 + 1 + if counts_too_much { TOO_MANY } else { 0 },
            ..Usage::default()
        };
        let is_judgement = prompt.tools.first().is_some_and(|tool| tool.name == "verdict");
        let end = match is_judgement {
            false => answer(random, &execution, number, turn, usage),
            true => verdict(random, usage),
        };
        // One that does not reach it, or that it refuses, is not counted.
        let is_counted = !matches!(end, Err(Failure::Unreachable { .. } | Failure::Refused { .. }));
        let tokens = if is_counted { usage.input + number as u64 + 1 } else { 0 };
        let beyond = usage.output - number as u64 - 1;
        trace::event(format_args!(
            "{execution} asks the model in turn {turn}, request {number}, to judge: {is_judgement}"
        ));
        trace::count(if is_judgement { "judgements asked for" } else { "turns asked for" });
        trace::count("requests to a model");
        requests.push(Request { execution, turn, prompt: written, tokens, beyond, is_given: false, is_judgement });
        (number, Duration::from_millis(random.random_range(5..500)), end)
    }
}

/// Mostly that the criterion is met.
fn verdict(random: &mut StdRng, usage: Usage) -> Result<Answer, Failure> {
    if random.random_bool(0.08) {
        return Err(Failure::Cut);
    }
    let arguments = match random.random_range(0..10) {
        0 => json!({"met": "perhaps"}),
        1..4 => json!({"met": false, "why": "scripted"}),
        _ => json!({"met": true, "why": "scripted"}),
    };
    let call = Call { name: "verdict".to_owned(), arguments: Arguments::Object(arguments), server_id: String::new() };
    let (text, reasoning, model) = (String::new(), String::new(), MODEL.to_owned());
    Ok(Answer { text, reasoning, calls: vec![call], end: End::Complete, usage: Some(usage), model })
}

/// Mostly an answer, with calls in the first turns and the completion later.
fn answer(random: &mut StdRng, execution: &str, number: usize, turn: usize, usage: Usage) -> Result<Answer, Failure> {
    let failure = match random.random_range(0..100) {
        0..3 => Some(Failure::Unreachable { why: "scripted".to_owned() }),
        3..6 => Some(Failure::Refused {
            refusal: Refusal::RateLimit,
            status: 429,
            message: "scripted".to_owned(),
            retry_after: Some(Duration::from_millis(700)),
        }),
        6..8 => Some(Failure::Cut),
        8..10 => Some(Failure::Late { limit: Limit::BetweenBytes, after: Duration::from_secs(1) }),
        10..11 => Some(Failure::Truncated { usage: Some(usage) }),
        11..13 => Some(Failure::Refused {
            refusal: Refusal::Credential,
            status: 401,
            message: "scripted".to_owned(),
            retry_after: None,
        }),
        _ => None,
    };
    if let Some(failure) = failure {
        return Err(failure);
    }
    let call = |name: &str, arguments| Call { name: name.to_owned(), arguments, server_id: String::new() };
    let calls = match turn {
        1..=3 if random.random_bool(0.85) => (0..random.random_range(1..=3))
            .map(|place| {
                let tools = [LOOK, PUT, SEND, SEND, APPEND, APPEND, PUBLISH, REMOVE, WIPE, "unknown"];
                let tool = *tools.choose(random).expect("not empty");
                let mut arguments =
                    json!({"ms": random.random_range(1..90), "value": format!("{execution}/{number}/{place}")});
                if [APPEND, REMOVE].contains(&tool) {
                    let prefix = [FREE, FREE, FREE, SHOWN, ASKED].choose(random).expect("not empty");
                    arguments["path"] = format!("{prefix}{}", random.random_range(0..3)).into();
                }
                match random.random_bool(0.05) {
                    true => call(tool, Arguments::Invalid { text: "{".to_owned(), why: "scripted".to_owned() }),
                    false => call(tool, Arguments::Object(arguments)),
                }
            })
            .collect(),
        _ if random.random_bool(0.1) => Vec::new(),
        _ => vec![call("complete_step", Arguments::Object(json!({"result": number})))],
    };
    Ok(Answer {
        text: format!("request {number}"),
        reasoning: String::new(),
        calls,
        end: End::Complete,
        usage: Some(usage),
        model: MODEL.to_owned(),
    })
}

impl ModelServer for Server {
    fn ask<'a>(&'a self, prompt: &'a Prompt, _: i64, _: Show<'a>) -> Answering<'a, Asked> {
        Box::pin(async move {
            let (number, takes, end) = self.begin(prompt);
            tokio::time::sleep(takes).await;
            self.requests()[number].is_given = true;
            end.map(|answer| Asked { answer, parts: 1, request_bytes: 0 })
        })
    }

    fn list(&self, _: i64) -> Answering<'_, Vec<ServedModel>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

pub(super) fn models(server: &Server) -> Models {
    let model = |name: &str| Model {
        name: name.to_owned(),
        api: Api::Chat,
        base_url: BaseUrl::parse("http://127.0.0.1:1/v1").expect("it is one"),
        model: MODEL.to_owned(),
        window: 200_000,
        max_output: MAX_OUTPUT,
        tool_calls: ToolCalls::Native,
        price: None,
        limits: TimeLimits::DEFAULT,
        credential: None,
    };
    let served = |name: &str, suffix| {
        let server = Server { suffix, ..server.clone() };
        (model(name), Some(Box::new(server) as Box<dyn ModelServer>))
    };
    Models::new([served(MODEL, ""), served(OTHER, ""), served(OF_FORKS, FORK)])
}

//! What a model has answered, and what it wants.

use belay_model::{Answer, Arguments, End, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    READ_RESULT,
    offer::{COMPLETE_STEP, MAX_NAME},
};

/// An answer as it is recorded: the result of the call that asks the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// What the model thought before, where its server shows it. It is not sent back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls, in the order in which they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Calls>,
    /// Whether the limit of its tokens has cut the text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// What the server counted; `None` if it counted nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Counted>,
    /// The model that answered, as its server names it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
}

/// The tokens of a request and its answer, as the server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Those of the prompt, the cached ones included.
    pub input: u64,
    /// Those of the prompt that the server had in its cache.
    pub cached_input: u64,
    /// Those of the answer, its reasoning included.
    pub output: u64,
    /// Those of the answer in which the model thought, where the server counts them.
    pub reasoning: u64,
}

impl From<Usage> for Counted {
    fn from(Usage { input, cached_input, output, reasoning }: Usage) -> Self {
        Self { input, cached_input, output, reasoning }
    }
}

/// A call of an answer as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// The id by which its result is sent back, derived from the turn and the place: servers send none, empty ones, and the same twice.
    pub id: String,
    /// The tool, as the model names it.
    pub tool: String,
    /// The arguments, an object. Null where they are not one.
    pub arguments: Value,
    /// What is wrong with the arguments, for the model; empty when they are an object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub invalid: String,
    /// The arguments as they came, where they are no object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub written: String,
}

/// The id of the call at this place of the answer of a turn. It is letters and digits, nine of them: Anthropic takes no others, and the models of Mistral no other number of them.
pub fn call_id(turn: u32, place: usize) -> String {
    format!("t{turn:04}c{:03}", place + 1)
}

/// The turn, and the place in its answer, of the call with this id.
pub fn call_place(id: &str) -> Option<(u32, usize)> {
    let (turn, place) = id.strip_prefix('t')?.split_once('c')?;
    Some((turn.parse().ok()?, place.parse::<usize>().ok()?.checked_sub(1)?))
}

/// The id by which the model reads the rest of a file that it was shown, by its place.
pub fn file_id(place: usize) -> String {
    format!("file{:05}", place + 1)
}

/// The place of the file with this id.
pub fn file_place(id: &str) -> Option<usize> {
    id.strip_prefix("file")?.parse::<usize>().ok()?.checked_sub(1)
}

/// The id by which the model reads the rest of the versions that it is shown after a conflict, by the turn before.
pub fn conflict_id(turn: u32) -> String {
    format!("both{turn:05}")
}

/// The turn before the conflict with this id.
pub fn conflict_turn(id: &str) -> Option<u32> {
    id.strip_prefix("both")?.parse().ok()
}

/// How deep the arguments of a call may be nested: an answer is recorded as JSON, in which they stand three levels deep.
const MAX_LEVELS: usize = belay_json::MAX_DEPTH - 3;

/// What becomes of a call that a model wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// The tool at this place of the offer is called.
    Call(usize),
    /// The step is done.
    Complete,
    /// An earlier result is read again, which takes nothing but the record.
    ReadResult,
    /// Nothing is called: the model is told why.
    Refused(String),
}

/// A call that a model wants, by its place in the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedCall<'a> {
    /// The call.
    pub call: &'a Calls,
    /// What becomes of it.
    pub wanted: Wanted,
}

impl Answered {
    /// What is recorded of an answer in this turn.
    pub fn new(turn: u32, answer: Answer) -> Self {
        let Answer { text, reasoning, calls, end, usage, model } = answer;
        let calls = calls.into_iter().enumerate().map(|(place, call)| {
            let (arguments, invalid, written) = match call.arguments {
                Arguments::Object(object) if !belay_json::has_levels(&object, MAX_LEVELS) => {
                    let why = format!("The arguments are nested deeper than {MAX_LEVELS} levels.");
                    (Value::Null, why, object.to_string())
                }
                Arguments::Object(object) => (object, String::new(), String::new()),
                Arguments::Invalid { text, why } => (Value::Null, why, text),
            };
            Calls { id: call_id(turn, place), tool: call.name, arguments, invalid, written }
        });
        Self {
            calls: calls.collect(),
            text,
            reasoning,
            is_cut: end == End::Length,
            usage: usage.map(Counted::from),
            model,
        }
    }

    /// Decides about each call of the answer, with these tools: each has the name that the model was told, and the one that the plan has for it, which its
    /// task may have used. A completion is accepted alone: a model that ends its work together with other calls has not seen what these return.
    pub fn wanted(&self, offered: &[[&str; 2]]) -> Vec<WantedCall<'_>> {
        let is_alone = self.calls.len() == 1;
        let of = |call: &Calls| {
            if !call.invalid.is_empty() {
                return Wanted::Refused(format!("Nothing was called: {}", call.invalid));
            }
            match call.tool.as_str() {
                COMPLETE_STEP if is_alone => Wanted::Complete,
                COMPLETE_STEP => Wanted::Refused(
                    "The step is not completed: look at what the other calls of this turn return, then call complete_step alone."
                        .to_owned(),
                ),
                READ_RESULT => Wanted::ReadResult,
                name => match (0..2).find_map(|which| offered.iter().position(|names| names[which] == name)) {
                    Some(place) => Wanted::Call(place),
                    None => {
                        // Some models write a whole file where a name should be.
                        let name: String = name.chars().take(MAX_NAME).collect();
                        Wanted::Refused(format!("Tool '{name}' not found. {}", there_are(offered)))
                    }
                },
            }
        };
        self.calls.iter().map(|call| WantedCall { call, wanted: of(call) }).collect()
    }
}

fn there_are(offered: &[[&str; 2]]) -> String {
    let names: Vec<&str> = offered.iter().map(|[told, _]| *told).chain([COMPLETE_STEP, READ_RESULT]).collect();
    format!("There are: {}.", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that could not be read again would be lost, and with it every other call.
    #[test]
    fn an_answer_can_be_read_again_however_deep_its_arguments_are() {
        for levels in [MAX_LEVELS, MAX_LEVELS + 1, belay_json::MAX_DEPTH] {
            let nested = (1..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
            let arguments = Arguments::Object(serde_json::json!({"a": nested}));
            let call = belay_model::Call { name: "t".into(), arguments, server_id: String::new() };
            let answer = Answer {
                text: String::new(),
                reasoning: String::new(),
                calls: vec![call],
                end: End::Complete,
                usage: None,
                model: String::new(),
            };
            let answered = Answered::new(1, answer);
            let text = serde_json::to_string(&answered).unwrap();
            assert_eq!(serde_json::from_str::<Answered>(&text).unwrap(), answered, "{levels}");
            assert_eq!(answered.calls[0].invalid.is_empty(), levels == MAX_LEVELS);
        }
    }

    #[test]
    fn the_id_of_a_call_is_one_for_every_server_and_says_where_it_is() {
        for (turn, place) in [(1, 0), (12, 9), (1_000, 255)] {
            let id = call_id(turn, place);
            assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
            assert_eq!(call_place(&id), Some((turn, place)));
        }
        for other in ["", "t1", "1.1", "t0001c000", "t0001c-01", "c001t0001"] {
            assert_eq!(call_place(other), None, "{other}");
        }
    }
}

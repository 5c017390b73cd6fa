//! The beginning of a conversation that another execution has had.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Answered, Asked, ResultText, Turn};

/// The conversation up to one of its turns, as an execution takes it over that goes on from there in its own way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedConversation {
    /// The turns, each as it was asked and answered.
    pub turns: Vec<CarriedTurn>,
    /// The results of the calls of the last of them, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ResultText>,
    /// The message to the model that went with these results: what others have changed meanwhile, or a note; empty when there was none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The whole texts that the model has read the beginning of, by the ids with which it can read the rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub whole: BTreeMap<String, String>,
}

/// A turn of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedTurn {
    /// The addition of the turn to the conversation.
    pub asked: Arc<Asked>,
    /// The answer.
    pub answered: Arc<Answered>,
}

impl CarriedConversation {
    /// The turns, as those of the conversation that goes on.
    pub fn turns(&self) -> impl Iterator<Item = Turn> + '_ {
        let turn = |CarriedTurn { asked, answered }: &CarriedTurn| Turn {
            asked: Arc::clone(asked),
            answered: Some(Arc::clone(answered)),
        };
        self.turns.iter().map(turn)
    }
}

//! The parts of a model's turn as they were read: each turn after it reads them again, and parsing all of them each time would take the longer the more turns there are.

use std::sync::{Arc, OnceLock};

use belay_agent::{Answered, Asked, CarriedConversation};

use crate::{Json, Payload};

/// The parts of a turn as they were read. They follow from what is recorded, so they are no part of what is compared, copied or stored.
#[derive(Debug, Default)]
pub(crate) struct ReadTurn(OnceLock<Box<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    asked: Part<Asked>,
    answered: Part<Answered>,
    carried: Part<CarriedConversation>,
}

/// A part as it was read, with the text from which.
type Part<T> = OnceLock<(Json, Arc<T>)>;

impl ReadTurn {
    /// The addition of the turn to the conversation, of which this is recorded. `read` reads it where that was not done before.
    pub(crate) fn asked(&self, recorded: &Payload, read: impl FnOnce() -> Asked) -> Arc<Asked> {
        part(&self.0.get_or_init(Box::default).asked, recorded, read)
    }

    /// The conversation with which a step begins, likewise.
    pub(crate) fn carried(
        &self,
        recorded: &Payload,
        read: impl FnOnce() -> CarriedConversation,
    ) -> Arc<CarriedConversation> {
        part(&self.0.get_or_init(Box::default).carried, recorded, read)
    }

    /// The answer, likewise.
    pub(crate) fn answered(&self, recorded: &Payload, read: impl FnOnce() -> Answered) -> Arc<Answered> {
        part(&self.0.get_or_init(Box::default).answered, recorded, read)
    }
}

/// Reads a part once. One in a blob is not kept: it is there because it is too large to be in memory all the time.
fn part<T>(known: &Part<T>, recorded: &Payload, read: impl FnOnce() -> T) -> Arc<T> {
    let Some(json) = recorded.inline() else { return Arc::new(read()) };
    match known.get() {
        Some((text, value)) if text == json => Arc::clone(value),
        // It was recorded anew since.
        Some(_) => Arc::new(read()),
        None => Arc::clone(&known.get_or_init(|| (json.clone(), Arc::new(read()))).1),
    }
}

impl Clone for ReadTurn {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for ReadTurn {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is recorded counts, whatever was read before.
    #[test]
    fn a_part_is_read_once_as_long_as_the_same_is_recorded() {
        let turn = ReadTurn::default();
        let text = |text: &str| Payload::from(Json::canonical(&json!({ "text": text })));
        let answer = |text: &str| Answered { text: text.to_owned(), ..Answered::default() };
        let first = turn.answered(&text("a"), || answer("a"));
        let again = turn.answered(&text("a"), || panic!("it was read before"));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*turn.answered(&text("b"), || answer("b")), answer("b"));
        assert_eq!(*turn.answered(&text("a"), || panic!("it was read before")), answer("a"));
    }

    #[test]
    fn what_is_in_a_blob_is_not_kept() {
        let turn = ReadTurn::default();
        let blob = Payload::Blob(crate::BlobRef { digest: "d".into(), size: 99_999, redacted: false });
        let asked = |turn| Asked { turn, ..Asked::default() };
        assert_eq!([1, 2].map(|number| turn.asked(&blob, || asked(number)).turn), [1, 2]);
    }
}

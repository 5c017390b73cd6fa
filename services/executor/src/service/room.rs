use prost::Message;

/// How many bytes an answer has, unless what is not a list alone has more.
pub(super) const MAX_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

/// The most bytes that an entry of a list takes beside its own.
const ENTRY_BYTES: usize = 8;

/// How many bytes of an answer are left.
pub(super) struct Room(usize);

impl Room {
    /// An answer without anything.
    pub(super) fn new() -> Self {
        Self(MAX_BYTES)
    }

    /// Whether nothing more fits.
    pub(super) fn is_full(&self) -> bool {
        self.0 == 0
    }

    /// Takes the room for a message. Returns whether there was enough; otherwise there is none from then on.
    pub(super) fn take(&mut self, message: &impl Message) -> bool {
        let left = self.0.checked_sub(message.encoded_len() + ENTRY_BYTES);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// The first of a list for which there is room, and how many are left out.
    pub(super) fn fill<M: Message>(&mut self, messages: impl ExactSizeIterator<Item = M>) -> (Vec<M>, i32) {
        let all = messages.len();
        let fit: Vec<M> = messages.take_while(|message| self.take(message)).collect();
        let left_out = i32::try_from(all - fit.len()).unwrap_or(i32::MAX);
        (fit, left_out)
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1;

    use super::*;

    #[test]
    fn an_answer_has_what_fits_and_counts_the_others() {
        let step = |length: usize| v1::SkippedStep { step_id: "s".repeat(length), ..v1::SkippedStep::default() };
        let mut room = Room(100);
        let (fit, left_out) = room.fill([10, 10, 200, 10].map(step).into_iter());
        assert_eq!((fit.len(), left_out, room.is_full()), (2, 2, true));
        let (none, left_out) = room.fill([1].map(step).into_iter());
        assert_eq!((none.len(), left_out), (0, 1), "nothing comes after what is left out");
    }
}

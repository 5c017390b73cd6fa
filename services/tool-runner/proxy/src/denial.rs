//! The answer to what is refused, or has failed.

/// A refusal, or a failure: the status of the answer, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) status: u16,
    pub(crate) message: String,
}

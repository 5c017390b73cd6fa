//! Requests to the approval gate, and the decisions that come back.

pub(crate) mod asks;
pub(crate) mod decisions;
pub(crate) mod form_request;
pub(crate) mod gate;
pub(crate) mod request_again;
pub(crate) mod unowned_decisions;

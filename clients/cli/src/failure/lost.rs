//! Requests that got no reply from a server.

use tonic::Status;

/// How a request was lost on its way, each with the cause.
#[derive(Debug)]
pub(super) enum LostRequest {
    /// No connection could be made for it.
    BeforeAsked(String),
    /// It was sent.
    BeforeAnswered(String),
}

impl LostRequest {
    /// Returns how a request was lost; `None` when a server rejected it. A status from a server has no source on this side.
    pub(super) fn of(status: &Status) -> Option<Self> {
        let (mut lost, mut cause) = (false, String::new());
        let mut source = std::error::Error::source(status);
        while let Some(error) = source {
            cause = error.to_string();
            if error.is::<tonic::ConnectError>() {
                return Some(Self::BeforeAsked(cause));
            }
            lost |= error.is::<tonic::transport::Error>();
            source = error.source();
        }
        lost.then_some(Self::BeforeAnswered(cause))
    }
}

//! Explains requests that were refused because of what this version does not know: see [`belay_proto::check`].

use std::error::Error as _;

use belay_proto::{
    check::{Problem, Refused},
    contract::{self, REVISION},
};
use belay_reasons as reasons;
use http::{HeaderValue, Response};
use tonic::{Code, Status, body::Body};

use crate::status;

/// The response with the details of a refused request, and with this version's revision. `peer` is the revision that the request announced.
pub(crate) fn respond(response: Response<Body>, peer: Option<&HeaderValue>) -> Response<Body> {
    let refused = response
        .extensions()
        .get::<Status>()
        .and_then(|status| status.source()?.downcast_ref::<Refused>())
        .map(|refused| explain(refused, peer.and_then(contract::announced)).into_http());
    let mut response = refused.unwrap_or(response);
    contract::announce(response.headers_mut());
    response
}

/// The status of a message that was refused because of what this version does not know. `client`: the revision that its sender has announced.
pub fn explain(refused: &Refused, client: Option<u32>) -> Status {
    let (field, fact) = (refused.field(), refused.to_string());
    let error = match refused.problem {
        Problem::UnknownField(number) => {
            let error = status::error(Code::InvalidArgument, reasons::UNKNOWN_FIELD, newer(&fact, client));
            error.with("field_number", number)
        }
        Problem::UnknownValue { number, .. } => {
            let error = status::error(Code::InvalidArgument, reasons::UNKNOWN_FIELD, newer(&fact, client));
            error.with("value", number)
        }
        Problem::Empty(_) => status::error(Code::InvalidArgument, reasons::INVALID_ARGUMENT, format!("{fact}.")),
        Problem::NothingOf { .. } => status::error(
            Code::InvalidArgument,
            reasons::INVALID_ARGUMENT,
            format!("The request is not complete: {fact}."),
        ),
        Problem::Malformed(_) => status::error(
            Code::InvalidArgument,
            reasons::MESSAGE_MALFORMED,
            format!("The message is not a valid request of this method: {fact}."),
        ),
    };
    let error = error.with("message", refused.message).with("server_contract", REVISION);
    let error = if let Some(client) = client { error.with("client_contract", client) } else { error };
    error.field(field, fact).into()
}

/// The fact that the server does not know, and what to do about it.
fn newer(fact: &str, client: Option<u32>) -> String {
    let why = match client {
        Some(client) if client > REVISION => {
            format!("The client's contract has revision {client} and the server's {REVISION}: upgrade the server")
        }
        Some(client) => format!(
            "The client announces revision {client} of the contract and the server has {REVISION}, which should know it: generate the client from the server's contract"
        ),
        None => format!(
            "The server's contract has revision {REVISION}, and the client does not announce its own (`{}`): upgrade the server, or generate the client from the server's contract",
            contract::NAME
        ),
    };
    format!("The request has what this server does not know: {fact}. {why}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(problem: Problem, client: Option<u32>) -> (Option<String>, String) {
        let refused = Refused { path: "plan.steps[1]".into(), message: "belay.v1.StepSpec", problem };
        let status = explain(&refused, client);
        assert_eq!(status.code(), Code::InvalidArgument);
        (status::reason(&status), status.message().to_owned())
    }

    #[test]
    fn a_newer_client_is_told_to_have_the_server_upgraded() {
        let (reason, message) = explained(Problem::UnknownField(16), Some(REVISION + 1));
        assert_eq!(reason.as_deref(), Some("UNKNOWN_FIELD"));
        let revisions = format!("The client's contract has revision {} and the server's {REVISION}", REVISION + 1);
        assert_eq!(
            message,
            format!(
                "The request has what this server does not know: `plan.steps[1]`: field 16 of belay.v1.StepSpec is not known. {revisions}: upgrade the server."
            )
        );
        let (_, message) = explained(Problem::UnknownField(16), Some(REVISION));
        assert!(message.ends_with("generate the client from the server's contract."), "{message}");
        let (_, message) = explained(Problem::UnknownField(16), None);
        assert!(message.contains("(`belay-contract`)"), "{message}");
    }

    #[test]
    fn incomplete_and_malformed_requests_have_their_own_reasons() {
        let (reason, message) = explained(Problem::NothingOf { oneof: "kind", members: vec!["tool"] }, None);
        assert_eq!(reason.as_deref(), Some("INVALID_ARGUMENT"));
        assert_eq!(message, "The request is not complete: `plan.steps[1]`: set `tool` (`kind` of belay.v1.StepSpec).");
        let (reason, _) = explained(Problem::Malformed("the bytes end within a field".into()), None);
        assert_eq!(reason.as_deref(), Some("MESSAGE_MALFORMED"));
    }
}

//! What servers say when they refuse a request.

use std::time::Duration;

use belay_model::{Failure, Refusal, refusal};

fn of(status: u16, body: &str) -> (Refusal, String) {
    match refusal(status, Some(Duration::from_secs(3)), body.as_bytes()) {
        Failure::Refused { refusal, message, status: said, retry_after } => {
            assert_eq!((said, retry_after), (status, Some(Duration::from_secs(3))));
            (refusal, message)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_refusal_has_its_kind_and_its_words() {
    let cases = [
        (
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
            Refusal::TooLong,
            "the request exceeds",
        ),
        (
            400,
            r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
            Refusal::TooLong,
            "8192",
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
            Refusal::TooLong,
            "210000",
        ),
        (400, r#"{"object":"error","message":"Unknown field"}"#, Refusal::Invalid, "Unknown field"),
        (422, r#"{"detail":"bad tools"}"#, Refusal::Invalid, "bad tools"),
        (401, r#"{"error":{"message":"Incorrect API key"}}"#, Refusal::Credential, "Incorrect"),
        (403, "", Refusal::Credential, "nothing more"),
        (404, r#"{"error":"model 'x' not found"}"#, Refusal::NotFound, "model 'x'"),
        (429, r#"{"error":{"message":"Rate limit"}}"#, Refusal::RateLimit, "Rate limit"),
        (503, r#"{"error":{"message":"Loading model","type":"unavailable_error"}}"#, Refusal::Overloaded, "Loading"),
        (529, "{}", Refusal::Overloaded, "{}"),
        (502, "<html><body>Bad Gateway", Refusal::Server, "an HTML page"),
        (500, "Internal\nerror", Refusal::Server, "Internal error"),
        (307, "", Refusal::Invalid, "nothing more"),
    ];
    for (status, body, kind, says) in cases {
        let (found, message) = of(status, body);
        assert_eq!(found, kind, "{status} {body}");
        assert!(message.contains(says), "{body}: {message}");
    }
    let transient = [Refusal::RateLimit, Refusal::Overloaded, Refusal::Server];
    for (_, _, kind, _) in cases {
        assert_eq!(kind.is_transient(), transient.contains(&kind), "{kind:?}");
    }
}

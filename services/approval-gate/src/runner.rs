//! What a held call is about, fetched from the runner that holds it: the gate believes nothing that it has not digested itself.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use belay_grant::{Subject, digest_of};
use belay_proto::v1::{
    self, get_effect_response::Content as Piece, tool_runner_service_client::ToolRunnerServiceClient,
};
use belay_reasons as reasons;
use belay_service_kit::{ServiceChannel, host::LARGEST_MESSAGE, status};
use thiserror::Error;
use tonic::{Code, Request, Status, metadata::MetadataValue};

use crate::{names::CallName, preview::Contents};

/// The longest subject that is taken, in bytes.
pub(crate) const LARGEST_SUBJECT: usize = 8 * 1024 * 1024;

/// How many bytes of contents are kept for one preview; what comes after them is not shown.
const LARGEST_CONTENTS: usize = 32 * 1024 * 1024;

/// How long a runner may take to hand everything over.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// A way to a tool runner.
#[derive(Clone)]
pub struct RunnerClient {
    client: ToolRunnerServiceClient<ServiceChannel>,
    authorization: Option<MetadataValue<tonic::metadata::Ascii>>,
}

/// A token that cannot stand in a header.
#[derive(Clone, Copy, Debug, Error)]
#[error("the runner's token holds characters that cannot be sent")]
pub struct BadToken;

impl RunnerClient {
    /// A runner behind a channel; `token` is shown with every request.
    ///
    /// # Errors
    /// [`BadToken`] when the token cannot stand in a header.
    pub fn new(channel: impl Into<ServiceChannel>, token: Option<&str>) -> Result<Self, BadToken> {
        let client = ToolRunnerServiceClient::new(channel.into()).max_decoding_message_size(LARGEST_MESSAGE);
        let authorization = token.map(|token| format!("Bearer {token}").parse().map_err(|_| BadToken)).transpose()?;
        Ok(Self { client, authorization })
    }

    /// What a call that waits at the runner is about.
    ///
    /// # Errors
    /// UNAVAILABLE when the runner does not answer, FAILED_PRECONDITION when it holds no such call.
    pub(crate) async fn held(&self, call: &str) -> Result<Held, Status> {
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, self.fetch(call)).await;
        fetched.unwrap_or_else(|_| Err(away("it took too long to say what the call is about")))
    }

    async fn fetch(&self, call: &str) -> Result<Held, Status> {
        let mut request = Request::new(v1::GetEffectRequest { name: call.to_owned() });
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        let mut stream =
            self.client.clone().get_effect(request).await.map_err(|status| refused(call, status))?.into_inner();
        let mut held = Held::default();
        while let Some(message) = stream.message().await.map_err(|status| refused(call, status))? {
            held.take(message);
        }
        Ok(held)
    }
}

fn away(why: &str) -> Status {
    let message = format!("The tool runner does not answer: {why}. Nothing was asked; try again.");
    status::error(Code::Unavailable, reasons::RUNNER_UNAVAILABLE, message).into()
}

/// Only what the runner itself says about the call is believed; what a proxy or the transport made up says nothing about it.
fn refused(call: &str, refusal: Status) -> Status {
    match (refusal.code(), status::reason(&refusal)) {
        (Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument, Some(_)) => {
            let message =
                format!("The tool runner holds no call `{call}` that waits for a decision: {}", refusal.message());
            status::error(Code::FailedPrecondition, reasons::CALL_NOT_HELD, message).with("call", call).into()
        }
        _ => away(refusal.message()),
    }
}

/// What a runner sent about a call, as it came.
#[derive(Debug, Default)]
pub(crate) struct Held {
    subject: Vec<u8>,
    /// By the digest that stands at them; whether all of it has come.
    contents: HashMap<String, (Vec<u8>, bool)>,
    kept: usize,
    too_large: bool,
}

impl Held {
    /// Takes the next piece. What is beyond the limits is counted, and not kept.
    pub(crate) fn take(&mut self, message: v1::GetEffectResponse) {
        match message.content {
            None => {}
            Some(Piece::Subject(bytes)) => {
                self.too_large |= self.subject.len() + bytes.len() > LARGEST_SUBJECT;
                if !self.too_large {
                    self.subject.extend(bytes);
                }
            }
            Some(Piece::Chunk(chunk)) => {
                // An empty piece under ever new names is something to keep as well.
                let weight = if self.contents.contains_key(&chunk.digest) { 0 } else { chunk.digest.len() };
                self.kept += weight + chunk.data.len();
                if self.kept > LARGEST_CONTENTS {
                    self.contents.remove(&chunk.digest);
                    return;
                }
                let (bytes, complete) = self.contents.entry(chunk.digest).or_default();
                bytes.extend(chunk.data);
                *complete |= chunk.last;
            }
        }
    }

    /// The subject, if it is the one that was asked about and belongs to the call, with its very bytes and the contents it names.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, saying what does not fit.
    pub(crate) fn verified(
        self,
        call: &CallName,
        subject_digest: &str,
    ) -> Result<(Subject, Vec<u8>, Contents), Status> {
        let refused = |reason, message: String| Status::from(status::error(Code::FailedPrecondition, reason, message));
        if self.too_large {
            let message = format!(
                "What the call is about takes more than {LARGEST_SUBJECT} bytes, which no person can review. Let the step change less at once."
            );
            return Err(refused(reasons::SUBJECT_TOO_LARGE, message));
        }
        let digest = digest_of(&self.subject);
        if digest != subject_digest {
            let message =
                format!("The runner holds the call with {digest}, and the question is about `{subject_digest}`.");
            return Err(Status::from(
                status::error(Code::FailedPrecondition, reasons::SUBJECT_CHANGED, message)
                    .with("subject_digest", digest),
            ));
        }
        let invalid = |why: String| {
            refused(reasons::SUBJECT_INVALID, format!("What the runner holds cannot be asked about: {why}."))
        };
        let subject = Subject::parse(&self.subject).map_err(|error| invalid(error.to_string()))?;
        if (&subject.execution, &subject.step) != (&call.execution, &call.step) {
            let of = format!("{}/steps/{}", subject.execution, subject.step);
            return Err(invalid(format!("it is about a call of {of}, not of {}/steps/{}", call.execution, call.step)));
        }
        let named: HashSet<&String> =
            subject.changes.iter().flat_map(|change| [&change.before, &change.after]).collect();
        let contents = self.contents.into_iter().filter(|(digest, (_, complete))| *complete && named.contains(digest));
        let mut verified = Contents::new();
        for (digest, (bytes, _)) in contents {
            let found = digest_of(&bytes);
            if found != digest {
                let message = format!(
                    "The runner sent a content as {digest} whose digest is {found}. No person is asked about what cannot be shown truly: \
                     look at the tool runner."
                );
                return Err(refused(reasons::CONTENT_MISMATCH, message));
            }
            verified.insert(digest, bytes);
        }
        let contents = verified;
        Ok((subject, self.subject, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "namespaces/default/executions/e/steps/s/calls/1.1";

    fn subject() -> Subject {
        let mut subject = crate::preview::tests::subject();
        let change = |path: &str, after: &[u8]| belay_grant::Change {
            path: path.into(),
            kind: belay_grant::ChangeKind::Created,
            before: String::new(),
            after: digest_of(after),
            what: "file 0644".into(),
            flags: Vec::new(),
        };
        subject.changes = vec![change("a", b"one"), change("b", b"two")];
        subject
    }

    fn piece(content: Piece) -> v1::GetEffectResponse {
        v1::GetEffectResponse { content: Some(content) }
    }

    fn chunk(digest: &str, data: &[u8], last: bool) -> v1::GetEffectResponse {
        piece(Piece::Chunk(v1::ContentChunk { digest: digest.to_owned(), data: data.to_vec(), last }))
    }

    fn sent(subject: &[u8], chunks: Vec<v1::GetEffectResponse>) -> Held {
        let mut held = Held::default();
        subject.chunks(100).for_each(|bytes| held.take(piece(Piece::Subject(bytes.to_vec()))));
        chunks.into_iter().for_each(|chunk| held.take(chunk));
        held
    }

    fn reason(held: Held, call: &str, digest: &str) -> String {
        let refusal = held.verified(&CallName::parse("call", call).unwrap(), digest).unwrap_err();
        assert_eq!(refusal.code(), Code::FailedPrecondition);
        status::reason(&refusal).unwrap()
    }

    /// B-03: what is stored and shown is what was digested here.
    #[test]
    fn pieces_become_the_subject_and_contents_that_fit_their_digests() {
        let (bytes, digest) = (subject().canonical_bytes(), subject().digest());
        let held = sent(
            &bytes,
            vec![
                chunk(&digest_of(b"one"), b"on", false),
                chunk(&digest_of(b"two"), b"two", true),
                chunk(&digest_of(b"one"), b"e", true),
                chunk(&digest_of(b"three"), b"three", true),
            ],
        );
        let (parsed, kept, contents) = held.verified(&CallName::parse("call", CALL).unwrap(), &digest).unwrap();
        assert_eq!((parsed, kept), (subject(), bytes));
        let expected = [(digest_of(b"one"), b"one".to_vec()), (digest_of(b"two"), b"two".to_vec())];
        assert_eq!(contents, Contents::from(expected), "what the subject does not name is not kept");
    }

    /// B-03: a content that does not match its digest makes no approval, not one with a note.
    #[test]
    fn a_forged_content_is_refused() {
        let held = sent(&subject().canonical_bytes(), vec![chunk(&digest_of(b"two"), b"2", true)]);
        assert_eq!(reason(held, CALL, &subject().digest()), "CONTENT_MISMATCH");
    }

    #[test]
    fn what_was_not_sent_to_its_end_is_not_shown() {
        let held = sent(&subject().canonical_bytes(), vec![chunk(&digest_of(b"one"), b"one", false)]);
        let (_, _, contents) = held.verified(&CallName::parse("call", CALL).unwrap(), &subject().digest()).unwrap();
        assert!(contents.is_empty());
    }

    #[test]
    fn another_subject_than_was_asked_about_is_refused() {
        let (bytes, digest) = (subject().canonical_bytes(), subject().digest());
        assert_eq!(reason(sent(&bytes, vec![]), CALL, "sha256:00"), "SUBJECT_CHANGED");
        assert_eq!(reason(sent(&bytes[1..], vec![]), CALL, &digest), "SUBJECT_CHANGED");
        assert_eq!(reason(sent(b"", vec![]), CALL, &digest), "SUBJECT_CHANGED");
        assert_eq!(reason(sent(b"{}", vec![]), CALL, &digest_of(b"{}")), "SUBJECT_INVALID");
        let spaced = String::from_utf8(bytes.clone()).unwrap().replace("\":", "\": ").into_bytes();
        assert_eq!(reason(sent(&spaced, vec![]), CALL, &digest_of(&spaced)), "SUBJECT_INVALID", "another spelling");
        for other in [
            "namespaces/default/executions/e/steps/t/calls/1.1",
            "namespaces/default/executions/f/steps/s/calls/1.1",
            "namespaces/other/executions/e/steps/s/calls/1.1",
        ] {
            assert_eq!(reason(sent(&bytes, vec![]), other, &digest), "SUBJECT_INVALID", "{other}");
        }
    }

    /// B-09: nothing grows without an end.
    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut held = Held::default();
        for _ in 0..9 {
            held.take(piece(Piece::Subject(vec![b' '; 1024 * 1024])));
        }
        assert!(held.subject.len() <= LARGEST_SUBJECT);
        assert_eq!(reason(held, CALL, "sha256:00"), "SUBJECT_TOO_LARGE");

        let mut held = Held::default();
        for n in 0..40 {
            held.take(chunk(&n.to_string(), &vec![0; 1024 * 1024], false));
            held.take(chunk(&n.to_string(), &[], true));
        }
        assert!(held.contents.values().map(|(bytes, _)| bytes.len()).sum::<usize>() <= LARGEST_CONTENTS);
        assert!(held.contents.len() < 33, "{}", held.contents.len());
    }

    #[test]
    fn only_the_runner_s_own_word_is_a_refusal() {
        let ours = |code, reason| refused(CALL, status::error(code, reason, "no").into());
        assert_eq!(status::reason(&ours(Code::NotFound, "CALL_NOT_FOUND")).as_deref(), Some("CALL_NOT_HELD"));
        assert_eq!(ours(Code::Unavailable, "RUNNER_STOPPING").code(), Code::Unavailable);
        for code in [Code::NotFound, Code::Unauthenticated, Code::Internal] {
            let foreign = refused(CALL, Status::new(code, "h2"));
            assert_eq!(status::reason(&foreign).as_deref(), Some("RUNNER_UNAVAILABLE"), "{code:?}");
        }
    }
}

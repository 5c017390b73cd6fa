//! Fetches the subject of a call that waits for approval from the runner. The gate trusts only bytes that it has digested itself.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use belay_grant::{Subject, digest_of};
use belay_proto::runner_v1::{
    self, get_effect_response::Content as Piece, tool_runner_service_client::ToolRunnerServiceClient,
};
use belay_reasons as reasons;
use belay_service_kit::{ServiceChannel, host::MAX_MESSAGE_BYTES, status};
use thiserror::Error;
use tonic::{Code, Request, Status, metadata::MetadataValue};

use crate::{names::CallName, preview::Contents};

/// The maximum size of a subject, in bytes.
pub(crate) const MAX_SUBJECT_BYTES: usize = 8 * 1024 * 1024;

/// The maximum size of the contents kept for one preview, in bytes; further contents are not shown.
const MAX_CONTENT_BYTES: usize = 32 * 1024 * 1024;

/// The timeout for fetching a subject with its contents.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of a tool runner.
#[derive(Clone)]
pub struct RunnerClient {
    client: ToolRunnerServiceClient<ServiceChannel>,
    authorization: Option<MetadataValue<tonic::metadata::Ascii>>,
}

/// The token is not valid in an HTTP header.
#[derive(Clone, Copy, Debug, Error)]
#[error("the runner's token contains characters that are not allowed in a header")]
pub struct InvalidToken;

impl RunnerClient {
    /// A client on a channel; it sends `token` with every request.
    ///
    /// # Errors
    /// [`InvalidToken`] when the token is not valid in a header.
    pub fn new(channel: impl Into<ServiceChannel>, token: Option<&str>) -> Result<Self, InvalidToken> {
        let client = ToolRunnerServiceClient::new(channel.into()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let authorization =
            token.map(|token| format!("Bearer {token}").parse().map_err(|_| InvalidToken)).transpose()?;
        Ok(Self { client, authorization })
    }

    /// Fetches the subject and contents of a call that waits for approval at the runner.
    ///
    /// # Errors
    /// UNAVAILABLE when the runner does not respond, FAILED_PRECONDITION when it has no such call.
    pub(crate) async fn held(&self, call: &str) -> Result<RunnerAnswer, Status> {
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, self.fetch(call)).await;
        fetched.unwrap_or_else(|_| Err(away("it did not send the call's subject in time")))
    }

    async fn fetch(&self, call: &str) -> Result<RunnerAnswer, Status> {
        let mut request = Request::new(runner_v1::GetEffectRequest { name: call.to_owned() });
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        let mut stream =
            self.client.clone().get_effect(request).await.map_err(|status| refused(call, status))?.into_inner();
        let mut held = RunnerAnswer::default();
        while let Some(message) = stream.message().await.map_err(|status| refused(call, status))? {
            held.take(message);
        }
        Ok(held)
    }
}

fn away(why: &str) -> Status {
    let message = format!("The tool runner is not available: {why}. No approval was created; retry.");
    status::error(Code::Unavailable, reasons::RUNNER_UNAVAILABLE, message).into()
}

/// Accepts only errors of the runner itself as statements about the call; errors of a proxy or of the transport mean that it is unavailable.
fn refused(call: &str, refusal: Status) -> Status {
    match (refusal.code(), status::reason(&refusal)) {
        (Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument, Some(_)) => {
            let message =
                format!("The tool runner has no call `{call}` that waits for approval: {}", refusal.message());
            status::error(Code::FailedPrecondition, reasons::CALL_NOT_HELD, message).with("call", call).into()
        }
        _ => away(refusal.message()),
    }
}

/// A runner's answer about a call, not verified yet.
#[derive(Debug, Default)]
pub(crate) struct RunnerAnswer {
    subject: Vec<u8>,
    /// Contents by the digest that the runner claims, and whether each is complete.
    contents: HashMap<String, (Vec<u8>, bool)>,
    kept: usize,
    too_large: bool,
}

impl RunnerAnswer {
    /// Adds the next piece. Bytes beyond the limits are counted, and dropped.
    pub(crate) fn take(&mut self, message: runner_v1::GetEffectResponse) {
        match message.content {
            None => {}
            Some(Piece::Subject(bytes)) => {
                self.too_large |= self.subject.len() + bytes.len() > MAX_SUBJECT_BYTES;
                if !self.too_large {
                    self.subject.extend(bytes);
                }
            }
            Some(Piece::Chunk(chunk)) => {
                // Empty pieces under many names take memory as well.
                let weight = if self.contents.contains_key(&chunk.digest) { 0 } else { chunk.digest.len() };
                self.kept += weight + chunk.data.len();
                if self.kept > MAX_CONTENT_BYTES {
                    self.contents.remove(&chunk.digest);
                    return;
                }
                let (bytes, complete) = self.contents.entry(chunk.digest).or_default();
                bytes.extend(chunk.data);
                *complete |= chunk.last;
            }
        }
    }

    /// Returns the subject, its bytes and its contents, after verifying that it has the requested digest and belongs to the call.
    ///
    /// # Errors
    /// FAILED_PRECONDITION, with what does not match.
    pub(crate) fn verified(
        self,
        call: &CallName,
        subject_digest: &str,
    ) -> Result<(Subject, Vec<u8>, Contents), Status> {
        let refused = |reason, message: String| Status::from(status::error(Code::FailedPrecondition, reason, message));
        if self.too_large {
            let message = format!(
                "The call's subject has more than {MAX_SUBJECT_BYTES} bytes, which no person can review. Let the step change less at once."
            );
            return Err(refused(reasons::SUBJECT_TOO_LARGE, message));
        }
        let digest = digest_of(&self.subject);
        if digest != subject_digest {
            let message = format!(
                "The runner's subject of the call has the digest {digest}, and the request names `{subject_digest}`."
            );
            return Err(Status::from(
                status::error(Code::FailedPrecondition, reasons::SUBJECT_CHANGED, message)
                    .with("subject_digest", digest),
            ));
        }
        let invalid = |why: String| {
            refused(reasons::SUBJECT_INVALID, format!("The runner's subject of the call is not valid: {why}."))
        };
        let subject = Subject::parse(&self.subject).map_err(|error| invalid(error.to_string()))?;
        if (&subject.execution, &subject.step) != (&call.execution, &call.step) {
            let of = format!("{}/steps/{}", subject.execution, subject.step);
            return Err(invalid(format!("it is about a call of {of}, not of {}/steps/{}", call.execution, call.step)));
        }
        let of_changes = subject.changes.iter().flat_map(|change| [&change.before, &change.after, &change.path_digest]);
        let named: HashSet<&String> = of_changes.chain(subject.hidden.iter().map(|hidden| &hidden.digest)).collect();
        let contents = self.contents.into_iter().filter(|(digest, (_, complete))| *complete && named.contains(digest));
        let mut verified = Contents::new();
        for (digest, (bytes, _)) in contents {
            let found = digest_of(&bytes);
            if found != digest {
                let message = format!(
                    "The runner sent a content under {digest} whose digest is {found}. No approval is created, because its preview could be false: \
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
            path_digest: String::new(),
            kind: belay_grant::ChangeKind::Created,
            gravity: belay_grant::Gravity::Created,
            protection: String::new(),
            before: String::new(),
            after: digest_of(after),
            what: "file 0644".into(),
            folder: None,
            flags: Vec::new(),
        };
        subject.changes = vec![change("a", b"one"), change("b", b"two")];
        subject
    }

    fn piece(content: Piece) -> runner_v1::GetEffectResponse {
        runner_v1::GetEffectResponse { content: Some(content) }
    }

    fn chunk(digest: &str, data: &[u8], last: bool) -> runner_v1::GetEffectResponse {
        piece(Piece::Chunk(runner_v1::ContentChunk { digest: digest.to_owned(), data: data.to_vec(), last }))
    }

    fn sent(subject: &[u8], chunks: Vec<runner_v1::GetEffectResponse>) -> RunnerAnswer {
        let mut held = RunnerAnswer::default();
        subject.chunks(100).for_each(|bytes| held.take(piece(Piece::Subject(bytes.to_vec()))));
        chunks.into_iter().for_each(|chunk| held.take(chunk));
        held
    }

    fn reason(held: RunnerAnswer, call: &str, digest: &str) -> String {
        let refusal = held.verified(&CallName::parse("call", call).unwrap(), digest).unwrap_err();
        assert_eq!(refusal.code(), Code::FailedPrecondition);
        status::reason(&refusal).unwrap()
    }

    /// B-03: the gate stores and shows the bytes that it has digested.
    #[test]
    fn pieces_become_the_subject_and_the_contents_with_matching_digests() {
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
        assert_eq!(contents, Contents::from(expected), "contents that the subject does not name are dropped");
    }

    /// B-03: a content that does not match its digest makes no approval, not one with a note.
    #[test]
    fn a_forged_content_is_refused() {
        let held = sent(&subject().canonical_bytes(), vec![chunk(&digest_of(b"two"), b"2", true)]);
        assert_eq!(reason(held, CALL, &subject().digest()), "CONTENT_MISMATCH");
    }

    #[test]
    fn an_incomplete_content_is_not_shown() {
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

    /// B-09: memory is bounded.
    #[test]
    fn received_contents_are_bounded() {
        let mut held = RunnerAnswer::default();
        for _ in 0..9 {
            held.take(piece(Piece::Subject(vec![b' '; 1024 * 1024])));
        }
        assert!(held.subject.len() <= MAX_SUBJECT_BYTES);
        assert_eq!(reason(held, CALL, "sha256:00"), "SUBJECT_TOO_LARGE");

        let mut held = RunnerAnswer::default();
        for n in 0..40 {
            held.take(chunk(&n.to_string(), &vec![0; 1024 * 1024], false));
            held.take(chunk(&n.to_string(), &[], true));
        }
        assert!(held.contents.values().map(|(bytes, _)| bytes.len()).sum::<usize>() <= MAX_CONTENT_BYTES);
        assert!(held.contents.len() < 33, "{}", held.contents.len());
    }

    #[test]
    fn only_an_error_of_the_runner_itself_is_a_refusal() {
        let ours = |code, reason| refused(CALL, status::error(code, reason, "no").into());
        assert_eq!(status::reason(&ours(Code::NotFound, "CALL_NOT_FOUND")).as_deref(), Some("CALL_NOT_HELD"));
        assert_eq!(ours(Code::Unavailable, "RUNNER_STOPPING").code(), Code::Unavailable);
        for code in [Code::NotFound, Code::Unauthenticated, Code::Internal] {
            let foreign = refused(CALL, Status::new(code, "h2"));
            assert_eq!(status::reason(&foreign).as_deref(), Some("RUNNER_UNAVAILABLE"), "{code:?}");
        }
    }
}

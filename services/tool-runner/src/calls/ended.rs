//! How a call ended, with its result apart from the messages about it when it is too large for them.

use std::{mem, sync::Arc};

use belay_grant::digest_of;
use belay_proto::{
    payload::JSON_MEDIA_TYPE,
    runner_v1,
    v1::{BlobRef, payload::Content},
};

/// A call that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedCall {
    /// The part that every caller gets.
    pub(crate) call: Arc<runner_v1::ToolCall>,
    blob: Option<Arc<Blob>>,
}

/// A result that messages have a reference to.
#[derive(Debug)]
pub(crate) struct Blob {
    /// `sha256:` and 64 hexadecimal digits.
    pub(crate) digest: String,
    json: String,
}

impl Blob {
    /// The JSON text.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.json.as_bytes()
    }
}

impl EndedCall {
    /// A call with its result inline. One of more than `max_inline` bytes becomes a blob.
    pub(super) fn new(mut call: runner_v1::ToolCall, max_inline: usize) -> Self {
        let content = call.result.as_mut().and_then(|result| result.content.as_mut());
        let blob = content.and_then(|content| match content {
            Content::Json(json) if json.len() > max_inline => {
                let json = mem::take(json);
                let digest = digest_of(json.as_bytes());
                *content = Content::Blob(BlobRef {
                    digest: digest.clone(),
                    size_bytes: i64::try_from(json.len()).expect("it is in memory"),
                    media_type: JSON_MEDIA_TYPE.into(),
                    redacted: false,
                });
                Some(Arc::new(Blob { digest, json }))
            }
            Content::Json(_) | Content::Blob(_) => None,
        });
        Self { call: Arc::new(call), blob }
    }

    /// A call that did not complete.
    pub(super) fn without_result(call: runner_v1::ToolCall) -> Self {
        Self { call: Arc::new(call), blob: None }
    }

    pub(super) fn blob(&self) -> Option<&Arc<Blob>> {
        self.blob.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::Payload;

    use super::*;

    fn ended(json: &str, max_inline: usize) -> EndedCall {
        let call = runner_v1::ToolCall { result: Some(Payload::of_json(json)), ..Default::default() };
        EndedCall::new(call, max_inline)
    }

    #[test]
    fn a_result_above_the_limit_is_a_reference() {
        let inline = ended("\"1234\"", 6);
        assert_eq!(inline.call.result, Some(Payload::of_json("\"1234\"")));
        assert!(inline.blob().is_none());

        let large = ended("\"1234\"", 5);
        let Some(Content::Blob(reference)) = large.call.result.clone().unwrap().content else { panic!("{large:?}") };
        let blob = large.blob().unwrap();
        assert_eq!((blob.bytes(), reference.size_bytes), (&b"\"1234\""[..], 6));
        assert_eq!((&reference.digest, digest_of(b"\"1234\"")), (&blob.digest, blob.digest.clone()));
        assert!(ended("0", 0).blob().is_some());
        assert!(EndedCall::new(runner_v1::ToolCall::default(), 0).blob().is_none(), "it has no result");
    }
}

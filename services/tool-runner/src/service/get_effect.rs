use belay_proto::runner_v1::{self, get_effect_response::Content};
use futures::stream;
use tonic::Status;

use super::{checks::check_name, follow::Messages};
use crate::{Calls, ledger::PendingApproval};

/// The largest chunk, in bytes.
const MAX_CHUNK_BYTES: usize = 64 << 10;

pub(super) async fn get_effect(
    calls: &Calls,
    request: &runner_v1::GetEffectRequest,
) -> Result<Messages<runner_v1::GetEffectResponse>, Status> {
    check_name(&request.name)?;
    let pending = calls.effect_of(&request.name).await?;
    Ok(Box::pin(stream::iter(
        chunks(pending).map(|content| Ok(runner_v1::GetEffectResponse { content: Some(content) })),
    )))
}

fn chunks(pending: PendingApproval) -> impl Iterator<Item = Content> {
    let subject = cut(pending.subject).map(|(bytes, _)| Content::Subject(bytes));
    let contents = pending.contents.into_iter().flat_map(|content| {
        let digest = content.digest;
        cut(content.data)
            .map(move |(data, last)| Content::Chunk(runner_v1::ContentChunk { digest: digest.clone(), data, last }))
    });
    subject.chain(contents)
}

/// Splits bytes into at least one chunk, each with whether it is the last.
fn cut(mut bytes: Vec<u8>) -> impl Iterator<Item = (Vec<u8>, bool)> {
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let rest = bytes.split_off(bytes.len().min(MAX_CHUNK_BYTES));
        let chunk = std::mem::replace(&mut bytes, rest);
        ended = bytes.is_empty();
        Some((chunk, ended))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_content_has_a_last_chunk() {
        let lengths = |length: usize| cut(vec![7; length]).map(|(chunk, last)| (chunk.len(), last)).collect::<Vec<_>>();
        assert_eq!(lengths(0), [(0, true)]);
        assert_eq!(lengths(MAX_CHUNK_BYTES), [(MAX_CHUNK_BYTES, true)]);
        assert_eq!(lengths(2 * MAX_CHUNK_BYTES + 1), [(MAX_CHUNK_BYTES, false), (MAX_CHUNK_BYTES, false), (1, true)]);
    }
}

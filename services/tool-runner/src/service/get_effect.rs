use belay_proto::v1::{self, get_effect_response::Content};
use futures::stream;
use tonic::Status;

use super::{Messages, attempt_of};
use crate::{Calls, ledger::Held};

/// The longest piece, in bytes.
const PIECE: usize = 64 << 10;

pub(super) async fn get_effect(
    calls: &Calls,
    request: &v1::GetEffectRequest,
) -> Result<Messages<v1::GetEffectResponse>, Status> {
    attempt_of(&request.name)?;
    let held = calls.effect_of(&request.name).await?;
    Ok(Box::pin(stream::iter(pieces(held).map(|content| Ok(v1::GetEffectResponse { content: Some(content) })))))
}

fn pieces(held: Held) -> impl Iterator<Item = Content> {
    let subject = cut(held.subject).map(|(bytes, _)| Content::Subject(bytes));
    let contents = held.contents.into_iter().flat_map(|content| {
        let digest = content.digest;
        cut(content.data)
            .map(move |(data, last)| Content::Chunk(v1::ContentChunk { digest: digest.clone(), data, last }))
    });
    subject.chain(contents)
}

/// Bytes in pieces, of which there is at least one, with whether each is the last.
fn cut(mut bytes: Vec<u8>) -> impl Iterator<Item = (Vec<u8>, bool)> {
    let mut ended = false;
    std::iter::from_fn(move || {
        if ended {
            return None;
        }
        let rest = bytes.split_off(bytes.len().min(PIECE));
        let piece = std::mem::replace(&mut bytes, rest);
        ended = bytes.is_empty();
        Some((piece, ended))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_content_has_a_last_piece() {
        let lengths = |length: usize| cut(vec![7; length]).map(|(piece, last)| (piece.len(), last)).collect::<Vec<_>>();
        assert_eq!(lengths(0), [(0, true)]);
        assert_eq!(lengths(PIECE), [(PIECE, true)]);
        assert_eq!(lengths(2 * PIECE + 1), [(PIECE, false), (PIECE, false), (1, true)]);
    }
}

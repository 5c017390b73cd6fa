use std::sync::Arc;

use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::{Principal, check_decides, status};
use tonic::{Code, Status};

use super::list_approval_changes::{no_changes, page_size, page_start};
use crate::{
    Gate, decide,
    gate::{no_approval, unreadable, unwritable},
    names::{CallName, check_approval},
    preview::{OpenedSubject, revealed_call, revealed_file, whole_file},
};

/// The maximum size of a page, in bytes. A longer line is split across pages.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

pub(super) async fn get_approval_change(
    gate: &Gate,
    by: &Principal,
    request: v1::GetApprovalChangeRequest,
) -> Result<v1::GetApprovalChangeResponse, Status> {
    check_approval("name", &request.name)?;
    if request.reveal {
        check_decides(by, "Revealing what is hidden in an approval")?;
    }
    let lines = page_size(request.page_size)?;
    let start = page_start(&request.page_token)?;
    let contents = contents(gate, &request.name).await?;
    let redactor = gate.redactor.clone();
    if request.of_call {
        return get_call(gate, by, &request, contents).await;
    }
    let place = usize::try_from(request.index)
        .map_err(|_| Status::from(status::invalid("index", "is the `index` of a change, from 0 on")))?;
    if request.reveal
        && let Some(change) = contents.change(place)
    {
        let digest = if change.after.is_empty() { &change.before } else { &change.after };
        let reveal = v1::Reveal { index: request.index, digest: digest.clone(), ..v1::Reveal::default() };
        note_reveal(gate, by, &request.name, reveal).await?;
    }
    let reveal = request.reveal;
    let find = move || {
        let change = (place, contents.change(place)?);
        Some(match reveal {
            true => revealed_file(change, &contents.contents),
            false => whole_file(&redactor, change, &contents.contents),
        })
    };
    let Some(whole) = gate.store.work(find).await else {
        let message = format!("`{}` has no change {place}: its changes are counted from 0.", request.name);
        return Err(status::error(Code::NotFound, reasons::CHANGE_NOT_FOUND, message)
            .with("index", place.to_string())
            .into());
    };
    let (page, next_page_token) = page(&whole.unified, start, lines)
        .ok_or_else(|| Status::from(status::invalid("page_token", "is beyond the end of the difference")))?;
    let unified = page.to_owned();
    let change = Some(v1::FileDiff { unified, ..whole });
    Ok(v1::GetApprovalChangeResponse { change, next_page_token, ..v1::GetApprovalChangeResponse::default() })
}

/// The words of the call itself, with nothing of them hidden.
async fn get_call(
    gate: &Gate,
    by: &Principal,
    request: &v1::GetApprovalChangeRequest,
    contents: Arc<OpenedSubject>,
) -> Result<v1::GetApprovalChangeResponse, Status> {
    if !request.reveal {
        return Err(
            status::invalid("of_call", "needs `reveal`: the approval's preview has the call as it is shown").into()
        );
    }
    // Also where the runner has hidden nothing: the gate hides by rules of its own.
    let hidden = contents.subject.hidden.as_ref().map(|hidden| &hidden.digest);
    let digest = hidden.unwrap_or(&contents.subject.arguments_digest).clone();
    note_reveal(gate, by, &request.name, v1::Reveal { of_call: true, digest, ..v1::Reveal::default() }).await?;
    let revealed = gate.store.work(move || revealed_call(&contents.subject, &contents.contents)).await;
    let (headline, working_directory) = revealed.map_err(|error| {
        let message = format!("The runner's words of the call are not valid: {error}. Look at the tool runner.");
        Status::from(status::error(Code::FailedPrecondition, reasons::SUBJECT_INVALID, message))
    })?;
    Ok(v1::GetApprovalChangeResponse { headline, working_directory, ..v1::GetApprovalChangeResponse::default() })
}

/// Keeps who is about to be shown what is hidden, before it is shown: `reveal` without its principal and its time.
async fn note_reveal(gate: &Gate, by: &Principal, name: &str, reveal: v1::Reveal) -> Result<(), Status> {
    let now = gate.clock.now_micros();
    let (index, of_call) = (reveal.index, reveal.of_call);
    let reveal = v1::Reveal { principal: by.to_string(), reveal_time: Some(belay_proto::timestamp(now)), ..reveal };
    let noted = gate.store.change(name, now, None, move |approval| decide::reveal(approval, reveal));
    let approval = noted.await.map_err(|error| unwritable(&error))??.ok_or_else(|| no_approval(name))?;
    tracing::info!(approval = approval.name, index, of_call, by = %by, "A hidden part of an approval is revealed");
    Ok(())
}

/// The contents of an approval, from the runner, verified against the digests in its subject. The contents of the last approval are cached,
/// because clients read them file by file and page by page.
async fn contents(gate: &Gate, name: &str) -> Result<Arc<OpenedSubject>, Status> {
    let mut opened = gate.opened.lock().await;
    if let Some(last) = opened.as_ref().filter(|last| last.name == name) {
        return Ok(Arc::clone(last));
    }
    let approval = gate.store.get(name).await.map_err(|error| unreadable(&error))?;
    let approval = approval.ok_or_else(|| no_approval(name))?;
    if approval.kind() == v1::approval_need::Kind::Form {
        return Err(no_changes(name));
    }
    let call = CallName::parse("call", &approval.call)?;
    let held = gate.runner.held(&approval.call).await.map_err(|refused| match refused.code() {
        Code::FailedPrecondition => no_contents(name),
        _ => refused,
    })?;
    let (subject, _, contents) = held.verified(&call, &approval.subject_digest)?;
    let fresh = Arc::new(OpenedSubject::new(name.to_owned(), subject, contents));
    *opened = Some(Arc::clone(&fresh));
    Ok(fresh)
}

/// The page that begins at a byte offset, and the token of the next one; `None` when the offset is beyond the text.
fn page(text: &str, start: usize, lines: usize) -> Option<(&str, String)> {
    let rest = text.get(start..)?;
    let by_lines = rest.match_indices('\n').nth(lines.saturating_sub(1)).map_or(rest.len(), |(end, _)| end + 1);
    let mut end = by_lines;
    if end > MAX_PAGE_BYTES {
        let most = rest.floor_char_boundary(MAX_PAGE_BYTES);
        end = rest[..most].rfind('\n').map_or(most, |end| end + 1);
    }
    let next = if end < rest.len() { (start + end).to_string() } else { String::new() };
    Some((&rest[..end], next))
}

fn no_contents(name: &str) -> Status {
    let message = format!(
        "`{name}` was already decided, and the contents are no longer available. The approval's preview keeps what was shown."
    );
    status::error(Code::FailedPrecondition, reasons::CONTENTS_GONE, message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-18: the pages are the whole, whatever their size.
    #[test]
    fn pages_add_up_to_the_whole() {
        let texts = [String::new(), "a\nb\nc\n".into(), "ä".repeat(MAX_PAGE_BYTES), "x\n".repeat(MAX_PAGE_BYTES)];
        for text in texts {
            for lines in [1_000, 100_000, usize::MAX] {
                let (mut whole, mut start, mut pages) = (String::new(), 0, 0);
                loop {
                    let (piece, next) = page(&text, start, lines).unwrap();
                    assert!(piece.len() <= MAX_PAGE_BYTES);
                    whole.push_str(piece);
                    pages += 1;
                    if next.is_empty() {
                        break;
                    }
                    start = next.parse().unwrap();
                }
                assert!(whole == text, "{} bytes in {pages} pages", text.len());
            }
        }
        assert_eq!(page("a\nb\n", 0, 1), Some(("a\n", "2".into())));
        assert_eq!(page("ä", 1, 1), None);
        assert_eq!(page("a", 9, 1), None);
    }
}

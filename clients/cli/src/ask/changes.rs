//! Pages through everything that an approval would change: every path, and every line of every difference.

use belay_proto::v1::{
    Approval, FileDiff, GetApprovalChangeRequest, ListApprovalChangesRequest, PathChange, approval_need,
};
use belay_reasons as reasons;
use tonic::Status;
use tonic_types::StatusExt as _;

use crate::{
    connect::Gate,
    failure::{Failure, Report},
    render::diff::hides,
};

/// Lines of one page of a difference.
const PAGE_LINES: i32 = 5_000;

/// Every path, the gravest first.
pub(crate) async fn list(gate: &mut Gate, name: &str) -> Result<Vec<PathChange>, Failure> {
    let (mut changes, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListApprovalChangesRequest { name: name.to_owned(), page_size: 10_000, page_token };
        let page = gate.list_approval_changes(request).await?.into_inner();
        changes.extend(page.changes);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(changes);
        }
    }
}

/// The whole difference in one file: the change of this index. With `reveal` as it is, when something of it is hidden.
pub(crate) async fn file(gate: &mut Gate, name: &str, index: i32, reveal: bool) -> Result<FileDiff, Status> {
    let shown = pages(gate, name, index, false).await?;
    match reveal && hides(&shown) {
        true => pages(gate, name, index, true).await,
        false => Ok(shown),
    }
}

async fn pages(gate: &mut Gate, name: &str, index: i32, reveal: bool) -> Result<FileDiff, Status> {
    let (mut whole, mut page_token) = (None::<FileDiff>, String::new());
    loop {
        let request = GetApprovalChangeRequest {
            name: name.to_owned(),
            index,
            page_size: PAGE_LINES,
            page_token,
            reveal,
            of_call: false,
        };
        let page = gate.get_approval_change(request).await?.into_inner();
        let part = page.change.unwrap_or_default();
        match &mut whole {
            None => whole = Some(part),
            Some(whole) => whole.unified.push_str(&part.unified),
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(whole.unwrap_or_default());
        }
    }
}

/// Replaces the words of the call by what they are, when something of them is hidden. Those of a decided approval no longer exist: what was shown stays.
pub(crate) async fn reveal_call(gate: &mut Gate, approval: &mut Approval) -> Result<(), Failure> {
    let Some(preview) = approval.preview.as_mut().filter(|preview| preview.hidden_values > 0) else { return Ok(()) };
    let request = GetApprovalChangeRequest {
        name: approval.name.clone(),
        reveal: true,
        of_call: true,
        ..GetApprovalChangeRequest::default()
    };
    match gate.get_approval_change(request).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            (preview.headline, preview.working_directory) = (answer.headline, answer.working_directory);
            (preview.hidden_values, preview.hidden_note) = (0, String::new());
            Ok(())
        }
        Err(gone) if is_gone(&gone) => Ok(()),
        Err(status) => Err(status.into()),
    }
}

/// The whole difference in each file that is listed under this path, which may be given as it is or as it is shown: several where paths with secrets read
/// alike.
pub(crate) async fn at(gate: &mut Gate, name: &str, path: &str, reveal: bool) -> Result<Vec<FileDiff>, Failure> {
    let listed = list(gate, name).await?;
    let (mut files, shown) = (Vec::new(), belay_text::visible(path));
    for change in listed.into_iter().filter(|change| change.path == path || change.path == shown) {
        files.push(file(gate, name, change.index, reveal).await?);
    }
    if files.is_empty() {
        let id = name.rsplit('/').next().unwrap_or(name);
        let message = format!("Approval `{id}` does not change `{path}`.");
        return Err(Report::new(reasons::CHANGE_NOT_FOUND, message)
            .next(format!("belay approvals show {id} --all"))
            .into());
    }
    Ok(files)
}

/// Replaces the preview by every change with its whole difference. The contents of a decided approval no longer exist: it gets every path,
/// and the differences that the preview has.
pub(crate) async fn complete(gate: &mut Gate, approval: &mut Approval, reveal: bool) -> Result<(), Failure> {
    if approval.kind() != approval_need::Kind::Effect {
        return Ok(());
    }
    let mut files = Vec::new();
    let shown = approval.preview.take().unwrap_or_default();
    for change in list(gate, &approval.name).await? {
        let whole = match file(gate, &approval.name, change.index, reveal).await {
            Ok(whole) => whole,
            Err(gone) if is_gone(&gone) => shown
                .files
                .iter()
                .find(|file| file.change.as_ref().is_some_and(|shown| shown.index == change.index && file.count == 0))
                .cloned()
                .unwrap_or_else(|| FileDiff { change: Some(change), ..FileDiff::default() }),
            Err(status) => return Err(status.into()),
        };
        files.push(whole);
    }
    approval.preview = Some(belay_proto::v1::Preview { files, more_files: 0, ..shown });
    Ok(())
}

/// Whether the gate says that the contents no longer exist.
fn is_gone(status: &Status) -> bool {
    status.get_details_error_info().is_some_and(|info| info.reason == reasons::CONTENTS_GONE)
}

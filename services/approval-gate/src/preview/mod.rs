//! What a person is shown before deciding: made from the subject's bytes and from contents that fit the digests in them, and from nothing
//! else. A caller cannot have a false picture shown beside a true digest.
//!
//! Pure. Every text in a preview has gone through [`text::visible`], so that nothing that is asked about can fake the screen.

mod diff;
mod headline;
mod hide;
pub(crate) mod text;

use std::collections::HashMap;

use belay_grant::{Change, ChangeKind, Subject};
use belay_proto::v1;
use belay_redaction::Redactor;

pub(crate) use headline::operation;
pub(crate) use hide::{hide, hide_basic, hide_preview};

use diff::{Budget, WORK, difference};
use text::{number, shortened, visible};

/// How many files are shown with what changes in them.
const MOST_FILES: usize = 200;

/// How many lines of hunks one file shows, and all of them together.
const MOST_LINES: usize = 2_000;
const MOST_LINES_IN_ALL: usize = 20_000;

/// How many bytes all hunks have: with the subject and the names, an approval fits into one message.
const MOST_BYTES: usize = 3 * 1024 * 1024;

/// How many paths a summary names.
const MOST_PATHS: usize = 100;

/// The longest path, rule or reason that is shown in full, in characters.
const LONGEST: usize = 1_000;

/// How many flags of one path are shown.
const MOST_FLAGS: usize = 16;

/// What is known of one content that a subject names by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Its bytes, whose digest is the one named.
    Verified(Vec<u8>),
    /// Bytes came under this digest, and their own is another.
    Forged,
}

/// Contents by digest, as `sha256:…`.
pub(crate) type Contents = HashMap<String, Content>;

/// Renders a subject. Secrets are hidden in the lines of files; [`hide_preview`] does the rest.
pub(crate) fn preview(redactor: &Redactor, subject: &Subject, contents: &Contents) -> v1::Preview {
    // What a person should look at twice comes first, so that no crowd of harmless files pushes it out of sight.
    let (flagged, plain): (Vec<&Change>, Vec<&Change>) =
        subject.changes.iter().partition(|change| !change.flags.is_empty());
    let mut budget = Budget { lines: MOST_LINES_IN_ALL, bytes: MOST_BYTES, work: WORK };
    let files: Vec<v1::FileDiff> = flagged
        .into_iter()
        .chain(plain)
        .take(MOST_FILES)
        .map(|change| file(redactor, change, contents, &mut budget))
        .collect();
    let more = subject.changes.len() - files.len();
    v1::Preview {
        headline: headline::headline(subject),
        working_directory: shown(&subject.working_directory),
        workspace: shown(&subject.workspace),
        reach: reach(subject),
        files,
        more_files: i32::try_from(more).unwrap_or(i32::MAX),
    }
}

/// What would change, in short.
pub(crate) fn summary(subject: &Subject) -> v1::EffectSummary {
    let count = |kind| {
        let count = subject.changes.iter().filter(|change| change.kind == kind).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    v1::EffectSummary {
        created: count(ChangeKind::Created),
        modified: count(ChangeKind::Modified),
        deleted: count(ChangeKind::Deleted),
        changes: subject.changes.iter().take(MOST_PATHS).map(path_change).collect(),
    }
}

/// A short text of somebody else's, fit to be shown.
pub(crate) fn shown(text: &str) -> String {
    visible(&shortened(text, LONGEST))
}

fn path_change(change: &Change) -> v1::PathChange {
    use v1::path_change::Kind;
    let kind = match change.kind {
        ChangeKind::Created => Kind::Created,
        ChangeKind::Modified => Kind::Modified,
        ChangeKind::Deleted => Kind::Deleted,
    };
    let flags = change.flags.iter().take(MOST_FLAGS).map(|flag| shown(flag)).collect();
    v1::PathChange { path: shown(&change.path), kind: kind.into(), flags }
}

/// What the call may reach, as far as the walls around it say.
fn reach(subject: &Subject) -> Vec<String> {
    if subject.enforced.is_empty() {
        return vec!["runs inside the tool runner, confined to the workspace".into()];
    }
    let mut reach = Vec::new();
    // A network namespace of its own, in which nothing is connected.
    if subject.enforced.iter().any(|wall| wall == "namespaces") {
        reach.push("no network".into());
    }
    reach.push(format!("walls: {}", shown(&subject.enforced.join(", "))));
    reach
}

fn file(redactor: &Redactor, change: &Change, contents: &Contents, budget: &mut Budget) -> v1::FileDiff {
    let mut file = v1::FileDiff { change: Some(path_change(change)), ..v1::FileDiff::default() };
    let what = shown(&change.what);
    if change.before == change.after {
        // A folder, a link, or a file whose rights change and whose content does not.
        file.note = if change.after.is_empty() { what } else { format!("content unchanged, now {what}") };
        return file;
    }
    let sides = side(&change.before, contents).and_then(|before| Ok((before, side(&change.after, contents)?)));
    match sides {
        Err(why) => file.note = if what.is_empty() { why } else { format!("{what}: {why}") },
        Ok((before, after)) => {
            let found = difference(redactor, before, after, MOST_LINES, budget);
            let count = |lines| i32::try_from(lines).unwrap_or(i32::MAX);
            (file.added, file.removed) = (count(found.added), count(found.removed));
            file.unified = found.unified;
            if found.more > 0 {
                file.note = format!("{} more lines are not shown", number(found.more));
            } else if file.unified.is_empty() {
                file.note = format!("{what}, empty");
            }
        }
    }
    file
}

/// The text on one side of a change, or why there is none to show.
fn side<'a>(digest: &str, contents: &'a Contents) -> Result<&'a str, String> {
    if digest.is_empty() {
        return Ok("");
    }
    match contents.get(digest) {
        None => Err("not shown: too large, or no text".into()),
        Some(Content::Forged) => {
            Err("not shown: the runner sent a content that is not the one named by the digest".into())
        }
        Some(Content::Verified(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(text),
            Ok(_) => Err(format!("binary, {} bytes", number(bytes.len()))),
            Err(_) => Err(format!("no UTF-8 text, {} bytes", number(bytes.len()))),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! The preview on which a person decides: rendered only from the subject's bytes and from contents that match the digests in them, so a caller
//! cannot show something else next to a true digest.
//!
//! Pure. Every text in a preview has passed [`belay_text::visible`], so that no text can manipulate the terminal.

mod bytes;
mod diff;
mod headline;
mod hide;
mod opened;
mod order;
pub(crate) mod text;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Display,
};

use belay_grant::{CallWords, Change, ChangeKind, Folder, InvalidSeal, Network, Subject};
use belay_proto::v1;
use belay_redaction::Redactor;

pub(crate) use headline::operation;
pub(crate) use hide::{hide, hide_texts};
pub(crate) use opened::OpenedSubject;

use belay_text::visible;
use bytes::ContentText;
use diff::{Budget, MAX_WORK, Share, difference};
use order::Entry;
use text::{number, shortened};

/// The maximum number of files shown with their diffs.
const MAX_FILES: usize = 200;

/// The maximum number of diff lines for one file, and for all files together.
const MAX_LINES_PER_FILE: usize = 2_000;
const MAX_LINES: usize = 20_000;

/// The maximum size of all diffs in bytes, so that an approval with its subject fits into one message.
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// The maximum number of paths in a summary.
const MAX_PATHS: usize = 100;

/// The longest path, rule or reason that is shown in full, in characters.
const MAX_TEXT_CHARS: usize = Subject::MAX_PATH_CHARS;

/// The maximum number of flags shown for one path.
const MAX_FLAGS: usize = 16;

/// Contents by their verified digest, `sha256:…`.
pub(crate) type Contents = HashMap<String, Vec<u8>>;

/// Renders a subject. Redacts the lines of files; [`hide_texts`] redacts the rest.
pub(crate) fn preview(redactor: &Redactor, subject: &Subject, contents: &Contents) -> v1::Preview {
    let entries = order::entries(subject);
    let first = &entries[..entries.len().min(MAX_FILES)];
    let mut budget = Budget { lines: MAX_LINES, bytes: MAX_BYTES, work: MAX_WORK };
    let mut files = Vec::with_capacity(first.len());
    for (index, entry) in first.iter().enumerate() {
        // The rest of the budget is shared among the files that are left, so that no file displaces another.
        let share = budget.share(first.len() - index, MAX_LINES_PER_FILE);
        files.push(match entry {
            Entry::One(place, change) => file(redactor, (*place, change), contents, share, &mut budget),
            Entry::Folder(folder) => new_folder(folder),
        });
    }
    let more: usize = entries[first.len()..].iter().map(|entry| entry.count()).sum();
    let hidden = subject.hidden.as_ref();
    v1::Preview {
        hidden_values: hidden
            .map_or(0, |hidden| hidden.rules.values().fold(0, |sum: i32, values| sum.saturating_add_unsigned(*values))),
        hidden_note: hidden.map_or_else(String::new, |hidden| shown(&by_rule(&hidden.rules))),
        headline: headline::headline(subject),
        working_directory: shown(&subject.working_directory),
        workspace: shown(&subject.workspace),
        reach: reach(subject),
        files,
        more_files: i32::try_from(more).unwrap_or(i32::MAX),
    }
}

/// The complete diff of one file, the change at a place of the subject.
pub(crate) fn whole_file(redactor: &Redactor, (place, change): (usize, &Change), contents: &Contents) -> v1::FileDiff {
    let mut budget = Budget { lines: usize::MAX, bytes: usize::MAX, work: MAX_WORK };
    let share = Share { lines: usize::MAX, bytes: usize::MAX, line: usize::MAX };
    let mut whole = file(redactor, (place, change), contents, share, &mut budget);
    hide_texts(redactor, &mut whole);
    whole
}

/// The same with everything that is otherwise hidden in it, for who may decide: the lines as they are, and the path.
pub(crate) fn revealed_file((place, change): (usize, &Change), contents: &Contents) -> v1::FileDiff {
    let mut whole = whole_file(&Redactor::off(), (place, change), contents);
    let path = match contents.get(&change.path_digest) {
        Some(path) => String::from_utf8_lossy(path).into_owned(),
        None => change.path.clone(),
    };
    if let Some(change) = &mut whole.change {
        change.path = visible(&path);
    }
    whole
}

/// A call with nothing of it hidden, for who may decide: its headline, and the directory in which a command runs. The words that the subject has when the
/// runner keeps no others, because it has hidden none.
pub(crate) fn revealed_call(subject: &Subject, contents: &Contents) -> Result<(String, String), InvalidSeal> {
    let words = subject.hidden.as_ref().and_then(|hidden| contents.get(&hidden.digest));
    let subject = match words.map(|bytes| CallWords::parse(bytes)).transpose()? {
        Some(CallWords { arguments, command, working_directory }) => {
            Subject { arguments, command, working_directory, ..subject.clone() }
        }
        None => subject.clone(),
    };
    Ok((headline::headline(&subject), shown(&subject.working_directory)))
}

/// How many lines or values something is hidden of, by rule.
fn by_rule(rules: &BTreeMap<impl Display, impl Display>) -> String {
    let by: Vec<String> = rules.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
    by.join(", ")
}

/// Every change, the gravest first, with paths redacted.
pub(crate) fn listed(redactor: &Redactor, subject: &Subject) -> Vec<v1::PathChange> {
    let listed = subject.changes.iter().enumerate().map(|(place, change)| {
        let mut change = path_change(place, change);
        hide_texts(redactor, &mut change);
        change
    });
    listed.collect()
}

/// The gravest change; `None` when nothing changes.
pub(crate) fn gravest(subject: &Subject) -> Option<&Change> {
    subject.changes.iter().min_by_key(|change| change.gravity)
}

fn new_folder(folder: &Folder) -> v1::FileDiff {
    let change = v1::PathChange {
        path: format!("{}/", shown(&folder.path)),
        kind: v1::path_change::Kind::Created.into(),
        ..v1::PathChange::default()
    };
    let count = i32::try_from(folder.changes).unwrap_or(i32::MAX);
    v1::FileDiff {
        change: Some(change),
        note: format!("{} created; no other changes in this folder", number(folder.changes as usize)),
        count,
        ..v1::FileDiff::default()
    }
}

/// A summary of what would change.
pub(crate) fn summary(subject: &Subject) -> v1::EffectSummary {
    let count = |kind| {
        let count = subject.changes.iter().filter(|change| change.kind == kind).count();
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    let first = subject.changes.iter().enumerate().take(MAX_PATHS);
    v1::EffectSummary {
        created: count(ChangeKind::Created),
        modified: count(ChangeKind::Modified),
        deleted: count(ChangeKind::Deleted),
        changes: first.map(|(place, change)| path_change(place, change)).collect(),
    }
}

/// A short untrusted text, safe to show.
pub(crate) fn shown(text: &str) -> String {
    visible(&shortened(text, MAX_TEXT_CHARS))
}

fn path_change(place: usize, change: &Change) -> v1::PathChange {
    use v1::path_change::Kind;
    let kind = match change.kind {
        ChangeKind::Created => Kind::Created,
        ChangeKind::Modified => Kind::Modified,
        ChangeKind::Deleted => Kind::Deleted,
    };
    let flags = change.all_flags().take(MAX_FLAGS).map(shown).collect();
    let index = i32::try_from(place).unwrap_or(i32::MAX);
    v1::PathChange { path: shown(&change.path), kind: kind.into(), flags, index }
}

/// The resources that the call can access, derived from its sandbox layers.
fn reach(subject: &Subject) -> Vec<String> {
    if subject.enforced.is_empty() {
        return match &subject.network {
            Some(network) => vec![profile(network)],
            None => vec!["runs inside the tool runner, confined to the workspace".into()],
        };
    }
    let stands = |layer: &str| subject.enforced.iter().any(|name| name == layer);
    let mut reach = Vec::new();
    if stands("workspace mount") || stands("landlock") {
        reach.push("this workspace (read and write)".into());
    }
    if stands("root view") {
        reach.push("/usr and other system folders (read)".into());
    }
    // These layers are active only if the command has a network namespace of its own.
    let is_apart = NETWORK_LAYERS.iter().any(|layer| stands(layer));
    reach.push(match &subject.network {
        Some(network) if is_apart => profile(network),
        None if is_apart => "no network".into(),
        Some(_) | None => "the network".into(),
    });
    reach.extend(subject.reveals.iter().map(|reveal| format!("the value of the credential {}", shown(reveal))));
    reach
}

/// Everything that a network profile opens, in one line: all of it, because the decision is about all of it.
fn profile(network: &Network) -> String {
    let listed: Vec<String> = network.reach.iter().map(|line| shown(line)).collect();
    format!("network profile {}: {}", shown(&network.profile), listed.join(", "))
}

/// Layers that are active only with a network namespace.
const NETWORK_LAYERS: [&str; 2] = ["namespaces", "user namespace"];

fn file(
    redactor: &Redactor,
    (place, change): (usize, &Change),
    contents: &Contents,
    share: Share,
    budget: &mut Budget,
) -> v1::FileDiff {
    let mut file = v1::FileDiff { change: Some(path_change(place, change)), ..v1::FileDiff::default() };
    let mut notes: Vec<String> = Some(shown(&change.protection)).filter(|why| !why.is_empty()).into_iter().collect();
    let what = shown(&change.what);
    if change.before == change.after {
        // A folder, a link, or a file of which only the permissions change.
        notes.push(if change.after.is_empty() { what } else { format!("content unchanged, now {what}") });
        file.note = notes.join("; ");
        return file;
    }
    let sides = [&change.before, &change.after].map(|digest| side(redactor, digest, contents));
    match sides {
        [Ok(before), Ok(after)] => {
            let found = difference(redactor, &before.text, &after.text, share, budget);
            let count = |lines| i32::try_from(lines).unwrap_or(i32::MAX);
            (file.added, file.removed) = (count(found.added), count(found.removed));
            file.unified = found.unified;
            if before.is_dump || after.is_dump {
                let sides = [("before", &change.before), ("after", &change.after)];
                let sizes = sides.iter().filter(|(_, digest)| !digest.is_empty());
                let sizes =
                    sizes.map(|(when, digest)| format!("{when} {} bytes, {digest}", number(contents[*digest].len())));
                notes.push(format!("binary: {}", sizes.collect::<Vec<_>>().join("; ")));
            }
            let hidden = found.hidden.values().sum::<usize>();
            file.hidden_lines = count(hidden);
            if hidden > 0 {
                notes.push(format!("lines with something hidden: {}", by_rule(&found.hidden)));
            }
            if found.more > 0 {
                notes.push(format!("{} more lines are not shown here", number(found.more)));
            } else if file.unified.is_empty() {
                notes.push(format!("{what}, empty"));
            }
        }
        [before, after] => {
            if !what.is_empty() {
                notes.push(what);
            }
            notes.extend(before.err().into_iter().chain(after.err()));
        }
    }
    file.note = notes.join("; ");
    file
}

/// The content on one side of a change, or why it is not shown.
fn side<'a>(redactor: &Redactor, digest: &str, contents: &'a Contents) -> Result<ContentText<'a>, String> {
    match contents.get(digest) {
        _ if digest.is_empty() => Ok(ContentText { text: "".into(), is_dump: false }),
        Some(bytes) => Ok(bytes::as_text(redactor, bytes)),
        None => Err(format!("too large to be shown: {}", shown(digest))),
    }
}

#[cfg(test)]
pub(crate) mod tests;

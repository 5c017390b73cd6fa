//! Changes of files, for a person who decides about them: nothing in a name or a line can hide or fake anything.

use belay_proto::v1::{Approval, FileDiff, path_change};

use super::{
    text::{Line, Style, shorten, visible},
    words,
};

/// How much of the changes is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// As much as fits a window: so many lines, long ones cut.
    Brief,
    /// All there is.
    Full,
}

/// The most lines of diffs in a brief view, and the longest of them in characters.
const BRIEF_LINES: usize = 40;
const BRIEF_WIDTH: usize = 200;
/// The most files in a brief view.
const BRIEF_FILES: usize = 12;

/// The changes file by file. `more` files are not among them.
pub(crate) fn files(files: &[FileDiff], more: i32, extent: Extent) -> Vec<Line> {
    let (most_files, mut room) = match extent {
        Extent::Brief => (BRIEF_FILES, BRIEF_LINES),
        Extent::Full => (usize::MAX, usize::MAX),
    };
    let mut lines = Vec::new();
    let mut left_out = 0;
    let named = files.len().min(most_files);
    for (index, file) in files.iter().take(named).enumerate() {
        lines.push(heading(file));
        let diff = numbered(&file.unified);
        // Every file gets some lines: the room that is left is shared among the files that follow.
        let shown = picked(diff.clone(), room.checked_div(named - index).unwrap_or(room).max(usize::from(room > 0)));
        room -= shown.len();
        left_out += diff.len() - shown.len();
        lines.extend(diff_lines(&shown, extent));
    }
    let unseen = files.len().saturating_sub(most_files);
    if left_out > 0 || unseen > 0 {
        let parts = [(left_out, "lines"), (unseen, "files")];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} more {what}")).collect();
        lines.push(Line::default().and(Style::Warn, format!("… not shown here: {}", parts.join(", "))));
    }
    if more > 0 {
        lines.push(Line::default().and(Style::Warn, format!("… {more} more paths change; --all shows them")));
    }
    lines
}

/// Whether something of a change is hidden as a secret: of its lines, or of its path.
pub(crate) fn hides(file: &FileDiff) -> bool {
    let flags = file.change.iter().flat_map(|change| &change.flags);
    file.hidden_lines > 0 || flags.into_iter().any(|flag| flag == "hidden_name")
}

/// How much of an approval is hidden as a secret, and the command that shows it; nothing when nothing is.
pub(crate) fn hidden(approval: &Approval) -> Option<Line> {
    let preview = approval.preview.as_ref()?;
    let (files, lines) = preview
        .files
        .iter()
        .filter(|file| hides(file))
        .fold((0, 0), |sum, file| (sum.0 + 1, sum.1 + file.hidden_lines));
    let of_call = (preview.hidden_values > 0).then(|| {
        format!("{} in the call ({})", counted(preview.hidden_values, "value"), visible(&preview.hidden_note))
    });
    let of_files = (files > 0).then(|| format!("{} in {}", counted(lines, "line"), counted(files, "file")));
    let what: Vec<String> = of_call.into_iter().chain(of_files).collect();
    let id = approval.name.rsplit('/').next().unwrap_or_default();
    let told = format!("hidden as secrets: {}; see them: belay approvals show {id} --reveal", what.join(", "));
    (!what.is_empty()).then(|| Line::default().and(Style::Warn, told))
}

/// `1 line`, `2 lines`.
fn counted(count: i32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The kind of a line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Removed,
    Added,
    Context,
    /// A word about the lines: that some between two hunks are the same, or that the last has no end.
    Mark,
}

/// A line of a difference, with its number in the file where it has one.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    kind: Kind,
    number: Option<usize>,
    text: &'a str,
}

/// The lines of a unified difference with their numbers: removed lines count in the old file, the others in the new one.
fn numbered(unified: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let (mut old, mut new) = (None, None);
    let mut in_hunks = false;
    for text in unified.lines() {
        if text.starts_with("@@") {
            if std::mem::replace(&mut in_hunks, true) {
                rows.push(Row { kind: Kind::Mark, number: None, text: "…" });
            }
            (old, new) = hunk(text);
            continue;
        }
        // Before the first hunk stand the names, which the heading has; in a hunk, a line that begins with `---` is a removed one.
        if !in_hunks && (text.starts_with("--- ") || text.starts_with("+++ ")) {
            continue;
        }
        let count = |number: &mut Option<usize>| {
            let counted = *number;
            *number = counted.map(|number| number + 1);
            counted
        };
        rows.push(match text.as_bytes().first() {
            Some(b'-') => Row { kind: Kind::Removed, number: count(&mut old), text: &text[1..] },
            Some(b'+') => Row { kind: Kind::Added, number: count(&mut new), text: &text[1..] },
            Some(b' ') | None => {
                count(&mut old);
                Row { kind: Kind::Context, number: count(&mut new), text: text.get(1..).unwrap_or_default() }
            }
            _ => Row { kind: Kind::Mark, number: None, text },
        });
    }
    rows
}

/// Where a hunk begins, before and after: `@@ -1,7 +2,8 @@`.
fn hunk(heading: &str) -> (Option<usize>, Option<usize>) {
    let number = |sign: char| {
        let from = heading.split_once(sign)?.1;
        from.split([',', ' ']).next()?.parse().ok()
    };
    (number('-'), number('+'))
}

/// The lines of a difference that fit: all of them, or else the first removed and the first added ones, half and half.
fn picked(diff: Vec<Row<'_>>, room: usize) -> Vec<Row<'_>> {
    if diff.len() <= room {
        return diff;
    }
    let count = |kind| diff.iter().filter(|row| row.kind == kind).count();
    let (removed, added) = (count(Kind::Removed), count(Kind::Added));
    let of_removed = removed.min((room / 2).max(room.saturating_sub(added)));
    let of_added = added.min(room - of_removed);
    let (mut removed, mut added, mut other) = (of_removed, of_added, room - of_removed - of_added);
    let fits = |row: &Row<'_>| {
        let left = match row.kind {
            Kind::Removed => &mut removed,
            Kind::Added => &mut added,
            Kind::Context | Kind::Mark => &mut other,
        };
        let fits = *left > 0;
        *left -= usize::from(fits);
        fits
    };
    diff.into_iter().filter(fits).collect()
}

/// `deleted  notes.txt  -12  (binary, 3,120 bytes)`.
fn heading(file: &FileDiff) -> Line {
    let change = file.change.clone().unwrap_or_default();
    let (style, what) = match change.kind() {
        path_change::Kind::Created => (Style::Good, "creates"),
        path_change::Kind::Deleted => (Style::Bad, "deletes"),
        _ => (Style::Warn, "changes"),
    };
    let counts: String = [(file.added, '+'), (file.removed, '-')]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, sign)| format!("  {sign}{count}"))
        .collect();
    let flags =
        if change.flags.is_empty() { String::new() } else { format!("  [{}]", visible(&change.flags.join(", "))) };
    let note = if file.note.is_empty() { String::new() } else { format!("  ({})", visible(&file.note)) };
    Line::default()
        .and(style, what)
        .and(Style::Plain, "  ")
        .and(Style::Strong, visible(&change.path))
        .and(Style::Warn, flags)
        .and(Style::Dim, counts + &note)
}

fn diff_lines(diff: &[Row<'_>], extent: Extent) -> Vec<Line> {
    let digits = diff.iter().filter_map(|row| row.number).max().unwrap_or(0).to_string().len();
    let styled = diff.iter().map(|row| {
        let (style, sign) = match row.kind {
            Kind::Removed => (Style::Bad, "- "),
            Kind::Added => (Style::Good, "+ "),
            Kind::Context => (Style::Plain, "  "),
            Kind::Mark => (Style::Dim, ""),
        };
        let number = row.number.map(|number| number.to_string()).unwrap_or_default();
        let text = visible(row.text);
        let text = if extent == Extent::Brief { shorten(&text, BRIEF_WIDTH) } else { text };
        Line::new("    ")
            .and(Style::Dim, format!("{number:>digits$} "))
            .and(style, sign.to_owned() + &text)
            .hanging(4 + digits + 3)
    });
    styled.collect()
}

/// A line for each thing that deserves a second look.
pub(crate) fn warnings<'a>(changes: impl Iterator<Item = &'a belay_proto::v1::PathChange>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for change in changes {
        for flag in &change.flags {
            lines.push(
                Line::default()
                    .and(Style::Bad, "look twice: ")
                    .and(Style::Strong, visible(&change.path))
                    .and(Style::Plain, format!(" {}", words::flag(flag))),
            );
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::PathChange;

    use super::*;

    fn file(path: &str, kind: path_change::Kind, unified: &str) -> FileDiff {
        FileDiff {
            change: Some(PathChange { path: path.to_owned(), kind: kind.into(), ..PathChange::default() }),
            unified: unified.to_owned(),
            ..Default::default()
        }
    }

    fn rendered(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.render(false)).collect()
    }

    // S2-X-17: the preview shows the content.
    #[test]
    fn a_diff_is_shown_as_it_is() {
        let diff = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n same\n--- was a rule\n+now\t \n\\ No newline at end of file\n";
        let changed = FileDiff { added: 1, removed: 1, ..file("notes.txt", path_change::Kind::Modified, diff) };
        let lines = files(&[changed], 0, Extent::Full);
        assert_eq!(
            rendered(&lines),
            [
                "changes  notes.txt  +1  -1",
                "    1   same",
                "    2 - -- was a rule",
                "    2 + now    ·",
                "      \\ No newline at end of file",
            ]
        );
        assert!(lines[2].render(true).contains("\x1b[31m- -- was a rule"), "a removed line, not a heading");
    }

    #[test]
    fn neither_names_nor_contents_can_fake_the_screen() {
        let hostile = "@@ -0,0 +1 @@\n+ok\x1b[1A\x1b[2K\r+safe\u{202e}\u{200b}\n";
        let name = "a\u{202e}txt.sh\nnothing changes";
        let note = FileDiff { note: "binary\x1b[8m".to_owned(), ..file(name, path_change::Kind::Created, hostile) };
        assert_eq!(
            rendered(&files(&[note], 0, Extent::Full)),
            [
                "creates  a<U+202E>txt.sh<U+000A>nothing changes  (binary<U+001B>[8m)",
                "    1 + ok<U+001B>[1A<U+001B>[2K<U+000D>+safe<U+202E><U+200B>",
            ]
        );
    }

    #[test]
    fn a_brief_view_fits_and_says_what_it_leaves_out() {
        let many = "+x\n".repeat(300);
        let wide = format!("@@\n+{}\n", "y".repeat(5_000));
        let mut changes = vec![file("wide", path_change::Kind::Created, &wide)];
        changes.extend((0..20).map(|i| file(&format!("f{i}"), path_change::Kind::Created, &many)));
        let brief = rendered(&files(&changes, 7, Extent::Brief));
        assert!(brief.len() <= BRIEF_LINES + BRIEF_FILES + 2);
        assert!(brief.iter().all(|line| line.chars().count() <= BRIEF_WIDTH + 11));
        assert_eq!(brief[brief.len() - 2], "… not shown here: 3261 more lines, 9 more files");
        assert_eq!(brief[brief.len() - 1], "… 7 more paths change; --all shows them");
        for file in 0..11 {
            let heading = brief.iter().position(|line| *line == format!("creates  f{file}")).unwrap();
            assert!(brief[heading + 1].ends_with(" + x"), "each has something of its difference: {file}");
        }
        let full = rendered(&files(&changes, 0, Extent::Full));
        assert_eq!(full.len(), 21 + 1 + 20 * 300);
    }

    // B-18: a long rewrite shows what comes in as well as what goes.
    #[test]
    fn a_brief_rewrite_shows_both_sides() {
        let unified = format!("@@ -1,400 +1,400 @@\n{}{}", "-old\n".repeat(400), "+new\n".repeat(400));
        let brief = rendered(&files(&[file("f", path_change::Kind::Modified, &unified)], 0, Extent::Brief));
        let count = |what: &str| brief.iter().filter(|line| line.ends_with(what)).count();
        assert_eq!((count(" - old"), count(" + new")), (20, 20));
        assert!(brief.contains(&"     1 - old".to_owned()) && brief.contains(&"    20 + new".to_owned()), "{brief:?}");
    }

    #[test]
    fn what_deserves_a_second_look_gets_it() {
        let change =
            PathChange { path: "run.sh".to_owned(), flags: vec!["executable".to_owned()], ..Default::default() };
        assert_eq!(rendered(&warnings([&change].into_iter())), ["look twice: run.sh becomes executable"]);
    }
}

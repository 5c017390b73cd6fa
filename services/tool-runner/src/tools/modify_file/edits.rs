//! Edits of a text by quotation. Pure.

use std::{borrow::Cow, fmt};

use serde::Deserialize;
use similar::{
    ChangeTag, DiffTag,
    algorithms::{Capture, Compact, Replace, myers},
    group_diff_ops,
    udiff::UnifiedHunkHeader,
};

/// An edit.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Edit {
    pub(super) search: String,
    pub(super) replace: String,
    #[serde(default)]
    pub(super) all: bool,
}

/// A text after its edits.
#[derive(Debug)]
pub(super) struct EditedText {
    pub(super) text: String,
    pub(super) replacements: usize,
    /// An upper bound of the lines that differ.
    changed_lines: usize,
}

/// Why an edit cannot be applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EditError {
    /// The quoted part does not occur. `similar`: number and text of the most similar line.
    Missing { similar: Option<(usize, String)> },
    /// The quoted part occurs more than once. `lines`: where the first occurrences begin.
    Ambiguous { times: usize, lines: Vec<usize> },
    /// The text would exceed its limit.
    TooLarge,
    /// The call was stopped.
    Stopped,
}

/// The number of lines that a message names.
const MAX_NAMED_LINES: usize = 5;

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { similar: None } => f.write_str("the text does not occur, nor anything similar"),
            Self::Missing { similar: Some((line, text)) } => {
                write!(f, "the text does not occur; the most similar line is line {line}: `{text}`")
            }
            Self::Ambiguous { times, lines } => {
                let named: Vec<String> = lines.iter().map(usize::to_string).collect();
                let more = if *times > lines.len() { ", …" } else { "" };
                write!(
                    f,
                    "the text occurs {times} times (lines {}{more}): quote more around it, or set all: true",
                    named.join(", ")
                )
            }
            Self::TooLarge => f.write_str("the text becomes too large"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Applies edits in order, all or none. On an error returns the index of the edit that failed.
///
/// If all lines of the text end in CRLF, a line end in an edit matches and becomes CRLF. `stopped` is polled before each edit.
pub(super) fn apply(
    text: &str,
    edits: &[Edit],
    largest: usize,
    stopped: impl Fn() -> bool,
) -> Result<EditedText, (usize, EditError)> {
    let crlf = has_crlf_only(text);
    let mut edited = EditedText { text: text.to_owned(), replacements: 0, changed_lines: 0 };
    for (n, edit) in edits.iter().enumerate() {
        if stopped() {
            return Err((n, EditError::Stopped));
        }
        let (search, replace) = (ends(&edit.search, crlf), ends(&edit.replace, crlf));
        let times = times(&edited.text, &search, edit.all).map_err(|error| (n, error))?;
        let grown = replace.len().saturating_sub(search.len()).saturating_mul(times);
        if edited.text.len().saturating_add(grown) > largest {
            return Err((n, EditError::TooLarge));
        }
        edited.text = edited.text.replacen(&*search, &replace, times);
        edited.replacements += times;
        let lines = search.matches('\n').count() + replace.matches('\n').count() + 2;
        edited.changed_lines = edited.changed_lines.saturating_add(lines.saturating_mul(times));
    }
    Ok(edited)
}

/// Whether the text has line ends, and all are CRLF.
fn has_crlf_only(text: &str) -> bool {
    let mut ends = text.split('\n');
    ends.next_back();
    let mut ends = ends.peekable();
    ends.peek().is_some() && ends.all(|line| line.ends_with('\r'))
}

/// Converts the line ends of an edit to those of the text.
fn ends(piece: &str, crlf: bool) -> Cow<'_, str> {
    if crlf && piece.contains('\n') { piece.replace("\r\n", "\n").replace('\n', "\r\n").into() } else { piece.into() }
}

/// The number of occurrences to replace.
fn times(text: &str, search: &str, all: bool) -> Result<usize, EditError> {
    let Some(first) = text.find(search) else {
        return Err(EditError::Missing { similar: most_similar(text, search) });
    };
    if all {
        return Ok(text.matches(search).count());
    }
    // Overlapping occurrences are ambiguous too.
    let next = first + search.chars().next().map_or(1, char::len_utf8);
    let Some(second) = text[next..].find(search) else { return Ok(1) };
    let apart: Vec<usize> = text.match_indices(search).map(|(at, _)| at).take(MAX_NAMED_LINES).collect();
    let (times, places) = match apart.len() {
        1 => (2, vec![first, next + second]),
        _ => (text.matches(search).count(), apart),
    };
    let mut lines: Vec<usize> = places.into_iter().map(|at| text[..at].matches('\n').count() + 1).collect();
    lines.dedup();
    Err(EditError::Ambiguous { times, lines })
}

/// The line most similar to the first non-blank line of `search`. The search is bounded: it only helps the author of the edit.
fn most_similar(text: &str, search: &str) -> Option<(usize, String)> {
    const MAX_LINES: usize = 50_000;
    const MAX_LINE_CHARS: usize = 200;
    const MIN_SCORE: f64 = 0.5;
    let short = |line: &str| line.trim().chars().take(MAX_LINE_CHARS).collect::<String>();
    let wanted = short(search.lines().find(|line| !line.trim().is_empty())?);
    let alike = |line: &str| strsim::sorensen_dice(&wanted, line);
    let lines = text.lines().take(MAX_LINES).enumerate().map(|(n, line)| (n + 1, short(line)));
    let scored = lines.map(|(n, line)| (alike(&line), n, line)).filter(|(score, ..)| *score > MIN_SCORE);
    // The first of equal scores.
    let (_, n, line) = scored.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    Some((n, line))
}

/// The unified diff of the edits, and whether it was truncated.
pub(super) fn diff(path: &str, old: &str, edited: &EditedText) -> (String, bool) {
    // The time to find a shortest diff grows with the square of the difference.
    const MAX_CHANGED_LINES: usize = 4_000;
    const MAX_DIFF_BYTES: usize = 256 << 10;
    if old == edited.text {
        return (String::new(), false);
    }
    if edited.changed_lines > MAX_CHANGED_LINES {
        return (String::new(), true);
    }
    let mut shown = format!("--- a/{path}\n+++ b/{path}\n");
    unified(old, &edited.text, &mut shown);
    let cut = shown.len() > MAX_DIFF_BYTES;
    if cut {
        let line = shown.as_bytes()[..MAX_DIFF_BYTES].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        shown.truncate(line);
    }
    (shown, cut)
}

/// Appends the hunks of a unified diff. The library's own function for this is made for every kind of text and every algorithm, and takes a
/// tenth of this crate's time in the compiler.
fn unified(old: &str, new: &str, shown: &mut String) {
    const CONTEXT: usize = 3;
    let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let mut found = Compact::new(Replace::new(Capture::new()), &*old, &*new);
    let Ok(()) = myers::diff(&mut found, &*old, 0..old.len(), &*new, 0..new.len());
    for group in group_diff_ops(found.into_inner().into_inner().into_ops(), CONTEXT) {
        shown.push_str(&format!("{}\n", UnifiedHunkHeader::new(&group)));
        let mut put = |tag: ChangeTag, lines: &[&str]| {
            for line in lines {
                let end = if line.ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
                shown.push_str(&format!("{tag}{line}{end}"));
            }
        };
        for (tag, was, is) in group.iter().map(|op| op.as_tag_tuple()) {
            match tag {
                DiffTag::Equal => put(ChangeTag::Equal, &old[was]),
                DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
                    put(ChangeTag::Delete, &old[was]);
                    put(ChangeTag::Insert, &new[is]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(search: &str, replace: &str) -> Edit {
        Edit { search: search.into(), replace: replace.into(), all: false }
    }

    fn all(search: &str, replace: &str) -> Edit {
        Edit { all: true, ..edit(search, replace) }
    }

    fn apply(text: &str, edits: &[Edit], largest: usize) -> Result<EditedText, (usize, EditError)> {
        super::apply(text, edits, largest, || false)
    }

    fn edited(text: &str, edits: &[Edit]) -> String {
        apply(text, edits, 1000).unwrap_or_else(|(n, error)| panic!("edit {n}: {error}")).text
    }

    fn refusal(text: &str, edit: Edit) -> String {
        apply(text, &[edit], 1000).unwrap_err().1.to_string()
    }

    #[test]
    fn each_edit_sees_the_result_of_those_before_it() {
        assert_eq!(edited("a b c", &[edit("a", "x"), edit("x b", "y"), edit(" c", "")]), "y");
        assert_eq!(edited("a.a.a", &[all("a", "aa")]), "aa.aa.aa");
        assert_eq!(apply("a.a.a", &[all("a", "b")], 1000).unwrap().replacements, 3);
    }

    #[test]
    fn line_ends_are_preserved() {
        assert_eq!(edited("a\r\nb\r\nc", &[edit("a\nb", "x\ny\nz")]), "x\r\ny\r\nz\r\nc");
        assert_eq!(edited("a\r\nb\r\n", &[edit("b\r\n", "c\r\n")]), "a\r\nc\r\n");
        assert_eq!(edited("a\nb", &[edit("b", "c")]), "a\nc");
        assert_eq!(edited("a\r\nb\nc", &[edit("b\nc", "x\ny")]), "a\r\nx\ny", "mixed line ends are matched exactly");
        assert_eq!(edited("one line", &[edit("one", "a\nb")]), "a\nb line");
    }

    #[test]
    fn an_ambiguous_edit_names_its_lines() {
        let message = refusal("x\ny\nx\n", edit("x", "z"));
        assert!(message.contains("2 times (lines 1, 3)") && message.contains("all: true"), "{message}");
        assert!(refusal("aaa", edit("aa", "b")).contains("2 times (lines 1"), "overlapping occurrences are two");
        let message = refusal(&"x\n".repeat(300), edit("x", "z"));
        assert!(message.contains("300 times (lines 1, 2, 3, 4, 5, …)"), "{message}");
    }

    #[test]
    fn a_missing_text_names_the_most_similar_line() {
        let text = "fn main() {\n    println!(\"hello\");\n}\n";
        let message = refusal(text, edit("println!(\"helo\");", ""));
        assert!(message.contains("line 2: `println!(\"hello\");`"), "{message}");
        assert!(refusal(text, edit("zzzz", "")).contains("nor anything similar"));
        assert!(refusal("", edit("x", "")).contains("nor anything similar"));
        assert!(refusal("a\n", edit("\n\n", "")).contains("nor anything similar"));
    }

    #[test]
    fn the_result_is_bounded() {
        let refused = apply(&"a".repeat(500), &[all("a", &"b".repeat(1 << 20))], 1000).unwrap_err();
        assert_eq!(refused, (0, EditError::TooLarge));
        let near = apply(&"a".repeat(500), &[all("a", "bb")], 1000).unwrap();
        assert_eq!(near.text.len(), 1000);
    }

    /// Texts on which a naive search or diff would take forever.
    #[test]
    fn hostile_texts_are_handled_quickly() {
        let text = "a".repeat(4 << 20);
        assert!(apply(&text, &[edit(&"a".repeat(2 << 20), "b")], 16 << 20).is_err());
        let lines = "a\n".repeat(1 << 20);
        let changed = apply(&lines, &[all("a", "b")], 16 << 20).unwrap();
        assert_eq!(diff("f", &lines, &changed), (String::new(), true));
        let long_line = "é".repeat(1 << 20);
        assert!(apply(&long_line, &[edit("éa", "b")], 16 << 20).is_err());
    }

    #[test]
    fn edits_stop_when_the_call_was_stopped() {
        let refused = super::apply("a", &[edit("a", "b")], 1000, || true).unwrap_err();
        assert_eq!(refused, (0, EditError::Stopped));
    }

    #[test]
    fn a_diff_is_one_that_patch_reads() {
        let text = |lines: &[&str]| lines.join("\n");
        let old = text(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"]);
        let changed = apply(&old, &[edit("5\n", "five\nand a half\n"), edit("15", "fifteen")], 1000).unwrap();
        let (shown, cut) = diff("f", &old, &changed);
        assert!(!cut);
        let expected = [
            "--- a/f",
            "+++ b/f",
            "@@ -2,7 +2,8 @@",
            " 2",
            " 3",
            " 4",
            "-5",
            "+five",
            "+and a half",
            " 6",
            " 7",
            " 8",
            "@@ -12,4 +13,4 @@",
            " 12",
            " 13",
            " 14",
            "-15",
            "\\ No newline at end of file",
            "+fifteen",
            "\\ No newline at end of file",
            "",
        ];
        assert_eq!(shown, text(&expected));
    }

    #[test]
    fn a_long_diff_is_cut_at_a_line() {
        let text = format!("{}\n", "x".repeat(2000)).repeat(150);
        let changed = apply(&text, &[all("x\n", "y\n")], 1 << 20).unwrap();
        let (shown, cut) = diff("f", &text, &changed);
        assert!(cut && shown.ends_with('\n') && shown.len() <= 256 << 10);
    }
}

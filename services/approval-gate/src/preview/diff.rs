//! The difference between two texts as hunks of a unified diff, within limits on size and work.

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use belay_redaction::Redactor;
use similar::{
    ChangeTag, DiffOp, DiffTag,
    algorithms::{Capture, Compact, Replace, myers},
    group_diff_ops,
    udiff::UnifiedHunkHeader,
};

use super::{
    bytes::visible_line,
    hide::hidden_lines,
    text::{number, shortened},
};

/// The number of unchanged lines around a change.
const CONTEXT: usize = 3;

/// The longest line that is shown in full, in characters.
const MAX_LINE_CHARS: usize = 2_000;

/// The budget for comparing all files of one preview, in pairs of lines: some seconds at most. A file beyond it is shown as removed and added
/// as a whole, which is a correct diff as well.
pub(super) const MAX_WORK: u64 = 1_000_000_000;

/// The rest of the limits on output and work.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) lines: usize,
    /// Limited apart from lines: a line may be long, and escapes take more bytes than the original.
    pub(super) bytes: usize,
    pub(super) work: u64,
}

impl Budget {
    /// The share of one of the `files` that are left, of at most `most_lines` lines.
    pub(super) fn share(&self, files: usize, most_lines: usize) -> Share {
        let files = files.max(1);
        Share { lines: (self.lines / files).min(most_lines), bytes: self.bytes / files, line: MAX_LINE_CHARS }
    }
}

/// The limits for one file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) lines: usize,
    pub(super) bytes: usize,
    /// The longest line that is shown in full, in characters.
    pub(super) line: usize,
}

/// A difference for display.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Hunks: `@@ -1,4 +1,5 @@` and the lines, each after ` `, `+` or `-`.
    pub(super) unified: String,
    pub(super) added: usize,
    pub(super) removed: usize,
    /// The number of lines of hunks that are left out of `unified`.
    pub(super) more: usize,
    /// How many lines of the hunks are not shown as they are, by the rule that hides something of them.
    pub(super) hidden: BTreeMap<&'static str, usize>,
}

/// Compares two texts, and shows as many lines as the share allows, with secrets redacted. If not all fit, removed and added lines each get a
/// part, so that a long removal does not hide what replaces it.
pub(super) fn difference(
    redactor: &Redactor,
    before: &str,
    after: &str,
    share: Share,
    budget: &mut Budget,
) -> Difference {
    let ops = operations(&lines(before), &lines(after), &mut budget.work);
    let (old, new) = (hidden_lines(redactor, before), hidden_lines(redactor, after));
    let groups = group_diff_ops(ops, CONTEXT);
    let (removed, added) = groups.iter().flatten().fold((0, 0), |(removed, added), op| match op.as_tag_tuple() {
        (DiffTag::Equal, ..) => (removed, added),
        (_, was, is) => (removed + was.len(), added + is.len()),
    });
    let left = LineBudget::of(share, removed, added);
    let mut diff = UnifiedDiff { difference: Difference::default(), left, longest: share.line, took: (0, 0) };
    for group in groups {
        diff.other(&UnifiedHunkHeader::new(&group).to_string());
        for op in &group {
            let (tag, was, is) = op.as_tag_tuple();
            // An unchanged line is one line of both.
            let rules = old.rules(was.clone()).chain(new.rules(if tag == DiffTag::Equal { 0..0 } else { is.clone() }));
            rules.for_each(|rule| *diff.difference.hidden.entry(rule).or_default() += 1);
            match tag {
                DiffTag::Equal => diff.lines(ChangeTag::Equal, &old.lines[was]),
                _ => {
                    diff.lines(ChangeTag::Delete, &old.lines[was]);
                    diff.lines(ChangeTag::Insert, &new.lines[is]);
                }
            }
        }
    }
    budget.lines = budget.lines.saturating_sub(diff.took.0);
    budget.bytes = budget.bytes.saturating_sub(diff.took.1);
    diff.difference
}

/// The rest of a file's share, in lines and bytes, for each kind of line.
#[derive(Debug)]
struct LineBudget {
    removed: (usize, usize),
    added: (usize, usize),
    other: (usize, usize),
}

impl LineBudget {
    /// Splits a share. Headers and unchanged lines get an eighth and whatever is left over. Of the rest, removed and added lines get half each; what
    /// one kind does not need goes to the other.
    fn of(share: Share, removed: usize, added: usize) -> Self {
        let everything = (usize::MAX, usize::MAX);
        if share.lines == usize::MAX {
            return Self { removed: everything, added: everything, other: everything };
        }
        let lines = share.lines - share.lines / 8;
        let removed_lines = removed.min((lines / 2).max(lines.saturating_sub(added)));
        let added_lines = added.min(lines - removed_lines);
        let other_bytes = share.bytes / 8;
        let bytes = share.bytes - other_bytes;
        let bytes = if removed == 0 || added == 0 { bytes } else { bytes / 2 };
        Self {
            removed: (removed_lines, bytes),
            added: (added_lines, bytes),
            other: (share.lines - removed_lines - added_lines, other_bytes),
        }
    }
}

/// Lines with their line ends: a last line without one differs from the same line with one.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

struct UnifiedDiff {
    difference: Difference,
    left: LineBudget,
    longest: usize,
    /// Lines and bytes.
    took: (usize, usize),
}

impl UnifiedDiff {
    /// Appends a line, if the budget of its kind allows.
    fn put(&mut self, tag: Option<ChangeTag>, line: &str) -> bool {
        let (lines, bytes) = match tag {
            Some(ChangeTag::Delete) => &mut self.left.removed,
            Some(ChangeTag::Insert) => &mut self.left.added,
            Some(ChangeTag::Equal) | None => &mut self.left.other,
        };
        if *lines == 0 || *bytes <= line.len() {
            *lines = 0;
            return false;
        }
        (*lines, *bytes) = (*lines - 1, *bytes - line.len() - 1);
        self.took = (self.took.0 + 1, self.took.1 + line.len() + 1);
        self.difference.unified.push_str(line);
        self.difference.unified.push('\n');
        true
    }

    fn other(&mut self, line: &str) {
        if !self.put(None, line) {
            self.difference.more += 1;
        }
    }

    fn lines(&mut self, tag: ChangeTag, lines: &[Cow<'_, str>]) {
        let (sign, word) = match tag {
            ChangeTag::Equal => (' ', "unchanged"),
            ChangeTag::Delete => {
                self.difference.removed += lines.len();
                ('-', "removed")
            }
            ChangeTag::Insert => {
                self.difference.added += lines.len();
                ('+', "added")
            }
        };
        for (index, line) in lines.iter().enumerate() {
            let text = line.strip_suffix('\n');
            let text_shown = visible_line(&shortened(text.unwrap_or(line), self.longest));
            if !self.put(Some(tag), &format!("{sign}{text_shown}")) {
                // A hunk with a gap says where it is, and how large.
                let left = lines.len() - index;
                self.difference.more += left;
                self.difference
                    .unified
                    .push_str(&format!("\\ {} more {word} lines are not shown here\n", number(left)));
                return;
            }
            if text.is_none() {
                self.difference.unified.push_str("\\ No newline at end of file\n");
                self.took.0 += 1;
            }
        }
    }
}

/// The edit operations from one list of lines to the other.
fn operations(old: &[&str], new: &[&str], work: &mut u64) -> Vec<DiffOp> {
    let prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = |lines: &[&str]| lines.len() - prefix;
    let suffix =
        old.iter().rev().zip(new.iter().rev()).take(rest(old).min(rest(new))).take_while(|(a, b)| a == b).count();
    let middle = |lines: &[&str]| prefix..lines.len() - suffix;
    let (was, is) = (middle(old), middle(new));

    let mut ops = Vec::new();
    let equal = |old_index, new_index, len| DiffOp::Equal { old_index, new_index, len };
    if prefix > 0 {
        ops.push(equal(0, 0, prefix));
    }
    let cost = (was.len() as u64 + is.len() as u64).pow(2);
    match work.checked_sub(cost) {
        Some(left) if !was.is_empty() && !is.is_empty() => {
            *work = left;
            let (old, new) = (&old[was], &new[is]);
            let mut found = Compact::new(Replace::new(Capture::new()), old, new);
            let Ok(()) = myers::diff(&mut found, old, 0..old.len(), new, 0..new.len());
            ops.extend(found.into_inner().into_inner().into_ops().into_iter().map(|op| moved(op, prefix)));
        }
        _ => ops.extend(replaced(was, is)),
    }
    if suffix > 0 {
        ops.push(equal(old.len() - suffix, new.len() - suffix, suffix));
    }
    ops
}

/// Replaces all lines.
fn replaced(was: Range<usize>, is: Range<usize>) -> Option<DiffOp> {
    match (was.is_empty(), is.is_empty()) {
        (true, true) => None,
        (false, true) => Some(DiffOp::Delete { old_index: was.start, old_len: was.len(), new_index: is.start }),
        (true, false) => Some(DiffOp::Insert { old_index: was.start, new_index: is.start, new_len: is.len() }),
        (false, false) => {
            Some(DiffOp::Replace { old_index: was.start, old_len: was.len(), new_index: is.start, new_len: is.len() })
        }
    }
}

/// The operation at an offset.
fn moved(op: DiffOp, by: usize) -> DiffOp {
    let (tag, was, is) = op.as_tag_tuple();
    let (old_index, new_index) = (was.start + by, is.start + by);
    match tag {
        DiffTag::Equal => DiffOp::Equal { old_index, new_index, len: was.len() },
        _ => replaced(old_index..old_index + was.len(), new_index..new_index + is.len())
            .expect("the operation is never empty"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::new);

    fn budget() -> Budget {
        Budget { lines: 20_000, bytes: usize::MAX, work: MAX_WORK }
    }

    fn share(lines: usize) -> Share {
        Share { lines, bytes: usize::MAX, line: MAX_LINE_CHARS }
    }

    fn compare(before: &str, after: &str) -> Difference {
        difference(&REDACTOR, before, after, share(2_000), &mut budget())
    }

    #[test]
    fn a_change_stands_between_three_lines_on_each_side() {
        let before: String = (1..=10).map(|n| format!("{n}\n")).collect();
        let found = compare(&before, &before.replace("5\n", "five\nfive and a half\n"));
        assert_eq!(found.unified, "@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+five and a half\n 6\n 7\n 8\n");
        assert_eq!((found.added, found.removed, found.more), (2, 1, 0));
    }

    #[test]
    fn created_and_deleted_files_have_one_sign_only() {
        assert_eq!(compare("", "a\nb\n").unified, "@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(compare("a\n", "").unified, "@@ -1 +0,0 @@\n-a\n");
        assert_eq!(compare("same\n", "same\n"), Difference::default());
    }

    #[test]
    fn an_end_without_a_line_break_is_shown() {
        let found = compare("a\n", "a");
        assert_eq!(found.unified, "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n");
    }

    #[test]
    fn a_carriage_return_is_seen() {
        let found = compare("rm -rf /\rls\n", "ls\r\n");
        assert_eq!(found.unified, "@@ -1 +1 @@\n-rm -rf /<U+000D>ls\n+ls<U+000D>\n");
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let after: String = (0..5_000).map(|n| format!("{n}\n")).collect();
        let mut budget = Budget { lines: 2_500, ..budget() };
        let found = difference(&REDACTOR, "", &after, share(2_000), &mut budget);
        let shown = found.unified.lines().filter(|line| line.starts_with('+')).count();
        assert_eq!((shown + found.more, found.added), (5_000, 5_000));
        assert!(shown >= 1_500, "{shown}");
        assert!(found.unified.ends_with(&format!("\\ {} more added lines are not shown here\n", number(found.more))));
        assert_eq!(budget.lines, 2_500 - shown - 1, "the hunk's head is a line too");
        let long = compare("", &"x".repeat(5_000));
        assert!(long.unified.lines().nth(1).is_some_and(|line| line.ends_with("… 3,000 more characters")));
    }

    /// B-18: the removed lines of a long rewrite leave room for the added ones.
    #[test]
    fn a_long_rewrite_shows_added_lines_too() {
        let text = |word: &str| (0..4_000).map(|n| format!("{word} {n}\n")).collect::<String>();
        let found = compare(&text("old"), &text("new"));
        let count = |sign| found.unified.lines().filter(|line| line.starts_with(sign)).count();
        assert!(count('-') >= 800 && count('+') >= 800, "{} {}", count('-'), count('+'));
        assert_eq!(count('-') + count('+') + found.more, 8_000);
        assert!(found.unified.lines().count() <= 2_002, "and no more than its share");
        let short = compare(&text("old"), "new\n");
        assert!(short.unified.contains("+new\n"), "one added line below 4,000 removed ones");
    }

    #[test]
    fn escapes_count_against_the_byte_limit() {
        let mut budget = Budget { bytes: 20_000, ..budget() };
        let escapes = format!("{}\n", "\u{1b}".repeat(1_000)).repeat(10);
        let part = budget.share(1, 2_000);
        let found = difference(&REDACTOR, "", &escapes, part, &mut budget);
        assert_eq!((found.more, found.added), (8, 10));
        assert!(budget.bytes > 0);
    }

    #[test]
    fn texts_that_are_expensive_to_compare_are_shown_as_replaced() {
        let text =
            |offset: usize| (0..20_000).map(|n| format!("{}\n", (n * 7919 + offset) % 20_011)).collect::<String>();
        let mut budget = budget();
        let found = difference(&REDACTOR, &text(0), &text(3), share(2_000), &mut budget);
        assert_eq!((found.added, found.removed, budget.work), (20_000, 20_000, MAX_WORK), "nothing was spent");
        assert!(found.unified.starts_with("@@ -1,20000 +1,20000 @@\n-0\n"));
    }

    proptest! {
        /// The diff is correct: applying the hunks to the one text yields the other.
                #[test]
                fn applying_the_hunks_yields_the_other_text(
            before in proptest::collection::vec(0..6_u8, 0..40),
            after in proptest::collection::vec(0..6_u8, 0..40),
            work in prop_oneof![Just(0), Just(MAX_WORK)],
        ) {
            let text = |lines: &[u8]| lines.iter().map(|n| format!("{n}\n")).collect::<String>();
            let (before, after) = (text(&before), text(&after));
            let found = difference(&REDACTOR, &before, &after, share(usize::MAX), &mut Budget { lines: usize::MAX, bytes: usize::MAX, work });
            prop_assert_eq!(patched(&before, &found.unified), after);
            prop_assert_eq!(found.more, 0);
        }
    }

    fn patched(before: &str, unified: &str) -> String {
        let old: Vec<&str> = before.split_inclusive('\n').collect();
        let (mut at, mut made) = (0, String::new());
        for line in unified.lines() {
            match line.split_at(1) {
                ("@", rest) => {
                    let numbers = rest.trim_start_matches("@ -").split(' ').next().unwrap();
                    let (start, count) = numbers.split_once(',').unwrap_or((numbers, "1"));
                    let start = start.parse::<usize>().unwrap() - usize::from(count != "0");
                    made.push_str(&old[at..start].concat());
                    at = start;
                }
                ("+", text) => made.push_str(&format!("{text}\n")),
                (sign, text) => {
                    assert_eq!(old[at], format!("{text}\n"));
                    at += 1;
                    if sign == " " {
                        made.push_str(old[at - 1]);
                    }
                }
            }
        }
        made.push_str(&old[at..].concat());
        made
    }
}

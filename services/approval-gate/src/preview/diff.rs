//! The difference between two texts as the hunks of a unified diff, within limits that no text can talk its way out of.

use std::{borrow::Cow, ops::Range};

use belay_redaction::Redactor;
use similar::{Algorithm, ChangeTag, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};

use super::{
    hide::hidden_lines,
    text::{shortened, visible_line},
};

/// How many unchanged lines stand around a change.
const CONTEXT: usize = 3;

/// The longest line that is shown in full, in characters.
const LONGEST_LINE: usize = 2_000;

/// How much comparing all files of one preview may cost, in pairs of lines: some seconds at the worst. What is beyond it is shown as taken
/// out as a whole and put in as a whole, which is true as well.
pub(super) const WORK: u64 = 1_000_000_000;

/// What may still be shown, and what finding out may still cost.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) lines: usize,
    /// A line may be long, and what is not plain is shown in more bytes than it has.
    pub(super) bytes: usize,
    pub(super) work: u64,
}

/// A difference as it is shown.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// Hunks: `@@ -1,4 +1,5 @@` and the lines, each behind ` `, `+` or `-`.
    pub(super) unified: String,
    pub(super) added: usize,
    pub(super) removed: usize,
    /// How many lines of hunks are not in `unified`.
    pub(super) more: usize,
}

/// Compares two texts, and shows their lines without secrets; at most `most` lines, and fewer when the budget holds fewer.
pub(super) fn difference(
    redactor: &Redactor,
    before: &str,
    after: &str,
    most: usize,
    budget: &mut Budget,
) -> Difference {
    let ops = operations(&lines(before), &lines(after), &mut budget.work);
    let (old, new) = (hidden_lines(redactor, before), hidden_lines(redactor, after));
    let lines_left = most.min(budget.lines);
    let mut shown = Shown { difference: Difference::default(), lines_left, bytes_left: budget.bytes };
    for group in group_diff_ops(ops, CONTEXT) {
        shown.line(&header(&group));
        for op in &group {
            let (tag, was, is) = op.as_tag_tuple();
            match tag {
                DiffTag::Equal => shown.lines(ChangeTag::Equal, &old[was]),
                _ => {
                    shown.lines(ChangeTag::Delete, &old[was]);
                    shown.lines(ChangeTag::Insert, &new[is]);
                }
            }
        }
    }
    budget.lines -= lines_left - shown.lines_left;
    budget.bytes = shown.bytes_left;
    shown.difference
}

/// Lines with their ends: a last line without one differs from the same with one.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn header(group: &[DiffOp]) -> String {
    let of = |range: &dyn Fn(&DiffOp) -> Range<usize>| -> String {
        let start = group.first().map_or(0, |op| range(op).start);
        let end = group.last().map_or(0, |op| range(op).end);
        match end - start {
            0 => format!("{start},0"),
            1 => format!("{}", start + 1),
            count => format!("{},{count}", start + 1),
        }
    };
    format!("@@ -{} +{} @@", of(&DiffOp::old_range), of(&DiffOp::new_range))
}

struct Shown {
    difference: Difference,
    lines_left: usize,
    bytes_left: usize,
}

impl Shown {
    fn line(&mut self, line: &str) {
        if self.lines_left == 0 || self.bytes_left <= line.len() {
            // Nothing more of this file: a hunk with holes in it would tell something else.
            self.lines_left = 0;
            self.difference.more += 1;
            return;
        }
        self.lines_left -= 1;
        self.bytes_left -= line.len() + 1;
        self.difference.unified.push_str(line);
        self.difference.unified.push('\n');
    }

    fn lines(&mut self, tag: ChangeTag, lines: &[Cow<'_, str>]) {
        let sign = match tag {
            ChangeTag::Equal => ' ',
            ChangeTag::Delete => {
                self.difference.removed += lines.len();
                '-'
            }
            ChangeTag::Insert => {
                self.difference.added += lines.len();
                '+'
            }
        };
        for line in lines {
            let text = line.strip_suffix('\n');
            if self.lines_left == 0 {
                self.difference.more += 1;
                continue;
            }
            self.line(&format!("{sign}{}", visible_line(&shortened(text.unwrap_or(line), LONGEST_LINE))));
            if text.is_none() {
                self.line("\\ No newline at end of file");
            }
        }
    }
}

/// What to do to the one list of lines to get the other.
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
            let found = capture_diff_slices(Algorithm::Myers, &old[was], &new[is]);
            ops.extend(found.into_iter().map(|op| moved(op, prefix)));
        }
        _ => ops.extend(replaced(was, is)),
    }
    if suffix > 0 {
        ops.push(equal(old.len() - suffix, new.len() - suffix, suffix));
    }
    ops
}

/// All of it out, all of it in.
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

/// The same operation further on.
fn moved(op: DiffOp, by: usize) -> DiffOp {
    let (tag, was, is) = op.as_tag_tuple();
    let (old_index, new_index) = (was.start + by, is.start + by);
    match tag {
        DiffTag::Equal => DiffOp::Equal { old_index, new_index, len: was.len() },
        _ => replaced(old_index..old_index + was.len(), new_index..new_index + is.len())
            .expect("an operation that is none is never given"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    static REDACTOR: LazyLock<Redactor> = LazyLock::new(Redactor::new);

    fn budget() -> Budget {
        Budget { lines: 20_000, bytes: usize::MAX, work: WORK }
    }

    fn compare(before: &str, after: &str) -> Difference {
        difference(&REDACTOR, before, after, 2_000, &mut budget())
    }

    #[test]
    fn a_change_stands_between_three_lines_on_each_side() {
        let before: String = (1..=10).map(|n| format!("{n}\n")).collect();
        let found = compare(&before, &before.replace("5\n", "five\nfive and a half\n"));
        assert_eq!(found.unified, "@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+five and a half\n 6\n 7\n 8\n");
        assert_eq!((found.added, found.removed, found.more), (2, 1, 0));
    }

    #[test]
    fn made_and_removed_files_are_all_of_one_sign() {
        assert_eq!(compare("", "a\nb\n").unified, "@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(compare("a\n", "").unified, "@@ -1 +0,0 @@\n-a\n");
        assert_eq!(compare("same\n", "same\n"), Difference::default());
    }

    #[test]
    fn an_end_without_a_line_break_is_told() {
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
        let first = difference(&REDACTOR, "", &after, 2_000, &mut budget);
        assert_eq!((first.unified.lines().count(), first.more, first.added), (2_000, 3_001, 5_000));
        let second = difference(&REDACTOR, "", &after, 2_000, &mut budget);
        assert_eq!((second.unified.lines().count(), second.more), (500, 4_501));
        let long = compare("", &"x".repeat(5_000));
        assert!(long.unified.lines().nth(1).is_some_and(|line| line.ends_with("… 3,000 more characters")));
    }

    #[test]
    fn what_takes_many_bytes_to_show_ends_as_well() {
        let mut budget = Budget { bytes: 10_000, ..budget() };
        let escapes = format!("{}\n", "\u{1b}".repeat(1_000)).repeat(10);
        let found = difference(&REDACTOR, "", &escapes, 2_000, &mut budget);
        assert_eq!((found.unified.lines().count(), found.more, found.added), (2, 9, 10));
        let short = difference(&REDACTOR, "", "short\n", 2_000, &mut budget);
        assert_eq!(short.unified.lines().count(), 2, "there is still room for the next file");
    }

    #[test]
    fn texts_that_are_dear_to_compare_are_shown_as_replaced() {
        let text =
            |offset: usize| (0..20_000).map(|n| format!("{}\n", (n * 7919 + offset) % 20_011)).collect::<String>();
        let mut budget = budget();
        let found = difference(&REDACTOR, &text(0), &text(3), 2_000, &mut budget);
        assert_eq!((found.added, found.removed, budget.work), (20_000, 20_000, WORK), "nothing was spent");
        assert!(found.unified.starts_with("@@ -1,20000 +1,20000 @@\n-0\n"));
    }

    proptest! {
        /// What is shown is true: put in place of the lines it names, the hunks make the one text the other.
        #[test]
        fn the_hunks_lead_from_the_one_to_the_other(
            before in proptest::collection::vec(0..6_u8, 0..40),
            after in proptest::collection::vec(0..6_u8, 0..40),
            work in prop_oneof![Just(0), Just(WORK)],
        ) {
            let text = |lines: &[u8]| lines.iter().map(|n| format!("{n}\n")).collect::<String>();
            let (before, after) = (text(&before), text(&after));
            let found = difference(&REDACTOR, &before, &after, usize::MAX, &mut Budget { lines: usize::MAX, bytes: usize::MAX, work });
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

//! A model that repeats itself.

use std::collections::HashSet;

use serde_json::Value;

use crate::Turn;

/// From how many repetitions on the model is warned. One more ends the step (S2, X30).
pub const LIMIT: usize = 3;

/// What a turn did, as far as doing it again would be a repetition.
#[derive(PartialEq)]
struct Deed<'a> {
    calls: Vec<(&'a str, &'a Value, &'a str)>,
    results: Vec<(&'a str, bool)>,
    /// Whether all that it is known for is that commands failed.
    is_silent: bool,
}

/// How many times in a row the model has done the same: the same calls with the same results, calls that fail with the same error (that a command failed and
/// printed nothing is none), no call, or two things in turn. The last of `turns` has the results of the one before it, and no answer yet.
pub fn repetitions(turns: &[Turn]) -> usize {
    let deeds: Vec<Deed<'_>> = turns.windows(2).filter_map(|pair| deed(&pair[0], &pair[1])).collect();
    let same = run(&deeds, 1, |a, b| a == b);
    let alternating = run(&deeds, 2, |a, b| a == b);
    let failing = run(&deeds, 1, |a, b| {
        let errors = |deed: &Deed<'_>| {
            deed.results
                .iter()
                .filter(|(_, is_error)| *is_error)
                .map(|(text, _)| (*text).to_owned())
                .collect::<HashSet<_>>()
        };
        let all_failed =
            |deed: &Deed<'_>| !deed.results.is_empty() && deed.results.iter().all(|(_, is_error)| *is_error);
        // That a command has failed which printed nothing says too little: a search that finds nothing is no search repeated.
        all_failed(a) && all_failed(b) && errors(a) == errors(b) && !a.is_silent
    });
    let silent = deeds.iter().rev().take_while(|deed| deed.calls.is_empty()).count();
    same.max(alternating).max(failing).max(silent)
}

fn deed<'a>(turn: &'a Turn, next: &'a Turn) -> Option<Deed<'a>> {
    let answered = turn.answered.as_ref()?;
    Some(Deed {
        calls: answered.calls.iter().map(|call| (call.tool.as_str(), &call.arguments, call.written.as_str())).collect(),
        results: next.asked.results.iter().map(|result| (result.text.as_str(), result.is_error)).collect(),
        is_silent: next.asked.results.iter().all(|result| result.is_silent),
    })
}

/// How many times the last `period` deeds were done in a row.
fn run<'a>(deeds: &[Deed<'a>], period: usize, is_same: impl Fn(&Deed<'a>, &Deed<'a>) -> bool) -> usize {
    let matching =
        (period..deeds.len()).rev().take_while(|&place| is_same(&deeds[place], &deeds[place - period])).count();
    if deeds.len() < period { 0 } else { 1 + matching / period }
}

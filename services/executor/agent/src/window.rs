//! How much of a model's window a conversation takes, and which results are archived.

use belay_model::Estimator;

use crate::{
    Turn,
    prompt::{archived_before, size},
};

/// How many results stay at least (S2-X-14).
pub const KEPT: usize = 10;

/// How many results there are when the older ones are archived. In batches, because every archiving changes the beginning of the prompt, which servers have in their caches:
/// keeping exactly ten would have half of all tokens computed anew. Archiving at 20 leaves 88 % of all prompts as they were over 60 turns with results of 4 KiB, at 25 it is 90 % or more.
pub const ARCHIVE_AT: usize = 25;

/// Tokens for each byte where the server has counted nothing yet: about what tokenizers make of English and of code, less what their schemas add.
const USUAL: f64 = 1.0 / 3.0;

/// A model's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelWindow {
    /// How many tokens prompt and answer may have together.
    pub tokens: u64,
    /// How many tokens of it are left for the answer.
    pub max_output: u64,
}

impl ModelWindow {
    /// Whether the prompt of the last of these turns, as far as can be told, has more than so many percent of the window.
    pub fn has_more_than(self, percent: u32, turns: &[Turn]) -> bool {
        u128::from(expected(turns)) * 100 > u128::from(self.tokens) * u128::from(percent)
    }

    /// Whether the last of these turns, as far as can be told, has too many tokens.
    pub fn is_too_small_for(self, turns: &[Turn]) -> bool {
        expected(turns).saturating_add(self.max_output) > self.tokens
    }
}

/// How many results are archived from the next turn on, which has so many `new` ones after those of these turns.
pub fn archived(turns: &[Turn], new: usize) -> usize {
    let (before, results) = (archived_before(turns), read(turns) + new);
    if results.saturating_sub(before) > ARCHIVE_AT { archivable(turns, new) } else { before }
}

/// How many results can be archived then. What the model has not read yet is not, however much it is.
pub fn archivable(turns: &[Turn], new: usize) -> usize {
    let read = read(turns);
    (read + new).saturating_sub(KEPT).min(read).max(archived_before(turns))
}

fn read(turns: &[Turn]) -> usize {
    turns.iter().map(|turn| turn.asked.results.len()).sum()
}

/// The turns of whose prompts the server of the last turn's model has counted the tokens, with these, the last first: other models count otherwise. None is what servers
/// say that have counted nothing.
fn counts(turns: &[Turn]) -> impl Iterator<Item = (usize, u64)> + '_ {
    let model = turns.last().map(|turn| turn.asked.model.as_str());
    let counted = turns.iter().enumerate().rev().filter(move |(_, turn)| Some(&*turn.asked.model) == model);
    counted
        .filter_map(|(place, turn)| Some((place, turn.answered.as_ref()?.usage?.input)))
        .filter(|&(_, input)| input > 0)
}

/// How many tokens the server counted in the prompt of the last turn, and in the one before, if it has shortened it without saying so: a prompt that begins with the one before
/// cannot have fewer.
pub fn shortened(turns: &[Turn]) -> Option<(u64, u64)> {
    let mut counted = counts(turns);
    let (last, now) = counted.next()?;
    let (before, then) = counted.next()?;
    let has_archived = turns[last].asked.archived != turns[before].asked.archived;
    // Another model counts otherwise.
    let by_whom = |place: usize| turns[place].answered.as_ref().map(|answered| answered.model.as_str());
    if by_whom(last) != by_whom(before) {
        return None;
    }
    // Servers count a few tokens more or less for what separates messages.
    (!has_archived && now.saturating_add(then / 20) < then).then_some((now, then))
}

/// How many tokens the prompt of the last turn may have at most: one for each byte until the server has counted some; then what is expected, and a quarter more.
pub fn most_tokens(turns: &[Turn]) -> u64 {
    let bytes = size(turns, true) as u64;
    match counts(turns).next() {
        None => bytes,
        Some(_) => expected(turns).saturating_mul(5).div_ceil(4).min(bytes),
    }
}

/// How many tokens the prompt of the last turn is expected to have.
pub(crate) fn expected(turns: &[Turn]) -> u64 {
    let mut estimator = Estimator::NEW;
    // An estimate is right after two counts.
    let counted: Vec<(usize, u64)> = counts(turns).take(2).collect();
    for &(place, input) in counted.iter().rev() {
        estimator.learn(size(&turns[..=place], false), input);
    }
    let has_learnt = !counted.is_empty();
    let bytes = size(turns, true);
    if has_learnt { estimator.tokens(bytes) } else { (bytes as f64 * USUAL).ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Answered, Counted};

    fn turns(inputs: &[u64]) -> Vec<Turn> {
        let turn = |&input: &u64| {
            let usage = Some(Counted { input, ..Counted::default() });
            Turn { asked: Arc::default(), answered: Some(Arc::new(Answered { usage, ..Answered::default() })) }
        };
        inputs.iter().map(turn).collect()
    }

    /// At least the last ten stay, and all that the model has not read.
    #[test]
    fn what_was_not_read_is_not_archived() {
        let mut turns = turns(&[100, 200]);
        let mut results = |count: usize, new: usize| {
            Arc::make_mut(&mut turns[1].asked).results = vec![crate::ResultText::default(); count];
            archived(&turns, new)
        };
        assert_eq!([results(24, 1), results(25, 1), results(0, 100)], [0, 16, 0]);
        assert_eq!([results(30, 100), results(100, 1), results(100, 20)], [30, 91, 100]);
    }

    #[test]
    fn a_prompt_that_is_counted_as_shorter_than_its_beginning_was_shortened() {
        assert_eq!(shortened(&turns(&[1000, 2000, 1500])), Some((1500, 2000)));
        assert_eq!(shortened(&turns(&[1000, 2000, 1950])), None, "as many, counted otherwise");
        // Ollama leaves out the count of a prompt that it has in its cache.
        assert_eq!(shortened(&turns(&[1000, 2000, 0])), None, "nothing was counted");
        assert_eq!(shortened(&turns(&[2000, 0, 1500])), Some((1500, 2000)));
    }
}

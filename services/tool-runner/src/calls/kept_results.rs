use std::collections::VecDeque;

/// The calls that only read and whose results are blobs, from the oldest. Nothing but memory has them, and they may run again: they stay until they
/// are acknowledged, or until the results of all of them take too much.
#[derive(Debug, Default)]
pub(super) struct KeptResults(VecDeque<(String, usize)>);

impl KeptResults {
    /// Adds a call. Returns the calls to drop, so that at most `most` bytes are kept beside the one that was added. `is_kept`: whether the runner
    /// still has the result of a call.
    pub(super) fn add(&mut self, name: &str, bytes: usize, most: usize, is_kept: impl Fn(&str) -> bool) -> Vec<String> {
        self.0.retain(|(earlier, _)| earlier != name && is_kept(earlier));
        let mut total: usize = self.0.iter().map(|(_, bytes)| bytes).sum();
        let mut outdated = Vec::new();
        while total > most.saturating_sub(bytes)
            && let Some((name, bytes)) = self.0.pop_front()
        {
            total -= bytes;
            outdated.push(name);
        }
        self.0.push_back((name.to_owned(), bytes));
        outdated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_they_take_too_much() {
        let mut kept = KeptResults::default();
        let all = |_: &str| true;
        assert_eq!(kept.add("a", 4, 10, all), [""; 0]);
        assert_eq!(kept.add("b", 6, 10, all), [""; 0]);
        assert_eq!(kept.add("c", 1, 10, all), ["a"]);
        assert_eq!(kept.add("d", 3, 10, |name| name != "b"), [""; 0], "b was acknowledged");
        assert_eq!(kept.add("c", 7, 10, all), [""; 0], "it ran again");
        assert_eq!(kept.add("e", 11, 10, all), ["d", "c"], "the newest is about to be read");
        let mut kept = KeptResults::default();
        for (name, bytes, outdated) in [("a", 2, &[][..]), ("b", 8, &[]), ("c", 3, &["a", "b"])] {
            assert_eq!(kept.add(name, bytes, 10, all), outdated, "{name}");
        }
    }
}

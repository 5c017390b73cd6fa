//! Several approvals may be pending at once: they are asked about one after the other, and withdrawn when they are no longer pending.

use std::collections::BTreeSet;

use futures::future::LocalBoxFuture;

use super::AskOutcome;
use crate::{failure::Failure, render::approval::Turn};

/// An open question. Dropping it withdraws it.
pub(crate) type Question = LocalBoxFuture<'static, Result<AskOutcome, Failure>>;

/// The questions of one execution.
#[derive(Default)]
pub(crate) struct Queue {
    open: Option<(String, Question)>,
    /// Asked about, with any outcome; the execution's events may not show it yet.
    answered: BTreeSet<String>,
    /// How many have been put to the person since none waited.
    put: usize,
}

impl Queue {
    /// Whether a question is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Updates the queue to the approvals that are pending now: withdraws the open question if its approval is no longer pending, and asks
    /// about the next with `put`, which gets its number and the total. Returns the approval whose question was withdrawn.
    pub(crate) fn update<'a>(
        &mut self,
        waiting: impl Iterator<Item = &'a str>,
        put: impl FnOnce(&str, Turn) -> Question,
    ) -> Option<String> {
        let waiting: Vec<&str> = waiting.collect();
        let withdrawn = self.open.take_if(|(name, _)| !waiting.contains(&name.as_str())).map(|(name, _)| name);
        if self.open.is_none() {
            let mut open = waiting.into_iter().filter(|name| !self.answered.contains(*name));
            match open.next() {
                Some(name) => {
                    self.put += 1;
                    let turn = Turn { number: self.put, of: self.put + open.count(), ..Turn::ONLY };
                    self.open = Some((name.to_owned(), put(name, turn)));
                }
                None => self.put = 0,
            }
        }
        withdrawn
    }

    /// Waits for the answer to the open question; never returns without one.
    pub(crate) async fn answer(&mut self) -> Result<AskOutcome, Failure> {
        let Some((name, question)) = &mut self.open else {
            return std::future::pending().await;
        };
        let answer = question.await;
        self.answered.insert(std::mem::take(name));
        self.open = None;
        answer
    }

    /// Asks again about what still waits, such as after a connection broke.
    pub(crate) fn begin_again(&mut self) {
        self.answered.clear();
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::Approval;
    use futures::FutureExt as _;

    use super::*;

    fn decided(name: &str, _: Turn) -> Question {
        let approval = Approval { name: name.to_owned(), ..Default::default() };
        async { Ok(AskOutcome::Decided(Box::new(approval))) }.boxed_local()
    }

    async fn answer(queue: &mut Queue) -> String {
        match queue.answer().await {
            Ok(AskOutcome::Decided(approval)) => approval.name,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn approvals_are_asked_about_one_after_the_other_and_once() {
        let mut queue = Queue::default();
        assert_eq!(queue.update(["a", "b"].into_iter(), decided), None);
        assert_eq!(answer(&mut queue).await, "a");
        // The execution's events do not show the decision yet: both are still pending.
        queue.update(["a", "b"].into_iter(), decided);
        assert_eq!(answer(&mut queue).await, "b");
        queue.update(["a", "b"].into_iter(), decided);
        assert!(!queue.is_open());
        queue.begin_again();
        queue.update(["b"].into_iter(), decided);
        assert!(queue.is_open());
    }

    #[tokio::test]
    async fn a_queue_says_which_of_how_many_one_is() {
        let (mut queue, mut turns) = (Queue::default(), Vec::new());
        let waiting = [&["a", "b", "c"][..], &["b", "c", "d"], &["c", "d"], &["d"], &[], &["e"]];
        for waiting in waiting {
            queue.update(waiting.iter().copied(), |name, turn| {
                turns.push((turn.number, turn.of));
                decided(name, turn)
            });
            if queue.is_open() {
                answer(&mut queue).await;
            }
        }
        assert_eq!(turns, [(1, 3), (2, 4), (3, 4), (4, 4), (1, 1)]);
    }

    #[tokio::test]
    async fn a_question_is_withdrawn_when_another_person_decides() {
        let mut queue = Queue::default();
        queue.update(["a"].into_iter(), |_, _| futures::future::pending().boxed_local());
        assert!(queue.answer().now_or_never().is_none());
        assert_eq!(queue.update(["a"].into_iter(), decided), None, "it still waits");
        assert_eq!(queue.update(["b"].into_iter(), decided).as_deref(), Some("a"));
        assert_eq!(answer(&mut queue).await, "b");
    }
}

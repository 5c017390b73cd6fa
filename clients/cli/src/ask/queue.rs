//! Several approvals may wait at once: they are asked about one after the other, and taken back when they no longer wait.

use std::collections::BTreeSet;

use futures::future::LocalBoxFuture;

use super::Answer;
use crate::{failure::Failure, render::approval::Turn};

/// A question under way. Dropping it takes it back.
pub(crate) type Question = LocalBoxFuture<'static, Result<Answer, Failure>>;

/// The questions of one execution.
#[derive(Default)]
pub(crate) struct Queue {
    open: Option<(String, Question)>,
    /// Asked about, whatever came of it; the execution may not have heard of it yet.
    settled: BTreeSet<String>,
    /// How many have been put to the person since none waited.
    put: usize,
}

impl Queue {
    /// Whether somebody is being asked.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes note of the approvals that wait now: takes back what no longer waits, and asks about the next with `put`, which is told which
    /// of how many it is. The one that was taken back.
    pub(crate) fn update<'a>(
        &mut self,
        waiting: impl Iterator<Item = &'a str>,
        put: impl FnOnce(&str, Turn) -> Question,
    ) -> Option<String> {
        let waiting: Vec<&str> = waiting.collect();
        let withdrawn = self.open.take_if(|(name, _)| !waiting.contains(&name.as_str())).map(|(name, _)| name);
        if self.open.is_none() {
            let mut open = waiting.into_iter().filter(|name| !self.settled.contains(*name));
            match open.next() {
                Some(name) => {
                    self.put += 1;
                    let turn = Turn { number: self.put, of: self.put + open.count() };
                    self.open = Some((name.to_owned(), put(name, turn)));
                }
                None => self.put = 0,
            }
        }
        withdrawn
    }

    /// The answer to the open question, once it is there; for ever without one.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Failure> {
        let Some((name, question)) = &mut self.open else {
            return std::future::pending().await;
        };
        let answer = question.await;
        self.settled.insert(std::mem::take(name));
        self.open = None;
        answer
    }

    /// Asks again about what still waits, such as after a connection broke.
    pub(crate) fn begin_again(&mut self) {
        self.settled.clear();
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::Approval;
    use futures::FutureExt as _;

    use super::*;

    fn decided(name: &str, _: Turn) -> Question {
        let approval = Approval { name: name.to_owned(), ..Default::default() };
        async { Ok(Answer::Decided(Box::new(approval))) }.boxed_local()
    }

    async fn answer(queue: &mut Queue) -> String {
        match queue.answer().await {
            Ok(Answer::Decided(approval)) => approval.name,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn approvals_are_asked_about_one_after_the_other_and_once() {
        let mut queue = Queue::default();
        assert_eq!(queue.update(["a", "b"].into_iter(), decided), None);
        assert_eq!(answer(&mut queue).await, "a");
        // The execution has not heard of the decision: both still wait.
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
    async fn a_question_goes_away_when_somebody_else_decides() {
        let mut queue = Queue::default();
        queue.update(["a"].into_iter(), |_, _| futures::future::pending().boxed_local());
        assert!(queue.answer().now_or_never().is_none());
        assert_eq!(queue.update(["a"].into_iter(), decided), None, "it still waits");
        assert_eq!(queue.update(["b"].into_iter(), decided).as_deref(), Some("a"));
        assert_eq!(answer(&mut queue).await, "b");
    }
}

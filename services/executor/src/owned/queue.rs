//! A queue of messages to another service, which takes no more memory while that service is away.
//!
//! Everything that the messages say can be found out again: from the journal, and from the other service. So a message that finds the queue full is
//! dropped, and once the rest is sent, everything is found out again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{Mutex, MutexGuard, Notify, mpsc};

/// How many messages wait: as many only while the other service is away.
const CAPACITY: usize = 10_000;

#[derive(Debug, Default)]
struct Lost {
    /// Messages found the queue full.
    some: AtomicBool,
    review: Notify,
}

/// The end that messages are put in.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    sender: mpsc::Sender<T>,
    lost: Arc<Lost>,
}

/// The end that they are taken out of. It stays when the task that takes them fails.
#[derive(Debug)]
pub(crate) struct QueueReceiver<T> {
    receiver: Mutex<mpsc::Receiver<T>>,
    taken: AtomicBool,
    lost: Arc<Lost>,
}

/// The two ends of a queue.
pub(crate) fn queue<T>() -> (Queue<T>, QueueReceiver<T>) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let lost = Arc::<Lost>::default();
    (
        Queue { sender, lost: Arc::clone(&lost) },
        QueueReceiver { receiver: Mutex::new(receiver), taken: AtomicBool::new(false), lost },
    )
}

impl<T> Queue<T> {
    /// Puts a message in, unless the queue is full.
    pub(crate) fn push(&self, message: T) {
        // Closed means that the service is stopping.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.sender.try_send(message) {
            self.lost.some.store(true, Ordering::SeqCst);
        }
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Returns when messages have to be found out again.
    pub(crate) async fn review(&self) {
        self.lost.review.notified().await;
    }

    /// Lets everything be found out again.
    pub(crate) fn review_now(&self) {
        self.lost.review.notify_one();
    }
}

impl<T> QueueReceiver<T> {
    /// The messages, for one task at a time. One that was there before may have failed with messages that it had taken.
    pub(crate) async fn messages(&self) -> Messages<'_, T> {
        if self.taken.swap(true, Ordering::SeqCst) {
            self.lost.some.store(true, Ordering::SeqCst);
        }
        Messages { receiver: self.receiver.lock().await, lost: &self.lost }
    }
}

/// The messages of a queue.
pub(crate) struct Messages<'a, T> {
    receiver: MutexGuard<'a, mpsc::Receiver<T>>,
    lost: &'a Lost,
}

impl<T> Messages<'_, T> {
    /// Waits for messages, and takes at most as many into `batch`. Returns `false` when there will be none.
    pub(crate) async fn take(&mut self, batch: &mut Vec<T>, most: usize) -> bool {
        if self.receiver.is_empty() && self.lost.some.swap(false, Ordering::SeqCst) {
            self.lost.review.notify_one();
        }
        self.receiver.recv_many(batch, most).await > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_is_reviewed_once_it_is_empty() {
        let (queue, queued) = queue();
        (0..CAPACITY).for_each(|n| queue.push(n));
        let mut messages = queued.messages().await;
        let (mut batch, mut taken) = (Vec::new(), 0);
        queue.push(CAPACITY);
        while taken < CAPACITY {
            assert!(!queue.lost_is_told(), "not before the rest is sent");
            assert!(messages.take(&mut batch, 1000).await);
            taken += batch.drain(..).len();
        }
        queue.push(7);
        assert!(messages.take(&mut batch, 1000).await);
        assert_eq!(batch, [7]);
        assert!(!queue.lost_is_told(), "the queue was not empty");
        drop(tokio::time::timeout(std::time::Duration::ZERO, messages.take(&mut batch, 1000)).await);
        assert!(queue.lost_is_told());
        drop(queue);
        assert!(!messages.take(&mut batch, 1000).await);
    }

    impl<T> Queue<T> {
        fn lost_is_told(&self) -> bool {
            use futures::FutureExt as _;
            self.review().now_or_never().is_some()
        }
    }
}

//! Blocking work of one kind, on a bounded number of threads.

use std::sync::Arc;

use belay_defects::{Defect, is_planted};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};

use crate::{Threads, joined};

/// A bounded number of threads for blocking work of one kind. Further work waits in FIFO order without a thread, so that one kind of work
/// never delays another kind, however much of it there is.
#[derive(Clone, Debug)]
pub struct Lane {
    threads: Threads,
    slots: Arc<Semaphore>,
}

/// A slot in a [`Lane`], held until the work that runs in it has ended.
#[derive(Debug)]
pub struct Slot {
    threads: Threads,
    held: OwnedSemaphorePermit,
}

impl Lane {
    /// A lane with room for `slots` pieces of work at a time, at least one.
    #[must_use]
    pub fn new(threads: Threads, slots: usize) -> Self {
        Self { threads, slots: Arc::new(Semaphore::new(slots.max(1))) }
    }

    /// Waits for a slot. Dropping the future leaves the line. It must be polled until then: a slot that has become free is the future's, whether it is
    /// polled again or not.
    ///
    /// # Panics
    /// Never: the lane is not closed.
    pub async fn slot(&self) -> Slot {
        let held = Arc::clone(&self.slots).acquire_owned().await.expect("a lane is never closed");
        Slot { threads: self.threads, held }
    }

    /// Waits for a slot and runs `work` in it. Dropping the future before `work` has begun leaves the line.
    ///
    /// A future that is not polled any more keeps no slot from others: the body of a response, for example, is polled only when its client reads. So the
    /// wait is that of a task, which takes the slot and gives it back.
    ///
    /// # Panics
    /// When `work` does.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        // Without waiting the work has the slot before this future can rest.
        if let Ok(held) = Arc::clone(&self.slots).try_acquire_owned() {
            return Slot { threads: self.threads, held }.run(work).await;
        }
        if is_planted(Defect::UnpolledKeepsSlot) {
            return self.slot().await.run(work).await;
        }
        let lane = self.clone();
        let mut waiting = QueuedTask(tokio::spawn(async move { lane.slot().await.run(work).await }));
        joined(&mut waiting.0).await
    }
}

/// A task that waits for a slot and then for its work. It ends with this value; work that has begun continues.
struct QueuedTask<T>(JoinHandle<T>);

impl<T> Drop for QueuedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Slot {
    /// Runs `work`, to its end even when the future is dropped.
    ///
    /// # Panics
    /// When `work` does.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let Self { threads, held } = self;
        let done = threads.run(move || {
            let done = work();
            drop(held);
            done
        });
        done.await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use belay_defects::assert_attack_needs;

    use super::*;

    #[tokio::test]
    async fn no_more_threads_work_than_the_lane_has_slots() {
        let lane = Lane::new(Threads::Real, 2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (lane, now, most) = (lane.clone(), Arc::clone(&now), Arc::clone(&most));
            running.spawn(async move {
                let work = move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                };
                lane.run(work).await;
            });
        }
        running.join_all().await;
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
    }

    #[tokio::test]
    async fn a_full_lane_does_not_delay_another() {
        let (full, other) = (Lane::new(Threads::Real, 1), Lane::new(Threads::Real, 1));
        let barrier = Arc::new(Barrier::new(2));
        let (inside, go_on) = (full.clone(), Arc::clone(&barrier));
        let long = tokio::spawn(async move { inside.run(move || go_on.wait()).await });
        assert_eq!(other.run(|| 7).await, 7);
        // The long work ends only if the other work runs meanwhile.
        other.run(move || barrier.wait()).await;
        long.await.unwrap();
        assert_eq!(full.run(|| 8).await, 8);
    }

    /// A watch whose client does not read is such a future.
    #[test]
    fn a_future_that_is_not_polled_any_more_holds_no_slot() {
        assert_attack_needs(Defect::UnpolledKeepsSlot, "nobody else gets a slot", || {
            // The clock advances when nothing happens any more.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
            runtime.unwrap().block_on(waiting_without_being_polled())
        });
    }

    async fn waiting_without_being_polled() -> Result<(), String> {
        let lane = Lane::new(Threads::Real, 1);
        let barrier = Arc::new(Barrier::new(2));
        let (inside, go_on) = (lane.clone(), Arc::clone(&barrier));
        let long = tokio::spawn(async move { inside.run(move || go_on.wait()).await });
        while lane.slots.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // Both are in the line, and neither is polled again.
        let began = Arc::new(AtomicUsize::new(0));
        let begin = || {
            let began = Arc::clone(&began);
            move || began.fetch_add(1, Ordering::SeqCst)
        };
        let (mut left, mut dropped) = (Box::pin(lane.run(begin())), Box::pin(lane.run(begin())));
        assert!(poll_once(&mut left).is_pending() && poll_once(&mut dropped).is_pending());
        drop(dropped);
        Threads::Real.run(move || barrier.wait()).await;
        long.await.unwrap();
        let other = tokio::time::timeout(Duration::from_secs(60), lane.run(|| 1)).await;
        assert_eq!(other.map_err(|_| "nobody else gets a slot".to_owned())?, 1);
        assert_eq!((left.await, began.load(Ordering::SeqCst)), (0, 1), "the work of what was dropped has not begun");
        Ok(())
    }

    fn poll_once<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
        std::pin::Pin::new(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_slot_back() {
        let lane = Lane::new(Threads::Real, 1);
        let inside = lane.clone();
        assert!(tokio::spawn(async move { inside.run(|| panic!("on purpose")).await }).await.unwrap_err().is_panic());
        assert_eq!(lane.run(|| 1).await, 1);
        // So does one that has waited for it.
        let slot = lane.slot().await;
        let inside = lane.clone();
        let panicking = tokio::spawn(async move { inside.run(|| panic!("on purpose")).await });
        tokio::task::yield_now().await;
        drop(slot);
        assert!(panicking.await.unwrap_err().is_panic());
        assert_eq!(lane.run(|| 1).await, 1);
    }
}

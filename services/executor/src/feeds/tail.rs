//! When a store that another process writes is read.

use belay_reasons::StoreFault;
use std::time::Duration;

use belay_journal::StoreError;
use tokio::sync::watch;

/// How soon a store is read again after a signal, or after a read that found something.
const SOONEST: Duration = Duration::from_millis(10);

/// How long it is not read at most. A signal may come before what was written can be read, and may be missed, so that reads become rarer and rarer
/// after it, and continue at this interval.
const LATEST: Duration = Duration::from_secs(1);

/// The time until the next read, after one that did or did not find something.
fn next_pause(pause: Duration, found: bool) -> Duration {
    if found { SOONEST } else { (pause * 2).min(LATEST) }
}

/// Follows a store that another process writes: what is committed is shown to readers and watchers within the time that a commit takes, and 15 ms.
/// Without commits the store is read once in a second. `catch_up` shows what was committed since the last time and returns whether that is something;
/// `writes` changes when something was written. Returns why it cannot continue.
pub(super) async fn follow<F: Future<Output = Result<bool, StoreError>>>(
    catch_up: impl Fn() -> F,
    mut writes: watch::Receiver<()>,
) -> StoreError {
    let (mut pause, mut has_failed, mut has_signals) = (SOONEST, false, true);
    loop {
        let found = match catch_up().await {
            Ok(found) => {
                has_failed = false;
                found
            }
            Err(
                error @ (StoreError::Fault(StoreFault::Gone)
                | StoreError::Fault(StoreFault::Corrupt(_))
                | StoreError::Fault(StoreFault::Newer { .. })),
            ) => return error,
            Err(error) => {
                // A disk that does not answer for a while; once in a row is enough to know.
                if !has_failed {
                    tracing::warn!(%error, "The store cannot be followed; it is tried again");
                }
                has_failed = true;
                false
            }
        };
        pause = next_pause(pause, found);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = writes.changed(), if has_signals => {
                has_signals = changed.is_ok();
                // The log was written and is not flushed yet, or only a moment ago.
                pause = SOONEST / 2;
                tokio::time::sleep(pause).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        rc::Rc,
    };

    use tokio::time::Instant;

    use super::*;

    /// When a store was read that has no commits but at these times, each with a signal if it has one.
    async fn reads(until: Duration, commits: &[(Duration, bool)]) -> (Vec<Duration>, Vec<Duration>) {
        let (began, (signal, writes)) = (Instant::now(), watch::channel(()));
        let (committed, reads, shown) = (Cell::new(0), RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let seen = Cell::new(0);
        let catch_up = || async {
            reads.borrow_mut().push(began.elapsed());
            let found = committed.get() - seen.replace(committed.get());
            shown.borrow_mut().extend(std::iter::repeat_n(began.elapsed(), found));
            Ok(found > 0)
        };
        let commit = async {
            for (at, has_signal) in commits {
                tokio::time::sleep_until(began + *at).await;
                if *has_signal {
                    signal.send_replace(());
                }
                // The log is flushed, and the commit can be read, after it was written.
                tokio::time::sleep(Duration::from_millis(3)).await;
                committed.set(committed.get() + 1);
            }
            tokio::time::sleep_until(began + until).await;
        };
        tokio::select! {
            error = follow(catch_up, writes) => panic!("{error}"),
            () = commit => {}
        }
        (reads.into_inner(), shown.into_inner())
    }

    /// B-38: what was committed is shown within 100 ms, also where its signal comes before it can be read; a store without commits is read at most twice
    /// a second; and one whose signals are lost is read all the same.
    #[tokio::test(start_paused = true)]
    async fn a_store_is_read_soon_after_a_commit_and_seldom_without() {
        let seconds = Duration::from_secs;
        let (idle, _) = reads(seconds(100), &[]).await;
        let steady = idle.iter().filter(|at| **at > seconds(10)).count();
        assert!(steady <= 90 && idle.len() < 120, "{} reads in 100 s, {steady} in the last 90", idle.len());
        let commits: Vec<_> = (1..=20).map(|n| (seconds(3 * n) + Duration::from_millis(37 * n), true)).collect();
        let (read, shown) = reads(seconds(70), &commits).await;
        assert_eq!(shown.len(), commits.len());
        for ((at, _), shown) in commits.iter().zip(&shown) {
            let late = *shown - *at;
            assert!(late <= Duration::from_millis(20), "{late:?} after its commit");
        }
        assert!(read.len() < 70 + 12 * commits.len(), "{} reads", read.len());
        let unsignalled: Vec<_> = commits.iter().map(|(at, _)| (*at, false)).collect();
        let (_, shown) = reads(seconds(70), &unsignalled).await;
        let late = unsignalled.iter().zip(&shown).map(|((at, _), shown)| *shown - *at).max();
        assert!(shown.len() == commits.len() && late <= Some(LATEST + Duration::from_millis(3)), "{late:?}");
    }

    /// A store that does not answer for a while is tried again, and one that is gone is given up.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_gone_is_followed_no_more() {
        let (tries, (_signal, writes)) = (Rc::new(Cell::new(0)), watch::channel(()));
        let catch_up = || async {
            tries.set(tries.get() + 1);
            Err(if tries.get() < 4 {
                StoreError::Fault(StoreFault::Other("a disk".into()))
            } else {
                StoreError::Fault(StoreFault::Gone)
            })
        };
        let within = tokio::time::timeout(Duration::from_secs(1), follow(catch_up, writes)).await;
        assert!(matches!(within, Ok(StoreError::Fault(StoreFault::Gone))) && tries.get() == 4);
    }
}

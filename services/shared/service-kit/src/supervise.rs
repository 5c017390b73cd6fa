//! Tasks that live as long as their service.

use std::{any::Any, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;

use crate::{Ids, Retry};

/// The delay before a task that panicked is started again: however often it does, it takes no time from others and does not fill the log.
const RESTART: Retry = Retry::new(Duration::from_millis(50), Duration::from_secs(60));

/// Runs a task until it returns. When it panics, the cause is logged and the task is started again after a delay, so that one fault does not
/// end what the service does for all. `what` completes the sentence "The task that ... has failed". The cause goes through `shown`, which removes
/// what a log must not have.
pub async fn supervise<F: Future<Output = ()> + Send>(
    what: &'static str,
    ids: &Ids,
    shown: impl Fn(String) -> String,
    mut task: impl FnMut() -> F,
) {
    let mut restart = RESTART;
    while let Err(panic) = AssertUnwindSafe(task()).catch_unwind().await {
        let fault = shown(words(panic.as_ref()));
        tracing::error!(fault, "The task that {what} has failed; it is started again");
        restart.pause(ids).await;
    }
}

/// The words of a panic.
pub fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it does not say why".to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_started_again_with_its_cause() {
        let (ids, runs, causes) = (Ids::seeded(1), Cell::new(0), RefCell::new(Vec::new()));
        let shown = |cause: String| {
            causes.borrow_mut().push(cause.clone());
            cause
        };
        let task = || {
            let run = runs.get() + 1;
            runs.set(run);
            async move { assert!(run == 20, "run {run}") }
        };
        let all = supervise("counts", &ids, shown, task);
        let minutes = Duration::from_secs(120);
        let waited = async {
            tokio::time::sleep(minutes).await;
            runs.get()
        };
        let (early, ()) = futures::future::join(waited, all).await;
        assert!(early < 20, "the delays grow: {early} runs in {minutes:?}");
        assert_eq!((runs.get(), causes.borrow().len()), (20, 19));
        assert_eq!(causes.borrow()[0], "run 1");
    }
}

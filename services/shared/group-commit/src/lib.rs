//! Group commit: one writer makes the operations of many callers durable with one flush.
//!
//! It knows no store. A [`Writer`] makes a batch durable; waiting for a batch does not delay collecting the next one.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// The default limit of operations in one commit; it bounds how long the first of them waits.
pub const MAX_BATCH: usize = 1024;

/// Makes pauses where threads would be interrupted, so that a simulation with one thread meets the same orders of events.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// How long the next pause is: zero lets the other tasks run once, and `None` is no pause.
    pub next: fn() -> Option<Duration>,
}

impl Pauses {
    /// Makes the next pause.
    pub async fn pause(self) {
        match (self.next)() {
            None => {}
            Some(Duration::ZERO) => tokio::task::yield_now().await,
            Some(long) => tokio::time::sleep(long).await,
        }
    }
}

/// Where a writer runs.
#[derive(Clone, Copy, Debug)]
pub enum WriterRuntime<'a> {
    /// On a thread of its own with this name: its commits may block it.
    OnThread(&'a str),
    /// As a task of the runtime: its commits may not block.
    AsTask,
    /// The same, with pauses between a commit and its answers: what is committed is visible before those who wait for it know.
    Interleaved(Pauses),
}

/// Makes batches durable, one after the other. A closure that blocks is one, too.
pub trait Writer<Op, Output, Error>: Send + 'static {
    /// Makes a batch durable, and returns one output for each operation, in order.
    fn commit(&mut self, batch: Vec<Op>) -> impl Future<Output = Result<Vec<Output>, Error>> + Send;
}

impl<Op, Output, Error, F> Writer<Op, Output, Error> for F
where
    Op: Send + 'static,
    Output: Send + 'static,
    Error: Send + 'static,
    F: FnMut(Vec<Op>) -> Result<Vec<Output>, Error> + Send + 'static,
{
    fn commit(&mut self, batch: Vec<Op>) -> impl Future<Output = Result<Vec<Output>, Error>> + Send {
        std::future::ready(self(batch))
    }
}

type QueuedOp<Op, Output, Error> = (Op, oneshot::Sender<Result<Output, Error>>);

/// A handle to the writer. Cheap to clone. The writer ends when the last handle is dropped.
pub struct GroupCommit<Op, Output, Error> {
    sender: mpsc::UnboundedSender<QueuedOp<Op, Output, Error>>,
    /// The writer's own thread, if it has one.
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl<Op, Output, Error> Clone for GroupCommit<Op, Output, Error> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), thread: Arc::clone(&self.thread) }
    }
}

impl<Op, Output, Error> fmt::Debug for GroupCommit<Op, Output, Error> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupCommit")
    }
}

/// Why an operation may not be durable.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CommitError<Error> {
    /// The batch failed as a whole.
    #[error(transparent)]
    Failed(Error),
    /// The writer is gone.
    #[error("the writer has stopped")]
    Stopped,
}

impl<Op, Output, Error> GroupCommit<Op, Output, Error>
where
    Op: Send + 'static,
    Output: Send + 'static,
    Error: Clone + Send + 'static,
{
    /// Starts the writer, which gets at most `max_batch` operations in a batch.
    ///
    /// # Panics
    /// When the operating system gives no thread, or a task is to be started outside a runtime.
    pub fn start(runs: WriterRuntime<'_>, max_batch: usize, writer: impl Writer<Op, Output, Error>) -> Self {
        // Not bounded: a caller that commits waits for the result, so there are as many operations as waiting tasks.
        let (sender, receiver) = mpsc::unbounded_channel::<QueuedOp<Op, Output, Error>>();
        let pauses = match runs {
            WriterRuntime::Interleaved(pauses) => Some(pauses),
            WriterRuntime::OnThread(_) | WriterRuntime::AsTask => None,
        };
        let work = run(receiver, max_batch, writer, pauses);
        let thread = match runs {
            WriterRuntime::OnThread(name) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                let runtime = runtime.expect("a runtime without I/O needs nothing of the operating system");
                let thread = std::thread::Builder::new().name(name.into());
                Some(thread.spawn(move || runtime.block_on(work)).expect("the operating system starts a thread"))
            }
            WriterRuntime::AsTask | WriterRuntime::Interleaved(_) => {
                tokio::spawn(work);
                None
            }
        };
        Self { sender, thread: Arc::new(Mutex::new(thread)) }
    }

    /// Ends a writer on a thread of its own, and returns when it has dropped what it writes to, so that this can be opened again. Other
    /// handles must have been dropped before: it waits for them.
    pub fn close(self) {
        let Self { sender, thread } = self;
        drop(sender);
        let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A writer that panicked has dropped it, too.
        drop(thread.map(JoinHandle::join));
    }

    /// Makes one operation durable, together with all others that are ready. When this returns `Ok`, it is on disk.
    ///
    /// # Errors
    /// [`CommitError`] when it may not be durable.
    pub async fn commit(&self, operation: Op) -> Result<Output, CommitError<Error>> {
        let (answer, answered) = oneshot::channel();
        self.sender.send((operation, answer)).map_err(|_| CommitError::Stopped)?;
        match answered.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(CommitError::Failed(error)),
            Err(_) => Err(CommitError::Stopped),
        }
    }
}

/// Commits what is ready, until no handle is left.
async fn run<Op, Output, Error: Clone>(
    mut receiver: mpsc::UnboundedReceiver<QueuedOp<Op, Output, Error>>,
    max_batch: usize,
    mut writer: impl Writer<Op, Output, Error>,
    pauses: Option<Pauses>,
) {
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, max_batch).await > 0 {
        let (operations, waiting): (Vec<Op>, Vec<_>) = batch.drain(..).unzip();
        // The caller may have disconnected; its operation is committed all the same.
        let committed = writer.commit(operations).await;
        if let Some(pauses) = pauses {
            pauses.pause().await;
        }
        match committed {
            Ok(answers) => waiting.into_iter().zip(answers).for_each(|(caller, answer)| drop(caller.send(Ok(answer)))),
            Err(error) => waiting.into_iter().for_each(|caller| drop(caller.send(Err(error.clone())))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as sync;

    use super::*;

    #[tokio::test]
    async fn operations_that_are_ready_share_a_commit() {
        let (entered, gate_reached) = sync::channel();
        let (open_gate, gate) = sync::channel::<()>();
        let writer = GroupCommit::start(WriterRuntime::OnThread("test"), MAX_BATCH, move |batch: Vec<u32>| {
            entered.send(batch.len()).unwrap();
            gate.recv().unwrap();
            Ok::<_, String>(batch.into_iter().map(|n| n * 10).collect())
        });
        let first = tokio::spawn({
            let writer = writer.clone();
            async move { writer.commit(1).await }
        });
        let reached = tokio::task::spawn_blocking(move || (gate_reached.recv().unwrap(), gate_reached)).await.unwrap();
        assert_eq!(reached.0, 1);
        let mut others = Vec::new();
        for n in 2..10 {
            let mut commit = Box::pin({
                let writer = writer.clone();
                async move { writer.commit(n).await }
            });
            // Polled once, so that it stands in the queue before the gate opens.
            assert!(futures_poll_once(commit.as_mut()).await.is_none());
            others.push((n, commit));
        }
        open_gate.send(()).unwrap();
        open_gate.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Ok(10));
        for (n, commit) in others {
            assert_eq!(commit.await, Ok(n * 10));
        }
        assert_eq!(reached.1.recv().unwrap(), 8, "the eight that waited went together");
    }

    async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
        std::future::poll_fn(|context| match std::pin::Pin::new(&mut future).poll(context) {
            std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }

    #[tokio::test]
    async fn a_writer_that_is_closed_has_dropped_what_it_writes_to() {
        for _ in 0..200 {
            let file = Arc::new(());
            let open = Arc::clone(&file);
            let writer = GroupCommit::start(WriterRuntime::OnThread("test"), MAX_BATCH, move |batch: Vec<u32>| {
                assert_eq!(*open, ());
                Ok::<_, String>(batch)
            });
            assert_eq!(writer.commit(1).await, Ok(1));
            writer.close();
            assert_eq!(Arc::strong_count(&file), 1);
        }
    }

    #[tokio::test]
    async fn a_failed_batch_fails_every_operation_in_it() {
        let writer =
            GroupCommit::start(WriterRuntime::AsTask, MAX_BATCH, |_: Vec<u32>| Err::<Vec<u32>, _>("full".to_string()));
        let (a, b) = tokio::join!(writer.commit(1), writer.commit(2));
        assert_eq!((a, b), (Err(CommitError::Failed("full".into())), Err(CommitError::Failed("full".into()))));
    }
}

//! SQLite as Belay uses it: durable before it returns, one writer, errors that say what to do.
//!
//! The journal, the ledger and the gate's store are built on this. They define what is stored; this crate defines how it reaches the disk.

mod check;
mod checksum;
mod error;
mod lane;
mod location;
mod log_index;
mod log_writes;
mod open;
mod page_caches;
mod positions;
mod readers;
mod reserve;
mod size;

pub use check::{CheckReport, check, inspect};
pub use checksum::{DamagedRow, Table, add_row_sum};
pub use error::SqliteError;
pub use lane::{Lane, Slot};
pub use location::{Location, Synchronous};
pub use log_writes::log_writes;
pub use open::{ReadStore, Schema, Store, empty_log, open, open_to_read};
pub use page_caches::release_page_caches;
pub use positions::{POSITION, count_commit, keep_number, own_position, positions, store_updates};
pub use readers::{READERS, Readers};
pub use size::{StoreSize, measure};

use belay_group_commit::{Pauses, WriterRuntime};

/// Where blocking work runs.
#[derive(Clone, Copy, Debug)]
pub enum Threads {
    /// On threads of its own: production.
    Real,
    /// On the calling thread: for tests, which wait for nothing else.
    Inline,
    /// As tasks of the runtime, with pauses before and after the work: for simulations, which must be deterministic and meet every order of events.
    Interleaved(Pauses),
}

impl Threads {
    /// Whether work that blocks delays no task of the runtime.
    pub fn are_real(self) -> bool {
        matches!(self, Self::Real)
    }

    /// Where a writer runs whose commits block.
    pub fn writer(self, name: &str) -> WriterRuntime<'_> {
        match self {
            Self::Real => WriterRuntime::OnThread(name),
            Self::Inline => WriterRuntime::AsTask,
            Self::Interleaved(pauses) => WriterRuntime::Interleaved(pauses),
        }
    }

    /// Runs something that blocks for a moment, such as a read from a store.
    ///
    /// # Panics
    /// When `work` does.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let done = match self {
            Self::Inline => return work(),
            Self::Real => tokio::task::spawn_blocking(work),
            Self::Interleaved(pauses) => tokio::spawn(async move {
                pauses.pause().await;
                let done = work();
                pauses.pause().await;
                done
            }),
        };
        joined(done).await
    }
}

/// Waits for a task, and panics if it does.
pub(crate) async fn joined<T>(task: impl Future<Output = Result<T, tokio::task::JoinError>>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and with it the task that waits here.
            Err(_) => std::future::pending().await,
        },
    }
}

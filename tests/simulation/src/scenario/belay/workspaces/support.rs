//! Small parts that the workspaces of the simulation share.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_workspace::{IoFailure, RelPath};

/// The value of a mutex. Every change is one insertion: a panic elsewhere leaves nothing half-done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The failure of an operation on a path.
pub(super) fn failed(doing: &'static str, path: impl AsRef<Path>, source: io::Error) -> IoFailure {
    IoFailure { doing, path: path.as_ref().display().to_string(), source }
}

/// The paths of a conflict.
pub(super) fn conflict<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<RelPath> {
    paths.into_iter().map(|path| RelPath::parse(path).expect("a path of a view")).collect()
}

//! The view of a workspace that a tool works in.

use std::{any::Any, fmt, path::PathBuf, sync::Arc};

use belay_sqlite::Lane;
use belay_workspace::{DroppedChange, FileKind, Metadata, RelPath, ViewError};
use tokio::sync::{Mutex, OwnedMutexGuard};

mod real;

/// A copy-on-write view of a workspace. A trait, so that the simulation can keep workspaces on a simulated disk.
///
/// Everything here blocks.
pub trait View: Any + Send {
    /// Reads a file: all of it, or at most `length` bytes from `start`. Returns fewer if the file ends first.
    ///
    /// # Errors
    /// [`ViewError`], worded for the author of the call.
    fn read(&self, path: &RelPath, start: u64, length: Option<u64>) -> Result<Vec<u8>, ViewError>;

    /// The size of a file in bytes. Follows a symbolic link.
    ///
    /// # Errors
    /// [`ViewError`], as for [`View::read`].
    fn size(&self, path: &RelPath) -> Result<u64, ViewError> {
        self.read(path, 0, None).map(|bytes| bytes.len() as u64)
    }

    /// The metadata of a path. Does not follow a symbolic link.
    ///
    /// # Errors
    /// [`ViewError`].
    fn metadata(&self, path: &RelPath) -> Result<Metadata, ViewError>;

    /// The entries of a directory, sorted by path.
    ///
    /// # Errors
    /// [`ViewError`].
    fn list(&self, path: &RelPath) -> Result<Vec<(RelPath, FileKind)>, ViewError>;

    /// Writes a whole file, creating parent directories. Without `mode` an existing file keeps its own, and a new one gets 0644.
    ///
    /// # Errors
    /// [`ViewError`]; the file is unchanged then.
    fn write(&mut self, path: &RelPath, bytes: &[u8], mode: Option<u32>) -> Result<(), ViewError>;

    /// Removes a file, a symbolic link itself, or a directory with its content.
    ///
    /// # Errors
    /// [`ViewError`].
    fn remove(&mut self, path: &RelPath) -> Result<(), ViewError>;

    /// The changes of layers that it does not begin with: see [`crate::WorkspaceDirectory::view_without_conflicts`].
    fn dropped_changes(&self) -> &[DroppedChange] {
        &[]
    }

    /// How many more such changes there are.
    fn unlisted_dropped_changes(&self) -> usize {
        0
    }

    /// How to mount this view for a command; `None` if it cannot be mounted. Blocks for some milliseconds at most.
    fn mount(&self) -> Option<Mount>;
}

/// The directories that the view of a command is mounted from.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The lower layers, topmost first.
    pub lower: Vec<PathBuf>,
    /// The upper layer, which receives the changes.
    pub staging: PathBuf,
    /// Paths hidden from the command, relative to the workspace.
    pub hidden: Vec<PathBuf>,
}

/// A handle to a view. Work in the view locks it, so that a call ends only after all work in its view has stopped.
#[derive(Clone)]
pub struct ViewHandle {
    view: Arc<Mutex<Option<Box<dyn View>>>>,
    lane: Lane,
}

impl fmt::Debug for ViewHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ViewHandle")
    }
}

/// Exclusive access to a view until this is dropped.
pub struct HeldView(OwnedMutexGuard<Option<Box<dyn View>>>);

impl fmt::Debug for HeldView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldView")
    }
}

impl HeldView {
    /// The view.
    pub fn view(&mut self) -> &mut dyn View {
        self.0.as_deref_mut().expect("hold() checked that the view is there, and take() waits for this guard")
    }
}

impl ViewHandle {
    /// Tools work in the view on the threads of `lane`.
    pub fn new(view: Box<dyn View>, lane: Lane) -> Self {
        Self { view: Arc::new(Mutex::new(Some(view))), lane }
    }

    /// Locks the view for work that does not block a thread. The call ends only after this guard is dropped, so the work has to stop soon
    /// once the future of the call is dropped.
    ///
    /// # Errors
    /// [`LostView`] when the call was stopped and the view was taken away.
    pub async fn hold(&self) -> Result<HeldView, LostView> {
        let held = Arc::clone(&self.view).lock_owned().await;
        if held.is_some() { Ok(HeldView(held)) } else { Err(LostView) }
    }

    /// Runs blocking work in the view. It runs to its end even if the future is dropped, so it has to be short or check whether it was
    /// stopped.
    ///
    /// # Errors
    /// [`LostView`] when the call was stopped and the view was taken away.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn View) -> T + Send + 'static,
    ) -> Result<T, LostView> {
        let mut held = self.hold().await?;
        Ok(self.lane.run(move || work(held.view())).await)
    }

    /// Takes the view away, once no work uses it any more.
    pub(crate) async fn take(&self) -> Option<Box<dyn View>> {
        self.view.lock().await.take()
    }
}

/// The call was stopped, and its view was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call was stopped")]
pub struct LostView;

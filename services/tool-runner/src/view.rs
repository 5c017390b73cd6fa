//! What a tool sees of its workspace: a copy-on-write view that it holds while it works.

use std::{any::Any, fmt, path::PathBuf, sync::Arc};

use belay_sqlite::Lane;
use belay_workspace::{FileKind, Metadata, RelPath, ViewError};
use tokio::sync::{Mutex, OwnedMutexGuard};

mod real;

/// A copy-on-write view of a workspace: a seam, so that a simulation can keep workspaces on a disk of its own.
///
/// Everything here blocks.
pub trait View: Any + Send {
    /// Bytes of a file: all, or at most `length` from `start` on. Fewer if the file ends before.
    ///
    /// # Errors
    /// [`ViewError`], in words for the author of the call.
    fn read(&self, path: &RelPath, start: u64, length: Option<u64>) -> Result<Vec<u8>, ViewError>;

    /// The size of a file in bytes; that of the file it leads to for a symbolic link.
    ///
    /// # Errors
    /// [`ViewError`], as for [`View::read`].
    fn size(&self, path: &RelPath) -> Result<u64, ViewError> {
        self.read(path, 0, None).map(|bytes| bytes.len() as u64)
    }

    /// What is at a path; a symbolic link is described itself.
    ///
    /// # Errors
    /// [`ViewError`].
    fn metadata(&self, path: &RelPath) -> Result<Metadata, ViewError>;

    /// What is in a folder, sorted by path.
    ///
    /// # Errors
    /// [`ViewError`].
    fn list(&self, path: &RelPath) -> Result<Vec<(RelPath, FileKind)>, ViewError>;

    /// Writes a whole file, making the folders above it. Without `mode` an existing file keeps its own, and a new one gets 0644.
    ///
    /// # Errors
    /// [`ViewError`]; what was there before stays.
    fn write(&mut self, path: &RelPath, bytes: &[u8], mode: Option<u32>) -> Result<(), ViewError>;

    /// Removes a file, a link itself, or a folder with all that is in it.
    ///
    /// # Errors
    /// [`ViewError`].
    fn remove(&mut self, path: &RelPath) -> Result<(), ViewError>;

    /// How a command is shown this view; nothing where no command can be. Blocks for some milliseconds at most.
    fn mount(&self) -> Option<Mount>;
}

/// The folders from which a command's view is mounted.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The folders that lie below the changes, the topmost first.
    pub lower: Vec<PathBuf>,
    /// Where the changes go.
    pub staging: PathBuf,
    /// What the command must not see, relative to the workspace.
    pub hidden: Vec<PathBuf>,
}

/// A view in the hands of a tool. Whoever works in it holds it, so that a call has not ended before nobody works in its view any more.
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

/// A view that nobody else works in until this is dropped.
pub struct HeldView(OwnedMutexGuard<Option<Box<dyn View>>>);

impl fmt::Debug for HeldView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldView")
    }
}

impl HeldView {
    /// The view.
    pub fn view(&mut self) -> &mut dyn View {
        self.0.as_deref_mut().expect("a view is held only while it is there, and whoever takes it away waits for this")
    }
}

impl ViewHandle {
    /// A view that tools may work in, on the threads of `lane`.
    pub fn new(view: Box<dyn View>, lane: Lane) -> Self {
        Self { view: Arc::new(Mutex::new(Some(view))), lane }
    }

    /// Holds the view for work that goes on without a thread. The work has to end soon once the call's future is dropped: the call ends
    /// when this is dropped.
    ///
    /// # Errors
    /// [`Gone`] when the call was stopped, and the view taken from it.
    pub async fn hold(&self) -> Result<HeldView, Gone> {
        let held = Arc::clone(&self.view).lock_owned().await;
        if held.is_some() { Ok(HeldView(held)) } else { Err(Gone) }
    }

    /// Works in the view, off the threads that serve. The work goes on to its end even when nobody waits for it any more: it has to end
    /// soon by itself, or when it is told to.
    ///
    /// # Errors
    /// [`Gone`] when the call was stopped, and the view taken from it.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn View) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let mut held = self.hold().await?;
        Ok(self.lane.run(move || work(held.view())).await)
    }

    /// Takes the view away, once nobody works in it any more.
    pub(crate) async fn take(&self) -> Option<Box<dyn View>> {
        self.view.lock().await.take()
    }
}

/// The call was stopped, and its view is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call was stopped")]
pub struct Gone;

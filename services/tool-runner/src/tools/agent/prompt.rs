//! The file with the task of a call, which its agent can read.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use belay_sandbox::{HOME, Mount, MountKind};

use crate::owned_files;

/// The variable with the place of the file.
pub(super) const VARIABLE: &str = "BELAY_PROMPT_FILE";

/// The file of one call, which goes when this is dropped.
pub(super) struct PromptFile(PathBuf);

impl PromptFile {
    /// Writes the file into a directory of the runner.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(directory: &Path, task: &str) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Commands reach the file by its mount only, and read it as another user.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        owned_files::remove_left_over(directory);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Mounts are opened without following links, of which the path of the state directory may have some.
        let file = fs::canonicalize(directory)?.join(format!("{}-{number}.md", owned_files::prefix()));
        let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&file);
        let this = Self(file);
        written?.write_all(task.as_bytes())?;
        Ok(this)
    }

    /// The place of the file in the view of the agent.
    pub(super) fn target() -> String {
        format!("{HOME}/.belay/prompt.md")
    }

    /// The mount by which the agent sees it.
    pub(super) fn mount(&self) -> Mount {
        Mount { source: self.0.clone(), target: Self::target().into(), kind: MountKind::ReadOnly }
    }
}

impl Drop for PromptFile {
    fn drop(&mut self) {
        // What a killed process leaves behind is removed when the next one writes.
        let _ = fs::remove_file(&self.0);
    }
}

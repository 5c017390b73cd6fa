//! A file system with a journal, for counting the flushes of a written file: on others Belay syncs everything (see `belay_workspace::Order`), so the
//! figure would differ.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use belay_workspace::Order;
use tempfile::TempDir;

use crate::Result;

/// The size of the file for a loop-mounted one; blocks that are not written take no space.
const SIZE: u64 = 512 << 20;

/// A folder on such a file system. Dropping it unmounts a file system that was created for it.
pub(crate) struct JournalledFolder {
    folder: PathBuf,
    _mounted: Option<LoopMount>,
}

struct LoopMount {
    at: PathBuf,
    _files: TempDir,
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        // Lazily: a process that is just being killed may still have it open.
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

impl JournalledFolder {
    /// Returns `root` itself if it is on one, else ext4 in a file in `root`; or why neither is possible, for the table.
    ///
    /// # Errors
    /// When `root` cannot be used at all.
    pub(crate) fn near(root: &Path) -> Result<Result<Self, String>> {
        if Order::of(File::open(root)?) == Order::Kept {
            return Ok(Ok(Self { folder: root.to_owned(), _mounted: None }));
        }
        let files = tempfile::Builder::new().prefix("journalled").tempdir_in(root)?;
        let (image, at) = (files.path().join("ext4"), files.path().join("mounted"));
        File::create(&image)?.set_len(SIZE)?;
        fs::create_dir(&at)?;
        let made = command("mkfs.ext4", &["-q", "-F", "-O", "has_journal"], &[&image])
            .and_then(|()| command("mount", &["-o", "loop"], &[&image, &at]));
        if let Err(why) = made {
            return Ok(Err(format!("it needs xfs, or ext4 with a journal, and none could be made in a file: {why}")));
        }
        let mounted = LoopMount { at: at.clone(), _files: files };
        Ok(Ok(Self { folder: at, _mounted: Some(mounted) }))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn command(program: &str, options: &[&str], paths: &[&Path]) -> Result<(), String> {
    let output =
        Command::new(program).args(options).args(paths).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_with_a_journal_or_a_reason_why_not() {
        let root = tempfile::tempdir().unwrap();
        match JournalledFolder::near(root.path()).unwrap() {
            Ok(made) => assert_eq!(Order::of(File::open(made.folder()).unwrap()), Order::Kept),
            Err(why) => eprintln!("skipped: there_is_one_with_a_journal_or_a_reason_why_not: {why}"),
        }
        assert!(fs::read_dir(root.path()).unwrap().next().is_none(), "it is gone");
    }
}

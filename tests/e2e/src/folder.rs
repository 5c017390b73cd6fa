//! The content of a folder, for byte-for-byte comparison.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

/// Everything below a folder: each path with its mode, and its content or link target. Belay's own `.belay` is left out.
pub type Content = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// Reads everything below a folder.
///
/// # Panics
/// When something cannot be read.
pub fn content(folder: &Path) -> Content {
    let mut content = Content::new();
    read(folder, Path::new(""), &mut content);
    content
}

fn read(root: &Path, below: &Path, content: &mut Content) {
    for entry in fs::read_dir(root.join(below)).expect("a folder can be read") {
        let name = below.join(entry.expect("an entry can be read").file_name());
        if name == Path::new(".belay") {
            continue;
        }
        let path = root.join(&name);
        let metadata = fs::symlink_metadata(&path).expect("what is there has metadata");
        let bytes = if metadata.is_file() {
            fs::read(&path).expect("a file can be read")
        } else if metadata.is_symlink() {
            fs::read_link(&path).expect("a link can be read").as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        if metadata.is_dir() {
            read(root, &name, content);
        }
        content.insert(name, (metadata.mode(), bytes));
    }
}

/// Waits until Belay keeps nothing in a workspace: replaced files, and what a command has left, are removed after the caller has its response.
///
/// # Panics
/// When something is left after a minute.
pub fn wait_until_cleared(workspace: &Path) {
    let mut turns = 0;
    while !left_in(workspace).is_empty() {
        turns += 1;
        assert!(turns < 6000, "left in the workspace: {:?}", left_in(workspace));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The async form of [`wait_until_cleared`].
///
/// # Panics
/// As that one.
pub async fn cleared(workspace: &Path) {
    let workspace = workspace.to_owned();
    let cleared = tokio::task::spawn_blocking(move || wait_until_cleared(&workspace)).await;
    cleared.expect("what was left has gone");
}

/// The state that Belay keeps in a workspace for running and waiting calls: views and staged effects.
///
/// # Panics
/// When the folder was never a workspace.
pub fn left_in(workspace: &Path) -> Vec<PathBuf> {
    let below = |name: &str| fs::read_dir(workspace.join(".belay").join(name)).expect("a workspace has its own folder");
    let entries = ["views", "commits", "trash"].into_iter().flat_map(below);
    entries.map(|entry| entry.expect("an entry can be read").path()).collect()
}

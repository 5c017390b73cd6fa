//! Visiting the files below a folder, for tools that look at many.

use std::ops::ControlFlow;

use belay_workspace::{FileKind, RelPath};

use super::files::Stop;
use crate::{ToolFailure, View};

/// Visits the files in these entries of a folder and below, by the bytes of their paths, until `visit` ends it; returns whether it did. `.git` directories and symbolic links are
/// left out, and so are folders that `enters` declines.
pub(super) fn files(
    view: &dyn View,
    stop: &Stop,
    mut entries: Vec<(RelPath, FileKind)>,
    enters: &dyn Fn(&RelPath) -> bool,
    visit: &mut dyn FnMut(&RelPath) -> ControlFlow<()>,
) -> Result<bool, ToolFailure> {
    // With its `/` a folder stands where the paths of its files do: `a.rs` before what is in `a`.
    let in_order = |(path, kind): &(RelPath, FileKind)| {
        let end = (*kind == FileKind::Directory).then_some(b'/');
        path.as_bytes().iter().copied().chain(end).collect::<Vec<u8>>()
    };
    entries.sort_by_cached_key(in_order);
    for (path, kind) in entries {
        stop.check()?;
        let is_left_out = || path.name().is_some_and(|name| name == ".git") || !enters(&path);
        let is_over = match kind {
            FileKind::File => visit(&path).is_break(),
            FileKind::Directory if is_left_out() => false,
            // A directory that cannot be read is skipped. (A stop is noticed at the next entry.)
            FileKind::Directory => files(view, stop, view.list(&path).unwrap_or_default(), enters, visit)?,
            _ => false,
        };
        if is_over {
            return Ok(true);
        }
    }
    Ok(false)
}

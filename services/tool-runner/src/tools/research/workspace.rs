//! The documents of the workspace, as one call sees them.
//!
//! They are indexed for each call and in memory: an index that is kept would show what one call has written to another, or to one that the policy does not let read it.

use belay_redaction::Redactor;
use belay_workspace::{FileKind, RelPath, ViewError};

use super::{
    depth::Bounds,
    findings::best,
    found::{Found, Problem, asked},
    index::{Content, Document, Index, IndexError},
    left_out::{Place, Reason},
    masked::masked,
    question::Question,
    walk::{Folders, MAX_FILE, Reading, why_not, why_not_content},
};
use crate::{MayRead, ToolFailure, View, digests::content_digest};

/// Searches a folder, or a file, of the workspace.
pub(super) fn search(
    view: &dyn View,
    top: &RelPath,
    (question, bounds): (&Question, &Bounds),
    (may_read, redactor): (&MayRead, &Redactor),
    reading: &Reading,
) -> Result<Found, ToolFailure> {
    let mut found = Found::default();
    let failed = |error: IndexError| Problem::from(error).into_failure();
    let index = Index::in_memory().map_err(failed)?;
    index.begin().map_err(failed)?;
    let mut search = Search { view, index: &index, bounds, may_read, redactor, reading, found: &mut found };
    match view.list(top) {
        Ok(entries) => search.folders(entries)?,
        Err(ViewError::NotADirectory { .. }) => {
            view.size(top)?;
            search.file(top)?;
        }
        Err(error) => return Err(error.into()),
    }
    index.commit().map_err(failed)?;
    let candidates = best(asked(&index, question, bounds, reading).map_err(Problem::into_failure)?, bounds.findings);
    for candidate in candidates {
        reading.stop.check()?;
        let Some(path) = RelPath::from_bytes(&candidate.hit.path) else { continue };
        let bytes = view.read(&path, 0, Some(MAX_FILE + 1)).unwrap_or_default();
        found.cite(&Place::Workspace, path.written(), candidate, &bytes, redactor, question);
    }
    Ok(found)
}

struct Search<'a> {
    view: &'a dyn View,
    index: &'a Index,
    bounds: &'a Bounds,
    may_read: &'a MayRead,
    redactor: &'a Redactor,
    reading: &'a Reading,
    found: &'a mut Found,
}

impl Search<'_> {
    fn folders(&mut self, entries: Vec<(RelPath, FileKind)>) -> Result<(), ToolFailure> {
        let mut folders = Folders::default();
        let mut entries = entries;
        loop {
            for (path, kind) in entries {
                match kind {
                    FileKind::Directory => folders.add(path),
                    FileKind::File if !self.file(&path)? => return Ok(()),
                    _ => {}
                }
            }
            let Some(next) = folders.next() else { return Ok(()) };
            if !self.goes_on()? {
                return Ok(());
            }
            entries = match self.view.list(&next) {
                Ok(entries) => entries,
                // Belay's own state, of which no call sees anything.
                Err(ViewError::Stores { .. }) => Vec::new(),
                Err(_) => {
                    self.leave_out(Reason::Unreadable, &next);
                    Vec::new()
                }
            };
        }
    }

    fn goes_on(&mut self) -> Result<bool, ToolFailure> {
        let goes_on = self.reading.goes_on()?;
        if !goes_on {
            self.found.left_out.say(&Place::Workspace, Reason::TimeLimit);
        }
        Ok(goes_on)
    }

    fn leave_out(&mut self, reason: Reason, path: &RelPath) {
        self.found.left_out.add(&Place::Workspace, reason, path.written());
    }

    /// Indexes a file. Returns whether there may be more.
    fn file(&mut self, path: &RelPath) -> Result<bool, ToolFailure> {
        if !self.goes_on()? {
            return Ok(false);
        }
        let Ok(size) = self.view.size(path) else {
            self.leave_out(Reason::Unreadable, path);
            return Ok(true);
        };
        let reason = if self.may_read.allows(path) { why_not(path, size) } else { Some(Reason::Denied) };
        if let Some(reason) = reason {
            self.leave_out(reason, path);
            return Ok(true);
        }
        let over = if self.found.files == self.bounds.files {
            Some(Reason::FileLimit)
        } else if self.found.bytes + size > self.bounds.bytes {
            Some(Reason::ByteLimit)
        } else {
            None
        };
        if let Some(over) = over {
            self.found.left_out.say(&Place::Workspace, over);
            return Ok(false);
        }
        let Ok(bytes) = self.view.read(path, 0, Some(MAX_FILE + 1)) else {
            self.leave_out(Reason::Unreadable, path);
            return Ok(true);
        };
        if let Some(reason) = why_not_content(&bytes) {
            self.leave_out(reason, path);
            return Ok(true);
        }
        self.found.files += 1;
        self.found.bytes += bytes.len() as u64;
        let digest = content_digest(&bytes);
        let bytes = masked(self.redactor, &bytes);
        let document = Document { path, state: "", size, content: Content::Text(&bytes, &digest) };
        match self.index.add(document) {
            Ok(()) => Ok(true),
            Err(error) => {
                let reason = if error.is_full() { Reason::IndexFull } else { Reason::IndexFailed };
                self.found.left_out.say_why(&Place::Workspace, reason, error.to_string());
                Ok(false)
            }
        }
    }
}

//! A problem of a document, with the author's field names.

use crate::path::FieldPath;

/// Something wrong in a document.
#[derive(Debug)]
pub(super) struct Finding {
    /// The field as the author wrote it.
    pub(super) field: FieldPath,
    /// The problem, and what to do about it.
    pub(super) message: String,
    /// Its byte offset; `None` for the document as a whole.
    pub(super) offset: Option<usize>,
}

//! A problem of a document, by its author's names.

use crate::path::FieldPath;

/// Something wrong in a document.
#[derive(Debug)]
pub(super) struct Finding {
    /// The field as the author wrote it.
    pub(super) field: FieldPath,
    /// What is wrong, and what to do.
    pub(super) message: String,
    /// The byte at which it stands; `None` for the document as a whole.
    pub(super) offset: Option<usize>,
}

//! Result of finding a page.

use belay_journal::Page;

/// A page, and how it was found.
pub(super) struct ExaminedPage {
    pub(super) page: Page,
    /// The number of rows that were read.
    pub(super) rows: usize,
}

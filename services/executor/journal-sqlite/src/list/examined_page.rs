//! Result of finding a page.

use belay_journal::Page;

/// A page, with the cost of finding it.
pub(super) struct ExaminedPage {
    pub(super) page: Page,
    /// The number of rows that were read.
    pub(super) rows: usize,
}

//! The failure of a step whose entries have failed.

use std::sync::Arc;

use belay_reasons as reasons;

use crate::{ErrorClass, Failure, state::StepRecord};

/// The failure of a step of whose entries, as `entries` calls them, some have failed; the first of them is the cause.
pub(super) fn some_failed(first: &StepRecord, count: usize, all: usize, entries: &str) -> Failure {
    let of_first = first.failure.as_deref();
    let why = of_first.map(|failure| format!(": {}", failure.message)).unwrap_or_default();
    let message = format!("{count} of {all} {entries} failed; the first is `{}`{why}", first.id);
    let class = of_first.map_or(ErrorClass::Transient, |failure| failure.class);
    let cause = of_first.cloned().map(Arc::new);
    Failure { cause, ..Failure::new(class, reasons::ITEMS_FAILED, message) }
}

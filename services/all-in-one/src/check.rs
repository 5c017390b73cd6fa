//! Checks the stores of a state directory for damage.

use std::path::{Path, PathBuf};

use belay_sqlite::{CheckReport, Location};

use crate::StartError;

/// What the check of one store found.
#[derive(Debug)]
pub struct CheckedStore {
    /// Its file.
    pub path: PathBuf,
    /// What is damaged; `None` when there is no such file.
    pub report: Option<CheckReport>,
}

/// Reads every row of the three stores of a state directory, whether or not a process has it open. Changes nothing.
///
/// # Errors
/// [`StartError`] when a store cannot be opened: it is of another format, is no database, or may not be read.
pub fn check_stores(state_dir: &Path) -> Result<Vec<CheckedStore>, StartError> {
    let [journal, ledger, approvals] = ["journal.db", "ledger.db", "gate.db"].map(|name| state_dir.join(name));
    let checked = [
        belay_journal_sqlite::check(&Location::file(&journal)).map_err(|error| StartError::journal(&journal, error))?,
        belay_tool_runner::check(&Location::file(&ledger)).map_err(|error| StartError::sqlite(&ledger, &error))?,
        belay_approval_gate::check(&Location::file(&approvals))
            .map_err(|error| StartError::approvals(&approvals, &error.0))?,
    ];
    let stores = [journal, ledger, approvals].into_iter().zip(checked);
    Ok(stores.map(|(path, report)| CheckedStore { path, report }).collect())
}

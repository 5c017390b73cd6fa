//! Checks the stores of a state directory for damage.

use std::path::{Path, PathBuf};

use belay_blobs::Folder;
use belay_service_kit::state_files;
use belay_sqlite::{CheckReport, Location};

use crate::{StartError, state_dir::BLOBS};

/// The result of the check of one store.
#[derive(Debug)]
pub struct CheckedStore {
    /// Its file, or the folder of the blobs.
    pub path: PathBuf,
    /// The damage; `None` when there is no such file, or no blob.
    pub report: Option<CheckReport>,
}

/// Reads every row of the three stores of a state directory and every blob, whether or not a process has it open. Changes nothing.
///
/// # Errors
/// [`StartError`] when a store cannot be opened: it is of another format, is no database, or may not be read.
pub fn check_stores(state_dir: &Path) -> Result<Vec<CheckedStore>, StartError> {
    let [journal, ledger, approvals] =
        [state_files::JOURNAL, state_files::LEDGER, state_files::APPROVALS].map(|name| state_dir.join(name));
    let checked = [
        belay_journal_sqlite::check(&Location::file(&journal)).map_err(|error| StartError::journal(&journal, error))?,
        belay_tool_runner::check(&Location::file(&ledger)).map_err(|error| StartError::sqlite(&ledger, &error))?,
        belay_approval_gate::check(&Location::file(&approvals))
            .map_err(|error| StartError::approvals(&approvals, &error.0))?,
    ];
    let blobs = Folder::new(state_dir.join(BLOBS));
    let damaged = belay_executor::check_blobs(state_dir, &Location::file(&journal), &blobs)
        .map_err(|error| StartError::journal(&journal, error))?;
    let of_blobs = CheckedStore {
        path: blobs.root().to_owned(),
        report: damaged.map(|structure| CheckReport { structure, ..CheckReport::default() }),
    };
    let stores = [journal, ledger, approvals].into_iter().zip(checked);
    Ok(stores.map(|(path, report)| CheckedStore { path, report }).chain([of_blobs]).collect())
}

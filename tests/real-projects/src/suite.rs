//! Parts of the comparison that both sides share.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{prepare::clear, shell};

/// Runs the pin's script, which is `$1`, in `project`. What it prints is of interest only when it fails.
pub const SUITE: &str = "cd project && eval \"$1\"";

/// Makes a fresh copy of a prepared folder.
///
/// # Errors
/// When it cannot be copied.
pub fn copy(prepared: &Path, to: &Path) -> Result<PathBuf, String> {
    clear(to).map_err(|error| format!("{}: {error}", to.display()))?;
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    }
    // Times of modification are kept: build tools compare them.
    shell::run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(prepared).arg(to))?;
    Ok(to.to_path_buf())
}

/// Removes such a copy.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(copy: &Path) -> Result<(), String> {
    clear(copy).map_err(|error| format!("{}: {error}", copy.display()))
}

/// Where installers of toolchains that look into the home keep them, as environment variables.
#[must_use]
pub fn toolchain_homes() -> Vec<(&'static str, OsString)> {
    let Some(home) = env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    let places = [("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv")];
    let place = |(name, folder): (&'static str, &str)| {
        let value = env::var_os(name).unwrap_or_else(|| home.join(folder).into_os_string());
        Path::new(&value).is_dir().then_some((name, value))
    };
    places.into_iter().filter_map(place).collect()
}

//! Fetches a project and what its suite needs, once, before any suite runs: the runs themselves have no network.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest as _, Sha256};

use crate::{pins::Pin, shell};

/// The timeout of a download, in seconds.
const FETCH_SECONDS: &str = "400";

/// Why a project cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotPrepared {
    /// A registry or a program is not available on this machine.
    Unavailable(String),
    /// The archive does not match the pin, or cannot be unpacked.
    Wrong(String),
}

/// Prepares a project below `dir` and returns its folder, which holds `project` and what its suite depends on. A folder that an earlier
/// run prepared from the same pin is used again.
///
/// # Errors
/// When it cannot be had here, or is not what the pin says.
pub fn prepare(pin: &Pin, dir: &Path) -> Result<PathBuf, NotPrepared> {
    let script = crate::package().join("fetch").join(format!("{}.sh", pin.language.name().to_lowercase()));
    let key = key(pin, &script).map_err(|error| NotPrepared::Wrong(error.to_string()))?;
    let ready = dir.join("prepared").join(format!("{}-{}", pin.name, &key[..16]));
    if ready.is_dir() {
        return Ok(ready);
    }
    if let Some(missing) = pin.programs.iter().find(|program| !shell::has(program)) {
        return Err(NotPrepared::Unavailable(format!("`{missing}` is not on PATH")));
    }
    let wrong = |error: io::Error| NotPrepared::Wrong(format!("{}: {error}", ready.display()));
    let archives = dir.join("archives").join(format!("{}-{}", pin.name, pin.version));
    if verify(pin, &archives).is_err() {
        clear(&archives).map_err(wrong)?;
        fs::create_dir_all(&archives).map_err(wrong)?;
        step(pin, &script, "download", &archives, &archives, dir).map_err(NotPrepared::Unavailable)?;
        verify(pin, &archives).map_err(NotPrepared::Wrong)?;
    }
    // Under another name until it is whole.
    let partial = ready.with_extension("partial");
    clear(&partial).map_err(wrong)?;
    fs::create_dir_all(&partial).map_err(wrong)?;
    // What the suite depends on comes from the registry as well.
    step(pin, &script, "prepare", &archives, &partial, dir).map_err(NotPrepared::Unavailable)?;
    fs::create_dir(partial.join("results")).map_err(wrong)?;
    fs::rename(&partial, &ready).map_err(wrong)?;
    Ok(ready)
}

/// Runs a step of the fetch script, in `folder`.
fn step(pin: &Pin, script: &Path, step: &str, archives: &Path, folder: &Path, dir: &Path) -> Result<(), String> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", FETCH_SECONDS, "sh", "-eu"]).arg(script).arg(step).current_dir(folder);
    command.env("PACKAGE", &pin.package).env("VERSION", &pin.version).env("ARCHIVES", archives).env("PIN", &pin.folder);
    command.env("CACHE", dir.join("cache"));
    // An unavailable registry fails soon.
    command.env("PIP_DEFAULT_TIMEOUT", "15").env("PIP_RETRIES", "1");
    command.env("npm_config_fetch_retries", "1").env("npm_config_fetch_timeout", "20000");
    command.env("CARGO_NET_RETRY", "1").env("CARGO_HTTP_TIMEOUT", "15");
    shell::run(&mut command).map(drop).map_err(|error| format!("{step} failed: {error}"))
}

/// Checks that the folder holds exactly the archives of the pin.
fn verify(pin: &Pin, folder: &Path) -> Result<(), String> {
    let name = |error: io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(name)? {
        let file = entry.map_err(name)?.file_name().to_string_lossy().into_owned();
        if !pin.archives.contains_key(&file) {
            return Err(format!("the registry served {file}, which {} does not name", pin.name));
        }
    }
    for (file, expected) in &pin.archives {
        let found = digest(&folder.join(file)).map_err(|error| format!("{file}: {error}"))?;
        if found != *expected {
            return Err(format!("{file} has the SHA-256 {found}, and the pin says {expected}"));
        }
    }
    Ok(())
}

/// The SHA-256 of a file, in hexadecimal.
fn digest(file: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(file)?, &mut hasher)?;
    Ok(hex(&hasher.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Identifies the content of a prepared folder: the pin with its lock files, and the script.
fn key(pin: &Pin, script: &Path) -> io::Result<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(&pin.folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.file_name().is_some_and(|name| name != "project.yaml"));
    files.sort();
    files.push(script.to_path_buf());
    let mut hasher = Sha256::new();
    // Of the pin only what decides what is fetched: a corrected command needs no download.
    hasher.update(format!("{} {} {:?}", pin.package, pin.version, pin.archives));
    for file in files {
        hasher.update(digest(&file)?);
    }
    Ok(hex(&hasher.finalize()))
}

/// Removes a folder, there or not. Folders that may not be written (Go's module cache makes such) are opened first.
///
/// # Errors
/// When it is there and cannot be removed.
pub fn clear(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let removed = fs::remove_dir_all(folder);
    if removed.is_ok() {
        return removed;
    }
    Command::new("chmod").args(["-R", "u+rwX"]).arg(folder).status()?;
    fs::remove_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_the_pinned_archives_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let mut pin = crate::pins::all().unwrap().remove(0);
        // printf good | sha256sum
        let good = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c";
        pin.archives = BTreeMap::from([("a.tar.gz".to_owned(), good.to_owned())]);
        assert!(verify(&pin, folder.path()).unwrap_err().starts_with("a.tar.gz: "));
        fs::write(folder.path().join("a.tar.gz"), "good").unwrap();
        assert_eq!(verify(&pin, folder.path()), Ok(()));
        fs::write(folder.path().join("a.tar.gz"), "evil").unwrap();
        assert!(verify(&pin, folder.path()).unwrap_err().contains("the pin says"));
        fs::write(folder.path().join("a.tar.gz"), "good").unwrap();
        fs::write(folder.path().join("b.tar.gz"), "more").unwrap();
        assert!(verify(&pin, folder.path()).unwrap_err().contains("served b.tar.gz"));
    }

    #[test]
    fn a_missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut pin = crate::pins::all().unwrap().remove(0);
        pin.programs = vec!["no-such-program".to_owned()];
        let why = NotPrepared::Unavailable("`no-such-program` is not on PATH".to_owned());
        assert_eq!(prepare(&pin, folder.path()), Err(why));
    }
}

//! Which settings file counts, and reading it.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use belay_yaml::Violation;
use thiserror::Error;

use crate::{File, Settings};

/// The file for the whole machine.
const MACHINE: &str = "/etc/belay/config.yaml";
/// Longest file that is read, in bytes; the format's own limit is smaller, and its error says more.
const MAX_FILE: u64 = 1 << 20;

/// Settings, and the file they come from.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// The file; `None` where there is none, and every value is the default.
    pub file: Option<PathBuf>,
    /// Where a file was looked for, in order; empty when one was named.
    pub looked_in: Vec<PathBuf>,
}

/// A settings file that cannot be used. Nothing starts without it, or with another instead.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("the settings file {} cannot be read: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Somebody else can change it.
    #[error("the settings file {} {problem}: whoever writes it decides what commands see", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Who can, and what to do.
        problem: String,
    },
    /// It is refused.
    #[error("the settings file {} is refused: {}", .path.display(), said(.violations))]
    Refused {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
        /// Everything that is wrong with it.
        violations: Vec<Violation>,
    },
}

impl ConfigError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. } | Self::Exposed { path, .. } | Self::Refused { path, .. } => path,
        }
    }
}

fn said(violations: &[Violation]) -> String {
    let all: Vec<_> = violations.iter().take(10).map(ToString::to_string).collect();
    all.join("; ")
}

/// The settings: of the file that is named, else of `$XDG_CONFIG_HOME/belay/config.yaml` (or `~/.config/belay/config.yaml`), else of
/// `/etc/belay/config.yaml`, else the defaults. Never of a workspace: it holds what commands are kept from deciding.
///
/// # Errors
/// [`ConfigError`] when the file that counts cannot be used. A file that is named has to be there.
pub fn load(named: Option<&Path>, env: &dyn Fn(&str) -> Option<OsString>) -> Result<Loaded, ConfigError> {
    let from = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = from("HOME").filter(|home| home.is_absolute());
    // A variable that is set to nothing names none.
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        return Ok(Loaded {
            settings: read(path, home.as_deref())?,
            file: Some(path.to_owned()),
            looked_in: Vec::new(),
        });
    }
    let own = from("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
    let own = own.or_else(|| home.as_ref().map(|home| home.join(".config")));
    let looked_in: Vec<_> =
        own.into_iter().map(|folder| folder.join("belay/config.yaml")).chain([MACHINE.into()]).collect();
    // One that is there and cannot be looked at is no reason to go on without it.
    let file = looked_in.iter().find(|file| file.try_exists().unwrap_or(true)).cloned();
    let settings = file.as_deref().map(|file| read(file, home.as_deref())).transpose()?.unwrap_or_default();
    Ok(Loaded { settings, file, looked_in })
}

fn read(path: &Path, home: Option<&Path>) -> Result<Settings, ConfigError> {
    let unreadable = |why: String| ConfigError::Unreadable { path: path.to_owned(), why };
    let file = fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("it is not a file".to_owned()));
    }
    if metadata.len() > MAX_FILE {
        return Err(unreadable("it is longer than 1 MiB".to_owned()));
    }
    if let Some(problem) = exposed(metadata.uid(), metadata.mode(), rustix::process::geteuid().as_raw()) {
        return Err(ConfigError::Exposed { path: path.to_owned(), problem });
    }
    let text = io::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    File::parse(&text, home).map_err(|violations| ConfigError::Refused { path: path.to_owned(), text, violations })
}

/// Who else could change a file of this owner and mode.
fn exposed(owner: u32, mode: u32, own: u32) -> Option<String> {
    if owner != 0 && owner != own {
        Some(format!("belongs to another user (uid {owner}): make it yours or root's"))
    } else if mode & 0o002 != 0 {
        Some(format!("can be written by everybody (mode {:04o}): chmod o-w", mode & 0o7777))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_runs_belay_and_root_may_write_it() {
        assert_eq!(exposed(0, 0o100_644, 1000), None);
        assert_eq!(exposed(1000, 0o100_664, 1000), None);
        assert!(exposed(1001, 0o100_644, 1000).unwrap().contains("uid 1001"));
        assert!(exposed(1000, 0o100_646, 1000).unwrap().contains("0646"));
    }

    #[test]
    fn the_users_own_file_counts_before_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        let env = |name: &str| (name == "XDG_CONFIG_HOME").then(|| folder.path().into());
        let own = folder.path().join("belay/config.yaml");
        fs::create_dir(folder.path().join("belay")).unwrap();
        fs::write(&own, "log: {level: warn}\n").unwrap();
        let loaded = load(None, &env).unwrap();
        assert_eq!((loaded.file.as_deref(), loaded.looked_in[0].as_path()), (Some(own.as_path()), own.as_path()));
        assert_eq!(loaded.looked_in[1], Path::new(MACHINE));
        assert_eq!(loaded.settings.log.level.value, crate::LogLevel::Warn);

        let other = folder.path().join("other.yaml");
        fs::write(&other, "").unwrap();
        assert_eq!(load(Some(&other), &env).unwrap().file, Some(other), "the one that is named counts alone");
    }

    #[test]
    fn a_file_that_is_named_has_to_be_there_and_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("none.yaml"), folder.path().to_owned()] {
            assert!(matches!(load(Some(&path), &|_| None), Err(ConfigError::Unreadable { .. })), "{}", path.display());
        }
        let long = folder.path().join("long.yaml");
        fs::write(&long, " ".repeat(usize::try_from(MAX_FILE).unwrap() + 1)).unwrap();
        assert!(load(Some(&long), &|_| None).unwrap_err().to_string().ends_with("longer than 1 MiB"));
    }

    #[test]
    fn a_file_that_is_refused_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "log:\n  lvel: info\n").unwrap();
        let error = load(Some(&path), &|_| None).unwrap_err();
        assert!(
            error.to_string().contains("line 2: log.lvel: there is no key `lvel` here; did you mean `level`?"),
            "{error}"
        );
    }
}

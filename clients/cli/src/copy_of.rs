//! `--copy-of`: copies a folder for one execution, so that a plan can be tried without touching the original.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use belay_reasons as reasons;

use crate::failure::{Failure, Report};

/// More than a source tree has on which one tries a plan; a copy below it takes seconds.
const MAX_BYTES: u64 = 1 << 30;
const MAX_ENTRIES: u64 = 100_000;

/// The folder for copies: `$XDG_DATA_HOME/belay/copies`, else `~/.local/share/belay/copies`. Never in the state directory, which no tool
/// may access.
pub(crate) fn home(env: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, Failure> {
    let from = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("XDG_DATA_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("belay/copies"))
        .ok_or_else(|| refused("there is no folder for copies: neither XDG_DATA_HOME nor HOME is set").into())
}

/// Copies a folder into a new one under `home`, and returns its path.
///
/// A git repository is cloned, as it was committed. Any other folder is copied file by file, without folders that are marked as
/// caches (`CACHEDIR.TAG`).
pub(crate) fn make(source: &Path, home: &Path) -> Result<PathBuf, Failure> {
    let cannot = |doing: &str, error: &io::Error| refused(format!("{doing}: {error}"));
    let source = source.canonicalize().map_err(|error| cannot(&source.display().to_string(), &error))?;
    if !source.is_dir() {
        return Err(refused(format!("{} is a file: name a folder", source.display())).into());
    }
    fs::create_dir_all(home).map_err(|error| cannot(&home.display().to_string(), &error))?;
    let home = home.canonicalize().map_err(|error| cannot(&home.display().to_string(), &error))?;
    if home.starts_with(&source) {
        let message = format!(
            "{} contains the folder for copies, {}: it would be copied into itself",
            source.display(),
            home.display()
        );
        return Err(refused(message).into());
    }
    let target = fresh(&home, source.file_name().unwrap_or_else(|| OsStr::new("copy")))
        .map_err(|error| cannot(&home.display().to_string(), &error))?;
    let copied = match source.join(".git").exists() && clone(&source, &target) {
        true => Ok(()),
        false => CopyProgress::default().folder(&source, &target),
    };
    match copied {
        Ok(()) => Ok(target),
        Err(error) => {
            // Half a copy is useless; a rest of it that cannot be removed does no harm.
            drop(fs::remove_dir_all(&target));
            Err(cannot(&format!("copying {}", source.display()), &error).into())
        }
    }
}

fn refused(message: impl std::fmt::Display) -> Report {
    Report::new(reasons::WORKSPACE_INVALID, format!("--copy-of: {message}"))
}

/// A new folder, called like the original with the next free number.
fn fresh(home: &Path, name: &OsStr) -> io::Result<PathBuf> {
    for number in 1_u32.. {
        let mut called = name.to_owned();
        called.push(format!("-{number}"));
        let path = home.join(called);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("every number is taken"))
}

/// Whether git made the copy. Nothing of it is shared with the original, so that nothing done to it can reach there.
fn clone(source: &Path, target: &Path) -> bool {
    let quiet =
        |command: &mut Command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let cloned = quiet(Command::new("git").args(["clone", "--quiet", "--no-hardlinks", "--"]).arg(source).arg(target))
        .is_ok_and(|status| status.success());
    // A tool must not find the way back to the original.
    cloned && quiet(Command::new("git").arg("-C").arg(target).args(["remote", "remove", "origin"])).is_ok()
}

#[derive(Default)]
struct CopyProgress {
    bytes: u64,
    entries: u64,
}

impl CopyProgress {
    fn folder(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let kind = entry.file_type()?;
            self.entries += 1;
            if kind.is_dir() {
                if entry.file_name() == ".belay" || from.join("CACHEDIR.TAG").exists() {
                    continue;
                }
                fs::create_dir(&to)?;
                self.folder(&from, &to)?;
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
            } else if kind.is_file() {
                self.bytes += entry.metadata()?.len();
                if self.bytes > MAX_BYTES {
                    return Err(io::Error::other("it has more than 1 GiB: name a smaller folder"));
                }
                fs::copy(&from, &to)?;
            }
            if self.entries > MAX_ENTRIES {
                return Err(io::Error::other("it has more than 100,000 files: name a smaller folder"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_folder_is_copied_without_its_caches_and_each_time_anew() {
        let here = tempfile::tempdir().unwrap();
        let (source, home) = (here.path().join("project"), here.path().join("copies"));
        write(source.join("src/a.txt"), "a");
        write(source.join("target/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
        write(source.join("target/big.o"), "o");
        write(source.join(".belay/lock"), "");
        std::os::unix::fs::symlink("src/a.txt", source.join("link")).unwrap();
        let first = make(&source, &home).unwrap();
        let second = make(&source, &home).unwrap();
        assert_eq!(
            (first.file_name().unwrap(), second.file_name().unwrap()),
            ("project-1".as_ref(), "project-2".as_ref())
        );
        assert_eq!(fs::read_to_string(first.join("src/a.txt")).unwrap(), "a");
        assert_eq!(fs::read_link(first.join("link")).unwrap(), Path::new("src/a.txt"));
        assert!(!first.join("target").exists() && !first.join(".belay").exists());
    }

    #[test]
    fn what_cannot_be_copied_is_refused_and_leaves_nothing() {
        let here = tempfile::tempdir().unwrap();
        let home = here.path().join("copies");
        write(here.path().join("file"), "");
        let said = |source: &str| make(&here.path().join(source), &home).unwrap_err().report().message;
        assert!(said("missing").contains("missing"), "{}", said("missing"));
        assert!(said("file").contains("is a file"), "{}", said("file"));
        assert!(said("").contains("copied into itself"), "{}", said(""));
        assert!(!home.exists() || fs::read_dir(&home).unwrap().next().is_none());
    }

    #[test]
    fn copies_are_kept_where_data_is_kept() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        };
        assert_eq!(home(&env(&[("HOME", "/h")])).unwrap(), Path::new("/h/.local/share/belay/copies"));
        assert_eq!(home(&env(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")])).unwrap(), Path::new("/d/belay/copies"));
        assert!(home(&env(&[])).is_err());
    }
}

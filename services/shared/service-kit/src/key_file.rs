//! A secret key in a file of its own, made at the first start.
//!
//! The file holds a prefix that says what the key is for, such as `belay-seal-`, 64 hexadecimal digits and a line break, and only its
//! owner can read it. The redactor knows these prefixes, so the output of a command that prints a key shows `[REDACTED]`. A damaged key is
//! never replaced: a new key cannot open what the old one sealed. A missing one is created by those who know that nothing was sealed.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use thiserror::Error;

/// Why a key cannot be read.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The operating system refused.
    #[error("the key {} cannot be read or written", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could read or change it.
    #[error(
        "the key {} has mode {mode:04o}, so others may have read it: set mode 0600 if you are sure that no one has",
        .path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file does not hold a key.
    #[error(
        "the key {} is damaged: it has to hold `{prefix}` and 64 hexadecimal digits. Put a backup in its place",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How it has to begin.
        prefix: &'static str,
    },
    /// It lacks the prefix: an earlier version wrote it.
    #[error(
        "the key {} was written by an earlier version of Belay: to keep using it, put `{prefix}` in front of its 64 digits, in the same line",
        .path.display()
    )]
    Unmarked {
        /// The file.
        path: PathBuf,
        /// How it has to begin.
        prefix: &'static str,
    },
}

/// The prefix of the key that seals what is kept.
pub const SEAL: &str = "belay-seal-";

/// The prefix of the key that the gate signs with.
pub const GATE: &str = "belay-gate-";

/// A key, and whether its file holds it.
pub struct LoadedKey {
    path: PathBuf,
    prefix: &'static str,
    key: [u8; 32],
    is_new: bool,
}

impl LoadedKey {
    /// The key.
    pub fn key(&self) -> [u8; 32] {
        self.key
    }

    /// The file of the key.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file did not exist. The key is random then, and opens nothing that is stored.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Writes a new key to its file; it is on disk when this returns. Call it once the stores are known to hold nothing that another key
    /// sealed, and before anything is sealed with this one.
    ///
    /// # Errors
    /// [`KeyFileError::Io`].
    pub fn store(&self) -> Result<(), KeyFileError> {
        if !self.is_new {
            return Ok(());
        }
        write(&self.path, 0o600, self.prefix, &self.key)
            .map_err(|source| KeyFileError::Io { path: self.path.clone(), source })
    }
}

/// Reads the key in the file, which begins with `prefix`. When the file does not exist, the key is the 32 random bytes that `random` returns,
/// and the file is not created before [`LoadedKey::store`].
///
/// # Errors
/// [`KeyFileError`], and nothing is changed.
pub fn load(path: &Path, prefix: &'static str, random: impl FnOnce() -> [u8; 32]) -> Result<LoadedKey, KeyFileError> {
    let failed = |source| KeyFileError::Io { path: path.to_owned(), source };
    let loaded = |key, is_new| LoadedKey { path: path.to_owned(), prefix, key, is_new };
    match fs::read(path) {
        Ok(text) => {
            let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
            if mode & 0o077 != 0 {
                return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
            }
            let key = parse(&text, prefix).map_err(|wrong| match wrong {
                InvalidKey::Damaged => KeyFileError::Damaged { path: path.to_owned(), prefix },
                InvalidKey::Unmarked => KeyFileError::Unmarked { path: path.to_owned(), prefix },
            })?;
            Ok(loaded(key, false))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(loaded(random(), true)),
        Err(error) => Err(failed(error)),
    }
}

/// The problem with a key's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidKey {
    /// The file does not hold a key.
    Damaged,
    /// It is a key without its prefix: an earlier version wrote it.
    Unmarked,
}

/// The key in a text: `prefix`, 64 hexadecimal digits, perhaps a line break.
///
/// # Errors
/// [`InvalidKey`] for any other text.
pub fn parse(text: &[u8], prefix: &str) -> Result<[u8; 32], InvalidKey> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    match text.strip_prefix(prefix.as_bytes()) {
        Some(digits) => hexadecimal(digits).ok_or(InvalidKey::Damaged),
        None => Err(if hexadecimal(text).is_some() { InvalidKey::Unmarked } else { InvalidKey::Damaged }),
    }
}

fn hexadecimal(digits: &[u8]) -> Option<[u8; 32]> {
    HEXLOWER_PERMISSIVE.decode(digits).ok()?.try_into().ok()
}

/// Writes a key as its prefix and hexadecimal digits, atomically: a process that is killed in the middle leaves no file.
///
/// # Errors
/// The file system's error.
pub fn write(path: &Path, mode: u32, prefix: &str, key: &[u8; 32]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let text = format!("{prefix}{}\n", HEXLOWER.encode(key));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    // Regardless of the umask: everyone may read a public key.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(draft, path)?;
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> [u8; 32] {
        panic!("the key is there already")
    }

    /// The key in the file, which is created if there is none.
    fn open(path: &Path, prefix: &'static str, random: impl FnOnce() -> [u8; 32]) -> Result<[u8; 32], KeyFileError> {
        let loaded = load(path, prefix, random)?;
        loaded.store()?;
        Ok(loaded.key())
    }

    #[test]
    fn a_key_is_made_once_and_then_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal.key");
        let loaded = load(&path, SEAL, || [8; 32]).unwrap();
        assert!(loaded.is_new() && !path.exists(), "nothing is written before it is believed");
        assert_eq!(open(&path, SEAL, || [7; 32]).unwrap(), [7; 32]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), SEAL.to_owned() + &"07".repeat(32) + "\n");
        assert_eq!(open(&path, SEAL, never).unwrap(), [7; 32]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_bad_key_is_reported_and_not_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal.key");
        open(&path, SEAL, || [7; 32]).unwrap();

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(open(&path, SEAL, never), Err(KeyFileError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

        let good = fs::read_to_string(&path).unwrap();
        for bad in ["", "07", &good.replace('7', "g"), &format!("{good}\n"), &format!("+{}", &good[1..])] {
            fs::write(&path, bad).unwrap();
            assert!(matches!(open(&path, SEAL, never), Err(KeyFileError::Damaged { .. })), "{bad:?}");
        }
        fs::write(&path, good.strip_prefix(SEAL).unwrap()).unwrap();
        let error = open(&path, SEAL, never).unwrap_err();
        assert!(
            matches!(error, KeyFileError::Unmarked { .. }) && error.to_string().contains("`belay-seal-`"),
            "{error}"
        );
        fs::write(&path, good.replace(SEAL, GATE)).unwrap();
        assert!(matches!(open(&path, SEAL, never), Err(KeyFileError::Damaged { .. })), "a key for something else");
        assert!(matches!(
            open(&folder.path().join("missing/seal.key"), SEAL, || [7; 32]),
            Err(KeyFileError::Io { .. })
        ));
    }
}

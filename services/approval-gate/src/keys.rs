//! The gate's signing key, and the public key that runners pin.
//!
//! `gate.key` is the secret key, which only its owner can read: `belay-gate-`, 64 hexadecimal digits and a line break. `gate.pub`, next to it, is
//! for setting up a runner: 64 digits and a line break.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use belay_grant::SigningKey;
use belay_service_kit::key_file;
use thiserror::Error;

/// The secret's file in the state directory.
pub const SECRET_FILE: &str = belay_service_kit::state_files::GATE_KEY;

/// The public key's file in the state directory.
pub const PUBLIC_FILE: &str = belay_service_kit::state_files::GATE_PUBLIC_KEY;

/// Why the gate has no signing key. It never replaces a damaged key automatically: every runner would reject a different key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The operating system refused.
    #[error("the gate's key {path} cannot be read or written")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could read or change the secret.
    #[error(
        "the gate's key {path} has mode {mode:04o}, so others may have read it: move it and {PUBLIC_FILE} away to get a new key, or \
         set mode 0600 if you are sure that no one has"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file does not hold a key.
    #[error("{path} is damaged: it must contain 64 hexadecimal digits. Restore it from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The secret lacks its prefix: an earlier version wrote it.
    #[error(
        "{path} was written by an earlier version of Belay: to keep using it, put `{}` in front of its 64 digits, in the same line",
        key_file::GATE
    )]
    Unmarked {
        /// The file.
        path: PathBuf,
    },
    /// The public key exists and the secret does not.
    #[error(
        "{path} exists and {SECRET_FILE} does not: restore the secret, or move {PUBLIC_FILE} away to get a new key, which every runner \
         then must be given"
    )]
    Lost {
        /// The public key's file.
        path: PathBuf,
    },
    /// The two do not belong together.
    #[error("{path} is not the public key of {SECRET_FILE}: restore the one that was replaced")]
    Pair {
        /// The public key's file.
        path: PathBuf,
    },
}

/// Returns the key in the state directory; the first start creates it from the 32 random bytes that `random` returns.
///
/// # Errors
/// [`KeyError`], and nothing is changed.
pub fn open(state_dir: &Path, random: impl FnOnce() -> [u8; 32]) -> Result<SigningKey, KeyError> {
    let (secret, public) = (state_dir.join(SECRET_FILE), state_dir.join(PUBLIC_FILE));
    let published = read(&public, "")?;
    let key = match read(&secret, key_file::GATE)? {
        Some(seed) => {
            let mode = fs::metadata(&secret).map_err(io_error(&secret))?.permissions().mode() & 0o7777;
            if mode & 0o077 != 0 {
                return Err(KeyError::Exposed { path: secret, mode });
            }
            SigningKey::from_bytes(&seed)
        }
        None if published.is_some() => return Err(KeyError::Lost { path: public }),
        None => {
            let key = SigningKey::from_bytes(&random());
            write(state_dir, SECRET_FILE, 0o600, key_file::GATE, &key.to_bytes())?;
            key
        }
    };
    match published {
        Some(published) if published != key.verifying_key().to_bytes() => return Err(KeyError::Pair { path: public }),
        Some(_) => {}
        None => write(state_dir, PUBLIC_FILE, 0o644, "", key.verifying_key().as_bytes())?,
    }
    Ok(key)
}

/// Writes the public key to a file that all users may read.
///
/// # Errors
/// [`KeyError::Io`].
pub fn publish(key: &SigningKey, path: &Path) -> Result<(), KeyError> {
    key_file::write(path, 0o644, "", key.verifying_key().as_bytes()).map_err(io_error(path))
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> KeyError {
    let path = path.to_owned();
    move |source| KeyError::Io { path: path.clone(), source }
}

fn read(path: &Path, prefix: &str) -> Result<Option<[u8; 32]>, KeyError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(path)(error)),
    };
    let path = path.to_owned();
    match key_file::parse(&text, prefix) {
        Ok(key) => Ok(Some(key)),
        Err(key_file::InvalidKey::Damaged) => Err(KeyError::Damaged { path }),
        Err(key_file::InvalidKey::Unmarked) => Err(KeyError::Unmarked { path }),
    }
}

fn write(folder: &Path, name: &str, mode: u32, prefix: &str, bytes: &[u8; 32]) -> Result<(), KeyError> {
    let path = folder.join(name);
    key_file::write(&path, mode, prefix, bytes).map_err(io_error(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> [u8; 32] {
        panic!("the key is there already")
    }

    #[test]
    fn a_key_is_made_once_and_then_stays() {
        let folder = tempfile::tempdir().unwrap();
        let key = open(folder.path(), || [7; 32]).unwrap();
        let secret = folder.path().join(SECRET_FILE);
        assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&secret).unwrap(), key_file::GATE.to_owned() + &"07".repeat(32) + "\n");
        let public = fs::read_to_string(folder.path().join(PUBLIC_FILE)).unwrap();
        assert_eq!(public.len(), 65);
        assert_eq!(open(folder.path(), never).unwrap(), key);

        fs::remove_file(folder.path().join(PUBLIC_FILE)).unwrap();
        open(folder.path(), never).unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join(PUBLIC_FILE)).unwrap(),
            public,
            "after a start that was killed half way"
        );
    }

    #[test]
    fn a_bad_key_is_reported_and_not_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, public) = (folder.path().join(SECRET_FILE), folder.path().join(PUBLIC_FILE));
        open(folder.path(), || [7; 32]).unwrap();

        fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(open(folder.path(), never), Err(KeyError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();

        let good = fs::read_to_string(&secret).unwrap();
        for bad in ["", "07", &good.replace('7', "g"), &format!("{good}\n"), &format!("+{}", &good[1..])] {
            fs::write(&secret, bad).unwrap();
            assert!(matches!(open(folder.path(), never), Err(KeyError::Damaged { .. })), "{bad:?}");
        }
        fs::write(&secret, good.strip_prefix(key_file::GATE).unwrap()).unwrap();
        assert!(matches!(open(folder.path(), never), Err(KeyError::Unmarked { .. })));
        fs::write(&secret, good.replace('7', "8")).unwrap();
        assert!(matches!(open(folder.path(), never), Err(KeyError::Pair { .. })));
        fs::remove_file(&secret).unwrap();
        assert!(matches!(open(folder.path(), never), Err(KeyError::Lost { .. })));
        fs::remove_file(&public).unwrap();
        assert!(matches!(open(&folder.path().join("missing"), || [7; 32]), Err(KeyError::Io { .. })));
    }
}

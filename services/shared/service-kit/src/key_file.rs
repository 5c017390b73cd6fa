//! A secret key in a file of its own, made at the first start.
//!
//! The file holds 64 hexadecimal digits and a line break, and only its owner can read it. Nothing about it is repaired by guessing: a key
//! that is made anew opens nothing that the old one closed.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The operating system refused.
    #[error("the key {} cannot be read or written", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could read or change it.
    #[error(
        "the key {} has mode {mode:04o}, so others may have read it: set mode 0600 if you are sure that nobody has",
        .path.display()
    )]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is no key.
    #[error("the key {} is damaged: it has to hold 64 hexadecimal digits. Put a backup in its place", .path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
}

/// The key in the file; where there is none, one is made from the 32 random bytes that `random` gives, and is on the disk when this
/// answers.
///
/// # Errors
/// [`KeyFileError`], and nothing is changed.
pub fn open(path: &Path, random: impl FnOnce() -> [u8; 32]) -> Result<[u8; 32], KeyFileError> {
    let failed = |source| KeyFileError::Io { path: path.to_owned(), source };
    match fs::read(path) {
        Ok(text) => {
            let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
            if mode & 0o077 != 0 {
                return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
            }
            parse(&text).ok_or_else(|| KeyFileError::Damaged { path: path.to_owned() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = random();
            write(path, 0o600, &key).map_err(failed)?;
            Ok(key)
        }
        Err(error) => Err(failed(error)),
    }
}

fn parse(text: &[u8]) -> Option<[u8; 32]> {
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

/// Writes a key as hexadecimal digits, the file whole: a start that dies in the middle leaves none.
///
/// # Errors
/// What the file system refuses.
pub fn write(path: &Path, mode: u32, key: &[u8; 32]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let text = key.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")) + "\n";
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
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

    #[test]
    fn a_key_is_made_once_and_then_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal.key");
        assert_eq!(open(&path, || [7; 32]).unwrap(), [7; 32]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "07".repeat(32) + "\n");
        assert_eq!(open(&path, never).unwrap(), [7; 32]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn what_is_wrong_with_a_key_is_said_and_not_mended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seal.key");
        open(&path, || [7; 32]).unwrap();

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(open(&path, never), Err(KeyFileError::Exposed { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

        let good = fs::read_to_string(&path).unwrap();
        for bad in ["", "07", &good.replace('7', "g"), &format!("{good}\n"), &format!("+{}", &good[1..])] {
            fs::write(&path, bad).unwrap();
            assert!(matches!(open(&path, never), Err(KeyFileError::Damaged { .. })), "{bad:?}");
        }
        assert!(matches!(open(&folder.path().join("missing/seal.key"), || [7; 32]), Err(KeyFileError::Io { .. })));
    }
}

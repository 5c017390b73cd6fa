//! The register in a file, which is replaced atomically and reread by running servers when it changes.
//!
//! A file and not a method of a service: a credential that was stolen over the network cannot create others. A user who may write the file
//! could read the keys next to it anyway. It works the same whether a server runs or not, and for services in separate processes.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;

use crate::register::{InvalidChange, Register, Unreadable};

/// The file's name in a state directory.
pub const FILE: &str = "principals.json";

/// Why the file cannot be used.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// The operating system returned an error.
    #[error("the principals in {} cannot be read or written: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Users other than its owner could add themselves.
    #[error("other users can change the principals in {} (mode {mode:04o}): set mode 0600 or 0640", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its owner is neither root nor the user of this process.
    #[error("the principals in {} belong to user id {uid}: make root or the user of the service their owner", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The owner.
        uid: u32,
    },
    /// Its content is not a register.
    #[error("the principals in {} cannot be used: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Unreadable,
    },
    /// The change is not possible.
    #[error("{0}")]
    InvalidChange(#[from] InvalidChange),
}

/// The mark of one version of a file: it is replaced by renaming, so another version is another inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    changed: (i64, i64),
    length: u64,
}

impl Version {
    fn of(metadata: &fs::Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self { inode: metadata.ino(), changed, length: metadata.len() }
    }
}

/// Returns the principals in a file; none when the file does not exist.
///
/// # Errors
/// [`RegisterError`].
pub fn read(path: &Path) -> Result<Register, RegisterError> {
    read_version(path).map(|(register, _)| register)
}

fn read_version(path: &Path) -> Result<(Register, Option<Version>), RegisterError> {
    let failed = |source| RegisterError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Register::default(), None)),
        Err(error) => return Err(failed(error)),
    };
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(RegisterError::Exposed { path: path.to_owned(), mode });
    }
    if metadata.uid() != 0 && metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(RegisterError::Foreign { path: path.to_owned(), uid: metadata.uid() });
    }
    let text = io::read_to_string(file).map_err(failed)?;
    let register =
        Register::parse(&text).map_err(|source| RegisterError::Unreadable { path: path.to_owned(), source })?;
    Ok((register, Some(Version::of(&metadata))))
}

/// Changes the principals in a file, and creates the file if it is missing. Changes are serialized; the new file is in place and on disk when
/// this returns.
///
/// # Errors
/// [`RegisterError`], and the file stays as it is.
pub fn change<T>(
    path: &Path,
    change: impl FnOnce(&mut Register) -> Result<T, InvalidChange>,
) -> Result<T, RegisterError> {
    let failed = |source| RegisterError::Io { path: path.to_owned(), source };
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let lock = File::options().write(true).create(true).truncate(false).mode(0o600).open(beside(".lock"));
    let lock = lock.map_err(failed)?;
    lock.lock().map_err(failed)?;
    let mut register = read(path)?;
    let changed = change(&mut register)?;

    let draft = beside(".new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
    if let Ok(before) = fs::metadata(path) {
        // Services under other users read it by its group.
        fchown(&file, Some(before.uid()), Some(before.gid())).map_err(failed)?;
        file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o644)).map_err(failed)?;
    }
    file.write_all(register.to_text().as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&draft, path).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(changed)
}

/// The current principals in a file: each lookup checks whether the file has been replaced since it was read.
#[derive(Debug)]
pub struct LiveRegister {
    path: PathBuf,
    known: Mutex<(Option<Version>, Arc<Register>)>,
}

impl LiveRegister {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`RegisterError`]; a missing file holds no principal.
    pub fn open(path: PathBuf) -> Result<Self, RegisterError> {
        let (register, version) = read_version(&path)?;
        Ok(Self { path, known: Mutex::new((version, Arc::new(register))) })
    }

    /// The principals as they are now.
    ///
    /// # Errors
    /// [`RegisterError`] when the file exists and cannot be used: revocations are not known then.
    pub fn current(&self) -> Result<Arc<Register>, RegisterError> {
        let found = match fs::metadata(&self.path) {
            Ok(metadata) => Some(Version::of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RegisterError::Io { path: self.path.clone(), source }),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != found {
            let (register, version) = read_version(&self.path)?;
            *known = (version, Arc::new(register));
        }
        Ok(Arc::clone(&known.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        principal::{Role, Roles},
        register::TokenDigest,
    };

    fn add(path: &Path, name: &str) -> Result<(), RegisterError> {
        let token = Some(TokenDigest::of(name));
        change(path, |register| {
            register.add(name, [Role::Viewer].into_iter().collect::<Roles>(), &[], token, 1).map(drop)
        })
    }

    #[test]
    fn a_change_replaces_the_file_and_running_readers_see_it_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let live = LiveRegister::open(path.clone()).unwrap();
        let comes_in = |name: &str| live.current().unwrap().by_token(TokenDigest::of(name)).is_some();
        assert!(!comes_in("ann"));
        add(&path, "ann").unwrap();
        assert!(comes_in("ann"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        change(&path, |register| register.revoke("ann", 2).map(drop)).unwrap();
        assert!(!comes_in("ann"));
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.contains(&"principals.json.new".into()), "no draft is left: {names:?}");
        fs::remove_file(&path).unwrap();
        assert!(!comes_in("ann"), "without the file no principal is known");
    }

    #[test]
    fn concurrent_changes_are_both_applied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let path = &path;
                scope.spawn(move || (0..10).for_each(|n| add(path, &format!("{name}{n}")).unwrap()));
            }
        });
        assert_eq!(read(&path).unwrap().entries().len(), 40);
    }

    #[test]
    fn a_refused_change_and_a_broken_file_change_nothing_and_let_no_caller_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        add(&path, "ann").unwrap();
        let before = fs::read_to_string(&path).unwrap();
        assert!(matches!(add(&path, "ann"), Err(RegisterError::InvalidChange(InvalidChange::Exists(_)))));
        assert_eq!(fs::read_to_string(&path).unwrap(), before);

        let live = LiveRegister::open(path.clone()).unwrap();
        for broken in ["", "{\"format\": 7, \"principals\": []}", &before[..before.len() / 2]] {
            fs::write(&path, broken).unwrap();
            let refused = live.current().unwrap_err();
            assert!(refused.to_string().contains("principals.json"), "{refused}");
            assert!(add(&path, "bob").is_err(), "what cannot be read is not replaced");
            assert_eq!(fs::read_to_string(&path).unwrap(), broken);
        }
        fs::write(&path, &before).unwrap();
        live.current().expect("a file that was put back is good again");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        assert!(matches!(live.current(), Err(RegisterError::Exposed { mode: 0o660, .. })));
    }

    #[test]
    fn a_file_that_a_group_reads_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        add(&path, "ann").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        add(&path, "bob").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    }
}

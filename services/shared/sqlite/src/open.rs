//! Opening a database so that what it acknowledges survives a loss of power.

use belay_reasons::StoreFault;
use std::{
    fs::{File, OpenOptions, Permissions, TryLockError},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, ffi::SQLITE_IOERR_SHMSIZE};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::{
    Location, READERS, Readers, SqliteError, Synchronous, checksum,
    error::extended_code,
    log_index, page_caches, positions,
    reserve::{self, DiskReserve},
};

/// The schema of a database.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// Identifies this kind of file (`PRAGMA application_id`).
    pub application_id: i32,
    /// The format's version (`PRAGMA user_version`); any other is refused.
    pub format: i64,
    /// The part that an earlier format lacks, as the end of `it lacks …`.
    pub earlier_lacks: &'static str,
    /// Makes an empty database ready, in one transaction.
    pub create: &'static str,
}

/// An open database: one connection to write, several to read.
pub struct Store {
    /// For the writer.
    pub writer: Arc<Mutex<Connection>>,
    /// For readers.
    pub readers: Arc<Readers>,
    /// The files of a store on the real disk as they were when it was opened.
    files: Vec<(PathBuf, FileId)>,
    /// `None` for a simulated disk.
    reserve: Option<Mutex<DiskReserve>>,
    /// The index of the log, if it was opened for its space; see [`log_index::reserve`].
    _index: Option<File>,
    /// Held as long as the store is open; the operating system releases it when the process ends.
    _lock: Option<File>,
}

/// The identity of a file: its device (major, minor) and its inode.
type FileId = (u32, u32, u64);

/// Asks the kernel for the inode alone. A process that reads a file's times makes the next write store finer ones (multigrain timestamps,
/// Linux 6.13), and every commit would flush one more block.
fn file_id(path: &Path) -> std::io::Result<FileId> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::INO)?;
    Ok((found.stx_dev_major, found.stx_dev_minor, found.stx_ino))
}

impl Store {
    /// Releases the store's reserve (at most 16 MiB, in a file next to the database) when the disk is nearly full, and creates it again when there
    /// is space. Call it before a commit; costs one `statvfs`.
    pub fn make_room(&self) {
        if let Some(reserve) = &self.reserve {
            reserve.lock().unwrap_or_else(PoisonError::into_inner).adjust();
        }
    }

    /// Checks that the store's files are still in place. Call it after a commit and before publishing it: SQLite keeps writing into files that were
    /// removed. Costs two path look-ups, and no flush.
    ///
    /// # Errors
    /// [`StoreFault::Gone`] when the store's files were removed or replaced.
    pub fn check_in_place(&self) -> Result<(), SqliteError> {
        if self.files.iter().all(is_in_place) { Ok(()) } else { Err(SqliteError::Fault(StoreFault::Gone)) }
    }
}

fn is_in_place((path, id): &(PathBuf, FileId)) -> bool {
    match file_id(path) {
        Ok(found) => found == *id,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// A database that another process writes, or that none has open.
#[derive(Debug)]
pub struct ReadStore {
    /// The connections that read it.
    pub readers: Arc<Readers>,
    /// The file as it was when it was opened. Its log is made anew by the next process that writes it.
    file: (PathBuf, FileId),
}

impl ReadStore {
    /// Checks that the database's file is still in place, as [`Store::check_in_place`] does.
    ///
    /// # Errors
    /// [`StoreFault::Gone`] when it was removed or replaced.
    pub fn check_in_place(&self) -> Result<(), SqliteError> {
        if is_in_place(&self.file) { Ok(()) } else { Err(SqliteError::Fault(StoreFault::Gone)) }
    }
}

/// Opens a database with connections that change nothing, whether or not a process has it open; it needs no lock. `None` when there is none.
///
/// # Errors
/// [`SqliteError`] when it cannot be opened: another format, no database, no right to read it.
pub fn open_to_read(location: &Location, schema: &Schema) -> Result<Option<ReadStore>, SqliteError> {
    let mut connections = Vec::with_capacity(READERS);
    for _ in 0..READERS {
        let Some(connection) = to_check(location, schema)? else { return Ok(None) };
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connections.push(Arc::new(Mutex::new(connection)));
    }
    let id = file_id(&location.path)
        .map_err(|source| SqliteError::Fault(StoreFault::Other(format!("{}: {source}", location.path.display()))))?;
    Ok(Some(ReadStore { readers: Arc::new(Readers::new(connections)), file: (location.path.clone(), id) }))
}

/// How many prepared statements a connection keeps.
const STATEMENTS: usize = 64;

/// Moves the write-ahead log into the database and empties it, so that no earlier state of a page is left in a file: together with
/// `secure_delete`, deleted rows are gone from the store's files then. Returns `false` when that has to wait for a reader. Costs two flushes and
/// writes the pages that have changed.
///
/// # Errors
/// When the store cannot be written.
pub fn empty_log(connection: &Connection) -> Result<bool, rusqlite::Error> {
    // A reader of this process ends within milliseconds. A `belay store check` may take long, and no writer waits for it.
    connection.busy_timeout(Duration::from_millis(20))?;
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    busy.map(|busy| !busy)
}

/// How long a statement waits for a lock: rusqlite's default.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a database, and creates it if it does not exist.
///
/// # Errors
/// [`StoreFault::Locked`] when another process has it open, [`StoreFault::Corrupt`] when it is something else or damaged,
/// [`StoreFault::Newer`] when a newer version wrote it, [`StoreFault::Older`] when an earlier one did.
pub fn open(location: &Location, schema: &Schema) -> Result<Store, SqliteError> {
    let lock = match location.vfs {
        None => Some(lock(location, || std::thread::sleep(LOCK_PAUSE))?),
        Some(_) => None,
    };
    if let Some(lock) = &lock {
        refuse_emptied(location, lock)?;
    }
    // Before anything is written: it gives up its space when the disk is full.
    let reserve = location.vfs.is_none().then(|| Mutex::new(DiskReserve::beside(&location.path)));
    if location.vfs.is_none() {
        check_room(location)?;
    }
    if location.vfs.is_none() {
        private(&location.path);
    }
    let writer = connect(location).map_err(|error| match extended_code(&error) {
        Some(SQLITE_IOERR_SHMSIZE) => {
            SqliteError::Fault(StoreFault::Other(format!("{error}: {}-shm cannot be written", location.path.display())))
        }
        _ => error.into(),
    })?;
    prepare(&writer, schema)?;
    if let Some(lock) = &lock {
        lock.set_len(MADE).map_err(|source| {
            SqliteError::Fault(StoreFault::Other(format!("the lock file cannot be marked: {source}")))
        })?;
    }
    checkpoint(&writer)?;
    let index = match location.vfs {
        None => {
            let index = beside(location, "-shm");
            log_index::reserve(&index).map_err(|error| no_room(&index, error))?
        }
        Some(_) => None,
    };
    let writer = Arc::new(Mutex::new(writer));
    page_caches::register(&writer);
    let readers = match location.vfs {
        Some(_) => Readers::new(vec![Arc::clone(&writer)]),
        None => Readers::new(
            (0..READERS)
                .map(|_| Ok(Arc::new(Mutex::new(connect(location)?))))
                .collect::<Result<_, rusqlite::Error>>()?,
        ),
    };
    let files = match location.vfs {
        Some(_) => Vec::new(),
        None => files(location)?,
    };
    Ok(Store { writer, readers: Arc::new(readers), files, reserve, _index: index, _lock: lock })
}

/// Makes the database's file its owner's alone; SQLite gives its log and its index the same mode. The folder is private as well, so where this is not
/// possible, as on a disk that is read-only for a while, nothing is lost, and the opening says what is wrong.
fn private(path: &Path) {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let mode = |file: &File| file.metadata().map(|metadata| metadata.permissions().mode());
    if let Ok(file) = file
        && mode(&file).is_ok_and(|mode| mode & 0o077 != 0)
    {
        drop(file.set_permissions(Permissions::from_mode(0o600)));
    }
}

fn files(location: &Location) -> Result<Vec<(PathBuf, FileId)>, SqliteError> {
    let failed = |path: &Path, source| SqliteError::Fault(StoreFault::Other(format!("{}: {source}", path.display())));
    [location.path.clone(), beside(location, "-wal")]
        .into_iter()
        .map(|path| match file_id(&path) {
            Ok(id) => Ok((path, id)),
            Err(source) => Err(failed(&path, source)),
        })
        .collect()
}

/// SQLite's own locks admit a second process between two transactions, and each of two writers would rely on its own counters. So one lock
/// covers the whole time a store is open; the kernel releases it with the process. A child that the process had just forked has it for a moment
/// longer, so a held lock is tried again, `pause` after `pause`.
fn lock(location: &Location, mut pause: impl FnMut()) -> Result<File, SqliteError> {
    let path = beside(location, ".lock");
    let failed =
        |source: std::io::Error| SqliteError::Fault(StoreFault::Other(format!("{}: {source}", path.display())));
    let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => pause(),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
    Err(SqliteError::Fault(StoreFault::Locked))
}

/// How often a held lock is tried, and the pause after each time: a second in all.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The length of the lock file once the database has been created. It distinguishes a truncated database from one that was never created.
const MADE: u64 = 1;

/// SQLite treats an empty file as a new database and discards the log that could have restored it.
fn refuse_emptied(location: &Location, lock: &File) -> Result<(), SqliteError> {
    let length = |metadata: std::io::Result<std::fs::Metadata>| metadata.map(|metadata| metadata.len()).ok();
    if length(std::fs::metadata(&location.path)) == Some(0) && length(lock.metadata()) == Some(MADE) {
        return Err(SqliteError::Fault(StoreFault::Corrupt(
            "the file is empty, and it was not when it was last used".into(),
        )));
    }
    Ok(())
}

/// A file next to the database, which has its name with this end.
pub(crate) fn beside(location: &Location, end: &str) -> PathBuf {
    let mut path = location.path.clone().into_os_string();
    path.push(end);
    path.into()
}

/// The bytes that an open writes besides the index of the log.
const ROOM: u64 = log_index::PART;

/// Fails when the disk has no room for what an open writes, first of all the index of the log that is there: see [`log_index`].
fn check_room(location: &Location) -> Result<(), SqliteError> {
    let log = std::fs::metadata(beside(location, "-wal")).map_or(0, |log| log.len());
    let path = beside(location, ".room");
    let made = reserve::occupy(&path, ROOM + log_index::index_size(log));
    let removed = match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    made.and(removed).map_err(|error| no_room(&path, error))
}

/// Why a file did not get its space.
fn no_room(path: &Path, error: std::io::Error) -> SqliteError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => SqliteError::Fault(StoreFault::Full),
        _ => SqliteError::Fault(StoreFault::Other(format!("{}: {error}", path.display()))),
    }
}

fn connect(location: &Location) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match &location.vfs {
        None => Connection::open_with_flags(&location.path, flags)?,
        Some(vfs) => Connection::open_with_flags_and_vfs(&location.path, flags, vfs.as_str())?,
    };
    if location.vfs.is_some() {
        // Without shared memory, WAL needs the one exclusive connection.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match location.synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // What is deleted is overwritten with zeros, so that a deleted key or secret is not found in the file.
    connection.pragma_update(None, "secure_delete", true)?;
    // 2 MiB: a log is appended to, and recent pages are in the operating system's cache.
    connection.pragma_update(None, "cache_size", -2 * 1024)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    checksum::add_row_sum(&connection)?;
    Ok(connection)
}

/// A connection that changes nothing, beside the process that has the store open, if one has. `None` when there is no file.
pub(crate) fn to_check(location: &Location, schema: &Schema) -> Result<Option<Connection>, SqliteError> {
    match std::fs::metadata(&location.path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(SqliteError::Fault(StoreFault::Other(format!("{}: {error}", location.path.display()))));
        }
    }
    // SQLite writes the index of the log also to read it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&location.path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    checksum::add_row_sum(&connection)?;
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, format) = (pragma("application_id")?, pragma("user_version")?);
    check_format(application, format, schema)?;
    Ok(Some(connection))
}

fn prepare(connection: &Connection, schema: &Schema) -> Result<(), SqliteError> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let (application, format) = (pragma("application_id")?, pragma("user_version")?);
    if tables == 0 && application == 0 {
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {} {} PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT;",
            schema.create,
            positions::TABLE,
            schema.application_id,
            schema.format
        ))?;
        return Ok(());
    }
    check_format(application, format, schema)
}

fn check_format(application: i64, format: i64, schema: &Schema) -> Result<(), SqliteError> {
    if application != i64::from(schema.application_id) {
        return Err(SqliteError::Fault(StoreFault::Corrupt("it is a database of another kind".into())));
    }
    if format > schema.format {
        return Err(SqliteError::Fault(StoreFault::Newer { found: format, known: schema.format }));
    }
    if format < schema.format {
        return Err(SqliteError::Fault(StoreFault::Older {
            found: format,
            known: schema.format,
            lacks: schema.earlier_lacks,
        }));
    }
    Ok(())
}

/// A commit whose flush failed is not on disk, but its frames may still be in the page cache, and the next open would treat them as committed.
/// A checkpoint flushes the log, so everything visible from here on is durable.
fn checkpoint(connection: &Connection) -> Result<(), SqliteError> {
    Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GOOD: Schema = Schema {
        application_id: 77,
        format: 3,
        earlier_lacks: "a colour",
        create: "CREATE TABLE t (a INTEGER) STRICT;",
    };

    fn refusal(location: &Location, schema: &Schema) -> SqliteError {
        open(location, schema).err().expect("it is refused")
    }

    #[test]
    fn a_store_is_durable_and_opens_again() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("store"));
        for expected in 0..3_i64 {
            let store = open(&location, &GOOD).unwrap();
            let connection = store.writer.lock().unwrap();
            let setting = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(setting("synchronous"), 2, "FULL");
            let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            assert_eq!(mode, "wal");
            connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
            let count: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
            assert_eq!(count, expected + 1);
        }
    }

    /// A store is its owner's alone, also one that was made with another mode.
    #[test]
    fn nobody_else_may_read_a_store() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("store"));
        for _ in 0..2 {
            let store = open(&location, &GOOD).unwrap();
            for name in ["store", "store-wal", "store-shm"] {
                let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
                assert_eq!(mode & 0o7777, 0o600, "{name}");
            }
            drop(store);
            fs::set_permissions(&location.path, Permissions::from_mode(0o644)).unwrap();
        }
    }

    /// SQLite tells other processes by a lock on the index that it is in use; without that, the next process that opens the store begins it anew, and
    /// this one ends with SIGBUS.
    #[test]
    fn the_index_of_the_log_stays_locked() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("store"));
        let store = open(&location, &GOOD).unwrap();
        let (.., inode) = file_id(&beside(&location, "-shm")).unwrap();
        // The "dead man switch" of SQLite's unix VFS: a shared lock on byte 128.
        let is_it = |lock: &str| lock.contains(" READ ") && lock.ends_with(&format!(":{inode} 128 128"));
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert!(locks.lines().any(is_it), "{locks}");
        drop(store);
        assert!(!fs::read_to_string("/proc/locks").unwrap().lines().any(is_it));
    }

    /// On a full disk nothing is mapped and written.
    #[test]
    fn a_full_disk_is_reported_before_anything_is_mapped() {
        use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
        let folder = tempfile::tempdir().unwrap();
        if mount(c"none", folder.path(), c"tmpfs", MountFlags::empty(), c"size=1m").is_err() {
            return eprintln!(
                "a_full_disk_is_reported_before_anything_is_mapped: skipped, since no file system can be mounted here"
            );
        }
        let location = Location::file(folder.path().join("store.db"));
        reserve::occupy(&folder.path().join("others"), (1 << 20) - (40 << 10)).unwrap();
        let refused = open(&location, &GOOD).err();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        fs::remove_file(folder.path().join("others")).unwrap();
        let opened = open(&location, &GOOD).map(drop);
        unmount(folder.path(), UnmountFlags::DETACH).unwrap();
        assert_eq!(refused, Some(SqliteError::Fault(StoreFault::Full)));
        assert!(!left.iter().any(|name| name == "store.db-shm" || name == "store.db.room"), "{left:?}");
        assert_eq!(opened, Ok(()));
    }

    /// Whoever held the lock has ended, and a child that it had just forked has the descriptor for a moment.
    #[test]
    fn a_lock_that_is_released_soon_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("store"));
        let mut held = Some(lock(&location, || panic!("nobody holds it")).unwrap());
        let mut pauses = 0;
        let pause = || {
            pauses += 1;
            held.take_if(|_| pauses == 3);
        };
        let lock_again = lock(&location, pause);
        assert!(lock_again.is_ok());
        assert_eq!(pauses, 3);
        let mut pauses = 0;
        assert_eq!(
            lock(&location, || pauses += 1).err(),
            Some(SqliteError::Fault(StoreFault::Locked)),
            "its holder goes on"
        );
        assert_eq!(pauses, LOCK_ATTEMPTS);
    }

    #[test]
    fn a_store_whose_files_are_gone_is_noticed() {
        for (what, break_it) in [
            ("removed", &(|path: &Path| fs::remove_dir_all(path.parent().unwrap()).unwrap()) as &dyn Fn(&Path)),
            ("moved", &|path| {
                fs::rename(path.parent().unwrap(), path.parent().unwrap().with_extension("old")).unwrap()
            }),
            ("replaced", &|path| {
                fs::rename(path, path.with_extension("old")).unwrap();
                fs::copy(path.with_extension("old"), path).unwrap();
            }),
            ("without its log", &|path| fs::remove_file(path.with_extension("db-wal")).unwrap()),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("state")).unwrap();
            let path = folder.path().join("state/store.db");
            let store = open(&Location::file(&path), &GOOD).unwrap();
            store.writer.lock().unwrap().execute("INSERT INTO t VALUES (1)", []).unwrap();
            assert_eq!(store.check_in_place(), Ok(()));
            break_it(&path);
            store.writer.lock().unwrap().execute("INSERT INTO t VALUES (2)", []).expect("SQLite does not notice");
            assert_eq!(store.check_in_place(), Err(SqliteError::Fault(StoreFault::Gone)), "{what}");
        }
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let location = |name: &str| Location::file(folder.path().join(name));

        let held = open(&location("held"), &GOOD).unwrap();
        assert_eq!(refusal(&location("held"), &GOOD), SqliteError::Fault(StoreFault::Locked));
        drop(held);
        assert!(open(&location("held"), &GOOD).is_ok(), "the lock goes with its holder");

        let newer = Schema { format: 9, ..GOOD };
        drop(open(&location("newer"), &newer).unwrap());
        assert_eq!(refusal(&location("newer"), &GOOD), SqliteError::Fault(StoreFault::Newer { found: 9, known: 3 }));

        let older = Schema { format: 2, ..GOOD };
        drop(open(&location("older"), &older).unwrap());
        let refused = refusal(&location("older"), &GOOD);
        assert_eq!(refused, SqliteError::Fault(StoreFault::Older { found: 2, known: 3, lacks: "a colour" }));
        assert!(refused.to_string().contains("it lacks a colour"), "{refused}");

        let other = Schema { application_id: 78, ..GOOD };
        drop(open(&location("other"), &other).unwrap());
        assert!(matches!(refusal(&location("other"), &GOOD), SqliteError::Fault(StoreFault::Corrupt(_))));

        fs::write(folder.path().join("garbage"), [b'x'; 9000]).unwrap();
        assert!(matches!(refusal(&location("garbage"), &GOOD), SqliteError::Fault(StoreFault::Corrupt(_))));
        assert!(matches!(refusal(&location("no/such/folder"), &GOOD), SqliteError::Fault(StoreFault::Other(_))));

        drop(open(&location("emptied"), &GOOD).unwrap());
        fs::write(folder.path().join("emptied"), []).unwrap();
        assert!(matches!(refusal(&location("emptied"), &GOOD), SqliteError::Fault(StoreFault::Corrupt(_))));
        fs::remove_file(folder.path().join("emptied")).unwrap();
        assert!(open(&location("emptied"), &GOOD).is_ok(), "a file that was moved away is created again");
        fs::write(folder.path().join("interrupted"), []).unwrap();
        assert!(
            open(&location("interrupted"), &GOOD).is_ok(),
            "a start that died before its first write left an empty file"
        );
    }
}

//! SQLite on the simulated disk: a VFS called [`NAME`], made the default of the process by [`register`].
//!
//! For one connection a database, opened with `locking_mode=EXCLUSIVE` before `journal_mode=WAL`: there is no shared memory
//! and no locking beyond the refusal (`SQLITE_BUSY`) of a second handle on a database. Time is turmoil's, randomness is
//! [`crate::entropy`]'s. A file works only in the run of the host that opened it ([`crate::machine`]), so a connection that
//! dies with its host changes nothing while it is closed.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use rusqlite::ffi;

use crate::disk::{Failure, Mode, OpenFile};
use crate::machine::Refusal;
use crate::{disk, entropy, trace};

/// The VFS's name, for `Connection::open_with_flags_and_vfs`.
pub const NAME: &CStr = c"turmoil";

/// The longest path, in bytes with its end; SQLite's unix VFS has the same.
const PATH_MAX: usize = 512;
/// The sector size that SQLite's unix VFS reports.
const SECTOR_SIZE: c_int = 4096;
/// The Unix epoch in milliseconds since the Julian epoch (SQLite's `unixEpoch`).
const UNIX_EPOCH_JULIAN_MS: i64 = 210_866_760_000_000;

const MS_PER_DAY: f64 = 86_400_000.0;

/// The memory that SQLite allocates for a file: its own part, then this VFS's.
#[repr(C)]
struct SqliteFile {
    base: ffi::sqlite3_file,
    open: *mut OpenFile,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Registers the VFS and makes it the default, so that SQLite's own random generator is seeded from it too. Once is enough.
///
/// # Panics
/// When SQLite cannot be initialised.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<SqliteFile>() as c_int,
            mxPathname: PATH_MAX as c_int,
            pNext: std::ptr::null_mut(),
            zName: NAME.as_ptr(),
            pAppData: std::ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(get_last_error),
            xCurrentTimeInt64: Some(current_time_int64),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the VFS and its name live for ever, and every method keeps SQLite's contract.
        let code = unsafe { ffi::sqlite3_vfs_register(vfs, 1) };
        assert_eq!(code, ffi::SQLITE_OK, "SQLite refused the VFS");
    });
}

/// Runs a method and converts errors and panics to SQLite's code `failed`.
fn guarded(failed: c_int, method: impl FnOnce() -> disk::Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(method)) {
        Ok(Ok(code)) => code,
        Ok(Err(Failure::Busy)) => ffi::SQLITE_BUSY,
        Ok(Err(Failure::Refused(Refusal::Full))) => ffi::SQLITE_FULL,
        Ok(Err(Failure::Io(error))) => {
            trace::event(format_args!("turmoil's disk: {error}"));
            failed
        }
        Ok(Err(Failure::Refused(Refusal::Dead | Refusal::Failed) | Failure::NotFound)) | Err(_) => failed,
    }
}

/// # Safety
/// `name` is null or a C string.
unsafe fn path(name: *const c_char) -> Option<PathBuf> {
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string.
    let name = unsafe { CStr::from_ptr(name) };
    // turmoil has no working folder: every path starts at the root.
    Some(Path::new("/").join(OsStr::from_bytes(name.to_bytes())))
}

/// # Safety
/// `file` was opened by [`open`] with success and not closed since, and SQLite uses it from one thread at a time.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a mut OpenFile {
    // SAFETY: `open` stored a box in it that `close` alone takes away.
    unsafe { &mut *(*file.cast::<SqliteFile>()).open }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let has = |flag: c_int| flags & flag != 0;
    let target = file.cast::<SqliteFile>();
    // SAFETY: SQLite allocated szOsFile bytes there. Without methods it will not call `close` after a failure.
    unsafe {
        target.write(SqliteFile { base: ffi::sqlite3_file { pMethods: std::ptr::null() }, open: std::ptr::null_mut() });
    }
    guarded(ffi::SQLITE_CANTOPEN, || {
        // SAFETY: SQLite's file names are null or C strings.
        let path = unsafe { path(name) }.unwrap_or_else(temporary_path);
        let mode = Mode {
            create: has(ffi::SQLITE_OPEN_CREATE),
            exclusive: has(ffi::SQLITE_OPEN_EXCLUSIVE),
            writable: has(ffi::SQLITE_OPEN_READWRITE),
            is_journal: has(ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL),
            is_database: has(ffi::SQLITE_OPEN_MAIN_DB),
            delete_on_close: has(ffi::SQLITE_OPEN_DELETEONCLOSE),
        };
        let open = Box::new(OpenFile::open(&path, mode)?);
        // SAFETY: as above; the flags' address is null or writable.
        unsafe {
            target.write(SqliteFile { base: ffi::sqlite3_file { pMethods: &METHODS }, open: Box::into_raw(open) });
            if !out_flags.is_null() {
                *out_flags = flags;
            }
        }
        Ok(ffi::SQLITE_OK)
    })
}

/// A name for a file that SQLite does not name.
fn temporary_path() -> PathBuf {
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    PathBuf::from(format!("/sqlite-temporary-{}", NEXT.replace(NEXT.get() + 1)))
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    guarded(ffi::SQLITE_IOERR_CLOSE, || {
        // SAFETY: SQLite closes a file once; the box is the one `open` made.
        drop(unsafe { Box::from_raw((*file.cast::<SqliteFile>()).open) });
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, buffer: *mut c_void, amount: c_int, offset: i64) -> c_int {
    guarded(ffi::SQLITE_IOERR_READ, || {
        let amount = usize::try_from(amount).expect("SQLite reads no negative amount");
        // SAFETY: SQLite's buffer holds `amount` bytes, which need a value before they are a slice.
        let buffer = unsafe {
            std::ptr::write_bytes(buffer.cast::<u8>(), 0, amount);
            std::slice::from_raw_parts_mut(buffer.cast::<u8>(), amount)
        };
        // SAFETY: an open file.
        let length = unsafe { opened(file) }.read(buffer, position(offset))?;
        Ok(if length < amount { ffi::SQLITE_IOERR_SHORT_READ } else { ffi::SQLITE_OK })
    })
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, data: *const c_void, amount: c_int, offset: i64) -> c_int {
    guarded(ffi::SQLITE_IOERR_WRITE, || {
        let amount = usize::try_from(amount).expect("SQLite writes no negative amount");
        // SAFETY: SQLite's data are `amount` bytes.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), amount) };
        // SAFETY: an open file.
        unsafe { opened(file) }.write(data, position(offset))?;
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    guarded(ffi::SQLITE_IOERR_TRUNCATE, || {
        // SAFETY: an open file.
        unsafe { opened(file) }.truncate(position(size))?;
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    guarded(ffi::SQLITE_IOERR_FSYNC, || {
        // SAFETY: an open file.
        unsafe { opened(file) }.sync()?;
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    guarded(ffi::SQLITE_IOERR_FSTAT, || {
        // SAFETY: an open file.
        let length = unsafe { opened(file) }.length()?;
        // SAFETY: SQLite's address for the answer.
        unsafe { *size = i64::try_from(length).expect("a simulated file fits into memory") };
        Ok(ffi::SQLITE_OK)
    })
}

fn position(offset: i64) -> u64 {
    u64::try_from(offset).expect("SQLite's offsets are not negative")
}

unsafe extern "C" fn lock(_: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut ffi::sqlite3_file, reserved: *mut c_int) -> c_int {
    // SAFETY: SQLite's address for the answer.
    unsafe { *reserved = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _op: c_int, _argument: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    SECTOR_SIZE
}

unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    // A torn write here harms only the bytes it was to write. SQLite's unix VFS assumes the same.
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    guarded(ffi::SQLITE_IOERR_DELETE, || {
        // SAFETY: SQLite's file names are C strings.
        let Some(path) = (unsafe { path(name) }) else {
            return Err(Failure::NotFound);
        };
        match disk::remove(&path, sync_folder != 0) {
            Err(Failure::NotFound) => Ok(ffi::SQLITE_IOERR_DELETE_NOENT),
            removed => removed.map(|()| ffi::SQLITE_OK),
        }
    })
}

unsafe extern "C" fn access(_: *mut ffi::sqlite3_vfs, name: *const c_char, _flags: c_int, result: *mut c_int) -> c_int {
    guarded(ffi::SQLITE_IOERR_ACCESS, || {
        // SAFETY: SQLite's file names are C strings.
        let exists = unsafe { path(name) }.map(|path| disk::exists(&path)).transpose()?.unwrap_or(false);
        // SAFETY: SQLite's address for the answer.
        unsafe { *result = exists.into() };
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    capacity: c_int,
    out: *mut c_char,
) -> c_int {
    guarded(ffi::SQLITE_CANTOPEN, || {
        // SAFETY: SQLite's file names are C strings.
        let Some(path) = (unsafe { path(name) }) else {
            return Err(Failure::NotFound);
        };
        let path = CString::new(path.as_os_str().as_bytes()).expect("made from a C string");
        let bytes = path.as_bytes_with_nul();
        if usize::try_from(capacity).is_ok_and(|capacity| bytes.len() <= capacity) {
            // SAFETY: `out` has room for `capacity` bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
            Ok(ffi::SQLITE_OK)
        } else {
            Ok(ffi::SQLITE_CANTOPEN)
        }
    })
}

unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, amount: c_int, out: *mut c_char) -> c_int {
    let filled = catch_unwind(|| {
        let mut bytes = vec![0; usize::try_from(amount).unwrap_or(0)];
        entropy::fill(&mut bytes);
        bytes
    });
    let Ok(bytes) = filled else { return 0 };
    // SAFETY: `out` has room for `amount` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    amount
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    // Simulated time does not pass while a host's code runs.
    microseconds
}

fn julian_ms() -> i64 {
    let since_epoch = turmoil::since_epoch().unwrap_or(Duration::ZERO);
    UNIX_EPOCH_JULIAN_MS + i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX - UNIX_EPOCH_JULIAN_MS)
}

unsafe extern "C" fn current_time(_: *mut ffi::sqlite3_vfs, days: *mut f64) -> c_int {
    guarded(ffi::SQLITE_ERROR, || {
        let now = julian_ms();
        // SAFETY: SQLite's address for the answer.
        unsafe { *days = now as f64 / MS_PER_DAY };
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn current_time_int64(_: *mut ffi::sqlite3_vfs, milliseconds: *mut i64) -> c_int {
    guarded(ffi::SQLITE_ERROR, || {
        let now = julian_ms();
        // SAFETY: SQLite's address for the answer.
        unsafe { *milliseconds = now };
        Ok(ffi::SQLITE_OK)
    })
}

unsafe extern "C" fn get_last_error(_: *mut ffi::sqlite3_vfs, _length: c_int, _message: *mut c_char) -> c_int {
    0
}

//! A store on a disk whose blocks are smaller than a page of memory. A program of its own: the test starts others, which must not inherit the locks of
//! stores that other tests have open.

use std::{
    env,
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::Command,
};

use belay_sqlite::{Location, Schema, open};
use rusqlite::Connection;
use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    mount::{UnmountFlags, unmount},
};

const DISK: &str = "BELAY_SMALL_BLOCKS";

const SCHEMA: Schema =
    Schema { application_id: 77, format: 1, earlier_lacks: "", create: "CREATE TABLE t (a BLOB) STRICT;" };

/// How many pages the first part of the log's index has room for.
const FRAMES: u64 = 4062;

/// The free space before each commit: enough for its frames and to extend the file of the index, and not enough for what is written into the index.
const FREE: u64 = 20 << 10;

/// When the log outgrows the first part of its index on a full disk, nothing ends the process.
#[test]
fn the_index_of_the_log_grows_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (image, disk) = (folder.path().join("image"), folder.path().join("disk"));
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(&disk).unwrap();
    let run = |program: &str, arguments: &[&str], on: &[&Path]| {
        Command::new(program).args(arguments).args(on).status().is_ok_and(|status| status.success())
    };
    if !run("mkfs.ext4", &["-q", "-F", "-b", "1024", "-m", "0", "-O", "^has_journal"], &[&image])
        || !run("mount", &["-o", "loop"], &[&image, &disk])
    {
        return eprintln!(
            "the_index_of_the_log_grows_on_a_full_disk: skipped, since no file system can be made and mounted here"
        );
    }
    let mut child = Command::new(env::current_exe().unwrap());
    let ended = child.args(["--exact", "child", "--ignored"]).env(DISK, &disk).output().unwrap();
    unmount(&disk, UnmountFlags::DETACH).unwrap();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), None, "{said}");
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

/// Takes all space of the disk but so much.
fn leave(others: &File, free: u64) {
    let disk = statvfs(env::var(DISK).unwrap()).unwrap();
    let (now, taken) = (disk.f_bavail * disk.f_frsize, others.metadata().unwrap().len());
    match now.checked_sub(free) {
        Some(0) => {}
        Some(more) => fallocate(others, FallocateFlags::empty(), taken, more).unwrap(),
        None => others.set_len(taken - (free - now)).unwrap(),
    }
}

#[test]
#[ignore = "started by `the_index_of_the_log_grows_on_a_full_disk`"]
fn child() {
    let disk = env::var(DISK).unwrap();
    let disk = Path::new(&disk);
    let path = disk.join("store.db");
    let store = open(&Location::file(&path), &SCHEMA).unwrap();
    let writer = store.writer.lock().unwrap();
    writer.execute("INSERT INTO t VALUES (zeroblob(1))", []).unwrap();
    // As long as a reader reads an early state, the log grows.
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    let frames = || fs::metadata(disk.join("store.db-wal")).unwrap().len() / (24 + 4096);
    while frames() < FRAMES - 50 {
        let pages = (FRAMES - 45 - frames()).min(1000);
        writer.execute("INSERT INTO t VALUES (zeroblob(?1))", [pages * 4080]).unwrap();
    }
    let others = File::create(disk.join("others")).unwrap();
    while frames() < FRAMES + 50 {
        leave(&others, FREE);
        writer.execute("INSERT INTO t VALUES (zeroblob(1))", []).unwrap();
    }
}

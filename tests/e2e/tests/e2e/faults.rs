//! Faults in the environment of `belay`: each is reported with its code and what to do, and once it is fixed everything works again.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, chown},
    path::Path,
    process::Command,
};

use belay_e2e::{
    Home,
    belay::{CommandEnd, RunningCommand},
    binary,
};
use serde_json::json;

const PLAN: &str = "{id: p, steps: [{id: a, tool: noop}]}";

/// A home with one execution, `keep`, that has ended.
fn with_keep() -> Home {
    let home = Home::new();
    let ended = home.run(["run", &home.file("plan.yaml", PLAN), "--id", "keep"]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    home
}

/// The execution from before the fault still exists.
fn keep_is_there(home: &Home) {
    let (code, execution) = home.json(&["executions", "get", "keep"]);
    assert_eq!((code, &execution["state"]), (0, &json!("STATE_COMPLETED")));
}

/// The fault is reported: exit code 1 (2 when a store is in use), the message, and its code at the end.
fn assert_reported(ended: &CommandEnd, about: &str, code: &str) {
    let exit = if code == "STORE_LOCKED" { 2 } else { 1 };
    assert_eq!((ended.code, ended.out.as_str()), (exit, ""), "{}", ended.talk);
    assert!(ended.talk.contains(about), "{about} is not in:\n{}", ended.talk);
    assert!(
        ended.talk.contains("\nnext: belay ") && ended.talk.contains(&format!("belay explain {code}")),
        "{}",
        ended.talk
    );
    assert!(ended.talk.lines().last().unwrap().starts_with(&format!("code: {code}")), "{}", ended.talk);
}

fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, since it needs root");
    }
    root
}

#[test]
fn a_store_in_use_is_refused() {
    let home = with_keep();
    for (lock, about) in [
        ("journal.db.lock", "journal.db: the store is in use"),
        ("ledger.db.lock", "ledger.db: the store is in use"),
        ("gate.db.lock", "gate.db: the store is in use"),
    ] {
        let held = File::create(home.state().join(lock)).unwrap();
        held.lock().unwrap();
        assert_reported(&home.run(["executions", "list"]), about, "STORE_LOCKED");
        drop(held);
        keep_is_there(&home);
    }
    // A process that holds the store and does not respond on its socket: the command waits, because it may be starting, but not forever.
    let held = File::create(home.state().join("lock")).unwrap();
    held.lock().unwrap();
    assert_reported(&home.run(["executions", "list"]), "another belay holds ", "STORE_LOCKED");
    drop(held);
    keep_is_there(&home);
}

/// The files of the journal and its write-ahead log when no process has them open.
fn journal_files(home: &Home) -> [std::path::PathBuf; 3] {
    ["journal.db", "journal.db-wal", "journal.db-shm"].map(|name| home.state().join(name))
}

/// Removes these files, if they exist.
fn remove(files: &[&Path]) {
    for file in files {
        drop(fs::remove_file(file));
    }
}

#[test]
fn a_damaged_store_is_refused_and_left_as_it_is() {
    let home = with_keep();
    let [journal, log, index] = journal_files(&home);
    // Everything into the one file, as a backup would.
    let connection = rusqlite::Connection::open(&journal).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    let good = fs::read(&journal).unwrap();
    let damaged = [
        ("garbage", vec![b'x'; 9_000]),
        ("half of it", good[..good.len() / 2].to_vec()),
        ("its beginning", good[..50].to_vec()),
    ];
    for (what, bytes) in damaged {
        // A log is useless next to another database file.
        remove(&[&log, &index]);
        fs::write(&journal, &bytes).unwrap();
        assert_reported(&home.run(["executions", "list"]), "journal.db: the store is damaged", "STORE_CORRUPT");
        assert_eq!(fs::read(&journal).unwrap(), bytes, "{what}: nothing was changed");
    }
    remove(&[&log, &index]);
    fs::write(&journal, &good).unwrap();
    keep_is_there(&home);
}

#[test]
fn a_store_of_another_version_is_refused() {
    let home = with_keep();
    for (store, lacks) in [
        ("journal.db", "it lacks the tokens and the cost of models"),
        ("ledger.db", "it lacks which networks calls had"),
        ("gate.db", "it lacks which executor spoke of an approval last"),
    ] {
        let open = || rusqlite::Connection::open(home.state().join(store)).unwrap();
        let set = |version: i64| open().pragma_update(None, "user_version", version).unwrap();
        let version: i64 = open().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        set(99);
        assert_reported(&home.run(["executions", "list"]), &format!("{store}: the store has format 99"), "STORE_NEWER");
        // What an earlier format lacks cannot be derived.
        set(version - 1);
        assert_reported(&home.run(["executions", "list"]), lacks, "STORE_OLDER");
        set(version);
        keep_is_there(&home);
    }
}

/// Thirty steps whose events need more than a small disk has.
fn fat_plan(home: &Home) -> String {
    let step = |n: usize| format!("  - {{id: s{n}, tool: noop, arguments: {{output: {}}}}}\n", "x".repeat(20_000));
    home.file("fat.yaml", (0..30).fold("id: fat\nsteps:\n".to_owned(), |plan, n| plan + &step(n)))
}

/// A small file system; unmounted when this value is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(folder: &'a Path) -> Option<Self> {
        fs::create_dir(folder).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1500k,mode=700", "none"]).arg(folder).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }

    fn grow(&self) {
        assert!(Command::new("mount").args(["-o", "remount,size=64m"]).arg(self.0).status().unwrap().success());
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.0).status());
    }
}

/// S2-NFR-006: a full disk ends the run with its reason, loses nothing that was recorded, and the run can continue once there is space.
#[test]
fn a_full_disk_loses_nothing() {
    let home = Home::new();
    let state = home.state();
    let disk = is_root("a_full_disk_loses_nothing").then(|| SmallDisk::mount(&state)).flatten();
    let Some(disk) = disk else {
        return eprintln!("a_full_disk_loses_nothing: skipped, since no file system can be mounted here");
    };
    assert_eq!(home.run(["run", &home.file("plan.yaml", PLAN), "--id", "keep"]).code, 0);
    let full = home.run(["run", &fat_plan(&home), "--id", "fat"]);
    assert_eq!(full.code, 1, "{}", full.talk);
    assert!(
        full.talk.contains("error: the disk is full\n") && full.talk.contains("Make room on the disk"),
        "{}",
        full.talk
    );
    assert!(
        full.talk.ends_with("next: belay executions resume fat\ncode: STORE_FULL (belay explain STORE_FULL)\n"),
        "{}",
        full.talk
    );
    let completed = full.out.matches(" completed in ").count();

    disk.grow();
    keep_is_there(&home);
    assert_eq!(home.run(["executions", "resume", "fat"]).code, 0);
    let events = home.events("fat");
    let calls = belay_e2e::belay::count(&events, "toolCallRequested", "");
    assert!(
        (30..=31).contains(&calls),
        "only what was under way is called again, not the {completed} that had completed: {calls}"
    );
}

/// When a store's file cannot grow, the server reports it and exits.
#[test]
fn a_store_that_cannot_grow_ends_its_server() {
    let home = with_keep();
    let mut command = Command::new("sh");
    // 400 KiB a file (sh counts in blocks of 512 bytes); without the signal that would end the process there and then.
    command.args(["-c", "trap '' XFSZ; ulimit -f 800; exec \"$0\" serve"]).arg(binary());
    command.env("BELAY_STATE_DIR", home.state()).env("BELAY_LOG", "off").stdin(std::process::Stdio::null());
    let mut server = RunningCommand::start(command);
    server.wait_for("keeps data in");
    let fat = fat_plan(&home);
    let run = home.start(["run", &fat, "--id", "fat", "--wait-timeout", "100ms"]);
    let ended = server.end();
    assert_eq!(ended.code, 1);
    assert!(ended.talk.contains("code: STORE_FAILED"), "{}", ended.talk);
    drop(run);
    keep_is_there(&home);
}

#[test]
fn a_state_directory_that_cannot_be_used_is_named() {
    let home = Home::new();
    let plan = home.file("plan.yaml", PLAN);
    let about = |path: &str| format!("the state directory {} cannot be used: ", home.path(path).display());
    let run = |path: &str| home.run(["run", &plan, "--state-dir", home.path(path).to_str().unwrap()]);
    assert_reported(&run("plan.yaml"), &about("plan.yaml"), "STATE_DIR_UNUSABLE");
    assert_reported(&run("plan.yaml/deeper"), &about("plan.yaml/deeper"), "STATE_DIR_UNUSABLE");

    let mut homeless = home.belay(["run", &plan]);
    homeless.env_remove("BELAY_STATE_DIR").env_remove("XDG_STATE_HOME").env_remove("HOME");
    assert_reported(
        &RunningCommand::start(homeless).end(),
        "no state directory: neither XDG_STATE_HOME nor HOME is set",
        "STATE_DIR_UNUSABLE",
    );

    fs::create_dir(home.path("open")).unwrap();
    fs::set_permissions(home.path("open"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run("open").code, 0);
    let mode = fs::metadata(home.path("open")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "others do not look into it any more");
}

#[test]
fn the_folder_of_another_user_is_refused() {
    if !is_root("the_folder_of_another_user_is_refused") {
        return;
    }
    let home = with_keep();
    chown(home.state(), Some(12_345), None).unwrap();
    assert_reported(&home.run(["executions", "list"]), " belongs to another user", "STATE_DIR_UNUSABLE");
    chown(home.state(), Some(0), None).unwrap();
    keep_is_there(&home);
}

#[test]
fn a_port_in_use_is_named() {
    let home = with_keep();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_reported(&home.run(["serve", "--listen", &address]), &format!("{address} is in use"), "PORT_IN_USE");
    // An address that is kept for documentation (RFC 5737), so no machine has it.
    let elsewhere = ["serve", "--listen", "192.0.2.1:1", "--insecure-listen-beyond-loopback"];
    assert_reported(&home.run(elsewhere), "cannot listen on http://192.0.2.1:1", "CANNOT_LISTEN");
    keep_is_there(&home);
}

#[test]
fn a_server_that_is_not_there_is_explained() {
    let home = Home::new();
    let socket = format!("unix:{}", home.path("socket").display());
    assert_reported(
        &home.run(["executions", "list", "--server", &socket]),
        "there is no such socket: no server runs there",
        "SERVER_UNREACHABLE",
    );
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    assert_reported(
        &home.run(["executions", "list", "--server", &url]),
        "nothing listens at that port",
        "SERVER_UNREACHABLE",
    );
}

/// SQLite treats an empty file as a new database; a restart after an accident must not pass for a first start.
#[test]
fn an_emptied_store_is_not_a_new_one() {
    let home = with_keep();
    let journal = home.state().join("journal.db");
    let content = fs::read(&journal).unwrap();
    fs::write(&journal, []).unwrap();
    assert_reported(
        &home.run(["executions", "list"]),
        "journal.db: the store is damaged: the file is empty",
        "STORE_CORRUPT",
    );
    fs::write(&journal, content).unwrap();
    keep_is_there(&home);
}

/// B-08: a journal that was restored from a backup is older than what the runner has seen; continuing from it could repeat effects.
#[test]
fn a_journal_older_than_the_runner_s_ledger_is_refused() {
    let home = with_keep();
    let copy = || journal_files(&home).map(|file| (fs::read(&file).ok(), file));
    let put_back = |files: [(Option<Vec<u8>>, std::path::PathBuf); 3]| {
        for (content, file) in files {
            remove(&[&file]);
            if let Some(content) = content {
                fs::write(file, content).unwrap();
            }
        }
    };
    let backup = copy();
    let plan = home.file("plan.yaml", PLAN);
    for id in ["later", "latest"] {
        assert_eq!(home.run(["run", &plan, "--id", id]).code, 0);
    }
    let newest = copy();
    put_back(backup);
    // The same name again: its calls have the names of earlier calls.
    let ended = home.run(["run", &plan, "--id", "latest"]);
    assert_eq!(ended.code, 1, "{}", ended.talk);
    assert!(ended.talk.contains("code: STORE_BEHIND"), "{}", ended.talk);
    put_back(newest);
    keep_is_there(&home);
}

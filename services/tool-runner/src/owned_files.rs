//! Files that one process of the runner writes for its commands, and that are removed when it is gone.

use std::{fs, path::Path, sync::OnceLock};

/// The beginning of the names of this process's files: its number, and when it was started. The number alone may be that of the process before it, as in a container
/// that was started again.
pub(crate) fn prefix() -> &'static str {
    static PREFIX: OnceLock<String> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let pid = std::process::id();
        format!("{pid}.{}", started(pid).unwrap_or_default())
    })
}

/// Removes the files and directories of processes that are gone. What cannot be removed is in nobody's way.
pub(crate) fn remove_left_over(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(is_left_over) {
            continue;
        }
        if fs::remove_file(entry.path()).is_err() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a file of this name belongs to a process that is gone. One whose name says nothing of a process is left alone.
fn is_left_over(name: &str) -> bool {
    let Some((owner, _)) = name.split_once('-') else { return false };
    let (pid, start) = owner.split_once('.').unwrap_or((owner, ""));
    pid.parse().is_ok_and(|pid| started(pid).is_none_or(|known| known != start))
}

/// When a process was started, in ticks since the start of the machine, as `/proc` has it. `None`: there is no such process.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may have spaces and parentheses. The start is the 20th field behind it (proc(5): the 22nd of all).
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_processes_that_are_gone_are_removed() {
        let (directory, own) = (tempfile::tempdir().unwrap(), prefix());
        let pid = std::process::id();
        let gone =
            [format!("{pid}.1-0"), format!("{pid}-0"), "4194304999-3".to_owned(), "1.17-certificates".to_owned()];
        let kept = [format!("{own}-0.md"), "notes".to_owned(), "a-b".to_owned()];
        for name in gone.iter().chain(&kept) {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        fs::create_dir(directory.path().join("1.18-0")).unwrap();
        fs::write(directory.path().join("1.18-0/file"), "x").unwrap();
        remove_left_over(directory.path());
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let mut kept: Vec<_> = kept.iter().map(std::ffi::OsString::from).collect();
        kept.sort();
        assert_eq!(left, kept);
    }
}

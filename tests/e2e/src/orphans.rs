//! Processes that outlived the one that started them.

use std::{fs, time::Duration};

/// Makes this process the parent of every process below it whose own parent ends, so that none can hide.
///
/// # Panics
/// When the system refuses.
pub fn adopt() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("the system allows it");
}

/// Waits until no sandbox is left whose runner has gone. [`adopt`] has to be called before the runner starts.
///
/// # Panics
/// When one lives on for ten seconds.
pub async fn gone() {
    let mut left = Vec::new();
    for _ in 0..1000 {
        left = orphans();
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("processes outlived their runner: {left:?}");
}

/// The command lines of living orphans. What the sandbox starts has no other parent than a runner or the sandbox itself.
fn orphans() -> Vec<String> {
    let this = std::process::id().to_string();
    let processes = fs::read_dir("/proc").expect("/proc is there").filter_map(Result::ok);
    let orphan = |pid: &str| -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may hold anything: the state and the parent.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?);
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        let of_sandbox = command.contains("belay-sandbox-launcher") || command.contains("marked-by-the-test");
        (parent == this && state != "Z" && of_sandbox).then(|| format!("{pid}: {command}"))
    };
    processes.filter_map(|entry| orphan(entry.file_name().to_str()?)).collect()
}

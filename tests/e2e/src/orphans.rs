//! Finds processes that have outlived their parent.

use std::{fs, time::Duration};

/// Makes this process the subreaper: it becomes the parent of every descendant whose own parent ends.
///
/// # Panics
/// When the operating system refuses.
pub fn adopt() {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("the system allows it");
}

/// Waits until no sandbox process is left whose runner has ended. Call [`adopt`] before the runner starts.
///
/// # Panics
/// When one still runs after ten seconds.
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

/// The command lines of running orphans. The parent of a sandbox process is always a runner or the sandbox itself.
fn orphans() -> Vec<String> {
    let this = std::process::id().to_string();
    let processes = fs::read_dir("/proc").expect("/proc is there").filter_map(Result::ok);
    let orphan = |pid: &str| -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // State and parent follow the name, which may contain anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?);
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?.replace('\0', " ");
        let of_sandbox = command.contains("belay-sandbox-launcher") || command.contains("marked-by-the-test");
        (parent == this && state != "Z" && of_sandbox).then(|| format!("{pid}: {command}"))
    };
    processes.filter_map(|entry| orphan(entry.file_name().to_str()?)).collect()
}

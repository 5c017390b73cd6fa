//! How often processes flush to the disk, counted by strace.

use std::{fs, future::Future, io::ErrorKind, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::{
    Result,
    place::Place,
    subject::{Load, Subject, within},
};

/// Flushes, or why they were not counted.
pub(crate) type FlushCount = std::result::Result<f64, String>;

/// Runs a load under strace and returns the flushes per step of all its processes together.
pub(crate) async fn flushes_per_step(subject: &mut impl Subject, load: Load, place: &Place) -> Result<FlushCount> {
    let counted = flushes_of(&subject.pids(), place, subject.run(load)).await?;
    Ok(counted.map(|(_, flushes)| flushes / load.total()))
}

/// Does something while strace counts the flushes of these processes; its answer, and how many there were, or why they were not counted.
pub(crate) async fn flushes_of<T>(
    pids: &[u32],
    place: &Place,
    work: impl Future<Output = Result<T>>,
) -> Result<std::result::Result<(T, f64), String>> {
    let summary = place.file("strace.txt");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-c", "-e", "trace=fsync,fdatasync,syncfs,sync_file_range", "-o"])
        .arg(&summary)
        .args(pids.iter().flat_map(|pid| ["-p".into(), pid.to_string()]));
    let mut strace = match command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn() {
        Ok(strace) => strace,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Err("install strace".into())),
        Err(error) => return Err(format!("strace could not be started: {error}").into()),
    };
    let mut talk = BufReader::new(strace.stderr.take().expect("asked for above")).lines();
    for pid in pids {
        loop {
            match within("strace", async { Ok(talk.next_line().await?) }).await? {
                Some(line) if line.contains(&format!("Process {pid} attached")) => break,
                Some(line) if line.contains("attach:") => return Ok(Err(line)),
                Some(_) => {}
                None => return Ok(Err("strace ended before it was attached".into())),
            }
        }
    }
    let done = within("a load under strace", work).await?;
    // On SIGINT strace lets the processes go and writes its summary.
    let pid = strace.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).ok_or("strace ended by itself")?;
    kill_process(pid, Signal::INT)?;
    within("strace's end", async {
        while talk.next_line().await?.is_some() {}
        Ok(strace.wait().await?)
    })
    .await?;
    Ok(Ok((done, flushes(&fs::read_to_string(&summary)?) as f64)))
}

/// Adds up the calls of a `strace -c` summary: `% time, seconds, usecs/call, calls, [errors,] syscall`.
fn flushes(summary: &str) -> u64 {
    let calls = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields.last(), Some(&("fsync" | "fdatasync" | "syncfs" | "sync_file_range")))
            .then(|| fields.get(3)?.parse::<u64>().ok())
            .flatten()
    };
    summary.lines().filter_map(calls).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_of_both_kinds_are_added_up() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 99.00    0.200000         398       502           fdatasync
  1.00    0.000100          50         2         1 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.200100                   504         1 total
";
        assert_eq!(flushes(summary), 504);
        assert_eq!(flushes(""), 0);
    }
}

//! Attacks on other processes, and a fork bomb.

use std::{fs, io, io::Read as _};

use rustix::process::{Pid, Signal, getpgrp, kill_process};

use super::attack::{Attack, Targets, Verdict};
use crate::sys::{self, Side};

pub(super) const ATTACKS: &[Attack] = &[
    ("signal a process of the host", |targets| {
        let signal = |pid: i32| match Pid::from_raw(pid) {
            Some(pid) => kill_process(pid, Signal::CONT).map_err(io::Error::from),
            None => Err(io::Error::other("no process id")),
        };
        Verdict::of(signal(targets.process))
    }),
    ("see other processes", |_| {
        let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let pids: Vec<String> =
            names.filter_map(|name| name.into_string().ok()).filter(|name| name.parse::<u32>().is_ok()).collect();
        let (init, own) = ("1".to_owned(), std::process::id().to_string());
        Verdict::expect(pids.iter().all(|pid| *pid == init || *pid == own), pids.join(" "))
    }),
    ("read init's memory and environment", |_| {
        Verdict::any(["/proc/1/mem", "/proc/1/environ", "/proc/1/maps"].map(|path| Verdict::of(fs::read(path))))
    }),
    ("enter init's namespaces", |_| {
        Verdict::any(
            ["mnt", "pid", "net", "user"].map(|kind| Verdict::of(fs::File::open(format!("/proc/1/ns/{kind}")))),
        )
    }),
    ("share a terminal's session", |_| {
        let own = Pid::from_raw(std::process::id() as i32);
        Verdict::expect(Some(getpgrp()) == own, "it has its own session")
    }),
    ("start processes without end", fork_bomb),
];

/// Far above the limit of the self-test, and far below what would harm the machine.
const MANY: usize = 1000;

fn fork_bomb(targets: &Targets) -> Verdict {
    let Ok((mut held, release)) = io::pipe() else {
        return Verdict::Possible("cannot create a pipe".to_owned());
    };
    let mut children = Vec::new();
    let mut stopped_by = None;
    while children.len() < MANY {
        match sys::clone(targets.one, 0) {
            Ok(Side::Child) => {
                drop(release);
                // Waits until the parent closes the pipe.
                let _ = held.read(&mut [0]);
                sys::exit(0)
            }
            // Keeps only the pid: descriptors have their own limit.
            Ok(Side::Parent { pid, .. }) => children.push(pid),
            Err(error) => {
                stopped_by = Some(error);
                break;
            }
        }
    }
    drop(release);
    for pid in &children {
        // A child that cannot be reaped is killed with the sandbox.
        let _ = sys::wait(*pid);
    }
    match stopped_by {
        Some(error) => Verdict::Blocked(format!("after {}: {error}", children.len())),
        None => Verdict::Possible(format!("{MANY} processes")),
    }
}

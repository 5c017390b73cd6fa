//! The command of a self-test: attacks the sandbox from inside and prints the results.

mod attack;
mod files;
mod kernel;
mod leaks;
mod network;
mod processes;

use std::{
    ffi::OsString,
    io::{self, Write as _},
};

use crate::sys::SingleThreaded;
use attack::{Attack, Targets, Verdict};

fn all() -> impl Iterator<Item = Attack> {
    [files::ATTACKS, network::ATTACKS, processes::ATTACKS, kernel::ATTACKS, leaks::ATTACKS]
        .into_iter()
        .flatten()
        .copied()
}

/// The number of attacks.
pub(crate) const COUNT: usize = files::ATTACKS.len()
    + network::ATTACKS.len()
    + processes::ATTACKS.len()
    + kernel::ATTACKS.len()
    + leaks::ATTACKS.len();

/// Runs all attacks and returns the exit code.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> i32 {
    let Some(targets) = targets(args) else {
        eprintln!("usage: secret socket abstract-name port process");
        return 2;
    };
    for (name, attack) in all() {
        let (verdict, detail) = match attack(&targets) {
            Verdict::Blocked(detail) => ("blocked", detail),
            Verdict::Possible(detail) => ("POSSIBLE", detail),
        };
        // The self-test notices missing results.
        let _ = writeln!(io::stdout(), "{verdict}\t{name}\t{}", detail.replace(['\n', '\t'], " "));
    }
    0
}

fn targets(mut args: impl Iterator<Item = OsString>) -> Option<Targets> {
    let (secret, socket) = (args.next()?.into(), args.next()?.into());
    let mut text = || args.next()?.into_string().ok();
    Some(Targets {
        secret,
        socket,
        abstract_name: text()?,
        port: text()?.parse().ok()?,
        process: text()?.parse().ok()?,
        variables: text()?.split_whitespace().map(str::to_owned).collect(),
        one: SingleThreaded::check().ok()?,
    })
}

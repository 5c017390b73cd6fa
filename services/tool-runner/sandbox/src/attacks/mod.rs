//! The command of a self-test: attacks the sandbox from inside and prints the results.

mod files;
mod kernel;
mod leaks;
mod network;
mod processes;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
};

use crate::sys::SingleThreaded;

/// The targets outside the sandbox, created by the self-test.
pub(crate) struct Targets {
    /// A file that everyone may read and write.
    secret: PathBuf,
    /// A socket that everyone may connect to.
    socket: PathBuf,
    /// The name of an abstract socket.
    abstract_name: String,
    /// The port of a TCP listener on the loopback interface.
    port: u16,
    /// The process that runs the self-test.
    process: i32,
    /// The names of the operator's variables, which every command gets.
    variables: Vec<String>,
    one: SingleThreaded,
}

/// The result of an attack.
enum Verdict {
    Blocked(String),
    Possible(String),
}

impl Verdict {
    /// An attack that succeeds if the call succeeds.
    fn of<T>(result: io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::Possible("it worked".to_owned()),
            Err(error) => Self::Blocked(error.to_string()),
        }
    }

    /// The first attempt that is possible, else the last one.
    fn any(tries: impl IntoIterator<Item = Self>) -> Self {
        let mut last = Self::Blocked("nothing to try".to_owned());
        for verdict in tries {
            last = verdict;
            if matches!(last, Self::Possible(_)) {
                break;
            }
        }
        last
    }

    /// Blocked if `fine`.
    fn expect(fine: bool, seen: impl Into<String>) -> Self {
        if fine { Self::Blocked(seen.into()) } else { Self::Possible(seen.into()) }
    }
}

type Attack = (&'static str, fn(&Targets) -> Verdict);

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

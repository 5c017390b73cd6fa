//! An attack: what it tries, at what, and what came of it.

use std::{io, path::PathBuf};

use crate::sys::SingleThreaded;

/// The targets outside the sandbox, created by the self-test.
pub(super) struct Targets {
    /// A file that everyone may read and write.
    pub(super) secret: PathBuf,
    /// A socket that everyone may connect to.
    pub(super) socket: PathBuf,
    /// The name of an abstract socket.
    pub(super) abstract_name: String,
    /// The port of a TCP listener on the loopback interface.
    pub(super) port: u16,
    /// The process that runs the self-test.
    pub(super) process: i32,
    /// The names of the operator's variables, which every command gets.
    pub(super) variables: Vec<String>,
    pub(super) one: SingleThreaded,
}

/// The result of an attack.
pub(super) enum Verdict {
    Blocked(String),
    Possible(String),
}

impl Verdict {
    /// An attack that succeeds if the call succeeds.
    pub(super) fn of<T>(result: io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::Possible("it worked".to_owned()),
            Err(error) => Self::Blocked(error.to_string()),
        }
    }

    /// The first attempt that is possible, else the last one.
    pub(super) fn any(tries: impl IntoIterator<Item = Self>) -> Self {
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
    pub(super) fn expect(fine: bool, seen: impl Into<String>) -> Self {
        if fine { Self::Blocked(seen.into()) } else { Self::Possible(seen.into()) }
    }
}

pub(super) type Attack = (&'static str, fn(&Targets) -> Verdict);

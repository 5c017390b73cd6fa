//! The reasons why a value cannot be read. None of their messages contains it.

use std::{io, path::PathBuf};

use belay_network::{CredentialSource, SecretProblem};
use thiserror::Error;

use crate::buffer::MAX_READ;

/// Why the value of a credential cannot be read. The message names the source, and says what to do.
#[derive(Debug, Error)]
pub enum ReadProblem {
    /// A file cannot be used.
    #[error("the file {} {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: FileProblem,
    },
    /// A variable is not set.
    #[error("the variable {name} is not set: set it in the environment in which Belay starts")]
    NoVariable {
        /// Its name.
        name: String,
    },
    /// The name of a credential of systemd is none.
    #[error(
        "`{}` is not the name of a credential of systemd: use the one that `LoadCredential=` has before the `:`",
        belay_text::shown(.name, MAX_SHOWN)
    )]
    SystemdName {
        /// The name.
        name: String,
    },
    /// Systemd has not given this credential to this process.
    #[error(
        "systemd does not give the credential {name} to this service: add `LoadCredential={name}:/path/of/the/file` to its unit, and start it again"
    )]
    NotFromSystemd {
        /// The name of the credential.
        name: String,
    },
    /// A program did not print a value.
    #[error("the command {program} {problem}")]
    Command {
        /// The program.
        program: String,
        /// Why.
        problem: CommandProblem,
    },
    /// The value is none that a request can carry.
    #[error("the value from {from} cannot be used: {problem}{}", advice(*.problem))]
    Value {
        /// Where it comes from.
        from: CredentialSource,
        /// Why.
        problem: SecretProblem,
    },
}

/// Why a file with a value cannot be used.
#[derive(Debug, Error)]
pub enum FileProblem {
    /// It does not exist.
    #[error("does not exist: write the value into it, readable by the user of this service alone")]
    Missing,
    /// It cannot be read.
    #[error("cannot be read: {0}: give it to the user of this service")]
    Unreadable(io::Error),
    /// It is a symbolic link.
    #[error("is a symbolic link, which is not followed: name the file that it leads to")]
    Link,
    /// It is a directory, a pipe, a socket or a device.
    #[error("is not a regular file: name one with the value")]
    NotAFile,
    /// It belongs to another user.
    #[error("belongs to another user (uid {owner}): change its owner to the user of this service, or to root")]
    Foreign {
        /// The user.
        owner: u32,
    },
    /// Other users can read it or change it.
    #[error(
        "can be read or changed by other users (mode {mode:04o}): run `chmod g-w,o=` on it, and consider another value"
    )]
    Exposed {
        /// Its mode.
        mode: u32,
    },
}

/// Why a program did not print a value. Nothing that it wrote is in it.
#[derive(Debug, Error)]
pub enum CommandProblem {
    /// Its path is not absolute.
    #[error("must be an absolute path: no PATH is searched")]
    NotAbsolute,
    /// It could not be started.
    #[error("could not be started: {0}: check its path and that the user of this service may run it")]
    Start(io::Error),
    /// It could not be followed.
    #[error("could not be followed to its end: {0}: try again")]
    Lost(io::Error),
    /// It did not end in time, and was killed.
    #[error(
        "did not end within {LIMIT_SECONDS} seconds and was killed: it has to print the value without asking anybody"
    )]
    TooSlow,
    /// It printed more than a value, and was killed.
    #[error("prints more than {MAX_READ} bytes: it has to print the value alone")]
    TooLong,
    /// It failed.
    #[error("{ending}: run it as the user of this service to see why")]
    Failed {
        /// How it ended, such as `ended with exit code 1`.
        ending: String,
    },
}

/// The most characters of a name in a message.
const MAX_SHOWN: usize = 200;

/// The time that a program has, in seconds.
pub(crate) const LIMIT_SECONDS: u32 = 10;
/// Advice about a value, where its problem does not say what to do.
fn advice(problem: SecretProblem) -> &'static str {
    match problem {
        SecretProblem::Empty => ": put the value there",
        SecretProblem::Long => ", which no header carries: put only the value there",
        SecretProblem::Short | SecretProblem::Character => "",
    }
}

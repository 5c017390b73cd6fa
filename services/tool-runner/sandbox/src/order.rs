//! What runner and launcher say to each other.

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use crate::{
    budget::{DiskLimit, Reserve, WriteBudget},
    layer::Layer,
    limits::Limits,
    mounts::Mount,
    running::{Ended, Enforced},
    scratch::Scratch,
    wire::{wire_enum, wire_struct},
};

/// The one thing the runner sends.
pub(crate) enum Order {
    Run(Command),
    /// Try each layer and say which are there, for a service user with these ids.
    Probe(u32, u32),
}

wire_enum!(Order { 0 = Run(command), 1 = Probe(uid, gid) });

/// A command with everything decided.
pub(crate) struct Command {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(String, OsString)>,
    pub(crate) cwd: PathBuf,
    pub(crate) lower: Vec<PathBuf>,
    pub(crate) staging: Option<PathBuf>,
    pub(crate) hidden: Vec<PathBuf>,
    /// The operator's and the call's, in the order in which they are mounted.
    pub(crate) mounts: Vec<Mount>,
    pub(crate) scratch: Scratch,
    /// Where the scratch places lie on disk: a folder that does not exist yet. `None`: they are memory.
    pub(crate) scratch_folder: Option<PathBuf>,
    /// How much it may change in its view of the workspace.
    pub(crate) view: WriteBudget,
    pub(crate) reserve: Reserve,
    /// Its row in the table of commands that comes with the order.
    pub(crate) row: Option<u32>,
    pub(crate) wall: Option<Duration>,
    pub(crate) limits: Limits,
    pub(crate) path: Vec<PathBuf>,
    pub(crate) service_uid: u32,
    pub(crate) service_gid: u32,
    pub(crate) landlock_floor: u8,
    /// The binary with the built-in attacks, shown at [`ATTACKS`]. Only a self-test has one.
    pub(crate) attacks: Option<PathBuf>,
}

wire_struct!(Command {
    program,
    args,
    env,
    cwd,
    lower,
    staging,
    hidden,
    mounts,
    scratch,
    scratch_folder,
    view,
    reserve,
    row,
    wall,
    limits,
    path,
    service_uid,
    service_gid,
    landlock_floor,
    attacks,
});

/// Where a self-test finds the binary with the attacks.
pub(crate) const ATTACKS: &str = "/.attacks";

/// What comes back.
pub(crate) enum Message {
    /// Init exists; its pidfd comes along.
    Init,
    /// Nothing was started.
    Failed(Failure),
    /// The command's program is executing.
    Started(Enforced),
    /// The command is over, and nothing of it is left.
    Ended(Ended),
    /// The answer to [`Order::Probe`]: the layers tried, with the error of each that is missing (0 = there).
    Probed(Vec<Probed>),
}

wire_enum!(Message { 0 = Init, 1 = Failed(failure), 2 = Started(enforced), 3 = Ended(ended), 4 = Probed(layers) });

/// One layer that was tried.
pub(crate) struct Probed {
    pub(crate) layer: Layer,
    pub(crate) error: i32,
}

wire_struct!(Probed { layer, error });

/// Why nothing was started, as far as the launcher knows.
pub(crate) enum Failure {
    /// A layer, what was being done, and the error's number.
    Layer(Layer, String, i32),
    ProgramNotFound,
    ProgramNotExecutable(i32),
    WorkingDirectory(i32),
    /// A field, and what is wrong with it.
    Spec(String, String),
    /// A folder whose file system has less free than its reserve.
    NoRoom(PathBuf, DiskLimit),
}

wire_enum!(Failure {
    0 = Layer(layer, doing, error),
    1 = ProgramNotFound,
    2 = ProgramNotExecutable(error),
    3 = WorkingDirectory(error),
    4 = Spec(field, problem),
    5 = NoRoom(place, limit),
});

/// Gives an error the layer and the words it lacks.
pub(crate) trait At<T> {
    fn at(self, layer: Layer, doing: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, layer: Layer, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            match error.raw_os_error() {
                Some(number) => Failure::Layer(layer, doing(), number),
                // No system call said this; the words are all there is.
                None => Failure::Layer(layer, format!("{} ({error})", doing()), libc::EIO),
            }
        })
    }
}

//! The protocol between runner and launcher.

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use crate::{
    budget::{DiskLimit, Reserve, WriteBudget},
    ended::{CommandEnd, EnforcedParts},
    layer::Layer,
    limits::Limits,
    mounts::Mount,
    network::SocketAddresses,
    scratch::Scratch,
    spec::Dialogue,
    wire::{wire_enum, wire_struct},
};

/// A request to a launcher. There is one command or probe per launcher.
pub(crate) enum Request {
    /// Set up what does not depend on the command, probably for a workspace of this owner. The descriptor of the command table comes with it.
    Arm(Armed, Option<(u32, u32)>),
    /// Run this command in it: once, and at any time later.
    Run(Invocation),
    /// Probe each layer, for a service user with these ids.
    Probe(u32, u32),
    /// An end of a pipe, which comes with it: for a command with a dialogue that from which it reads, then that to which it writes; for one with sockets that of their
    /// receipt.
    Pipe,
    /// The command's time limit stands still from now on.
    StopTimer,
    /// The command's time limit runs again.
    ContinueTimer,
}

wire_enum!(Request { 0 = Arm(armed, owner), 1 = Run(invocation), 2 = Probe(uid, gid), 3 = Pipe, 4 = StopTimer, 5 = ContinueTimer });

wire_enum!(Dialogue { 0 = Questions, 1 = StandardStreams });

/// The part of a launch that a sandbox needs before it knows its command: it has nothing of a workspace or a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    /// Read-only mounts of the operator, in order. Those of the call come after them, see [`Invocation::mounts`].
    pub(crate) mounts: Vec<Mount>,
    pub(crate) scratch: Scratch,
    /// The budget for changes in the view of the workspace.
    pub(crate) view: WriteBudget,
    pub(crate) reserve: Reserve,
    pub(crate) limits: Limits,
    pub(crate) path: Vec<PathBuf>,
    pub(crate) service_uid: u32,
    pub(crate) service_gid: u32,
    pub(crate) landlock_floor: u8,
    /// The binary with the built-in attacks, mounted at [`ATTACKS`]. Set for a self-test only.
    pub(crate) attacks: Option<PathBuf>,
}

wire_struct!(Armed { mounts, scratch, view, reserve, limits, path, service_uid, service_gid, landlock_floor, attacks });

/// A command, and what it works in.
pub(crate) struct Invocation {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(String, OsString)>,
    pub(crate) cwd: PathBuf,
    pub(crate) lower: Vec<PathBuf>,
    pub(crate) staging: Option<PathBuf>,
    pub(crate) hidden: Vec<PathBuf>,
    /// The mounts of the operator and the call that [`Armed::mounts`] does not have, in order.
    pub(crate) mounts: Vec<Mount>,
    /// The directory of the scratch places on disk, which does not exist yet. `None`: they are in memory.
    pub(crate) scratch_directory: Option<PathBuf>,
    /// Its row in the command table.
    pub(crate) row: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    /// The pipes over which it and the runner exchange messages: two requests with their ends follow.
    pub(crate) dialogue: Option<Dialogue>,
    /// Whether it gets a file for its outputs, which [`Message::Outputs`] hands to the runner.
    pub(crate) outputs: bool,
    /// The addresses of the sockets in its network namespace, which [`Message::Socket`] hands to the runner: a request with the end of a pipe follows, from
    /// which init reads a byte once all are received. `None`: there are none.
    pub(crate) sockets: Option<SocketAddresses>,
}

wire_struct!(Invocation {
    program,
    args,
    env,
    cwd,
    lower,
    staging,
    hidden,
    mounts,
    scratch_directory,
    row,
    timeout,
    dialogue,
    outputs,
    sockets,
});

impl Invocation {
    /// Its scratch directory, unless that is part of the staging directory, which the caller removes as a whole.
    pub(crate) fn own_scratch(&self) -> Option<&PathBuf> {
        let is_own = |folder: &&PathBuf| !self.staging.as_ref().is_some_and(|staging| folder.starts_with(staging));
        self.scratch_directory.as_ref().filter(is_own)
    }
}

/// A command with the sandbox that it runs in.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    pub(crate) armed: &'a Armed,
    pub(crate) call: &'a Invocation,
}

impl<'a> Command<'a> {
    /// All mounts of the operator and the call, in order.
    pub(crate) fn mounts(self) -> impl Iterator<Item = &'a Mount> {
        self.armed.mounts.iter().chain(&self.call.mounts)
    }
}

/// A message from the launcher to init, after the [`Invocation`]. [`ToInit::Go`] is the last.
pub(crate) enum ToInit {
    /// A mount that the launcher has taken as root, which comes with it.
    Mount(TakenMount),
    /// An end of a pipe, as in [`Request::Pipe`].
    Pipe,
    Go,
}

wire_enum!(ToInit { 0 = Mount(mount), 1 = Pipe, 2 = Go });

/// The kind of a mount from the launcher.
pub(crate) enum TakenMount {
    /// The next layer of the workspace, the topmost first.
    Lower,
    Staging,
    Scratch,
    /// The next of [`Invocation::mounts`]: whether it is a directory.
    Configured(bool),
}

wire_enum!(TakenMount { 0 = Lower, 1 = Staging, 2 = Scratch, 3 = Configured(folder) });

/// The path of the attack binary in the view.
pub(crate) const ATTACKS: &str = "/.attacks";

/// Where a self-test shows a folder of the host read-only, and where below private changes.
pub(crate) const SHOWN: &str = "/mnt/shown";
pub(crate) const SHOWN_SCRATCH: &str = "/mnt/scratch";

/// Marks the secrets of the targets, so that no attack succeeds by chance.
pub(crate) const CANARY: &str = "belay-canary";

/// A message to the runner.
pub(crate) enum Message {
    /// Init exists; its pidfd is attached.
    Init,
    /// The sandbox is set up, but for its command.
    Armed,
    /// The command was not started.
    Failed(Failure),
    /// The program is running.
    Started(EnforcedParts),
    /// The command has ended, and no process of it is left.
    Ended(CommandEnd),
    /// The reply to [`Request::Probe`]: the probed layers, with the error number of each missing one (0 = active).
    Probed(Vec<LayerProbe>),
    /// The file for the outputs of the command is attached.
    Outputs,
    /// The next socket of the command's network is attached.
    Socket,
}

wire_enum!(Message {
    0 = Init,
    1 = Failed(failure),
    2 = Started(enforced),
    3 = Ended(ended),
    4 = Probed(layers),
    5 = Outputs,
    6 = Armed,
    7 = Socket,
});

/// A probed layer.
pub(crate) struct LayerProbe {
    pub(crate) layer: Layer,
    pub(crate) error: i32,
}

wire_struct!(LayerProbe { layer, error });

/// Why nothing was started, as far as the launcher knows.
pub(crate) enum Failure {
    /// The layer, the operation, and the error number.
    Layer(Layer, String, i32),
    ProgramNotFound,
    ProgramNotExecutable(i32),
    WorkingDirectory(i32),
    /// The field, and what is wrong with it.
    Spec(String, String),
    /// A directory whose file system is below its reserve.
    DiskFull(PathBuf, DiskLimit),
}

wire_enum!(Failure {
    0 = Layer(layer, doing, error),
    1 = ProgramNotFound,
    2 = ProgramNotExecutable(error),
    3 = WorkingDirectory(error),
    4 = Spec(field, problem),
    5 = DiskFull(place, limit),
});

/// Adds the layer and the operation to an error.
pub(crate) trait Context<T> {
    fn at(self, layer: Layer, doing: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn at(self, layer: Layer, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            match error.raw_os_error() {
                Some(number) => Failure::Layer(layer, doing(), number),
                // Not an error of a system call, so only the message is known.
                None => Failure::Layer(layer, format!("{} ({error})", doing()), libc::EIO),
            }
        })
    }
}

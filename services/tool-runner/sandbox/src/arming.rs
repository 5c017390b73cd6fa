//! The launcher's part in setting up a sandbox: first what needs no command, then the rest.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    path::PathBuf,
};

use rustix::{
    fs::{Gid, Uid, fchown},
    process::{DumpableBehavior, getegid, geteuid, getgid, getuid, set_dumpable_behavior},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::{
    command_table::OwnRow,
    disk_watch::DiskWatch,
    error::KILLED,
    handover::{CallPipes, send_to_init},
    host_ids::{HostIds, drop_root},
    init::{self, FromLauncher},
    layer::Layer,
    protocol::{Armed, Command, Context as _, Failure},
    scratch_directory,
    sources::{self, MountAuthority, Owners},
    sys::{self, Side, SingleThreaded},
};

/// A sandbox that waits for its command.
pub(crate) struct ArmedSandbox {
    pub(crate) init: InitProcess,
    link: UnixStream,
    host_ids: HostIds,
    /// Takes the mounts of the command as root; `None` if init takes them.
    owners: Option<Owners>,
}

/// The init of a sandbox.
pub(crate) struct InitProcess {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    /// Closes when this process dies, which init detects.
    pub(crate) _alive: io::PipeWriter,
}

/// Sets up a sandbox without a command. `owner`: the likely owner of the workspace.
pub(crate) fn arm(
    one: SingleThreaded,
    armed: &Armed,
    owner: Option<(u32, u32)>,
    runner: &UnixStream,
) -> Result<ArmedSandbox, Failure> {
    // Under memory pressure the kernel should kill the command before the runner. Without /proc this preference is not set.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    let (uid, gid) = (geteuid(), getegid());
    let (host_ids, mut owners, sources) = if uid.is_root() {
        let mut owners = Owners::new(MountAuthority::Root(one), armed);
        let sources = sources::take_base(armed, &mut owners)?;
        let host_ids = HostIds { uid: armed.service_uid, gid: armed.service_gid };
        // The command must be able to open /dev/stdout, a pipe that the runner created.
        give(host_ids, io::stdout())
            .and_then(|()| give(host_ids, io::stderr()))
            .at(Layer::ServiceUser, || "changing the owner of the output to the service user".to_owned())?;
        (host_ids, Some(owners), Some(sources))
    } else {
        (HostIds { uid: uid.as_raw(), gid: gid.as_raw() }, None, None)
    };
    let (dead, alive) = io::pipe().at(Layer::Launcher, || "creating a pipe".to_owned())?;
    let (link, inits_link) = UnixStream::pair().at(Layer::Launcher, || "creating a socket".to_owned())?;
    match clone_init(one, host_ids)? {
        Side::Child => {
            drop((alive, link, owners));
            init::run(one, armed, host_ids, FromLauncher { runner, launcher: dead, link: inits_link, sources })
        }
        Side::Parent { pid, pidfd } => {
            drop((dead, inits_link, sources));
            // Only the command may hold the output open: it must end with the command.
            let null = File::open("/dev/null").at(Layer::Launcher, || "opening /dev/null".to_owned())?;
            rustix::stdio::dup2_stdin(&null)
                .and_then(|()| rustix::stdio::dup2_stdout(&null))
                .and_then(|()| rustix::stdio::dup2_stderr(&null))
                .at(Layer::Launcher, || "closing the output".to_owned())?;
            // Meanwhile init sets up its part.
            if let Some((owners, owner)) = owners.as_mut().zip(owner) {
                owners.expect(owner);
            }
            Ok(ArmedSandbox { init: InitProcess { pid, pidfd, _alive: alive }, link, host_ids, owners })
        }
    }
}

/// Clones init. Its namespaces are the service user's, who has all capabilities in them: the launcher, too, once it has dropped root.
///
/// The launcher needs root until it knows the workspace, so it changes its effective user only. Init has that one alone as soon as it is mapped.
fn clone_init(one: SingleThreaded, host_ids: HostIds) -> Result<Side, Failure> {
    let root = geteuid().is_root();
    let (own_uid, own_gid) = (getuid(), getgid());
    if root {
        let (uid, gid) = (Uid::from_raw(host_ids.uid), Gid::from_raw(host_ids.gid));
        set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(own_gid, gid, getegid()))
            .and_then(|()| set_thread_res_uid(own_uid, uid, Uid::ROOT))
            .at(Layer::ServiceUser, || format!("becoming user {}", host_ids.uid))?;
    }
    // EPERM and ENOSPC come from the user namespace: the other namespaces are created with its capabilities.
    let cloned = sys::clone(one, init::NAMESPACES).at(Layer::UserNamespace, || "creating the namespaces".to_owned())?;
    if root && matches!(cloned, Side::Parent { .. }) {
        set_thread_res_uid(own_uid, Uid::ROOT, Uid::ROOT)
            .and_then(|()| set_thread_res_gid(own_gid, own_gid, own_gid))
            .and_then(|()| set_dumpable_behavior(DumpableBehavior::Dumpable))
            .at(Layer::ServiceUser, || "becoming root again".to_owned())?;
    }
    Ok(cloned)
}

impl ArmedSandbox {
    /// Hands a command to init. Root is dropped for good once the mounts that need it are taken. Returns the monitor of the command's disk writes; `None` if it
    /// writes to memory only.
    pub(crate) fn hand_over(
        &mut self,
        command: Command<'_>,
        row: Option<OwnRow>,
        pipes: CallPipes,
    ) -> Result<Option<DiskWatch>, Failure> {
        let host_ids = self.host_ids;
        make_scratch(command)?;
        let sources = match self.owners.take() {
            None => None,
            Some(mut owners) => {
                let sources = sources::take_for_call(command.call, &mut owners)?;
                (pipes.dialogue.iter().flatten().try_for_each(|end| give(host_ids, end)))
                    .at(Layer::ServiceUser, || "changing the owner of the pipes to the service user".to_owned())?;
                drop_root(host_ids).at(Layer::ServiceUser, || format!("becoming user {}", host_ids.uid))?;
                Some(sources)
            }
        };
        let disks = DiskWatch::open(command, sources.as_ref(), row)?;
        let handed_over = send_to_init(&mut self.link, command.call, sources.as_ref(), &pipes);
        handed_over
            .map_err(|error| match error.kind() {
                // If it has failed to set up the sandbox, it has said so before.
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => io::Error::from_raw_os_error(KILLED),
                _ => error,
            })
            .at(Layer::Launcher, || "handing the command to init".to_owned())?;
        Ok(disks)
    }
}

/// Makes the service user the owner of a pipe.
fn give(host_ids: HostIds, pipe: impl AsFd) -> rustix::io::Result<()> {
    fchown(pipe, Some(Uid::from_raw(host_ids.uid)), Some(Gid::from_raw(host_ids.gid)))
}

/// Creates the scratch directories on disk. They get the owner of their parent, which is the owner of the workspace for a staging
/// directory.
fn make_scratch(command: Command<'_>) -> Result<(), Failure> {
    let Some(folder) = &command.call.scratch_directory else { return Ok(()) };
    let owner = || -> io::Result<Option<(u32, u32)>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let above = match &command.call.staging {
            // The staging directory gets that owner when it is mounted.
            Some(staging) if folder.starts_with(staging) => command.call.lower.last().map(PathBuf::as_path),
            _ => folder.parent(),
        };
        let metadata = fs::metadata(above.unwrap_or(folder))?;
        Ok(Some((metadata.uid(), metadata.gid())))
    };
    match owner().and_then(|owner| scratch_directory::make(folder, owner)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(sources::used_twice(folder)),
        made => made.at(Layer::View, || format!("creating {}", folder.display())),
    }
}

//! The sources of the view: mounts of the host that are not attached anywhere yet.
//!
//! If the runner is root, the launcher takes them while it is still root, so that it can reach the workspace and map its owner; else init
//! takes them in the user namespace with the rights of the runner.

use std::{
    fs, io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
};

use belay_defects::{Defect, is_planted};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
    mount::{OpenTreeFlags, open_tree},
};

use crate::{
    CACHES, UPPER, WORK, etc,
    host_ids::HostIds,
    layer::Layer,
    mounts::{Mount, MountKind},
    protocol::{ATTACKS, Armed, Context as _, Failure, Invocation},
    sys::{self, Reach, Side, SingleThreaded},
};

/// Where programs and libraries are. Links on most systems (`/bin` to `/usr/bin`), directories on some.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The folder of what the administrator of the machine has installed.
const LOCAL: &str = "/usr/local";

/// The folders of [`SYSTEM`] that exist.
pub(crate) fn system_folders() -> impl Iterator<Item = PathBuf> {
    SYSTEM.iter().map(PathBuf::from).filter(|place| place.exists())
}

/// The paths that every sandbox is set up from, whether they exist or not. Those in `/etc` are [`etc::listed`].
pub(crate) fn system_places() -> impl Iterator<Item = &'static str> {
    SYSTEM.into_iter().chain([LOCAL, "/etc"])
}

/// The number of processors, by which runtimes size thread pools. The only visible part of `/sys`.
pub(crate) const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The only visible devices of the host. `/dev/tty` is the terminal of the session that opens it: none, or the command's own.
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// A mount of the host, for the same path in the view.
pub(crate) struct HostMount {
    pub(crate) place: PathBuf,
    pub(crate) mount: OwnedFd,
    pub(crate) folder: bool,
}

/// An operator's [`Mount`], or one like it.
pub(crate) struct ConfiguredMount {
    pub(crate) piece: HostMount,
    pub(crate) kind: MountKind,
    /// The directory for its changes in the staging directory; `None` when they are dropped.
    pub(crate) changes: Option<PathBuf>,
}

/// The sources of a sandbox that has no command yet.
pub(crate) struct BaseSources {
    /// Read-only mounts, with everything mounted below them.
    pub(crate) pieces: Vec<HostMount>,
    /// Symbolic links in the view, with their targets.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Small files of the host, with their content.
    pub(crate) copies: Vec<(PathBuf, Vec<u8>)>,
    pub(crate) devices: Vec<HostMount>,
    /// [`LOCAL`], if there is one, and [`Armed::mounts`], in order.
    pub(crate) mounts: Vec<ConfiguredMount>,
}

/// The sources of a command.
#[derive(Default)]
pub(crate) struct CallSources {
    /// The workspace's layers, the topmost first.
    pub(crate) lower: Vec<OwnedFd>,
    /// The staging directory with [`UPPER`] and [`WORK`], if there is one.
    pub(crate) staging: Option<OwnedFd>,
    /// The directory of the scratch places. `None`: they are in memory.
    pub(crate) scratch: Option<OwnedFd>,
    /// [`Invocation::mounts`], in order.
    pub(crate) mounts: Vec<ConfiguredMount>,
}

/// The process that takes the mounts.
#[derive(Clone, Copy)]
pub(crate) enum MountAuthority {
    /// Root, on behalf of the service user.
    Root(SingleThreaded),
    /// An ordinary user, in its own user namespace.
    User,
}

impl MountAuthority {
    /// Only single mounts can be id-mapped; without privilege, only whole trees can be cloned.
    fn reach(self) -> Reach {
        match self {
            Self::Root(_) => Reach::One,
            Self::User => Reach::Tree,
        }
    }
}

const NOT_TRUSTED: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | NOT_TRUSTED;

/// Takes the mounts that do not depend on the command.
pub(crate) fn take_base(armed: &Armed, owners: &mut Owners) -> Result<BaseSources, Failure> {
    let mut sources = BaseSources {
        pieces: Vec::new(),
        links: Vec::new(),
        copies: Vec::new(),
        devices: Vec::new(),
        mounts: Vec::new(),
    };
    for place in SYSTEM.map(Path::new) {
        match fs::read_link(place) {
            Ok(target) => sources.links.push((place.to_owned(), target)),
            Err(_) if place.is_dir() => sources.pieces.push(piece(place, place)?),
            Err(_) => {}
        }
    }
    for shown in etc::shown() {
        match shown {
            etc::EtcEntry::Link { place, target } => sources.links.push((place, target)),
            etc::EtcEntry::Copy { place, contents } => sources.copies.push((place, contents)),
            etc::EtcEntry::HostMount { place, source } => sources.pieces.push(piece(&source, &place)?),
        }
    }
    if Path::new(PROCESSORS).is_dir() {
        sources.pieces.push(piece(PROCESSORS.as_ref(), PROCESSORS.as_ref())?);
    }
    if let Some(binary) = &armed.attacks {
        sources.pieces.push(piece(binary, ATTACKS.as_ref())?);
    }
    for place in DEVICES.map(Path::new) {
        let doing = || format!("cloning the mount of {}", place.display());
        let mount = clone(place, Reach::One).at(Layer::View, doing)?;
        let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        sys::mount_setattr(mount.as_fd(), Reach::One, attributes, None).at(Layer::View, doing)?;
        sources.devices.push(HostMount { place: place.to_owned(), mount, folder: false });
    }
    // Administrators install programs with sockets there, unlike in the rest of /usr.
    if fs::symlink_metadata(LOCAL).is_ok_and(|metadata| metadata.is_dir()) {
        let piece = piece(LOCAL.as_ref(), LOCAL.as_ref())?;
        sources.mounts.push(ConfiguredMount { piece, kind: MountKind::ReadOnly, changes: None });
    }
    for mount in &armed.mounts {
        sources.mounts.push(take_mount(mount, None, owners)?);
    }
    Ok(sources)
}

/// Takes the mounts of a command.
pub(crate) fn take_for_call(call: &Invocation, owners: &mut Owners) -> Result<CallSources, Failure> {
    let mut sources = CallSources::default();
    take_workspace(call, owners, &mut sources)?;
    if let Some(folder) = &call.scratch_directory {
        let owner = owner_of(folder).at(Layer::View, || format!("inspecting {}", folder.display()))?;
        sources.scratch = Some(owners.take(folder, owner, NOT_TRUSTED, Layer::View)?);
    }
    for mount in &call.mounts {
        sources.mounts.push(take_mount(mount, changes_of(mount, call), owners)?);
    }
    Ok(sources)
}

/// The directory for the changes of a mount in the staging directory; `None` when they are dropped.
pub(crate) fn changes_of(mount: &Mount, call: &Invocation) -> Option<PathBuf> {
    let is_staged = mount.kind == MountKind::Staged && call.staging.is_some();
    mount.source.file_name().filter(|_| is_staged).map(|name| Path::new(CACHES).join(name))
}

fn piece(source: &Path, place: &Path) -> Result<HostMount, Failure> {
    let doing = || format!("cloning the mount of {} read-only", source.display());
    let folder = fs::metadata(source).at(Layer::View, doing)?.is_dir();
    let mount = clone(source, Reach::Tree).at(Layer::View, doing)?;
    sys::mount_setattr(mount.as_fd(), Reach::Tree, READ_ONLY, None).at(Layer::View, doing)?;
    Ok(HostMount { place: place.to_owned(), mount, folder })
}

fn clone(path: &Path, reach: Reach) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if reach == Reach::Tree {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(CWD, path, flags)?)
}

/// A detached clone of what is open.
fn clone_open(opened: BorrowedFd<'_>, reach: Reach) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    if reach == Reach::Tree {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(opened, "", flags)?)
}

fn owner_of(path: &Path) -> io::Result<(u32, u32)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.uid(), metadata.gid()))
}

/// Takes directories with their owner mapped to the user of the command.
pub(crate) struct Owners {
    authority: MountAuthority,
    to: (u32, u32),
    /// The last mapping, and its owner: most directories of a command have one owner, and a mapping costs a process.
    made: Option<((u32, u32), OwnedFd)>,
}

impl Owners {
    pub(crate) fn new(authority: MountAuthority, armed: &Armed) -> Self {
        Self { authority, to: (armed.service_uid, armed.service_gid), made: None }
    }

    /// Makes the mapping of this owner, which will probably be needed.
    pub(crate) fn expect(&mut self, owner: (u32, u32)) {
        // Made again, with an error, when it is needed.
        let _ = self.mapping(owner);
    }

    fn take(&mut self, folder: &Path, owner: (u32, u32), attributes: u64, layer: Layer) -> Result<OwnedFd, Failure> {
        let doing = || format!("opening {}", folder.display());
        let opened = openat(CWD, folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).at(layer, doing)?;
        self.take_open(folder, opened.as_fd(), owner, attributes, layer)
    }

    fn take_open(
        &mut self,
        folder: &Path,
        opened: BorrowedFd<'_>,
        owner: (u32, u32),
        attributes: u64,
        layer: Layer,
    ) -> Result<OwnedFd, Failure> {
        let (reach, to) = (self.authority.reach(), self.to);
        let mapping =
            self.mapping(owner).at(Layer::IdMappedWorkspace, || format!("mapping user {} to {}", owner.0, to.0))?;
        let mount = clone_open(opened, reach).at(layer, || format!("cloning the mount of {}", folder.display()))?;
        sys::mount_setattr(mount.as_fd(), reach, attributes, mapping)
            .at(Layer::IdMappedWorkspace, || format!("mapping the owner of {}", folder.display()))?;
        Ok(mount)
    }

    fn mapping(&mut self, from: (u32, u32)) -> io::Result<Option<BorrowedFd<'_>>> {
        let MountAuthority::Root(one) = self.authority else { return Ok(None) };
        if from == self.to {
            return Ok(None);
        }
        if self.made.as_ref().is_none_or(|(made, _)| *made != from) {
            self.made = Some((from, mapping(one, from, self.to)?));
        }
        Ok(self.made.as_ref().map(|(_, mapping)| mapping.as_fd()))
    }
}

fn take_workspace(call: &Invocation, owners: &mut Owners, sources: &mut CallSources) -> Result<(), Failure> {
    let base = call.lower.last().expect("spec.check() requires a workspace");
    let metadata =
        fs::metadata(base).at(Layer::Workspace, || format!("inspecting the workspace {}", base.display()))?;
    let owner = (metadata.uid(), metadata.gid());
    for folder in &call.lower {
        sources.lower.push(owners.take(folder, owner, READ_ONLY, Layer::Workspace)?);
    }
    if let Some(staging) = &call.staging {
        let has_caches = call.mounts.iter().any(|mount| mount.kind == MountKind::Staged);
        prepare(staging, &metadata, has_caches, owners.authority)?;
        sources.staging = Some(owners.take(staging, owner, NOT_TRUSTED, Layer::Workspace)?);
    }
    Ok(())
}

/// Opens the source of a mount without following links: what was checked is the path without any, and a link that was put there since leads
/// elsewhere.
pub(crate) fn open_source(source: &Path) -> Result<(OwnedFd, fs::Metadata), Failure> {
    let doing = || format!("opening {}", source.display());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = match is_planted(Defect::LinkedSourceTrusted) {
        true => ResolveFlags::empty(),
        false => ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    };
    match openat2(CWD, source, flags, Mode::empty(), resolve) {
        Err(error @ (Errno::LOOP | Errno::NOENT | Errno::NOTDIR)) => {
            let what = match error {
                Errno::LOOP => "leads through a symbolic link, which is not followed",
                _ => "does not exist",
            };
            Err(Failure::Spec("mounts".to_owned(), format!("`{}` {what}", source.display())))
        }
        opened => {
            let opened = opened.at(Layer::View, doing)?;
            let file = fs::File::from(opened);
            let metadata = file.metadata().at(Layer::View, doing)?;
            Ok((file.into(), metadata))
        }
    }
}

fn take_mount(mount: &Mount, changes: Option<PathBuf>, owners: &mut Owners) -> Result<ConfiguredMount, Failure> {
    let Mount { source, target, kind } = mount;
    let (opened, metadata) = open_source(source)?;
    if !metadata.is_dir() && !metadata.is_file() {
        let problem = format!("`{}` is neither a directory nor a regular file", source.display());
        return Err(Failure::Spec("mounts".to_owned(), problem));
    }
    let owner = (metadata.uid(), metadata.gid());
    let taken = match kind {
        MountKind::ReadOnly => {
            let doing = || format!("cloning the mount of {} read-only", source.display());
            let mount = clone_open(opened.as_fd(), Reach::Tree).at(Layer::View, doing)?;
            sys::mount_setattr(mount.as_fd(), Reach::Tree, READ_ONLY, None).at(Layer::View, doing)?;
            HostMount { place: target.clone(), mount, folder: metadata.is_dir() }
        }
        MountKind::Scratch | MountKind::Staged if !metadata.is_dir() => {
            let problem = format!("`{}` is not a directory: only directories can be writable", source.display());
            return Err(Failure::Spec("mounts".to_owned(), problem));
        }
        MountKind::Scratch | MountKind::Staged => {
            let mount = owners.take_open(source, opened.as_fd(), owner, READ_ONLY, Layer::View)?;
            HostMount { place: target.clone(), mount, folder: true }
        }
    };
    Ok(ConfiguredMount { piece: taken, kind: *kind, changes })
}

/// Creates the two directories of the overlay, and that of caches. The upper one represents the root of the workspace, so it gets its mode; all get its
/// owner. It may be there already, with changes that the command begins with.
fn prepare(
    staging: &Path,
    workspace: &fs::Metadata,
    has_caches: bool,
    authority: MountAuthority,
) -> Result<(), Failure> {
    let own = |path: &Path| match authority {
        MountAuthority::Root(_) => chown(path, Some(workspace.uid()), Some(workspace.gid())),
        MountAuthority::User => Ok(()),
    };
    own(staging).at(Layer::Workspace, || format!("changing the owner of {}", staging.display()))?;
    for name in [WORK, UPPER].into_iter().chain(has_caches.then_some(CACHES)) {
        let path = staging.join(name);
        match fs::create_dir(&path) {
            Err(error) if name == UPPER && error.kind() == io::ErrorKind::AlreadyExists => {}
            // A volatile overlay can be mounted only once.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(used_twice(staging));
            }
            made => made.at(Layer::Workspace, || format!("creating {}", path.display()))?,
        }
        let mode = fs::Permissions::from_mode(if name == UPPER { workspace.mode() & 0o777 } else { 0o700 });
        fs::set_permissions(&path, mode)
            .and_then(|()| own(&path))
            .at(Layer::Workspace, || format!("setting up {}", path.display()))?;
    }
    Ok(())
}

/// The directory of a launch was used before.
pub(crate) fn used_twice(folder: &Path) -> Failure {
    let problem = format!("`{}` was used for another launch: use a new directory for each", folder.display());
    Failure::Spec("workspace.staging".to_owned(), problem)
}

/// Creates a user namespace that maps `from` to `to`, as id-mapped mounts need it.
fn mapping(one: SingleThreaded, from: (u32, u32), to: (u32, u32)) -> io::Result<OwnedFd> {
    let (held, release) = io::pipe()?;
    match sys::clone(one, libc::CLONE_NEWUSER)? {
        Side::Child => {
            drop(release);
            // Exists only for its namespace; exits when the parent closes the pipe or dies.
            let _ = io::read_to_string(held);
            sys::exit(0)
        }
        Side::Parent { pid, .. } => {
            let made = fs::write(format!("/proc/{pid}/uid_map"), format!("{} {} 1", from.0, to.0))
                .and_then(|()| fs::write(format!("/proc/{pid}/gid_map"), format!("{} {} 1", from.1, to.1)))
                .and_then(|()| fs::File::open(format!("/proc/{pid}/ns/user")));
            drop(release);
            sys::wait(pid)?;
            Ok(made?.into())
        }
    }
}

/// Probes id-mapping on a detached mount of a directory.
pub(crate) fn map_owner(one: SingleThreaded, folder: &Path, to: HostIds) -> io::Result<()> {
    let mapping = mapping(one, (0, 0), (to.uid, to.gid))?;
    sys::mount_setattr(clone(folder, Reach::One)?.as_fd(), Reach::One, 0, Some(mapping.as_fd()))
}

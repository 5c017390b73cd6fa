//! What the view is made of: pieces of the host, taken as mounts that stand nowhere yet.
//!
//! When the runner is root this happens while the launcher still is, so that the workspace can be taken from wherever it lies and its
//! owner be mapped; else inside of the user namespace, with the rights of the runner.

use std::{
    fs, io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    mount::{OpenTreeFlags, open_tree},
};

use crate::{
    UPPER, WORK, etc,
    init::Outside,
    layer::Layer,
    mounts::{Mount, MountKind},
    order::{ATTACKS, At as _, Command, Failure},
    sys::{self, OneThread, Reach, Side},
};

/// Where programs and libraries live. Links on most systems (`/bin` to `/usr/bin`), folders on some.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Those of [`SYSTEM`] that exist.
pub(crate) fn system_folders() -> impl Iterator<Item = PathBuf> {
    SYSTEM.iter().map(PathBuf::from).filter(|place| place.exists())
}

/// How many processors there are, which runtimes size their thread pools by. The only part of `/sys` that is shown.
pub(crate) const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The only devices of the host there are. `/dev/tty` is the terminal of the session that opens it: none, or one of the command's own.
pub(crate) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// A piece of the host, for the same place in the view.
pub(crate) struct Piece {
    pub(crate) place: PathBuf,
    pub(crate) mount: OwnedFd,
    pub(crate) folder: bool,
}

/// What an operator's [`Mount`] shows.
pub(crate) struct Shown {
    pub(crate) piece: Piece,
    pub(crate) kind: MountKind,
}

/// All pieces.
pub(crate) struct Sources {
    /// Read-only, with everything mounted below them.
    pub(crate) pieces: Vec<Piece>,
    /// Places that are links in the view, with what they point to.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Small files of the host, with their contents.
    pub(crate) copies: Vec<(PathBuf, Vec<u8>)>,
    pub(crate) devices: Vec<Piece>,
    /// The workspace's layers, the topmost first.
    pub(crate) lower: Vec<OwnedFd>,
    /// The folder with [`UPPER`] and [`WORK`], where there is one.
    pub(crate) staging: Option<OwnedFd>,
    /// The folder of the scratch places, as [`prepare_scratch`] made it. `None`: they are memory.
    pub(crate) scratch: Option<OwnedFd>,
    /// The operator's mounts, in the order in which they are mounted.
    pub(crate) mounts: Vec<Shown>,
}

/// Who takes the pieces.
#[derive(Clone, Copy)]
pub(crate) enum Taker {
    /// Real root, on behalf of the service user.
    Root(OneThread),
    /// An ordinary user, inside of a user namespace that holds nobody else.
    User,
}

impl Taker {
    /// An owner map goes on single mounts; and without privilege a mount cannot be taken from under what is mounted on it.
    fn reach(self) -> Reach {
        match self {
            Self::Root(_) => Reach::One,
            Self::User => Reach::Tree,
        }
    }
}

const NOT_TRUSTED: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | NOT_TRUSTED;

/// Takes all pieces.
pub(crate) fn take(command: &Command, taker: Taker) -> Result<Sources, Failure> {
    let mut sources = Sources {
        pieces: Vec::new(),
        links: Vec::new(),
        copies: Vec::new(),
        devices: Vec::new(),
        lower: Vec::new(),
        staging: None,
        scratch: None,
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
            etc::Shown::Link { place, target } => sources.links.push((place, target)),
            etc::Shown::Copy { place, contents } => sources.copies.push((place, contents)),
            etc::Shown::Piece { place, source } => sources.pieces.push(piece(&source, &place)?),
        }
    }
    if Path::new(PROCESSORS).is_dir() {
        sources.pieces.push(piece(PROCESSORS.as_ref(), PROCESSORS.as_ref())?);
    }
    if let Some(binary) = &command.attacks {
        sources.pieces.push(piece(binary, ATTACKS.as_ref())?);
    }
    for place in DEVICES.map(Path::new) {
        let doing = || format!("taking {}", place.display());
        let mount = clone(place, Reach::One).at(Layer::View, doing)?;
        let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        sys::mount_setattr(mount.as_fd(), Reach::One, attributes, None).at(Layer::View, doing)?;
        sources.devices.push(Piece { place: place.to_owned(), mount, folder: false });
    }
    let mut owners = Owners { taker, to: (command.service_uid, command.service_gid), made: None };
    take_workspace(command, &mut owners, &mut sources)?;
    if let Some(folder) = &command.scratch_folder {
        let owner = owner_of(folder).at(Layer::View, || format!("looking at {}", folder.display()))?;
        sources.scratch = Some(owners.take(folder, owner, NOT_TRUSTED, Layer::View)?);
    }
    for mount in &command.mounts {
        sources.mounts.push(take_mount(mount, &mut owners)?);
    }
    Ok(sources)
}

fn piece(source: &Path, place: &Path) -> Result<Piece, Failure> {
    let doing = || format!("taking {} read-only", source.display());
    let folder = fs::metadata(source).at(Layer::View, doing)?.is_dir();
    let mount = clone(source, Reach::Tree).at(Layer::View, doing)?;
    sys::mount_setattr(mount.as_fd(), Reach::Tree, READ_ONLY, None).at(Layer::View, doing)?;
    Ok(Piece { place: place.to_owned(), mount, folder })
}

fn clone(path: &Path, reach: Reach) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if reach == Reach::Tree {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(CWD, path, flags)?)
}

fn owner_of(path: &Path) -> io::Result<(u32, u32)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.uid(), metadata.gid()))
}

/// Takes folders so that their owner's files are the command's.
struct Owners {
    taker: Taker,
    to: (u32, u32),
    /// The last map made, and whose files it maps: most folders of a command have one owner, and a map costs a process.
    made: Option<((u32, u32), OwnedFd)>,
}

impl Owners {
    fn take(&mut self, folder: &Path, owner: (u32, u32), attributes: u64, layer: Layer) -> Result<OwnedFd, Failure> {
        let (reach, to) = (self.taker.reach(), self.to);
        let mapping =
            self.mapping(owner).at(Layer::IdMappedWorkspace, || format!("mapping user {} to {}", owner.0, to.0))?;
        let mount = clone(folder, reach).at(layer, || format!("taking {}", folder.display()))?;
        sys::mount_setattr(mount.as_fd(), reach, attributes, mapping)
            .at(Layer::IdMappedWorkspace, || format!("mapping the owner of {}", folder.display()))?;
        Ok(mount)
    }

    fn mapping(&mut self, from: (u32, u32)) -> io::Result<Option<BorrowedFd<'_>>> {
        let Taker::Root(one) = self.taker else { return Ok(None) };
        if from == self.to {
            return Ok(None);
        }
        if self.made.as_ref().is_none_or(|(made, _)| *made != from) {
            self.made = Some((from, mapping(one, from, self.to)?));
        }
        Ok(self.made.as_ref().map(|(_, mapping)| mapping.as_fd()))
    }
}

fn take_workspace(command: &Command, owners: &mut Owners, sources: &mut Sources) -> Result<(), Failure> {
    let base = command.lower.last().expect("a spec without a workspace is refused");
    let metadata =
        fs::metadata(base).at(Layer::Workspace, || format!("looking at the workspace {}", base.display()))?;
    let owner = (metadata.uid(), metadata.gid());
    for folder in &command.lower {
        sources.lower.push(owners.take(folder, owner, READ_ONLY, Layer::Workspace)?);
    }
    if let Some(staging) = &command.staging {
        prepare(staging, &metadata, owners.taker)?;
        sources.staging = Some(owners.take(staging, owner, NOT_TRUSTED, Layer::Workspace)?);
    }
    Ok(())
}

fn take_mount(mount: &Mount, owners: &mut Owners) -> Result<Shown, Failure> {
    let Mount { source, target, kind } = mount;
    let metadata = fs::metadata(source).at(Layer::View, || format!("looking at {}", source.display()))?;
    let owner = (metadata.uid(), metadata.gid());
    let taken = match kind {
        MountKind::ReadOnly => piece(source, target)?,
        MountKind::Scratch | MountKind::Writable if !metadata.is_dir() => {
            let problem = format!("`{}` is not a folder: only folders can be written to", source.display());
            return Err(Failure::Spec("mounts".to_owned(), problem));
        }
        MountKind::Scratch | MountKind::Writable => {
            let attributes = if *kind == MountKind::Scratch { READ_ONLY } else { NOT_TRUSTED };
            let mount = owners.take(source, owner, attributes, Layer::View)?;
            Piece { place: target.clone(), mount, folder: true }
        }
    };
    Ok(Shown { piece: taken, kind: *kind })
}

/// Makes the overlay's two folders. The upper one stands for the workspace's root, so it gets its mode; all get its owner.
fn prepare(staging: &Path, workspace: &fs::Metadata, taker: Taker) -> Result<(), Failure> {
    let own = |path: &Path| match taker {
        Taker::Root(_) => chown(path, Some(workspace.uid()), Some(workspace.gid())),
        Taker::User => Ok(()),
    };
    own(staging).at(Layer::Workspace, || format!("giving {} to the workspace's owner", staging.display()))?;
    for name in [UPPER, WORK] {
        let path = staging.join(name);
        match fs::create_dir(&path) {
            // A volatile overlay can be mounted once.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(used_twice(staging));
            }
            made => made.at(Layer::Workspace, || format!("making {}", path.display()))?,
        }
        let mode = fs::Permissions::from_mode(if name == UPPER { workspace.mode() & 0o777 } else { 0o700 });
        fs::set_permissions(&path, mode)
            .and_then(|()| own(&path))
            .at(Layer::Workspace, || format!("setting up {}", path.display()))?;
    }
    Ok(())
}

/// A folder for one launch has been used for another.
pub(crate) fn used_twice(folder: &Path) -> Failure {
    let problem = format!("`{}` has been used for another launch: give each its own", folder.display());
    Failure::Spec("workspace.staging".to_owned(), problem)
}

/// A user namespace in which `from` is `to` of the namespace we are in: the form in which a mount takes its owner map.
fn mapping(one: OneThread, from: (u32, u32), to: (u32, u32)) -> io::Result<OwnedFd> {
    let (held, release) = io::pipe()?;
    match sys::clone(one, libc::CLONE_NEWUSER)? {
        Side::Child => {
            drop(release);
            // Only there for its namespace; ends when the parent lets go, or dies.
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

/// Tries to map the owner of a folder's mount; nobody sees the mount.
pub(crate) fn map_owner(one: OneThread, folder: &Path, to: Outside) -> io::Result<()> {
    let mapping = mapping(one, (0, 0), (to.uid, to.gid))?;
    sys::mount_setattr(clone(folder, Reach::One)?.as_fd(), Reach::One, 0, Some(mapping.as_fd()))
}

//! What the view is made of: pieces of the host, taken as mounts that stand nowhere yet.
//!
//! When the runner is root this happens while the launcher still is, so that the workspace can be taken from wherever it lies and its
//! owner be mapped; else inside of the user namespace, with the rights of the runner.

use std::{
    fs, io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    mount::{OpenTreeFlags, open_tree},
};

use crate::{
    UPPER, WORK,
    init::Outside,
    layer::Layer,
    order::{ATTACKS, At as _, Command, Failure},
    sys::{self, OneThread, Reach, Side},
};

/// Where programs and libraries live. Links on most systems (`/bin` to `/usr/bin`), folders on some.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Those of [`SYSTEM`] that exist.
pub(crate) fn system_folders() -> impl Iterator<Item = PathBuf> {
    SYSTEM.iter().map(PathBuf::from).filter(|place| place.exists())
}

/// What programs need of the host's `/etc`: how libraries are found, which alternative is meant, which certificates are trusted.
const ETC: [&str; 5] = ["/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl", "/etc/ca-certificates", "/etc/pki"];

/// The only devices there are.
pub(crate) const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// A piece of the host, for the same place in the view.
pub(crate) struct Piece {
    pub(crate) place: PathBuf,
    pub(crate) mount: OwnedFd,
    pub(crate) folder: bool,
}

/// All pieces.
pub(crate) struct Sources {
    /// Read-only, with everything mounted below them.
    pub(crate) pieces: Vec<Piece>,
    /// Places that are links on the host, with what they point to.
    pub(crate) links: Vec<(&'static str, PathBuf)>,
    pub(crate) devices: Vec<Piece>,
    /// The workspace's layers, the topmost first.
    pub(crate) lower: Vec<OwnedFd>,
    /// The folder with [`UPPER`] and [`WORK`], where there is one.
    pub(crate) staging: Option<OwnedFd>,
}

/// Who takes the pieces.
#[derive(Clone, Copy)]
pub(crate) enum Taker {
    /// Real root, on behalf of the service user.
    Root(OneThread),
    /// An ordinary user, inside of a user namespace that holds nobody else.
    User,
}

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Takes all pieces.
pub(crate) fn take(command: &Command, taker: Taker) -> Result<Sources, Failure> {
    let mut sources =
        Sources { pieces: Vec::new(), links: Vec::new(), devices: Vec::new(), lower: Vec::new(), staging: None };
    for place in SYSTEM {
        match fs::read_link(place) {
            Ok(target) => sources.links.push((place, target)),
            Err(_) if Path::new(place).is_dir() => sources.pieces.push(piece(place.as_ref(), place.as_ref())?),
            Err(_) => {}
        }
    }
    for place in ETC.iter().map(Path::new).filter(|place| place.exists()) {
        sources.pieces.push(piece(place, place)?);
    }
    for place in &command.read_only {
        sources.pieces.push(piece(place, place)?);
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
    take_workspace(command, taker, &mut sources)?;
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

fn take_workspace(command: &Command, taker: Taker, sources: &mut Sources) -> Result<(), Failure> {
    let base = command.lower.last().expect("a spec without a workspace is refused");
    let owner = fs::metadata(base).at(Layer::Workspace, || format!("looking at the workspace {}", base.display()))?;
    let (from, to) = ((owner.uid(), owner.gid()), (command.service_uid, command.service_gid));
    let mapping = match taker {
        Taker::Root(one) if from != to => Some(
            mapping(one, from, to).at(Layer::IdMappedWorkspace, || "making a user namespace to map by".to_owned())?,
        ),
        Taker::Root(_) | Taker::User => None,
    };
    let mapping = mapping.as_ref().map(|mapping| mapping.as_fd());
    // An owner map goes on single mounts; and without privilege a mount cannot be taken from under what is mounted on it.
    let reach = match taker {
        Taker::Root(_) => Reach::One,
        Taker::User => Reach::Tree,
    };
    for folder in &command.lower {
        let mount =
            clone(folder, reach).at(Layer::Workspace, || format!("taking the workspace {}", folder.display()))?;
        sys::mount_setattr(mount.as_fd(), reach, READ_ONLY, mapping)
            .at(Layer::IdMappedWorkspace, || format!("mapping the owner of {}", folder.display()))?;
        sources.lower.push(mount);
    }
    if let Some(staging) = &command.staging {
        prepare(staging, &owner, taker)?;
        let mount = clone(staging, reach).at(Layer::Workspace, || format!("taking {}", staging.display()))?;
        let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        sys::mount_setattr(mount.as_fd(), reach, attributes, mapping)
            .at(Layer::IdMappedWorkspace, || format!("mapping the owner of {}", staging.display()))?;
        sources.staging = Some(mount);
    }
    Ok(())
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
                let problem = format!("`{}` has been used for another launch: give each its own", staging.display());
                return Err(Failure::Spec("workspace.staging".to_owned(), problem));
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

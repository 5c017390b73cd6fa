//! What this machine gives: each layer tried for itself, so that all that is missing is known at once.

use std::{io, os::fd::OwnedFd, process::Stdio};

use landlock::{ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};
use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsmount,
        fsopen, mount, move_mount, open_tree,
    },
};

use crate::{
    error::LaunchError,
    init::{self, Outside},
    launcher::{Leaves, receive, spawn},
    layer::Layer,
    monitor,
    order::{Message, Order, Probed},
    seccomp,
    settings::Settings,
    sources,
    sys::{self, OneThread, Side},
    take_over,
};

/// Whether a layer is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerState {
    /// It works.
    Active,
    /// It does not.
    Missing {
        /// What the kernel said.
        why: String,
        /// What an operator can do.
        fix: &'static str,
    },
}

/// One layer on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerReport {
    /// The layer.
    pub layer: Layer,
    /// Whether it is there.
    pub state: LayerState,
}

/// How strong a sandbox the kernel allows. Only [`Tier::Full`] can be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Not even Landlock and seccomp.
    None,
    /// Landlock, seccomp and limits, without namespaces.
    Landlock,
    /// Everything but a fresh `/proc`.
    NoProc,
    /// Everything.
    Full,
}

/// What this machine gives.
#[derive(Clone, Debug)]
pub struct Report {
    /// The layers in the order they are put up.
    pub layers: Vec<LayerReport>,
    /// What they amount to.
    pub tier: Tier,
}

/// Tries each layer in a process of its own. Takes some milliseconds and changes nothing.
///
/// # Errors
/// When no launcher can be executed at all.
pub fn probe(settings: &Settings) -> Result<Report, LaunchError> {
    if !take_over::ready() {
        return Err(LaunchError::NotReady);
    }
    settings.check()?;
    let order = Order::Probe(settings.service_uid, settings.service_gid);
    let (mut control, mut launched) = spawn(settings, &order, None, Leaves::default(), Stdio::null(), Stdio::null())?;
    let answer = receive(&mut control).map_err(|source| LaunchError::launcher("listening to the launcher", source))?;
    // It has nothing more to say; what it exits with does not matter.
    let _ = launched.wait();
    match answer {
        Some((Message::Probed(probed), _)) => Ok(report(&probed)),
        _ => Err(LaunchError::LauncherLost { program: "the probe of this machine".to_owned() }),
    }
}

fn report(probed: &[Probed]) -> Report {
    let layers = probed
        .iter()
        .map(|probed| {
            let state = match probed.error {
                0 => LayerState::Active,
                error => LayerState::Missing {
                    why: io::Error::from_raw_os_error(error).to_string(),
                    fix: probed.layer.fix(),
                },
            };
            LayerReport { layer: probed.layer, state }
        })
        .collect();
    let missing = |layer: Layer| probed.iter().any(|probed| probed.layer == layer && probed.error != 0);
    let any = |layers: &[Layer]| layers.iter().any(|layer| missing(*layer));
    let tier = if any(&[Layer::Landlock, Layer::Seccomp]) {
        Tier::None
    } else if any(&[
        Layer::ServiceUser,
        Layer::UserNamespace,
        Layer::Namespaces,
        Layer::View,
        Layer::IdMappedWorkspace,
        Layer::Workspace,
    ]) {
        Tier::Landlock
    } else if missing(Layer::Proc) {
        Tier::NoProc
    } else {
        Tier::Full
    };
    Report { layers, tier }
}

/// The launcher's half: tries the layers, for a service user where we are root.
pub(crate) fn layers(one: OneThread, uid: u32, gid: u32) -> Vec<Probed> {
    let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let root = own_uid.is_root();
    let outside = if root { Outside { uid, gid } } else { Outside { uid: own_uid.as_raw(), gid: own_gid.as_raw() } };
    let inside = |test: &dyn Fn() -> io::Result<()>| in_namespaces(one, root.then_some(outside), outside, test);

    let mut probed = Vec::new();
    let mut note = |layer, error| probed.push(Probed { layer, error });
    if root {
        note(Layer::ServiceUser, in_child(one, 0, || Ok(monitor::drop_root(outside)?)));
        note(Layer::IdMappedWorkspace, in_child(one, 0, || map_owner(one, outside)));
    }
    note(Layer::UserNamespace, inside(&|| Ok(())));
    note(
        Layer::View,
        inside(&|| place(&open_tree(CWD, SCAFFOLD, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_RECURSIVE)?)),
    );
    note(Layer::Proc, inside(&|| place(&fresh_proc()?)));
    note(Layer::Workspace, inside(&overlay));
    note(Layer::ProcessLimit, inside(&limit_processes));
    note(Layer::Landlock, in_child(one, 0, landlock));
    note(Layer::Seccomp, in_child(one, 0, filter));
    probed
}

/// Something that is always there and may be covered in a namespace of our own.
const SCAFFOLD: &str = "/usr";

/// Runs a test in a child in new namespaces. The error's number, 0 for none.
fn in_child(one: OneThread, namespaces: i32, test: impl FnOnce() -> io::Result<()>) -> i32 {
    let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    match sys::clone(one, namespaces) {
        // An exit code has a byte; the kernel's errors fit.
        Ok(Side::Child) => sys::exit(test().map_or_else(number, |()| 0)),
        Ok(Side::Parent { pid, .. }) => match sys::wait(pid) {
            Ok(Some(reaped)) if libc::WIFEXITED(reaped.status) => libc::WEXITSTATUS(reaped.status),
            _ => libc::EIO,
        },
        Err(error) => number(error),
    }
}

/// Runs a test where a command's init would run, as whom it would.
fn in_namespaces(one: OneThread, drop_to: Option<Outside>, outside: Outside, test: &dyn Fn() -> io::Result<()>) -> i32 {
    in_child(one, 0, || {
        if let Some(user) = drop_to {
            monitor::drop_root(user)?;
        }
        let error = in_child(one, init::NAMESPACES, || {
            init::enter(outside)?;
            // AppArmor gives the namespace and withholds its capabilities: this needs one.
            rustix::system::sethostname(b"sandbox")?;
            test()
        });
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    })
}

fn place(mount: &OwnedFd) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, SCAFFOLD, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn fresh_proc() -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn overlay() -> io::Result<()> {
    Ok(mount("overlay", SCAFFOLD, "overlay", MountFlags::empty(), c"lowerdir=/usr/bin:/usr/lib,userxattr")?)
}

fn limit_processes() -> io::Result<()> {
    place(&fresh_proc()?)?;
    std::fs::write(format!("{SCAFFOLD}/sys/kernel/pid_max"), "301")
}

/// Where temporary files live, as the nearest guess at what file system workspaces live on.
fn map_owner(one: OneThread, to: Outside) -> io::Result<()> {
    sources::map_owner(one, &std::env::temp_dir(), to)
}

fn landlock() -> io::Result<()> {
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(ABI::V1));
    // The crate's error hides the kernel's; there is one reason why this fails.
    ruleset.and_then(Ruleset::create).map(drop).map_err(|_| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

fn filter() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    sys::install_filter(&seccomp::for_command(true))
}

//! What this machine gives: each layer tried for itself, so that all that is missing is known at once.

use std::{io, process::Stdio, sync::Arc};

use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsmount, fsopen, mount,
        move_mount, open_tree,
    },
};

use crate::{
    error::LaunchError,
    init::{self, Outside},
    launcher::{receive, spawn},
    layer::Layer,
    monitor,
    order::{Message, Order, Probed},
    running::Leftovers,
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
    let (mut control, mut launched) = spawn(settings, &order, Stdio::null(), Stdio::null(), &Arc::<Leftovers>::default())?;
    let answer = receive(&mut control).map_err(|source| LaunchError::launcher("listening to the launcher", source))?;
    // It has nothing more to say; what it exits with does not matter.
    let _ = launched.wait();
    match answer {
        Some((Message::Probed(probed), _)) => Ok(report(&probed)),
        _ => Err(LaunchError::LauncherLost { program: "the probe of this machine".to_owned() }),
    }
}

fn report(probed: &[Probed]) -> Report {
    let state = |error: i32| match error {
        0 => LayerState::Active,
        error => LayerState::Missing { why: io::Error::from_raw_os_error(error).to_string(), fix: "" },
    };
    let layers = probed
        .iter()
        .map(|probed| {
            let state = match state(probed.error) {
                LayerState::Missing { why, .. } => LayerState::Missing { why, fix: probed.layer.fix() },
                active => active,
            };
            LayerReport { layer: probed.layer, state }
        })
        .collect();
    let missing = |layer: Layer| probed.iter().any(|probed| probed.layer == layer && probed.error != 0);
    let any = |layers: &[Layer]| layers.iter().any(|layer| missing(*layer));
    let tier = if any(&[Layer::Landlock, Layer::Seccomp]) {
        Tier::None
    } else if any(&[Layer::ServiceUser, Layer::UserNamespace, Layer::Namespaces, Layer::View, Layer::IdMappedWorkspace, Layer::Workspace])
    {
        Tier::Landlock
    } else if missing(Layer::Proc) {
        Tier::NoProc
    } else {
        Tier::Full
    };
    Report { layers, tier }
}

/// The launcher's half: tries the layers.
pub(crate) fn layers(one: OneThread, uid: u32, gid: u32) -> Vec<Probed> {
    let root = rustix::process::geteuid().is_root();
    let outside = if root {
        Outside { uid, gid }
    } else {
        Outside { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    };
    let mut probed = Vec::new();
    let mut attempt = |layer, flags, test: &dyn Fn() -> io::Result<()>| {
        probed.push(Probed { layer, error: in_child(one, flags, test) });
    };
    // What follows is tried as whom a command would run as, in a user namespace of its own.
    let inside = |then: &dyn Fn() -> io::Result<()>| {
        let flags = init::NAMESPACES;
        let become_user = || -> io::Result<()> {
            if root {
                monitor::drop_root(outside)?;
            }
            match in_child(one, flags, &|| {
                init::enter(outside)?;
                rustix::system::sethostname(b"sandbox")?;
                then()
            }) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        };
        become_user()
    };
    if root {
        attempt(Layer::ServiceUser, 0, &|| Ok(monitor::drop_root(outside)?));
        attempt(Layer::IdMappedWorkspace, 0, &|| sources::probe_mapping(one, outside));
    }
    attempt(Layer::UserNamespace, 0, &|| inside(&|| Ok(())));
    attempt(Layer::View, 0, &|| inside(&|| place(tree("/usr")?)));
    attempt(Layer::Proc, 0, &|| inside(&|| place(new_proc()?)));
    attempt(Layer::Workspace, 0, &|| inside(&overlay));
    attempt(Layer::ProcessLimit, 0, &|| {
        inside(&|| {
            place(new_proc()?)?;
            std::fs::write("/usr/sys/kernel/pid_max", "301")
        })
    });
    attempt(Layer::Landlock, 0, &|| landlock_there());
    attempt(Layer::Seccomp, 0, &|| {
        rustix::thread::set_no_new_privs(true)?;
        sys::install_filter(&seccomp::for_command())
    });
    probed
}

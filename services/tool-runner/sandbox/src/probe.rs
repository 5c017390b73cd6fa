//! Probes each layer on this machine separately, so that all missing ones are reported at once.

use std::{io, process::Stdio};

use crate::{
    connection::receive,
    error::LaunchError,
    launcher::{ReleasedOnExit, spawn},
    layer::Layer,
    protocol::{Message, Probed, Request},
    role,
    settings::Settings,
};

/// The state of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerState {
    /// The layer works.
    Active,
    /// The layer does not work.
    Missing {
        /// The error of the kernel.
        why: String,
        /// How an operator can fix it.
        fix: &'static str,
    },
}

/// One layer on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerReport {
    /// The layer.
    pub layer: Layer,
    /// Its state.
    pub state: LayerState,
}

/// The strength of the sandbox that the kernel allows. Commands run at [`Tier::Full`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Landlock or seccomp is missing.
    None,
    /// Landlock, seccomp and limits, without namespaces.
    Landlock,
    /// All layers except a new `/proc`.
    NoProc,
    /// All layers.
    Full,
}

/// The layers that this machine supports.
#[derive(Clone, Debug)]
pub struct Report {
    /// The layers, in the order of their setup.
    pub layers: Vec<LayerReport>,
    /// The resulting tier.
    pub tier: Tier,
}

/// Probes each layer in its own process. Takes some milliseconds and changes nothing.
///
/// # Errors
/// When no launcher can be executed.
pub fn probe(settings: &Settings) -> Result<Report, LaunchError> {
    if !role::can_launch() {
        return Err(LaunchError::NotReady);
    }
    settings.check()?;
    let protocol = Request::Probe(settings.service_uid, settings.service_gid);
    let (mut control, mut launched) =
        spawn(settings, &protocol, None, ReleasedOnExit::default(), Stdio::null(), Stdio::null())?;
    let reply = receive(&mut control).map_err(|source| LaunchError::launcher("reading from the launcher", source))?;
    // The launcher has nothing more to send, and its exit code does not matter.
    let _ = launched.wait();
    match reply {
        Some((Message::Probed(probed), _)) => Ok(report(&probed)),
        _ => Err(LaunchError::LauncherLost { program: "the probe".to_owned() }),
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

//! Probes each layer on this machine separately, so that all missing ones are reported at once.

use std::{fs::File, io, os::fd::AsFd as _, time::Duration};

use crate::{
    connection::receive,
    error::LaunchError,
    fork_server::ForkServer,
    layer::Layer,
    protocol::{LayerProbe, Message, Request},
    role,
    settings::Settings,
    slot::spawn,
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

/// A layer on this machine.
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
/// When no launcher can be executed, or the probe of a layer was lost ([`LaunchError::is_lost`]), so that it shows nothing.
pub fn probe(settings: &Settings) -> Result<Report, LaunchError> {
    if !role::can_launch() {
        return Err(LaunchError::NotReady);
    }
    settings.check()?;
    let protocol = Request::Probe(settings.service_uid, settings.service_gid);
    let null = File::options().write(true).open("/dev/null");
    let null = null.map_err(|source| LaunchError::launcher("opening /dev/null", source))?;
    let server = ForkServer::new(&settings.executable);
    let (mut control, mut launched) = spawn(&server, &protocol, None, [null.as_fd(); 2])?;
    control
        .set_read_timeout(Some(MAX_WAIT))
        .map_err(|source| LaunchError::launcher("limiting the wait for the launcher", source))?;
    let reply = receive(&mut control).map_err(|source| LaunchError::launcher("reading from the launcher", source))?;
    // The launcher has nothing more to send, and its exit code does not matter.
    let _ = launched.wait();
    match reply {
        Some((Message::Probed(probed), _)) => match lost(&probed) {
            Some(error) => Err(error),
            None => Ok(report(&probed)),
        },
        _ => Err(LaunchError::LauncherLost { program: "the probe".to_owned() }),
    }
}

/// How long a probe may take: far longer than on any machine that is not overloaded.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// The first probe that was lost, and so shows nothing about its layer.
fn lost(probed: &[LayerProbe]) -> Option<LaunchError> {
    let error = |probed: &LayerProbe| LaunchError::Layer {
        layer: probed.layer,
        doing: "probing it".to_owned(),
        source: io::Error::from_raw_os_error(probed.error),
    };
    // No probe writes to a disk: ENOSPC is the answer of a layer.
    let found = probed.iter().filter(|probed| !matches!(probed.error, 0 | libc::ENOSPC));
    found.map(error).find(LaunchError::is_lost)
}

fn report(probed: &[LayerProbe]) -> Report {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::KILLED;

    fn probed(error: i32) -> Vec<LayerProbe> {
        vec![LayerProbe { layer: Layer::Proc, error: 0 }, LayerProbe { layer: Layer::UserNamespace, error }]
    }

    #[test]
    fn a_killed_probe_is_lost_and_a_refused_one_is_a_missing_layer() {
        for error in [KILLED, libc::EAGAIN, libc::ENOMEM, libc::EMFILE] {
            assert!(lost(&probed(error)).is_some(), "{error}");
        }
        for error in [0, libc::EPERM, libc::ENOSPC, libc::ENOSYS] {
            assert!(lost(&probed(error)).is_none(), "{error}");
        }
        assert_eq!(report(&probed(libc::EPERM)).tier, Tier::Landlock);
    }
}

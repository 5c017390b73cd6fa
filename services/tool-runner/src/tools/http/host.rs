//! The network of tools without a command.

use std::sync::Arc;

use belay_network::Profile;
use belay_sqlite::{Lane, Threads};

use crate::{CommandSettings, NetworkProblem, proxy::ProxyHolder};

/// The calls whose connections are opened or closed at a time.
const LANE_SLOTS: usize = 16;

/// The network of tools without a command.
#[derive(Clone)]
pub(crate) struct HttpHost {
    pub(super) settings: Arc<CommandSettings>,
    pub(super) proxy: Arc<ProxyHolder>,
    pub(super) lane: Lane,
}

#[cfg(test)]
impl HttpHost {
    /// That of a runner without settings.
    pub(crate) fn for_test() -> Self {
        let settings = Arc::<CommandSettings>::default();
        Self::new(&settings, Arc::new(ProxyHolder::new(&settings)))
    }
}

impl HttpHost {
    /// Requests go through this proxy, under the profiles and with the credentials of these settings.
    pub(crate) fn new(settings: &Arc<CommandSettings>, proxy: Arc<ProxyHolder>) -> Self {
        Self { settings: Arc::clone(settings), proxy, lane: Lane::new(Threads::Real, LANE_SLOTS) }
    }

    /// The network profile of a call, without which there is none.
    ///
    /// # Errors
    /// When the call asks for none, for one that reaches nothing, or for one that there is not.
    pub(crate) fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        let found = asked.map_or(Ok(None), |name| self.settings.profile_of_call(name))?;
        let found = found.map(|profile| profile.for_tools()).filter(|profile| !profile.is_closed());
        found.map_or(Err(NetworkProblem::NoNetwork), |profile| Ok(Some(Arc::new(profile))))
    }
}

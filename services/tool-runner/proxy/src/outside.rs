//! What the networks of all calls have in common.

use std::{fmt, net::IpAddr, sync::Arc};

use belay_network::UpstreamProxy;

use crate::{authority::Authority, upstream::Upstream};

/// What is outside of the networks of all calls.
#[derive(Clone)]
pub struct Outside {
    /// The name server, and connections.
    pub upstream: Arc<dyn Upstream>,
    /// The addresses of this machine, which no host may lead to.
    pub own_addresses: Arc<[IpAddr]>,
    /// The proxy behind which hosts are reached; `None`: directly.
    pub proxy: Option<Arc<UpstreamProxy>>,
    /// The authority that commands trust where requests inside of TLS are read.
    pub authority: Arc<Authority>,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").field("own_addresses", &self.own_addresses).finish_non_exhaustive()
    }
}

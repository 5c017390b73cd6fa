//! Placeholders on their way to hosts that their credentials do not go to.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use belay_network::Host;

use crate::{
    call_network::CallNetwork,
    filter::{BoxError, Filter, Window},
    report::Route,
};

/// Refuses a body with the placeholder of a credential that does not go to the host.
pub(crate) struct Foreign {
    network: Arc<CallNetwork>,
    /// The name of the credential that requests to the host carry.
    of_host: Option<String>,
    /// Where it goes: the route, the host and the port.
    to: (Route, Host, u16),
    /// Set when it has refused the body.
    is_refused: Arc<AtomicBool>,
    window: Window,
}

/// The sentence with which a placeholder on its way to a host that is not its own is refused.
pub(crate) fn foreign_placeholder(host: &Host, port: u16) -> String {
    format!(
        "the request to {host}:{port} has the placeholder of a credential that does not go there: the value was not sent; to allow it, the operator adds the host to the credential's `hosts` and the credential to the rule"
    )
}

impl Foreign {
    pub(crate) fn new(
        network: Arc<CallNetwork>,
        of_host: Option<String>,
        to: (Route, Host, u16),
        is_refused: Arc<AtomicBool>,
    ) -> Self {
        Self { network, of_host, to, is_refused, window: Window::default() }
    }
}

impl Filter for Foreign {
    fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, BoxError> {
        let text = self.window.add(piece);
        let end = text.len();
        let Some(finder) = self.network.credentials.foreign_to(self.of_host.as_deref()) else {
            return Ok(self.window.release(end));
        };
        if finder.is_in(text) {
            self.is_refused.store(true, Ordering::Relaxed);
            // Also when the host has answered already.
            let (route, host, port) = &self.to;
            self.network.log.refuse(*route, host.as_str(), *port, &foreign_placeholder(host, *port));
            return Err("the body has a placeholder that does not go to this host".into());
        }
        let pending = finder.pending(text);
        Ok(self.window.release(end - pending))
    }

    fn finish(&mut self) -> Vec<u8> {
        let end = self.window.add(&[]).len();
        self.window.release(end)
    }

    fn held(&self) -> usize {
        self.window.held()
    }
}

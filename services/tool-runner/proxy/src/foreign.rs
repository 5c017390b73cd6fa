//! Placeholders on their way to hosts that their credentials do not go to.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    call_network::CallNetwork,
    filter::{BoxError, Filter, Window},
};

/// Refuses a body with the placeholder of a credential that does not go to the host.
pub(crate) struct Foreign {
    network: Arc<CallNetwork>,
    /// The name of the credential that requests to the host carry.
    of_host: Option<String>,
    /// Set when it has refused the body.
    is_refused: Arc<AtomicBool>,
    window: Window,
}

impl Foreign {
    pub(crate) fn new(network: Arc<CallNetwork>, of_host: Option<String>, is_refused: Arc<AtomicBool>) -> Self {
        Self { network, of_host, is_refused, window: Window::default() }
    }
}

impl Filter for Foreign {
    fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, BoxError> {
        let text = self.window.add(piece);
        let end = text.len();
        let Some(finder) = self.network.credentials.foreign_to(self.of_host.as_deref()) else {
            return Ok(self.window.release(end));
        };
        if finder.find(text).next().is_some() {
            self.is_refused.store(true, Ordering::Relaxed);
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

//! The requests that controlled an execution, so that a repeated one is not carried out again.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

use crate::Actor;

/// How many requests are remembered. A client repeats a request within minutes, and an execution is seldom controlled a thousand times.
pub(crate) const MAX_REQUESTS: usize = 1000;

/// The last requests, by who sent them and their id: an id belongs to its principal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requests {
    digests: BTreeMap<String, String>,
    /// The ids, the oldest first.
    order: VecDeque<String>,
}

impl Requests {
    /// Remembers a request, if it has an id.
    pub(crate) fn insert(&mut self, by: &Actor, digest: String) {
        let key = key(by);
        if by.request_id.is_empty() || self.digests.insert(key.clone(), digest).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_REQUESTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
    }

    /// The digest of the request with this id of this principal.
    pub(crate) fn digest(&self, by: &Actor) -> Option<&str> {
        self.digests.get(&key(by)).map(String::as_str)
    }
}

/// No principal has a line break in its name.
fn key(by: &Actor) -> String {
    format!("{}\n{}", by.principal, by.request_id)
}

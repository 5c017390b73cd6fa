//! The requests that controlled an execution, so that a repeated one is not carried out again.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How many requests are remembered. A client repeats a request within minutes, and an execution is seldom controlled a thousand times.
pub(crate) const MAX_REQUESTS: usize = 1000;

/// The last requests, by id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Requests {
    digests: BTreeMap<String, String>,
    /// The ids, the oldest first.
    order: VecDeque<String>,
}

impl Requests {
    /// Remembers a request, if it has an id.
    pub(crate) fn insert(&mut self, id: &str, digest: String) {
        if id.is_empty() || self.digests.insert(id.to_owned(), digest).is_some() {
            return;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > MAX_REQUESTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
    }

    /// The digest of the request with this id.
    pub(crate) fn digest(&self, id: &str) -> Option<&str> {
        self.digests.get(id).map(String::as_str)
    }
}

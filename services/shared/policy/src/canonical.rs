//! The canonical bytes of a policy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::Document;

/// The maximum size of a policy in its signed form, in bytes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// The version of the bytes.
pub(crate) const VERSION: u32 = 6;

/// The bytes as values, in canonical order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message<P, N: Ord> {
    pub(crate) v: u32,
    pub(crate) revision: i64,
    /// The policy at the top.
    pub(crate) policy: P,
    /// The sections of namespaces: all settings, and the rules that they add.
    pub(crate) namespaces: BTreeMap<N, Document>,
}

/// The canonical bytes: JSON with the fields in the order of their declaration, no white space, integers only.
pub(crate) fn canonical(message: &Message<impl Serialize, impl Serialize + Ord>) -> Vec<u8> {
    serde_json::to_vec(message).expect("strings, integers and lists are always JSON")
}

/// The largest size of these policies in their signed form, in bytes.
pub(crate) fn length(policy: &Document, namespaces: BTreeMap<&str, Document>) -> usize {
    canonical(&Message { v: VERSION, revision: i64::MAX, policy, namespaces }).len()
}

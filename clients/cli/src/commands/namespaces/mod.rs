//! `belay namespaces …`.

pub(crate) mod list;

//! `belay tools …`.

pub(crate) mod describe;
pub(crate) mod list;

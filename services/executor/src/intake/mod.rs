//! Contents of requests: plans, inputs, paths and conditions, as they are checked and filled in.

pub(crate) mod conditions;
pub(crate) mod inputs;
pub(crate) mod limits;
pub(crate) mod paths;
pub(crate) mod submitted;

//! Shared by the bench and the floor: the arithmetic, so that both sides of a ratio are computed by the same lines.

pub mod stats;

//! What the bench and the floor share: the arithmetic, so that both sides of a ratio are computed by the same lines.

pub mod stats;

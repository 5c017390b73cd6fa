//! A workspace as its users see it: on a real file system, through the public interface.

mod beside;
mod blocks;
mod commits;
mod conflicts;
mod crashes;
mod dropped;
mod effects;
mod equivalence;
mod layers;
mod lossy;
mod opening;
mod overlay;
mod power;
mod support;
mod views;

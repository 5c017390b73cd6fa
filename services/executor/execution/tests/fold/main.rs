//! The fold, driven by scripts: what an execution does about everything that can happen to it.

mod moves;
mod properties;
mod refusals;
mod scale;
mod stories;
mod support;

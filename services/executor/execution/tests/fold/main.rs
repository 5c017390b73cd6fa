//! The fold, driven by scripts: what an execution does about everything that can happen to it.

mod properties;
mod refusals;
mod scale;
mod stories;
mod support;
mod transitions;

//! The fold, driven by scripts: what an execution does about everything that can happen to it.

mod stories;
mod support;

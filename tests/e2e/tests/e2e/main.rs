//! End-to-end tests over the real programs.

mod crash;
mod errors;
mod requests;
mod watch;

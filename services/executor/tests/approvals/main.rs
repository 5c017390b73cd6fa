//! The executor's program between a runner and a gate that play a script, over real sockets.

mod beside;
mod commits;
mod holds;
mod losses;
mod memory;
mod output;
mod secrets;
mod starts;
mod support;

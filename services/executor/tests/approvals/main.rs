//! The executor's program between a runner and a gate that play a script, over real sockets.

mod commits;
mod holds;
mod losses;
mod memory;
mod output;
mod starts;
mod support;

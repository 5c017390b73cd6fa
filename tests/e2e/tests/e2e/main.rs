//! End-to-end tests over the real programs.

mod bad_input;
mod cli;
mod crash;
mod errors;
mod exactly_once;
mod faults;
mod hostile;
mod pages;
mod requests;
mod watch;

//! End-to-end tests over the real programs.

mod bad_input;
mod cli;
mod collector;
mod crash;
mod errors;
mod faults;
mod pages;
mod requests;
mod trace;
mod watch;

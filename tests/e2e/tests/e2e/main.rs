//! End-to-end tests over the real programs.

mod approvals;
mod bad_input;
mod cli;
mod collector;
mod contract;
mod crash;
mod deletion;
mod deploy;
mod disk;
mod embedded;
mod errors;
mod exactly_once;
mod faults;
mod health;
mod hostile;
mod logs;
mod pages;
mod principals;
mod quickstart;
mod requests;
mod settings;
mod stores;
mod thousand;
mod trace;
mod waits;
mod watch;

//! Support for the end-to-end tests: the real programs in their own processes, and clients of the contract.
//!
//! No test depends on the internals of a service. A test may kill any of the processes at any time; the others are killed when the test ends.

pub mod belay;
pub mod client;
pub mod folded_execution;
pub mod folder;
pub mod orphans;
pub mod people;
pub mod process;
pub mod runner;
pub mod services;
mod watchdog;

pub use belay::Home;
pub use client::Client;
pub use people::Person;
pub use process::{Process, ProcessUser, binary};
pub use runner::Runner;
pub use services::{Service, Services};

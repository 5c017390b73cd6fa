//! What the end-to-end tests stand on: the real programs in their own processes, and a client of the contract.
//!
//! Nothing here knows the insides of a service. A test may end any of the processes at any moment; whatever is left is ended with the
//! test.

pub mod belay;
pub mod client;
pub mod picture;
pub mod process;

pub use belay::Home;
pub use client::Client;
pub use process::{Process, binary};

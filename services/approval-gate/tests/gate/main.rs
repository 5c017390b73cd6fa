//! The gate over real gRPC on unix sockets, with a scripted runner.

mod creating;
mod deciding;
mod forgetting;
mod forms;
mod granting;
mod metrics;
mod restarting;
mod support;
mod watching;

//! The gate over real gRPC on unix sockets, with a runner that says what the test tells it to.

mod asking;
mod deciding;
mod granting;
mod lasting;
mod support;
mod watching;

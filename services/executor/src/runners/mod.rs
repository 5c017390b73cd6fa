//! Calls of tools: the session with the tool runner, its replies, and how each call is made, followed and acknowledged.

pub(crate) mod acknowledge;
pub(crate) mod call_reply;
pub(crate) mod connection;
pub(crate) mod copy;
pub(crate) mod in_doubt;
pub(crate) mod link;
pub(crate) mod operation;
pub(crate) mod output;
pub(crate) mod runner;
pub(crate) mod session;

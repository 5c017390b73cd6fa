//! How requests are written, and how the streams of servers are read.

mod chat;
mod check;
mod constrained;
mod messages;
mod refusals;
mod requests;
mod responses;
mod support;

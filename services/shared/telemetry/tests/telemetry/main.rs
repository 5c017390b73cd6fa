//! Spans as a collector receives them, over a real socket.

mod collector;
mod http;
mod spans;

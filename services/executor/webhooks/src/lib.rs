//! Sends messages to webhooks, signed as [Standard Webhooks](https://www.standardwebhooks.com) describes.
//!
//! [`Receiver::send`] makes one attempt on a connection of its own. When it is made again, and what is sent, is decided elsewhere.

mod send;
mod sign;

pub use send::{Connect, Connecting, Connection, InvalidReceiver, Receiver, SendError};
pub use sign::{InvalidSecret, Secret};

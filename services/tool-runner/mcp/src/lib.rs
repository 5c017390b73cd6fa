//! A client of the Model Context Protocol, over a pair of pipes.
//!
//! It lists the tools of a server and calls them, in the revisions 2026-07-28, 2025-11-25 and 2025-06-18: a server is asked for the first, and one that does not
//! know it gets the handshake of the others. What a server asks while it works is passed to a [`Host`]; sampling and roots, which the protocol has given up,
//! are not offered. The messages themselves are the crate `rmcp`'s.
//!
//! A server is not trusted. What it writes in a session and its lists are bounded, its hints about what its tools do are data, and one that breaks the protocol ends its call.

mod bounded;
mod definition;
mod handler;
mod session;

pub use bounded::{MAX_BYTES, MAX_LINE, MAX_LINES};
pub use definition::{Annotations, Definition, MAX_TOOLS};
pub use handler::{Host, Question, Reply};
pub use session::{Answer, McpError, ServerIdentity, Session};

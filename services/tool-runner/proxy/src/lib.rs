//! The network of commands: an HTTP proxy, a stub name server and ports, behind which only the hosts of a profile are reached.
mod access;
mod budget;
mod dns;
mod forward;
mod grant;
mod head;
mod hello;
mod inbound;
mod log;
mod name_server;
mod reach;
mod report;
mod routes;
mod splice;
mod tunnel;
mod upstream;

pub use access::{Access, CommandSockets};
pub use budget::Budget;
pub use head::{Arrival, Head, HeadProblem, Target, arrival, read_head};
pub use hello::{Hello, HelloProblem, read_client_hello};
pub use report::{Connection, Report, Route};
pub use upstream::{Pending, Upstream};

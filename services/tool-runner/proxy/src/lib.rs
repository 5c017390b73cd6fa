//! The network of commands: an HTTP proxy, a stub name server and ports, behind which only the hosts of a profile are reached.
//!
//! A command has its own network without a route. The sockets of a call listen in it, and are handed to the proxy: a process of its own, with one thread, that
//! confines itself before it serves anything. It knows a call by the sockets on which it is asked, never by what is sent.
//!
//! ```text
//! command ──▶ sockets in its network ──▶ proxy (this binary executed again) ──▶ hosts of the profile
//!                                          ▲ sockets, profile   │ account
//!                                          └────── runner ◀─────┘
//! ```
//!
//! A tool without a command has no network of its own: it sends one request over a connected pair of sockets, `https://…` in absolute form too, and the proxy
//! judges it, dials and speaks TLS. So methods and paths are enforced there, for every host.
//!
//! A program that starts a proxy must call [`take_over_if_asked`] first in `main`.
//!
//! The proxy resolves names itself, with `/etc/hosts` and `/etc/resolv.conf` as they were at its start: it cannot read them again. It checks every address, and
//! connects to addresses that it has checked only. TLS is passed on unread once the server name of the ClientHello is that of the host; requests in clear text
//! are read strictly and written anew, one for each connection. What goes through a connection inside of TLS is not seen, and so is a host behind a shared
//! front that TLS does not name. The stub name server asks no one; a host below a wildcard is resolved when it is connected to, so its name reaches the name
//! servers of its domain.

mod access;
mod asking;
mod authority;
mod budget;
mod call_network;
mod client;
mod confinement;
mod denial;
mod dns;
mod error;
mod filter;
mod foreign;
mod forward;
mod frames;
mod head;
mod hello;
mod host_upstream;
mod inbound;
mod injection;
mod log;
mod name_server;
mod outside;
mod process;
mod proxy;
mod reach;
mod replayed;
mod report;
mod role;
mod routes;
mod scrub;
mod seccomp;
mod self_test;
mod splice;
mod sys;
mod take_over;
mod tunnel;
mod upstream;
mod usage;
mod wire;

pub use access::{Access, CommandSockets};
pub use asking::{HostAnswer, HostQuestion};
pub use authority::Authority;
pub use budget::Budget;
pub use client::{AskedHosts, OpenAccess, ServiceUser};
pub use error::ProxyError;
pub use head::{Head, HeadProblem, HeadState, HostHeader, Target, head_state, read_head, read_tool_head};
pub use hello::{Hello, HelloProblem, read_client_hello};
pub use host_upstream::HostUpstream;
pub use inbound::OWN_ANSWER;
pub use injection::CallCredential;
pub use outside::Outside;
pub use proxy::Proxy;
pub use report::{Connection, CredentialUse, ModelUse, Report, Route};
pub use take_over::take_over_if_asked;
pub use upstream::{Pending, Upstream};
pub use usage::Tokens;
pub use wire::ProxySettings;

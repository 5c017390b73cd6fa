//! The basis of every service: a clock, ids, authentication, deadlines, errors, health, shutdown.
//!
//! The real clock and the real randomness live here. Services take them as values, so that a simulation can pass its own.

mod address;
pub mod auth;
mod authority;
pub mod clock;
mod connections;
pub mod contract;
pub mod cursor;
mod deadline;
mod fitting;
mod guard;
pub mod host;
mod http_health;
pub mod ids;
pub mod key_file;
mod limits;
mod methods;
pub mod metrics;
mod middleware;
pub mod names;
pub mod net;
mod peer;
mod peer_process;
pub mod principal;
pub mod program;
mod reflection;
pub mod register;
pub mod register_file;
mod retry;
pub mod shutdown;
pub mod state_files;
pub mod status;
pub mod stores;
mod supervise;
pub mod telemetry;
mod unread;
pub mod users;
pub mod watch;

pub use auth::{Access, People, Services};
pub use authority::NormalizedStream;
pub use clock::{Clock, SteadyClock, SystemClock};
pub use guard::RECHECK;
pub use host::{Connection, HostedServices, ServeError};
pub use ids::Ids;
pub use limits::{Limit, Permit, rephrased_status};
pub use methods::check_decides;
pub use principal::{Principal, Role, Service};
pub use retry::Retry;
pub use shutdown::{Shutdown, Trigger};
pub use stores::ServiceChannel;
pub use supervise::{supervise, words};

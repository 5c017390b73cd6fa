//! Network profiles: which hosts a command may reach, by name.
//!
//! A [`Profile`] is one list of rules with where each comes from; nothing outside of that list is open. [`Profile::decide`] judges a connection, or a request
//! where it can be read. [`closed_range`] names the addresses that no host may lead to, unless the operator names them.
//!
//! Pure: no sockets, no clock, no name server.

mod address;
mod built_in;
mod decide;
mod draft;
mod host;
mod path;
mod profile;

pub use address::closed_range;
pub use decide::{AccessDecision, AccessRequest, Refusal, RefusalKind, Traffic};
pub use draft::{DraftProfile, DraftRule, Problem};
pub use host::{Host, HostPattern, HostProblem};
pub use profile::{
    LOOPBACK, MAX_PROFILE_NAME, NONE, OWN_PORTS, Origin, Ports, Profile, Profiles, Protocol, Rule, is_profile_name,
};

//! Network profiles: which hosts a command may reach, by name.
//!
//! A [`Profile`] is one list of rules with where each comes from; nothing outside of that list is open. [`Profile::decide`] judges a connection, or a request
//! where it can be read. [`closed_range`] names the addresses that no host may lead to, unless the operator names them.
//!
//! Pure: no sockets, no clock, no name server.

mod address;
mod built_in;
mod credential;
mod decide;
mod draft;
mod for_tools;
mod host;
mod name;
mod path;
mod profile;
mod protocol;
mod rule;
mod secret;
mod upstream_proxy;

pub use address::closed_range;
pub use credential::{Binding, Credential, CredentialSource, DraftCredential, Placement};
pub use decide::{AccessDecision, AccessRequest, NearestExtra, Refusal, RefusalKind, Traffic};
pub use draft::{DraftProfile, DraftRule, Problem};
pub use host::{Host, HostOrAddress, HostPattern, HostProblem};
pub use name::{MAX_PROFILE_NAME, is_profile_name};
pub use profile::{LOOPBACK, NONE, OWN_PORTS, Profile, Profiles};
pub use protocol::Protocol;
pub use rule::{BaseUrl, Origin, Ports, Rule};
pub use secret::{MAX_SECRET, MIN_SECRET, Secret, SecretProblem};
pub use upstream_proxy::UpstreamProxy;

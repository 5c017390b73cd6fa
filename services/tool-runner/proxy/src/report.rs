//! The account of one call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::usage::Tokens;

/// The account of one call's network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Connections and questions to the name server, in their order. A question that was asked before is listed once.
    pub connections: Vec<Connection>,
    /// The number of connections and questions beyond the listed ones.
    pub unlisted: u64,
    /// The number of questions to the name server, each repetition included.
    pub questions: u64,
    /// The number of refused connections and questions, each repetition included.
    pub refusals: u64,
    /// Whether connections were closed because the call had sent and received all its bytes.
    pub is_over_budget: bool,
    /// The credentials that requests carried, by name and host.
    pub credentials: Vec<CredentialUse>,
    /// The use of models behind base URLs.
    pub models: ModelUse,
    /// Whether the proxy ended before the call did: what it had recorded is lost.
    pub is_lost: bool,
}

/// The use of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CredentialUse {
    /// Its name.
    pub name: String,
    /// The host to which its value went.
    pub host: String,
    /// The number of requests that carried it.
    pub count: u64,
}

/// The use of models behind base URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelUse {
    /// The tokens, by the answers of their servers.
    pub tokens: Tokens,
    /// The answers that were counted.
    pub answers: u64,
    /// Those of them that did not say it, or did not come to their end: a token is counted for each four bytes of theirs and of their requests.
    pub estimated: u64,
    /// The requests that were refused because the tokens were used up.
    pub refused: u64,
}

/// A connection, a refused one, or a question to the name server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// The host as it was asked for; control characters are escaped, and long texts are cut.
    pub host: String,
    /// The port; 0 if there was none.
    pub port: u16,
    /// The way in which it was asked for.
    pub route: Route,
    /// Whether it was allowed.
    pub is_allowed: bool,
    /// The reason why an allowed host was not reached; empty for one that was, and for what was refused.
    pub failure: String,
    /// The rule that allowed it, or the sentence with which it was refused.
    pub rule: String,
    /// The bytes that the command sent to the host.
    pub sent_bytes: u64,
    /// The bytes that the host sent to the command.
    pub received_bytes: u64,
    /// When it began, since the call's network was opened.
    pub started_after: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// The way in which a host was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// The HTTP proxy.
    Proxy,
    /// A connection to the address that the name server had given.
    Address,
    /// A question to the name server.
    NameServer,
    /// A service of this machine.
    Service,
    /// A base URL of the profile.
    BaseUrl,
}

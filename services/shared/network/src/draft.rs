//! Profiles as the operator wrote them.

/// A profile as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftProfile {
    /// Its name.
    pub name: String,
    /// Names of profiles whose rules it has as well, before its own.
    pub include: Vec<String>,
    /// Its rules.
    pub rules: Vec<DraftRule>,
    /// Addresses of this machine with ports, such as `127.0.0.1:5432`, which commands reach under the same address.
    pub host_services: Vec<String>,
    /// Whether its author says that a command under it may run again: that it only fetches.
    pub fetch_only: bool,
    /// Whether a rule may have every host (`*`).
    pub any_host: bool,
    /// Where it was written, such as `/etc/belay/belay.yaml:12`.
    pub place: String,
}

/// A rule as it was written. Empty lists mean the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftRule {
    /// `example.com`, `*.example.com` or `*`.
    pub host: String,
    /// Ports such as `443`, or ranges such as `8000-8100`. Without one: 443, or 80 with `protocol: http`.
    pub ports: Vec<String>,
    /// `https`, `http` or `tcp`; empty: `http` if the only port is 80, else `https`.
    pub protocol: String,
    /// Methods, such as `GET`.
    pub methods: Vec<String>,
    /// Prefixes of paths, such as `/v1/`.
    pub paths: Vec<String>,
    /// Whether the host may lead to addresses that are closed otherwise, such as those of a private network.
    pub private_addresses: bool,
    /// Whether a person is asked about each host and port before it is reached.
    pub ask: bool,
    /// The name of the credential that requests to the host carry.
    pub credential: Option<String>,
    /// The variable with the URL in clear text at which commands reach the host, and nowhere else.
    pub base_url: Option<String>,
    /// The path of that URL, such as `/v1`.
    pub base_path: Option<String>,
    /// Where it was written.
    pub place: String,
}

/// A problem of a profile or a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field below the profiles or the credentials, such as `ci.rules[2].host`.
    pub field: String,
    /// The problem, and what to do.
    pub message: String,
}

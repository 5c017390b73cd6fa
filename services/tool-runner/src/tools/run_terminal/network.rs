//! The network of a command: the sockets that it gets, the variables by which programs find them, and the account of what it did.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use belay_network::{BaseUrl, OWN_PORTS, Profile};
use belay_proto::v1::{self, network_connection::Route as WireRoute};
use belay_proxy::{CallCredential, CommandSockets, Connection, CredentialUse, Report, Route};
use belay_sandbox::{CommandNetwork, Mount, NetworkSockets};

use crate::{
    CommandSettings, ToolFailure,
    proxy::{CommandProxy, ProxyHolder},
    trust,
};

/// The address of the proxy and of the name server in the network of every command: not 127.0.0.1, whose ports belong to the programs of the command.
const OWN: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
/// The ports of the name server and of the proxy. That of the proxy is below those that the kernel gives to connections.
const NAME_SERVER_PORT: u16 = OWN_PORTS[0];
const PROXY_PORT: u16 = OWN_PORTS[1];

/// The most connections of a receipt, and the most bytes of their texts.
const MAX_CONNECTIONS: usize = 200;
const MAX_CONNECTION_BYTES: usize = 64 * 1024;

/// The variables by which runtimes find the certificates that they trust, where those are not the ones of this machine.
const TRUST: [&str; 10] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "npm_config_cafile",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
];

/// The network of one call, before its command runs.
pub(super) struct NetworkOfCall {
    pub(super) profile: Arc<Profile>,
    pub(super) proxy: Arc<CommandProxy>,
    pub(super) credentials: Vec<CallCredential>,
    /// The most tokens of models behind base URLs; `None` for no bound.
    pub(super) max_tokens: Option<u64>,
    /// The mounts with the certificates that the command trusts; empty: those of this machine.
    trust: Vec<Mount>,
}

impl NetworkOfCall {
    /// Starts the proxy if it does not run, and reads the credentials. Blocks.
    ///
    /// # Errors
    /// NETWORK_UNAVAILABLE, CREDENTIAL_UNAVAILABLE.
    pub(super) fn prepare(
        profile: Arc<Profile>,
        proxy: &ProxyHolder,
        settings: &CommandSettings,
        max_tokens: Option<u64>,
    ) -> Result<Self, ToolFailure> {
        let proxy = proxy.running()?;
        let random =
            |bytes: &mut [u8]| getrandom::fill(bytes).map_err(|error| format!("there is no randomness: {error}"));
        let credentials = settings.credentials().of_call(&profile, random)?;
        let trust = proxy.trust(&profile)?.map(|files| files.mounts().to_vec()).unwrap_or_default();
        Ok(Self { profile, proxy, credentials, max_tokens, trust })
    }

    /// The additional mounts of the command.
    pub(super) fn mounts(&self) -> impl Iterator<Item = Mount> {
        self.trust.iter().cloned()
    }

    /// The network of the command. `is_there`: whether a file of this machine is there.
    pub(super) fn command(&self, is_there: impl Fn(&str) -> bool) -> CommandNetwork {
        let mut network = command_network(&self.profile, is_there);
        network.env.extend(
            base_urls(&self.profile)
                .map(|(address, url)| (url.variable.clone(), format!("http://{address}{}", url.path).into())),
        );
        let named = self.profile.credentials();
        network.env.extend(self.credentials.iter().filter_map(|known| {
            let variable = named.get(known.name.as_str())?.variable.clone()?;
            Some((variable, OsString::from(known.placeholder.clone())))
        }));
        if !self.trust.is_empty() {
            network.env.retain(|(name, _)| !TRUST.contains(&name.as_str()));
            network.env.extend(TRUST.map(|name| (name.to_owned(), trust::PEM.into())));
            let java = format!("-Djavax.net.ssl.trustStore={}", trust::JKS);
            network.env.push(("JAVA_TOOL_OPTIONS".to_owned(), java.into()));
        }
        network
    }
}

/// The network of a command under this profile. `is_there`: whether a file of this machine is there.
fn command_network(profile: &Profile, is_there: impl Fn(&str) -> bool) -> CommandNetwork {
    let proxy = SocketAddr::from((OWN, PROXY_PORT));
    let ports = profile.ports().into_iter().map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    let urls = base_urls(profile).map(|(address, _)| address);
    CommandNetwork {
        listen: [proxy].into_iter().chain(ports).chain(services(profile)).chain(urls).collect(),
        name_server: Some(SocketAddr::from((OWN, NAME_SERVER_PORT))),
        env: variables(proxy, trust::OF_MACHINE.into_iter().find(|file| is_there(file))),
    }
}

/// The services of this machine that need a socket: a listener on a port of the profile hears all addresses of that port.
fn services(profile: &Profile) -> impl Iterator<Item = SocketAddr> {
    let ports = profile.ports();
    let addresses = profile.host_services.iter().map(|(address, _)| *address);
    addresses.filter(move |address| !ports.contains(&address.port()))
}

/// The base URLs of a profile, each with the address at which it is in the network of a command: the ports behind that of the proxy.
fn base_urls(profile: &Profile) -> impl Iterator<Item = (SocketAddr, &BaseUrl)> {
    profile.base_urls().zip(PROXY_PORT + 1..).map(|((_, url), port)| (SocketAddr::from((OWN, port)), url))
}

/// The variables by which programs find the proxy, and trust what this machine trusts.
fn variables(proxy: SocketAddr, certificates: Option<&str>) -> Vec<(String, OsString)> {
    let url = format!("http://{proxy}");
    let of_proxy = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].map(|name| (name, url.as_str()));
    // The programs of a command reach each other directly.
    let direct = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,127.77.0.1,::1"));
    // Node's `fetch` looks at the variables only if this one says so.
    let of_node = [("NODE_USE_ENV_PROXY", "1")];
    // Node and the libraries of Python come with certificates of their own.
    let trust = ["NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "PIP_CERT"];
    let trust = certificates.into_iter().flat_map(|file| trust.map(|name| (name, file)));
    let all = of_proxy.into_iter().chain(direct).chain(of_node).chain(trust);
    all.map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// The sockets of [`command_network`], as the proxy takes them. `None` when they are others.
pub(super) fn sockets(profile: &Profile, made: NetworkSockets) -> Option<CommandSockets> {
    let NetworkSockets { listeners, name_server } = made;
    let mut listeners = listeners.into_iter();
    let proxy = listeners.next()?;
    let ports = profile.ports().into_iter().zip(listeners.by_ref().take(profile.ports().len())).collect();
    let services: Vec<_> = services(profile).zip(listeners.by_ref()).collect();
    let base_urls: Vec<_> = listeners.collect();
    let is_complete = services.len() == self::services(profile).count()
        && base_urls.len() == profile.base_urls().count()
        && name_server.is_some();
    is_complete.then_some(CommandSockets { proxy, name_server, ports, services, base_urls })
}

/// The account of a command's network, for its receipt. Where not everything has a place, what was reached comes before refusals and questions, of which a
/// command can make any number.
pub(crate) fn account(profile: &Profile, report: &Report) -> v1::NetworkUse {
    let is_reached = |connection: &Connection| {
        connection.is_allowed && connection.failure.is_empty() && connection.route != Route::NameServer
    };
    let (reached, others): (Vec<_>, Vec<_>) =
        report.connections.iter().enumerate().partition(|(_, connection)| is_reached(connection));
    let mut bytes = 0;
    let mut fits = |connection: &Connection| {
        bytes += connection.host.len() + connection.rule.len() + connection.failure.len();
        bytes <= MAX_CONNECTION_BYTES
    };
    let first = reached.into_iter().chain(others).take(MAX_CONNECTIONS);
    let mut listed: Vec<_> = first.take_while(|(_, listed)| fits(listed)).collect();
    listed.sort_by_key(|(place, _)| *place);
    let unlisted = report.unlisted.saturating_add((report.connections.len() - listed.len()) as u64);
    v1::NetworkUse {
        profile: profile.name.clone(),
        unlisted_connection_count: i64::try_from(unlisted).unwrap_or(i64::MAX),
        refused_count: i64::try_from(report.refusals).unwrap_or(i64::MAX),
        is_lost: report.is_lost,
        connections: listed.into_iter().map(|(_, listed)| connection(listed)).collect(),
        credentials: report.credentials.iter().map(credential_use).collect(),
    }
}

fn credential_use(used: &CredentialUse) -> v1::CredentialUse {
    v1::CredentialUse {
        credential: used.name.clone(),
        host: used.host.clone(),
        request_count: i64::try_from(used.count).unwrap_or(i64::MAX),
    }
}

fn connection(connection: &Connection) -> v1::NetworkConnection {
    let route = match connection.route {
        Route::Proxy => WireRoute::Proxy,
        Route::Address => WireRoute::Address,
        Route::NameServer => WireRoute::NameServer,
        Route::Service => WireRoute::Service,
        Route::BaseUrl => WireRoute::BaseUrl,
    };
    v1::NetworkConnection {
        host: connection.host.clone(),
        port: connection.port.into(),
        route: route.into(),
        is_allowed: connection.is_allowed,
        rule: connection.rule.clone(),
        sent_bytes: i64::try_from(connection.sent_bytes).unwrap_or(i64::MAX),
        received_bytes: i64::try_from(connection.received_bytes).unwrap_or(i64::MAX),
        duration: Some(belay_proto::duration(connection.duration)),
        failure: connection.failure.clone(),
    }
}

/// The reason why a command may have failed on its network, after `it`; `None` when nothing was refused.
pub(super) fn refusal(report: &Report) -> Option<String> {
    let refused = report.connections.iter().find(|connection| !connection.is_allowed);
    match refused {
        Some(Connection { rule, .. }) => Some(format!("asked for a host that its network does not reach: {rule}")),
        None if let Some(failed) = report.connections.iter().find(|connection| !connection.failure.is_empty()) => {
            Some(format!("could not reach a host that its network has: {}", failed.failure))
        }
        None if report.is_over_budget => Some("used up the traffic that one command may have".to_owned()),
        None if report.is_lost => {
            Some("lost its network, because the connection to the runner's proxy was lost".to_owned())
        }
        None => None,
    }
}

/// The time limit for the proxy's account of a command that has ended.
pub(crate) const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use belay_network::{DraftProfile, DraftRule, Profiles};

    use super::*;

    fn profile() -> Profile {
        let rule = |host: &str, ports: &[&str]| DraftRule {
            host: host.to_owned(),
            ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            ..DraftRule::default()
        };
        let draft = DraftProfile {
            name: "ci".to_owned(),
            rules: vec![rule("a.example.com", &[]), rule("b.example.com", &["80", "8443"])],
            host_services: vec!["127.0.0.1:5432".to_owned(), "127.0.0.1:8443".to_owned()],
            ..DraftProfile::default()
        };
        Profiles::new(&[draft]).unwrap().find("ci").unwrap().clone()
    }

    #[test]
    fn a_command_gets_the_proxy_the_ports_of_its_profile_and_the_services() {
        let network = command_network(&profile(), |file| file.ends_with("ca-bundle.crt"));
        let listen: Vec<String> = network.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["127.77.0.1:21080", "0.0.0.0:80", "0.0.0.0:443", "0.0.0.0:8443", "127.0.0.1:5432"]);
        assert_eq!(network.name_server, Some("127.77.0.1:53".parse().unwrap()));
        let value = |name: &str| network.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        assert_eq!(value("HTTPS_PROXY"), Some("http://127.77.0.1:21080".into()));
        assert_eq!(value("NODE_EXTRA_CA_CERTS"), Some("/etc/pki/tls/certs/ca-bundle.crt".into()));
        let none = command_network(&profile(), |_| false);
        assert!(none.env.iter().all(|(name, _)| name != "PIP_CERT"));
    }

    #[test]
    fn a_receipt_has_the_first_connections_and_the_number_of_the_others() {
        let connection = |is_allowed, rule: &str| Connection {
            host: "a.example.com".to_owned(),
            port: 443,
            route: Route::Proxy,
            is_allowed,
            rule: rule.to_owned(),
            failure: String::new(),
            sent_bytes: 1,
            received_bytes: 2,
            started_after: Duration::ZERO,
            duration: Duration::from_millis(3),
        };
        let refused = connection(false, "x.example.com:443 is not in the network profile `ci`");
        let mut connections = vec![refused; 300];
        connections.extend(vec![connection(true, "https://a.example.com:443"); 150]);
        let report = Report { connections, unlisted: 7, refusals: 305, ..Report::default() };
        let account = account(&profile(), &report);
        assert_eq!((account.connections.len(), account.unlisted_connection_count), (200, 257));
        let reached = account.connections.iter().filter(|listed| listed.is_allowed).count();
        assert_eq!((reached, account.connections[0].is_allowed), (150, false), "what was reached is listed first");
        assert_eq!((account.profile.as_str(), account.refused_count, account.is_lost), ("ci", 305, false));
        assert!(refusal(&report).unwrap().ends_with("x.example.com:443 is not in the network profile `ci`"));
        assert_eq!(refusal(&Report::default()), None);
        assert!(refusal(&Report { is_lost: true, ..Report::default() }).unwrap().contains("lost its network"));
    }
}

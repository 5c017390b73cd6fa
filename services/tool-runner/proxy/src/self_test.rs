//! The attacks of the start: what a new proxy must refuse, and the one answer that it must give.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};

use belay_network::{DraftProfile, DraftRule, Profiles, Secret};

use crate::{
    access::CommandSockets,
    budget::Budget,
    client::ProxyProcess,
    dns::{self, Answer, code, kind},
    error::ProxyError,
    injection::CallCredential,
};

/// The only host of the profile. Names below `invalid` never exist (RFC 6761).
const LISTED: &str = "listed.belay.invalid";
const UNLISTED: &str = "unlisted.belay.invalid";
/// A host in clear text of the profile.
const CLEAR: &str = "clear.belay.invalid";
/// The placeholder of a credential that goes to no host.
const PLACEHOLDER: &str = "placeholder-of-the-self-test";
/// The longest wait for an answer.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The targets of CONNECT that are refused, with the name of each attack.
const TUNNELS: [(&str, &str); 4] = [
    ("CONNECT to an unlisted name", "unlisted.belay.invalid:443"),
    ("CONNECT to a listed name on another port", "listed.belay.invalid:22"),
    ("CONNECT to the loopback address", "127.0.0.1:443"),
    ("CONNECT to the address of metadata services", "169.254.169.254:80"),
];

/// Attacks a new proxy over the network of a call of its own.
///
/// # Errors
/// When an attack is not refused, or what is allowed does not work: then the refusals would prove nothing.
pub(crate) fn attack(proxy: &ProxyProcess) -> Result<(), ProxyError> {
    let failed = |doing| move |source| ProxyError::Start { doing, source };
    let (sockets, addresses) = sockets().map_err(failed("making the sockets of the test"))?;
    let rule = |host: &str, protocol: &str| DraftRule {
        host: host.to_owned(),
        protocol: protocol.to_owned(),
        ..DraftRule::default()
    };
    let rules = vec![rule(LISTED, "https"), rule(CLEAR, "http")];
    let draft = DraftProfile { name: "self-test".to_owned(), rules, ..DraftProfile::default() };
    let profiles = Profiles::new(&[draft]).ok();
    let profile = profiles.as_ref().and_then(|profiles| profiles.find("self-test")).ok_or(ProxyError::Lost)?;
    let secret = Secret::new(b"value-of-the-self-test".to_vec()).map_err(|_| ProxyError::Lost)?;
    let credential = CallCredential { name: "self-test".to_owned(), placeholder: PLACEHOLDER.to_owned(), secret };
    let access = proxy.open(profile, sockets, &[credential], Budget::default())?;
    let tunnels =
        TUNNELS.map(|(attack, target)| (attack, format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")));
    let placeholder = format!("GET http://{CLEAR}/?{PLACEHOLDER} HTTP/1.1\r\nHost: {CLEAR}\r\n\r\n");
    let requests = tunnels.into_iter().chain([("a request with the placeholder of a credential", placeholder)]);
    for (attack, request) in requests {
        let got = first_line(addresses.proxy, &request).unwrap_or_else(|error| error.to_string());
        if !got.starts_with("HTTP/1.1 403 ") {
            return Err(ProxyError::SelfTest { attack, expected: "the status 403", got });
        }
    }
    let answers = [
        ("a question for an unlisted name", UNLISTED, "that there is no such name", code::NO_NAME, 0),
        ("a question for a listed name", LISTED, "one address", code::NO_ERROR, 1),
    ];
    for (attack, name, expected, code, count) in answers {
        match ask(addresses.name_server, name) {
            Ok(answer) if answer.code == code && answer.addresses.len() == count => {}
            other => return Err(ProxyError::SelfTest { attack, expected, got: format!("{other:?}") }),
        }
    }
    let report = access.close(TEST_TIMEOUT);
    let refused = report.connections.iter().filter(|connection| !connection.is_allowed).count();
    if refused != TUNNELS.len() + 2 {
        let got = format!("{report:?}");
        return Err(ProxyError::SelfTest { attack: "the account", expected: "each refusal", got });
    }
    Ok(())
}

struct Addresses {
    proxy: SocketAddr,
    name_server: SocketAddr,
}

fn sockets() -> io::Result<(CommandSockets, Addresses)> {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let (proxy, datagrams, listener) = (TcpListener::bind(any)?, UdpSocket::bind(any)?, TcpListener::bind(any)?);
    let addresses = Addresses { proxy: proxy.local_addr()?, name_server: datagrams.local_addr()? };
    let name_server = Some((datagrams, listener));
    Ok((
        CommandSockets { proxy, name_server, ports: Vec::new(), services: Vec::new(), base_urls: Vec::new() },
        addresses,
    ))
}

/// The first line of the answer to a request.
fn first_line(proxy: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&proxy, TEST_TIMEOUT)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

fn ask(server: SocketAddr, name: &str) -> io::Result<Answer> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(TEST_TIMEOUT))?;
    let query = dns::query(1, name, kind::A);
    socket.send(&query)?;
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer)?;
    let answer = dns::read_answer(buffer.get(..length).unwrap_or_default(), &query);
    answer.ok_or_else(|| io::Error::other("the answer is malformed"))
}

//! The network of this machine: its hosts file, its name servers, and connections.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use belay_network::Host;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::{Duration, timeout},
};

use crate::{
    dns::{self, Answer, code, kind},
    upstream::{Pending, Upstream},
};

/// The longest wait for one name server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of rounds in which all name servers are asked.
const ROUNDS: usize = 2;
/// The most name servers, as in the C library.
const MAX_SERVERS: usize = 3;
/// The longest answer over UDP: no more than 512 bytes are asked for.
const DATAGRAM: usize = 4096;

/// The network of this machine, as its files described it when this was made: a confined process cannot read them again.
#[derive(Clone, Debug, Default)]
pub struct HostUpstream {
    hosts: HashMap<String, Vec<IpAddr>>,
    servers: Vec<SocketAddr>,
}

impl HostUpstream {
    /// Reads the texts of `/etc/hosts` and `/etc/resolv.conf`. Lines that cannot be read are skipped, as the C library does.
    pub fn new(hosts: &str, resolv_conf: &str) -> Self {
        let mut by_name: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for mut words in lines(hosts) {
            let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
            for name in words {
                by_name.entry(name.to_ascii_lowercase()).or_default().push(address);
            }
        }
        let servers = lines(resolv_conf).filter_map(|mut words| match (words.next(), words.next()) {
            (Some("nameserver"), Some(address)) => address.parse().ok(),
            _ => None,
        });
        let mut servers: Vec<SocketAddr> =
            servers.take(MAX_SERVERS).map(|address: IpAddr| SocketAddr::new(address, 53)).collect();
        if servers.is_empty() {
            servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53));
        }
        Self { hosts: by_name, servers }
    }

    /// The same, with other name servers.
    pub fn with_servers(self, servers: Vec<SocketAddr>) -> Self {
        Self { servers, ..self }
    }

    async fn ask(&self, host: &Host) -> io::Result<Vec<IpAddr>> {
        let mut last = io::Error::new(io::ErrorKind::TimedOut, "no name server answered");
        for server in (0..ROUNDS).flat_map(|_| &self.servers) {
            let both = async { tokio::join!(question(*server, host, kind::A), question(*server, host, kind::AAAA)) };
            let (v4, v6) = match timeout(SERVER_TIMEOUT, both).await {
                Ok(answers) => answers,
                Err(_) => continue,
            };
            let mut addresses = Vec::new();
            let mut has_no_name = false;
            for answer in [v4, v6] {
                match answer {
                    Ok(answer) if answer.code == code::NO_ERROR => addresses.extend(answer.addresses),
                    Ok(answer) if answer.code == code::NO_NAME => has_no_name = true,
                    Ok(answer) => {
                        last = io::Error::other(format!("the name server answered with code {}", answer.code))
                    }
                    Err(error) => last = error,
                }
            }
            if !addresses.is_empty() {
                return Ok(addresses);
            }
            if has_no_name {
                return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such name"));
            }
        }
        Err(last)
    }
}

/// The words of each line, without comments.
fn lines(text: &str) -> impl Iterator<Item = std::str::SplitWhitespace<'_>> {
    text.lines().map(|line| line.split(['#', ';']).next().unwrap_or_default().split_whitespace())
}

async fn question(server: SocketAddr, host: &Host, kind: u16) -> io::Result<Answer> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
    let query = dns::query(u16::from_be_bytes(id), host.as_str(), kind);
    let socket = datagram_socket(server)?;
    socket.send(&query).await?;
    let mut buffer = vec![0; DATAGRAM];
    let answer = loop {
        let length = socket.recv(&mut buffer).await?;
        // What is no answer to this question was sent by someone else.
        if let Some(answer) = dns::read_answer(buffer.get(..length).unwrap_or_default(), &query) {
            break answer;
        }
    };
    if !answer.is_truncated {
        return Ok(answer);
    }
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), &query[..]].concat()).await?;
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    dns::read_answer(&message, &query).ok_or_else(|| io::Error::other("the name server's answer is malformed"))
}

/// A socket that takes datagrams of the server only. It is not bound, because a confined process must not be able to: connecting gives it a random port.
fn datagram_socket(server: SocketAddr) -> io::Result<UdpSocket> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    rustix::net::connect(&socket, &server)?;
    UdpSocket::from_std(std::net::UdpSocket::from(socket))
}

impl Upstream for HostUpstream {
    fn resolve<'a>(&'a self, host: &'a Host) -> Pending<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            match self.hosts.get(host.as_str()) {
                Some(addresses) => Ok(addresses.clone()),
                None => self.ask(host).await,
            }
        })
    }

    fn dial(&self, address: SocketAddr) -> Pending<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // Interactive protocols wait for small packets.
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_as_the_c_library_does() {
        let hosts =
            "127.0.0.1 localhost # here\n\n::1 localhost ip6-localhost\nbad line\n10.1.2.3\tDB.example.com db\n";
        let resolv_conf = "; comment\nsearch example.com\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver ::1\noptions rotate\n";
        let upstream = HostUpstream::new(hosts, resolv_conf);
        assert_eq!(upstream.servers, ["10.0.0.2:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(upstream.hosts["db.example.com"], ["10.1.2.3".parse::<IpAddr>().unwrap()]);
        assert_eq!(upstream.hosts["localhost"].len(), 2);
        assert_eq!(HostUpstream::new("", "").servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    /// A name server that answers with the address, over UDP cut and over TCP whole.
    #[tokio::test]
    async fn names_are_resolved_once_the_answer_is_whole() {
        // A port that is free for both.
        let (datagrams, listener) = loop {
            let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            if let Ok(listener) = tokio::net::TcpListener::bind(datagrams.local_addr().unwrap()).await {
                break (datagrams, listener);
            }
        };
        let server = datagrams.local_addr().unwrap();
        let answer = |message: &[u8], address| match dns::read_question(message) {
            dns::QuestionOutcome::Question(question) if question.kind == kind::A => {
                dns::answer(&question, 0, address, 1)
            }
            dns::QuestionOutcome::Question(question) => dns::answer(&question, 0, None, 1),
            other => panic!("{other:?}"),
        };
        let udp = async {
            let mut buffer = [0; 600];
            for _ in 0..2 {
                let (length, client) = datagrams.recv_from(&mut buffer).await.unwrap();
                let mut cut = answer(&buffer[..length], None);
                if buffer[length - 3] == 1 {
                    cut[2] |= 2;
                }
                datagrams.send_to(b"junk", client).await.unwrap();
                datagrams.send_to(&cut, client).await.unwrap();
            }
        };
        let tcp = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut message = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut message).await.unwrap();
            let whole = answer(&message, Some(Ipv4Addr::new(192, 0, 2, 7)));
            stream.write_u16(whole.len() as u16).await.unwrap();
            stream.write_all(&whole).await.unwrap();
        };
        let upstream = HostUpstream::new("", "").with_servers(vec![server]);
        let host = Host::parse("a.example.com").unwrap();
        let (found, (), ()) = tokio::join!(upstream.resolve(&host), udp, tcp);
        assert_eq!(found.unwrap(), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
    }
}

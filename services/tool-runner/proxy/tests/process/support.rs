//! A proxy, and the sockets of a call on loopback.

use std::{
    env,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    thread,
    time::Duration,
};

use belay_network::{DraftProfile, DraftRule, Profile, Profiles};
use belay_proxy::{CommandSockets, Proxy, ProxySettings, ServiceUser};

/// The answer to CONNECT.
pub(crate) const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\n";
/// The longest wait of these tests.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn executable() -> PathBuf {
    env::current_exe().unwrap()
}

pub(crate) fn proxy() -> Proxy {
    Proxy::start(&executable(), ServiceUser::default(), &ProxySettings::default()).unwrap()
}

/// The addresses of a call's sockets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) proxy: SocketAddr,
    pub(crate) dns: SocketAddr,
    /// The socket that stands for the port of the profile.
    pub(crate) port: u16,
    pub(crate) service: SocketAddr,
}

/// The sockets of a call; `port` is the port of the profile, and `service` the service of this machine.
pub(crate) fn sockets(port: u16, service: SocketAddr) -> (CommandSockets, Addresses) {
    let local = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (proxy, dns_tcp, of_service) = (local(), local(), local());
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let any = TcpListener::bind("0.0.0.0:0").unwrap();
    let addresses = Addresses {
        proxy: proxy.local_addr().unwrap(),
        dns: datagrams.local_addr().unwrap(),
        port: any.local_addr().unwrap().port(),
        service: of_service.local_addr().unwrap(),
    };
    let sockets = CommandSockets {
        proxy,
        name_server: Some((datagrams, dns_tcp)),
        ports: vec![(port, any)],
        services: vec![(service, of_service)],
        base_urls: Vec::new(),
    };
    (sockets, addresses)
}

/// A profile with `localhost` for tcp on this port, which may be private, the same name without that on the next port, and a service.
pub(crate) fn profile(port: u16, service: SocketAddr) -> Profile {
    let rule = |port: u16, private_addresses| DraftRule {
        host: "localhost".to_owned(),
        ports: vec![port.to_string()],
        protocol: "tcp".to_owned(),
        private_addresses,
        ..DraftRule::default()
    };
    let draft = DraftProfile {
        name: "tests".to_owned(),
        rules: vec![rule(port, true), rule(port + 1, false)],
        host_services: vec![service.to_string()],
        ..DraftProfile::default()
    };
    Profiles::new(&[draft]).unwrap().find("tests").unwrap().clone()
}

/// A profile with `localhost` for requests in clear text on this port.
pub(crate) fn web_profile(port: u16) -> Profile {
    let rule = DraftRule {
        host: "localhost".to_owned(),
        ports: vec![port.to_string()],
        protocol: "http".to_owned(),
        private_addresses: true,
        ..DraftRule::default()
    };
    let draft = DraftProfile { name: "web".to_owned(), rules: vec![rule], ..DraftProfile::default() };
    Profiles::new(&[draft]).unwrap().find("web").unwrap().clone()
}

/// A server that answers with what it receives.
pub(crate) fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// Connects, and sends.
pub(crate) fn send(to: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// A tunnel to the port of `localhost`, with an answer.
pub(crate) fn tunnel(proxy: SocketAddr, port: u16) -> TcpStream {
    let mut stream = send(proxy, &format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n\0ping"));
    let mut answer = vec![0; ESTABLISHED.len() + 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), format!("{ESTABLISHED}\0ping"));
    stream
}

/// Whether a connection is closed, or reset.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Everything that is answered.
pub(crate) fn answer(to: SocketAddr, text: &str) -> String {
    let mut stream = send(to, text);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    String::from_utf8(all).unwrap()
}

/// The address that the name server gives.
pub(crate) fn address_of(dns: SocketAddr, name: &str) -> [u8; 4] {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.len() as u8];
    message.extend(name.bytes());
    message.extend([0, 0, 1, 0, 1]);
    socket.send_to(&message, dns).unwrap();
    let mut buffer = [0; 512];
    let length = socket.recv(&mut buffer).unwrap();
    *buffer[..length].last_chunk().unwrap()
}

/// Waits until connections to an address are refused. `false`: they are not for long. A process that ends closes its sockets one after the other.
pub(crate) fn is_refused(address: SocketAddr) -> bool {
    (0..3_000).any(|_| {
        let is_refused = TcpStream::connect(address).is_err();
        if !is_refused {
            thread::sleep(Duration::from_millis(10));
        }
        is_refused
    })
}

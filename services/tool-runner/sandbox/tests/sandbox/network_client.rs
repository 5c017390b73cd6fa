//! The program that the tests of the network run in the sandbox: this binary, mounted there.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::ExitCode,
};

use belay_sandbox::{Mount, MountKind, Spec, WorkspaceMount};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, bind, listen, recv, send, socket, sockopt};

/// The argument that makes this binary the program.
pub(crate) const CLIENT: &str = "--in-the-network";

/// Its path in the view.
pub(crate) const PROGRAM: &str = "/opt/client";

/// A command that does these things one after the other, such as `connect 127.0.0.1:80`.
pub(crate) fn client(workspace: WorkspaceMount, what: &[&str]) -> Spec {
    let mut spec = Spec::new(PROGRAM, [CLIENT].iter().chain(what), workspace);
    spec.mounts.push(program());
    spec
}

/// The mount of the program.
pub(crate) fn program() -> Mount {
    let source = std::env::current_exe().unwrap().canonicalize().unwrap();
    Mount { source, target: PROGRAM.into(), kind: MountKind::ReadOnly }
}

/// Does what the arguments say, and prints the results, one a line.
pub(crate) fn run(what: &[String]) -> ExitCode {
    let mut words = what.iter().map(String::as_str);
    while let Some(verb) = words.next() {
        let mut word = || words.next().expect("the verb has an object");
        let result = match verb {
            "talk" => talk(word()),
            "connect" => TcpStream::connect(word()).map(|_| "connected".to_owned()),
            "ask" => ask(word(), word()),
            "send" => send_to(word()),
            "bind" => bind_all_ways(word()),
            "serve" => serve(word()),
            "change" => change(word()),
            other => panic!("`{other}` is not known"),
        };
        println!("{}", result.unwrap_or_else(|error| name(&error)));
    }
    ExitCode::SUCCESS
}

/// The name of an error that the tests expect, or its text.
fn name(error: &io::Error) -> String {
    let names = [
        (rustix::io::Errno::NETUNREACH, "ENETUNREACH"),
        (rustix::io::Errno::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (rustix::io::Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (rustix::io::Errno::ADDRINUSE, "EADDRINUSE"),
        (rustix::io::Errno::CONNREFUSED, "ECONNREFUSED"),
        (rustix::io::Errno::ACCESS, "EACCES"),
        (rustix::io::Errno::PERM, "EPERM"),
    ];
    let known = names.iter().find(|(number, _)| error.raw_os_error() == Some(number.raw_os_error()));
    known.map_or_else(|| error.to_string(), |(_, name)| (*name).to_owned())
}

/// Sends the address to it, and returns the answer.
fn talk(address: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(address.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    io::read_to_string(stream)
}

/// Asks by UDP, and returns the answer.
fn ask(address: &str, question: &str) -> io::Result<String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(address)?;
    socket.send(question.as_bytes())?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

fn send_to(address: &str) -> io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    let socket = match address.is_ipv4() {
        true => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        false => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.send_to(b"x", address).map(|_| "sent".to_owned())
}

/// Binds TCP and UDP sockets, with and without the options that let sockets share an address. Returns the errors of all, each once.
fn bind_all_ways(address: &str) -> io::Result<String> {
    let address: SocketAddr = address.parse().unwrap();
    let mut results = Vec::new();
    for kind in [SocketType::STREAM, SocketType::DGRAM] {
        for (reuses_address, reuses_port) in [(false, false), (true, false), (false, true), (true, true)] {
            let socket = socket(AddressFamily::INET, kind, None)?;
            sockopt::set_socket_reuseaddr(&socket, reuses_address)?;
            sockopt::set_socket_reuseport(&socket, reuses_port)?;
            let bound = bind(&socket, &address)
                .and_then(|()| if kind == SocketType::STREAM { listen(&socket, 1) } else { Ok(()) });
            results.push(bound.map_or_else(|error| name(&error.into()), |()| "bound".to_owned()));
        }
    }
    let (tcp, udp) = results.split_at(4);
    let once = |results: &[String]| {
        let mut results = results.to_vec();
        results.dedup();
        results.join(",")
    };
    Ok(format!("{} {}", once(tcp), once(udp)))
}

/// Listens, connects to itself, and returns what it received.
fn serve(address: &str) -> io::Result<String> {
    let listener = TcpListener::bind(address)?;
    let mut stream = TcpStream::connect((Ipv4Addr::new(127, 9, 8, 7), listener.local_addr()?.port()))?;
    stream.write_all(b"to itself")?;
    drop(stream);
    let mut text = String::new();
    listener.accept()?.0.read_to_string(&mut text)?;
    Ok(text)
}

/// Asks the kernel for a change of the network. Returns the kernel's refusal as an error.
fn change(what: &str) -> io::Result<String> {
    const REQUEST_AND_ACK: u16 = 0x1 | 0x4;
    const CREATE: u16 = 0x400;
    // An ifinfomsg: of the interface with index 1, the flag IFF_UP becomes 0.
    let down = [0_u32, 1, 0, 1].map(u32::to_ne_bytes).concat();
    // An ifaddrmsg: 127.77.0.1/8 of that interface.
    let address = [&[2, 8, 0, 0][..], &1_u32.to_ne_bytes(), &attribute(2, [127, 77, 0, 1])].concat();
    // A rtmsg: a route to 8.8.8.8 by that interface, in the main table, set by an administrator, to a link.
    let route = [
        &[2, 32, 0, 0, 254, 4, 253, 1, 0, 0, 0, 0][..],
        &attribute(1, [8, 8, 8, 8]),
        &attribute(4, 1_u32.to_ne_bytes()),
    ];
    let (kind, flags, body) = match what {
        "interface" => (16, REQUEST_AND_ACK, down),
        "address" => (20, REQUEST_AND_ACK | CREATE, address),
        "no-address" => (21, REQUEST_AND_ACK, address),
        "route" => (24, REQUEST_AND_ACK | CREATE, route.concat()),
        other => panic!("`{other}` is not known"),
    };
    // The default protocol is NETLINK_ROUTE.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let length = u32::try_from(16 + body.len()).unwrap();
    let header = [&length.to_ne_bytes()[..], &u16::to_ne_bytes(kind), &flags.to_ne_bytes(), &[0; 8]].concat();
    send(&socket, &[header, body].concat(), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // The header's 16 bytes, then the error, negated.
    match answer[..length].get(16..20).map(|error| i32::from_ne_bytes(error.try_into().unwrap())) {
        Some(0) => Ok("changed".to_owned()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("the answer is too short")),
    }
}

/// An attribute of a netlink message.
fn attribute(kind: u16, value: [u8; 4]) -> Vec<u8> {
    [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat()
}

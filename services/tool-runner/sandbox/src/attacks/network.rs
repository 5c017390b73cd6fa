//! Attacks on anything that listens outside the sandbox.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr as InternetAddress, TcpListener, TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    path::Path,
    time::Duration,
};

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

use super::attack::{Attack, Verdict};
use crate::{
    WORKSPACE,
    protocol::{SHOWN, SHOWN_SCRATCH},
};

pub(super) const ATTACKS: &[Attack] = &[
    ("connect to a TCP port of the host", |targets| {
        Verdict::any(loopbacks(targets.port).map(|address| {
            // A refusal takes far less than a second; the timeout bounds a listener whose queue is full.
            Verdict::of(TcpStream::connect_timeout(&address, Duration::from_secs(1)))
        }))
    }),
    ("reach the loopback of the host", |targets| {
        // Binding the same port shows that this is another network namespace: the host has a listener on it.
        match TcpListener::bind((Ipv4Addr::LOCALHOST, targets.port)) {
            Ok(_) => Verdict::Blocked("its own loopback".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Verdict::Possible(error.to_string()),
            Err(error) => Verdict::Blocked(error.to_string()),
        }
    }),
    ("reach the network by TCP or UDP", |_| {
        // Documentation addresses: without a network the calls fail at once.
        let addresses = [
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
        ];
        Verdict::any(
            addresses.into_iter().flat_map(|address| [unreachable_by_tcp(address), unreachable_by_udp(address)]),
        )
    }),
    ("send a broadcast packet", |_| {
        let send = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_broadcast(true)?;
            socket.send_to(b"x", (Ipv4Addr::BROADCAST, 9))
        };
        Verdict::of(send())
    }),
    ("connect to an abstract socket of the host", |targets| {
        let connect = || UnixStream::connect_addr(&SocketAddr::from_abstract_name(&targets.abstract_name)?);
        Verdict::of(connect())
    }),
    ("connect to a socket file of the host", |targets| Verdict::of(UnixStream::connect(&targets.socket))),
    ("connect to a socket in a folder of the host that it sees", |_| {
        Verdict::any([WORKSPACE, SHOWN, SHOWN_SCRATCH].map(|folder| {
            let folder = Path::new(folder);
            match folder.join("file").exists() && folder.join("socket").exists() {
                true => Verdict::of(UnixStream::connect(folder.join("socket"))),
                false => Verdict::Possible(format!("could not be attempted: {} is not shown", folder.display())),
            }
        }))
    }),
    ("open sockets that reach beyond its own network", |_| {
        use AddressFamily as F;
        let open = |family, kind| socket(family, kind, None).map_err(io::Error::from);
        // 38 is AF_ALG, 43 is AF_SMC.
        let families =
            [F::PACKET, F::VSOCK, F::BLUETOOTH, F::KEY, F::CAN, F::TIPC, F::XDP, F::from_raw(38), F::from_raw(43)];
        let foreign = families.map(|family| Verdict::of(open(family, SocketType::DGRAM)));
        let raw = [F::INET, F::INET6, F::PACKET].map(|family| Verdict::of(open(family, SocketType::RAW)));
        Verdict::any(foreign.into_iter().chain(raw))
    }),
    ("open administrative netlink sockets", |_| {
        let others = [
            netlink::KOBJECT_UEVENT,
            netlink::AUDIT,
            netlink::NETFILTER,
            netlink::XFRM,
            netlink::GENERIC,
            netlink::SOCK_DIAG,
        ];
        let open = |protocol: Protocol| {
            socket(AddressFamily::NETLINK, SocketType::RAW, Some(protocol)).map_err(io::Error::from)
        };
        Verdict::any(others.map(|protocol| Verdict::of(open(protocol))))
    }),
    ("change its own network", |_| match add_interface() {
        Ok(0) => Verdict::Possible("an interface was made".to_owned()),
        Ok(error) => Verdict::Blocked(io::Error::from_raw_os_error(error).to_string()),
        Err(error) => Verdict::Blocked(error.to_string()),
    }),
    ("find a network interface", |_| {
        // The table has two header lines.
        let table = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let names: Vec<&str> = table.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
        Verdict::expect(names == ["lo"], names.join(" "))
    }),
];

fn loopbacks(port: u16) -> [InternetAddress; 2] {
    [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
}

fn unreachable_by_tcp(address: IpAddr) -> Verdict {
    match TcpStream::connect_timeout(&(address, 80).into(), Duration::from_millis(200)) {
        Err(error) if error.kind() != io::ErrorKind::TimedOut => Verdict::Blocked(error.to_string()),
        Err(error) => Verdict::Possible(format!("{address} has a route: {error}")),
        Ok(_) => Verdict::Possible(format!("{address} answers")),
    }
}

fn unreachable_by_udp(address: IpAddr) -> Verdict {
    let unspecified =
        if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let send = || UdpSocket::bind((unspecified, 0))?.send_to(b"x", (address, 53));
    Verdict::of(send())
}

/// Asks the kernel to create a dummy interface. Returns its answer as an error number.
fn add_interface() -> io::Result<i32> {
    // The default protocol is NETLINK_ROUTE.
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    const RTM_NEWLINK: u16 = 16;
    // REQUEST, ACK, EXCL and CREATE.
    const FLAGS: u16 = 0x1 | 0x4 | 0x200 | 0x400;
    let mut attributes = vec![12, 0, 18, 0, 9, 0, 1, 0];
    attributes.extend_from_slice(b"dummy\0\0\0");
    attributes[0] = attributes.len() as u8;
    let mut request = Vec::new();
    request.extend_from_slice(&(32 + attributes.len() as u32).to_ne_bytes());
    request.extend_from_slice(&RTM_NEWLINK.to_ne_bytes());
    request.extend_from_slice(&FLAGS.to_ne_bytes());
    // Sequence number and sender, then an ifinfomsg of zeroes.
    request.extend_from_slice(&[0; 8 + 16]);
    request.extend_from_slice(&attributes);
    send(&socket, &request, SendFlags::empty())?;
    let mut answer = [0_u8; 1024];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // The header's 16 bytes, then the error, negated.
    let error = answer[..length].get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    error.map(i32::wrapping_neg).ok_or_else(|| io::Error::other("the answer is too short"))
}

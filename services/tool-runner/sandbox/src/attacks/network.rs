//! Anything beyond the command's own processes that listens.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpStream},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
};

use rustix::net::{AddressFamily, SocketType, socket};

use super::{Attack, Verdict};

pub(super) const ATTACKS: &[Attack] = &[
    ("connect to a TCP port of the host", |targets| {
        Verdict::of(TcpStream::connect((Ipv4Addr::LOCALHOST, targets.port)))
    }),
    ("connect to an abstract socket of the host", |targets| {
        let connect = || UnixStream::connect_addr(&SocketAddr::from_abstract_name(&targets.abstract_name)?);
        Verdict::of(connect())
    }),
    ("connect to a socket file of the host", |targets| Verdict::of(UnixStream::connect(&targets.socket))),
    ("open sockets that are not local", |_| {
        use AddressFamily as F;
        let open = |family| socket(family, SocketType::DGRAM, None).map_err(io::Error::from);
        Verdict::any(
            [F::INET, F::INET6, F::NETLINK, F::PACKET, F::VSOCK, F::BLUETOOTH].map(|family| Verdict::of(open(family))),
        )
    }),
    ("find a network interface", |_| {
        // A table with two lines of heading; an empty network has the loopback interface only, and that is down.
        let table = fs::read_to_string("/proc/net/dev").unwrap_or_default();
        let names: Vec<&str> = table.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
        Verdict::expect(names == ["lo"], names.join(" "))
    }),
];

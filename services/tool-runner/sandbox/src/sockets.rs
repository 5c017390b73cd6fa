//! Init's part in the network of a command: makes its sockets, and hands them to the runner.
//!
//! Init has all capabilities in the namespace, so ports below 1024 are no exception. The command has none.

use std::{
    io::{self, PipeReader, Read as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::{
    connection::send_message,
    error::KILLED,
    layer::Layer,
    network::SocketAddresses,
    protocol::{Context as _, Failure, Message},
    sys,
};

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Makes each socket, in the order that [`SocketAddresses::sort`] expects, hands it to the runner, and waits until the runner has all. This process keeps none,
/// so the command cannot inherit any.
pub(crate) fn hand_over(
    addresses: &SocketAddresses,
    runner: &UnixStream,
    mut received: PipeReader,
) -> Result<(), Failure> {
    let hand = |address: SocketAddr, kind: SocketType| -> Result<(), Failure> {
        let socket = open(address, kind)
            .at(Layer::Network, || format!("making the socket at {address} in the namespace of the command"))?;
        send_message(runner, &Message::Socket, socket.as_fd())
            .at(Layer::Network, || format!("handing the socket at {address} to the runner"))
    };
    if let Some(IpAddr::V4(address)) = addresses.name_server.map(|server| server.ip())
        && address != Ipv4Addr::LOCALHOST
    {
        // The C library regards 127.0.0.1 as no address of an interface. With that alone it resolves nothing for a program that asks for addresses of
        // IPv4 where the machine has such a one (AI_ADDRCONFIG).
        sys::add_loopback_address(address)
            .at(Layer::Network, || format!("giving the loopback interface the address {address}"))?;
    }
    addresses.listen.iter().try_for_each(|address| hand(*address, SocketType::STREAM))?;
    addresses.name_server.iter().try_for_each(|address| {
        hand(*address, SocketType::DGRAM)?;
        hand(*address, SocketType::STREAM)
    })?;
    if addresses.count() == 0 {
        return Ok(());
    }
    match received.read(&mut [0]).at(Layer::Network, || "waiting for the receipt of the sockets".to_owned())? {
        // The runner has given up, or is gone.
        0 => Err(Failure::Layer(Layer::Network, "the sockets were not received".to_owned(), KILLED)),
        _ => Ok(()),
    }
}

/// A socket at this address, which listens if it is one of TCP. Without SO_REUSEADDR and SO_REUSEPORT no socket of the command gets the address as well.
fn open(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &address)?;
    if kind == SocketType::STREAM {
        listen(&socket, BACKLOG)?;
    }
    Ok(socket)
}

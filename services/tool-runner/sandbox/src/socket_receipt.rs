//! The runner's receipt of the sockets of a command, whose program starts only once all of them are here.

use std::{
    io::{self, PipeReader, PipeWriter, Write as _},
    os::fd::OwnedFd,
};

use crate::network::{NetworkSockets, SocketAddresses};

/// The sockets of a command that have arrived.
pub(crate) struct SocketReceipt {
    addresses: SocketAddresses,
    sockets: Vec<OwnedFd>,
    /// Tells init to start the program. Closed without a word, it has init give up.
    release: PipeWriter,
}

impl SocketReceipt {
    /// A receipt of sockets at these addresses, and the end of the pipe on which init waits for all of them to be received.
    pub(crate) fn new(addresses: SocketAddresses) -> io::Result<(Self, PipeReader)> {
        let (released, release) = io::pipe()?;
        Ok((Self { addresses, sockets: Vec::new(), release }, released))
    }

    /// Takes the next socket. `None`: its descriptor was lost on the way, because this process has no room for more.
    pub(crate) fn take(&mut self, socket: Option<OwnedFd>) -> io::Result<()> {
        self.sockets.push(socket.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?);
        if self.sockets.len() < self.addresses.count() {
            return Ok(());
        }
        match self.release.write_all(&[0]) {
            // Init has gone, and has said why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            told => told,
        }
    }

    /// The sockets, unless one is missing.
    pub(crate) fn into_sockets(self) -> Option<NetworkSockets> {
        self.addresses.sort(self.sockets)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::UdpSocket};

    use super::*;

    fn socket() -> OwnedFd {
        UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    fn receipt() -> (SocketReceipt, PipeReader) {
        let listen = vec!["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()];
        SocketReceipt::new(SocketAddresses { listen, name_server: None }).unwrap()
    }

    #[test]
    fn the_last_socket_releases_the_command() {
        let (mut receipt, mut released) = receipt();
        receipt.take(Some(socket())).unwrap();
        receipt.take(Some(socket())).unwrap();
        assert_eq!(receipt.into_sockets().unwrap().listeners.len(), 2);
        let mut told = Vec::new();
        released.read_to_end(&mut told).unwrap();
        assert_eq!(told, [0]);
    }

    #[test]
    fn a_missing_socket_never_releases_it() {
        let (mut receipt, mut released) = receipt();
        receipt.take(Some(socket())).unwrap();
        assert_eq!(receipt.take(None).unwrap_err().raw_os_error(), Some(libc::EMFILE));
        assert!(receipt.into_sockets().is_none());
        let mut told = Vec::new();
        released.read_to_end(&mut told).unwrap();
        assert!(told.is_empty(), "init is told by the end of the pipe");
    }

    #[test]
    fn an_init_that_has_gone_is_no_error() {
        let (mut receipt, released) = receipt();
        drop(released);
        receipt.take(Some(socket())).unwrap();
        receipt.take(Some(socket())).unwrap();
    }
}

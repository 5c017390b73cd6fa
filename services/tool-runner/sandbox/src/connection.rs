//! The frames of the connection between runner and launcher, with their descriptors.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::{
    protocol::Message,
    wire::{Wire, frame, frame_length, unframe},
};

/// Sends a frame, with a descriptor attached to its header.
pub(crate) fn send(control: &mut UnixStream, frame: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let (header, body) = frame.split_at(4);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)), "the buffer has space for one descriptor");
    }
    // Four bytes are sent as a whole or not at all.
    sendmsg(&*control, &[IoSlice::new(header)], &mut ancillary, SendFlags::NOSIGNAL)?;
    control.write_all(body)
}

/// Sends a small message with a descriptor in one write: launcher and init write to the same socket.
pub(crate) fn send_message(runner: &UnixStream, message: &Message, fd: BorrowedFd<'_>) -> io::Result<()> {
    let bytes = frame(message);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "the buffer has space for one descriptor");
    sendmsg(runner, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message and its descriptor. `None`: the connection is closed.
pub(crate) fn receive<T: Wire>(control: &mut UnixStream) -> io::Result<Option<(T, Option<OwnedFd>)>> {
    let mut header = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    match recvmsg(&*control, &mut [IoSliceMut::new(&mut header)], &mut ancillary, flags) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(got) if got.bytes < header.len() => return Ok(None),
        Ok(_) => {}
    }
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(read_body(control, header)?.map(|message| (message, fd)))
}

/// The next message from the launcher, without a descriptor. `None`: the connection is closed.
pub(crate) fn read<T: Wire>(control: &mut UnixStream) -> io::Result<Option<T>> {
    let mut header = [0; 4];
    match control.read_exact(&mut header) {
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        read => read?,
    }
    read_body(control, header)
}

/// The rest of a frame whose header has been read.
fn read_body<T: Wire>(control: &mut UnixStream, header: [u8; 4]) -> io::Result<Option<T>> {
    let mut body = vec![0; frame_length(header)];
    control.read_exact(&mut body)?;
    unframe(&body).map(Some).ok_or_else(|| io::Error::other("the launcher sent an invalid message"))
}

//! The frames between runner and proxy, which are the same binary: a length, JSON, and descriptors with the length.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
};

use belay_network::{MAX_SECRET, Profile, Secret, UpstreamProxy};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    asking::{HostAnswer, HostQuestion},
    budget::Budget,
    injection::CallCredential,
    report::Report,
};

/// The largest frame.
const MAX_FRAME: usize = 16 << 20;
/// The most descriptors of a frame: a profile has at most 64 ports and services.
const MAX_DESCRIPTORS: usize = 128;

/// A request of the runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The call, by a number that is never used again.
    pub(crate) call: u64,
    /// The request.
    pub(crate) body: RequestBody,
}

/// The kinds of requests.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestBody {
    /// Opens the network of a call. The descriptors are those of its sockets, in the order of the fields.
    Open {
        profile: Box<Profile>,
        budget: Budget,
        has_name_server: bool,
        ports: Vec<u16>,
        services: Vec<SocketAddr>,
        base_urls: usize,
        /// The credentials, whose values follow the frame in this order.
        credentials: Vec<CredentialHead>,
    },
    /// Serves one request of a tool. The descriptor is the proxy's end of a connected pair.
    Serve {
        profile: Box<Profile>,
        budget: Budget,
        /// As for `Open`.
        credentials: Vec<CredentialHead>,
    },
    /// Answers a question of the call about a host.
    Answer { number: u64, answer: HostAnswer },
    /// Closes it.
    Close,
}

/// The operator's settings of a proxy, which are the runner's first message to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxySettings {
    /// Certificate authorities (PEM) that it trusts besides those of this machine.
    pub authorities: Vec<String>,
    /// The proxy behind which hosts are reached; `None`: directly.
    pub upstream: Option<UpstreamProxy>,
    /// Files and sockets of the services, each of which it tries to open once it is confined: it does not start if it can.
    pub closed: Vec<PathBuf>,
}

/// A credential of a call without its value.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialHead {
    /// Its name.
    pub(crate) name: String,
    /// The text that the command has instead of the value.
    pub(crate) placeholder: String,
    /// The length of the value, in bytes.
    pub(crate) length: usize,
}

/// A message of the proxy.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// It has confined itself, and is ready.
    Ready {
        /// What confines it.
        enforced: Vec<String>,
        /// The certificate of its authority (PEM).
        certificate: String,
    },
    /// It cannot serve.
    Failed { message: String },
    /// The network of the call is open.
    Opened { call: u64 },
    /// It is not.
    Refused { call: u64, message: String },
    /// The call asks about a host.
    Asks { call: u64, question: HostQuestion },
    /// It is closed.
    Closed { call: u64, report: Report },
}

/// Writes a message as a frame.
pub(crate) fn encoded(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    if length > MAX_FRAME {
        return Err(io::Error::other(format!("the message has {length} bytes, but the limit is {MAX_FRAME}")));
    }
    if let Some(header) = bytes.first_chunk_mut::<4>() {
        *header = (length as u32).to_le_bytes();
    }
    Ok(bytes)
}

/// Sends a frame with descriptors. Blocks.
pub(crate) fn send(to: &UnixStream, frame: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let (header, body) = frame.split_at(4.min(frame.len()));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other(format!("a call has at most {MAX_DESCRIPTORS} sockets")));
    }
    // Four bytes are sent as a whole or not at all.
    sendmsg(to, &[IoSlice::new(header)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut stream = to;
    stream.write_all(body)
}

/// Receives the header of a frame, which is the length of its body, and its descriptors. `None`: the connection is closed.
fn receive_header(from: impl AsFd) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut header = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = match recvmsg(from, &mut [IoSliceMut::new(&mut header)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        received => received?.bytes,
    };
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    match received {
        0 => Ok(None),
        4 => {
            let length = u32::from_le_bytes(header) as usize;
            if length > MAX_FRAME { Err(io::Error::other("a frame is too long")) } else { Ok(Some((length, fds))) }
        }
        _ => Err(io::Error::other("the header of a frame is incomplete")),
    }
}

/// Receives a message. Blocks. `None`: the connection is closed.
pub(crate) fn receive<T: DeserializeOwned>(from: &UnixStream) -> io::Result<Option<T>> {
    let Some((length, _)) = receive_header(from)? else { return Ok(None) };
    let mut body = vec![0; length];
    let mut stream = from;
    stream.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

/// The same in a task of tokio, with the descriptors.
pub(crate) async fn receive_async<T: DeserializeOwned>(
    from: &mut tokio::net::UnixStream,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    use tokio::io::{AsyncReadExt as _, Interest};
    let received = from.async_io(Interest::READABLE, || receive_header(&*from)).await?;
    let Some((length, fds)) = received else { return Ok(None) };
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    Ok(Some((serde_json::from_slice(&body)?, fds)))
}

/// Receives the values that follow a frame. They are in no buffer of this function afterwards.
pub(crate) async fn receive_values(
    from: &mut tokio::net::UnixStream,
    heads: Vec<CredentialHead>,
) -> io::Result<Vec<CallCredential>> {
    use tokio::io::AsyncReadExt as _;
    let mut credentials = Vec::new();
    for CredentialHead { name, placeholder, length } in heads {
        if length > MAX_SECRET {
            return Err(io::Error::other("the value of a credential is too long"));
        }
        let mut value = vec![0; length];
        from.read_exact(&mut value).await?;
        let secret = Secret::new(value).map_err(|problem| io::Error::other(problem.to_string()))?;
        credentials.push(CallCredential { name, placeholder, secret });
    }
    Ok(credentials)
}

/// Sends a message in a task of tokio.
pub(crate) async fn send_async(to: &mut tokio::net::UnixStream, message: &impl Serialize) -> io::Result<()> {
    use tokio::io::AsyncWriteExt as _;
    to.write_all(&encoded(message)?).await
}

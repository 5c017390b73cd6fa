//! A connection of the command, with the bytes of it that were read and not passed on.

use std::{future::Future, io};

use belay_network::Host;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    time::{Duration, timeout},
};
use tokio_rustls::server::TlsStream;

use crate::{
    budget::Budget,
    denial::Denial,
    head::{Head, HeadProblem, HeadState, HostHeader, head_state, read_head, read_tool_head},
    hello::{Hello, HelloProblem, read_client_hello},
    replayed::ReplayedStream,
};

/// The bytes that are read at a time.
const CHUNK: usize = 16 << 10;
/// The longest time for a refusal to be taken, and for a client to stop sending.
const FAREWELL: Duration = Duration::from_secs(2);
/// The most bytes that are read and dropped after the last answer.
const MAX_DRAINED: usize = 1 << 20;
/// The alert with which a TLS client is refused: fatal, `access_denied`.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// The header that only the proxy sets, on its own answers: whether the host may have got the request. It is removed from what hosts answer.
pub const OWN_ANSWER: &str = "belay-proxy";

/// The stream of a command, in clear text or inside of TLS, or that of a tool.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Returns when there is something to read, or at once where that is not known.
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send;
}

impl ClientStream for TcpStream {
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::readable(self)
    }
}

impl ClientStream for UnixStream {
    fn readable(&self) -> impl Future<Output = io::Result<()>> + Send {
        Self::readable(self)
    }
}

impl ClientStream for TlsStream<ReplayedStream<TcpStream>> {
    async fn readable(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection of the command.
pub(crate) struct Inbound<S = TcpStream> {
    pub(crate) stream: S,
    /// The bytes that were read of it and not passed on.
    pub(crate) bytes: Vec<u8>,
}

/// The outcome of waiting for the first bytes.
pub(crate) enum FirstMessage<T> {
    /// They are there.
    Complete(T),
    /// They cannot become what is waited for.
    Problem(HeadProblem),
    /// The client has closed, or failed.
    Closed,
}

impl<S: ClientStream> Inbound<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// Reads more bytes. `false`: the client has closed.
    async fn read_more(&mut self) -> io::Result<bool> {
        // Nothing is allocated before there is something to read.
        self.stream.readable().await?;
        self.bytes.reserve(CHUNK);
        Ok(self.stream.read_buf(&mut self.bytes).await? > 0)
    }

    /// Reads the first byte without taking it. `None`: the client has closed, or did not send in time.
    pub(crate) async fn first_byte(&mut self, budget: &Budget) -> Option<u8> {
        let read = async {
            while self.bytes.is_empty() {
                if !self.read_more().await.unwrap_or(false) {
                    return None;
                }
            }
            self.bytes.first().copied()
        };
        timeout(budget.head_time, read).await.ok().flatten()
    }

    /// Reads the head of a request. Its bytes stay.
    pub(crate) async fn head(&mut self, budget: &Budget) -> FirstMessage<(Head, usize)> {
        self.head_with(budget, HostHeader::Named).await
    }

    /// The same with this meaning of the `Host` header.
    pub(crate) async fn head_with(&mut self, budget: &Budget, meaning: HostHeader) -> FirstMessage<(Head, usize)> {
        self.head_by(budget, |head| read_head(head, budget.headers, meaning)).await
    }

    /// Reads the head of a request that the runner makes for a tool.
    pub(crate) async fn tool_head(&mut self, budget: &Budget) -> FirstMessage<(Head, usize)> {
        self.head_by(budget, |head| read_tool_head(head, budget.headers)).await
    }

    async fn head_by(
        &mut self,
        budget: &Budget,
        read_head: impl Fn(&[u8]) -> Result<Head, HeadProblem>,
    ) -> FirstMessage<(Head, usize)> {
        let read = async {
            let mut from = 0;
            loop {
                match head_state(&self.bytes, from, budget.header_bytes) {
                    HeadState::Complete(length) => {
                        let head = self.bytes.get(..length).unwrap_or_default();
                        return match read_head(head) {
                            Ok(head) => FirstMessage::Complete((head, length)),
                            Err(problem) => FirstMessage::Problem(problem),
                        };
                    }
                    HeadState::Problem(problem) => return FirstMessage::Problem(problem),
                    HeadState::Incomplete => {}
                }
                from = self.bytes.len();
                if !self.read_more().await.unwrap_or(false) {
                    return FirstMessage::Closed;
                }
            }
        };
        timeout(budget.head_time, read).await.unwrap_or_else(|_| {
            let message = format!("the head of the request was not complete in {:?}", budget.head_time);
            FirstMessage::Problem(HeadProblem { status: 408, message, host: None })
        })
    }

    /// Reads a TLS ClientHello. Its bytes stay. `None`: the client has closed, or did not send in time.
    pub(crate) async fn client_hello(&mut self, budget: &Budget) -> Option<Result<Host, HelloProblem>> {
        // Each record adds a header.
        let most = 2 * budget.header_bytes;
        let read = async {
            loop {
                match read_client_hello(&self.bytes, budget.header_bytes) {
                    Hello::Name(host) => return Some(Ok(host)),
                    Hello::Problem(problem) => return Some(Err(problem)),
                    Hello::Incomplete if self.bytes.len() > most => return Some(Err(HelloProblem::TooLong)),
                    Hello::Incomplete => {}
                }
                if !self.read_more().await.unwrap_or(false) {
                    return None;
                }
            }
        };
        timeout(budget.head_time, read).await.ok().flatten()
    }

    /// Answers with a status and its sentence, and closes.
    pub(crate) async fn refuse(self, denial: &Denial) {
        let answer = refusal(denial);
        self.close_with(answer.as_bytes()).await;
    }

    /// Answers a TLS client with an alert, and closes.
    pub(crate) async fn refuse_tls(self) {
        self.close_with(&ACCESS_DENIED).await;
    }

    async fn close_with(mut self, bytes: &[u8]) {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        // That the client does not take it changes nothing.
        if let Ok(Ok(())) = timeout(FAREWELL, write).await {
            self.linger().await;
        }
    }

    /// Closes after what was written, and reads what the client still sends: closing before it is read would take back what was written.
    pub(crate) async fn linger(mut self) {
        let drain = async {
            self.stream.shutdown().await?;
            let mut drained = 0;
            while drained < MAX_DRAINED {
                self.bytes.clear();
                if !self.read_more().await? {
                    break;
                }
                drained += self.bytes.len();
            }
            io::Result::Ok(())
        };
        let _ = timeout(FAREWELL, drain).await;
    }
}

/// The answer to a refused request. The sentence is also in the first line, which is what most clients show.
pub(crate) fn refusal(Denial { status, message }: &Denial) -> String {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Refused",
    };
    // Nothing of the request has been sent.
    let what = if *status < 500 { "refused" } else { "unreached" };
    let line: String = message.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect();
    let length = message.len() + 1;
    format!(
        "HTTP/1.1 {status} {reason}: {line}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n{OWN_ANSWER}: {what}\r\n\r\n{message}\n"
    )
}

//! The runner's side: starts the proxy, hands it the sockets of calls, and receives their accounts.

use std::{
    collections::HashMap,
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use belay_network::Profile;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zeroize::Zeroizing;

use crate::{
    access::CommandSockets,
    asking::{HostAnswer, HostQuestion},
    budget::Budget,
    error::ProxyError,
    injection::CallCredential,
    report::Report,
    role,
    wire::{self, CredentialHead, ProxySettings, Reply, Request, RequestBody},
};

/// The longest time until the process is ready, and until it has opened the network of a call.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The most sockets of a call: those of the proxy and the name server, and 64 ports and services.
const MAX_SOCKETS: usize = 67;

/// The user that the proxy becomes when the runner is root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceUser {
    /// Its user id.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
}

impl Default for ServiceUser {
    fn default() -> Self {
        Self { uid: 65533, gid: 65533 }
    }
}

/// A running proxy process. Dropping this ends the process, and so does the end of the runner; then every network that it served is closed.
#[derive(Debug)]
pub(crate) struct ProxyProcess {
    connection: Arc<Connection>,
    enforced: Vec<String>,
    certificate: String,
    child: Child,
}

#[derive(Debug)]
struct Connection {
    control: UnixStream,
    /// Held while a request is written, so that two do not mix.
    writing: Mutex<()>,
    /// The calls whose answers are awaited.
    waiting: Mutex<HashMap<u64, WaitingCall>>,
    is_alive: AtomicBool,
    next_call: AtomicU64,
}

/// What a call waits for.
#[derive(Debug)]
struct WaitingCall {
    replies: Sender<Reply>,
    asked: UnboundedSender<HostQuestion>,
}

/// The questions of a call about hosts, and their answers.
#[derive(Debug)]
pub struct AskedHosts {
    connection: Arc<Connection>,
    call: u64,
    asked: UnboundedReceiver<HostQuestion>,
}

/// The open network of one call. Dropping this closes it, like [`OpenAccess::close`], without its account.
#[derive(Debug)]
pub struct OpenAccess {
    connection: Arc<Connection>,
    call: u64,
    replies: Receiver<Reply>,
    asked: Option<UnboundedReceiver<HostQuestion>>,
    is_closed: bool,
}

impl ProxyProcess {
    /// Executes this binary as the proxy, and waits until it has confined itself.
    pub(crate) fn start(executable: &Path, user: ServiceUser, settings: &ProxySettings) -> Result<Self, ProxyError> {
        if !role::can_start() {
            return Err(ProxyError::NotReady);
        }
        let failed = |doing| move |source| ProxyError::Start { doing, source };
        let (control, theirs) = UnixStream::pair().map_err(failed("creating a socket"))?;
        let mut child = Command::new(executable)
            .arg0(role::PROXY)
            .args([user.uid.to_string(), user.gid.to_string()])
            .env_clear()
            // A terminal sends its signals to the process group of the runner.
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(failed("executing this binary"))?;
        match first_message(&control, settings) {
            Ok(Reply::Ready { enforced, certificate }) => {
                let connection = Arc::new(Connection {
                    control,
                    writing: Mutex::default(),
                    waiting: Mutex::default(),
                    is_alive: AtomicBool::new(true),
                    next_call: AtomicU64::new(1),
                });
                let reader = Arc::clone(&connection);
                let started = thread::Builder::new().name("belay-network".to_owned()).spawn(move || reader.read());
                let process = Self { connection, enforced, certificate, child };
                started.map_err(failed("starting a thread"))?;
                Ok(process)
            }
            other => {
                end(&mut child);
                Err(match other {
                    Ok(Reply::Failed { message }) => ProxyError::Confinement { message },
                    Ok(_) => ProxyError::Lost,
                    Err(source) => ProxyError::Start { doing: "waiting until it is ready", source },
                })
            }
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.connection.is_alive.load(Ordering::Acquire)
    }

    pub(crate) fn enforced(&self) -> Vec<String> {
        self.enforced.clone()
    }

    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn open(
        &self,
        profile: &Profile,
        sockets: CommandSockets,
        credentials: &[CallCredential],
        budget: Budget,
    ) -> Result<OpenAccess, ProxyError> {
        let known = |address| profile.host_services.iter().any(|(known, _)| *known == address);
        if let Some((address, _)) = sockets.services.iter().find(|(address, _)| !known(*address)) {
            return Err(ProxyError::UnknownService { profile: profile.name.clone(), address: *address });
        }
        let body = RequestBody::Open {
            profile: Box::new(profile.clone()),
            budget,
            has_name_server: sockets.name_server.is_some(),
            ports: sockets.ports.iter().map(|(port, _)| *port).collect(),
            services: sockets.services.iter().map(|(address, _)| *address).collect(),
            base_urls: sockets.base_urls.len(),
            credentials: credentials.iter().map(head).collect(),
        };
        let mut fds = vec![sockets.proxy.as_fd()];
        if let Some((datagrams, listener)) = &sockets.name_server {
            fds.extend([datagrams.as_fd(), listener.as_fd()]);
        }
        fds.extend(sockets.ports.iter().map(|(_, listener)| listener.as_fd()));
        fds.extend(sockets.services.iter().map(|(_, listener)| listener.as_fd()));
        fds.extend(sockets.base_urls.iter().map(|listener| listener.as_fd()));
        if fds.len() > MAX_SOCKETS {
            let message = format!("it has {} sockets, but the limit is {MAX_SOCKETS}", fds.len());
            return Err(ProxyError::Refused { message });
        }
        let access = self.send(body, &fds, credentials)?;
        // The proxy has the only copies now.
        drop(fds);
        drop(sockets);
        self.opened(access)
    }

    pub(crate) fn serve_tool(
        &self,
        profile: &Profile,
        client: UnixStream,
        credentials: &[CallCredential],
        budget: Budget,
    ) -> Result<OpenAccess, ProxyError> {
        let credential_heads = credentials.iter().map(head).collect();
        let body = RequestBody::Serve { profile: Box::new(profile.clone()), budget, credentials: credential_heads };
        let access = self.send(body, &[client.as_fd()], credentials)?;
        // The proxy has the only copy now.
        drop(client);
        self.opened(access)
    }

    /// Sends the request for a new call.
    fn send(
        &self,
        body: RequestBody,
        fds: &[BorrowedFd<'_>],
        credentials: &[CallCredential],
    ) -> Result<OpenAccess, ProxyError> {
        let call = self.connection.next_call.fetch_add(1, Ordering::Relaxed);
        let access = self.connection.expect(call);
        // Allocated once: a vector that grows leaves copies behind.
        let length = credentials.iter().map(|known| known.secret.expose().len()).sum();
        let mut values = Zeroizing::new(Vec::with_capacity(length));
        credentials.iter().for_each(|known| values.extend_from_slice(known.secret.expose()));
        self.connection.send(&Request { call, body }, fds, &values)?;
        Ok(access)
    }

    /// Waits until the proxy serves the call.
    fn opened(&self, access: OpenAccess) -> Result<OpenAccess, ProxyError> {
        match access.replies.recv_timeout(REPLY_TIMEOUT) {
            Ok(Reply::Opened { .. }) => Ok(access),
            Ok(Reply::Refused { message, .. }) => Err(ProxyError::Refused { message }),
            Err(RecvTimeoutError::Timeout) => {
                // One that does not answer is given up with everything that it has open, so that the next call starts another.
                self.connection.end();
                Err(ProxyError::NoReply { seconds: REPLY_TIMEOUT.as_secs() })
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(ProxyError::Lost),
        }
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        self.connection.end();
        end(&mut self.child);
    }
}

fn head(credential: &CallCredential) -> CredentialHead {
    let CallCredential { name, placeholder, secret } = credential;
    CredentialHead { name: name.clone(), placeholder: placeholder.clone(), length: secret.expose().len() }
}

fn first_message(control: &UnixStream, settings: &ProxySettings) -> io::Result<Reply> {
    control.set_read_timeout(Some(REPLY_TIMEOUT))?;
    wire::send(control, &wire::encoded(settings)?, &[])?;
    let first = wire::receive(control)?;
    control.set_read_timeout(None)?;
    // A process that reads nothing any more holds no runner.
    control.set_write_timeout(Some(REPLY_TIMEOUT))?;
    first.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the process has ended"))
}

/// Kills the process, which holds nothing that outlives it, and reaps it.
fn end(child: &mut Child) {
    // It has ended already, or will by the signal.
    let _ = child.kill();
    let _ = child.wait();
}

impl Connection {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, WaitingCall>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a call, which receives its answers.
    fn expect(self: &Arc<Self>, call: u64) -> OpenAccess {
        let (sender, replies) = mpsc::channel();
        let (asking, asked) = unbounded_channel();
        self.waiting().insert(call, WaitingCall { replies: sender, asked: asking });
        // The reader may have ended before.
        if !self.is_alive.load(Ordering::Acquire) {
            self.waiting().clear();
        }
        OpenAccess { connection: Arc::clone(self), call, replies, asked: Some(asked), is_closed: false }
    }

    /// Sends a request, and the values that follow it.
    fn send(&self, request: &Request, fds: &[BorrowedFd<'_>], values: &[u8]) -> Result<(), ProxyError> {
        let frame = wire::encoded(request).map_err(|error| ProxyError::Refused { message: error.to_string() })?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut control = &self.control;
        let sent = wire::send(control, &frame, fds).and_then(|()| control.write_all(values));
        sent.map_err(|_| {
            // A frame that was sent in part makes the next ones unreadable.
            self.end();
            ProxyError::Lost
        })
    }

    /// Receives answers until the process has ended.
    fn read(&self) {
        while let Ok(Some(reply)) = wire::receive::<Reply>(&self.control) {
            let call = match &reply {
                Reply::Asks { call, question } => {
                    if let Some(waiting) = self.waiting().get(call) {
                        // The one who answers may be gone.
                        let _ = waiting.asked.send(question.clone());
                    }
                    continue;
                }
                Reply::Opened { call } | Reply::Refused { call, .. } | Reply::Closed { call, .. } => *call,
                Reply::Ready { .. } | Reply::Failed { .. } => break,
            };
            if let Some(waiting) = self.waiting().get(&call) {
                // The one who waited may be gone.
                let _ = waiting.replies.send(reply);
            }
        }
        self.end();
        self.waiting().clear();
    }

    fn end(&self) {
        self.is_alive.store(false, Ordering::Release);
        // It may be closed already.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
    }
}

impl AskedHosts {
    /// Waits for the next question; `None` when the network is closed.
    pub async fn next(&mut self) -> Option<HostQuestion> {
        self.asked.recv().await
    }

    /// Answers a question. Writes a short message, which blocks only while the proxy reads nothing.
    ///
    /// # Errors
    /// When the proxy has ended.
    pub fn answer(&self, number: u64, answer: HostAnswer) -> Result<(), ProxyError> {
        self.connection.send(&Request { call: self.call, body: RequestBody::Answer { number, answer } }, &[], &[])
    }
}

impl OpenAccess {
    /// Takes the questions about hosts, once.
    pub fn take_questions(&mut self) -> Option<AskedHosts> {
        let asked = self.asked.take()?;
        Some(AskedHosts { connection: Arc::clone(&self.connection), call: self.call, asked })
    }

    /// Closes everything of this call at once, and returns its account. Waits for it at most `wait`; without it, the report says that it is lost.
    pub fn close(mut self, wait: Duration) -> Report {
        let lost = Report { is_lost: true, ..Report::default() };
        self.is_closed = true;
        if self.connection.send(&Request { call: self.call, body: RequestBody::Close }, &[], &[]).is_err() {
            return lost;
        }
        match self.replies.recv_timeout(wait) {
            Ok(Reply::Closed { report, .. }) => report,
            Err(RecvTimeoutError::Timeout) => {
                self.connection.end();
                lost
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => lost,
        }
    }
}

impl Drop for OpenAccess {
    fn drop(&mut self) {
        self.connection.waiting().remove(&self.call);
        if !self.is_closed {
            // If the process has ended, it is closed.
            let _ = self.connection.send(&Request { call: self.call, body: RequestBody::Close }, &[], &[]);
        }
    }
}

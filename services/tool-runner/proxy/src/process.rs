//! The proxy's process: one thread, which confines itself and serves the sockets that the runner hands over.

use std::{
    collections::HashMap,
    env, fs, io,
    net::{TcpListener, UdpSocket},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::{
    access::{Access, CommandSockets},
    asking::HostQuestion,
    authority::Authority,
    confinement,
    host_upstream::HostUpstream,
    outside::Outside,
    sys,
    wire::{self, ProxySettings, Reply, Request, RequestBody},
};

/// Runs the proxy until the runner has closed its connection. Returns the exit code.
pub(crate) fn run(args: env::ArgsOs) -> i32 {
    let ids: Vec<u32> = args.filter_map(|arg| arg.to_str()?.parse().ok()).collect();
    let [uid, gid] = ids[..] else { return 2 };
    match start(uid, gid) {
        Ok(()) => 0,
        Err((control, error)) => {
            if let Some(control) = control {
                // The runner reports it; if it is gone, there is no one to report it to.
                let _ = wire::encoded(&Reply::Failed { message: error.to_string() })
                    .and_then(|frame| wire::send(&control, &frame, &[]));
            }
            1
        }
    }
}

fn start(uid: u32, gid: u32) -> Result<(), (Option<UnixStream>, io::Error)> {
    sys::ignore_requests_to_end();
    sys::close_inherited().map_err(|error| (None, error))?;
    let control = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).map_err(|error| (None, error))?;
    let prepared = prepare(&control, uid, gid);
    let (runtime, enforced, outside) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return Err((Some(control), error)),
    };
    let served = runtime.block_on(async {
        control.set_nonblocking(true)?;
        let mut control = tokio::net::UnixStream::from_std(control)?;
        let certificate = outside.authority.certificate();
        wire::send_async(&mut control, &Reply::Ready { enforced, certificate }).await?;
        serve(control, outside).await
    });
    served.map_err(|error| (None, error))
}

type Prepared = (tokio::runtime::Runtime, Vec<String>, Outside);

/// Reads what the process cannot read later, confines it, and attacks the confinement.
fn prepare(control: &UnixStream, uid: u32, gid: u32) -> io::Result<Prepared> {
    let Some(ProxySettings { authorities, upstream: proxy, closed }) = wire::receive(control)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    // Files that are not there are empty ones for the C library as well.
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let resolv_conf = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let upstream = Arc::new(HostUpstream::new(&hosts, &resolv_conf));
    let own_addresses = if_addrs::get_if_addrs()?.iter().map(|interface| interface.ip()).collect();
    let authority = Arc::new(Authority::of_machine(&authorities)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let enforced = confinement::confine(uid, gid)?;
    let mut succeeded: Vec<String> = confinement::successful_attacks().into_iter().map(str::to_owned).collect();
    succeeded.extend(confinement::opened(&closed));
    if !succeeded.is_empty() {
        return Err(io::Error::other(format!("the proxy is not confined: it could {}", succeeded.join(", "))));
    }
    Ok((runtime, enforced, Outside { upstream, own_addresses, proxy: proxy.map(Arc::new), authority }))
}

async fn serve(mut control: tokio::net::UnixStream, outside: Outside) -> io::Result<()> {
    let mut calls: HashMap<u64, Access> = HashMap::new();
    // Questions are sent while the next request is awaited, over another descriptor of the same connection.
    let writing = UnixStream::from(control.as_fd().try_clone_to_owned()?);
    let (replies, to_send) = mpsc::unbounded_channel();
    tokio::spawn(send_all(tokio::net::UnixStream::from_std(writing)?, to_send));
    while let Some((Request { call, body }, fds)) = wire::receive_async(&mut control).await? {
        let reply = match body {
            RequestBody::Open { profile, budget, has_name_server, ports, services, base_urls, credentials } => {
                let credentials = wire::receive_values(&mut control, credentials).await?;
                let opened = sockets(fds, has_name_server, ports, (services, base_urls))
                    .and_then(|sockets| Access::open(*profile, sockets, credentials, budget, outside.clone()));
                if let Ok(access) = &opened {
                    access.ask_over(asking(call, replies.clone()));
                }
                began(&mut calls, call, opened)
            }
            RequestBody::Answer { number, answer } => {
                if let Some(access) = calls.get(&call) {
                    access.answer(number, answer);
                }
                continue;
            }
            RequestBody::Serve { profile, budget, credentials } => {
                let credentials = wire::receive_values(&mut control, credentials).await?;
                let served =
                    fds.into_iter().next().ok_or_else(no_descriptors).and_then(|client| {
                        Access::of_tool(*profile, client.into(), credentials, budget, outside.clone())
                    });
                began(&mut calls, call, served)
            }
            RequestBody::Close => {
                let report = match calls.remove(&call) {
                    Some(access) => access.close().await,
                    None => Default::default(),
                };
                Reply::Closed { call, report }
            }
        };
        if replies.send(reply).is_err() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// Sends replies until the runner is gone.
async fn send_all(mut control: tokio::net::UnixStream, mut replies: UnboundedReceiver<Reply>) {
    while let Some(reply) = replies.recv().await {
        if wire::send_async(&mut control, &reply).await.is_err() {
            return;
        }
    }
}

/// The questions of a call about hosts, sent to the runner.
fn asking(call: u64, replies: UnboundedSender<Reply>) -> UnboundedSender<HostQuestion> {
    let (asked, mut questions) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            if replies.send(Reply::Asks { call, question }).is_err() {
                return;
            }
        }
    });
    asked
}

/// Keeps what serves a call, if it does.
fn began(calls: &mut HashMap<u64, Access>, call: u64, opened: io::Result<Access>) -> Reply {
    match opened {
        Ok(access) => {
            calls.insert(call, access);
            Reply::Opened { call }
        }
        Err(error) => Reply::Refused { call, message: error.to_string() },
    }
}

/// Descriptors that were sent are missing.
fn no_descriptors() -> io::Error {
    io::Error::other(
        "the proxy has no free descriptors for its sockets: raise the limit of open files of the tool runner, or close connections of other commands",
    )
}

/// Gives each descriptor its meaning, in the order in which the runner sends them.
fn sockets(
    fds: Vec<OwnedFd>,
    has_name_server: bool,
    ports: Vec<u16>,
    (services, base_urls): (Vec<std::net::SocketAddr>, usize),
) -> io::Result<CommandSockets> {
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(no_descriptors);
    let proxy = TcpListener::from(next()?);
    let name_server = if has_name_server { Some((UdpSocket::from(next()?), TcpListener::from(next()?))) } else { None };
    let ports: io::Result<Vec<_>> =
        ports.into_iter().map(|port| next().map(|fd| (port, TcpListener::from(fd)))).collect();
    let ports = ports?;
    let services: io::Result<Vec<_>> =
        services.into_iter().map(|address| next().map(|fd| (address, TcpListener::from(fd)))).collect();
    let services = services?;
    let base_urls: io::Result<Vec<_>> = (0..base_urls).map(|_| next().map(TcpListener::from)).collect();
    let base_urls = base_urls?;
    if fds.next().is_some() {
        return Err(io::Error::other("there is a socket too many"));
    }
    Ok(CommandSockets { proxy, name_server, ports, services, base_urls })
}

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

use crate::{
    access::{Access, CommandSockets},
    authority::Authority,
    confinement,
    host_upstream::HostUpstream,
    outside::Outside,
    sys,
    wire::{self, Beginning, Reply, Request, RequestBody},
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
    let Some(Beginning { authorities }) = wire::receive(control)? else {
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
    let succeeded = confinement::successful_attacks();
    if !succeeded.is_empty() {
        return Err(io::Error::other(format!("the proxy is not confined: it could {}", succeeded.join(", "))));
    }
    Ok((runtime, enforced, Outside { upstream, own_addresses, authority }))
}

async fn serve(mut control: tokio::net::UnixStream, outside: Outside) -> io::Result<()> {
    let mut calls: HashMap<u64, Access> = HashMap::new();
    while let Some((Request { call, body }, fds)) = wire::receive_async(&mut control).await? {
        let reply = match body {
            RequestBody::Open { profile, budget, has_name_server, ports, services, base_urls, credentials } => {
                let credentials = wire::receive_values(&mut control, credentials).await?;
                let opened = sockets(fds, has_name_server, ports, (services, base_urls))
                    .and_then(|sockets| Access::open(*profile, sockets, credentials, budget, outside.clone()));
                match opened {
                    Ok(access) => {
                        calls.insert(call, access);
                        Reply::Opened { call }
                    }
                    Err(error) => Reply::Refused { call, message: error.to_string() },
                }
            }
            RequestBody::Close => {
                let report = match calls.remove(&call) {
                    Some(access) => access.close().await,
                    None => Default::default(),
                };
                Reply::Closed { call, report }
            }
        };
        wire::send_async(&mut control, &reply).await?;
    }
    Ok(())
}

/// Gives each descriptor its meaning, in the order in which the runner sends them.
fn sockets(
    fds: Vec<OwnedFd>,
    has_name_server: bool,
    ports: Vec<u16>,
    (services, base_urls): (Vec<std::net::SocketAddr>, usize),
) -> io::Result<CommandSockets> {
    let mut fds = fds.into_iter();
    let mut next = || {
        fds.next().ok_or_else(|| io::Error::other(
            "the proxy has no free descriptors for its sockets: raise the limit of open files of the tool runner, or close connections of other commands",
        ))
    };
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

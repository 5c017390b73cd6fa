//! The sockets of one call, served until it is closed.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::unix::net::UnixStream,
    sync::Arc,
};

use belay_network::Profile;
use tokio::{
    net::TcpStream,
    sync::{
        mpsc::{self, UnboundedSender},
        oneshot,
    },
    task::{JoinHandle, JoinSet},
    time::{Duration, sleep},
};

use crate::{
    asking::{HostAnswer, HostQuestion},
    budget::Budget,
    call_network::CallNetwork,
    injection::CallCredential,
    name_server,
    outside::Outside,
    report::Report,
    routes::{self, Entrance},
};

/// The sockets of one call, which listen in the network of the command.
#[derive(Debug)]
pub struct CommandSockets {
    /// The HTTP proxy.
    pub proxy: TcpListener,
    /// The name server: UDP and TCP.
    pub name_server: Option<(UdpSocket, TcpListener)>,
    /// The ports of the profile, each on all addresses.
    pub ports: Vec<(u16, TcpListener)>,
    /// The services of this machine, each at its own address.
    pub services: Vec<(SocketAddr, TcpListener)>,
    /// The base URLs of the profile, in its order.
    pub base_urls: Vec<TcpListener>,
}

/// The network of one call, served in this process. Dropping it closes everything.
pub struct Access {
    network: Arc<CallNetwork>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

/// The pause after a failed accept, which is that of a process without free descriptors.
const PAUSE: Duration = Duration::from_millis(50);

impl Access {
    /// Begins to serve the sockets, in tasks of the current runtime.
    ///
    /// # Errors
    /// When a socket cannot be registered with the runtime.
    pub fn open(
        profile: Profile,
        sockets: CommandSockets,
        credentials: Vec<CallCredential>,
        budget: Budget,
        outside: Outside,
    ) -> io::Result<Self> {
        let network = CallNetwork::new(profile, credentials, budget, outside);
        let mut tasks = JoinSet::new();
        let (accepted, connections) = mpsc::channel(1);
        let CommandSockets { proxy, name_server, ports, services, base_urls } = sockets;
        let mut listeners = vec![(Entrance::Proxy, proxy)];
        listeners.extend(ports.into_iter().map(|(port, listener)| (Entrance::Port(port), listener)));
        listeners.extend(services.into_iter().map(|(address, listener)| (Entrance::Service(address), listener)));
        let of_url = |(place, listener)| (Entrance::BaseUrl(place), listener);
        listeners.extend(base_urls.into_iter().enumerate().map(of_url));
        if let Some((datagrams, listener)) = name_server {
            datagrams.set_nonblocking(true)?;
            let datagrams = tokio::net::UdpSocket::from_std(datagrams)?;
            tasks.spawn(name_server::serve_datagrams(Arc::clone(&network), datagrams));
            listeners.push((Entrance::NameServer, listener));
        }
        for (entrance, listener) in listeners {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tasks.spawn(accept(entrance, listener, accepted.clone()));
        }
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(Arc::clone(&network), tasks, connections, stopped));
        Ok(Self { network, stop: Some(stop), served })
    }

    /// Begins to serve one request of a tool, which has the other end of this connection, in a task of the current runtime.
    ///
    /// # Errors
    /// When the connection cannot be registered with the runtime.
    pub fn of_tool(
        profile: Profile,
        client: UnixStream,
        credentials: Vec<CallCredential>,
        budget: Budget,
        outside: Outside,
    ) -> io::Result<Self> {
        let network = CallNetwork::new(profile, credentials, budget, outside);
        client.set_nonblocking(true)?;
        let client = tokio::net::UnixStream::from_std(client)?;
        let (stop, mut stopped) = oneshot::channel::<()>();
        let serving = Arc::clone(&network);
        let served = tokio::spawn(async move {
            let place = match serving.take_place() {
                Ok(place) => place,
                Err(exhausted) => return routes::refuse_tool(&serving, client, exhausted).await,
            };
            tokio::select! {
                _ = &mut stopped => {}
                () = routes::serve_tool(serving, client) => {}
            }
            drop(place);
        });
        Ok(Self { network, stop: Some(stop), served })
    }

    /// Closes everything at once, and returns the account.
    pub async fn close(mut self) -> Report {
        drop(self.stop.take());
        // A panic of the task has closed everything as well.
        let _ = (&mut self.served).await;
        self.network.log.report()
    }

    /// Has the questions about hosts sent there. Without it, such hosts are refused.
    pub fn ask_over(&self, asked: UnboundedSender<HostQuestion>) {
        self.network.questions.ask_over(asked);
    }

    /// Answers a question about a host.
    pub fn answer(&self, number: u64, answer: HostAnswer) {
        self.network.questions.answer(number, answer);
    }

    /// Returns the account so far.
    pub fn report(&self) -> Report {
        self.network.log.report()
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        // The tasks of the connections end with that of the listeners.
        self.served.abort();
    }
}

async fn accept(entrance: Entrance, listener: tokio::net::TcpListener, accepted: mpsc::Sender<(Entrance, TcpStream)>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if accepted.send((entrance, stream)).await.is_err() {
                    return;
                }
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn serve(
    network: Arc<CallNetwork>,
    mut tasks: JoinSet<()>,
    mut connections: mpsc::Receiver<(Entrance, TcpStream)>,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            Some(_) = tasks.join_next() => {}
            accepted = connections.recv() => {
                let Some((entrance, stream)) = accepted else { break };
                begin(&network, &mut tasks, entrance, stream);
            }
        }
    }
    drop(connections);
    tasks.shutdown().await;
}

fn begin(network: &Arc<CallNetwork>, tasks: &mut JoinSet<()>, entrance: Entrance, stream: TcpStream) {
    let place = match network.take_place() {
        Ok(place) => place,
        Err(exhausted) => return routes::refuse_at_once(network, entrance, &stream, exhausted),
    };
    // Interactive protocols wait for small packets.
    let _ = stream.set_nodelay(true);
    let network = Arc::clone(network);
    tasks.spawn(async move {
        match entrance {
            Entrance::Proxy => routes::serve_proxy(network, stream).await,
            Entrance::Port(port) => routes::serve_port(network, port, stream).await,
            Entrance::Service(address) => routes::serve_service(network, address, stream).await,
            Entrance::BaseUrl(place) => routes::serve_base_url(network, place, stream).await,
            Entrance::NameServer => name_server::serve_connection(network, stream).await,
        }
        drop(place);
    });
}

//! The network of a command: sockets on the loopback interface of its namespace, which are made before its program starts and handed to the runner.
//!
//! There is no route to anything else. A command reaches by its network what the holder of the sockets does for it, and nothing more.

use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
    path::Path,
};

use crate::{error::LaunchError, mounts::Mount, wire::wire_struct};

/// The network of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandNetwork {
    /// The TCP addresses inside of the namespace on which sockets listen: of loopback, or `0.0.0.0`, which stands for all of `127.0.0.0/8`. A program of
    /// the command cannot listen on them itself.
    pub listen: Vec<SocketAddr>,
    /// The address of the name server inside of the namespace, for a UDP socket and a TCP listener: of loopback, with port 53, the only one that
    /// `/etc/resolv.conf` can name. `None`: names are resolved from `/etc/hosts` only.
    pub name_server: Option<SocketAddr>,
    /// Variables that only the runner sets, such as `HTTPS_PROXY`. Reserved names are allowed, and they take precedence over those of the sandbox, the
    /// operator and the call.
    pub env: Vec<(String, OsString)>,
}

/// The sockets in the network namespace of a command, in blocking mode. They keep the namespace, so a connection that was waiting when the command ended can
/// still be accepted; no other will come.
#[derive(Debug)]
pub struct NetworkSockets {
    /// The listeners, in the order of [`CommandNetwork::listen`].
    pub listeners: Vec<TcpListener>,
    /// The sockets of the name server, if there is one.
    pub name_server: Option<(UdpSocket, TcpListener)>,
}

/// The addresses of the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketAddresses {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) name_server: Option<SocketAddr>,
}

wire_struct!(SocketAddresses { listen, name_server });

/// The most sockets of a command. The name server takes two.
const MAX_SOCKETS: usize = 80;

/// The port on which resolvers ask a name server.
const NAME_SERVER_PORT: u16 = 53;

/// The files in the view that say which name server is asked.
pub(crate) const RESOLVER_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/nsswitch.conf"];

impl CommandNetwork {
    /// Checks the addresses.
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        let sockets = count(&self.listen, self.name_server);
        if sockets > MAX_SOCKETS {
            let problem =
                format!("needs {sockets} sockets: at most {MAX_SOCKETS} are made, two of them for a name server");
            return Err(LaunchError::spec("network.listen", problem));
        }
        if let Some(server) = self.name_server {
            let refuse = |problem| Err(LaunchError::spec("network.name_server", format!("`{server}` {problem}")));
            if !server.ip().is_loopback() {
                return refuse("is not an address of loopback");
            }
            if server.port() != NAME_SERVER_PORT {
                return refuse("must have port 53, the only one that `/etc/resolv.conf` can name");
            }
        }
        for (n, address) in self.listen.iter().enumerate() {
            let refuse =
                |problem| Err(LaunchError::spec(format!("network.listen[{n}]"), format!("`{address}` {problem}")));
            if !(address.ip().is_loopback() || is_every(address.ip())) {
                return refuse("is neither an address of loopback nor `0.0.0.0`".to_owned());
            }
            if address.port() == 0 {
                return refuse("must have a port other than 0".to_owned());
            }
            let mut before = self.name_server.iter().chain(self.listen.iter().take(n));
            if let Some(other) = before.find(|other| overlap(**other, *address)) {
                return refuse(format!("is taken by `{other}`"));
            }
        }
        Ok(())
    }

    /// Refuses mounts that cover a file by which the command finds its name server.
    pub(crate) fn check_mounts<'a>(&self, mut mounts: impl Iterator<Item = &'a Mount>) -> Result<(), LaunchError> {
        let covers = |mount: &&Mount| RESOLVER_FILES.iter().any(|file| mount.target == Path::new(file));
        match mounts.find(covers).filter(|_| self.name_server.is_some()) {
            Some(mount) => Err(LaunchError::spec(
                "network.name_server",
                format!(
                    "would not be asked, because `{}` of the host is mounted over `{}`: remove that mount, or run the command without a network",
                    mount.source.display(),
                    mount.target.display()
                ),
            )),
            None => Ok(()),
        }
    }

    /// The addresses and the variables.
    pub(crate) fn into_parts(self) -> (SocketAddresses, Vec<(String, OsString)>) {
        (SocketAddresses { listen: self.listen, name_server: self.name_server }, self.env)
    }
}

impl SocketAddresses {
    /// How many sockets they take.
    pub(crate) fn count(&self) -> usize {
        count(&self.listen, self.name_server)
    }

    /// The sockets by their purpose, from all of them in the order in which they are made: the listeners, then those of the name server, UDP first. `None`: there
    /// are too few or too many.
    pub(crate) fn sort(&self, sockets: Vec<OwnedFd>) -> Option<NetworkSockets> {
        let mut sockets = sockets.into_iter();
        let listeners: Vec<TcpListener> = sockets.by_ref().take(self.listen.len()).map(TcpListener::from).collect();
        let name_server = match self.name_server {
            Some(_) => Some((sockets.next()?.into(), sockets.next()?.into())),
            None => None,
        };
        let complete = listeners.len() == self.listen.len() && sockets.next().is_none();
        complete.then_some(NetworkSockets { listeners, name_server })
    }
}

fn count(listen: &[SocketAddr], name_server: Option<SocketAddr>) -> usize {
    listen.len() + if name_server.is_some() { 2 } else { 0 }
}

/// Whether an address stands for all of IPv4.
fn is_every(address: IpAddr) -> bool {
    address.is_ipv4() && address.is_unspecified()
}

/// Whether two sockets cannot listen on these addresses at once.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_family = one.is_ipv4() == other.is_ipv4();
    one.port() == other.port() && same_family && (one.ip() == other.ip() || is_every(one.ip()) || is_every(other.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        mounts::MountKind,
        wire::{frame, unframe},
    };

    fn network(listen: &[&str], name_server: Option<&str>) -> CommandNetwork {
        let parse = |address: &str| address.parse().unwrap();
        CommandNetwork {
            listen: listen.iter().map(|address| parse(address)).collect(),
            name_server: name_server.map(parse),
            env: Vec::new(),
        }
    }

    fn problem(listen: &[&str], name_server: Option<&str>) -> String {
        network(listen, name_server).check().unwrap_err().to_string()
    }

    #[test]
    fn addresses_of_loopback_and_all_of_them_are_valid() {
        let listen = ["127.77.0.1:21080", "0.0.0.0:443", "127.0.0.1:5432", "[::1]:443", "127.0.0.1:21080"];
        assert!(network(&listen, Some("127.77.0.1:53")).check().is_ok());
        assert!(network(&["127.0.0.1:53"], Some("127.77.0.1:53")).check().is_ok());
        assert!(network(&[], None).check().is_ok());
    }

    #[test]
    fn an_address_beyond_loopback_is_refused_by_its_field() {
        for address in ["192.0.2.1:80", "[::]:80", "[::ffff:127.0.0.1]:80", "126.255.255.255:80", "255.255.255.255:80"]
        {
            let why = problem(&["127.0.0.1:80", address], None);
            assert!(why.starts_with("network.listen[1]: ") && why.contains("loopback"), "{why}");
        }
        for address in ["192.0.2.1:53", "0.0.0.0:53", "[::]:53"] {
            let why = problem(&[], Some(address));
            assert!(why.starts_with("network.name_server: ") && why.contains("loopback"), "{why}");
        }
    }

    #[test]
    fn a_port_that_cannot_be_used_is_refused_by_its_field() {
        assert!(problem(&["0.0.0.0:0"], None).starts_with("network.listen[0]: "));
        for server in ["127.77.0.1:0", "127.77.0.1:5353"] {
            let why = problem(&[], Some(server));
            assert!(why.starts_with("network.name_server: ") && why.contains("port 53"), "{why}");
        }
    }

    #[test]
    fn addresses_that_take_each_others_port_are_refused() {
        for (first, second) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("127.9.0.1:80", "0.0.0.0:80"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            let why = problem(&["127.0.0.1:1", first, second], None);
            assert!(why.starts_with("network.listen[2]: ") && why.contains(first), "{why}");
        }
        for taken in ["127.77.0.1:53", "0.0.0.0:53"] {
            assert!(problem(&[taken], Some("127.77.0.1:53")).starts_with("network.listen[0]: "));
        }
    }

    #[test]
    fn sockets_are_bounded() {
        let addresses: Vec<String> = (1..=81).map(|port| format!("127.0.0.1:{port}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        assert!(network(&addresses[..80], None).check().is_ok());
        assert!(network(&addresses[..78], Some("127.77.0.1:53")).check().is_ok());
        assert!(problem(&addresses, None).contains("81 sockets"));
        assert!(problem(&addresses[..79], Some("127.77.0.1:53")).starts_with("network.listen: "));
    }

    #[test]
    fn a_mount_must_not_cover_the_choice_of_the_name_server() {
        let at = |target: &str| Mount { source: "/srv/file".into(), target: target.into(), kind: MountKind::ReadOnly };
        let mounts = [at("/etc/hosts"), at("/etc/resolv.conf")];
        let with_server = network(&[], Some("127.77.0.1:53"));
        let why = with_server.check_mounts(mounts.iter()).unwrap_err().to_string();
        assert!(why.starts_with("network.name_server: ") && why.contains("`/etc/resolv.conf`"), "{why}");
        assert!(with_server.check_mounts(mounts[..1].iter()).is_ok());
        assert!(network(&["0.0.0.0:80"], None).check_mounts(mounts.iter()).is_ok());
    }

    #[test]
    fn addresses_arrive_as_they_were_sent() {
        let (addresses, _) = network(&["127.0.0.1:80", "[::1]:65535"], Some("127.77.0.1:53")).into_parts();
        assert_eq!(unframe(&frame(&addresses)[4..]), Some(addresses));
    }

    #[test]
    fn a_missing_or_an_additional_socket_is_noticed() {
        let (addresses, _) = network(&["127.0.0.1:80"], Some("127.77.0.1:53")).into_parts();
        let sockets = |count: usize| {
            (0..count).map(|_| OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap())).collect::<Vec<_>>()
        };
        let sorted = addresses.sort(sockets(3)).unwrap();
        assert!(sorted.listeners.len() == 1 && sorted.name_server.is_some());
        for count in [0, 1, 2, 4] {
            assert!(addresses.sort(sockets(count)).is_none(), "{count}");
        }
    }
}

//! The cost of a network by profile: bytes through the proxy's process beside the same bytes direct, in turns, and the memory of many open connections.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

use belay_bench::stats;
use belay_network::{DraftProfile, DraftRule, Profiles};
use belay_proxy::{Budget, CommandSockets, Proxy, ProxySettings, ServiceUser};
use belay_service_kit::{Clock as _, SystemClock};
use serde::Serialize;

use crate::Result;

/// The bytes of one transfer, as the target says.
const BYTES: usize = 200_000_000;
/// The transfers, and the times to the first byte, of one round.
const TRANSFERS: usize = 5;
const FIRST_BYTES: usize = 200;
/// The connections that are open at once.
const CONNECTIONS: usize = 1_000;
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// One round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Network {
    /// 200 MB in one connection, in MB/s: direct, and through the proxy.
    pub(crate) direct_rate: f64,
    pub(crate) proxy_rate: f64,
    /// From the beginning of a connection to the first byte of the answer, in microseconds.
    pub(crate) direct_first_us: f64,
    pub(crate) proxy_first_us: f64,
    /// The memory of the process with 1,000 open connections, in KiB.
    pub(crate) used_kib: u64,
}

/// Measures the product's program as the proxy. Blocks: nothing else is to run meanwhile.
pub(crate) fn measure(binaries: &Path) -> Result<Network> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    thread::spawn(move || serve(&listener));
    let rule = DraftRule {
        host: "localhost".to_owned(),
        ports: vec![server.port().to_string()],
        protocol: "tcp".to_owned(),
        private_addresses: true,
        ..DraftRule::default()
    };
    let draft = DraftProfile { name: "bench".to_owned(), rules: vec![rule], ..DraftProfile::default() };
    let profiles = Profiles::new(&[draft]).map_err(|problems| format!("{problems:?}"))?;
    let profile = profiles.find("bench").ok_or("there is no profile")?;
    let proxy = Proxy::start(&binaries.join("belay"), ServiceUser::default(), &ProxySettings::default())?;
    let socket = TcpListener::bind("127.0.0.1:0")?;
    let at = Some(socket.local_addr()?);
    let sockets = CommandSockets {
        proxy: socket,
        name_server: None,
        ports: Vec::new(),
        services: Vec::new(),
        base_urls: Vec::new(),
    };
    let budget = Budget { open_connections: 2 * CONNECTIONS as u32, ..Budget::default() };
    let access = proxy.open(profile, sockets, &[], budget)?;

    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for _ in 0..TRANSFERS {
        direct.push(transfer(server, None)?);
        through.push(transfer(server, at)?);
    }
    let (mut direct_first, mut through_first) = (Vec::new(), Vec::new());
    for _ in 0..FIRST_BYTES {
        direct_first.push(first_byte(server, None)?);
        through_first.push(first_byte(server, at)?);
    }
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = open(server, at)?;
        stream.write_all(b"\0")?;
        stream.read_exact(&mut [0])?;
        held.push(stream);
    }
    let used_kib = resident(proxy.process_id())?;
    access.close(Duration::from_secs(10));
    let median = |of: Vec<f64>| stats::median(of).unwrap_or_default();
    Ok(Network {
        direct_rate: median(direct),
        proxy_rate: median(through),
        direct_first_us: median(direct_first),
        proxy_first_us: median(through_first),
        used_kib,
    })
}

/// Answers each byte: `b` with all bytes, any other with itself.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        // A client that has ended is none to report to.
        thread::spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut command, block) = ([0], vec![7; 64 << 10]);
    while stream.read(&mut command)? > 0 {
        if command == *b"b" {
            let mut left = BYTES;
            while left > 0 {
                let length = left.min(block.len());
                stream.write_all(block.get(..length).unwrap_or_default())?;
                left -= length;
            }
        } else {
            stream.write_all(&command)?;
        }
    }
    Ok(())
}

/// A connection to the server: direct, or through the proxy.
fn open(server: SocketAddr, proxy: Option<SocketAddr>) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy.unwrap_or(server))?;
    stream.set_nodelay(true)?;
    if proxy.is_some() {
        write!(stream, "CONNECT localhost:{} HTTP/1.1\r\n\r\n", server.port())?;
        let mut answer = vec![0; ESTABLISHED.len()];
        stream.read_exact(&mut answer)?;
        if answer != ESTABLISHED {
            return Err("the tunnel was refused".into());
        }
    }
    Ok(stream)
}

/// The rate of one transfer, in MB/s.
fn transfer(server: SocketAddr, proxy: Option<SocketAddr>) -> Result<f64> {
    let mut stream = open(server, proxy)?;
    let begun = SystemClock.now_micros();
    stream.write_all(b"b")?;
    let (mut buffer, mut left) = (vec![0; 64 << 10], BYTES);
    while left > 0 {
        match stream.read(&mut buffer)? {
            0 => return Err("the connection was closed".into()),
            length => left -= length,
        }
    }
    // Bytes in a microsecond are megabytes in a second.
    Ok(BYTES as f64 / (SystemClock.now_micros() - begun) as f64)
}

/// The time to the first byte, in microseconds.
fn first_byte(server: SocketAddr, proxy: Option<SocketAddr>) -> Result<f64> {
    let begun = SystemClock.now_micros();
    let mut stream = open(server, proxy)?;
    stream.write_all(b"\0")?;
    stream.read_exact(&mut [0])?;
    Ok((SystemClock.now_micros() - begun) as f64)
}

/// The resident memory of a process, in KiB.
fn resident(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("there is no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("VmRSS has no number")?.parse()?)
}

//! Measures the proxy as ratios within one run: 200 MB through a tunnel beside the same bytes direct, the time to the first byte, and the memory of the process
//! with 1,000 open connections.
//!
//! ```console
//! $ cargo run --release -p belay-proxy --example throughput
//! ```

use std::{
    error::Error,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use belay_network::{DraftProfile, DraftRule, Profiles};
use belay_proxy::{Budget, CommandSockets, Proxy, ServiceUser, take_over_if_asked};
use tokio::time::Instant;

const BYTES: usize = 200_000_000;
const ROUNDS: usize = 7;
const CONNECTIONS: usize = 1_000;
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Answers each byte: `b` with all bytes, any other with itself.
fn serve(listener: TcpListener) {
    for stream in listener.incoming().flatten() {
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
fn open(server: SocketAddr, proxy: Option<SocketAddr>) -> Outcome<TcpStream> {
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

fn transfer(server: SocketAddr, proxy: Option<SocketAddr>) -> Outcome<Duration> {
    let mut stream = open(server, proxy)?;
    let begun = Instant::now();
    stream.write_all(b"b")?;
    let (mut buffer, mut left) = (vec![0; 64 << 10], BYTES);
    while left > 0 {
        match stream.read(&mut buffer)? {
            0 => return Err("the connection was closed".into()),
            length => left -= length,
        }
    }
    Ok(begun.elapsed())
}

fn first_byte(server: SocketAddr, proxy: Option<SocketAddr>) -> Outcome<Duration> {
    let begun = Instant::now();
    let mut stream = open(server, proxy)?;
    stream.write_all(b"\0")?;
    stream.read_exact(&mut [0])?;
    Ok(begun.elapsed())
}

/// The middle of several measurements.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The resident memory of a process, in megabytes.
fn resident(process: u32) -> Outcome<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kilobytes / 1e3)
}

fn main() -> Outcome<()> {
    take_over_if_asked();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    thread::spawn(move || serve(listener));
    let rule = DraftRule {
        host: "localhost".to_owned(),
        ports: vec![server.port().to_string()],
        protocol: "tcp".to_owned(),
        private_addresses: true,
        ..DraftRule::default()
    };
    let draft = DraftProfile { name: "bench".to_owned(), rules: vec![rule], ..DraftProfile::default() };
    let profiles = Profiles::new(&[draft]).map_err(|problems| format!("{problems:?}"))?;
    let profile = profiles.find("bench").ok_or("no profile")?;
    let begun = Instant::now();
    let proxy = Proxy::start(&std::env::current_exe()?, ServiceUser::default(), &[])?;
    println!("start with its test: {:?}", begun.elapsed());
    let socket = TcpListener::bind("127.0.0.1:0")?;
    let at = Some(socket.local_addr()?);
    let sockets = CommandSockets {
        proxy: socket,
        name_server: None,
        ports: Vec::new(),
        services: Vec::new(),
        base_urls: Vec::new(),
    };
    let budget = Budget { open_connections: 2_000, ..Budget::default() };
    let begun = Instant::now();
    let access = proxy.open(profile, sockets, &[], budget)?;
    println!("open the network of a call: {:?}", begun.elapsed());

    let (mut direct, mut tunnelled) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        direct.push(transfer(server, None)?);
        tunnelled.push(transfer(server, at)?);
    }
    let (direct, tunnelled) = (median(direct), median(tunnelled));
    let ratio = direct.as_secs_f64() / tunnelled.as_secs_f64();
    println!("{BYTES} bytes: direct {direct:?}, tunnel {tunnelled:?}, {ratio:.2} of the direct rate");

    let (mut direct, mut tunnelled) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        direct.push(first_byte(server, None)?);
        tunnelled.push(first_byte(server, at)?);
    }
    println!("first byte: direct {:?}, tunnel {:?}", median(direct), median(tunnelled));

    let idle = resident(proxy.process_id())?;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = open(server, at)?;
        stream.write_all(b"\0")?;
        stream.read_exact(&mut [0])?;
        held.push(stream);
    }
    println!("memory: {idle:.1} MB, with {CONNECTIONS} connections {:.1} MB", resident(proxy.process_id())?);
    let begun = Instant::now();
    let report = access.close(Duration::from_secs(10));
    println!("close with its account of {} connections: {:?}", report.connections.len(), begun.elapsed());
    Ok(())
}

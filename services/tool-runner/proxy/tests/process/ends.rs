//! The ends of the process and of its runner.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpStream,
    process::{Command, ExitCode, Stdio},
};

use belay_proxy::{Budget, ProxyError};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    harness::{Test, tests},
    support::{TEST_TIMEOUT, echo_server, executable, is_closed, is_refused, profile, proxy, sockets, tunnel},
};

pub(crate) const TESTS: &[Test] = tests![
    a_killed_process_leaves_nothing_open,
    a_request_to_end_is_the_runners,
    a_dropped_proxy_ends,
    the_process_ends_with_its_runner
];

/// The argument of a runner that waits to be killed.
pub(crate) const RUNNER: &str = "runner-that-waits";

fn kill(id: u32) {
    kill_process(Pid::from_raw(id as i32).unwrap(), Signal::KILL).unwrap();
}

fn a_killed_process_leaves_nothing_open() {
    let (server, service) = (echo_server(), echo_server());
    let proxy = proxy();
    let profile = profile(server.port(), service);
    let (first, at) = sockets(server.port(), service);
    let access = proxy.open(&profile, first, &[], Budget::default()).unwrap();
    let mut tunnel = tunnel(at.proxy, server.port());
    kill(proxy.process_id());
    assert!(is_closed(&mut tunnel));
    assert!(is_refused(at.proxy) && is_refused(at.service));
    let report = access.close(TEST_TIMEOUT);
    assert!(report.is_lost && report.connections.is_empty());
    assert!(!proxy.is_alive());
    let (second, at) = sockets(server.port(), service);
    let opened = proxy.open(&profile, second, &[], Budget::default());
    assert!(matches!(opened, Err(ProxyError::Lost)), "{opened:?}");
    assert!(is_refused(at.proxy), "no socket of the call is open");
}

/// A service manager sends it to every process of the service; commands keep their network while the runner stops.
fn a_request_to_end_is_the_runners() {
    let (server, service) = (echo_server(), echo_server());
    let proxy = proxy();
    let (sockets, at) = sockets(server.port(), service);
    let access = proxy.open(&profile(server.port(), service), sockets, &[], Budget::default()).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(Pid::from_raw(proxy.process_id() as i32).unwrap(), signal).unwrap();
    }
    tunnel(at.proxy, server.port());
    assert!(!access.close(TEST_TIMEOUT).is_lost);
}

fn a_dropped_proxy_ends() {
    let proxy = proxy();
    let id = proxy.process_id();
    drop(proxy);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

fn the_process_ends_with_its_runner() {
    let mut runner =
        Command::new(executable()).arg(RUNNER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(runner.stdout.take().unwrap()).lines();
    let at: std::net::SocketAddr = lines.next().unwrap().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    runner.kill().unwrap();
    runner.wait().unwrap();
    assert!(is_closed(&mut stream));
    assert!(TcpStream::connect(at).is_err(), "no socket of the call is open");
}

/// Opens the network of a call, prints the address of its proxy, and waits.
pub(crate) fn run_as_runner() -> ExitCode {
    let (server, service) = (echo_server(), echo_server());
    let proxy = proxy();
    let (sockets, at) = sockets(server.port(), service);
    let access = proxy.open(&profile(server.port(), service), sockets, &[], Budget::default()).unwrap();
    println!("{}", at.proxy);
    let _ = std::io::stdin().read(&mut [0]);
    drop(access);
    ExitCode::SUCCESS
}

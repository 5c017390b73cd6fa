//! Commands with sockets in their network namespace, which this side holds.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    process::{Command, ExitCode},
    thread,
};

use belay_sandbox::{
    CommandNetwork, Dialogue, LaunchError, Launcher as _, NamespaceLauncher, NetworkSockets, OutputCaps,
    RunningCommand, Settings, Spec, Status, self_test,
};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::{
    harness::{Test, Verdict, tests},
    network_client::client,
    slots::{wait_for_sandboxes, warm},
    support::{Fixture, launch, launcher, refusal, succeed, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    a_command_talks_to_each_listener,
    a_listener_of_ipv6_is_reached,
    eighty_sockets_arrive_in_their_order,
    no_socket_is_inherited,
    nothing_else_is_reached,
    a_command_without_a_network_sees_none,
    two_commands_at_once_have_their_own_sockets,
    listeners_end_with_the_command,
    the_program_starts_when_its_sockets_are_here,
    a_command_listens_on_other_ports,
    a_command_takes_no_address_and_changes_no_interface,
    sandboxes_that_wait_serve_commands_with_a_network,
    its_variables_take_precedence,
    wrong_addresses_are_refused_by_field,
    a_runner_without_descriptors_starts_nothing,
    the_certificates_of_the_host_are_shown,
];

pub(crate) const PROXY: &str = "127.77.0.1:21080";

pub(crate) const NAME_SERVER: &str = "127.77.0.1:53";

pub(crate) fn network(listen: &[&str], name_server: Option<&str>) -> CommandNetwork {
    CommandNetwork {
        listen: listen.iter().map(|address| address.parse().unwrap()).collect(),
        name_server: name_server.map(|address| address.parse().unwrap()),
        env: Vec::new(),
    }
}

pub(crate) fn with_network(spec: Spec, listen: &[&str], name_server: Option<&str>) -> Spec {
    Spec { network: Some(network(listen, name_server)), ..spec }
}

pub(crate) fn sockets(running: &mut RunningCommand) -> NetworkSockets {
    running.take_sockets().expect("the command has a network")
}

/// Expects success, and returns the output.
pub(crate) fn output(mut running: RunningCommand) -> String {
    let (outcome, output) = running.collect(OutputCaps::default()).unwrap();
    assert_eq!(outcome.status, Status::Exited(0), "{}{}", output.stdout.text(), output.stderr.text());
    running.tear_down().unwrap();
    output.stdout.text()
}

/// Accepts one connection, reads what it says, and answers with the local address of the connection, this name, and what was said. A thread accepts, so that
/// a command that does not connect fails its test.
pub(crate) fn answer(listener: TcpListener, name: &'static str) -> thread::JoinHandle<()> {
    thread::spawn(move || answer_one(&listener, name))
}

pub(crate) fn answer_one(listener: &TcpListener, name: &str) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    write!(stream, "{} {name} {said}", stream.local_addr().unwrap()).unwrap();
}

fn a_command_talks_to_each_listener() {
    let fixture = Fixture::new();
    let reached = [PROXY, "127.78.0.5:443", "127.0.0.1:5432", "127.79.255.254:8443"];
    let spec =
        client(fixture.read_only(), &["talk", reached[0], "talk", reached[1], "talk", reached[2], "talk", reached[3]]);
    // The same without root's rights: the command could not listen on 443 itself.
    let mut running = launch(with_network(spec, &[PROXY, "0.0.0.0:443", "127.0.0.1:5432", "0.0.0.0:8443"], None));
    let NetworkSockets { listeners, name_server } = sockets(&mut running);
    assert!(name_server.is_none() && running.take_sockets().is_none(), "they are handed out once");
    let locals: Vec<SocketAddr> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    assert_eq!(locals, network(&[PROXY, "0.0.0.0:443", "127.0.0.1:5432", "0.0.0.0:8443"], None).listen);
    let threads: Vec<_> =
        listeners.into_iter().zip(["a", "b", "c", "d"]).map(|(listener, name)| answer(listener, name)).collect();
    let expected =
        reached.iter().zip(["a", "b", "c", "d"]).map(|(address, name)| format!("{address} {name} {address}\n"));
    assert_eq!(output(running), expected.collect::<String>());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn a_listener_of_ipv6_is_reached() -> Verdict {
    if TcpListener::bind("[::1]:0").is_err() {
        return Verdict::Skipped("this machine has no IPv6".to_owned());
    }
    let fixture = Fixture::new();
    let spec = client(fixture.read_only(), &["talk", "[::1]:443"]);
    let mut running = launch(with_network(spec, &["[::1]:443"], None));
    let answering = answer(sockets(&mut running).listeners.remove(0), "six");
    assert_eq!(output(running), "[::1]:443 six [::1]:443\n");
    answering.join().unwrap();
    Verdict::Passed
}

fn eighty_sockets_arrive_in_their_order() {
    let fixture = Fixture::new();
    let addresses: Vec<String> = (0..78).map(|n| format!("127.77.{n}.1:{}", 100 + n * 100)).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let what: Vec<&str> = addresses.iter().flat_map(|address| ["talk", address]).collect();
    let mut running = launch(with_network(client(fixture.read_only(), &what), &addresses, Some(NAME_SERVER)));
    let sockets = sockets(&mut running);
    let (udp, tcp) = sockets.name_server.unwrap();
    assert_eq!(
        [udp.local_addr().unwrap(), tcp.local_addr().unwrap()].map(|address| address.to_string()),
        [NAME_SERVER; 2]
    );
    let answering = thread::spawn(move || sockets.listeners.iter().for_each(|listener| answer_one(listener, "n")));
    let expected: String = addresses.iter().map(|address| format!("{address} n {address}\n")).collect();
    assert_eq!(output(running), expected);
    answering.join().unwrap();
}

fn no_socket_is_inherited() {
    let fixture = Fixture::new();
    let spec = || with_network(fixture.script("exec ls /proc/self/fd"), &[PROXY, "0.0.0.0:443"], Some(NAME_SERVER));
    let mut running = launch(spec());
    let sockets = sockets(&mut running);
    // The fourth is the directory being listed.
    assert_eq!(output(running), "0\n1\n2\n3\n");
    drop(sockets);
    // Nor with pipes over which it asks.
    assert_eq!(output(launch(Spec { dialogue: Some(Dialogue::Questions), ..spec() })), "0\n1\n2\n3\n4\n5\n");
}

fn nothing_else_is_reached() {
    let fixture = Fixture::new();
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = here.local_addr().unwrap().to_string();
    let what = [
        "connect",
        "8.8.8.8:443",
        "connect",
        "192.0.2.1:80",
        "connect",
        "169.254.169.254:80",
        "connect",
        "10.0.0.1:80",
        "send",
        "8.8.8.8:53",
        "send",
        "255.255.255.255:53",
        "connect",
        &host,
        "connect",
        "127.78.0.5:80",
        "connect",
        "[2001:db8::1]:443",
        "send",
        "[2001:db8::1]:443",
    ];
    let spec = client(fixture.read_only(), &what);
    let output = output(launch(with_network(spec, &[PROXY, "0.0.0.0:443"], Some(NAME_SERVER))));
    let lines: Vec<&str> = output.lines().collect();
    let (four, six) = lines.split_at(8);
    assert_eq!(four[..5], ["ENETUNREACH"; 5]);
    // Broadcast has to be asked for, and has no route then either.
    assert!(["EACCES", "ENETUNREACH"].contains(&four[5]), "{output}");
    assert_eq!(four[6..], ["ECONNREFUSED"; 2]);
    assert!(six.iter().all(|error| ["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"].contains(error)), "{output}");
}

fn a_command_without_a_network_sees_none() {
    let fixture = Fixture::new();
    let script = "cat /etc/resolv.conf; grep hosts: /etc/nsswitch.conf; getent hosts known.example; echo $?";
    let as_ever = "# The sandbox has no network beyond its own loopback interface.\noptions timeout:1 attempts:1\nhosts: files\n2\n";
    let launcher = launcher();
    let mut other = launcher
        .launch(with_network(fixture.script("sleep 100000"), &[PROXY, "0.0.0.0:443"], Some(NAME_SERVER)))
        .unwrap();
    let held = sockets(&mut other);
    assert_eq!(succeed_by(&launcher, fixture.script(script)), as_ever);
    // Sockets without a name server: names are resolved as ever.
    assert_eq!(succeed_by(&launcher, with_network(fixture.script(script), &[PROXY], None)), as_ever);
    let what = ["connect", PROXY, "connect", "127.78.0.5:443", "ask", NAME_SERVER, "x"];
    assert_eq!(succeed_by(&launcher, client(fixture.read_only(), &what)), "ECONNREFUSED\n".repeat(3));
    assert!(launcher.launch(fixture.script(":")).unwrap().take_sockets().is_none());
    drop(held);
    // A network without any address.
    let mut running = launcher.launch(with_network(fixture.script("echo started"), &[], None)).unwrap();
    let none = sockets(&mut running);
    assert!(none.listeners.is_empty() && none.name_server.is_none());
    assert_eq!(output(running), "started\n");
}

fn two_commands_at_once_have_their_own_sockets() {
    let fixture = Fixture::new();
    let start = || {
        let mut running = launch(with_network(
            client(fixture.read_only(), &["talk", PROXY, "talk", "127.78.0.5:443"]),
            &[PROXY, "0.0.0.0:443"],
            None,
        ));
        let listeners = sockets(&mut running).listeners;
        (running, listeners)
    };
    let both = [start(), start()];
    for ((running, listeners), name) in both.into_iter().zip(["first", "second"]) {
        let answering = thread::spawn(move || listeners.iter().for_each(|listener| answer_one(listener, name)));
        assert_eq!(output(running), format!("{PROXY} {name} {PROXY}\n127.78.0.5:443 {name} 127.78.0.5:443\n"));
        answering.join().unwrap();
    }
}

fn listeners_end_with_the_command() {
    let fixture = Fixture::new();
    let mut running = launch(with_network(fixture.script(":"), &[PROXY, "0.0.0.0:443"], Some(NAME_SERVER)));
    let NetworkSockets { listeners, name_server } = sockets(&mut running);
    running.tear_down().unwrap();
    let (udp, tcp) = name_server.unwrap();
    for listener in listeners.iter().chain([&tcp]) {
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    udp.set_nonblocking(true).unwrap();
    assert_eq!(udp.recv_from(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    // A connection of a command that was killed ends.
    let mut running = launch(
        with_network(fixture.script("exec 3<>/dev/tcp/127.77.0.1/21080; sleep 100000"), &[PROXY], None).in_bash(),
    );
    let listener = sockets(&mut running).listeners.remove(0);
    let (mut stream, _) = listener.accept().unwrap();
    running.kill_handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().status, Status::Killed);
    let mut rest = Vec::new();
    // Closed, or reset.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

trait InBash {
    /// The same script for the shell that has `/dev/tcp`.
    fn in_bash(self) -> Self;
}

impl InBash for Spec {
    fn in_bash(self) -> Self {
        Self { program: "bash".to_owned(), ..self }
    }
}

/// Its first connection waits in the queue, however late this side accepts: no program finds a closed port at its start.
fn the_program_starts_when_its_sockets_are_here() {
    let fixture = Fixture::new();
    for _ in 0..20 {
        let what = ["connect", PROXY];
        let mut running = launch(with_network(client(fixture.read_only(), &what), &[PROXY], None));
        let sockets = sockets(&mut running);
        assert_eq!(output(running), "connected\n");
        drop(sockets);
    }
}

fn a_command_listens_on_other_ports() {
    let fixture = Fixture::new();
    let what = ["serve", "0.0.0.0:8080", "serve", "127.9.8.7:21080", "talk", PROXY];
    let mut running =
        launch(with_network(client(fixture.read_only(), &what), &[PROXY, "0.0.0.0:443"], Some(NAME_SERVER)));
    let answering = answer(sockets(&mut running).listeners.remove(0), "proxy");
    assert_eq!(output(running), format!("to itself\nto itself\n{PROXY} proxy {PROXY}\n"));
    answering.join().unwrap();
}

fn a_command_takes_no_address_and_changes_no_interface() {
    let fixture = Fixture::new();
    let what = [
        "bind",
        PROXY,
        "bind",
        "0.0.0.0:21080",
        "bind",
        "127.78.0.5:8443",
        "bind",
        NAME_SERVER,
        "bind",
        "127.78.0.5:443",
        "change",
        "interface",
        "change",
        "address",
        "change",
        "no-address",
        "change",
        "route",
        "talk",
        PROXY,
    ];
    let listen = [PROXY, "0.0.0.0:8443", "0.0.0.0:443"];
    let mut running = launch(with_network(client(fixture.read_only(), &what), &listen, Some(NAME_SERVER)));
    let mut held = sockets(&mut running);
    let answering = answer(held.listeners.remove(0), "proxy");
    let expected = [
        // TCP, then UDP: nothing but the name server has a socket of UDP.
        "EADDRINUSE bound",
        "EADDRINUSE bound",
        "EADDRINUSE bound",
        "EACCES EACCES",
        "EACCES EACCES",
        "EPERM",
        "EPERM",
        "EPERM",
        "EPERM",
    ];
    let output = output(running);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..expected.len()], expected);
    assert_eq!(lines[expected.len()..], [format!("{PROXY} proxy {PROXY}")], "all goes on as before");
    answering.join().unwrap();
}

fn sandboxes_that_wait_serve_commands_with_a_network() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    warm(&launcher, &fixture);
    for _ in 0..3 {
        let with = with_network(fixture.script("cat /etc/resolv.conf"), &["0.0.0.0:443"], Some(NAME_SERVER));
        for (spec, expected) in
            [(with, "nameserver 127.77.0.1\n"), (fixture.script("cat /etc/resolv.conf"), "# The sandbox")]
        {
            wait_for_sandboxes(&launcher);
            let has_network = spec.network.is_some();
            let mut running = launcher.launch(spec).unwrap();
            assert!(running.was_armed());
            assert_eq!(running.take_sockets().is_some(), has_network);
            let output = output(running);
            assert!(output.starts_with(expected), "{output}");
        }
    }
    wait_for_sandboxes(&launcher);
    let spec = client(fixture.read_only(), &["talk", "127.78.0.5:443"]);
    let mut running = launcher.launch(with_network(spec, &["0.0.0.0:443"], None)).unwrap();
    let answering = answer(sockets(&mut running).listeners.remove(0), "armed");
    assert_eq!(output(running), "127.78.0.5:443 armed 127.78.0.5:443\n");
    answering.join().unwrap();
    let possible: Vec<_> = self_test(&launcher).unwrap().into_iter().filter(|attack| attack.possible).collect();
    assert!(possible.is_empty(), "{possible:#?}");
}

fn its_variables_take_precedence() {
    let fixture = Fixture::new();
    let variable = |name: &str, value: &str| (name.to_owned(), value.into());
    let settings = Settings {
        env: vec![variable("HTTPS_PROXY", "operator"), variable("KEPT", "operator")],
        ..Settings::default()
    };
    let launcher = NamespaceLauncher::new(settings).unwrap();
    let mut spec =
        fixture.script("echo $HTTPS_PROXY $GOPROXY $NODE_OPTIONS $KEPT $CALL ${BELAY_ASK-unset} ${BELAY_OUTPUT-unset}");
    spec.env = vec![variable("CALL", "call")];
    let mut network = network(&[PROXY], None);
    network.env = ["HTTPS_PROXY", "GOPROXY", "NODE_OPTIONS", "BELAY_ASK", "BELAY_OUTPUT"]
        .map(|name| variable(name, "network"))
        .to_vec();
    spec.network = Some(network);
    assert_eq!(succeed_by(&launcher, spec.clone()), "network network network operator call unset unset\n");
    spec.env.push(variable("GOPROXY", "call"));
    assert_eq!(succeed_by(&launcher, spec), "network network network operator call unset unset\n");
}

fn wrong_addresses_are_refused_by_field() {
    let fixture = Fixture::new();
    let field = |network| match refusal(Spec { network: Some(network), ..fixture.script(":") }) {
        LaunchError::Spec { field, .. } => field,
        other => panic!("{other}"),
    };
    for (listen, refused) in [
        (vec!["192.0.2.1:80"], "network.listen[0]"),
        (vec![PROXY, "[::]:80"], "network.listen[1]"),
        (vec![PROXY, "127.0.0.1:0"], "network.listen[1]"),
        (vec![PROXY, "127.0.0.1:80", PROXY], "network.listen[2]"),
        (vec!["0.0.0.0:80", "127.0.0.1:80"], "network.listen[1]"),
        (vec!["0.0.0.0:53"], "network.listen[0]"),
        (vec![PROXY; 79], "network.listen"),
    ] {
        assert_eq!(field(network(&listen, Some(NAME_SERVER))), refused, "{listen:?}");
    }
    assert_eq!(field(network(&[], Some("192.0.2.1:53"))), "network.name_server");
    assert_eq!(field(network(&[], Some("127.77.0.1:5353"))), "network.name_server");
    for (name, value) in [("A=B", "x"), ("", "x"), ("A\0", "x"), ("A", "x\0")] {
        let env = vec![(name.to_owned(), value.into())];
        assert!(field(CommandNetwork { env, ..CommandNetwork::default() }).starts_with("network.env."), "{name:?}");
    }
}

/// The argument with which this binary runs [`without_descriptors`].
pub(crate) const WITHOUT_DESCRIPTORS: &str = "--run-without-descriptors";

fn a_runner_without_descriptors_starts_nothing() {
    let status = Command::new(std::env::current_exe().unwrap()).arg(WITHOUT_DESCRIPTORS).status().unwrap();
    assert!(status.success(), "{status}");
}

/// A runner that may open fewer files than a command has sockets.
pub(crate) fn without_descriptors() -> ExitCode {
    let few = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current: few, maximum: few }).unwrap();
    let fixture = Fixture::new();
    let addresses: Vec<String> = (1..=80).map(|port| format!("127.0.0.1:{port}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let start = |sockets: usize| {
        let (workspace, upper) = fixture.staged();
        let spec = Spec::new("sh", ["-c", "echo started > started"], workspace);
        (launcher().launch(with_network(spec, &addresses[..sockets], None)), upper.join("started"))
    };
    // Somewhere in between only the last socket has no room.
    let mut failed = 0;
    for sockets in 20..=80 {
        match start(sockets) {
            (Ok(mut running), started) => {
                assert_eq!(running.wait().unwrap().status, Status::Exited(0));
                running.tear_down().unwrap();
                assert!(started.exists());
            }
            (Err(error), started) => {
                assert!(error.is_lost(), "{error}");
                assert!(!started.exists(), "with {sockets} sockets no part of it has run");
                failed += 1;
            }
        }
    }
    assert!((1..60).contains(&failed), "{failed} of them have failed");
    let error = start(80).0.map(|_| "it was started").unwrap_err();
    assert!(error.to_string().contains("RLIMIT_NOFILE"), "{error}");
    ExitCode::SUCCESS
}

fn the_certificates_of_the_host_are_shown() -> Verdict {
    let Ok(host) = std::fs::read_dir("/etc/ssl/certs") else {
        return Verdict::Skipped("this machine has no /etc/ssl/certs".to_owned());
    };
    let fixture = Fixture::new();
    let shown = succeed(with_network(fixture.script("ls -A /etc/ssl/certs | wc -l"), &[PROXY], Some(NAME_SERVER)));
    assert_eq!(shown.trim(), host.count().to_string());
    Verdict::Passed
}

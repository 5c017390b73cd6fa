//! Commands that ask a name server in their network namespace, which this side answers for.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, UdpSocket},
    thread,
};

use belay_sandbox::{Launcher as _, Mount, MountKind, NamespaceLauncher, NetworkSockets, Settings, Spec, Status};

use crate::{
    harness::{Test, tests},
    network::{NAME_SERVER, PROXY, answer, answer_one, output, sockets, with_network},
    network_client::{PROGRAM, client, program},
    support::{Fixture, launch, refusal, run, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    the_name_server_is_asked_by_udp_and_tcp,
    programs_resolve_names_by_the_name_server,
    common_programs_reach_a_listener_by_name,
    a_mount_cannot_choose_the_name_server,
];

fn the_name_server_is_asked_by_udp_and_tcp() {
    let fixture = Fixture::new();
    let spec = client(fixture.read_only(), &["ask", NAME_SERVER, "question", "talk", NAME_SERVER]);
    let mut running = launch(with_network(spec, &[], Some(NAME_SERVER)));
    let NetworkSockets { listeners, name_server } = sockets(&mut running);
    assert!(listeners.is_empty());
    let (udp, tcp) = name_server.unwrap();
    let answering = thread::spawn(move || {
        let mut question = [0; 512];
        let (length, from) = udp.recv_from(&mut question).unwrap();
        assert!(from.ip().is_loopback(), "{from}");
        udp.send_to(&[&question[..length], b" answered"].concat(), from).unwrap();
        answer_one(&tcp, "tcp");
    });
    assert_eq!(output(running), format!("question answered\n{NAME_SERVER} tcp {NAME_SERVER}\n"));
    answering.join().unwrap();
}

/// Answers questions for the address of `known.example` with 127.78.0.5, and says of other names that they do not exist, until it is told to stop. Returns
/// the names that were asked for.
fn name_server(socket: UdpSocket) -> thread::JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let mut names = Vec::new();
        loop {
            let mut question = [0; 512];
            let (length, from) = socket.recv_from(&mut question).unwrap();
            if &question[..length] == b"stop" {
                socket.send_to(b"stopped", from).unwrap();
                return names;
            }
            let (name, answer) = reply(&question[..length]);
            names.push(name);
            socket.send_to(&answer, from).unwrap();
        }
    })
}

/// The name that a question asks for, and the answer.
fn reply(question: &[u8]) -> (String, Vec<u8>) {
    let mut labels = Vec::new();
    let mut at = 12;
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..end]).into_owned());
        at = end;
    }
    let name = labels.join(".");
    // The last label, which is empty, then the type and the class.
    let asked = &question[12..at + 5];
    let is_known = name == "known.example";
    let is_for_ipv4 = asked[asked.len() - 4..] == [0, 1, 0, 1];
    let answers = u8::from(is_known && is_for_ipv4);
    // A response with recursion available; the code is that of success, or that there is no such name.
    let header = [0x81, if is_known { 0x80 } else { 0x83 }, 0, 1, 0, answers, 0, 0, 0, 0];
    let mut message = [&question[..2], &header, asked].concat();
    if answers == 1 {
        // The name of the question, an address of the internet, valid for 5 seconds, four bytes.
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 78, 0, 5]);
    }
    (name, message)
}

fn programs_resolve_names_by_the_name_server() {
    let fixture = Fixture::new();
    let script = format!(
        "cat /etc/resolv.conf; grep hosts: /etc/nsswitch.conf; getent ahostsv4 known.example; getent hosts other.example; echo $?; \
         {PROGRAM} --in-the-network talk known.example:443 ask {NAME_SERVER} stop; (: > /etc/resolv.conf) || echo read-only"
    );
    let mut spec = with_network(fixture.script(&script), &["0.0.0.0:443"], Some(NAME_SERVER));
    spec.mounts.push(program());
    let mut running = launch(spec);
    let NetworkSockets { mut listeners, name_server: server } = sockets(&mut running);
    let asked = name_server(server.unwrap().0);
    let answering = answer(listeners.remove(0), "web");
    let output = output(running);
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0] == "nameserver 127.77.0.1" && lines[2] == "hosts: files dns", "{output}");
    assert!(lines[3..6].iter().all(|line| line.starts_with("127.78.0.5 ")), "{output}");
    assert_eq!(lines[6..], ["2", "127.78.0.5:443 web known.example:443", "stopped", "read-only"], "{output}");
    let names = asked.join().unwrap();
    for name in ["known.example", "other.example"] {
        assert!(names.iter().any(|asked| asked == name), "{names:?}");
    }
    assert!(names.iter().all(|name| name.matches('.').count() == 1), "no name is completed: {names:?}");
    answering.join().unwrap();
}

fn common_programs_reach_a_listener_by_name() {
    let fixture = Fixture::new();
    let programs = [
        ("curl", "curl -sS http://known.example:443/"),
        ("curl", "curl -sS -4 http://known.example:443/"),
        (
            "python3",
            "python3 -c 'import urllib.request as r; print(r.urlopen(\"http://known.example:443/\").read().decode(), end=\"\")'",
        ),
        (
            "node",
            "node -e 'require(\"http\").get(\"http://known.example:443/\", r => r.on(\"data\", d => process.stdout.write(d)))'",
        ),
    ];
    let is_there = |program: &&str| run(fixture.script(&format!("command -v {program}"))).0.status == Status::Exited(0);
    let scripts: Vec<&str> =
        programs.iter().filter(|(program, _)| is_there(program)).map(|(_, script)| *script).collect();
    let script = format!("{}; {PROGRAM} --in-the-network ask {NAME_SERVER} stop", scripts.join("; "));
    let mut spec = with_network(fixture.script(&format!("set -e; {script}")), &["0.0.0.0:443"], Some(NAME_SERVER));
    spec.mounts.push(program());
    let mut running = launch(spec);
    let NetworkSockets { mut listeners, name_server: server } = sockets(&mut running);
    let asked = name_server(server.unwrap().0);
    let (listener, count) = (listeners.remove(0), scripts.len());
    let answering = thread::spawn(move || (0..count).for_each(|_| answer_http(&listener)));
    assert_eq!(output(running), format!("{}stopped\n", "reached 127.78.0.5:443\n".repeat(count)));
    asked.join().unwrap();
    answering.join().unwrap();
}

/// Answers one request with the local address of its connection.
fn answer_http(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while !lines.next().unwrap().unwrap().is_empty() {}
    let text = format!("reached {}\n", stream.local_addr().unwrap());
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    stream.write_all(format!("{head}{text}").as_bytes()).unwrap();
}

fn a_mount_cannot_choose_the_name_server() {
    let fixture = Fixture::new();
    std::fs::write(fixture.workspace.join("mine"), "nameserver 192.0.2.1\n").unwrap();
    let mount =
        Mount { source: fixture.workspace.join("mine"), target: "/etc/resolv.conf".into(), kind: MountKind::ReadOnly };
    let spec = || with_network(fixture.script("cat /etc/resolv.conf"), &[], Some(NAME_SERVER));
    let why = refusal(Spec { mounts: vec![mount.clone()], ..spec() }).to_string();
    assert!(why.starts_with("network.name_server: ") && why.contains("`/etc/resolv.conf`"), "{why}");
    let launcher = NamespaceLauncher::new(Settings { mounts: vec![mount], ..Settings::default() }).unwrap();
    let why = launcher.launch(spec()).map(|_| "it was started").unwrap_err().to_string();
    assert!(why.starts_with("network.name_server: ") && why.contains("`/etc/resolv.conf`"), "{why}");
    // Without a name server there is nothing to choose.
    let without = with_network(fixture.script("cat /etc/resolv.conf"), &[PROXY], None);
    assert_eq!(succeed_by(&launcher, without), "nameserver 192.0.2.1\n");
}

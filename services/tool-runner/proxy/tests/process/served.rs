//! Calls that the process serves.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
};

use belay_proxy::{Budget, Proxy, ProxyError, ProxySettings, Route, ServiceUser};

use crate::{
    harness::{Test, tests},
    support::{
        TEST_TIMEOUT, address_of, answer, echo_server, is_closed, profile, proxy, send, sockets, tunnel, web_profile,
    },
};

pub(crate) const TESTS: &[Test] = tests![
    all_ways_lead_through_the_process,
    a_service_that_the_profile_does_not_have_is_refused,
    a_dropped_access_closes_everything,
    calls_are_opened_from_several_threads,
    a_tool_asks_over_a_pair_of_sockets,
    what_is_no_proxy_is_not_started,
];

fn all_ways_lead_through_the_process() {
    let (server, service) = (echo_server(), echo_server());
    let proxy = proxy();
    let (sockets, at) = sockets(server.port(), service);
    let access = proxy.open(&profile(server.port(), service), sockets, &[], Budget::default()).unwrap();

    let mut tunnel = tunnel(at.proxy, server.port());
    let stands_for = SocketAddr::from((address_of(at.dns, "localhost"), at.port));
    for to in [stands_for, at.service] {
        let mut stream = send(to, "\0ping");
        let mut echoed = [0; 5];
        stream.read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"\0ping");
    }
    let refused = answer(at.proxy, &format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", server.port() + 1));
    assert!(refused.contains("403") && refused.contains("which is loopback"), "{refused}");
    assert!(answer(at.proxy, "CONNECT evil.example.org:443 HTTP/1.1\r\n\r\n").contains("403"));

    let report = access.close(TEST_TIMEOUT);
    assert!(is_closed(&mut tunnel), "closed with the call");
    assert!(TcpStream::connect(at.proxy).is_err(), "no socket of the call is open");
    let seen: Vec<_> = report.connections.iter().map(|one| (one.route, one.is_allowed)).collect();
    assert_eq!(
        seen,
        [
            (Route::Proxy, true),
            (Route::NameServer, true),
            (Route::Address, true),
            (Route::Service, true),
            (Route::Proxy, false),
            (Route::Proxy, false),
        ]
    );
    assert_eq!(report.connections[0].sent_bytes, 5);
    assert!(!report.is_lost && proxy.is_alive());
}

fn a_service_that_the_profile_does_not_have_is_refused() {
    let (server, service) = (echo_server(), echo_server());
    let proxy = proxy();
    let (sockets, at) = sockets(server.port(), server);
    let opened = proxy.open(&profile(server.port(), service), sockets, &[], Budget::default());
    assert!(matches!(opened, Err(ProxyError::UnknownService { address, .. }) if address == server), "{opened:?}");
    assert!(TcpStream::connect(at.proxy).is_err(), "no socket of the call is open");
}

fn a_dropped_access_closes_everything() {
    let (server, service) = (echo_server(), echo_server());
    let proxy = proxy();
    let (sockets, at) = sockets(server.port(), service);
    let access = proxy.open(&profile(server.port(), service), sockets, &[], Budget::default()).unwrap();
    let mut tunnel = tunnel(at.proxy, server.port());
    drop(access);
    assert!(is_closed(&mut tunnel));
    let _ = tunnel.write_all(b"more");
    // Another call is served after it.
    let (sockets, at) = crate::support::sockets(server.port(), service);
    let access = proxy.open(&profile(server.port(), service), sockets, &[], Budget::default()).unwrap();
    crate::support::tunnel(at.proxy, server.port());
    assert_eq!(access.close(TEST_TIMEOUT).connections.len(), 1);
}

fn calls_are_opened_from_several_threads() {
    let (server, service) = (echo_server(), echo_server());
    let proxy = proxy();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let (sockets, at) = sockets(server.port(), service);
                    let access = proxy.open(&profile(server.port(), service), sockets, &[], Budget::default()).unwrap();
                    crate::support::tunnel(at.proxy, server.port());
                    let report = access.close(TEST_TIMEOUT);
                    let [one] = &report.connections[..] else { panic!("{report:?}") };
                    assert_eq!(one.received_bytes, 5);
                }
            });
        }
    });
}

/// The confined process reads, writes and closes a connection that it cannot make itself.
fn a_tool_asks_over_a_pair_of_sockets() {
    let proxy = proxy();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let profile = web_profile(port);
    let body = "x".repeat(1 << 20);
    let served = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut all = Vec::new();
        let mut buffer = [0; 64 << 10];
        while !all.ends_with(b"end") {
            let length = stream.read(&mut buffer).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&all));
            all.extend(&buffer[..length]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        String::from_utf8(all).unwrap()
    });
    let ask = |request: &str| {
        let (mut client, theirs) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let access = proxy.serve_tool(&profile, theirs, &[], Budget::default()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        (answer, access.close(TEST_TIMEOUT))
    };
    let length = body.len() + 3;
    let (answer, report) = ask(&format!(
        "POST http://localhost:{port}/x HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: {length}\r\n\r\n{body}end"
    ));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    assert!(served.join().unwrap().starts_with("POST /x HTTP/1.1\r\n"));
    assert!(report.connections[0].is_allowed && report.connections[0].sent_bytes > 1 << 20, "{report:?}");
    let (answer, report) = ask("GET https://evil.example.org/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403") && report.refusals == 1, "{answer}");
    // A connection that nobody asks over is closed with its call.
    let (mut client, theirs) = UnixStream::pair().unwrap();
    let access = proxy.serve_tool(&profile, theirs, &[], Budget::default()).unwrap();
    assert_eq!(access.close(TEST_TIMEOUT).connections, []);
    assert_eq!(client.read(&mut [0; 10]).unwrap(), 0);
}

fn what_is_no_proxy_is_not_started() {
    for (program, doing) in [("/bin/true", "waiting until it is ready"), ("/bin/no-such", "executing this binary")] {
        let started = Proxy::start(program.as_ref(), ServiceUser::default(), &ProxySettings::default());
        assert!(matches!(started, Err(ProxyError::Start { doing: found, .. }) if found == doing), "{started:?}");
    }
}

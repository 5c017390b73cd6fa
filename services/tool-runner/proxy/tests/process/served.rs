//! Calls that the process serves.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use belay_proxy::{Budget, Proxy, ProxyError, Route, ServiceUser};

use crate::{
    harness::{Test, tests},
    support::{TEST_TIMEOUT, address_of, answer, echo_server, is_closed, profile, proxy, send, sockets, tunnel},
};

pub(crate) const TESTS: &[Test] = tests![
    all_ways_lead_through_the_process,
    a_service_that_the_profile_does_not_have_is_refused,
    a_dropped_access_closes_everything,
    calls_are_opened_from_several_threads,
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

fn what_is_no_proxy_is_not_started() {
    for (program, doing) in [("/bin/true", "waiting until it is ready"), ("/bin/no-such", "executing this binary")] {
        let started = Proxy::start(program.as_ref(), ServiceUser::default(), &[]);
        assert!(matches!(started, Err(ProxyError::Start { doing: found, .. }) if found == doing), "{started:?}");
    }
}

//! Plain HTTP health, over the real programs.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    process::Command,
};

use belay_e2e::{Home, Services};

/// The answer to a request over HTTP/1.1, up to the end of the connection.
fn send(mut stream: impl Read + Write, request: &str) -> String {
    let request = format!("{request} HTTP/1.1\r\nHost: belay\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[track_caller]
fn assert_healthy<S: Read + Write>(connect: impl Fn() -> S) {
    for path in ["/healthz", "/readyz"] {
        let answer = send(connect(), &format!("GET {path}"));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{path}: {answer}");
    }
    for request in ["GET /", "POST /belay.v1.ExecutorService/GetExecution"] {
        let answer = send(connect(), request);
        assert!(
            answer.starts_with("HTTP/1.1 404 ") && answer.contains("This is a gRPC endpoint"),
            "{request}: {answer}"
        );
    }
}

#[test]
fn a_server_answers_probes_on_its_tcp_port_without_a_token() {
    let home = Home::new();
    let mut server = home.start(["serve", "--listen", "127.0.0.1:0"]);
    let url = server.wait_for("and at").split_whitespace().last().unwrap().to_owned();
    server.wait_for("keeps data in");
    let address = url.strip_prefix("http://").unwrap();
    assert_healthy(|| TcpStream::connect(address).unwrap());
    for socket in ["executor.sock", "gate.sock"] {
        assert_healthy(|| UnixStream::connect(home.state().join(socket)).unwrap());
    }
    let curl = Command::new("curl").args(["--fail", "--silent", "--show-error", &format!("{url}/readyz")]).output();
    // A machine without curl has shown the same by the sockets above.
    if let Ok(curl) = curl {
        assert_eq!((curl.status.code(), String::from_utf8_lossy(&curl.stdout).as_ref()), (Some(0), "ok\n"), "{curl:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_service_answers_probes_on_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let _services = Services::start(folder.path()).await;
    let folder = folder.path().canonicalize().unwrap();
    tokio::task::spawn_blocking(move || {
        for socket in ["executor.sock", "runner.sock", "gate.sock", "gate-services.sock"] {
            assert_healthy(|| UnixStream::connect(folder.join(socket)).unwrap());
        }
    })
    .await
    .unwrap();
}

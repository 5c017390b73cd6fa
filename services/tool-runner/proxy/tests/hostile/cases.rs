//! The cases: what is tried, and what is expected.

use crate::{
    hello::{ECH, SERVER_NAME, hello, message, records, server_name},
    world::CLOSED,
};

/// A case: its name, the attempt, and what is expected.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) attempt: Attempt,
    pub(crate) expected: &'static str,
    /// Whether bytes of it reach the host.
    pub(crate) reaches: bool,
}

/// The ways to ask.
pub(crate) enum Attempt {
    /// To the HTTP proxy.
    Proxy(Vec<Vec<u8>>),
    /// To the address that stands for a host, on a port of the profile.
    Address(&'static str, u16, Vec<u8>),
    /// To an address that stands for no host.
    UnknownAddress(u16),
    /// To the service of this machine.
    Service(&'static str),
    /// To the name server, over UDP.
    Question(Vec<u8>),
    /// To the name server, over TCP.
    QuestionTcp(Vec<u8>),
}

fn case(name: impl Into<String>, attempt: Attempt, expected: &'static str) -> Case {
    Case { name: name.into(), attempt, expected, reaches: false }
}

fn allowed(name: &str, attempt: Attempt, expected: &'static str) -> Case {
    Case { name: name.to_owned(), attempt, expected, reaches: true }
}

fn raw(text: &str) -> Attempt {
    Attempt::Proxy(vec![text.as_bytes().to_vec()])
}

fn connect(target: &str) -> Attempt {
    raw(&format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"))
}

fn tunnel(target: &str, pieces: &[&[u8]]) -> Attempt {
    let connect = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes();
    Attempt::Proxy([&[connect][..], &pieces.iter().map(|piece| piece.to_vec()).collect::<Vec<_>>()].concat())
}

fn get(target: &str, headers: &str) -> Attempt {
    raw(&format!("GET {target} HTTP/1.1\r\n{headers}\r\n"))
}

fn post(headers: &str, body: &str) -> Attempt {
    raw(&format!("POST http://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\n{headers}\r\n{body}"))
}

/// A message with one question.
pub(crate) fn question(name: &[u8], kind: u16) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split(|byte| *byte == b'.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label);
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

fn asks(name: &str, kind: u16) -> Attempt {
    Attempt::Question(question(name.as_bytes(), kind))
}

const TLS: &str = "tls.example.com:443";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    hosts(&mut cases);
    requests(&mut cases);
    bodies(&mut cases);
    tls(&mut cases);
    addresses(&mut cases);
    questions(&mut cases);
    cases
}

fn hosts(cases: &mut Vec<Case>) {
    cases.extend([
        case("CONNECT to an unlisted host", connect("evil.example.org:443"), "403"),
        case("CONNECT to the parent of a wildcard", connect("wild.example.com:443"), "403"),
        case("CONNECT to a host that ends like a listed one", connect("nottls.example.com:443"), "403"),
        case("CONNECT to a listed host below another", connect("tls.example.com.evil.example.org:443"), "403"),
        case("CONNECT to port 22 of a listed host", connect("tls.example.com:22"), "403"),
        case("CONNECT without a port", connect("tls.example.com"), "400"),
        case("CONNECT with an empty port", connect("tls.example.com:"), "400"),
        case("CONNECT with port 0", connect("tls.example.com:0"), "400"),
        case("CONNECT with a port beyond 65535", connect("tls.example.com:65979"), "400"),
        case("CONNECT with a signed port", connect("tls.example.com:+443"), "400"),
        case("CONNECT with two ports", connect("tls.example.com:443:22"), "400"),
        case("CONNECT with a user", connect("tls.example.com:443@evil.example.org:443"), "400"),
        case("CONNECT with a NUL in the host", connect("tls.example.com\0.evil.example.org:443"), "400"),
        case("CONNECT with an escaped NUL", connect("tls.example.com%00.evil.example.org:443"), "400"),
        case("CONNECT with a final dot", connect("tls.example.com.:443"), "400"),
        case("CONNECT with an international name", connect("tls.exämple.com:443"), "400"),
        case("CONNECT with a full-width dot", connect("tls。example.com:443"), "400"),
        case("CONNECT to a URL", connect("https://tls.example.com:443/"), "400"),
        case("CONNECT to an address", connect("203.0.113.80:443"), "403"),
        case("CONNECT to loopback", connect("127.0.0.1:443"), "403"),
        case("CONNECT to metadata", connect("169.254.169.254:80"), "403"),
        case("CONNECT to a short address", connect("127.1:443"), "403"),
        case("CONNECT to a hexadecimal address", connect("0x7f.1:443"), "403"),
        case("CONNECT to a decimal address", connect("2130706433:443"), "403"),
        case("CONNECT to an octal address", connect("0177.0.0.1:443"), "403"),
        case("CONNECT to an address of IPv6", connect("[::1]:443"), "403"),
        case("CONNECT to a mapped address of IPv6", connect("[::ffff:127.0.0.1]:443"), "403"),
        case("CONNECT to an address of IPv6 with a zone", connect("[fe80::1%25eth0]:443"), "403"),
        case(
            "CONNECT with another Host",
            raw("CONNECT tls.example.com:443 HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"),
            "400",
        ),
        case("CONNECT to a name that does not resolve", connect("b.wild.example.com:443"), "502"),
        allowed(
            "CONNECT to a listed host in capitals",
            tunnel("TLS.Example.COM:443", &[&hello("tls.example.com")]),
            "established, data",
        ),
    ]);
    for (name, _) in CLOSED {
        let target = format!("http://{name}.closed.example.com/");
        let attempt = get(&target, &format!("Host: {name}.closed.example.com\r\n"));
        cases.push(case(format!("a name that leads to a closed address: {name}"), attempt, "403"));
    }
}

fn requests(cases: &mut Vec<Case>) {
    let host = "Host: plain.example.com\r\n";
    let many = "X-A: b\r\n".repeat(101);
    let long = format!("X-A: {}\r\n", "b".repeat(70_000));
    let endless = [&b"GET http://plain.example.com/ HTTP/1.1\r\nX-A: "[..], &vec![b'a'; 100 << 20]].concat();
    cases.extend([
        allowed("a request", get("http://plain.example.com/a?b", host), "200"),
        allowed("a request with an upper-case scheme", get("HTTP://plain.example.com/", host), "200"),
        case("a relay by the Host header", get("http://plain.example.com/", "Host: evil.example.org\r\n"), "400"),
        case("an unlisted host with a listed Host header", get("http://evil.example.org/", host), "400"),
        case("another port in the Host header", get("http://plain.example.com/", "Host: plain.example.com:8080\r\n"), "400"),
        case("no Host header", get("http://plain.example.com/", ""), "400"),
        case("two Host headers", get("http://plain.example.com/", &format!("{host}{host}")), "400"),
        case("a Host header with a list", get("http://plain.example.com/", "Host: plain.example.com, evil.example.org\r\n"), "400"),
        case("an unlisted host", get("http://evil.example.org/", "Host: evil.example.org\r\n"), "403"),
        case("a user before the host", get("http://plain.example.com@evil.example.org/", "Host: evil.example.org\r\n"), "400"),
        case("a backslash in the host", get("http://evil.example.org\\.plain.example.com/", host), "400"),
        case("a fragment in the target", get("http://plain.example.com/#@evil.example.org", host), "400"),
        case("a path without a host", get("/", host), "400"),
        case("another scheme", get("ftp://plain.example.com/", host), "400"),
        case("https without a tunnel", get("https://tls.example.com/", "Host: tls.example.com\r\n"), "400"),
        case("clear text for a host of https", get("http://tls.example.com:443/", "Host: tls.example.com:443\r\n"), "403"),
        case("a method that the rule does not have", raw("POST http://api.example.com/v1/a HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 0\r\n\r\n"), "403"),
        case("a path that the rule does not have", get("http://api.example.com/v2", "Host: api.example.com\r\n"), "403"),
        case("a path that climbs", get("http://api.example.com/v1/../v2", "Host: api.example.com\r\n"), "403"),
        case("a path with an escaped slash", get("http://api.example.com/v1/..%2fv2", "Host: api.example.com\r\n"), "403"),
        case("a method in small letters", raw("get http://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n"), "400"),
        case("a method with a line break", raw("GE\nT http://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n"), "400"),
        case("two spaces in the request line", raw("GET  http://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n"), "400"),
        case("HTTP/0.9", raw("GET http://plain.example.com/\r\n\r\n"), "400"),
        case("the preface of HTTP/2", raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "505"),
        case("TLS to the proxy", Attempt::Proxy(vec![hello("tls.example.com")]), "400"),
        case("SOCKS to the proxy", Attempt::Proxy(vec![vec![5, 1, 0]]), "400"),
        case("more than 100 headers", get("http://plain.example.com/", &format!("{host}{many}")), "431"),
        case("a head beyond 64 KiB", get("http://plain.example.com/", &format!("{host}{long}")), "431"),
        case("a head of 100 MiB", Attempt::Proxy(vec![endless]), "431"),
        case("a request behind a request", raw(&format!("GET http://plain.example.com/ HTTP/1.1\r\n{host}Content-Length: 0\r\n\r\nGET http://evil.example.org/ HTTP/1.1\r\nHost: evil.example.org\r\n\r\n")), "200").reaching(),
        case("an upgrade that the host was not asked for", get("http://plain.example.com/", &format!("{host}Connection: Upgrade\r\nUpgrade: h2c\r\n")), "200").reaching(),
        allowed("an upgrade to a WebSocket", Attempt::Proxy(vec![format!("GET http://plain.example.com/ HTTP/1.1\r\n{host}Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n").into_bytes()]), "101"),
    ]);
}

fn bodies(cases: &mut Vec<Case>) {
    let smuggled = "0\r\n\r\nGET http://evil.example.org/ HTTP/1.1\r\n\r\n";
    cases.extend([
        case("two Content-Length", post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), "400"),
        case("two equal Content-Length", post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), "400"),
        case("a list in Content-Length", post("Content-Length: 5, 5\r\n", "hello"), "400"),
        case("a signed Content-Length", post("Content-Length: +5\r\n", "hello"), "400"),
        case("Content-Length with Transfer-Encoding", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", smuggled), "400"),
        case("two Transfer-Encoding", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", smuggled), "400"),
        case("a disguised Transfer-Encoding", post("Transfer-Encoding: xchunked\r\n", smuggled), "400"),
        case("a Transfer-Encoding that ends otherwise", post("Transfer-Encoding: chunked, identity\r\n", smuggled), "400"),
        case("a space before the colon", post("Transfer-Encoding : chunked\r\n", smuggled), "400"),
        case("a form feed in Transfer-Encoding", post("Transfer-Encoding: \x0cchunked\r\n", smuggled), "400"),
        case("two CR at the end of a header", post("Transfer-Encoding: chunked\r\r\n", smuggled), "400"),
        case("a vertical tab in Transfer-Encoding", post("Transfer-Encoding: \x0bchunked\r\n", smuggled), "400"),
        case("Transfer-Encoding in HTTP/1.0", raw("POST http://plain.example.com/ HTTP/1.0\r\nHost: plain.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400"),
        case("a line that ends with LF alone", raw("GET http://plain.example.com/ HTTP/1.1\nHost: plain.example.com\n\n"), "400"),
        case("a CR inside of a header", post("X-A: a\rContent-Length: 5\r\n", "hello"), "400"),
        case("a continued header", post("X-A: a\r\n Content-Length: 5\r\n", "hello"), "400"),
        case("a header without a colon", post("Content-Length\r\n", ""), "400"),
        case("a NUL in a header", post("X-A: a\0b\r\n", ""), "400"),
        case("announced trailers", post("Trailer: X-A\r\nTransfer-Encoding: chunked\r\n", "0\r\nX-A: b\r\n\r\n"), "400"),
        allowed("a body in chunks with hidden trailers", post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\nX-Trailer: b\r\n\r\n"), "200"),
    ]);
}

fn tls(cases: &mut Vec<Case>) {
    let good = message(&[server_name(&["tls.example.com"])]);
    let ech = |name: &str| records(&message(&[(ECH, vec![0; 40]), server_name(&[name])]), 16_000);
    let plain = b"GET / HTTP/1.1\r\nHost: tls.example.com\r\n\r\n";
    let mut two_messages = good.clone();
    two_messages.extend(&good);
    let mut other_kind = good.clone();
    other_kind[0] = 2;
    let mut lying = records(&good, 16_000);
    lying[3] = 0xff;
    let whole = records(&good, 16_000);
    let bytes: Vec<&[u8]> = whole.chunks(1).collect();
    let long = message(&[(21, vec![0; 60_000]), (21, vec![0; 10_000])]);
    cases.extend([
        allowed("TLS with the name of CONNECT", tunnel(TLS, &[&hello("tls.example.com")]), "established, data"),
        allowed("a ClientHello in records of one byte", tunnel(TLS, &[&records(&good, 1)]), "established, data"),
        allowed("a ClientHello in segments of one byte", tunnel(TLS, &bytes), "established, data"),
        allowed("a name with capitals", tunnel(TLS, &[&hello("TLS.example.COM")]), "established, data"),
        allowed("ECH with the outer name of CONNECT", tunnel(TLS, &[&ech("tls.example.com")]), "established, data"),
        case("another name than that of CONNECT", tunnel(TLS, &[&hello("a.wild.example.com")]), "established, alert"),
        case("an unlisted name", tunnel(TLS, &[&hello("evil.example.org")]), "established, alert"),
        case(
            "another name over split records",
            tunnel(TLS, &[&records(&message(&[server_name(&["evil.example.org"])]), 3)]),
            "established, alert",
        ),
        case("ECH with another outer name", tunnel(TLS, &[&ech("cloudflare-ech.com")]), "established, alert"),
        case(
            "ECH without an outer name",
            tunnel(TLS, &[&records(&message(&[(ECH, vec![0; 40])]), 16_000)]),
            "established, alert",
        ),
        case("no name", tunnel(TLS, &[&records(&message(&[]), 16_000)]), "established, alert"),
        case(
            "two names in one list",
            tunnel(TLS, &[&records(&message(&[server_name(&["tls.example.com", "evil.example.org"])]), 16_000)]),
            "established, alert",
        ),
        case(
            "two lists of names",
            tunnel(
                TLS,
                &[&records(&message(&[server_name(&["tls.example.com"]), server_name(&["evil.example.org"])]), 16_000)],
            ),
            "established, alert",
        ),
        case(
            "two lists of names, the other one first",
            tunnel(
                TLS,
                &[&records(&message(&[server_name(&["evil.example.org"]), server_name(&["tls.example.com"])]), 16_000)],
            ),
            "established, alert",
        ),
        case(
            "two names in one list, the other one first",
            tunnel(TLS, &[&records(&message(&[server_name(&["evil.example.org", "tls.example.com"])]), 16_000)]),
            "established, alert",
        ),
        case(
            "an empty list of names",
            tunnel(TLS, &[&records(&message(&[(SERVER_NAME, vec![0, 0])]), 16_000)]),
            "established, alert",
        ),
        case("a name with a final dot", tunnel(TLS, &[&hello("tls.example.com.")]), "established, alert"),
        case("a name with a NUL", tunnel(TLS, &[&hello("tls.example.com\0.evil.example.org")]), "established, alert"),
        case("an address as a name", tunnel(TLS, &[&hello("203.0.113.80")]), "established, alert"),
        case("a message after the ClientHello", tunnel(TLS, &[&records(&two_messages, 16_000)]), "established, alert"),
        case("a ServerHello", tunnel(TLS, &[&records(&other_kind, 16_000)]), "established, alert"),
        case("a record that is too long", tunnel(TLS, &[&lying]), "established, alert"),
        case("a ClientHello beyond 64 KiB", tunnel(TLS, &[&records(&long, 16_000)]), "established, alert"),
        case("half of a ClientHello", tunnel(TLS, &[&whole[..30]]), "established, closed"),
        case("TLS 1.0 in the way of SSL 2", tunnel(TLS, &[&[0x80, 0x2e, 1, 3, 1]]), "established, alert"),
        case("SSH in a tunnel for https", tunnel(TLS, &[b"SSH-2.0-OpenSSH_9.9\r\n"]), "established, 403"),
        case("clear text in a tunnel for https", tunnel(TLS, &[plain]), "established, 403"),
        allowed(
            "anything in a tunnel for tcp",
            tunnel("raw.example.com:9000", &[b"\0\x01anything"]),
            "established, data",
        ),
        allowed(
            "TLS where both may pass",
            tunnel("both.example.com:8443", &[&hello("both.example.com")]),
            "established, data",
        ),
        allowed(
            "a request where both may pass",
            tunnel("both.example.com:8443", &[b"GET / HTTP/1.1\r\nHost: both.example.com:8443\r\n\r\n"]),
            "established, 200",
        ),
        case(
            "another name where both may pass",
            tunnel("both.example.com:8443", &[&hello("evil.example.org")]),
            "established, alert",
        ),
        case(
            "TLS in a tunnel for http",
            tunnel("plain.example.com:80", &[&hello("plain.example.com")]),
            "established, alert",
        ),
        allowed(
            "a request in a tunnel for http",
            tunnel("plain.example.com:80", &[b"GET / HTTP/1.1\r\nHost: plain.example.com\r\n\r\n"]),
            "established, 200",
        ),
        allowed(
            "a WebSocket in a tunnel for http",
            tunnel(
                "plain.example.com:80",
                &[b"GET / HTTP/1.1\r\nHost: plain.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"],
            ),
            "established, 101",
        ),
        case(
            "the preface of HTTP/2 in a tunnel for http",
            tunnel("plain.example.com:80", &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]),
            "established, 505",
        ),
        case(
            "LF alone in a tunnel for http",
            tunnel("plain.example.com:80", &[b"GET / HTTP/1.1\nHost: plain.example.com\n\n"]),
            "established, 400",
        ),
        case(
            "a relay in a tunnel for http",
            tunnel("plain.example.com:80", &[b"GET / HTTP/1.1\r\nHost: evil.example.org\r\n\r\n"]),
            "established, 403",
        ),
        case(
            "CONNECT in a tunnel for http",
            tunnel(
                "plain.example.com:80",
                &[b"CONNECT plain.example.com:80 HTTP/1.1\r\nHost: plain.example.com:80\r\n\r\n"],
            ),
            "established, 403",
        ),
        case(
            "a method in a tunnel that the rule does not have",
            tunnel("api.example.com:80", &[b"DELETE /v1 HTTP/1.1\r\nHost: api.example.com\r\n\r\n"]),
            "established, 403",
        ),
    ]);
}

fn addresses(cases: &mut Vec<Case>) {
    let request = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    cases.extend([
        allowed(
            "TLS to the address of its host",
            Attempt::Address("tls.example.com", 443, hello("tls.example.com")),
            "data",
        ),
        allowed(
            "a request to the address of its host",
            Attempt::Address("plain.example.com", 80, request("plain.example.com")),
            "200",
        ),
        allowed(
            "anything to the address of a host for tcp",
            Attempt::Address("raw.example.com", 9000, b"\0any".to_vec()),
            "data",
        ),
        case(
            "TLS for another host to an address",
            Attempt::Address("tls.example.com", 443, hello("a.wild.example.com")),
            "alert",
        ),
        case(
            "a request for another host to an address",
            Attempt::Address("plain.example.com", 80, request("api.example.com")),
            "403",
        ),
        case(
            "a request without a host to an address",
            Attempt::Address("plain.example.com", 80, b"GET / HTTP/1.0\r\n\r\n".to_vec()),
            "403",
        ),
        case("another port of a listed host", Attempt::Address("tls.example.com", 9000, b"\0any".to_vec()), "closed"),
        case("an address that stands for no host", Attempt::UnknownAddress(443), "closed"),
        allowed("a service of this machine", Attempt::Service("\0any"), "data"),
    ]);
}

fn questions(cases: &mut Vec<Case>) {
    let good = question(b"tls.example.com", 1);
    let with = |at: usize, byte: u8| {
        let mut message = good.clone();
        message[at] = byte;
        Attempt::Question(message)
    };
    let tunnel = format!("{}.wild.example.com", "6578666c".repeat(7));
    let oversized = [&good[..], &[0; 1300]].concat();
    cases.extend([
        case("the address of a listed name", asks("tls.example.com", 1), "code 0, 1 answers"),
        case("an address of IPv6", asks("tls.example.com", 28), "code 0, 0 answers"),
        case("the texts of a listed name", asks("tls.example.com", 16), "code 0, 0 answers"),
        case("everything of a listed name", asks("tls.example.com", 255), "code 0, 0 answers"),
        case("a transfer of the zone", asks("example.com", 252), "code 3, 0 answers"),
        case("an unlisted name", asks("evil.example.org", 1), "code 3, 0 answers"),
        case("the texts of an unlisted name", asks("evil.example.org", 16), "code 3, 0 answers"),
        case(
            "data in an unlisted name",
            asks(&format!("{}.evil.example.org", "61".repeat(30)), 1),
            "code 3, 0 answers",
        ),
        case("data below a listed suffix, which asks no one", asks(&tunnel, 1), "code 0, 1 answers"),
        case("the name of an address", asks("1.0.0.127.in-addr.arpa", 12), "code 3, 0 answers"),
        case("a name with a NUL", asks("tls.example.com\0", 1), "code 3, 0 answers"),
        case("the root", asks("", 2), "code 3, 0 answers"),
        case("a pointer to itself", with(12, 0xc0), "code 1, 0 answers"),
        case("a label beyond the end", with(12, 60), "code 1, 0 answers"),
        case("two questions", with(5, 2), "code 1, 0 answers"),
        case("no question", with(5, 0), "code 1, 0 answers"),
        case("an update", with(2, 0x28), "code 4, 0 answers"),
        case("another class", with(good.len() - 1, 3), "code 1, 0 answers"),
        case("an answer instead of a question", with(2, 0x80), "nothing"),
        case("half of a header", Attempt::Question(good[..6].to_vec()), "nothing"),
        case("a question that is too long", Attempt::Question(oversized), "nothing"),
        case("the address of a listed name over TCP", Attempt::QuestionTcp(good.clone()), "code 0, 1 answers"),
        case("an unlisted name over TCP", Attempt::QuestionTcp(question(b"evil.example.org", 1)), "code 3, 0 answers"),
    ]);
}

impl Case {
    fn reaching(self) -> Self {
        Self { reaches: true, ..self }
    }
}

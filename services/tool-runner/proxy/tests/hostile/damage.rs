//! Damaged requests: whatever reaches the host is one whole request for that host.

use crate::world::{World, talk};

/// Pieces that other parsers may read otherwise.
const PIECES: &[&str] = &[
    "\r",
    "\n",
    "\r\n",
    "\0",
    " ",
    "\t",
    ":",
    "@",
    "//",
    "\\",
    "#",
    "%0d%0a",
    "evil.example.org",
    "http://evil.example.org/",
    "Host: evil.example.org\r\n",
    "\r\nHost: evil.example.org",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "Content-Length: 3\r\n",
    "Connection: host, content-length, transfer-encoding\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "0\r\n\r\nGET /second HTTP/1.1\r\nHost: evil.example.org\r\n\r\n",
    "\r\n\r\nGET /second HTTP/1.1\r\nHost: evil.example.org\r\n\r\n",
    "Expect: 100-continue\r\n",
    "HTTP/1.0",
    "\u{e9}",
];

const REQUESTS: &[&str] = &[
    "GET http://plain.example.com/a?b=c HTTP/1.1\r\nHost: plain.example.com\r\nX-A: b\r\n\r\n",
    "POST http://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\nContent-Length: 5\r\n\r\nhello",
    "POST http://plain.example.com:80/ HTTP/1.1\r\nHost: plain.example.com:80\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "CONNECT plain.example.com:80 HTTP/1.1\r\nHost: plain.example.com:80\r\n\r\nGET / HTTP/1.1\r\nHost: plain.example.com\r\n\r\n",
];

/// Numbers that are the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

fn damaged(numbers: &mut Numbers) -> Vec<u8> {
    let mut request = REQUESTS[numbers.below(REQUESTS.len())].as_bytes().to_vec();
    for _ in 0..=numbers.below(2) {
        let piece = PIECES[numbers.below(PIECES.len())].as_bytes();
        // Half of them where a line begins.
        let lines: Vec<usize> = (1..request.len()).filter(|at| request[at - 1] == b'\n').collect();
        let at = match numbers.below(2) {
            0 => numbers.below(request.len()),
            _ => lines[numbers.below(lines.len())],
        };
        let removed = at..(at + numbers.below(3)).min(request.len());
        request.splice(removed, piece.iter().copied());
    }
    request
}

/// What is wrong with the bytes that a host received over one connection.
fn problem(received: &[u8]) -> Option<String> {
    let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Some("no whole head".to_owned());
    };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap();
    if !first.ends_with(" http/1.1") || first.split(' ').count() != 3 || first.split(' ').nth(1)?.as_bytes()[0] != b'/'
    {
        return Some(format!("the first line is {first}"));
    }
    let fields: Vec<(&str, &str)> = lines.map(|line| line.split_once(": ").unwrap_or((line, ""))).collect();
    let all = |name: &str| fields.iter().filter(|field| field.0 == name).map(|field| field.1).collect::<Vec<_>>();
    if all("host") != ["plain.example.com"] {
        return Some(format!("the hosts are {:?}", all("host")));
    }
    let body = &received[end + 4..];
    let is_whole = match (&all("content-length")[..], &all("transfer-encoding")[..]) {
        ([], []) => body.is_empty(),
        ([length], []) => body.len() <= length.parse().unwrap(),
        // A body that was cut ends anywhere.
        ([], ["chunked"]) => !body.ends_with(b"0\r\n\r\n") || chunks_end(body) == Some(body.len()),
        _ => false,
    };
    (!is_whole && !head.contains("upgrade: websocket")).then(|| "the body is not that of the head".to_owned())
}

/// Where a body in chunks ends.
fn chunks_end(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = at + body[at..].windows(2).position(|two| two == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&body[at..line]).ok()?, 16).ok()?;
        at = line + 2 + length + 2;
        if length == 0 {
            return Some(at);
        }
        body.get(at..)?;
    }
}

#[tokio::test]
async fn whatever_reaches_the_host_is_one_request_for_it() {
    let mut world = World::new().await;
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let rounds = 2_000;
    for _ in 0..rounds {
        talk(world.proxy, &[&damaged(&mut numbers)]).await;
    }
    let report = world.close().await;
    let received = world.received.lock().unwrap();
    let reached: Vec<&Vec<u8>> = received.iter().filter(|bytes| !bytes.is_empty()).collect();
    for bytes in &reached {
        assert_eq!(problem(bytes), None, "{:?}", String::from_utf8_lossy(bytes));
    }
    println!("{} of {rounds} passed", reached.len());
    assert!((rounds / 20..rounds / 2).contains(&reached.len()), "{} of {rounds} passed", reached.len());
    assert!(report.connections.iter().all(|one| !one.is_allowed || one.host == "plain.example.com"));
}

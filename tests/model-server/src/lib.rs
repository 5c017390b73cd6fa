//! A server of models for tests, which owns every byte that it sends: their pieces, the pauses between them, and how a connection ends.
//!
//! It has threads and sockets of the standard library alone, so that tests of any kind can start it.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// A request that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// `POST /v1/chat/completions`.
    pub target: String,
    /// The headers, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Received {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes, sent at once.
    Bytes(Vec<u8>),
    /// Nothing for so long, or until the client is gone or the server ends.
    Pause(Duration),
}

/// What the server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status and the headers, without the blank line: `200 OK` and `content-type: text/event-stream`.
    pub head: Vec<String>,
    /// The body in its pieces.
    pub pieces: Vec<Piece>,
    /// Whether the body has its declared end. Without it the connection ends in the middle.
    pub is_whole: bool,
}

impl Reply {
    /// A stream of events with this text, sent at once.
    pub fn stream(text: impl Into<String>) -> Self {
        Self::pieces(vec![Piece::Bytes(text.into().into_bytes())])
    }

    /// A stream of events in these pieces.
    pub fn pieces(pieces: Vec<Piece>) -> Self {
        Self { head: vec!["200 OK".to_owned(), "content-type: text/event-stream".to_owned()], pieces, is_whole: true }
    }

    /// A JSON document with a status such as `404 Not Found`.
    pub fn json(status: &str, text: impl Into<String>) -> Self {
        let head = vec![status.to_owned(), "content-type: application/json".to_owned()];
        Self { head, pieces: vec![Piece::Bytes(text.into().into_bytes())], is_whole: true }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, header: &str) -> Self {
        self.head.push(header.to_owned());
        self
    }

    /// The same, whose connection ends before the body does.
    #[must_use]
    pub fn broken(self) -> Self {
        Self { is_whole: false, ..self }
    }
}

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<AtomicUsize>,
    ended: Arc<Ended>,
}

#[derive(Default)]
struct Ended {
    has_ended: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Server {
    /// Starts one on a free port of this machine, which answers every request with what `reply` says.
    ///
    /// # Panics
    /// When no port can be had.
    pub fn start(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (received, ended) = (Arc::<Mutex<Vec<Received>>>::default(), Arc::<Ended>::default());
        let reply = Arc::new(reply);
        let (all, over) = (Arc::clone(&received), Arc::clone(&ended));
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.has_ended.load(Ordering::SeqCst) {
                    return;
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let (reply, all, over) = (Arc::clone(&reply), Arc::clone(&all), Arc::clone(&over));
                // A client that goes away is no failure.
                thread::spawn(move || drop(answer(stream, &*reply, &all, &over)));
            }
        });
        Self { address, received, connections, ended }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL that models of it have.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.has_ended.store(true, Ordering::SeqCst);
        self.ended.changed.notify_all();
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
    }
}

/// Answers the requests of a connection, one after the other.
fn answer(
    stream: TcpStream,
    reply: &(dyn Fn(&Received) -> Reply + Send + Sync),
    all: &Mutex<Vec<Received>>,
    ended: &Ended,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    while let Some(request) = read(&mut input)? {
        all.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let Reply { head, pieces, is_whole } = reply(&request);
        let mut start = format!("HTTP/1.1 {}\r\n", head.join("\r\n"));
        start.push_str("transfer-encoding: chunked\r\n\r\n");
        output.write_all(start.as_bytes())?;
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) if bytes.is_empty() => {}
                Piece::Bytes(bytes) => {
                    output.write_all(&[format!("{:x}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat())?;
                }
                Piece::Pause(time) => {
                    let lock = ended.lock.lock().unwrap_or_else(PoisonError::into_inner);
                    let waits = |_: &mut ()| !ended.has_ended.load(Ordering::SeqCst);
                    drop(ended.changed.wait_timeout_while(lock, time, waits));
                }
            }
        }
        if !is_whole {
            return Ok(());
        }
        output.write_all(b"0\r\n\r\n")?;
    }
    Ok(())
}

fn read(input: &mut BufReader<TcpStream>) -> io::Result<Option<Received>> {
    let mut line = || -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = input.read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end().to_owned()))
    };
    let Some(first) = line()? else { return Ok(None) };
    let mut headers = Vec::new();
    while let Some(header) = line()?.filter(|line| !line.is_empty()) {
        if let Some((name, value)) = header.split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    input.read_exact(&mut body)?;
    let target = first.rsplit_once(' ').map_or(first.as_str(), |(target, _)| target).to_owned();
    Ok(Some(Received { target, headers, body: String::from_utf8_lossy(&body).into_owned() }))
}

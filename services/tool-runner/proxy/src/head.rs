//! Reads the head of an HTTP/1.1 request strictly: a head that two programs may read in two ways is refused.

use belay_network::{Host, HostProblem};

/// The longest method.
const MAX_METHOD: usize = 32;

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its method.
    pub method: String,
    /// Its target.
    pub target: Target,
    /// The host and port of its `Host` header, without a port where it has none.
    pub host: Option<(Host, Option<u16>)>,
    /// Whether it asks for a WebSocket.
    pub is_web_socket: bool,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The host and port of a `CONNECT`.
    Tunnel(Host, u16),
    /// The host, port and path with its query of `http://host:port/path?query`.
    Absolute(Host, u16, String),
    /// The same of `https://host:port/path?query`, which only the runner may ask for.
    AbsoluteTls(Host, u16, String),
    /// A path with its query.
    Path(String),
}

/// The reason why a head is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadProblem {
    /// The status of the answer.
    pub status: u16,
    /// The problem, and what to do.
    pub message: String,
    /// The host as it was asked for, if that is what is wrong.
    pub host: Option<(String, u16)>,
}

/// The state of a head that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadState {
    /// More bytes are needed.
    Incomplete,
    /// It is complete with this many bytes.
    Complete(usize),
    /// It cannot become one.
    Problem(HeadProblem),
}

fn bad(message: impl Into<String>) -> HeadProblem {
    HeadProblem { status: 400, message: message.into(), host: None }
}

/// Looks for the end of a head; `from` is the number of bytes that were looked at before.
pub fn head_state(bytes: &[u8], from: usize, limit: usize) -> HeadState {
    if bytes.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
        return HeadState::Problem(bad("the first bytes are not a request of HTTP/1.1"));
    }
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            0 => return HeadState::Problem(bad("the head of the request has a NUL byte")),
            b'\n' if at == 0 || bytes.get(at - 1) != Some(&b'\r') => {
                return HeadState::Problem(bad("a line of the head ends with LF alone: end it with CR LF"));
            }
            b'\n' if at >= 3 && bytes.get(at - 3..at) == Some(b"\r\n\r") => return HeadState::Complete(at + 1),
            _ => {}
        }
        if at >= limit {
            break;
        }
    }
    if bytes.len() > limit {
        return HeadState::Problem(HeadProblem {
            status: 431,
            message: format!("the head of the request is longer than {limit} bytes"),
            host: None,
        });
    }
    HeadState::Incomplete
}

/// The meaning of the `Host` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHeader {
    /// It names the host that is asked for.
    Named,
    /// Nothing follows from it: the connection alone says which host it is, by an address that programs repeat in the header.
    Ignored,
}

/// Whether the proxy may be asked for TLS with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AbsoluteTls {
    Taken,
    Refused,
}

/// Reads a complete head, with its empty line. `max_headers` is the most headers.
///
/// # Errors
/// When it is not a request of HTTP/1.0 or 1.1, or can be read in more than one way.
pub fn read_head(bytes: &[u8], max_headers: usize, meaning: HostHeader) -> Result<Head, HeadProblem> {
    read(bytes, max_headers, meaning, AbsoluteTls::Refused)
}

/// Reads the head of a request that the runner makes for a tool: its target may be `https://…`, with which the proxy speaks TLS.
///
/// # Errors
/// As [`read_head`].
pub fn read_tool_head(bytes: &[u8], max_headers: usize) -> Result<Head, HeadProblem> {
    read(bytes, max_headers, HostHeader::Named, AbsoluteTls::Taken)
}

fn read(bytes: &[u8], max_headers: usize, meaning: HostHeader, tls: AbsoluteTls) -> Result<Head, HeadProblem> {
    let text = bytes.strip_suffix(b"\r\n\r\n").ok_or_else(|| bad("the head of the request is incomplete"))?;
    let mut lines = Lines(Some(text));
    let first = lines.next().unwrap_or_default();
    let (method, target, is_1_0) = request_line(first)?;
    let fields = fields(lines, max_headers)?;
    let target = target_of(&method, target, tls)?;
    let host = match single(&fields, "host")? {
        Some(_) if meaning == HostHeader::Ignored => None,
        Some(value) => Some(host_header(value)?),
        None if is_1_0 || matches!(target, Target::Tunnel(..)) => None,
        None => return Err(bad("the request has no `Host` header")),
    };
    match (&target, &host) {
        (Target::Tunnel(name, port), Some((header, header_port)))
            if name != header || header_port.is_some_and(|header_port| header_port != *port) =>
        {
            return Err(bad(format!("CONNECT asks for {name}:{port}, but its `Host` header says {header}")));
        }
        (Target::Absolute(name, port, _) | Target::AbsoluteTls(name, port, _), Some((header, header_port)))
            if name != header || header_port.unwrap_or(default_port(&target)) != *port =>
        {
            return Err(bad(format!("the request asks for {name}:{port}, but its `Host` header says {header}")));
        }
        _ => {}
    }
    check_body(&fields, is_1_0)?;
    let is_web_socket = method == "GET"
        && !is_1_0
        && single(&fields, "upgrade")?.is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
        && fields.iter().any(|(name, value)| {
            name == "connection"
                && value.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
        });
    Ok(Head { method, target, host, is_web_socket })
}

/// The lines of a text with CR LF between them. [`head_state`] has refused every other LF.
struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        match rest.windows(2).position(|pair| pair == b"\r\n") {
            Some(at) => {
                self.0 = rest.get(at + 2..);
                rest.get(..at)
            }
            None => {
                self.0 = None;
                Some(rest)
            }
        }
    }
}

fn request_line(line: &[u8]) -> Result<(String, &str, bool), HeadProblem> {
    let line = std::str::from_utf8(line).ok().filter(|line| line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    let line = line.ok_or_else(|| {
        bad("the request line has a character that is not ASCII: write an international name in its `xn--` form, and escape others")
    })?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("the request line is not `METHOD target HTTP/1.1`"));
    };
    let is_method = (1..=MAX_METHOD).contains(&method.len())
        && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if !is_method {
        return Err(bad("the method has a character that is not an upper-case letter"));
    }
    match version {
        "HTTP/1.1" => Ok((method.to_owned(), target, false)),
        "HTTP/1.0" => Ok((method.to_owned(), target, true)),
        _ => Err(HeadProblem {
            status: 505,
            message: "the version is not HTTP/1.1: HTTP/2 passes inside of TLS only".to_owned(),
            host: None,
        }),
    }
}

fn fields<'a>(lines: Lines<'a>, max: usize) -> Result<Vec<(String, &'a [u8])>, HeadProblem> {
    let mut fields = Vec::new();
    for line in lines {
        if fields.len() == max {
            let message = format!("the request has more than {max} headers");
            return Err(HeadProblem { status: 431, message, host: None });
        }
        if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(bad("a header is continued on another line"));
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(|| bad("a header has no colon"))?;
        let (name, value) = line.split_at(colon);
        let is_token = !name.is_empty()
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
        if !is_token {
            return Err(bad("the name of a header has a space or another character that is not allowed"));
        }
        let value = value.get(1..).unwrap_or_default();
        if value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(bad("a header has a control character"));
        }
        // Without control characters, this is the space around it.
        fields.push((String::from_utf8_lossy(name).to_ascii_lowercase(), value.trim_ascii()));
    }
    Ok(fields)
}

/// The value of a header that may be there once.
fn single<'a>(fields: &[(String, &'a [u8])], name: &str) -> Result<Option<&'a [u8]>, HeadProblem> {
    let mut values = fields.iter().filter(|(known, _)| known == name).map(|(_, value)| *value);
    let first = values.next();
    match values.next() {
        Some(_) => Err(bad(format!("the request has more than one `{name}` header"))),
        None => Ok(first),
    }
}

/// Checks that the length of the body has one reading.
fn check_body(fields: &[(String, &[u8])], is_1_0: bool) -> Result<(), HeadProblem> {
    let length = single(fields, "content-length")?;
    let coding = single(fields, "transfer-encoding")?;
    if length.is_some() && coding.is_some() {
        return Err(bad("the request has both `Content-Length` and `Transfer-Encoding`"));
    }
    if length.is_some_and(|digits| !(1..=18).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit)) {
        return Err(bad("the `Content-Length` is not a number"));
    }
    if coding.is_some_and(|coding| is_1_0 || !coding.eq_ignore_ascii_case(b"chunked")) {
        return Err(bad("the `Transfer-Encoding` is not `chunked` alone"));
    }
    if fields.iter().any(|(name, _)| name == "trailer") {
        return Err(bad("the request announces trailers, which are not passed on"));
    }
    Ok(())
}

fn host_header(value: &[u8]) -> Result<(Host, Option<u16>), HeadProblem> {
    let text = std::str::from_utf8(value).map_err(|_| bad("the `Host` header is not ASCII"))?;
    let (host, port) = match text.split_once(':') {
        Some((host, port)) if !text.starts_with('[') => (host, Some(port_of(port)?)),
        _ => (text, None),
    };
    let host = Host::parse(host).map_err(|problem| bad(format!("the `Host` header {problem}")))?;
    Ok((host, port))
}

fn port_of(digits: &str) -> Result<u16, HeadProblem> {
    let is_number = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = if is_number { digits.parse::<u16>().ok() } else { None };
    port.filter(|port| *port > 0).ok_or_else(|| bad("the port is not a number from 1 to 65535"))
}

/// The port of a URL that names none.
fn default_port(target: &Target) -> u16 {
    if matches!(target, Target::AbsoluteTls(..)) { 443 } else { 80 }
}

fn target_of(method: &str, target: &str, tls: AbsoluteTls) -> Result<Target, HeadProblem> {
    if method == "CONNECT" {
        let (host, port) = authority(target)?;
        let port = port.ok_or_else(|| bad("CONNECT needs a port: `CONNECT host:443`"))?;
        return Ok(Target::Tunnel(host, port));
    }
    if target.starts_with('/') {
        return path_of(target).map(Target::Path);
    }
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(bad("the target is neither `http://host/path` nor a path"));
    };
    let is_tls = scheme.eq_ignore_ascii_case("https");
    if is_tls && tls == AbsoluteTls::Refused {
        return Err(bad("the proxy does not speak TLS for a client: use CONNECT"));
    }
    if !is_tls && !scheme.eq_ignore_ascii_case("http") {
        return Err(bad("the scheme is not `http`"));
    }
    let (name, path) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let (host, port) = authority(name)?;
    let path = if path.starts_with('?') { path_of(&format!("/{path}"))? } else { path_of(path)? };
    Ok(match is_tls {
        true => Target::AbsoluteTls(host, port.unwrap_or(443), path),
        false => Target::Absolute(host, port.unwrap_or(80), path),
    })
}

/// The path with its query, if it has only characters of one (RFC 3986).
fn path_of(path: &str) -> Result<String, HeadProblem> {
    let is_path = path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%[]|".contains(&byte))
        && path.parse::<http::uri::PathAndQuery>().is_ok();
    if is_path { Ok(path.to_owned()) } else { Err(bad("the path has a character that has to be escaped")) }
}

/// Reads `host` or `host:port`.
fn authority(text: &str) -> Result<(Host, Option<u16>), HeadProblem> {
    if text.contains('@') {
        return Err(bad("the target has a user before the host: send it as an `Authorization` header"));
    }
    let (name, port) = if text.starts_with('[') {
        match text.split_once(']') {
            Some((_, rest)) => (text.get(..text.len() - rest.len()).unwrap_or(text), rest.strip_prefix(':')),
            None => (text, None),
        }
    } else {
        match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        }
    };
    let port = port.map(port_of).transpose()?;
    Host::parse(name).map(|host| (host, port)).map_err(|problem| {
        let status = if problem == HostProblem::Address { 403 } else { 400 };
        let shown: String = name.chars().take(100).collect();
        let message = format!("the host `{shown}` {problem}");
        HeadProblem { status, message, host: Some((shown, port.unwrap_or(0))) }
    })
}

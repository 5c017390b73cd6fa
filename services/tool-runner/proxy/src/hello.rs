//! Reads the server name of a TLS ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3), and nothing after it.

use std::fmt;

use belay_network::Host;

/// The type of a record with handshake messages.
const HANDSHAKE: u8 = 22;
/// The largest record without encryption.
const MAX_RECORD: usize = 1 << 14;
/// The type of the ClientHello among handshake messages.
const CLIENT_HELLO: u8 = 1;
/// The extension with the server name.
const SERVER_NAME: u16 = 0;
/// The kind of a server name that is the name of a host.
const HOST_NAME: u8 = 0;

/// The state of a ClientHello that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// More bytes are needed.
    Incomplete,
    /// It names this host.
    Name(Host),
    /// It names none, or cannot be read.
    Problem(HelloProblem),
}

/// The reason why a ClientHello names no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloProblem {
    /// The first bytes are not TLS.
    NotTls,
    /// It is TLS, but not a well-formed ClientHello.
    Malformed,
    /// It is longer than the limit.
    TooLong,
    /// It has no server name.
    NoName,
    /// It has several server names, or one of an unknown kind.
    ManyNames,
    /// Its server name is not the name of a host.
    BadName,
}

impl fmt::Display for HelloProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTls => "the first bytes are not TLS",
            Self::Malformed => "the TLS ClientHello is malformed",
            Self::TooLong => "the TLS ClientHello is too long",
            Self::NoName => "the TLS ClientHello has no server name: the client has to send one (SNI)",
            Self::ManyNames => "the TLS ClientHello has more than one server name",
            Self::BadName => "the server name of the TLS ClientHello is not the name of a host",
        })
    }
}

/// Reads the server name from the first bytes of a connection; `limit` is the most bytes of the message.
///
/// A ClientHello may be spread over records and segments in any way. With Encrypted ClientHello the name that is read is the outer one, to which the connection
/// leads; the inner one is not seen.
pub fn read_client_hello(bytes: &[u8], limit: usize) -> Hello {
    match read(bytes, limit) {
        Ok(Some(host)) => Hello::Name(host),
        Ok(None) => Hello::Incomplete,
        Err(problem) => Hello::Problem(problem),
    }
}

fn read(bytes: &[u8], limit: usize) -> Result<Option<Host>, HelloProblem> {
    let Some(message) = message(bytes, limit)? else { return Ok(None) };
    let name = server_name(&message).ok_or(HelloProblem::Malformed)??;
    Ok(Some(name))
}

/// The body of the ClientHello, put together from its records. `None`: it is incomplete.
fn message(mut bytes: &[u8], limit: usize) -> Result<Option<Vec<u8>>, HelloProblem> {
    let mut collected = Vec::new();
    loop {
        match *bytes {
            [] => return Ok(None),
            [kind, ..] if kind != HANDSHAKE => {
                return Err(if collected.is_empty() { HelloProblem::NotTls } else { HelloProblem::Malformed });
            }
            [_, major, ..] if major != 3 => return Err(HelloProblem::NotTls),
            _ => {}
        }
        let Some((header, rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > MAX_RECORD {
            return Err(HelloProblem::Malformed);
        }
        let has_all = rest.len() >= length;
        let (fragment, rest) = rest.split_at(length.min(rest.len()));
        collected.extend_from_slice(fragment);
        if let Some((header, body)) = collected.split_first_chunk::<4>() {
            let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
            if header[0] != CLIENT_HELLO {
                return Err(HelloProblem::Malformed);
            }
            if length > limit {
                return Err(HelloProblem::TooLong);
            }
            if let Some(message) = body.get(..length) {
                // A handshake message after a ClientHello in the same record is not what clients send.
                return if body.len() == length { Ok(Some(message.to_vec())) } else { Err(HelloProblem::Malformed) };
            }
        }
        if !has_all {
            return Ok(None);
        }
        bytes = rest;
    }
}

/// The server name in the body of a ClientHello. `None`: it is malformed.
fn server_name(message: &[u8]) -> Option<Result<Host, HelloProblem>> {
    let mut rest = Reader(message);
    rest.take(2 + 32)?;
    let session = rest.vector8()?;
    let suites = rest.vector16()?;
    let compressions = rest.vector8()?;
    if session.len() > 32 || suites.is_empty() || suites.len() % 2 != 0 || compressions.is_empty() {
        return None;
    }
    if rest.0.is_empty() {
        return Some(Err(HelloProblem::NoName));
    }
    let mut extensions = Reader(rest.vector16()?);
    if !rest.0.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let body = extensions.vector16()?;
        if kind == SERVER_NAME && found.replace(body).is_some() {
            return Some(Err(HelloProblem::ManyNames));
        }
    }
    let Some(found) = found else { return Some(Err(HelloProblem::NoName)) };
    let mut outer = Reader(found);
    let mut list = Reader(outer.vector16()?);
    if !outer.0.is_empty() {
        return None;
    }
    let kind = list.take(1)?;
    let name = list.vector16()?;
    if !list.0.is_empty() || kind != [HOST_NAME] {
        return Some(Err(HelloProblem::ManyNames));
    }
    let host = std::str::from_utf8(name).ok().and_then(|name| Host::parse(name).ok());
    Some(host.ok_or(HelloProblem::BadName))
}

/// The bytes that are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        let (taken, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*taken))
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first()?;
        self.0 = rest;
        self.take(usize::from(*length))
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}

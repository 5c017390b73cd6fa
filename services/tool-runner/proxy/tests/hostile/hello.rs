//! ClientHellos, well-formed and not.

/// An extension: its type, and its body.
pub(crate) type Extension = (u16, Vec<u8>);

/// The extension with the server name.
pub(crate) const SERVER_NAME: u16 = 0;
/// The extension of Encrypted ClientHello.
pub(crate) const ECH: u16 = 0xfe0d;

fn vector16(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// The extension that names these hosts.
pub(crate) fn server_name(names: &[&str]) -> Extension {
    let entries: Vec<u8> = names.iter().flat_map(|name| [vec![0], vector16(name.as_bytes())].concat()).collect();
    (SERVER_NAME, vector16(&entries))
}

/// The handshake message with these extensions.
pub(crate) fn message(extensions: &[Extension]) -> Vec<u8> {
    let all: Vec<u8> =
        extensions.iter().flat_map(|(kind, body)| [&kind.to_be_bytes()[..], &vector16(body)].concat()).collect();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    // A session, one cipher suite, no compression.
    body.extend([1, 9, 0, 2, 0x13, 1, 1, 0]);
    body.extend(vector16(&all));
    let length = (body.len() as u32).to_be_bytes();
    [&[1, length[1], length[2], length[3]], &body[..]].concat()
}

/// The message in records of at most `size` bytes.
pub(crate) fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|chunk| [&[22, 3, 1][..], &vector16(chunk)].concat()).collect()
}

/// A ClientHello for a host in one record.
pub(crate) fn hello(name: &str) -> Vec<u8> {
    records(&message(&[(10, vec![0, 2, 0, 29]), server_name(&[name])]), 16_000)
}

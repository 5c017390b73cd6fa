//! Messages of DNS (RFC 1035), as far as the stub name server and the resolver need them.
//!
//! No name is decompressed anywhere: a question with a pointer is refused, and of an answer only addresses are read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of a header.
const HEADER: usize = 12;
/// The longest name, with its lengths and the final zero.
const MAX_NAME: usize = 255;
/// The longest label.
const MAX_LABEL: usize = 63;
/// The most addresses that are read from one answer.
const MAX_ADDRESSES: usize = 64;
/// The class of the Internet.
const INTERNET: u16 = 1;

/// The types of records.
pub(crate) mod kind {
    /// An address of IPv4.
    pub(crate) const A: u16 = 1;
    /// An address of IPv6.
    pub(crate) const AAAA: u16 = 28;
    /// How a host offers a service; clients ask for it beside addresses.
    pub(crate) const SVCB: u16 = 64;
    /// The same for HTTPS.
    pub(crate) const HTTPS: u16 = 65;
}

/// The codes of answers.
pub(crate) mod code {
    /// No error, perhaps without records.
    pub(crate) const NO_ERROR: u8 = 0;
    /// The question cannot be read.
    pub(crate) const FORMAT: u8 = 1;
    /// The server cannot answer now.
    pub(crate) const SERVER_FAILURE: u8 = 2;
    /// The code of a name that does not exist.
    pub(crate) const NO_NAME: u8 = 3;
    /// The operation is unknown.
    pub(crate) const NOT_IMPLEMENTED: u8 = 4;
}

/// A question that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    id: u16,
    wants_recursion: bool,
    /// The bytes of the question, which the answer repeats.
    bytes: Vec<u8>,
    /// Its name, with dots, as sent; bytes that are not ASCII are replaced.
    pub(crate) name: String,
    /// The type of records that it asks for.
    pub(crate) kind: u16,
}

/// The outcome of reading a message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuestionOutcome {
    /// A question.
    Question(Question),
    /// This message is the answer: the question cannot be read.
    Error(Vec<u8>),
    /// It gets no answer: it is an answer itself, or too short.
    Ignored,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// Reads a message of a client.
pub(crate) fn read_question(message: &[u8]) -> QuestionOutcome {
    let (Some(id), Some(flags)) = (u16_at(message, 0), u16_at(message, 2)) else { return QuestionOutcome::Ignored };
    if message.len() < HEADER || flags & 0x8000 != 0 {
        return QuestionOutcome::Ignored;
    }
    let wants_recursion = flags & 0x0100 != 0;
    let error = |code| QuestionOutcome::Error(answer_header(id, wants_recursion, code, 0, 0).to_vec());
    if flags & 0x7800 != 0 {
        return error(code::NOT_IMPLEMENTED);
    }
    let counts: Vec<Option<u16>> = (2..6).map(|field| u16_at(message, 2 * field)).collect();
    // One question, and at most what EDNS adds.
    let [Some(1), Some(0), Some(0), Some(0..=1)] = counts[..] else { return error(code::FORMAT) };
    let Some((name, end)) = plain_name(message) else { return error(code::FORMAT) };
    let (Some(kind), Some(INTERNET), Some(bytes)) =
        (u16_at(message, end), u16_at(message, end + 2), message.get(HEADER..end + 4))
    else {
        return error(code::FORMAT);
    };
    QuestionOutcome::Question(Question { id, wants_recursion, bytes: bytes.to_vec(), name, kind })
}

/// The name after the header, and where it ends. `None`: it is malformed, or has a pointer.
fn plain_name(message: &[u8]) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > MAX_LABEL || at + length + 1 - HEADER > MAX_NAME {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for byte in message.get(at..at + length)? {
            // A dot inside of a label is not the dot between two.
            name.push(if byte.is_ascii_graphic() && *byte != b'.' { char::from(*byte) } else { '\u{fffd}' });
        }
        at += length;
    }
}

fn answer_header(id: u16, wants_recursion: bool, code: u8, questions: u16, answers: u16) -> [u8; HEADER] {
    // An answer, with recursion available.
    let flags = 0x8080 | if wants_recursion { 0x0100 } else { 0 } | u16::from(code);
    let mut header = [0; HEADER];
    let fields = [id, flags, questions, answers];
    for (place, field) in header.chunks_exact_mut(2).zip(fields) {
        place.copy_from_slice(&field.to_be_bytes());
    }
    header
}

/// Writes the answer to a question: a code, and an address that is valid for `seconds`.
pub(crate) fn answer(question: &Question, code: u8, address: Option<Ipv4Addr>, seconds: u32) -> Vec<u8> {
    let header = answer_header(question.id, question.wants_recursion, code, 1, u16::from(address.is_some()));
    let mut message = header.to_vec();
    message.extend_from_slice(&question.bytes);
    if let Some(address) = address {
        // The name is that of the question, right after the header.
        message.extend_from_slice(&[0xc0, HEADER as u8]);
        message.extend_from_slice(&kind::A.to_be_bytes());
        message.extend_from_slice(&INTERNET.to_be_bytes());
        message.extend_from_slice(&seconds.to_be_bytes());
        message.extend_from_slice(&4_u16.to_be_bytes());
        message.extend_from_slice(&address.octets());
    }
    message
}

/// Writes a question to a name server.
pub(crate) fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0; HEADER];
    for (place, field) in message.chunks_exact_mut(2).zip([id, 0x0100, 1]) {
        place.copy_from_slice(&field.to_be_bytes());
    }
    for label in name.split('.') {
        // The name of a host has no longer ones.
        message.push(label.len().min(MAX_LABEL) as u8);
        message.extend(label.bytes().take(MAX_LABEL));
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&INTERNET.to_be_bytes());
    message
}

/// The answer of a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Its code.
    pub(crate) code: u8,
    /// Whether it was cut, so that the question has to be asked over TCP.
    pub(crate) is_truncated: bool,
    /// Its addresses of the type that was asked for.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Reads the answer to a question that [`query`] has written. `None`: it is none, or malformed.
///
/// The server has followed aliases (CNAME) itself: every address of the type that was asked for is one of the host.
pub(crate) fn read_answer(message: &[u8], query: &[u8]) -> Option<Answer> {
    let flags = u16_at(message, 2)?;
    if message.get(..2)? != query.get(..2)? || flags & 0x8000 == 0 {
        return None;
    }
    let (code, is_truncated) = ((flags & 0xf) as u8, flags & 0x0200 != 0);
    let asked = query.get(HEADER..)?;
    let repeated = message.get(HEADER..HEADER + asked.len());
    if u16_at(message, 4)? != 1 || !repeated.is_some_and(|repeated| repeated.eq_ignore_ascii_case(asked)) {
        return None;
    }
    let wanted = u16_at(asked, asked.len().checked_sub(4)?)?;
    let mut addresses = Vec::new();
    let mut at = HEADER + asked.len();
    for _ in 0..u16_at(message, 6)? {
        let Some((kind, data, next)) = record(message, at) else {
            // What is cut is asked again.
            if is_truncated { break } else { return None }
        };
        at = next;
        let address = match kind {
            kind::A => <[u8; 4]>::try_from(data).ok().map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
            kind::AAAA => <[u8; 16]>::try_from(data).ok().map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
            _ => None,
        };
        addresses.extend(address.filter(|_| kind == wanted && addresses.len() < MAX_ADDRESSES));
    }
    Some(Answer { code, is_truncated, addresses })
}

/// The type and data of the record at this place, and where the next one begins.
fn record(message: &[u8], at: usize) -> Option<(u16, &[u8], usize)> {
    let at = after_name(message, at)?;
    let (kind, class, length) = (u16_at(message, at)?, u16_at(message, at + 2)?, u16_at(message, at + 8)?);
    let data = message.get(at + 10..at + 10 + usize::from(length))?;
    // A class that is not the Internet's has no address.
    let kind = if class == INTERNET { kind } else { 0 };
    Some((kind, data, at + 10 + data.len()))
}

/// Where a name ends, whose pointers are not followed.
fn after_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=0x3f => at += 1 + usize::from(length),
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(message: &[u8]) -> Question {
        match read_question(message) {
            QuestionOutcome::Question(question) => question,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_address_is_answered_to_the_question_that_asked_for_it() {
        let message = query(0x1234, "Index.crates.io", kind::A);
        let question = question(&message);
        assert_eq!((question.name.as_str(), question.kind), ("Index.crates.io", kind::A));
        let address = Ipv4Addr::new(127, 78, 0, 1);
        let answered = read_answer(&answer(&question, code::NO_ERROR, Some(address), 5), &message).unwrap();
        assert_eq!(answered, Answer { code: 0, is_truncated: false, addresses: vec![address.into()] });
        let refused = read_answer(&answer(&question, code::NO_NAME, None, 0), &message).unwrap();
        assert_eq!(refused, Answer { code: 3, is_truncated: false, addresses: vec![] });
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let asked = query(7, "a.example.com", kind::A);
        let other = |id, name, kind| {
            let question = question(&query(id, name, kind));
            read_answer(&answer(&question, 0, Some(Ipv4Addr::LOCALHOST), 1), &asked)
        };
        assert_eq!(other(8, "a.example.com", kind::A), None);
        assert_eq!(other(7, "b.example.com", kind::A), None);
        assert_eq!(other(7, "a.example.com", kind::AAAA), None);
        assert!(other(7, "A.example.com", kind::A).is_some());
        assert_eq!(read_answer(&asked, &asked), None, "a question");
    }

    #[test]
    fn aliases_before_an_address_are_skipped() {
        let asked = query(7, "a.example.com", kind::AAAA);
        let mut message = answer(&question(&asked), 0, None, 0);
        message[7] = 3;
        // a CNAME, an A and an AAAA.
        message.extend_from_slice(b"\xc0\x0c\0\x05\0\x01\0\0\0\x01\0\x04\x01b\xc0\x0e");
        message.extend_from_slice(b"\x01b\xc0\x0e\0\x01\0\x01\0\0\0\x01\0\x04\x7f\0\0\x01");
        message.extend_from_slice(b"\x01b\xc0\x0e\0\x1c\0\x01\0\0\0\x01\0\x10");
        let address: Ipv6Addr = "2001:db8::1".parse().unwrap();
        message.extend_from_slice(&address.octets());
        assert_eq!(read_answer(&message, &asked).unwrap().addresses, [IpAddr::V6(address)]);
        message.pop();
        assert_eq!(read_answer(&message, &asked), None, "cut without saying so");
        message[2] |= 2;
        assert!(read_answer(&message, &asked).unwrap().is_truncated);
    }

    #[test]
    fn a_malformed_question_is_answered_with_an_error_or_not_at_all() {
        let good = query(7, "a.example.com", kind::A);
        let code = |message: &[u8]| match read_question(message) {
            QuestionOutcome::Error(answer) => Some(answer[3] & 0xf),
            QuestionOutcome::Ignored => None,
            QuestionOutcome::Question(question) => panic!("{question:?}"),
        };
        let with = |at: usize, byte: u8| {
            let mut message = good.clone();
            message[at] = byte;
            message
        };
        assert_eq!(code(&good[..11]), None, "no header");
        assert_eq!(code(&with(2, 0x80)), None, "an answer");
        assert_eq!(code(&with(2, 0x28)), Some(code::NOT_IMPLEMENTED), "an update");
        for (message, what) in [
            (with(5, 0), "no question"),
            (with(5, 2), "two questions"),
            (with(7, 1), "an answer in a question"),
            (with(11, 2), "two additional records"),
            (with(12, 0xc0), "a pointer to itself"),
            (with(12, 64), "a label that is too long"),
            (with(12, 60), "a label beyond the end"),
            (good[..good.len() - 1].to_vec(), "no class"),
            (with(good.len() - 1, 3), "another class"),
            (query(7, &vec!["a".repeat(63); 5].join("."), kind::A), "a name that is too long"),
        ] {
            assert_eq!(code(&message), Some(code::FORMAT), "{what}");
        }
        let mut dotted = good.clone();
        dotted[15] = b'.';
        assert_eq!(question(&dotted).name, "a.\u{fffd}xample.com");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = read_question(&bytes);
            let _ = read_answer(&bytes, &query(1, "a.example.com", kind::A));
            let asked = query(7, "a.example.com", kind::A);
            let mut message = answer(&question(&asked), 0, None, 0);
            message[7] = 200;
            message.extend_from_slice(&bytes);
            let _ = read_answer(&message, &asked);
        }
    }
}

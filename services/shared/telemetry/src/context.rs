//! W3C Trace Context, level 1: the trace and parent of a span, as passed between services.

use std::fmt;

use data_encoding::HEXLOWER;
use opentelemetry::{
    SpanId, TraceFlags, TraceId,
    trace::{SpanContext, TraceState},
};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// The trace is recorded.
const SAMPLED: u8 = 1;
/// The bits with a defined meaning; others are not propagated.
const KNOWN: u8 = SAMPLED | 2;
/// The maximum number of members of a `tracestate`.
const MAX_MEMBERS: usize = 32;
/// The maximum length of a `tracestate` that is propagated, in bytes.
const MAX_STATE_BYTES: usize = 512;

/// Trace id, span id, flags, and the `tracestate` of other vendors.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
    pub(crate) flags: u8,
    pub(crate) state: String,
}

/// Why a text is not a `traceparent`.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("not a valid traceparent: {0}")]
pub struct InvalidTraceContext(&'static str);

impl TraceContext {
    /// Parses the two headers. A `tracestate` that is malformed or longer than 512 bytes is dropped; the trace is kept.
    ///
    /// # Errors
    /// [`InvalidTraceContext`], with what is wrong with `traceparent`. The caller then begins a new trace, as W3C requires.
    pub fn parse(traceparent: &str, tracestate: &str) -> Result<Self, InvalidTraceContext> {
        let bytes = traceparent.trim_matches([' ', '\t']).as_bytes();
        if bytes.len() < 55 {
            return Err(InvalidTraceContext("it has fewer than 55 characters"));
        }
        if [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
            return Err(InvalidTraceContext("its four parts must have the lengths 2, 32, 16 and 2"));
        }
        let digits = InvalidTraceContext("it has characters other than 0-9 and a-f");
        let [version] = hex::<1>(&bytes[..2]).ok_or(digits)?;
        let trace_id = hex::<16>(&bytes[3..35]).ok_or(digits)?;
        let span_id = hex::<8>(&bytes[36..52]).ok_or(digits)?;
        let [flags] = hex::<1>(&bytes[53..55]).ok_or(digits)?;
        match (version, bytes.get(55)) {
            (0xff, _) => return Err(InvalidTraceContext("it has version ff")),
            (0, Some(_)) => return Err(InvalidTraceContext("version 00 has 55 characters")),
            // A later version may have more parts; they are not propagated.
            (_, Some(next)) if *next != b'-' => return Err(InvalidTraceContext("its fourth part is longer than 2")),
            _ => {}
        }
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(InvalidTraceContext("an id is all zeros"));
        }
        Ok(Self { trace_id, span_id, flags: flags & KNOWN, state: in_order(tracestate).unwrap_or_default() })
    }

    /// The context of a request; `None` when it has none, or a malformed one: the caller then begins a new trace.
    pub fn of(metadata: &MetadataMap) -> Option<Self> {
        let text = |value: &MetadataValue<Ascii>| value.to_str().unwrap_or_default().to_owned();
        let mut parents = metadata.get_all("traceparent").iter();
        let (parent, None) = (parents.next()?, parents.next()) else { return None };
        let states: Vec<String> = metadata.get_all("tracestate").iter().map(text).collect();
        Self::parse(&text(parent), &states.join(",")).ok()
    }

    /// Sets it on a request, and replaces an existing one.
    pub fn put(&self, metadata: &mut MetadataMap) {
        for (name, value) in [("traceparent", self.traceparent()), ("tracestate", self.state.clone())] {
            match MetadataValue::try_from(value) {
                Ok(value) if !value.is_empty() => drop(metadata.insert(name, value)),
                _ => drop(metadata.remove(name)),
            }
        }
    }

    /// Whether it is the span of this name in its trace.
    pub fn is_span(&self, name: &str) -> bool {
        self.span_id == span_id_of(self, name)
    }

    /// The header `traceparent`.
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        put_hex(&self.trace_id, &mut text);
        text.push('-');
        put_hex(&self.span_id, &mut text);
        text.push('-');
        put_hex(&[self.flags], &mut text);
        text
    }

    /// The header `tracestate`; empty when there is none.
    pub fn tracestate(&self) -> &str {
        &self.state
    }

    /// The trace's id: 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        TraceId::from_bytes(self.trace_id).to_string()
    }

    /// The span's id: 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        SpanId::from_bytes(self.span_id).to_string()
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    pub(crate) fn sampled(self, sampled: bool) -> Self {
        let flags = if sampled { self.flags | SAMPLED } else { self.flags & !SAMPLED };
        Self { flags, ..self }
    }

    pub(crate) fn span_context(&self) -> SpanContext {
        let state: TraceState = self.state.parse().unwrap_or_default();
        let (trace, span) = (TraceId::from_bytes(self.trace_id), SpanId::from_bytes(self.span_id));
        SpanContext::new(trace, span, TraceFlags::new(self.flags), false, state)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({}, {:?})", self.traceparent(), self.state)
    }
}

/// The id of the span with this name in the trace. It never changes, so a restarted process finds the ids of spans that began earlier.
pub fn span_id_of(context: &TraceContext, name: &str) -> [u8; 8] {
    let digest = Sha256::new().chain_update(context.trace_id).chain_update(name).finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    // All zeros is not an id.
    if id == [0; 8] { [1; 8] } else { id }
}

fn put_hex(bytes: &[u8], text: &mut String) {
    HEXLOWER.encode_append(bytes, text);
}

/// Lower-case hexadecimal digits, no others.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    HEXLOWER.decode(text).ok()?.try_into().ok()
}

/// The list without white space and empty members, if every member is valid.
fn in_order(state: &str) -> Option<String> {
    let members: Vec<&str> = state.split(',').map(|member| member.trim_matches([' ', '\t'])).collect();
    let members: Vec<&str> = members.into_iter().filter(|member| !member.is_empty()).collect();
    let mut keys = Vec::new();
    for member in &members {
        let (key, value) = member.split_once('=')?;
        if !is_key(key) || !is_value(value) || keys.contains(&key) {
            return None;
        }
        keys.push(key);
    }
    let list = members.join(",");
    (members.len() <= MAX_MEMBERS && list.len() <= MAX_STATE_BYTES).then_some(list)
}

fn is_key(key: &str) -> bool {
    let part = |part: &str, longest: usize, digit_first: bool| {
        let first = part.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || (digit_first && b.is_ascii_digit()));
        first
            && part.len() <= longest
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-*/".contains(&b))
    };
    match key.split_once('@') {
        Some((tenant, system)) => part(tenant, 241, true) && part(system, 14, false),
        None => part(key, 256, false),
    }
}

fn is_value(value: &str) -> bool {
    let allowed = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b',' && byte != b'=';
    !value.is_empty() && value.len() <= 256 && !value.ends_with(' ') && value.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// The examples of the W3C recommendation, and the cases of its test suite.
    #[test]
    fn a_traceparent_is_read_and_written_as_w3c_says() {
        let context = TraceContext::parse(GOOD, "").unwrap();
        assert_eq!(context.traceparent(), GOOD);
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span_id(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        let unsampled = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "").unwrap();
        assert!(!unsampled.is_sampled());
        let ids = "12345678901234567890123456789012-1234567890123456";
        let read = [
            (format!("00-{ids}-01"), "01"),
            (format!(" \t00-{ids}-01\t "), "01"),
            // Unknown flags are not passed on.
            (format!("00-{ids}-ff"), "03"),
            (format!("00-{ids}-08"), "00"),
            // Later versions, also with more behind.
            (format!("cc-{ids}-01"), "01"),
            (format!("cc-{ids}-01-what-the-future-will-be-like"), "01"),
        ];
        for (text, flags) in read {
            let context = TraceContext::parse(&text, "").unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(context.traceparent(), format!("00-{ids}-{flags}"));
        }
        let refused = [
            String::new(),
            format!("00-{ids}"),
            format!("00-{ids}-01."),
            format!("00-{ids}-01-what-the-future-will-be-like"),
            format!("cc-{ids}-01.what-the-future-will-not-be-like"),
            format!("ff-{ids}-01"),
            format!(".0-{ids}-01"),
            format!("0-{ids}-01"),
            format!("00-{ids}-.0"),
            format!("00-{ids}-1"),
            format!("00-{ids}-0X"),
            "00-00000000000000000000000000000000-1234567890123456-01".to_owned(),
            "00-12345678901234567890123456789012-0000000000000000-01".to_owned(),
            "00-.2345678901234567890123456789012-1234567890123456-01".to_owned(),
            "00-1234567890123456789012345678901-1234567890123456-01".to_owned(),
            "00-123456789012345678901234567890123-1234567890123456-01".to_owned(),
            "00-12345678901234567890123456789012-123456789012345-01".to_owned(),
            "00-12345678901234567890123456789012-12345678901234567-01".to_owned(),
            GOOD.to_uppercase(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b€-01".to_owned(),
        ];
        for text in refused {
            assert!(TraceContext::parse(&text, "").is_err(), "{text}");
        }
    }

    #[test]
    fn a_tracestate_is_passed_on_or_left_out() {
        let state = |text: &str| TraceContext::parse(GOOD, text).unwrap().state;
        let same = [
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
            "foo=1",
            "fw529a3039@dt=FfAkEvAlUe",
            "0tenant@v=1",
            "a_-*/0=x y!~",
            "",
        ];
        for text in same {
            assert_eq!(state(text), text);
        }
        assert_eq!(state(" foo=1 \t, \t bar=2 ,"), "foo=1,bar=2");
        let (long, many) =
            (|n| format!("{}=1", "z".repeat(n)), |n| (0..n).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(","));
        assert_eq!(state(&long(256)), long(256));
        assert_eq!(state(&many(32)), many(32));
        let left_out = [
            "foo",
            "foo=",
            "=1",
            "foo =1",
            "FOO=1",
            "foo=1,foo=2",
            "foo=1=2",
            "foo@=1",
            "@foo=1",
            "foo@@bar=1",
            "foo@Bar=1",
            "0foo=1",
            "foo=bar\u{1}",
            "foo=ü",
            &long(257),
            &many(33),
            "foo@verylongsystemx=1",
        ];
        for text in left_out {
            assert_eq!(state(text), "", "{text}");
        }
    }

    #[test]
    fn a_request_carries_one_context_or_none() {
        let context = TraceContext::parse(GOOD, "foo=1,bar=2").unwrap();
        let mut metadata = MetadataMap::new();
        assert_eq!(TraceContext::of(&metadata), None);
        context.put(&mut metadata);
        assert_eq!(TraceContext::of(&metadata), Some(context.clone()));
        let other = TraceContext { span_id: [7; 8], state: String::new(), ..context.clone() };
        other.put(&mut metadata);
        assert_eq!(TraceContext::of(&metadata), Some(other), "the tracestate went with its traceparent");
        // A list may come as several headers.
        for state in ["foo=1", "bar=2"] {
            metadata.append("tracestate", state.parse().unwrap());
        }
        assert_eq!(TraceContext::of(&metadata).unwrap().tracestate(), "foo=1,bar=2");
        metadata.append("traceparent", GOOD.parse().unwrap());
        assert_eq!(TraceContext::of(&metadata), None, "two contexts are ambiguous");
        metadata.insert("traceparent", "00-junk".parse().unwrap());
        assert_eq!(TraceContext::of(&metadata), None);
    }

    #[test]
    fn a_name_gives_the_same_id_for_ever() {
        let context = TraceContext::parse(GOOD, "").unwrap();
        let id = span_id_of(&context, "8x4k2m9q1p7r3s5t6v8w/build/1");
        assert_eq!(SpanId::from_bytes(id).to_string(), "f1f2a0329ecdc62c");
        assert_ne!(span_id_of(&context, "8x4k2m9q1p7r3s5t6v8w/build/2"), id);
        let other = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01", "").unwrap();
        assert_ne!(span_id_of(&other, "8x4k2m9q1p7r3s5t6v8w/build/1"), id);
    }
}

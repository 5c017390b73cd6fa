//! The parts of a line: events, and what stands around them.
//!
//! A line is looked through by its syntax alone, which takes no memory for what it holds: an agent may write anything.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// How many places of a line that is no event are tried: an event may be written inside of another line. Each may be read to the end of a long line.
const MAX_PLACES: usize = 8;

/// A part of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A JSON object with a text `type`: that text, and the object.
    Event(String, &'a str),
    /// Words, and JSON that is no event.
    Other(&'a str),
    /// A piece of a line that begins as JSON does, and is none: what the agent's own tools have printed may be in it.
    Torn(&'a str),
}

/// The parts of a line. Most lines are one event. Agents also write one into the middle of what another part of them writes.
pub(super) fn parts(line: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut rest, mut places, mut is_torn) = (line, 0, false);
    while let Some(start) = rest.find("{\"").filter(|_| places < MAX_PLACES) {
        places += 1;
        let mut kinds = serde_json::Deserializer::from_str(&rest[start..]).into_iter::<Kind>();
        let read = kinds.next();
        let end = start + kinds.byte_offset();
        match read {
            // In a torn object another object may be whole. An event that was written into it ends the line, and an object that belongs to it does not.
            Some(Ok(Kind(Some(kind)))) if !is_torn || rest[end..].trim().is_empty() => {
                parts.push(other(&rest[..start], is_torn));
                parts.push(Part::Event(kind, &rest[start..end]));
                rest = &rest[end..];
            }
            Some(Ok(_)) => {
                parts.push(other(&rest[..end], is_torn));
                rest = &rest[end..];
            }
            Some(Err(_)) | None => {
                is_torn |= places == 1 && rest[..start].trim().is_empty();
                let end = start + 2;
                let next = rest[end..].find("{\"").map_or(rest.len(), |next| end + next);
                parts.push(other(&rest[..next], is_torn));
                rest = &rest[next..];
            }
        }
    }
    parts.push(other(rest, is_torn));
    parts.retain(|part| !matches!(part, Part::Other("") | Part::Torn("")));
    parts
}

fn other(text: &str, is_torn: bool) -> Part<'_> {
    if is_torn { Part::Torn(text.trim()) } else { Part::Other(text.trim()) }
}

/// The `type` of an object, where it is a text.
struct Kind(Option<String>);

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'de> Visitor<'de> for OfObject {
            type Value = Kind;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
                let mut kind = None;
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "type" => kind = map.next_value::<MaybeText>()?.0,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Kind(kind))
            }
        }
        deserializer.deserialize_map(OfObject)
    }
}

/// A value, where it is a text.
struct MaybeText(Option<String>);

impl<'de> Deserialize<'de> for MaybeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfValue;
        impl<'de> Visitor<'de> for OfValue {
            type Value = MaybeText;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<MaybeText, E> {
                Ok(MaybeText(Some(text.to_owned())))
            }

            fn visit_bool<E>(self, _: bool) -> Result<MaybeText, E> {
                Ok(MaybeText(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<MaybeText, E> {
                Ok(MaybeText(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<MaybeText, E> {
                Ok(MaybeText(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<MaybeText, E> {
                Ok(MaybeText(None))
            }

            fn visit_unit<E>(self) -> Result<MaybeText, E> {
                Ok(MaybeText(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<MaybeText, A::Error> {
                while entries.next_element::<IgnoredAny>()?.is_some() {}
                Ok(MaybeText(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<MaybeText, A::Error> {
                while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(MaybeText(None))
            }
        }
        deserializer.deserialize_any(OfValue)
    }
}

/// JSON in which each half of a surrogate pair that stands alone is U+FFFD: programs in JavaScript write one where they cut a text. `None`: there is none.
pub(super) fn without_lone_surrogates(json: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut mended, mut copied, mut at) = (String::new(), 0, 0);
    let bytes = json.as_bytes();
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                mended.push_str(&json[copied..at]);
                mended.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // Whatever is escaped: one character, which is no other escape's beginning.
            _ => at += 2,
        }
    }
    (copied > 0).then(|| mended + &json[copied..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = r#"{"type":"end"}"#;

    fn shown(line: &str) -> Vec<String> {
        let show = |part: Part<'_>| match part {
            Part::Event(kind, text) => format!("event {kind} {}", text.len()),
            Part::Other(text) => format!("other {text}"),
            Part::Torn(text) => format!("torn {text}"),
        };
        parts(line).into_iter().map(show).collect()
    }

    #[test]
    fn events_are_told_from_what_stands_around_them() {
        let end = format!("event end {}", END.len());
        for (line, expected) in [
            (END.to_owned(), vec![end.as_str()]),
            (format!("working... {END} done"), vec!["other working...", &end, "other done"]),
            (format!("{END}{END}"), vec![&end, &end]),
            (format!(r#"{{"a": 1}} {END}"#), vec![r#"other {"a": 1}"#, &end]),
            (r#"{"type": 3, "a": [{}]}"#.to_owned(), vec![r#"other {"type": 3, "a": [{}]}"#]),
            (r#"{"type": {"type": "end"}}"#.to_owned(), vec![r#"other {"type": {"type": "end"}}"#]),
            // The first half of an event, with another one in it.
            (format!(r#"{{"type":"assi{END}"#), vec![r#"torn {"type":"assi"#, &end]),
            // An object of a torn event is none of its own.
            (format!(r#"{{"type":"x" {END}}}"#), vec![r#"torn {"type":"x""#, r#"torn {"type":"end"}"#, "torn }"]),
            ("only words".to_owned(), vec!["other only words"]),
            (" ".to_owned(), vec![]),
        ] {
            assert_eq!(shown(&line), expected, "{line}");
        }
        assert_eq!(parts(&"{\"".repeat(10_000)).len(), MAX_PLACES + 1);
    }

    /// An object that cannot be read as a value is an event all the same: half of a character, a number that is too large, and any depth.
    #[test]
    fn syntax_alone_tells_an_event() {
        let deep = format!(r#"{{"a":{}{},"type":"end"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        for line in [r#"{"type":"end","text":"\ud83d"}"#, r#"{"n":1e999,"type":"end"}"#, &deep] {
            assert!(matches!(&parts(line)[..], [Part::Event(kind, text)] if kind == "end" && *text == line));
        }
    }

    #[test]
    fn a_half_of_a_character_is_replaced() {
        for (json, expected) in [
            (r#""a\ud83d""#, Some(r#""a\ufffd""#)),
            (r#""\ude00b\ud83d\ude00""#, Some(r#""\ufffdb\ud83d\ude00""#)),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\\ud83d é \n""#, None),
            (r#""\u00e9""#, None),
            ("", None),
            (r"\", None),
        ] {
            assert_eq!(without_lone_surrogates(json).as_deref(), expected, "{json}");
        }
    }
}

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn refused(text: &str) -> String {
    read(text).expect_err(text).to_string()
}

#[test]
fn what_would_be_another_value_is_refused_with_its_place() {
    assert_eq!(
        refused("{\"a\": {\"b\": 1,\n \"b\": 2}}"),
        "/a/b: is given twice in one object: remove one of them, at line 2 column 2"
    );
    assert_eq!(
        refused("[1, 123456789012345678901234567890]"),
        "/1: is a whole number beyond 64 bits, whose digits would be lost: give it as text, \"123456789012345678901234567890\", at line 1 column 5"
    );
    for (text, says) in [
        ("{\"a\":1,\"\\u0061\":2}", "/a: is given twice"),
        ("{\"x/y\":[{\"n\":123456789.123456789123}]}", "/x~1y/0/n: is a number whose digits would be lost"),
        ("1e-400", "digits would be lost"),
        ("1e400", "digits would be lost"),
        ("1e99999999999999999999999999999999999999999999", "digits would be lost"),
        ("0.10000000000000001", "digits would be lost"),
        ("-9223372036854775809", "beyond 64 bits"),
        ("18446744073709551616", "beyond 64 bits"),
        ("", "the end of the text stands where a value is expected"),
        ("nul", "stands where a value is expected"),
        ("truex", "stands where a value is expected"),
        ("NaN", "stands where a value is expected"),
        ("01", "a number begins with"),
        ("-", "a number begins with"),
        ("1.", "a digit is expected"),
        ("1e+", "a digit is expected"),
        ("[1,]", "`]` stands where a value is expected"),
        ("{\"a\":1,}", "a name in quotes is expected"),
        ("{a:1}", "a name in quotes is expected"),
        ("[1 2]", "`2` stands where `,` or `]` is expected"),
        ("\"a", "a text has no closing quote"),
        ("\"\\", "a text has no closing quote"),
        ("\"\\ud800\"", "in a text"),
        ("\"\n\"", "in a text"),
        ("1 2", "has more text behind the value"),
    ] {
        assert!(refused(text).contains(says), "{text}: {}", refused(text));
    }
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(refused(&deep(MAX_DEPTH + 1)).contains("nested deeper than 127"));
    assert!(serde_json::from_str::<Value>(&read(&deep(MAX_DEPTH)).unwrap().to_string()).is_ok());
}

#[test]
fn bytes_are_utf8_and_may_begin_with_a_mark() {
    assert_eq!(read_bytes(b"\xef\xbb\xbf {\"a\": 1}"), Ok(json!({"a": 1})));
    let error = read_bytes(b"{\"a\":\n \"\xff\"}").unwrap_err();
    assert_eq!((error.line, error.column), (2, 3));
    assert!(error.message.contains("not UTF-8 (0xff)"), "{error}");
    assert_eq!(read("\u{feff}1"), Ok(json!(1)));
    assert!(read("\u{feff}\u{feff}1").is_err());
}

#[test]
fn numbers_have_the_value_that_is_written() {
    for (text, value) in [
        ("0", json!(0)),
        ("-0", json!(0)),
        ("-1", json!(-1)),
        ("18446744073709551615", json!(18446744073709551615_u64)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("0.1", json!(0.1)),
        ("1.50", json!(1.5)),
        ("1E3", json!(1000.0)),
        ("100e-2", json!(1.0)),
        ("1894732093335738.2", json!(1894732093335738.2)),
        ("0.0e99999", json!(0.0)),
        ("5e-324", json!(5e-324)),
        ("1.7976931348623157e308", json!(f64::MAX)),
    ] {
        assert_eq!(read(text), Ok(value), "{text}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever is written comes back as it was.
    #[test]
    fn a_value_comes_back_from_its_text(value in any_value(), pretty in any::<bool>()) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        prop_assert_eq!(read(&text), Ok(value));
    }

    /// Whatever number is read is the one that is written, digit by digit.
    #[test]
    fn a_number_is_read_exactly_or_refused(text in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?") {
        if let Ok(value) = read(&text) {
            let (read, written) = (decimal(&value.to_string()), decimal(&text));
            // The sign of zero is none.
            prop_assert!(read == written || written.1.is_empty() && read.1.is_empty(), "{} is {}", text, value);
        }
    }

    /// Accepted texts are read by serde_json as well, to the same value; texts that it refuses are refused.
    #[test]
    fn nothing_is_read_that_is_no_json(text in "[\\[\\]{}\",:0-9eE.+\\- \\\\utrnfalsb]{0,24}") {
        if let Ok(value) = read(&text) {
            let theirs: Value = serde_json::from_str(&text).unwrap();
            prop_assert!(theirs == value || text.contains("-0"), "{} {}", theirs, value);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read_bytes(&bytes);
    }
}

#[test]
fn what_a_reader_would_refuse_is_known_before_it_is_written() {
    let lists = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let wrapped = |depth: usize| format!("{{\"a\\\"[\": \"[[{{\\\\\", \"b\": {}}}", lists(depth));
    for text in [lists(1), lists(MAX_DEPTH), wrapped(0).replace(": }", ": 1}"), wrapped(MAX_DEPTH - 1)] {
        let value = read(&text).unwrap_or_else(|refused| panic!("{text}: {refused}"));
        assert!(!is_too_deep(&value) && !is_too_deep_text(&text), "{text}");
    }
    let deepest = read(&lists(MAX_DEPTH)).unwrap();
    assert!(is_too_deep(&json!([deepest])) && is_too_deep(&json!({"a": deepest})));
    assert!(is_too_deep_text(&lists(MAX_DEPTH + 1)) && is_too_deep_text(&wrapped(MAX_DEPTH)));
}

#[test]
fn the_size_of_a_value_is_that_of_its_text() {
    for value in [json!(null), json!("é\n\u{1f600}\u{0}"), json!({"a": [1, -2.5, {"b": "\""}], "": true})] {
        assert_eq!(size(&value), value.to_string().len());
    }
}

//! JSON in one canonical spelling, so that equal values have equal digests.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A JSON value as canonical text (RFC 8785): keys sorted by UTF-16 code units, no white space, numbers as ECMAScript writes them.
///
/// Departs from RFC 8785 in one point: integers that a double cannot hold keep all their digits, since tools do take 64-bit ids. RFC 8785
/// leaves these to the application.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Json(Arc<str>);

impl Json {
    /// The canonical text of a value.
    pub fn canonical(value: &Value) -> Self {
        let mut text = String::new();
        write_value(value, &mut text);
        Self(text.into())
    }

    /// Text that is known to be JSON, kept as it stands. Digests are taken over canonical text only.
    pub fn from_text(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value; `null` for text that is no JSON, which only a corrupt store can hold.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or(Value::Null)
    }
}

/// `sha256:` and the digest of these bytes in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => out.push_str(ryu_js::Buffer::new().format_finite(float)),
            _ => out.push_str(&number.to_string()),
        },
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (index, (key, item)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(&Value::String(key.clone()), out);
                out.push(':');
                write_value(item, out);
            }
            out.push('}');
        }
        // serde_json escapes strings exactly as RFC 8785 asks.
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_example_of_rfc_8785_comes_out_as_printed_there() {
        let value: Value = serde_json::from_str(
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
                "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
        )
        .unwrap();
        assert_eq!(
            Json::canonical(&value).as_str(),
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
    }

    #[test]
    fn keys_are_sorted_by_utf16_and_not_by_bytes() {
        let value = json!({"\u{fb33}": 1, "\u{1f600}": 2, "a": 3});
        assert_eq!(Json::canonical(&value).as_str(), "{\"a\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}");
    }

    #[test]
    fn a_whole_float_is_written_as_an_integer() {
        assert_eq!(Json::canonical(&json!([1.0, -0.0, 1e21])).as_str(), "[1,0,1e+21]");
    }

    #[test]
    fn integers_keep_all_their_digits() {
        let text = r#"[9007199254740993,18446744073709551615,-9223372036854775808]"#;
        assert_eq!(Json::canonical(&serde_json::from_str(text).unwrap()).as_str(), text);
    }

    #[test]
    fn the_digest_is_that_of_the_text() {
        assert_eq!(digest(b"abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

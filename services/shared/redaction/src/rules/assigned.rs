//! Secrets that are recognized by the name they are assigned to: in JSON, YAML, TOML, environments, flags and code.

use super::rule::Rule;
use crate::values;

/// The suffixes of secrets' names, case-insensitive.
macro_rules! name {
    () => {
        r"(?:pass(?:word|wd|phrase)|pwd|secret|token|credentials?|_pass|-pass|(?:api|access|private|secret|auth|account|master|shared|subscription|signing|encryption|license)[_.\- ]?key)"
    };
}

/// The same for the prefilter.
const NAMES: &[&str] =
    &["password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "_pass", "-pass", "key"];

pub(super) const RULES: &[Rule] = &[
    // "password": "…", password = '…', :password => "…", {\"password\":\"…\"}
    Rule::around(
        "assigned-quoted",
        NAMES,
        64,
        concat!(
            r"(?i)(?P<name>[\w.-]{0,64}?",
            name!(),
            r"\d{0,2})\\*[\x22'`]?\]?(?:[ \t]*:[ \t]*[a-z&]{1,12}(?:[ \t]str)?)?[ \t]*(?::=|=>|=|:)[ \t]*[bfru]{0,2}(?:\\+\x22([^\x22\\\r\n]+)\\+\x22|\x22((?:[^\x22\\\r\n]|\\[^\r\n])+)\x22|'((?:[^'\\\r\n]|\\[^\r\n])+)'|`([^`\s]+)`)",
        ),
    )
    .then(b"=:")
    .accept(values::quoted),
    // DB_PASSWORD=…
    Rule::around(
        "assigned-environment",
        NAMES,
        64,
        r"(?-i)\b(?P<name>[A-Z0-9_]{0,64}?(?:PASS(?:WORD|WD|PHRASE)?|PWD|SECRET|TOKEN|CREDENTIALS?|(?:API|ACCESS|PRIVATE|SECRET|AUTH|ACCOUNT|MASTER|SHARED|SIGNING|ENCRYPTION|LICENSE)_?KEY)\d{0,2})=([^\s\x22'`;|<>(){}\\]+)",
    )
    .then(b"=")
    .accept(values::environment),
    // --password …, --api-key=…
    Rule::around(
        "assigned-flag",
        NAMES,
        64,
        // `^` is the beginning of any line: the shape is looked for in a text of several.
        concat!(r"(?i)(?:(?mR:^)|[\s\x22'`\[(,])--?(?P<name>[a-z0-9-]{0,48}?", name!(), r")(?:[ \t]+|=)[\x22']?([^\s\x22'`|<>(){}\[\]=-][^\s\x22'`|<>(){}\[\]]{2,})"),
    )
    .accept(values::flag),
    // password: …, token=…
    Rule::around(
        "assigned-plain",
        NAMES,
        64,
        concat!(
            r"(?i)(?P<name>[\w.-]{0,64}?",
            name!(),
            // `&` goes on with the value, unless what follows it is another parameter (`&b=2`) or a character of HTML (`&quot;`).
            r"\d{0,2})\\*[\x22']?[ \t]*(?:=|:|=>|:=)[ \t]*(?:([^\s\x22'`&;,<>(){}\[\]|\\=:][^\s\x22'`&;,<>(){}\[\]|\\]{5,}(?:&[^\s\x22'`&;,<>(){}\[\]|\\=]{1,64})+)(?:[\s\x22',<>)}\]|\\]|$)|([^\s\x22'`&;,<>(){}\[\]|\\=:][^\s\x22'`&;,<>(){}\[\]|\\]{5,})(?:[\s\x22'&;,<>)}\]|\\]|$))",
        ),
    )
    .then(b"=:")
    .accept(values::plain),
    // password: SunshineMoon, alone on the rest of its line
    Rule::around(
        "assigned-words",
        &["password", "passwd", "passphrase", "pwd"],
        64,
        r"(?i)(?P<name>[\w.-]{0,64}?(?:pass(?:word|wd|phrase)|pwd)\d{0,2})\\*[\x22']?[ \t]*(?:=|:)[ \t]*((?-i:[A-Z][a-z]{2,}(?:[A-Z][a-z]{2,})+))[ \t]*$",
    )
    .then(b"=:")
    .accept(values::words),
    // Random-looking values named key, salt or signature.
    Rule::around(
        "high-entropy",
        &["key", "auth", "cred", "sign", "salt", "hmac", "session", "cookie", "secret", "token"],
        48,
        r"(?i)(?P<name>[\w.-]{0,40}?(?:key|auth|creds?|signature|salt|hmac|session(?:_?id)?|cookie|secret|token)[\w.-]{0,12})\\*[\x22']?[ \t]*(?:=|:|=>|:=)[ \t]*\\*[\x22']?([A-Za-z0-9+/_]{24,}={0,2})(?:[\s\x22'&;,<>)}\]|\\]|$)",
    )
    .then(b"=:")
    .entropy(4.0)
    .accept(values::random),
];

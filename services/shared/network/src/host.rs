//! Names of hosts, read strictly: two spellings of one host would be two answers to one question.

use core::net::IpAddr;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name of a host, in bytes (RFC 1035, without the final dot).
const MAX_NAME: usize = 253;
/// The longest part between two dots (RFC 1035).
const MAX_LABEL: usize = 63;

/// The name of a host: lower-case ASCII labels, without a final dot, and never an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host(String);

/// Why a text is not the name of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostProblem {
    /// It is empty, or longer than a name may be.
    Length,
    /// It ends with a dot.
    FinalDot,
    /// It has a character that is not a letter, a digit, `-` or `_` of ASCII.
    Character,
    /// A part between dots is empty, too long, or begins or ends with `-`.
    Label,
    /// It is an address, or programs read it as one.
    Address,
}

impl HostProblem {
    /// The problem, and what to do, after the name of a field.
    pub fn message(self) -> &'static str {
        match self {
            Self::Length => "must be the name of a host, of 1 to 253 characters",
            Self::FinalDot => "must be the name of a host without the final dot",
            Self::Character => "must be the name of a host in ASCII: write an international name in its `xn--` form",
            Self::Label => {
                "must be the name of a host: each part between dots has 1 to 63 characters, and `-` neither first nor last"
            }
            Self::Address => "must be the name of a host, not an address: names are what certificates prove",
        }
    }
}

impl fmt::Display for HostProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for HostProblem {}

impl Host {
    /// Reads a name. Letters become lower-case; nothing else is mapped.
    ///
    /// # Errors
    /// When the text is no name: see [`HostProblem`].
    pub fn parse(text: &str) -> Result<Self, HostProblem> {
        if text.is_empty() || text.len() > MAX_NAME + 1 {
            return Err(HostProblem::Length);
        }
        if text.starts_with('[') || text.contains(':') {
            return Err(HostProblem::Address);
        }
        if text.ends_with('.') {
            return Err(HostProblem::FinalDot);
        }
        if text.len() > MAX_NAME {
            return Err(HostProblem::Length);
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return Err(HostProblem::Character);
        }
        let is_label = |label: &str| {
            !label.is_empty() && label.len() <= MAX_LABEL && !label.starts_with('-') && !label.ends_with('-')
        };
        if !text.split('.').all(is_label) {
            return Err(HostProblem::Label);
        }
        let last = text.rsplit('.').next().unwrap_or(text);
        if reads_as_number(last) {
            return Err(HostProblem::Address);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a last label makes programs read the whole name as an IPv4 address: `127.1`, `0x7f.1` and `2130706433` are `127.0.0.1` to them
/// (the WHATWG's URL standard, "ends in a number").
fn reads_as_number(label: &str) -> bool {
    let is_decimal = label.bytes().all(|byte| byte.is_ascii_digit());
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    is_decimal || hexadecimal.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Host {
    type Error = HostProblem;

    fn try_from(text: String) -> Result<Self, HostProblem> {
        Self::parse(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.0
    }
}

/// The name or the address of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostOrAddress {
    /// A name, which the connecting process resolves.
    Name(Host),
    /// An address.
    Address(IpAddr),
}

impl fmt::Display for HostOrAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(host) => write!(f, "{host}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl HostOrAddress {
    /// Reads a name, or an address; one of IPv6 may stand in `[` and `]`.
    ///
    /// # Errors
    /// When the text is neither: see [`HostProblem`].
    pub fn parse(text: &str) -> Result<Self, HostProblem> {
        let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        address.parse().map(Self::Address).or_else(|_| Host::parse(text).map(Self::Name))
    }
}

/// The hosts of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    /// One host.
    Exact(Host),
    /// All hosts whose name ends with `.` and this one, at any depth: not this one itself.
    Below(Host),
    /// Every host.
    Any,
}

impl HostPattern {
    /// Reads `example.com`, `*.example.com` or `*`.
    ///
    /// # Errors
    /// When the text is neither a name nor `*.` before one.
    pub fn parse(text: &str) -> Result<Self, HostProblem> {
        match text.strip_prefix("*.") {
            _ if text == "*" => Ok(Self::Any),
            Some(name) => Host::parse(name).map(Self::Below),
            None => Host::parse(text).map(Self::Exact),
        }
    }

    /// Whether it has this host.
    pub fn matches(&self, host: &Host) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Below(name) => host.0.strip_suffix(&name.0).is_some_and(|front| front.ends_with('.')),
            Self::Any => true,
        }
    }

    /// Whether it has every host of another pattern.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (_, Self::Exact(host)) => self.matches(host),
            (Self::Below(name), Self::Below(other)) => name == other || self.matches(other),
            (Self::Exact(_) | Self::Below(_), Self::Any) | (Self::Exact(_), Self::Below(_)) => false,
        }
    }

    /// Whether it has every host, or every host of a top-level domain.
    pub fn is_everything(&self) -> bool {
        match self {
            Self::Exact(_) => false,
            Self::Below(name) => !name.0.contains('.'),
            Self::Any => true,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => write!(f, "{host}"),
            Self::Below(host) => write!(f, "*.{host}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = HostProblem;

    fn try_from(text: String) -> Result<Self, HostProblem> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read_strictly() {
        use HostProblem::{Address, Character, FinalDot, Label, Length};
        for (text, problem) in [
            ("", Length),
            ("example.com.", FinalDot),
            ("exämple.com", Character),
            ("user@example.com", Character),
            ("example.com\0.evil.org", Character),
            ("example.com/x", Character),
            ("exa mple.com", Character),
            ("a..b", Label),
            (".example.com", Label),
            ("-a.example.com", Label),
            ("a-.example.com", Label),
            ("127.0.0.1", Address),
            ("127.1", Address),
            ("2130706433", Address),
            ("0x7f.1", Address),
            ("0X7F000001", Address),
            ("example.0x", Address),
            ("[::1]", Address),
            ("::1", Address),
            ("example.com:443", Address),
        ] {
            assert_eq!(Host::parse(text), Err(problem), "{text:?}");
        }
        assert_eq!(Host::parse(&format!("{}.com", "a".repeat(64))), Err(Label));
        assert_eq!(Host::parse(&"a.".repeat(127)[..253]).map(|host| host.0.len()), Ok(253));
        assert_eq!(Host::parse(&format!("{}ab", "a.".repeat(126))), Err(Length));
        assert_eq!(Host::parse("Index.CRATES.io").unwrap().as_str(), "index.crates.io");
        assert_eq!(Host::parse("_x.xn--exmple-cua.com").unwrap().as_str(), "_x.xn--exmple-cua.com");
    }

    #[test]
    fn a_suffix_has_the_hosts_below_it_and_not_itself() {
        let below = HostPattern::parse("*.example.com").unwrap();
        let has = |name: &str| below.matches(&Host::parse(name).unwrap());
        assert!(has("a.example.com") && has("a.b.example.com"));
        assert!(!has("example.com") && !has("badexample.com") && !has("example.com.evil.org"));
        assert_eq!(HostPattern::parse("*.*.com"), Err(HostProblem::Character));
        assert_eq!(HostPattern::parse("a.*.com"), Err(HostProblem::Character));
        assert!(HostPattern::parse("*.com").unwrap().is_everything() && HostPattern::Any.is_everything());
        assert!(!below.is_everything());
    }

    proptest! {
        /// A text that is read as a name is read as the same name again, and no program reads it as an address.
        #[test]
        fn a_name_has_one_spelling(text in "[-_.a-zA-Z0-9xX*:\\[\\] \u{e4}\0]{0,40}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(host.as_str()), Ok(host.clone()));
                prop_assert!(host.as_str().parse::<core::net::IpAddr>().is_err());
                prop_assert_eq!(host.as_str().to_ascii_lowercase(), host.as_str());
            }
        }
    }
}

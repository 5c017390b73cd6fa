//! Paths inside a workspace.
//!
//! A [`RelPath`] is the only way to name something in a workspace, and it cannot leave it. `..` is resolved lexically, before any file is
//! accessed: the result has no `..`, so no symbolic link can redirect one, and the path that the policy sees is the path that is opened.
//! (`link/../file` means `file`, where a shell would use the parent of the link's target.)

use std::{
    ffi::OsStr,
    fmt::{self, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use belay_defects::{Defect, is_planted};
use belay_text::{visible, visible_bytes};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Belay's own directory at the top of a workspace. One deeper down belongs to another workspace: no view shows either, and no path names
/// it.
pub const OWN: &str = ".belay";

/// The path of the workspace in the sandbox: a path with this prefix is relative to the workspace.
const MOUNT_POINT: &str = "/workspace";

/// Begins a name whose bytes are given in hexadecimal digits, because it cannot be given as it is.
const HEX: &str = "hex:";

/// The limit of a path in bytes: the kernel's PATH_MAX, less the terminating NUL.
const MAX_PATH_BYTES: usize = 4095;

/// The limit of a file name in bytes: the kernel's NAME_MAX.
const MAX_NAME_BYTES: usize = 255;

/// A path relative to the root of a workspace: names joined by `/`, without `.`, `..` or empty names. The root is the empty path, written
/// `.`. Names are bytes, which need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Vec<u8>);

/// Why a text is not a valid path in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty.
    #[error("the path is empty: give a path relative to the workspace, `.` for the workspace itself")]
    Empty,
    /// It leaves, or may be read as leaving, the workspace.
    #[error("`{path}` is outside workspace: {why}; give a path relative to the workspace")]
    Outside {
        /// As given, escaped.
        path: String,
        /// Why it leaves.
        why: &'static str,
    },
    /// It is in a directory of Belay, of this workspace or of one inside it.
    #[error("`{path}` is outside workspace: `{OWN}` is reserved for Belay in every directory; choose another name")]
    Reserved {
        /// As given, escaped.
        path: String,
    },
    /// It contains a NUL.
    #[error("`{path}` contains a NUL character, which is not allowed in a file name")]
    Nul {
        /// As given, escaped.
        path: String,
    },
    /// A name in it begins with `hex:`, and is not one that is given so.
    #[error(
        "`{path}` has a name in hexadecimal digits that is none: `{HEX}` is followed by the bytes of a name that is not UTF-8, or that would be read as \
         another path; for a file that is called so, write `{HEX}` and the digits of its whole name"
    )]
    Hex {
        /// As given, escaped.
        path: String,
    },
    /// It, or a name in it, is longer than file systems allow.
    #[error("the path is too long: the limit is {MAX_PATH_BYTES} bytes, and {MAX_NAME_BYTES} bytes for each name")]
    TooLong,
}

impl RelPath {
    /// The workspace itself.
    #[must_use]
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// Parses a path from the arguments of a tool.
    ///
    /// # Errors
    ///
    /// [`PathError`] for a path that is empty, absolute (also in Windows syntax), leaves the workspace by `..`, contains `..` with
    /// backslashes or a NUL, is too long, or lies in [`OWN`]. `/workspace`, the path of the workspace in the sandbox, is the workspace
    /// itself, and paths below it are relative to it. Other backslashes are ordinary characters, and so is a percent sign: nothing is
    /// decoded but the names that [`Self::written`] gives in digits.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let outside = |why| PathError::Outside { path: visible_bytes(text.as_bytes()), why };
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.contains('\0') {
            return Err(PathError::Nul { path: visible_bytes(text.as_bytes()) });
        }
        let inside = match text.strip_prefix(MOUNT_POINT) {
            Some(inside) if inside.is_empty() || inside.starts_with('/') => inside,
            _ if text.starts_with('/') => return Err(outside("it is absolute")),
            _ => text,
        };
        let drive = matches!(inside.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic());
        if drive || inside.starts_with('\\') {
            return Err(outside("it is absolute on Windows"));
        }
        if inside.contains('\\') && inside.split(['/', '\\']).any(|name| name == "..") {
            return Err(outside("it contains `..` with backslashes"));
        }
        let mut path = Self::root();
        for name in inside.split('/') {
            match name {
                "" | "." => {}
                ".." => path = path.parent().ok_or_else(|| outside("`..` leaves it"))?,
                name if name.starts_with(HEX) => match decoded(name) {
                    Some(name) if name.len() > MAX_NAME_BYTES => return Err(PathError::TooLong),
                    Some(name) => path = path.join(OsStr::from_bytes(&name)),
                    None => return Err(PathError::Hex { path: visible_bytes(text.as_bytes()) }),
                },
                name if name.len() > MAX_NAME_BYTES => return Err(PathError::TooLong),
                name => path = path.join(name.as_ref()),
            }
        }
        if path.0.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        if path.is_own() {
            return Err(PathError::Reserved { path: visible_bytes(text.as_bytes()) });
        }
        Ok(path)
    }

    /// The path of these bytes, as [`Self::as_bytes`] gives them. `None` where they are no path in a workspace.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let path = Self(bytes.to_vec());
        let whole = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        (path.is_root() || path.0.split(|byte| *byte == b'/').all(whole) && !path.is_own()).then_some(path)
    }

    /// Whether it is, or is in, an [`OWN`] at any depth.
    pub(crate) fn is_own(&self) -> bool {
        self.names().any(is_own)
    }

    /// Whether it is the workspace itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The names from the top down.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(OsStr::from_bytes)
    }

    /// The parent directory; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self(self.0[..end].to_vec()))
    }

    /// Whether it is below another path.
    #[must_use]
    pub fn is_inside(&self, other: &Self) -> bool {
        self != other && self.as_ref().starts_with(other)
    }

    /// The last name; `None` for the root.
    #[must_use]
    pub fn name(&self) -> Option<&OsStr> {
        self.names().next_back()
    }

    /// The path of `name` in this directory. The name comes from a listing, or was validated.
    pub(crate) fn join(&self, name: &OsStr) -> Self {
        debug_assert!(!name.is_empty() && !name.as_bytes().contains(&b'/'), "one name");
        let mut joined = self.0.clone();
        if !self.is_root() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name.as_bytes());
        Self(joined)
    }

    /// The path as text that [`Self::parse`] reads as this path and no other: for results of tools, which plans hand on to other tools. Names are as they
    /// are, however they look; one that is not UTF-8, or would be read as something else, is given by its bytes (`hex:` and their digits).
    #[must_use]
    pub fn written(&self) -> String {
        if self.is_root() {
            return ".".to_owned();
        }
        if is_planted(Defect::PrintedPathHandedOn) {
            return visible(&self.as_text());
        }
        let names: Vec<String> = self.names().map(|name| encoded(name.as_bytes())).collect();
        names.join("/")
    }

    /// The names as text, for rules about names: only bytes that are not UTF-8 are escaped, which no rule can name. Two paths may have one text; see
    /// [`Self::written`].
    #[must_use]
    pub fn as_text(&self) -> String {
        let escaped = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        self.0.utf8_chunks().map(|chunk| chunk.valid().to_owned() + &escaped(chunk.invalid())).collect()
    }

    /// The bytes, as the kernel takes them; empty for the root.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<Path> for RelPath {
    /// Empty for the root, so that `root.join(path)` is the path on disk.
    fn as_ref(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl fmt::Display for RelPath {
    /// For people: what is not seen is written out. Two paths never have one form; for tools and programs, see [`RelPath::written`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible(&self.written()))
    }
}

/// As text if it is UTF-8, otherwise as `{"hex": "…"}`.
impl Serialize for RelPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_name(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = deserialize_name(deserializer)?;
        Self::from_bytes(&bytes).ok_or_else(|| {
            de::Error::custom("a path in a workspace must not contain an empty name, `.`, `..`, NUL or `.belay`")
        })
    }
}

/// A name as [`RelPath::written`] gives it.
pub(crate) fn encoded(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !is_ambiguous(text) => text.to_owned(),
        _ => format!("{HEX}{}", hex(name)),
    }
}

/// The name that is given in digits; `None` when it is not one that is given so: then a path would have two forms, and rules about one of them would not
/// see the other.
fn decoded(name: &str) -> Option<Vec<u8>> {
    let bytes = unhex(name.strip_prefix(HEX)?)?;
    let is_lowercase = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_name = !bytes.is_empty() && !bytes.iter().any(|byte| matches!(byte, b'/' | 0));
    (is_lowercase && is_name && encoded(&bytes) == name).then_some(bytes)
}

/// Whether a name would be read as something else where a path is parsed: as digits, or as a path of Windows.
fn is_ambiguous(name: &str) -> bool {
    let is_drive = matches!(name.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    name.starts_with(HEX)
        || name.contains('\\') && name.split('\\').any(|part| part == "..")
        || name.starts_with('\\')
        || is_drive
}

/// Formats paths for a message.
pub(crate) fn shown(paths: &[RelPath]) -> String {
    let named: Vec<String> = paths.iter().take(5).map(|path| format!("`{path}`")).collect();
    let more = paths.len().saturating_sub(named.len());
    if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) }
}

/// Whether a name is [`OWN`], ignoring case, because some file systems do.
pub fn is_own(name: &OsStr) -> bool {
    name.as_bytes().eq_ignore_ascii_case(OWN.as_bytes())
}

/// Text if the bytes are UTF-8, hexadecimal digits otherwise: lossless and without escapes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Bytes { hex: String },
}

/// See [`Name`]; for `#[serde(serialize_with)]`.
pub(crate) fn serialize_name<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let name = match std::str::from_utf8(bytes) {
        Ok(text) => Name::Text(text.to_owned()),
        Err(_) => Name::Bytes { hex: hex(bytes) },
    };
    name.serialize(serializer)
}

/// See [`Name`]; for `#[serde(deserialize_with)]`.
pub(crate) fn deserialize_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    match Name::deserialize(deserializer)? {
        Name::Text(text) => Ok(text.into_bytes()),
        Name::Bytes { hex } => unhex(&hex).ok_or_else(|| de::Error::custom("expected pairs of hexadecimal digits")),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit()) && text.len().is_multiple_of(2);
    digits.then(|| text.as_bytes().chunks(2).map(pair).collect()).flatten()
}

#[cfg(test)]
mod tests {
    use belay_defects::assert_attack_needs;

    use super::*;

    fn parsed(text: &str) -> String {
        RelPath::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    /// S2-X-08 and S2-FR-042, 043, 075, S2-NFR-012.
    #[test]
    fn paths_that_leave_are_rejected_as_outside_workspace() {
        let leaving = [
            "../../../etc/passwd",
            r"..\..\..\windows\system32\config\sam",
            "/etc/passwd",
            r"C:\Windows\System32",
            "c:/Windows",
            "/tmp/external.txt",
            "..",
            "a/../..",
            "./../x",
            "a/b/../../../x",
            r"a\..\..\x",
            r"sub/..\..\x",
            r"\\server\share",
            r"\x",
            "/workspaces/a",
            "/workspace/..",
            "/workspace/a/../../b",
            "/workspace/.belay",
            ".belay",
            "./.belay/views",
            "x/../.belay/.gitignore",
            ".BELAY/x",
            "sub/.belay",
            "sub/.Belay/views",
        ];
        for text in leaving {
            let refusal = RelPath::parse(text).expect_err(text).to_string();
            assert!(refusal.contains("outside workspace"), "S2-X-06: {refusal}"); // S2-X-06
            assert!(refusal.contains(text), "names the path: {refusal}");
        }
    }

    /// S2-X-08.
    #[test]
    fn paths_inside_are_normalised() {
        assert_eq!(parsed("src/file.txt"), "src/file.txt");
        assert_eq!(parsed("./src/file.txt"), "src/file.txt");
        assert_eq!(parsed("subdir/../file.txt"), "file.txt");
        assert_eq!(parsed("a//b/./c/"), "a/b/c");
        assert_eq!(parsed("a/.."), ".");
        assert_eq!(parsed("."), ".");
        assert_eq!(parsed("/workspace"), ".");
        assert_eq!(parsed("/workspace/src//file.txt"), "src/file.txt");
        assert_eq!(parsed("workspace/x"), "workspace/x");
        assert_eq!(parsed("..."), "...");
        assert_eq!(parsed("a..b/..c"), "a..b/..c");
        assert_eq!(parsed("%2e%2e/x"), "%2e%2e/x", "nothing is decoded");
        assert_eq!(
            parsed(r"dev-disk\x2dby.swap"),
            r"dev-disk\x2dby.swap",
            "a single backslash is an ordinary character"
        );
        assert_eq!(parsed("sub/.belay.yaml"), "sub/.belay.yaml", "only the whole name is reserved");
    }

    #[test]
    fn impossible_names_are_rejected() {
        assert_eq!(RelPath::parse(""), Err(PathError::Empty));
        assert_eq!(
            RelPath::parse("a\0b").unwrap_err().to_string(),
            "`a<U+0000>b` contains a NUL character, which is not allowed in a file name"
        );
        assert_eq!(RelPath::parse(&"x".repeat(256)), Err(PathError::TooLong));
        assert_eq!(RelPath::parse(&"xy/".repeat(1400)), Err(PathError::TooLong));
    }

    #[test]
    fn any_path_round_trips_through_json() {
        for bytes in [&b""[..], b"a/b", b"caf\xc3\xa9", b"not\xffutf8/x", b"{\"hex\"", br"\xff"] {
            let path = RelPath(bytes.to_vec());
            let stored = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<RelPath>(&stored).unwrap(), path, "{stored}");
        }
        for forged in [
            r#""../x""#,
            r#""/etc""#,
            r#""a//b""#,
            r#"{"hex":"2e2e"}"#,
            r#"{"hex":"+f"}"#,
            r#"{"hex":"abc"}"#,
            r#"".belay/lock""#,
            r#""sub/.belay/lock""#,
        ] {
            assert!(serde_json::from_str::<RelPath>(forged).is_err(), "{forged}");
        }
    }

    /// A path that a tool returns is read as the same path, for any bytes as names; and two names never have one form.
    #[test]
    fn what_is_written_is_read_as_the_same_path() {
        assert_attack_needs(Defect::PrintedPathHandedOn, "new<U+000A>line` names another file", odd_names_handed_on);
    }

    fn odd_names_handed_on() -> Result<(), String> {
        let names: [&[u8]; 24] = [
            b"a",
            b"caf\xc3\xa9",
            b"new\nline",
            br"new\nline",
            b"\xff",
            br"\xff",
            b"bad\xfe.env",
            b"hex:ff",
            b"hex:",
            b"hex:zz",
            b"HEX:ff",
            b"C:",
            b"c:x",
            br"C:\x",
            br"..\x",
            br"a\..",
            br"\",
            b"...",
            b" ",
            b"\xe2\x80\xaeb",
            b"a\xe2\x80\x8db",
            b"\x1b[31m",
            b"workspace",
            b"\\u{200d}",
        ];
        let mut forms = std::collections::BTreeMap::new();
        let mut check = |path: RelPath| {
            let text = path.written();
            let is_read = RelPath::parse(&text).as_ref() == Ok(&path);
            let other = forms.insert(text.clone(), path.clone());
            let is_its_own = other.is_none_or(|other| other == path);
            if is_read && is_its_own { Ok(()) } else { Err(format!("`{text}` names another file")) }
        };
        check(RelPath::root())?;
        for one in names {
            check(RelPath(one.to_vec()))?;
            for other in names {
                check(RelPath([one, b"/", other].concat()))?;
            }
        }
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = (random >> 8).to_le_bytes();
            let name: Vec<u8> =
                bytes[..1 + (random >> 61) as usize].iter().copied().filter(|byte| !matches!(byte, 0 | b'/')).collect();
            if !matches!(&name[..], b"" | b"." | b"..") {
                check(RelPath(name))?;
            }
        }
        // Each path has one form only: rules about it see every way to name it.
        for other in
            ["hex:61", "hex:FF", "hex:2e2e", "hex:612f62", "hex:00", "hex:f", "a/hex:", "hex:ff00", "hex:2e62656c6179"]
        {
            assert!(
                matches!(RelPath::parse(other), Err(PathError::Hex { .. })),
                "{other}: {:?}",
                RelPath::parse(other)
            );
        }
        assert_eq!(RelPath::parse("secrets/hex:ff").unwrap().to_string(), "secrets/hex:ff");
        Ok(())
    }

    #[test]
    fn misleading_characters_are_escaped() {
        assert_eq!(RelPath(b"a\x1b[31m\xe2\x80\xaeb\n".to_vec()).to_string(), "a<U+001B>[31m<U+202E>b<U+000A>");
        assert_eq!(RelPath(b"d/a\n\xff".to_vec()).to_string(), "d/hex:610aff");
        // B-30: nor can a name pass for the form of another.
        assert_eq!(RelPath(b"<U+202E>b".to_vec()).to_string(), "<U+003C>U+202E>b");
    }

    #[test]
    fn parents_and_names() {
        let path = RelPath::parse("a/b/c").unwrap();
        assert_eq!(path.name().unwrap(), "c");
        assert_eq!(path.parent().unwrap().to_string(), "a/b");
        assert_eq!(RelPath::parse("a").unwrap().parent().unwrap(), RelPath::root());
        assert_eq!((RelPath::root().parent(), RelPath::root().name()), (None, None));
    }
}

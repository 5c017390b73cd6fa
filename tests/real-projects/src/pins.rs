//! The format of `projects/NAME/project.yaml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::results::Format;

/// A project: what to fetch, how to run its suite, and which tests are known to differ.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The folder's name.
    #[serde(skip)]
    pub name: String,
    /// The folder: `project.yaml`, and the lock files of what the suite depends on.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Selects the registry that serves it and the script of `fetch/` that brings it.
    pub language: Language,
    /// Its name in the registry.
    pub package: String,
    /// Its version there.
    pub version: String,
    /// Each archive that the registry serves for it, with its SHA-256 in hexadecimal.
    pub archives: BTreeMap<String, String>,
    /// The kernel features that its tests use and a sandbox may lack.
    #[serde(default)]
    pub opens: BTreeSet<Opens>,
    /// Whether the ordinary suite runs it.
    #[serde(default)]
    pub quick: bool,
    /// The programs that `run` and its fetch script start, found on PATH.
    pub programs: Vec<String>,
    /// The suite: a shell script that starts in `project` and writes its results into `../results`. It exits with 0 also when tests fail.
    pub run: String,
    /// How those results are written.
    pub results: Format,
    /// How long one run may take, in seconds.
    #[serde(default = "ten_minutes")]
    pub limit_seconds: u64,
    /// The fewest tests that a complete run passes outside, so that a suite which did not start cannot pass for one.
    pub at_least: usize,
    /// Tests that pass outside and not inside, each with the kernel's reason.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
    /// Tests that sometimes fail on either side, each with the reason; they are left out of the comparison.
    #[serde(default)]
    pub unsteady: BTreeMap<String, String>,
}

fn ten_minutes() -> u64 {
    600
}

/// The languages, one registry and one fetch script each.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// From PyPI.
    Python,
    /// From npm.
    JavaScript,
    /// From the Go module proxy.
    Go,
    /// From crates.io.
    Rust,
    /// From Debian's source packages.
    C,
    /// From Maven Central.
    Java,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Python, Self::JavaScript, Self::Go, Self::Rust, Self::C, Self::Java];

    /// Its name as people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::Go => "Go",
            Self::Rust => "Rust",
            Self::C => "C",
            Self::Java => "Java",
        }
    }
}

/// A kernel feature that a suite uses.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Opens {
    /// Sockets on loopback.
    Sockets,
    /// Pseudo-terminals.
    Ptys,
}

impl Opens {
    /// Its name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Ptys => "ptys",
        }
    }
}

/// Reads all pins, sorted by language and name.
///
/// # Errors
/// Names the file that cannot be read, and why.
pub fn read(folder: &Path) -> Result<Vec<Pin>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut pins = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
        let file = entry.path().join("project.yaml");
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut pin = parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        pin.name = entry.file_name().to_string_lossy().into_owned();
        pin.folder = entry.path();
        pins.push(pin);
    }
    pins.sort_by(|a, b| (a.language, &a.name).cmp(&(b.language, &b.name)));
    Ok(pins)
}

fn parse(text: &str) -> Result<Pin, String> {
    let pin: Pin = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let digest =
        |digest: &str| digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if let Some((file, _)) = pin.archives.iter().find(|(_, sha256)| !digest(sha256)) {
        return Err(format!("archives.{file}: not a SHA-256 in hexadecimal"));
    }
    if pin.archives.is_empty() {
        return Err("archives: name at least one".to_owned());
    }
    if pin.at_least == 0 {
        return Err("at_least: must be above 0".to_owned());
    }
    let unexplained = pin.differs.iter().chain(&pin.unsteady).find(|(_, reason)| reason.trim().is_empty());
    match unexplained {
        Some((test, _)) => Err(format!("{test}: give the reason")),
        None => Ok(pin),
    }
}

/// The pins of this repository.
///
/// # Errors
/// As [`read`].
pub fn all() -> Result<Vec<Pin>, String> {
    read(&crate::package().join("projects"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
language: python
package: x
version: 1.0
archives: {x-1.0.tar.gz: b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374}
programs: [python3]
run: python3 -m pytest
results: junit
at_least: 3
";

    #[test]
    fn a_pin_is_read_and_a_bad_one_names_its_field() {
        let pin = parse(GOOD).unwrap();
        assert_eq!((pin.language, pin.limit_seconds, pin.quick), (Language::Python, 600, false));
        assert!(parse(&GOOD.replace("b6a8", "B6A8")).unwrap_err().starts_with("archives.x-1.0.tar.gz"));
        assert!(parse(&GOOD.replace("at_least: 3", "at_least: 0")).unwrap_err().starts_with("at_least"));
        assert!(parse(&format!("{GOOD}differs: {{a: ' '}}\n")).unwrap_err().starts_with("a: "));
        assert!(parse(&format!("{GOOD}colour: red\n")).is_err());
    }

    #[test]
    fn the_projects_cover_what_they_are_for() {
        let pins = all().unwrap();
        let having = |opens| pins.iter().filter(|pin| pin.opens.contains(&opens)).count();
        assert!(pins.len() >= 12, "{} projects", pins.len());
        assert!(having(Opens::Sockets) >= 3 && having(Opens::Ptys) >= 2);
        for language in Language::ALL {
            assert!(pins.iter().any(|pin| pin.language == language), "no project in {language:?}");
        }
        let quick: BTreeSet<_> = pins.iter().filter(|pin| pin.quick).map(|pin| pin.language).collect();
        assert_eq!(pins.iter().filter(|pin| pin.quick).count(), 3);
        assert_eq!(quick.len(), 3, "the quick ones are in three languages");
    }
}

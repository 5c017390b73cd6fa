//! Output of test runners, read into names of tests with their outcomes.

mod go;
mod junit;
mod libtest;
mod outcome;
mod tap;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::Deserialize;

pub use self::outcome::TestOutcome;

/// How a runner writes its results.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JUnit's XML: pytest, `node --test`, ctest, JUnit itself.
    Junit,
    /// `go test -json`.
    Go,
    /// The output of `cargo test`, both streams in one file.
    Libtest,
    /// The Test Anything Protocol.
    Tap,
}

/// The results of one run of a suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The names of the tests that passed. Where a name passed more than once, the later ones carry ` #2`, ` #3` and so on.
    pub passed: BTreeSet<String>,
    /// The names that failed.
    pub failed: BTreeSet<String>,
    /// How many tests were skipped.
    pub skipped: usize,
}

impl Results {
    fn of(tests: impl IntoIterator<Item = (String, TestOutcome)>) -> Self {
        let mut results = Self::default();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (name, ended) in tests {
            match ended {
                TestOutcome::Passed => {
                    let count = seen.entry(name.clone()).or_default();
                    *count += 1;
                    results.passed.insert(if *count == 1 { name } else { format!("{name} #{count}") });
                }
                TestOutcome::Failed => drop(results.failed.insert(name)),
                TestOutcome::Skipped => results.skipped += 1,
            }
        }
        results
    }

    /// How many tests the run knew.
    #[must_use]
    pub fn total(&self) -> usize {
        self.passed.len() + self.failed.len() + self.skipped
    }
}

/// Reads all files of a results folder and of those below it.
///
/// # Errors
/// Names the file that cannot be read, and why.
pub fn read(folder: &Path, format: Format) -> Result<Results, String> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    let mut tests = Vec::new();
    for file in files {
        let name = |error: String| format!("{}: {error}", file.display());
        let bytes = fs::read(&file).map_err(|error| name(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes);
        tests.extend(parse(&text, format).map_err(name)?);
    }
    Ok(Results::of(tests))
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> Result<(), String> {
    let name = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(name)? {
        let entry = entry.map_err(name)?;
        if entry.file_type().map_err(name)?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn parse(text: &str, format: Format) -> Result<Vec<(String, TestOutcome)>, String> {
    match format {
        Format::Junit => junit::parse(text),
        Format::Go => go::parse(text),
        Format::Libtest => Ok(libtest::parse(text)),
        Format::Tap => Ok(tap::parse(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_passes_twice_counts_twice() {
        let test = |name: &str, ended| (name.to_owned(), ended);
        let results = Results::of([
            test("a", TestOutcome::Passed),
            test("b", TestOutcome::Failed),
            test("a", TestOutcome::Passed),
            test("c", TestOutcome::Skipped),
        ]);
        assert_eq!(results.passed, BTreeSet::from(["a".to_owned(), "a #2".to_owned()]));
        assert_eq!(results.total(), 4);
    }

    #[test]
    fn a_folder_is_read_with_those_below_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("a.tap"), "ok 1 - one\n").unwrap();
        fs::write(folder.path().join("deep/b.tap"), "not ok 1 - two\n").unwrap();
        let results = read(folder.path(), Format::Tap).unwrap();
        assert_eq!((results.passed.len(), results.failed.len()), (1, 1));
        assert!(read(&folder.path().join("missing"), Format::Tap).is_err());
    }
}

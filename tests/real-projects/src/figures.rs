//! The latest figures of each project, kept so that the table can be made of several runs.

use std::{fmt::Display, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{compare::Comparison, pins::Pin};

#[derive(Deserialize, Serialize)]
struct StoredComparison {
    version: String,
    found: Comparison,
}

/// Keeps what was found.
///
/// # Errors
/// When it cannot be written.
pub fn keep(dir: &Path, pin: &Pin, found: &Comparison) -> Result<(), String> {
    let folder = dir.join("figures");
    let file = folder.join(format!("{}.json", pin.name));
    let kept = StoredComparison { version: pin.version.clone(), found: found.clone() };
    let text = serde_json::to_string_pretty(&kept).map_err(|error| error.to_string())?;
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&file, text))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// Projects with what was found for them.
pub type Comparisons = Vec<(Pin, Comparison)>;

/// Returns the comparisons of these projects, of the versions that are pinned now; and the projects that were not run yet.
///
/// # Errors
/// Names a file that cannot be read.
pub fn read(dir: &Path, pins: Vec<Pin>) -> Result<(Comparisons, Vec<Pin>), String> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for pin in pins {
        let file = dir.join("figures").join(format!("{}.json", pin.name));
        let name = |error: &dyn Display| format!("{}: {error}", file.display());
        let kept = match fs::read_to_string(&file) {
            Ok(text) => Some(serde_json::from_str::<StoredComparison>(&text).map_err(|error| name(&error))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(name(&error)),
        };
        match kept.filter(|kept| kept.version == pin.version) {
            Some(kept) => found.push((pin, kept.found)),
            None => missing.push(pin),
        }
    }
    Ok((found, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_another_version_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut pin = crate::pins::all().unwrap().remove(0);
        let found = Comparison {
            rounds: 1,
            tests: 1,
            outside: 1,
            inside: 1,
            differing: Vec::new(),
            unsteady: Vec::new(),
            ratio: 1.0,
            outside_seconds: 1.0,
            inside_seconds: 1.0,
            problems: Vec::new(),
        };
        assert_eq!(read(dir.path(), vec![pin.clone()]).unwrap().1.len(), 1);
        keep(dir.path(), &pin, &found).unwrap();
        assert_eq!(read(dir.path(), vec![pin.clone()]).unwrap().0[0].1, found);
        pin.version.push('1');
        let (found, missing) = read(dir.path(), vec![pin]).unwrap();
        assert_eq!((found.len(), missing.len()), (0, 1));
    }
}

//! Reads the plan file. The server parses and checks it.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use belay_proto::v1::{PlanDocument, PlanFormat};
use belay_reasons as reasons;

use crate::{
    failure::{Failure, Report, STDIN},
    next,
    render::violation::Source,
};

/// The longest plan the contract allows (`PlanDocument.text`), in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// A plan as its author wrote it.
#[derive(Debug)]
pub(crate) struct PlanFile {
    /// Its name and text, to point into.
    pub(crate) source: Source,
    format: PlanFormat,
}

impl PlanFile {
    /// Reads a file, or standard input for `-`. On a blocking thread, since a terminal or a pipe may be slow.
    pub(crate) async fn read(path: &Path) -> Result<PlanFile, Failure> {
        let path = path.to_owned();
        match tokio::task::spawn_blocking(move || PlanFile::read_now(&path)).await {
            Ok(read) => read,
            Err(error) => Err(Failure::internal(format!("the plan cannot be read: {error}"))),
        }
    }

    fn read_now(path: &Path) -> Result<PlanFile, Failure> {
        if path == Path::new("-") {
            return PlanFile::read_from(STDIN.to_owned(), PlanFormat::Unspecified, io::stdin().lock());
        }
        let name = path.display().to_string();
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => PlanFormat::Json,
            Some("yaml" | "yml") => PlanFormat::Yaml,
            _ => PlanFormat::Unspecified,
        };
        let file = File::open(path).map_err(|error| not_opened(path, &name, &error))?;
        if path.is_dir() {
            return Err(folder(path, &name).into());
        }
        PlanFile::read_from(name, format, file)
    }

    fn read_from(name: String, format: PlanFormat, reader: impl Read) -> Result<PlanFile, Failure> {
        let mut bytes = Vec::new();
        reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&name, &error.to_string()))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Report::new(reasons::PLAN_TOO_LARGE, format!("the plan {name} is longer than 4 MiB")).into());
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            unreadable(&name, &format!("line {line} is not UTF-8"))
        })?;
        Ok(PlanFile { source: Source { name, text }, format })
    }

    /// The plan as requests carry it.
    pub(crate) fn document(&self) -> PlanDocument {
        PlanDocument { format: self.format.into(), text: self.source.text.clone() }
    }
}

/// A file that is not there may be mistyped.
fn not_opened(path: &Path, name: &str, error: &io::Error) -> Report {
    let report = unreadable(name, &error.to_string());
    suggest(report, name, next::similar_file(path).filter(|_| error.kind() == io::ErrorKind::NotFound))
}

/// A folder may stand for the one plan in it.
fn folder(path: &Path, name: &str) -> Report {
    let is_plan = |path: &Path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut plans: Vec<_> = entries.filter(|path| is_plan(path) && path.is_file()).collect();
    let only = plans.pop().filter(|_| plans.is_empty()).map(|plan| plan.display().to_string());
    suggest(unreadable(name, "it is a folder; name a YAML or JSON file"), name, only)
}

/// The report with the file that was probably meant.
fn suggest(report: Report, name: &str, meant: Option<String>) -> Report {
    match meant {
        Some(meant) => report.detail(format!("did you mean `{meant}`?")).next(next::instead(name, &meant)),
        None => report.next(next::help()),
    }
}

fn unreadable(name: &str, why: &str) -> Report {
    Report::new(reasons::PLAN_UNREADABLE, format!("the plan {name} cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> Report {
        match PlanFile::read_from("p".to_owned(), PlanFormat::Unspecified, bytes) {
            Err(Failure::Report(report)) => *report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refuses_what_cannot_be_a_plan_before_anything_is_sent() {
        assert_eq!(refusal(&vec![b' '; MAX_BYTES as usize + 1]).code, "PLAN_TOO_LARGE");
        assert_eq!(refusal(b"a\nb\n\xff").message, "the plan p cannot be read: line 3 is not UTF-8");
        let missing = PlanFile::read_now(Path::new("/nonexistent/plan.yaml"));
        assert!(matches!(missing, Err(Failure::Report(report)) if report.message.contains("/nonexistent/plan.yaml")));
    }

    #[test]
    fn a_missing_plan_and_a_folder_get_the_same_answer() {
        let home = tempfile::tempdir().unwrap();
        let report = |path: &Path| PlanFile::read_now(path).unwrap_err().report();
        let (missing, folder) = (report(&home.path().join("nowhere.yaml")), report(home.path()));
        assert_eq!((missing.next.as_deref(), missing.code.as_str()), (Some("belay --help"), "PLAN_UNREADABLE"));
        assert_eq!((folder.next, folder.code), (missing.next, missing.code));
        assert!(folder.message.ends_with("cannot be read: it is a folder; name a YAML or JSON file"));
        std::fs::write(home.path().join("tidy.yaml"), "").unwrap();
        let plan = home.path().join("tidy.yaml").display().to_string();
        assert_eq!(report(home.path()).details, [format!("did you mean `{plan}`?")]);
    }

    #[test]
    fn the_format_is_told_from_the_name() {
        let folder = tempfile::tempdir().unwrap();
        for (name, format) in
            [("a.json", PlanFormat::Json), ("b.yml", PlanFormat::Yaml), ("c", PlanFormat::Unspecified)]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, "{}").unwrap();
            assert_eq!(PlanFile::read_now(&path).unwrap().document().format(), format);
        }
    }
}

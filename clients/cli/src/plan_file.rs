//! Reads the plan file, and the files that its steps name. The server parses and checks the whole plan.

mod parts;
mod text;

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use belay_proto::v1::{PlanDocument, PlanFormat, PlanViolation};
use belay_reasons as reasons;

use crate::{
    failure::{Failure, Report, STDIN},
    next,
    render::violation::{LocatedViolation, Source},
};

use parts::ComposedPlan;
use text::{TextError, format_of, read_text, text_format};

/// A plan as its author wrote it.
#[derive(Debug)]
pub(crate) struct PlanFile {
    /// Its name and text, to point into.
    pub(crate) source: Arc<Source>,
    format: PlanFormat,
    /// The whole plan, when its steps name files.
    whole: Option<ComposedPlan>,
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

    /// A plan that was made, and stands in no file.
    pub(crate) fn of_json(name: &str, plan: &serde_json::Value) -> PlanFile {
        let source = Arc::new(Source { name: name.to_owned(), text: plan.to_string() });
        PlanFile { source, format: PlanFormat::Json, whole: None }
    }

    fn read_now(path: &Path) -> Result<PlanFile, Failure> {
        if path == Path::new("-") {
            let plan = PlanFile::read_from(STDIN.to_owned(), PlanFormat::Unspecified, io::stdin().lock())?;
            return plan.with_parts(None);
        }
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| not_opened(path, &name, &error))?;
        if path.is_dir() {
            return Err(folder(path, &name).into());
        }
        PlanFile::read_from(name, format_of(path), file)?.with_parts(Some(path))
    }

    fn read_from(name: String, format: PlanFormat, reader: impl Read) -> Result<PlanFile, Failure> {
        let text = read_text(reader).map_err(|error| match error {
            TextError::TooLong => Report::new(reasons::PLAN_TOO_LARGE, format!("the plan {name} is longer than 4 MiB")),
            other => unreadable(&name, &other.to_string()),
        })?;
        Ok(PlanFile { source: Arc::new(Source { name, text }), format, whole: None })
    }

    /// With the files that its steps name, relative to `path`, or to the current folder when the plan was read from standard input.
    fn with_parts(self, path: Option<&Path>) -> Result<PlanFile, Failure> {
        let whole = parts::read(&self.source, text_format(self.format), path)?;
        Ok(PlanFile { whole, ..self })
    }

    /// The plan as requests carry it: as it was written, unless its steps name files.
    pub(crate) fn document(&self) -> PlanDocument {
        match &self.whole {
            Some(whole) => PlanDocument { format: PlanFormat::Json.into(), text: whole.json().to_owned() },
            None => PlanDocument { format: self.format.into(), text: self.source.text.clone() },
        }
    }

    /// Violations of [`PlanFile::document`] with the file, the field and the place where their author finds them: once each, also when several
    /// steps name the same file.
    pub(crate) fn locate(&self, violations: Vec<PlanViolation>) -> Vec<LocatedViolation> {
        let Some(whole) = &self.whole else { return violations.into_iter().map(LocatedViolation::from).collect() };
        let mut located: Vec<LocatedViolation> = Vec::with_capacity(violations.len());
        for found in violations.into_iter().map(|violation| whole.locate(violation)) {
            let is_known = |known: &LocatedViolation| {
                known.violation == found.violation
                    && match (&known.part, &found.part) {
                        (Some(known), Some(found)) => Arc::ptr_eq(known, found),
                        _ => false,
                    }
            };
            if !located.iter().any(is_known) {
                located.push(found);
            }
        }
        located
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
    use super::{text::MAX_BYTES, *};

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

//! The files that steps name as their plans (`plan: parts/build.yaml`), put in place before a request is sent: the server reads no files.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use belay_all_in_one::{
    ComposedDocument, FileContent, MAX_NESTED_PLANS, PlanText, PlanTextFormat, PlanTextViolation, refused_name,
};
use belay_proto::v1::PlanViolation;

use super::text::{TextError, format_of, read_text, text_format};
use crate::{
    failure::{Failure, Report},
    next,
    render::violation::{LocatedViolation, Source},
};

/// A plan with the files of its steps in place.
#[derive(Debug)]
pub(super) struct ComposedPlan {
    plan: ComposedDocument,
    /// By the numbers that [`ComposedDocument::locate`] returns; the first is the file that the command was given.
    sources: Vec<Arc<Source>>,
}

impl ComposedPlan {
    pub(super) fn json(&self) -> &str {
        self.plan.json()
    }

    pub(super) fn locate(&self, violation: PlanViolation) -> LocatedViolation {
        let number = |number: i32| u32::try_from(number).unwrap_or(0);
        let PlanViolation { field, message, line, column } = violation;
        let (source, found) =
            self.plan.locate(PlanTextViolation { field, message, line: number(line), column: number(column) });
        located(&self.sources, source, found)
    }
}

fn located(sources: &[Arc<Source>], source: usize, found: PlanTextViolation) -> LocatedViolation {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let PlanTextViolation { field, message, line, column } = found;
    let violation = PlanViolation { field, message, line: number(line), column: number(column) };
    LocatedViolation { violation, part: sources.get(source).filter(|_| source > 0).cloned() }
}

/// Reads the files that the steps of a plan name; `None` when they name none, or when the plan cannot be parsed, which the server reports.
/// `path` is the plan's file; without one, names are relative to the current folder.
pub(super) fn read(
    source: &Arc<Source>,
    format: PlanTextFormat,
    path: Option<&Path>,
) -> Result<Option<ComposedPlan>, Failure> {
    // Most plans name no files and need not be parsed here as well.
    if !["plan", "file"].iter().any(|name| source.text.contains(name)) {
        return Ok(None);
    }
    let Ok(plan) = PlanText::parse(format, &source.text) else { return Ok(None) };
    if plan.named().is_empty() {
        return Ok(None);
    }
    let folder = path.and_then(Path::parent).unwrap_or(Path::new(""));
    let mut reader = Reader {
        real: real(&or_here(folder)).unwrap_or_default(),
        folder: folder.to_owned(),
        sources: vec![Arc::clone(source)],
        problems: Vec::new(),
        read: HashMap::new(),
        around: path
            .and_then(|path| Some(EnclosingFile { real: real(path).ok()?, name: source.name.clone() }))
            .into_iter()
            .collect(),
    };
    let whole = reader.compose(plan, 0, Path::new(""), 0);
    match whole {
        Some(plan) if reader.problems.is_empty() => Ok(Some(ComposedPlan { plan, sources: reader.sources })),
        _ => Err(Report::of_plan(source, reader.problems).into()),
    }
}

/// A file whose plan is being put together.
struct EnclosingFile {
    /// Its path without symbolic links: two names of one file are the same.
    real: PathBuf,
    /// Its name for people.
    name: String,
}

struct Reader {
    /// The folder of the outermost plan as it was typed, and without symbolic links. No file outside of it is read.
    folder: PathBuf,
    real: PathBuf,
    sources: Vec<Arc<Source>>,
    problems: Vec<LocatedViolation>,
    /// The plan or the task in each file, by its path without symbolic links; `None` when its problems are known.
    read: HashMap<(PathBuf, FileContent), Option<Arc<ComposedDocument>>>,
    /// The files around the one that is being read, the outermost first.
    around: Vec<EnclosingFile>,
}

impl Reader {
    /// Puts the files in place that a text names. `within` is the text's folder, relative to that of the outermost plan, and `depth` the number
    /// of plans around it. `None` when there is a problem.
    fn compose(&mut self, text: PlanText, source: usize, within: &Path, depth: usize) -> Option<ComposedDocument> {
        let mut parts = HashMap::new();
        let mut is_whole = true;
        for named in text.named() {
            let is_too_deep = named.content == FileContent::Plan && depth + named.depth > MAX_NESTED_PLANS;
            let part = match is_too_deep {
                true => Err(format!(
                    "names a file, and stands in {MAX_NESTED_PLANS} other plans, which is the limit: let a plan further out have its steps"
                )),
                false => self.part(&named.name, named.content, within, depth + named.depth),
            };
            match part {
                Ok(Some(part)) => drop(parts.insert(named.field, part)),
                Ok(None) => is_whole = false,
                Err(message) => {
                    is_whole = false;
                    let (line, column) = (named.line, named.column);
                    self.refuse(source, PlanTextViolation { field: named.field, message, line, column });
                }
            }
        }
        if !is_whole {
            return None;
        }
        text.with(source, &parts).map_err(|violation| self.refuse(source, violation)).ok()
    }

    fn refuse(&mut self, source: usize, violation: PlanTextViolation) {
        self.problems.push(located(&self.sources, source, violation));
    }

    /// The content of a file that a step names; `None` when what is wrong in it is among the problems. The error is about the name.
    fn part(
        &mut self,
        name: &str,
        content: FileContent,
        within: &Path,
        depth: usize,
    ) -> Result<Option<Arc<ComposedDocument>>, String> {
        if let Some(refused) = refused_name(name, content) {
            return Err(refused);
        }
        let relative = self.relative(name, within)?;
        let path = self.folder.join(&relative);
        let real = real(&path).map_err(|error| self.missing(name, &path, &error))?;
        if !real.starts_with(&self.real) {
            return Err(self.outside(name, "leads through a symbolic link "));
        }
        let shown = path.display().to_string();
        let start = self.around.iter().position(|around| around.real == real);
        if let Some(start) = start.filter(|_| content == FileContent::Plan) {
            let chain: Vec<&str> =
                self.around[start..].iter().map(|around| around.name.as_str()).chain([shown.as_str()]).collect();
            return Err(format!(
                "names `{name}`, which would be a plan within itself: {} (each names the next): let one of them name another file",
                chain.join(" → ")
            ));
        }
        if let Some(known) = self.read.get(&(real.clone(), content)) {
            return Ok(known.clone());
        }
        let text = self.text_of(name, content, &path)?;
        let source = self.sources.len();
        self.sources.push(Arc::new(Source { name: shown.clone(), text: text.clone() }));
        let whole = match content {
            FileContent::Task => Some(ComposedDocument::of_task(source, &text)),
            FileContent::Plan => {
                let around = EnclosingFile { real: real.clone(), name: shown };
                self.plan_of(&text, source, around, &relative, depth)
            }
        };
        let whole = whole.map(Arc::new);
        self.read.insert((real, content), whole.clone());
        Ok(whole)
    }

    /// The plan in a text, with its own files in place; `None` when what is wrong in it is among the problems. `file`: the text's, whose path relative to the
    /// folder of the outermost plan is `relative`.
    fn plan_of(
        &mut self,
        text: &str,
        source: usize,
        file: EnclosingFile,
        relative: &Path,
        depth: usize,
    ) -> Option<ComposedDocument> {
        let plan = PlanText::parse(text_format(format_of(relative)), text);
        match plan.and_then(|plan| plan.unfit().map_or(Ok(plan), Err)) {
            Ok(plan) => {
                self.around.push(file);
                let whole = self.compose(plan, source, relative.parent().unwrap_or(Path::new("")), depth);
                self.around.pop();
                whole
            }
            Err(violation) => {
                self.refuse(source, violation);
                None
            }
        }
    }

    /// The text of a file that a step names. Only a regular file is opened: another, such as a pipe, may never end.
    fn text_of(&self, name: &str, content: FileContent, path: &Path) -> Result<String, String> {
        let wanted = match content {
            FileContent::Plan => "a YAML or JSON file",
            FileContent::Task => "a text file",
        };
        let kind = fs::metadata(path).map_err(|error| self.missing(name, path, &error))?;
        if kind.is_dir() {
            return Err(format!("names `{name}`, which is a folder: name {wanted} in it"));
        }
        if !kind.is_file() {
            return Err(format!("names `{name}`, which is not a regular file: name {wanted}"));
        }
        let text = File::open(path).map_err(TextError::Io).and_then(read_text);
        text.map_err(|error| match error {
            TextError::Io(error) => self.missing(name, path, &error),
            TextError::TooLong => {
                let (limit, instead) = match content {
                    FileContent::Plan => ("the limit of a whole plan", "split it"),
                    FileContent::Task => {
                        ("and a task may have 256 KiB", "put what is long into files of the workspace")
                    }
                };
                format!("names `{name}`, which is longer than 4 MiB, {limit}: {instead}")
            }
            TextError::Line(line) => {
                format!("names `{name}`, which is not text: its line {line} is not UTF-8: name {wanted}")
            }
        })
    }

    /// The message on a file that cannot be opened, with the one that was probably meant.
    fn missing(&self, name: &str, path: &Path, error: &io::Error) -> String {
        let shown = path.display();
        if error.kind() != io::ErrorKind::NotFound {
            return format!("names `{name}`, and {shown} cannot be read: {error}");
        }
        // No file that would contain itself.
        let may_be_meant = |similar: &String| {
            real(Path::new(similar)).is_ok_and(|real| self.around.iter().all(|around| around.real != real))
        };
        let similar = next::similar_file(path).filter(may_be_meant);
        let similar = similar.as_deref().and_then(|similar| Path::new(similar).file_name());
        match similar.map(|similar| Path::new(name).with_file_name(similar)) {
            Some(similar) => {
                format!("names `{name}`, and there is no file {shown}; did you mean `{}`?", similar.display())
            }
            None => format!(
                "names `{name}`, and there is no file {shown}: create it, or correct the name, which is relative to the file that names it"
            ),
        }
    }

    /// The path of a file, relative to the folder of the outermost plan.
    fn relative(&self, name: &str, within: &Path) -> Result<PathBuf, String> {
        let mut relative = within.to_owned();
        for component in Path::new(name).components() {
            match component {
                Component::Normal(part) => relative.push(part),
                Component::CurDir => {}
                Component::ParentDir if relative.pop() => {}
                Component::ParentDir => return Err(self.outside(name, "is ")),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(format!(
                        "names `{name}`, an absolute path: name the file relative to the file that names it, such as parts/build.yaml"
                    ));
                }
            }
        }
        Ok(relative)
    }

    fn outside(&self, name: &str, how: &str) -> String {
        let folder = or_here(&self.folder);
        format!(
            "names `{name}`, which {how}outside of {}, the folder of the outermost plan: move or copy the file into that folder",
            folder.display()
        )
    }
}

/// The path without symbolic links.
fn real(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

/// The folder, by a name that is not empty.
fn or_here(folder: &Path) -> PathBuf {
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
}

#[cfg(test)]
mod tests;

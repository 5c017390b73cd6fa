//! What a model reads of what came of a call.

use belay_reasons as reasons;
use serde_json::Value;

use crate::{ResultText, answered::conflict_id};

/// How many tokens of a result the model reads at once (S2-X-13).
pub const RESULT_TOKENS: usize = 10_000;

/// The bytes that a token is taken for where text is cut: about what tokenizers make of English and of code. The place of a cut has to be the same whenever it is computed.
const BYTES_OF_TOKEN: usize = 4;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome<'a> {
    /// It returned a value.
    Returned(&'a Value),
    /// It failed, was denied, or did not happen.
    Failed {
        /// The code of the failure.
        reason: &'a str,
        /// The message.
        message: &'a str,
        /// The ends of what its program printed, to standard output and standard error.
        printed: [&'a str; 2],
    },
    /// A person skipped it.
    Skipped,
}

impl Outcome<'_> {
    /// The whole of what the model may read.
    pub fn text(&self) -> String {
        match self {
            Self::Returned(Value::String(text)) => text.clone(),
            Self::Returned(value) => value.to_string(),
            Self::Failed { reason, message, printed } => {
                let lines = [format!("{reason}: {message}"), (*printed[0]).to_owned(), (*printed[1]).to_owned()];
                lines.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
            }
            Self::Skipped => "A person skipped this call: it was not made.".to_owned(),
        }
    }

    /// Whether the call has not done what it was to do.
    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Returned(_))
    }

    /// Whether it is a command that failed and printed nothing.
    fn is_silent(&self) -> bool {
        matches!(self, Self::Failed { reason: reasons::COMMAND_FAILED, printed: ["", ""], .. })
    }

    /// What the model reads first: all of it, or as much as [`RESULT_TOKENS`].
    pub fn result(&self, id: &str) -> ResultText {
        let text = result_part(id, &self.text(), 0);
        ResultText { id: id.to_owned(), text, is_error: self.is_error(), is_silent: self.is_silent() }
    }
}

/// A file that the model is shown with its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFile {
    /// Its path, or the pattern of which something is said in its place.
    name: String,
    is_pattern: bool,
    /// What it holds, as much as a model reads at once, or why it could not be read.
    part: String,
    is_error: bool,
}

impl ShownFile {
    /// The file at this place among all that are shown, by what came of reading it.
    pub fn new(place: usize, path: String, outcome: &Outcome<'_>) -> Self {
        let part = result_part(&crate::file_id(place), &file_text(outcome), 0);
        Self { name: path, is_pattern: false, part, is_error: outcome.is_error() }
    }

    /// Words about a pattern, after the files that it has found and that are shown: that it has failed, has found nothing, or more than is shown. `found`:
    /// how many files it has found; `rest`: the paths of those that are not shown; `is_cut`: more match than were looked for.
    pub fn pattern(pattern: &str, outcome: &Outcome<'_>, found: usize, rest: &[String], is_cut: bool) -> Option<Self> {
        let part = match outcome {
            Outcome::Failed { .. } | Outcome::Skipped => outcome.text(),
            Outcome::Returned(_) if found == 0 => format!("No file matches `{pattern}`."),
            Outcome::Returned(_) => not_shown(rest, is_cut)?,
        };
        Some(Self { name: pattern.to_owned(), is_pattern: true, part, is_error: true })
    }
}

/// How many of the files that are not shown are named.
const MOST_NAMED: usize = 100;

/// The files that match a pattern and are not shown; `None` when there are none.
fn not_shown(rest: &[String], is_cut: bool) -> Option<String> {
    let count = match (rest.len(), is_cut) {
        (0, false) => return None,
        (0, true) => return Some("Not shown: more files match.".to_owned()),
        (1, false) => "1 more file matches".to_owned(),
        (count, false) => format!("{count} more files match"),
        (count, true) => format!("at least {count} more files match"),
    };
    // A name may hold anything, a line break too.
    let mut lines: Vec<String> =
        rest.iter().take(MOST_NAMED).map(|path| Value::from(path.as_str()).to_string()).collect();
    if rest.len() > MOST_NAMED {
        lines.push("…".to_owned());
    }
    Some(format!("Not shown: {count}:\n{}", lines.join("\n")))
}

/// Files as the model is shown them. What closes a file is in none of them, so that no file can end itself and go on in the words of the task.
pub fn shown_files(files: &[ShownFile]) -> Vec<String> {
    let tags = std::iter::once("file".to_owned()).chain((1..).map(|number| format!("file-{number}")));
    let is_free = |tag: &String| !files.iter().any(|file| file.part.contains(&format!("</{tag}>")));
    let tag = tags.into_iter().find(is_free).unwrap_or_default();
    let shown = files.iter().map(|ShownFile { name, is_pattern, part, is_error }| {
        let what = if *is_pattern { "pattern" } else { "path" };
        let state = if *is_error { " not_read=\"true\"" } else { "" };
        // A name may hold anything.
        format!("<{tag} {what}={}{state}>\n{part}\n</{tag}>", Value::from(name.as_str()))
    });
    shown.collect()
}

/// The text of a file that was read.
pub fn file_text(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Returned(value) => match value.get("content").and_then(Value::as_str) {
            Some(content) => content.to_owned(),
            None => outcome.text(),
        },
        Outcome::Failed { .. } | Outcome::Skipped => outcome.text(),
    }
}

/// The result of a completion, for the model, when the changes of the step could not be committed.
pub const NOT_COMMITTED: &str =
    "The step is not completed: its changes could not be committed, and the message that follows says why.";

/// The message to the model when others have changed what its calls have changed, after this turn: `outcome` is that of dropping the changes in conflict.
pub fn conflict_text(turn: u32, outcome: &Outcome<'_>) -> String {
    let Outcome::Returned(value) = outcome else {
        return format!(
            "Others are changing the workspace at paths that your changes touch, so nothing of the step can be committed now: {} Look at these paths before you \
             call complete_step.",
            outcome.text()
        );
    };
    if value["files"].as_array().is_none_or(Vec::is_empty) {
        return "Others changed the workspace while your changes were to be committed. Nothing of yours is in conflict with it any more: check that what you have \
                done still holds, and call complete_step."
            .to_owned();
    }
    let unlisted = match value["unlisted"].as_u64() {
        Some(unlisted) => format!(" {unlisted} such paths are not listed: look at what else you have changed."),
        None => String::new(),
    };
    format!(
        "Others have changed the workspace at paths that your changes touch. What they did stays, and your changes of these paths are dropped; all your other changes are \
         kept. Both versions follow, yours and theirs. Make your changes again on top of theirs where they are still needed, then call complete_step.{unlisted}\n\n{}",
        result_part(&conflict_id(turn), &outcome.text(), 0)
    )
}

/// The part of a result from this byte on, of at most [`RESULT_TOKENS`]; what is missing after it is said.
pub fn result_part(id: &str, text: &str, offset: usize) -> String {
    let rest = &text[floor(text, offset)..];
    let most = RESULT_TOKENS * BYTES_OF_TOKEN;
    if rest.len() <= most {
        return rest.to_owned();
    }
    let end = floor(rest, most);
    let omitted = (rest.len() - end).div_ceil(BYTES_OF_TOKEN);
    let next = text.len() - rest.len() + end;
    format!(
        "{}\n[Truncated: {omitted} tokens omitted]\n[The rest: read_result with id {id} and offset {next}.]",
        &rest[..end]
    )
}

/// The last place at or before this one at which a character begins.
fn floor(text: &str, place: usize) -> usize {
    let place = place.min(text.len());
    (0..=place).rev().find(|&place| text.is_char_boundary(place)).unwrap_or_default()
}

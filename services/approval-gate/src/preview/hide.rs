//! The last step before an approval is stored or shown: redacts what still looks like a secret.
//!
//! The runner has redacted the subject. Contents arrive unredacted, because they have to match their digests. Each shown line is redacted in the
//! context of the whole content, because a hunk may begin in the middle of a private key. The lines of a diff are computed before redaction, so a
//! change from one secret to another stays visible as a change.

use std::{borrow::Cow, ops::Range};

use belay_proto::texts::{Text, Texts};
use belay_redaction::{FoundSecret, REDACTED, Redactor, each_string};

/// Redacts the texts of a message.
pub(crate) fn hide_texts(redactor: &Redactor, message: &mut impl Texts) {
    message.texts(&mut |text| match text {
        Text::Words(words) | Text::Value(words) => hide(redactor, words),
        Text::Json(json) => hide_json(redactor, json),
        Text::Schema(schema) => hide_schema(redactor, schema),
        Text::Labels(labels) => labels.values_mut().for_each(|value| hide(redactor, value)),
    });
}

fn hide_json(redactor: &Redactor, json: &mut String) {
    if redactor.may_hide_json(json) {
        match serde_json::from_str(json) {
            Ok(value) => *json = redactor.redact_json::<&str>(&value, &[]).shown.to_string(),
            Err(_) => hide(redactor, json),
        }
    }
}

fn hide_schema(redactor: &Redactor, schema: &mut String) {
    if redactor.may_hide(schema) {
        match serde_json::from_str(schema) {
            Ok(mut value) => {
                each_string(&mut value, &mut |text| hide(redactor, text));
                *schema = value.to_string();
            }
            Err(_) => hide(redactor, schema),
        }
    }
}

/// The lines of a content, redacted.
pub(crate) struct HiddenLines<'a> {
    /// With their line ends.
    pub(crate) lines: Vec<Cow<'a, str>>,
    /// By line, what hides something of it first; empty when nothing of the content is hidden.
    rules: Vec<Option<&'static str>>,
}

impl HiddenLines<'_> {
    /// Rules that hide something of these lines: one for each line that is not shown in full.
    pub(crate) fn rules(&self, lines: Range<usize>) -> impl Iterator<Item = &'static str> {
        self.rules.get(lines).unwrap_or_default().iter().flatten().copied()
    }
}

/// Redacts the lines of a content.
pub(crate) fn hidden_lines<'a>(redactor: &Redactor, content: &'a str) -> HiddenLines<'a> {
    let found = if redactor.may_hide(content) { redactor.redact_text(content).found } else { Vec::new() };
    let mut left = found.as_slice();
    let mut start = 0;
    let mut rules = Vec::new();
    let lines = content.split_inclusive('\n').map(|line| {
        let end = start + line.len();
        let first = left.partition_point(|found| found.end <= start);
        left = &left[first..];
        let inside = &left[..left.partition_point(|found| found.start < end)];
        if !found.is_empty() {
            rules.push(inside.first().map(|found| found.rule));
        }
        let shown = if inside.is_empty() { Cow::Borrowed(line) } else { without(inside, start, line).into() };
        start = end;
        shown
    });
    let lines = lines.collect();
    HiddenLines { lines, rules }
}

/// A line that begins at `start`, with the found secrets redacted; its line end stays.
fn without(found: &[FoundSecret], start: usize, line: &str) -> String {
    let text = line.strip_suffix('\n').unwrap_or(line);
    let (mut shown, mut at) = (String::with_capacity(line.len()), 0);
    for found in found {
        let from = found.start.saturating_sub(start).min(text.len());
        let to = (found.end - start).min(text.len());
        if from < to {
            shown.push_str(&text[at..from]);
            shown.push_str(REDACTED);
            at = to;
        }
    }
    shown.push_str(&line[at..]);
    shown
}

/// Redacts a text.
pub(crate) fn hide(redactor: &Redactor, text: &mut String) {
    if redactor.may_hide(text) {
        *text = redactor.redact_text(text).text;
    }
}

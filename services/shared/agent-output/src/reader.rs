//! Reads what an agent writes, line by line.

mod claude;
mod codex;
mod fields;
mod gemini;
mod opencode;
mod parts;
mod words;

use serde_json::Value;

use crate::{LastLines, Report};
use parts::{Part, parts, without_lone_surrogates};
use words::{ShownWords, show};

/// The form in which an agent reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `claude -p --output-format stream-json`.
    Claude,
    /// `codex exec --json`.
    Codex,
    /// `gemini -o stream-json`.
    Gemini,
    /// `opencode run --format json`.
    Opencode,
    /// Plain text: the whole output is the result, and the exit code says how it ended.
    Text,
}

impl Format {
    /// The names in settings.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("claude", Self::Claude),
        ("codex", Self::Codex),
        ("gemini", Self::Gemini),
        ("opencode", Self::Opencode),
        ("text", Self::Text),
    ];

    /// The name in settings.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, format)| *format == self).map_or("", |(word, _)| *word)
    }

    /// Whether the agent reports its end by an event, without which it has not succeeded.
    pub fn has_final_event(self) -> bool {
        self != Self::Text
    }
}

/// Reads the standard output of an agent.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    report: Report,
    /// The lines that are no events.
    others: LastLines,
    /// The words that people were shown.
    shown: ShownWords,
    /// Whether the last of it is a part of a line.
    is_in_line: bool,
}

impl Reader {
    /// A reader of this form.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            report: Report::default(),
            others: LastLines::default(),
            shown: ShownWords::default(),
            is_in_line: false,
        }
    }

    /// Reads a line, without its end. Returns what people are shown of it: lines, each with its end.
    pub fn line(&mut self, line: &str) -> String {
        let shown = self.read(line);
        self.shown.add(&shown);
        shown
    }

    fn read(&mut self, line: &str) -> String {
        if self.format == Format::Text {
            self.report.add(line);
            self.report.add("\n");
            self.others.push(line);
            return format!("{line}\n");
        }
        let mut shown = String::new();
        for part in parts(line) {
            match part {
                Part::Event(kind, text) => self.event(&kind, text, &mut shown),
                Part::Other(text) => {
                    self.others.push(text);
                    self.show(text, &mut shown);
                }
                // The words of the agent's own tools may be in it, so it says nothing of the agent's failure.
                Part::Torn(text) => self.show(text, &mut shown),
            }
        }
        shown
    }

    /// Reads a line that was too long to be kept, by its beginning.
    pub fn long_line(&mut self, beginning: &str) -> String {
        if self.format == Format::Text {
            let shown = self.line(beginning);
            self.report.is_cut = true;
            return shown;
        }
        let mut shown = String::new();
        self.show(beginning, &mut shown);
        self.shown.add(&shown);
        shown
    }

    /// Whether the agent has reported its end. It may begin anew after that.
    pub fn has_ended(&self) -> bool {
        self.report.end.is_some()
    }

    /// How often the agent has reported its end.
    pub fn ends(&self) -> u32 {
        self.report.ends
    }

    /// The report, the last lines that are no events, and the end of what people were shown.
    pub fn finish(mut self) -> (Report, LastLines, String) {
        self.report.cut();
        (self.report, self.others, self.shown.end())
    }

    /// Shows words that are no event, on a line of their own.
    fn show(&mut self, words: &str, shown: &mut String) {
        self.end_line(shown);
        show(shown, words);
    }

    fn event(&mut self, kind: &str, text: &str, shown: &mut String) {
        let (kinds, read): (&[&str], EventReader) = match self.format {
            Format::Claude => (claude::KINDS, claude::read),
            Format::Codex => (codex::KINDS, codex::read),
            Format::Gemini => (gemini::KINDS, gemini::read),
            Format::Opencode => (opencode::KINDS, opencode::read),
            Format::Text => return,
        };
        // Others say nothing, and may be large.
        if !kinds.contains(&kind) {
            return;
        }
        let value = serde_json::from_str::<Value>(text)
            .or_else(|error| without_lone_surrogates(text).map_or(Err(error), |mended| serde_json::from_str(&mended)));
        let Ok(event) = value else { return self.show(text, shown) };
        let is_delta = event["delta"] == true;
        if !is_delta {
            self.end_line(shown);
        }
        read(&event, &mut self.report, shown);
        self.is_in_line = is_delta && !shown.is_empty() && !shown.ends_with('\n');
    }

    /// Ends a line of which only a part was shown.
    fn end_line(&mut self, shown: &mut String) {
        if std::mem::take(&mut self.is_in_line) {
            shown.push('\n');
        }
    }
}

/// Reads an event into the report, and adds what people are shown of it.
type EventReader = fn(&Value, &mut Report, &mut String);

#[cfg(test)]
mod tests;

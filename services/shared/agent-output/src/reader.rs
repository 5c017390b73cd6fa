//! Reads what an agent writes, line by line.

mod claude;
mod codex;
mod fields;
mod gemini;
mod opencode;
mod words;

use serde_json::{Deserializer, Value};

use crate::{LastLines, Report};
use words::{MAX_SHOWN, ShownWords, show};

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

/// How many places of a line that is no event are tried: an event may be written inside of another line.
const MAX_PLACES: usize = 64;

/// Reads the standard output of an agent.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    report: Report,
    /// The lines that are no events.
    others: LastLines,
    /// What people were shown.
    shown: ShownWords,
}

impl Reader {
    /// A reader of this form.
    pub fn new(format: Format) -> Self {
        Self { format, report: Report::default(), others: LastLines::default(), shown: ShownWords::default() }
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
        if line.trim().is_empty() {
            return String::new();
        }
        let mut shown = String::new();
        let mut rest = line;
        let mut places = 0;
        // Most lines are one event. Agents also write one into the middle of what another part of them writes.
        while let Some(start) = rest.find("{\"").filter(|_| places < MAX_PLACES) {
            places += 1;
            let mut values = Deserializer::from_str(&rest[start..]).into_iter::<Value>();
            match values.next() {
                Some(Ok(event)) if event["type"].is_string() => {
                    let end = start + values.byte_offset();
                    self.other(&rest[..start], &mut shown);
                    self.event(&event, &mut shown);
                    rest = &rest[end..];
                }
                Some(Ok(_)) => {
                    let end = start + values.byte_offset();
                    self.other(&rest[..end], &mut shown);
                    rest = &rest[end..];
                }
                _ => {
                    let end = start + 2;
                    // The rest is one text as long as no event is found in it.
                    let Some(next) = rest[end..].find("{\"") else { break };
                    self.other(&rest[..end + next], &mut shown);
                    rest = &rest[end + next..];
                }
            }
        }
        self.other(rest, &mut shown);
        shown
    }

    /// Reads a line that was too long to be kept, by its beginning.
    pub fn long_line(&mut self, beginning: &str) -> String {
        let cut = format!("{} …", &beginning[..beginning.floor_char_boundary(MAX_SHOWN)]);
        match self.format {
            Format::Text => self.line(&cut),
            _ => {
                let mut shown = String::new();
                self.other(&cut, &mut shown);
                self.shown.add(&shown);
                shown
            }
        }
    }

    /// Whether the agent has reported its end. It may begin anew after that.
    pub fn has_ended(&self) -> bool {
        self.report.end.is_some()
    }

    /// The report, the last lines that are no events, and the end of what people were shown.
    pub fn finish(mut self) -> (Report, LastLines, String) {
        self.report.cut();
        (self.report, self.others, self.shown.end())
    }

    /// A text that is no event.
    fn other(&mut self, text: &str, shown: &mut String) {
        let text = text.trim();
        if !text.is_empty() {
            self.others.push(text);
            show(shown, text);
        }
    }

    fn event(&mut self, event: &Value, shown: &mut String) {
        let report = &mut self.report;
        match self.format {
            Format::Claude => claude::read(event, report, shown),
            Format::Codex => codex::read(event, report, shown),
            Format::Gemini => gemini::read(event, report, shown),
            Format::Opencode => opencode::read(event, report, shown),
            Format::Text => {}
        }
    }
}

#[cfg(test)]
mod tests;

//! The settings as a whole, and the file that holds them.

use std::path::Path;

use belay_yaml::{Bounds, Reader, Value, Violation};

use crate::{Commands, Origin, Services, Sourced, read};

/// The format is six levels deep; some more, so that what is too deep is refused by its field's name.
const BOUNDS: Bounds = Bounds { what: "settings file", max_depth: 10, max_nodes: 20_000, max_text: 256 * 1024 };
/// Most violations that are reported.
const MAX_VIOLATIONS: usize = 100;

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// What an operator should look at.
    Warn,
    /// What happened.
    Info,
    /// How.
    Debug,
    /// All of it.
    Trace,
}

impl LogLevel {
    /// The words of the file.
    pub(crate) const WORDS: [(&'static str, Self); 6] = [
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// The word of the file, which log filters understand as well.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, level)| *level == self).map_or("info", |(word, _)| *word)
    }
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The words of the file.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];

    /// The word of the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// The section `log`, which concerns every service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How much is logged. `BELAY_LOG` counts over it, and can say more.
    pub level: Sourced<LogLevel>,
    /// How a line looks. `BELAY_LOG_FORMAT` counts over it.
    pub format: Sourced<LogFormat>,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: Sourced::default_of(LogLevel::Info), format: Sourced::default_of(LogFormat::Text) }
    }
}

impl Log {
    /// The level, when the file sets it.
    pub fn level_of_file(&self) -> Option<LogLevel> {
        (self.level.origin != Origin::Default).then_some(self.level.value)
    }

    /// The format, when the file sets it.
    pub fn format_of_file(&self) -> Option<LogFormat> {
        (self.format.origin != Origin::Default).then_some(self.format.value)
    }
}

/// All settings, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Logs.
    pub log: Log,
    /// Commands.
    pub commands: Commands,
    /// What each service takes on.
    pub services: Services,
}

/// The text of a settings file.
pub struct File;

impl File {
    /// Reads a settings file. `home` is what `~` stands for.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of its lines: never empty.
    pub fn parse(text: &str, home: Option<&Path>) -> Result<Settings, Vec<Violation>> {
        let root = belay_yaml::parse(text, &BOUNDS).map_err(|violation| vec![violation])?;
        let mut reader = Reader::default();
        let mut settings = Settings::default();
        // A file of nothing but comments is the example with everything left out.
        if !matches!(root.value, Value::Null) {
            read::settings(&mut reader, &root, home, &mut settings);
        }
        let mut violations = reader.into_violations();
        if violations.is_empty() {
            return Ok(settings);
        }
        violations.sort_by_key(|violation| violation.line);
        violations.truncate(MAX_VIOLATIONS);
        Err(violations)
    }
}

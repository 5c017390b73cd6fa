//! Where a value comes from.

use std::fmt;

/// Where a value comes from. Later ones count over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// It was found on this machine.
    Found,
    /// The settings file, with the line from 1.
    Line(u32),
    /// An environment variable.
    Variable(&'static str),
    /// A flag of the command line.
    Flag(&'static str),
}

impl Origin {
    /// The origin in words; `file` is the settings file.
    pub fn shown(&self, file: Option<&std::path::Path>) -> String {
        match (self, file) {
            (Self::Default, _) => "default".to_owned(),
            (Self::Found, _) => "found".to_owned(),
            (Self::Line(line), Some(file)) => format!("{}:{line}", file.display()),
            (Self::Line(line), None) => format!("line {line}"),
            (Self::Variable(name), _) | (Self::Flag(name), _) => (*name).to_owned(),
        }
    }
}

/// A value with its origin.
#[derive(Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// A value that nobody set.
    pub fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// A value of the settings file.
    pub fn on_line(value: T, line: u32) -> Self {
        Self { value, origin: Origin::Line(line) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Sourced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?})", self.value, self.origin)
    }
}

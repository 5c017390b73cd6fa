//! The origin of a value.

use std::fmt;

/// The origin of a value. Later variants override earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    Default,
    /// Found on this machine.
    Found,
    /// The settings file, with the line, counted from 1.
    Line(u32),
    /// An environment variable.
    Variable(&'static str),
    /// A command line flag.
    Flag(&'static str),
}

impl Origin {
    /// The origin as text; `file` is the path of the settings file.
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
pub struct ValueWithOrigin<T> {
    /// The value.
    pub value: T,
    /// Its origin.
    pub origin: Origin,
}

impl<T> ValueWithOrigin<T> {
    /// A default value.
    pub fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// A value from the settings file.
    pub fn on_line(value: T, line: u32) -> Self {
        Self { value, origin: Origin::Line(line) }
    }
}

impl<T: Default> Default for ValueWithOrigin<T> {
    fn default() -> Self {
        Self::default_of(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for ValueWithOrigin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?})", self.value, self.origin)
    }
}

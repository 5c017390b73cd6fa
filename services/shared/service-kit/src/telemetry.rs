//! Logs: a sentence and its fields, on stderr, because stdout is for data.

use std::{
    env,
    ffi::OsStr,
    io::{self, IsTerminal as _},
};

use thiserror::Error;
use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object on each line.
    Json,
}

/// `BELAY_LOG_FORMAT` does not name a format.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("BELAY_LOG_FORMAT is `{0}`: set it to `text` or to `json`")]
pub struct InvalidLogFormat(String);

impl LogFormat {
    /// Reads `BELAY_LOG_FORMAT`; `default`, one of its values, applies when it is unset or empty.
    ///
    /// # Errors
    /// [`InvalidLogFormat`] when it is neither `text` nor `json`.
    pub fn from_env_or(default: &str) -> Result<Self, InvalidLogFormat> {
        let set = env::var_os("BELAY_LOG_FORMAT").filter(|value| !value.is_empty());
        Self::read(Some(set.as_deref().unwrap_or(OsStr::new(default))))
    }

    fn read(value: Option<&OsStr>) -> Result<Self, InvalidLogFormat> {
        match value.map(OsStr::to_string_lossy).as_deref() {
            None | Some("" | "text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some(other) => Err(InvalidLogFormat(other.to_owned())),
        }
    }
}

/// Starts logging. `BELAY_LOG` is the filter (`info`, `belay_executor=debug`, …); `default` applies when it is unset. A second call changes nothing.
///
/// A line about an execution has the fields of its `tracing` span: `execution` and `trace_id`.
pub fn init(default: &str, format: LogFormat) {
    let filter = EnvFilter::try_from_env("BELAY_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // It logs what servers and people say as they say it, and that may be secret.
    let filter = match "rmcp=off".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(true).with_ansi(colours);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).try_init(),
    };
    // Only a test that starts several services in one process gets here twice.
    drop(started);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_text_or_json_and_nothing_else() {
        let read = |value: &str| LogFormat::read(Some(value.as_ref()));
        assert_eq!(LogFormat::read(None), Ok(LogFormat::Text));
        assert_eq!(read(""), Ok(LogFormat::Text));
        assert_eq!(read("text"), Ok(LogFormat::Text));
        assert_eq!(read("json"), Ok(LogFormat::Json));
        assert_eq!(read("JSON").unwrap_err().to_string(), "BELAY_LOG_FORMAT is `JSON`: set it to `text` or to `json`");
    }
}

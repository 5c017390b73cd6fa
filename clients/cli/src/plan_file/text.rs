//! Reads the text of one file that may be a plan.

use std::{
    io::{self, Read},
    path::Path,
};

use belay_all_in_one::PlanTextFormat;
use belay_proto::v1::PlanFormat;

/// The longest plan the contract allows (`PlanDocument.text`), in bytes.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// The format that a file's name says.
pub(super) fn format_of(path: &Path) -> PlanFormat {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => PlanFormat::Json,
        Some("yaml" | "yml") => PlanFormat::Yaml,
        _ => PlanFormat::Unspecified,
    }
}

pub(super) fn text_format(format: PlanFormat) -> PlanTextFormat {
    match format {
        PlanFormat::Json => PlanTextFormat::Json,
        PlanFormat::Yaml => PlanTextFormat::Yaml,
        PlanFormat::Unspecified => PlanTextFormat::Auto,
    }
}

/// Why a file has no text that could be a plan.
#[derive(Debug)]
pub(super) enum TextError {
    Io(io::Error),
    TooLong,
    /// The first line that is not UTF-8.
    Line(usize),
}

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TextError::Io(error) => error.fmt(f),
            TextError::TooLong => f.write_str("it is longer than 4 MiB"),
            TextError::Line(line) => write!(f, "line {line} is not UTF-8"),
        }
    }
}

/// Reads no more than a plan may have.
pub(super) fn read_text(reader: impl Read) -> Result<String, TextError> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(TextError::Io)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TextError::TooLong);
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        TextError::Line(1 + valid.iter().filter(|byte| **byte == b'\n').count())
    })
}

//! Converts workflows of other systems to plans of Belay, and says what has no place there.
//!
//! Three formats, a module each: [`github`], [`conductor`] and [`argo`]. Each is a pure function from a text to a [`Conversion`]: a [`plan::Plan`] and the list
//! of what was [`left_out`]. The converters know the format of plans and no code of Belay; the tests check with the product's own code that plans are accepted.

pub mod argo;
pub mod conductor;
pub mod conversion;
pub mod fields;
pub mod github;
pub mod left_out;
pub mod limit;
pub mod plan;
pub mod scope;
pub mod text;

pub use conversion::Conversion;
pub use fields::Refusal;
pub use left_out::LeftOut;

/// A format that is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A workflow file of GitHub Actions, in YAML.
    Github,
    /// A workflow definition of Conductor, in JSON.
    Conductor,
    /// A workflow of Argo Workflows, in YAML.
    Argo,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Github, Self::Conductor, Self::Argo];

    /// Its name, as people type it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Conductor => "conductor",
            Self::Argo => "argo",
        }
    }

    /// Returns the format that a text looks like; `None` when it looks like none of them.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let has_key = |key: &str| text.lines().any(|line| line.trim_start_matches('\u{feff}').starts_with(key));
        if text.trim_start().starts_with(['{', '[']) {
            return text.contains("\"taskReferenceName\"").then_some(Self::Conductor);
        }
        // Also where the whole document is indented.
        let is_argo = |line: &str| line.trim_start().starts_with("apiVersion:") && line.contains("argoproj.io");
        if text.lines().any(is_argo) {
            return Some(Self::Argo);
        }
        (has_key("jobs:") && (has_key("on:") || has_key("'on':") || has_key("\"on\":"))).then_some(Self::Github)
    }
}

/// Converts a text. `name` is the plan's id where the document has no name.
///
/// # Errors
/// When the text is not in the format, or cannot be converted at all: with the line, the path and what to do.
pub fn convert(format: Format, text: &str, name: &str) -> Result<Conversion, Refusal> {
    match format {
        Format::Github => github::convert(text, name),
        Format::Conductor => conductor::convert(text, name),
        Format::Argo => argo::convert(text, name),
    }
}

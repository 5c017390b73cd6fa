//! Detects and redacts secrets before a text is stored or shown, and seals the originals.
//!
//! A [`Redactor`] knows about 180 shapes of secrets, the names that secrets are assigned to, and the exact values that it was given
//! ([`Redactor::with_literals`]); an operator may add rules ([`Redactor::with_rules`]). It shows each as [`REDACTED`]: in text ([`Redactor::redact_text`]), in JSON, from where the value can be
//! restored ([`Redactor::redact_json`], [`restore`]), and in output that arrives in pieces ([`Stream`]).
//!
//! Values that have to come back later are sealed: one [`SealKey`] an execution, itself wrapped by the [`MasterKey`].
//!
//! Rules on text are best effort: what looks like prose passes. Two cases are certain: secrets that the platform itself issued are found by their
//! value, and arguments that a schema marks as secret are hidden completely.
//!
//! Pure: keys, nonces and texts are arguments.

mod bytes;
mod encode;
mod engine;
mod formats;
mod found_secret;
mod json;
mod known;
mod literals;
mod names;
mod own;
mod pem;
mod rules;
mod seal;
mod stream;
mod text;
mod value_finder;
mod values;

pub use engine::Redactor;
pub use formats::{FORMATS_CHANGED, Format, formats};
pub use found_secret::FoundSecret;
pub use json::{Hidden, NotRestored, RedactedJson, each_string, leaves, marked, restore};
pub use known::is_telling;
pub use literals::LiteralRefusal;
pub use own::{MAX_PATTERN, MAX_RULE_NAME, MAX_RULES, OwnRule, RuleRefusal, RulesTooLarge};
pub use seal::{
    Bound, ChunkPlace, MasterKey, NotOpened, SEALED_LONGER, SealKey, blob_digest, open, open_chunk, seal, seal_chunk,
};
pub use stream::Stream;
pub use text::RedactedText;
pub use value_finder::{FoundValue, ValueFinder};

/// The replacement for a secret.
pub const REDACTED: &str = "[REDACTED]";

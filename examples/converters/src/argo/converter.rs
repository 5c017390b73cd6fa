//! The state of a conversion.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{fields::Field, left_out::Report};

/// A conversion: the templates, and what is known so far.
pub(super) struct Converter<'c, 'n> {
    pub(super) templates: &'c BTreeMap<String, Field<'n>>,
    pub(super) report: &'c mut Report,
    /// Whether the entry template comes next.
    pub(super) is_entry: bool,
    /// The templates that were called.
    pub(super) called: BTreeSet<String>,
    /// The templates in which the call stands that is converted.
    pub(super) stack: Vec<String>,
    /// How many calls were converted.
    pub(super) calls: usize,
    /// Inputs that stand for conditions which a plan cannot say.
    pub(super) inputs: BTreeMap<String, Value>,
    /// How many steps may run side by side.
    pub(super) width: usize,
}

//! References from within the plan of a step, which are handed over as inputs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::plan::{Ids, Plan};

/// The plan in which references stand: the whole one, or that of a step, which names nothing outside of it.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    is_inner: bool,
    ids: Ids,
    /// By the reference outside, the name of the input inside.
    imports: BTreeMap<String, String>,
}

impl Scope {
    /// The scope of the plan of a step, in which the inputs of these names are there already.
    #[must_use]
    pub fn inner(names: &[&str]) -> Self {
        let mut ids = Ids::default();
        for name in names {
            ids.unique(name);
        }
        Self { is_inner: true, ids, imports: BTreeMap::new() }
    }

    /// Returns the reference as it is written here: itself, or in an inner plan the input that brings its value in.
    pub fn import(&mut self, reference: &str) -> String {
        if !self.is_inner {
            return reference.to_owned();
        }
        if let Some(name) = self.imports.get(reference) {
            return format!("inputs.{name}");
        }
        let wanted =
            reference.strip_prefix("inputs.").unwrap_or(reference).replace(".result", "").replace(".outputs", "");
        let name = self.ids.unique(&wanted.replace(['.', '[', ']', '"'], "_").chars().take(60).collect::<String>());
        self.imports.insert(reference.to_owned(), name.clone());
        format!("inputs.{name}")
    }

    /// Declares the inputs in the inner plan, and returns the values that its step hands over.
    ///
    /// `around` is the scope in which the step stands.
    pub fn hand_over(&self, plan: &mut Plan, around: &mut Self) -> Map<String, Value> {
        let mut values = Map::new();
        for (reference, name) in &self.imports {
            plan.inputs.insert(name.clone(), json!({}));
            // A value that is not there has to be an input all the same.
            values.insert(name.clone(), json!(format!("${{{} ?? \"\"}}", around.import(reference))));
        }
        values
    }
}

//! Whether a step runs, and for each entry of which list.

use crate::{
    Condition, Template,
    check::{Checker, Trust},
    limits::{MAX_ARGUMENT_BYTES, MAX_CONDITION_BYTES, MAX_ITEMS},
    matrix,
    path::{FieldPath, shown},
    template::json_size,
};

impl Checker<'_> {
    /// The condition, when its references can be read.
    pub(super) fn condition(&mut self, path: &FieldPath, source: &str) -> Option<Condition> {
        if source.is_empty() {
            return None;
        }
        // Whoever reads the expression has the same limit: it is refused once.
        if source.len() > MAX_CONDITION_BYTES && self.trust == Trust::Author {
            self.refuse(path, || {
                format!("has {} bytes and the limit is {MAX_CONDITION_BYTES}: let a step compute it", source.len())
            });
            return None;
        }
        Condition::read(source).map_err(|why| self.refuse(path, || why)).ok()
    }

    /// The list for each entry of which a step runs, as far as it can be read.
    pub(super) fn list(&mut self, path: &FieldPath, list: &serde_json::Value) -> Option<Template> {
        let (template, errors) = Template::read(list, &[]);
        let is_read = errors.is_empty();
        for error in errors {
            self.refuse(&path.join(&error.field), || error.message);
        }
        match list {
            serde_json::Value::Array(entries) if entries.len() > MAX_ITEMS => {
                self.rule(path, || {
                    format!("has {} entries and the limit is {MAX_ITEMS}: split the list", entries.len())
                });
            }
            serde_json::Value::Array(_) => {}
            serde_json::Value::String(text) if is_read && !template.is_one_reference() => {
                let text = shown(text);
                self.refuse(path, || {
                    format!("`{text}` is text: write a list, or one reference that becomes a list, such as `${{STEP.result.files}}`")
                });
            }
            serde_json::Value::String(_) => {}
            serde_json::Value::Object(fields) if is_read => {
                if let Some(problem) = matrix::check(fields, template.references().next().is_some()) {
                    self.refuse(&path.join(&problem.field), || problem.message);
                }
            }
            serde_json::Value::Object(_) => {}
            _ => self.refuse(path, || {
                "must be a list, one reference that becomes a list, such as `${STEP.result.files}`, or a matrix"
                    .to_owned()
            }),
        }
        let size = json_size(list);
        if size > MAX_ARGUMENT_BYTES {
            self.rule(path, || {
                format!("has {size} bytes as JSON and the limit is {MAX_ARGUMENT_BYTES}: let a step read the list from a file")
            });
        }
        is_read.then_some(template)
    }
}

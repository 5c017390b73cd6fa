//! The lists of loops.

use serde_json::{Value, json};

use super::{converter::Converter, values::Values};
use crate::{
    fields::{Field, Fields, Refusal},
    left_out::Report,
};

impl<'n> Converter<'_, 'n> {
    /// The list of a loop.
    pub(super) fn list(&mut self, fields: &mut Fields<'n>, values: &mut Values) -> Result<Option<Value>, Refusal> {
        if let Some(items) = fields.take("withItems") {
            return Ok(Some(entries(&items, values, self.report)));
        }
        if let Some(parameter) = fields.take("withParam") {
            let text = values.text(&parameter.text().unwrap_or_default(), &parameter, self.report);
            if let Some(reference) = text.single_reference() {
                return Ok(Some(json!(format!("${{{}}}", reference.trim_end_matches(" ?? \"\"")))));
            }
            let list = text.constant().and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
            return Ok(Some(list.map_or_else(
                || {
                    self.report.add(
                        &parameter,
                        "withParam",
                        "it is no list that is known: there are no entries",
                        "write the list, or a reference to one",
                    );
                    json!([])
                },
                |list| json!(list),
            )));
        }
        let Some(sequence) = fields.take("withSequence") else { return Ok(None) };
        let mut sequence_fields = sequence.fields()?;
        let number = |field: Option<Field<'_>>, values: &mut Values| -> Option<i64> {
            values.try_text(&field?.text()?).0.constant()?.trim().parse().ok()
        };
        let start = number(sequence_fields.take("start"), values).unwrap_or(0);
        let count = number(sequence_fields.take("count"), values);
        let end = number(sequence_fields.take("end"), values);
        sequence_fields.leave_rest(self.report, &[("format", "entries are written as numbers", "write the list")]);
        let last = end.or_else(|| count.map(|count| start + count - 1));
        Ok(Some(match last {
            Some(last) if (last - start).abs() >= 10_000 => {
                return Err(sequence.refused("has more than 10,000 entries, the most of a plan: make it shorter"));
            }
            Some(last) if last >= start => (start..=last).map(|number| json!(number.to_string())).collect(),
            Some(last) if end.is_some() => (last..=start).rev().map(|number| json!(number.to_string())).collect(),
            Some(_) => json!([]),
            None => {
                self.report.add(
                    &sequence,
                    "withSequence",
                    "its length is not known when the plan is written: there are no entries",
                    "let a step return the list",
                );
                json!([])
            }
        }))
    }
}

/// A list of a plan; texts in it may have values.
fn entries(field: &Field<'_>, values: &mut Values, report: &mut Report) -> Value {
    match field.node.to_json() {
        Value::String(text) => json!(values.text(&text, field, report).template()),
        Value::Object(_) => {
            field.members().into_iter().map(|(name, member)| (name, entries(&member, values, report))).collect()
        }
        Value::Array(_) => field.items().iter().map(|item| entries(item, values, report)).collect(),
        other => other,
    }
}

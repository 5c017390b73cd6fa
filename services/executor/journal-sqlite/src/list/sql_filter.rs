//! The part of a filter that the database checks while it walks an index.

use belay_journal::{Condition, Query, Waits};
use rusqlite::types::Value;

/// The part of a filter that the database checks, so that it passes over most of what does not match without reading the whole row. It is never narrower
/// than the filter, which every row that is read is held against.
#[derive(Debug, Default)]
pub(super) struct SqlFilter {
    /// Conditions with `?` for each value.
    conditions: Vec<String>,
    pub(super) values: Vec<Value>,
}

impl SqlFilter {
    pub(super) fn by(query: &Query) -> Self {
        let mut filter = Self::default();
        for any in &query.filter {
            let Some(columns) = any.0.iter().map(column).collect::<Option<Vec<_>>>() else { continue };
            let (conditions, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
            filter.conditions.push(if conditions.is_empty() { "0".to_owned() } else { conditions.join(" OR ") });
            filter.values.extend(values);
        }
        filter
    }

    /// They follow other conditions; the parameter of their first value is `first`.
    pub(super) fn conditions(&self, first: usize) -> String {
        let mut parameter = first;
        let mut text = String::new();
        for condition in &self.conditions {
            text.push_str(" AND (");
            for (index, part) in condition.split('?').enumerate() {
                if index > 0 {
                    text.push_str(&format!("?{parameter}"));
                    parameter += 1;
                }
                text.push_str(part);
            }
            text.push(')');
        }
        text
    }
}

/// A condition on one column of an execution that has no index in its way, and its value; `None` for what is not in a column of its own.
fn column(condition: &Condition) -> Option<(&'static str, Value)> {
    let is = |equal: bool, is: &'static str, is_not: &'static str| if equal { is } else { is_not };
    Some(match condition {
        // With a plus sign no index is chosen for them: the walk has its own.
        Condition::State(equal, state) => (is(*equal, "+state = ?", "+state <> ?"), (*state).into()),
        Condition::WaitsFor(equal, kind) => {
            let bit = Waits::default().with(*kind).0;
            (is(*equal, "waits_for & ? <> 0", "waits_for & ? = 0"), bit.into())
        }
        Condition::PlanId(equal, plan) => (is(*equal, "+plan_id = ?", "+plan_id <> ?"), plan.clone().into()),
        Condition::FailureReason(equal, reason) => {
            (is(*equal, "+failure_reason IS ?", "+failure_reason IS NOT ?"), reason.clone().into())
        }
        _ => return None,
    })
}

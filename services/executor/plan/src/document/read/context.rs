//! Reads who asks for a plan, and where: the context that another planner writes beside it, and labels.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{CONTEXT_INPUT, Input, PlanDraft, path::shown};

use super::{
    super::{
        shapes::{labels_of, scalar},
        tree::Kind,
    },
    Reader, Value,
};

/// Fields of a context that become labels.
const LABELS: [&str; 4] = ["traceId", "userId", "sessionId", "environment"];

/// The environments that there are.
const ENVIRONMENTS: [&str; 3] = ["development", "staging", "production"];

impl<'n> Reader<'n> {
    /// The context in which a plan is asked for: an input, which templates read as `${context.NAME}`, and labels.
    pub(super) fn context(&mut self, context: &Value<'n>, draft: &mut PlanDraft) {
        if !matches!(context.node.kind, Kind::Map(_)) {
            context.refuse(&mut self.report, || {
                "must be an object with what the steps read as `${context.NAME}`, such as `traceId` and `environment`".to_owned()
            });
            return;
        }
        if let Some(environment) = context.node.field("environment").map(|entry| &entry.value)
            && !matches!(&environment.kind, Kind::Text(word) if ENVIRONMENTS.contains(&word.as_str()))
            && !matches!(environment.kind, Kind::Null)
        {
            let value = Value { path: context.path.key("environment"), node: environment };
            value.refuse(&mut self.report, || {
                let word = scalar(environment).map(|word| format!(", not `{}`", shown(&word))).unwrap_or_default();
                format!("must be one of {}{word}", ENVIRONMENTS.join(", "))
            });
        }
        labels_of(context.node, &LABELS, &mut draft.labels);
        let input = Input {
            description: "The context in which the plan was written: its user, session and environment.".to_owned(),
            schema: Some(json!({"type": "object"})),
            default: self.precise(Some(context.clone())),
        };
        if draft.inputs.insert(CONTEXT_INPUT.to_owned(), input).is_some() {
            context.refuse(&mut self.report, || {
                format!("is the input `{CONTEXT_INPUT}`, which the plan's `inputs` declares too: give only one of them")
            });
        }
    }

    /// The labels of a plan.
    pub(super) fn labels(&mut self, labels: &Value<'n>, into: &mut BTreeMap<String, String>) {
        let Some(entries) = labels.node.entries() else {
            labels.refuse(&mut self.report, || {
                "must be an object with a text for each label, such as {team: a}".to_owned()
            });
            return;
        };
        for entry in entries {
            let value = Value { path: labels.path.key(entry.key.name.clone()), node: &entry.value };
            into.insert(entry.key.name.clone(), value.text(&mut self.report));
        }
    }
}

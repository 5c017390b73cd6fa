//! Reads calls, conditions, and what is checked before and after a call.

use serde_json::Value as Json;

use super::{
    super::{
        fields::{Fields, Value},
        operation::operation_of,
        tree::Kind,
    },
    Reader,
};
use crate::{CallDraft, CheckDraft};

impl<'n> Reader<'n> {
    /// The tool and the arguments of a call.
    pub(super) fn call(&mut self, fields: &mut Fields<'n>) -> (String, Json) {
        let tool = fields.take(&mut self.report, "tool").map_or_else(String::new, |tool| tool.text(&mut self.report));
        let arguments = fields.take(&mut self.report, "arguments").map(|value| {
            self.refuse_imprecise(&value.path, value.node);
            value.node.to_value()
        });
        let mut arguments = arguments.unwrap_or_else(|| Json::Object(serde_json::Map::new()));
        let tool = operation_of(&tool, &mut arguments).unwrap_or(tool);
        (tool, arguments)
    }

    /// A call of a step, one of several or beside its own.
    pub(super) fn other_call(&mut self, call: &Value<'n>) -> CallDraft {
        let Some(mut fields) = call.fields(&mut self.report, "an object with `tool` and `arguments`") else {
            return unread_call();
        };
        let (tool, arguments) = self.call(&mut fields);
        let verbatim = self.texts(&mut fields, "verbatim", "names of arguments");
        fields.finish(&mut self.report);
        CallDraft { tool, arguments, verbatim }
    }

    /// The checks before or after a step's call.
    pub(super) fn checks(&mut self, checks: Option<Value<'n>>) -> Vec<CheckDraft> {
        let what = "checks such as {condition: …}, {file: PATH}, {command: [PROGRAM, …]} or {judge: CRITERION}";
        let Some(checks) = checks else { return Vec::new() };
        let checks = checks.list(&mut self.report, what);
        checks.iter().map(|check| self.check(check)).collect()
    }

    fn check(&mut self, check: &Value<'n>) -> CheckDraft {
        // What cannot be read is refused once: this stands for it, so that the check does not call it missing.
        let unread = || CheckDraft { condition: "true".to_owned(), ..CheckDraft::default() };
        let what = "an object: {condition: …}, {file: PATH}, {command: [PROGRAM, …]} or {judge: CRITERION}";
        let Some(mut fields) = check.fields(&mut self.report, what) else { return unread() };
        let condition = self.condition(&mut fields);
        let mut text = |field| fields.take_exactly(field).map(|text| text.text(&mut self.report)).unwrap_or_default();
        let [file, judge, model] = ["file", "judge", "model"].map(&mut text);
        let before = self.report.findings.len();
        let command = self.texts(&mut fields, "command", "a program and its arguments");
        fields.finish(&mut self.report);
        if self.report.findings.len() > before {
            unread()
        } else {
            CheckDraft { condition, file, command, judge, model }
        }
    }

    /// An expression; empty when there is none.
    pub(super) fn condition(&mut self, fields: &mut Fields<'n>) -> String {
        let Some(value) = fields.take_exactly("condition") else { return String::new() };
        let condition = match value.node.kind {
            // An author switches a step off with `condition: false`.
            Kind::Bool(constant) => constant.to_string(),
            _ => value.text(&mut self.report),
        };
        if condition.trim().is_empty() && matches!(value.node.kind, Kind::Text(_)) {
            value.refuse(&mut self.report, || "is empty: write an expression, or remove it".to_owned());
        }
        condition
    }
}

/// Stands for a call that cannot be read, which is refused once, so that the check does not call it missing.
pub(super) fn unread_call() -> CallDraft {
    CallDraft { tool: "unread".to_owned(), arguments: Json::Object(serde_json::Map::new()), verbatim: Vec::new() }
}

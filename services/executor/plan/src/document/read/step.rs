//! Reads a step: which kind it is, and what steps of every kind have.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::{
    super::{
        fields::{Fields, Value},
        tree::Kind,
    },
    Reader,
    calls::unread_call,
};
use crate::{CallDraft, Effects, OnError, RunWhen, StepDraft, StepKindDraft, check::Places, path::shown};

impl<'n> Reader<'n> {
    /// A step, its `order`, and where the steps of its own plan stand.
    pub(super) fn step(&mut self, step: &Value<'n>) -> (Option<u32>, StepDraft, Places) {
        let mut of_plan = Places::default();
        let mut draft = blank();
        let Some(mut fields) = step.fields(&mut self.report, "an object with `id` and `tool`") else {
            return (None, draft, of_plan);
        };
        draft.id = fields.take(&mut self.report, "id").map_or_else(String::new, |id| id.text(&mut self.report));
        draft.title = self.optional_text(&mut fields, "title");
        draft.description = self.optional_text(&mut fields, "description");
        let agent = fields.take_exactly("agent");
        draft.kind = match (fields.take_exactly("wait"), fields.take_exactly("plan")) {
            (None, None) if agent.is_some() => {
                for field in ["tool", "arguments", "calls"] {
                    if let Some(value) = fields.take(&mut self.report, field) {
                        value.refuse(&mut self.report, || {
                            "is for steps that call tools themselves, and in this one a model does: remove it, or make two steps"
                                .to_owned()
                        });
                    }
                }
                let agent = agent.as_ref().map(|agent| self.agent(agent)).unwrap_or_default();
                let effects = fields.take_exactly("effects").map(|value| self.effects(&value)).unwrap_or_default();
                StepKindDraft::Agent { agent, effects }
            }
            (None, Some(plan)) => {
                let inputs = fields.take_exactly("inputs");
                self.no_effects(&mut fields);
                // `inputs` is also a name of the arguments of a call.
                for field in ["tool", "calls", "skillId", "action", "arguments", "params", "parameters", "args"] {
                    if let Some(value) = fields.take_exactly(field) {
                        value.refuse(&mut self.report, || {
                            "is for steps that call a tool, and this one carries out a plan: remove it, or make two steps".to_owned()
                        });
                    }
                }
                let inputs = self.precise(inputs).filter(|inputs| !inputs.is_null());
                let (plan, places) = match &plan.node.kind {
                    Kind::Text(name) => {
                        plan.refuse(&mut self.report, || match name.as_str() {
                            "" => "must be an object with `id` and `steps`, or the name of a file".to_owned(),
                            name => format!(
                                "is the name of a file, `{}`, and the service reads no files: the client puts the plan in its place, as \
                                 `belay run` and `belay plan validate` do with the plan's file",
                                shown(name)
                            ),
                        });
                        Default::default()
                    }
                    _ => self.plan(&plan, None),
                };
                of_plan = places;
                let inputs = inputs.unwrap_or_else(|| Json::Object(serde_json::Map::new()));
                StepKindDraft::Plan { plan: Box::new(plan), inputs }
            }
            (Some(wait), plan) => {
                self.no_effects(&mut fields);
                if let Some(plan) = plan {
                    plan.refuse(&mut self.report, || {
                        "is for steps that carry out a plan, and this one waits: remove it, or make two steps"
                            .to_owned()
                    });
                }
                for field in ["tool", "arguments", "calls"] {
                    if let Some(value) = fields.take(&mut self.report, field) {
                        value.refuse(&mut self.report, || {
                            "is for steps that call a tool, and this one waits: remove it, or make two steps".to_owned()
                        });
                    }
                }
                StepKindDraft::Wait { wait: self.wait(&wait) }
            }
            (None, None) => match fields.take_exactly("calls") {
                Some(calls) => {
                    for field in ["tool", "arguments"] {
                        if let Some(value) = fields.take(&mut self.report, field) {
                            value.refuse(&mut self.report, || {
                                "is for steps with one call, and this one has `calls`: put it into one of these"
                                    .to_owned()
                            });
                        }
                    }
                    let listed = calls.list(&mut self.report, "calls such as {tool: NAME, arguments: {…}}");
                    let listed: Vec<CallDraft> = listed.iter().map(|call| self.other_call(call)).collect();
                    // What is no list has been refused; without a call it would be refused again.
                    let is_list = matches!(calls.node.kind, Kind::List(_));
                    let effects = fields.take_exactly("effects").map(|value| self.effects(&value)).unwrap_or_default();
                    StepKindDraft::Calls { calls: if is_list { listed } else { vec![unread_call()] }, effects }
                }
                None => {
                    self.no_effects(&mut fields);
                    let (tool, arguments) = self.call(&mut fields);
                    StepKindDraft::Tool { tool, arguments }
                }
            },
        };
        if let Some(agent) = agent.filter(|_| !matches!(draft.kind, StepKindDraft::Agent { .. })) {
            agent.refuse(&mut self.report, || {
                "is for steps in which a model works, and this one waits or carries out a plan: remove it, or make two steps"
                    .to_owned()
            });
        }
        draft.verbatim = self.texts(&mut fields, "verbatim", "names of arguments");
        draft.for_each = self.precise(fields.take_exactly("for_each"));
        draft.fail_fast = fields.take_exactly("fail_fast").is_some_and(|value| value.flag(&mut self.report));
        draft.repeat = fields.take_exactly("repeat").and_then(|value| self.repeat(&value));
        draft.resources = self.texts(&mut fields, "resources", "names");
        draft.budget = fields.take_exactly("budget").and_then(|value| self.budget(&value));
        if let Some(value) = fields.take_exactly("fallback") {
            let calls = value.list(&mut self.report, "calls such as {tool: NAME, arguments: {…}}");
            draft.fallback = calls.iter().map(|call| self.other_call(call)).collect();
        }
        draft.compensate = fields.take_exactly("compensate").map(|call| self.other_call(&call));
        draft.preconditions = self.checks(fields.take_exactly("preconditions"));
        draft.postconditions = self.checks(fields.take_exactly("postconditions"));
        draft.output_schema = self.precise(fields.take_exactly("output_schema"));
        draft.depends_on = self.depends_on(&mut fields);
        draft.run_when = self.run_when(&mut fields);
        draft.condition = self.condition(&mut fields);
        draft.timeout = fields.take(&mut self.report, "timeout").and_then(|value| self.timeout(&value));
        if let Some(timeouts) = fields.take_exactly("group_timeouts") {
            draft.group_timeouts = self.group_timeouts(&timeouts);
        }
        draft.fail_fast_groups = self.texts(&mut fields, "fail_fast_groups", "ids of groups");
        draft.attempt_timeout =
            fields.take(&mut self.report, "attempt_timeout").and_then(|value| self.duration(&value));
        draft.exclusive = fields.take(&mut self.report, "exclusive").is_some_and(|value| value.flag(&mut self.report));
        draft.network = fields.take_exactly("network").map(|value| value.text(&mut self.report));
        draft.retry = fields.take(&mut self.report, "retry").and_then(|value| self.retry(&value));
        if let Some(on_error) = fields.take_exactly("on_error") {
            draft.on_error = self.on_error(&on_error);
        }
        draft.group = self.optional_text(&mut fields, "group");
        let order = self.order_of(&mut fields);
        fields.finish(&mut self.report);
        (order, draft, of_plan)
    }
}

impl<'n> Reader<'n> {
    fn effects(&mut self, value: &Value<'n>) -> Effects {
        let word = value.text(&mut self.report);
        let known = Effects::WORDS.iter().find(|(known, _)| *known == word);
        if known.is_none() && matches!(value.node.kind, Kind::Text(_)) {
            value.refuse(&mut self.report, || format!("must be per_call or per_step, not `{}`", shown(&word)));
        }
        known.map(|(_, effects)| *effects).unwrap_or_default()
    }

    /// Refuses `effects` on a step without `calls`.
    fn no_effects(&mut self, fields: &mut Fields<'n>) {
        if let Some(value) = fields.take_exactly("effects") {
            value.refuse(&mut self.report, || {
                "is for steps with `calls` or `agent`, and this one has none: remove it, or write its call as the only one of `calls`"
                    .to_owned()
            });
        }
    }
}

/// A step of which nothing is known.
pub(super) fn blank() -> StepDraft {
    StepDraft {
        id: String::new(),
        title: String::new(),
        description: String::new(),
        group: String::new(),
        depends_on: Vec::new(),
        run_when: RunWhen::default(),
        condition: String::new(),
        for_each: None,
        repeat: None,
        fail_fast: false,
        timeout: None,
        group_timeouts: BTreeMap::new(),
        fail_fast_groups: Vec::new(),
        attempt_timeout: None,
        exclusive: false,
        network: None,
        verbatim: Vec::new(),
        retry: None,
        on_error: OnError::new(),
        fallback: Vec::new(),
        compensate: None,
        resources: Vec::new(),
        budget: None,
        preconditions: Vec::new(),
        postconditions: Vec::new(),
        output_schema: None,
        kind: StepKindDraft::Tool { tool: String::new(), arguments: Json::Object(serde_json::Map::new()) },
    }
}

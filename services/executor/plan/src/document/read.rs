//! Converts the tree of a document to a draft. A value that cannot be read is reported and replaced by a placeholder, so that the rest is still
//! checked.

mod config;
mod context;
mod of_plan;
mod task_plan;

use std::time::Duration;

use serde_json::Value as Json;

use crate::{
    AuditLevel, Backoff, CallDraft, CheckDraft, FormDraft, OnError, PlanDraft, RetryPolicy, RunWhen, StepDraft,
    StepKindDraft, WaitDraft,
    check::{Place, Places},
    duration,
    error::Findings,
    limits::{MAX_ATTEMPTS, MAX_DURATION, MAX_NESTED_GROUPS, MAX_PARALLELISM},
    path::{FieldPath, look_alikes, shown},
    retry::{DEFAULT_FACTOR, DEFAULT_INITIAL, DEFAULT_MAX, Never, Profile, QueueForLater, RateLimit},
    timestamp,
};

use super::{
    fields::{Fields, Report, Value},
    finding::Finding,
    group::{Group, Listed, ReadStep},
    locate::Origin,
    operation::operation_of,
    shapes::{agent_defaults, is_agent_plan, is_task_plan, labels_of, task_plan_defaults},
    tree::{Kind, Node},
};

/// What a step or a plan has, and a group does not.
const OF_A_PLAN: [&str; 11] = [
    "timeout",
    "for_each",
    "tool",
    "calls",
    "wait",
    "arguments",
    "inputs",
    "compensate",
    "stop_on_error",
    "parallelism",
    "on_error",
];

/// The content of a document.
pub(super) struct Document<'n> {
    pub(super) draft: PlanDraft,
    pub(super) origin: Origin<'n>,
    pub(super) findings: Findings<Finding>,
}

pub(super) fn read<'n>(text: &'n str, root: &'n Node) -> Document<'n> {
    let mut reader = Reader { text, report: Report::default(), shape: Shape::Own };
    let (draft, origin) = reader.document(Value { path: FieldPath::root(), node: root });
    Document { draft, origin, findings: reader.report.findings }
}

/// An entry of a list of steps.
enum Entry<'n> {
    Step(Box<ReadStep<'n>>),
    Group(Box<Group<'n>>, Listed<'n>),
}

/// Whose form a document has, as far as it decides what is meant by what it does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Belay's, or one that has the same defaults.
    Own,
    /// The executor stage's.
    TaskPlan,
    /// The executor agent's.
    Agent,
}

struct Reader<'n> {
    text: &'n str,
    report: Report,
    shape: Shape,
}

impl<'n> Reader<'n> {
    /// A plan, or a plan with its context and settings around it.
    fn document(&mut self, root: Value<'n>) -> (PlanDraft, Origin<'n>) {
        let has_steps = root.node.field("steps").is_some() || is_task_plan(root.node);
        let around = root.node.field("plan").filter(|_| !has_steps);
        if around.is_none() {
            let (draft, places) = self.outermost(&root, None);
            return (draft, Origin { plan: root.node, plan_path: root.path, config: None, places });
        }
        let mut draft = PlanDraft::default();
        let mut origin =
            Origin { plan: root.node, plan_path: root.path.key("plan"), config: None, places: Places::default() };
        if let Some(mut fields) = root.fields(&mut self.report, "an object") {
            let plan = fields.take_exactly("plan");
            let config = fields.take_exactly("config");
            let context = fields.take_exactly("context");
            origin.config = config.as_ref().map(|config| config.node);
            match plan {
                Some(plan) => {
                    origin.plan = plan.node;
                    (draft, origin.places) = self.outermost(&plan, config);
                    if let Some(context) = context {
                        self.context(&context, &mut draft);
                    }
                }
                None => self.report.refuse(&origin.plan_path, root.node.offset, || {
                    "is required: it must be an object with `id` and `steps`".to_owned()
                }),
            }
            fields.finish(&mut self.report);
        }
        (draft, origin)
    }

    /// The plan of the document, in whichever planner's form.
    fn outermost(&mut self, plan: &Value<'n>, config: Option<Value<'n>>) -> (PlanDraft, Places) {
        if is_task_plan(plan.node) {
            self.shape = Shape::TaskPlan;
            let Some(fields) = plan.fields(&mut self.report, "an object with `id` and `tasks`") else {
                return (PlanDraft::default(), Places::default());
            };
            let (mut draft, places) = self.task_plan(fields);
            self.config_of(config, &mut draft, [false; 5]);
            task_plan_defaults(&mut draft);
            return (draft, places);
        }
        let is_agents = is_agent_plan(plan.node);
        if is_agents {
            self.shape = Shape::Agent;
        }
        let (mut draft, places) = self.plan(plan, config);
        if is_agents {
            agent_defaults(&mut draft.steps);
        }
        (draft, places)
    }

    fn plan(&mut self, plan: &Value<'n>, config: Option<Value<'n>>) -> (PlanDraft, Places) {
        let mut draft = PlanDraft::default();
        let Some(mut fields) = plan.fields(&mut self.report, "an object with `id` and `steps`") else {
            return (draft, Places::default());
        };
        let named = ["plan_id", "planId"].into_iter().find_map(|name| fields.take_refused(name));
        let task = fields.take_refused("task_id");
        draft.id = self.optional_text(&mut fields, "id");
        if let Some(named) = &named {
            match draft.id.is_empty() {
                true => draft.id = named.text(&mut self.report),
                false => named.refuse(&mut self.report, || "duplicates `id`: give only one of them".to_owned()),
            }
        }
        draft.description = self.optional_text(&mut fields, "description");
        let dry_run = fields.take_exactly("dry_run");
        draft.dry_run = dry_run.as_ref().is_some_and(|value| value.flag(&mut self.report));
        if let Some(labels) = fields.take_exactly("labels") {
            self.labels(&labels, &mut draft.labels);
        }
        if let Some(task) = task {
            let task = task.text(&mut self.report);
            if draft.id.is_empty() {
                draft.id.clone_from(&task);
            }
            draft.labels.entry("task_id".to_owned()).or_insert(task);
        }
        let parallelism = fields.take_exactly("parallelism");
        draft.parallelism = parallelism.as_ref().and_then(|value| self.parallelism(value)).unwrap_or_default();
        let stop_on_error = fields.take_exactly("stop_on_error");
        draft.stop_on_error = stop_on_error.as_ref().is_some_and(|value| value.flag(&mut self.report));
        let timeout = fields.take_exactly("timeout");
        draft.timeout = timeout.as_ref().and_then(|value| self.timeout(value));
        let retry_defaults = fields.take_exactly("retry_defaults");
        draft.escalation = fields.take_exactly("escalation").and_then(|value| self.escalation(&value));
        if let Some(on_error) = fields.take_exactly("on_error") {
            draft.on_error = self.on_error(&on_error);
        }
        draft.budget = fields.take_exactly("budget").and_then(|value| self.budget(&value));
        if let Some(resources) = fields.take_exactly("resources") {
            draft.resources = self.capacities(&resources);
        }
        let audit_level = fields.take_exactly("audit_level");
        draft.audit_level = audit_level.as_ref().and_then(|value| read_audit_level(value, &mut self.report));
        let allowed_commands = fields.take_exactly("allowed_commands");
        draft.allowed_commands = allowed_commands.as_ref().map(|value| read_names(value, &mut self.report));
        if let Some(inputs) = fields.take_exactly("inputs") {
            draft.inputs = self.inputs(&inputs);
        }
        if let Some(memory) = fields.take(&mut self.report, "memory") {
            self.memory(&memory, &mut draft.inputs);
        }
        if let Some(metadata) = fields.take_exactly("metadata") {
            labels_of(metadata.node, &["createdBy", "createdAt", "confidence"], &mut draft.labels);
        }
        let steps = fields.take_exactly("steps").map_or_else(Vec::new, |steps| steps.list(&mut self.report, "steps"));
        fields.finish(&mut self.report);
        let places;
        (draft.steps, places) = self.steps(&steps, &[]).resolve(&mut self.report);
        if let Some(defaults) = retry_defaults {
            self.retry_defaults(&defaults, &mut draft.steps);
        }
        let given = [
            timeout.is_some(),
            stop_on_error.is_some(),
            parallelism.is_some(),
            audit_level.is_some(),
            allowed_commands.is_some(),
        ];
        self.config_of(config, &mut draft, given);
        (draft, places)
    }

    fn config_of(&mut self, config: Option<Value<'n>>, draft: &mut PlanDraft, given: [bool; 5]) {
        if let Some(mut config) = config.and_then(|config| config.fields(&mut self.report, "an object with settings")) {
            self.config(&mut config, draft, given);
            config.finish(&mut self.report);
        }
    }

    /// A list of steps and groups. `within`: the positions of the groups that it stands in.
    fn steps(&mut self, steps: &[Value<'n>], within: &[usize]) -> Listed<'n> {
        let mut read = Vec::with_capacity(steps.len());
        for (position, value) in steps.iter().enumerate() {
            let mut positions = within.to_vec();
            positions.push(position);
            read.push(match value.node.field("steps") {
                Some(_) if value.node.field("plan").is_none() => self.group(value, &positions),
                _ => {
                    let (order, draft, of_plan) = self.step(value);
                    let place = Place { positions, of_plan };
                    (order, Entry::Step(Box::new(ReadStep { value: value.clone(), place, draft })))
                }
            });
        }
        self.order(&mut read, steps);
        let mut listed = Listed::default();
        for (_, entry) in read {
            match entry {
                Entry::Step(step) => listed.steps.push(*step),
                Entry::Group(group, within) => listed.add_group(*group, within),
            }
        }
        listed
    }

    /// A group of steps; `positions` lead to it.
    fn group(&mut self, value: &Value<'n>, positions: &[usize]) -> (Option<u32>, Entry<'n>) {
        let mut group = Group {
            value: value.clone(),
            id: String::new(),
            depends_on: Vec::new(),
            run_when: RunWhen::default(),
            condition: String::new(),
            retry: None,
            attempt_timeout: None,
            steps: 0..0,
        };
        let Some(mut fields) = value.fields(&mut self.report, "an object with `id` and `steps`") else {
            return (None, Entry::Group(Box::new(group), Listed::default()));
        };
        group.id = fields.take(&mut self.report, "id").map_or_else(String::new, |id| id.text(&mut self.report));
        // For the people who read the plan.
        self.optional_text(&mut fields, "title");
        self.optional_text(&mut fields, "description");
        group.depends_on = self.depends_on(&mut fields);
        group.run_when = self.run_when(&mut fields);
        group.condition = self.condition(&mut fields);
        group.retry = fields.take(&mut self.report, "retry").and_then(|value| self.retry(&value));
        group.attempt_timeout =
            fields.take(&mut self.report, "attempt_timeout").and_then(|value| self.duration(&value));
        let order = self.order_of(&mut fields);
        let steps = fields.take_exactly("steps");
        for field in OF_A_PLAN {
            if let Some(value) = fields.take_refused(field) {
                value.refuse(&mut self.report, || {
                    format!("is not for a group, whose steps are steps of this plan: write `{field}` on its steps, or put them into a `plan` of one step")
                });
            }
        }
        fields.finish(&mut self.report);
        let steps = steps.map_or_else(Vec::new, |steps| {
            let list = steps.list(&mut self.report, "steps");
            if list.is_empty() && matches!(steps.node.kind, Kind::List(_)) {
                steps.refuse(&mut self.report, || "is empty: a group has at least one step".to_owned());
            }
            list
        });
        if positions.len() > MAX_NESTED_GROUPS {
            value.refuse(&mut self.report, || {
                format!("stands in {MAX_NESTED_GROUPS} other groups, which is the limit: let a group further out have its steps")
            });
            return (order, Entry::Group(Box::new(group), Listed::default()));
        }
        let within = self.steps(&steps, positions);
        (order, Entry::Group(Box::new(group), within))
    }

    fn depends_on(&mut self, fields: &mut Fields<'n>) -> Vec<String> {
        let Some(value) = fields.take(&mut self.report, "depends_on") else { return Vec::new() };
        let ids = value.scalars(&mut self.report, "ids of steps");
        ids.iter().map(|id| id.text(&mut self.report)).collect()
    }

    fn run_when(&mut self, fields: &mut Fields<'n>) -> RunWhen {
        let Some(value) = fields.take_exactly("run_when") else { return RunWhen::default() };
        let word = if let Kind::Text(word) = &value.node.kind { Some(word.as_str()) } else { None };
        let known = RunWhen::WORDS.iter().find(|(known, _)| Some(*known) == word);
        if known.is_none() {
            value.refuse(&mut self.report, || {
                let given = word.map(|word| format!("is `{}`, and ", shown(word))).unwrap_or_default();
                format!("{given}must be success, failure or always")
            });
        }
        known.map(|(_, run_when)| *run_when).unwrap_or_default()
    }

    fn order_of(&mut self, fields: &mut Fields<'n>) -> Option<u32> {
        fields.take_exactly("order").map(|value| value.whole(&mut self.report, 0..=u32::MAX).unwrap_or_default())
    }

    fn precise(&mut self, value: Option<Value<'n>>) -> Option<Json> {
        let value = value?;
        self.refuse_imprecise(&value.path, value.node);
        Some(value.node.to_value())
    }

    /// In a message, 0 means that the field is unset; an author who writes 0 means something else.
    fn parallelism(&mut self, value: &Value<'n>) -> Option<u32> {
        let number = value.whole(&mut self.report, 1..=MAX_PARALLELISM)?;
        if number == 0 {
            value.refuse(&mut self.report, || "must be at least 1, which runs the steps one by one".to_owned());
        }
        Some(number)
    }

    /// Sorts the steps by their `order` fields.
    fn order<T>(&mut self, read: &mut [(Option<u32>, T)], steps: &[Value<'n>]) {
        let missing: Vec<usize> = (0..read.len()).filter(|&place| read[place].0.is_none()).collect();
        if missing.len() == read.len() {
            return;
        }
        for place in missing {
            let step = &steps[place];
            self.report.refuse(&step.path.key("order"), step.node.offset, || {
                "is missing, and other steps have it: give every step an `order`, or none".to_owned()
            });
        }
        read.sort_by_key(|(order, _)| *order);
    }

    /// A step, its `order`, and where the steps of its own plan stand.
    fn step(&mut self, step: &Value<'n>) -> (Option<u32>, StepDraft, Places) {
        let mut of_plan = Places::default();
        let mut draft = blank();
        let Some(mut fields) = step.fields(&mut self.report, "an object with `id` and `tool`") else {
            return (None, draft, of_plan);
        };
        draft.id = fields.take(&mut self.report, "id").map_or_else(String::new, |id| id.text(&mut self.report));
        draft.title = self.optional_text(&mut fields, "title");
        draft.description = self.optional_text(&mut fields, "description");
        draft.kind = match (fields.take_exactly("wait"), fields.take_exactly("plan")) {
            (None, Some(plan)) => {
                let inputs = fields.take_exactly("inputs");
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
                    StepKindDraft::Calls { calls: if is_list { listed } else { vec![unread_call()] } }
                }
                None => {
                    let (tool, arguments) = self.call(&mut fields);
                    StepKindDraft::Tool { tool, arguments }
                }
            },
        };
        draft.verbatim = self.texts(&mut fields, "verbatim", "names of arguments");
        draft.for_each = self.precise(fields.take_exactly("for_each"));
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
        draft.attempt_timeout =
            fields.take(&mut self.report, "attempt_timeout").and_then(|value| self.duration(&value));
        draft.exclusive = fields.take(&mut self.report, "exclusive").is_some_and(|value| value.flag(&mut self.report));
        draft.retry = fields.take(&mut self.report, "retry").and_then(|value| self.retry(&value));
        if let Some(on_error) = fields.take_exactly("on_error") {
            draft.on_error = self.on_error(&on_error);
        }
        draft.group = self.optional_text(&mut fields, "group");
        let order = self.order_of(&mut fields);
        fields.finish(&mut self.report);
        (order, draft, of_plan)
    }

    /// A list of texts; empty when there is none.
    fn texts(&mut self, fields: &mut Fields<'n>, name: &'static str, what: &str) -> Vec<String> {
        let Some(value) = fields.take_exactly(name) else { return Vec::new() };
        value.scalars(&mut self.report, what).iter().map(|text| text.text(&mut self.report)).collect()
    }

    /// A call of a step, one of several or beside its own.
    fn other_call(&mut self, call: &Value<'n>) -> CallDraft {
        let Some(mut fields) = call.fields(&mut self.report, "an object with `tool` and `arguments`") else {
            return unread_call();
        };
        let (tool, arguments) = self.call(&mut fields);
        let verbatim = self.texts(&mut fields, "verbatim", "names of arguments");
        fields.finish(&mut self.report);
        CallDraft { tool, arguments, verbatim }
    }

    /// The checks before or after a step's call.
    fn checks(&mut self, checks: Option<Value<'n>>) -> Vec<CheckDraft> {
        let what = "checks such as {condition: …}, {file: PATH} or {command: [PROGRAM, …]}";
        let Some(checks) = checks else { return Vec::new() };
        let checks = checks.list(&mut self.report, what);
        checks.iter().map(|check| self.check(check)).collect()
    }

    fn check(&mut self, check: &Value<'n>) -> CheckDraft {
        // What cannot be read is refused once: this stands for it, so that the check does not call it missing.
        let unread = || CheckDraft { condition: "true".to_owned(), ..CheckDraft::default() };
        let what = "an object: {condition: …}, {file: PATH} or {command: [PROGRAM, …]}";
        let Some(mut fields) = check.fields(&mut self.report, what) else { return unread() };
        let condition = self.condition(&mut fields);
        let file = fields.take_exactly("file").map(|file| file.text(&mut self.report)).unwrap_or_default();
        let before = self.report.findings.len();
        let command = self.texts(&mut fields, "command", "a program and its arguments");
        fields.finish(&mut self.report);
        if self.report.findings.len() > before { unread() } else { CheckDraft { condition, file, command } }
    }

    /// An expression; empty when there is none.
    fn condition(&mut self, fields: &mut Fields<'n>) -> String {
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

    /// The tool and the arguments of a call.
    fn call(&mut self, fields: &mut Fields<'n>) -> (String, Json) {
        let tool = fields.take(&mut self.report, "tool").map_or_else(String::new, |tool| tool.text(&mut self.report));
        let arguments = fields.take(&mut self.report, "arguments").map(|value| {
            self.refuse_imprecise(&value.path, value.node);
            value.node.to_value()
        });
        let mut arguments = arguments.unwrap_or_else(|| Json::Object(serde_json::Map::new()));
        let tool = operation_of(&tool, &mut arguments).unwrap_or(tool);
        (tool, arguments)
    }

    fn wait(&mut self, wait: &Value<'n>) -> WaitDraft {
        let what = "an object: {for: 10m}, {until: 2026-12-01T09:00:00Z}, {signal: NAME} or {form: {schema: …}}";
        // What cannot be read is refused once: these stand for it, so that the check does not call it missing.
        let (unread, unread_duration) = (Some(0), Duration::from_secs(1));
        let Some(mut fields) = wait.fields(&mut self.report, what) else {
            return WaitDraft { until: unread, ..WaitDraft::default() };
        };
        let duration = fields.take_exactly("for").map(|value| self.duration(&value).unwrap_or(unread_duration));
        let until = fields.take_exactly("until").and_then(|value| {
            let time = match &value.node.kind {
                Kind::Text(text) => timestamp::parse(text).map_err(|why| about(text, &why)),
                _ => Err(format!("must be a point in time, in quotes: {}", timestamp::SHAPE)),
            };
            time.map_err(|message| value.refuse(&mut self.report, || message)).ok().or(unread)
        });
        let signal = fields.take_exactly("signal").map_or_else(String::new, |value| {
            let signal = value.text(&mut self.report);
            if signal.is_empty() && matches!(value.node.kind, Kind::Text(_)) {
                value.refuse(&mut self.report, || "is empty: name the signal that the step waits for".to_owned());
            }
            if signal.is_empty() { "unread".to_owned() } else { signal }
        });
        let form = fields.take_exactly("form").map(|form| self.form(&form));
        fields.finish(&mut self.report);
        WaitDraft { duration, until, signal, form }
    }

    fn form(&mut self, form: &Value<'n>) -> FormDraft {
        // What cannot be read is refused once: this stands for it, so that the check does not call it missing.
        let unread = || Json::Object(serde_json::Map::new());
        let Some(mut fields) = form.fields(&mut self.report, "an object with `title`, `description` and `schema`")
        else {
            return FormDraft { schema: unread(), ..FormDraft::default() };
        };
        let title = self.optional_text(&mut fields, "title");
        let description = self.optional_text(&mut fields, "description");
        let schema = fields.take_exactly("schema").map(|schema| {
            self.refuse_imprecise(&schema.path, schema.node);
            schema.node.to_value()
        });
        fields.finish(&mut self.report);
        FormDraft { title, description, schema: schema.unwrap_or(Json::Null) }
    }

    fn retry(&mut self, retry: &Value<'n>) -> Option<RetryPolicy> {
        let mut fields = retry.fields(&mut self.report, "an object such as {max_attempts: 3, backoff: [1s, 2s]}")?;
        let named = fields.take_exactly("profile");
        let has_profile = named.is_some();
        let profile = named.and_then(|value| self.profile(&value)).map(Profile::policy);
        let limited = fields.take_exactly("rate_limit").and_then(|value| self.rate_limit(&value));
        let by_output = fields.take_exactly("by_output").map(|value| value.flag(&mut self.report));
        let ours = fields.take_exactly("backoff");
        let theirs = fields.take_exactly("backoffMs");
        let attempts = fields.take(&mut self.report, "max_attempts");
        if let (Some(_), Some(theirs)) = (&ours, &theirs) {
            theirs.refuse(&mut self.report, || "duplicates `backoff`: give only one of them".to_owned());
        }
        let their_form = attempts.as_ref().is_some_and(|value| value.path == retry.path.key("maxAttempts"));
        let backoff = match (&ours, &theirs) {
            (Some(backoff), _) => self.backoff(backoff),
            (None, Some(delays)) => {
                let delays = delays.scalars(&mut self.report, "milliseconds");
                Some(Backoff::List(delays.iter().filter_map(|delay| milliseconds(delay, &mut self.report)).collect()))
            }
            (None, None) if their_form => Some(Backoff::List(Vec::new())),
            (None, None) => Some(profile.as_ref().map_or(Backoff::DEFAULT, |profile| profile.backoff.clone())),
        };
        if attempts.is_none() && theirs.is_none() && !has_profile {
            let path = retry.path.key("max_attempts");
            self.report.refuse(&path, retry.node.offset, || {
                "is required: the number of attempts, including the first, unless a `profile` gives it".to_owned()
            });
        }
        let profile = profile.unwrap_or_default();
        let max_attempts =
            attempts.map_or(Some(profile.max_attempts), |value| value.whole(&mut self.report, 1..=MAX_ATTEMPTS));
        fields.finish(&mut self.report);
        Some(RetryPolicy {
            max_attempts: max_attempts?,
            backoff: backoff?,
            rate_limit: limited.unwrap_or(profile.rate_limit),
            by_output: by_output.unwrap_or(profile.by_output),
        })
    }

    fn profile(&mut self, value: &Value<'n>) -> Option<Profile> {
        let word = value.text(&mut self.report);
        let known = Profile::WORDS.iter().find(|(known, _)| *known == word);
        if known.is_none() {
            let words: Vec<&str> = Profile::WORDS.iter().map(|(word, _)| *word).collect();
            value.refuse(&mut self.report, || format!("must be one of {}, not `{}`", words.join(", "), shown(&word)));
        }
        known.map(|(_, profile)| *profile)
    }

    /// What follows a rate limit: `never`, `queue_for_later`, or a list of delays.
    fn rate_limit(&mut self, value: &Value<'n>) -> Option<RateLimit> {
        match &value.node.kind {
            Kind::Text(word) if word == "never" => Some(RateLimit::Never(Never::Never)),
            Kind::Text(word) if word == "queue_for_later" => {
                Some(RateLimit::QueueForLater(QueueForLater::QueueForLater))
            }
            Kind::List(_) => {
                let delays = value.list(&mut self.report, "durations");
                Some(RateLimit::Delays(delays.iter().filter_map(|delay| self.duration(delay)).collect()))
            }
            _ => {
                value.refuse(&mut self.report, || {
                    "must be `never`, `queue_for_later`, or a list of delays such as [60s, 120s]".to_owned()
                });
                None
            }
        }
    }

    fn backoff(&mut self, backoff: &Value<'n>) -> Option<Backoff> {
        if let Kind::List(_) = backoff.node.kind {
            let delays = backoff.list(&mut self.report, "durations");
            return Some(Backoff::List(delays.iter().filter_map(|delay| self.duration(delay)).collect()));
        }
        let mut fields =
            backoff.fields(&mut self.report, "a list such as [1s, 2s], or {initial: 1s, factor: 2, max: 30s}")?;
        let initial = fields.take_exactly("initial").map_or(Some(DEFAULT_INITIAL), |value| self.duration(&value));
        let factor = fields.take_exactly("factor").map_or(Some(DEFAULT_FACTOR), |value| self.number(&value));
        let max = match fields.take_exactly("max") {
            Some(value) => self.duration(&value),
            None => initial.map(|initial| initial.max(DEFAULT_MAX)),
        };
        fields.finish(&mut self.report);
        Some(Backoff::Exponential { initial: initial?, factor: factor?, max: max? })
    }

    fn optional_text(&mut self, fields: &mut Fields<'n>, name: &'static str) -> String {
        fields.take_exactly(name).map_or_else(String::new, |value| value.text(&mut self.report))
    }

    fn number(&mut self, value: &Value<'n>) -> Option<f64> {
        let number = match &value.node.kind {
            Kind::Number(number) => number.as_f64(),
            _ => None,
        };
        if number.is_none() {
            value.refuse(&mut self.report, || format!("must be a number from 1{}", value.instead_of_number()));
        }
        number
    }

    /// A time limit, for which other planners write a number of seconds.
    fn timeout(&mut self, value: &Value<'n>) -> Option<Duration> {
        match &value.node.kind {
            Kind::Number(number) if self.shape != Shape::Own && number.as_u64().is_some() => {
                number.as_u64().map(Duration::from_secs)
            }
            _ => self.duration(value),
        }
    }

    fn duration(&mut self, value: &Value<'n>) -> Option<Duration> {
        let read = match &value.node.kind {
            Kind::Text(text) => duration::parse(text).map_err(|why| about(text, &why)),
            Kind::Number(number) => Err(format!("`{number}` has no unit: write {number}s for seconds")),
            _ => Err("must be a duration, such as 500ms, 10s, 5m or 1h30m".to_owned()),
        };
        read.map_err(|message| value.refuse(&mut self.report, || message)).ok()
    }

    /// Refuses numbers that would silently become another number.
    fn refuse_imprecise(&mut self, path: &FieldPath, node: &Node) {
        match &node.kind {
            Kind::Number(_) => {
                if let Some(message) = imprecise(self.text, node) {
                    self.report.refuse(path, node.offset, || message.to_owned());
                }
            }
            Kind::List(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    self.refuse_imprecise(&path.index(index), entry);
                }
            }
            Kind::Map(entries) => {
                for entry in entries {
                    self.refuse_imprecise(&path.key(entry.key.name.clone()), &entry.value);
                }
            }
            _ => {}
        }
    }
}

/// Stands for a call that cannot be read, which is refused once, so that the check does not call it missing.
fn unread_call() -> CallDraft {
    CallDraft { tool: "unread".to_owned(), arguments: Json::Object(serde_json::Map::new()), verbatim: Vec::new() }
}

/// A step of which nothing is known.
fn blank() -> StepDraft {
    StepDraft {
        id: String::new(),
        title: String::new(),
        description: String::new(),
        group: String::new(),
        depends_on: Vec::new(),
        run_when: RunWhen::default(),
        condition: String::new(),
        for_each: None,
        timeout: None,
        attempt_timeout: None,
        exclusive: false,
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

/// What is wrong with a number that is not exactly what its author wrote; `None` when nothing is.
pub(super) fn imprecise(text: &str, node: &Node) -> Option<&'static str> {
    let Kind::Number(number) = &node.kind else { return None };
    let end = |c: char| !c.is_ascii_alphanumeric() && !"+-._".contains(c);
    let rest = &text[node.offset..];
    let written = &rest[..rest.find(end).unwrap_or(rest.len())];
    let digits = written.trim_start_matches(['-', '+']);
    let decimal = written.replace('_', "");
    if number.is_f64()
        && decimal.contains(['.', 'e', 'E'])
        && decimal.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && number.as_f64().is_some_and(|value| !belay_json::is_exact(decimal.trim_start_matches('+'), value))
    {
        return Some("is a number whose digits would be lost: write it as text, in quotes, or with fewer digits");
    }
    // Zero is exact however it is written, and `-0` is the only integer that is a float.
    if !number.is_f64()
        || digits.is_empty()
        || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        || number.as_f64() == Some(0.0)
    {
        return None;
    }
    Some(match digits.starts_with('0') {
        true => {
            "begins with a zero, which not every reader of YAML takes the same way: leave the zero out, or put the number in quotes"
        }
        false => "is an integer of more than 64 bits, which would lose digits: write it as text, in quotes",
    })
}

/// What is wrong with a text: the text, and the characters that may look like what was meant.
fn about(text: &str, why: &str) -> String {
    match text.is_empty() {
        true => why.to_owned(),
        false => format!("`{}` {why}{}", shown(text), look_alikes(text)),
    }
}

/// A list of programs.
fn read_names(value: &Value<'_>, report: &mut Report) -> Vec<String> {
    let names = value.scalars(report, "names of programs");
    names.iter().map(|name| name.text(report)).collect()
}

fn read_audit_level(value: &Value<'_>, report: &mut Report) -> Option<AuditLevel> {
    let word = if let Kind::Text(word) = &value.node.kind { Some(word.as_str()) } else { None };
    let known = AuditLevel::WORDS.iter().find(|(known, _)| Some(*known) == word);
    if known.is_none() {
        value.refuse(report, || {
            let given = word.map(|word| format!("is `{}`, and ", shown(word))).unwrap_or_default();
            format!("{given}must be minimal, standard or verbose")
        });
    }
    known.map(|(_, level)| *level)
}

fn milliseconds(value: &Value<'_>, report: &mut Report) -> Option<Duration> {
    let number = match &value.node.kind {
        Kind::Number(number) => number.as_u64(),
        _ => None,
    };
    if number.is_none() {
        value.refuse(report, || format!("must be a whole number of milliseconds{}", value.instead_of_number()));
    }
    let duration = number.map(Duration::from_millis);
    if duration.is_some_and(|duration| duration > MAX_DURATION) {
        let most = MAX_DURATION.as_millis();
        value.refuse(report, || format!("must be at most 365 days, which is {most} milliseconds"));
    }
    duration
}

//! The rules for one step, and for references between steps.

use std::sync::Arc;

use crate::{
    Backoff, CallDraft, CallPlace, CallsStep, Check, CheckDraft, CheckPlace, Condition, FormDraft, FormSpec, OnError,
    Plan, PlanDraft, PlanStep, Planned, PlannedCall, PlannedStep, RateLimit, RetryPolicy, RunWhen, StepDraft, StepKind,
    StepKindDraft, StepSpec, Template, ToolStep, WaitDraft, WaitFor, WaitStep,
    limits::{
        MAX_ARGUMENT_BYTES, MAX_ATTEMPTS, MAX_CALLS, MAX_CHECKS, MAX_CONDITION_BYTES, MAX_DEPTH, MAX_DESCRIPTION_CHARS,
        MAX_FALLBACKS, MAX_FORM_DESCRIPTION_CHARS, MAX_FORM_TITLE_CHARS, MAX_ITEMS, MAX_RESOURCE_CHARS, MAX_RESOURCES,
        MAX_SCHEMA_BYTES, MAX_SIGNAL_CHARS, MAX_STEP_ID_CHARS, MAX_TOOL_CHARS,
    },
    nearest,
    path::{FieldPath, look_alikes, shown},
    plan::{OtherCall, call_of},
    template::{Reference, json_size},
};

use super::{Checker, ID_CHARS, Trust, step_path};

/// The result of checking a step.
pub(super) struct Part {
    pub(super) dependencies: Vec<usize>,
    kind: KindPart,
    condition: Option<Condition>,
    /// The list, as far as it could be read.
    for_each: Option<Template>,
    fallback: Vec<CallPart>,
    compensate: Option<CallPart>,
    preconditions: Vec<CheckPart>,
    postconditions: Vec<CheckPart>,
    /// Whether the schema of the output is one within the limits.
    has_output_schema: bool,
}

/// The result of checking a check before or after a call.
enum CheckPart {
    Condition(Condition),
    File(CallPart),
    Command(CallPart),
    /// Nothing valid was named.
    Unread,
}

/// The result of checking a call.
struct CallPart {
    /// Whether the tool's name is valid.
    has_tool: bool,
    /// The arguments, as far as they could be read.
    arguments: Template,
    /// Whether all of them could be read.
    arguments_are_valid: bool,
}

impl CallPart {
    fn planned<'a>(&'a self, step: usize, place: CallPlace, tool: &'a str) -> Option<Planned<'a>> {
        let step = outermost(step);
        let arguments = self.arguments_are_valid.then_some(&self.arguments);
        self.has_tool.then_some(Planned::Call(PlannedCall { step, place, tool, arguments, allowed_commands: None }))
    }
}

/// A step of the plan that is being checked.
fn outermost(step: usize) -> PlannedStep<'static> {
    PlannedStep { step, within: "" }
}

/// The result of checking what a step does.
enum KindPart {
    Tool(CallPart),
    Calls(Vec<CallPart>),
    /// The plan is checked after the step, and `None` when it is not valid.
    Plan(Option<Arc<Plan>>, Template),
    /// `None` when nothing valid was named.
    Wait(Option<WaitFor>),
}

/// Where in a step a reference stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    /// In what the step does.
    Call,
    /// In the call that undoes what it has done.
    Compensate,
    /// In the list for each entry of which it runs.
    List,
    Condition,
    /// In what is checked before the step's call.
    Before,
    /// In what is checked after it.
    After,
}

impl Part {
    /// The step's call, when the tool is named, or its form, when the schema is within the limits.
    pub(super) fn planned<'a>(&'a self, step: usize, draft: &'a StepDraft) -> Option<Planned<'a>> {
        match (&draft.kind, &self.kind) {
            (StepKindDraft::Tool { tool, .. }, KindPart::Tool(call)) => call.planned(step, CallPlace::Own, tool),
            (StepKindDraft::Wait { .. }, KindPart::Wait(Some(WaitFor::Form(form)))) => {
                Some(Planned::Form { step: outermost(step), schema: &form.schema })
            }
            (
                StepKindDraft::Tool { .. }
                | StepKindDraft::Calls { .. }
                | StepKindDraft::Wait { .. }
                | StepKindDraft::Plan { .. },
                _,
            ) => None,
        }
    }

    /// The calls of the step beside its own, and its `calls`, whose tools are named.
    pub(super) fn planned_others<'a>(&'a self, step: usize, draft: &'a StepDraft) -> impl Iterator<Item = Planned<'a>> {
        let listed = match (&draft.kind, &self.kind) {
            (StepKindDraft::Calls { calls: drafts }, KindPart::Calls(parts)) => Some(parts.iter().zip(drafts)),
            _ => None,
        };
        let listed = listed.into_iter().flatten().enumerate();
        let listed =
            listed.filter_map(move |(place, (call, draft))| call.planned(step, CallPlace::Listed(place), &draft.tool));
        let calls = self.fallback.iter().zip(&draft.fallback).enumerate();
        let calls =
            calls.filter_map(move |(place, (call, draft))| call.planned(step, CallPlace::Fallback(place), &draft.tool));
        let undoes = self.compensate.as_ref().zip(draft.compensate.as_ref());
        listed
            .chain(calls)
            .chain(undoes.and_then(|(call, draft)| call.planned(step, CallPlace::Compensate, &draft.tool)))
    }

    /// The step's condition, when its references could be read.
    pub(super) fn planned_condition(&self, step: usize) -> Option<Planned<'_>> {
        let step = outermost(step);
        self.condition.as_ref().map(|condition| Planned::Condition { step, place: None, condition })
    }

    /// What is checked before and after the step's call, and the schema of its output.
    pub(super) fn planned_checks<'a>(&'a self, step: usize, draft: &'a StepDraft) -> impl Iterator<Item = Planned<'a>> {
        let schema = draft.output_schema.as_ref().filter(|_| self.has_output_schema);
        let schema = schema.map(move |schema| Planned::Output { step: outermost(step), schema });
        let checks = self.checks().zip(draft.preconditions.iter().chain(&draft.postconditions));
        let checks = checks.filter_map(move |((place, part), draft)| match part {
            CheckPart::Condition(condition) => {
                Some(Planned::Condition { step: outermost(step), place: Some(place), condition })
            }
            CheckPart::File(call) | CheckPart::Command(call) => {
                call.planned(step, CallPlace::Check(place), call_of(draft)?.0)
            }
            CheckPart::Unread => None,
        });
        checks.chain(schema)
    }

    fn checks(&self) -> impl Iterator<Item = (CheckPlace, &CheckPart)> {
        let before = self.preconditions.iter().enumerate().map(|(place, part)| (CheckPlace::Before(place), part));
        before.chain(self.postconditions.iter().enumerate().map(|(place, part)| (CheckPlace::After(place), part)))
    }

    /// The templates of the step at `path`, each with its field; the list for each entry of which it runs is not among them.
    pub(super) fn templates(&self, path: &FieldPath) -> Vec<(FieldPath, &Template)> {
        let mut templates = Vec::with_capacity(1 + self.fallback.len());
        match &self.kind {
            KindPart::Tool(call) => templates.push((path.key("arguments"), &call.arguments)),
            KindPart::Calls(calls) => templates.extend(
                calls
                    .iter()
                    .enumerate()
                    .map(|(place, call)| (path.key("calls").index(place).key("arguments"), &call.arguments)),
            ),
            KindPart::Wait(Some(WaitFor::Form(form))) => templates.push((path.key("wait").key("form"), &form.texts)),
            KindPart::Wait(_) => {}
            KindPart::Plan(_, inputs) => templates.push((path.key("inputs"), inputs)),
        }
        for (place, call) in self.fallback.iter().enumerate() {
            templates.push((path.key("fallback").index(place).key("arguments"), &call.arguments));
        }
        templates
    }

    /// The step's references, each with its field.
    fn references(&self, path: &FieldPath) -> Vec<(Site, FieldPath, &Reference)> {
        let list = self.for_each.iter().map(|list| (Site::List, path.key("for_each"), list));
        let others = self.templates(path).into_iter().map(|(field, template)| (Site::Call, field, template));
        let undoes = self
            .compensate
            .as_ref()
            .map(|call| (Site::Compensate, path.key("compensate").key("arguments"), &call.arguments));
        let mut references = Vec::new();
        for (site, field, template) in others.chain(list).chain(undoes) {
            references.extend(template.references().map(|(inner, reference)| (site, field.join(inner), reference)));
        }
        let condition = self.condition.iter().flat_map(Condition::references);
        references.extend(condition.map(|reference| (Site::Condition, path.key("condition"), reference)));
        for (place, part) in self.checks() {
            let (site, field) = match place {
                CheckPlace::Before(place) => (Site::Before, path.key("preconditions").index(place)),
                CheckPlace::After(place) => (Site::After, path.key("postconditions").index(place)),
            };
            match part {
                CheckPart::Condition(condition) => {
                    let field = field.key("condition");
                    references.extend(condition.references().map(|reference| (site, field.clone(), reference)));
                }
                CheckPart::File(call) => {
                    let field = field.key("file");
                    let inner = call.arguments.references();
                    references.extend(inner.map(|(_, reference)| (site, field.clone(), reference)));
                }
                CheckPart::Command(call) => {
                    let inner = call.arguments.references();
                    references.extend(inner.map(|(inner, reference)| (site, field.join(inner), reference)));
                }
                CheckPart::Unread => {}
            }
        }
        references
    }

    /// The step, after the whole plan has been checked.
    pub(super) fn complete(self, draft: StepDraft) -> StepSpec {
        let other = |(draft, part): (CallDraft, CallPart)| OtherCall {
            call: ToolStep { tool: draft.tool, arguments: part.arguments },
            verbatim: draft.verbatim,
        };
        let kind = match (draft.kind, self.kind) {
            (StepKindDraft::Calls { calls }, KindPart::Calls(parts)) => {
                StepKind::Calls(CallsStep { calls: calls.into_iter().zip(parts).map(other).collect() })
            }
            (StepKindDraft::Tool { tool, .. }, KindPart::Tool(CallPart { arguments, .. })) => {
                StepKind::Tool(ToolStep { tool, arguments })
            }
            (StepKindDraft::Wait { .. }, KindPart::Wait(Some(wait_for))) => StepKind::Wait(WaitStep { wait_for }),
            (StepKindDraft::Plan { .. }, KindPart::Plan(Some(plan), inputs)) => {
                StepKind::Plan(PlanStep { plan, inputs })
            }
            (
                StepKindDraft::Tool { .. }
                | StepKindDraft::Calls { .. }
                | StepKindDraft::Wait { .. }
                | StepKindDraft::Plan { .. },
                _,
            ) => {
                unreachable!("the plan is valid")
            }
        };
        let checks = |drafts: Vec<CheckDraft>, parts: Vec<CheckPart>| -> Vec<Check> {
            let call = |draft, CallPart { arguments, .. }| {
                let tool = call_of(draft).map(|(tool, _)| tool.to_owned()).unwrap_or_default();
                ToolStep { tool, arguments }
            };
            let checks = drafts.iter().zip(parts).map(|(draft, part)| match part {
                CheckPart::Condition(condition) => Check::Condition(condition),
                CheckPart::File(part) => Check::File(call(draft, part)),
                CheckPart::Command(part) => Check::Command(call(draft, part)),
                CheckPart::Unread => unreachable!("the plan is valid"),
            });
            checks.collect()
        };
        let fallback = draft.fallback.into_iter().zip(self.fallback).map(other);
        let mut resources = draft.resources;
        resources.sort_unstable();
        resources.dedup();
        StepSpec {
            id: draft.id,
            title: draft.title,
            description: draft.description,
            group: draft.group,
            depends_on: draft.depends_on,
            dependencies: self.dependencies,
            run_when: draft.run_when,
            condition: self.condition,
            for_each: self.for_each,
            timeout: draft.timeout,
            attempt_timeout: draft.attempt_timeout,
            exclusive: draft.exclusive,
            verbatim: draft.verbatim,
            retry: draft.retry.unwrap_or_default(),
            on_error: draft.on_error,
            fallback: fallback.collect(),
            compensate: draft.compensate.zip(self.compensate).map(other),
            resources,
            preconditions: checks(draft.preconditions, self.preconditions),
            postconditions: checks(draft.postconditions, self.postconditions),
            output_schema: draft.output_schema,
            budget: draft.budget,
            kind,
        }
    }
}

impl Part {
    /// The plan that the step carries out, which has been checked.
    pub(super) fn set_plan(&mut self, checked: Plan) {
        if let KindPart::Plan(plan, _) = &mut self.kind {
            *plan = Some(Arc::new(checked));
        }
    }
}

impl Checker<'_> {
    pub(super) fn step(&mut self, position: usize, step: &StepDraft, steps: &[StepDraft]) -> Part {
        let path = step_path(position);
        let kind = match &step.kind {
            StepKindDraft::Tool { tool, arguments } => {
                KindPart::Tool(self.call(&path, tool, arguments, &step.verbatim))
            }
            StepKindDraft::Calls { calls } => KindPart::Calls(self.listed_calls(&path, step, calls)),
            StepKindDraft::Wait { wait } => KindPart::Wait(self.wait(&path, step, wait)),
            StepKindDraft::Plan { plan, inputs } => KindPart::Plan(None, self.plan_inputs(&path, step, plan, inputs)),
        };
        if step.group.chars().count() > MAX_STEP_ID_CHARS {
            self.rule(&path.key("group"), || format!("has more than {MAX_STEP_ID_CHARS} characters"));
        }
        let described = step.description.chars().count();
        if described > MAX_DESCRIPTION_CHARS {
            self.rule(&path.key("description"), || {
                format!("has {described} characters and the limit is {MAX_DESCRIPTION_CHARS}: shorten it")
            });
        }
        let calls_tool = step.kind.calls_tool();
        self.on_error(&path.key("on_error"), &step.on_error, calls_tool);
        let condition = self.condition(&path.key("condition"), &step.condition);
        let for_each = step.for_each.as_ref().and_then(|list| self.list(&path.key("for_each"), list));
        let fallback = self.fallback(&path.key("fallback"), &step.fallback);
        self.resources(&path.key("resources"), &step.resources);
        self.budget(&path.key("budget"), step.budget.as_ref());
        let undoes = step.compensate.as_ref();
        let compensate =
            undoes.map(|call| self.call(&path.key("compensate"), &call.tool, &call.arguments, &call.verbatim));
        let mut part = Part {
            dependencies: Vec::new(),
            kind,
            condition,
            for_each,
            fallback,
            compensate,
            preconditions: self.checks(&path.key("preconditions"), &step.preconditions),
            postconditions: self.checks(&path.key("postconditions"), &step.postconditions),
            has_output_schema: self.output_schema(&path.key("output_schema"), step.output_schema.as_ref()),
        };
        let mut dependencies = Vec::with_capacity(step.depends_on.len());
        let depends_on = path.key("depends_on");
        for (entry, id) in step.depends_on.iter().enumerate() {
            let explain = "name a step of this plan";
            dependencies.extend(self.dependency(&depends_on.index(entry), position, id, steps, explain));
        }
        for (site, field, reference) in part.references(&path) {
            if reference.is_item() {
                self.item(&field, site, step, reference);
                continue;
            }
            // It is made only once the step has an output.
            if matches!(site, Site::Compensate | Site::After) && reference.step() == step.id {
                continue;
            }
            if let Some(input) = reference.input() {
                self.input(&field, input);
                continue;
            }
            if let Some(dotted) = reference.dotted_step().filter(|dotted| self.index.contains_key(dotted.as_str())) {
                let (step, dotted) = (shown(reference.step()), shown(&dotted));
                self.rule(&field, || {
                    format!(
                        "`${{{reference}}}` could mean the step `{step}` or the step `{dotted}`: write `${{[\"{step}\"].result}}` or \
                         `${{[\"{dotted}\"].result}}`"
                    )
                });
            }
            let explain = "`${…}` names a step of this plan; `$${` stands for the text `${`, and `verbatim` takes a whole argument as it is";
            dependencies.extend(self.dependency(&field, position, reference.step(), steps, explain));
        }
        if step.run_when != RunWhen::Success && step.depends_on.is_empty() && dependencies.is_empty() {
            self.rule(&path.key("run_when"), || {
                "says after which ends of other steps this one runs, and it depends on none: add `depends_on`, or remove it".to_owned()
            });
        }
        dependencies.sort_unstable();
        dependencies.dedup();
        self.duration(&path.key("timeout"), step.timeout);
        self.duration(&path.key("attempt_timeout"), step.attempt_timeout);
        if let Some(retry) = &step.retry {
            self.retry(&path.key("retry"), retry);
        }
        part.dependencies = dependencies;
        part
    }

    /// A call, as far as it can be read; `path` is the object that has it.
    fn call(&mut self, path: &FieldPath, tool: &str, arguments: &serde_json::Value, verbatim: &[String]) -> CallPart {
        let has_tool = self.tool(&path.key("tool"), tool);
        self.verbatim(&path.key("verbatim"), verbatim, arguments);
        let (arguments, arguments_are_valid) = self.arguments(&path.key("arguments"), arguments, verbatim);
        CallPart { has_tool, arguments, arguments_are_valid }
    }

    /// The calls that a step makes side by side.
    fn listed_calls(&mut self, path: &FieldPath, step: &StepDraft, calls: &[CallDraft]) -> Vec<CallPart> {
        let not_for_several = [
            ("for_each", step.for_each.is_some(), "remove it, or let the step call one tool"),
            ("fallback", !step.fallback.is_empty(), "remove it, or make the call a step of its own"),
            ("compensate", step.compensate.is_some(), "remove it, or make what has to be undone a step of its own"),
            ("verbatim", !step.verbatim.is_empty(), "give it to the call whose argument it names"),
        ];
        for (field, _, way_out) in not_for_several.into_iter().filter(|(_, is_set, _)| *is_set) {
            self.rule(&path.key(field), || {
                format!("is for steps with one call of their own, and this one has `calls`: {way_out}")
            });
        }
        let field = path.key("calls");
        if calls.is_empty() {
            self.rule(&field, || "has no call: add one, such as {tool: NAME, arguments: {…}}".to_owned());
        }
        if calls.len() > MAX_CALLS {
            self.rule(&field, || {
                format!(
                    "has {} calls and the limit is {MAX_CALLS}: make two steps of them, or use `for_each`",
                    calls.len()
                )
            });
        }
        let calls = calls.iter().enumerate();
        calls
            .map(|(place, CallDraft { tool, arguments, verbatim })| {
                self.call(&field.index(place), tool, arguments, verbatim)
            })
            .collect()
    }

    fn fallback(&mut self, path: &FieldPath, fallback: &[CallDraft]) -> Vec<CallPart> {
        if fallback.len() > MAX_FALLBACKS {
            self.rule(path, || format!("has {} calls and the limit is {MAX_FALLBACKS}", fallback.len()));
        }
        let calls = fallback.iter().enumerate();
        calls
            .map(|(place, CallDraft { tool, arguments, verbatim })| {
                self.call(&path.index(place), tool, arguments, verbatim)
            })
            .collect()
    }

    fn checks(&mut self, path: &FieldPath, checks: &[CheckDraft]) -> Vec<CheckPart> {
        if checks.len() > MAX_CHECKS {
            self.rule(path, || format!("has {} checks and the limit is {MAX_CHECKS}", checks.len()));
        }
        checks.iter().enumerate().map(|(place, check)| self.check(&path.index(place), check)).collect()
    }

    fn check(&mut self, path: &FieldPath, check: &CheckDraft) -> CheckPart {
        let given = [!check.condition.is_empty(), !check.file.is_empty(), !check.command.is_empty()];
        if given.into_iter().filter(|is_given| *is_given).count() != 1 {
            self.refuse(path, || {
                "must say one thing: {condition: …}, {file: PATH} or {command: [PROGRAM, ARGUMENT, …]}".to_owned()
            });
            return CheckPart::Unread;
        }
        let Some((_, arguments)) = call_of(check) else {
            let condition = self.condition(&path.key("condition"), &check.condition);
            return condition.map_or(CheckPart::Unread, CheckPart::Condition);
        };
        let (arguments, errors) = Template::read(&arguments, &[]);
        let arguments_are_valid = errors.is_empty();
        for error in errors {
            // The author writes a path or a command, and no arguments.
            let field = if check.file.is_empty() { path.join(&error.field) } else { path.key("file") };
            self.refuse(&field, || error.message);
        }
        let size = json_size(arguments.source());
        if size > MAX_ARGUMENT_BYTES {
            self.rule(path, || {
                format!("has {size} bytes as JSON and the limit is {MAX_ARGUMENT_BYTES}: put the content into a file")
            });
        }
        let call = CallPart { has_tool: true, arguments, arguments_are_valid };
        if check.file.is_empty() { CheckPart::Command(call) } else { CheckPart::File(call) }
    }

    /// Whether the schema of a step's output is one within the limits.
    fn output_schema(&mut self, path: &FieldPath, schema: Option<&serde_json::Value>) -> bool {
        let Some(schema) = schema else { return false };
        let problem = self.schema_problem(schema, "{type: object, required: [version]}");
        let is_within = problem.is_none() || self.trust == Trust::Stored;
        if let Some(problem) = problem {
            self.rule(path, || problem);
        }
        is_within
    }

    /// What is wrong with a schema before it is read as one.
    fn schema_problem(&self, schema: &serde_json::Value, such_as: &str) -> Option<String> {
        let size = json_size(schema);
        if !schema.is_object() {
            Some(format!("must be a JSON Schema, an object such as {such_as}"))
        } else if size > MAX_SCHEMA_BYTES {
            Some(format!("has {size} bytes as JSON and the limit is {MAX_SCHEMA_BYTES}: shorten it"))
        } else if is_deeper(schema, MAX_DEPTH) {
            Some(format!("is nested more than {MAX_DEPTH} levels deep: flatten it"))
        } else {
            None
        }
    }

    fn resources(&mut self, path: &FieldPath, resources: &[String]) {
        if resources.len() > MAX_RESOURCES {
            self.rule(path, || format!("names {} resources and the limit is {MAX_RESOURCES}", resources.len()));
        }
        for (place, name) in resources.iter().enumerate() {
            self.resource(&path.index(place), name);
        }
    }

    /// The name of a resource.
    pub(super) fn resource(&mut self, path: &FieldPath, name: &str) {
        let allowed = |c: char| belay_text::is_plain(c) && !c.is_whitespace();
        if name.is_empty() || name.chars().count() > MAX_RESOURCE_CHARS || !name.chars().all(allowed) {
            self.rule(path, || {
                format!(
                    "`{}` is not the name of a resource: it has 1 to {MAX_RESOURCE_CHARS} characters and no spaces{}",
                    shown(name),
                    look_alikes(name)
                )
            });
        }
    }

    /// The list for each entry of which a step runs, as far as it can be read.
    fn list(&mut self, path: &FieldPath, list: &serde_json::Value) -> Option<Template> {
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
            _ => self.refuse(path, || {
                "must be a list, or one reference that becomes a list, such as `${STEP.result.files}`".to_owned()
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

    /// A reference to an entry stands where there is one.
    fn item(&mut self, field: &FieldPath, site: Site, step: &StepDraft, reference: &Reference) {
        let has_list = step.for_each.is_some();
        let why = match site {
            Site::Call | Site::Compensate | Site::Before | Site::After if has_list => return,
            Site::Call | Site::Compensate | Site::Before | Site::After => {
                "is for steps with `for_each`, and this one has none: add it, or name a step or an input"
            }
            Site::List => "has no value here: the entries come from this list",
            Site::Condition => {
                "has no value here: the condition is evaluated once, before the list is read. Let the step that makes the list leave out \
                 entries"
            }
        };
        self.refuse(field, || format!("`${{{reference}}}` {why}"));
    }

    /// The condition, when its references can be read.
    fn condition(&mut self, path: &FieldPath, source: &str) -> Option<Condition> {
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

    /// The inputs of a step's plan, as far as they can be read.
    fn plan_inputs(
        &mut self,
        path: &FieldPath,
        step: &StepDraft,
        plan: &PlanDraft,
        inputs: &serde_json::Value,
    ) -> Template {
        let only_for_tools = [
            ("fallback", !step.fallback.is_empty()),
            ("preconditions", !step.preconditions.is_empty()),
            ("postconditions", !step.postconditions.is_empty()),
            ("output_schema", step.output_schema.is_some()),
            ("verbatim", !step.verbatim.is_empty()),
            ("exclusive", step.exclusive),
        ];
        for (field, _) in only_for_tools.into_iter().filter(|(_, is_set)| *is_set) {
            let way_out = match field {
                "verbatim" => "remove it, and write `$${` in its inputs where `${` means nothing",
                _ => "remove it, or put it on the steps of the plan",
            };
            self.rule(&path.key(field), || {
                format!("is for steps that call a tool, and this one carries out a plan: {way_out}")
            });
        }
        let field = path.key("inputs");
        if let Some(given) = inputs.as_object() {
            for name in given.keys().filter(|name| !plan.inputs.contains_key(*name)) {
                let near = nearest(name, plan.inputs.keys().map(String::as_str));
                self.rule(&field.key(name.clone()), || match near {
                    Some(near) => format!("the step's plan declares no such input; did you mean `{}`?", shown(near)),
                    None => "the step's plan declares no such input: remove it, or declare it under `plan.inputs`"
                        .to_owned(),
                });
            }
            let missing = plan
                .inputs
                .iter()
                .filter(|(name, input)| input.default.is_none() && !given.contains_key(name.as_str()));
            for (name, _) in missing {
                self.rule(&field, || {
                    let name = shown(name);
                    format!(
                        "lacks `{name}`, which the step's plan requires: add it, or give it a `default` in that plan"
                    )
                });
            }
        }
        self.object(&field, inputs, &[], "must be an object with the values of the plan's inputs by name").0
    }

    /// What the step waits for.
    fn wait(&mut self, path: &FieldPath, step: &StepDraft, wait: &WaitDraft) -> Option<WaitFor> {
        let WaitDraft { duration, until, signal, form } = wait;
        let only_for_tools = [
            ("fallback", !step.fallback.is_empty()),
            ("compensate", step.compensate.is_some()),
            ("resources", !step.resources.is_empty()),
            ("preconditions", !step.preconditions.is_empty()),
            ("postconditions", !step.postconditions.is_empty()),
            ("output_schema", step.output_schema.is_some()),
            ("verbatim", !step.verbatim.is_empty()),
            ("exclusive", step.exclusive),
            ("retry", step.retry.is_some()),
            ("attempt_timeout", step.attempt_timeout.is_some()),
            ("budget", step.budget.is_some()),
        ];
        for (field, _) in only_for_tools.into_iter().filter(|(_, is_set)| *is_set) {
            self.rule(&path.key(field), || "is for steps that call a tool, and this one waits: remove it".to_owned());
        }
        let field = path.key("wait");
        let given = [duration.is_some(), until.is_some(), !signal.is_empty(), form.is_some()];
        if given.into_iter().filter(|is_given| *is_given).count() != 1 {
            self.refuse(&field, || {
                "must say one thing: {for: 10m}, {until: 2026-12-01T09:00:00Z}, {signal: NAME} or {form: {schema: …}}"
                    .to_owned()
            });
            return None;
        }
        if step.timeout.is_some() && (duration.is_some() || until.is_some()) {
            self.rule(&path.key("timeout"), || {
                "is for waits that may end early, and this one ends by its own time: remove it".to_owned()
            });
        }
        self.duration(&field.key("for"), *duration);
        if let Some(form) = form {
            return self.form(&field.key("form"), form).map(WaitFor::Form);
        }
        if !signal.is_empty() {
            self.signal(&field.key("signal"), signal);
        }
        let signal = || WaitFor::Signal(signal.clone());
        Some(duration.map(WaitFor::Duration).or(until.map(WaitFor::Time)).unwrap_or_else(signal))
    }

    /// The form, when it is within the limits and its templates can be read.
    fn form(&mut self, path: &FieldPath, form: &FormDraft) -> Option<FormSpec> {
        let limited = [
            ("title", &form.title, MAX_FORM_TITLE_CHARS, "put the rest into `description`"),
            ("description", &form.description, MAX_FORM_DESCRIPTION_CHARS, "shorten it"),
        ];
        for (field, text, most, advice) in limited {
            let length = text.chars().count();
            if length > most {
                self.rule(&path.key(field), || format!("has {length} characters and the limit is {most}: {advice}"));
            }
        }
        if form.title.contains(['\n', '\r']) {
            self.rule(&path.key("title"), || {
                "must be one line: put what a person has to know into `description`".to_owned()
            });
        }
        let schema = path.key("schema");
        let such_as = "{type: object, properties: {version: {type: string}}}";
        let problem = if form.schema.is_null() {
            Some(format!("is required: a JSON Schema of the answer, an object such as {such_as}"))
        } else {
            self.schema_problem(&form.schema, such_as)
        };
        let is_within = problem.is_none() || self.trust == Trust::Stored;
        if let Some(problem) = problem {
            self.rule(&schema, || problem);
        }
        let (texts, errors) = Template::read(&FormSpec::texts_of(form), &[]);
        let is_read = errors.is_empty();
        for error in errors {
            self.refuse(&path.join(&error.field), || error.message);
        }
        (is_within && is_read).then(|| FormSpec { texts, schema: form.schema.clone() })
    }

    fn signal(&mut self, path: &FieldPath, signal: &str) {
        if !is_signal_name(signal) {
            self.rule(path, || {
                format!(
                    "`{}` is not a signal's name: it has 1 to {MAX_SIGNAL_CHARS} {ID_CHARS}{}",
                    shown(signal),
                    look_alikes(signal)
                )
            });
        }
    }

    /// Whether a tool can have this name.
    fn tool(&mut self, path: &FieldPath, tool: &str) -> bool {
        if tool.is_empty() {
            self.rule(path, || "is required: name the tool that the step calls".to_owned());
        } else if tool.chars().count() > MAX_TOOL_CHARS
            || tool.contains(|c: char| !belay_text::is_plain(c) || c.is_whitespace())
        {
            self.rule(path, || {
                format!(
                    "`{}` is not a tool's name: it has 1 to {MAX_TOOL_CHARS} characters and no spaces{}",
                    shown(tool),
                    look_alikes(tool)
                )
            });
        } else {
            return true;
        }
        false
    }

    fn verbatim(&mut self, path: &FieldPath, verbatim: &[String], arguments: &serde_json::Value) {
        let Some(arguments) = arguments.as_object() else { return };
        for (entry, name) in verbatim.iter().enumerate().filter(|(_, name)| !arguments.contains_key(name.as_str())) {
            self.rule(&path.index(entry), || {
                let near = nearest(name, arguments.keys().map(String::as_str));
                let did_you_mean = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
                format!("the step has no argument `{}`{did_you_mean}", shown(name))
            });
        }
    }

    /// The arguments as far as they can be read, and whether they are valid.
    fn arguments(&mut self, path: &FieldPath, arguments: &serde_json::Value, verbatim: &[String]) -> (Template, bool) {
        self.object(path, arguments, verbatim, "must be an object with the tool's arguments by name")
    }

    /// An object with templates as far as it can be read, and whether it is valid.
    fn object(
        &mut self,
        path: &FieldPath,
        arguments: &serde_json::Value,
        verbatim: &[String],
        what: &str,
    ) -> (Template, bool) {
        if !arguments.is_object() {
            self.refuse(path, || what.to_owned());
            return (Template::read(&serde_json::Value::Null, &[]).0, false);
        }
        let size = json_size(arguments);
        if size > MAX_ARGUMENT_BYTES {
            self.rule(path, || {
                format!("has {size} bytes as JSON and the limit is {MAX_ARGUMENT_BYTES}: put the content into a file and pass its path")
            });
        }
        let (template, errors) = Template::read(arguments, verbatim);
        let is_valid = errors.is_empty();
        for error in errors {
            self.refuse(&path.join(&error.field), || error.message);
        }
        (template, is_valid)
    }

    /// The step that an id names, unless it does not exist or is the step itself.
    fn dependency(
        &mut self,
        path: &FieldPath,
        position: usize,
        id: &str,
        steps: &[StepDraft],
        explain: &str,
    ) -> Option<usize> {
        if id.is_empty() {
            self.refuse(path, || "is empty: name a step by its id".to_owned());
            return None;
        }
        if id == steps[position].id {
            self.refuse(path, || format!("`{}` is the step itself, which cannot wait for its own result", shown(id)));
            return None;
        }
        let found = self.index.get(id).copied();
        if found.is_none() && self.places.groups.contains(id) {
            self.refuse(path, || {
                format!("`{}` is a group, which has no result of its own: name one of its steps", shown(id))
            });
        } else if found.is_none() {
            let suggestion = self.suggestion(id, steps);
            self.refuse(path, || format!("there is no step `{}`{suggestion} ({explain})", shown(id)));
        }
        found
    }

    pub(super) fn retry(&mut self, path: &FieldPath, retry: &RetryPolicy) {
        if !(1..=MAX_ATTEMPTS).contains(&retry.max_attempts) {
            self.rule(&path.key("max_attempts"), || format!("must be 1 to {MAX_ATTEMPTS}, not {}", retry.max_attempts));
        }
        if let RateLimit::Delays(delays) = &retry.rate_limit {
            let path = path.key("rate_limit");
            if delays.is_empty() || delays.len() > MAX_ATTEMPTS as usize {
                self.rule(&path, || format!("has {} delays: give 1 to {MAX_ATTEMPTS}, or `never`", delays.len()));
            } else {
                for (entry, delay) in delays.iter().enumerate() {
                    self.duration(&path.index(entry), Some(*delay));
                }
            }
        }
        self.backoff(&path.key("backoff"), &retry.backoff);
    }

    /// What follows when a step of this kind has failed.
    pub(super) fn on_error(&mut self, path: &FieldPath, on_error: &OnError, calls_tool: bool) {
        for (&class, &strategy) in on_error {
            let path = path.key(class.name());
            let word = strategy.word();
            if !strategy.is_for(class) {
                let classes: Vec<&str> = strategy.classes().collect();
                self.rule(&path, || format!("`{word}` can follow {}, not {}", classes.join(", "), class.name()));
            } else if strategy.is_for_calls() && !calls_tool {
                self.rule(&path, || {
                    format!("`{word}` is for steps that call a tool: remove it, or make it `compensate`")
                });
            }
        }
    }

    /// The delays between attempts.
    pub(super) fn backoff(&mut self, path: &FieldPath, backoff: &Backoff) {
        match backoff {
            Backoff::List(delays) => {
                if delays.len() > MAX_ATTEMPTS as usize {
                    self.rule(path, || {
                        format!("has {} delays, but there are at most {MAX_ATTEMPTS} attempts", delays.len())
                    });
                    return;
                }
                for (entry, delay) in delays.iter().enumerate() {
                    self.duration(&path.index(entry), Some(*delay));
                }
            }
            Backoff::Exponential { initial, factor, max } => {
                self.duration(&path.key("initial"), Some(*initial));
                self.duration(&path.key("max"), Some(*max));
                if !factor.is_finite() || *factor < 1.0 {
                    self.rule(&path.key("factor"), || format!("must be a number from 1, not {factor}"));
                }
                if max < initial {
                    self.rule(&path.key("max"), || "must not be shorter than `initial`".to_owned());
                }
            }
        }
    }

    /// Reports a cycle at the field where its first step names its second.
    pub(super) fn cycle(&mut self, cycle: &[usize], steps: &[StepDraft], parts: &[Part]) {
        let (first, second) = (cycle[0], cycle[1]);
        let path = step_path(first);
        let second_id = &steps[second].id;
        let listed = steps[first].depends_on.iter().position(|id| id == second_id);
        let path = match listed {
            Some(entry) => path.key("depends_on").index(entry),
            None => {
                let mut references = parts[first].references(&path).into_iter();
                let named = references.find(|(_, _, reference)| reference.step() == second_id);
                named.map_or(path, |(_, field, _)| field)
            }
        };
        self.refuse(&path, || format!("cyclic dependencies: {} (each step waits for the next)", named(cycle, steps)));
    }
}

/// Whether a signal can have this name.
pub fn is_signal_name(name: &str) -> bool {
    name.len() <= MAX_SIGNAL_CHARS
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Whether lists and objects are nested more than `levels` deep.
fn is_deeper(value: &serde_json::Value, levels: usize) -> bool {
    let mut below: Box<dyn Iterator<Item = &serde_json::Value>> = match value {
        serde_json::Value::Array(items) => Box::new(items.iter()),
        serde_json::Value::Object(members) => Box::new(members.values()),
        _ => return false,
    };
    levels == 0 || below.any(|value| is_deeper(value, levels - 1))
}

/// The maximum number of steps of a cycle that a message names.
const MAX_STEPS_NAMED: usize = 20;

/// `a → b → c → a`; the middle of a long cycle is counted, not named.
fn named(cycle: &[usize], steps: &[StepDraft]) -> String {
    let mut names: Vec<String> =
        cycle.iter().take(MAX_STEPS_NAMED).map(|&position| shown(&steps[position].id)).collect();
    if let Some(more @ 1..) = cycle.len().checked_sub(MAX_STEPS_NAMED) {
        names.push(format!("… {more} more …"));
    }
    names.push(shown(&steps[cycle[0]].id));
    names.join(" → ")
}

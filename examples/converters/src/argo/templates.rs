//! Templates that call others: `steps` and `dag`. Each call is a step; one of a template with tasks of its own carries out a plan.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    conditions,
    converter::Converter,
    leaf::{self, Captures, ONE_MACHINE},
    limits,
    parameters::{ARTIFACTS, captures, declared},
    values::{Task, Values},
};
use crate::{
    fields::{Field, Fields, Homeless, Refusal},
    plan::{After, Ids, Plan, RunWhen, Step, identifier},
    scope::Scope,
    text::Text,
};

/// The most calls of templates: a plan has so many steps, and templates that call each other could make millions.
const MAX_CALLS: usize = 10_000;

/// The deepest nesting of plans.
const MAX_PLANS: usize = 5;

const TEMPLATE_KEYS: [Homeless; 18] = [
    ("metadata", "a step has no metadata", "the plan's `labels` are those of its executions"),
    ("memoize", "results are not kept by a key", "`on_error: {TIMEOUT: use_cache}` uses an earlier result"),
    ("metrics", "the services export metrics of their own", ""),
    ("volumes", "commands see the workspace alone", "put files into the workspace"),
    ("sidecars", "no containers run beside a command", "start the server in the command that needs it"),
    ("initContainers", "no containers run before a command", "write a step before it"),
    ("daemon", "a command ends before the next step starts", "start the server in the command that needs it"),
    (
        "parallelism",
        "a template has no limit of its own",
        "write `resources` for its steps, or `parallelism` for the plan",
    ),
    ("nodeSelector", ONE_MACHINE, ""),
    ("affinity", ONE_MACHINE, ""),
    ("tolerations", ONE_MACHINE, ""),
    ("archiveLocation", "artifacts are results and files of the workspace", ""),
    ("serviceAccountName", "policies say what calls may do", ""),
    ("executor", "commands run in Belay's sandbox", ""),
    ("podSpecPatch", ONE_MACHINE, ""),
    ("securityContext", "the sandbox has no privileges", ""),
    ("failFast", "a template has no `fail_fast`", "write it on a step with a list, or `stop_on_error` on the plan"),
    ("timeout", "it counts from when a pod is wanted", "write the `timeout` of the step"),
];

const TASK_KEYS: [Homeless; 3] = [
    ("hooks", "a step has no hooks", "write a step that depends on it, with `run_when` or `on`"),
    ("onExit", "a step has no handler of its own", "write a step that depends on it with `run_when: always`"),
    ("templateRef", "it is in another document", "convert that too, and write `plan: FILE`"),
];

impl<'n> Converter<'_, 'n> {
    /// Converts a call of a template. `given` are its arguments.
    pub(super) fn call(
        &mut self,
        id: &str,
        template: &Field<'n>,
        given: &BTreeMap<String, Text>,
        captures: &Captures,
        values: &mut Values,
    ) -> Result<(Step, &'static str), Refusal> {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return Err(template
                .refused(format!("its calls make more than {MAX_CALLS} steps, the most of a plan: remove some")));
        }
        let mut fields = template.fields()?;
        let name = fields.take("name").and_then(|name| name.text()).unwrap_or_default();
        let is_composite = has(template, "steps") || has(template, "dag");
        if is_composite && (self.stack.contains(&name) || self.stack.len() + 1 >= MAX_PLANS) {
            let why = if self.stack.contains(&name) { "it calls itself" } else { "plans are nested five deep at most" };
            self.report.add(
                template,
                "recursion",
                format!("{why}: its step does nothing there"),
                "write `repeat` with `until`",
            );
            return Ok((Step::noop(id, Value::Null), "result"));
        }
        let declared = self.parameters(&mut fields, values)?;
        let mut arguments: BTreeMap<String, Text> = declared
            .into_iter()
            .filter_map(|(name, default)| Some((name.clone(), given.get(&name).cloned().or(default)?)))
            .collect();
        let is_form = has(template, "suspend") && has(template, "outputs");
        let mut step = if is_composite {
            self.stack.push(name.clone());
            let mut inner = Values { workflow: values.workflow.clone(), ..Values::default() };
            let mut plan = Plan { id: identifier(id, 64), ..Plan::default() };
            let mut handed = Map::new();
            let mut names = Ids::default();
            let is_entry = std::mem::take(&mut self.is_entry);
            if is_entry {
                // Its tasks are the steps of the whole plan, whose inputs they name.
                inner.parameters = std::mem::take(&mut arguments);
            }
            for (name, value) in &arguments {
                let input = names.unique(&identifier(name, 60));
                plan.inputs.insert(input.clone(), json!({}));
                handed.insert(input.clone(), json!(value.template()));
                inner.parameters.insert(name.clone(), Text::reference(format!("inputs.{input}")));
            }
            if !is_entry {
                inner.scope = Scope::inner(&plan.inputs.keys().map(String::as_str).collect::<Vec<_>>());
            }
            limits::synchronization(&mut fields, &mut plan, &mut inner, self.report)?;
            let outer_width = std::mem::replace(&mut self.width, 1);
            self.tasks(&mut fields, template, &mut plan, &mut inner)?;
            plan.set_parallelism(self.width);
            self.width = outer_width;
            self.stack.pop();
            handed.append(&mut inner.scope.hand_over(&mut plan, &mut values.scope));
            let mut step = Step::with_plan(id, plan);
            step.inputs = handed;
            step
        } else {
            let outer = std::mem::replace(&mut values.parameters, arguments);
            let step = leaf::convert(id, &mut fields, captures, values, self.report);
            values.parameters = outer;
            self.leaf_outputs(&mut fields)?;
            step?
        };
        self.limits(&mut step, &mut fields);
        fields.leave_rest(self.report, &TEMPLATE_KEYS);
        Ok((step, if is_form { "result" } else { "outputs" }))
    }

    /// Converts the tasks of a template into steps of a plan.
    pub(super) fn tasks(
        &mut self,
        fields: &mut Fields<'n>,
        template: &Field<'n>,
        plan: &mut Plan,
        values: &mut Values,
    ) -> Result<(), Refusal> {
        let source = template.node.to_json().to_string();
        let mut ids = Ids::default();
        if let Some(stages) = fields.take("steps") {
            let mut after: Vec<After> = Vec::new();
            for stage in stages.items() {
                let mut next = Vec::new();
                let tasks = stage.items();
                self.width = self.width.max(tasks.len());
                for task in &tasks {
                    let (mut step, end) = self.task(task, &source, &mut ids, values)?;
                    After::apply(&after, &mut step);
                    next.push(end);
                    plan.steps.push(step);
                }
                // Those of one stage do not name each other, so that all are known from here on.
                if !next.is_empty() {
                    after = next;
                }
            }
        }
        if let Some(dag) = fields.take("dag") {
            let mut dag_fields = dag.fields()?;
            let tasks = dag_fields.need("tasks")?.items();
            self.width = self.width.max(tasks.len().min(16));
            dag_fields.leave_rest(
                self.report,
                &[
                    (
                        "failFast",
                        "other tasks continue after a failure",
                        "write `stop_on_error: true` in the plan to stop",
                    ),
                    ("target", "all tasks run", "remove the others"),
                ],
            );
            self.dag(&dag, &tasks, &source, &mut ids, plan, values)?;
        }
        if plan.steps.is_empty() {
            plan.steps.push(Step::noop(ids.unique("nothing"), Value::Null));
        }
        if let Some(outputs) = fields.take("outputs") {
            self.plan_outputs(&outputs, plan, values)?;
        }
        Ok(())
    }

    fn dag(
        &mut self,
        dag: &Field<'n>,
        tasks: &[Field<'n>],
        source: &str,
        ids: &mut Ids,
        plan: &mut Plan,
        values: &mut Values,
    ) -> Result<(), Refusal> {
        // A task may stand before those that it depends on.
        let mut left: Vec<&Field<'n>> = tasks.iter().collect();
        let mut ends: BTreeMap<String, After> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for task in tasks {
            names.insert(task.fields()?.need("name")?.needed_text()?);
        }
        while !left.is_empty() {
            let mut is_ready =
                |task: &&Field<'n>| needed(task).iter().all(|need| ends.contains_key(need) || !names.contains(need));
            let Some(at) = left.iter().position(&mut is_ready) else {
                let circle: Vec<String> =
                    left.iter().filter_map(|task| task.fields().ok()?.take("name")?.text()).collect();
                return Err(dag.refused(format!(
                    "these tasks depend on each other in a circle: {}; remove one of the dependencies",
                    circle.join(", ")
                )));
            };
            let task = left.remove(at);
            let name = task.fields()?.need("name")?.needed_text()?;
            let (mut step, end) = self.task(task, source, ids, values)?;
            let mut fields = task.fields()?;
            if let Some(depends) = fields.take("depends") {
                let text = depends.text().unwrap_or_default();
                let condition = step.condition.take();
                if !conditions::depends(&text, &ends, &mut step) {
                    self.report.add(
                        &depends,
                        "depends",
                        format!("`{text}` cannot be said in a plan: it waits for the tasks to complete"),
                        "write `depends_on` with outcomes, or a `condition`",
                    );
                    needed(task).iter().filter_map(|need| ends.get(need)).for_each(|end| step.add_dependency(&end.id));
                }
                step.condition = match (step.condition, condition) {
                    (Some(one), Some(other)) => Some(format!("({one}) && ({other})")),
                    (one, other) => one.or(other),
                };
            } else if let Some(dependencies) = fields.take("dependencies") {
                let mut after = Vec::new();
                for dependency in dependencies.items() {
                    let name = dependency.needed_text()?;
                    after.push(
                        ends.get(&name).cloned().ok_or_else(|| {
                            dependency.refused(format!("there is no task `{name}`: correct the name"))
                        })?,
                    );
                }
                After::apply(&after, &mut step);
            }
            // It may have been skipped with those that it follows.
            let follows_skipped = step.run_when == Some(RunWhen::NoneFailed);
            ends.insert(name, After { may_be_skipped: end.may_be_skipped || follows_skipped, ..end });
            plan.steps.push(step);
        }
        Ok(())
    }

    /// Converts one task: its step, and what follows its end means.
    fn task(
        &mut self,
        task: &Field<'n>,
        source: &str,
        ids: &mut Ids,
        values: &mut Values,
    ) -> Result<(Step, After), Refusal> {
        let mut fields = task.fields()?;
        let name = fields.need("name")?.needed_text()?;
        let id = ids.unique(&name);
        let list = self.list(&mut fields, values)?;
        let when = fields.take("when");
        let (list, when) = match (list, when) {
            // Entries that are known are left out here, since a step asks its condition once for all.
            (Some(Value::Array(entries)), Some(when)) if when.text().is_some_and(|text| text.contains("item")) => {
                let text = when.text().unwrap_or_default();
                let chosen: Option<Vec<Value>> = entries
                    .iter()
                    .filter_map(|entry| match conditions::constant(&text, entry) {
                        Some(true) => Some(Some(entry.clone())),
                        Some(false) => None,
                        None => Some(None),
                    })
                    .collect();
                match chosen {
                    Some(chosen) => (Some(json!(chosen)), None),
                    None => (Some(Value::Array(entries)), Some(when)),
                }
            }
            other => other,
        };
        values.item = list.is_some().then_some("item.value");
        let (mut given, mut places) = (BTreeMap::new(), Vec::new());
        if let Some(arguments) = fields.take("arguments") {
            let mut arguments = arguments.fields()?;
            for parameter in arguments.take("parameters").map(|all| all.items()).unwrap_or_default() {
                let mut parameter_fields = parameter.fields()?;
                let name = parameter_fields.need("name")?.needed_text()?;
                places.push((name.clone(), parameter.clone()));
                if let Some(value) = parameter_fields.take("value") {
                    let text = value.text().unwrap_or_else(|| value.node.to_json().to_string());
                    given.insert(name, values.text(&text, &value, self.report));
                }
                parameter_fields
                    .leave_rest(self.report, &[("valueFrom", "the value comes from Kubernetes", "write the value")]);
            }
            arguments.leave_rest(self.report, &[("artifacts", ARTIFACTS.0, ARTIFACTS.1)]);
        }
        let (template, inline) = (fields.take("template"), fields.take("inline"));
        let (mut step, outputs) = match (&template, inline) {
            (None, Some(inline)) => self.call(&id, &inline, &given, &captures(&name, source, &inline)?, values)?,
            (Some(template), _) => {
                let called = template.needed_text()?;
                let found = self.templates.get(&called).cloned();
                let found = found
                    .ok_or_else(|| template.refused(format!("there is no template `{called}`: correct the name")))?;
                self.called.insert(called);
                let declared = declared(&found)?;
                for (name, place) in places.iter().filter(|(name, _)| !declared.contains(name)) {
                    self.report.add(
                        place,
                        "argument",
                        format!("the template declares no parameter `{name}`"),
                        "declare it, or remove the argument",
                    );
                }
                self.call(&id, &found, &given, &captures(&name, source, &found)?, values)?
            }
            (None, None) => (Step::noop(&id, Value::Null), "result"),
        };
        let is_loop = list.is_some();
        step.for_each = list;
        values.item = None;
        values.tasks.insert(name, Task { id: id.clone(), outputs: (!is_loop).then_some(outputs) });
        if let Some(when) = &when {
            let text = when.text().unwrap_or_default();
            step.condition =
                Some(conditions::when(&text, values).unwrap_or_else(|| self.switch(&id, &text, when, values)));
        }
        let mut may_fail = false;
        if let Some(continue_on) = fields.take("continueOn") {
            let mut continue_fields = continue_on.fields()?;
            may_fail = ["failed", "error"]
                .iter()
                .filter_map(|key| continue_fields.take(key))
                .any(|field| field.boolean() == Some(true));
            continue_fields.leave_rest(self.report, &[]);
        }
        ["depends", "dependencies"].iter().for_each(|key| drop(fields.take(key)));
        fields.leave_rest(self.report, &TASK_KEYS);
        Ok((step, After { id, may_be_skipped: when.is_some(), may_fail }))
    }

    /// A condition that a plan cannot say becomes an input.
    fn switch(&mut self, id: &str, text: &str, when: &Field<'_>, values: &mut Values) -> String {
        let name = format!("if_{}", identifier(id, 60));
        self.inputs.insert(name.clone(), json!({"description": format!("whether this holds: {text}"), "schema": {"type": "boolean"}, "default": false}));
        self.report.add(
            when,
            "when",
            format!("`{text}` cannot be asked in a plan: it is the input `{name}`, which is false by default"),
            format!("start with `--input {name}=true` when it holds"),
        );
        format!("${{{}}}", values.scope.import(&format!("inputs.{name}")))
    }
}

fn has(template: &Field<'_>, key: &str) -> bool {
    template.members().iter().any(|(name, _)| name == key)
}

/// The tasks that a task depends on.
fn needed(task: &Field<'_>) -> Vec<String> {
    let Ok(mut fields) = task.fields() else { return Vec::new() };
    let depends = fields.take("depends").and_then(|depends| depends.text()).unwrap_or_default();
    let words = depends
        .split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_' || c == '.'))
        .filter(|word| !word.is_empty());
    let mut needed: Vec<String> = words.map(|word| word.split('.').next().unwrap_or(word).to_owned()).collect();
    needed
        .extend(fields.take("dependencies").map(|all| all.items()).unwrap_or_default().iter().filter_map(Field::text));
    needed
}

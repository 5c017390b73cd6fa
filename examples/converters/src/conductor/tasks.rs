//! Tasks of a workflow, one after the other.

use serde_json::{Map, Value, json};

use super::{limits, loops, references::References, waits};
use crate::{
    fields::{Field, Fields, Homeless, Refusal},
    left_out::Report,
    plan::{After, Dependency, Ids, Plan, RunWhen, Step, cel_text, duration, identifier},
    scope::Scope,
};

/// Kinds of tasks that a plan does not have: what each is, and what takes its place.
const HOMELESS: [(&str, &str, &str); 14] = [
    ("SIMPLE", "a worker does it", "declare a tool for it in the settings, and name it instead of `noop`"),
    ("HTTP", "its tool needs a network", "declare a tool with a `network` that reaches the server"),
    (
        "HTTP_POLL",
        "its tool needs a network",
        "declare a tool with a `network` that asks the server, and write `repeat` with `until`",
    ),
    ("INLINE", "a plan evaluates no script", "run it: `command: [node, -e, …]`"),
    ("LAMBDA", "a plan evaluates no script", "run it: `command: [node, -e, …]`"),
    ("JSON_JQ_TRANSFORM", "a plan evaluates no jq", "run it: `command: [jq, …]`"),
    ("EVENT", "a plan sends no messages", "webhooks tell others what happens"),
    ("KAFKA_PUBLISH", "a plan sends no messages", "declare a tool that does"),
    ("DYNAMIC", "a plan does not choose its tool while it runs", "write a step for each tool, with a `condition`"),
    (
        "FORK_JOIN_DYNAMIC",
        "entries of a list run the same call",
        "write `for_each` with the list, where all tasks are of one kind",
    ),
    (
        "START_WORKFLOW",
        "a plan starts no execution that it does not wait for",
        "write `plan: FILE` for one that it waits for",
    ),
    ("TERMINATE", "no step ends the whole execution successfully", "give the steps that follow a `condition`"),
    ("GET_WORKFLOW", "a plan reads no other execution", "hand the value over as an input"),
    ("LLM_CHAT_COMPLETE", "no step is carried out by a model", "declare a tool that asks one"),
];

const NO_LIMIT: &str = "limits over executions are those of a plan";
const LIMITED_PLAN: &str = "give the step a `plan` of its own, and in that `limits: [{key: …, at_once: …}]`";
const RATED_PLAN: &str =
    "give the step a `plan` of its own, and in that `limits: [{key: …, rate: {starts: …, window: …}}]`";

const TASK_KEYS: [Homeless; 9] = [
    ("asyncComplete", "a call ends by itself", "write a `wait` with a `signal` after it"),
    ("startDelay", "a step has no delay of its own", "write a step with `wait: {for: …}` before it"),
    ("rateLimited", NO_LIMIT, LIMITED_PLAN),
    ("cacheConfig", "results are not kept by a key", "`on_error: {TIMEOUT: use_cache}` uses an earlier result"),
    ("onStateChange", "the operator says who is told", "webhooks in the settings"),
    (
        "permissive",
        "a failure always counts",
        "give those that follow outcomes: `depends_on: [{step: …, on: [success, failure]}]`",
    ),
    ("defaultExclusiveJoinTask", "what follows runs when none of the branches has failed", ""),
    ("scriptExpression", "a plan evaluates no script", ""),
    ("joinOn", "it joins all branches", ""),
];

const DEFINITION_KEYS: [Homeless; 8] = [
    ("name", "the step has an id", ""),
    ("description", "the step has a title", ""),
    ("timeoutPolicy", "a step fails when its time limit is over", "`run_when` and `on` say what follows"),
    ("pollTimeoutSeconds", "no worker asks for the step", ""),
    ("rateLimitPerFrequency", NO_LIMIT, RATED_PLAN),
    ("rateLimitFrequencyInSeconds", NO_LIMIT, RATED_PLAN),
    ("concurrentExecLimit", NO_LIMIT, LIMITED_PLAN),
    ("backoffScaleFactor", "delays double or stay the same", "write `factor` of the `backoff`"),
];

/// Keys that are about what is converted elsewhere, or say what is so anyway.
const QUIET: [&str; 3] = ["name", "taskReferenceName", "type"];

/// Keys of a workflow without a place in plans.
pub(super) const KEYS: [Homeless; 12] = [
    ("version", "a plan has no version: each execution keeps the plan that it was started with", ""),
    ("schemaVersion", "it is the version of Conductor's format", ""),
    ("ownerEmail", "a plan has no owner", "the principal that starts an execution is recorded with it"),
    ("ownerApp", "a plan has no owner", "the principal that starts an execution is recorded with it"),
    ("createdBy", "the principal that starts an execution is recorded with it", ""),
    ("createTime", "a plan does not know when it was written", ""),
    ("updateTime", "a plan does not know when it was written", ""),
    ("restartable", "what has failed can always run again", "`belay executions retry`"),
    ("timeoutPolicy", "an execution ends when its time limit is over", ""),
    ("workflowStatusListenerEnabled", "the operator says who is told", "webhooks in the settings"),
    ("schedule", "a plan does not say when it is started", "`belay schedules create`"),
    ("enforceSchema", "the inputs of a plan are always checked", "give them a `schema`"),
];

/// The keys that every workflow has, also one within another.
pub(super) const READ: [&str; 8] = [
    "tasks",
    "description",
    "inputParameters",
    "inputTemplate",
    "outputParameters",
    "timeoutSeconds",
    "variables",
    "rateLimitConfig",
];

/// The state of a conversion: what is known so far of one plan.
pub(super) struct Converter<'c> {
    pub(super) references: &'c mut References,
    pub(super) ids: &'c mut Ids,
    pub(super) report: &'c mut Report,
    /// How many steps run side by side.
    pub(super) width: usize,
    /// Whether a switch came before, so that steps may have been skipped.
    pub(super) has_branches: bool,
}

impl Converter<'_> {
    /// Converts a list of tasks that follow each other and `after`. Returns the steps, and those after which the list has ended.
    pub(super) fn list(
        &mut self,
        tasks: &Field<'_>,
        mut after: Vec<After>,
    ) -> Result<(Vec<Step>, Vec<After>), Refusal> {
        let mut steps = Vec::new();
        for task in tasks.items() {
            (steps, after) = self.task(&task, steps, after)?;
        }
        Ok((steps, after))
    }

    fn task(
        &mut self,
        task: &Field<'_>,
        mut steps: Vec<Step>,
        after: Vec<After>,
    ) -> Result<(Vec<Step>, Vec<After>), Refusal> {
        let mut fields = task.fields()?;
        let name = fields.need("taskReferenceName")?.needed_text()?;
        let kind = fields.take("type").and_then(|kind| kind.text()).unwrap_or_else(|| "SIMPLE".to_owned());
        let title = fields.take("name").and_then(|title| title.text()).filter(|title| *title != name);
        let id = self.ids.unique(&name);
        let optional = fields.take("optional").and_then(|optional| optional.boolean()).unwrap_or(false);
        let mut own = match kind.as_str() {
            "FORK_JOIN" | "FORK" => return self.fork(fields, steps, &after),
            "SWITCH" | "DECISION" => return self.switch(&id, &kind, fields, steps, after),
            "JOIN" | "EXCLUSIVE_JOIN" => self.join(&id, &mut fields),
            "DO_WHILE" => self.repeat(&id, &mut fields)?,
            "SUB_WORKFLOW" => self.sub_workflow(&id, &mut fields)?,
            "WAIT" | "HUMAN" => self.wait(&id, &kind, &name, &mut fields),
            _ => self.call(&id, &kind, task, &mut fields),
        };
        self.references.add_task(&name, &own.id);
        let end = After { may_be_skipped: false, may_fail: optional, id: own.id.clone() };
        if let Some(title) = title {
            own.title = title;
        }
        if let Some(description) = fields.take("description").and_then(|text| text.text())
            && own.title.is_empty()
        {
            own.title = description;
        }
        self.retries(&mut own, &mut fields);
        QUIET.iter().for_each(|key| drop(fields.take(key)));
        fields.drop_empty();
        fields.leave_rest(self.report, &TASK_KEYS);
        // A join names what it waits for itself.
        if own.depends_on.is_empty() {
            After::apply(&after, &mut own);
        }
        // It may read a task of a branch that was skipped.
        if self.has_branches
            && own.run_when.is_none()
            && own.depends_on.iter().all(|dependency| matches!(dependency, Dependency::Step(_)))
        {
            own.run_when = (!own.depends_on.is_empty()).then_some(RunWhen::NoneFailed);
        }
        steps.push(own);
        Ok((steps, vec![end]))
    }

    /// Reports the parameters of a task that the plan does not use.
    fn leave_parameters(&mut self, parameters: Option<&Field<'_>>, used: &[&str], why: &str) {
        for (name, field) in parameters.map(Field::members).unwrap_or_default() {
            if !used.contains(&name.as_str()) {
                self.report.add(&field, "parameter", format!("`{name}`: {why}"), "");
            }
        }
    }

    /// A task that a tool does, or that nothing does.
    fn call(&mut self, id: &str, kind: &str, task: &Field<'_>, fields: &mut Fields<'_>) -> Step {
        let given = fields.take("inputParameters");
        let parameters = given.as_ref().map(|given| self.references.value(given, self.report));
        let parameters = parameters.filter(|value| value.as_object().is_some_and(|members| !members.is_empty()));
        match kind {
            "SET_VARIABLE" => {
                for name in parameters.iter().filter_map(Value::as_object).flat_map(Map::keys) {
                    self.references.add_setter(name, id);
                }
            }
            "NOOP" => {}
            "TERMINATE"
                if parameters.as_ref().and_then(|all| all.get("terminationStatus")) == Some(&json!("FAILED")) =>
            {
                let reason = parameters
                    .as_ref()
                    .and_then(|all| all.get("terminationReason"))
                    .cloned()
                    .unwrap_or(json!("terminated"));
                self.leave_parameters(
                    given.as_ref(),
                    &["terminationStatus", "terminationReason"],
                    "a failure has a message alone",
                );
                let mut step = Step::noop(id, Value::Null);
                step.arguments.insert("fail".to_owned(), reason);
                return step;
            }
            _ => {
                let other =
                    ("", "a plan has no such task", "declare a tool that does it, and name it instead of `noop`");
                let (_, why, instead) = HOMELESS.iter().find(|(known, ..)| *known == kind).unwrap_or(&other);
                self.report.add(
                    task,
                    format!("task {kind}"),
                    format!("{why}: `{id}` returns its parameters"),
                    *instead,
                );
            }
        }
        Step::noop(id, parameters.unwrap_or(Value::Null))
    }

    fn retries(&mut self, step: &mut Step, fields: &mut Fields<'_>) {
        let mut definition =
            fields.take("taskDefinition").filter(Field::is_mapping).and_then(|definition| definition.fields().ok());
        let own = fields.take("retryCount");
        let mut take = |key: &str| definition.as_mut().and_then(|definition| definition.take(key));
        let (count, delay, logic) = (own.or_else(|| take("retryCount")), take("retryDelaySeconds"), take("retryLogic"));
        let limit = take("timeoutSeconds").or_else(|| take("responseTimeoutSeconds"));
        if let Some(count) = count.and_then(|count| count.number()).filter(|count| (1.0..100.0).contains(count)) {
            let first = delay.and_then(|delay| delay.number()).and_then(duration).unwrap_or_else(|| "1s".to_owned());
            let grows = logic.and_then(|logic| logic.text()).is_some_and(|logic| logic != "FIXED");
            let factor = if grows { 2 } else { 1 };
            #[expect(clippy::cast_possible_truncation, reason = "below 100")]
            let attempts = count as i64 + 1;
            step.retry =
                Some(json!({"max_attempts": attempts, "backoff": {"initial": first, "factor": factor, "max": "1h"}}));
        }
        step.timeout = limit.and_then(|limit| limit.number()).filter(|seconds| *seconds > 0.0).and_then(duration);
        if let Some(mut definition) = definition {
            definition.drop_empty();
            definition.leave_rest(self.report, &DEFINITION_KEYS);
        }
    }

    fn fork(
        &mut self,
        mut fields: Fields<'_>,
        mut steps: Vec<Step>,
        after: &[After],
    ) -> Result<(Vec<Step>, Vec<After>), Refusal> {
        let mut ends = Vec::new();
        let branches = fields.need("forkTasks")?;
        self.width = self.width.max(branches.items().len());
        for branch in branches.items() {
            let (branch_steps, branch_ends) = self.list(&branch, after.to_vec())?;
            steps.extend(branch_steps);
            // A branch without tasks has ended when what comes before the fork has.
            branch_ends
                .into_iter()
                .filter(|end| !ends.contains(end))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|end| ends.push(end));
        }
        ["inputParameters", "joinOn", "description"].iter().for_each(|key| drop(fields.take(key)));
        fields.drop_empty();
        fields.leave_rest(self.report, &TASK_KEYS);
        Ok((steps, if ends.is_empty() { after.to_vec() } else { ends }))
    }

    /// A join: its result has those of the tasks that it waits for, by their names.
    fn join(&mut self, id: &str, fields: &mut Fields<'_>) -> Step {
        let mut output = Map::new();
        for joined in fields.take("joinOn").map(|names| names.items()).unwrap_or_default() {
            let Some(name) = joined.text() else { continue };
            match self.references.task(&name) {
                Some(step) => drop(output.insert(name.clone(), json!(format!("${{{step}.result ?? null}}")))),
                None => {
                    self.report.add(&joined, "joinOn", format!("`{name}` is no task before it"), "correct the name")
                }
            }
        }
        if let Some(parameters) = fields.take("inputParameters").filter(|parameters| !parameters.members().is_empty()) {
            self.report.add(&parameters, "inputParameters of a join", "a join reads nothing", "");
        }
        Step::noop(id, if output.is_empty() { Value::Null } else { Value::Object(output) })
    }

    fn switch(
        &mut self,
        id: &str,
        kind: &str,
        mut fields: Fields<'_>,
        mut steps: Vec<Step>,
        after: Vec<After>,
    ) -> Result<(Vec<Step>, Vec<After>), Refusal> {
        self.has_branches = true;
        let value = self.switch_value(id, kind, &mut fields);
        let cases = fields.take("decisionCases").map(|cases| cases.members()).unwrap_or_default();
        let names: Vec<String> = cases.iter().map(|(name, _)| cel_text(name)).collect();
        let mut branches: Vec<(String, String, Field<'_>)> = Vec::new();
        for (name, case) in cases {
            branches.push((format!("{id}-{name}"), format!("{value} == {}", cel_text(&name)), case));
        }
        if let Some(default) = fields.take("defaultCase") {
            let condition =
                if names.is_empty() { "true".to_owned() } else { format!("!({value} in [{}])", names.join(", ")) };
            branches.push((format!("{id}-default"), condition, default));
        }
        let mut ends = Vec::new();
        for (wanted, condition, tasks) in branches {
            let (branch, branch_ends) = self.list(&tasks, Vec::new())?;
            if branch.is_empty() {
                continue;
            }
            let mut group =
                Step { id: self.ids.unique(&wanted), condition: Some(condition), steps: branch, ..Step::default() };
            After::apply(&after, &mut group);
            // What comes after the switch runs although the branch was skipped.
            ends.extend(branch_ends.into_iter().map(|end| After { may_be_skipped: true, ..end }));
            steps.push(group);
        }
        ["description", "evaluatorType", "expression", "caseExpression"].iter().for_each(|key| drop(fields.take(key)));
        fields.drop_empty();
        fields.leave_rest(self.report, &TASK_KEYS);
        Ok((steps, if ends.is_empty() { after } else { ends }))
    }

    /// The value that chooses the branch, in CEL. What a script chooses is an input.
    fn switch_value(&mut self, id: &str, kind: &str, fields: &mut Fields<'_>) -> String {
        let parameters = fields.take("inputParameters");
        let evaluator = fields.take("evaluatorType").and_then(|evaluator| evaluator.text());
        let why = "only a script reads it";
        let by_name = fields.take("caseValueParam").or_else(|| {
            let expression = if kind == "SWITCH" { fields.take("expression") } else { None };
            expression.filter(|_| evaluator.as_deref().is_none_or(|evaluator| evaluator == "value-param"))
        });
        let parameter = by_name.as_ref().and_then(Field::text).and_then(|name| {
            let members = parameters.as_ref().map(Field::members).unwrap_or_default();
            members.into_iter().find(|(member, _)| *member == name).map(|(_, field)| field)
        });
        let used = by_name.as_ref().and_then(Field::text).unwrap_or_default();
        self.leave_parameters(parameters.as_ref(), &[&used], why);
        if let Some(parameter) = parameter {
            let text = self.references.text(&parameter.text().unwrap_or_default(), &parameter, self.report);
            if let Some(reference) = text.single_reference() {
                return format!("string(${{{}}})", reference.replace(" ?? null", " ?? \"\""));
            }
            if let Some(constant) = text.constant() {
                return cel_text(constant);
            }
        }
        let name = format!("case_{}", identifier(id, 50));
        self.report.add(
            &fields.all,
            format!("{kind} by a script"),
            format!("a plan evaluates no script: the input `{name}` chooses the branch"),
            format!("start with `--input {name}=CASE`, or let a step compute it"),
        );
        let reference = self.references.reference(&format!("workflow.input.{name}")).unwrap_or_default();
        format!("string(${{{}}})", reference.replace(" ?? null", " ?? \"\""))
    }

    /// A loop: each round is an execution of its tasks.
    fn repeat(&mut self, id: &str, fields: &mut Fields<'_>) -> Result<Step, Refusal> {
        let given = fields.take("inputParameters");
        let parameters = given.as_ref().map(Field::members).unwrap_or_default();
        let number = |name: &str| {
            let parameter = parameters.iter().find(|(member, _)| member == name)?;
            parameter.1.text()?.parse().ok()
        };
        let tasks = fields.need("loopOver")?;
        let mut inner = self.references.inner(&["round"]);
        let (mut ids, mut width) = (Ids::default(), 1);
        let mut converter =
            Converter { references: &mut inner, ids: &mut ids, report: self.report, width, has_branches: false };
        let (steps, _) = converter.list(&tasks, Vec::new())?;
        width = converter.width;
        let mut plan = Plan { id: identifier(id, 64), steps, ..Plan::default() };
        if plan.steps.is_empty() {
            plan.steps.push(Step::noop("nothing", Value::Null));
        }
        plan.set_parallelism(width);
        self.references.add_inputs(&inner);
        let mut values = inner.scope.hand_over(&mut plan, &mut self.references.scope);
        plan.inputs.insert("round".to_owned(), json!({}));
        values.insert("round".to_owned(), json!("${item.value.round}"));
        plan.outputs.insert("round".to_owned(), json!("${inputs.round}"));
        let mut step = Step::with_plan(id, plan);
        step.inputs = values;
        let condition = fields.take("loopCondition");
        let rounds = condition.as_ref().and_then(Field::text).and_then(|text| loops::rounds(&text, number));
        let max = rounds.filter(|rounds| (1..=1000).contains(rounds));
        if max.is_none()
            && let Some(condition) = &condition
        {
            self.report.add(
                condition,
                "loopCondition",
                "a plan evaluates no script: the tasks run once",
                "write the condition as `repeat.until`, and how often at most as `max`",
            );
        }
        // The number of rounds is one of them, if anything is.
        let text = condition.as_ref().and_then(Field::text).unwrap_or_default();
        let used: Vec<&str> = parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| max.is_some() && text.contains(&format!("$.{name}")))
            .collect();
        self.leave_parameters(given.as_ref(), &used, "only a script reads it");
        let max = max.unwrap_or(1);
        step.repeat = Some(json!({"until": format!("${{{id}.result.round}} >= {max}"), "max": max}));
        Ok(step)
    }

    fn sub_workflow(&mut self, id: &str, fields: &mut Fields<'_>) -> Result<Step, Refusal> {
        let given = fields.take("inputParameters");
        let parameters = given.as_ref().map(|given| self.references.value(given, self.report));
        let parameter = fields.need("subWorkflowParam")?;
        let mut named = parameter.fields()?;
        let Some(definition) = named.take("workflowDefinition").filter(Field::is_mapping) else {
            let name = named.take("name").and_then(|name| name.text()).unwrap_or_default();
            let instead = "convert it too, and write `plan: FILE` and `inputs` instead of the `noop`";
            self.report.add(
                &parameter,
                "SUB_WORKFLOW by name",
                format!("`{name}` is another definition: `{id}` returns its parameters"),
                instead,
            );
            named.leave_rest(
                self.report,
                &[
                    ("version", "files have no version", "name the file"),
                    ("taskToDomain", "there are no domains of workers", ""),
                ],
            );
            return Ok(Step::noop(id, parameters.unwrap_or(Value::Null)));
        };
        // A workflow of its own: it reads its own inputs and nothing else.
        let mut inner = References::new(Scope::default());
        let plan = plan(&definition, &format!("{id}-plan"), &mut inner, &mut Ids::default(), self.report)?;
        leave_rest(&definition, self.report)?;
        let known: Vec<String> = plan.inputs.keys().cloned().collect();
        let mut step = Step::with_plan(id, plan);
        if let Some(Value::Object(values)) = parameters {
            step.inputs = values.into_iter().filter(|(name, _)| known.contains(name)).collect();
        }
        self.leave_parameters(
            given.as_ref(),
            &known.iter().map(String::as_str).collect::<Vec<_>>(),
            "the workflow declares and reads no such input",
        );
        named.leave_rest(
            self.report,
            &[("name", "the plan has the name of its step", ""), ("version", "files have no version", "")],
        );
        Ok(step)
    }

    fn wait(&mut self, id: &str, kind: &str, name: &str, fields: &mut Fields<'_>) -> Step {
        let field = fields.take("inputParameters");
        let parameters = field.as_ref().map(|field| field.node.to_json());
        let mut step = Step { id: id.to_owned(), ..Step::default() };
        if kind == "HUMAN" {
            step.wait = Some(
                json!({"form": {"title": identifier(name, 200).replace(['-', '_'], " "), "schema": {"type": "object"}}}),
            );
            if let Some(field) = field.filter(|field| !field.members().is_empty()) {
                self.report.add(
                    &field,
                    "form of a HUMAN task",
                    "the form has other words in a plan",
                    "write `title`, `description` and `schema` of the form",
                );
            }
            return step;
        }
        self.leave_parameters(field.as_ref(), &["duration", "until"], "a wait has no other parameters");
        step.wait = Some(waits::wait(parameters.as_ref(), name).unwrap_or_else(|written| {
            if let Some(field) = &field {
                self.report.add(
                    field,
                    "WAIT",
                    format!("`{written}` is no time that is known when the plan is written: it waits for a signal"),
                    format!("`belay executions signal ID {name}`"),
                );
            }
            json!({"signal": name})
        }));
        step
    }
}

/// Reports what a workflow within another one says of itself.
fn leave_rest(workflow: &Field<'_>, report: &mut Report) -> Result<(), Refusal> {
    let mut fields = workflow.fields()?;
    READ.iter().chain(&["name"]).for_each(|key| drop(fields.take(key)));
    fields.drop_empty();
    if let Some(failure) = fields.take("failureWorkflow") {
        report.add(
            &failure,
            "failureWorkflow",
            "the plan of a step has no other one for its failure",
            "write a step with `run_when: failure`",
        );
    }
    fields.leave_rest(report, &KEYS);
    Ok(())
}

/// Converts the parts that a workflow has wherever it is defined.
pub(super) fn plan(
    workflow: &Field<'_>,
    name: &str,
    references: &mut References,
    ids: &mut Ids,
    report: &mut Report,
) -> Result<Plan, Refusal> {
    let mut fields = workflow.fields()?;
    let mut plan = Plan { id: identifier(name, 64), ..Plan::default() };
    plan.description = fields.take("description").and_then(|text| text.text()).unwrap_or_default();
    for name in fields.take("inputParameters").map(|names| names.items()).unwrap_or_default() {
        plan.inputs.insert(identifier(&name.needed_text()?, 64), json!({}));
    }
    for (name, default) in fields.take("inputTemplate").map(|defaults| defaults.members()).unwrap_or_default() {
        plan.inputs.insert(identifier(&name, 64), json!({"default": default.node.to_json()}));
    }
    for (name, value) in fields.take("variables").map(|variables| variables.members()).unwrap_or_default() {
        references.set_variable_default(&name, &value);
    }
    if let Some(limit) = fields.take("timeoutSeconds") {
        // 0 is no limit.
        plan.timeout = limit.number().filter(|seconds| *seconds > 0.0).and_then(duration);
    }
    if let Some(config) = fields.take("rateLimitConfig") {
        plan.limits.extend(limits::limit(&config, &plan.inputs, references, report)?);
    }
    let mut converter = Converter { references, ids, report, width: 1, has_branches: false };
    let (steps, _) = converter.list(&fields.need("tasks")?, Vec::new())?;
    let width = converter.width;
    plan.steps = steps;
    if plan.steps.is_empty() {
        plan.steps.push(Step::noop(ids.unique("nothing"), Value::Null));
    }
    plan.set_parallelism(width);
    if let Some(outputs) = fields.take("outputParameters") {
        for (name, value) in outputs.members() {
            let template = references.value(&value, report);
            // An output of a plan is anything but null.
            let template = if template.is_null() { json!("") } else { template };
            plan.outputs.insert(identifier(&name, 64), template);
        }
    }
    // Whatever the tasks read of the input is an input.
    for name in references.inputs() {
        plan.inputs.entry(name).or_insert_with(|| json!({"default": null}));
    }
    Ok(plan)
}

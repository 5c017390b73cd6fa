//! Checks a draft and makes a plan of it. The caller passes the checks that need the tool catalogue. Nothing is quadratic in the size of the plan.

mod graph;
mod limit;
mod outputs;
mod step;

pub use step::is_signal_name;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    Budget, CallDraft, Escalation, Input, InvalidPlan, OnError, Plan, PlanDraft, PlanPart, PlannedStep, RetryPolicy,
    StepDraft, StepKindDraft, StepProblem, Then,
    command_line::split_commands,
    error::{Findings, Problem},
    limits::{
        MAX_ALLOWED_COMMANDS, MAX_BUDGET, MAX_DURATION, MAX_ESCALATIONS, MAX_ID_CHARS, MAX_INPUT_BYTES,
        MAX_INPUT_CHARS, MAX_INPUTS, MAX_LABEL_BYTES, MAX_LABEL_KEY_BYTES, MAX_LABELS, MAX_NESTED_PLANS,
        MAX_PARALLELISM, MAX_PLAN_BYTES, MAX_PLAN_RESOURCES, MAX_PROGRAM_BYTES, MAX_SCHEMA_BYTES, MAX_STEP_ID_CHARS,
        MAX_STEPS,
    },
    nearest,
    path::{FieldPath, look_alikes, shown},
    template::json_size,
};

/// The maximum number of comparisons spent on "did you mean" in one plan: enough for two mistyped ids in a plan of 10,000 steps.
const MAX_COMPARISONS: usize = 20_000;

/// The problem of a duration that is longer than any may be.
pub(crate) const TOO_LONG: &str = "must be at most 365 days, which is 8760h";

/// The problem of a step or a group that uses both `run_when` and `on` to say after which ends it runs.
pub(crate) const JOINED_TWICE: &str = "is about all steps that this one depends on, and `depends_on` names outcomes of one with `on`: say it in one of the \
                                      two, such as `on: [success, failure, skipped]` for a step that may end in any way";

impl Plan {
    /// Checks everything about a plan that needs no tool catalogue. All violations are reported, by the names of [`PlanDraft`].
    ///
    /// # Errors
    /// [`InvalidPlan`] with every violation.
    pub fn new(draft: PlanDraft) -> Result<Self, InvalidPlan> {
        Self::new_with(draft, |_| Vec::new())
    }

    /// The same, with additional checks of each call and each form by `check`, whatever else is wrong with the plan.
    ///
    /// # Errors
    /// [`InvalidPlan`] with every violation.
    pub fn new_with(
        draft: PlanDraft,
        mut check: impl FnMut(PlanPart<'_>) -> Vec<StepProblem>,
    ) -> Result<Self, InvalidPlan> {
        in_order(draft, Trust::Author, &mut check)
    }

    /// A plan that was checked when it was accepted and has been stored since. It is not held to rules and limits again: a version with other
    /// ones must carry out what an earlier version accepted.
    ///
    /// # Errors
    /// [`InvalidPlan`] when no plan can be made of it: it has no steps, a reference cannot be read or names no step, two steps have one id, or steps
    /// wait for each other.
    pub fn stored(draft: PlanDraft) -> Result<Self, InvalidPlan> {
        in_order(draft, Trust::Stored, &mut |_| Vec::new())
    }
}

/// Checks a draft whose steps are in the author's order.
fn in_order(draft: PlanDraft, trust: Trust, check: CheckPlanned<'_>) -> Result<Plan, InvalidPlan> {
    plan(draft, &Places::default(), trust, check).map_err(|mut problems| {
        problems.sort_by_key(Problem::step);
        problems.filter_map(|problem| Some(problem.into())).into()
    })
}

/// Where a draft comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// From its author: it is held to every rule and limit.
    Author,
    /// From a store: it was checked when it was accepted.
    Stored,
}

/// Checks a call or a form with knowledge that is not in the plan.
pub(crate) type CheckPlanned<'c> = &'c mut dyn FnMut(PlanPart<'_>) -> Vec<StepProblem>;

/// Where the steps of a draft stand in their author's document, which may number and group them.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// By step of the draft.
    pub(crate) steps: Vec<Place>,
    /// The ids of the groups.
    pub(crate) groups: HashSet<String>,
}

/// Where one step stands, and the steps of the plan that it carries out.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Its position in the list, after the positions of the groups that it stands in, the outermost first.
    pub(crate) positions: Vec<usize>,
    pub(crate) of_plan: Places,
}

impl Places {
    /// The positions that lead to a step; the same as in the draft when nothing else is known.
    pub(crate) fn positions(&self, step: usize) -> Vec<usize> {
        self.steps.get(step).map_or_else(|| vec![step], |place| place.positions.clone())
    }

    /// Where a step stands in the plan.
    fn path(&self, step: usize) -> FieldPath {
        let path = FieldPath::root();
        self.positions(step).into_iter().fold(path, |path, position| path.key("steps").index(position))
    }

    /// The steps of the plan that a step carries out.
    pub(crate) fn of_plan(&self, step: usize) -> Option<&Self> {
        self.steps.get(step).map(|place| &place.of_plan)
    }
}

/// The problems of a retry policy that belongs to no step, by its field.
pub(crate) fn retry_problems(retry: &RetryPolicy) -> Vec<(FieldPath, String)> {
    let (inputs, places) = (BTreeMap::new(), Places::default());
    let mut checker = Checker {
        trust: Trust::Author,
        index: HashMap::new(),
        inputs: &inputs,
        places: &places,
        comparisons_left: 0,
        group_timeouts: BTreeMap::new(),
        findings: Findings::default(),
    };
    checker.retry(&FieldPath::root(), retry);
    let mut problems = Vec::new();
    let _ = checker.findings.filter_map(|Problem { path, message }| {
        problems.push((path, message));
        None::<Problem>
    });
    problems
}

/// Puts the tools of groups in the place of these, where a model may call them.
fn resolve_groups(step: &mut StepDraft) {
    if let StepKindDraft::Agent { agent, .. } = &mut step.kind {
        agent.resolve_groups();
    }
}

/// Checks a draft. `places` gives, for each step of the draft, its position in the author's document, for messages about other steps.
pub(crate) fn plan(
    draft: PlanDraft,
    places: &Places,
    trust: Trust,
    check: CheckPlanned<'_>,
) -> Result<Plan, Findings<Problem>> {
    let size = plan_size(&draft);
    if size > MAX_PLAN_BYTES && trust == Trust::Author {
        let message = format!("the plan has {size} bytes and the limit is {MAX_PLAN_BYTES}: split it");
        let mut findings = Findings::default();
        findings.add(|| Problem { path: FieldPath::root(), message });
        return Err(findings);
    }
    nested(draft, places, trust, check, 0)
}

/// Gives the steps what follows their failures where they say nothing of it themselves, and where it fits their kind.
fn hand_on(on_error: &OnError, steps: &mut [StepDraft]) {
    for step in steps {
        let calls_tool = step.kind.calls_tool();
        let fitting = on_error
            .iter()
            .filter(|(class, strategy)| strategy.is_for(**class) && (calls_tool || !strategy.is_for_calls()));
        for (&class, &strategy) in fitting {
            step.on_error.entry(class).or_insert(strategy);
        }
    }
}

/// Checks a draft that stands in `depth` others.
fn nested(
    mut draft: PlanDraft,
    places: &Places,
    trust: Trust,
    check: CheckPlanned<'_>,
    depth: usize,
) -> Result<Plan, Findings<Problem>> {
    let mut unsplit = Vec::new();
    if trust == Trust::Author {
        split_commands(&mut draft, |path, message| unsplit.push((path, message)));
        draft.steps.iter_mut().for_each(resolve_groups);
    }
    let mut checker = Checker {
        trust,
        index: HashMap::with_capacity(draft.steps.len()),
        inputs: &draft.inputs,
        places,
        comparisons_left: MAX_COMPARISONS,
        group_timeouts: BTreeMap::new(),
        findings: Findings::default(),
    };
    for (path, message) in unsplit {
        checker.refuse(&path, || message);
    }
    checker.header(&draft);
    checker.on_error(&FieldPath::root().key("on_error"), &draft.on_error, true);
    hand_on(&draft.on_error, &mut draft.steps);
    let steps_path = FieldPath::root().key("steps");
    if draft.steps.is_empty() {
        checker.refuse(&steps_path, || "the plan must be valid and have at least one step: add one".to_owned());
    }
    if draft.steps.len() > MAX_STEPS && trust == Trust::Author {
        checker.rule(&steps_path, || format!("has {} steps and the limit is {MAX_STEPS}: split it", draft.steps.len()));
        return Err(checker.findings);
    }
    for (position, step) in draft.steps.iter().enumerate() {
        checker.register(position, step);
    }
    let mut parts = Vec::with_capacity(draft.steps.len());
    for (position, step) in draft.steps.iter().enumerate() {
        parts.push(checker.step(position, step, &draft.steps));
    }
    let outputs = checker.outputs(&draft);
    let limits = checker.execution_limits(&draft.limits);
    for (step, (part, of_step)) in parts.iter().zip(&draft.steps).enumerate() {
        let planned = part.planned(step, of_step).into_iter();
        let planned = planned
            .chain(part.planned_others(step, of_step))
            .chain(part.planned_conditions(step))
            .chain(part.planned_checks(step, of_step));
        let network = of_step.network.as_deref();
        let planned = planned.map(|planned| {
            planned
                .allowing(draft.allowed_commands.as_deref())
                .in_network(network, draft.network.as_deref())
                .in_budgets([of_step.budget.as_ref(), draft.budget.as_ref()])
        });
        let problems: Vec<StepProblem> = planned.flat_map(&mut *check).collect();
        problems.into_iter().for_each(|problem| checker.findings.add(|| problem.into()));
    }
    for (step, of_step) in draft.steps.iter().enumerate() {
        if let StepKindDraft::Plan { plan: inner, .. } = &of_step.kind {
            let field = step_path(step).key("plan");
            if depth == MAX_NESTED_PLANS && trust == Trust::Author {
                checker.refuse(&field, || {
                    format!("stands in {MAX_NESTED_PLANS} other plans, which is the limit: let a plan further out have its steps")
                });
                continue;
            }
            if inner.dry_run {
                checker.rule(&field.key("dry_run"), || "is for the outermost plan: take it out".to_owned());
            }
            let mut problems = Vec::new();
            let mut check_inner = |planned: PlanPart<'_>| {
                let PlannedStep { step: inner, within } = planned.step();
                let within = format!("/plan/steps/{inner}{within}");
                let planned = planned.in_budgets([of_step.budget.as_ref(), draft.budget.as_ref()]);
                problems.extend(check(planned.of(PlannedStep { step, within: &within })));
                Vec::new()
            };
            let inner = nested(
                PlanDraft {
                    allowed_commands: both(draft.allowed_commands.as_deref(), inner.allowed_commands.as_deref()),
                    network: inner.network.clone().or_else(|| draft.network.clone()),
                    ..(**inner).clone()
                },
                places.of_plan(step).unwrap_or(&Places::default()),
                trust,
                &mut check_inner,
                depth + 1,
            );
            problems.into_iter().for_each(|problem| checker.findings.add(|| problem.into()));
            match inner {
                Ok(plan) => {
                    checker.limits_of_inner(&field, &limits, &plan);
                    parts[step].set_plan(plan);
                }
                Err(findings) => checker.findings.extend(
                    findings.filter_map(|Problem { path, message }| Some(Problem { path: field.join(&path), message })),
                ),
            }
        }
    }
    let dependencies: Vec<&[usize]> = parts.iter().map(|part| &part.dependencies[..]).collect();
    for cycle in graph::cycles(&dependencies) {
        checker.cycle(&cycle, &draft.steps, &parts);
    }
    let dependents = graph::reversed(&dependencies);
    let Checker { index, findings, .. } = checker;
    if !findings.is_empty() {
        return Err(findings);
    }
    let index = index.into_iter().map(|(id, position)| (id.to_owned(), position)).collect();
    Ok(Plan {
        id: draft.id,
        description: draft.description,
        stop_on_error: draft.stop_on_error,
        parallelism: usize::try_from(draft.parallelism.max(1)).unwrap_or(usize::MAX),
        timeout: draft.timeout,
        escalation: draft.escalation,
        resources: draft.resources,
        audit_level: draft.audit_level,
        allowed_commands: draft.allowed_commands,
        network: draft.network,
        budget: draft.budget,
        limits,
        labels: draft.labels,
        dry_run: draft.dry_run,
        inputs: draft.inputs.clone(),
        outputs,
        steps: draft.steps.into_iter().zip(parts).map(|(step, part)| Arc::new(part.complete(step))).collect(),
        dependents,
        index,
    })
}

/// The programs that commands may start in a plan that stands in another one.
fn both(outer: Option<&[String]>, inner: Option<&[String]>) -> Option<Vec<String>> {
    match (outer, inner) {
        (Some(outer), Some(inner)) => Some(inner.iter().filter(|name| outer.contains(name)).cloned().collect()),
        (list, None) | (None, list) => list.map(<[String]>::to_vec),
    }
}

/// The rules, and the violations so far.
struct Checker<'d> {
    trust: Trust,
    /// By id: the first step that has it.
    index: HashMap<&'d str, usize>,
    inputs: &'d BTreeMap<String, Input>,
    places: &'d Places,
    comparisons_left: usize,
    /// The time limits of groups, each with the position of the first step that names it.
    group_timeouts: BTreeMap<String, (usize, Duration)>,
    findings: Findings<Problem>,
}

impl<'d> Checker<'d> {
    /// Without what is missing or wrong here, no plan can be made of the draft.
    fn refuse(&mut self, path: &FieldPath, message: impl FnOnce() -> String) {
        self.findings.add(|| Problem { path: path.clone(), message: message() });
    }

    /// A rule or a limit of this version, which a stored plan is not held to.
    fn rule(&mut self, path: &FieldPath, message: impl FnOnce() -> String) {
        match self.trust {
            Trust::Author => self.refuse(path, message),
            Trust::Stored => {}
        }
    }

    fn header(&mut self, draft: &PlanDraft) {
        let root = FieldPath::root();
        self.id(&root.key("id"), &draft.id, MAX_ID_CHARS);
        if draft.parallelism > MAX_PARALLELISM {
            self.rule(&root.key("parallelism"), || {
                format!("must be 1 to {MAX_PARALLELISM}, not {}", draft.parallelism)
            });
        }
        self.duration(&root.key("timeout"), draft.timeout);
        self.declared_inputs(&root.key("inputs"), &draft.inputs);
        self.labels(&root.key("labels"), &draft.labels);
        self.capacities(&root.key("resources"), &draft.resources);
        self.allowed_commands(&root.key("allowed_commands"), draft.allowed_commands.as_deref().unwrap_or_default());
        self.network(&root.key("network"), draft.network.as_deref());
        if let Some(escalation) = &draft.escalation {
            self.escalation(&root.key("escalation"), escalation);
        }
        self.budget(&root.key("budget"), draft.budget.as_ref());
    }

    fn labels(&mut self, path: &FieldPath, labels: &BTreeMap<String, String>) {
        if labels.len() > MAX_LABELS {
            self.rule(path, || format!("has {} entries and the limit is {MAX_LABELS}", labels.len()));
        }
        for (key, value) in labels {
            if let Some(problem) = label_problem(key, value) {
                self.rule(&path.key(key.clone()), || problem);
            }
        }
    }

    fn allowed_commands(&mut self, path: &FieldPath, names: &[String]) {
        if names.len() > MAX_ALLOWED_COMMANDS {
            self.rule(path, || format!("has {} entries and the limit is {MAX_ALLOWED_COMMANDS}", names.len()));
        }
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() || name.len() > MAX_PROGRAM_BYTES {
                self.rule(&path.index(index), || format!("must be 1 to {MAX_PROGRAM_BYTES} bytes"));
            } else if name.contains(['/', ' ', '*', '?', '$']) || !name.chars().all(belay_text::is_plain) {
                self.rule(&path.index(index), || {
                    format!(
                        "`{}` is not the name of a program: write it without a folder, wildcards or arguments",
                        shown(name)
                    )
                });
            }
        }
    }

    fn escalation(&mut self, path: &FieldPath, escalation: &Escalation) {
        if escalation.retries > MAX_ESCALATIONS {
            self.rule(&path.key("retries"), || format!("must be 0 to {MAX_ESCALATIONS}, not {}", escalation.retries));
        }
        if escalation.retries == 0 && escalation.then == Then::Fail {
            self.rule(path, || "does nothing: give it `retries`, `then: pause`, or both, or remove it".to_owned());
        }
        self.backoff(&path.key("backoff"), &escalation.backoff);
    }

    fn budget(&mut self, path: &FieldPath, budget: Option<&Budget>) {
        let Some(Budget { calls, output_bytes, tokens, cost_micros, .. }) = budget else { return };
        let limits = [("calls", calls), ("output_bytes", output_bytes), ("tokens", tokens), ("cost", cost_micros)];
        if limits.iter().all(|(_, amount)| amount.is_none()) {
            self.rule(path, || {
                "limits nothing: give it `calls`, `output_bytes`, `tokens` or `cost`, or remove it".to_owned()
            });
        }
        for (field, amount) in limits {
            if let Some(amount) = amount.filter(|amount| !(1..=MAX_BUDGET).contains(amount)) {
                self.rule(&path.key(field), || format!("must be 1 to {MAX_BUDGET}, not {amount}"));
            }
        }
    }

    fn capacities(&mut self, path: &FieldPath, resources: &BTreeMap<String, u32>) {
        if resources.len() > MAX_PLAN_RESOURCES {
            self.rule(path, || format!("has {} resources and the limit is {MAX_PLAN_RESOURCES}", resources.len()));
        }
        for (name, &capacity) in resources {
            self.resource(&path.key(name.clone()), name);
            if !(1..=MAX_PARALLELISM).contains(&capacity) {
                self.rule(&path.key(name.clone()), || format!("must be 1 to {MAX_PARALLELISM}, not {capacity}"));
            }
        }
    }

    fn declared_inputs(&mut self, path: &FieldPath, inputs: &BTreeMap<String, Input>) {
        if inputs.len() > MAX_INPUTS {
            self.rule(path, || format!("has {} inputs and the limit is {MAX_INPUTS}", inputs.len()));
        }
        for (name, input) in inputs {
            let path = path.key(name.clone());
            if !is_value_name(name, MAX_INPUT_CHARS) {
                self.rule(&path, || {
                    format!(
                        "`{}` is not the name of an input: that is 1 to {MAX_INPUT_CHARS} letters, digits, `-` and `_`",
                        shown(name)
                    )
                });
            }
            if let Some(schema) = &input.schema {
                let size = json_size(schema);
                if !schema.is_object() {
                    self.rule(&path.key("schema"), || "must be a JSON Schema, such as {type: string}".to_owned());
                } else if size > MAX_SCHEMA_BYTES {
                    self.rule(&path.key("schema"), || format!("has {size} bytes and the limit is {MAX_SCHEMA_BYTES}"));
                }
            }
            let size = input.default.as_ref().map_or(0, json_size);
            if size > MAX_INPUT_BYTES {
                self.rule(&path.key("default"), || {
                    format!("has {size} bytes and the limit is {MAX_INPUT_BYTES}: put it in a file, and let a step read that")
                });
            }
        }
    }

    /// A reference to an input names one that the plan declares.
    fn input(&mut self, path: &FieldPath, name: &str) {
        if self.inputs.contains_key(name) {
            return;
        }
        let near = nearest(name, self.inputs.keys().map(String::as_str));
        let name = shown(name);
        self.refuse(path, || match near {
            Some(near) => format!("the plan declares no input `{name}`; did you mean `{}`?", shown(near)),
            None => format!("the plan declares no input `{name}`: add `inputs: {{{name}: {{}}}}` to it"),
        });
    }

    fn id(&mut self, path: &FieldPath, id: &str, longest: usize) {
        if let Some(problem) = id_problem(id, longest) {
            self.rule(path, || problem);
        }
    }

    fn duration(&mut self, path: &FieldPath, duration: Option<Duration>) {
        match duration {
            Some(Duration::ZERO) => self.rule(path, || "must be longer than 0".to_owned()),
            Some(duration) if duration > MAX_DURATION => self.rule(path, || TOO_LONG.to_owned()),
            _ => {}
        }
    }

    /// Registers a step's id, before references to it are checked.
    fn register(&mut self, position: usize, step: &'d StepDraft) {
        let path = step_path(position).key("id");
        self.id(&path, &step.id, MAX_STEP_ID_CHARS);
        if step.id.is_empty() {
            return;
        }
        match self.index.get(step.id.as_str()) {
            None => {
                self.index.insert(&step.id, position);
            }
            Some(&first) => {
                let place = self.places.path(first);
                self.refuse(&path, || {
                    format!("`{}` is already the id of {place}: ids must be unique", shown(&step.id))
                });
            }
        }
    }

    /// "Did you mean", as long as the budget of comparisons lasts.
    fn suggestion(&mut self, id: &str, steps: &[StepDraft]) -> String {
        if self.comparisons_left < steps.len() {
            return look_alikes(id);
        }
        self.comparisons_left -= steps.len();
        let ids = steps.iter().map(|step| &step.id).chain(&self.places.groups).map(String::as_str);
        match nearest(id, ids) {
            Some(near) => format!("; did you mean `{}`?{}", shown(near), look_alikes(id)),
            None => look_alikes(id),
        }
    }
}

/// Characters allowed in ids and signal names.
const ID_CHARS: &str =
    "letters (a to z, A to Z), digits (0 to 9), `-`, `_` and `.`, beginning with a letter or a digit";

/// The problem with a label; `None` when it is valid.
pub fn label_problem(key: &str, value: &str) -> Option<String> {
    if key.is_empty() || key.len() > MAX_LABEL_KEY_BYTES || value.len() > MAX_LABEL_BYTES {
        return Some(format!("a key must have 1 to {MAX_LABEL_KEY_BYTES} bytes and a value at most {MAX_LABEL_BYTES}"));
    }
    let has_controls = key.chars().chain(value.chars()).any(char::is_control);
    has_controls.then(|| "must not contain control characters".to_owned())
}

/// The problem with an id; `None` when it is valid. Only letters, digits and a few signs are allowed, so no id contains control characters. `~` is not
/// allowed: it stands in the ids of steps that an execution adds itself.
pub(crate) fn id_problem(id: &str, longest: usize) -> Option<String> {
    let shape = || format!("1 to {longest} {ID_CHARS}");
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.';
    if id.is_empty() {
        return Some(format!("is required: give an id of {}", shape()));
    }
    let is_id = id.len() <= longest && id.as_bytes()[0].is_ascii_alphanumeric() && id.bytes().all(allowed);
    (!is_id).then(|| format!("`{}` is not an id: an id is {}{}", shown(id), shape(), look_alikes(id)))
}

/// Whether an input or an output may have this name.
fn is_value_name(name: &str, longest: usize) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !name.is_empty() && name.len() <= longest && name.bytes().all(allowed)
}

fn step_path(position: usize) -> FieldPath {
    FieldPath::root().key("steps").index(position)
}

/// The bytes of everything that an author can make long.
fn plan_size(draft: &PlanDraft) -> usize {
    let steps = draft.steps.iter().map(|step| {
        let kind = step.kind.size(plan_size);
        let list =
            step.for_each.as_ref().map_or(0, json_size) + step.repeat.as_ref().map_or(0, |repeat| repeat.until.len());
        let fallback = step.fallback.iter().map(CallDraft::size).sum::<usize>();
        let compensate = step.compensate.as_ref().map_or(0, CallDraft::size);
        let checks = step.preconditions.iter().chain(&step.postconditions).map(|check| {
            check.condition.len() + check.file.len() + check.command.iter().map(String::len).sum::<usize>()
        });
        let checks = checks.sum::<usize>() + step.output_schema.as_ref().map_or(0, json_size);
        let resources: usize = step.resources.iter().map(String::len).sum();
        let depends_on = step
            .depends_on
            .iter()
            .map(|on| on.step.len() + on.outcomes().map(|outcome| outcome.word().len()).sum::<usize>());
        let depends_on = depends_on.sum::<usize>();
        let verbatim: usize = step.verbatim.iter().map(String::len).sum();
        step.id.len()
            + step.title.len()
            + step.description.len()
            + step.condition.len()
            + list
            + fallback
            + compensate
            + resources
            + checks
            + depends_on
            + verbatim
            + kind
    });
    let inputs = draft.inputs.iter().map(|(name, input)| {
        let values = [&input.schema, &input.default].into_iter().flatten();
        name.len() + input.description.len() + values.map(json_size).sum::<usize>()
    });
    let outputs = draft.outputs.iter().map(|(name, value)| name.len() + json_size(value));
    let resources = draft.resources.keys().map(String::len);
    let limits = draft.limits.iter().map(|limit| limit.key.len());
    draft.id.len()
        + draft.description.len()
        + inputs.sum::<usize>()
        + outputs.sum::<usize>()
        + resources.sum::<usize>()
        + limits.sum::<usize>()
        + steps.sum::<usize>()
}

#[cfg(test)]
mod tests;

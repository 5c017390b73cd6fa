//! Converts the tree of a document to a draft. A value that cannot be read is reported and replaced by a placeholder, so that the rest is still
//! checked.

mod agent;
mod calls;
mod config;
mod context;
mod of_plan;
mod repeat;
mod retry;
mod step;
mod steps;
mod task_plan;
mod values;
mod wait;

use crate::{
    AuditLevel, PlanDraft,
    check::Places,
    error::Findings,
    limits::MAX_PARALLELISM,
    path::{FieldPath, shown},
};

use super::{
    fields::{Report, Value},
    finding::Finding,
    locate::Origin,
    shapes::{agent_defaults, is_agent_plan, is_task_plan, labels_of, scalar, task_plan_defaults},
    tree::{Kind, Node},
};

pub(super) use values::imprecise;

/// The content of a document.
pub(super) struct Document<'n> {
    pub(super) draft: PlanDraft,
    pub(super) origin: Origin<'n>,
    pub(super) findings: Findings<Finding>,
}

pub(super) fn read<'n>(text: &'n str, root: &'n Node) -> Document<'n> {
    let mut reader = Reader { text, report: Report::default(), shape: Shape::Own, model: None };
    let (draft, origin) = reader.document(Value { path: FieldPath::root(), node: root });
    Document { draft, origin, findings: reader.report.findings }
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
    /// The model of steps that name none, from the settings beside the plan.
    model: Option<String>,
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
        let model = config.as_ref().and_then(|config| config.node.field("model"));
        self.model = model.and_then(|model| scalar(&model.value)).filter(|model| !model.is_empty());
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
        if let Some(limits) = fields.take_exactly("limits") {
            draft.limits = self.execution_limits(&limits);
        }
        if let Some(resources) = fields.take_exactly("resources") {
            draft.resources = self.capacities(&resources);
        }
        let audit_level = fields.take_exactly("audit_level");
        draft.audit_level = audit_level.as_ref().and_then(|value| read_audit_level(value, &mut self.report));
        let allowed_commands = fields.take_exactly("allowed_commands");
        draft.allowed_commands = allowed_commands.as_ref().map(|value| read_names(value, &mut self.report));
        draft.network = fields.take_exactly("network").map(|value| value.text(&mut self.report));
        if let Some(inputs) = fields.take_exactly("inputs") {
            draft.inputs = self.inputs(&inputs);
        }
        if let Some(outputs) = fields.take_exactly("outputs") {
            draft.outputs = self.outputs(&outputs);
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

    /// In a message, 0 means that the field is unset; an author who writes 0 means something else.
    fn parallelism(&mut self, value: &Value<'n>) -> Option<u32> {
        let number = value.whole(&mut self.report, 1..=MAX_PARALLELISM)?;
        if number == 0 {
            value.refuse(&mut self.report, || "must be at least 1, which runs the steps one by one".to_owned());
        }
        Some(number)
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

//! Reads the task plan of the executor stage as that planner writes it: tasks with steps, in whichever case its serialiser writes their names, and a graph
//! of dependencies beside them.
//!
//! A task becomes a group of steps. A step without arguments, which its author leaves to a model, is carried out by the model that the settings beside the plan name: what the step says
//! is its task, and its action and the tools that read are what the model may call.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value as Json};

use crate::{
    AgentDraft, CheckDraft, Dependency, Effects, PlanDraft, RunWhen, StepDraft, StepKindDraft,
    check::{Place, Places},
    command_line::words_of,
    kinds::is_same_tool,
    limits::MAX_LABEL_BYTES,
    nearest,
    path::shown,
};

use super::{
    super::{
        fields::{Fields, Value},
        group::{Group, ReadStep, StepsAndGroups},
        operation::operation_of,
        shapes::{first_bytes, scalar},
        tree::Kind,
    },
    Reader,
    step::blank,
};

/// Parameters without a default that each action of the executor stage needs.
const NEEDED: [(&str, &str); 9] = [
    ("CreateFile", "`path` and `content`"),
    ("WriteFile", "`path` and `content`"),
    ("ReadFile", "`path`"),
    ("ModifyFile", "`path` and `edits`"),
    ("DeleteFile", "`path` or `paths`"),
    ("ListDirectory", "`path`"),
    ("SearchCode", "`query`"),
    ("RunCommand", "`command`"),
    ("RunTerminal", "`command`"),
];

/// The shape of a graph of dependencies.
const GRAPH: &str = "an object with the ids on which each task or step depends, {ID: [ID, …]}, or edges, [{from: ID, to: ID}], of which `to` depends on `from`";

/// The names of a field, in both cases.
type Names = [&'static str; 2];

/// State that is collected while the steps are read.
#[derive(Default)]
struct TaskPlan<'n> {
    /// By the id of a task or step, what it depends on according to the graph; taken out as it is found.
    graph: HashMap<String, Vec<(String, Value<'n>)>>,
    /// The ids of what was completed earlier.
    completed: HashSet<String>,
    /// All ids.
    known: HashSet<String>,
    /// Ids that the graph names, to be looked up.
    named: Vec<(String, Value<'n>)>,
}

impl<'n> Reader<'n> {
    /// The plan, without the defaults of its shape.
    pub(super) fn task_plan(&mut self, mut fields: Fields<'n>) -> (PlanDraft, Places) {
        let mut plan = TaskPlan::default();
        let mut draft = PlanDraft { id: self.task_id(&mut fields, ["id", "Id"]), ..PlanDraft::default() };
        draft.description = self.words(&mut fields, ["goal", "Goal"]);
        draft.labels = BTreeMap::from([("goal".to_owned(), first_bytes(&draft.description, MAX_LABEL_BYTES))]);
        draft.labels.insert("session".to_owned(), self.task_id(&mut fields, ["sessionId", "SessionId"]));
        if let Some(version) = fields.take_either(&mut self.report, ["version", "Version"]) {
            draft.labels.insert("version".to_owned(), scalar(version.node).unwrap_or_default());
        }
        draft.labels.retain(|_, value| !value.is_empty());
        for names in [["totalComplexity", "TotalComplexity"], ["createdAt", "CreatedAt"], ["metadata", "Metadata"]] {
            fields.take_either(&mut self.report, names);
        }
        if let Some(graph) = fields.take_either(&mut self.report, ["dependencies", "Dependencies"]) {
            self.graph(&graph, &mut plan);
        }
        let tasks = fields.take_either(&mut self.report, ["tasks", "Tasks"]);
        fields.finish(&mut self.report);
        let tasks = tasks.map_or_else(Vec::new, |tasks| tasks.list(&mut self.report, "tasks"));
        let mut listed = StepsAndGroups::default();
        for (position, task) in tasks.iter().enumerate() {
            self.task(task, position, &mut plan, &mut listed);
        }
        for (id, at) in &plan.named {
            if !plan.known.contains(id) {
                at.refuse(&mut self.report, || {
                    let near = nearest(id, plan.known.iter().map(String::as_str));
                    let near = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
                    format!("there is no task and no step `{}`{near}", shown(id))
                });
            }
        }
        // What was completed earlier is there already: nothing waits for it.
        let is_open = |on: &Dependency| plan.known.contains(&on.step) && !plan.completed.contains(&on.step);
        for step in &mut listed.steps {
            step.draft.depends_on.retain(is_open);
        }
        for group in &mut listed.groups {
            group.depends_on.retain(is_open);
        }
        let places;
        (draft.steps, places) = listed.resolve(&mut self.report);
        // A task stands for all of its steps.
        for step in &mut draft.steps {
            step.depends_on.retain(|on| !plan.completed.contains(&on.step));
        }
        (draft, places)
    }

    fn task(&mut self, value: &Value<'n>, position: usize, plan: &mut TaskPlan<'n>, listed: &mut StepsAndGroups<'n>) {
        let Some(mut fields) = value.fields(&mut self.report, "an object with `id` and `steps`") else { return };
        let id = self.task_id(&mut fields, ["id", "Id"]);
        for names in [["title", "Title"], ["description", "Description"]] {
            self.words(&mut fields, names);
        }
        // What a planner and a verifier go by; nothing here depends on it.
        for names in
            [["complexity", "Complexity"], ["resources", "Resources"], ["acceptanceCriteria", "AcceptanceCriteria"]]
        {
            fields.take_either(&mut self.report, names);
        }
        let is_completed = self.is_completed(&mut fields);
        let depends_on = self.graph_of(&mut fields, &id, plan);
        let steps = fields.take_either(&mut self.report, ["steps", "Steps"]);
        fields.finish(&mut self.report);
        let steps = steps.map_or_else(Vec::new, |steps| steps.list(&mut self.report, "steps"));
        if steps.is_empty() {
            value.refuse(&mut self.report, || "has no steps: a task has at least one".to_owned());
            return;
        }
        let mut within = StepsAndGroups::default();
        for (place, step) in steps.iter().enumerate() {
            let Some(draft) = self.task_step(step, is_completed, plan) else { continue };
            let place = Place { positions: vec![position, place], of_plan: Places::default() };
            within.steps.push(ReadStep { value: step.clone(), place, draft });
        }
        if within.steps.iter().all(|step| plan.completed.contains(&step.draft.id)) {
            plan.completed.insert(id.clone());
        }
        plan.known.insert(id.clone());
        let group = Group {
            value: value.clone(),
            id,
            depends_on,
            run_when: RunWhen::default(),
            condition: String::new(),
            retry: None,
            timeout: None,
            fail_fast: false,
            attempt_timeout: None,
            steps: 0..0,
        };
        listed.add_group(group, within);
    }

    fn task_step(&mut self, value: &Value<'n>, is_done: bool, plan: &mut TaskPlan<'n>) -> Option<StepDraft> {
        let mut fields = value.fields(&mut self.report, "an object with `id`, `action` and `parameters`")?;
        let mut draft = blank();
        draft.id = self.task_id(&mut fields, ["id", "Id"]);
        draft.title = self.words(&mut fields, ["title", "Title"]);
        draft.description = self.words(&mut fields, ["description", "Description"]);
        // For the model that carries out the step, and for the verifier.
        let expected = fields.take_either(&mut self.report, ["expectedOutput", "ExpectedOutput"]);
        let expected = expected.map(|value| scalar(value.node).unwrap_or_else(|| value.node.to_value().to_string()));
        let verification = fields.take_either(&mut self.report, ["verification", "Verification"]);
        let is_completed = self.is_completed(&mut fields) || is_done;
        draft.depends_on = self.graph_of(&mut fields, &draft.id, plan);
        let tool = fields.take(&mut self.report, "tool");
        let action = fields.take_either(&mut self.report, ["Action", "Tool"]);
        let arguments = fields.take(&mut self.report, "arguments");
        let more = fields.take_either(&mut self.report, ["Parameters", "Arguments"]);
        draft.condition = self.condition(&mut fields);
        draft.timeout = fields.take_exactly("timeout").and_then(|value| self.timeout(&value));
        draft.retry = fields.take_exactly("retry").and_then(|value| self.retry(&value));
        fields.finish(&mut self.report);
        let action = self.once(tool, action);
        let action = action.map(|action| action.text(&mut self.report)).unwrap_or_default();
        let arguments = self.once(arguments, more).map(|value| {
            self.refuse_imprecise(&value.path, value.node);
            value.node.to_value()
        });
        plan.known.insert(draft.id.clone());
        if is_completed {
            plan.completed.insert(draft.id.clone());
            "false".clone_into(&mut draft.condition);
        } else if arguments.is_none() && self.model.is_none() {
            self.report.refuse(&value.path.key("parameters"), value.node.offset, || missing(&action));
        } else if let Some(verification) = verification {
            draft.postconditions = self.verification(&verification);
        }
        draft.kind = match arguments {
            Some(mut arguments) => {
                let tool = operation_of(&action, &mut arguments).unwrap_or(action);
                StepKindDraft::Tool { tool, arguments }
            }
            None if self.model.is_some() && !is_completed => {
                let agent = self.goal(&draft, &action, expected.as_deref());
                StepKindDraft::Agent { agent, effects: Effects::default() }
            }
            // It is not called.
            None => StepKindDraft::Tool { tool: "noop".to_owned(), arguments: Json::Object(Map::new()) },
        };
        Some(draft)
    }

    /// What a model is to achieve that finds the arguments of a step itself (S2-FR-026, X31).
    fn goal(&self, step: &StepDraft, action: &str, expected: Option<&str>) -> AgentDraft {
        let words = [&step.title, &step.description].into_iter().filter(|text| !text.is_empty());
        let mut task: Vec<String> = words.cloned().collect();
        if !action.is_empty() {
            task.push(format!("Use the tool {action}."));
        }
        task.extend(expected.filter(|text| !text.is_empty()).map(|expected| format!("Expected output: {expected}")));
        // What an author wrote is no template.
        let task = task.join("\n\n").replace("${", "$${");
        let reading = ["read_file", "list_directory", "search_code"].map(str::to_owned);
        let own = (!action.is_empty()).then(|| action.to_owned());
        let tools = own.into_iter().chain(reading.into_iter().filter(|tool| !is_same_tool(tool, action))).collect();
        AgentDraft { model: self.model.clone().unwrap_or_default(), task, tools, ..AgentDraft::default() }
    }

    /// The checks of a verification that a program can make: that another program ends with 0, and that a file is there. All else of it, such as a pattern or words, is
    /// for a verifier.
    fn verification(&mut self, value: &Value<'n>) -> Vec<CheckDraft> {
        let mut checks = Vec::new();
        if value.node.entries().is_none() {
            return checks;
        }
        let Some(mut fields) = value.fields(&mut self.report, "an object") else { return checks };
        if let Some(command) = fields.take_either(&mut self.report, ["command", "Command"]) {
            let words = self.words_of_command(&command);
            checks.extend((!words.is_empty()).then(|| CheckDraft { command: words, ..CheckDraft::default() }));
        }
        if let Some(file) = fields.take_either(&mut self.report, ["file", "File"]) {
            let file = file.text(&mut self.report);
            checks.extend((!file.is_empty()).then(|| CheckDraft { file, ..CheckDraft::default() }));
        }
        checks
    }

    /// The words of a command, which is a list of them or one text; none where it is empty, and after a refusal.
    fn words_of_command(&mut self, command: &Value<'n>) -> Vec<String> {
        let Kind::Text(text) = &command.node.kind else {
            let words = command.list(&mut self.report, "a program and its arguments");
            return words.iter().map(|word| word.text(&mut self.report)).collect();
        };
        if text.trim().is_empty() {
            return Vec::new();
        }
        words_of(text).unwrap_or_else(|why| {
            command.refuse(&mut self.report, || why);
            Vec::new()
        })
    }

    /// Whether a task or a step was completed before.
    fn is_completed(&mut self, fields: &mut Fields<'n>) -> bool {
        let Some(status) = fields.take_either(&mut self.report, ["status", "Status"]) else { return false };
        let word = status.text(&mut self.report);
        match word.to_ascii_lowercase().as_str() {
            "completed" | "success" | "skipped" => true,
            "" | "pending" | "ready" | "running" | "inprogress" | "in_progress" | "failed" | "error" | "blocked" => {
                false
            }
            _ => {
                status.refuse(&mut self.report, || {
                    format!("must be Pending, InProgress, Completed, Skipped or Failed, not `{}`", shown(&word))
                });
                false
            }
        }
    }

    /// The steps or tasks that a task or a step depends on, by its own fields and by the graph.
    fn graph_of(&mut self, fields: &mut Fields<'n>, id: &str, plan: &mut TaskPlan<'n>) -> Vec<Dependency> {
        let own = fields.take(&mut self.report, "depends_on");
        let camel = fields.take_either(&mut self.report, ["dependsOn", "DependsOn"]);
        let own = self.once(own, camel);
        let pascal = fields.take_refused("Dependencies");
        let own = self.once(own, pascal);
        let mut ids = Vec::new();
        if let Some(own) = own {
            self.ids(&own, &mut ids);
        }
        ids.extend(plan.graph.remove(id).unwrap_or_default());
        plan.named.extend(ids.iter().cloned());
        let mut seen = HashSet::new();
        ids.into_iter().map(|(id, _)| id).filter(|id| seen.insert(id.clone())).map(Dependency::from).collect()
    }

    /// The one of two spellings of a field that is there.
    fn once(&mut self, first: Option<Value<'n>>, second: Option<Value<'n>>) -> Option<Value<'n>> {
        if let (Some(first), Some(second)) = (&first, &second) {
            second.refuse(&mut self.report, || format!("duplicates `{}`: give only one of them", first.path));
        }
        first.or(second)
    }

    /// A graph of dependencies.
    fn graph(&mut self, value: &Value<'n>, plan: &mut TaskPlan<'n>) {
        let edges = match &value.node.kind {
            Kind::List(_) => Some(value.clone()),
            Kind::Map(_) => ["edges", "Edges"].into_iter().find_map(|name| {
                let node = &value.node.field(name)?.value;
                Some(Value { path: value.path.key(name), node })
            }),
            _ => {
                value.refuse(&mut self.report, || format!("must be {GRAPH}"));
                return;
            }
        };
        if let Some(edges) = edges {
            for edge in edges.list(&mut self.report, "edges") {
                self.edge(&edge, plan);
            }
            return;
        }
        for entry in value.node.entries().unwrap_or_default() {
            let name = entry.key.name.as_str();
            let of = Value { path: value.path.key(name.to_owned()), node: &entry.value };
            if ["nodes", "Nodes"].contains(&name) {
                continue;
            }
            let mut ids = Vec::new();
            self.ids(&of, &mut ids);
            plan.named.push((name.to_owned(), of));
            plan.graph.entry(name.to_owned()).or_default().extend(ids);
        }
    }

    fn edge(&mut self, edge: &Value<'n>, plan: &mut TaskPlan<'n>) {
        let Some(mut fields) = edge.fields(&mut self.report, "an edge, {from: ID, to: ID}") else { return };
        let from = self.task_id(&mut fields, ["from", "From"]);
        let to = self.task_id(&mut fields, ["to", "To"]);
        fields.finish(&mut self.report);
        plan.named.push((to.clone(), edge.clone()));
        plan.graph.entry(to).or_default().push((from, edge.clone()));
    }

    /// The ids in a list, or the only one.
    fn ids(&mut self, value: &Value<'n>, ids: &mut Vec<(String, Value<'n>)>) {
        match &value.node.kind {
            Kind::Text(id) => ids.push((id.clone(), value.clone())),
            Kind::Null => {}
            _ => {
                let entries = value.scalars(&mut self.report, "ids of tasks and steps");
                ids.extend(entries.into_iter().map(|entry| (entry.text(&mut self.report), entry)));
            }
        }
    }

    /// An id, which some serialisers write as an object with its value.
    fn task_id(&mut self, fields: &mut Fields<'n>, names: Names) -> String {
        let Some(value) = fields.take_either(&mut self.report, names) else { return String::new() };
        let inner = ["value", "Value"].into_iter().find_map(|name| Some((name, &value.node.field(name)?.value)));
        match inner {
            Some((name, node)) => Value { path: value.path.key(name), node }.text(&mut self.report),
            None => value.text(&mut self.report),
        }
    }

    fn words(&mut self, fields: &mut Fields<'n>, names: Names) -> String {
        fields.take_either(&mut self.report, names).map_or_else(String::new, |value| value.text(&mut self.report))
    }
}

/// The sentence about a step without parameters.
fn missing(action: &str) -> String {
    let needed =
        NEEDED.iter().find(|(name, _)| is_same_tool(name, action)).map_or("its parameters", |(_, needed)| needed);
    match action {
        "" => "are missing, and so is `action`: name a model that chooses both with `config: {model: NAME}` beside the plan"
            .to_owned(),
        action => format!(
            "are missing: `{}` needs {needed}: write them as `parameters`, name a model that chooses them with `config: {{model: NAME}}` beside \
             the plan, or mark the step as Completed",
            shown(action)
        ),
    }
}

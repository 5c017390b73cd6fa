//! The documents of other planners, as they write them.

use std::time::Duration;

use serde_json::json;

use crate::{Backoff, EXECUTOR_STAGE_COMMANDS, Format, Plan, PlanStep, Profile, StepKind, Then};

const TASK_PLAN: &str = include_str!("../../../../../../tests/fixtures/plans/task-plan.json");
const PASCAL: &str = include_str!("../../../../../../tests/fixtures/refused-plans/task-plan-pascal.json");

fn read(text: &str) -> Plan {
    Plan::parse(Format::Auto, text).unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
}

fn yaml(text: &str) -> Plan {
    Plan::parse(Format::Yaml, text).unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
}

fn refusals(text: &str) -> Vec<String> {
    let invalid = Plan::parse(Format::Auto, text).unwrap_err();
    invalid.violations.iter().map(|violation| format!("{}: {}", violation.field, violation.message)).collect()
}

/// S2-FR-002, S2-X-01: a task plan is read as its document writes it: tasks are groups, the graph holds between tasks and steps, and nothing waits for what
/// was completed before.
#[test]
fn a_task_plan_is_read_as_it_stands() {
    let plan = read(TASK_PLAN);
    assert_eq!((plan.id(), plan.description()), ("plan_7f3c", "Add email validation"));
    let labels: Vec<_> = plan.labels().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("goal", "Add email validation"), ("session", "session_12"), ("version", "1")]);
    let dependencies = |id: &str| -> Vec<&str> {
        let step = &plan.steps()[plan.step_index(id).unwrap()];
        step.dependencies().iter().map(|&place| plan.steps()[place].id()).collect()
    };
    assert_eq!(dependencies("folder"), [""; 0]);
    assert_eq!(dependencies("write"), ["create"], "what is completed is there already");
    assert_eq!(dependencies("read"), ["create", "write"], "a task begins after the tasks that it depends on");
    assert_eq!(dependencies("delete"), ["read"]);
    let groups: Vec<_> = plan.steps().iter().map(|step| (step.id(), step.group())).collect();
    let expected = [
        ("folder", "validators"),
        ("create", "validators"),
        ("write", "validators"),
        ("read", "cleaning"),
        ("delete", "cleaning"),
    ];
    assert_eq!(groups, expected);
    let folder = &plan.steps()[0];
    assert_eq!((folder.title(), folder.description()), ("Make the folder", "Done in an earlier session"));
    assert_eq!(folder.to_draft().condition, "false", "it is skipped");
    let tool = |id: &str| match plan.steps()[plan.step_index(id).unwrap()].kind() {
        StepKind::Tool(call) => (call.tool.clone(), call.arguments.source().clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(tool("write"), ("WriteFile".to_owned(), json!({"path": "test.txt", "content": "email"})));
    let paths = json!({"paths": ["src/OldAuthService.cs", "src/OldAuthTests.cs"]});
    assert_eq!(tool("delete"), ("DeleteFile".to_owned(), paths));
}

/// S2-FR-079, S2-X-01: what a program can check of a step's verification holds after its call; what is for a verifier binds nothing, and a step that
/// was completed is not checked.
#[test]
fn the_verification_of_a_step_is_checked_as_far_as_a_program_can() {
    let document = |verification: &str, more: &str| {
        format!(
            r#"{{"id": "p", "tasks": [{{"id": "t", "steps": [
                {{"id": "a", "action": "noop", "parameters": {{}}, "verification": {verification}{more}}}]}}]}}"#
        )
    };
    let checks = |verification: &str| {
        serde_json::to_value(&read(&document(verification, "")).to_draft().steps[0].postconditions).unwrap()
    };
    for (verification, expected) in [
        (
            r#"{"command": "dotnet test --filter 'Email Validator'"}"#,
            json!([{"command": ["dotnet", "test", "--filter", "Email Validator"]}]),
        ),
        (r#"{"Command": ["npm", "test"], "Pattern": "passed", "Strict": true}"#, json!([{"command": ["npm", "test"]}])),
        (
            r#"{"file": "src/Email.cs", "command": "make check"}"#,
            json!([{"command": ["make", "check"]}, {"file": "src/Email.cs"}]),
        ),
        (r#"{"command": null, "pattern": "passed", "strict": false}"#, json!([])),
        (r#"{"criteria": ["It works"], "command": " "}"#, json!([])),
        (r#""The tests pass""#, json!([])),
        (r#"["The tests pass"]"#, json!([])),
        ("{}", json!([])),
    ] {
        assert_eq!(checks(verification), expected, "{verification}");
    }
    let completed = read(&document(r#"{"command": "make check"}"#, r#", "status": "Completed""#));
    assert!(completed.to_draft().steps[0].postconditions.is_empty());
}

/// Errors in a verification name its fields as its author wrote them.
#[test]
fn a_verification_that_cannot_be_made_is_refused() {
    for (verification, expected) in [
        (
            r#"{"Command": "cd src && make"}"#,
            r#"tasks[0].steps[0].Verification.Command: `cd src && make` needs a shell"#,
        ),
        (r#"{"command": 7}"#, "tasks[0].steps[0].Verification.command: must be a list of a program and its arguments"),
        (r#"{"file": true}"#, "tasks[0].steps[0].Verification.file: must be text"),
        (r#"{"file": "${nobody.result}"}"#, "tasks[0].steps[0].Verification.file: "),
        (r#"{"command": ["test", "${nobody.result}"]}"#, "tasks[0].steps[0].Verification.command[1]: "),
    ] {
        let found = refusals(&format!(
            r#"{{"id": "p", "tasks": [{{"id": "t", "steps": [{{"id": "a", "action": "noop", "parameters": {{}}, "Verification": {verification}}}]}}]}}"#
        ));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{found:?}");
    }
}

/// S2-FR-064, S2-X-21: a task plan has the executor stage's defaults, and what it or the settings beside it say comes first.
#[test]
fn a_task_plan_has_the_defaults_of_its_planner() {
    let plan = read(TASK_PLAN);
    for step in plan.steps() {
        assert_eq!(step.timeout(), Some(Duration::from_secs(120)), "{}", step.id());
        assert_eq!(step.retry(), &Profile::Executor.policy(), "{}", step.id());
    }
    let escalation = plan.escalation().unwrap();
    assert_eq!((escalation.retries, escalation.then), (2, Then::Pause));
    assert_eq!(plan.allowed_commands().unwrap(), EXECUTOR_STAGE_COMMANDS);

    let config = r#"{"retry_count": 1, "step_timeout_seconds": 5, "allowed_commands": ["npm"]}"#;
    let plan = read(&format!(r#"{{"plan": {TASK_PLAN}, "config": {config}}}"#));
    let step = &plan.steps()[1];
    assert_eq!((step.timeout(), step.retry().max_attempts), (Some(Duration::from_secs(5)), 2));
    assert_eq!(plan.allowed_commands().unwrap(), ["npm"]);
}

/// S2-X-28: burst mode has time limits and a parallelism of its own, below what a step, the plan or another setting says.
#[test]
fn burst_mode_is_for_many_short_steps() {
    let of = |config: &str| {
        let plan = read(&format!(r#"{{"plan": {TASK_PLAN}, "config": {config}}}"#));
        (plan.parallelism(), plan.steps().iter().map(|step| step.timeout().unwrap().as_secs()).collect::<Vec<_>>())
    };
    let (parallelism, limits) = of(r#"{"mode": "burst"}"#);
    assert!(parallelism == limits.len() && limits.len() > 1 && limits.iter().all(|limit| *limit == 30), "{limits:?}");
    assert_eq!(of(r#"{"mode": "normal"}"#), of("{}"));
    let (parallelism, limits) = of(r#"{"mode": "burst", "parallel": false, "step_timeout_seconds": 7}"#);
    assert!(parallelism == 1 && limits.iter().all(|limit| *limit == 7), "{limits:?}");
}

/// S2-FR-026, X31: a step with an action alone is carried out by the model that the settings beside the plan name: what the step says is its task, and its action and the tools that read
/// are offered.
#[test]
fn a_step_with_an_action_alone_is_for_a_model_to_carry_out() {
    let text = format!(r#"{{"plan": {PASCAL}, "config": {{"model": "coder", "max_turns_per_step": 4}}}}"#);
    let text = text.replacen(r#""ExpectedOutput": null"#, r#""ExpectedOutput": "a file of ${size} bytes""#, 1);
    let plan = read(&text);
    let agent = plan.steps()[0].agent().expect("a model works in it");
    assert_eq!((agent.model(), agent.max_turns()), ("coder", 4));
    let tools: Vec<&str> = agent.tools().iter().map(|tool| tool.tool.as_str()).collect();
    assert_eq!(tools, ["CreateFile", "read_file", "list_directory", "search_code"]);
    let task = agent.task().resolve(&|_, _| None).unwrap();
    let task = task["task"].as_str().unwrap();
    assert!(task.starts_with("Create file\n\n") && task.contains("Use the tool CreateFile."), "{task}");
    assert!(task.ends_with("Expected output: a file of ${size} bytes"), "{task}");
    assert_eq!(plan.steps()[0].retry().max_attempts, 4, "what passes is tried again within the loop");
}

/// An action that reads is offered once, however its planner spells it: a model cannot tell two tools by one name apart.
#[test]
fn a_step_whose_action_reads_is_offered_it_once() {
    for action in ["ReadFile", "READ_FILE", "read_file"] {
        let text = format!(
            r#"{{"plan": {{"id": "p", "tasks": [{{"id": "t", "steps": [{{"id": "a", "title": "Read", "action": "{action}"}}]}}]}}, "config": {{"model": "coder"}}}}"#
        );
        let plan = read(&text);
        let agent = plan.steps()[0].agent().expect("a model works in it");
        let tools: Vec<&str> = agent.tools().iter().map(|tool| tool.tool.as_str()).collect();
        assert_eq!(tools, [action, "list_directory", "search_code"]);
    }
}

/// S2-FR-002: the names that a serialiser of C# writes are read too; a step with an action alone is refused with what it lacks, which a model would choose.
#[test]
fn a_step_with_an_action_alone_is_refused_with_what_it_lacks() {
    let lacks = |task: usize, step: usize, action: &str, needed: &str| {
        format!(
            "Tasks[{task}].Steps[{step}].parameters: are missing: `{action}` needs {needed}: write them as `parameters`, name a model that chooses them with \
             `config: {{model: NAME}}` beside the plan, or mark the step as Completed"
        )
    };
    let expected = [
        lacks(0, 0, "CreateFile", "`path` and `content`"),
        lacks(0, 1, "WriteFile", "`path` and `content`"),
        lacks(0, 2, "ReadFile", "`path`"),
    ];
    assert_eq!(refusals(PASCAL), expected);
    let with = PASCAL.replace(r#""ExpectedOutput": null"#, r#""Parameters": {"path": "test.txt", "content": ""}"#);
    let plan = read(&with);
    let ids: Vec<_> = plan.steps().iter().map(|step| (step.group(), step.id(), step.title())).collect();
    assert_eq!(ids, [("a1b2", "s1", "Create file"), ("a1b2", "s2", "Write content"), ("a1b2", "s3", "Read content")]);
    assert_eq!(plan.id(), "0f8fad5b-d9cb-469f-a165-70867728950e");
    let done = PASCAL.replace("\"Status\": \"Pending\"", "\"Status\": \"Completed\"");
    assert!(read(&done).steps().iter().all(|step| step.condition().is_some()), "all of it is skipped");
    assert_eq!(
        refusals(r#"{"id": "p", "tasks": [{"id": "t", "steps": [{"id": "a"}]}]}"#),
        [
            "tasks[0].steps[0].parameters: are missing, and so is `action`: name a model that chooses both with `config: {model: NAME}` beside the plan"
        ]
    );
}

/// A field in two spellings is refused, and none of them is passed over.
#[test]
fn a_field_of_a_task_plan_stands_in_one_spelling() {
    let twice = |fields: &str| {
        refusals(&format!(
            r#"{{"id": "p", "tasks": [{{"id": "t", "steps": [{{"id": "a", "action": "noop", "parameters": {{}}, {fields}}}]}}]}}"#
        ))
    };
    for (field, text) in [
        ("Action", r#""Action": "other""#),
        ("Parameters", r#""Parameters": {"output": 1}"#),
        ("Title", r#""title": "x", "Title": "y""#),
        ("DependsOn", r#""dependencies": [], "DependsOn": []"#),
        ("Dependencies", r#""dependencies": [], "Dependencies": []"#),
    ] {
        let found = twice(text);
        let expected = format!("tasks[0].steps[0].{field}: duplicates `");
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{text}: {found:?}");
    }
}

/// The graph is read as an object or as edges; what it names has to be there, and mistakes are said by field and place.
#[test]
fn the_graph_of_a_task_plan_is_checked() {
    let plan = |graph: &str| {
        let step = |id: &str| format!(r#"{{"id": "{id}", "action": "noop", "parameters": {{}}}}"#);
        format!(
            r#"{{"id": "p", "tasks": [{{"id": "t", "steps": [{}, {}]}}, {{"id": "u", "steps": [{}]}}], "dependencies": {graph}}}"#,
            step("a"),
            step("b"),
            step("c")
        )
    };
    let of = |graph: &str| -> Vec<Vec<usize>> {
        read(&plan(graph)).steps().iter().map(|step| step.dependencies().to_vec()).collect()
    };
    let none: Vec<Vec<usize>> = vec![vec![], vec![], vec![]];
    for graph in ["{}", "null", "[]", r#"{"nodes": ["a"], "edges": []}"#] {
        assert_eq!(of(graph), none, "{graph}");
    }
    let after: Vec<Vec<usize>> = vec![vec![], vec![0], vec![0, 1]];
    for graph in [
        r#"{"b": "a", "u": ["t"]}"#,
        r#"[{"from": "a", "to": "b"}, {"from": "t", "to": "u"}]"#,
        r#"{"edges": [{"From": {"value": "a"}, "To": "b"}, {"from": "t", "to": "c"}]}"#,
    ] {
        assert_eq!(of(graph), after, "{graph}");
    }
    for (graph, expected) in [
        (r#"{"b": ["x"]}"#, "dependencies.b[0]: there is no task and no step `x`"),
        (r#"{"tt": ["a"]}"#, "dependencies.tt: there is no task and no step `tt`"),
        (r#"7"#, "dependencies: must be an object with the ids on which each task or step depends"),
        (r#"[7]"#, "dependencies[0]: must be an edge, {from: ID, to: ID}"),
        (r#"{"b": ["a"], "a": ["b"]}"#, "tasks[0].steps[0]"),
    ] {
        let found = refusals(&plan(graph));
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected:?} is not in {found:#?}");
    }
}

/// S3-08: a plan of the executor agent counts seconds, has 300 of them for an attempt and three attempts, and names its task.
#[test]
fn a_plan_of_the_executor_agent_is_read_as_it_stands() {
    let plan = read(
        r#"{"plan_id": "plan_1", "task_id": "my_task", "steps": [
            {"step_id": "a", "tool": "noop", "inputs": {}, "timeout": 30},
            {"step_id": "b", "tool": "noop", "inputs": {}, "dependencies": ["a"]},
            {"step_id": "c", "wait": {"for": "2s"}}]}"#,
    );
    assert_eq!((plan.id(), plan.labels()["task_id"].as_str()), ("plan_1", "my_task"));
    let [a, b, c] = [0, 1, 2].map(|place| &plan.steps()[place]);
    let limits = [a, b, c].map(|step| (step.timeout(), step.attempt_timeout()));
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(limits, [(None, seconds(30)), (None, seconds(300)), (None, None)]);
    let retry = a.retry();
    assert_eq!(retry, &Profile::Agent.policy());
    assert!(matches!(retry.backoff, Backoff::Exponential { .. }) && retry.max_attempts == 3);
    assert_eq!(c.retry().max_attempts, 1);
    let named = read(r#"{"task_id": "my_task", "steps": [{"step_id": "a", "tool": "noop", "timeout": 300}]}"#);
    assert_eq!(named.id(), "my_task");
    let own = refusals(r#"{"id": "p", "steps": [{"id": "a", "tool": "noop", "timeout": 300}]}"#);
    assert_eq!(own, ["steps[0].timeout: `300` has no unit: write 300s for seconds"]);
    let twice = refusals(r#"{"id": "p", "plan_id": "q", "steps": [{"step_id": "a", "tool": "noop"}]}"#);
    assert_eq!(twice, ["plan_id: duplicates `id`: give only one of them"]);
}

/// S4-03: a context is a root of templates, an input, and labels; its environment is one of three. So is what a plan says of its origin.
#[test]
fn a_context_is_read_by_templates_and_is_in_the_labels() {
    let plan = |context: &str| {
        format!(
            r#"{{"plan": {{"id": "p", "metadata": {{"createdBy": "planner", "createdAt": "2026-01-15", "confidence": 0.9}},
                "steps": [{{"id": "a", "skillId": "noop", "params": {{"output": "${{context.traceId}} in ${{context.metadata.team[0]}}"}},
                           "condition": "${{context.environment}} == 'production'"}}]}},
               "context": {context}, "config": {{"dryRun": true}}}}"#
        )
    };
    let context = r#"{"traceId": "trace-456", "userId": "user-789", "sessionId": "s-1", "environment": "production", "metadata": {"team": ["a"]}}"#;
    let read = read(&plan(context));
    let labels = json!({
        "traceId": "trace-456", "userId": "user-789", "sessionId": "s-1", "environment": "production",
        "createdBy": "planner", "createdAt": "2026-01-15", "confidence": "0.9",
    });
    assert_eq!(json!(read.labels()), labels);
    assert_eq!(read.inputs()["context"].default, Some(serde_json::from_str(context).unwrap()));
    assert!(read.is_dry_run());
    assert!(read.steps()[0].dependencies().is_empty());
    for (context, expected) in [
        (
            r#"{"environment": "mars"}"#,
            "context.environment: must be one of development, staging, production, not `mars`",
        ),
        (r#""x""#, "context: must be an object with what the steps read as `${context.NAME}`"),
    ] {
        let found = refusals(&plan(context));
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected:?} is not in {found:#?}");
    }
    // Without a context the reference says what to do, and a step may have the id.
    let none =
        refusals(r#"{"id": "p", "steps": [{"id": "a", "tool": "noop", "arguments": {"output": "${context.x}"}}]}"#);
    assert!(none[0].contains("the plan declares no input `context`"), "{none:?}");
    let step = r#"{"id": "p", "steps": [{"id": "context", "tool": "noop"}, {"id": "b", "tool": "noop", "arguments": {"output": "${context.result.x}"}}]}"#;
    assert_eq!(Plan::parse(Format::Auto, step).unwrap().steps()[1].dependencies(), [0]);
}

/// A time limit of a run is that of every step with attempts, also in plans of steps.
#[test]
fn a_time_limit_of_a_run_is_that_of_every_step() {
    let plan = yaml(
        "{id: p, steps: [{id: a, tool: noop, timeout: 1h}, {id: w, wait: {for: 1s}}, {id: b, plan: {id: q, steps: [{id: c, tool: noop}]}}]}",
    );
    let limited = plan.with_step_timeout(Duration::from_secs(7));
    let timeouts: Vec<_> = limited.steps().iter().map(|step| step.timeout().map(|timeout| timeout.as_secs())).collect();
    assert_eq!(timeouts, [Some(7), None, Some(7)]);
    let StepKind::Plan(PlanStep { plan: inner, .. }) = limited.steps()[2].kind() else { panic!() };
    assert_eq!(inner.steps()[0].timeout(), Some(Duration::from_secs(7)));
}

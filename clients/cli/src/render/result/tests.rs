use std::time::Duration;

use belay_proto::v1::{
    AgentStepDetail, AuditEntry, BudgetAmounts, ErrorClass, ExecutionEvent, ExecutionFinished, Failure, Payload, Plan,
    Progress, QuotaState, Step, StepCompleted, StepFailed, StepFallbackSwitched, StepItem, StepRetryScheduled,
    StepSkipped, StepSpec, StepStarted, StepTotals, ToolCallCompleted, ToolCallFailed, ToolCallRequested, ToolStep,
    ToolStepDetail, WaitStepDetail, audit_entry, execution, execution_event::Kind, step, step::State, step_spec,
};
use pbjson_types::Timestamp;
use serde_json::json;

use super::{
    lines::{EventLines, EventShape},
    *,
};
use crate::render::tracked_execution::TrackedExecution;

/// 2026-02-24T10:00:00Z.
const START: i64 = 1_771_927_200;

fn at(milliseconds: i64) -> Option<Timestamp> {
    let nanos = i32::try_from(milliseconds % 1_000).unwrap() * 1_000_000;
    Some(Timestamp { seconds: START + milliseconds / 1_000, nanos })
}

fn step(id: &str, tool: &str, state: State, span: (i64, i64), output: Option<&str>) -> Step {
    Step {
        step_id: id.to_owned(),
        state: state.into(),
        attempt: i32::from(state != State::Skipped),
        max_attempts: 3,
        start_time: at(span.0).filter(|_| state != State::Skipped),
        end_time: at(span.1),
        output: output.map(Payload::of_json),
        detail: Some(step::Detail::Tool(ToolStepDetail { tool: tool.to_owned() })),
        ..Step::default()
    }
}

fn spec(id: &str, depends_on: &[&str], arguments: &str) -> StepSpec {
    let tool = match id {
        "step-1" => "generate_content",
        "step-2" => "moderate_content",
        "step-3" => "analyze_seo",
        "a" => "read_file",
        _ => "run_terminal",
    };
    let tool = ToolStep { tool: tool.to_owned(), arguments: Some(Payload::of_json(arguments)), ..ToolStep::default() };
    StepSpec {
        id: id.to_owned(),
        depends_on: depends_on.iter().map(|id| (*id).to_owned()).collect(),
        kind: Some(step_spec::Kind::Tool(tool)),
        ..StepSpec::default()
    }
}

fn called(id: &str, arguments: &str) -> ExecutionEvent {
    let arguments = Some(Payload::of_json(arguments));
    let kind = Kind::ToolCallRequested(ToolCallRequested { tool: "t".to_owned(), arguments, ..Default::default() });
    ExecutionEvent { step_id: id.to_owned(), kind: Some(kind), ..Default::default() }
}

fn calls(events: &[ExecutionEvent]) -> Calls {
    let mut calls = Calls::default();
    events.iter().for_each(|event| calls.take(event));
    calls
}

/// A post is generated, then moderated and analysed side by side.
fn blog_post() -> RecordedExecution {
    let execution = Execution {
        name: "namespaces/default/executions/exec-001".to_owned(),
        plan_id: "plan-123".to_owned(),
        state: execution::State::Completed.into(),
        plan: Some(Plan {
            steps: vec![
                spec("step-1", &[], "{}"),
                spec("step-2", &[], r#"{"post":"${step-1.result.content}"}"#),
                spec("step-3", &["step-1"], "{}"),
            ],
            ..Plan::default()
        }),
        steps: vec![
            step("step-1", "generate_content", State::Completed, (0, 12_340), Some(r#"{"content":"…"}"#)),
            step("step-2", "moderate_content", State::Completed, (12_340, 14_840), Some(r#"{"approved":true}"#)),
            step("step-3", "analyze_seo", State::Completed, (12_340, 15_500), Some(r#"{"score":85}"#)),
        ],
        create_time: at(0),
        start_time: at(0),
        end_time: at(15_500),
        ..Execution::default()
    };
    let calls = calls(&[
        called("step-1", r#"{"topic":"GraphQL"}"#),
        called("step-2", r#"{"post":"old"}"#),
        called("step-2", r#"{"post":"…"}"#),
    ]);
    let entry = AuditEntry {
        record_time: at(12_340),
        severity: audit_entry::Severity::Info.into(),
        step_id: "step-1".to_owned(),
        message: "Step completed".to_owned(),
        details: r#"{"durationMs":12340}"#.to_owned(),
        ..AuditEntry::default()
    };
    RecordedExecution { execution, calls, audit: vec![entry], now: Duration::ZERO }
}

/// An execution with a step in each of these states: completed, out of quota in its third attempt, cancelled, skipped, waiting.
fn failed() -> RecordedExecution {
    let failure = Failure {
        error_class: ErrorClass::RateLimit.into(),
        message: "too many requests".to_owned(),
        reason: "TOOL_FAILED".to_owned(),
        retryable: true,
        metadata: [("exit_code".to_owned(), "3".to_owned())].into(),
        quota: Some(QuotaState { name: "tokens per day".to_owned(), limit: 9, ..QuotaState::default() }),
        last_output: Some(belay_proto::v1::LastOutput { stdout: "429\n".to_owned(), ..Default::default() }),
        ..Failure::default()
    };
    let broken = Step {
        failure: Some(failure.clone()),
        attempt: 3,
        ..step("b", "run_terminal", State::Failed, (500, 2_000), None)
    };
    let mut recorded = blog_post();
    recorded.execution.state = execution::State::Failed.into();
    recorded.execution.plan = Some(Plan {
        steps: vec![spec("a", &[], "{}"), spec("b", &["a"], "{}"), spec("c", &[], "{}"), spec("d", &["b"], "{}")],
        ..Plan::default()
    });
    recorded.execution.steps = vec![
        step("a", "read_file", State::Completed, (0, 500), Some(r#"{"content":"x"}"#)),
        broken,
        step("c", "noop", State::Cancelled, (0, 2_000), None),
        step("d", "noop", State::Skipped, (0, 2_000), None),
        Step {
            detail: Some(step::Detail::Wait(WaitStepDetail::default())),
            ..step("w", "", State::Skipped, (0, 2_000), None)
        },
    ];
    recorded.execution.end_time = at(2_000);
    recorded.execution.failure = Some(failure);
    recorded.calls = calls(&[called("a", r#"{"path":"x"}"#), called("b", "{}"), called("b", "{}"), called("b", "{}")]);
    recorded
}

// S4-24, S4-25, S4-30: the result of the document's own example. S4-09, S4-11: the counts add up, and none has failed.
#[test]
fn a_plan_of_skills_completes() {
    let result = of(&blog_post(), Shape::Skills).unwrap();
    let expected = json!({
        "audit": {"entries": [{
                "timestamp": "2026-02-24T10:00:12.340Z",
                "level": "info",
                "stepId": "step-1",
                "message": "Step completed",
                "details": {"durationMs": 12340},
            }]},
            "executionId": "exec-001",
        "planId": "plan-123",
        "status": "completed",
        "stepResults": {
            "step-1": {
                "stepId": "step-1", "skillId": "generate_content", "status": "completed",
                "input": {"topic": "GraphQL"}, "output": {"content": "…"}, "attempts": 1, "duration": 12_340,
                "startTime": "2026-02-24T10:00:00Z", "endTime": "2026-02-24T10:00:12.340Z",
            },
            "step-2": {
                "stepId": "step-2", "skillId": "moderate_content", "status": "completed",
                "input": {"post": "…"}, "output": {"approved": true}, "attempts": 1, "duration": 2_500,
                "startTime": "2026-02-24T10:00:12.340Z", "endTime": "2026-02-24T10:00:14.840Z",
            },
            "step-3": {
                "stepId": "step-3", "skillId": "analyze_seo", "status": "completed",
                "input": {}, "output": {"score": 85}, "attempts": 1, "duration": 3_160,
                "startTime": "2026-02-24T10:00:12.340Z", "endTime": "2026-02-24T10:00:15.500Z",
            },
        },
        // What the last steps returned: no other step uses it.
        "finalResult": {"step-2": {"approved": true}, "step-3": {"score": 85}},
        "metrics": {
            "totalSteps": 3, "completedSteps": 3, "failedSteps": 0, "skippedSteps": 0, "totalDuration": 15_500,
            "skillsInvoked": {"generate_content": 1, "moderate_content": 2},
            "resourceUsage": {"apiCalls": 3},
        },
    });
    assert_eq!(result, expected);
}

// S4-09, S4-11, S4-23, S4-24: a cancelled step counts as skipped, and the error of a failed one has the document's fields.
#[test]
fn a_plan_of_skills_fails() {
    let result = of(&failed(), Shape::Skills).unwrap();
    assert_eq!(result["status"], "failed");
    let metrics = &result["metrics"];
    let count = |name: &str| metrics[name].as_u64().unwrap();
    assert_eq!(count("completedSteps") + count("failedSteps") + count("skippedSteps"), count("totalSteps"));
    assert_eq!((count("completedSteps"), count("failedSteps"), count("skippedSteps")), (1, 1, 3));
    assert_eq!(metrics["skillsInvoked"], json!({"read_file": 1, "run_terminal": 3}));
    let error = &result["error"];
    assert_eq!(
        (&error["code"], &error["message"], &error["recoverable"], &error["details"]["errorClass"]),
        (&json!("RATE_LIMIT_EXCEEDED"), &json!("too many requests"), &json!(true), &json!("ERROR_CLASS_RATE_LIMIT"))
    );
    let steps = &result["stepResults"];
    assert_eq!((&steps["b"]["error"], &steps["b"]["attempts"]), (error, &json!(3)));
    assert_eq!((&steps["c"]["status"], &steps["c"]["duration"]), (&json!("skipped"), &json!(2_000)));
    assert_eq!((&steps["w"]["skillId"], &steps["w"]["duration"]), (&json!("wait"), &json!(0)));
    // Began no earlier than what it depends on ended.
    assert_eq!((&steps["d"]["startTime"], &steps["d"]["endTime"]), (&steps["b"]["endTime"], &steps["b"]["endTime"]));
    assert_eq!(result["finalResult"], json!({"content": "x"}));

    let mut plain = failed();
    plain.execution.steps[1].failure.as_mut().unwrap().set_error_class(ErrorClass::Transient);
    let result = of(&plain, Shape::Skills).unwrap();
    assert_eq!(result["stepResults"]["b"]["error"]["code"], "SKILL_EXECUTION_FAILED");
}

// S4-25, S4-26, S4-27: the seven states.
#[test]
fn every_state_has_a_status() {
    use execution::State as Of;
    let states = [
        (Of::Pending, "pending", "running", "PENDING"),
        (Of::Running, "running", "running", "RUNNING"),
        (Of::AwaitingApproval, "running", "running", "RUNNING"),
        (Of::Paused, "running", "running", "RUNNING"),
        (Of::Cancelling, "running", "running", "RUNNING"),
        (Of::Completed, "completed", "success", "COMPLETED"),
        (Of::Partial, "partial", "failed", "FAILED"),
        (Of::Failed, "failed", "failed", "FAILED"),
        (Of::Cancelled, "cancelled", "failed", "FAILED"),
        (Of::TimedOut, "timeout", "failed", "FAILED"),
    ];
    for (state, skills, executor, agent) in states {
        let mut recorded = blog_post();
        recorded.execution.state = state.into();
        let result = |shape| of(&recorded, shape).unwrap();
        assert_eq!(result(Shape::Skills)["status"], skills, "{state:?}");
        assert_eq!(result(Shape::Executor)["status"], executor, "{state:?}");
        assert_eq!(result(Shape::Agent)["plan"]["status"], agent, "{state:?}");
        let error = result(Shape::Skills).get("error").map(|error| error["code"].clone());
        assert_eq!(error, (state == Of::TimedOut).then(|| "TIMEOUT".into()));
    }
}

/// S4-28, S4-09: every code of the planner's errors is given where it belongs: what did not come to an end of its own has another one beside other steps.
#[test]
fn errors_of_skills_have_the_planners_codes() {
    let code = |class: ErrorClass, parallelism: i32| {
        let mut recorded = failed();
        recorded.execution.steps[1].failure.as_mut().unwrap().set_error_class(class);
        recorded.execution.plan.get_or_insert_default().parallelism = parallelism;
        of(&recorded, Shape::Skills).unwrap()["stepResults"]["b"]["error"]["code"].clone()
    };
    for (class, alone, beside) in [
        (ErrorClass::RateLimit, "RATE_LIMIT_EXCEEDED", "RATE_LIMIT_EXCEEDED"),
        (ErrorClass::Timeout, "TIMEOUT", "TIMEOUT"),
        (ErrorClass::PreconditionFailed, "PRECONDITION_FAILED", "PRECONDITION_FAILED"),
        (ErrorClass::Transient, "SKILL_EXECUTION_FAILED", "SKILL_EXECUTION_FAILED"),
        (ErrorClass::OutcomeUnknown, "SKILL_EXECUTION_FAILED", "PARALLEL_EXECUTION_FAILED"),
        (ErrorClass::Crash, "SKILL_EXECUTION_FAILED", "PARALLEL_EXECUTION_FAILED"),
        (ErrorClass::Internal, "SKILL_EXECUTION_FAILED", "PARALLEL_EXECUTION_FAILED"),
    ] {
        assert_eq!((code(class, 1), code(class, 8)), (json!(alone), json!(beside)), "{class:?}");
    }
}

#[test]
fn every_state_of_a_step_has_a_status() {
    use State as Of;
    let states = [
        (Of::Pending, "pending", "pending", "PENDING"),
        (Of::Ready, "pending", "pending", "PENDING"),
        (Of::Running, "running", "running", "RUNNING"),
        (Of::AwaitingApproval, "running", "running", "RUNNING"),
        (Of::BackingOff, "running", "running", "RUNNING"),
        (Of::OutcomeUnknown, "running", "running", "RUNNING"),
        (Of::Waiting, "running", "running", "RUNNING"),
        (Of::Completed, "completed", "success", "COMPLETED"),
        (Of::Failed, "failed", "failed", "FAILED"),
        (Of::Skipped, "skipped", "skipped", "SKIPPED"),
        (Of::Cancelled, "skipped", "cancelled", "SKIPPED"),
    ];
    for (state, skills, executor, agent) in states {
        let mut recorded = blog_post();
        recorded.execution.steps[0].state = state.into();
        let result = |shape| of(&recorded, shape).unwrap();
        assert_eq!(result(Shape::Skills)["stepResults"]["step-1"]["status"], skills, "{state:?}");
        assert_eq!(result(Shape::Executor)["output"]["step_results"][0]["status"], executor, "{state:?}");
        assert_eq!(result(Shape::Agent)["steps"][0]["status"], agent, "{state:?}");
    }
}

// The calls of a step's fallback are the fallback's, and what was made for the entries of a list is in the result of the step that reads it.
#[test]
fn fallbacks_and_entries_of_lists_are_counted_where_they_belong() {
    let switched = StepFallbackSwitched { fallback_tool: "write_file".to_owned(), ..StepFallbackSwitched::default() };
    let switched = Kind::StepFallbackSwitched(switched);
    let mut recorded = failed();
    recorded.execution.steps[1].detail = Some(step::Detail::Tool(ToolStepDetail { tool: "write_file".to_owned() }));
    recorded.calls = calls(&[
        called("b", "{}"),
        called("b", "{}"),
        ExecutionEvent { step_id: "b".to_owned(), kind: Some(switched), ..Default::default() },
        called("b", "{}"),
    ]);
    let result = of(&recorded, Shape::Skills).unwrap();
    assert_eq!(result["metrics"]["skillsInvoked"], json!({"run_terminal": 2, "write_file": 1}));
    assert_eq!(result["stepResults"]["b"]["skillId"], "write_file");

    let mut listed = blog_post();
    let item = StepItem { step_id: "step-3".to_owned(), ..StepItem::default() };
    let entry = step("step-3~0", "analyze_seo", State::Completed, (0, 1), Some("85"));
    listed.execution.steps.push(Step { item: Some(item), ..entry });
    listed.calls = calls(&[called("step-3~0", "{}")]);
    let result = of(&listed, Shape::Skills).unwrap();
    assert_eq!(result["finalResult"], json!({"step-2": {"approved": true}, "step-3": {"score": 85}}));
    assert_eq!(result["metrics"]["skillsInvoked"], json!({"analyze_seo": 1}));
    let artifacts = of(&listed, Shape::Agent).unwrap()["artifacts"].take();
    let steps = "namespaces/default/executions/exec-001/steps";
    let made_from = |place: usize| artifacts[place]["provenance"]["depends_on"].clone();
    assert_eq!(made_from(2), json!([format!("{steps}/step-1"), format!("{steps}/step-3~0")]));
    assert_eq!(made_from(3), json!([format!("{steps}/step-1")]));
}

// S2-X-03, S2-FR-085, S2-NFR-015, S4-30: what models have used, and their turns are no steps of the plan.
#[test]
fn what_models_have_used_is_in_the_results() {
    let mut recorded = blog_post();
    let whole = &mut recorded.execution.steps[0];
    whole.detail = Some(step::Detail::Agent(AgentStepDetail { model: "m".to_owned(), turns: 1, max_turns: 10 }));
    let turn = StepItem { step_id: whole.step_id.clone(), ..StepItem::default() };
    recorded.execution.steps.push(Step {
        step_id: "step-1~0".to_owned(),
        item: Some(turn),
        attempt: 1,
        ..Step::default()
    });
    recorded.execution.spent = Some(BudgetAmounts { tokens: 1_500, cost_micros: 12_500, ..BudgetAmounts::default() });
    let skills = of(&recorded, Shape::Skills).unwrap();
    assert_eq!(skills["metrics"]["totalSteps"], 3);
    assert_eq!(skills["metrics"]["resourceUsage"], json!({"apiCalls": 3, "tokensUsed": 1500, "costUSD": 0.0125}));
    let executor = of(&recorded, Shape::Executor).unwrap();
    assert_eq!(executor["output"]["metrics"]["tokens"], 1500);
    assert_eq!(executor["output"]["step_results"].as_array().unwrap().len(), 3);
    let stuck = Failure { reason: "TURN_LIMIT".to_owned(), ..Failure::default() };
    assert_eq!(super::executor::error_code(&stuck), "ACODE-EXEC-003");
}

// S2-X-26: the error codes and the exit code.
#[test]
fn a_stage_hands_over_to_the_verifier_or_has_failed() {
    let complete = of(&blog_post(), Shape::Executor).unwrap();
    assert_eq!((&complete["next_stage"], &complete["exit_code"]), (&json!("verifier"), &json!(0)));
    assert_eq!(complete["message"], "3 steps executed");
    assert_eq!(complete["metrics"], json!({"stage": "executor", "duration_ms": 15_500}));
    assert_eq!(complete["output"]["all_complete"], true);
    // S2-X-03.
    assert_eq!(complete["output"]["metrics"], json!({"duration_ms": 15_500, "tokens": 0}));
    assert_eq!(
        complete["output"]["step_results"][2],
        json!({"task": 1, "step": 3, "step_id": "step-3", "title": "step-3", "status": "success", "output": {"score": 85}})
    );

    let failed = of(&failed(), Shape::Executor).unwrap();
    assert_eq!((&failed["next_stage"], &failed["exit_code"]), (&Value::Null, &json!(30)));
    assert_eq!((&failed["output"]["all_complete"], &failed["message"]), (&json!(false), &json!("3 steps executed")));
    assert_eq!(
        failed["output"]["step_results"][1],
        json!({
            "task": 1, "step": 2, "step_id": "b", "title": "b", "status": "failed", "message": "too many requests",
            "error_code": "ACODE-EXEC-002",
        })
    );
    let codes = [
        (ErrorClass::Crash, "1"),
        (ErrorClass::Fatal, "1"),
        (ErrorClass::SandboxViolation, "4"),
        (ErrorClass::PolicyDenied, "5"),
        (ErrorClass::ApprovalDenied, "5"),
        (ErrorClass::Timeout, "6"),
        (ErrorClass::InvalidArguments, "7"),
    ];
    for (class, code) in codes {
        let failure = Failure { error_class: class.into(), ..Failure::default() };
        assert_eq!(executor::error_code(&failure), format!("ACODE-EXEC-00{code}"), "{class:?}");
    }
}

// S3-01, S3-05: artifacts with the step that made each and what it was made from; the status of steps and plan. S3-07: a step that
// exhausted its attempts is an ExecutionError, and what the others made is there.
#[test]
fn artifacts_know_where_they_come_from() {
    let result = of(&blog_post(), Shape::Agent).unwrap();
    assert_eq!(
        result["artifacts"][1],
        json!({
            "artifact_id": "namespaces/default/executions/exec-001/steps/step-2",
            "tool": "moderate_content",
            "content": {"approved": true},
            "created_at": "2026-02-24T10:00:14.840Z",
            "provenance": {
                "created_by": "step-2",
                "depends_on": ["namespaces/default/executions/exec-001/steps/step-1"],
            },
        })
    );
    let failed = of(&failed(), Shape::Agent).unwrap();
    assert_eq!(failed["artifacts"].as_array().map(Vec::len), Some(1));
    let error = json!({"type": "ExecutionError", "message": "too many requests"});
    assert_eq!(failed["plan"], json!({"plan_id": "plan-123", "status": "FAILED", "error": error}));
    assert_eq!(failed["steps"][1], json!({"step_id": "b", "status": "FAILED", "error": error}));
}

// S0-13, S0-14: the result of the last attempt, with the quota as the tool reported it.
#[test]
fn one_prompt_has_one_result() {
    assert_eq!(
        of(&failed(), Shape::QuotaAware).unwrap(),
        json!({
            "success": false, "output": "429\n", "dry_run": false, "exit_code": 3, "error": "too many requests",
            "quota_state": {"name": "tokens per day", "limit": "9", "status": "QUOTA_EXHAUSTED"},
        })
    );
    let mut recorded = failed();
    let failure = recorded.execution.failure.as_mut().unwrap();
    failure.quota = None;
    assert_eq!(of(&recorded, Shape::QuotaAware).unwrap()["quota_state"], json!({"status": "RATE_LIMITED"}));
    recorded.execution.failure.as_mut().unwrap().set_error_class(ErrorClass::AgentUnavailable);
    let result = of(&recorded, Shape::QuotaAware).unwrap();
    assert_eq!((&result["exit_code"], result.get("quota_state")), (&json!(-1), None));

    let mut recorded = blog_post();
    recorded.execution.steps.truncate(1);
    recorded.execution.steps[0].output = Some(Payload::of_json(r#"{"stdout":"done\n","stderr":"","exit_code":0}"#));
    assert_eq!(
        of(&recorded, Shape::QuotaAware).unwrap(),
        json!({"success": true, "output": "done\n", "dry_run": false, "exit_code": 0})
    );
}

// S1-14, S1-24: exit_code, error, artifacts, metadata.
#[test]
fn a_supervised_agent_has_its_attempts_counted() {
    assert_eq!(
        of(&failed(), Shape::Supervisor).unwrap(),
        json!({
            "exit_code": 3,
            "error": "too many requests",
            "artifacts": ["namespaces/default/executions/exec-001/steps/a"],
            "metadata": {"agent_used": "run_terminal", "agent_id": "b", "retry_count": 2, "total_attempts": 3},
        })
    );
    let complete = of(&blog_post(), Shape::Supervisor).unwrap();
    assert_eq!((&complete["exit_code"], &complete["error"]), (&json!(0), &Value::Null));
}

#[test]
fn the_own_shape_has_the_result_and_every_output() {
    let mut recorded = failed();
    recorded.execution.totals = Some(StepTotals { total: 5, completed: 1, ..StepTotals::default() });
    let result = of(&recorded, Shape::Belay).unwrap();
    assert_eq!((&result["state"], &result["result"]), (&json!("STATE_FAILED"), &json!({"content": "x"})));
    assert_eq!(result["stepOutputs"], json!({"a": {"content": "x"}}));
    assert_eq!((&result["failure"]["code"], &result["totals"]["total"]), (&json!("TOOL_FAILED"), &json!(5)));
    recorded.execution.outputs = Some(Payload::of_json(r#"{"post":"y"}"#));
    assert_eq!(of(&recorded, Shape::Belay).unwrap()["result"], json!({"post": "y"}), "what the plan declares");
    recorded.execution.outputs = None;
    recorded.execution.outputs_failure = Some(Failure::default());
    let refused = of(&recorded, Shape::Belay).unwrap();
    assert_eq!((&refused["result"], &refused["outputsFailure"]["retryable"]), (&Value::Null, &json!(false)));
    let mut nothing = blog_post();
    nothing.execution.steps.clear();
    assert_eq!(of(&nothing, Shape::Belay).unwrap()["result"], Value::Null);
    assert!(of(&nothing, Shape::Skills).unwrap().get("finalResult").is_none());
}

// S2-FR-033, S2-X-07, S2-X-24: the names of the lines, and their fields; a result is a success, an error, a timeout or denied.
#[test]
fn events_are_the_lines_of_a_stage() {
    let recorded = failed();
    let mut execution = recorded.execution;
    execution.steps[1].title = "Call the model".to_owned();
    let tracked = TrackedExecution::new(execution);
    let mut lines = EventLines::new(EventShape::Executor);
    let mut take = |milliseconds, id: &str, kind| {
        let event = ExecutionEvent {
            sequence: 1,
            record_time: at(milliseconds),
            step_id: id.to_owned(),
            kind: Some(kind),
            ..Default::default()
        };
        lines.take(&event, &tracked).unwrap()
    };
    let call = |arguments: &str| {
        let arguments = Some(Payload::of_json(arguments));
        Kind::ToolCallRequested(ToolCallRequested { tool: "run_terminal".to_owned(), arguments, ..Default::default() })
    };
    let failure =
        |class: ErrorClass| Some(Failure { error_class: class.into(), message: "no".to_owned(), ..Failure::default() });
    let failed = |class| Kind::ToolCallFailed(ToolCallFailed { failure: failure(class), ..Default::default() });
    assert_eq!(
        take(500, "b", Kind::StepStarted(StepStarted {})).unwrap(),
        json!({"type": "step_start", "task": 1, "step": 2, "step_id": "b", "title": "Call the model"})
    );
    assert_eq!(
        take(500, "b", call(r#"{"command":["x"]}"#)).unwrap(),
        json!({
            "type": "tool_call", "task": 1, "step": 2, "step_id": "b", "tool": "run_terminal",
            "params": {"command": ["x"]},
        })
    );
    assert_eq!(
        take(700, "b", failed(ErrorClass::Timeout)).unwrap(),
        json!({
            "type": "tool_result", "task": 1, "step": 2, "step_id": "b", "tool": "run_terminal", "status": "timeout",
            "duration_ms": 200, "error": "no", "error_code": "ACODE-EXEC-006",
        })
    );
    assert_eq!(take(700, "b", Kind::StepRetryScheduled(StepRetryScheduled::default())), None);
    assert_eq!(take(900, "b", Kind::StepStarted(StepStarted {})), None, "another attempt is the same step");
    take(900, "b", call("{}"));
    let status = take(950, "b", failed(ErrorClass::SandboxViolation)).unwrap()["status"].take();
    assert_eq!(status, "denied");
    let ended = Kind::StepFailed(StepFailed { failure: failure(ErrorClass::Fatal), ..Default::default() });
    assert_eq!(
        take(1_000, "b", ended).unwrap(),
        json!({
            "type": "step_complete", "task": 1, "step": 2, "step_id": "b", "title": "Call the model",
            "status": "fatal", "duration_ms": 500, "error": "no", "error_code": "ACODE-EXEC-001",
        })
    );
    take(1_000, "a", Kind::StepStarted(StepStarted {}));
    take(1_000, "a", call("{}"));
    let result = Some(Payload::of_json("4"));
    let done = take(1_040, "a", Kind::ToolCallCompleted(ToolCallCompleted { result, receipt: None })).unwrap();
    assert_eq!((&done["status"], &done["output"], &done["duration_ms"]), (&json!("success"), &json!(4), &json!(40)));
    let progress = Some(Progress { done: 1, total: 5 });
    let done = take(1_050, "a", Kind::StepCompleted(StepCompleted { progress, duration: None })).unwrap();
    assert_eq!((&done["status"], &done["duration_ms"]), (&json!("success"), &json!(50)));
    let skipped = take(1_050, "d", Kind::StepSkipped(StepSkipped::default())).unwrap();
    assert_eq!((&skipped["status"], &skipped["duration_ms"]), (&json!("skipped"), &json!(0)));
    let finished = ExecutionFinished { state: execution::State::Failed.into(), ..Default::default() };
    assert_eq!(
        take(1_100, "", Kind::ExecutionFinished(Box::new(finished))).unwrap(),
        json!({"type": "stage_complete", "task": 1, "status": "failed", "next_stage": null, "duration_ms": 0})
    );
}

//! An execution in full, a list, and the end of an execution.

use std::time::Duration;

use belay_proto::v1::{
    BlobRef, ErrorClass, Execution, ExecutionLimit, Failure, LastOutput, LimitState, Payload, SkipReason, StartRate,
    Step, StepAttempt, StepTotals, ToolStepDetail, TraceContext, WaitingReason, execution, payload::Content, step,
    step::State, waiting_reason,
};
use pbjson_types::Timestamp;

use super::{full, list, next_command, report, summary};
use crate::{exit::Exit, render::text::Line};

const NOW: Duration = Duration::from_secs(1_795_230_300);

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds: 1_795_230_245 + seconds, nanos: 0 })
}

fn step(id: &str, state: State) -> Step {
    Step {
        step_id: id.to_owned(),
        detail: Some(step::Detail::Tool(ToolStepDetail { tool: "read_file".to_owned() })),
        state: state.into(),
        max_attempts: 1,
        ..Default::default()
    }
}

fn failed() -> Execution {
    let failure = Failure {
        message: "no such file: a".to_owned(),
        reason: "FILE_NOT_FOUND".to_owned(),
        error_class: ErrorClass::SandboxViolation.into(),
        ..Default::default()
    };
    Execution {
        name: "namespaces/default/executions/e1".to_owned(),
        state: execution::State::Failed.into(),
        plan_id: "quickstart".to_owned(),
        principal: "me".to_owned(),
        create_time: at(0),
        end_time: at(12),
        approval_wait: Some(Duration::from_secs(2).into()),
        totals: Some(StepTotals { total: 3, completed: 1, failed: 1, skipped: 1, ..Default::default() }),
        steps: vec![
            Step {
                attempt: 1,
                start_time: at(0),
                end_time: at(4),
                approval_wait: Some(Duration::from_secs(3).into()),
                ..step("a", State::Completed)
            },
            Step {
                attempt: 2,
                max_attempts: 2,
                start_time: at(4),
                end_time: at(12),
                failure: Some(failure.clone()),
                ..step("b", State::Failed)
            },
            Step {
                skip_reason: SkipReason::DependencyFailed.into(),
                skipped_because: "b".to_owned(),
                ..step("c", State::Skipped)
            },
        ],
        failure: Some(failure),
        trace: Some(TraceContext {
            traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
            ..Default::default()
        }),
        labels: [("team".to_owned(), "x".to_owned()), ("a".to_owned(), "b".to_owned())].into(),
        ..Default::default()
    }
}

fn screen(lines: &[Line]) -> String {
    lines.iter().map(|line| line.render(false) + "\n").collect()
}

#[test]
fn one_execution_tells_why_it_failed_without_being_asked_twice() {
    assert_eq!(
        screen(&full(&failed(), true, NOW)),
        "e1  failed  10s, and 2s waiting for approval\n\
         \x20 plan      quickstart\n\
         \x20 accepted  2026-11-21 03:04:05Z by me\n\
         \x20 ended     2026-11-21 03:04:17Z\n\
         \x20 steps     1 completed, 1 failed, 1 skipped of 3\n\
         \x20 labels    a=b team=x\n\
         \x20 trace     4bf92f3577b34da6a3ce929d0e0e4736\n\
         steps\n\
         \x20 completed  a  read_file  1s                  and 3s waiting for approval\n\
         \x20 failed     b  read_file  8s  attempt 2 of 2  no such file: a (FILE_NOT_FOUND)\n\
         \x20 skipped    c  read_file                      depends on b, which failed\n\
         next: belay executions get e1 -o json\n"
    );
}

#[test]
fn what_a_failed_command_printed_is_shown_with_its_line_breaks() {
    let mut execution = failed();
    let output = LastOutput { stdout: "test adds ... FAILED\n3 != 0\n".to_owned(), ..Default::default() };
    let failure = |output| Failure {
        message: "`cargo` exited with code 101.".to_owned(),
        reason: "COMMAND_FAILED".to_owned(),
        metadata: [("exit_code".to_owned(), "101".to_owned())].into(),
        last_output: output,
        ..Default::default()
    };
    let attempt =
        |attempt, output| StepAttempt { attempt, failure: Some(failure(output)), end_time: at(attempt.into()) };
    execution.steps[1].failure = Some(failure(Some(output.clone())));
    execution.steps[1].failed_attempts = vec![attempt(1, None), attempt(2, Some(output))];
    let shown = screen(&full(&execution, true, NOW));
    let attempts = "\x20 b, attempt 1 of 2, 2026-11-21 03:04:06Z: `cargo` exited with code 101. (COMMAND_FAILED)\n\
         \x20 b, attempt 2 of 2, 2026-11-21 03:04:07Z: `cargo` exited with code 101. (COMMAND_FAILED)\n\
         \x20    │ test adds ... FAILED\n\
         \x20    │ 3 != 0\nnext: ";
    assert!(shown.contains(attempts), "{shown}");
    let shown = screen(&report(&execution).lines());
    let end = "\x20 b  read_file · exit 101 · attempt 2 of 2 · COMMAND_FAILED\n\
         \x20    │ test adds ... FAILED\n\
         \x20    │ 3 != 0\n\
         \x20 execution e1\n";
    assert!(shown.contains(end), "{shown}");
}

#[test]
fn the_end_of_a_failed_one_names_step_reason_and_way_out() {
    let report = report(&failed());
    assert_eq!(
        screen(&report.lines()),
        "✗ quickstart failed after 10s, and 2s waiting for approval · 1 completed, 1 failed, 1 skipped\n\
         \x20 b  read_file · no such file: a · attempt 2 of 2\n\
         \x20 execution e1\n\
         \x20 trace 4bf92f3577b34da6a3ce929d0e0e4736\n\
         next: belay executions get e1\n\
         \x20     belay executions retry e1\n\
         code: FILE_NOT_FOUND (belay explain FILE_NOT_FOUND)\n"
    );
    assert_eq!(report.exit, Exit::SANDBOX_VIOLATION);
}

// The time that a person takes is never the machine's, even while the wait lasts.
#[test]
fn one_that_waits_for_a_person_shows_that_time_apart() {
    let since = |seconds| WaitingReason {
        kind: waiting_reason::Kind::Approval.into(),
        begin_time: at(seconds),
        ..Default::default()
    };
    let waits = |id, began| Step {
        attempt: 1,
        start_time: at(0),
        waiting: Some(since(began)),
        ..step(id, State::AwaitingApproval)
    };
    let waiting = Execution {
        name: "namespaces/default/executions/e1".to_owned(),
        state: execution::State::AwaitingApproval.into(),
        create_time: at(0),
        approval_wait: Some(Duration::from_secs(10).into()),
        steps: vec![waits("a", 3), waits("b", 35)],
        waiting: vec![since(3), since(35)],
        ..Default::default()
    };
    assert_eq!(
        screen(&full(&waiting, true, NOW)),
        "e1  awaiting_approval  25s, and 30s waiting for approval\n\
         \x20 accepted  2026-11-21 03:04:05Z\n\
         steps\n\
         \x20 awaiting_approval  a  read_file  3s     waiting for approval (52s)\n\
         \x20 awaiting_approval  b  read_file  35s    waiting for approval (20s)\n\
         waiting for approval (52s)\n\
         waiting for approval (20s)\n\
         next: belay executions watch e1\n"
    );
}

#[test]
fn a_list_answers_at_a_glance() {
    let running = Execution {
        name: "namespaces/default/executions/e2".to_owned(),
        state: execution::State::Running.into(),
        plan_id: "p".to_owned(),
        create_time: at(40),
        ..Default::default()
    };
    assert_eq!(
        screen(&list(&[running, failed()], NOW)),
        "  ID  STATE    PLAN        AGE  BY  LABELS\n\
         \x20 e2  running  p           15s\n\
         \x20 e1  failed   quickstart  55s  me  a=b team=x\n"
    );
}

#[test]
fn the_next_command_fits_the_state() {
    let next = |state: execution::State, said: &str, is_driven: bool| {
        let waiting = vec![WaitingReason { next_command: said.to_owned(), ..Default::default() }];
        let execution = Execution { name: "x/e".to_owned(), state: state.into(), waiting, ..Default::default() };
        next_command(&execution, is_driven)
    };
    assert_eq!(next(execution::State::Running, "", true), "belay executions watch e");
    assert_eq!(next(execution::State::Running, "belay approve x", true), "belay approve x");
    assert_eq!(next(execution::State::Running, "do this", true), "belay executions watch e");
    assert_eq!(next(execution::State::Running, "belay approve x", false), "belay executions resume e");
    assert_eq!(next(execution::State::Paused, "", true), "belay executions resume e");
    assert_eq!(next(execution::State::Completed, "", false), "belay executions get e -o json");
}

#[test]
fn a_good_end_is_short() {
    let completed = Execution {
        state: execution::State::Completed.into(),
        workspace: "/w".to_owned(),
        approval_wait: None,
        totals: Some(StepTotals { total: 3, completed: 3, ..Default::default() }),
        ..failed()
    };
    assert_eq!(
        screen(&summary(&completed, NOW)),
        "✓ quickstart completed in 12s · 3 completed\n  execution e1 in /w\nnext: belay executions get e1\n"
    );
}

/// The outputs of the plan stand below the steps, and in the last lines of a run, each on a line.
#[test]
fn the_outputs_of_the_plan_are_shown() {
    let outputs = format!(r#"{{"all":[1,"x"],"long":"{}","none":null,"version":"1.4"}}"#, "y".repeat(300));
    let payload = |content| Some(Payload { content: Some(content) });
    let ended = Execution {
        outputs: payload(Content::Json(outputs)),
        failure: None,
        state: execution::State::Completed.into(),
        ..failed()
    };
    let shown = format!(
        "outputs\n\x20 all      [1,\"x\"]\n\x20 long     {}…\n\x20 none     null\n\x20 version  1.4\nnext: ",
        "y".repeat(199)
    );
    for screen in [screen(&full(&ended, true, NOW)), screen(&summary(&ended, NOW))] {
        assert!(screen.contains(&shown), "{screen}");
    }
    let blob = BlobRef { size_bytes: 70_000, ..Default::default() };
    let large = Execution { outputs: payload(Content::Blob(blob)), ..ended.clone() };
    let shown = "outputs  70000 bytes, which `belay executions result e1` prints\n";
    assert!(screen(&summary(&large, NOW)).contains(shown), "{}", screen(&summary(&large, NOW)));
    let failure =
        Failure { message: "too large".to_owned(), reason: "OUTPUTS_TOO_LARGE".to_owned(), ..Default::default() };
    let refused = Execution { outputs: None, outputs_failure: Some(failure), ..ended };
    let shown = "no outputs: too large (OUTPUTS_TOO_LARGE)\n";
    assert!(screen(&summary(&refused, NOW)).contains(shown), "{}", screen(&summary(&refused, NOW)));
    let partial = Execution { outputs_failure: refused.outputs_failure, ..failed() };
    let heading = report(&partial).heading;
    assert!(screen(&heading).contains(shown), "{}", screen(&heading));
}

#[test]
fn limits_are_shown_with_whether_they_are_held() {
    let window = Some(Duration::from_secs(3_600).into());
    let limit = |key: &str, at_once, rate| ExecutionLimit { key: key.to_owned(), at_once, rate, ..Default::default() };
    let limits = vec![limit("deploy", 1, None), limit("api", 0, Some(StartRate { starts: 10, window }))];
    let waiting = vec![WaitingReason { kind: waiting_reason::Kind::Limit.into(), ..Default::default() }];
    let state = execution::State::Pending.into();
    let execution = Execution { limits, waiting, state, limit_state: LimitState::Waiting.into(), ..failed() };
    let text = screen(&full(&execution, true, NOW));
    assert!(text.contains("deploy (1 at once), api (10 in 1h): waiting"), "{text}");
    assert!(screen(&list(&[execution], NOW)).contains("pending (limit)"));
    assert!(!screen(&full(&failed(), true, NOW)).contains("limits"));
}

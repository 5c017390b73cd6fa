//! A trace for each execution: from the command that starts it to the process in the sandbox, and across a restart. And its log.

use std::process::Command;

use belay_e2e::belay::{CommandEnd, Home, RunningCommand};
use rustix::process::Signal;
use serde_json::Value;

use crate::collector::{Collector, Span, tree};

/// The trace of the process that runs `belay`.
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn home(plan: &str) -> Home {
    let home = Home::new();
    std::fs::create_dir(home.path("work")).unwrap();
    home.file("work/notes.txt", "hello\n");
    home.file("plan.yaml", plan);
    home
}

fn end(command: Command) -> CommandEnd {
    RunningCommand::start(command).end()
}

fn run(home: &Home, flags: &[&str]) -> Command {
    home.belay([&["run", "plan.yaml", "--workspace", "work", "--id", "traced"], flags].concat())
}

/// Spans contain no arguments, results or folder paths (B-11).
fn assert_says_no_more_than_it_has_to(home: &Home, spans: &[Span]) {
    let sent = format!("{spans:?}");
    for private in [home.path("").to_str().unwrap(), "hello", "notes.txt"] {
        assert!(!sent.contains(private), "{private} is in a span");
    }
}

/// B-11: the whole tree of an execution with steps at once, a command, a retry and an approval; the command sees the span that it
/// belongs to.
#[test]
fn an_execution_is_one_trace_from_the_command_line_into_the_sandbox() {
    let home = home(
        "
id: plain
parallelism: 3
steps:
  - {id: look, tool: run_terminal, arguments: {command: [env]}}
  - {id: left, tool: noop}
  - {id: right, tool: noop}
  - {id: flaky, tool: noop, arguments: {fail: not yet, fail_attempts: 1}, retry: {max_attempts: 2, backoff: [10ms]}}
  - {id: tidy, tool: delete_file, arguments: {path: notes.txt}, depends_on: [left, right]}
",
    );
    let collector = Collector::start();
    let ended = end(collector.watch(run(&home, &["--approve", "auto"])));
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let spans = collector.all();
    assert_eq!(
        tree(&spans),
        "
belay: belay run
  belay-executor: invoke_workflow plain [COMPLETED]
    belay-executor: step flaky [COMPLETED]
      belay-executor: execute_tool noop [COMPLETED]
        belay-tool-runner: execute_tool noop [COMPLETED]
    belay-executor: step flaky [FAILED] TOOL_FAILED
      belay-executor: execute_tool noop [FAILED] TOOL_FAILED
        belay-tool-runner: execute_tool noop [FAILED] TOOL_FAILED
    belay-executor: step left [COMPLETED]
      belay-executor: execute_tool noop [COMPLETED]
        belay-tool-runner: execute_tool noop [COMPLETED]
    belay-executor: step look [COMPLETED]
      belay-executor: execute_tool run_terminal [COMPLETED]
        belay-tool-runner: execute_tool run_terminal [COMPLETED]
    belay-executor: step right [COMPLETED]
      belay-executor: execute_tool noop [COMPLETED]
        belay-tool-runner: execute_tool noop [COMPLETED]
    belay-executor: step tidy [COMPLETED]
      belay-executor: execute_tool delete_file [COMPLETED]
        belay-approval-gate: belay.gate.v1.ApprovalGateService/CreateApproval [APPROVED]
        belay-tool-runner: belay.runner.v1.ToolRunnerService/CommitEffect
        belay-tool-runner: execute_tool delete_file [AWAITING_APPROVAL]
"
    );
    let trace_id = spans[0].trace_id();
    assert!(spans.iter().all(|span| span.trace_id() == trace_id), "one trace: {spans:#?}");
    assert_says_no_more_than_it_has_to(&home, &spans);

    let (_, execution) = home.json(&["executions", "get", "traced"]);
    assert_eq!(execution["trace"]["traceparent"].as_str().unwrap().split('-').nth(1), Some(trace_id.as_str()));
    let work = |span: &&Span| span.service == "belay-tool-runner" && span.span.name == "execute_tool run_terminal";
    let work = spans.iter().find(work).unwrap();
    let seen = execution["steps"][0]["output"].to_string();
    assert!(seen.contains(&format!("TRACEPARENT=00-{trace_id}-{}-01", work.span_id())), "{seen}");
    let shown = home.run(["executions", "get", "traced"]).out;
    assert!(shown.contains(&trace_id), "{shown}");
}

/// B-11: the process that drives an execution is killed while a person is asked; the next one continues in the same tree, and sends
/// what began before it was there. The decision belongs to the execution's trace, and is linked with the decider's.
#[test]
fn an_execution_that_outlives_its_process_is_still_one_trace() {
    let home = home(
        "
id: interrupted
steps:
  - {id: first, tool: noop}
  - {id: tidy, tool: delete_file, arguments: {path: notes.txt}, depends_on: [first]}
",
    );
    let mut collector = Collector::start();
    let serve = |collector: &Collector| {
        let mut server = RunningCommand::start(collector.watch(home.belay(["serve"])));
        server.wait_for("keeps data in");
        server
    };
    let server = serve(&collector);
    let mut started = collector.watch(run(&home, &["--approve", "prompt", "--wait-timeout", "1ms"]));
    started.env("TRACEPARENT", CALLER);
    end(started);
    // What a process has not sent when it is killed is lost.
    collector.wait_for("belay-executor", "step first");
    collector.wait_for("belay-tool-runner", "execute_tool delete_file");
    collector.wait_for("belay-approval-gate", "belay.gate.v1.ApprovalGateService/CreateApproval");
    home.start(["executions", "watch", "traced", "-o", "jsonl"]).wait_for("approvalRequested");
    server.kill();

    let server = serve(&collector);
    let approved = end(collector.watch(home.belay(["approve", "@last", "--yes"])));
    assert_eq!(approved.code, 0, "{}", approved.talk);
    let watched = home.run(["executions", "watch", "traced"]);
    assert_eq!(watched.code, 0, "{}", watched.talk);
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0);

    let (decider, spans): (Vec<Span>, Vec<Span>) =
        collector.all().into_iter().partition(|span| span.span.name == "belay approvals approve");
    assert_eq!(
        tree(&spans),
        "
belay: belay run WAIT_TIMEOUT
  belay-executor: invoke_workflow interrupted [COMPLETED]
    belay-executor: step first [COMPLETED]
      belay-executor: execute_tool noop [COMPLETED]
        belay-tool-runner: execute_tool noop [COMPLETED]
    belay-executor: step tidy [COMPLETED]
      belay-executor: execute_tool delete_file [COMPLETED]
        belay-approval-gate: belay.gate.v1.ApprovalGateService/CreateApproval [PENDING]
        belay-approval-gate: belay.v1.ApprovalService/DecideApproval [APPROVED]
        belay-tool-runner: belay.runner.v1.ToolRunnerService/CommitEffect
        belay-tool-runner: execute_tool delete_file [AWAITING_APPROVAL]
"
    );
    let caller: Vec<&str> = CALLER.split('-').collect();
    assert!(spans.iter().all(|span| span.trace_id() == caller[1]), "the trace of whoever began: {spans:#?}");
    let named = |name: &str| spans.iter().find(|span| span.span.name.ends_with(name)).unwrap();
    assert_eq!(named("belay run").parent_id(), caller[2]);
    let (held, tidy, decided) = (named("CreateApproval"), named("step tidy"), named("DecideApproval"));
    assert!(tidy.span.start_time_unix_nano < held.span.start_time_unix_nano, "it began before the restart");
    assert!(tidy.span.end_time_unix_nano > decided.span.end_time_unix_nano, "and ended after it");
    assert_ne!(decider[0].trace_id(), caller[1]);
    assert_eq!(decided.span.links[0].span_id, decider[0].span.span_id);
    assert_says_no_more_than_it_has_to(&home, &spans);
}

/// S2-NFR-003: a run does not wait for a silent collector: its services and its own command drop their last spans, and one line says so.
#[test]
fn a_collector_that_never_answers_costs_a_run_a_moment_and_a_line() {
    let home = home("{id: unheard, steps: [{id: only, tool: noop}]}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = run(&home, &[]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", silent.local_addr().unwrap()));
    command.env_remove("OTEL_BSP_EXPORT_TIMEOUT").env("BELAY_LOG", "warn");
    let ended = end(command);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let lost: Vec<&str> = ended.talk.lines().filter(|line| line.contains("spans are dropped")).collect();
    assert!(lost.len() == 1 && lost[0].contains("within 300 ms (OTEL_BSP_EXPORT_TIMEOUT"), "{}", ended.talk);
}

/// Logs for programs: one object a line, and a line about an execution says which one and in which trace.
#[test]
fn a_log_line_about_an_execution_names_it_and_its_trace() {
    let home = home("{id: logged, steps: [{id: only, tool: noop}]}");
    let mut command = run(&home, &["-o", "json"]);
    command.env("BELAY_LOG", "belay_executor=debug").env("BELAY_LOG_FORMAT", "json").env("TRACEPARENT", CALLER);
    let ended = end(command);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let lines: Vec<Value> =
        ended.talk.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    let about = lines.iter().find(|line| line["message"] == "The execution has ended").expect("its end is logged");
    assert_eq!(about["span"]["execution"], "namespaces/default/executions/traced");
    assert_eq!(about["span"]["trace_id"], CALLER.split('-').nth(1).unwrap());
    assert_eq!((about["state"].as_str(), about["level"].as_str()), (Some("COMPLETED"), Some("INFO")));
}

#[test]
fn an_invalid_variable_is_refused_by_name() {
    let home = home("{id: refused, steps: [{id: only, tool: noop}]}");
    let refused = |variables: &[(&str, &str)]| {
        let mut command = run(&home, &[]);
        command.envs(variables.iter().copied());
        end(command)
    };
    let spans = refused(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")]);
    assert_eq!(spans.code, 2);
    assert!(spans.talk.contains("OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as"), "{}", spans.talk);
    assert!(spans.talk.contains("code: TELEMETRY_UNUSABLE"), "{}", spans.talk);
    let log = refused(&[("BELAY_LOG_FORMAT", "xml")]);
    assert_eq!(log.code, 2);
    assert!(log.talk.contains("BELAY_LOG_FORMAT is `xml`: set it to `text` or to `json`"), "{}", log.talk);
}

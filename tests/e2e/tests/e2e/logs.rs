//! The services' logs, at the most verbose level, contain no secret that passed through them.

use std::time::Duration;

use belay_e2e::{Client, Person, Service, Services, client::name};
use belay_proto::v1::{self, Decision, approval::State};

/// Known by their shapes, in pieces so that no scanner takes this file for a leak: an argument and a result, the content of a file, what a
/// command says, a person's reason, a label, a token behind a name.
fn planted() -> [String; 6] {
    [
        ["ghp_", "Lg81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk"],
        ["glpat-", "Lg0fake1Belay2Not3Re"],
        ["npm_", "Lg0fake1Belay2Not3Real4FAKE0fake1Bel"],
        ["hvs.", "Lg0fake1Belay2Not3Real4FAKE0fake1Belay2"],
        ["dapi", "3456789abcdef0123456789abcdef012"],
        ["AKIA", "LG0FAKE1BELAY2NO"],
    ]
    .map(|parts| parts.concat())
}

/// S2-FR-077a, S2-X-16: arguments, results, failure messages, standard error, reasons and labels, with calls that complete, fail, are
/// refused, are asked about, and are asked for again when a service is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_log_line_holds_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "file_write: prompt\nterminal_commands: auto\nfile_delete: deny\n";
    let mut services = Services::logging(folder.path(), policy, "trace").await;
    let client = Client::new(&services.socket());
    let secrets = planted();
    let [token, content, said, reason, label, named] = &secrets;

    let plan = format!(
        "id: p
steps:
  - {{id: give, tool: noop, arguments: {{output: {{text: 'got {token}', password: '{named}'}}}}}}
  - {{id: use, tool: noop, depends_on: [give], arguments: {{output: '${{give.result.text}}'}}}}
  - {{id: says, tool: run_terminal, arguments: {{command: [sh, -c, 'echo {said}; echo {said} >&2; exit 3']}}}}
  - {{id: lost, tool: read_file, arguments: {{path: '{token}'}}}}
  - {{id: edit, tool: modify_file, depends_on: [write], arguments: {{path: a.env, edits: [{{search: '{token}', replace: x}}]}}}}
  - {{id: gone, tool: delete_file, depends_on: [write], arguments: {{path: a.env}}}}
  - {{id: write, tool: write_file, arguments: {{path: a.env, content: 'key={content}'}}}}
"
    );
    let labels = [("about".to_owned(), label.clone())].into();
    let request = v1::StartExecutionRequest { labels, ..Default::default() };
    client.start_with("logged", &plan, request).await;
    let person = Person::at(&services.people());
    let question = person.question(&name("logged")).await;
    // The other services retry while one is down.
    for service in Service::ALL {
        services.restart(service).await;
    }
    services.ready().await;
    let decision = v1::DecideApprovalRequest {
        name: question.name.clone(),
        subject_digest: question.subject_digest.clone(),
        decision: Decision::Approve.into(),
        reason: format!("{reason} says so"),
        ..Default::default()
    };
    person.raw().decide_approval(decision).await.unwrap();
    let picture = client.watch_to_the_end("logged").await;
    assert!(picture.ended());
    person.approval_in(&name("logged"), State::Consumed).await;
    let ended = client.get("logged").await;
    let failure = |step: &str| {
        let found = ended.steps.iter().find(|found| found.step_id == step);
        found.and_then(|found| found.failure.as_ref()).map(|failure| failure.reason.clone()).unwrap_or_default()
    };
    assert_eq!(
        ["give", "use", "says", "lost", "edit", "gone", "write"].map(failure),
        ["", "", "COMMAND_FAILED", "FILE_NOT_FOUND", "EDIT_MISMATCH", "POLICY_DENIED", ""]
    );

    for service in Service::ALL {
        let log = services.log(service);
        assert!(log.contains("TRACE") && log.contains("listen"), "{service:?} is at its most talkative");
        for secret in &secrets {
            let line = log.lines().find(|line| line.contains(secret.as_str()));
            assert_eq!(line, None, "{service:?} logs {secret}");
        }
    }
}

/// S0-12, S1-22: each attempt that is tried again is a warning in the operator's log, with its number, its reason and the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_retry_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::logging(folder.path(), "{}", "info").await;
    let client = Client::new(&services.socket());
    let plan = "id: p\nsteps: [{id: a, tool: noop, arguments: {fail: not yet, fail_attempts: 2}, \
                retry: {max_attempts: 3, backoff: [10ms, 20ms]}}]\n";
    client.start_with("retried", plan, v1::StartExecutionRequest::default()).await;
    assert!(client.watch_to_the_end("retried").await.ended());
    let log = services.log(Service::Executor);
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("another one is planned")).collect();
    assert_eq!(warnings.len(), 2, "{log}");
    for (line, words) in warnings.iter().zip([["attempt=1", "delay_ms=10"], ["attempt=2", "delay_ms=20"]]) {
        assert!(line.contains("WARN") && words.iter().all(|word| line.contains(word)), "{line}");
    }
}

/// S2-FR-063, S2-X-25: failures and long waits are lines at info with the fields of the log record; a parameter has no secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_and_long_waits_are_lines_with_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::logging(folder.path(), "file_write: prompt\n", "info").await;
    let client = Client::new(&services.socket());
    let token = ["ghp_", "Lg81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk"].concat();
    let plan = format!(
        "id: recorded
stop_on_error: false
steps:
  - {{id: broken, tool: noop, arguments: {{fail: 'no', output: 'is {token}'}}, retry: {{max_attempts: 1}}}}
  - {{id: ask, tool: write_file, arguments: {{path: a.txt, content: x}}}}
  - {{id: later, wait: {{for: 2h}}}}
  - {{id: soon, wait: {{for: 1s}}}}
"
    );
    client.start_with("recorded", &plan, v1::StartExecutionRequest::default()).await;
    // The gate shows a question before the executor has recorded that it waits for it.
    let waits = async || {
        while !services.log(Service::Executor).contains("waits_for=\"APPROVAL\"") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waits()).await.expect("the executor logs the wait");
    let log = services.log(Service::Executor);
    let line = |event: &str, step: &str| {
        let (event, step) = (format!("event=\"{event}\""), format!("step_id=\"{step}\""));
        let mut found = log.lines().filter(|line| line.contains(&event) && line.contains(&step));
        found.next().map(str::to_owned)
    };
    let failed = line("step_failed", "broken").unwrap_or_else(|| panic!("{log}"));
    for field in [
        " INFO ",
        "session_id=\"namespaces/default/executions/recorded\"",
        "task_id=\"recorded\"",
        "tool=\"noop\"",
        "parameters=\"",
        "result_status=\"FAILED\"",
        "duration_ms=",
    ] {
        assert!(failed.contains(field), "{field}: {failed}");
    }
    assert!(!log.contains(&token), "{log}");
    let asked = line("wait_began", "ask").unwrap_or_else(|| panic!("{log}"));
    assert!(asked.contains("waits_for=\"APPROVAL\"") && asked.contains("tool=\"write_file\""), "{asked}");
    let waits = line("wait_began", "later").unwrap_or_else(|| panic!("{log}"));
    assert!(waits.contains(" INFO ") && waits.contains("waits_for=\"TIME\"") && waits.contains("until="), "{waits}");
    assert_eq!(line("wait_began", "soon"), None, "a short wait is not worth a line");
}

/// S1-26, S1-27, S1-28: a person's stop is in the operator's log in the words of supervisors, and so is the retry that it takes the place of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_logged_in_the_words_of_supervisors() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::logging(folder.path(), "{}", "info").await;
    let client = Client::new(&services.socket());
    let plan = "id: p\nsteps: [{id: a, tool: noop, arguments: {fail: not yet, fail_attempts: 2}, \
                retry: {max_attempts: 3, backoff: [1h]}}, {id: b, wait: {for: 1h}}]\n";
    for (id, kill, words) in [("cancelled", false, "user_cancel requested"), ("killed", true, "user_kill requested")] {
        client.start_with(id, plan, v1::StartExecutionRequest::default()).await;
        let backing_off = async || {
            let steps = client.steps(id).await;
            steps.iter().any(|step| step.state() == v1::step::State::BackingOff)
        };
        while !backing_off().await {
            tokio::task::yield_now().await;
        }
        let log = services.log(Service::Executor);
        assert!(!log.contains(words), "{log}");
        let request = v1::CancelExecutionRequest { name: name(id), kill, ..Default::default() };
        client.raw().cancel_execution(request).await.unwrap();
        assert!(client.watch_to_the_end(id).await.ended());
        let log = services.log(Service::Executor);
        let of_this = |line: &&str| line.contains(&name(id));
        let stops: Vec<&str> = log.lines().filter(of_this).filter(|line| line.contains(words)).collect();
        assert_eq!(stops.len(), 1, "{log}");
        let dropped = "retry skipped due to user stop";
        let dropped: Vec<&str> = log.lines().filter(of_this).filter(|line| line.contains(dropped)).collect();
        assert!(dropped.len() == 1 && dropped[0].contains("step_id=\"a\""), "{dropped:?}\n{log}");
    }
}

/// S2-X-01: a step that was completed before is skipped, and logged as skipped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_completed_before_is_logged_as_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::logging(folder.path(), "{}", "info").await;
    let client = Client::new(&services.socket());
    let plan = "{id: p, tasks: [{id: t, steps: [{id: before, action: CreateFile, status: Completed}, {id: now, action: noop, parameters: {}}]}]}";
    client.start_with("again", plan, v1::StartExecutionRequest::default()).await;
    assert!(client.watch_to_the_end("again").await.ended());
    let log = services.log(Service::Executor);
    let skipped: Vec<&str> = log.lines().filter(|line| line.contains("A step is skipped")).collect();
    assert!(skipped.len() == 1 && skipped[0].contains("step_id=\"before\""), "{log}");
}

//! Errors: each names the problem and what to do, and nothing is lost or started.

use belay_e2e::{Client, Services};
use belay_proto::v1::{self, start_execution_request::Source};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

async fn refusal(client: &Client, plan: &str) -> Status {
    let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: plan.into() };
    let parent = "namespaces/default".to_owned();
    let request = v1::StartExecutionRequest { parent, source: Some(Source::Document(document)), ..Default::default() };
    client.raw().start_execution(request).await.map(drop).unwrap_err()
}

fn fields(status: &Status) -> Vec<String> {
    status.get_details_bad_request().unwrap().field_violations.into_iter().map(|violation| violation.field).collect()
}

/// S2-FR-002, S4-14, S4-18: what can be refused is refused before an execution exists, with the field named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_cannot_be_carried_out_is_refused_by_field() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let table = [
        ("{id: p, steps: [{id: a, tool: noup}]}", "steps[0].tool", "noop"),
        (
            "{id: p, steps: [{id: a, tool: noop, arguments: {sleep_ms: soon}}]}",
            "steps[0].arguments.sleep_ms",
            "integer",
        ),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {slep_ms: 1}}]}", "steps[0].arguments", "slep_ms"),
        (
            "{id: p, steps: [{id: a, tool: noop, depends_on: [b]}, {id: b, tool: noop, depends_on: [a]}]}",
            "steps",
            "cyclic dependencies",
        ),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {output: '${b.result}'}}]}", "steps[0].arguments.output", "b"),
        ("{id: p, stepps: []}", "stepps", "steps"),
        ("{id: p, steps: []}", "steps", "at least one step"),
        ("id: [", "", ""),
    ];
    for (plan, field, words) in table {
        let status = refusal(&client, plan).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{plan}: {status}");
        let violations = status.get_details_bad_request().unwrap().field_violations;
        let found = violations
            .iter()
            .any(|violation| violation.field.starts_with(field) && violation.description.contains(words));
        assert!(found, "{plan}: {violations:?}");
        assert_eq!(status.get_details_error_info().unwrap().domain, "belay.dev");
    }
    let list = client
        .raw()
        .list_executions(v1::ListExecutionsRequest { parent: "namespaces/default".to_owned(), ..Default::default() })
        .await
        .unwrap()
        .into_inner();
    assert!(list.executions.is_empty(), "a refused plan leaves nothing behind");
}

/// B-09: values beyond a limit are refused once, with the field's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_big_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let big = "x".repeat(5_000_000);
    let status =
        refusal(&client, &format!("{{id: p, steps: [{{id: a, tool: noop, arguments: {{output: {big}}}}}]}}")).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let medium = "x".repeat(40_000);
    let status =
        refusal(&client, &format!("{{id: p, steps: [{{id: a, tool: noop, arguments: {{output: {medium}}}}}]}}")).await;
    assert_eq!(fields(&status), ["steps[0].arguments"], "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_ids_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let get = |name: &str| v1::GetExecutionRequest { name: name.into(), ..Default::default() };
    let status = client.raw().get_execution(get("nonsense")).await.unwrap_err();
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["name".to_owned()]));
    let status = client.raw().get_execution(get("namespaces/default/executions/nobody")).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let parent = "namespaces/default".to_owned();
    let request = v1::StartExecutionRequest { parent, execution_id: "No Such Id".into(), ..Default::default() };
    let status = client.raw().start_execution(request.clone()).await.unwrap_err();
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["source".to_owned()]), "{status}");
    let source = Some(v1::start_execution_request::Source::Plan(v1::Plan::default()));
    let status = client.raw().start_execution(v1::StartExecutionRequest { source, ..request }).await.unwrap_err();
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["execution_id".to_owned()]));
}

//! Every role at every method of every service, over the wire: who may call it, and what it may do to an execution of somebody else in another namespace.

use std::{collections::BTreeSet, path::Path, time::Duration};

use belay_e2e::{client::channel, runner::reason};
use belay_proto::v1;
use prost::{Message as _, encoding};
use prost_types::FileDescriptorSet;
use tonic::{Code, Request, Status, codegen::http::uri::PathAndQuery, transport::Channel};

use crate::{
    contract::Bytes,
    principals::{Server, question},
};

/// By method: the roles that may call it. `p` planner, `v` viewer, `a` approver, `o` operator; none for methods of services alone.
pub(crate) const ALLOWED: [(&str, &str); 77] = [
    ("belay.v1.ExecutorService/ValidatePlan", "pvao"),
    ("belay.v1.ExecutorService/StartExecution", "po"),
    ("belay.v1.ExecutorService/GetExecution", "pvao"),
    ("belay.v1.ExecutorService/ListExecutions", "pvao"),
    ("belay.v1.ExecutorService/ListNamespaces", "pvao"),
    ("belay.v1.ExecutorService/GetStep", "pvao"),
    ("belay.v1.ExecutorService/ListSteps", "pvao"),
    ("belay.v1.ExecutorService/ListToolCalls", "pvao"),
    ("belay.v1.ExecutorService/ReadBlob", "pvao"),
    ("belay.v1.ExecutorService/ListArtifacts", "pvao"),
    ("belay.v1.ExecutorService/GetArtifact", "pvao"),
    ("belay.v1.ExecutorService/GetProvenance", "pvao"),
    ("belay.v1.ExecutorService/ListAuditEntries", "pvao"),
    ("belay.v1.ExecutorService/ListEvents", "pvao"),
    ("belay.v1.ExecutorService/ExplainExecution", "pvao"),
    ("belay.v1.ExecutorService/GetTimeline", "pvao"),
    ("belay.v1.ExecutorService/CompareExecutions", "pvao"),
    ("belay.v1.ExecutorService/WatchExecution", "pvao"),
    ("belay.v1.ExecutorService/WatchExecutions", "pvao"),
    ("belay.v1.ExecutorService/WaitExecution", "pvao"),
    ("belay.v1.ExecutorService/CancelExecution", "po"),
    ("belay.v1.ExecutorService/PauseExecution", "po"),
    ("belay.v1.ExecutorService/ResumeExecution", "po"),
    ("belay.v1.ExecutorService/SignalExecution", "po"),
    ("belay.v1.ExecutorService/ResolveStep", "po"),
    ("belay.v1.ExecutorService/RetryExecution", "po"),
    ("belay.v1.ExecutorService/ForkExecution", "po"),
    ("belay.v1.ExecutorService/UpdatePlan", "po"),
    ("belay.v1.ExecutorService/RetryStep", "po"),
    ("belay.v1.ExecutorService/SkipStep", "po"),
    ("belay.v1.ExecutorService/SetStepOutput", "po"),
    ("belay.v1.ExecutorService/DeleteExecution", "po"),
    ("belay.v1.ExecutorService/ListCapabilities", "pvao"),
    ("belay.v1.ScheduleService/CreateSchedule", "po"),
    ("belay.v1.ScheduleService/GetSchedule", "pvao"),
    ("belay.v1.ScheduleService/ListSchedules", "pvao"),
    ("belay.v1.ScheduleService/PauseSchedule", "po"),
    ("belay.v1.ScheduleService/ResumeSchedule", "po"),
    ("belay.v1.ScheduleService/TriggerSchedule", "po"),
    ("belay.v1.ScheduleService/BackfillSchedule", "po"),
    ("belay.v1.ScheduleService/DeleteSchedule", "po"),
    ("belay.v1.ModelService/ListModels", "pvao"),
    ("belay.v1.ModelService/CheckModel", "po"),
    ("belay.v1.ApprovalService/GetApproval", "pvao"),
    ("belay.v1.ApprovalService/ListApprovals", "pvao"),
    ("belay.v1.ApprovalService/WatchApprovals", "pvao"),
    ("belay.v1.ApprovalService/ListApprovalChanges", "pvao"),
    ("belay.v1.ApprovalService/GetApprovalChange", "pvao"),
    ("belay.v1.ApprovalService/DecideApproval", "ao"),
    ("belay.v1.ApprovalService/AnswerForm", "ao"),
    ("belay.v1.PolicyService/GetPolicy", "pvao"),
    ("belay.gate.v1.ApprovalGateService/CreateApproval", ""),
    ("belay.gate.v1.ApprovalGateService/ListPendingApprovals", ""),
    ("belay.gate.v1.ApprovalGateService/WatchDecisions", ""),
    ("belay.gate.v1.ApprovalGateService/CancelApproval", ""),
    ("belay.gate.v1.ApprovalGateService/AcknowledgeApprovals", ""),
    ("belay.gate.v1.ApprovalGateService/ForgetExecutions", ""),
    ("belay.gate.v1.ApprovalGateService/GetGrant", ""),
    ("belay.gate.v1.ApprovalGateService/WatchPolicy", ""),
    ("belay.gate.v1.ApprovalGateService/GetVerificationKeys", ""),
    ("belay.runner.v1.ToolRunnerService/ListTools", ""),
    ("belay.runner.v1.ToolRunnerService/CallTool", ""),
    ("belay.runner.v1.ToolRunnerService/GetToolCall", ""),
    ("belay.runner.v1.ToolRunnerService/AttachToolCall", ""),
    ("belay.runner.v1.ToolRunnerService/ReadBlob", ""),
    ("belay.runner.v1.ToolRunnerService/AnswerToolCall", ""),
    ("belay.runner.v1.ToolRunnerService/CancelToolCall", ""),
    ("belay.runner.v1.ToolRunnerService/Session", ""),
    ("belay.runner.v1.ToolRunnerService/GetEffect", ""),
    ("belay.runner.v1.ToolRunnerService/CommitEffect", ""),
    ("belay.runner.v1.ToolRunnerService/DiscardEffect", ""),
    ("belay.runner.v1.ToolRunnerService/CheckWorkspace", ""),
    ("belay.runner.v1.ToolRunnerService/CheckCalls", ""),
    ("belay.runner.v1.ToolRunnerService/GetEnforcement", ""),
    ("belay.runner.v1.ToolRunnerService/AcknowledgeToolCalls", ""),
    ("belay.runner.v1.ToolRunnerService/ForgetExecutions", ""),
    ("belay.runner.v1.ToolRunnerService/WatchUnacknowledgedToolCalls", ""),
];

/// A request that is refused is refused at once, also on a busy machine; one that waits has been let in.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

/// The methods by which a planner would control an execution, or take over what it has done: those of its owner and of operators alone.
const CONTROLS: [&str; 12] = [
    "ForkExecution",
    "CancelExecution",
    "PauseExecution",
    "ResumeExecution",
    "SignalExecution",
    "ResolveStep",
    "RetryExecution",
    "UpdatePlan",
    "RetryStep",
    "SkipStep",
    "SetStepOutput",
    "DeleteExecution",
];

/// Every method of the contract, as `package.Service/Method`.
fn methods() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(belay_proto::FILE_DESCRIPTOR_SET).unwrap();
    let of_file = |file: prost_types::FileDescriptorProto| {
        let package = file.package().to_owned();
        file.service.into_iter().flat_map(move |service| {
            let service_name = format!("{package}.{}", service.name());
            service.method.into_iter().map(move |method| format!("{service_name}/{}", method.name()))
        })
    };
    let all = set.file.into_iter().flat_map(of_file).filter(|name| name.starts_with("belay."));
    all.collect()
}

/// The endpoints at which people reach everything, and those where services reach each other.
fn endpoints(server: &Server) -> Vec<(String, Channel)> {
    let sockets = std::fs::read_dir(server.home.state()).unwrap().map(|entry| entry.unwrap().path());
    let mut sockets: Vec<_> = sockets.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    sockets.sort();
    assert!(sockets.len() >= 2, "{sockets:?}");
    let unix = sockets.iter().map(|path: &std::path::PathBuf| (name_of(path), channel(path)));
    unix.chain([("tcp".to_owned(), server.tcp())]).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The fields that a request needs beside its name to get as far as to whose execution it is.
fn rest_of(method: &str) -> Vec<u8> {
    match method.rsplit('/').next().unwrap_or_default() {
        "SignalExecution" => v1::SignalExecutionRequest { signal: "go".into(), ..Default::default() }.encode_to_vec(),
        "ResolveStep" => {
            let resolution = v1::StepResolution::Completed.into();
            v1::ResolveStepRequest { resolution, ..Default::default() }.encode_to_vec()
        }
        "RetryStep" => {
            let change = v1::RetryChange::Now.into();
            v1::RetryStepRequest { change, ..Default::default() }.encode_to_vec()
        }
        "UpdatePlan" => {
            let text = "id: p\nsteps: [{id: w, tool: noop}]\n".into();
            let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text };
            let source = Some(v1::update_plan_request::Source::Document(document));
            v1::UpdatePlanRequest { source, ..Default::default() }.encode_to_vec()
        }
        _ => Vec::new(),
    }
}

/// Calls a method with this name as the first field of its request, and returns what it answers at once; `Ok` when a stream has begun.
async fn call(channel: &Channel, token: &str, method: &str, name: &str) -> Result<(), Status> {
    let mut message = Vec::new();
    encoding::string::encode(1, &name.to_owned(), &mut message);
    message.extend(rest_of(method));
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let path = PathAndQuery::try_from(format!("/{method}")).unwrap();
    // What waits for something has been let in.
    let answer = tokio::time::timeout(REFUSED_WITHIN, grpc.server_streaming(request, path, Bytes)).await;
    answer.map_or(Ok(()), |answer| answer.map(drop))
}

/// B-19: the table of roles holds for every method of the contract, at every endpoint, whatever the request is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_method_answers_to_the_roles_of_the_table_alone() {
    let listed: BTreeSet<String> = ALLOWED.iter().map(|(method, _)| (*method).to_owned()).collect();
    assert_eq!(listed, methods(), "every method of the contract has a row");
    let server = Server::start("");
    let roles = [('p', "planner"), ('v', "viewer"), ('a', "approver"), ('o', "operator")];
    let tokens = roles.map(|(letter, role)| (letter, server.add(&format!("the-{role}"), role)));
    let mut called = 0;
    for (endpoint, channel) in endpoints(&server) {
        for (method, allowed) in ALLOWED {
            let what = |letter| format!("{letter} calls {method} at {endpoint}");
            for (letter, token) in &tokens {
                let answer = call(&channel, token, method, "").await;
                let code = answer.as_ref().err().map(Status::code);
                // Only some services are at each endpoint, and where services reach each other, a person's token is none.
                match code {
                    Some(Code::Unimplemented) => continue,
                    Some(Code::Unauthenticated) => {
                        assert!(!["tcp", "executor.sock"].contains(&&*endpoint), "{}: {answer:?}", what(*letter))
                    }
                    Some(Code::PermissionDenied) => {
                        let why = reason(answer.as_ref().unwrap_err());
                        assert!(!allowed.contains(*letter), "{}: {why:?}", what(*letter));
                    }
                    _ => assert!(allowed.contains(*letter), "{}: {answer:?}", what(*letter)),
                }
                called += 1;
            }
            for token in ["not-a-token-that-anybody-has", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
                let answer = call(&channel, token, method, "").await.unwrap_err();
                assert_eq!(reason(&answer), (Code::Unauthenticated, "UNAUTHENTICATED".into()), "{}", what('?'));
            }
            if endpoint == "tcp" {
                let answer = call(&channel, "", method, "").await.unwrap_err();
                assert_eq!(answer.code(), Code::Unauthenticated, "{}", what('-'));
            }
        }
    }
    assert!(called > 2 * 4 * 37, "{called} calls met a service");
}

/// B-19: whoever may read reads every namespace, and a planner controls nothing that another principal has started, in none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_executions_are_read_and_not_controlled() {
    let server = Server::start("");
    let plan =
        server.home.file("plan.yaml", "id: p\nsteps: [{id: w, tool: write_file, arguments: {path: a, content: x}}]\n");
    let started = server.home.run([
        "run",
        plan.as_str(),
        "--detach",
        "--namespace",
        "theirs",
        "--id",
        "e",
        "--approve",
        "prompt",
    ]);
    assert_eq!(started.code, 0, "{}", started.talk);
    let execution = "namespaces/theirs/executions/e";
    let approval = question(&channel(&server.home.state().join("executor.sock")), "", execution).await.name;
    // It would wait for the decision.
    let waits = |method: &str| method.ends_with("/WaitExecution");
    let name = |method: &str| match method.rsplit('/').next().unwrap() {
        "ListExecutions" | "WatchExecutions" | "ListApprovals" | "WatchApprovals" => "namespaces/theirs".to_owned(),
        "ListNamespaces" | "ListCapabilities" | "ValidatePlan" | "GetPolicy" => String::new(),
        "GetStep" | "ResolveStep" | "RetryStep" | "SkipStep" | "SetStepOutput" => format!("{execution}/steps/w"),
        "GetApproval" | "ListApprovalChanges" | "GetApprovalChange" | "DecideApproval" | "AnswerForm" => {
            approval.clone()
        }
        "GetArtifact" | "GetProvenance" => format!("{execution}/artifacts/none"),
        "ReadBlob" => format!("{execution}/blobs/sha256:{}", "0".repeat(64)),
        _ => execution.to_owned(),
    };
    let tokens = ["planner", "viewer", "approver"].map(|role| (role, server.add(&format!("some-{role}"), role)));
    let tcp = endpoints(&server).pop().unwrap().1;
    for (role, token) in &tokens {
        for (method, allowed) in ALLOWED {
            if waits(method)
                || !allowed.contains(&role[..1])
                || method.starts_with("belay.gate")
                || method.starts_with("belay.runner")
            {
                continue;
            }
            let answer = call(&tcp, token, method, &name(method)).await;
            let is_control = CONTROLS.iter().any(|control| method.ends_with(&format!("/{control}")));
            let denied = answer.as_ref().is_err_and(|status| status.code() == Code::PermissionDenied);
            assert_eq!(denied, is_control && *role == "planner", "{role} {method}: {answer:?}");
            // A request that lacks more than the name is told what; of what is only named, nothing is withheld.
            if let Err(status) = answer
                && !denied
            {
                let told = [Code::InvalidArgument, Code::NotFound];
                assert!(told.contains(&status.code()), "{role} {method}: {status:?}");
            }
        }
    }
    let (_, after) = server.home.json(&["executions", "get", "e", "--namespace", "theirs"]);
    assert_eq!(after["state"], "STATE_AWAITING_APPROVAL", "{after}");
}

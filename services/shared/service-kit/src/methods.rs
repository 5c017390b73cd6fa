//! The roles that methods need: one table for every service, decided without a server.
//!
//! A method of the contract that is missing here fails a test, and is refused when it is called.

use belay_reasons as reasons;
use thiserror::Error;
use tonic::{Code, Status};

use crate::{
    principal::{Principal, Role, Service},
    status,
};

/// A method, and its callers.
struct Method {
    /// `package.Service/Method`.
    name: &'static str,
    /// The roles of which a person needs one. An operator needs none of them, unless the list is empty: then no person may call it.
    roles: &'static [Role],
    /// The services that may call it.
    services: &'static [Service],
}

const fn method(name: &'static str, roles: &'static [Role], services: &'static [Service]) -> Method {
    Method { name, roles, services }
}

const PLAN: &[Role] = &[Role::Planner];
const DECIDE: &[Role] = &[Role::Approver];
const READ: &[Role] = &[Role::Planner, Role::Viewer, Role::Approver];
const NO_PERSON: &[Role] = &[];

const EXECUTOR: &[Service] = &[Service::Executor];
const EXECUTOR_AND_GATE: &[Service] = &[Service::Executor, Service::ApprovalGate];
const EXECUTOR_AND_RUNNER: &[Service] = &[Service::Executor, Service::ToolRunner];
const NO_SERVICE: &[Service] = &[];

const METHODS: &[Method] = &[
    method("belay.v1.ExecutorService/ValidatePlan", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/StartExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/GetExecution", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ListExecutions", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ListNamespaces", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/GetStep", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ListSteps", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ListToolCalls", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ReadBlob", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ListArtifacts", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/GetArtifact", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/GetProvenance", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ListAuditEntries", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ListEvents", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/ExplainExecution", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/GetTimeline", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/CompareExecutions", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/WatchExecution", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/WatchExecutions", READ, NO_SERVICE),
    method("belay.v1.ExecutorService/WaitExecution", READ, NO_SERVICE),
    // A planner for its own executions only: the executor compares the names.
    method("belay.v1.ExecutorService/CancelExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/PauseExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/ResumeExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/SignalExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/ResolveStep", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/RetryExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/ForkExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/UpdatePlan", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/RetryStep", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/SkipStep", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/SetStepOutput", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/DeleteExecution", PLAN, NO_SERVICE),
    method("belay.v1.ExecutorService/ListCapabilities", READ, NO_SERVICE),
    method("belay.v1.ScheduleService/CreateSchedule", PLAN, NO_SERVICE),
    method("belay.v1.ScheduleService/GetSchedule", READ, NO_SERVICE),
    method("belay.v1.ScheduleService/ListSchedules", READ, NO_SERVICE),
    // A planner for its own schedules only: the executor compares the names.
    method("belay.v1.ScheduleService/PauseSchedule", PLAN, NO_SERVICE),
    method("belay.v1.ScheduleService/ResumeSchedule", PLAN, NO_SERVICE),
    method("belay.v1.ScheduleService/TriggerSchedule", PLAN, NO_SERVICE),
    method("belay.v1.ScheduleService/BackfillSchedule", PLAN, NO_SERVICE),
    method("belay.v1.ScheduleService/DeleteSchedule", PLAN, NO_SERVICE),
    method("belay.v1.ModelService/ListModels", READ, NO_SERVICE),
    // What is asked costs what the model costs, as what a planner's steps ask does.
    method("belay.v1.ModelService/CheckModel", PLAN, NO_SERVICE),
    method("belay.v1.ApprovalService/GetApproval", READ, NO_SERVICE),
    method("belay.v1.ApprovalService/ListApprovals", READ, NO_SERVICE),
    method("belay.v1.ApprovalService/WatchApprovals", READ, NO_SERVICE),
    method("belay.v1.ApprovalService/ListApprovalChanges", READ, NO_SERVICE),
    method("belay.v1.ApprovalService/GetApprovalChange", READ, NO_SERVICE),
    method("belay.v1.ApprovalService/DecideApproval", DECIDE, NO_SERVICE),
    method("belay.v1.ApprovalService/AnswerForm", DECIDE, NO_SERVICE),
    method("belay.v1.PolicyService/GetPolicy", READ, NO_SERVICE),
    method("belay.gate.v1.ApprovalGateService/CreateApproval", NO_PERSON, EXECUTOR),
    method("belay.gate.v1.ApprovalGateService/ListPendingApprovals", NO_PERSON, EXECUTOR),
    method("belay.gate.v1.ApprovalGateService/WatchDecisions", NO_PERSON, EXECUTOR),
    method("belay.gate.v1.ApprovalGateService/CancelApproval", NO_PERSON, EXECUTOR),
    method("belay.gate.v1.ApprovalGateService/AcknowledgeApprovals", NO_PERSON, EXECUTOR),
    method("belay.gate.v1.ApprovalGateService/ForgetExecutions", NO_PERSON, EXECUTOR),
    method("belay.gate.v1.ApprovalGateService/GetGrant", NO_PERSON, EXECUTOR),
    method("belay.gate.v1.ApprovalGateService/WatchPolicy", NO_PERSON, EXECUTOR_AND_RUNNER),
    method("belay.gate.v1.ApprovalGateService/GetVerificationKeys", NO_PERSON, EXECUTOR_AND_RUNNER),
    method("belay.runner.v1.ToolRunnerService/ListTools", NO_PERSON, EXECUTOR_AND_GATE),
    method("belay.runner.v1.ToolRunnerService/CallTool", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/GetToolCall", NO_PERSON, EXECUTOR_AND_GATE),
    method("belay.runner.v1.ToolRunnerService/AttachToolCall", NO_PERSON, EXECUTOR),
    // The gate sees what a call would do and what became of it, but not what a tool has returned at length.
    method("belay.runner.v1.ToolRunnerService/ReadBlob", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/AnswerToolCall", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/CancelToolCall", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/Session", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/GetEffect", NO_PERSON, EXECUTOR_AND_GATE),
    method("belay.runner.v1.ToolRunnerService/CommitEffect", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/DiscardEffect", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/CheckWorkspace", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/CheckCalls", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/GetEnforcement", NO_PERSON, EXECUTOR_AND_GATE),
    method("belay.runner.v1.ToolRunnerService/AcknowledgeToolCalls", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/ForgetExecutions", NO_PERSON, EXECUTOR),
    method("belay.runner.v1.ToolRunnerService/WatchUnacknowledgedToolCalls", NO_PERSON, EXECUTOR),
];

/// The methods that need no credential, for load balancers and supervisors: they return only whether a service serves.
const WITHOUT_CREDENTIAL: &[&str] = &["grpc.health.v1.Health/Check", "grpc.health.v1.Health/Watch"];

/// Whether the method at this path (`/package.Service/Method`) needs no credential.
pub(crate) fn is_open(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|name| WITHOUT_CREDENTIAL.contains(&name))
}

/// Why an authenticated caller may not call a method.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum AccessDenial {
    #[error("`{caller}` is a person, and only Belay's own services may call {method}.")]
    NotAService { caller: String, method: String },
    #[error("`{caller}` is a service, and only a person may call {method}.")]
    NotAPerson { caller: String, method: String },
    #[error("`{caller}` may not call {method}: only other services of Belay may.")]
    OtherService { caller: String, method: String },
    #[error(
        "{method} requires the role {}, and `{caller}` has {}. The owner of the state directory can grant it.",
        either(needed), if held.is_empty() { "none" } else { held }
    )]
    RoleMissing {
        caller: String,
        /// The name alone.
        name: String,
        method: String,
        needed: &'static [Role],
        held: String,
    },
    #[error("{method} is not in the table of methods, so no caller may call it.")]
    Unlisted { method: String },
}

fn either(roles: &[Role]) -> String {
    let mut words: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    words.push(Role::Operator.as_str());
    let last = words.pop().unwrap_or_default();
    format!("{} or {last}", words.join(", "))
}

impl From<AccessDenial> for Status {
    fn from(denied: AccessDenial) -> Self {
        let message = denied.to_string();
        let error = |reason| status::error(Code::PermissionDenied, reason, message.clone());
        match denied {
            AccessDenial::NotAService { .. } | AccessDenial::OtherService { .. } => {
                error(reasons::NOT_A_SERVICE).into()
            }
            AccessDenial::NotAPerson { .. } => error(reasons::NOT_A_PERSON).into(),
            AccessDenial::Unlisted { .. } => error(reasons::PERMISSION_DENIED).into(),
            AccessDenial::RoleMissing { name, needed, held, .. } => {
                let role = needed.first().copied().unwrap_or(Role::Operator);
                // The command names every role that the principal then has.
                let roles = held.split(", ").filter(|word| !word.is_empty()).chain([role.as_str()]);
                let flags: String = roles.map(|role| format!(" --role {role}")).collect();
                error(reasons::ROLE_MISSING)
                    .with("role", role)
                    .with("next_command", format!("belay principals update {name}{flags}"))
                    .into()
            }
        }
    }
}

/// Refuses a caller who may not decide approvals something that decides them in advance: `what`, as the subject of a sentence.
///
/// # Errors
/// PERMISSION_DENIED, ROLE_MISSING, with the command that grants the role.
pub fn check_decides(caller: &Principal, what: &str) -> Result<(), Status> {
    match caller {
        caller if caller.may_decide() => Ok(()),
        Principal::Service(_) => {
            Err(AccessDenial::NotAPerson { caller: caller.to_string(), method: what.to_owned() }.into())
        }
        Principal::Person { name, roles } => Err(AccessDenial::RoleMissing {
            caller: caller.to_string(),
            name: name.to_string(),
            method: what.to_owned(),
            needed: DECIDE,
            held: roles.to_string(),
        }
        .into()),
    }
}

/// Whether the caller may call the method at this path. Every authenticated caller may call methods that are not Belay's, such as reflection.
pub(crate) fn check(caller: &Principal, path: &str) -> Result<(), AccessDenial> {
    let name = path.strip_prefix('/').unwrap_or(path);
    if !name.starts_with("belay.") {
        return Ok(());
    }
    let short = || name.rsplit('/').next().unwrap_or(name).to_owned();
    let Some(method) = METHODS.iter().find(|method| method.name == name) else {
        return Err(AccessDenial::Unlisted { method: name.to_owned() });
    };
    match caller {
        Principal::Service(Service::SameUser) if !method.services.is_empty() => Ok(()),
        Principal::Service(service) if method.services.contains(service) => Ok(()),
        Principal::Service(_) if method.services.is_empty() => {
            Err(AccessDenial::NotAPerson { caller: caller.to_string(), method: short() })
        }
        Principal::Service(_) => Err(AccessDenial::OtherService { caller: caller.to_string(), method: short() }),
        Principal::Person { .. } if method.roles.is_empty() => {
            Err(AccessDenial::NotAService { caller: caller.to_string(), method: short() })
        }
        Principal::Person { roles, .. }
            if roles.has(Role::Operator) || method.roles.iter().any(|role| roles.has(*role)) =>
        {
            Ok(())
        }
        Principal::Person { name, roles } => Err(AccessDenial::RoleMissing {
            caller: caller.to_string(),
            name: name.to_string(),
            method: short(),
            needed: method.roles,
            held: roles.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::*;

    /// Every method of the contract, as `package.Service/Method`.
    fn contract() -> BTreeSet<String> {
        let set = prost_types::FileDescriptorSet::decode(belay_proto::FILE_DESCRIPTOR_SET).unwrap();
        let of_file = |file: prost_types::FileDescriptorProto| {
            let package = file.package().to_owned();
            file.service.into_iter().flat_map(move |service| {
                let service_name = format!("{package}.{}", service.name());
                service.method.into_iter().map(move |method| format!("{service_name}/{}", method.name()))
            })
        };
        set.file.into_iter().flat_map(of_file).filter(|name| name.starts_with("belay.")).collect()
    }

    /// B-19: a new method has to say who may call it.
    #[test]
    fn every_method_of_the_contract_is_in_the_table_once() {
        let listed: BTreeSet<String> = METHODS.iter().map(|method| method.name.to_owned()).collect();
        assert_eq!(listed, contract());
        assert_eq!(listed.len(), METHODS.len(), "none is listed twice");
    }

    /// A method's package says who may call it: people call `belay.v1`, Belay's services the other packages.
    #[test]
    fn no_method_is_for_both_people_and_services() {
        for method in METHODS {
            let for_people = method.name.starts_with("belay.v1.");
            assert_eq!(
                (!method.roles.is_empty(), !method.services.is_empty()),
                (for_people, !for_people),
                "{}",
                method.name
            );
        }
    }

    #[test]
    fn no_caller_may_call_a_method_that_is_not_in_the_table() {
        for caller in [Principal::owner(), Principal::Service(Service::SameUser)] {
            assert!(matches!(check(&caller, "/belay.v1.ExecutorService/Forget"), Err(AccessDenial::Unlisted { .. })));
        }
        let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        assert_eq!(check(&Principal::person("ann", [Role::Viewer]), reflection), Ok(()));
    }

    /// B-19: a planner's credential starts and does not approve; a viewer's reads; no person's gets a grant.
    #[test]
    fn roles_decide_what_a_person_may_call() {
        use Role::{Approver, Operator, Planner, Viewer};
        let executor = |method: &str| format!("/belay.v1.ExecutorService/{method}");
        let gate = |method: &str| format!("/belay.gate.v1.ApprovalGateService/{method}");
        let approval = |method: &str| format!("/belay.v1.ApprovalService/{method}");
        let table: &[(String, &[Role])] = &[
            (executor("StartExecution"), &[Planner, Operator]),
            (executor("CancelExecution"), &[Planner, Operator]),
            (executor("PauseExecution"), &[Planner, Operator]),
            (executor("ResumeExecution"), &[Planner, Operator]),
            (executor("SignalExecution"), &[Planner, Operator]),
            (executor("ResolveStep"), &[Planner, Operator]),
            (executor("RetryExecution"), &[Planner, Operator]),
            (executor("ForkExecution"), &[Planner, Operator]),
            (executor("UpdatePlan"), &[Planner, Operator]),
            (executor("RetryStep"), &[Planner, Operator]),
            (executor("SkipStep"), &[Planner, Operator]),
            (executor("SetStepOutput"), &[Planner, Operator]),
            (executor("DeleteExecution"), &[Planner, Operator]),
            (executor("GetExecution"), &[Planner, Viewer, Approver, Operator]),
            (executor("WatchExecution"), &[Planner, Viewer, Approver, Operator]),
            (approval("ListApprovals"), &[Planner, Viewer, Approver, Operator]),
            (approval("DecideApproval"), &[Approver, Operator]),
            (approval("AnswerForm"), &[Approver, Operator]),
            (gate("GetGrant"), &[]),
            (gate("CreateApproval"), &[]),
            ("/belay.runner.v1.ToolRunnerService/CallTool".into(), &[]),
            ("/belay.runner.v1.ToolRunnerService/CommitEffect".into(), &[]),
        ];
        for (path, may) in table {
            for role in Role::ALL {
                let answer = check(&Principal::person("ann", [role]), path);
                assert_eq!(answer.is_ok(), may.contains(&role), "{role} {path}: {answer:?}");
            }
            assert!(check(&Principal::person("ann", []), path).is_err(), "without a role nothing: {path}");
        }
    }

    #[test]
    fn a_missing_role_is_named_with_the_command_that_gives_it() {
        let denied = check(&Principal::person("bot", [Role::Planner]), "/belay.v1.ApprovalService/DecideApproval");
        let status = Status::from(denied.unwrap_err());
        assert_eq!(status.code(), Code::PermissionDenied);
        assert_eq!(
            status.message(),
            "DecideApproval requires the role approver or operator, and `person:bot` has planner. The owner of the state directory can grant it."
        );
        assert_eq!(status::reason(&status).as_deref(), Some("ROLE_MISSING"));
        assert_eq!(status::fact(&status, "role").as_deref(), Some("approver"));
        let next = "belay principals update bot --role planner --role approver";
        assert_eq!(status::fact(&status, "next_command").as_deref(), Some(next));
    }

    /// B-05: the services' identities are apart from people's, and from one another's.
    #[test]
    fn a_service_calls_what_it_needs_and_decides_nothing() {
        use Service::{ApprovalGate, Executor, SameUser, ToolRunner};
        let table: &[(&str, &[Service])] = &[
            ("/belay.v1.ApprovalService/DecideApproval", &[]),
            ("/belay.gate.v1.ApprovalGateService/GetGrant", &[Executor, SameUser]),
            ("/belay.gate.v1.ApprovalGateService/WatchPolicy", &[Executor, ToolRunner, SameUser]),
            ("/belay.runner.v1.ToolRunnerService/CallTool", &[Executor, SameUser]),
            ("/belay.runner.v1.ToolRunnerService/CommitEffect", &[Executor, SameUser]),
            ("/belay.runner.v1.ToolRunnerService/GetEffect", &[Executor, ApprovalGate, SameUser]),
            ("/belay.runner.v1.ToolRunnerService/ReadBlob", &[Executor, SameUser]),
            ("/belay.v1.ExecutorService/StartExecution", &[]),
            ("/belay.v1.ExecutorService/GetExecution", &[]),
        ];
        for (path, may) in table {
            for service in [Executor, ToolRunner, ApprovalGate, SameUser] {
                let answer = check(&Principal::Service(service), path);
                assert_eq!(answer.is_ok(), may.contains(&service), "{service:?} {path}: {answer:?}");
            }
        }
    }

    #[test]
    fn only_health_is_open() {
        assert!(is_open("/grpc.health.v1.Health/Check") && is_open("/grpc.health.v1.Health/Watch"));
        for closed in ["/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "grpc.health.v1.Health/Check", "/"]
        {
            assert!(!is_open(closed), "{closed}");
        }
        assert!(METHODS.iter().all(|method| !is_open(&format!("/{}", method.name))));
    }
}

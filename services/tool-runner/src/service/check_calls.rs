use belay_proto::{
    runner_v1,
    v1::{self, payload::Content},
};
use belay_service_kit::status;
use tonic::Status;

use crate::{Calls, NetworkProblem, PlannedProblem, calls::foresee};

/// The limit of calls per request; a plan has fewer steps.
const MAX_CALLS: usize = 10_000;

pub(super) fn check_calls(
    calls: &Calls,
    request: &runner_v1::CheckCallsRequest,
) -> Result<runner_v1::CheckCallsResponse, Status> {
    if request.calls.len() > MAX_CALLS {
        return Err(status::invalid("calls", format!("has more than {MAX_CALLS} entries")).into());
    }
    let policy = Some(&request.namespace).filter(|namespace| !namespace.is_empty());
    let policy = policy.and_then(|namespace| calls.policy().of_namespace(namespace));
    let (mut problems, mut decisions, mut networks) = (Vec::new(), Vec::new(), Vec::new());
    for (call, planned) in (0..).zip(&request.calls) {
        decisions.extend(policy.is_some().then(v1::PolicyDecision::default));
        networks.push(String::new());
        // The caller checks tools and schemas; this method checks what only the runner knows.
        let Some(registered) = calls.registry.find(&planned.tool) else { continue };
        let arguments = match planned.arguments.as_ref().and_then(|payload| payload.content.as_ref()) {
            Some(Content::Json(json)) => json,
            Some(Content::Blob(_)) => {
                let field = format!("calls[{call}].arguments.blob");
                return Err(status::invalid(&field, "is not supported: send inline JSON").into());
            }
            None => "{}",
        };
        let Ok(arguments) = serde_json::from_str(arguments) else { continue };
        let found = registered.tool.check_planned(&arguments).into_iter();
        let problem = |PlannedProblem { pointer, message, refused }| runner_v1::CallProblem {
            call,
            pointer,
            message,
            refused,
            of_network: false,
        };
        problems.extend(found.map(problem));
        let asked = Some(planned.network.as_str()).filter(|name| !name.is_empty());
        let network = registered.tool.network_of(&arguments, asked).unwrap_or_else(|problem| {
            if planned.is_own || problem != NetworkProblem::NoCommand {
                let message = problem.message();
                problems.push(runner_v1::CallProblem {
                    call,
                    pointer: String::new(),
                    message,
                    refused: true,
                    of_network: true,
                });
            }
            None
        });
        if let (Some(profile), Some(last)) = (&network, networks.last_mut()) {
            last.clone_from(&profile.name);
        }
        if let (Some(policy), Some(last)) = (&policy, decisions.last_mut()) {
            *last = foresee(policy, &registered, &arguments, network.as_deref());
        }
    }
    Ok(runner_v1::CheckCallsResponse { problems, decisions, networks })
}

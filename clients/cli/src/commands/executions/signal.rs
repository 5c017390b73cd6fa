//! `belay executions signal`.

use std::collections::BTreeSet;

use belay_proto::v1::{
    ExecutionView, GetExecutionRequest, Payload, Plan, SignalExecutionRequest, payload::Content, step_spec, wait_step,
};

use crate::{
    args::{ExecutionArg, help},
    clock,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup,
    refused::refused,
    render::{
        execution,
        text::{Line, Style},
    },
};

/// Send a signal to an execution: a step that waits for it continues
///
/// A signal that no step waits for yet is kept until one does.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions signal @last deployed --payload '{\"version\": 7}'"))]
pub(crate) struct Signal {
    #[command(flatten)]
    which: ExecutionArg,
    /// The signal's name, as the plan has it
    #[arg(value_name = "NAME")]
    signal: String,
    /// The payload of the signal, which becomes the result of the step that waits for it
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Send it once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    request_id: String,
}

/// Sends the signal.
pub(crate) async fn signal(context: &Context, verb: Signal) -> Result<Exit, Failure> {
    let Signal { which, signal, payload, request_id } = verb;
    let payload = payload.map(|json| Payload { content: Some(Content::Json(json)) });
    let (execution, plan) = context
        .ask(Requirement::Records, async |client| {
            let name = lookup::resolve(client, &context.namespace, &which.id).await?;
            let request = SignalExecutionRequest { name: name.clone(), signal: signal.clone(), payload, request_id };
            let answer = client.signal_execution(request).await;
            let execution = answer.map_err(|status| refused(&status, &name))?.into_inner();
            let request = GetExecutionRequest { name, view: ExecutionView::Full.into() };
            // The signal is sent: that its plan cannot be read is no reason to fail.
            let plan = client.get_execution(request).await.ok().and_then(|found| found.into_inner().plan);
            Ok((execution, plan))
        })
        .await?;
    context.screen.show(&execution, || {
        let mut lines = execution::summary(&execution, clock::now());
        lines.extend(plan.and_then(|plan| unheard(&plan, &signal)).map(|text| Line::default().and(Style::Warn, text)));
        lines
    })?;
    Ok(Exit::OK)
}

/// A warning about a signal that no step of the plan waits for: its name may be mistyped.
fn unheard(plan: &Plan, signal: &str) -> Option<String> {
    let named = plan.steps.iter().filter_map(|step| match step.kind.as_ref()? {
        step_spec::Kind::Wait(wait) => match wait.condition.as_ref()? {
            wait_step::Condition::Signal(signal) => Some(signal.as_str()),
            _ => None,
        },
        step_spec::Kind::Tool(_) | step_spec::Kind::Calls(_) | step_spec::Kind::Agent(_) | step_spec::Kind::Plan(_) => {
            None
        }
    });
    let named: BTreeSet<&str> = named.collect();
    if named.contains(signal) {
        return None;
    }
    let others = named.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    Some(match others.as_str() {
        "" => format!("no step waits for a signal: `{signal}` is kept, and ends no wait"),
        _ => format!("no step waits for `{signal}`, which is kept and ends no wait; steps wait for {others}"),
    })
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{StepSpec, WaitStep};

    use super::*;

    #[test]
    fn a_signal_that_no_step_waits_for_is_told_beside_those_that_are() {
        let waits = |signal: &str| StepSpec {
            kind: Some(step_spec::Kind::Wait(WaitStep {
                condition: Some(wait_step::Condition::Signal(signal.to_owned())),
            })),
            ..Default::default()
        };
        let plan = Plan { steps: vec![waits("go"), waits("stop"), StepSpec::default()], ..Default::default() };
        assert_eq!(unheard(&plan, "go"), None);
        let told = "no step waits for `og`, which is kept and ends no wait; steps wait for `go`, `stop`";
        assert_eq!(unheard(&plan, "og").as_deref(), Some(told));
        let told = "no step waits for a signal: `go` is kept, and ends no wait";
        assert_eq!(unheard(&Plan::default(), "go").as_deref(), Some(told));
    }
}

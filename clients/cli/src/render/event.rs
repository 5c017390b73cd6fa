//! Renders an event as one line.

use std::time::Duration;

use belay_proto::v1::{
    ApprovalDecided, ApprovalNeed, Decision, EscalationRetry, ExecutionEvent, ExecutionRetried, Failure,
    NetworkConnection, Payload, Progress, Receipt, StepItemsListed, StepResolution, WaitEnded, WaitingReason,
    child_ended, execution_event::Kind, network_connection::Route, wait_ended, waiting_reason,
};

use serde_json::Value;

use super::{
    call, model_turn,
    text::{Line, Style, clean, shorten},
    time,
    tracked_execution::TrackedExecution,
    words,
};
use crate::names;

/// The event as a line of a log: when, about what, what happened. `None` for an event that may be skipped by those who do not know it, and
/// for a tool's output, which `Outputs` prints.
pub(crate) fn line(event: &ExecutionEvent, tracked: &TrackedExecution) -> Option<Line> {
    let when = event.record_time.as_ref().map(time::time_of_day).unwrap_or_default();
    let (style, what) = what(event, tracked)?;
    let about = if event.step_id.is_empty() { names::id(&tracked.execution().name) } else { &event.step_id };
    Some(
        Line::default()
            .and(Style::Dim, format!("{when}  "))
            .column(Style::Strong, about, 16)
            .and(Style::Plain, " ")
            .and(style, what),
    )
}

/// The most characters of one argument or result that [`details`] shows.
const MAX_DETAIL: usize = 2_000;

/// The details of an event besides its line: the arguments of a call, one a line, or its result.
pub(crate) fn details(event: &ExecutionEvent) -> Vec<Line> {
    let row = |name: &str, value: &str| {
        let name = if name.is_empty() { String::new() } else { format!("{}: ", clean(name)) };
        Line::new(" ".repeat(28)).and(Style::Dim, name).and(Style::Plain, shorten(&clean(value), MAX_DETAIL))
    };
    let json = |payload: &Option<Payload>| payload.as_ref().and_then(Payload::as_json).unwrap_or_default().to_owned();
    match &event.kind {
        Some(Kind::ToolCallRequested(call)) => match serde_json::from_str(&json(&call.arguments)) {
            Ok(Value::Object(arguments)) => arguments
                .iter()
                .map(|(name, value)| match value {
                    Value::String(text) => row(name, text),
                    value => row(name, &value.to_string()),
                })
                .collect(),
            _ => call.arguments.iter().map(|arguments| row("arguments", &words::payload(arguments))).collect(),
        },
        Some(Kind::ToolCallCompleted(call)) => match json(&call.result) {
            text if text.is_empty() => {
                call.result.iter().map(|result| row("result", &words::payload(result))).collect()
            }
            text => vec![row("result", &text)],
        },
        _ => Vec::new(),
    }
}

/// The event as a row between those of the steps: about what, what happened.
pub(crate) fn news(event: &ExecutionEvent, tracked: &TrackedExecution) -> Option<Line> {
    let (style, what) = what(event, tracked)?;
    let about = if event.step_id.is_empty() { names::id(&tracked.execution().name) } else { &event.step_id };
    Some(Line::new("  ").and(Style::Strong, about).and(Style::Plain, "  ").and(style, what))
}

/// `limit deploy`, or `limits deploy, api`.
fn limits(tracked: &TrackedExecution) -> String {
    let keys: Vec<String> = tracked.execution().limits.iter().map(|limit| clean(&limit.key)).collect();
    format!("{} {}", if keys.len() == 1 { "limit" } else { "limits" }, keys.join(", "))
}

fn what(event: &ExecutionEvent, tracked: &TrackedExecution) -> Option<(Style, String)> {
    let step = tracked.step(&event.step_id);
    let Some(kind) = &event.kind else {
        let unknown = "something that this version of belay does not know; a newer one shows it";
        return (!event.safe_to_skip).then(|| (Style::Warn, unknown.to_owned()));
    };
    Some(match kind {
        Kind::ExecutionCreated(created) => {
            let plan = created.plan.as_ref();
            let steps = words::steps(plan.map_or(0, |plan| plan.steps.len()));
            (Style::Plain, format!("accepted: plan {}, {steps}", plan.map_or("", |plan| plan.id.as_str())))
        }
        Kind::LimitsRequested(_) => (Style::Plain, format!("asks for the {}", limits(tracked))),
        Kind::LimitsAcquired(_) => (Style::Plain, format!("holds the {}", limits(tracked))),
        Kind::ExecutionStarted(_) => (Style::Plain, "started".to_owned()),
        Kind::ExecutionPaused(paused) => {
            let until = paused.resume_time.as_ref().map(|until| format!(" until {}", time::date_and_time(until)));
            (Style::Warn, format!("paused{}{}{}", until.unwrap_or_default(), by(event), why(&paused.reason)))
        }
        Kind::ExecutionResumed(_) => (Style::Plain, format!("resumed{}", by(event))),
        Kind::ExecutionCancelRequested(asked) => {
            let asked_for = if asked.kill { "kill" } else { "cancel" };
            (Style::Warn, format!("{asked_for} requested{}{}", by(event), why(&asked.reason)))
        }
        Kind::SignalReceived(received) => {
            let payload = received.payload.as_ref().map(words::payload).filter(|payload| payload != "null");
            let payload = payload.map(|payload| format!(" {payload}")).unwrap_or_default();
            (Style::Plain, format!("signal {}{payload}{}", clean(&received.signal), by(event)))
        }
        Kind::ExecutionRecovered(recovered) => match recovered.in_doubt.len() {
            0 => (Style::Plain, "taken up again after a restart".to_owned()),
            1 => (Style::Warn, "taken up again after a restart; looking for the outcome of 1 call".to_owned()),
            calls => {
                (Style::Warn, format!("taken up again after a restart; looking for the outcomes of {calls} calls"))
            }
        },
        Kind::ExecutionDeadlineExceeded(_) => (Style::Bad, "the plan's time limit ran out".to_owned()),
        Kind::ExecutionFinished(finished) => {
            let took = took(finished.duration.as_ref(), tracked.paused_for_people());
            let totals =
                finished.totals.as_ref().map(|totals| format!(": {}", words::totals(totals))).unwrap_or_default();
            let state = finished.state();
            (words::execution_style(state), format!("{}{took}{totals}", words::execution_state(state)))
        }
        Kind::StepStarted(_) => match (event.attempt, step) {
            (attempt @ 2.., Some(step)) => {
                (Style::Plain, format!("started, attempt {attempt} of {}", step.max_attempts))
            }
            (attempt @ 2.., None) => (Style::Plain, format!("started, attempt {attempt}")),
            _ => (Style::Plain, "started".to_owned()),
        },
        Kind::StepRetryScheduled(retry) => {
            let delay = retry.delay.as_ref().map(time::duration).unwrap_or_default();
            // Of this call since it last began: the step's own numbers continue when it runs again.
            let most = step.and_then(|step| tracked.planned_attempts(step)).map(|most| most - 1);
            let retries = match most.filter(|most| *most >= retry.retry_count) {
                Some(most) => format!("{}/{most}", retry.retry_count),
                None => words::retries(step, retry.retry_count),
            };
            (Style::Warn, format!("retrying ({retries}) in {}{}", time::short(delay), error(retry.failure.as_ref())))
        }
        Kind::StepCompleted(completed) => {
            let waited = step.and_then(|step| step.approval_wait.as_ref()).map(time::duration).unwrap_or_default();
            let took = took(completed.duration.as_ref(), waited);
            (Style::Good, format!("completed{took}{}", progress(completed.progress.as_ref())))
        }
        Kind::StepFailed(failed) => {
            let attempts =
                if failed.attempts > 1 { format!(" after {} attempts", failed.attempts) } else { String::new() };
            (
                Style::Bad,
                format!("failed{attempts}{}{}", progress(failed.progress.as_ref()), error(failed.failure.as_ref())),
            )
        }
        Kind::StepSkipped(skipped) => {
            let because = words::skipped(skipped.reason(), &skipped.because, &skipped.group);
            (Style::Dim, format!("skipped: {because}{}", progress(skipped.progress.as_ref())))
        }
        Kind::StepCancelled(cancelled) => (Style::Warn, format!("cancelled{}", progress(cancelled.progress.as_ref()))),
        Kind::StepOutcomeUnknown(unknown) => {
            let why = crate::next::about(&["why"], &tracked.execution().name, &[]);
            let error = error(unknown.failure.as_ref());
            (Style::Warn, format!("outcome unknown, a person has to look{error}; next: {why}"))
        }
        Kind::StepResolved(resolved) => {
            let what = match resolved.resolution() {
                StepResolution::Completed => "the call had completed",
                StepResolution::Failed => "the call had failed",
                StepResolution::Again => "the call is retried",
                StepResolution::Unspecified => "in a way that this version of belay does not know",
            };
            (Style::Plain, format!("resolved: {what}{}{}", by(event), why(&resolved.reason)))
        }
        Kind::ExecutionRetried(ExecutionRetried { escalation: Some(retry), step_ids, .. }) => {
            let EscalationRetry { number, retries, resume_time } = retry;
            let at = resume_time.as_ref().map(|at| format!(" at {}", time::date_and_time(at))).unwrap_or_default();
            let count = words::steps(step_ids.len());
            let run = if step_ids.len() == 1 { "runs" } else { "run" };
            (Style::Warn, format!("escalated: {count} {run} again{at}, retry {number} of {retries}"))
        }
        Kind::ExecutionRetried(retried) => {
            let count = words::steps(retried.step_ids.len());
            let skipped = if retried.skip_failed { ", without those that failed" } else { "" };
            (Style::Plain, format!("{count} run again{skipped}{}{}", by(event), why(&retried.reason)))
        }
        Kind::ExecutionPlanUpdated(updated) => {
            let steps = words::steps(updated.plan.as_ref().map_or(0, |plan| plan.steps.len()));
            let revision = updated.revision;
            (Style::Plain, format!("plan changed, revision {revision}: {steps}{}{}", by(event), why(&updated.reason)))
        }
        Kind::BudgetWarning(report) => (Style::Warn, words::budget(report, "is nearly used up")),
        Kind::BudgetExceeded(report) => (Style::Bad, words::budget(report, "is used up")),
        Kind::BudgetOverrun(report) => (Style::Bad, words::budget(report, "is overrun")),
        Kind::ExecutionCompensationStarted(started) => {
            (Style::Warn, format!("undoes what {} did", words::steps(started.step_ids.len())))
        }
        Kind::StepFallbackSwitched(switched) => {
            let (from, to) = (clean(&switched.failed_tool), clean(&switched.fallback_tool));
            (
                Style::Warn,
                format!(
                    "{to} takes the place of {from}{}{}{}",
                    by(event),
                    why(&switched.reason),
                    error(switched.failure.as_ref())
                ),
            )
        }
        Kind::StepCachedResultUsed(used) => {
            let from = used.source.as_ref().map(words::cached).unwrap_or_default();
            (Style::Warn, format!("uses {from}{}", error(used.failure.as_ref())))
        }
        Kind::StepItemsListed(listed) => (Style::Plain, entries(listed)),
        Kind::StepItemsCollected(_) => (Style::Plain, "all of its steps have ended".to_owned()),
        Kind::StepSkipRequested(skip) => (Style::Plain, format!("to be skipped{}{}", by(event), why(&skip.reason))),
        Kind::StepOutputSet(set) => {
            let output = set.output.as_ref().map(words::payload).unwrap_or_default();
            (Style::Plain, format!("output set to {output}{}{}", by(event), why(&set.reason)))
        }
        Kind::StepConversationCarriedOver(carried) => {
            let turns = carried.turns;
            let s = if turns == 1 { "" } else { "s" };
            (
                Style::Plain,
                format!("begins with {turns} turn{s} of another execution{}{}", by(event), why(&carried.reason)),
            )
        }
        Kind::StepRetryAdvanced(now) => {
            (Style::Plain, format!("next attempt starts now{}{}", by(event), why(&now.reason)))
        }
        Kind::StepRetryCancelled(cancelled) => {
            (Style::Plain, format!("next attempt cancelled{}{}", by(event), why(&cancelled.reason)))
        }
        Kind::ToolCallRequested(asked) if asked.tool == call::ASK => {
            (Style::Plain, model_turn::asked(asked.arguments.as_ref()))
        }
        Kind::ToolCallRequested(call) => {
            let arguments = call.arguments.as_ref().map(words::payload).unwrap_or_default();
            (Style::Plain, format!("calls {} {arguments}", call.tool))
        }
        Kind::ToolCallCompleted(call) if tracked.step(&event.step_id).is_some_and(model_turn::is_turn) => {
            (Style::Plain, model_turn::answered(call.result.as_ref(), call.receipt.as_deref()))
        }
        Kind::ToolCallCompleted(call) => {
            let result = call.result.as_ref().map(words::payload).unwrap_or_default();
            let (changed, network) = (changed(call.receipt.as_deref()), network(call.receipt.as_deref()));
            (Style::Plain, format!("call answered {result}{changed}{network}"))
        }
        Kind::ToolCallFailed(call) => {
            let network = network(call.receipt.as_deref());
            (Style::Plain, format!("call failed{}{network}", error(call.failure.as_ref())))
        }
        Kind::ToolCallCancelled(call) => (Style::Plain, format!("call cancelled{}", error(call.failure.as_ref()))),
        Kind::ToolCallDenied(call) => (Style::Bad, format!("call denied{}", error(call.failure.as_ref()))),
        Kind::ToolCallEffectProposed(proposed) => {
            let effect = proposed.need.as_ref().and_then(|need| need.effect.as_ref()).map(words::would);
            let effect = effect.unwrap_or_else(|| "change files".to_owned());
            (Style::Plain, format!("ran in an isolated copy; would {effect}{}", asks(proposed.need.as_ref())))
        }
        Kind::ToolCallApprovalRequired(required) => {
            (Style::Plain, format!("has not run{}", asks(required.need.as_ref())))
        }
        Kind::ApprovalRequested(requested) => {
            // The gate asks the form of a step that waits, or a question of its call.
            let waits_for = step.and_then(|step| step.waiting.as_ref()).map(WaitingReason::kind);
            let is_form = waits_for == Some(waiting_reason::Kind::Form);
            let what = if is_form { "waiting for an answer" } else { "waiting for approval" };
            (Style::Warn, format!("{what}; next: {}", words::show_approval(&requested.approval)))
        }
        Kind::ApprovalDecided(decided) => approval_decided(event, decided),
        Kind::ToolCallDispatched(_) => (Style::Plain, "running, now that it is approved".to_owned()),
        Kind::WaitStarted(wait) => {
            let until = wait.until_time.as_ref().map(|until| format!(" until {}", time::date_and_time(until)));
            let until = until.unwrap_or_default();
            match (wait.signal.as_str(), &wait.form) {
                (_, Some(form)) => (Style::Plain, format!("asks {}{until}", clean(&form.title))),
                ("", None) => (Style::Plain, format!("waits{until}")),
                (signal, None) => (Style::Plain, format!("waits for the signal {}{until}", clean(signal))),
            }
        }
        Kind::WaitEnded(wait) => match wait.cause() {
            wait_ended::Cause::Elapsed => (Style::Plain, "its time has come".to_owned()),
            wait_ended::Cause::Signalled => (Style::Plain, "its signal came".to_owned()),
            wait_ended::Cause::TimedOut => (Style::Bad, "nothing came in time".to_owned()),
            wait_ended::Cause::Answered => (Style::Good, format!("answered{}", by(event))),
            wait_ended::Cause::Held => {
                (Style::Good, format!("answered for the execution before, by event {}", wait.answer_sequence))
            }
            wait_ended::Cause::Declined => declined(event, wait),
            wait_ended::Cause::Refused => (Style::Bad, format!("the gate refuses to ask: {}", clean(&wait.reason))),
            wait_ended::Cause::Cancelled => (Style::Warn, "stopped waiting".to_owned()),
            wait_ended::Cause::Unspecified => (Style::Warn, "its wait ended".to_owned()),
        },
        Kind::ChildStarted(child) => {
            (Style::Plain, format!("carries out its plan as the execution {}", clean(&child.execution_id)))
        }
        // What says that it is started stands a line above.
        Kind::ChildCreated(_) => return None,
        Kind::ChildPaused(child) => {
            let what = if child.resumed { "was resumed" } else { "was paused" };
            (Style::Plain, format!("the execution of its plan {what} with this one"))
        }
        Kind::ChildEnded(ended) => match &ended.end {
            Some(child_ended::End::Output(_)) => (Style::Plain, "its plan is carried out".to_owned()),
            Some(child_ended::End::Failure(failure)) => {
                (Style::Bad, format!("its plan was not carried out{}", error(Some(failure))))
            }
            Some(child_ended::End::Cancelled(_)) | None => {
                (Style::Warn, "the execution of its plan was cancelled".to_owned())
            }
        },
        Kind::ExecutionAwaitingApproval(_) => (Style::Warn, "waiting for approval".to_owned()),
        Kind::ToolCallOutput(_) => return None,
        Kind::ToolCallOutcomeUnknown(call) => {
            (Style::Warn, format!("call's outcome unknown{}", error(call.failure.as_ref())))
        }
    })
}

/// ` in 3s`, or ` in 3s, and 12s waiting for approval` where that was part of it.
fn took(duration: Option<&pbjson_types::Duration>, waited: Duration) -> String {
    let Some(took) = duration.map(|took| time::duration(took).saturating_sub(waited)) else { return String::new() };
    let waited = Some(waited).filter(|waited| *waited >= Duration::from_secs(1));
    let waited = waited.map(|waited| format!(", and {} waiting for approval", time::short(waited)));
    format!(" in {}{}", time::short(took), waited.unwrap_or_default())
}

fn approval_decided(event: &ExecutionEvent, decided: &ApprovalDecided) -> (Style, String) {
    let (style, what) = match decided.decision() {
        Decision::Approve => (Style::Good, "approved"),
        Decision::Skip => (Style::Warn, "skipped"),
        Decision::Expire => (Style::Bad, "expired: no decision in time"),
        Decision::Deny | Decision::Unspecified => (Style::Bad, "denied"),
    };
    let automatic = if decided.approval.is_empty() { ", without asking a person" } else { "" };
    (style, format!("{what}{}{automatic}{}", by(event), why(&decided.reason)))
}

/// How a form was declined.
fn declined(event: &ExecutionEvent, wait: &WaitEnded) -> (Style, String) {
    let what = if wait.decision() == Decision::Skip { "skipped" } else { "denied" };
    let reason = if event.actor.is_some() { why(&wait.reason) } else { ", without asking a person".to_owned() };
    (if wait.decision() == Decision::Skip { Style::Warn } else { Style::Bad }, format!("{what}{}{reason}", by(event)))
}

/// `: Deleting asks first. (rule file_delete)`.
fn asks(need: Option<&ApprovalNeed>) -> String {
    need.and_then(|need| need.decision.as_ref())
        .map(|decision| format!("; {}", words::decision(decision)))
        .unwrap_or_default()
}

/// `; 2 created, 1 modified`.
fn changed(receipt: Option<&Receipt>) -> String {
    const MAX_NAMED: usize = 3;
    let Some(receipt) = receipt else { return String::new() };
    let effect = receipt.effect.as_ref().filter(|effect| effect.created + effect.modified + effect.deleted > 0);
    let changed = effect.map(|effect| format!("; {}", words::effect(effect))).unwrap_or_default();
    let named: Vec<String> = receipt.left_out.iter().take(MAX_NAMED).map(|left_out| clean(left_out)).collect();
    if named.is_empty() {
        return changed;
    }
    let more = match usize::try_from(receipt.left_out_count).unwrap_or(0).saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{changed}; not committed: {}{more}", named.join(", "))
}

/// `; network ci: 12 connections, 1 refused (example.com:443), credential github to api.github.com in 3 requests`.
fn network(receipt: Option<&Receipt>) -> String {
    const MAX_NAMED: usize = 3;
    let Some(network) = receipt.and_then(|receipt| receipt.network.as_ref()) else { return String::new() };
    let is_connection = |connection: &&NetworkConnection| {
        connection.is_allowed && connection.failure.is_empty() && connection.route() != Route::NameServer
    };
    let allowed = network.connections.iter().filter(is_connection).count();
    let mut refused: Vec<String> = Vec::new();
    for connection in network.connections.iter().filter(|connection| !connection.is_allowed) {
        let host = match connection.port {
            0 if connection.host.is_empty() => "no host".to_owned(),
            0 => clean(&connection.host),
            port => format!("{}:{port}", clean(&connection.host)),
        };
        if !refused.contains(&host) {
            refused.push(host);
        }
    }
    let unlisted = match network.unlisted_connection_count {
        1.. => format!(" and {} more that are not listed", network.unlisted_connection_count),
        _ => String::new(),
    };
    let refused = match network.refused_count {
        1.. => {
            let more = if refused.len() > MAX_NAMED { ", …" } else { "" };
            refused.truncate(MAX_NAMED);
            format!(", {} refused ({}{more})", network.refused_count, refused.join(", "))
        }
        _ => String::new(),
    };
    let failed = match network.connections.iter().filter(|connection| !connection.failure.is_empty()).count() {
        0 => String::new(),
        failed => format!(", {failed} not reached"),
    };
    if network.is_lost {
        let profile = clean(&network.profile);
        return format!(
            "; network {profile}: the connection to the proxy was lost, so that what it reached is not known"
        );
    }
    let connections = if allowed == 1 { "connection" } else { "connections" };
    let credentials: String = network
        .credentials
        .iter()
        .map(|used| {
            let requests = if used.request_count == 1 { "request" } else { "requests" };
            let (credential, host) = (clean(&used.credential), clean(&used.host));
            format!(", credential {credential} to {host} in {} {requests}", used.request_count)
        })
        .collect();
    format!("; network {}: {allowed} {connections}{failed}{unlisted}{refused}{credentials}", clean(&network.profile))
}

/// ` by person:ann`, for what a principal asked for.
fn by(event: &ExecutionEvent) -> String {
    let principal = event.actor.as_ref().map(|actor| actor.principal.as_str()).filter(|name| !name.is_empty());
    principal.map(|principal| format!(" by {principal}")).unwrap_or_default()
}

fn why(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

fn progress(progress: Option<&Progress>) -> String {
    progress.map(|progress| format!(" ({}/{})", progress.done, progress.total)).unwrap_or_default()
}

fn error(failure: Option<&Failure>) -> String {
    failure.map(|failure| format!(": {}", words::failure(failure))).unwrap_or_default()
}

/// The sentence about entries that a step lists.
fn entries(listed: &StepItemsListed) -> String {
    if let Some(words) = layers(listed) {
        return words.to_owned();
    }
    model_turn::listed(listed).unwrap_or_else(|| match listed.first {
        1.. => format!("begins round {}", i64::from(listed.first) + 1),
        _ => format!("runs as {} of its own", words::steps(listed.items.len())),
    })
}

/// The sentence about a step that commits what the calls before it have changed, or drops some of it; `None` for other steps.
fn layers(listed: &StepItemsListed) -> Option<&'static str> {
    let last: Value = serde_json::from_str(listed.items.last().and_then(Payload::as_json)?).ok()?;
    if last["tool"] == call::COMMIT && last["layers"].is_array() {
        return Some("commits what its calls have changed, as one effect");
    }
    let rebases = last["tool"] == call::REBASE && last["after_turn"].is_number();
    rebases.then_some("drops those of its changes that conflict with what others have changed")
}

#[cfg(test)]
mod tests;

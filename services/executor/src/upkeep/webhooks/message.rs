//! Messages that a transition causes, and what they say. Pure.

use belay_execution::{Execution, ExecutionState, Failure, Json};
use belay_journal::OutboxMessage;
use belay_reading::progress::{Fact, person_waits};
use belay_settings::WebhookEvent;
use serde_json::{Value, json};

use super::Webhook;
use crate::{
    names::ExecutionName,
    store::secrets::{Secrets, shown},
    wire,
};

/// The longest failure message, in characters.
const MAX_MESSAGE: usize = 4_096;

/// The most waits that one message lists.
const MAX_WAITS: usize = 100;

/// The transition that messages are about.
pub(crate) struct About<'a> {
    /// The execution's name.
    pub(crate) name: &'a ExecutionName,
    /// The execution after it.
    pub(crate) execution: &'a Execution,
    /// Secrets that are hidden in messages.
    pub(crate) secrets: &'a Secrets,
    /// Facts about what happened.
    pub(crate) facts: &'a [Fact<'a>],
    /// The executor's time, in microseconds since the Unix epoch.
    pub(crate) now: i64,
}

/// The messages that a transition causes, for each webhook that wants them.
pub(crate) fn messages(webhooks: &[Webhook], about: &About<'_>) -> Vec<OutboxMessage> {
    if webhooks.is_empty() {
        return Vec::new();
    }
    let mut messages = Vec::new();
    for event in happened(about.facts) {
        let wanted = webhooks.iter().filter(|webhook| webhook.events.contains(&event)).map(|webhook| &webhook.name);
        let mut wanted = wanted.peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let (uid, sequence) = (&about.execution.created().uid, about.execution.last_sequence());
        let body = body(event, about);
        messages.extend(wanted.map(|webhook| OutboxMessage {
            webhook: webhook.clone(),
            // Two webhooks may have one URL, whose receiver drops a message with an id that it has handled.
            id: format!("{uid}.{sequence}.{}.{webhook}", event.word()),
            body: body.clone(),
            created_at: about.now,
        }));
    }
    messages
}

fn happened(facts: &[Fact<'_>]) -> Vec<WebhookEvent> {
    let mut events = Vec::new();
    if person_waits(facts).next().is_some() {
        events.push(WebhookEvent::Waiting);
    }
    for fact in facts {
        if let Fact::Finished(finished) = fact {
            match finished.state {
                ExecutionState::Failed | ExecutionState::Partial | ExecutionState::TimedOut => {
                    events.push(WebhookEvent::Failed);
                }
                ExecutionState::Completed
                | ExecutionState::Cancelled
                | ExecutionState::Pending
                | ExecutionState::Running
                | ExecutionState::AwaitingApproval
                | ExecutionState::Paused
                | ExecutionState::Cancelling => {}
            }
            events.push(WebhookEvent::Finished);
        }
    }
    events
}

fn body(event: WebhookEvent, about: &About<'_>) -> String {
    let About { name, execution, secrets, facts, .. } = about;
    let mut data = json!({
        "execution": name.to_string(),
        "planId": secrets.shown(execution.plan().id().to_owned()),
        "state": wire::state_name(execution),
        "sequence": execution.last_sequence(),
    });
    match event {
        WebhookEvent::Waiting => {
            let waits = person_waits(facts).take(MAX_WAITS).map(|(step, waiting)| {
                let reason = shown(secrets.redactor(), wire::waiting_reason(name, execution, waiting));
                json!({
                    "stepId": step.as_str(),
                    "kind": reason.kind().as_str_name().trim_start_matches("KIND_"),
                    "who": reason.who,
                    "since": reason.begin_time.as_ref().map(wire::time_text),
                    "nextCommand": reason.next_command,
                })
            });
            data["waiting"] = waits.collect();
        }
        WebhookEvent::Failed | WebhookEvent::Finished => {
            if let Some(failure) = execution.first_failure() {
                data["failure"] = self::failure(failure, secrets);
            }
        }
    }
    let timestamp = wire::time_text(&wire::time(execution.last_time()));
    let body = json!({"type": event.word(), "timestamp": timestamp, "data": data});
    Json::canonical(&body).as_str().to_owned()
}

fn failure(failure: &Failure, secrets: &Secrets) -> Value {
    let mut message = secrets.shown(failure.message.clone());
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    json!({
        "errorClass": wire::class_name(failure.class),
        "reason": secrets.shown(failure.reason.clone()),
        "message": message,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_execution::{Finished, Totals};

    use super::*;

    #[test]
    fn each_end_is_finished_and_some_are_failed() {
        let of = |state| {
            let finished =
                Finished { state, totals: Totals::default(), failure: None, duration: Duration::ZERO, outputs: None };
            happened(&[Fact::Finished(&finished)])
        };
        for state in [ExecutionState::Completed, ExecutionState::Cancelled] {
            assert_eq!(of(state), [WebhookEvent::Finished]);
        }
        for state in [ExecutionState::Failed, ExecutionState::Partial, ExecutionState::TimedOut] {
            assert_eq!(of(state), [WebhookEvent::Failed, WebhookEvent::Finished]);
        }
        assert_eq!(happened(&[]), []);
    }
}

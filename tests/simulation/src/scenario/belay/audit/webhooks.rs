//! Audits webhooks: what the receiver has got is compared with the journal.

use std::collections::BTreeMap;

use belay_proto::v1::{execution, execution_event::Kind};
use serde_json::Value;

use super::super::records::{Delivery, Mailbox};
use super::super::webhooks::{Terms, WEBHOOK};
use super::evidence::{Evidence, SKEW, Violations};
use crate::trace;

/// The least number of attempts before a message is given up.
const MIN_ATTEMPTS: usize = 10;

/// Every end is delivered at least once, or was given up after its time; and nothing is sent that is not in the journal.
pub(in super::super) fn audit(evidence: &Evidence<'_>, mailbox: &Mailbox, seed: u64, violations: &mut Violations) {
    let state = mailbox.state();
    let mut expected = state.committed.clone();
    for (name, kept) in &evidence.stored.executions {
        for event in &kept.events {
            let Some(Kind::ExecutionFinished(finished)) = &event.kind else { continue };
            let stored = evidence.owners.stored_at(name, event.sequence).unwrap_or_default();
            let id = |word: &str| format!("{}.{}.execution.{word}.{WEBHOOK}", kept.execution.uid, event.sequence);
            expected.entry(id("finished")).or_insert(stored);
            use execution::State as S;
            if matches!(finished.state(), S::Failed | S::Partial | S::TimedOut) {
                expected.entry(id("failed")).or_insert(stored);
            }
        }
    }
    let terms = Terms::of(seed);
    for (id, stored) in &expected {
        if state.got.iter().any(|delivery| delivery.id == *id && delivery.accepted) {
            trace::count("messages delivered");
            continue;
        }
        // Ten attempts of its own, or ten in a row of which the receiver accepted none: these may have begun before it was stored.
        let accepted = state.got.iter().filter(|delivery| delivery.accepted && delivery.at <= *stored);
        let since = accepted.map(|delivery| delivery.at).max().unwrap_or_default();
        let attempts: Vec<i64> = state.tried.iter().copied().filter(|at| *at > since).collect();
        let tried_for = attempts.last().map_or(0, |last| last - stored);
        if attempts.len() < MIN_ATTEMPTS || u128::try_from(tried_for).unwrap_or(0) < terms.give_up_after.as_micros() {
            let attempts = attempts.len();
            violations
                .push(format!("{id} was not delivered, and given up after {attempts} attempts in {tried_for} µs"));
        }
        trace::count("messages given up");
    }
    for Delivery { id, body, at, .. } in &state.got {
        if let Some(wrong) = made_up(evidence, &state.committed, id, body, *at) {
            violations.push(format!("{id} was sent, and {wrong}: {body}"));
        }
    }
}

/// The problem with a message that was sent; `None` when there is none.
fn made_up(
    evidence: &Evidence<'_>,
    committed: &BTreeMap<String, i64>,
    id: &str,
    body: &Value,
    at: i64,
) -> Option<String> {
    let (uid, rest) = id.split_once('.')?;
    let (sequence, rest) = rest.split_once('.')?;
    let Some((word, WEBHOOK)) = rest.rsplit_once('.') else { return Some("its id names another webhook".to_owned()) };
    let found = evidence.stored.executions.iter().find(|(_, kept)| kept.execution.uid == uid);
    let Some((name, kept)) = found else { return Some("no execution is in the journal with its uid".to_owned()) };
    let sequence: i64 = sequence.parse().ok()?;
    let Some(event) = usize::try_from(sequence - 1).ok().and_then(|place| kept.events.get(place)) else {
        return Some("its event is not in the journal".to_owned());
    };
    if committed.get(id).is_some_and(|committed| *committed > at + SKEW) {
        return Some("it was stored later".to_owned());
    }
    let data = &body["data"];
    if body["type"] != word || data["execution"] != **name || data["sequence"] != sequence {
        return Some("it says something else".to_owned());
    }
    if word == "execution.waiting" {
        trace::count("messages about waits");
        return None;
    }
    match &event.kind {
        Some(Kind::ExecutionFinished(finished))
            if data["state"] == finished.state().as_str_name().trim_start_matches("STATE_") =>
        {
            None
        }
        other => Some(format!("its event is {other:?}")),
    }
}

//! Sends the messages of the outbox: those of each webhook by a loop of its own, so that none waits for the receiver of another.
//!
//! What is sent is in the journal until its receiver has accepted it, or it is given up. A loop has one batch in memory, however many messages
//! wait. A process that is killed after a message was accepted, and before that is recorded, sends it again with the same id.

use std::{sync::Weak, time::Duration};

use belay_journal::{Operation, OutboxRow};
use futures::future::join_all;

use super::Webhook;
use crate::{
    journal_reads::unreadable,
    registry::{ExecutionRegistry, unwritable},
};

/// How many messages to one receiver are sent at the same time.
const BATCH: usize = 16;

/// The delay before the second attempt, and the longest.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(600);

/// How long the messages of a webhook that is no longer in the settings are kept: no message is tried for longer.
const KEEP_UNKNOWN: Duration = Duration::from_secs(30 * 86_400);

/// What follows an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The receiver has accepted it.
    Delivered,
    /// It is tried again after the delay.
    Retry(Duration),
    /// It is tried no more.
    GiveUp,
}

/// What follows attempt number `attempts`, `age` after the message was stored.
fn next(accepted: bool, attempts: u32, age: Duration, give_up_after: Duration) -> Next {
    let delay = (FIRST_DELAY * 2_u32.saturating_pow(attempts.saturating_sub(1).min(20))).min(MAX_DELAY);
    match accepted {
        true => Next::Delivered,
        // The last attempt is not after the time.
        false if age + delay > give_up_after => Next::GiveUp,
        false => Next::Retry(delay),
    }
}

/// Sends what is in the outbox, until the service stops.
pub(crate) async fn run(registry: Weak<ExecutionRegistry>) {
    let Some(this) = registry.upgrade() else { return };
    drop_unknown(&this).await;
    let loops = (0..this.webhooks.len()).map(|index| send_all(Weak::clone(&registry), index));
    let loops = join_all(loops);
    drop(this);
    loops.await;
}

/// Removes what is left for webhooks that the settings have no longer. It is kept for as long as it could have been tried: a process with other
/// settings may use the same state directory meanwhile.
async fn drop_unknown(registry: &ExecutionRegistry) {
    if !registry.reads.read(|reader| reader.outbox_len(1)).await.is_ok_and(|count| count > 0) {
        return;
    }
    let known = registry.webhooks.iter().map(|webhook| webhook.name.clone()).collect();
    let before = registry.now().as_micros() - micros(KEEP_UNKNOWN);
    if let Err(error) = registry.commit(Operation::DropMessages { known, before }).await {
        tracing::warn!(error = %unwritable(&error), "Messages for webhooks that are no longer in the settings are not removed yet");
    }
}

/// Sends the messages of one webhook.
async fn send_all(registry: Weak<ExecutionRegistry>, index: usize) {
    let Some(mut added) = registry.upgrade().map(|this| this.outbox_changed.subscribe()) else { return };
    let mut is_down = false;
    loop {
        added.mark_unchanged();
        let Some(this) = registry.upgrade() else { return };
        let webhook = &this.webhooks[index];
        let wait = match send_batch(&this, webhook, &mut is_down).await {
            Ok(true) => continue,
            Ok(false) => until_next(&this, webhook).await,
            Err(why) => Err(why),
        };
        let wait = wait.unwrap_or_else(|why| {
            tracing::warn!(
                webhook = webhook.name,
                why,
                "The messages of a webhook cannot be read or recorded now; retrying"
            );
            MAX_DELAY
        });
        drop(this);
        tokio::select! {
            // An error means that the service is stopping.
            changed = added.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Sends the next messages that are due, all at once, and records what became of each. Returns whether there were any.
async fn send_batch(registry: &ExecutionRegistry, webhook: &Webhook, is_down: &mut bool) -> Result<bool, String> {
    let (name, now) = (webhook.name.clone(), registry.now().as_micros());
    let due = registry.reads.read(move |reader| reader.outbox(&name, now, BATCH)).await;
    let due = due.map_err(|error| unreadable(&error).to_string())?;
    let sent = join_all(due.iter().map(|row| send(registry, webhook, row))).await;
    for failure in sent {
        let failure = failure?;
        match (&failure, *is_down) {
            (Some(why), false) => tracing::warn!(
                webhook = webhook.name,
                receiver = webhook.receiver.address(),
                why,
                "A webhook does not accept messages; they are kept and sent again"
            ),
            (None, true) => tracing::info!(webhook = webhook.name, "A webhook accepts messages again"),
            (Some(_), true) | (None, false) => {}
        }
        *is_down = failure.is_some();
    }
    Ok(!due.is_empty())
}

/// Sends a message once, and records what became of it. Returns why it was not accepted.
async fn send(registry: &ExecutionRegistry, webhook: &Webhook, row: &OutboxRow) -> Result<Option<String>, String> {
    let message = &row.message;
    let started = registry.now().as_micros();
    let sent = webhook.receiver.send(&message.id, started.div_euclid(1_000_000), &message.body).await;
    let (now, attempts) = (registry.now().as_micros(), row.attempts.saturating_add(1));
    let age = Duration::from_micros(u64::try_from(now - message.created_at).unwrap_or(0));
    let failure = sent.err().map(|error| error.to_string());
    let next = next(failure.is_none(), attempts, age, webhook.give_up_after);
    let operation = match next {
        Next::Delivered | Next::GiveUp => Operation::RemoveMessage { key: row.key },
        Next::Retry(delay) => Operation::PostponeMessage { key: row.key, attempts, next_at: now + micros(delay) },
    };
    let recorded = registry.commit(operation).await.map_err(|error| unwritable(&error).to_string())?;
    recorded.map_err(|refused| refused.to_string())?;
    registry.measures.webhook(match next {
        Next::Delivered => "delivered",
        Next::Retry(_) => "failed",
        Next::GiveUp => "given_up",
    });
    if let (Next::GiveUp, Some(why)) = (next, &failure) {
        tracing::warn!(
            webhook = webhook.name,
            receiver = webhook.receiver.address(),
            message = message.id,
            attempts,
            why,
            "A message is given up: its receiver has not accepted it for as long as the settings say"
        );
    }
    Ok(failure)
}

/// How long until a message of the webhook is due; at most the longest delay, since the clock may be set.
async fn until_next(registry: &ExecutionRegistry, webhook: &Webhook) -> Result<Duration, String> {
    let name = webhook.name.clone();
    let next = registry.reads.read(move |reader| reader.next_message(&name)).await;
    let next = next.map_err(|error| unreadable(&error).to_string())?;
    let wait = next.map(|next| u64::try_from(next - registry.now().as_micros()).unwrap_or(0));
    Ok(wait.map_or(MAX_DELAY, |wait| Duration::from_micros(wait).min(MAX_DELAY)))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_ten_minutes_and_the_last_attempt_is_in_time() {
        let (young, day) = (Duration::ZERO, Duration::from_secs(86_400));
        let delay = |attempts| match next(false, attempts, young, day) {
            Next::Retry(delay) => delay.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!([1, 2, 3, 10, 11, 1_000].map(delay), [1, 2, 4, 512, 600, 600]);
        assert_eq!(next(true, 5, day * 2, day), Next::Delivered, "however late");
        assert_eq!(next(false, 1, day - FIRST_DELAY, day), Next::Retry(FIRST_DELAY));
        assert_eq!(next(false, 1, day, day), Next::GiveUp);
        assert_eq!(next(false, 20, day - Duration::from_secs(599), day), Next::GiveUp);
    }
}

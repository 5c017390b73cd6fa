//! Sends the messages of the outbox: those of each webhook by a loop of its own, so that none waits for the receiver of another.
//!
//! Messages stay in the journal until their receiver has accepted them, or they are given up. A loop has one batch in memory, however many messages
//! wait. A process that is killed after a message was accepted, and before that is recorded, sends it again with the same id.
//!
//! While a receiver accepts nothing, one message at a time is sent to find out whether it does again; the others wait as they are.

use std::{sync::Weak, time::Duration};

use belay_defects::{Defect, is_planted};
use belay_journal::{OutboxRow, StoreWrite};
use futures::future::join_all;

use super::Webhook;
use crate::{
    owned::registry::{ExecutionRegistry, unwritable},
    store::journal_reads::unreadable,
};

/// How many messages to one receiver are sent at the same time.
const BATCH: usize = 16;

/// The delay before the second attempt. The longest is [`Thresholds::max_message_delay`](crate::Thresholds::max_message_delay).
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// The longest delay between two messages to a receiver that accepts nothing.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(60);

/// The least number of attempts before a message is given up: its own, or those in a row that found its receiver away. They take four minutes or
/// more, so a clock that jumps forward for a moment gives up nothing.
const MIN_ATTEMPTS: u32 = 10;

/// How long the messages of a webhook that is no longer in the settings are kept: no message is tried for longer.
const KEEP_UNKNOWN: Duration = Duration::from_secs(30 * 86_400);

/// The next step after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The receiver has accepted it.
    Delivered,
    /// It is tried again after the delay.
    Retry(Duration),
    /// It is tried no more.
    GiveUp,
}

/// Decides what follows attempt number `attempts`, `age` after the message was stored, when the receiver has accepted nothing `failures` times in a
/// row.
fn next(accepted: bool, attempts: u32, failures: u32, age: Duration, limits: Limits) -> Next {
    let Limits { max_delay, give_up_after } = limits;
    let delay = delay(attempts, max_delay);
    match accepted {
        true => Next::Delivered,
        // The last attempt is not after the time.
        false if is_too_old(age + delay, attempts.max(failures), give_up_after) => Next::GiveUp,
        false => Next::Retry(delay),
    }
}

/// The delay after this many attempts.
fn delay(attempts: u32, longest: Duration) -> Duration {
    (FIRST_DELAY * 2_u32.saturating_pow(attempts.saturating_sub(1).min(20))).min(longest)
}

fn is_too_old(age: Duration, attempts: u32, give_up_after: Duration) -> bool {
    age > give_up_after && attempts >= MIN_ATTEMPTS
}

/// How long a message is tried.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The longest delay before an attempt.
    max_delay: Duration,
    give_up_after: Duration,
}

/// Whether a receiver accepts messages, as far as the last ones tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Breaker {
    /// How many rounds in a row it has accepted none.
    failures: u32,
}

impl Breaker {
    /// How many messages are sent at once.
    fn batch(self) -> usize {
        if self.failures == 0 { BATCH } else { 1 }
    }

    /// The delay before the next message; `None` while the receiver accepts messages.
    fn pause(self, max_delay: Duration) -> Option<Duration> {
        (self.failures > 0).then(|| delay(self.failures, MAX_PROBE_DELAY.min(max_delay)))
    }

    /// The breaker after a round of messages, of which the receiver has accepted some or none.
    fn after(self, accepted_any: bool) -> Self {
        Self { failures: if accepted_any { 0 } else { self.failures.saturating_add(1) } }
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
    if let Err(error) = registry.commit(StoreWrite::DropMessages { known, before }).await {
        tracing::warn!(error = %unwritable(&error), "Messages for webhooks that are no longer in the settings are not removed yet");
    }
}

/// Sends the messages of one webhook.
async fn send_all(registry: Weak<ExecutionRegistry>, index: usize) {
    let Some(mut added) = registry.upgrade().map(|this| this.outbox_changed.subscribe()) else { return };
    let (mut breaker, mut is_rescheduled) = (Breaker::default(), false);
    loop {
        added.mark_unchanged();
        let Some(this) = registry.upgrade() else { return };
        let webhook = &this.webhooks[index];
        let max_delay = this.reading.thresholds.max_message_delay;
        let round = async {
            if !is_rescheduled && !is_planted(Defect::WallClockMessages) {
                reschedule(&this, webhook).await?;
            }
            send_round(&this, webhook, &mut breaker).await
        };
        let round = match round.await {
            Ok(false) => until_next(&this, webhook).await.map(|wait| (wait, true)),
            Ok(true) => match breaker.pause(max_delay) {
                None => {
                    is_rescheduled = true;
                    continue;
                }
                Some(pause) => Ok((pause, false)),
            },
            Err(why) => Err(why),
        };
        is_rescheduled |= round.is_ok();
        let (wait, ends_with_new) = round.unwrap_or_else(|why| {
            tracing::warn!(
                webhook = webhook.name,
                why,
                "The messages of a webhook cannot be read or recorded now; retrying"
            );
            (max_delay, true)
        });
        drop(this);
        if !ends_with_new {
            tokio::time::sleep(wait).await;
            continue;
        }
        tokio::select! {
            // An error means that the service is stopping.
            changed = added.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Sends messages now whose time is later than any delay: an earlier process had a clock that was ahead.
async fn reschedule(registry: &ExecutionRegistry, webhook: &Webhook) -> Result<(), String> {
    let (now, max_delay) = (registry.now().as_micros(), registry.reading.thresholds.max_message_delay);
    let (name, latest) = (webhook.name.clone(), now.saturating_add(micros(max_delay)));
    // Without messages, nothing is committed.
    let first = registry.reads.read(move |reader| reader.next_message(&name)).await;
    if first.map_err(|error| unreadable(&error).to_string())?.is_some() {
        commit(registry, StoreWrite::RescheduleMessages { webhook: webhook.name.clone(), latest, now }).await?;
    }
    Ok(())
}

/// Sends the next messages that are due, all at once, and records what became of each. While the receiver accepts nothing it is one message, and
/// those that have waited too long are given up with it. Returns whether there were any.
async fn send_round(registry: &ExecutionRegistry, webhook: &Webhook, breaker: &mut Breaker) -> Result<bool, String> {
    let due = due(registry, webhook, breaker.batch()).await?;
    if due.is_empty() {
        return Ok(false);
    }
    let sent = join_all(due.iter().map(|row| send(registry, webhook, row, breaker.failures + 1))).await;
    let sent = sent.into_iter().collect::<Result<Vec<_>, _>>()?;
    let before = *breaker;
    *breaker = before.after(sent.iter().any(Option::is_none));
    match (before.failures, breaker.failures, sent.into_iter().flatten().next()) {
        (0, 1, Some(why)) => tracing::warn!(
            webhook = webhook.name,
            receiver = webhook.receiver.address(),
            why,
            "A webhook does not accept messages; they are kept and sent again"
        ),
        (1.., 0, _) => tracing::info!(webhook = webhook.name, "A webhook accepts messages again"),
        _ => {}
    }
    if breaker.failures >= MIN_ATTEMPTS {
        give_up_old(registry, webhook, breaker.failures).await?;
    }
    Ok(true)
}

/// Gives up the messages that have waited for a receiver that is away for as long as the settings say.
async fn give_up_old(registry: &ExecutionRegistry, webhook: &Webhook, failures: u32) -> Result<(), String> {
    let mut count = 0;
    loop {
        let due = due(registry, webhook, BATCH).await?;
        let now = registry.now().as_micros();
        let old = |row: &&OutboxRow| is_too_old(age(row, now), row.attempts.max(failures), webhook.give_up_after);
        let old: Vec<_> = due.iter().filter(old).collect();
        if old.is_empty() {
            break;
        }
        let removed = old.iter().map(|row| commit(registry, StoreWrite::RemoveMessage { key: row.key }));
        join_all(removed).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        old.iter().for_each(|_| registry.measures.webhook("given_up"));
        count += old.len();
    }
    if count > 0 {
        tracing::warn!(
            webhook = webhook.name,
            receiver = webhook.receiver.address(),
            count,
            "Messages are given up: their receiver has accepted none for as long as the settings say"
        );
    }
    Ok(())
}

/// The next messages that are due.
async fn due(registry: &ExecutionRegistry, webhook: &Webhook, limit: usize) -> Result<Vec<OutboxRow>, String> {
    let (name, now) = (webhook.name.clone(), registry.now().as_micros());
    let due = registry.reads.read(move |reader| reader.outbox(&name, now, limit)).await;
    due.map_err(|error| unreadable(&error).to_string())
}

async fn commit(registry: &ExecutionRegistry, operation: StoreWrite) -> Result<(), String> {
    let recorded = registry.commit(operation).await.map_err(|error| unwritable(&error).to_string())?;
    recorded.map(drop).map_err(|refused| refused.to_string())
}

/// How long ago a message was stored.
fn age(row: &OutboxRow, now: i64) -> Duration {
    Duration::from_micros(u64::try_from(now - row.message.created_at).unwrap_or(0))
}

/// Sends a message once, and records what became of it. Returns why it was not accepted. `failures` is how many rounds in a row the receiver has
/// accepted nothing, if it does not accept this message.
async fn send(
    registry: &ExecutionRegistry,
    webhook: &Webhook,
    row: &OutboxRow,
    failures: u32,
) -> Result<Option<String>, String> {
    let message = &row.message;
    let started = registry.now().as_micros();
    let sent = webhook.receiver.send(&message.id, started.div_euclid(1_000_000), &message.body).await;
    let (now, attempts) = (registry.now().as_micros(), row.attempts.saturating_add(1));
    let limits =
        Limits { max_delay: registry.reading.thresholds.max_message_delay, give_up_after: webhook.give_up_after };
    let failure = sent.err().map(|error| error.to_string());
    let next = next(failure.is_none(), attempts, failures, age(row, now), limits);
    let operation = match next {
        Next::Delivered | Next::GiveUp => StoreWrite::RemoveMessage { key: row.key },
        Next::Retry(delay) => StoreWrite::PostponeMessage { key: row.key, attempts, next_at: now + micros(delay) },
    };
    commit(registry, operation).await?;
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
    let max_delay = registry.reading.thresholds.max_message_delay;
    Ok(wait.map_or(max_delay, |wait| Duration::from_micros(wait).min(max_delay)))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;

    fn next(accepted: bool, attempts: u32, failures: u32, age: Duration, give_up_after: Duration) -> Next {
        let max_delay = Thresholds::default().max_message_delay;
        super::next(accepted, attempts, failures, age, Limits { max_delay, give_up_after })
    }

    fn pause(breaker: Breaker) -> Option<Duration> {
        breaker.pause(Thresholds::default().max_message_delay)
    }

    #[test]
    fn the_delay_doubles_up_to_ten_minutes_and_the_last_attempt_is_in_time() {
        let (young, day) = (Duration::ZERO, Duration::from_secs(86_400));
        let delay = |attempts| match next(false, attempts, 0, young, day) {
            Next::Retry(delay) => delay.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!([1, 2, 3, 10, 11, 1_000].map(delay), [1, 2, 4, 512, 600, 600]);
        assert_eq!(next(true, 5, 0, day * 2, day), Next::Delivered, "however late");
        assert_eq!(next(false, 20, 0, day - Duration::from_secs(600), day), Next::Retry(Duration::from_secs(600)));
        assert_eq!(next(false, 20, 0, day - Duration::from_secs(599), day), Next::GiveUp);
    }

    /// A clock that jumps forward makes a message old at once, and gives it up only after enough attempts.
    #[test]
    fn no_message_is_given_up_after_a_few_attempts() {
        let (day, year) = (Duration::from_secs(86_400), Duration::from_secs(365 * 86_400));
        assert!(matches!(next(false, MIN_ATTEMPTS - 1, 0, year, day), Next::Retry(_)));
        assert_eq!(next(false, MIN_ATTEMPTS, 0, year, day), Next::GiveUp);
        assert_eq!(next(false, 1, MIN_ATTEMPTS, year, day), Next::GiveUp, "its receiver was found away that often");
        let attempts = (1..MIN_ATTEMPTS).map(|failures| pause(Breaker { failures }).unwrap());
        assert!(attempts.sum::<Duration>() > Duration::from_secs(240));
    }

    /// S2-NFR-003: a receiver that accepts nothing is sent one message at a time, less and less often, until it accepts one.
    #[test]
    fn a_receiver_that_accepts_nothing_is_sent_one_message_at_a_time() {
        let mut breaker = Breaker::default();
        assert_eq!((breaker.batch(), pause(breaker)), (BATCH, None));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            breaker = breaker.after(false);
            assert_eq!(breaker.batch(), 1);
            pauses.push(pause(breaker).unwrap().as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(breaker.after(true), Breaker::default());
    }
}

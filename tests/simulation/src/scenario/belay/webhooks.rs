//! A webhook of the executor, whose receiver is away now and then while clocks are wrong; and what the receiver has got, which is compared with the journal.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use belay_executor::Webhook;
use belay_proto::v1::{execution, execution_event::Kind};
use belay_settings::WebhookEvent;
use belay_webhooks::{Connect, Connection, Receiver, Secret};
use futures::StreamExt as _;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::audit::{Evidence, SKEW, Violations};
use super::hosts::now_micros;
use super::records::{Delivery, Mailbox};
use super::shared_journal::SharedJournal;
use super::site::{EXECUTOR, HORIZON};
use crate::fault::{Fault, Schedule};
use crate::{net, trace};

/// The receiver's host.
pub(super) const RECEIVER: &str = "receiver";
const PORT: u16 = 7300;
/// The webhook of the settings.
const WEBHOOK: &str = "alerts";
const URL: &str = "http://receiver:7300/hook";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// How long the receiver has to answer.
const TIMEOUT: Duration = Duration::from_millis(800);
/// The least number of attempts before a message is given up.
const MIN_ATTEMPTS: usize = 10;
/// How often the outbox is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How the messages of one simulation are tried.
#[derive(Debug, Clone, Copy)]
struct Terms {
    max_delay: Duration,
    give_up_after: Duration,
    /// Whether the receiver never accepts some of the messages.
    refuses_some: bool,
}

impl Terms {
    fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x3EB0);
        let max_delay = Duration::from_millis(random.random_range(1_000..=3_000));
        let refuses_some = seed % 4 == 3;
        let give_up_after = match refuses_some {
            true => Duration::from_secs(random.random_range(1..=8)),
            false => Duration::from_secs(86_400),
        };
        Self { max_delay, give_up_after, refuses_some }
    }
}

/// The longest delay before a message is sent again.
pub(super) fn max_delay(seed: u64) -> Duration {
    Terms::of(seed).max_delay
}

/// Everything has been delivered or given up within this time after the last fault and the last end.
pub(super) const MAX_DELIVERY: Duration = Duration::from_secs(90);

/// Looks at the outbox again and again.
pub(super) async fn watch_outbox(mailbox: Mailbox, journal: SharedJournal) {
    loop {
        if let Ok(waiting) = journal.read(|reader| reader.outbox_len(1_000)).await {
            mailbox.state().waiting = Some(waiting);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The executor's webhook.
pub(super) fn webhook(seed: u64, mailbox: &Mailbox) -> Webhook {
    let mailbox = mailbox.clone();
    let connect: Connect = Arc::new(move |host, port| {
        mailbox.state().tried.push(now_micros());
        let host = host.to_owned();
        Box::pin(async move {
            let connection = net::connect(&host, port).await?;
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    });
    let secret = Secret::parse(SECRET).expect("it is one");
    Webhook {
        name: WEBHOOK.to_owned(),
        events: vec![WebhookEvent::Failed, WebhookEvent::Waiting, WebhookEvent::Finished],
        give_up_after: Terms::of(seed).give_up_after,
        receiver: Receiver::new(URL, secret, TIMEOUT).expect("the URL is valid").on(connect),
    }
}

/// The receiver is away, the executor is killed and its clock is set forward and back, again and again.
pub(super) fn faults(seed: u64) -> Schedule {
    let random = &mut StdRng::seed_from_u64(seed ^ 0x3EB1);
    let mut schedule = Schedule::new();
    for kind in 0..4 {
        for _ in 0..random.random_range(1..=4) {
            let lasts = Duration::from_millis(random.random_range(50..2_500));
            let most = [30, 15 * 60, 5 * 3_600, 40 * 3_600][random.random_range(0..4)];
            let fault = match kind {
                0 => Fault::Clock { host: EXECUTOR, ahead: random.random_range(-most..=most), lasts },
                1 => Fault::Kill { host: EXECUTOR },
                2 => Fault::PowerLoss { host: RECEIVER, down: lasts },
                _ => Fault::Partition { a: EXECUTOR, b: RECEIVER, lasts },
            };
            schedule.push((HORIZON.mul_f64(random.random()), fault));
        }
    }
    schedule
}

/// The receiver: accepts messages, refuses them, closes connections and answers late.
pub(super) async fn receive(seed: u64, mailbox: Mailbox) -> turmoil::Result {
    let start = {
        let mut state = mailbox.state();
        state.receivers += 1;
        state.receivers
    };
    let mut random = StdRng::seed_from_u64(seed.wrapping_mul(59).wrapping_add(start));
    let mut connections = pin!(net::listen(PORT).await?);
    while let Some(connection) = connections.next().await {
        let (mailbox, mood) = (mailbox.clone(), random.random_range(0..100));
        if let Ok(connection) = connection {
            tokio::spawn(async move { answer(connection, seed, mood, &mailbox).await });
        }
    }
    Ok(())
}

async fn answer(mut connection: net::Connection, seed: u64, mood: u32, mailbox: &Mailbox) -> std::io::Result<()> {
    let mut request = Vec::new();
    let (id, body) = loop {
        if let Some(message) = message(&request) {
            break message;
        }
        if connection.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    let is_refused = Terms::of(seed).refuses_some && id.bytes().map(u32::from).sum::<u32>() % 5 == 0;
    let mood = if mailbox.state().is_calm { 100 } else { mood };
    if (10..20).contains(&mood) {
        tokio::time::sleep(TIMEOUT * 2).await;
    }
    let accepted = !is_refused && mood >= 30;
    trace::event(format_args!("the receiver gets {id}, and {}", if accepted { "accepts it" } else { "does not" }));
    trace::count(if accepted { "messages accepted" } else { "messages not accepted" });
    mailbox.state().got.push(Delivery { id, body, at: now_micros(), accepted });
    let status = match mood {
        // An answer that is lost.
        20..30 => return Ok(()),
        _ if accepted => "204 No Content",
        _ => "503 Service Unavailable",
    };
    connection.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await?;
    connection.flush().await?;
    // The other end closes it.
    while connection.read_buf(&mut request).await? > 0 {}
    Ok(())
}

/// The id and the body of a message, when all of it has come.
fn message(request: &[u8]) -> Option<(String, Value)> {
    let text = std::str::from_utf8(request).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let header = |name: &str| head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| *key == name));
    let (_, length) = header("content-length")?;
    let (_, id) = header("webhook-id")?;
    (Some(body.len()) == length.parse().ok()).then(|| (id.to_owned(), serde_json::from_str(body).unwrap_or_default()))
}

/// Every end is delivered at least once, or was given up after its time; and nothing is sent that is not in the journal.
pub(super) fn audit(evidence: &Evidence<'_>, mailbox: &Mailbox, seed: u64, violations: &mut Violations) {
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

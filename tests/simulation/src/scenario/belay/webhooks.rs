//! A webhook of the executor, whose receiver is away now and then while clocks are wrong.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use belay_executor::Webhook;
use belay_settings::WebhookEvent;
use belay_webhooks::{Connect, Connection, Receiver, Secret};
use futures::StreamExt as _;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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
pub(super) const WEBHOOK: &str = "alerts";
const URL: &str = "http://receiver:7300/hook";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// How long the receiver has to answer.
const TIMEOUT: Duration = Duration::from_millis(800);
/// How often the outbox is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How the messages of one simulation are tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    max_delay: Duration,
    pub(super) give_up_after: Duration,
    /// Whether the receiver never accepts some of the messages.
    refuses_some: bool,
}

impl Terms {
    pub(super) fn of(seed: u64) -> Self {
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

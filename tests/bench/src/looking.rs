//! The cost of looking at a busy execution: a poller, watchers that keep up, and watchers that never read.

use std::path::Path;

use belay_bench::stats;
use belay_proto::v1::{self, ExecutionView, executor_service_client::ExecutorServiceClient};
use belay_service_kit::net::{self, Address};
use futures::future;
use serde::Serialize;
use tokio::task::JoinSet;
use tonic::{Streaming, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use crate::{
    Result,
    belay::{Belay, step_latencies},
    place::Place,
    proc,
    subject::Load,
};

/// The part of a `WatchExecutionResponse` that a watcher of the bench decodes. Watchers are other people's machines: what they do with the events is not
/// the execution's time.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchMessage {
    #[prost(message, optional, tag = "5")]
    pub(crate) event: Option<WatchEvent>,
}

/// The part of an `ExecutionEvent` that it decodes.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct WatchEvent {
    #[prost(int64, tag = "1")]
    pub(crate) sequence: i64,
}

/// How many watchers share a connection, as those of one program would.
const WATCHERS_PER_CONNECTION: u32 = 50;

/// How many executions run before the first one that is measured.
const WARM_UPS: usize = 2;

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// How many steps the execution has that is looked at.
    pub(crate) steps: u32,
    /// How many watchers read every event.
    pub(crate) watchers: u32,
    /// How many never read.
    pub(crate) stuck: u32,
}

/// A round. Latencies are the p50 of a step in microseconds, memory is that of the executor in KiB while it is looked at.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct WatchedRound {
    /// Without anybody who looks: the mean of a run before the others and one after them.
    pub(crate) alone_us: u64,
    pub(crate) polled_us: u64,
    pub(crate) watched_us: u64,
    pub(crate) stuck_us: u64,
    pub(crate) watched_kib: u64,
    pub(crate) stuck_kib: u64,
    /// How often the poller was answered.
    pub(crate) polls: u64,
}

/// Runs the same execution alone, polled, watched by many, watched by some that never read, and alone again. The three that are looked at begin with
/// another one in each round.
///
/// # Errors
/// When an execution does not complete, or a watcher misses an event.
pub(crate) async fn measure(binaries: &Path, root: &Path, scale: Scale, round: usize) -> Result<WatchedRound> {
    let place = Place::new(root)?;
    let belay = Belay::start(binaries, &place).await?;
    let address = place.socket("executor.sock");
    let load = Load::of_nothing(1, scale.steps);
    // The first executions of a process are slower than all after them.
    for _ in 0..WARM_UPS {
        run(&belay, load, async |_| Ok(())).await?;
    }
    let (before_us, _) = run(&belay, load, async |_| Ok(())).await?;
    let (mut polled, mut watched, mut stuck) = (None, None, None);
    for turn in 0..3 {
        match (round + turn) % 3 {
            0 => polled = Some(poll_one(&belay, &address, load).await?),
            1 => watched = Some(watch_one(&belay, &address, load, scale.watchers).await?),
            _ => stuck = Some(ignore_one(&belay, &address, load, scale.stuck).await?),
        }
    }
    let (after_us, _) = run(&belay, load, async |_| Ok(())).await?;
    let missing = "each of the three ran";
    let ((polled_us, polls), (watched_us, watched_kib), (stuck_us, stuck_kib)) =
        (polled.ok_or(missing)?, watched.ok_or(missing)?, stuck.ok_or(missing)?);
    let alone_us = u64::midpoint(before_us, after_us);
    Ok(WatchedRound { alone_us, polled_us, watched_us, stuck_us, watched_kib, stuck_kib, polls })
}

/// Runs an execution beside a poller: the p50 of its steps, and the number of answers.
async fn poll_one(belay: &Belay, address: &Address, load: Load) -> Result<(u64, u64)> {
    let mut polls = JoinSet::new();
    let (p50, _) = run(belay, load, async |name| {
        polls.spawn(poll(address.clone(), name.to_owned()));
        Ok(())
    })
    .await?;
    Ok((p50, polls.join_next().await.ok_or("no poller ran")???))
}

/// Runs an execution beside watchers that read every event: the p50 of its steps, and the executor's memory.
async fn watch_one(belay: &Belay, address: &Address, load: Load, watchers: u32) -> Result<(u64, u64)> {
    let mut readers = JoinSet::new();
    let (p50, last) = run(belay, load, async |name| {
        for stream in watch(address, name, watchers).await? {
            readers.spawn(read(stream));
        }
        Ok(())
    })
    .await?;
    let resident_kib = proc::resident_kib(&[belay.executor_pid()])?;
    while let Some(seen) = readers.join_next().await {
        let seen = seen??;
        if seen != last {
            return Err(format!("a watcher saw {seen} events of {last}").into());
        }
    }
    Ok((p50, resident_kib))
}

/// Runs an execution beside watchers that never read: the p50 of its steps, and the executor's memory.
async fn ignore_one(belay: &Belay, address: &Address, load: Load, watchers: u32) -> Result<(u64, u64)> {
    let mut stuck = Vec::new();
    let (p50, _) = run(belay, load, async |name| {
        stuck = watch(address, name, watchers).await?;
        Ok(())
    })
    .await?;
    Ok((p50, proc::resident_kib(&[belay.executor_pid()])?))
}

/// Runs one execution while something looks at it: it is started paused, so that those who look are there before its first step. Returns
/// the p50 of its steps, and the sequence of its last event.
async fn run(belay: &Belay, load: Load, look: impl AsyncFnOnce(&str) -> Result<()>) -> Result<(u64, i64)> {
    let name = belay.begin_paused(load).await?;
    look(&name).await?;
    belay.resume(&name).await?;
    belay.finish(std::slice::from_ref(&name), load.steps).await?;
    let events = belay.events(&name, |_| false).await?;
    let p50 = stats::percentile(&mut step_latencies(&events), 50).ok_or("no step was measured")?;
    Ok((p50, events.last().map_or(0, |last| last.sequence)))
}

/// Gets the execution again and again until it has ended; returns how often.
async fn poll(address: Address, name: String) -> Result<u64> {
    let mut client = ExecutorServiceClient::new(net::connect_lazy(&address));
    let mut polls = 0;
    loop {
        let request = v1::GetExecutionRequest { name: name.clone(), view: ExecutionView::Basic.into() };
        let execution = client.get_execution(request).await?.into_inner();
        polls += 1;
        if execution.end_time.is_some() {
            return Ok(polls);
        }
    }
}

/// Begins watches, each of which has got its first message.
pub(crate) async fn watch(address: &Address, name: &str, count: u32) -> Result<Vec<Streaming<WatchMessage>>> {
    let begin = async |channel: Channel| {
        let request =
            v1::WatchExecutionRequest { name: name.to_owned(), include_earlier_events: true, ..Default::default() };
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await?;
        let path = PathAndQuery::from_static("/belay.v1.ExecutorService/WatchExecution");
        let codec = ProstCodec::<v1::WatchExecutionRequest, WatchMessage>::default();
        let mut stream = client.server_streaming(tonic::Request::new(request), path, codec).await?.into_inner();
        stream.message().await?;
        Result::Ok(stream)
    };
    let connections = count.div_ceil(WATCHERS_PER_CONNECTION);
    let channels: Vec<Channel> = (0..connections).map(|_| net::connect_lazy(address)).collect();
    let watchers = channels.iter().cycle().take(usize::try_from(count)?);
    future::try_join_all(watchers.map(|channel| begin(channel.clone()))).await
}

/// Reads a watch to its end; returns the sequence of the last event, which must follow the others without a gap.
pub(crate) async fn read(mut stream: Streaming<WatchMessage>) -> Result<i64> {
    let mut last = 0;
    while let Some(message) = stream.message().await? {
        if let Some(event) = message.event {
            if event.sequence != last + 1 {
                return Err(format!("a watcher saw event {} after event {last}", event.sequence).into());
            }
            last = event.sequence;
        }
    }
    Ok(last)
}

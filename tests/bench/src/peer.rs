//! Belay beside Restate: the same loads in turns, and what each takes to continue after a kill.

use std::{path::Path, time::Duration};

use belay_service_kit::{Clock as _, SystemClock};
use futures::future;
use serde::Serialize;
use serde_json::json;

use crate::{
    Result,
    belay::Belay,
    place::Place,
    restate::{Restate, steps},
    restate_programs::Programs,
    rounds::{self, Scale, Side},
    shapes,
    strace::{self, FlushCount},
    subject::{Load, within},
};

/// The interval in which the service is asked what has run.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A round.
#[derive(Serialize)]
pub(crate) struct Peer {
    pub(crate) restate: Side,
    pub(crate) belay: Side,
    /// The p50 of Restate's steps that are calls of another handler, in microseconds.
    pub(crate) calls_us: u64,
    pub(crate) crash: Crash,
    pub(crate) shapes: Shapes,
}

/// The times of Belay's long and wide plans with Restate: as [`shapes::Shapes`], without a kill late in the long one.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Shapes {
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
    pub(crate) early_ms: f64,
    pub(crate) accepted_ms: f64,
    pub(crate) task_ms: f64,
}

/// The result of one kill of Restate's server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Crash {
    /// From the kill to the first body of a step that an attempt after it ran.
    pub(crate) next_step_ms: f64,
    /// How many bodies of steps ran more than once.
    pub(crate) repeated: u64,
}

/// Shows that Restate can be measured here.
///
/// # Errors
/// Why it cannot.
pub(crate) async fn check(programs: &Programs, root: &Path) -> Result<()> {
    Restate::start(programs, &Place::new(root)?).await.map(drop)
}

/// Counts Restate's flushes, apart from the rounds.
pub(crate) async fn flushes(programs: &Programs, root: &Path, scale: Scale) -> Result<FlushCount> {
    let place = Place::new(root)?;
    let mut restate = Restate::start(programs, &place).await?;
    strace::flushes_per_step(&mut restate, scale.flushes, &place).await
}

/// Measures both on new stores. Which goes first changes from load to load and from round to round.
pub(crate) async fn round(
    number: usize,
    binaries: &Path,
    programs: &Programs,
    root: &Path,
    scale: Scale,
) -> Result<Peer> {
    let place = Place::new(root)?;
    let restate = Restate::start(programs, &place).await?;
    let belay = Belay::start(binaries, &place).await?;
    let [restate, belay] = rounds::sides(number, restate, belay, scale).await?;

    let place = Place::new(root)?;
    let mut alone = Restate::start(programs, &place).await?;
    let calls = alone.client();
    let calls_us = within("calls", calls.call("calls", &steps(scale.calls, 0))).await?.p50_us;
    let crash = killed_at(&mut alone, &place, scale.crash, scale.crash.total() as u64 / 4).await?;
    let shapes = plans(&mut alone, &place, scale.shapes).await?;
    Ok(Peer { restate, belay, calls_us, crash, shapes })
}

/// Kills the server when so many bodies of a load have run, starts it again on the same data, and lets everything end.
async fn killed_at(restate: &mut Restate, place: &Place, load: Load, bodies: u64) -> Result<Crash> {
    let before = restate.ran(0).await?.bodies;
    let (client, plan) = (restate.client(), steps(load.steps, 0));
    let accepted = future::try_join_all((0..load.executions).map(|_| client.begin("steps", &plan)));
    let ids = within("accepting executions", accepted).await?;
    within("the steps before a kill", async {
        while restate.ran(0).await?.bodies - before < bodies {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    })
    .await?;
    let killed_at = restate.lose_server(place).await?;
    let ended = future::try_join_all(ids.iter().map(|id| client.finish(id))).await;
    ended.map_err(|error| restate.explain(format!("after a kill with {load:?}: {error}").into()))?;
    let ran = restate.ran(killed_at).await?;
    let next = ran.first_us.ok_or("every execution of Restate ended before the kill")?;
    let repeated = (ran.bodies - before).checked_sub(load.total() as u64).ok_or("Restate lost a step")?;
    Ok(Crash { next_step_ms: (next - killed_at) as f64 / 1e3, repeated })
}

/// The same plans as Belay's: a long one, killed early in it, and a wide one.
async fn plans(restate: &mut Restate, place: &Place, scale: shapes::Scale) -> Result<Shapes> {
    let client = restate.client();
    let long = within("a long plan", client.call("steps", &steps(scale.steps, scale.compared))).await?;
    let load = Load::of_nothing(1, scale.steps);
    let early = killed_at(restate, place, load, 100).await?;

    let plan = json!({"tasks": shapes::edges(), "parallelism": shapes::PARALLELISM});
    let began = SystemClock.now_micros();
    let id = within("accepting a wide plan", client.begin("wide", &plan)).await?;
    let accepted = SystemClock.now_micros();
    client.finish(&id).await.map_err(|error| restate.explain(format!("a wide plan: {error}").into()))?;
    let millis = |from: i64, to: i64| (to - from) as f64 / 1e3;
    let task_ms = millis(accepted, SystemClock.now_micros()) / f64::from(shapes::TASKS);
    Ok(Shapes {
        first_us: long.first_us,
        last_us: long.last_us,
        early_ms: early.next_step_ms,
        accepted_ms: millis(began, accepted),
        task_ms,
    })
}

//! The rounds: every load on the floor and on Belay, one right after the other, so that a noisy minute hits both.

use std::path::Path;

use serde::Serialize;

use crate::{
    Result, agents,
    belay::Belay,
    beside, children,
    floor::Floor,
    journalled::JournalledFolder,
    looking, memory,
    place::Place,
    proc, shapes,
    strace::{self, FlushCount},
    subject::{Load, Sample, Subject, Work, measure},
    tools,
};

/// How much is done.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Done and not measured: connections, caches and allocators are warm after it.
    pub(crate) warm_up: Load,
    one: Load,
    some: Load,
    many: Load,
    pub(crate) flushes: Load,
    writes: Load,
    pub(crate) crash: Load,
    /// How many steps are calls of another handler of Restate's.
    pub(crate) calls: u32,
    pub(crate) launches: usize,
    pub(crate) beside: beside::Scale,
    pub(crate) looking: looking::Scale,
    pub(crate) shapes: shapes::Scale,
    pub(crate) tools: tools::Scale,
    pub(crate) children: children::Scale,
    /// How many executions are parked.
    pub(crate) parked: u32,
    pub(crate) memory: memory::Scale,
    pub(crate) agents: agents::Scale,
}

impl Scale {
    pub(crate) const FULL: Self = Self {
        warm_up: Load::of_nothing(16, 50),
        one: Load::of_nothing(1, 1000),
        some: Load::of_nothing(64, 200),
        many: Load::of_nothing(256, 50),
        flushes: Load::of_nothing(1, 1000),
        writes: Load { work: Work::WriteFile, ..Load::of_nothing(1, 200) },
        crash: Load::of_nothing(64, 200),
        calls: 200,
        launches: 100,
        beside: beside::Scale { calls: 200, seconds: 60 },
        looking: looking::Scale { steps: 1000, watchers: 1000, stuck: 200 },
        shapes: shapes::Scale { steps: 10_000, compared: 1000 },
        tools: tools::Scale { steps: 200 },
        children: children::Scale { children: 10_000 },
        parked: 1_000_000,
        memory: memory::Scale { batches: 24, load: Load::of_nothing(64, 400) },
        agents: agents::Scale {
            executions: 3,
            late: 200,
            covered: 60,
            streams: 64,
            words: 2000,
            waiting: agents::Waiting { steps: 100, turns: 100 },
        },
    };

    pub(crate) const QUICK: Self = Self {
        warm_up: Load::of_nothing(4, 25),
        one: Load::of_nothing(1, 200),
        some: Load::of_nothing(64, 50),
        many: Load::of_nothing(256, 10),
        flushes: Load::of_nothing(1, 200),
        writes: Load { work: Work::WriteFile, ..Load::of_nothing(1, 200) },
        crash: Load::of_nothing(64, 60),
        calls: 50,
        launches: 20,
        beside: beside::Scale { calls: 20, seconds: 30 },
        looking: looking::Scale { steps: 200, watchers: 100, stuck: 50 },
        shapes: shapes::Scale { steps: 1000, compared: 100 },
        tools: tools::Scale { steps: 20 },
        children: children::Scale { children: 500 },
        parked: 20_000,
        memory: memory::Scale { batches: 6, load: Load::of_nothing(16, 50) },
        agents: agents::Scale {
            executions: 1,
            late: 60,
            covered: 60,
            streams: 64,
            words: 200,
            waiting: agents::Waiting { steps: 20, turns: 20 },
        },
    };
}

/// The results of one side in a round.
#[derive(Serialize)]
pub(crate) struct Side {
    /// 1 execution.
    pub(crate) one: Sample,
    /// 64 executions.
    pub(crate) some: Sample,
    /// 256 executions.
    pub(crate) many: Sample,
    /// All processes' memory (PSS) when they are ready, in KiB.
    pub(crate) idle_kib: u64,
    /// The same after the 256 executions.
    pub(crate) busy_kib: u64,
}

/// A round.
#[derive(Serialize)]
pub(crate) struct Round {
    pub(crate) floor: Side,
    pub(crate) belay: Side,
}

/// Measures both sides on new stores. Which of them goes first changes from load to load and from round to round.
pub(crate) async fn round(number: usize, binaries: &Path, root: &Path, scale: Scale) -> Result<Round> {
    let place = Place::new(root)?;
    let floor = Floor::start(binaries, &place).await?;
    let belay = Belay::start(binaries, &place).await?;
    let [floor, belay] = sides(number, floor, belay, scale).await?;
    Ok(Round { floor, belay })
}

/// The results of Belay and the other side in the same loads, the other one's first.
pub(crate) async fn sides(number: usize, other: impl Subject, belay: Belay, scale: Scale) -> Result<[Side; 2]> {
    let idle_kib = [proc::resident_kib(&other.pids())?, proc::resident_kib(&belay.pids())?];
    let mut both = Pair { other, belay, other_first: number.is_multiple_of(2) };
    both.measure(scale.warm_up).await?;
    let (one, some, many) =
        (both.measure(scale.one).await?, both.measure(scale.some).await?, both.measure(scale.many).await?);
    let Pair { other, belay, .. } = both;
    let busy_kib = [proc::resident_kib(&other.pids())?, proc::resident_kib(&belay.pids())?];
    let side =
        |n: usize| Side { one: one[n], some: some[n], many: many[n], idle_kib: idle_kib[n], busy_kib: busy_kib[n] };
    Ok([side(0), side(1)])
}

/// The same loads on the floor and on `belay serve`.
pub(crate) async fn serving(number: usize, binaries: &Path, root: &Path, scale: Scale) -> Result<Round> {
    let place = Place::new(root)?;
    let (floor, belay) = (Floor::start(binaries, &place).await?, Belay::serve(binaries, &place).await?);
    let [floor, belay] = sides(number, floor, belay, scale).await?;
    Ok(Round { floor, belay })
}

/// Runs a load on new stores; the floor's sample and Belay's.
pub(crate) async fn only(number: usize, binaries: &Path, root: &Path, load: Load) -> Result<[Sample; 2]> {
    let place = Place::new(root)?;
    let (floor, belay) = (Floor::start(binaries, &place).await?, Belay::start(binaries, &place).await?);
    let mut both = Pair { other: floor, belay, other_first: number.is_multiple_of(2) };
    both.measure(Scale::FULL.warm_up).await?;
    both.measure(load).await
}

struct Pair<Other> {
    other: Other,
    belay: Belay,
    other_first: bool,
}

impl<Other: Subject> Pair<Other> {
    /// Runs a load on both sides; the other one goes first the next time.
    async fn measure(&mut self, load: Load) -> Result<[Sample; 2]> {
        let samples = if self.other_first {
            let other = measure(&mut self.other, load).await?;
            [other, measure(&mut self.belay, load).await?]
        } else {
            let belay = measure(&mut self.belay, load).await?;
            [measure(&mut self.other, load).await?, belay]
        };
        self.other_first = !self.other_first;
        Ok(samples)
    }
}

/// Flushes per step.
#[derive(Serialize)]
pub(crate) struct Flushes {
    /// The samples of the floor.
    pub(crate) floor: FlushCount,
    /// The samples of Belay, for steps that do nothing.
    pub(crate) belay: FlushCount,
    /// The samples of Belay, for steps that write one file.
    pub(crate) writes: FlushCount,
}

/// Counts flushes, apart from the rounds, because strace slows down what it looks at.
pub(crate) async fn flushes(binaries: &Path, root: &Path, scale: Scale) -> Result<Flushes> {
    let place = Place::new(root)?;
    let mut floor = Floor::start(binaries, &place).await?;
    let of_floor = strace::flushes_per_step(&mut floor, scale.flushes, &place).await?;
    let mut belay = Belay::start(binaries, &place).await?;
    let of_belay = strace::flushes_per_step(&mut belay, scale.flushes, &place).await?;
    drop(belay);
    let writes = match JournalledFolder::near(root)? {
        Ok(journalled) => {
            let place = Place::new(journalled.folder())?;
            let mut belay = Belay::start(binaries, &place).await?;
            strace::flushes_per_step(&mut belay, scale.writes, &place).await?
        }
        Err(why) => Err(why),
    };
    Ok(Flushes { floor: of_floor, belay: of_belay, writes })
}

//! From what was measured to what is told.

use belay_bench::stats;
use serde::Serialize;

use crate::{
    agents::AgentsRound,
    beside::{CrowdedRound, Slowest},
    children::Children,
    crash::Crash,
    launch::Launch,
    looking::WatchedRound,
    memory::Growth,
    network::Network,
    parked::ParkedRound,
    peer::{self, Peer},
    rounds::{Flushes, Round, Side},
    shapes::Shapes,
    strace::FlushCount,
    table::{Bound, Row, Target},
    tools::Tools,
};

/// Everything that was measured.
#[derive(Serialize)]
pub(crate) struct Measurements {
    pub(crate) rounds: Vec<Round>,
    pub(crate) crashes: Vec<Crash>,
    pub(crate) flushes: Flushes,
    pub(crate) launches: Vec<Launch>,
    pub(crate) networks: Vec<Network>,
    pub(crate) beside: Vec<CrowdedRound>,
    pub(crate) looking: Vec<WatchedRound>,
    pub(crate) shapes: Vec<Shapes>,
    pub(crate) tools: Vec<Tools>,
    /// The rounds with `belay serve`.
    pub(crate) serving: Vec<Round>,
    pub(crate) children: Vec<Children>,
    pub(crate) agents: Vec<AgentsRound>,
    pub(crate) parked: Option<ParkedRound>,
    pub(crate) memory: Option<Growth>,
    /// The memory with clients that read what has ended.
    pub(crate) read: Option<Growth>,
    /// The rounds beside Restate, when they were asked for.
    pub(crate) peers: Vec<Peer>,
    /// Restate's flushes per step.
    pub(crate) peer_flushes: Option<FlushCount>,
}

/// The report: the table's rows, and what they were made from.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) cores: usize,
    pub(crate) file_system: &'a str,
    pub(crate) rows: &'a [Row],
    /// The rows beside Restate.
    pub(crate) peer_rows: &'a [Row],
    /// Why there are none, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<String>,
    pub(crate) measured: &'a Measurements,
}

const KIB_PER_MIB: f64 = 1024.0;

/// The rows, in the order of the targets.
pub(crate) fn rows(measured: &Measurements) -> Vec<Row> {
    let sides: Vec<[&Side; 2]> = measured.rounds.iter().map(|round| [&round.floor, &round.belay]).collect();
    let paired = |id, metric, unit, bound, of| paired(&sides, id, metric, unit, bound, of);
    let memory = |metric, most, of| Row {
        target: Some(Target::Figure(Bound::AtMost(most))),
        ..paired("P4", metric, "MiB", None, of)
    };
    let mut rows = vec![
        paired("P1", "step p50, 1 execution", "µs", Some(Bound::AtMost(1.1)), |side| {
            side.one.speed.p50_us.map(|us| us as f64)
        }),
        paired("", "step p99, 1 execution", "µs", None, |side| side.one.speed.p99_us.map(|us| us as f64)),
        paired("", "steps/s, 1 execution", "", None, |side| Some(side.one.speed.steps_per_second)),
        paired("P2", "steps/s, 64 executions", "", Some(Bound::AtLeast(0.85)), |side| {
            Some(side.some.speed.steps_per_second)
        }),
        paired("P2", "steps/s, 256 executions", "", Some(Bound::AtLeast(0.75)), |side| {
            Some(side.many.speed.steps_per_second)
        }),
        paired("P3", "CPU per step, 64 executions", "µs", Some(Bound::AtMost(1.2)), |side| {
            Some(side.some.cpu_us_per_step)
        }),
        served(&measured.serving, "P1", "step p50, 1 execution, `belay serve`", "µs", |side| {
            side.one.speed.p50_us.map(|us| us as f64)
        }),
        served(&measured.serving, "P2", "steps/s, 64 executions, `belay serve`", "", |side| {
            Some(side.some.speed.steps_per_second)
        }),
        served(&measured.serving, "P3", "CPU per step, 64 executions, `belay serve`", "µs", |side| {
            Some(side.some.cpu_us_per_step)
        }),
        memory("memory (PSS), idle", 40.0, |side| Some(side.idle_kib as f64 / KIB_PER_MIB)),
        memory("memory (PSS), after 256 executions", 160.0, |side| Some(side.busy_kib as f64 / KIB_PER_MIB)),
        growth(measured.memory.as_ref()),
        highest("P4", "memory (PSS), at most while the batches run", measured.memory.as_ref(), 160.0),
        afterwards("P4", "memory (PSS), 10 s after the batches", measured.memory.as_ref()),
        highest("P4b", "the same at most, clients that watch, wait one by one and read", measured.read.as_ref(), 200.0),
        afterwards("P4b", "the same 10 s after them", measured.read.as_ref()),
        flushes(&measured.flushes),
        writes(&measured.flushes),
        Row {
            id: "P6",
            metric: "kill -9 to the next step, 64 executions",
            unit: "ms",
            belay: stats::median(measured.crashes.iter().map(|crash| crash.next_step_ms)),
            target: Some(Target::Time(Bound::AtMost(200.0))),
            ..Row::default()
        },
        beside("read_file p99 beside a command; floor: alone", &measured.beside, |slowest| slowest.read_file),
        beside("write_file p99 beside a command; floor: alone", &measured.beside, |slowest| slowest.write_file),
        beside("`true` p99 beside a command; floor: alone", &measured.beside, |slowest| slowest.command),
        looking("step p50, polled; floor: alone", &measured.looking, 1.1, |looking| looking.polled_us),
        looking("step p50, 1,000 watchers; floor: alone", &measured.looking, 1.5, |looking| looking.watched_us),
        looking("step p50, 200 watchers that never read; floor: alone", &measured.looking, 1.1, |looking| {
            looking.stuck_us
        }),
        watched("executor's memory, 1,000 watchers", &measured.looking, 64.0, |looking| looking.watched_kib),
        watched("executor's memory, 200 that never read", &measured.looking, 100.0, |looking| looking.stuck_kib),
        shaped(
            "P7",
            "accepting a plan of 2,122 tasks",
            "ms",
            Target::Time(Bound::AtMost(50.0)),
            &measured.shapes,
            |shapes| (None, shapes.accepted_ms),
        ),
        shaped(
            "P7",
            "each of its tasks, 64 at once",
            "ms",
            Target::Time(Bound::AtMost(0.2)),
            &measured.shapes,
            |shapes| (None, shapes.task_ms),
        ),
        shaped(
            "P10",
            "step p50, the last of 10,000; floor: the first",
            "µs",
            Target::Ratio(Bound::AtMost(1.1)),
            &measured.shapes,
            |shapes| (Some(shapes.first_us as f64), shapes.last_us as f64),
        ),
        shaped(
            "P10",
            "kill -9 to the next step, at step 9,000; floor: at step 100",
            "ms",
            Target::Ratio(Bound::AtMost(1.5)),
            &measured.shapes,
            |shapes| (Some(shapes.early_ms), shapes.late_ms),
        ),
        shaped(
            "P10",
            "page of artifacts, calls or audit, 10,000 steps",
            "ms",
            Target::Time(Bound::AtMost(5.0)),
            &measured.shapes,
            |shapes| (None, shapes.page_ms),
        ),
        tool("step p50, noop: overhead and dispatch", &measured.tools, Some(STAGE_STEP_US), |tools| tools.nothing_us),
        tool("step p50, read_file; floor: noop", &measured.tools, Some(STAGE_FILE_US), |tools| tools.read_us),
        tool("step p50, write_file; floor: noop", &measured.tools, Some(STAGE_FILE_US), |tools| tools.write_us),
        tool("step p50, run_terminal `true`; floor: noop", &measured.tools, None, |tools| tools.command_us),
        tool("step p50, run_terminal that prints 0.9 MB; floor: noop", &measured.tools, None, |tools| tools.print_us),
        parked("start beside parked executions", "ms", &measured.parked, 3000.0, |parked| parked.start_ms),
        parked("executor's memory beside them", "MiB", &measured.parked, 300.0, |parked| {
            parked.used_kib as f64 / KIB_PER_MIB
        }),
        parked(
            "slowest list of them, to 100 results or the end",
            "ms",
            &measured.parked,
            20.0,
            ParkedRound::slowest_list_ms,
        ),
        children(
            &measured.children,
            "CPU of each of 10,000 children of one step",
            |children| children.cpu_us,
            Some(300.0),
        ),
        children(&measured.children, "time of each of them", |children| children.each_us, None),
        Row {
            id: "L1",
            target: Some(Target::Ratio(Bound::AtMost(1.5))),
            ..launch("sandbox launch, copy-on-write, sandbox waits", &measured.launches, |launch| launch.armed_us)
        },
        launch("sandbox launch, workspace read-only", &measured.launches, |launch| launch.read_only_us),
        launch("sandbox launch, workspace copy-on-write", &measured.launches, |launch| launch.staged_us),
        launch_beside_bubblewrap(&measured.launches),
        through_proxy(&measured.networks),
        network(
            "first byte later through the proxy",
            "ms",
            Target::Time(Bound::AtMost(1.0)),
            &measured.networks,
            |network| (network.proxy_first_us - network.direct_first_us) / 1e3,
        ),
        network(
            "proxy's memory, 1,000 connections",
            "MiB",
            Target::Figure(Bound::AtMost(61.0)),
            &measured.networks,
            |network| network.used_kib as f64 / KIB_PER_MIB,
        ),
    ];
    rows.extend(agent_rows(&measured.agents));
    // Beside another system, only some are measured.
    rows.into_iter().filter(|row| row.belay.is_some() || row.note.is_some()).collect()
}

/// The rows of steps that a model carries out.
pub(crate) fn agent_rows(rounds: &[AgentsRound]) -> Vec<Row> {
    let row = |metric, unit, target, of: fn(&AgentsRound) -> f64| Row {
        id: "P13",
        metric,
        unit,
        belay: stats::median(rounds.iter().map(of)),
        target,
        ..Row::default()
    };
    let (time, figure) =
        (|most| Some(Target::Time(Bound::AtMost(most))), |most| Some(Target::Figure(Bound::AtMost(most))));
    let flushes = rounds.iter().map(|round| &round.flushes);
    let late = rounds.iter().map(|round| [round.early_us as f64 / 1e3, round.late_us as f64 / 1e3]);
    vec![
        row("turn with one call, less the server's time, 64 KiB prompt: p50", "ms", time(5.0), |round| {
            round.turn_us as f64 / 1e3
        }),
        row("time of the model's server, which is not in it: p50", "ms", None, |round| round.server_us as f64 / 1e3),
        row("CPU of such a turn, all processes", "ms", None, |round| round.cpu_us / 1e3),
        Row {
            id: "P13",
            metric: "flushes per turn with one call",
            belay: stats::median(flushes.clone().filter_map(|count| count.as_ref().ok().copied())),
            target: Some(Target::Figure(Bound::Between(2.0, 2.2))),
            note: flushes.clone().find_map(|count| count.as_ref().err().cloned()),
            ..Row::default()
        },
        Row {
            id: "P13",
            metric: "turn 200, 96 KiB prompt; floor: turn 20, the same size",
            unit: "ms",
            target: Some(Target::Ratio(Bound::AtMost(1.2))),
            ..compared(late)
        },
        row(
            "prompts that begin as the one before, 60 turns with 4 KiB results",
            "%",
            Some(Target::Figure(Bound::AtLeast(90.0))),
            |round| round.covered_percent,
        ),
        row("executor's CPU, 64 answers of 200 words/s", "cores", figure(0.5), |round| round.stream_cores),
        row("executor's memory over idle, 100 waiting agents of 100 turns", "MiB", figure(20.0), |round| {
            round.waiting.executor_kib()[0] / KIB_PER_MIB
        }),
        row("the same of an executor that has started beside them", "MiB", None, |round| {
            round.waiting.executor_kib()[1] / KIB_PER_MIB
        }),
        row("one of them: from a decision to its first event", "ms", time(50.0), |round| round.waiting.woken_ms),
        row("the same to its next turn", "ms", None, |round| round.waiting.asked_ms),
    ]
}

/// The rows beside Restate, in the order of the targets; none when it was not measured.
pub(crate) fn peer_rows(measured: &Measurements) -> Vec<Row> {
    let Some(flushes) = &measured.peer_flushes else {
        return Vec::new();
    };
    let sides: Vec<[&Side; 2]> = measured.peers.iter().map(|round| [&round.restate, &round.belay]).collect();
    let paired = |id, metric, unit, bound, of| paired(&sides, id, metric, unit, bound, of);
    let turns = |id, metric, unit, of: fn(&peer::Shapes, &Shapes) -> [f64; 2]| {
        let both = measured.peers.iter().zip(&measured.shapes).map(|(peer, shapes)| of(&peer.shapes, shapes));
        Row { id, metric, unit, ..compared(both) }
    };
    let calls =
        measured.peers.iter().filter_map(|peer| Some([peer.calls_us as f64, peer.belay.one.speed.p50_us? as f64]));
    let crashes = measured.peers.iter().zip(&measured.crashes);
    let crashes = crashes.map(|(peer, crash)| [peer.crash.next_step_ms, crash.next_step_ms]);
    vec![
        paired("P1", "step p50, 1 execution", "µs", Some(Bound::AtMost(0.55)), |side| {
            side.one.speed.p50_us.map(|us| us as f64)
        }),
        paired("", "step p99, 1 execution", "µs", None, |side| side.one.speed.p99_us.map(|us| us as f64)),
        paired("", "steps/s, 1 execution", "", None, |side| Some(side.one.speed.steps_per_second)),
        Row { metric: "step p50, 1 execution; Restate: each a service call", unit: "µs", ..compared(calls) },
        paired("P2", "steps/s, 64 executions", "", Some(Bound::AtLeast(4.0)), |side| {
            Some(side.some.speed.steps_per_second)
        }),
        paired("P2", "steps/s, 256 executions", "", Some(Bound::AtLeast(4.0)), |side| {
            Some(side.many.speed.steps_per_second)
        }),
        paired("P3", "CPU per step, 64 executions", "µs", Some(Bound::AtMost(0.2)), |side| {
            Some(side.some.cpu_us_per_step)
        }),
        paired("P4", "memory (PSS), idle", "MiB", None, |side| Some(side.idle_kib as f64 / KIB_PER_MIB)),
        paired("P4", "memory (PSS), after 256 executions", "MiB", None, |side| {
            Some(side.busy_kib as f64 / KIB_PER_MIB)
        }),
        flushes_of(flushes, &measured.flushes.belay),
        Row { id: "P6", metric: "kill -9 to the next step, 64 executions", unit: "ms", ..compared(crashes) },
        turns("P7", "accepting a plan of 2,122 tasks", "ms", |restate, belay| [restate.accepted_ms, belay.accepted_ms]),
        turns("P7", "each of its tasks, 64 at once", "ms", |restate, belay| [restate.task_ms, belay.task_ms]),
        turns("P10", "step p50, the first of 10,000", "µs", |restate, belay| {
            [restate.first_us as f64, belay.first_us as f64]
        }),
        turns("P10", "step p50, the last of 10,000", "µs", |restate, belay| {
            [restate.last_us as f64, belay.last_us as f64]
        }),
        turns("P10", "kill -9 to the next step, at step 100", "ms", |restate, belay| {
            [restate.early_ms, belay.early_ms]
        }),
    ]
}

/// A figure of both sides in the same rounds, that of the other side first.
fn paired(
    sides: &[[&Side; 2]],
    id: &'static str,
    metric: &'static str,
    unit: &'static str,
    bound: Option<Bound>,
    of: fn(&Side) -> Option<f64>,
) -> Row {
    let both = sides.iter().filter_map(|[other, belay]| Some([of(other)?, of(belay)?]));
    Row { id, metric, unit, target: bound.map(Target::Ratio), ..compared(both) }
}

/// A figure of `belay serve` beside the floor.
fn served(
    rounds: &[Round],
    id: &'static str,
    metric: &'static str,
    unit: &'static str,
    of: fn(&Side) -> Option<f64>,
) -> Row {
    let sides: Vec<[&Side; 2]> = rounds.iter().map(|round| [&round.floor, &round.belay]).collect();
    paired(&sides, id, metric, unit, None, of)
}

fn children(rounds: &[Children], metric: &'static str, of: fn(&Children) -> f64, most: Option<f64>) -> Row {
    Row {
        id: "P12",
        metric,
        unit: "µs",
        belay: stats::median(rounds.iter().map(of)),
        target: most.map(|most| Target::Time(Bound::AtMost(most))),
        ..Row::default()
    }
}

/// The medians of both sides and of their ratios, from what each round has of the other side and of Belay.
fn compared(both: impl Iterator<Item = [f64; 2]>) -> Row {
    let both: Vec<[f64; 2]> = both.collect();
    Row {
        floor: stats::median(both.iter().map(|[other, _]| *other)),
        belay: stats::median(both.iter().map(|[_, belay]| *belay)),
        ratio: stats::median(both.iter().map(|[other, belay]| belay / other)),
        ..Row::default()
    }
}

/// The memory after all batches, beside that after two thirds of them.
fn growth(growth: Option<&Growth>) -> Row {
    let after = |count: usize| Some(growth?.batches_kib.get(count.checked_sub(1)?).copied()? as f64 / KIB_PER_MIB);
    let batches = growth.map_or(0, |growth| growth.batches_kib.len());
    Row {
        id: "P4",
        metric: "memory (PSS), after 24 batches of 64; floor: after 16",
        unit: "MiB",
        floor: after(batches * 2 / 3),
        belay: after(batches),
        ratio: growth.and_then(Growth::ratio),
        target: Some(Target::Ratio(Bound::AtMost(1.1))),
        note: None,
    }
}

/// The most memory while batches ran.
fn highest(id: &'static str, metric: &'static str, growth: Option<&Growth>, most: f64) -> Row {
    Row {
        id,
        metric,
        unit: "MiB",
        belay: growth.map(|growth| growth.peak_kib as f64 / KIB_PER_MIB),
        target: Some(Target::Figure(Bound::AtMost(most))),
        ..Row::default()
    }
}

/// The memory after all batches and ten idle seconds.
fn afterwards(id: &'static str, metric: &'static str, growth: Option<&Growth>) -> Row {
    Row {
        id,
        metric,
        unit: "MiB",
        belay: growth.map(|growth| growth.afterwards_kib as f64 / KIB_PER_MIB),
        target: Some(Target::Figure(Bound::AtMost(60.0))),
        ..Row::default()
    }
}

fn beside(metric: &'static str, rounds: &[CrowdedRound], of: fn(&Slowest) -> u64) -> Row {
    Row {
        id: "L9",
        metric,
        unit: "µs",
        floor: stats::median(rounds.iter().map(|round| of(&round.alone) as f64)),
        belay: stats::median(rounds.iter().map(|round| of(&round.beside) as f64)),
        ratio: stats::median(rounds.iter().map(|round| of(&round.beside) as f64 / of(&round.alone) as f64)),
        target: Some(Target::Ratio(Bound::AtMost(2.0))),
        note: None,
    }
}

/// The time that the executor stage of another planner allows for reading or writing a file, in microseconds: its target. Its maximum is four times that.
const STAGE_FILE_US: f64 = 50_000.0;

/// The time that it allows for the dispatch of a tool, the smaller of its targets for a step, in microseconds.
const STAGE_STEP_US: f64 = 25_000.0;

/// `most`: the most microseconds that the executor stage of another planner allows for it.
fn tool(metric: &'static str, rounds: &[Tools], most: Option<f64>, of: fn(&Tools) -> u64) -> Row {
    Row {
        id: "P11",
        metric,
        unit: "µs",
        floor: stats::median(rounds.iter().map(|round| round.nothing_us as f64)),
        belay: stats::median(rounds.iter().map(|round| of(round) as f64)),
        ratio: stats::median(rounds.iter().map(|round| of(round) as f64 / round.nothing_us as f64)),
        target: most.map(|most| Target::Time(Bound::AtMost(most))),
        note: None,
    }
}

fn looking(metric: &'static str, rounds: &[WatchedRound], most: f64, of: fn(&WatchedRound) -> u64) -> Row {
    Row {
        id: "P9",
        metric,
        unit: "µs",
        floor: stats::median(rounds.iter().map(|round| round.alone_us as f64)),
        belay: stats::median(rounds.iter().map(|round| of(round) as f64)),
        ratio: stats::median(rounds.iter().map(|round| of(round) as f64 / round.alone_us as f64)),
        target: Some(Target::Ratio(Bound::AtMost(most))),
        note: None,
    }
}

fn watched(metric: &'static str, rounds: &[WatchedRound], most: f64, of: fn(&WatchedRound) -> u64) -> Row {
    Row {
        id: "P9",
        metric,
        unit: "MiB",
        belay: stats::median(rounds.iter().map(|round| of(round) as f64 / KIB_PER_MIB)),
        target: Some(Target::Figure(Bound::AtMost(most))),
        ..Row::default()
    }
}

/// `of` returns what it is compared with, if there is such a figure, and the figure.
fn shaped(
    id: &'static str,
    metric: &'static str,
    unit: &'static str,
    target: Target,
    rounds: &[Shapes],
    of: fn(&Shapes) -> (Option<f64>, f64),
) -> Row {
    let (figures, compared): (Vec<f64>, Vec<Option<f64>>) =
        rounds.iter().map(of).map(|(compared, figure)| (figure, compared)).unzip();
    let ratios = figures.iter().zip(&compared).filter_map(|(figure, compared)| Some(figure / (*compared)?));
    Row {
        id,
        metric,
        unit,
        floor: stats::median(compared.iter().copied().flatten()),
        ratio: stats::median(ratios),
        belay: stats::median(figures.iter().copied()),
        target: Some(target),
        note: None,
    }
}

fn parked(
    metric: &'static str,
    unit: &'static str,
    parked: &Option<ParkedRound>,
    most: f64,
    of: fn(&ParkedRound) -> f64,
) -> Row {
    let target = match unit {
        "ms" => Target::Time(Bound::AtMost(most)),
        _ => Target::Figure(Bound::AtMost(most)),
    };
    Row { id: "P8", metric, unit, belay: parked.as_ref().map(of), target: Some(target), ..Row::default() }
}

fn launch(metric: &'static str, launches: &[Launch], of: fn(&Launch) -> f64) -> Row {
    Row {
        id: "L2",
        metric,
        unit: "µs",
        floor: stats::median(launches.iter().map(|launch| launch.bare_us)),
        belay: stats::median(launches.iter().map(of)),
        ratio: stats::median(launches.iter().map(|launch| of(launch) / launch.bare_us)),
        ..Row::default()
    }
}

/// The launch with a copy-on-write workspace, which bubblewrap has nothing of.
fn launch_beside_bubblewrap(launches: &[Launch]) -> Row {
    let ratios = launches.iter().filter_map(|launch| Some(launch.staged_us / launch.bubblewrap_us?));
    let ratio = stats::median(ratios);
    Row {
        id: "L2",
        metric: "sandbox launch, copy-on-write; floor: bubblewrap",
        unit: "µs",
        floor: stats::median(launches.iter().filter_map(|launch| launch.bubblewrap_us)),
        belay: stats::median(launches.iter().map(|launch| launch.staged_us)),
        ratio,
        target: Some(Target::Ratio(Bound::AtMost(1.0))),
        note: (ratio.is_none() && !launches.is_empty())
            .then(|| "bubblewrap (Debian: bubblewrap) is not installed or may not run here".to_owned()),
    }
}

/// 200 MB through the proxy, beside the same direct.
fn through_proxy(networks: &[Network]) -> Row {
    Row {
        id: "P14",
        metric: "200 MB through the proxy; floor: direct",
        unit: "MB/s",
        floor: stats::median(networks.iter().map(|network| network.direct_rate)),
        belay: stats::median(networks.iter().map(|network| network.proxy_rate)),
        ratio: stats::median(networks.iter().map(|network| network.proxy_rate / network.direct_rate)),
        target: Some(Target::Ratio(Bound::AtLeast(0.5))),
        ..Row::default()
    }
}

fn network(
    metric: &'static str,
    unit: &'static str,
    target: Target,
    networks: &[Network],
    of: fn(&Network) -> f64,
) -> Row {
    let belay = stats::median(networks.iter().map(of));
    Row { id: "P14", metric, unit, belay, target: Some(target), ..Row::default() }
}

fn writes(Flushes { writes, .. }: &Flushes) -> Row {
    Row {
        id: "P5",
        metric: "flushes per step that writes a file",
        belay: writes.as_ref().ok().copied(),
        // The journal's, the ledger's, and the file's.
        target: Some(Target::Figure(Bound::AtMost(3.1))),
        note: writes.as_ref().err().cloned(),
        ..Row::default()
    }
}

fn flushes(Flushes { floor, belay, .. }: &Flushes) -> Row {
    flushes_of(floor, belay)
}

fn flushes_of(other: &FlushCount, belay: &FlushCount) -> Row {
    let (floor, belay, note) = match (other, belay) {
        (Ok(other), Ok(belay)) => (Some(*other), Some(*belay), None),
        (Err(reason), _) | (_, Err(reason)) => (None, None, Some(reason.clone())),
    };
    let ratio = belay.zip(floor).map(|(belay, floor)| belay / floor);
    let target = Some(Target::Figure(Bound::Between(1.0, 1.1)));
    Row { id: "P5", metric: "flushes per step, 1 execution", unit: "", floor, belay, ratio, target, note }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-X-30: a file is read, and written, within the target of the executor stage; the row says whether it was.
    #[test]
    fn file_tools_have_the_executor_stages_target() {
        let row = |us| {
            tool(
                "read_file",
                &[Tools { nothing_us: 400, read_us: us, ..Tools::default() }],
                Some(STAGE_FILE_US),
                |tools| tools.read_us,
            )
        };
        assert!(matches!(row(900).target, Some(Target::Time(Bound::AtMost(most))) if most <= 50_000.0));
        assert_eq!([row(900), row(50_001)].map(|row| row.met()), [Some(true), Some(false)]);
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_own() {
        let row = compared([[100.0, 50.0], [10.0, 20.0], [1.0, 3.0]].into_iter());
        assert_eq!([row.floor, row.belay, row.ratio], [Some(10.0), Some(20.0), Some(2.0)]);
        assert_eq!(compared(std::iter::empty()).ratio, None);
    }
}

//! The latency of short calls while a long command runs in the same workspace, and alone.

use std::{collections::HashMap, path::Path};

use belay_bench::stats;
use belay_proto::v1::{self, execution_event::Kind, step_spec};
use serde::Serialize;

use crate::{Result, belay::Belay, place::Place};

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// How many calls of each kind.
    pub(crate) calls: u32,
    /// The duration of the long command, in seconds; it is cancelled when the calls have ended.
    pub(crate) seconds: u32,
}

/// The p99 of the calls of each kind, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Slowest {
    pub(crate) read_file: u64,
    pub(crate) write_file: u64,
    /// `true`, in the sandbox.
    pub(crate) command: u64,
}

/// A round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CrowdedRound {
    pub(crate) alone: Slowest,
    pub(crate) beside: Slowest,
}

/// The step with the long command.
const LONG: &str = "long";

/// Runs the same calls one after the other, alone and while a command runs in the same workspace.
///
/// # Errors
/// When a call does not complete, or the command ends before them.
pub(crate) async fn measure(binaries: &Path, root: &Path, scale: Scale) -> Result<CrowdedRound> {
    let place = Place::new(root)?;
    let belay = Belay::start(binaries, &place).await?;
    // Connections, caches and the sandbox's files are warm after it.
    one(&belay, Scale { calls: 5, ..scale }, false).await?;
    let alone = one(&belay, scale, false).await?;
    Ok(CrowdedRound { alone, beside: one(&belay, scale, true).await? })
}

async fn one(belay: &Belay, scale: Scale, beside: bool) -> Result<Slowest> {
    let name = belay.begin_plan(plan(scale, beside)).await?;
    let last = step_id("command", scale.calls);
    let mut wrong = None;
    let events = belay
        .events_until(&name, |event| match &event.kind {
            Some(Kind::StepCompleted(_)) => event.step_id == last || event.step_id == LONG,
            Some(Kind::StepFailed(failed)) => {
                wrong = Some(format!("{}: {}", event.step_id, failed.failure.clone().unwrap_or_default().message));
                true
            }
            _ => false,
        })
        .await?;
    if let Some(wrong) = wrong {
        return Err(wrong.into());
    }
    if events.iter().any(|event| matches!(event.kind, Some(Kind::StepCompleted(_))) && event.step_id == LONG) {
        return Err("the command ended before the calls beside it: the machine is too busy".into());
    }
    if beside {
        belay.cancel(&name).await?;
    } else {
        belay.finish(&[name], scale.calls * 3).await?;
    }
    let mut started = HashMap::new();
    let mut taken: HashMap<&str, Vec<u64>> = HashMap::new();
    for event in &events {
        let time = event.record_time.as_ref().map_or(0, belay_proto::micros);
        match &event.kind {
            Some(Kind::StepStarted(_)) => drop(started.insert(&event.step_id, time)),
            Some(Kind::StepCompleted(_)) => {
                let kind = event.step_id.split_once('-').map_or("", |(kind, _)| kind);
                let began = started.get(&event.step_id).copied().unwrap_or(time);
                taken.entry(kind).or_default().push(u64::try_from(time - began).unwrap_or(0));
            }
            _ => {}
        }
    }
    let mut slowest = |kind| {
        let taken = taken.get_mut(kind).ok_or("no call of a kind ended")?;
        stats::percentile(taken, 99).ok_or("no call of a kind ended")
    };
    Ok(Slowest { read_file: slowest("read")?, write_file: slowest("write")?, command: slowest("command")? })
}

fn step_id(kind: &str, number: u32) -> String {
    format!("{kind}-{number}")
}

/// Calls of each kind in turns, one after the other, and perhaps a long command beside them.
fn plan(scale: Scale, beside: bool) -> v1::Plan {
    let step = |id: String, after: Option<String>, tool: &str, arguments: serde_json::Value| v1::StepSpec {
        id,
        depends_on: after.into_iter().collect(),
        kind: Some(step_spec::Kind::Tool(v1::ToolStep {
            tool: tool.into(),
            arguments: Some(v1::Payload::of_json(arguments.to_string())),
            ..Default::default()
        })),
        ..Default::default()
    };
    let mut steps = Vec::new();
    if beside {
        let command = serde_json::json!({"command": ["sleep", scale.seconds.to_string()]});
        steps.push(step(LONG.into(), None, "run_terminal", command));
    }
    let mut after = None;
    for number in 1..=scale.calls {
        let path = format!("{}.txt", number % 10);
        for (kind, tool, arguments) in [
            ("write", "write_file", serde_json::json!({"path": path, "content": format!("{number}\n")})),
            ("read", "read_file", serde_json::json!({"path": path})),
            ("command", "run_terminal", serde_json::json!({"command": ["true"]})),
        ] {
            let id = step_id(kind, number);
            steps.push(step(id.clone(), after.replace(id), tool, arguments));
        }
    }
    v1::Plan { id: "beside".into(), steps, parallelism: 2, ..Default::default() }
}

//! Many pending approvals: what each process needs in memory for calls whose effects wait for a person.

use std::{fs, path::Path, time::Duration};

use belay_proto::v1::{self, execution_event::Kind, step_spec};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;

use crate::{Result, belay::Belay, place::Place, proc, subject::Subject as _};

/// How many executions are started at once.
const AT_ONCE: usize = 64;

/// When memory is read after the last approval was requested: the executions have left the executor's memory by then.
const SETTLED_AFTER: Duration = Duration::from_secs(10);

/// A round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PendingRound {
    pub(crate) approvals: u32,
    /// The memory (PSS) of gate, runner and executor when half of the approvals are pending, in KiB.
    pub(crate) half_kib: [u64; 3],
    /// The same when all are.
    pub(crate) all_kib: [u64; 3],
}

impl PendingRound {
    /// The memory for each of the later half of the approvals in gate, runner and executor, in bytes.
    pub(crate) fn bytes_of_one(&self) -> [f64; 3] {
        let later = f64::from(self.approvals - self.approvals / 2);
        std::array::from_fn(|process| (self.all_kib[process] as f64 - self.half_kib[process] as f64) * 1024.0 / later)
    }
}

/// Starts so many executions, each of which writes a file that a person has to approve; nobody decides.
///
/// # Errors
/// When a call is not held.
pub(crate) async fn measure(binaries: &Path, root: &Path, approvals: u32) -> Result<PendingRound> {
    let place = Place::new(root)?;
    let (policy, config) = (place.file("policy.yaml"), place.file("config.yaml"));
    fs::write(&policy, "file_write: prompt\n")?;
    fs::write(&config, format!("services: {{gate: {{approvals: {approvals}}}}}\n"))?;
    let (policy, config) = (policy.display().to_string(), config.display().to_string());
    let belay = Belay::start_with(binaries, &place, &["--policy", &policy, "--config", &config], &[]).await?;
    let half = approvals / 2;
    let half_kib = hold(&belay, half).await?;
    let all_kib = hold(&belay, approvals - half).await?;
    Ok(PendingRound { approvals, half_kib, all_kib })
}

/// Starts so many executions more; returns the memory of each process once all of them wait.
async fn hold(belay: &Belay, executions: u32) -> Result<[u64; 3]> {
    let waiting = (0..executions).map(|_| async {
        let name = belay.begin_plan(plan()).await?;
        belay.events(&name, |kind| matches!(kind, Kind::ApprovalRequested(_))).await.map(drop)
    });
    stream::iter(waiting).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    tokio::time::sleep(SETTLED_AFTER).await;
    let of_each = belay.pids().into_iter().map(|pid| proc::resident_kib(&[pid])).collect::<Result<Vec<_>>>()?;
    of_each.try_into().map_err(|_| "Belay has three processes".into())
}

fn plan() -> v1::Plan {
    let arguments = serde_json::json!({"path": "notes.txt", "content": "written by the bench\n"}).to_string();
    let arguments = Some(v1::Payload::of_json(arguments));
    let call = v1::ToolStep { tool: "write_file".into(), arguments, ..Default::default() };
    let step = v1::StepSpec { id: "write".into(), kind: Some(step_spec::Kind::Tool(call)), ..Default::default() };
    v1::Plan { id: "held".into(), steps: vec![step], ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_later_half_counts() {
        let held = PendingRound { approvals: 2048, half_kib: [1000, 1000, 1000], all_kib: [1000, 2024, 11240] };
        assert_eq!(held.bytes_of_one(), [0.0, 1024.0, 10240.0]);
    }
}

//! Long and wide plans: step 10,000 costs what step 10 costs, and a plan of thousands of edges costs little more than its steps.

use std::path::Path;

use belay_bench::stats;
use belay_proto::v1::{
    self, ExecutionEvent, execution_event::Kind, executor_service_client::ExecutorServiceClient, step_spec,
};
use belay_service_kit::{Clock as _, SystemClock};
use serde::Serialize;
use tonic::transport::Channel;

use crate::{
    Result,
    belay::{Belay, step_latencies},
    crash,
    place::Place,
    subject::Load,
};

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// How many steps the long plan has, one after the other.
    pub(crate) steps: u32,
    /// How many of them are compared, at the beginning and at the end.
    pub(crate) compared: usize,
}

/// The tasks and edges of the wide plan, and how many of its tasks run at once: those of a workflow that astronomers publish, the Montage
/// mosaic of 2,122 tasks.
pub(crate) const TASKS: u32 = 2_122;
const EDGES: usize = 6_114;
pub(crate) const PARALLELISM: i32 = 64;

/// How long a page is, as a program that walks a list asks.
const PAGE_SIZE: i32 = 100;

/// The kind of list that an execution has.
enum List {
    Artifacts,
    ToolCalls,
    AuditEntries,
}

/// A round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Shapes {
    /// The p50 of the long plan's first steps, in microseconds.
    pub(crate) first_us: u64,
    /// The same of its last ones.
    pub(crate) last_us: u64,
    /// From a kill -9 to the next step, at step 100 of the long plan, in milliseconds.
    pub(crate) early_ms: f64,
    /// The same when nine tenths of its steps are done.
    pub(crate) late_ms: f64,
    /// A page of the long plan's artifacts, tool calls or audit log, whichever list takes longest: the p50 of its pages, in milliseconds.
    pub(crate) page_ms: f64,
    /// From the request to start the wide plan to its answer, in milliseconds.
    pub(crate) accepted_ms: f64,
    /// From there to its end, for each task, in milliseconds.
    pub(crate) task_ms: f64,
}

/// Runs a long plan, kills the executor early and late in it, and runs a wide one.
///
/// # Errors
/// When a plan does not complete, or a step was lost or repeated.
pub(crate) async fn measure(binaries: &Path, root: &Path, scale: Scale) -> Result<Shapes> {
    let place = Place::new(root)?;
    let mut belay = Belay::start(binaries, &place).await?;
    let load = Load::of_nothing(1, scale.steps);
    let names = belay.begin(load).await?;
    belay.finish(&names, scale.steps).await?;
    let mut latencies = step_latencies(&belay.events(&names[0], |_| false).await?);
    let after = latencies.split_off(latencies.len().saturating_sub(scale.compared));
    latencies.truncate(scale.compared);
    let p50 = |mut latencies: Vec<u64>| stats::percentile(&mut latencies, 50).ok_or("no step was measured");
    let (first_us, last_us) = (p50(latencies)?, p50(after)?);
    let page_ms = slowest_list(belay.client(), &names[0]).await?;
    let early_ms = killed_at(&mut belay, &place, load, 100).await?;
    let late_ms = killed_at(&mut belay, &place, load, scale.steps / 10 * 9).await?;

    let began = SystemClock.now_micros();
    let name = belay.begin_plan(wide()).await?;
    let accepted = SystemClock.now_micros();
    belay.finish(std::slice::from_ref(&name), TASKS).await?;
    let millis = |from: i64, to: i64| (to - from) as f64 / 1e3;
    let task_ms = millis(accepted, SystemClock.now_micros()) / f64::from(TASKS);
    Ok(Shapes { first_us, last_us, early_ms, late_ms, page_ms, accepted_ms: millis(began, accepted), task_ms })
}

/// Walks each list of what an execution has, and returns the p50 of a page of the one that takes longest, in milliseconds.
async fn slowest_list(client: ExecutorServiceClient<Channel>, name: &str) -> Result<f64> {
    let (parent, page_size) = (|| name.to_owned(), PAGE_SIZE);
    let mut slowest = 0.0_f64;
    for list in [List::Artifacts, List::ToolCalls, List::AuditEntries] {
        let (mut page_token, mut micros) = (String::new(), Vec::new());
        loop {
            let (mut client, began) = (client.clone(), SystemClock.now_micros());
            page_token = match list {
                List::Artifacts => {
                    let request =
                        v1::ListArtifactsRequest { parent: parent(), page_size, page_token, ..Default::default() };
                    client.list_artifacts(request).await?.into_inner().next_page_token
                }
                List::ToolCalls => {
                    let request = v1::ListToolCallsRequest { parent: parent(), page_size, page_token };
                    client.list_tool_calls(request).await?.into_inner().next_page_token
                }
                List::AuditEntries => {
                    let request =
                        v1::ListAuditEntriesRequest { parent: parent(), page_size, page_token, ..Default::default() };
                    client.list_audit_entries(request).await?.into_inner().next_page_token
                }
            };
            micros.push(u64::try_from(SystemClock.now_micros() - began).unwrap_or(0));
            if page_token.is_empty() {
                break;
            }
        }
        let p50 = stats::percentile(&mut micros, 50).ok_or("a list has no page")?;
        slowest = slowest.max(p50 as f64 / 1e3);
    }
    Ok(slowest)
}

/// Kills the executor when so many steps of the long plan have completed; from the kill to the next step that starts or ends.
async fn killed_at(belay: &mut Belay, place: &Place, load: Load, steps: u32) -> Result<f64> {
    let names = belay.begin(load).await?;
    let mut completed = 0;
    let enough = |kind: &Kind| {
        completed += u32::from(matches!(kind, Kind::StepCompleted(_)));
        completed >= steps
    };
    belay.events(&names[0], enough).await?;
    let killed_at = SystemClock.now_micros();
    belay.lose_executor(place).await?;
    belay.finish(&names, load.steps).await?;
    let events: Vec<ExecutionEvent> = belay.events(&names[0], |_| false).await?;
    crash::exactly_once(&events, load.steps).map_err(|wrong| format!("after a kill -9: {wrong}"))?;
    let next = crash::next_step(&events, killed_at).ok_or("the plan ended before the kill")?;
    Ok((next - killed_at) as f64 / 1e3)
}

/// The dependencies of each task of the wide plan: up to three earlier ones, far enough away that many can run at once.
pub(crate) fn edges() -> Vec<Vec<u32>> {
    let mut edges_left = EDGES;
    let sources_of = |number: u32| {
        let wanted = edges_left.div_ceil((TASKS - number) as usize).min(3);
        let sources = [number / 2, number / 3, number / 5];
        let mut depends_on: Vec<u32> = Vec::new();
        for source in sources.into_iter().take(wanted).filter(|source| *source < number) {
            if !depends_on.contains(&source) {
                depends_on.push(source);
            }
        }
        edges_left -= depends_on.len();
        depends_on
    };
    (0..TASKS).map(sources_of).collect()
}

fn wide() -> v1::Plan {
    let step = |(number, depends_on): (usize, Vec<u32>)| {
        let tool =
            v1::ToolStep { tool: "noop".into(), arguments: Some(v1::Payload::of_json("{}")), ..Default::default() };
        v1::StepSpec {
            id: format!("t{number}"),
            depends_on: depends_on.iter().map(|source| format!("t{source}")).collect(),
            kind: Some(step_spec::Kind::Tool(tool)),
            ..Default::default()
        }
    };
    let steps = edges().into_iter().enumerate().map(step).collect();
    v1::Plan { id: "wide".into(), steps, parallelism: PARALLELISM, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wide_plan_has_about_as_many_edges_as_the_workflow() {
        let plan = wide();
        let edges: usize = plan.steps.iter().map(|step| step.depends_on.len()).sum();
        assert_eq!(plan.steps.len(), TASKS as usize);
        assert!((EDGES - 20..=EDGES).contains(&edges), "{edges}");
    }
}

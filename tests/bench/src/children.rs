//! Many small executions of a step's plan: a step that runs for each entry of a list carries out a plan of one step that does nothing.

use std::path::Path;

use belay_proto::v1::{
    self, child_ended, execution_event::Kind, executor_service_client::ExecutorServiceClient,
    start_execution_request::Source, step_spec,
};
use serde::Serialize;
use tonic::transport::Channel;

use crate::{
    Result,
    belay::{Belay, NAMESPACE},
    place::Place,
    proc,
    subject::Subject as _,
};

/// How many run at once.
const PARALLELISM: i32 = 64;

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// How many entries the list has.
    pub(crate) children: u32,
}

/// A round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Children {
    /// User and system time of all processes for each of them, in microseconds.
    pub(crate) cpu_us: f64,
    /// From the acceptance of their parent to its end, for each of them, in microseconds.
    pub(crate) each_us: f64,
}

/// Runs one step for each entry of a list, after a small list that is not measured.
///
/// # Errors
/// When one of them does not complete, or its end is not recorded as what it was.
pub(crate) async fn measure(binaries: &Path, root: &Path, scale: Scale) -> Result<Children> {
    let place = Place::new(root)?;
    let belay = Belay::start(binaries, &place).await?;
    run(&belay, scale.children.min(200)).await?;
    run(&belay, scale.children).await
}

async fn run(belay: &Belay, children: u32) -> Result<Children> {
    let entries: Vec<u32> = (0..children).collect();
    let request = v1::StartExecutionRequest {
        parent: NAMESPACE.into(),
        source: Some(Source::Plan(plan())),
        inputs: Some(v1::Payload::of_json(serde_json::json!({ "entries": entries }).to_string())),
        ..Default::default()
    };
    let before = proc::cpu_time(&belay.pids())?;
    let name = belay.begin_request(request).await?;
    let ended = belay.finish(std::slice::from_ref(&name), children + 1).await?;
    let cpu = proc::cpu_time(&belay.pids())?.saturating_sub(before);
    let times = ended.first().and_then(|execution| Some((execution.create_time?, execution.end_time?)));
    let (begun, end) = times.ok_or("an execution has no times")?;
    let is_completed = |event: &&v1::ExecutionEvent| match &event.kind {
        Some(Kind::ChildEnded(end)) => matches!(end.end, Some(child_ended::End::Output(_))),
        _ => false,
    };
    let recorded = belay.events(&name, |_| false).await?.iter().filter(is_completed).count();
    let completed = completed_children(belay.client(), &name).await?;
    if [recorded, completed] != [children as usize; 2] {
        return Err(format!(
            "of {children} executions of a step's plan {completed} completed, and {recorded} are recorded so"
        )
        .into());
    }
    Ok(Children {
        cpu_us: cpu.as_secs_f64() * 1e6 / f64::from(children),
        each_us: (belay_proto::micros(&end) - belay_proto::micros(&begun)) as f64 / f64::from(children),
    })
}

/// How many executions of the plans of an execution's steps have completed.
async fn completed_children(mut client: ExecutorServiceClient<Channel>, name: &str) -> Result<usize> {
    let id = name.rsplit('/').next().unwrap_or(name);
    let mut request = v1::ListExecutionsRequest {
        parent: NAMESPACE.into(),
        filter: format!("parent = {id} AND state = COMPLETED"),
        page_size: 1000,
        ..Default::default()
    };
    let mut completed = 0;
    loop {
        let page = client.list_executions(request.clone()).await?.into_inner();
        completed += page.executions.len();
        if page.next_page_token.is_empty() {
            return Ok(completed);
        }
        request.page_token = page.next_page_token;
    }
}

fn plan() -> v1::Plan {
    let call = v1::ToolStep { tool: "noop".into(), arguments: Some(v1::Payload::of_json("{}")), ..Default::default() };
    let input = |name: &str| v1::PlanInput { name: name.into(), ..Default::default() };
    let child = v1::Plan {
        id: "small".into(),
        inputs: vec![input("entry")],
        steps: vec![v1::StepSpec { id: "work".into(), kind: Some(step_spec::Kind::Tool(call)), ..Default::default() }],
        ..Default::default()
    };
    let carried_out =
        v1::PlanStep { plan: Some(child), inputs: Some(v1::Payload::of_json(r#"{"entry": "${item.value}"}"#)) };
    let each = v1::StepSpec {
        id: "each".into(),
        for_each: Some(v1::Payload::of_json(r#""${inputs.entries}""#)),
        kind: Some(step_spec::Kind::Plan(Box::new(carried_out))),
        ..Default::default()
    };
    v1::Plan {
        id: "children".into(),
        inputs: vec![input("entries")],
        steps: vec![each],
        parallelism: PARALLELISM,
        ..Default::default()
    }
}

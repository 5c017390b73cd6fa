//! The cost of a step by what it does: one execution of each kind of step.

use std::path::Path;

use serde::Serialize;

use crate::{
    Result,
    belay::Belay,
    place::Place,
    subject::{Load, Subject as _, Work},
};

/// The size of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// How many steps of each kind.
    pub(crate) steps: u32,
}

/// A round: the p50 of a step in microseconds, by what it does.
#[derive(Default, Clone, Copy, Debug, Serialize)]
pub(crate) struct Tools {
    pub(crate) nothing_us: u64,
    pub(crate) read_us: u64,
    pub(crate) write_us: u64,
    pub(crate) command_us: u64,
    pub(crate) print_us: u64,
}

/// Runs one execution of each kind, one after the other.
///
/// # Errors
/// When a step does not complete.
pub(crate) async fn measure(binaries: &Path, root: &Path, scale: Scale) -> Result<Tools> {
    let place = Place::new(root)?;
    let mut belay = Belay::start(binaries, &place).await?;
    Ok(Tools {
        nothing_us: p50(&mut belay, Work::Nothing, scale.steps).await?,
        read_us: p50(&mut belay, Work::ReadFile, scale.steps).await?,
        write_us: p50(&mut belay, Work::WriteFile, scale.steps).await?,
        command_us: p50(&mut belay, Work::Command, scale.steps).await?,
        print_us: p50(&mut belay, Work::Print, scale.steps).await?,
    })
}

async fn p50(belay: &mut Belay, work: Work, steps: u32) -> Result<u64> {
    let load = |steps| Load { work, ..Load::of_nothing(1, steps) };
    // The sandbox's files and the tool's own are warm after it.
    belay.run(load(steps.min(10))).await?;
    Ok(belay.run(load(steps)).await?.p50_us.ok_or("no step was measured")?)
}

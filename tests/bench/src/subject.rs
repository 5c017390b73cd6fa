//! The measured subjects: processes that carry out executions of steps.

use std::{future::Future, time::Duration};

use serde::Serialize;

use crate::{Result, proc};

/// The timeout of every wait; a load takes seconds.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(180);

/// The work of each step of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// No work. The floor knows no other.
    #[default]
    Nothing,
    /// It writes one small file.
    WriteFile,
    /// It reads one small file, which the first step writes.
    ReadFile,
    /// It runs `true` in the sandbox.
    Command,
    /// It runs a command that prints 0.9 MB.
    Print,
}

/// So many executions at once, each of so many steps one after the other.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Load {
    pub(crate) executions: u32,
    pub(crate) steps: u32,
    pub(crate) work: Work,
}

impl Load {
    pub(crate) const fn of_nothing(executions: u32, steps: u32) -> Self {
        Self { executions, steps, work: Work::Nothing }
    }
}

impl Load {
    pub(crate) fn total(self) -> f64 {
        f64::from(self.executions) * f64::from(self.steps)
    }
}

/// How fast a load was carried out.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Speed {
    /// From one step's beginning to the next one's, in microseconds. Nothing where it was not looked at.
    pub(crate) p50_us: Option<u64>,
    /// The same for the slowest in a hundred.
    pub(crate) p99_us: Option<u64>,
    pub(crate) steps_per_second: f64,
}

/// The result of one load.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) load: Load,
    #[serde(flatten)]
    pub(crate) speed: Speed,
    /// User and system time of all its processes, in microseconds.
    pub(crate) cpu_us_per_step: f64,
}

/// Either side of a ratio.
pub(crate) trait Subject {
    /// All its processes.
    fn pids(&self) -> Vec<u32>;

    /// Carries a load out to its end.
    fn run(&mut self, load: Load) -> impl Future<Output = Result<Speed>>;
}

/// Carries a load out and reads the CPU time it took.
pub(crate) async fn measure(subject: &mut impl Subject, load: Load) -> Result<Sample> {
    let before = proc::cpu_time(&subject.pids())?;
    let speed = within("a load", subject.run(load)).await?;
    let cpu = proc::cpu_time(&subject.pids())?.saturating_sub(before);
    Ok(Sample { load, speed, cpu_us_per_step: cpu.as_secs_f64() * 1e6 / load.total() })
}

/// The work's answer, or an error when it takes longer than anything here may.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late =
        |_| format!("{what} took longer than {} s: the machine is too busy, or a process hangs", MAX_WAIT.as_secs());
    tokio::time::timeout(MAX_WAIT, work).await.map_err(late)?
}

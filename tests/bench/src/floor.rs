//! The floor's two processes.

use std::path::Path;

use serde::Deserialize;
use tokio::{
    io::{AsyncWriteExt as _, BufReader, Lines},
    process::{ChildStdin, ChildStdout},
};

use crate::{
    Result,
    place::Place,
    process::Process,
    subject::{Load, Speed, Subject, within},
};

type Output = Lines<BufReader<ChildStdout>>;

/// The floor, running.
pub(crate) struct Floor {
    tool: Process,
    executor: Process,
    input: ChildStdin,
    output: Output,
}

#[derive(Deserialize)]
struct Answer {
    p50_us: u64,
    p99_us: u64,
    steps_per_second: f64,
}

impl Floor {
    /// Starts both processes and answers when both are ready.
    pub(crate) async fn start(binaries: &Path, place: &Place) -> Result<Self> {
        let program = binaries.join("belay-floor");
        let socket = place.socket("floor.sock").to_string();
        let (tool, _, mut output) =
            Process::start_talking("belay-floor", &program, &["tool", "--listen", &socket], place.state())?;
        next_line(&mut output, &tool).await?;
        let store = place.file("floor.db").display().to_string();
        let arguments = ["executor", "--tool", &socket, "--store", &store];
        let (executor, input, mut output) = Process::start_talking("belay-floor", &program, &arguments, place.state())?;
        next_line(&mut output, &executor).await?;
        Ok(Self { tool, executor, input, output })
    }
}

impl Subject for Floor {
    fn pids(&self) -> Vec<u32> {
        vec![self.tool.pid(), self.executor.pid()]
    }

    async fn run(&mut self, load: Load) -> Result<Speed> {
        self.input.write_all(format!("{} {}\n", load.executions, load.steps).as_bytes()).await?;
        let answer: Answer = serde_json::from_str(&next_line(&mut self.output, &self.executor).await?)?;
        Ok(Speed {
            p50_us: Some(answer.p50_us),
            p99_us: Some(answer.p99_us),
            steps_per_second: answer.steps_per_second,
        })
    }
}

async fn next_line(output: &mut Output, process: &Process) -> Result<String> {
    let line = within("an answer of the floor", async { Ok(output.next_line().await?) }).await?;
    line.ok_or_else(|| process.explain("belay-floor ended too early".into()))
}

//! `belay executions get`.

use belay_proto::v1::{Execution, Step};

use super::super::Context;
use crate::{
    args::{Which, help},
    clock,
    connect::{Needs, Session},
    exit::Exit,
    failure::{Failure, Report},
    names, next, read,
    render::execution,
};

/// Show an execution: its steps, their failures, what it waits for, what to type next
///
/// With `--step`, one step and its output. With `-o json`, every step has its output.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions get @last --step build"))]
pub(crate) struct Get {
    #[command(flatten)]
    which: Which,
    /// Only this step, with its output
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
}

/// Shows the execution.
pub(crate) async fn get(context: &Context, verb: Get) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.place, Needs::Records).await?;
    // Services that run only for the moment of this command drive nothing on.
    let is_driven = !session.is_embedded();
    let client = &mut session.client;
    let answer = async {
        let name = names::resolve(client, &context.namespace, &verb.which.id).await?;
        match &verb.step {
            None => Ok(Found::Execution(read::execution(client, &name, context.screen.format).await?)),
            Some(step) => {
                let found = read::step(client, &format!("{name}/steps/{step}")).await;
                let steps = || next::about(&["executions", "get"], &name, &[]);
                found.map(Found::Step).map_err(|status| Report::of_status(&status).next(steps()).into())
            }
        }
    };
    let answer: Result<Found, Failure> = answer.await;
    session.close().await;
    match answer? {
        Found::Execution(execution) => context.screen.show(&execution, || {
            execution::full(&context.place.with_workspace(execution.clone()), is_driven, clock::now())
        })?,
        Found::Step(step) => context.screen.show(&step, || execution::step(&step, clock::now()))?,
    }
    Ok(Exit::OK)
}

enum Found {
    Execution(Execution),
    Step(Step),
}

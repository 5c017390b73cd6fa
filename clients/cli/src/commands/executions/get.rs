//! `belay executions get`.

use belay_proto::v1::{Execution, ListToolCallsResponse, Step, ToolCall};

use super::super::listing;
use crate::{
    args::{ExecutionArg, Format, help},
    clock,
    connect::{Requirement, Session},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    lookup, next, read,
    render::execution,
};

/// Show an execution: its steps, their failures, what it waits for, what to type next
///
/// With `--step`, one step, the calls that it made, and its output. With `-o json`, every step has its output.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions get @last --step build\n  belay executions get @last --calls -o jsonl"))]
pub(crate) struct Get {
    #[command(flatten)]
    which: ExecutionArg,
    /// Only this step, with its output
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// The calls of tools that it made, or those of one step: each attempt's, and those that were discarded
    #[arg(long)]
    calls: bool,
}

/// Shows the execution.
pub(crate) async fn get(context: &Context, verb: Get) -> Result<Exit, Failure> {
    let mut session = Session::open(&context.target, Requirement::Records).await?;
    // Services that run only for the moment of this command drive nothing on.
    let is_driven = !session.is_embedded();
    let client = &mut session.client;
    let answer = async {
        let name = lookup::resolve(client, &context.namespace, &verb.which.id).await?;
        let parent = verb.step.as_ref().map_or_else(|| name.clone(), |step| format!("{name}/steps/{step}"));
        let steps = || next::about(&["executions", "get"], &name, &[]);
        match &verb.step {
            _ if verb.calls => {
                let found = read::tool_calls(client, &parent).await;
                found.map(GetAnswer::Calls).map_err(|status| Report::of_status(&status).next(steps()).into())
            }
            None => Ok(GetAnswer::Execution(read::execution(client, &name, context.screen.format).await?)),
            Some(_) => {
                let found = read::step(client, &parent).await;
                let found = found.map_err(|status| Failure::from(Report::of_status(&status).next(steps())))?;
                let calls = match context.screen.format {
                    Format::Text => read::tool_calls(client, &parent).await?,
                    Format::Json | Format::Jsonl => Vec::new(),
                };
                Ok(GetAnswer::Step(found, calls))
            }
        }
    };
    let answer: Result<GetAnswer, Failure> = answer.await;
    session.close().await;
    match answer? {
        GetAnswer::Execution(execution) => context.screen.show(&execution, || {
            execution::full(&context.target.with_workspace(execution.clone()), is_driven, clock::now())
        })?,
        GetAnswer::Step(step, calls) => context.screen.show(&step, || execution::step(&step, &calls, clock::now()))?,
        GetAnswer::Calls(calls) => {
            let found = listing::ListPage { items: calls, next_page_token: String::new() };
            return listing::print(
                context,
                found,
                |tool_calls, next_page_token| ListToolCallsResponse { tool_calls, next_page_token },
                |calls| execution::calls(calls, clock::now()),
                || "no tool has been called".to_owned(),
                &[],
            );
        }
    }
    Ok(Exit::OK)
}

enum GetAnswer {
    Execution(Execution),
    /// With its calls, for people.
    Step(Step, Vec<ToolCall>),
    Calls(Vec<ToolCall>),
}

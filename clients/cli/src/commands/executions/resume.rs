//! `belay executions resume`.

use belay_proto::v1::{Execution, RetryExecutionRequest, execution::State};

use crate::{
    args::{ExecutionArg, Format, execution_help},
    ask,
    attend::{Attendance, attend, take_up},
    connect::{Requirement, Session},
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup, names,
    refused::refused,
    render::{
        result::lines::EventShape,
        text::{Line, Style},
    },
    signals::Signals,
    stopped::unless_stopped,
};

/// Resume an execution that is paused or that no process drives, and watch it until it ends
#[derive(clap::Args, Debug)]
#[command(after_help = execution_help!("belay executions resume @last"))]
pub(crate) struct Resume {
    #[command(flatten)]
    which: ExecutionArg,
    /// Skip the steps that failed, and run those that depend on them; also where the execution has ended
    #[arg(long)]
    skip_failed_step: bool,
}

/// Resumes it and watches it from there; without a server, this process drives it.
pub(crate) async fn resume(context: &Context, verb: Resume, signals: &mut Signals) -> Result<Exit, Failure> {
    let (session, execution) = unless_stopped(signals, async {
        let mut session = Session::open(&context.target, Requirement::Records).await?;
        let resumed = async {
            let name = lookup::resolve(&mut session.client, &context.namespace, &verb.which.id).await?;
            if verb.skip_failed_step {
                let request =
                    RetryExecutionRequest { name: name.clone(), skip_failed: true, ..RetryExecutionRequest::default() };
                let retried =
                    session.client.retry_execution(request).await.map_err(|status| refused(&status, &name))?;
                let retried = retried.into_inner();
                // It runs, and may have ended before another request arrives.
                if retried.state() != State::Paused {
                    return Ok(retried);
                }
            }
            take_up(&mut session.client, &name).await
        };
        match resumed.await {
            Ok(execution) => Ok((session, execution)),
            Err(failure) => {
                session.close().await;
                Err(failure)
            }
        }
    })
    .await??;
    watch_on(context, session, execution, signals).await
}

/// Watches an execution that continues, from there; without a server, this process drives it.
pub(super) async fn watch_on(
    context: &Context,
    session: Session,
    execution: Execution,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    if context.screen.format == Format::Text {
        let id = names::id(&execution.name);
        context.screen.say(&Line::new("execution ").and(Style::Strong, id).and(Style::Plain, " continues"));
    }
    let attendance = Attendance {
        name: execution.name,
        after: execution.last_sequence,
        drive: true,
        asks: ask::is_attended(),
        max_wait: None,
        shape: EventShape::Belay,
        verbose: false,
    };
    attend(context, session, signals, attendance).await
}

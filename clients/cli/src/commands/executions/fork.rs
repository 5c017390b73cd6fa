//! `belay executions fork`.

use std::{path::PathBuf, str::FromStr};

use belay_proto::v1::ForkExecutionRequest;
use belay_reasons as reasons;

use super::super::run::workspace;
use crate::{
    args::{ExecutionArg, Format, execution_help},
    ask,
    attend::{Attendance, attend},
    clock,
    connect::{Requirement, Session},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    lookup, names,
    refused::refused,
    render::{
        execution,
        result::lines::EventShape,
        text::{Line, Style},
    },
    signals::Signals,
    stopped::unless_stopped,
};

/// Start another execution of a plan from what an execution has completed, and watch it until it ends
///
/// It has the plan, inputs, labels and approval mode of the first, which stays as it is. What has completed there is taken over, with its output; the steps that
/// have not, and all that depend on them, run. It works in the same folder as it is now, unless --workspace names another.
///
/// With --at, a step that a model carries out begins with the conversation as it was after one of its turns. What its calls had changed then is taken over where it
/// is kept: with `effects: per_step`, until it is committed.
#[derive(clap::Args, Debug)]
#[command(after_help = execution_help!("belay executions fork @last --at fix:3 --model large"))]
pub(crate) struct Fork {
    #[command(flatten)]
    which: ExecutionArg,
    /// Also run this step, and all that depend on it, though they have completed
    #[arg(long, value_name = "STEP", default_value = "", hide_default_value = true, conflicts_with = "at")]
    from: String,
    /// The same, but its model continues after this turn, and does not begin anew
    #[arg(long, value_name = "STEP:TURN")]
    at: Option<StepTurn>,
    /// The model that carries out the step, in place of the one that the plan names
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Continue with the files as they are now, where those after the turn are not kept
    #[arg(long, requires = "at")]
    on_current_files: bool,
    /// The id of the new execution [default: one that is chosen]
    #[arg(long = "id", value_name = "ID", default_value = "", hide_default_value = true)]
    new_id: String,
    /// The folder in which it works [default: that of the first]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    workspace: Option<PathBuf>,
    /// Pause it before anything runs, to change its steps first
    #[arg(long)]
    paused: bool,
    /// Do not watch it
    #[arg(long)]
    detach: bool,
    /// The reason, which is stored with the execution
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Do it once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    request_id: String,
}

/// A turn of a step's model, as it is typed.
#[derive(Clone, Debug)]
struct StepTurn {
    step: String,
    turn: i32,
}

impl FromStr for StepTurn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once(':').and_then(|(step, turn)| Some((step, turn.parse().ok()?)));
        match parts {
            Some((step, turn @ 1..)) if !step.is_empty() => Ok(Self { step: step.to_owned(), turn }),
            _ => Err("write the step, a colon and the number of a turn from 1 on, as in `fix:3`".to_owned()),
        }
    }
}

/// Starts the execution, and watches it.
pub(crate) async fn fork(context: &Context, verb: Fork, signals: &mut Signals) -> Result<Exit, Failure> {
    let Fork {
        which,
        from,
        at,
        model,
        on_current_files,
        new_id,
        workspace: folder,
        paused,
        detach,
        reason,
        request_id,
    } = verb;
    let (from_step, after_turn) = match at {
        None => (from, None),
        Some(StepTurn { step, turn }) => (step, Some(turn)),
    };
    if model.is_some() && from_step.is_empty() {
        return Err(Report::new(
            reasons::INVALID_USAGE,
            "--model is for one step: name it with --from STEP or --at STEP:TURN",
        )
        .into());
    }
    let workspace = folder.as_deref().map(|folder| workspace(folder, context.target.is_local())).transpose()?;
    let (session, execution) = unless_stopped(signals, async {
        let mut session = Session::open(&context.target, Requirement::Records).await?;
        let forked = async {
            let name = lookup::resolve(&mut session.client, &context.namespace, &which.id).await?;
            let request = ForkExecutionRequest {
                name: name.clone(),
                execution_id: new_id,
                from_step,
                after_turn,
                model: model.unwrap_or_default(),
                on_current_files,
                workspace: workspace.unwrap_or_default(),
                start_paused: paused,
                reason,
                request_id,
            };
            let forked = session.client.fork_execution(request).await;
            Ok::<_, Failure>(forked.map_err(|status| refused(&status, &name))?.into_inner())
        };
        match forked.await {
            Ok(execution) => Ok((session, execution)),
            Err(failure) => {
                session.close().await;
                Err(failure)
            }
        }
    })
    .await??;
    if paused || detach {
        let shown = context.screen.show(&execution, || execution::summary(&execution, clock::now()));
        session.close().await;
        return shown.map(|()| Exit::OK);
    }
    if context.screen.format == Format::Text {
        let (id, origin) = (names::id(&execution.name), names::id(&execution.forked_from));
        let line = Line::new("execution ")
            .and(Style::Strong, id)
            .and(Style::Plain, format!(" begins with what {origin} has completed"));
        context.screen.say(&line);
    }
    let attendance = Attendance {
        name: execution.name,
        after: 0,
        drive: true,
        asks: ask::is_attended(),
        max_wait: None,
        shape: EventShape::Belay,
        verbose: false,
    };
    attend(context, session, signals, attendance).await
}

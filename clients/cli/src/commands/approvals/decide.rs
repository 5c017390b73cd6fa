//! `belay approvals approve`, `deny` and `skip`, and their short forms.

use belay_proto::v1::{Approval, Decision, approval::State};
use belay_reasons as reasons;

use super::{ApprovalArg, resolve};
use crate::{
    args::{Format, help},
    ask::{self, AskOutcome, Terminal},
    connect::{Gate, Requirement, Session},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    names, next,
    render::{
        approval::{self, Turn},
        diff::{self, Extent},
        text::Line,
        words,
    },
};

/// Approve a call, after it has been shown
///
/// On a terminal the command shows it and asks; without one, --yes is required. The approval is bound to what was shown: if that has
/// changed, the gate refuses it.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay approve @last"))]
pub(crate) struct Approve {
    #[command(flatten)]
    which: ApprovalArg,
    /// Show it and approve without asking
    #[arg(long, short)]
    yes: bool,
}

/// Deny a call: the step fails, and the reason is sent to the planner
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay deny @last --reason 'wrong file'"))]
pub(crate) struct Deny {
    #[command(flatten)]
    which: ApprovalArg,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Deny a call and skip its step instead of failing it
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay approvals skip @last"))]
pub(crate) struct Skip {
    #[command(flatten)]
    which: ApprovalArg,
    /// The reason
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
}

/// Shows the approval, and approves what was shown.
pub(crate) async fn approve(context: &Context, verb: Approve) -> Result<Exit, Failure> {
    if !verb.yes && !ask::is_attended() {
        return Err(needs_yes(&verb.which).into());
    }
    with_gate(context, async |gate| {
        let asked = resolve(gate, &context.namespace, &verb.which).await?;
        refuse_decided(&asked)?;
        if verb.yes {
            if context.screen.format == Format::Text {
                let mut lines = approval::full(&asked, Extent::Full);
                lines.extend(diff::hidden(&asked));
                context.screen.print(&lines)?;
            }
            return ask::decide(gate, &asked, Decision::Approve, String::new()).await.map(Some);
        }
        match ask::ask(context.screen, gate, &mut Terminal::default(), asked, Turn::ONLY).await? {
            AskOutcome::Decided(decided) => Ok(Some(*decided)),
            AskOutcome::Left => Ok(None),
        }
    })
    .await
}

/// Denies it.
pub(crate) async fn deny(context: &Context, verb: Deny) -> Result<Exit, Failure> {
    if belay_text::is_blank(&verb.reason) {
        let message = "a denial needs a reason, which is sent to the planner";
        let mut report = Report::new(reasons::INVALID_USAGE, message).next(next::command(&[
            "deny",
            verb.which.id.as_str(),
            "--reason",
            "…",
        ]));
        report.field = Some("--reason".to_owned());
        return Err(report.into());
    }
    decide_at_once(context, &verb.which, Decision::Deny, verb.reason).await
}

/// Skips the step.
pub(crate) async fn skip(context: &Context, verb: Skip) -> Result<Exit, Failure> {
    decide_at_once(context, &verb.which, Decision::Skip, verb.reason).await
}

async fn decide_at_once(
    context: &Context,
    which: &ApprovalArg,
    decision: Decision,
    reason: String,
) -> Result<Exit, Failure> {
    with_gate(context, async |gate| {
        let asked = resolve(gate, &context.namespace, which).await?;
        refuse_decided(&asked)?;
        ask::decide(gate, &asked, decision, reason).await.map(Some)
    })
    .await
}

/// Makes a decision at the gate, and prints it with the command to type next.
pub(super) async fn with_gate(
    context: &Context,
    work: impl AsyncFnOnce(&mut Gate) -> Result<Option<Approval>, Failure>,
) -> Result<Exit, Failure> {
    let session = Session::open(&context.target, Requirement::Records).await?;
    // Services that run only for the moment of this command drive nothing on.
    let is_driven = !session.is_embedded();
    let outcome = match session.to_gate().client().await {
        Ok(mut gate) => work(&mut gate).await,
        Err(failure) => Err(failure),
    };
    session.close().await;
    let Some(decided) = outcome? else {
        context.screen.say(&Line::new("nothing was decided"));
        return Ok(Exit::REFUSED);
    };
    match context.screen.format {
        Format::Text => {
            let verb = if is_driven { "watch" } else { "resume" };
            let command = next::about(&["executions", verb], &decided.execution, &[]);
            context.screen.print(&[ask::decision_line(&decided), next::line(&command)])?;
        }
        Format::Json | Format::Jsonl => context.screen.print_json(&approval::json(&decided)?)?,
    }
    Ok(Exit::OK)
}

/// A decision is made once. The gate refuses a second one, too; this checks before anything is shown.
pub(super) fn refuse_decided(asked: &Approval) -> Result<(), Failure> {
    if asked.state() == State::Pending {
        return Ok(());
    }
    let by = if asked.decided_by.is_empty() { String::new() } else { format!(" by {}", asked.decided_by) };
    let state = words::approval_state(asked.state());
    let message = format!("approval {} was already {state}{by}; nothing has changed", names::id(&asked.name));
    Err(Report::new(reasons::ALREADY_DECIDED, message).next(words::show_approval(&asked.name)).into())
}

fn needs_yes(which: &ApprovalArg) -> crate::failure::Report {
    let message = "no terminal to show the approval on; --yes approves without asking";
    Report::new(reasons::NO_TERMINAL, message).next(next::command(&["approvals", "show", which.id.as_str()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    // B-03: a decision is made once.
    #[test]
    fn a_decided_approval_is_not_decided_again() {
        let mut approval = Approval {
            name: "namespaces/default/approvals/x7".to_owned(),
            state: State::Denied.into(),
            decided_by: "unix:1000".to_owned(),
            ..Default::default()
        };
        let report = refuse_decided(&approval).unwrap_err().report();
        assert_eq!(report.message, "approval x7 was already denied by unix:1000; nothing has changed");
        assert_eq!((report.exit, report.code.as_str()), (Exit::REFUSED, "ALREADY_DECIDED"));
        approval.set_state(State::Pending);
        assert!(refuse_decided(&approval).is_ok());
    }
}

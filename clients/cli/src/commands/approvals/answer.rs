//! `belay approvals answer`.

use std::io::{self, Read as _};

use belay_all_in_one::json;
use belay_proto::v1::approval_need;
use belay_reasons as reasons;
use serde_json::Value;

use super::{
    ApprovalArg,
    decide::{refuse_decided, with_gate},
    resolve,
};
use crate::{
    args::help,
    ask::{self, AskOutcome, Terminal},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    names, next,
    render::{approval::Turn, words},
};

/// The most that is read from standard input, in bytes: the gate takes at most 32 KiB.
const MAX_INPUT_BYTES: u64 = 64 * 1024;

/// Answer a form, once: the answer is the result of the step that waits for it
///
/// On a terminal the command shows the form and asks for its fields; without one, --value is required. What is given here is visible to other
/// users of this machine while the command runs: for a secret, write `--value -` and give the answer on standard input.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay approvals answer @last --value '{\"version\": \"1.2\"}'"))]
pub(crate) struct Answer {
    #[command(flatten)]
    which: ApprovalArg,
    /// The answer; `-` reads it from standard input
    #[arg(long, value_name = "JSON")]
    value: Option<String>,
    /// Answer once, however often the command runs with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, requires = "value")]
    request_id: String,
}

/// Shows the form and asks, or sends what was given.
pub(crate) async fn answer(context: &Context, verb: Answer) -> Result<Exit, Failure> {
    let value = verb.value.map(given).transpose()?;
    if value.is_none() && !ask::is_attended() {
        let message = "no terminal to show the form on; --value gives the answer";
        let show = next::command(&["approvals", "show", verb.which.id()]);
        return Err(Report::new(reasons::NO_TERMINAL, message).next(show).into());
    }
    with_gate(context, async |gate| {
        let asked = resolve(gate, &context.namespace, &verb.which).await?;
        if asked.kind() != approval_need::Kind::Form {
            let message = format!("{} asks for a decision and not for an answer", names::id(&asked.name));
            return Err(Report::new(reasons::NO_FORM, message).next(words::show_approval(&asked.name)).into());
        }
        match value {
            // The gate tells a repetition of the same request from another answer.
            Some(value) => ask::answer(gate, &asked, &value, verb.request_id).await.map(Some).map_err(Failure::from),
            None => {
                refuse_decided(&asked)?;
                match ask::ask(context.screen, gate, &mut Terminal::default(), asked, Turn::ONLY).await? {
                    AskOutcome::Decided(decided) => Ok(Some(*decided)),
                    AskOutcome::Left => Ok(None),
                }
            }
        }
    })
    .await
}

/// The answer as it was given.
fn given(value: String) -> Result<Value, Failure> {
    let text = match value.as_str() {
        "-" => {
            let mut text = Vec::new();
            let read = io::stdin().lock().take(MAX_INPUT_BYTES).read_to_end(&mut text);
            read.map_err(|error| invalid(format!("standard input cannot be read: {error}")))?;
            text
        }
        _ => value.into_bytes(),
    };
    json::read_bytes(&text).map_err(|refused| invalid(format!("--value is not accepted: {refused}")).into())
}

fn invalid(message: String) -> Report {
    Report::invalid("--value", message)
}

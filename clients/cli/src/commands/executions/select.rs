//! The executions that a command is about: named one by one, or all that match.

use belay_proto::v1::{Execution, ListExecutionsRequest, execution::State};
use belay_reasons as reasons;
use serde_json::json;
use tonic::{Code, Status};

use super::{
    super::listing::every,
    affected::{counted, shown},
    list::{ExecutionFilter, filter},
};
use crate::{
    args::Format,
    ask, clock,
    connect::Client,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    lookup, names, next,
    refused::refused,
    render::text::{Line, Style},
};

/// The states in which an execution has ended.
pub(super) const ENDED: &[State] =
    &[State::Completed, State::Partial, State::Failed, State::Cancelled, State::TimedOut];

/// Executions by their names, or by what they have in common.
#[derive(clap::Args, Debug)]
pub(crate) struct Selection {
    /// The executions: each by its id, the beginning of its id, its full name, or @last
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    matching: ExecutionFilter,
    /// Do it without asking
    #[arg(long, short)]
    pub(super) yes: bool,
}

/// An action on executions, in words.
pub(crate) struct BulkAction {
    /// `cancel`.
    pub(crate) verb: &'static str,
    /// `cancelled`.
    pub(crate) done: &'static str,
    /// The states in which it can be done.
    pub(crate) states: &'static [State],
}

/// The executions that a command line selects.
pub(super) enum Choice {
    /// The named ones, by their full names, each once.
    Named(Vec<String>),
    /// The matching ones. When there are none, that was said.
    Matching(Vec<Execution>),
}

/// The selected executions.
pub(crate) enum ConfirmedSelection {
    /// They were named.
    Named(Vec<String>),
    /// They match, and the person has confirmed that all of them are meant.
    Matching(Vec<String>),
    /// The person has not confirmed, or nothing matches; that was said.
    None(Exit),
}

impl Selection {
    /// The executions that are named or match, without a question.
    ///
    /// # Errors
    /// When the command line does not say which are meant, or says it twice.
    pub(super) async fn choose(
        &self,
        context: &Context,
        client: &mut Client,
        action: &BulkAction,
    ) -> Result<Choice, Failure> {
        let filter = filter(&self.matching, clock::now());
        if self.ids.is_empty() == filter.is_empty() {
            return Err(unclear(action.verb, self.ids.is_empty()));
        }
        if filter.is_empty() {
            let mut named = Vec::new();
            for id in &self.ids {
                let name = lookup::resolve(client, &context.namespace, id).await?;
                if !named.contains(&name) {
                    named.push(name);
                }
            }
            return Ok(Choice::Named(named));
        }
        let found =
            matching(client, names::parent(&context.namespace), filter, action.states, self.matching.children).await?;
        if found.is_empty() {
            context.screen.say(&Line::new(format!("no execution that matches can be {}", action.done)));
        }
        Ok(Choice::Matching(found))
    }

    /// The names of the selected executions. Asks about those that are not named.
    pub(crate) async fn resolve(
        &self,
        context: &Context,
        client: &mut Client,
        action: &BulkAction,
    ) -> Result<ConfirmedSelection, Failure> {
        let found = match self.choose(context, client, action).await? {
            Choice::Named(names) => return Ok(ConfirmedSelection::Named(names)),
            Choice::Matching(found) if found.is_empty() => return Ok(ConfirmedSelection::None(Exit::OK)),
            Choice::Matching(found) => found,
        };
        if !self.yes {
            if ask::is_attended() {
                shown(&found).iter().for_each(|line| context.screen.say(line));
            }
            let mut verb = action.verb.to_owned();
            verb[..1].make_ascii_uppercase();
            if !ask::confirm(context.screen, &format!("{verb} {}?", counted(found.len()))).await? {
                context.screen.say(&Line::new(format!("nothing was {}", action.done)));
                return Ok(ConfirmedSelection::None(Exit::REFUSED));
            }
        }
        Ok(ConfirmedSelection::Matching(found.into_iter().map(|execution| execution.name).collect()))
    }
}

/// The failure of a command that does not say which executions it is about, or says it twice.
fn unclear(verb: &str, names_none: bool) -> Failure {
    let message = match names_none {
        true => {
            format!("nothing says which executions to {verb}: name them, or use --state, --label, --since or --filter")
        }
        false => {
            "executions are named or matched, not both: leave out the ids, or --state, --label, --since and --filter"
                .to_owned()
        }
    };
    Report::new(reasons::INVALID_ARGUMENT, message).next(next::help()).into()
}

/// All executions that match and are in one of these states, the oldest first: an interrupted command continues where it ended.
async fn matching(
    client: &mut Client,
    parent: String,
    filter: String,
    states: &[State],
    include_children: bool,
) -> Result<Vec<Execution>, Failure> {
    let order_by = "create_time".to_owned();
    let request = ListExecutionsRequest { parent, filter, order_by, include_children, ..Default::default() };
    let every = every(async |page_size, page_token| {
        let page = client.list_executions(ListExecutionsRequest { page_size, page_token, ..request.clone() }).await?;
        let page = page.into_inner();
        let fits = page.executions.into_iter().filter(|execution| states.contains(&execution.state()));
        Ok((fits.collect(), page.next_page_token))
    });
    every.await
}

/// Does it to each of these executions. One that refuses is reported with the others that do, and does not stop the rest.
pub(crate) async fn each(
    context: &Context,
    client: &mut Client,
    action: &BulkAction,
    names: Vec<String>,
    act: impl AsyncFn(&mut Client, String) -> Result<Execution, Status>,
) -> Result<Exit, Failure> {
    let (mut done, mut refusals) = (Vec::new(), Vec::new());
    for name in names {
        match act(client, name.clone()).await {
            Ok(_) => done.push(name),
            // Nothing that follows would fare better.
            Err(status) if !is_about_one(status.code()) => return Err(refused(&status, &name)),
            Err(status) => refusals.push((name, Report::of_status(&status))),
        }
    }
    match context.screen.format {
        Format::Text => {
            let mut lines = vec![Line::default().and(Style::Good, format!("{} {}", counted(done.len()), action.done))];
            for (name, report) in refusals.iter().take(MAX_REFUSED_SHOWN) {
                lines.push(Line::default().and(Style::Warn, format!("{}: {}", names::id(name), report.message)));
            }
            if let Some(more) = refusals.len().checked_sub(MAX_REFUSED_SHOWN).filter(|more| *more > 0) {
                lines.push(Line::default().and(Style::Warn, format!("and {more} more were not {}", action.done)));
            }
            context.screen.print(&lines)?;
        }
        Format::Json | Format::Jsonl => {
            let refused: Vec<_> = refusals
                .iter()
                .map(|(name, report)| json!({"name": name, "code": report.code, "message": report.message}))
                .collect();
            context.screen.print_json(&json!({ action.done: done, "refused": refused }))?;
        }
    }
    Ok(if refusals.is_empty() { Exit::OK } else { Exit::REFUSED })
}

/// How many refusals are shown one by one.
const MAX_REFUSED_SHOWN: usize = 10;

/// Whether an error is about one execution, and the next may fare better.
fn is_about_one(code: Code) -> bool {
    matches!(
        code,
        Code::FailedPrecondition | Code::NotFound | Code::Aborted | Code::AlreadyExists | Code::PermissionDenied
    )
}

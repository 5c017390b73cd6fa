//! `belay approvals list`.

use belay_proto::v1::{Approval, ListApprovalsRequest, ListApprovalsResponse, approval::State};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::{super::Context, LONGEST_PAGE};
use crate::{
    args::{Format, help},
    clock,
    connect::Gate,
    exit::Exit,
    failure::Failure,
    names,
    render::{approval, json, text::Line, words},
};

/// The states an approval can be in.
const STATES: [State; 8] = [
    State::Pending,
    State::Approved,
    State::Denied,
    State::Skipped,
    State::Expired,
    State::Cancelled,
    State::Consumed,
    State::Stale,
];

/// List approvals: those that wait, the oldest first, then the others, the newest first
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay approvals list --state pending"))]
pub(crate) struct List {
    /// Only approvals in this state; may be given more than once
    #[arg(long = "state", value_name = "S", ignore_case = true, value_parser = states())]
    states: Vec<State>,
    /// Only those of this execution: its id, the beginning of its id, or @last
    #[arg(long, value_name = "ID")]
    execution: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

fn states() -> impl clap::builder::TypedValueParser<Value = State> {
    let names: Vec<String> = STATES.iter().map(|state| words::approval_state(*state)).collect();
    PossibleValuesParser::new(names).map(|name| {
        let is_named = |state: &State| words::approval_state(*state).eq_ignore_ascii_case(&name);
        STATES.into_iter().find(is_named).unwrap_or_default()
    })
}

/// Lists what fits the filters.
pub(crate) async fn list(context: &Context, verb: List) -> Result<Exit, Failure> {
    let listed = context.ask_gate(async |gate, client| {
        let execution = match &verb.execution {
            Some(id) => names::resolve(client, &context.namespace, id).await?,
            None => String::new(),
        };
        let request = ListApprovalsRequest {
            parent: names::parent(&context.namespace),
            states: verb.states.iter().map(|state| i32::from(*state)).collect(),
            execution,
            ..Default::default()
        };
        pages(gate, request, usize::try_from(verb.limit).unwrap_or(usize::MAX)).await
    });
    let (approvals, next_page_token) = listed.await?;
    let more = !next_page_token.is_empty();
    match context.screen.format {
        Format::Jsonl => {
            for approval in &approvals {
                context.screen.print_json(&json::of(approval)?)?;
            }
        }
        Format::Json => context.screen.print_json(&json::of(&ListApprovalsResponse { approvals, next_page_token })?)?,
        Format::Text if approvals.is_empty() => context.screen.say(&Line::new(nothing(&context.namespace, &verb))),
        Format::Text => context.screen.print(&approval::list(&approvals, clock::now()))?,
    }
    if more {
        context.screen.say(&Line::new(format!("there are more: --limit {}", u64::from(verb.limit) * 2)));
    }
    Ok(Exit::OK)
}

/// Pages until there are enough, and the token of the page after them.
async fn pages(
    gate: &mut Gate,
    mut request: ListApprovalsRequest,
    limit: usize,
) -> Result<(Vec<Approval>, String), Failure> {
    let mut approvals = Vec::new();
    loop {
        let missing = i32::try_from(limit - approvals.len()).unwrap_or(i32::MAX);
        request.page_size = missing.min(LONGEST_PAGE);
        let page = gate.list_approvals(request.clone()).await?.into_inner();
        approvals.extend(page.approvals);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() || approvals.len() >= limit {
            return Ok((approvals, request.page_token));
        }
    }
}

/// An empty list says what it looked for.
fn nothing(namespace: &str, verb: &List) -> String {
    let mut sought = format!("no approval in namespace {namespace}");
    if !verb.states.is_empty() {
        let states: Vec<String> = verb.states.iter().map(|state| words::approval_state(*state)).collect();
        sought.push_str(&format!(" is {}", states.join(" or ")));
    }
    if let Some(execution) = &verb.execution {
        sought.push_str(&format!(", of execution {execution}"));
    }
    sought
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        list: List,
    }

    #[test]
    fn the_names_in_filters_are_the_names_on_the_screen() {
        for state in STATES {
            let line = Line::try_parse_from(["list", "--state", &words::approval_state(state)]);
            assert_eq!(line.expect("a state's word is taken").list.states, [state]);
        }
    }

    #[test]
    fn an_empty_list_says_what_it_looked_for() {
        let list = Line::try_parse_from(["list", "--state", "pending", "--execution", "e1"]).expect("well typed").list;
        assert_eq!(nothing("default", &list), "no approval in namespace default is pending, of execution e1");
    }
}

//! `belay approvals list`.

use belay_proto::v1::{ListApprovalsRequest, ListApprovalsResponse, approval::State};

use super::super::listing::{Extent, elsewhere, print, sought, states, wanted};
use crate::{
    args::help,
    clock,
    context::Context,
    exit::Exit,
    failure::Failure,
    lookup, names,
    render::{approval, words},
};

/// The states an approval can be in.
const STATES: [State; 9] = [
    State::Pending,
    State::Approved,
    State::Denied,
    State::Skipped,
    State::Expired,
    State::Cancelled,
    State::Consumed,
    State::Stale,
    State::Answered,
];

/// List approvals: pending ones, oldest first; then the others, newest first
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay approvals list --state pending"))]
pub(crate) struct List {
    /// Only approvals in this state; may be given more than once
    #[arg(long = "state", value_name = "S", ignore_case = true, value_parser = states(&STATES, words::approval_state))]
    states: Vec<State>,
    /// Only those of this execution: its id, the beginning of its id, or @last
    #[arg(long, value_name = "ID")]
    execution: Option<String>,
    #[command(flatten)]
    extent: Extent,
}

/// Lists what matches the filters.
pub(crate) async fn list(context: &Context, verb: List) -> Result<Exit, Failure> {
    let listed = context.ask_gate(async |gate, client| {
        let execution = match &verb.execution {
            Some(id) => lookup::resolve(client, &context.namespace, id).await?,
            None => String::new(),
        };
        let request = ListApprovalsRequest {
            parent: names::parent(&context.namespace),
            states: verb.states.iter().map(|state| i32::from(*state)).collect(),
            execution,
            ..Default::default()
        };
        let wanted = wanted(&verb.extent, async |page_size, page_token| {
            let request = ListApprovalsRequest { page_size, page_token, ..request.clone() };
            let page = gate.list_approvals(request).await?.into_inner();
            Ok((page.approvals, page.next_page_token))
        });
        let found = wanted.await?;
        let namespaces = elsewhere(context, client, &found).await;
        Ok((found, namespaces))
    });
    let (found, namespaces) = listed.await?;
    print(
        context,
        found,
        |approvals, next_page_token| ListApprovalsResponse { approvals, next_page_token },
        |approvals| approval::list(approvals, clock::now()),
        || nothing(&context.namespace, &verb),
        &namespaces,
    )
}

/// An empty list says what it looked for.
fn nothing(namespace: &str, verb: &List) -> String {
    let mut sought = format!("no approval in namespace {namespace}{}", sought(&verb.states, words::approval_state));
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

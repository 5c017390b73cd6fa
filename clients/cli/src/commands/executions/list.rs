//! `belay executions list`.

use std::time::Duration;

use belay_proto::v1::{Execution, ListExecutionsRequest, ListExecutionsResponse, execution::State};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use super::super::Context;
use crate::{
    args::{Format, help, label},
    clock,
    connect::Client,
    exit::Exit,
    failure::Failure,
    names,
    render::{execution, json, text::Line, time, words},
};

/// The most executions one page may hold (`ListExecutionsRequest.page_size`).
const LONGEST_PAGE: usize = 1_000;

/// The states an execution can be in.
const STATES: [State; 10] = [
    State::Pending,
    State::Running,
    State::AwaitingApproval,
    State::Paused,
    State::Cancelling,
    State::Completed,
    State::Partial,
    State::Failed,
    State::Cancelled,
    State::TimedOut,
];

/// List executions, the newest first
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay executions list --state failed --state partial --since 1d"))]
pub(crate) struct List {
    /// Only executions in this state; may be given more than once
    #[arg(long = "state", value_name = "S", ignore_case = true, value_parser = states())]
    states: Vec<State>,
    /// Only executions with this label; may be given more than once, and then all are needed
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Only executions accepted within this time, such as 1h or 2d
    #[arg(long, value_name = "D", value_parser = time::parse)]
    since: Option<Duration>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

fn states() -> impl clap::builder::TypedValueParser<Value = State> {
    let names: Vec<String> = STATES.iter().map(|state| words::execution_state(*state)).collect();
    PossibleValuesParser::new(names).map(|name| {
        let is_named = |state: &State| words::execution_state(*state).eq_ignore_ascii_case(&name);
        STATES.into_iter().find(is_named).unwrap_or_default()
    })
}

/// Lists what fits the filters.
pub(crate) async fn list(context: &Context, verb: List) -> Result<Exit, Failure> {
    let now = clock::now();
    let request = ListExecutionsRequest {
        parent: names::parent(&context.namespace),
        states: verb.states.iter().map(|state| i32::from(*state)).collect(),
        labels: verb.labels.iter().cloned().collect(),
        created_since: verb.since.map(|since| time::timestamp(now.saturating_sub(since))),
        ..Default::default()
    };
    let limit = usize::try_from(verb.limit).unwrap_or(usize::MAX);
    let (executions, next_page_token) = context.ask(async |client| pages(client, request, limit).await).await?;
    let more = !next_page_token.is_empty();
    match context.screen.format {
        Format::Jsonl => {
            for execution in &executions {
                context.screen.print_json(&json::of(execution)?)?;
            }
        }
        Format::Json => {
            context.screen.print_json(&json::of(&ListExecutionsResponse { executions, next_page_token })?)?
        }
        Format::Text if executions.is_empty() => context.screen.say(&Line::new(nothing(&context.namespace, &verb))),
        Format::Text => context.screen.print(&execution::list(&executions, now))?,
    }
    if more {
        context.screen.say(&Line::new(format!("there are more: --limit {}", u64::from(verb.limit) * 2)));
    }
    Ok(Exit::OK)
}

/// Pages until there are enough, and the token of the page after them.
async fn pages(
    client: &mut Client,
    mut request: ListExecutionsRequest,
    limit: usize,
) -> Result<(Vec<Execution>, String), Failure> {
    let mut executions = Vec::new();
    loop {
        let missing = (limit - executions.len()).min(LONGEST_PAGE);
        request.page_size = i32::try_from(missing).unwrap_or(i32::MAX);
        let page = client.list_executions(request.clone()).await?.into_inner();
        executions.extend(page.executions);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() || executions.len() >= limit {
            return Ok((executions, request.page_token));
        }
    }
}

/// An empty list says what it looked for.
fn nothing(namespace: &str, verb: &List) -> String {
    let mut sought = format!("no execution in namespace {namespace}");
    if !verb.states.is_empty() {
        let states: Vec<String> = verb.states.iter().map(|state| words::execution_state(*state)).collect();
        sought.push_str(&format!(" is {}", states.join(" or ")));
    }
    for (place, (key, value)) in verb.labels.iter().enumerate() {
        sought.push_str(&format!("{} {key}={value}", if place == 0 { ", with label" } else { " and" }));
    }
    if let Some(since) = verb.since {
        sought.push_str(&format!(", accepted within {}", time::short(since)));
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
            let line = Line::try_parse_from(["list", "--state", &words::execution_state(state)])
                .expect("a state's word is taken");
            assert_eq!(line.list.states, [state]);
        }
        let shouted = Line::try_parse_from(["list", "--state", "TIMED_OUT"]).expect("in capitals, too");
        assert_eq!(shouted.list.states, [State::TimedOut]);
        assert!(Line::try_parse_from(["list", "--state", "unspecified"]).is_err());
    }

    #[test]
    fn an_empty_list_says_what_it_looked_for() {
        let list = Line::try_parse_from([
            "list", "--state", "failed", "--state", "partial", "--label", "a=b", "--since", "1h",
        ]);
        assert_eq!(
            nothing("default", &list.expect("well typed").list),
            "no execution in namespace default is failed or partial, with label a=b, accepted within 1h"
        );
    }
}

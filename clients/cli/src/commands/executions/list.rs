//! `belay executions list`.

use std::time::Duration;

use belay_proto::v1::{ListExecutionsRequest, ListExecutionsResponse, execution::State};

use super::super::listing::{Extent, elsewhere, print, sought, states, wanted};
use crate::{
    args::{help, label},
    clock,
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    names,
    render::{execution, time, words},
};

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
    #[command(flatten)]
    matching: ExecutionFilter,
    /// Sort by when they were accepted or ended; by their end, only those that have one are listed
    #[arg(long, value_name = "BY", value_enum)]
    sort: Option<Sort>,
    /// The oldest first
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    extent: Extent,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// When they were accepted
    Created,
    /// When they ended
    Ended,
}

impl List {
    /// The order as the contract has it; empty for the one that fits the filter.
    fn order_by(&self) -> String {
        let by = match (self.sort, self.reverse) {
            (None, false) => return String::new(),
            (None | Some(Sort::Created), _) => "create_time",
            (Some(Sort::Ended), _) => "end_time",
        };
        if self.reverse { by.to_owned() } else { format!("{by} desc") }
    }
}

/// The filter of executions.
#[derive(clap::Args, Debug)]
pub(super) struct ExecutionFilter {
    /// Only executions in this state; may be given more than once
    #[arg(long = "state", value_name = "S", ignore_case = true, value_parser = states(&STATES, words::execution_state))]
    states: Vec<State>,
    /// Only executions with this label; may be given more than once, and then all are needed
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Only executions accepted within this time, such as 1h or 2d
    #[arg(long, value_name = "D", value_parser = time::parse)]
    since: Option<Duration>,
    /// Also executions that carry out the plans of steps; those of one execution by --filter 'parent = ID'
    #[arg(long)]
    pub(super) children: bool,
    /// Only executions that match, such as 'waits_for = APPROVAL' or 'failure_reason = TOOL_FAILED AND plan_id != nightly'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
}

/// Lists what matches the filters.
pub(crate) async fn list(context: &Context, verb: List) -> Result<Exit, Failure> {
    let now = clock::now();
    let request = ListExecutionsRequest {
        parent: names::parent(&context.namespace),
        filter: filter(&verb.matching, now),
        order_by: verb.order_by(),
        include_children: verb.matching.children,
        ..Default::default()
    };
    let listed = context.ask(Requirement::Records, async |client| {
        let wanted = wanted(&verb.extent, async |page_size, page_token| {
            let request = ListExecutionsRequest { page_size, page_token, ..request.clone() };
            let page = client.list_executions(request).await?.into_inner();
            Ok((page.executions, page.next_page_token))
        });
        let found = wanted.await?;
        let namespaces = elsewhere(context, client, &found).await;
        Ok((found, namespaces))
    });
    let (found, namespaces) = listed.await?;
    print(
        context,
        found,
        |executions, next_page_token| ListExecutionsResponse { executions, next_page_token },
        |executions| execution::list(executions, now),
        || nothing(&context.namespace, &verb),
        &namespaces,
    )
}

/// The options as the contract's filter.
pub(super) fn filter(verb: &ExecutionFilter, now: Duration) -> String {
    let mut all = Vec::new();
    let states: Vec<String> = verb
        .states
        .iter()
        .map(|state| format!("state = {}", state.as_str_name().trim_start_matches("STATE_")))
        .collect();
    all.extend((!states.is_empty()).then(|| states.join(" OR ")));
    all.extend(verb.labels.iter().map(|(key, value)| format!("labels.{} = {}", quoted(key), quoted(value))));
    let since = verb.since.and_then(|since| time::rfc3339(&time::timestamp(now.saturating_sub(since))));
    all.extend(since.map(|since| format!("create_time >= {}", quoted(&since))));
    all.extend(verb.filter.clone().filter(|filter| !filter.trim().is_empty()));
    all.join(" AND ")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// An empty list says what it looked for.
fn nothing(namespace: &str, list: &List) -> String {
    let verb = &list.matching;
    let mut sought = format!("no execution in namespace {namespace}{}", sought(&verb.states, words::execution_state));
    for (place, (key, value)) in verb.labels.iter().enumerate() {
        sought.push_str(&format!("{} {key}={value}", if place == 0 { ", with label" } else { " and" }));
    }
    if let Some(since) = verb.since {
        sought.push_str(&format!(", accepted within {}", time::short(since)));
    }
    if let Some(filter) = &verb.filter {
        sought.push_str(&format!(", matching {filter}"));
    }
    if list.sort == Some(Sort::Ended) {
        sought.push_str("; only executions that have ended were looked at: leave out --sort ended to look at all");
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
            assert_eq!(line.list.matching.states, [state]);
        }
        let shouted = Line::try_parse_from(["list", "--state", "TIMED_OUT"]).expect("in capitals, too");
        assert_eq!(shouted.list.matching.states, [State::TimedOut]);
        assert!(Line::try_parse_from(["list", "--state", "unspecified"]).is_err());
    }

    #[test]
    fn the_options_become_a_filter() {
        let list =
            |words: &[&str]| Line::try_parse_from([&["list"], words].concat()).expect("well typed").list.matching;
        assert_eq!(filter(&list(&[]), Duration::ZERO), "");
        let all = list(&[
            "--state",
            "failed",
            "--state",
            "timed_out",
            "--label",
            r#"a="x\y""#,
            "--label",
            "b=",
            "--since",
            "1h",
            "--filter",
            "id != x",
        ]);
        assert_eq!(
            filter(&all, Duration::from_secs(1_769_947_200)),
            r#"state = FAILED OR state = TIMED_OUT AND labels."a" = "\"x\\y\"" AND labels."b" = "" AND create_time >= "2026-02-01T11:00:00+00:00" AND id != x"#
        );
    }

    #[test]
    fn a_list_is_sorted_by_one_of_two_times() {
        let order =
            |words: &[&str]| Line::try_parse_from([&["list"], words].concat()).expect("well typed").list.order_by();
        assert_eq!(order(&[]), "");
        assert_eq!(order(&["--reverse"]), "create_time");
        assert_eq!(order(&["--sort", "created"]), "create_time desc");
        assert_eq!(order(&["--sort", "ended", "--reverse"]), "end_time");
        assert!(Line::try_parse_from(["list", "--sort", "size"]).is_err());
    }

    #[test]
    fn an_empty_list_says_what_it_looked_for() {
        let list = Line::try_parse_from([
            "list", "--state", "failed", "--state", "partial", "--label", "a=b", "--since", "1h", "--filter", "id != x",
        ]);
        assert_eq!(
            nothing("default", &list.expect("well typed").list),
            "no execution in namespace default is failed or partial, with label a=b, accepted within 1h, matching id != x"
        );
        let by_end = Line::try_parse_from(["list", "--state", "running", "--sort", "ended"]).expect("well typed");
        assert_eq!(
            nothing("default", &by_end.list),
            "no execution in namespace default is running; only executions that have ended were looked at: leave out --sort ended to look at all"
        );
    }
}

//! `belay serve`.

use std::net::SocketAddr;

use belay_all_in_one::{EmbeddedServices, Endpoint, Options, StateOpening};
use belay_reasons as reasons;
use serde_json::json;

use crate::{
    args::{Format, PolicyFile},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    next,
    render::text::{Line, Style, table},
    signals::Signals,
    stopped::unless_stopped,
};

/// A server that is stopped on request ends with 0.
const HELP: &str = "Example:\n  belay serve --listen 127.0.0.1:7433\n\nExit codes:\n  0    stopped by Ctrl-C, SIGTERM or SIGHUP, gracefully\n  \
                    1    it cannot start, or its store can no longer be written\n  2    used wrongly\n  130  stopped at once by a second Ctrl-C \
                    (143: SIGTERM)";

/// Run the services until Ctrl-C, and continue all unfinished executions
///
/// BELAY_LOG sets the log level, such as BELAY_LOG=warn; the log goes to standard error.
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Serve {
    /// Also listen on TCP, such as 127.0.0.1:7433; port 0 chooses a free port
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Accept a store that was restored or lost, once: everything after its last commit is lost
    #[arg(long)]
    accept_older_store: bool,
    /// Listen beyond loopback without encryption: anyone on the network path can read tokens and plans
    #[arg(long, requires = "listen")]
    insecure_listen_beyond_loopback: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyFile,
}

/// Serves until it is stopped; stops gracefully.
pub(crate) async fn serve(context: &Context, verb: Serve, signals: &mut Signals) -> Result<Exit, Failure> {
    if let Some(address) = &context.target.server {
        return Err(Report::new(
            reasons::INVALID_USAGE,
            format!("`serve` is a server, and --server (or BELAY_SERVER) names another: {address}"),
        )
        .next(next::command(&["serve", "--help"]))
        .into());
    }
    let state_dir = context.target.state_dir()?;
    let policy = context.target.policy.clone();
    let options = Options {
        state_dir: state_dir.clone(),
        listen: verb.listen,
        insecure_listen_beyond_loopback: verb.insecure_listen_beyond_loopback,
        drive_all: true,
        policy,
        config: context.target.config.clone(),
        accept_older_store: verb.accept_older_store,
    };
    let embedded = match unless_stopped(signals, belay_all_in_one::open(options)).await?? {
        StateOpening::Holder(embedded) => embedded,
        StateOpening::Held(endpoint) => {
            let message = format!("another belay holds {}", state_dir.display());
            return Err(Report::new(reasons::STORE_LOCKED, message)
                .detail(format!("it answers at {}", address(&endpoint)))
                .advice()
                .next(next::command(&["executions", "list"]))
                .into());
        }
    };
    if let Err(failure) = announce(context, &embedded, &state_dir.display().to_string()) {
        // A server keeps serving after the reader of its output has closed it.
        if !matches!(failure, Failure::ClosedPipe) {
            embedded.shutdown().await;
            return Err(failure);
        }
    }
    let failed = tokio::select! {
        _ = signals.next() => None,
        reason = embedded.failed() => Some(reason),
    };
    context.screen.say(&Line::new("stopping; unfinished executions continue at the next start"));
    embedded.shutdown().await;
    match failed {
        Some(reason) => Err(reason.into()),
        None => Ok(Exit::OK),
    }
}

fn announce(context: &Context, embedded: &EmbeddedServices, state_dir: &str) -> Result<(), Failure> {
    let socket = address(embedded.endpoint());
    let http = embedded.listening().map(|(address, token)| (format!("http://{address}"), token.as_str()));
    if context.screen.format != Format::Text {
        let url = http.map(|(url, _)| url);
        return Ok(context.screen.print_json(&json!({ "socket": socket, "listen": url, "stateDir": state_dir }))?);
    }
    // The token is for the person at the terminal; others may read files and logs.
    Ok(context.screen.print(&announcement(&socket, http, state_dir, context.screen.output_moves))?)
}

fn announcement(socket: &str, http: Option<(String, &str)>, state_dir: &str, to_a_person: bool) -> Vec<Line> {
    let mut rows = vec![("listens at", socket.to_owned())];
    if let Some((url, token)) = http {
        rows.push(("and at", url.clone()));
        if to_a_person {
            rows.push(("elsewhere", format!("BELAY_SERVER={url} BELAY_TOKEN={token} belay executions list")));
        }
    }
    rows.push(("keeps data in", state_dir.to_owned()));
    rows.push(("try here", "belay run plan.yaml   (commands of the same user find this server)".to_owned()));
    let rows: Vec<_> =
        rows.into_iter().map(|(name, value)| vec![(Style::Dim, name.to_owned()), (Style::Plain, value)]).collect();
    let mut lines = vec![Line::default().and(Style::Strong, "belay is serving; Ctrl-C stops it")];
    // Commands are copied, and a break in one would make two of it.
    lines.extend(table(&rows).into_iter().map(Line::verbatim));
    lines
}

fn address(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Unix(path) => format!("unix:{}", path.display()),
        Endpoint::Tcp { url, .. } => url.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_file_never_gets_the_token() {
        let text = |to_a_person| -> String {
            announcement("unix:/s/sock", Some(("http://127.0.0.1:7".to_owned(), "s3cret")), "/s", to_a_person)
                .iter()
                .map(|line| line.render(false) + "\n")
                .collect()
        };
        assert!(text(true).contains("BELAY_TOKEN=s3cret"));
        assert_eq!(
            text(false),
            "belay is serving; Ctrl-C stops it\n\
             \x20 listens at     unix:/s/sock\n\
             \x20 and at         http://127.0.0.1:7\n\
             \x20 keeps data in  /s\n\
             \x20 try here       belay run plan.yaml   (commands of the same user find this server)\n"
        );
    }
}

//! `belay audit`.

use belay_proto::v1::{AuditLevel, ListAuditEntriesRequest, ListAuditEntriesResponse, audit_entry};

use super::listing::{self, Extent};
use crate::{
    args::{ExecutionArg, help},
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    lookup, next,
    render::audit as render,
};

/// Print the audit log of an execution: what happened, when, how grave it is, and who asked for it
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay audit @last --level minimal\n  belay audit @last --all -o jsonl"))]
pub(crate) struct Audit {
    #[command(flatten)]
    which: ExecutionArg,
    /// Only entries about this step
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// How much is listed [default: what the plan says, else standard]
    #[arg(long, value_name = "LEVEL", value_enum)]
    level: Option<Level>,
    /// Only entries that are at least as grave
    #[arg(long, value_name = "SEVERITY", value_enum)]
    severity: Option<Severity>,
    #[command(flatten)]
    extent: Extent,
}

/// How much is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    /// The start and the end, the end of every step, failures, what people asked for and decided
    Minimal,
    /// Also starts of steps, retries, requests for approval, waits, committed changes
    Standard,
    /// Every event
    Verbose,
}

/// How grave an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Severity {
    /// All entries
    Info,
    /// Entries about what went wrong, was skipped, stopped or denied
    Warn,
    /// Entries about what failed for good
    Error,
}

/// Prints it.
pub(crate) async fn audit(context: &Context, verb: Audit) -> Result<Exit, Failure> {
    let level = match verb.level {
        None => AuditLevel::Unspecified,
        Some(Level::Minimal) => AuditLevel::Minimal,
        Some(Level::Standard) => AuditLevel::Standard,
        Some(Level::Verbose) => AuditLevel::Verbose,
    };
    let min_severity = match verb.severity {
        None => audit_entry::Severity::Unspecified,
        Some(Severity::Info) => audit_entry::Severity::Info,
        Some(Severity::Warn) => audit_entry::Severity::Warn,
        Some(Severity::Error) => audit_entry::Severity::Error,
    };
    let mut listed_level = level;
    let found = context.ask(Requirement::Records, async |client| {
        let name = lookup::resolve(client, &context.namespace, &verb.which.id).await?;
        let parent = verb.step.as_ref().map_or_else(|| name.clone(), |step| format!("{name}/steps/{step}"));
        let request = ListAuditEntriesRequest {
            parent,
            level: level.into(),
            min_severity: min_severity.into(),
            ..ListAuditEntriesRequest::default()
        };
        listing::wanted(&verb.extent, async |page_size, page_token| {
            let request = ListAuditEntriesRequest { page_size, page_token, ..request.clone() };
            let page = client.list_audit_entries(request).await.map_err(|status| {
                Failure::from(Report::of_status(&status).next(next::about(&["executions", "get"], &name, &[])))
            })?;
            let page = page.into_inner();
            listed_level = page.level();
            Ok((page.entries, page.next_page_token))
        })
        .await
    });
    let found = found.await?;
    listing::print(
        context,
        found,
        |entries, next_page_token| ListAuditEntriesResponse { entries, next_page_token, level: listed_level.into() },
        render::list,
        || "no entry of the audit log matches".to_owned(),
        &[],
    )
}

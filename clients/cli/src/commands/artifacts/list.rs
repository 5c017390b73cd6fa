//! `belay artifacts list`.

use belay_proto::v1::{ListArtifactsRequest, ListArtifactsResponse, artifact};

use super::super::listing::{self, Extent};
use crate::{
    args::{ExecutionArg, help},
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    lookup, next,
    render::{
        artifact as render,
        text::{Line, Style},
    },
};

/// List what an execution has produced: the outputs of its steps, and the files that their calls committed
///
/// In the order in which they were made. A step that ran again has the artifacts of each attempt that completed.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay artifacts list @last --kind file --path src/"))]
pub(crate) struct List {
    #[command(flatten)]
    which: ExecutionArg,
    /// Only those of this step
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// Only those of this kind
    #[arg(long, value_name = "KIND", value_enum)]
    kind: Option<Kind>,
    /// Only files whose path begins with this
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    path: String,
    #[command(flatten)]
    extent: Extent,
}

/// The artifacts to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// The outputs of steps
    Output,
    /// Changes that calls made to files
    File,
}

/// Lists them.
pub(crate) async fn list(context: &Context, verb: List) -> Result<Exit, Failure> {
    let mut unlisted = 0;
    let found = context.ask(Requirement::Records, async |client| {
        let name = lookup::resolve(client, &context.namespace, &verb.which.id).await?;
        let parent = verb.step.as_ref().map_or_else(|| name.clone(), |step| format!("{name}/steps/{step}"));
        let kind = match verb.kind {
            None => artifact::Kind::Unspecified,
            Some(Kind::Output) => artifact::Kind::Output,
            Some(Kind::File) => artifact::Kind::File,
        };
        let request = ListArtifactsRequest {
            parent,
            kind: kind.into(),
            path_prefix: verb.path.clone(),
            ..ListArtifactsRequest::default()
        };
        listing::wanted(&verb.extent, async |page_size, page_token| {
            let request = ListArtifactsRequest { page_size, page_token, ..request.clone() };
            let page = client.list_artifacts(request).await.map_err(|status| {
                Failure::from(Report::of_status(&status).next(next::about(&["executions", "get"], &name, &[])))
            })?;
            let page = page.into_inner();
            unlisted = page.unlisted_file_count;
            Ok((page.artifacts, page.next_page_token))
        })
        .await
    });
    let found = found.await?;
    let exit = listing::print(
        context,
        found,
        |artifacts, next_page_token| ListArtifactsResponse {
            artifacts,
            next_page_token,
            unlisted_file_count: unlisted,
        },
        render::list,
        || nothing(&verb),
        &[],
    )?;
    if unlisted > 0 {
        let what = format!(
            "{unlisted} more files were committed by calls that changed very many, and are not listed one by one"
        );
        context.screen.say(&Line::default().and(Style::Warn, what));
    }
    Ok(exit)
}

/// An empty list says what it looked for.
fn nothing(verb: &List) -> String {
    let what = match verb.kind {
        None => "artifact",
        Some(Kind::Output) => "output",
        Some(Kind::File) => "file",
    };
    let step = verb.step.as_ref().map(|step| format!(" of step {step}")).unwrap_or_default();
    let path =
        if verb.path.is_empty() { String::new() } else { format!(" with a path that begins with {}", verb.path) };
    format!("no {what}{step}{path} yet")
}

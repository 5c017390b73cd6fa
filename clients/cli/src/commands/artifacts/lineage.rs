//! `belay artifacts lineage`.

use belay_proto::v1::GetProvenanceRequest;

use super::{ArtifactArg, refused, resolve};
use crate::{
    args::{Format, help},
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    render::{artifact, json},
};

/// Show what an artifact derives from, and what derives from it
///
/// An output derives from those of the steps that its step depends on or reads with templates; a file from those as well, and from the file that it
/// replaced, if an earlier step wrote that. Which other files a call has read is not known.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay artifacts lineage @last report\n  belay artifacts lineage @last src/main.rs -o json"))]
pub(crate) struct Lineage {
    #[command(flatten)]
    one: ArtifactArg,
}

/// Shows it.
pub(crate) async fn lineage(context: &Context, verb: Lineage) -> Result<Exit, Failure> {
    let found = context
        .ask(Requirement::Records, async |client| {
            let (execution, name) = resolve(client, &context.namespace, &verb.one).await?;
            let request = GetProvenanceRequest { name: name.clone(), ..GetProvenanceRequest::default() };
            let found = client.get_provenance(request).await.map_err(|status| refused(&status, &execution, &name))?;
            Ok(found.into_inner())
        })
        .await?;
    let screen = context.screen;
    match screen.format {
        Format::Text => screen.print(&artifact::lineage(&found))?,
        Format::Json => screen.print_json(&json::of(&found)?)?,
        Format::Jsonl => {
            let lists = [("ancestor", &found.ancestors), ("descendant", &found.descendants)];
            let related = lists.into_iter().flat_map(|(relation, list)| list.iter().map(move |item| (relation, item)));
            for (relation, item) in found.artifact.iter().map(|item| ("self", item)).chain(related) {
                let mut value = json::of(item)?;
                if let serde_json::Value::Object(fields) = &mut value {
                    fields.insert("relation".to_owned(), relation.into());
                }
                screen.print_json(&value)?;
            }
        }
    }
    if screen.format != Format::Text {
        artifact::truncated(&found).iter().for_each(|line| screen.say(line));
    }
    Ok(Exit::OK)
}

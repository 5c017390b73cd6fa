//! `belay artifacts get`.

use belay_proto::v1::{Artifact, GetArtifactRequest};
use serde_json::Value;
use tonic::Status;

use super::{ArtifactArg, refused, resolve};
use crate::{
    args::{Format, help},
    connect::{Client, Requirement},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::{json, text::PrintableText},
};

/// Print the output of a step as it was returned
///
/// It is JSON, on standard output. The contents of files are not kept: they are in the workspace. With `-o json`, the artifact with its value in `output`.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay artifacts get @last build | jq .stdout"))]
pub(crate) struct Get {
    #[command(flatten)]
    one: ArtifactArg,
}

/// Prints it.
pub(crate) async fn get(context: &Context, verb: Get) -> Result<Exit, Failure> {
    let (artifact, text) = context
        .ask(Requirement::Records, async |client| {
            let (execution, name) = resolve(client, &context.namespace, &verb.one).await?;
            content(client, &name).await.map_err(|status| refused(&status, &execution, &name))
        })
        .await?;
    match context.screen.format {
        Format::Text => context.screen.print_text(&PrintableText::of_program(&text))?,
        Format::Json | Format::Jsonl => {
            let mut value = json::of(&artifact)?;
            let output = serde_json::from_str(&text).unwrap_or(Value::String(text));
            if let Value::Object(fields) = &mut value {
                fields.insert("output".to_owned(), output);
            }
            context.screen.print_json(&value)?;
        }
    }
    Ok(Exit::OK)
}

/// An artifact and its bytes. A stream that breaks continues where it was, as long as it brings something.
async fn content(client: &mut Client, name: &str) -> Result<(Artifact, String), Status> {
    let (mut artifact, mut bytes) = (Artifact::default(), Vec::new());
    loop {
        let before = bytes.len();
        let request = GetArtifactRequest { name: name.to_owned(), offset: i64::try_from(before).unwrap_or(i64::MAX) };
        let mut pieces = client.get_artifact(request).await?.into_inner();
        let end = loop {
            match pieces.message().await {
                Ok(Some(piece)) => {
                    artifact = piece.artifact.unwrap_or(artifact);
                    bytes.extend(piece.data);
                }
                Ok(None) => break None,
                Err(status) => break Some(status),
            }
        };
        match end {
            None => {
                let text = String::from_utf8(bytes).map_err(|_| Status::data_loss("the artifact is not UTF-8 text"))?;
                return Ok((artifact, text));
            }
            Some(status) if bytes.len() == before => return Err(status),
            Some(_) => {}
        }
    }
}

//! `belay models list`.

use belay_proto::v1::ListModelsResponse;

use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::{json, model, text::Line},
};

/// List the models that the settings have
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay models list"))]
pub(crate) struct List {}

/// Lists them.
pub(crate) async fn list(context: &Context, List {}: List) -> Result<Exit, Failure> {
    let models = super::ask(context, async |client, _| super::all(client).await).await?;
    match context.screen.format {
        Format::Jsonl => {
            for model in &models {
                context.screen.print_json(&json::of(model)?)?;
            }
        }
        Format::Json => {
            context.screen.print_json(&json::of(&ListModelsResponse { models, next_page_token: String::new() })?)?;
        }
        Format::Text if models.is_empty() => {
            context.screen.say(&Line::new(
                "the settings have no models: add one under `models`, as the page \"Models\" of the user guide shows",
            ));
        }
        Format::Text => context.screen.print(&model::list(&models))?,
    }
    Ok(Exit::OK)
}

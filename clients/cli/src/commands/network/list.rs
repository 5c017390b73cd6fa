//! `belay network list`.

use belay_all_in_one::{LoadedSettings, network::Profile};
use serde_json::json;

use super::{as_json, place, settings};
use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::text::{Line, Style, table},
};

/// List the network profiles that steps can ask for
///
/// The profiles of the operator's settings and the built-in ones, as services that start here would have them.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay network list"))]
pub(crate) struct List {}

/// Lists them.
pub(crate) async fn list(context: &Context, List {}: List) -> Result<Exit, Failure> {
    let loaded = settings(context).await?;
    let profiles: Vec<&Profile> = loaded.settings.network.profiles.iter().collect();
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&loaded, &profiles))?,
        Format::Json => {
            let all: Vec<_> = profiles.iter().map(|profile| as_json(&loaded, profile)).collect();
            context.screen.print_json(&json!({ "profiles": all }))?;
        }
        Format::Jsonl => {
            for profile in profiles {
                context.screen.print_json(&as_json(&loaded, profile))?;
            }
        }
    }
    Ok(Exit::OK)
}

fn lines(loaded: &LoadedSettings, profiles: &[&Profile]) -> Vec<Line> {
    let cells = |profile: &&Profile| {
        let fetching = if profile.fetch_only && !profile.is_closed() { "only fetches" } else { "" };
        vec![
            (Style::Strong, profile.name.clone()),
            (Style::Plain, contents(profile)),
            (Style::Plain, fetching.to_owned()),
            (Style::Dim, place(loaded, profile).unwrap_or_else(|| "built in".to_owned())),
        ]
    };
    table(&profiles.iter().map(cells).collect::<Vec<_>>())
}

/// The number of its rules and services.
fn contents(profile: &Profile) -> String {
    let counted = |number: usize, one: &str, more: &str| match number {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{number} {more}")),
    };
    let parts = [
        counted(profile.rules.len(), "rule", "rules"),
        counted(profile.host_services.len(), "service of this machine", "services of this machine"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "nothing but its own loopback".to_owned() } else { parts.join(", ") }
}

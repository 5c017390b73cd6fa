//! `belay network show`.

use belay_all_in_one::{
    LoadedSettings,
    network::{Profile, Rule},
};

use super::{as_json, fetching, find, place, settings};
use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::text::{Line, Style, table},
};

/// Show everything that commands under a network profile may reach, and where each rule comes from
///
/// Lists its own rules and those of all that it includes. Nothing else is open.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay network show registries"))]
pub(crate) struct Show {
    /// The profile's name
    #[arg(value_name = "NAME")]
    name: String,
}

/// Shows it.
pub(crate) async fn show(context: &Context, verb: Show) -> Result<Exit, Failure> {
    let loaded = settings(context).await?;
    let profile = find(&loaded, &verb.name)?;
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&loaded, profile))?,
        Format::Json | Format::Jsonl => context.screen.print_json(&as_json(&loaded, profile))?,
    }
    Ok(Exit::OK)
}

fn lines(loaded: &LoadedSettings, profile: &Profile) -> Vec<Line> {
    let place = place(loaded, profile).unwrap_or_else(|| "built in".to_owned());
    let mut lines = vec![Line::default().and(Style::Strong, &profile.name).and(Style::Dim, format!("  {place}"))];
    if profile.is_closed() {
        lines.push(Line::new("  nothing but its own loopback"));
        return lines;
    }
    let rules = profile.rules.iter().map(|rule| (rule.to_string(), &rule.origin));
    let services = profile.host_services.iter().map(|(address, origin)| (format!("this machine's {address}"), origin));
    let cells = |(what, origin): (String, _)| vec![(Style::Plain, what), (Style::Dim, format!("{origin}"))];
    lines.extend(table(&rules.chain(services).map(cells).collect::<Vec<_>>()));
    lines.push(Line::default());
    let mut facts = vec![("fetch only", fetching(loaded, profile))];
    if profile.rules.iter().any(Rule::is_unenforced_inside_tls) {
        let words = "methods and paths of the rules marked so: what is inside TLS is not read";
        facts.push(("not enforced", words.to_owned()));
    }
    facts.push(("addresses", addresses(profile).to_owned()));
    facts.push((
        "refused",
        "everything else: other names and ports, addresses instead of names, UDP, QUIC, IPv6".to_owned(),
    ));
    let cells = |(name, value): &(&str, String)| vec![(Style::Dim, (*name).to_owned()), (Style::Plain, value.clone())];
    lines.extend(table(&facts.iter().map(cells).collect::<Vec<_>>()));
    lines
}

/// The addresses that its hosts may lead to.
fn addresses(profile: &Profile) -> &'static str {
    match profile.rules.iter().any(|rule| rule.private_addresses) {
        true => "none of this machine or of a private network, except for the rules marked so",
        false => "none of this machine or of a private network, whatever a name leads to",
    }
}

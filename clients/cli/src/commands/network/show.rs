//! `belay network show`.

use belay_all_in_one::{
    LoadedSettings,
    network::{Profile, Rule},
};

use super::{as_json, carried, fetching, find, place, settings};
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
    lines.extend(credentials(loaded, profile));
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

/// The credentials of its rules and the URLs of its hosts, each with the variable that commands get.
fn credentials(loaded: &LoadedSettings, profile: &Profile) -> Vec<Line> {
    let heading = |text: &str| [Line::default(), Line::default().and(Style::Strong, text)];
    let dim = |text: &str| (Style::Dim, text.to_owned());
    let plain = |text: String| (Style::Plain, text);
    let mut lines = Vec::new();
    let all = profile.credentials();
    if !all.is_empty() {
        lines.extend(heading("credentials that the proxy puts into requests, and commands never have"));
        let mut rows = Vec::new();
        for credential in all.into_values() {
            let hosts: Vec<String> = credential.hosts.iter().map(ToString::to_string).collect();
            rows.push(vec![(Style::Plain, credential.name.clone()), plain(carried(loaded, credential))]);
            rows.push(vec![dim(""), plain(format!("for {}", hosts.join(", ")))]);
            if let Some(variable) = &credential.variable {
                rows.push(vec![dim(""), plain(format!("commands find a placeholder in ${variable}"))]);
            }
        }
        lines.extend(table(&rows));
    }
    let urls: Vec<_> = profile
        .base_urls()
        .map(|(rule, url)| {
            let path = if url.path.is_empty() { String::new() } else { format!(" with the path {}", url.path) };
            vec![plain(format!("${}", url.variable)), plain(format!("{}{path}", rule.host))]
        })
        .collect();
    if !urls.is_empty() {
        lines.extend(heading("hosts that are reached only at the URL in a variable"));
        lines.extend(table(&urls));
    }
    lines
}

/// The addresses that its hosts may lead to.
fn addresses(profile: &Profile) -> &'static str {
    match profile.rules.iter().any(|rule| rule.private_addresses) {
        true => "none of this machine or of a private network, except for the rules marked so",
        false => "none of this machine or of a private network, whatever a name leads to",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::sample, *};

    fn screen(profile: &str) -> String {
        let loaded = sample::settings();
        let lines = lines(&loaded, find(&loaded, profile).unwrap());
        lines.iter().map(|line| line.render(false) + "\n").collect()
    }

    #[test]
    fn the_credentials_and_urls_of_a_profile_are_listed_without_values() {
        let ci = screen("ci");
        let expected = "\
credentials that the proxy puts into requests, and commands never have
  github  in the header Authorization after `Bearer `, from the file /etc/belay/github.token
          for https://api.github.com:443, https://*.example.com:8443
          commands find a placeholder in $GH_TOKEN
  model   in the header x-api-key, from the command /usr/bin/print
          for https://api.model.example:443

hosts that are reached only at the URL in a variable
  $MODEL_URL  api.model.example with the path /v1
";
        assert!(ci.contains(expected), "{ci}");
        assert!(!ci.contains("of-the-model"), "arguments may be secret: {ci}");
        let registries = screen("registries");
        assert!(!registries.contains("credential") && !registries.contains("URL"), "{registries}");
    }

    #[test]
    fn programs_get_the_same() {
        let loaded = sample::settings();
        let value = as_json(&loaded, find(&loaded, "ci").unwrap());
        let expected = json!([
            {
                "name": "github",
                "source": { "kind": "FILE", "name": "/etc/belay/github.token" },
                "placement": { "header": "Authorization", "prefix": "Bearer " },
                "hosts": ["https://api.github.com:443", "https://*.example.com:8443"],
                "methods": ["GET", "POST"],
                "paths": ["/repos"],
                "variable": "GH_TOKEN",
            },
            {
                "name": "model",
                "source": { "kind": "COMMAND", "name": "/usr/bin/print" },
                "placement": { "header": "x-api-key", "prefix": "" },
                "hosts": ["https://api.model.example:443"],
                "methods": [],
                "paths": [],
                "variable": null,
            },
        ]);
        assert_eq!(value["credentials"], expected);
        let rules = value["rules"].as_array().unwrap();
        let model = rules.iter().find(|rule| rule["host"] == "api.model.example").unwrap();
        assert_eq!(model["credential"], "model");
        assert_eq!(model["baseUrl"], json!({ "variable": "MODEL_URL", "path": "/v1" }));
        assert_eq!(as_json(&loaded, find(&loaded, "registries").unwrap())["credentials"], json!([]));
    }
}

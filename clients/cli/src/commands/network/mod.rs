//! `belay network …`: the profiles of the settings that services which start here would get.

pub(crate) mod check;
pub(crate) mod list;
pub(crate) mod show;
mod target;

use belay_all_in_one::{
    LoadedSettings, Origin,
    network::{self, Credential, CredentialSource, Placement, Profile, Rule},
};
use belay_reasons as reasons;
use serde_json::{Value, json};

use crate::{
    context::Context,
    failure::{Failure, Report},
    lookup, next,
    render::text::clean,
};

/// Reads the settings.
async fn settings(context: &Context) -> Result<LoadedSettings, Failure> {
    let source = context.target.config.clone();
    let read = tokio::task::spawn_blocking(move || source.read()).await;
    Ok(read.map_err(|error| Failure::internal(format!("the settings could not be read: {error}")))??)
}

/// Finds a profile.
fn find<'a>(loaded: &'a LoadedSettings, name: &str) -> Result<&'a Profile, Failure> {
    let profiles = &loaded.settings.network.profiles;
    profiles.find(name).ok_or_else(|| {
        let known: Vec<String> = profiles.iter().map(|profile| profile.name.clone()).collect();
        let near = lookup::similar(name, &known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let message = format!("there is no network profile `{}`{near}", clean(name));
        Report::new(reasons::NETWORK_PROFILE_NOT_FOUND, message)
            .detail(format!("there are {}", known.join(", ")))
            .next(next::command(&["network", "list"]))
            .into()
    })
}

/// The file and line of a profile; `None` of a built-in one.
fn place(loaded: &LoadedSettings, profile: &Profile) -> Option<String> {
    match loaded.settings.network.origin_of(&profile.name) {
        Origin::Default => None,
        origin => Some(origin.shown(loaded.file.as_deref())),
    }
}

/// The source of a credential's value.
fn source_of<'a>(loaded: &'a LoadedSettings, name: &str) -> Option<&'a CredentialSource> {
    let known = loaded.settings.credentials.iter().map(|known| &known.value);
    known.into_iter().find(|known| known.credential.name == name).map(|known| &known.source)
}

/// The place of a credential in a request and its source: `in the header Authorization after `Bearer `, from the file /etc/x`.
fn carried(loaded: &LoadedSettings, credential: &Credential) -> String {
    match source_of(loaded, &credential.name) {
        Some(source) => format!("{}, from {source}", credential.placement),
        None => credential.placement.to_string(),
    }
}

/// Whether a call under it that was lost runs again automatically, and because of which profiles it does not.
fn fetching(loaded: &LoadedSettings, profile: &Profile) -> String {
    let beyond: Vec<&str> = loaded.settings.network.profiles.beyond_fetching(profile).into_iter().collect();
    match (profile.fetch_only, beyond.is_empty()) {
        (true, _) => "yes: a call that was lost may run again automatically".to_owned(),
        (false, true) => "no: a call that was lost does not run again automatically".to_owned(),
        (false, false) => {
            format!("no, because of {}: a call that was lost does not run again automatically", beyond.join(", "))
        }
    }
}

/// A profile for programs, with everything that it includes.
fn as_json(loaded: &LoadedSettings, profile: &Profile) -> Value {
    let place = place(loaded, profile);
    let services = profile.host_services.iter();
    json!({
        "name": profile.name,
        "builtIn": place.is_none(),
        "place": place,
        "rules": profile.rules.iter().map(rule_as_json).collect::<Vec<_>>(),
        "hostServices": services
            .map(|(address, origin)| with_origin(json!({ "address": address.to_string() }), origin))
            .collect::<Vec<_>>(),
        "credentials": profile
            .credentials()
            .into_values()
            .map(|credential| credential_as_json(loaded, credential))
            .collect::<Vec<_>>(),
        "fetchOnly": profile.fetch_only,
        "notFetchOnlyBecauseOf": loaded.settings.network.profiles.beyond_fetching(profile),
    })
}

/// A rule for programs.
fn rule_as_json(rule: &Rule) -> Value {
    let value = json!({
        "rule": rule.to_string(),
        "host": rule.host.to_string(),
        "ports": rule.ports.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "protocol": rule.protocol.word(),
        "methods": rule.methods,
        "paths": rule.paths,
        "notEnforcedInsideTls": rule.is_unenforced_inside_tls(),
        "privateAddresses": rule.private_addresses,
        "credential": rule.credential.as_ref().map(|credential| &credential.name),
        "baseUrl": rule.base_url.as_ref().map(|url| json!({ "variable": url.variable, "path": url.path })),
    });
    with_origin(value, &rule.origin)
}

/// A credential for programs, without its value.
fn credential_as_json(loaded: &LoadedSettings, credential: &Credential) -> Value {
    let source = source_of(loaded, &credential.name).map(|source| {
        let (kind, name) = match source {
            CredentialSource::File(file) => ("FILE", file.display().to_string()),
            CredentialSource::Environment(name) => ("ENVIRONMENT", name.clone()),
            CredentialSource::Systemd(name) => ("SYSTEMD", name.clone()),
            // Its arguments may be secret.
            CredentialSource::Command(words) => ("COMMAND", words.first().cloned().unwrap_or_default()),
        };
        json!({ "kind": kind, "name": name })
    });
    let placement = match &credential.placement {
        Placement::Header { name, prefix } => json!({ "header": name, "prefix": prefix }),
        Placement::Basic { user } => json!({ "basic": user }),
        Placement::Query { name } => json!({ "query": name }),
    };
    json!({
        "name": credential.name,
        "source": source,
        "placement": placement,
        "hosts": credential.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "methods": credential.methods,
        "paths": credential.paths,
        "variable": credential.variable,
    })
}

fn with_origin(mut value: Value, origin: &network::Origin) -> Value {
    value["profile"] = origin.profile.as_str().into();
    value["place"] = (!origin.place.is_empty()).then_some(origin.place.as_str()).into();
    value
}

#[cfg(test)]
mod sample;

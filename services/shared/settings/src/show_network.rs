//! Lists the network profiles, each with all its rules.

use belay_network::{Profile, UpstreamProxy};

use crate::{Network, NetworkLimits, Origin, Row, ValueWithOrigin, network::origin, size};

/// The certificate authorities, the limits, and each profile with its effective rules and services, those of what it includes too.
pub(crate) fn rows(network: &Network) -> impl Iterator<Item = Row> {
    let authorities = network.authorities.iter().enumerate().map(|(n, authority)| Row {
        key: format!("network.authorities[{n}]"),
        value: authority.value.display().to_string(),
        origin: authority.origin.clone(),
    });
    let none = network.authorities.is_empty().then(|| Row {
        key: "network.authorities".to_owned(),
        value: "none".to_owned(),
        origin: Origin::Default,
    });
    let of_profiles = network.profiles.iter().flat_map(|profile| of_profile(network, profile));
    let proxy = Row {
        key: "network.proxy".to_owned(),
        value: network.proxy.as_ref().map_or_else(|| "none".to_owned(), |proxy| shown_proxy(&proxy.value)),
        origin: network.proxy.as_ref().map_or(Origin::Default, |proxy| proxy.origin.clone()),
    };
    authorities.chain(none).chain([proxy]).chain(limits(&network.limits)).chain(of_profiles)
}

fn shown_proxy(proxy: &UpstreamProxy) -> String {
    let direct: Vec<String> = proxy.direct.iter().map(ToString::to_string).collect();
    if direct.is_empty() { proxy.to_string() } else { format!("{proxy}, and directly {}", direct.join(", ")) }
}

fn limits(limits: &NetworkLimits) -> [Row; 4] {
    let row = |key: &str, limit: &ValueWithOrigin<u64>, value: String| Row {
        key: format!("network.limits.{key}"),
        value,
        origin: limit.origin.clone(),
    };
    let NetworkLimits { bytes, connections, open_connections, idle } = limits;
    [
        row("bytes", bytes, size::shown(bytes.value)),
        row("connections", connections, connections.value.to_string()),
        row("open_connections", open_connections, open_connections.value.to_string()),
        row("idle", idle, format!("{}s", idle.value)),
    ]
}

fn of_profile(network: &Network, profile: &Profile) -> Vec<Row> {
    let lines = network.lines.get(&profile.name);
    let of_profile = network.origin_of(&profile.name);
    let row = |key: &str, value: String, origin: Origin| Row {
        key: format!("network.profiles.{}.{key}", profile.name),
        value,
        origin,
    };
    // The number of a rule of its own is that in the file.
    let mut own = 0..;
    let mut rows: Vec<Row> = Vec::new();
    for rule in &profile.rules {
        rows.push(match rule.origin.profile == profile.name {
            true => row(&format!("rules[{}]", own.next().unwrap_or(0)), rule.to_string(), origin(&rule.origin.place)),
            false => row("rules", format!("{rule}, from {}", rule.origin.profile), origin(&rule.origin.place)),
        });
    }
    for (address, from) in &profile.host_services {
        let value = match from.profile == profile.name {
            true => address.to_string(),
            false => format!("{address}, from {}", from.profile),
        };
        rows.push(row("host_services", value, origin(&from.place)));
    }
    if rows.is_empty() {
        return vec![row("rules", "none".to_owned(), of_profile)];
    }
    let fetch_only = lines.and_then(|lines| lines.fetch_only).map_or(of_profile, Origin::Line);
    let beyond: Vec<&str> = network.profiles.beyond_fetching(profile).into_iter().collect();
    let value = match beyond.is_empty() {
        true => profile.fetch_only.to_string(),
        false => format!("{} (because of {})", profile.fetch_only, beyond.join(", ")),
    };
    rows.push(row("fetch_only", value, fetch_only));
    rows
}

//! The network profiles that calls ask for. Pure.

use std::sync::Arc;

use belay_network::{Host, HostPattern, Profile, Profiles, Rule};

/// The reason why a call cannot have the network that it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkProblem {
    /// Its tool runs no command.
    NoCommand,
    /// Its tool makes requests, and no profile is asked for, or one that reaches nothing.
    NoNetwork,
    /// There is no profile of this name.
    NoProfile {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The profile has hosts, and the settings say that nothing beyond this machine is reached.
    AirGapped {
        /// The name.
        name: String,
    },
}

impl NetworkProblem {
    /// The problem with the name of the field.
    pub(crate) fn in_words(&self) -> String {
        format!("network: {}", self.message())
    }

    /// The problem, and what to do, after the name of the field.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::NoCommand => "is for calls that run a command or make requests, and this one does neither: remove it".to_owned(),
            Self::NoNetwork => "is required by this tool, which reaches only the hosts of a network profile: add `network: PROFILE` to the step, with one of `belay network list`".to_owned(),
            Self::NoProfile { name, known } => format!(
                "`{}` is not a network profile of the runner's settings: use one of {}, or ask the operator for another",
                name.escape_debug(),
                known.join(", ")
            ),
            Self::AirGapped { name } => format!(
                "`{}` has hosts on other machines, and the runner's settings say `air_gapped: true`: nothing beyond this machine is reached",
                name.escape_debug()
            ),
        }
    }
}

/// The profile of this name; `None` when it has nothing beyond loopback. `air_gapped`: nothing beyond this machine is reached.
///
/// # Errors
/// [`NetworkProblem::NoProfile`] or [`NetworkProblem::AirGapped`].
pub(crate) fn find(profiles: &Profiles, name: &str, air_gapped: bool) -> Result<Option<Arc<Profile>>, NetworkProblem> {
    match profiles.find(name) {
        Some(profile) if profile.is_closed() => Ok(None),
        Some(profile) if air_gapped && profile.leaves_this_machine() => {
            Err(NetworkProblem::AirGapped { name: name.to_owned() })
        }
        Some(profile) => Ok(Some(Arc::new(profile.clone()))),
        None => {
            let known = profiles.iter().map(|profile| profile.name.clone()).collect();
            Err(NetworkProblem::NoProfile { name: name.to_owned(), known })
        }
    }
}

/// The hosts of a profile, as policies see them: each once, in the order of its rules, then the services of this machine.
pub(crate) fn hosts(profile: &Profile) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    let named = profile.rules.iter().map(|rule| HostPattern::to_string(&rule.host));
    let services = profile.host_services.iter().map(|(address, _)| address.to_string());
    for host in named.chain(services) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// The names of the credentials that the rules of a profile have: each once, in their order. `asked`: the only hosts that are asked; empty for all of the profile.
pub(crate) fn credentials(profile: &Profile, asked: &[String]) -> Vec<String> {
    let may_be_asked = |rule: &&Rule| {
        // What is no name of a host is an address, which no pattern excludes.
        let meets = |host: &String| Host::parse(host).map_or(true, |host| rule.host.matches(&host));
        asked.is_empty() || asked.iter().any(meets)
    };
    let mut names: Vec<String> = Vec::new();
    for credential in profile.rules.iter().filter(may_be_asked).filter_map(|rule| rule.credential.as_deref()) {
        if !names.contains(&credential.name) {
            names.push(credential.name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use belay_network::{Credential, DraftCredential, DraftProfile, DraftRule};

    use super::*;

    fn profiles() -> Profiles {
        let rule = |host: &str| DraftRule { host: host.to_owned(), ..DraftRule::default() };
        let draft = DraftProfile {
            name: "ci".to_owned(),
            rules: vec![rule("a.example.com"), rule("*.b.example.com"), rule("a.example.com")],
            host_services: vec!["127.0.0.1:5432".to_owned()],
            ..DraftProfile::default()
        };
        Profiles::new(&[draft]).unwrap()
    }

    #[test]
    fn a_profile_is_found_by_its_name_and_a_closed_one_is_no_network() {
        let profiles = profiles();
        assert_eq!(find(&profiles, "ci", false).unwrap().unwrap().name, "ci");
        assert_eq!((find(&profiles, "none", false), find(&profiles, "loopback", false)), (Ok(None), Ok(None)));
        let problem = find(&profiles, "cii", false).unwrap_err().message();
        assert!(
            problem.contains("`cii`") && problem.contains("ci, git-https, loopback, none, registries"),
            "{problem}"
        );
    }

    // S2-X-28.
    #[test]
    fn in_air_gapped_mode_only_services_of_this_machine_are_left() {
        let own = DraftProfile {
            name: "own".to_owned(),
            host_services: vec!["127.0.0.1:5432".to_owned()],
            ..DraftProfile::default()
        };
        let profiles = Profiles::new(&[own]).unwrap();
        assert_eq!(find(&profiles, "own", true).unwrap().unwrap().name, "own");
        assert_eq!(find(&profiles, "none", true), Ok(None));
        let problem = find(&profiles, "registries", true).unwrap_err();
        assert!(problem.message().contains("`air_gapped: true`"), "{problem:?}");
        assert!(matches!(find(&profiles, "registires", true), Err(NetworkProblem::NoProfile { .. })));
    }

    /// B-33: a tool that asks one host uses what is for that host.
    #[test]
    fn a_policy_sees_each_credential_that_may_be_used() {
        let credential = |name: &str, host: &str| {
            let hosts = vec![format!("https://{host}")];
            Credential::new(&DraftCredential { name: name.to_owned(), hosts, ..DraftCredential::default() }).unwrap()
        };
        let rule = |host: &str, credential: &str| DraftRule {
            host: host.to_owned(),
            credential: Some(credential.to_owned()),
            ..DraftRule::default()
        };
        let draft = DraftProfile {
            name: "ci".to_owned(),
            rules: vec![
                rule("b.example.com", "second"),
                rule("a.example.com", "first"),
                DraftRule { methods: vec!["GET".to_owned()], ..rule("b.example.com", "second") },
                DraftRule { host: "c.example.com".to_owned(), ..DraftRule::default() },
            ],
            ..DraftProfile::default()
        };
        let all = [credential("first", "a.example.com"), credential("second", "b.example.com")];
        let profiles = Profiles::with_credentials(&[draft], &all).unwrap();
        let of = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|host| (*host).to_owned()).collect();
            credentials(profiles.find("ci").unwrap(), &asked)
        };
        assert_eq!(of(&[]), ["second", "first"]);
        assert_eq!((of(&["a.example.com"]), of(&["c.example.com"])), (vec!["first".to_owned()], Vec::new()));
        assert_eq!(of(&["not a host"]), ["second", "first"]);
    }

    #[test]
    fn a_policy_sees_each_host_once() {
        let profiles = profiles();
        assert_eq!(hosts(profiles.find("ci").unwrap()), ["a.example.com", "*.b.example.com", "127.0.0.1:5432"]);
    }
}

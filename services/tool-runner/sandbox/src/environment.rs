//! The environment of a command.

use std::ffi::OsString;

use crate::{HOME, settings::Settings};

/// The variables that every command gets besides `PATH`. The operator's variables and those of the call override them.
pub(crate) const DEFAULTS: &[(&str, &str)] = &[
    ("HOME", HOME),
    ("TMPDIR", "/tmp"),
    ("USER", "belay"),
    ("LOGNAME", "belay"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    // Git sees only the configuration of the repository, and never prompts.
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // What package managers would ask for beyond packages.
    ("npm_config_audit", "false"),
    ("npm_config_fund", "false"),
    ("npm_config_update_notifier", "false"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("GOTOOLCHAIN", "local"),
];

/// The variables of a command without a network: package managers run in offline mode, so that they fail at once instead of retrying for minutes. They still
/// find what is in a cache or vendored.
pub(crate) const OFFLINE: &[(&str, &str)] = &[
    ("npm_config_offline", "true"),
    ("YARN_ENABLE_NETWORK", "0"),
    // One retry, after a quarter of a second: with none pip does not say why it found nothing.
    ("PIP_RETRIES", "1"),
    ("UV_OFFLINE", "1"),
    ("CARGO_NET_OFFLINE", "true"),
    ("GOPROXY", "off"),
    ("MAVEN_ARGS", "--offline"),
    ("COMPOSER_DISABLE_NETWORK", "1"),
];

/// The complete environment of a command: the defaults of the sandbox, with those of a command without a network if it has none; then the operator's, then those
/// of the call; later ones override.
pub(crate) fn environment(
    settings: &Settings,
    has_network: bool,
    call: Vec<(String, OsString)>,
) -> Vec<(String, OsString)> {
    let mut all: Vec<(String, OsString)> = vec![("PATH".to_owned(), settings.path_value())];
    let offline = if has_network { &[] } else { OFFLINE };
    all.extend(DEFAULTS.iter().chain(offline).map(|(name, value)| ((*name).to_owned(), value.into())));
    for (name, value) in settings.env.iter().cloned().chain(call) {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => all.push((name, value)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_variable_wins() {
        let env = [("TZ", "CET"), ("TEAM", "a"), ("GOPROXY", "file:///opt/proxy")];
        let env = env.map(|(name, value)| (name.to_owned(), value.into())).to_vec();
        let all = environment(&Settings { env, ..Settings::default() }, false, vec![("TEAM".into(), "b".into())]);
        let value = |name: &str| {
            all.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let expected = ["CET", "b", "file:///opt/proxy", HOME].map(|value| vec![OsString::from(value)]);
        assert_eq!(["TZ", "TEAM", "GOPROXY", "HOME"].map(value), expected);
    }

    #[test]
    fn only_a_command_without_a_network_is_offline() {
        let offline = |has_network| {
            let all = environment(&Settings::default(), has_network, Vec::new());
            OFFLINE.iter().filter(|(name, _)| all.iter().any(|(known, _)| known == name)).count()
        };
        assert_eq!((offline(false), offline(true)), (OFFLINE.len(), 0));
    }
}

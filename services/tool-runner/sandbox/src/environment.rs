//! The variables of a command.

use std::ffi::OsString;

use crate::{HOME, settings::Settings};

/// What every command gets beside `PATH`, and why. The operator's variables and the call's count over these.
pub(crate) const DEFAULTS: &[(&str, &str)] = &[
    ("HOME", HOME),
    ("TMPDIR", "/tmp"),
    ("USER", "belay"),
    ("LOGNAME", "belay"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    // A repository's own configuration is all the git there is: no system, no user, no questions.
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // Package managers: there is no network, so that each should say so at once instead of trying again for minutes. What is in a
    // cache or a vendored folder they still find.
    ("npm_config_offline", "true"),
    ("npm_config_audit", "false"),
    ("npm_config_fund", "false"),
    ("npm_config_update_notifier", "false"),
    ("YARN_ENABLE_NETWORK", "0"),
    // One, after a quarter of a second: with none pip does not say why it found nothing.
    ("PIP_RETRIES", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("UV_OFFLINE", "1"),
    ("CARGO_NET_OFFLINE", "true"),
    ("GOPROXY", "off"),
    ("GOTOOLCHAIN", "local"),
    ("MAVEN_ARGS", "--offline"),
    ("COMPOSER_DISABLE_NETWORK", "1"),
];

/// The whole environment of a command: the sandbox's, then the operator's, then the call's; of equal names the last counts.
pub(crate) fn environment(settings: &Settings, call: Vec<(String, OsString)>) -> Vec<(String, OsString)> {
    let mut all: Vec<(String, OsString)> = vec![("PATH".to_owned(), settings.path_value())];
    all.extend(DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), value.into())));
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
    fn of_variables_with_the_same_name_the_most_particular_counts() {
        let env = [("TZ", "CET"), ("TEAM", "a"), ("GOPROXY", "file:///opt/proxy")];
        let env = env.map(|(name, value)| (name.to_owned(), value.into())).to_vec();
        let all = environment(&Settings { env, ..Settings::default() }, vec![("TEAM".into(), "b".into())]);
        let value = |name: &str| {
            all.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let expected = ["CET", "b", "file:///opt/proxy", HOME].map(|value| vec![OsString::from(value)]);
        assert_eq!(["TZ", "TEAM", "GOPROXY", "HOME"].map(value), expected);
    }
}

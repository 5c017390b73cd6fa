//! Finds the settings file and reads it.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use belay_redaction::Redactor;
use belay_yaml::Violation;
use thiserror::Error;

use crate::{
    File, Origin, ResolvedCommands, Settings, credential_files,
    exposure::exposed,
    read_rules::{self, RulesError},
    sources,
};

/// The file of the machine.
const MACHINE: &str = "/etc/belay/config.yaml";
/// The largest file that is read, in bytes; the limit of the format is smaller, and its error is more precise.
const MAX_FILE: u64 = 1 << 20;

/// Settings and their file.
#[derive(Clone, Debug, Default)]
pub struct LoadedSettings {
    /// The settings.
    pub settings: Settings,
    /// The file; `None` if there is none, and every value is the default.
    pub file: Option<PathBuf>,
    /// The searched locations, in order; empty if the caller named a file.
    pub looked_in: Vec<PathBuf>,
    /// The redactor, with the rules of `secrets.rules_file`.
    pub redactor: Redactor,
}

impl LoadedSettings {
    /// Refuses settings that show the state directory of a Belay to commands, whose keys and sockets decide what commands may do, and credentials
    /// that lie in one. `state_dir` is the service's own; `find` returns one that a path is, lies in, or contains.
    ///
    /// # Errors
    /// [`ConfigError::Refused`] with all of them.
    pub fn refuse_state_directories(
        &self,
        state_dir: &Path,
        find: &dyn Fn(&Path) -> Option<PathBuf>,
    ) -> Result<(), ConfigError> {
        let mut violations = sources::state_directories(&self.settings, state_dir, find);
        violations.extend(credential_files::in_state_directories(&self.settings, state_dir, find));
        if violations.is_empty() { Ok(()) } else { Err(self.refused(violations)) }
    }

    /// Refuses credentials whose files commands would see with the toolchains and caches that were found on this machine.
    ///
    /// # Errors
    /// [`ConfigError::Refused`] with all of them.
    pub fn refuse_visible_credentials(&self, here: &ResolvedCommands) -> Result<(), ConfigError> {
        let shown = sources::shown_paths(&self.settings, Some(here));
        let violations = credential_files::visible(&self.settings, &shown);
        if violations.is_empty() { Ok(()) } else { Err(self.refused(violations)) }
    }

    /// The files with the values of credentials and the programs that print them, which no workspace may contain: its commands could read or change
    /// them.
    pub fn credential_paths(&self) -> Vec<PathBuf> {
        self.settings.credentials.iter().filter_map(|credential| credential.value.path()).map(Path::to_owned).collect()
    }

    /// The error about a field of the file that only a service can judge, such as a schema.
    pub fn refuse(&self, field: &str, message: impl Into<String>) -> ConfigError {
        let is_of = |section: &str, name: &str| {
            let rest = field.strip_prefix(section).and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let tool = self.settings.tools.iter().find(|tool| is_of("tools.", &tool.value.name));
        // A name may have a dot, so that one can be the beginning of another.
        let credentials = self.settings.credentials.iter();
        let credential = credentials
            .filter(|credential| is_of("credentials.", &credential.value.credential.name))
            .max_by_key(|credential| credential.value.credential.name.len());
        let webhook = self.settings.webhooks.iter().find(|hook| field == format!("webhooks.{}.secret_file", hook.name));
        let server = self.settings.mcp_servers.iter().find(|server| is_of("mcp_servers.", &server.value.name));
        let agent = self.settings.agents.iter().find(|agent| is_of("agents.", &agent.value.name));
        let origin = tool
            .map(|tool| &tool.origin)
            .or(server.map(|server| &server.origin))
            .or(agent.map(|agent| &agent.origin))
            .or(credential.map(|credential| &credential.origin));
        let origin = origin.or(webhook.map(|webhook| &webhook.secret_file.origin));
        let web = self.settings.research.web.as_ref().filter(|_| field.starts_with("research.web."));
        let origin = origin.or(web.map(|web| &web.origin));
        let line = match origin {
            Some(Origin::Line(line)) => *line,
            _ => 0,
        };
        self.refused(vec![Violation { field: field.to_owned(), line, message: message.into() }])
    }

    /// The error about these fields of the file.
    pub(crate) fn refused(&self, violations: Vec<Violation>) -> ConfigError {
        let path = self.file.clone().unwrap_or_default();
        let text = fs::read_to_string(&path).unwrap_or_default();
        ConfigError::Refused { path, text, violations }
    }
}

/// The settings file cannot be used. Belay does not start, and uses no other file instead.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the settings file {} cannot be read: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Other users can change the file.
    #[error("the settings file {} {problem}; it decides which host files commands can read", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The users that can change it, and what to do.
        problem: String,
    },
    /// The file is invalid.
    #[error("the settings file {} is invalid: {}", .path.display(), messages(.violations))]
    Refused {
        /// The file.
        path: PathBuf,
        /// The text.
        text: String,
        /// All violations.
        violations: Vec<Violation>,
    },
    /// The file of rules that the settings name is invalid.
    #[error("the file of rules {} (secrets.rules_file) is invalid: {}", .path.display(), messages(.violations))]
    RulesRefused {
        /// The file of rules.
        path: PathBuf,
        /// Its text.
        text: String,
        /// All violations.
        violations: Vec<Violation>,
    },
}

impl ConfigError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. }
            | Self::Exposed { path, .. }
            | Self::Refused { path, .. }
            | Self::RulesRefused { path, .. } => path,
        }
    }
}

fn messages(violations: &[Violation]) -> String {
    let all: Vec<_> = violations.iter().take(10).map(ToString::to_string).collect();
    all.join("; ")
}

/// Loads the settings from the file `named`, else from `$XDG_CONFIG_HOME/belay/config.yaml` (or `~/.config/belay/config.yaml`), else from
/// `/etc/belay/config.yaml`; else the defaults. Never from a workspace: commands can write there, and the settings restrict commands.
///
/// # Errors
/// [`ConfigError`] if the file cannot be used. A file that the caller names must exist.
pub fn load(named: Option<&Path>, env: &dyn Fn(&str) -> Option<OsString>) -> Result<LoadedSettings, ConfigError> {
    let from = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = from("HOME").filter(|home| home.is_absolute());
    // An empty variable counts as unset.
    if let Some(path) = named.filter(|path| !path.as_os_str().is_empty()) {
        let (settings, redactor) = read(path, home.as_deref())?;
        return Ok(LoadedSettings { settings, file: Some(path.to_owned()), looked_in: Vec::new(), redactor });
    }
    let own = from("XDG_CONFIG_HOME").filter(|folder| folder.is_absolute());
    let own = own.or_else(|| home.as_ref().map(|home| home.join(".config")));
    let looked_in: Vec<_> =
        own.into_iter().map(|folder| folder.join("belay/config.yaml")).chain([MACHINE.into()]).collect();
    // A file that exists and cannot be read is an error, not a reason to use the next one.
    let file = looked_in.iter().find(|file| file.try_exists().unwrap_or(true)).cloned();
    let read = file.as_deref().map(|file| read(file, home.as_deref())).transpose()?;
    let (settings, redactor) = read.unwrap_or_default();
    Ok(LoadedSettings { settings, file, looked_in, redactor })
}

fn read(path: &Path, home: Option<&Path>) -> Result<(Settings, Redactor), ConfigError> {
    let unreadable = |why: String| ConfigError::Unreadable { path: path.to_owned(), why };
    let file = fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("it is not a regular file".to_owned()));
    }
    if metadata.len() > MAX_FILE {
        return Err(unreadable("it is longer than 1 MiB".to_owned()));
    }
    if let Some(problem) = exposed(metadata.uid(), metadata.mode(), rustix::process::geteuid().as_raw()) {
        return Err(ConfigError::Exposed { path: path.to_owned(), problem });
    }
    let text = io::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    let refused = |text: String, violations| ConfigError::Refused { path: path.to_owned(), text, violations };
    let mut settings = match File::parse_from(&text, home, Some(path)) {
        Ok(settings) => settings,
        Err(violations) => return Err(refused(text, violations)),
    };
    let mut violations = sources::resolve(&mut settings, home);
    violations.extend(credential_files::visible(&settings, &sources::shown_paths(&settings, None)));
    if !violations.is_empty() {
        return Err(refused(text, violations));
    }
    let Some(rules_file) = settings.secrets.rules_file.clone() else { return Ok((settings, Redactor::new())) };
    let rules = read_rules::read(&rules_file.value).map_err(|why| match why {
        RulesError::Content(text, violations) => {
            ConfigError::RulesRefused { path: rules_file.value.clone(), text, violations }
        }
        RulesError::File(message) => {
            let line = if let Origin::Line(line) = rules_file.origin { line } else { 0 };
            refused(text, vec![Violation { field: "secrets.rules_file".to_owned(), line, message }])
        }
    })?;
    settings.secrets.rules = rules.names;
    Ok((settings, rules.redactor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_of_belay_and_root_may_write_the_file() {
        assert_eq!(exposed(0, 0o100_644, 1000), None);
        assert_eq!(exposed(1000, 0o100_664, 1000), None);
        assert!(exposed(1001, 0o100_644, 1000).unwrap().contains("uid 1001"));
        assert!(exposed(1000, 0o100_646, 1000).unwrap().contains("0646"));
    }

    #[test]
    fn the_file_of_the_user_takes_precedence_over_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        let env = |name: &str| (name == "XDG_CONFIG_HOME").then(|| folder.path().into());
        let own = folder.path().join("belay/config.yaml");
        fs::create_dir(folder.path().join("belay")).unwrap();
        fs::write(&own, "log: {level: warn}\n").unwrap();
        let loaded = load(None, &env).unwrap();
        assert_eq!((loaded.file.as_deref(), loaded.looked_in[0].as_path()), (Some(own.as_path()), own.as_path()));
        assert_eq!(loaded.looked_in[1], Path::new(MACHINE));
        assert_eq!(loaded.settings.log.level.value, crate::LogLevel::Warn);

        let other = folder.path().join("other.yaml");
        fs::write(&other, "").unwrap();
        assert_eq!(load(Some(&other), &env).unwrap().file, Some(other), "a named file is the only one that counts");
    }

    #[test]
    fn the_rules_of_the_file_that_is_named_hide_what_they_match() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rules) = (folder.path().join("config.yaml"), folder.path().join("rules.yaml"));
        fs::write(&path, format!("log: {{level: warn}}\nsecrets:\n  rules_file: {}\n", rules.display())).unwrap();
        let load = || load(Some(&path), &|_| None);

        let error = load().unwrap_err().to_string();
        assert!(
            error.contains("line 3: secrets.rules_file: ") && error.contains("rules.yaml` cannot be read"),
            "{error}"
        );

        fs::write(&rules, "rules:\n- {name: acme-token, pattern: 'acme_[0-9]{4}('}\n").unwrap();
        let error = load().unwrap_err();
        assert_eq!(error.path(), rules);
        let error = error.to_string();
        assert!(error.contains("rules.yaml (secrets.rules_file) is invalid: line 2: rules[0].pattern: "), "{error}");
        assert!(error.contains("unclosed group (rule `acme-token`)"), "{error}");

        fs::write(&rules, "rules:\n- {name: acme-token, pattern: 'acme_[0-9]{4}'}\n").unwrap();
        let loaded = load().unwrap();
        assert_eq!(loaded.settings.secrets.rules, ["acme-token"]);
        assert_eq!(loaded.redactor.redact_text("an acme_1234 token").text, "an [REDACTED] token");

        let mut mode = fs::metadata(&rules).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o666);
        fs::set_permissions(&rules, mode).unwrap();
        assert!(load().unwrap_err().to_string().contains("is writable by all users"));
    }

    #[test]
    fn a_named_file_must_exist_and_be_a_regular_file() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("none.yaml"), folder.path().to_owned()] {
            assert!(matches!(load(Some(&path), &|_| None), Err(ConfigError::Unreadable { .. })), "{}", path.display());
        }
        let long = folder.path().join("long.yaml");
        fs::write(&long, " ".repeat(usize::try_from(MAX_FILE).unwrap() + 1)).unwrap();
        assert!(load(Some(&long), &|_| None).unwrap_err().to_string().ends_with("longer than 1 MiB"));
    }

    #[test]
    fn an_invalid_file_is_reported_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "log:\n  lvel: info\n").unwrap();
        let error = load(Some(&path), &|_| None).unwrap_err();
        assert!(
            error.to_string().contains("line 2: log.lvel: there is no key `lvel` here; did you mean `level`?"),
            "{error}"
        );
    }
}

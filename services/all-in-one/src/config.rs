//! The operator's settings in this process.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use belay_settings::{
    ResolvedCommands,
    toolchains::{Caller, Host, VARIABLES},
};

// Re-exported for clients that show settings.
pub use belay_settings::{ConfigError, LoadedSettings, OperatorCredential, Origin, Row, ValueWithOrigin, Violation};

/// Variables that locate the settings and the toolchains, besides those that name toolchains.
const LOCATIONS: [&str; 3] = ["HOME", "PATH", "XDG_CONFIG_HOME"];
/// Variables that override settings.
const OVERRIDES: [&str; 2] = ["BELAY_LOG", "BELAY_LOG_FORMAT"];

/// The source of the operator's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// A named file, instead of the default locations.
    named: Option<PathBuf>,
    env: BTreeMap<&'static str, OsString>,
}

/// The operator's settings on this machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings and their file.
    pub loaded: LoadedSettings,
    /// The section `commands`, resolved with the toolchains and caches of the user who started the services.
    pub commands: ResolvedCommands,
    env: BTreeMap<&'static str, OsString>,
}

impl ConfigSource {
    /// Uses the named file, else the default locations in this environment.
    pub fn new(named: Option<PathBuf>, env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let names = LOCATIONS.into_iter().chain(OVERRIDES).chain(VARIABLES);
        Self { named, env: names.filter_map(|name| Some((name, env(name)?))).collect() }
    }

    /// The user who starts the services.
    pub(crate) fn caller(&self) -> Caller {
        Caller::from_env(&|name| self.variable(name))
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        self.env.get(name).cloned()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be used.
    pub fn read(&self) -> Result<LoadedSettings, ConfigError> {
        belay_settings::load(self.named.as_deref(), &|name| self.variable(name))
    }

    /// Reads the file and resolves the settings on this machine. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be used.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let loaded = self.read()?;
        let caller = self.caller();
        let commands = ResolvedCommands::of(loaded.settings.commands.clone(), Some(&caller), &Host);
        loaded.refuse_visible_credentials(&commands)?;
        Ok(Config { loaded, commands, env: self.env.clone() })
    }
}

impl Config {
    /// Each setting with its value and its origin.
    pub fn rows(&self) -> Vec<Row> {
        belay_settings::rows(&self.loaded.settings, &self.commands, &|name| self.env.get(name).cloned())
    }
}

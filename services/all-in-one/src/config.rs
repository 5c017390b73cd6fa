//! The operator's settings, as whoever starts the services in this process has them.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use belay_settings::{
    Loaded, Resolved,
    toolchains::{Caller, Host, VARIABLES},
};

// The vocabulary of whoever shows settings.
pub use belay_settings::{ConfigError, Origin, Row, Violation};

/// Variables that say where the settings and the toolchains are, beside those that name toolchains.
const PLACES: [&str; 3] = ["HOME", "PATH", "XDG_CONFIG_HOME"];
/// Variables that count over settings.
const OVER: [&str; 2] = ["BELAY_LOG", "BELAY_LOG_FORMAT"];

/// Where the operator's settings come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// The file that is named, instead of the customary ones.
    named: Option<PathBuf>,
    env: BTreeMap<&'static str, OsString>,
}

/// The operator's settings on this machine.
#[derive(Clone, Debug)]
pub struct Config {
    /// The settings, and the file they come from.
    pub loaded: Loaded,
    /// The section `commands`, with the toolchains and caches of whoever started the services.
    pub commands: Resolved,
    env: BTreeMap<&'static str, OsString>,
}

impl ConfigSource {
    /// The file that is named, else the customary ones, in this environment.
    pub fn new(named: Option<PathBuf>, env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let names = PLACES.into_iter().chain(OVER).chain(VARIABLES);
        Self { named, env: names.filter_map(|name| Some((name, env(name)?))).collect() }
    }

    /// Who starts the services.
    pub(crate) fn caller(&self) -> Caller {
        Caller::from_env(&|name| self.variable(name))
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        self.env.get(name).cloned()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`ConfigError`] when the file that counts cannot be used.
    pub fn read(&self) -> Result<Loaded, ConfigError> {
        belay_settings::load(self.named.as_deref(), &|name| self.variable(name))
    }

    /// Reads the file, and looks at this machine. Blocks for some milliseconds.
    ///
    /// # Errors
    /// [`ConfigError`] when the file that counts cannot be used.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let loaded = self.read()?;
        let caller = self.caller();
        let commands = Resolved::of(loaded.settings.commands.clone(), Some(&caller), &Host);
        Ok(Config { loaded, commands, env: self.env.clone() })
    }
}

impl Config {
    /// Each setting with its value and its origin.
    pub fn rows(&self) -> Vec<Row> {
        belay_settings::rows(&self.loaded.settings, &self.commands, &|name| self.env.get(name).cloned())
    }
}

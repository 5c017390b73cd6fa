//! The user who started the services: the environment that locates their toolchains.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

/// Variables that name a toolchain.
pub(super) const HOMES: [&str; 5] = ["JAVA_HOME", "GOROOT", "MAVEN_HOME", "M2_HOME", "GRADLE_HOME"];

/// The variables that are read from the caller.
pub const VARIABLES: [&str; 27] = [
    "ASDF_DATA_DIR",
    "CARGO_HOME",
    "DENO_INSTALL",
    "BUN_INSTALL",
    "GOBIN",
    "GOMODCACHE",
    "GOPATH",
    "GOROOT",
    "GRADLE_HOME",
    "GRADLE_USER_HOME",
    "JAVA_HOME",
    "M2_HOME",
    "MAVEN_HOME",
    "MISE_DATA_DIR",
    "NODENV_ROOT",
    "NODENV_VERSION",
    "NVM_DIR",
    "PIP_CACHE_DIR",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "RBENV_ROOT",
    "RBENV_VERSION",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "npm_config_cache",
];

/// The user who started the services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Their home directory.
    pub home: Option<PathBuf>,
    /// Their PATH.
    pub path: Vec<PathBuf>,
    /// The [`VARIABLES`] that are set.
    pub env: BTreeMap<&'static str, String>,
}

impl Caller {
    /// Reads the caller from an environment.
    pub fn from_env(env: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| env(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty());
        Self {
            home: text("HOME").map(PathBuf::from).filter(|home| home.is_absolute()),
            path: env("PATH")
                .map(|path| std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty()).collect())
                .unwrap_or_default(),
            env: VARIABLES.into_iter().filter_map(|name| Some((name, text(name)?))).collect(),
        }
    }

    /// A variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str)
    }

    /// The directory that a variable names.
    pub(crate) fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute())
    }

    /// The directory that a variable names, else this one in the home directory.
    pub(crate) fn folder_or(&self, name: &str, in_home: &str) -> Option<PathBuf> {
        self.folder(name).or_else(|| self.home.as_ref().map(|home| home.join(in_home)))
    }
}

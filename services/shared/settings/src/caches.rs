//! Caches of package managers: whose they are, and what becomes of what a command writes there.

use std::path::PathBuf;

/// What commands do with a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// They have none.
    Off,
    /// They see the person's own cache, and what they change in it is dropped when they end.
    Read,
    /// They have one of Belay's own, for one workspace and one namespace. It outlives the command; no program outside reads it.
    Keep,
}

impl CacheUse {
    /// The word in the settings file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Read => "read",
            Self::Keep => "keep",
        }
    }
}

/// A cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its name in the settings.
    pub name: String,
    /// What commands do with it.
    pub used: CacheUse,
    /// The person's own, for [`CacheUse::Read`]; `None` where it is to be looked for at its customary place.
    pub from: Option<PathBuf>,
    /// Where commands see it, relative to their home directory.
    pub at: PathBuf,
}

/// A cache whose places are known.
#[derive(Clone, Copy, Debug)]
pub struct KnownCache {
    /// Its name in the settings.
    pub name: &'static str,
    /// Variables that move it, each with the cache's place below what the variable names.
    pub variables: &'static [(&'static str, &'static str)],
    /// Its place in a home directory, which is where commands see it as well. Never a folder in which the package manager keeps
    /// credentials or settings.
    pub place: &'static str,
}

/// The caches whose places are known.
pub const KNOWN_CACHES: [KnownCache; 6] = [
    KnownCache { name: "cargo", variables: &[("CARGO_HOME", "registry")], place: ".cargo/registry" },
    KnownCache { name: "npm", variables: &[("npm_config_cache", "_cacache")], place: ".npm/_cacache" },
    KnownCache { name: "pip", variables: &[("PIP_CACHE_DIR", "wheels")], place: ".cache/pip/wheels" },
    KnownCache { name: "go", variables: &[("GOMODCACHE", ""), ("GOPATH", "pkg/mod")], place: "go/pkg/mod" },
    KnownCache { name: "maven", variables: &[], place: ".m2/repository" },
    KnownCache {
        name: "gradle",
        variables: &[("GRADLE_USER_HOME", "caches/modules-2")],
        place: ".gradle/caches/modules-2",
    },
];

impl KnownCache {
    /// The cache of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN_CACHES.iter().find(|known| known.name == name)
    }
}

//! Package manager caches: which directory a command sees, and whether its writes are kept.

use std::path::PathBuf;

/// How commands use a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// Not visible.
    Off,
    /// The user's own cache, through a private overlay: changes are discarded when the command ends.
    Read,
    /// A cache kept by Belay, one for each workspace and namespace. It outlives the command; no program outside reads it.
    Keep,
}

impl CacheUse {
    /// The value in the settings file.
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
    /// How commands use it.
    pub used: CacheUse,
    /// The user's cache, for [`CacheUse::Read`]; `None`: search the default location.
    pub from: Option<PathBuf>,
    /// Where commands see it, relative to their home directory.
    pub at: PathBuf,
}

/// A cache with a known location.
#[derive(Clone, Copy, Debug)]
pub struct KnownCache {
    /// Its name in the settings.
    pub name: &'static str,
    /// Variables that relocate it, each with the cache's path below the value.
    pub variables: &'static [(&'static str, &'static str)],
    /// Its path in a home directory, on the host and in the sandbox. Never a directory with credentials or settings of the package manager.
    pub place: &'static str,
}

/// The caches with a known location.
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

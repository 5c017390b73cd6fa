//! The profiles that every runner has. They are ordinary rules, shown like those of the operator: nothing else is open under them.

/// A built-in profile: its name, its purpose, and its rules.
pub(crate) struct BuiltIn {
    pub(crate) name: &'static str,
    pub(crate) rules: &'static [BuiltInRule],
    /// Whether commands under it may run again.
    pub(crate) fetch_only: bool,
}

/// A host with its port.
pub(crate) type BuiltInRule = (&'static str, u16);

/// The package registries: each by the hosts that its own client asks.
const REGISTRIES: &[BuiltInRule] = &[
    // cargo
    ("index.crates.io", 443),
    ("static.crates.io", 443),
    ("crates.io", 443),
    // npm, and Yarn's alias of it
    ("registry.npmjs.org", 443),
    ("registry.yarnpkg.com", 443),
    // pip
    ("pypi.org", 443),
    ("files.pythonhosted.org", 443),
    // go
    ("proxy.golang.org", 443),
    ("sum.golang.org", 443),
    ("storage.googleapis.com", 443),
    // Maven and Gradle
    ("repo.maven.apache.org", 443),
    ("repo1.maven.org", 443),
    ("plugins.gradle.org", 443),
    ("plugins-artifacts.gradle.org", 443),
    // apt
    ("deb.debian.org", 80),
    ("deb.debian.org", 443),
    ("security.debian.org", 80),
    ("security.debian.org", 443),
    // gem
    ("rubygems.org", 443),
    ("index.rubygems.org", 443),
];

/// The forges whose repositories are most often cloned over HTTPS.
const GIT_HTTPS: &[BuiltInRule] = &[
    ("github.com", 443),
    ("codeload.github.com", 443),
    ("objects.githubusercontent.com", 443),
    ("gitlab.com", 443),
    ("bitbucket.org", 443),
    ("codeberg.org", 443),
];

/// All of them.
pub(crate) const BUILT_IN: &[BuiltIn] = &[
    // Downloading a package twice does no harm; a command that uploads one needs a credential, which these hosts do not get.
    BuiltIn { name: "registries", rules: REGISTRIES, fetch_only: true },
    // A push changes a repository, and inside of TLS it looks like a fetch.
    BuiltIn { name: "git-https", rules: GIT_HTTPS, fetch_only: false },
];

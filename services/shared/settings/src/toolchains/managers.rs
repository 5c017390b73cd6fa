//! Version managers and package managers that install programs into a home directory.

use std::path::{Path, PathBuf};

use super::{Caller, Files};

/// A known kind of PATH directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// Works once these parts are visible and these variables are set.
    Shown { name: &'static str, shown: Vec<PathBuf>, env: Vec<(&'static str, PathBuf)> },
    /// Shims that need the settings of their manager: the versions that those settings name are used directly.
    Versions { name: &'static str, folders: Vec<PathBuf> },
}

/// Managers whose shims are scripts that locate everything from their root: name, variable with the root, path in a home, and variable with
/// the version.
const SHIMS: [(&str, &str, &str, &str); 3] = [
    ("pyenv", "PYENV_ROOT", ".pyenv", "PYENV_VERSION"),
    ("rbenv", "RBENV_ROOT", ".rbenv", "RBENV_VERSION"),
    ("nodenv", "NODENV_ROOT", ".nodenv", "NODENV_VERSION"),
];

/// Directories that contain only programs: name, variable with the directory above `bin`, and path in a home.
const PROGRAMS_ONLY: [(&str, &str, &str); 3] =
    [("deno", "DENO_INSTALL", ".deno"), ("bun", "BUN_INSTALL", ".bun"), ("go", "GOPATH", "go")];

impl Manager {
    /// Identifies the manager of a directory. `real` is its path without links.
    pub(super) fn of(folder: &Path, real: &Path, caller: &Caller, files: &dyn Files) -> Option<Self> {
        let is = |candidate: Option<PathBuf>| {
            candidate.is_some_and(|candidate| folder == candidate || files.resolve(&candidate).as_deref() == Some(real))
        };
        if is(caller.folder_or("CARGO_HOME", ".cargo").map(|home| home.join("bin"))) {
            return Some(cargo(folder, caller, files));
        }
        for (name, variable, place, version) in SHIMS {
            let Some(root) = caller.folder_or(variable, place) else { continue };
            let plugins = files.names(&root.join("plugins")).into_iter();
            let plugins = plugins.map(|plugin| root.join("plugins").join(plugin).join("shims"));
            let mut places = plugins.chain(["shims", "bin"].map(|part| root.join(part)));
            if files.is_folder(&root.join("versions")) && places.any(|place| is(Some(place))) {
                let hooks = format!("{name}.d");
                let parts = ["bin", "libexec", &hooks, "plugins", "shims", "version", "versions"];
                let shown = parts.map(|part| root.join(part)).into_iter().filter(|part| files.resolve(part).is_some());
                let mut env = vec![(variable, root.clone())];
                // A version, not a path, but handled the same way.
                env.extend(caller.variable(version).map(|value| (version, PathBuf::from(value))));
                return Some(Self::Shown { name, shown: shown.collect(), env });
            }
        }
        if is(caller.folder("GOBIN")) {
            return Some(Self::Shown { name: "go", shown: vec![folder.to_owned()], env: Vec::new() });
        }
        for (name, variable, place) in PROGRAMS_ONLY {
            if is(caller.folder_or(variable, place).map(|root| root.join("bin"))) {
                return Some(Self::Shown { name, shown: vec![folder.to_owned()], env: Vec::new() });
            }
        }
        if real.starts_with("/nix/store") {
            return Some(Self::Shown {
                name: "nix",

                shown: vec!["/nix/store".into(), folder.to_owned()],
                env: Vec::new(),
            });
        }
        if let Some(root) = caller.folder_or("ASDF_DATA_DIR", ".asdf")
            && is(Some(root.join("shims")))
        {
            let settings = caller.home.as_ref().map(|home| home.join(".tool-versions"));
            let named =
                settings.and_then(|file| files.text(&file)).map(|text| tool_versions(&text)).unwrap_or_default();
            return Some(Self::Versions { name: "asdf", folders: installs(&root, named) });
        }
        let data = caller.folder_or("XDG_DATA_HOME", ".local/share").map(|data| data.join("mise"));
        if let Some(root) = caller.folder("MISE_DATA_DIR").or(data)
            && is(Some(root.join("shims")))
        {
            let settings = caller.folder_or("XDG_CONFIG_HOME", ".config").map(|config| config.join("mise/config.toml"));
            let named = settings.and_then(|file| files.text(&file)).map(|text| mise_tools(&text)).unwrap_or_default();
            return Some(Self::Versions { name: "mise", folders: installs(&root, named) });
        }
        None
    }
}

/// `cargo/bin`: the programs of `cargo install`, and rustup's proxies, which need the settings and toolchains of rustup. Nothing else of
/// either home is visible: `credentials.toml` is next to `bin`.
fn cargo(folder: &Path, caller: &Caller, files: &dyn Files) -> Manager {
    let mut shown = vec![folder.to_owned()];
    let mut env = Vec::new();
    if files.is_program(&folder.join("rustup"))
        && let Some(rustup) = caller.folder_or("RUSTUP_HOME", ".rustup")
    {
        let parts = ["toolchains", "settings.toml"].map(|part| rustup.join(part));
        shown.extend(parts.into_iter().filter(|part| files.resolve(part).is_some()));
        env.push(("RUSTUP_HOME", rustup));
        env.extend(caller.variable("RUSTUP_TOOLCHAIN").map(|value| ("RUSTUP_TOOLCHAIN", PathBuf::from(value))));
        // A missing toolchain fails at once: the sandbox has no network to download it.
        env.push(("RUSTUP_AUTO_INSTALL", PathBuf::from("0")));
    }
    Manager::Shown { name: "rustup", shown, env }
}

/// The `bin` directories of the versions below `installs`, also where the plugin puts them one level deeper.
fn installs(root: &Path, named: Vec<(String, String)>) -> Vec<PathBuf> {
    let version = |(tool, version): (String, String)| {
        let install = root.join("installs").join(tool).join(version);
        [install.join("bin"), install.join("go/bin")]
    };
    named.into_iter().flat_map(version).collect()
}

/// Whether a text is a plain directory name, so that the settings of a manager cannot refer to another path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != ".." && name != "."
}

/// asdf's `.tool-versions`: `nodejs 20.1.0 system`.
fn tool_versions(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().split_whitespace());
    lines
        .flat_map(|mut words| {
            let tool = words.next().unwrap_or_default().to_owned();
            words.map(move |version| (tool.clone(), version.to_owned())).collect::<Vec<_>>()
        })
        .filter(|(tool, version)| is_plain(tool) && is_plain(version))
        .collect()
}

/// Reads the plain lines `node = "20"` of the section `[tools]` of the settings of mise; ignores anything else.
fn mise_tools(text: &str) -> Vec<(String, String)> {
    let section = text.lines().map(str::trim).skip_while(|line| *line != "[tools]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    let pair = |line: &str| {
        let (tool, version) = line.split_once('=')?;
        let version = version.trim().strip_prefix('"')?.split('"').next()?;
        let tool = tool.trim().trim_matches('"');
        (is_plain(tool) && is_plain(version)).then(|| (tool.to_owned(), version.to_owned()))
    };
    lines.filter_map(pair).collect()
}

/// The `bin` directory of the version that nvm's alias `default` names, if `NVM_DIR` is set.
pub(super) fn nvm_default(caller: &Caller, files: &dyn Files) -> Option<PathBuf> {
    let root = caller.folder("NVM_DIR")?;
    let mut alias = "default".to_owned();
    // An alias may name another, such as `lts/*`.
    for _ in 0..8 {
        let file = alias.split('/').all(is_plain).then(|| root.join("alias").join(&alias));
        match file.and_then(|file| files.text(&file)) {
            Some(next) => alias = next.trim().to_owned(),
            None => break,
        }
    }
    let versions = root.join("versions/node");
    let wanted = format!("v{}", alias.trim_start_matches('v'));
    let newest = matches!(alias.as_str(), "node" | "stable");
    let fits = |name: &String| newest || *name == wanted || name.starts_with(&format!("{wanted}."));
    let number = |name: &String| -> Vec<u32> {
        name.trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    let version = files.names(&versions).into_iter().filter(fits).max_by_key(number)?;
    files.resolve(&versions.join(version).join("bin"))
}

//! The section `commands` resolved on this machine: the settings of the operator, with the toolchains and caches of the caller.

use std::path::PathBuf;

use crate::{
    COMMAND_HOME, CacheUse, Commands, KnownCache, View, VisiblePath, paths,
    toolchains::{self, Caller, Files, Toolchains},
};

/// A cache, resolved on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedCache {
    /// Its name in the settings.
    pub name: String,
    /// The user's cache, which each command sees through a private overlay; `None` for a cache kept by Belay.
    pub read_from: Option<PathBuf>,
    /// Where commands see it, in their view.
    pub at: PathBuf,
}

/// The section `commands`, resolved on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedCommands {
    /// The settings, unresolved.
    pub commands: Commands,
    /// The toolchains on the caller's PATH.
    pub toolchains: Toolchains,
    /// The directories in which commands search for programs.
    pub path: Vec<PathBuf>,
    /// The variables that every command gets; for equal names the last one wins.
    pub env: Vec<(String, String)>,
    /// The caches.
    pub caches: Vec<UsedCache>,
}

impl ResolvedCommands {
    /// Resolves the settings. `caller` is the user who started the services; `None` for a separate service, which uses no toolchains or
    /// caches of a user.
    pub fn of(commands: Commands, caller: Option<&Caller>, files: &dyn Files) -> Self {
        let commands = if caller.is_some() { commands } else { commands.without_caller() };
        let mut toolchains = match caller.filter(|_| commands.find_toolchains.value) {
            Some(caller) => toolchains::find(caller, files),
            None => Toolchains::of_system(),
        };
        let taken = |at: &PathBuf| commands.read_only.iter().any(|shown| shown.value.at == *at);
        toolchains.shown.retain(|found| !taken(&found.shown.at));
        let mut path: Vec<PathBuf> = commands.path.iter().map(|folder| folder.value.clone()).collect();
        for folder in &toolchains.path {
            if !path.contains(folder) {
                path.push(folder.clone());
            }
        }
        let own = commands.env.iter().map(|(name, value)| (name.clone(), value.value.clone()));
        let env = toolchains.env.iter().cloned().chain(own).collect();
        let mut caches = Vec::<UsedCache>::new();
        for cache in commands.caches.iter().map(|cache| &cache.value).filter(|cache| cache.used != CacheUse::Off) {
            let at = PathBuf::from(COMMAND_HOME).join(&cache.at);
            let read_from = match cache.used {
                CacheUse::Keep => None,
                _ => {
                    let from = cache.from.clone().or_else(|| customary(&cache.name, caller?, files));
                    let from = from.and_then(|from| files.resolve(&from)).filter(|from| files.is_folder(from));
                    let home = caller.and_then(|caller| caller.home.as_deref());
                    match from.filter(|from| paths::too_much(from, home).is_none()) {
                        Some(from) => Some(from),
                        None => continue,
                    }
                }
            };
            if !taken(&at) && !caches.iter().any(|known| known.at == at) {
                caches.push(UsedCache { name: cache.name.clone(), read_from, at });
            }
        }
        Self { commands, toolchains, path, env, caches }
    }

    /// The programs that commands see.
    pub fn view(&self) -> View {
        let own = self.commands.read_only.iter().map(|shown| shown.value.clone());
        let found = self.toolchains.shown.iter().map(|found| found.shown.clone());
        View { shown: own.chain(found).collect::<Vec<VisiblePath>>(), path: self.path.clone() }
    }
}

/// Finds the caller's cache of this name.
fn customary(name: &str, caller: &Caller, files: &dyn Files) -> Option<PathBuf> {
    let known = KnownCache::named(name)?;
    let moved = known.variables.iter().filter_map(|(variable, part)| Some(caller.folder(variable)?.join(part)));
    let home = caller.home.as_ref().map(|home| home.join(known.place));
    moved.chain(home).find(|place| files.is_folder(place))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{File, toolchains::Host};

    #[test]
    fn caches_belong_to_the_caller_or_to_belay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().canonicalize().unwrap();
        fs::create_dir_all(path.join(".cargo/registry")).unwrap();
        fs::create_dir_all(path.join("moved/_cacache")).unwrap();
        let caller = Caller {
            home: Some(path.clone()),
            env: [("npm_config_cache", path.join("moved").to_str().unwrap().to_owned())].into(),
            ..Caller::default()
        };
        let commands = File::parse("commands: {caches: {go: keep}}", None).unwrap().commands;
        let resolved = ResolvedCommands::of(commands.clone(), Some(&caller), &Host);
        let cache = |name: &str, read_from: Option<&str>, at: &str| UsedCache {
            name: name.into(),
            read_from: read_from.map(|from| path.join(from)),
            at: at.into(),
        };
        let kept = cache("go", None, "/home/belay/go/pkg/mod");
        assert_eq!(
            resolved.caches,
            [
                cache("cargo", Some(".cargo/registry"), "/home/belay/.cargo/registry"),
                cache("npm", Some("moved/_cacache"), "/home/belay/.npm/_cacache"),
                kept.clone(),
            ]
        );
        assert_eq!(
            ResolvedCommands::of(commands, None, &Host).caches,
            [kept],
            "a separate service uses no cache of a user"
        );
    }

    #[test]
    fn the_settings_of_the_operator_come_first() {
        let text = "commands: {read_only: [/opt/x], path: [/opt/x/bin, /usr/bin], env: {A: mine}}";
        let resolved = ResolvedCommands::of(File::parse(text, None).unwrap().commands, None, &Host);
        let path: Vec<_> = resolved.path.iter().map(|folder| folder.to_str().unwrap()).collect();
        assert_eq!(path, ["/opt/x/bin", "/usr/bin", "/usr/local/bin", "/bin", "/usr/sbin", "/sbin"]);
        assert_eq!(resolved.env, [("A".to_owned(), "mine".to_owned())]);
        assert_eq!(resolved.view().shown.len(), 1);
    }
}

//! The operator's settings of commands, converted for the sandbox.

use std::{
    fmt::Write as _,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::DirBuilderExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use belay_network::{Credential, Profile, Profiles, UpstreamProxy};
use belay_proto::v1::{self, write_bound::Mechanism};
use belay_redaction::Redactor;
use belay_sandbox::{Limits, Mount, MountKind, Reserve, Scratch, ScratchPlace, Settings, WORKSPACE, WriteBudget};
use belay_service_kit::state_files;
use belay_settings::{
    ConfigError, LoadedSettings, Lookup, NetworkLimits, Place, Research, ResolvedCommands, UsedCache, View,
    VisiblePath,
    toolchains::{Files as _, Host},
};
use belay_workspace::{contained_state_directory, enclosing_state_directory};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::{NetworkProblem, credentials::Sources, network_profiles, trust};

/// The operator's settings of commands, resolved on this machine.
#[derive(Clone, Debug)]
pub struct CommandSettings {
    here: ResolvedCommands,
    view: View,
    /// The directory of persistent caches; `None` if there are none.
    kept_in: Option<PathBuf>,
    /// The network profiles that commands may ask for.
    profiles: Arc<Profiles>,
    /// Whether nothing beyond this machine is reached.
    air_gapped: bool,
    /// The sources of their credentials.
    credentials: Arc<Sources>,
    /// The files with the operator's own certificate authorities.
    authorities: Arc<[PathBuf]>,
    /// The bounds of the network of one command.
    network_limits: NetworkLimits,
    /// The proxy behind which hosts are reached.
    upstream_proxy: Option<UpstreamProxy>,
    /// The runner's state directory; `None` if it has none.
    state_dir: Option<PathBuf>,
    /// Where the tool `research` looks besides the workspace.
    research: Research,
    /// Knows what counts as a secret.
    redactor: Redactor,
}

impl Default for CommandSettings {
    /// The defaults of a service that was not started from a shell.
    fn default() -> Self {
        Self::new(ResolvedCommands::of(belay_settings::Commands::default(), None, &Host), None)
    }
}

impl CommandSettings {
    /// Caches that outlive a command are kept in `kept_in`, a directory of the runner.
    pub fn new(here: ResolvedCommands, kept_in: Option<PathBuf>) -> Self {
        let view = here.view();
        Self {
            here,
            view,
            kept_in,
            profiles: Arc::default(),
            air_gapped: false,
            credentials: Arc::default(),
            authorities: Arc::default(),
            network_limits: NetworkLimits::default(),
            upstream_proxy: None,
            state_dir: None,
            research: Research::default(),
            redactor: Redactor::new(),
        }
    }

    /// Sets the network profiles that commands may ask for.
    #[must_use]
    pub fn with_profiles(self, profiles: Profiles) -> Self {
        Self { profiles: Arc::new(profiles), ..self }
    }

    /// Sets the profiles, credentials and certificate authorities of the operator's settings. Certificates that commands trust are written below
    /// `state_dir`, the runner's state directory.
    #[must_use]
    fn with_network_of(self, settings: &belay_settings::Settings, state_dir: PathBuf) -> Self {
        let authorities = settings.network.authorities.iter().map(|file| file.value.clone());
        Self {
            credentials: Arc::new(Sources::new(settings.credentials.iter().map(|known| &known.value))),
            authorities: authorities.collect(),
            air_gapped: settings.air_gapped.value,
            network_limits: settings.network.limits.clone(),
            upstream_proxy: settings.network.proxy.as_ref().map(|proxy| proxy.value.clone()),
            state_dir: Some(state_dir),
            research: settings.research.clone(),
            ..self.with_profiles(settings.network.profiles.clone())
        }
    }

    /// The sources of credentials.
    pub(crate) fn credentials(&self) -> &Sources {
        &self.credentials
    }

    /// The bounds of the network of one command.
    pub(crate) fn network_limits(&self) -> &NetworkLimits {
        &self.network_limits
    }

    /// The proxy behind which hosts are reached.
    pub(crate) fn upstream_proxy(&self) -> Option<&UpstreamProxy> {
        self.upstream_proxy.as_ref()
    }

    /// The files with the operator's own certificate authorities.
    pub(crate) fn authorities(&self) -> &[PathBuf] {
        &self.authorities
    }

    /// The directory for the certificates that commands trust; `None` if the runner keeps no files.
    pub(crate) fn certificates_in(&self) -> Option<PathBuf> {
        self.state_dir.as_ref().map(|own| own.join("certificates"))
    }

    /// Where the tool `research` looks besides the workspace.
    pub(crate) fn research(&self) -> &Research {
        &self.research
    }

    /// Knows what counts as a secret.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The directory for the indexes of documents; `None` if the runner keeps no files.
    pub(crate) fn research_in(&self) -> Option<PathBuf> {
        self.state_dir.as_ref().map(|own| own.join("research"))
    }

    /// The directory for the tasks of external agents; `None` if the runner keeps no files.
    pub(crate) fn prompts_in(&self) -> Option<PathBuf> {
        self.state_dir.as_ref().map(|own| own.join("prompts"))
    }

    /// The directory for the tools of MCP servers; `None` if the runner keeps no files.
    pub(crate) fn mcp_in(&self) -> Option<PathBuf> {
        self.state_dir.as_ref().map(|own| own.join("mcp"))
    }

    /// The same where nothing beyond this machine is reached.
    #[cfg(test)]
    pub(crate) fn air_gapped_for_test(self) -> Self {
        Self { air_gapped: true, ..self }
    }

    /// Sets where the tool `research` looks, and where it keeps its indexes.
    #[cfg(test)]
    pub(crate) fn with_research(self, research: Research, state_dir: PathBuf) -> Self {
        Self { research, state_dir: Some(state_dir), ..self }
    }

    /// Files in the runner's state directory that no other process may read.
    pub(crate) fn closed_files(&self) -> Vec<PathBuf> {
        let own = self.state_dir.iter();
        own.flat_map(|own| [state_files::SEAL_KEY, state_files::LEDGER].map(|name| own.join(name))).collect()
    }

    /// The network profiles that commands may ask for.
    pub(crate) fn profiles(&self) -> &Profiles {
        &self.profiles
    }

    /// The profile of this name, for a call; `None` when it has nothing beyond loopback.
    ///
    /// # Errors
    /// When there is none, or it has hosts and nothing beyond this machine is reached.
    pub(crate) fn profile_of_call(&self, name: &str) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        network_profiles::find(&self.profiles, name, self.air_gapped)
    }

    /// The settings of a runner with this state directory, which keeps caches in it. Found toolchains and caches that lie in a state directory, or
    /// contain this one, are left out.
    ///
    /// # Errors
    /// [`ConfigError`] when the settings name a directory that is, lies in or contains a state directory: commands could then decide about
    /// themselves.
    pub fn of_runner(
        mut here: ResolvedCommands,
        loaded: &LoadedSettings,
        state_dir: &Path,
    ) -> Result<Self, ConfigError> {
        loaded.refuse_state_directories(state_dir, &|path| {
            enclosing_state_directory(path).or_else(|| contained_state_directory(path))
        })?;
        let own = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        let is_apart = |path: &Path| {
            !own.starts_with(path) && !path.starts_with(&own) && enclosing_state_directory(path).is_none()
        };
        here.toolchains.shown.retain(|found| is_apart(&found.shown.from));
        here.caches.retain(|cache| cache.read_from.as_deref().is_none_or(is_apart));
        loaded.refuse_visible_credentials(&here)?;
        check_network(loaded)?;
        let settings = Self::new(here, Some(own.join("caches"))).with_network_of(&loaded.settings, own);
        Ok(Self { redactor: loaded.redactor.clone(), ..settings })
    }

    /// The settings that hold for every command. Toolchains and caches are added per command, so that one that disappears does not fail
    /// every command.
    pub fn sandbox(&self) -> Settings {
        let commands = &self.here.commands;
        let own = commands.read_only.iter().map(|shown| read_only(&shown.value));
        let (view, scratch, reserve, limits) = (&commands.view, &commands.scratch, &commands.reserve, &commands.limits);
        let size = |bytes| WriteBudget { bytes, inodes: scratch.files.value };
        let defaults = Scratch::default();
        Settings {
            mounts: own.collect(),
            scratch: Scratch {
                place: match &scratch.place.value {
                    Place::Workspace => ScratchPlace::Staging,
                    Place::Memory => ScratchPlace::Memory,
                    Place::Folder(folder) => ScratchPlace::Folder(folder.clone()),
                },
                tmp: size(scratch.tmp.value),
                home: size(scratch.home.value),
                shm: WriteBudget { bytes: scratch.shm.value, ..defaults.shm },
            },
            view: WriteBudget { bytes: view.size.value, inodes: view.files.value },
            reserve: Reserve { bytes: reserve.size.value, inodes: reserve.files.value },
            limits: Limits {
                processes: limits.processes.value,
                open_files: limits.open_files.value,
                file_size: limits.file_size.value,
                address_space: limits.address_space.value,
                cpu: limits.cpu_time.value.map(Duration::from_secs),
                ..Limits::default()
            },
            path: self.here.path.clone(),
            env: self.here.env.iter().map(|(name, value)| (name.clone(), value.into())).collect(),
            calls_may_set: commands.plans_may_set.iter().map(|name| name.value.clone()).collect(),
            ..Settings::default()
        }
    }

    /// How many calls may wait for answers at once.
    pub(crate) fn asking_calls(&self) -> usize {
        usize::try_from(self.here.commands.asking_calls.value).unwrap_or(usize::MAX)
    }

    /// How long the processes of a cancelled command have to end.
    pub(crate) fn stop_grace(&self) -> Duration {
        Duration::from_secs(self.here.commands.stop_grace.value)
    }

    /// The bounds on what a command can write, for its receipt.
    pub(crate) fn write_bounds(&self) -> Vec<v1::WriteBound> {
        let Settings { view, reserve, scratch, .. } = self.sandbox();
        let on_disk = if scratch.place == ScratchPlace::Memory { Mechanism::Tmpfs } else { Mechanism::Watcher };
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let bound = |place: &str, mechanism: Mechanism, budget: WriteBudget| v1::WriteBound {
            place: place.to_owned(),
            mechanism: mechanism.into(),
            bytes: count(budget.bytes),
            files: count(budget.inodes),
        };
        let reserve =
            WriteBudget { bytes: reserve.bytes.unwrap_or_default(), inodes: reserve.inodes.unwrap_or_default() };
        vec![
            bound("view", Mechanism::Watcher, view),
            bound("/tmp", on_disk, scratch.tmp),
            bound("home", on_disk, scratch.home),
            bound("/dev/shm", Mechanism::Tmpfs, scratch.shm),
            bound("reserve", Mechanism::Watcher, reserve),
        ]
    }

    /// The mounts of the toolchains that still exist.
    pub(crate) fn toolchains(&self) -> Vec<Mount> {
        let found = self.here.toolchains.shown.iter().map(|found| &found.shown);
        found.filter(|shown| is_still_there(&shown.from)).map(read_only).collect()
    }

    /// The mounts of the caches of a workspace and namespace, which are created.
    ///
    /// # Errors
    /// When a cache directory cannot be created.
    pub(crate) fn caches(&self, namespace: &str, workspace: &Path) -> io::Result<Vec<Mount>> {
        let mut mounts = Vec::new();
        for UsedCache { name, read_from, at } in &self.here.caches {
            let (source, kind) = match (read_from, &self.kept_in) {
                (Some(from), _) if is_still_there(from) => (from.clone(), MountKind::Scratch),
                (None, Some(kept_in)) => (prepared(kept_in, namespace, workspace, name)?, MountKind::Staged),
                _ => continue,
            };
            mounts.push(Mount { source, target: at.clone(), kind });
        }
        Ok(mounts)
    }

    /// The directories of the caches that commands of this namespace and workspace may change.
    ///
    /// # Errors
    /// When the directory that holds them cannot be created.
    pub(crate) fn kept_folders(&self, namespace: &str, workspace: &Path) -> io::Result<Vec<PathBuf>> {
        let Some(kept_in) = &self.kept_in else { return Ok(Vec::new()) };
        let names = self.here.caches.iter().filter(|cache| cache.read_from.is_none()).map(|cache| &cache.name);
        names.map(|name| kept(kept_in, namespace, workspace, name)).collect()
    }

    /// The persistent caches that a command can write to, as its receipt names them.
    pub(crate) fn kept_caches(&self) -> impl Iterator<Item = String> {
        let kept = self.here.caches.iter().filter(|cache| cache.read_from.is_none() && self.kept_in.is_some());
        kept.map(|cache| format!("writable cache {}", cache.name))
    }

    /// Whether a plan may set this variable, which programs or the loader obey.
    pub(crate) fn plan_may_set(&self, name: &str) -> bool {
        self.here.commands.plans_may_set.iter().any(|allowed| allowed.value == name)
    }

    /// Where a command finds this program in its view.
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        match self.view.find(program, &Host) {
            Lookup::Found(path) => Some(path),
            Lookup::LeadsOut { .. } | Lookup::Missing => None,
        }
    }

    /// Why a command will not find this program. `None` if it will, or if the program lies in the workspace, whose content at that time is
    /// unknown.
    pub fn missing(&self, program: &str) -> Option<String> {
        let path = Path::new(program);
        let in_workspace = program.contains('/') && (path.is_relative() || path.starts_with(WORKSPACE));
        if program.is_empty() || in_workspace {
            return None;
        }
        match self.view.find(program, &Host) {
            Lookup::Found(_) => None,
            Lookup::LeadsOut { link, target } => {
                let folder = target.parent().unwrap_or(&target).display();
                Some(format!(
                    "program `{program}`: {} links to {}, which is not visible to commands; to make it visible, set `commands: {{read_only: [{folder}]}}` in the operator's settings",
                    link.display(),
                    target.display()
                ))
            }
            Lookup::Missing => Some(self.nowhere(program)),
        }
    }

    fn nowhere(&self, program: &str) -> String {
        let folders: Vec<_> = self.here.path.iter().map(|folder| folder.to_string_lossy()).collect();
        let mut why = format!("program `{program}` not found: commands search {}", folders.join(":"));
        let left_out = self.here.toolchains.left_out.iter();
        if let Some((folder, reason)) = left_out.clone().find(|(folder, _)| Host.is_program(&folder.join(program))) {
            let _ = write!(why, "; it is in {}, which {reason}", folder.display());
        } else {
            why.push_str("; run `belay doctor` to see what is visible to commands");
        }
        why
    }
}

/// Refuses certificate authorities that cannot be read, and variables of credentials that loaders and interpreters obey.
fn check_network(loaded: &LoadedSettings) -> Result<(), ConfigError> {
    for (place, file) in loaded.settings.network.authorities.iter().enumerate() {
        let problem = match fs::read_to_string(&file.value) {
            Ok(text) => trust::problem(&text).map(str::to_owned),
            Err(error) => Some(format!("cannot be read: {error}")),
        };
        if let Some(problem) = problem {
            return Err(loaded.refuse(&format!("network.authorities[{place}]"), &problem));
        }
    }
    for known in &loaded.settings.credentials {
        let Credential { name, variable, .. } = &known.value.credential;
        if variable.as_deref().is_some_and(belay_sandbox::is_reserved) {
            let problem = "is a variable that loaders and interpreters obey, or that the sandbox sets: name another";
            return Err(loaded.refuse(&format!("credentials.{name}.variable"), problem));
        }
    }
    Ok(())
}

fn read_only(shown: &VisiblePath) -> Mount {
    Mount { source: shown.from.clone(), target: shown.at.clone(), kind: MountKind::ReadOnly }
}

/// Whether a path that was found without symbolic links still has none. If a workspace contains a toolchain, an effect could have replaced
/// it with a link to anywhere.
fn is_still_there(place: &Path) -> bool {
    fs::canonicalize(place).is_ok_and(|real| real == place)
}

/// The directory of a persistent cache, for one workspace and one namespace. It need not be there.
fn kept(kept_in: &Path, namespace: &str, workspace: &Path, name: &str) -> io::Result<PathBuf> {
    let digest = Sha256::new().chain_update(namespace).chain_update([0]).chain_update(workspace.as_os_str().as_bytes());
    let whose = kept_in.join(HEXLOWER.encode(&digest.finalize()[..16]));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&whose)?;
    // Mounts are opened without following links, of which the path of the state directory may have some.
    Ok(fs::canonicalize(whose)?.join(name))
}

/// The same, ready for a command.
fn prepared(kept_in: &Path, namespace: &str, workspace: &Path, name: &str) -> io::Result<PathBuf> {
    let cache = kept(kept_in, namespace, workspace, name)?;
    if belay_workspace::prepare_cache(&cache)? {
        tracing::warn!(cache = name, workspace = %workspace.display(), "A merge into a cache was interrupted; the cache was emptied");
    }
    Ok(cache)
}

#[cfg(test)]
mod tests {
    use belay_settings::File;

    use super::*;

    fn settings(text: &str, kept_in: Option<PathBuf>) -> CommandSettings {
        let commands = File::parse(text, None).unwrap().commands;
        CommandSettings::new(ResolvedCommands::of(commands, None, &Host), kept_in)
    }

    #[test]
    fn the_operators_settings_reach_the_sandbox() {
        let text = "
commands:
  read_only: [{from: /usr/share, at: /opt/share}]
  path: [/opt/share]
  env: {A: b}
  plans_may_set: [PYTHONPATH]
  view: {size: 2GiB, files: 3000}
  scratch: {place: memory, tmp: 1MiB, files: 2000}
  reserve: {size: 5GiB, files: 7000}
  limits: {processes: 99, cpu_time: 5s, file_size: unlimited}
";
        let sandbox = settings(text, None).sandbox();
        assert_eq!(sandbox.mounts[0].target, Path::new("/opt/share"));
        assert_eq!(
            (sandbox.path[0].as_path(), sandbox.path[1].as_path()),
            (Path::new("/opt/share"), Path::new("/usr/local/bin"))
        );
        assert_eq!(sandbox.env, [("A".to_owned(), "b".into())]);
        assert_eq!(sandbox.calls_may_set, ["PYTHONPATH"]);
        assert_eq!(
            (sandbox.scratch.place, sandbox.scratch.tmp.bytes, sandbox.scratch.tmp.inodes),
            (ScratchPlace::Memory, 1 << 20, 2000)
        );
        assert_eq!(sandbox.view, WriteBudget { bytes: 2 << 30, inodes: 3000 });
        assert_eq!(sandbox.reserve, Reserve { bytes: Some(5 << 30), inodes: Some(7000) });
        let limits = sandbox.limits;
        assert_eq!((limits.processes, limits.cpu, limits.file_size), (99, Some(Duration::from_secs(5)), None));
    }

    #[test]
    fn the_setting_that_a_refusal_names_lets_plans_set_the_variable() {
        let reserved = belay_sandbox::RESERVED_VARIABLES.iter().flat_map(|row| row.names);
        let in_another_case = ["NPM_CONFIG_SCRIPT_SHELL", "PIP_Python"].map(str::to_owned);
        for name in reserved.map(|name| name.replace('*', "X")).chain(in_another_case) {
            assert!(!settings("", None).plan_may_set(&name), "{name}");
            let problem = belay_sandbox::reserved_variable_problem(&name);
            let settings = settings(problem.split('`').nth(1).unwrap(), None);
            assert!(settings.plan_may_set(&name) && settings.sandbox().calls_may_set == [name.as_str()], "{problem}");
        }
    }

    #[test]
    fn a_receipt_names_the_mechanism_of_each_bound() {
        let bounds = |text: &str| -> Vec<(String, Mechanism, i64)> {
            let bounds = settings(text, None).write_bounds();
            bounds.into_iter().map(|bound| (bound.place.clone(), bound.mechanism(), bound.bytes)).collect()
        };
        let bound = |place: &str, mechanism, bytes| (place.to_owned(), mechanism, bytes);
        let expected = |on_disk| {
            [
                bound("view", Mechanism::Watcher, 2 << 30),
                bound("/tmp", on_disk, 8 << 30),
                bound("home", on_disk, 8 << 30),
                bound("/dev/shm", Mechanism::Tmpfs, 512 << 20),
                bound("reserve", Mechanism::Watcher, 0),
            ]
        };
        assert_eq!(bounds("commands: {view: {size: 2GiB}}"), expected(Mechanism::Watcher));
        let memory = "commands: {view: {size: 2GiB}, scratch: {place: memory}}";
        assert_eq!(bounds(memory), expected(Mechanism::Tmpfs));
    }

    // Two sets of defaults would drift apart.
    #[test]
    fn without_a_file_the_defaults_are_those_of_the_sandbox() {
        let (ours, theirs) = (CommandSettings::default().sandbox(), Settings::default());
        assert_eq!((ours.scratch, ours.limits), (theirs.scratch, theirs.limits));
        assert_eq!((ours.view, ours.reserve), (theirs.view, theirs.reserve));
        assert_eq!((ours.path, ours.env.len(), ours.mounts.len()), (theirs.path, 0, 0));
    }

    #[test]
    fn a_persistent_cache_belongs_to_one_workspace_and_namespace() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings("commands: {caches: {cargo: keep}}", Some(folder.path().join("caches")));
        let source = |namespace: &str, workspace: &str| {
            let mounts = settings.caches(namespace, Path::new(workspace)).unwrap();
            assert_eq!((mounts.len(), mounts[0].kind), (1, MountKind::Staged));
            assert_eq!(mounts[0].target, Path::new("/home/belay/.cargo/registry"));
            assert!(mounts[0].source.is_dir() && mounts[0].source.starts_with(folder.path()));
            mounts[0].source.clone()
        };
        let one = source("default", "/w/a");
        assert_eq!(one, source("default", "/w/a"));
        assert_ne!(one, source("default", "/w/b"));
        assert_ne!(one, source("other", "/w/a"));
        assert_eq!(settings.kept_caches().collect::<Vec<_>>(), ["writable cache cargo"]);

        fs::write(one.join("crate"), "half of it").unwrap();
        assert_eq!(settings.kept_folders("default", Path::new("/w/a")).unwrap(), std::slice::from_ref(&one));
        assert!(one.join("crate").exists());
        fs::write(one.with_file_name("cargo.merging"), "interrupted").unwrap();
        assert_eq!(source("default", "/w/a"), one);
        assert!(!one.join("crate").exists(), "a merge into it was interrupted");
    }

    #[test]
    fn no_source_is_or_contains_a_state_directory() {
        use belay_settings::toolchains::Caller;
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let state = home.join(".local/state/belay");
        for made in [&state, &home.join(".m2/repository"), &home.join(".cargo/registry"), &home.join("sdk/other")] {
            fs::create_dir_all(made).unwrap();
        }
        let load = |text: &str| {
            let file = home.join("config.yaml");
            fs::write(&file, text).unwrap();
            belay_settings::load(Some(&file), &|_| None).unwrap()
        };
        let caller = Caller { home: Some(home.clone()), ..Caller::default() };
        let of_runner = |loaded: &LoadedSettings| {
            let here = ResolvedCommands::of(loaded.settings.commands.clone(), Some(&caller), &Host);
            CommandSettings::of_runner(here, loaded, &state).map_err(|error| error.to_string())
        };
        let one =
            |from: &str| load(&format!("commands: {{read_only: [{{from: {}/{from}, at: /opt/x}}]}}", home.display()));
        let said = of_runner(&one(".local")).unwrap_err();
        assert!(said.contains("commands.read_only[0]") && said.contains("Name the subdirectory"), "{said}");
        of_runner(&one("sdk")).unwrap();
        // Another Belay's.
        for file in ["seal.key", "ledger.db"] {
            fs::write(home.join("sdk/other").join(file), "").unwrap();
        }
        assert!(of_runner(&one("sdk")).unwrap_err().contains("contains the state directory"));
        assert!(of_runner(&one("sdk/other")).unwrap_err().contains("is, or lies in, the state directory"));
        // What is found is left out.
        for file in ["seal.key", "ledger.db"] {
            fs::write(home.join(".m2/repository").join(file), "").unwrap();
        }
        let caches: Vec<_> = of_runner(&load("")).unwrap().here.caches.into_iter().map(|cache| cache.name).collect();
        assert_eq!(caches, ["cargo"]);
    }

    // The names by which commands are kept from a state directory are those that the services give its files.
    #[test]
    fn a_state_directory_is_known_by_the_names_of_its_files() {
        let known = [&belay_workspace::STATE_STORES[..], &belay_workspace::STATE_KEYS].concat();
        assert_eq!(known, state_files::TELLING);
        let settings =
            CommandSettings::default().with_network_of(&belay_settings::Settings::default(), "/state".into());
        assert_eq!(settings.closed_files(), ["/state/seal.key", "/state/ledger.db"].map(PathBuf::from));
    }

    // A toolchain may lie in a workspace, whose effects can replace it with a link.
    #[test]
    fn a_toolchain_replaced_by_a_link_is_not_mounted() {
        use belay_settings::toolchains::Caller;
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let jdk = home.join("w/jdk");
        fs::create_dir_all(jdk.join("bin")).unwrap();
        for (file, mode) in [("bin/java", 0o755), ("release", 0o644)] {
            use std::os::unix::fs::PermissionsExt as _;
            fs::write(jdk.join(file), "").unwrap();
            fs::set_permissions(jdk.join(file), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(jdk.join("lib")).unwrap();
        fs::create_dir(home.join("secrets")).unwrap();
        let caller = Caller { home: Some(home.clone()), path: vec![jdk.join("bin")], ..Caller::default() };
        let here = ResolvedCommands::of(belay_settings::Commands::default(), Some(&caller), &Host);
        let settings = CommandSettings::new(here, None);
        let targets = || -> Vec<PathBuf> { settings.toolchains().into_iter().map(|mount| mount.target).collect() };
        assert_eq!(targets(), ["bin", "lib", "release"].map(|part| jdk.join(part)));
        fs::remove_dir(jdk.join("lib")).unwrap();
        std::os::unix::fs::symlink(home.join("secrets"), jdk.join("lib")).unwrap();
        assert_eq!(targets(), ["bin", "release"].map(|part| jdk.join(part)));
    }

    #[test]
    fn a_missing_program_is_reported_with_a_fix() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("tool");
        std::os::unix::fs::symlink("/proc/self/exe", &link).unwrap();
        let text =
            format!("commands: {{read_only: [{{from: {0}, at: /opt/t}}], path: [/opt/t]}}", folder.path().display());
        let settings = settings(&text, None);
        assert_eq!(settings.missing("sh"), None);
        assert_eq!(
            (settings.missing("./own"), settings.missing("bin/own"), settings.missing("/workspace/x")),
            (None, None, None)
        );
        let why = settings.missing("no-such-program").unwrap();
        assert!(
            why.contains("`no-such-program`") && why.contains("/opt/t:/usr/local/bin") && why.contains("belay doctor"),
            "{why}"
        );
        let why = settings.missing("tool").unwrap();
        assert!(why.contains("/opt/t/tool links to") && why.contains("read_only: ["), "{why}");
        assert!(settings.missing("/opt/none/x").is_some());
    }
}

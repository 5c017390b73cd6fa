//! The runner's side: sends a request to a launcher and waits until the command runs.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc};

use crate::{
    budget::Reserve,
    command_table::{CommandTable, TakenRow},
    environment::environment,
    error::LaunchError,
    fork_server::ForkServer,
    limits::raise_open_files,
    mounts,
    pool::{Kind, Pool},
    protocol::{Armed, Failure, Invocation},
    role,
    running::{ReleasedOnExit, RunningCommand},
    scratch::ScratchPlace,
    scratch_directory::{self, RunnerScratch},
    settings::Settings,
    slot::{NotStarted, Slot},
    spec::{ASK_DESCRIPTORS, ASK_VARIABLE, Dialogue, OUTPUT_PATH, OUTPUT_VARIABLE, Spec},
};

/// Starts commands in a sandbox.
///
/// If `launch` fails, none of the command has run and nothing is left of it. If it succeeds, the program is running with every layer
/// active. A command never outlives the process that launched it.
pub trait Launcher: Send + Sync {
    /// Starts a command. Blocks for a few milliseconds.
    ///
    /// # Errors
    /// When the spec is invalid, the program or working directory does not exist, or a layer is missing.
    fn launch(&self, spec: Spec) -> Result<RunningCommand, LaunchError>;
}

/// Sets up all layers anew for each command, some of them before the command is known.
#[derive(Debug)]
pub struct NamespaceLauncher {
    settings: Settings,
    /// The parent of scratch directories, if the settings name one.
    scratch: Option<RunnerScratch>,
    /// The disk usage of its commands.
    table: Arc<CommandTable>,
    server: Arc<ForkServer>,
    /// Sandboxes that are set up already.
    pool: Pool,
    /// The initial soft limit of open files, unless the limits set one.
    open_files_at_start: u64,
}

impl NamespaceLauncher {
    /// Raises the soft limit on open files of this process to the hard one, to allow many concurrent commands.
    ///
    /// # Errors
    /// When a setting is invalid, or this program's `main` does not call [`crate::take_over_if_asked`].
    pub fn new(settings: Settings) -> Result<Self, LaunchError> {
        if !role::can_launch() {
            return Err(LaunchError::NotReady);
        }
        settings.check()?;
        let scratch = match &settings.scratch.place {
            ScratchPlace::Folder(folder) => Some(RunnerScratch::new(folder).map_err(|error| {
                LaunchError::spec("settings.scratch.place", format!("cannot use `{}`: {error}", folder.display()))
            })?),
            ScratchPlace::Staging | ScratchPlace::Memory => None,
        };
        let table =
            CommandTable::new().map_err(|source| LaunchError::launcher("creating the command table", source))?;
        let (table, open_files_at_start) = (Arc::new(table), raise_open_files());
        let server = Arc::new(ForkServer::new(&settings.executable));
        let pool = Pool::new(&settings, &server, &table);
        Ok(Self { settings, scratch, table, server, pool, open_files_at_start })
    }

    /// How many sandboxes are set up and wait for commands.
    pub fn armed(&self) -> usize {
        self.pool.waiting()
    }

    /// The names of the operator's variables.
    pub(crate) fn variables(&self) -> Vec<String> {
        self.settings.env.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Starts the built-in attacks instead of a program.
    pub(crate) fn launch_attacks(&self, spec: Spec) -> Result<RunningCommand, LaunchError> {
        // Not through /proc/self/exe: its target cannot be mounted from another namespace.
        let binary = std::fs::canonicalize(&self.settings.executable)
            .map_err(|source| LaunchError::launcher("resolving the path of this binary", source))?;
        self.start(spec, Some(binary))
    }

    fn start(&self, spec: Spec, attacks: Option<PathBuf>) -> Result<RunningCommand, LaunchError> {
        let (program, cwd) = (spec.program.clone(), spec.cwd.clone());
        let row = self.table.take_row();
        let (armed, call) = self.split(spec, attacks, row.as_ref().map(TakenRow::number))?;
        let owner = call.lower.last().and_then(|workspace| fs::metadata(workspace).ok());
        let kind = Kind { armed, owner: owner.map(|workspace| (workspace.uid(), workspace.gid())) };
        let scratch = call.own_scratch().cloned();
        let started = match &kind.armed.attacks {
            // Those that are set up before their command are attacked, and those that are not take the same steps.
            Some(_) => Slot::set_up(&self.server, kind.armed, kind.owner, &self.table)
                .and_then(|slot| slot.run(call, ReleasedOnExit { scratch, row, end: None })),
            None => {
                let released = ReleasedOnExit { scratch, row, end: Some(self.pool.end_of_command()) };
                match self.pool.take(&kind) {
                    Some(slot) => slot.run(call, released),
                    None => Slot::begin(&self.server, kind.armed, kind.owner, &self.table)
                        .map_err(NotStarted::Error)
                        .and_then(|slot| slot.run(call, released)),
                }
            }
        };
        started.map_err(|why| match why {
            NotStarted::Failed(failure) => self.explain(failure, program, cwd),
            NotStarted::Lost => LaunchError::LauncherLost { program },
            NotStarted::Error(error) => error,
        })
    }

    /// Splits a spec into what the sandbox needs before its command, and the command.
    fn split(
        &self,
        spec: Spec,
        attacks: Option<PathBuf>,
        row: Option<u32>,
    ) -> Result<(Armed, Invocation), LaunchError> {
        spec.check(&self.settings.calls_may_set)?;
        let settings = &self.settings;
        let Spec {
            program,
            args,
            mut env,
            cwd,
            workspace,
            common_mounts,
            mounts,
            timeout,
            limits,
            dialogue,
            outputs,
            network,
        } = spec;
        if let Some(network) = &network {
            network.check_mounts(settings.mounts.iter().chain(&common_mounts).chain(&mounts))?;
        }
        let sockets = network.map(|network| {
            let (addresses, variables) = network.into_parts();
            env.extend(variables);
            addresses
        });
        let mut env = environment(settings, sockets.is_some(), env);
        // Neither a call nor the operator can set them: they say what the command has.
        env.retain(|(name, _)| name != ASK_VARIABLE && name != OUTPUT_VARIABLE);
        if outputs {
            env.push((OUTPUT_VARIABLE.to_owned(), OUTPUT_PATH.into()));
        }
        if dialogue == Some(Dialogue::Questions) {
            let [answers, questions] = ASK_DESCRIPTORS;
            env.push((ASK_VARIABLE.to_owned(), format!("{answers},{questions}").into()));
        }
        let common = settings.mounts.iter().cloned().chain(common_mounts).collect();
        let (armed_mounts, mounts) = mounts::in_order(common, mounts)?;
        let scratch_directory = match &self.scratch {
            Some(own) => Some(own.next()),
            None if settings.scratch.place == ScratchPlace::Staging => {
                workspace.staging.as_ref().map(|staging| staging.join(scratch_directory::NAME))
            }
            None => None,
        };
        let mut limits = limits.unwrap_or_else(|| settings.limits.clone());
        let largest = [settings.view, settings.scratch.tmp, settings.scratch.home].map(|budget| budget.bytes);
        let largest = largest.into_iter().max();
        limits.file_size = limits.file_size.into_iter().chain(largest).min();
        limits.open_files_at_start.get_or_insert(self.open_files_at_start);
        let armed = Armed {
            mounts: armed_mounts,
            scratch: settings.scratch.clone(),
            view: settings.view,
            // The attacks write nothing, and a full disk says nothing about the sandbox.
            reserve: if attacks.is_some() { Reserve { bytes: Some(0), inodes: Some(0) } } else { settings.reserve },
            limits,
            path: settings.path.clone(),
            service_uid: settings.service_uid,
            service_gid: settings.service_gid,
            landlock_floor: settings.landlock_floor,
            attacks,
        };
        let call = Invocation {
            program: program.into(),
            args,
            env,
            cwd,
            lower: workspace.lower,
            staging: workspace.staging,
            hidden: workspace.hidden,
            mounts,
            scratch_directory,
            row,
            timeout,
            dialogue,
            outputs,
            sockets,
        };
        Ok((armed, call))
    }

    fn explain(&self, failure: Failure, program: String, cwd: PathBuf) -> LaunchError {
        let os = io::Error::from_raw_os_error;
        match failure {
            Failure::Layer(layer, doing, error) => LaunchError::Layer { layer, doing, source: os(error) },
            Failure::ProgramNotFound if program.contains('/') => {
                LaunchError::ProgramNotFound { searched: program.clone(), program }
            }
            Failure::ProgramNotFound => LaunchError::ProgramNotFound {
                program,
                searched: self.settings.path_value().to_string_lossy().into_owned(),
            },
            Failure::ProgramNotExecutable(error) => LaunchError::ProgramNotExecutable { program, source: os(error) },
            Failure::WorkingDirectory(error) => LaunchError::WorkingDirectory { cwd, source: os(error) },
            Failure::Spec(field, problem) => LaunchError::Spec { field, problem },
            Failure::DiskFull(place, limit) => LaunchError::DiskFull { place, limit },
        }
    }
}

impl Launcher for NamespaceLauncher {
    fn launch(&self, spec: Spec) -> Result<RunningCommand, LaunchError> {
        self.start(spec, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Executing this test binary again would run the tests again.
    #[test]
    fn a_program_without_the_launcher_hook_is_rejected() {
        assert!(matches!(NamespaceLauncher::new(Settings::default()), Err(LaunchError::NotReady)));
    }
}

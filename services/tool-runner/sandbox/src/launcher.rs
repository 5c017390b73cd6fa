//! The runner's side: sends a request to a launcher and waits until the command runs.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::PathBuf,
    process::Stdio,
    sync::Arc,
};

use crate::{
    budget::Reserve,
    command_table::{CommandTable, TakenRow},
    connection::{receive, send},
    ended::{CommandEnd, End},
    environment::environment,
    error::LaunchError,
    limits::raise_open_files,
    mounts::{self, Mount},
    protocol::{Command, Failure, Message, Request},
    role,
    running::{KillHandle, LauncherProcess, RunningCommand},
    scratch::ScratchPlace,
    scratch_directory::{self, RunnerScratch},
    settings::Settings,
    spec::{ASK_DESCRIPTORS, ASK_VARIABLE, OUTPUT_PATH, OUTPUT_VARIABLE, Spec, TIMEOUT_EXPIRED},
    sys::SignalsBlocked,
    wire::frame,
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

/// Sets up all layers anew for each command.
#[derive(Debug)]
pub struct NamespaceLauncher {
    settings: Settings,
    /// The parent of scratch directories, if the settings name one.
    scratch: Option<RunnerScratch>,
    /// The disk usage of its commands.
    table: Arc<CommandTable>,
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
        Ok(Self { settings, scratch, table: Arc::new(table), open_files_at_start: raise_open_files() })
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
        let program = spec.program.clone();
        let row = self.table.take_row();
        let command = self.command(spec, attacks, row.as_ref().map(TakenRow::number))?;
        let (stdout, command_stdout) = io::pipe().map_err(|source| LaunchError::launcher("creating a pipe", source))?;
        let (stderr, command_stderr) = io::pipe().map_err(|source| LaunchError::launcher("creating a pipe", source))?;
        let pipe = || io::pipe().map_err(|source| LaunchError::launcher("creating a pipe", source));
        let asking = if command.asks { Some((pipe()?, pipe()?)) } else { None };
        let cwd = command.cwd.clone();
        let released = ReleasedOnExit { scratch: command.scratch_directory.clone(), row };
        let (stdout_end, stderr_end) = (Stdio::from(command_stdout), Stdio::from(command_stderr));
        let (mut control, mut launched) =
            spawn(&self.settings, &Request::Run(command), Some(self.table.as_fd()), released, stdout_end, stderr_end)?;

        let (answers, questions) = match asking {
            None => (None, None),
            Some(((command_answers, answers), (questions, command_questions))) => {
                for end in [command_answers.as_fd(), command_questions.as_fd()] {
                    send(&mut control, &frame(&Request::Pipe), Some(end))
                        .map_err(|source| LaunchError::launcher("sending a pipe to the launcher", source))?;
                }
                (Some(answers), Some(questions))
            }
        };

        // Launcher and init write concurrently, so the messages of init, even its last, may arrive before its pidfd.
        let (mut init, mut enforced, mut ended, mut outputs) = (None, None, None, None);
        while init.is_none() || enforced.is_none() {
            match receive(&mut control).map_err(|source| LaunchError::launcher("reading from the launcher", source))? {
                Some((Message::Init, Some(pidfd))) => init = Some(KillHandle::new(pidfd)),
                Some((Message::Started(what), _)) => enforced = Some(what),
                Some((Message::Outputs, Some(file))) => outputs = Some(File::from(file)),
                Some((Message::Ended(how), _)) => ended = Some(how),
                Some((Message::Failed(failure), _)) => {
                    // Its mounts are removed with it, so the caller can retry at once.
                    let _ = launched.wait();
                    return Err(self.explain(failure, program, cwd));
                }
                None if matches!(ended, Some(CommandEnd { end: End::TimedOut, .. })) => {
                    return Err(LaunchError::spec("timeout", TIMEOUT_EXPIRED));
                }
                Some(_) | None => return Err(LaunchError::LauncherLost { program }),
            }
        }
        let (Some(kill), Some(enforced)) = (init, enforced) else { return Err(LaunchError::LauncherLost { program }) };
        Ok(RunningCommand {
            stdout: Some(stdout),
            stderr: Some(stderr),
            questions,
            answers,
            outputs,
            enforced,
            kill,
            control,
            launcher: launched,
            ended,
            outcome: None,
        })
    }

    fn command(&self, spec: Spec, attacks: Option<PathBuf>, row: Option<u32>) -> Result<Command, LaunchError> {
        spec.check(&self.settings.calls_may_set)?;
        let settings = &self.settings;
        let Spec { program, args, env, cwd, workspace, mounts, timeout, limits, asks, outputs } = spec;
        let mut env = environment(settings, env);
        // Neither a call nor the operator can set them: they say what the command has.
        env.retain(|(name, _)| name != ASK_VARIABLE && name != OUTPUT_VARIABLE);
        if outputs {
            env.push((OUTPUT_VARIABLE.to_owned(), OUTPUT_PATH.into()));
        }
        if asks {
            let [answers, questions] = ASK_DESCRIPTORS;
            env.push((ASK_VARIABLE.to_owned(), format!("{answers},{questions}").into()));
        }
        let mut mounts: Vec<Mount> = settings.mounts.iter().cloned().chain(mounts).collect();
        mounts::check(&mounts, "mounts")?;
        // Parents are mounted before their children.
        mounts.sort_by_key(|mount| mount.target.components().count());
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
        Ok(Command {
            program: program.into(),
            args,
            env,
            cwd,
            lower: workspace.lower,
            staging: workspace.staging,
            hidden: workspace.hidden,
            mounts,
            scratch: settings.scratch.clone(),
            scratch_directory,
            view: settings.view,
            // The attacks write nothing, and a full disk says nothing about the sandbox.
            reserve: if attacks.is_some() { Reserve { bytes: Some(0), inodes: Some(0) } } else { settings.reserve },
            row,
            timeout,
            asks,
            outputs,
            limits,
            path: settings.path.clone(),
            service_uid: settings.service_uid,
            service_gid: settings.service_gid,
            landlock_floor: settings.landlock_floor,
            attacks,
        })
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

/// Resources that are released when a launcher has exited.
#[derive(Default)]
pub(crate) struct ReleasedOnExit {
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) row: Option<TakenRow>,
}

/// Executes this binary as a launcher, and sends it a request with the command table.
pub(crate) fn spawn(
    settings: &Settings,
    protocol: &Request,
    table: Option<BorrowedFd<'_>>,
    released: ReleasedOnExit,
    stdout: Stdio,
    stderr: Stdio,
) -> Result<(UnixStream, LauncherProcess), LaunchError> {
    let failed = |doing| move |source| LaunchError::launcher(doing, source);
    let (mut control, theirs) = UnixStream::pair().map_err(failed("creating a socket"))?;
    // For an instant the child is in the runner's process group: a key that is pressed then would end or stop the launcher. It keeps the
    // mask; the command starts with none.
    let blocked = SignalsBlocked::new();
    // No option here makes std use fork instead of posix_spawn, whose cost does not grow with the runner.
    let child = std::process::Command::new(&settings.executable)
        .arg0(role::LAUNCHER)
        // Nothing, but in tests.
        .args(belay_defects::handed_on())
        .env_clear()
        // A terminal sends Ctrl-C, Ctrl-Z and Ctrl-\ to the process group of the runner. Only the runner decides what happens to the
        // command.
        .process_group(0)
        .stdin(OwnedFd::from(theirs))
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(failed("executing this binary as the launcher"))?;
    drop(blocked);
    let launched = LauncherProcess::new(child, released.scratch, released.row);
    send(&mut control, &frame(protocol), table).map_err(failed("sending the request to the launcher"))?;
    Ok((control, launched))
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

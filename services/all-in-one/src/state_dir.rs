//! The state directory: a lock, the stores, the sockets, the keys, the token, and the workspaces of executions without one.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use belay_proto::stores::Service;
use belay_service_kit::{
    Ids,
    program::{self, FolderError},
    register, register_file, state_files,
};

use crate::{endpoint::Endpoint, error::StartError};

/// A state directory that exists and only this user can access.
#[derive(Debug)]
pub struct StateDir(PathBuf);

/// The held lock of the state directory.
#[derive(Debug)]
pub(crate) struct StateLock(#[expect(dead_code, reason = "the lock is held as long as the file is open")] File);

/// The holder of a state directory.
#[derive(Debug)]
pub(crate) enum StateHolder {
    Ours(StateLock),
    /// Its services listen here.
    Theirs(Endpoint),
}

/// The time that a process has, after it took the lock, to open its socket.
const HOLDER_STARTS: Duration = Duration::from_secs(5);

/// How many attempts to take the lock, 20 ms apart, a holder that seems to have ended has to release it: a second.
const UNSEEN_HOLDER: u32 = 50;

impl StateDir {
    /// The path of the state directory: the flag, else `$XDG_STATE_HOME/belay`, else `~/.local/state/belay`.
    ///
    /// # Errors
    /// [`StartError::NoStateDir`] if none of them is set.
    pub fn resolve(flag: Option<&Path>, env: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, StartError> {
        let from = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        flag.map(Path::to_owned)
            .or_else(|| from("XDG_STATE_HOME").map(|home| home.join("belay")))
            .or_else(|| from("HOME").map(|home| home.join(".local/state/belay")))
            .ok_or(StartError::NoStateDir)
    }

    /// Creates the directory or uses the existing one: see [`program::state_folder`].
    pub(crate) fn prepare(path: &Path) -> Result<Self, StartError> {
        match program::state_folder(path) {
            Ok(path) => Ok(Self(path)),
            Err(FolderError::Io { path, source }) => Err(StartError::StateDir { path, source }),
            Err(FolderError::Foreign(path)) => Err(StartError::ForeignStateDir(path)),
            Err(FolderError::Shared { path, mode }) => Err(StartError::SharedStateDir { path, mode }),
        }
    }

    /// Takes the lock; `None` if another process holds it. The kernel releases it when the process ends, in any way.
    pub(crate) fn lock(&self) -> Result<Option<StateLock>, StartError> {
        let unusable = |source| StartError::StateDir { path: self.0.clone(), source };
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.0.join("lock"))
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(unusable)?;
                Ok(Some(StateLock(file)))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(unusable(source)),
        }
    }

    /// Whether the process that took the lock last still runs, as far as this process can see.
    fn is_holder_alive(&self) -> bool {
        let holder = fs::read_to_string(self.0.join("lock")).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{}/stat", holder.trim())).unwrap_or_default();
        // After the program's name in parentheses comes the state.
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    /// Takes the lock, or waits until its holder responds. A holder that is shutting down no longer responds, and then releases the lock. For one
    /// that was killed, a child that it had just forked may have its lock and its socket for a moment: that is no response.
    pub(crate) async fn hold(&self) -> Result<StateHolder, StartError> {
        let either = async {
            for attempt in 0_u32.. {
                if let Some(held) = self.lock()? {
                    return Ok(StateHolder::Ours(held));
                }
                // A holder that cannot be seen may be in another container.
                if answers(&self.executor_socket()) && (attempt >= UNSEEN_HOLDER || self.is_holder_alive()) {
                    return Ok(StateHolder::Theirs(Endpoint::Unix(self.executor_socket())));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(StartError::HolderSilent(self.0.clone()))
        };
        let settled = tokio::time::timeout(HOLDER_STARTS, either).await;
        settled.unwrap_or_else(|_| Err(StartError::HolderSilent(self.0.clone())))
    }

    /// The file of a service's store.
    pub(crate) fn store(&self, service: Service) -> PathBuf {
        match service {
            Service::Executor => self.journal(),
            Service::Runner => self.ledger(),
            Service::Gate => self.approvals(),
        }
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join(state_files::JOURNAL)
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.0.join(state_files::LEDGER)
    }

    pub(crate) fn approvals(&self) -> PathBuf {
        self.0.join(state_files::APPROVALS)
    }

    /// The folder of the executor's blobs.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.0.join(BLOBS)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The parent directory of the workspaces of executions that name none.
    pub(crate) fn workspaces(&self) -> Result<PathBuf, StartError> {
        let path = self.0.join(WORKSPACES);
        program::private_folder(&path).map_err(|source| StartError::StateDir { path: path.clone(), source })?;
        Ok(path)
    }

    /// The socket for decisions of users. The socket of the executor serves the same API.
    pub(crate) fn gate_socket(&self) -> PathBuf {
        self.0.join("gate.sock")
    }

    /// The socket for requests of the executor. Only services call here, and no service decides.
    pub(crate) fn gate_service_socket(&self) -> PathBuf {
        self.0.join("gate-service.sock")
    }

    pub(crate) fn executor_socket(&self) -> PathBuf {
        self.0.join(EXECUTOR_SOCKET)
    }

    pub(crate) fn runner_socket(&self) -> PathBuf {
        self.0.join("runner.sock")
    }

    /// The file of the principals other than the owner.
    pub(crate) fn principals(&self) -> PathBuf {
        self.0.join(register_file::FILE)
    }

    /// The owner's token, for connections that do not identify the user; created at the first start.
    pub(crate) fn token(&self, ids: &Ids) -> Result<String, StartError> {
        let path = self.0.join("token");
        let unusable = |source| StartError::StateDir { path: path.clone(), source };
        match fs::read_to_string(&path) {
            Ok(token) if !token.trim().is_empty() => {
                let (token, shown) = (token.trim().to_owned(), path.display().to_string());
                return match register::token_problem(&format!("the token in {shown}"), &token) {
                    None => Ok(token),
                    Some(problem) => Err(StartError::WeakToken(format!("{problem}, or remove the file for a new one"))),
                };
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(error)),
        }
        let token = register::token(ids.next_key());
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(unusable)?;
        writeln!(file, "{token}").map_err(unusable)?;
        Ok(token)
    }
}

const EXECUTOR_SOCKET: &str = "executor.sock";
pub(crate) const BLOBS: &str = "blobs";
pub(crate) const WORKSPACES: &str = "workspaces";

/// The path of a folder that the services make for executions without a named workspace, by its namespace and id. They make it when a call
/// needs it.
pub fn made_folder(state_dir: &Path, namespace: &str, id: &str) -> PathBuf {
    [WORKSPACES, namespace, id].iter().fold(state_dir.to_owned(), |path, part| path.join(part))
}

/// Whether a directory is a state directory: it contains state, or a process has just begun to create some. An unreadable directory counts,
/// so that opening it reports why.
pub fn is_state_dir(path: &Path) -> bool {
    ["lock", state_files::JOURNAL].iter().any(|name| path.join(name).try_exists().unwrap_or(true))
}

/// The endpoint of the services that currently run on this state directory, if any.
pub fn find_running(state_dir: &Path) -> Option<Endpoint> {
    let socket = state_dir.join(EXECUTOR_SOCKET);
    answers(&socket).then_some(Endpoint::Unix(socket))
}

fn answers(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_flag_overrides_the_environment() {
        let env = |name: &str| match name {
            "XDG_STATE_HOME" => Some("/state".into()),
            "HOME" => Some("/home/me".into()),
            _ => None,
        };
        let resolve = |flag: Option<&str>, env: &dyn Fn(&str) -> Option<OsString>| {
            StateDir::resolve(flag.map(Path::new), env).unwrap()
        };
        assert_eq!(resolve(Some("/flag"), &env), Path::new("/flag"));
        assert_eq!(resolve(None, &env), Path::new("/state/belay"));
        let home = |name: &str| env(name).filter(|_| name == "HOME");
        assert_eq!(resolve(None, &home), Path::new("/home/me/.local/state/belay"));
        assert!(matches!(StateDir::resolve(None, &|_| None), Err(StartError::NoStateDir)));
    }

    #[test]
    fn it_is_private_and_held_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let state_dir = StateDir::prepare(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert!(!is_state_dir(&path), "an empty directory is not a state directory");
        let held = state_dir.lock().unwrap();
        assert!(is_state_dir(&path));
        assert!(held.is_some() && state_dir.lock().unwrap().is_none());
        drop(held);
        assert!(state_dir.lock().unwrap().is_some());
    }

    /// A holder that ends, cleanly or not, releases the lock to the next process, and a socket without a listener does not count as a
    /// response.
    #[tokio::test]
    async fn whoever_waits_for_a_holder_that_ends_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::prepare(folder.path()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(state_dir.executor_socket()).unwrap());
        let before = state_dir.lock().unwrap();
        let (holding, ()) = tokio::join!(state_dir.hold(), async { drop(before) });
        let Ok(StateHolder::Ours(_held)) = holding else { panic!("{holding:?}") };

        std::fs::remove_file(state_dir.executor_socket()).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(state_dir.executor_socket()).unwrap();
        assert!(matches!(state_dir.hold().await, Ok(StateHolder::Theirs(_))));
    }

    /// A killed holder whose forked child has its lock and its listening socket for a moment.
    #[tokio::test]
    async fn the_socket_of_a_holder_that_was_killed_is_no_response() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::prepare(folder.path()).unwrap();
        let before = state_dir.lock().unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(state_dir.executor_socket()).unwrap();
        assert!(state_dir.is_holder_alive());
        // No process has such an id.
        fs::write(folder.path().join("lock"), "4194305").unwrap();
        let (holding, ()) = tokio::join!(state_dir.hold(), async { drop(before) });
        let Ok(StateHolder::Ours(_held)) = holding else { panic!("{holding:?}") };
        fs::write(folder.path().join("lock"), "4194305").unwrap();
        assert!(matches!(state_dir.hold().await, Ok(StateHolder::Theirs(_))), "one in another container goes on");
    }

    #[test]
    fn the_token_is_stable_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::prepare(folder.path()).unwrap();
        let token = state_dir.token(&Ids::seeded(1)).unwrap();
        assert_eq!(state_dir.token(&Ids::seeded(2)).unwrap(), token);
        fs::write(state_dir.path().join("token"), "t0p5ecret\n").unwrap();
        let refused = state_dir.token(&Ids::seeded(3)).unwrap_err().to_string();
        assert!(refused.contains("shorter than 16 characters") && !refused.contains("t0p5"), "{refused}");
        fs::write(state_dir.path().join("token"), &token).unwrap();
        assert_eq!(fs::metadata(folder.path().join("token")).unwrap().mode() & 0o777, 0o600);
        assert!(token.starts_with(register::TOKEN_PREFIX) && token.len() == register::TOKEN_PREFIX.len() + 64);
    }
}

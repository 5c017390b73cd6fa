//! Proves with real attacks that the sandbox is secure. A service must not run commands if an attack succeeds.

use std::{
    fs, io,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{PermissionsExt as _, symlink},
            net::{SocketAddr, UnixListener},
        },
    },
    process::id,
};

use crate::{
    error::LaunchError,
    launcher::NamespaceLauncher,
    limits::Limits,
    mounts::{Mount, MountKind},
    output::OutputCaps,
    probe,
    protocol::{ATTACKS, CANARY, SHOWN, SHOWN_SCRATCH},
    running::Status,
    spec::{Spec, WorkspaceMount},
};

/// The result of one attack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttackResult {
    /// The attack.
    pub attack: String,
    /// Whether it succeeded: the sandbox is not secure then, and nothing may run in it.
    pub possible: bool,
    /// Details, such as the error of the kernel.
    pub detail: String,
}

/// Why the self-test could not run.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// The targets could not be set up.
    #[error("the self-test could not set up its targets: {0}")]
    Targets(#[from] io::Error),
    /// The sandbox did not start.
    #[error(transparent)]
    Launch(LaunchError),
    /// The processes of the self-test were killed before the attacks started, or its time was over.
    #[error("the processes of the self-test were killed before its attacks started")]
    Killed,
    /// The attacks ended before all of them had run.
    #[error("the self-test's attacks ended early ({status:?}): {output}")]
    EndedEarly {
        /// Their exit status.
        status: Status,
        /// Their output.
        output: String,
    },
}

impl From<LaunchError> for SelfTestError {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::LauncherLost { .. } => Self::Killed,
            // Its time was over before it had started.
            LaunchError::Spec { field, .. } if field == "timeout" => Self::Killed,
            error => Self::Launch(error),
        }
    }
}

impl SelfTestError {
    /// Whether it says nothing about the sandbox on this machine: the self-test was killed, or it ran out of time, memory or space.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Targets(error) => LaunchError::launcher("setting up the targets", clone_of(error)).is_lost(),
            Self::Launch(error) => error.is_lost(),
            Self::Killed => true,
            Self::EndedEarly { status, .. } => {
                matches!(status, Status::Lost | Status::Killed | Status::TimedOut | Status::DiskLimit(_))
                    || *status == Status::Signalled(libc::SIGKILL)
            }
        }
    }
}

fn clone_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Runs the built-in attacks inside the sandbox, against targets created for them: a secret file, sockets, a listener, this process.
///
/// # Errors
/// When the attacks could not be completed. That proves nothing.
pub fn self_test(launcher: &NamespaceLauncher) -> Result<Vec<AttackResult>, SelfTestError> {
    let folder = tempfile::tempdir()?;
    // The sandbox, not file modes, has to protect the targets.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let [workspace, staging] = ["workspace", "staging"].map(|name| folder.path().join(name));
    let hidden = workspace.join("hidden");
    for made in [&workspace, &staging, &hidden] {
        fs::create_dir(made)?;
    }
    let secret = folder.path().join("secret");
    for file in [&secret, &hidden.join("secret"), &workspace.join("file")] {
        fs::write(file, CANARY)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o666))?;
    }
    let shown = folder.path().canonicalize()?.join("shown");
    fs::create_dir(&shown)?;
    fs::write(shown.join("file"), CANARY)?;
    let mut in_folders = Vec::new();
    for folder in [&workspace, &shown] {
        let socket = folder.join("socket");
        in_folders.push(UnixListener::bind(&socket)?);
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777))?;
    }
    symlink(&secret, workspace.join("link-to-secret"))?;
    symlink("/proc/1/root", workspace.join("link-to-root"))?;

    let socket = folder.path().join("socket");
    let _at_path = UnixListener::bind(&socket)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777))?;
    let name = format!("{CANARY}-{}", id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let tcp = TcpListener::bind("127.0.0.1:0")?;
    // Not every machine has an IPv6 loopback.
    let _tcp6 = TcpListener::bind(("::1", tcp.local_addr()?.port()));

    let mount = WorkspaceMount { hidden: vec!["hidden".into()], ..WorkspaceMount::staged(&workspace, &staging) };
    let targets = [
        secret.into_os_string(),
        socket.into_os_string(),
        name.into(),
        tcp.local_addr()?.port().to_string().into(),
        id().to_string().into(),
        launcher.variables().join(" ").into(),
    ];
    let mut spec = Spec::new(ATTACKS, targets, mount);
    spec.limits = Some(Limits { processes: 64, ..Limits::default() });
    spec.timeout = Some(probe::MAX_WAIT);
    spec.mounts = vec![
        Mount { source: shown.clone(), target: SHOWN.into(), kind: MountKind::ReadOnly },
        Mount { source: shown, target: SHOWN_SCRATCH.into(), kind: MountKind::Scratch },
    ];
    let mut attacks = launcher.launch_attacks(spec)?;
    let (outcome, output) = attacks.collect(OutputCaps::default())?;
    attacks.tear_down()?;

    let report = output.stdout.text();
    let mut results: Vec<AttackResult> = report.lines().filter_map(parse).collect();
    if outcome.status != Status::Exited(0) || results.len() != crate::attacks::COUNT {
        let output = format!("{report}{}", output.stderr.text());
        return Err(SelfTestError::EndedEarly { status: outcome.status, output });
    }
    let untouched = fs::read_to_string(workspace.join("file"))? == CANARY;
    results.push(AttackResult {
        attack: "change a file of the workspace itself".to_owned(),
        possible: !untouched,
        detail: if untouched { "the change stayed in the upper folder" } else { "the workspace was changed" }
            .to_owned(),
    });
    Ok(results)
}

fn parse(line: &str) -> Option<AttackResult> {
    let mut parts = line.splitn(3, '\t');
    let (verdict, attack, detail) = (parts.next()?, parts.next()?, parts.next()?);
    let possible = match verdict {
        "blocked" => false,
        "POSSIBLE" => true,
        _ => return None,
    };
    Some(AttackResult { attack: attack.to_owned(), possible, detail: detail.to_owned() })
}

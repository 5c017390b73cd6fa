//! The process at the other end of a unix socket.

use std::{fs, os::fd::OwnedFd, path::Path};

use belay_defects::{Defect, is_planted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::UnixStream;

use crate::peer_process::peer_process;

/// The process at the other end of a unix socket, as it was when the connection was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its user, as the kernel reports it.
    pub(crate) uid: Option<u32>,
    /// Whether it is in another user namespace, or in one that could not be found out. Its user says nothing then: a command in a sandbox has the
    /// user of who runs the sandbox, seen from outside.
    pub(crate) is_foreign: bool,
}

impl Peer {
    pub(crate) fn of(stream: &UnixStream) -> Self {
        let Ok(credentials) = stream.peer_cred() else { return Self { uid: None, is_foreign: true } };
        let is_foreign = match credentials.pid() {
            // A process that has no number in this pid namespace is in a container beside this one, which was given the socket. What runs in a
            // sandbox below this process has one.
            None | Some(0) => false,
            Some(_) if is_planted(Defect::ForeignPeerTrusted) => false,
            Some(pid) => {
                let process = peer_process(stream);
                let is_own = is_in_own_user_namespace(Path::new("/proc"), &pid.to_string());
                // One that has ended may have left its connection to another process, and its number to a third.
                let is_there = process.is_ok_and(|process| process.is_none_or(|process| is_running(&process)));
                !is_own || !is_there
            }
        };
        Self { uid: Some(credentials.uid()), is_foreign }
    }
}

/// Whether the process is known not to have ended.
fn is_running(process: &OwnedFd) -> bool {
    let mut ended = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ended, Some(&Timespec::default())).is_ok_and(|count| count == 0)
}

/// Whether a process is known to be in the user namespace of this one.
///
/// Another user's namespace cannot be read, but the ids that are mapped into it can. A process that is not privileged makes a namespace with
/// other ones than those of its parent.
fn is_in_own_user_namespace(proc: &Path, pid: &str) -> bool {
    let mapped = |pid: &str, ids: &str| fs::read(proc.join(pid).join(ids)).ok();
    let same_ids =
        |ids: &str| mapped(pid, ids).is_some_and(|theirs| mapped("self", ids).is_some_and(|own| own == theirs));
    let namespace = |pid: &str| fs::read_link(proc.join(pid).join("ns/user")).ok();
    let is_other = match (namespace("self"), namespace(pid)) {
        (Some(own), Some(theirs)) => own != theirs,
        _ => false,
    };
    !is_other && same_ids("uid_map") && same_ids("gid_map")
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        os::unix::fs::symlink,
        process::{Command, Stdio},
        time::Duration,
    };

    use belay_defects::assert_attack_needs;
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_process_beside_this_one_is_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let _client = UnixStream::connect(folder.path().join("socket")).await.unwrap();
        let own = rustix::process::geteuid().as_raw();
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(Peer::of(&accepted), Peer { uid: Some(own), is_foreign: false });
    }

    /// A command in a sandbox, or a rootless container: outside it has the same user.
    #[test]
    fn a_process_in_another_user_namespace_is_foreign() {
        let connect = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(connection_from_another_user_namespace())
        };
        let Some(_) = connect() else { return };
        assert_attack_needs(Defect::ForeignPeerTrusted, "is taken for its user", || match connect() {
            Some(peer) if !peer.is_foreign => Err(format!("it is taken for its user: {peer:?}")),
            _ => Ok(()),
        });
    }

    /// `None` where there can be none.
    async fn connection_from_another_user_namespace() -> Option<Peer> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let script = "use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!; <STDIN>";
        let words = ["--user", "--map-root-user", "perl", "-e", script];
        let child = Command::new("unshare").args(words).arg(&path).stdin(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: unshare is not installed");
            return None;
        };
        // Resolves with a connection, or with the end of a process that could make no namespace.
        let (ended, mut end) = tokio::sync::oneshot::channel();
        let mut stdin = child.stdin.take().unwrap();
        let waiting = std::thread::spawn(move || {
            let status = child.wait().unwrap();
            // The test has ended.
            let _ = ended.send(status);
        });
        let accepted = tokio::select! {
            accepted = listener.accept() => Some(accepted.unwrap().0),
            status = &mut end => {
                eprintln!("skipped: no user namespace can be made here ({})", status.unwrap());
                None
            }
        };
        let peer = accepted.as_ref().map(Peer::of);
        // It has read its input and ends.
        drop(stdin.write_all(b"\n"));
        drop(stdin);
        waiting.join().unwrap();
        peer
    }

    /// A command in a sandbox connects, leaves the connection to a child and ends; a process beside the service gets its number.
    #[tokio::test]
    async fn the_number_of_a_process_that_has_ended_says_nothing() {
        const LAST: &str = "/proc/sys/kernel/ns_last_pid";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let script =
            "use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!; fork and exit; <STDIN>";
        let connected = Command::new("perl").args(["-e", script]).arg(&path).stdin(Stdio::piped()).spawn();
        let Ok(mut connected) = connected else {
            eprintln!("skipped: perl is not installed");
            return;
        };
        let number = connected.id();
        // Kept open: the child of that process waits for its end.
        let stdin = connected.stdin.take();
        let accepted = tokio::time::timeout(Duration::from_secs(60), listener.accept()).await;
        let (accepted, _) = accepted.expect("it connects").unwrap();
        assert!(connected.wait().unwrap().success());
        for _ in 0..100 {
            if fs::write(LAST, (number - 1).to_string()).is_err() {
                eprintln!("skipped: only root can choose the number of a process");
                return;
            }
            let mut next = Command::new("sleep").arg("60").spawn().unwrap();
            let has_its_number = next.id() == number;
            let peer = has_its_number.then(|| Peer::of(&accepted));
            next.kill().unwrap();
            next.wait().unwrap();
            if let Some(peer) = peer {
                assert!(peer.is_foreign, "{peer:?}");
                drop(stdin);
                return;
            }
        }
        eprintln!("skipped: other processes have taken the number");
    }

    #[test]
    fn a_process_that_cannot_be_looked_at_is_foreign() {
        let folder = tempfile::tempdir().unwrap();
        let process = |pid: &str, ids: &str, namespace: Option<&str>| {
            fs::create_dir_all(folder.path().join(pid).join("ns")).unwrap();
            for map in ["uid_map", "gid_map"] {
                fs::write(folder.path().join(pid).join(map), ids).unwrap();
            }
            if let Some(namespace) = namespace {
                symlink(namespace, folder.path().join(pid).join("ns/user")).unwrap();
            }
        };
        process("self", "0 0 4294967295", Some("user:[1]"));
        process("2", "0 0 4294967295", Some("user:[1]"));
        process("3", "0 0 4294967295", None);
        process("4", "0 0 4294967295", Some("user:[2]"));
        process("5", "1000 0 1", None);
        fs::create_dir(folder.path().join("6")).unwrap();
        let own = |pid: &str| is_in_own_user_namespace(folder.path(), pid);
        assert!(own("2") && own("3"), "the process of another user does not show its namespace");
        assert!(!own("4") && !own("5") && !own("6") && !own("7"));
    }
}

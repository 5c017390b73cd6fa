//! Signals of what another process writes to a database.

use std::{
    ffi::{OsStr, OsString},
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::inotify::{self, CreateFlags, Reader, WatchFlags},
    io::Errno,
};
use tokio::{io::unix::AsyncFd, sync::watch};

use crate::{Location, open::beside};

/// How long writes gather into one signal. A commit is several writes, and a busy owner makes thousands of commits in a second.
const GATHER: Duration = Duration::from_millis(5);

/// A receiver that changes whenever some process has written to the log of a database, while the receiver is in use. A commit can be read a moment after
/// its last write: the log is flushed in between. Where the kernel gives no such signals, which the log then says, it never changes.
///
/// # Panics
/// Outside a runtime of tokio.
#[must_use]
pub fn log_writes(location: &Location) -> watch::Receiver<()> {
    let (sender, receiver) = watch::channel(());
    let log = beside(location, "-wal");
    let watched = log.parent().map_or_else(|| Err(io::ErrorKind::NotFound.into()), watch_folder);
    let name = log.file_name().unwrap_or_default().to_owned();
    tokio::spawn(async move {
        // It lasts as long as its receivers, also where it never signals.
        let signal = async {
            let error = match watched {
                Ok(folder) => signal_writes(&folder, &name, &sender).await.err(),
                Err(error) => Some(error),
            };
            if let Some(error) = error {
                tracing::warn!(log = %log.display(), %error, "Writes of another process to the store are not signalled; it is only read at intervals");
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = sender.closed() => {}
            () = signal => {}
        }
    });
    receiver
}

/// The folder is watched and not the file, which is made anew by the owner's next start.
fn watch_folder(folder: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    inotify::add_watch(&inotify, folder, WatchFlags::MODIFY | WatchFlags::CREATE)?;
    #[expect(
        deprecated,
        reason = "sound here, and the way that is not deprecated is unsafe: an owned descriptor is the same one for life"
    )]
    AsyncFd::new(inotify)
}

async fn signal_writes(folder: &AsyncFd<OwnedFd>, log: &OsString, sender: &watch::Sender<()>) -> io::Result<()> {
    loop {
        let mut ready = folder.readable().await?;
        if read_events(folder.get_ref(), log)? {
            sender.send_replace(());
        }
        ready.clear_ready();
        tokio::time::sleep(GATHER).await;
    }
}

/// Takes all events that there are. Returns whether one is about the log.
fn read_events(inotify: &OwnedFd, log: &OsStr) -> io::Result<bool> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(inotify, &mut buffer);
    let mut is_about_log = false;
    loop {
        match events.next() {
            // One without a name says that some were lost.
            Ok(event) => is_about_log |= event.file_name().is_none_or(|name| name.to_bytes() == log.as_bytes()),
            Err(Errno::AGAIN) => return Ok(is_about_log),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn writes_of_another_process_are_signalled_and_those_to_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("store"));
        let mut writes = log_writes(&location);
        let write = |name: &str| std::fs::write(folder.path().join(name), "x").unwrap();
        write("store-wal");
        writes.changed().await.unwrap();
        write("store");
        write("another-wal");
        tokio::time::sleep(4 * GATHER).await;
        assert!(!writes.has_changed().unwrap());
        // Made anew, as by a start.
        std::fs::remove_file(folder.path().join("store-wal")).unwrap();
        write("store-wal");
        writes.changed().await.unwrap();
    }
}

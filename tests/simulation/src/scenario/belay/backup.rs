//! A backup of everything: the disks of all services, copied while none of them runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::site::SITE;
use crate::world::World;
use crate::{disk, machine};

/// Folders of a backup: the stores with the blobs, and the workspaces.
const FOLDERS: [&str; 3] = ["/data", "/work", "/shared"];
/// How often a service that is stopped looks whether it may continue.
const LOOK: Duration = Duration::from_millis(5);
/// How long all services are stopped at least: longer than a message is on its way.
const DOWN: Duration = Duration::from_millis(200);
/// Every machine has power again within this time.
const MAX_DOWN: Duration = Duration::from_secs(20);

/// The backup. Clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Backup(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// The hosts that have done what the phase asks for.
    done: BTreeSet<&'static str>,
    /// By host, and by path.
    disks: BTreeMap<&'static str, BTreeMap<PathBuf, Vec<u8>>>,
    /// How many times it was put back.
    restores: u32,
    /// Whether it will be put back.
    is_due: bool,
    /// Whether the journal is accepted then as one that is older, so that watchers are told.
    is_accepted: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Serving,
    Copying,
    Restoring,
}

impl Backup {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many times it was put back.
    pub(super) fn restores(&self) -> u32 {
        self.state().restores
    }

    /// Whether a watcher has to know by itself that it was put back: nothing tells it.
    pub(super) fn is_silent(&self) -> bool {
        !self.state().is_accepted
    }

    /// Whether it will be put back.
    pub(super) fn is_due(&self) -> bool {
        self.state().is_due
    }

    /// Returns when it will not be put back any more.
    pub(super) async fn until_settled(&self) {
        while self.is_due() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Before a service starts: makes or puts back the copy of its disk, and waits for the other services.
    pub(super) async fn attend(&self, host: &'static str) {
        loop {
            let phase = {
                let state = self.state();
                if state.phase == Phase::Serving {
                    return;
                }
                (!state.done.contains(host)).then_some(state.phase)
            };
            match phase {
                Some(Phase::Copying) => {
                    let copy = machine::without_faults(copy);
                    self.state().disks.insert(host, copy);
                }
                Some(Phase::Restoring) => {
                    let copy = self.state().disks.get(host).cloned().unwrap_or_default();
                    machine::without_faults(|| restore(&copy));
                }
                Some(Phase::Serving) | None => {}
            }
            self.state().done.insert(host);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Stops all services until each has done what the phase asks for.
    fn stop(&self, world: &mut World, phase: Phase) -> turmoil::Result {
        {
            let mut state = self.state();
            (state.phase, state.done) = (phase, BTreeSet::new());
        }
        for host in SITE.servers {
            world.kill(host);
        }
        world.run_until(DOWN, || false)?;
        match world.run_until(MAX_DOWN, || self.state().done.len() == SITE.servers.len())? {
            true => Ok(()),
            false => Err("a service does not start, and its disk cannot be copied".into()),
        }
    }

    /// Announces that it will be put back, and whether the journal is accepted then as one that is older.
    pub(super) fn announce(&self, is_accepted: bool) {
        let mut state = self.state();
        (state.is_due, state.is_accepted) = (true, is_accepted);
    }

    /// Stops all services, and makes it. They wait for [`Self::made`].
    pub(super) fn make(&self, world: &mut World) -> turmoil::Result {
        self.stop(world, Phase::Copying)
    }

    /// Has the services continue after it was made.
    pub(super) fn made(&self) {
        self.state().phase = Phase::Serving;
    }

    /// Stops all services, and puts it back. They wait for [`Self::restored`].
    pub(super) fn restore(&self, world: &mut World) -> turmoil::Result {
        self.state().restores += 1;
        self.stop(world, Phase::Restoring)
    }

    /// Has the services continue after it was put back for the last time.
    pub(super) fn restored(&self) {
        let mut state = self.state();
        (state.phase, state.is_due) = (Phase::Serving, false);
    }
}

/// All files on the executing machine's disk.
fn copy() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in FOLDERS.map(Path::new) {
        if disk::exists(folder).expect("a calm disk does not fail") {
            files.extend(disk::tree(folder).expect("a calm disk does not fail"));
        }
    }
    files
}

/// Replaces all files on the executing machine's disk, durably.
fn restore(copy: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in self::copy().keys().filter(|path| !copy.contains_key(*path)) {
        // turmoil keeps what was written and not synced for a file that gets the name again.
        disk::replace(path, &[]).and_then(|()| disk::remove(path, true)).expect("a calm disk does not fail");
    }
    for (path, content) in copy {
        let folder = path.parent().unwrap_or(Path::new("/"));
        disk::make_folder(folder).and_then(|()| disk::replace(path, content)).expect("a calm disk does not fail");
    }
}

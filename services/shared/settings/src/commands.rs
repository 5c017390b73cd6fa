//! The section `commands`: what commands see and use, and which variables they get.

use std::path::PathBuf;

use crate::{Cache, CacheUse, KNOWN_CACHES, Origin, ValueWithOrigin};

/// A file or directory of the host that commands see read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisiblePath {
    /// Where it is on the host.
    pub from: PathBuf,
    /// Where commands see it.
    pub at: PathBuf,
}

/// Where `/tmp` and the home directory of a command are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Next to the view of the call, on disk.
    Workspace,
    /// In this directory, on disk.
    Folder(PathBuf),
    /// In memory.
    Memory,
}

/// The writable directories of a command outside its workspace, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Where `/tmp` and HOME are stored.
    pub place: ValueWithOrigin<Place>,
    /// Bytes of `/tmp`.
    pub tmp: ValueWithOrigin<u64>,
    /// Bytes of HOME.
    pub home: ValueWithOrigin<u64>,
    /// Bytes of `/dev/shm`, which is memory.
    pub shm: ValueWithOrigin<u64>,
    /// Files, directories and links in each of `/tmp` and HOME.
    pub files: ValueWithOrigin<u64>,
}

/// Limits on what a command may change in its view of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewBudget {
    /// Bytes.
    pub size: ValueWithOrigin<u64>,
    /// Files, directories and links.
    pub files: ValueWithOrigin<u64>,
}

/// The space that a command leaves free on each disk that it writes to. `None`: relative to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Bytes.
    pub size: ValueWithOrigin<Option<u64>>,
    /// Inodes.
    pub files: ValueWithOrigin<Option<u64>>,
}

/// Resource limits of one command. `None`: no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processes and threads.
    pub processes: ValueWithOrigin<u32>,
    /// Open files of each process.
    pub open_files: ValueWithOrigin<u64>,
    /// Bytes of the largest file.
    pub file_size: ValueWithOrigin<Option<u64>>,
    /// Bytes of address space of each process.
    pub address_space: ValueWithOrigin<Option<u64>>,
    /// Seconds of processor time of each process.
    pub cpu_time: ValueWithOrigin<Option<u64>>,
}

/// The files that commands see, and the resources that they use and may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commands {
    /// Whether commands see the toolchains on the caller's PATH. Only where the services run inside `belay`: a separate service has no
    /// caller.
    pub find_toolchains: ValueWithOrigin<bool>,
    /// Files and directories that commands see read-only, besides `/usr`.
    pub read_only: Vec<ValueWithOrigin<VisiblePath>>,
    /// Directories to search for programs before all others.
    pub path: Vec<ValueWithOrigin<PathBuf>>,
    /// Variables that every command gets.
    pub env: Vec<(String, ValueWithOrigin<String>)>,
    /// Variables that affect programs and loaders, and that a plan may set nevertheless.
    pub plans_may_set: Vec<ValueWithOrigin<String>>,
    /// Limits on what a command may change in its view of the workspace.
    pub view: ViewBudget,
    /// Writable directories outside the workspace.
    pub scratch: Scratch,
    /// The space that a command leaves free on each disk.
    pub reserve: Reserve,
    /// Resource limits of one command.
    pub limits: Limits,
    /// Seconds that a cancelled command has from the request to end (SIGTERM) until it is killed; 0 kills it at once.
    pub stop_grace: ValueWithOrigin<u64>,
    /// How many calls may wait for answers to their questions at once.
    pub asking_calls: ValueWithOrigin<u64>,
    /// Caches of package managers, the known ones first.
    pub caches: Vec<ValueWithOrigin<Cache>>,
}

impl Default for Commands {
    fn default() -> Self {
        let (disk, none) = (8 << 30, || ValueWithOrigin::default_of(None));
        let known = |known: &crate::KnownCache| Cache {
            name: known.name.to_owned(),
            used: CacheUse::Read,
            from: None,
            at: known.place.into(),
        };
        Self {
            find_toolchains: ValueWithOrigin::default_of(true),
            read_only: Vec::new(),
            path: Vec::new(),
            env: Vec::new(),
            plans_may_set: Vec::new(),
            view: ViewBudget { size: ValueWithOrigin::default_of(disk), files: ValueWithOrigin::default_of(1_000_000) },
            reserve: Reserve { size: none(), files: none() },
            scratch: Scratch {
                place: ValueWithOrigin::default_of(Place::Workspace),
                tmp: ValueWithOrigin::default_of(disk),
                home: ValueWithOrigin::default_of(disk),
                shm: ValueWithOrigin::default_of(512 << 20),
                files: ValueWithOrigin::default_of(1_000_000),
            },
            limits: Limits {
                processes: ValueWithOrigin::default_of(4096),
                open_files: ValueWithOrigin::default_of(1 << 20),
                file_size: ValueWithOrigin::default_of(Some(disk)),
                address_space: none(),
                cpu_time: none(),
            },
            // As long as `docker stop` waits.
            stop_grace: ValueWithOrigin::default_of(10),
            asking_calls: ValueWithOrigin::default_of(32),
            caches: KNOWN_CACHES.iter().map(|cache| ValueWithOrigin::default_of(known(cache))).collect(),
        }
    }
}

impl Commands {
    /// The settings of a separate service: without the toolchains and caches of a caller, except those that the file names.
    #[must_use]
    pub fn without_caller(mut self) -> Self {
        self.find_toolchains.value = false;
        for cache in &mut self.caches {
            if cache.origin == Origin::Default || (cache.value.used == CacheUse::Read && cache.value.from.is_none()) {
                cache.value.used = CacheUse::Off;
            }
        }
        self
    }
}

//! Attacks on resources of the runner that the command must not inherit.

use std::{env, fs};

use rustix::process::{Resource, getrlimit};

use super::attack::{Attack, Verdict};
use crate::environment::{DEFAULTS, OFFLINE};

pub(super) const ATTACKS: &[Attack] = &[
    ("inherit descriptors", |_| {
        let names = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let open: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
        // The fourth is the directory being read.
        Verdict::expect(open == ["0", "1", "2", "3"], open.join(" "))
    }),
    ("inherit variables", |targets| {
        let foreign: Vec<String> = env::vars_os()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .filter(|name| name != "PATH" && !DEFAULTS.iter().chain(OFFLINE).any(|(known, _)| known == name))
            .filter(|name| !targets.variables.contains(name))
            .collect();
        Verdict::expect(foreign.is_empty(), if foreign.is_empty() { "none".to_owned() } else { foreign.join(" ") })
    }),
    ("leave core dumps", |_| Verdict::expect(getrlimit(Resource::Core).maximum == Some(0), "no core dumps")),
];

//! The world outside of Belay, which no crash rolls back: what the tools' bodies really did, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::hosts;
use crate::trace;

/// One run of a tool's body.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// The call's name.
    pub(super) call: String,
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    /// Its place among everything that happens in workspaces.
    pub(super) order: u64,
    /// The place of its end, if it came so far.
    pub(super) ended: Option<u64>,
    /// Microseconds since the Unix epoch.
    pub(super) began: i64,
    /// What it did in its view of a workspace, if it has one and came so far.
    pub(super) effect: Option<Effect>,
    /// Whether the body reached its end, and that was a success. One that was stopped or lost its machine never did.
    pub(super) succeeded: Option<bool>,
}

/// What a run did in its view.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) workspace: PathBuf,
    /// The commit's id, if there is to be one.
    pub(super) commit: String,
    /// What is to be in each file; nothing where it is to be gone.
    pub(super) after: BTreeMap<String, Option<String>>,
}

/// Every run of every body, by its number, and every workspace. Clones are one world.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside(Arc<Mutex<World>>);

#[derive(Debug, Default)]
struct World {
    runs: Vec<Run>,
    workspaces: BTreeSet<PathBuf>,
    /// How many runs have begun and commits have been put in place.
    order: u64,
    /// The place of each commit that was put in place, by its id.
    applied: BTreeMap<String, u64>,
    /// The commits that were brought onto the disk for good.
    synced: BTreeSet<String>,
}

impl World {
    fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
}

impl Outside {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A body begins; returns its run's number.
    pub(super) fn begin(&self, call: &str, tool: &'static str, arguments: &Value) -> usize {
        let mut world = self.world();
        let (number, order) = (world.runs.len(), world.next());
        trace::event(format_args!("run {number} of {tool} {call}"));
        trace::count("runs of a tool");
        world.runs.push(Run {
            call: call.to_owned(),
            tool,
            arguments: arguments.clone(),
            order,
            ended: None,
            began: hosts::now_micros(),
            effect: None,
            succeeded: None,
        });
        number
    }

    /// A body has changed its view.
    pub(super) fn changed(&self, number: usize, effect: Effect) {
        let run = &mut self.world().runs[number];
        match &mut run.effect {
            Some(before) => before.after.extend(effect.after),
            None => run.effect = Some(effect),
        }
    }

    /// A body reaches its end.
    pub(super) fn end(&self, number: usize, succeeded: bool) {
        let mut world = self.world();
        let order = world.next();
        let run = &mut world.runs[number];
        (run.ended, run.succeeded) = (Some(order), Some(succeeded));
    }

    /// Everything that happened.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.world().runs.clone()
    }

    /// A folder is opened as a workspace.
    pub(super) fn workspace(&self, path: &Path) {
        self.world().workspaces.insert(path.to_owned());
    }

    /// A commit is put in place.
    pub(super) fn applied(&self, commit: &str) {
        let mut world = self.world();
        let order = world.next();
        world.applied.insert(commit.to_owned(), order);
    }

    /// The place of a commit among everything that happens in workspaces; `None` for one that only a start of the runner put in place.
    pub(super) fn applied_at(&self, commit: &str) -> Option<u64> {
        self.world().applied.get(commit).copied()
    }

    /// Commits are on the disk for good.
    pub(super) fn synced<'a>(&self, commits: impl Iterator<Item = &'a str>) {
        let mut world = self.world();
        for commit in commits {
            if !world.synced.contains(commit) {
                world.synced.insert(commit.to_owned());
            }
        }
    }

    /// Whether no power loss may take a commit away.
    pub(super) fn is_synced(&self, commit: &str) -> bool {
        self.world().synced.contains(commit)
    }

    /// Every folder that ever was a workspace.
    pub(super) fn workspaces(&self) -> Vec<PathBuf> {
        self.world().workspaces.iter().cloned().collect()
    }
}

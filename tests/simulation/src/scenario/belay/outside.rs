//! The world outside of Belay, which no crash rolls back: what the tools really did, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_proto::runner_v1::answer_tool_call_request::Reply;
use serde_json::Value;

use super::hosts;
use crate::trace;

/// A run of a tool.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// The call's name.
    pub(super) call: String,
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    /// Its position in the order of all actions in workspaces.
    pub(super) order: u64,
    /// The position of its end, if it got so far.
    pub(super) ended: Option<u64>,
    /// Microseconds since the Unix epoch.
    pub(super) began: i64,
    /// Its changes in its view of a workspace, if it has one and got so far.
    pub(super) effect: Option<Effect>,
    /// Whether it ended successfully. A run that was stopped or lost its machine did not.
    pub(super) succeeded: Option<bool>,
    /// The titles of the questions that it asked, and what it was told.
    pub(super) told: Vec<(String, Reply)>,
}

/// A run's changes in its view.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) workspace: PathBuf,
    /// The commit's id, if there will be one.
    pub(super) commit: String,
    /// The new content of each file; `None` when it is deleted.
    pub(super) after: BTreeMap<String, Option<String>>,
}

/// Every run, by number, and every workspace. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside(Arc<Mutex<World>>);

#[derive(Debug, Clone, Default)]
pub(super) struct World {
    runs: Vec<Run>,
    workspaces: BTreeSet<PathBuf>,
    /// The number of runs begun and commits applied.
    order: u64,
    /// The position of each applied commit, by id.
    applied: BTreeMap<String, u64>,
    /// The synced commits.
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

    /// Records the start of a run; returns its number.
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
            told: Vec::new(),
        });
        number
    }

    /// Records a run's changes in its view.
    pub(super) fn changed(&self, number: usize, effect: Effect) {
        let run = &mut self.world().runs[number];
        match &mut run.effect {
            Some(before) => before.after.extend(effect.after),
            None => run.effect = Some(effect),
        }
    }

    /// Records what a run was told about a question.
    pub(super) fn told(&self, number: usize, question: String, reply: Reply) {
        trace::count(match &reply {
            Reply::Answer(_) => "questions of calls answered",
            Reply::Declined(_) => "questions of calls declined",
            Reply::TimedOut(_) => "questions of calls timed out",
        });
        self.world().runs[number].told.push((question, reply));
    }

    /// Records the end of a run.
    pub(super) fn end(&self, number: usize, succeeded: bool) {
        let mut world = self.world();
        let order = world.next();
        let run = &mut world.runs[number];
        (run.ended, run.succeeded) = (Some(order), Some(succeeded));
    }

    /// All runs.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.world().runs.clone()
    }

    /// Records a folder that is opened as a workspace.
    pub(super) fn workspace(&self, path: &Path) {
        self.world().workspaces.insert(path.to_owned());
    }

    /// Records an applied commit.
    pub(super) fn applied(&self, commit: &str) {
        let mut world = self.world();
        let order = world.next();
        world.applied.insert(commit.to_owned(), order);
    }

    /// The position of a commit in the order of all actions in workspaces; `None` for one that a start of the runner applied.
    pub(super) fn applied_at(&self, commit: &str) -> Option<u64> {
        self.world().applied.get(commit).copied()
    }

    /// Records synced commits, by the commit of each change that is synced. One of which a power loss has taken a part before stays unsynced: the rest
    /// of it cannot be synced any more.
    pub(super) fn synced<'a>(&self, changes: impl Iterator<Item = &'a str>) {
        let mut counts = BTreeMap::<&str, usize>::new();
        changes.for_each(|commit| *counts.entry(commit).or_default() += 1);
        let mut world = self.world();
        for (commit, changes) in counts {
            let mut effects = world.runs.iter().filter_map(|run| run.effect.as_ref());
            let effect = effects.find(|effect| effect.commit == commit);
            if effect.is_none_or(|effect| effect.after.len() <= changes) && !world.synced.contains(commit) {
                world.synced.insert(commit.to_owned());
            }
        }
    }

    /// Whether a commit is synced.
    pub(super) fn is_synced(&self, commit: &str) -> bool {
        self.world().synced.contains(commit)
    }

    /// The world so far.
    pub(super) fn copy(&self) -> World {
        self.world().clone()
    }

    /// Restores a copy: the events since are of a history that is gone.
    pub(super) fn restore(&self, copy: World) {
        let mut world = self.world();
        for run in world.runs.iter().skip(copy.runs.len()) {
            trace::count("runs of a history that is gone");
            trace::detail(format_args!("{} ran in a history that is gone", run.call));
        }
        *world = copy;
    }

    /// Every folder that ever was a workspace.
    pub(super) fn workspaces(&self) -> Vec<PathBuf> {
        self.world().workspaces.iter().cloned().collect()
    }
}

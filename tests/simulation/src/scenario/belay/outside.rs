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
}

impl Outside {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A body begins; returns its run's number.
    pub(super) fn begin(&self, call: &str, tool: &'static str, arguments: &Value) -> usize {
        let runs = &mut self.world().runs;
        let number = runs.len();
        trace::event(format_args!("run {number} of {tool} {call}"));
        trace::count("runs of a tool");
        runs.push(Run {
            call: call.to_owned(),
            tool,
            arguments: arguments.clone(),
            began: hosts::now_micros(),
            effect: None,
            succeeded: None,
        });
        number
    }

    /// A body has changed its view.
    pub(super) fn changed(&self, number: usize, effect: Effect) {
        self.world().runs[number].effect = Some(effect);
    }

    /// A body reaches its end.
    pub(super) fn end(&self, number: usize, succeeded: bool) {
        self.world().runs[number].succeeded = Some(succeeded);
    }

    /// Everything that happened.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.world().runs.clone()
    }

    /// A folder is opened as a workspace.
    pub(super) fn workspace(&self, path: &Path) {
        self.world().workspaces.insert(path.to_owned());
    }

    /// Every folder that ever was a workspace.
    pub(super) fn workspaces(&self) -> Vec<PathBuf> {
        self.world().workspaces.iter().cloned().collect()
    }
}

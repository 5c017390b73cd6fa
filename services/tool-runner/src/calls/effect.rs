//! Examines what a call changed in its view: collects the changes, checks them against the policy and other commits, and stages them.
//! Everything here blocks.

use belay_grant::Change;
use belay_policy::{ChangeFact, Decision, Effect, Policy, ToolKind};
use belay_proto::v1::{ErrorClass, tool_call::State};
use belay_reasons as reasons;
use belay_workspace::{CommitError, EffectError, LeftOut, Manifest, RelPath, Stop, TreeError};

use super::{
    decide::{self, After},
    record::{self, Unsuccessful},
};
use crate::{
    Staged, ToolFailure, View, WorkspaceDirectory,
    changes::{self, displayed, judged, kind_for_policy},
    commit_log::{self, Overlap},
    contents::{self, Content},
    facts,
    ledger::Basis,
    repository,
    secrets::CallSecrets,
    subject::{self, ObservedEffect},
    workspace_locks::CommitWindow,
};

/// Evaluates the policy on a call's effect.
#[derive(Clone)]
pub(super) struct Judge {
    pub(super) policy: Policy,
    pub(super) tool: String,
    pub(super) kind: ToolKind,
    /// The id of the call's step.
    pub(super) step: String,
    pub(super) basis: Basis,
}

impl Judge {
    /// What to add to the policy's rules so that these changes need no approval.
    pub(super) fn allowing(&self, changes: &[Change]) -> Vec<String> {
        self.with_facts(changes, |effect| self.policy.rules_for_effect(&self.step, effect))
    }

    pub(super) fn judge(&self, changes: &[Change]) -> Decision {
        self.with_facts(changes, |effect| self.policy.effect(effect))
    }

    /// The changes as rules see them.
    fn with_facts<T>(&self, changes: &[Change], judge: impl FnOnce(&Effect<'_>) -> T) -> T {
        let paths: Vec<String> = changes.iter().map(|change| judged(&change.path)).collect();
        let facts: Vec<ChangeFact<'_>> = changes
            .iter()
            .zip(&paths)
            .map(|(change, path)| ChangeFact { path, kind: kind_for_policy(change.kind), flags: &change.flags })
            .collect();
        judge(&Effect {
            tool: &self.tool,
            kind: self.kind,
            intent: self.basis.intent,
            granted_paths: &self.basis.covered,
            changes: &facts,
        })
    }
}

/// The result of examining a view.
pub(super) enum Examined {
    /// The call changed nothing.
    Nothing,
    /// The policy denies the effect; it was discarded.
    Refused {
        /// Why.
        decision: Decision,
        /// What to add to the policy's rules so that it is allowed; see [`Judge::allowing`].
        allowing: Vec<String>,
    },
    /// The effect is staged.
    Staged(Box<Proposal>),
    /// The effect cannot be committed; it was discarded.
    Failed(Unsuccessful),
}

/// The call was cancelled or timed out during the examination; its effect was discarded.
pub(super) struct Stopped;

/// A staged effect.
pub(super) struct Proposal {
    pub(super) staged: Staged,
    pub(super) observed: ObservedEffect,
    pub(super) decision: Decision,
    /// File contents for the approval; empty when the policy allows the effect.
    pub(super) contents: Vec<Content>,
}

impl Proposal {
    pub(super) fn asks(&self) -> bool {
        decide::after(self.decision.verdict, false) == After::Ask
    }
}

/// The inputs of an examination.
pub(super) struct Examination<'a> {
    pub(super) directory: &'a dyn WorkspaceDirectory,
    pub(super) view_id: &'a str,
    pub(super) judge: &'a Judge,
    /// What people are not shown.
    pub(super) secrets: &'a CallSecrets,
    pub(super) window: &'a CommitWindow,
    /// Returns true once the call was cancelled or its time is up.
    pub(super) stop: Stop<'a>,
}

impl Examination<'_> {
    /// Examines a view that no process uses any more, and consumes it. Also returns the special files that were skipped.
    pub(super) fn run(&self, view: Box<dyn View>) -> Result<(Examined, Vec<LeftOut>), Stopped> {
        match self.directory.effect(&*view, self.stop) {
            Ok(mut manifest) => {
                let left_out = std::mem::take(&mut manifest.left_out);
                let examined = if manifest.is_empty() { Examined::Nothing } else { self.judge(view, &manifest)? };
                Ok((examined, left_out))
            }
            Err(EffectError::Tree(TreeError::Stopped)) => Err(Stopped),
            Err(error) => Ok((Examined::Failed(no_effect(&error, self.window)), Vec::new())),
        }
    }

    fn judge(&self, view: Box<dyn View>, manifest: &Manifest) -> Result<Examined, Stopped> {
        let Self { directory, view_id, judge, secrets, window, stop } = *self;
        let mut facts = facts::facts(manifest);
        let unmodified = || directory.view(&format!("{view_id}-base"));
        repository::flag(&mut facts, &*view, directory.path());
        let mut base = None;
        if repository::changes_configuration(&facts) {
            match unmodified() {
                Ok(view) => repository::flag_as_before(&mut facts, &**base.insert(view), directory.path()),
                Err(error) => return Ok(Examined::Failed(record::workspace_failed(&error))),
            }
        }
        changes::flag_hidden(&mut facts, secrets);
        changes::order(&mut facts);
        let changes = changes::changes(&facts);
        let committed = subject::committed(&facts, &changes.list);
        let observed = ObservedEffect { digest: facts::prefixed(&manifest.digest()), changes, committed };
        if let Some(conflict) = overlapping(window, &observed) {
            return Ok(Examined::Failed(conflict));
        }
        let decision = judge.judge(&observed.changes.list);
        let contents = match decide::after(decision.verdict, false) {
            After::Refuse => {
                let allowing = judge.allowing(&observed.changes.list);
                return Ok(Examined::Refused { decision, allowing });
            }
            After::Commit => {
                drop(base);
                Vec::new()
            }
            After::Ask => match base.map_or_else(unmodified, Ok) {
                Ok(base) => contents::collect(&facts, &*base, &*view),
                Err(error) => return Ok(Examined::Failed(record::workspace_failed(&error))),
            },
        };
        match directory.stage(view, manifest, stop) {
            Ok(staged) => Ok(Examined::Staged(Box::new(Proposal { staged, observed, decision, contents }))),
            Err(CommitError::Stopped | CommitError::Tree(TreeError::Stopped)) => Err(Stopped),
            Err(error) => Ok(Examined::Failed(not_committed(&error, Some(window)))),
        }
    }
}

/// The conflict, if another call's commit has touched one of these paths, a parent or a child of one since this call began.
pub(super) fn overlapping(window: &CommitWindow, observed: &ObservedEffect) -> Option<Unsuccessful> {
    let Overlap { paths, calls } = window.overlap(&commit_log::touched(&observed.changes.list))?;
    let named = paths.iter().take(5).map(|path| format!("`{}`", displayed(path))).collect::<Vec<_>>().join(", ");
    let more = match paths.len().saturating_sub(5) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!("{named}{more} changed during the call; retry it on the current files");
    Some((State::Cancelled, record::conflict(&what, &calls)))
}

/// The calls whose commits touched these paths since this call began.
fn others(window: Option<&CommitWindow>, paths: &[RelPath]) -> Vec<String> {
    let paths: Vec<String> = paths.iter().map(RelPath::written).collect();
    window.map(|window| window.committers(&paths)).unwrap_or_default()
}

fn no_effect(error: &EffectError, window: &CommitWindow) -> Unsuccessful {
    match error {
        EffectError::Conflict { paths } => (State::Cancelled, record::conflict(error, &others(Some(window), paths))),
        EffectError::Io(_) | EffectError::Tree(belay_workspace::TreeError::Io(_)) => record::workspace_failed(error),
        EffectError::Reserved { .. } | EffectError::Tree(_) => {
            let message = format!("The changes of the call cannot be committed: {error}.");
            (State::Failed, ToolFailure::new(ErrorClass::SandboxViolation, reasons::EFFECT_REFUSED, message))
        }
    }
}

/// The failure of a commit. `window` is set if the call has just run.
pub(super) fn not_committed(error: &CommitError, window: Option<&CommitWindow>) -> Unsuccessful {
    match error {
        CommitError::Conflict { paths } => (State::Cancelled, record::conflict(error, &others(window, paths))),
        // The staged files were deleted or modified by someone else, so nothing is left to commit that was approved: the call runs again.
        CommitError::NotStaged { .. } | CommitError::Altered { .. } => (State::Cancelled, record::conflict(error, &[])),
        _ => record::workspace_failed(error),
    }
}

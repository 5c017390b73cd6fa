//! What a call did in its view: looked at, judged, and staged where it may come to be committed. Everything here blocks.

use std::sync::Arc;

use belay_grant::Change;
use belay_policy::{ChangeFact, Decision, Effect, Revised, ToolKind};
use belay_proto::v1::{ErrorClass, tool_call::State};
use belay_reasons as reasons;
use belay_workspace::{CommitError, EffectError, LeftOut, Manifest, RelPath, Stop, TreeError};

use super::{
    decide::{self, After},
    record,
    work::Unfinished,
};
use crate::{
    Place, Staged, ToolFailure, View,
    commit_log::{self, Overlap},
    contents::{self, Content},
    ledger::Basis,
    repository,
    subject::{self, Did},
    workspace_locks::Presence,
};

/// Who judges the effect of a call: a policy, with what it has to know of the call.
#[derive(Clone)]
pub(super) struct Judge {
    pub(super) policy: Arc<Revised>,
    pub(super) tool: String,
    pub(super) kind: ToolKind,
    pub(super) basis: Basis,
}

impl Judge {
    pub(super) fn judge(&self, changes: &[Change]) -> Decision {
        let facts: Vec<ChangeFact<'_>> = changes
            .iter()
            .map(|change| ChangeFact {
                path: &change.path,
                kind: subject::kind_for_policy(change.kind),
                flags: &change.flags,
            })
            .collect();
        self.policy.policy.effect(&Effect {
            tool: &self.tool,
            kind: self.kind,
            intent: self.basis.intent,
            granted_paths: &self.basis.covered,
            changes: &facts,
        })
    }
}

/// What became of what a call did.
pub(super) enum Examined {
    /// It changed nothing.
    Nothing,
    /// The policy forbids it; it is gone.
    Refused(Decision),
    /// It is staged.
    Staged(Box<Proposal>),
    /// It can be neither shown nor committed; it is gone.
    Failed(Unfinished),
}

/// The call was to be stopped before all of its effect was looked at; the effect is gone.
pub(super) struct Stopped;

/// An effect that lies beside the workspace.
pub(super) struct Proposal {
    pub(super) staged: Staged,
    pub(super) did: Did,
    pub(super) decision: Decision,
    /// What to show to a person; nothing when nobody is asked.
    pub(super) contents: Vec<Content>,
}

impl Proposal {
    pub(super) fn asks(&self) -> bool {
        decide::after(self.decision.verdict, false) == After::Ask
    }
}

/// What examines a view needs to know.
pub(super) struct Examination<'a> {
    pub(super) place: &'a dyn Place,
    pub(super) view_id: &'a str,
    pub(super) judge: &'a Judge,
    pub(super) presence: &'a Presence,
    /// Returns true once the call was cancelled or its time is up.
    pub(super) stop: Stop<'a>,
}

impl Examination<'_> {
    /// Looks at a view in which nobody works any more, and uses it up. With what became of it come the special files that were left out.
    pub(super) fn run(&self, view: Box<dyn View>) -> Result<(Examined, Vec<LeftOut>), Stopped> {
        match self.place.effect(&*view, self.stop) {
            Ok(mut manifest) => {
                let left_out = std::mem::take(&mut manifest.left_out);
                let examined = if manifest.is_empty() { Examined::Nothing } else { self.judge(view, &manifest)? };
                Ok((examined, left_out))
            }
            Err(EffectError::Tree(TreeError::Stopped)) => Err(Stopped),
            Err(error) => Ok((Examined::Failed(no_effect(&error, self.presence)), Vec::new())),
        }
    }

    fn judge(&self, view: Box<dyn View>, manifest: &Manifest) -> Result<Examined, Stopped> {
        let Self { place, view_id, judge, presence, stop } = *self;
        let mut facts = subject::facts(manifest);
        repository::flag(&mut facts, &*view);
        let did = Did { digest: subject::prefixed(&manifest.digest()), changes: subject::changes(&facts) };
        if let Some(conflict) = overlapping(presence, &did) {
            return Ok(Examined::Failed(conflict));
        }
        let decision = judge.judge(&did.changes);
        let contents = match decide::after(decision.verdict, false) {
            After::Refuse => return Ok(Examined::Refused(decision)),
            After::Commit => Vec::new(),
            After::Ask => match place.view(&format!("{view_id}-base")) {
                Ok(base) => contents::collect(&facts, &*base, &*view),
                Err(error) => return Ok(Examined::Failed(record::workspace_failed(&error))),
            },
        };
        match place.stage(view, manifest, stop) {
            Ok(staged) => Ok(Examined::Staged(Box::new(Proposal { staged, did, decision, contents }))),
            Err(CommitError::Stopped | CommitError::Tree(TreeError::Stopped)) => Err(Stopped),
            Err(error) => Ok(Examined::Failed(not_committed(&error, Some(presence)))),
        }
    }
}

/// The conflict, if another call's commit has touched since what this call touches, a folder above it or something in it.
pub(super) fn overlapping(presence: &Presence, did: &Did) -> Option<Unfinished> {
    let Overlap { paths, calls } = presence.overlap(&commit_log::touched(&did.changes))?;
    let named = paths.iter().take(5).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    let more = match paths.len().saturating_sub(5) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!("changed by somebody else during the call: {named}{more}; run it again on what is there now");
    Some((State::Cancelled, record::conflict(&what, &calls)))
}

/// Whose commits touched these paths since the call began.
fn others(presence: Option<&Presence>, paths: &[RelPath]) -> Vec<String> {
    let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
    presence.map(|presence| presence.committers(&paths)).unwrap_or_default()
}

fn no_effect(error: &EffectError, presence: &Presence) -> Unfinished {
    match error {
        EffectError::Conflict { paths } => (State::Cancelled, record::conflict(error, &others(Some(presence), paths))),
        EffectError::Io(_) | EffectError::Tree(belay_workspace::TreeError::Io(_)) => record::workspace_failed(error),
        EffectError::Reserved { .. } | EffectError::Tree(_) => {
            let message = format!("What the call left behind cannot be committed: {error}.");
            (State::Failed, ToolFailure::new(ErrorClass::SandboxViolation, reasons::EFFECT_REFUSED, message))
        }
    }
}

/// Why a staged effect did not get its place. `presence` is that of the call, if it runs.
pub(super) fn not_committed(error: &CommitError, presence: Option<&Presence>) -> Unfinished {
    match error {
        CommitError::Conflict { paths } => (State::Cancelled, record::conflict(error, &others(presence, paths))),
        // Somebody removed them, so there is nothing that could be committed any more.
        CommitError::NotStaged { .. } => (State::Cancelled, record::conflict(error, &[])),
        _ => record::workspace_failed(error),
    }
}

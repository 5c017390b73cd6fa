//! Examines what a call changed in its view: collects the changes, checks them against the policy and other commits, and stages them.
//! Everything here blocks.

use belay_policy::Decision;
use belay_proto::v1::{ErrorClass, tool_call::State};
use belay_reasons as reasons;
use belay_workspace::{CommitError, EffectError, LayerPlace, Manifest, RelPath, SpecialFile, Stop, TreeError};

use super::{
    decide::{self, EffectDecision},
    judge::{Judge, NotedJudge, note, written},
    record::{self, Unsuccessful},
};
use crate::{
    StagedEffect, ToolFailure, View, WorkspaceDirectory,
    changes::{self, displayed},
    commit_log::{self, Overlap},
    contents::{self, Content},
    facts,
    ledger::{LayerNote, SealedSecrets, StepEffect},
    repository,
    secrets::CallSecrets,
    subject::{self, ObservedEffect},
    workspace_locks::CommitWindow,
};

/// The result of examining a view.
pub(super) enum EffectOutcome {
    /// The call changed nothing.
    Nothing,
    /// The policy denies the effect; it was discarded.
    Refused {
        /// Why.
        decision: Decision,
        /// Additions to the policy's rules that would allow it; see [`Judge::allowing`].
        allowing: Vec<String>,
    },
    /// The effect is staged.
    Staged(Box<Proposal>),
    /// The changes of a call of a step are staged as a layer.
    Layer(Box<NewLayer>),
    /// The effect cannot be committed; it was discarded.
    Failed(Unsuccessful),
}

/// The call was cancelled or timed out during the examination; its effect was discarded.
pub(super) struct ExaminationStopped;

/// A staged effect.
pub(super) struct Proposal {
    pub(super) staged: StagedEffect,
    pub(super) observed: ObservedEffect,
    pub(super) decision: Decision,
    /// File contents for the approval; empty when the policy allows the effect.
    pub(super) contents: Vec<Content>,
    /// Additions to the policy's rules with which no approval is needed.
    pub(super) allowing: Vec<String>,
    /// Set when it is the effect of a step.
    pub(super) of_step: Option<StepEffect>,
}

impl Proposal {
    pub(super) fn asks(&self) -> bool {
        decide::decide_effect(self.decision.verdict, false) == EffectDecision::Ask
    }
}

/// A staged layer.
pub(super) struct NewLayer {
    pub(super) staged: StagedEffect,
    /// The name by which later calls refer to it.
    pub(super) reference: String,
    pub(super) observed: ObservedEffect,
}

/// The relation of the call to layers.
pub(super) enum Layering {
    /// Its effect is its own.
    None,
    /// It leaves a layer.
    Leaves(LayerTarget),
    /// Its effect is that of its step.
    Commits(StepEffect),
}

/// The layer that a call is to leave.
pub(super) struct LayerTarget {
    pub(super) place: LayerPlace,
    /// The references of the layers that the call began with.
    pub(super) over: Vec<String>,
    /// The secrets that the call knew, for the one that commits.
    pub(super) secrets: SealedSecrets,
    /// The notes of the calls of another execution whose changes it takes over: the policy judges these by the tools that have made them.
    pub(super) taken_over: Vec<LayerNote>,
}

/// The inputs of an examination.
pub(super) struct Examination<'a> {
    pub(super) directory: &'a dyn WorkspaceDirectory,
    pub(super) view_id: &'a str,
    pub(super) judge: &'a Judge,
    pub(super) layering: &'a Layering,
    /// The secrets that people are not shown.
    pub(super) secrets: &'a CallSecrets,
    pub(super) window: &'a CommitWindow,
    /// Returns true once the call was cancelled or its time is up.
    pub(super) stop: Stop<'a>,
}

impl Examination<'_> {
    /// Examines a view that no process uses any more, and consumes it. Also returns the special files that were skipped.
    pub(super) fn run(&self, view: Box<dyn View>) -> Result<(EffectOutcome, Vec<SpecialFile>), ExaminationStopped> {
        match self.directory.effect(&*view, self.stop) {
            Ok(mut manifest) => {
                let left_out = std::mem::take(&mut manifest.left_out);
                let examined = match self.layering {
                    Layering::Leaves(leaving) => self.layer(view, &manifest, leaving)?,
                    _ if manifest.is_empty() => EffectOutcome::Nothing,
                    _ => self.judge(view, &manifest)?,
                };
                Ok((examined, left_out))
            }
            Err(EffectError::Tree(TreeError::Stopped)) => Err(ExaminationStopped),
            Err(error) => Ok((EffectOutcome::Failed(no_effect(&error, self.window)), Vec::new())),
        }
    }

    /// Observes the changes in a view, as the policy and people see them; also the view of the workspace as it was, if that was needed.
    fn observe(&self, view: &dyn View, manifest: &Manifest) -> Result<Observation, Unsuccessful> {
        let Self { directory, secrets, window, .. } = *self;
        let mut facts = facts::facts(manifest);
        repository::flag(&mut facts, view, directory.path());
        let mut base = None;
        if repository::changes_configuration(&facts) {
            let view = self.unmodified()?;
            repository::flag_as_before(&mut facts, &**base.insert(view), directory.path());
        }
        changes::flag_hidden(&mut facts, secrets);
        changes::order(&mut facts);
        let changes = changes::changes(&facts);
        let committed = subject::committed(&facts, &changes.list);
        let observed = ObservedEffect { digest: facts::prefixed(&manifest.digest()), changes, committed };
        match overlapping(window, &observed) {
            Some(conflict) => Err(conflict),
            None => Ok(Observation { facts, observed, base }),
        }
    }

    fn unmodified(&self) -> Result<Box<dyn View>, Unsuccessful> {
        self.directory.view(&format!("{}-base", self.view_id)).map_err(|error| record::workspace_failed(&error))
    }

    fn judge(&self, view: Box<dyn View>, manifest: &Manifest) -> Result<EffectOutcome, ExaminationStopped> {
        let Self { directory, judge, window, stop, .. } = *self;
        let Observation { facts, observed, base } = match self.observe(&*view, manifest) {
            Ok(observation) => observation,
            Err(failed) => return Ok(EffectOutcome::Failed(failed)),
        };
        let of_step = match self.layering {
            Layering::Commits(effect) => Some(effect),
            Layering::None | Layering::Leaves(..) => None,
        };
        let noted = of_step.map(|effect| NotedJudge::of(&effect.notes, &judge.policy));
        let decision =
            noted.as_ref().and_then(NotedJudge::judge).unwrap_or_else(|| judge.judge(&observed.changes.list));
        let allowing = || noted.as_ref().map_or_else(|| judge.allowing(&observed.changes.list), NotedJudge::allowing);
        let (contents, allowing) = match decide::decide_effect(decision.verdict, false) {
            EffectDecision::Refuse => {
                let allowing = allowing();
                return Ok(EffectOutcome::Refused { decision, allowing });
            }
            EffectDecision::Commit => {
                drop(base);
                Default::default()
            }
            EffectDecision::Ask => match base.map_or_else(|| self.unmodified(), Ok) {
                Ok(base) => (contents::collect(&facts, &*base, &*view), allowing()),
                Err(failed) => return Ok(EffectOutcome::Failed(failed)),
            },
        };
        match directory.stage(view, manifest, stop) {
            Ok(staged) => {
                let of_step = of_step.cloned();
                Ok(EffectOutcome::Staged(Box::new(Proposal {
                    staged,
                    observed,
                    decision,
                    contents,
                    allowing,
                    of_step,
                })))
            }
            Err(error) => not_staged(&error, window),
        }
    }

    /// Stages what a call of a step has changed itself. The policy may deny it now; whether people decide about it is decided for the whole step.
    fn layer(
        &self,
        view: Box<dyn View>,
        manifest: &Manifest,
        LayerTarget { place, over, secrets, taken_over }: &LayerTarget,
    ) -> Result<EffectOutcome, ExaminationStopped> {
        let Self { directory, judge, window, stop, .. } = *self;
        let own = directory.own_changes(&*view, manifest);
        if own.is_empty() {
            return Ok(EffectOutcome::Nothing);
        }
        // What earlier calls have done in a directory is theirs, and was judged with them.
        let observed = match self.observe(&*view, &own.seen) {
            Ok(Observation { observed, .. }) => observed,
            Err(failed) => return Ok(EffectOutcome::Failed(failed)),
        };
        let noted = NotedJudge::of(taken_over, &judge.policy);
        let decision = noted.judge().unwrap_or_else(|| judge.judge(&observed.changes.list));
        if decide::decide_effect(decision.verdict, false) == EffectDecision::Refuse {
            let allowing = match taken_over.as_slice() {
                [] => judge.allowing(&observed.changes.list),
                [..] => noted.allowing(),
            };
            return Ok(EffectOutcome::Refused { decision, allowing });
        }
        let note = match taken_over.as_slice() {
            [] => written(&[note(judge, observed.changes.list.clone(), secrets.clone())]),
            notes => written(notes),
        };
        match directory.stage_layer(view, own, (place.clone(), over.clone(), note), stop) {
            Ok((staged, reference)) => Ok(EffectOutcome::Layer(Box::new(NewLayer { staged, reference, observed }))),
            Err(error) => not_staged(&error, window),
        }
    }
}

/// The changes in a view.
struct Observation {
    facts: Vec<facts::Fact>,
    observed: ObservedEffect,
    base: Option<Box<dyn View>>,
}

fn not_staged(error: &CommitError, window: &CommitWindow) -> Result<EffectOutcome, ExaminationStopped> {
    match error {
        CommitError::Stopped | CommitError::Tree(TreeError::Stopped) => Err(ExaminationStopped),
        error => Ok(EffectOutcome::Failed(not_committed(error, Some(window)))),
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

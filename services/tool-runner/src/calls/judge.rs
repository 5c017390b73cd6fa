//! The policy's judgement of what a call has changed, or all calls of a step whose effects are committed together.

use belay_grant::Change;
use belay_policy::{ChangeFact, Decision, Effect, Policy, ToolKind};
use serde::Deserialize;

use crate::{
    changes::{judged, kind_for_policy},
    ledger::{JudgementInput, LayerNote, SealedSecrets},
};

/// Evaluates the policy on a call's effect.
#[derive(Clone)]
pub(super) struct Judge {
    pub(super) policy: Policy,
    pub(super) tool: String,
    pub(super) kind: ToolKind,
    /// The id of the call's step.
    pub(super) step: String,
    pub(super) basis: JudgementInput,
}

impl Judge {
    /// Additions to the policy's rules with which these changes need no approval.
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

/// A call's note of these changes.
pub(super) fn note(judge: &Judge, changes: Vec<Change>, secrets: SealedSecrets) -> LayerNote {
    let Judge { tool, kind, step, basis, .. } = judge.clone();
    LayerNote { tool, kind, step, basis, changes, secrets }
}

/// The notes of a layer, as JSON.
pub(super) fn written(notes: &[LayerNote]) -> String {
    serde_json::to_string(notes).expect("texts and numbers are always JSON")
}

fn judge_of(note: &LayerNote, policy: &Policy) -> Judge {
    let LayerNote { tool, kind, step, basis, .. } = note.clone();
    Judge { policy: policy.clone(), tool, kind, step, basis }
}

/// Judges the effect of a step by what its calls have noted.
pub(super) struct NotedJudge<'a> {
    policy: &'a Policy,
    notes: &'a [LayerNote],
}

impl<'a> NotedJudge<'a> {
    pub(super) fn of(notes: &'a [LayerNote], policy: &'a Policy) -> Self {
        Self { policy, notes }
    }

    /// The strictest decision about what one of the calls has changed; the first of several.
    pub(super) fn judge(&self) -> Option<Decision> {
        let decisions = self.notes.iter().map(|note| judge_of(note, self.policy).judge(&note.changes));
        decisions.reduce(|strictest, other| if other.verdict > strictest.verdict { other } else { strictest })
    }

    /// Additions to the policy's rules with which these changes need no approval.
    pub(super) fn allowing(&self) -> Vec<String> {
        let mut rules = Vec::new();
        for rule in self.notes.iter().flat_map(|note| judge_of(note, self.policy).allowing(&note.changes)) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        rules
    }
}

/// The notes of a layer, as they are written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Several(Vec<LayerNote>),
    /// As they were before a layer could stand for others.
    One(Box<LayerNote>),
}

/// Reads what the calls of layers have noted.
pub(super) fn read_notes(layers: &[String]) -> Result<Vec<LayerNote>, serde_json::Error> {
    let mut notes = Vec::new();
    for layer in layers {
        match serde_json::from_str(layer)? {
            Written::Several(several) => notes.extend(several),
            Written::One(one) => notes.push(*one),
        }
    }
    Ok(notes)
}

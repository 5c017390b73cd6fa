//! Audits the executions of the plans that steps have: each was started by its step, once, and its step ended as it did.

use std::collections::BTreeMap;

use belay_proto::v1::{self, child_ended::End, execution, execution_event::Kind, step_spec};

use super::audit::{Evidence, SKEW, Violations};
use super::calls;
use super::client::is_terminal;
use super::hosts::{self, Owners};
use super::inputs;
use super::outside::Run;
use super::plans;
use super::records::{Deletion, ExecutionEvidence, Observations, ObservedExecution, parent_of};
use crate::trace;

/// The intent of a step to have its plan carried out.
pub(super) struct Child<'a> {
    /// The name of the step's execution.
    pub(super) parent: &'a str,
    started: &'a v1::ExecutionEvent,
    ends: Vec<(&'a v1::ExecutionEvent, &'a v1::ChildEnded)>,
}

/// By the names of the executions.
pub(super) type Children<'a> = BTreeMap<String, Child<'a>>;

/// The executions that steps have started, according to the events of theirs.
pub(super) fn of<'a>(kept: &'a BTreeMap<String, ExecutionEvidence>, violations: &mut Violations) -> Children<'a> {
    let mut children = Children::new();
    for (parent, kept) in kept {
        // By the step, the attempt and the operation.
        let mut names = BTreeMap::new();
        for event in &kept.events {
            let operation = belay_proto::call_name(parent, event);
            match &event.kind {
                Some(Kind::ChildStarted(started)) => {
                    let name = sibling(parent, &started.execution_id);
                    names.insert(operation, name.clone());
                    let child = Child { parent, started: event, ends: Vec::new() };
                    if let Some(other) = children.insert(name.clone(), child) {
                        violations.push(format!("{name} was started by a step of {parent} and of {}", other.parent));
                    }
                }
                Some(Kind::ChildEnded(ended)) => match names.get(&operation).and_then(|name| children.get_mut(name)) {
                    Some(child) => child.ends.push((event, ended)),
                    None => violations.push(format!("{operation} ended without having been started")),
                },
                _ => {}
            }
        }
    }
    children
}

/// The name of another execution in the same namespace.
fn sibling(execution: &str, id: &str) -> String {
    let (executions, _) = execution.rsplit_once('/').unwrap_or_default();
    format!("{executions}/{id}")
}

impl<'a> Child<'a> {
    /// The execution whose step it was started for, and the event with which that has its end.
    pub(super) fn recorded(&self) -> Option<(&'a str, i64)> {
        let (end, _) = self.ends.first()?;
        Some((self.parent, end.sequence))
    }
}

/// The observations of clients about the execution of a step's plan, in the form of those about one that a request has started.
pub(super) fn heard(kept: &ExecutionEvidence, heard: Option<&ObservedExecution>) -> ObservedExecution {
    ObservedExecution { uid: kept.execution.uid.clone(), ..heard.cloned().unwrap_or_default() }
}

/// The execution for whose step each was started, by their names: also of those whose parent was deleted.
pub(super) type Parents<'a> = BTreeMap<&'a str, &'a str>;

pub(super) fn parents<'a>(
    kept: &'a BTreeMap<String, ExecutionEvidence>,
    children: &'a Children<'a>,
    gone: &'a BTreeMap<String, Deletion>,
) -> Parents<'a> {
    let orphan = |(name, kept): (&'a String, &'a ExecutionEvidence)| {
        let parent = parent_of(&kept.execution.parent_step).filter(|parent| gone.contains_key(*parent))?;
        Some((name.as_str(), parent))
    };
    let deleted =
        |(name, deletion): (&'a String, &'a Deletion)| Some((name.as_str(), parent_of(&deletion.parent_step)?));
    let known = children.iter().map(|(name, child)| (name.as_str(), child.parent));
    known.chain(kept.iter().filter_map(orphan)).chain(gone.iter().filter_map(deleted)).collect()
}

/// B-15, S2-FR-057: no loss of a process starts the execution of a step's plan twice, or loses it.
pub(super) fn audit(
    kept: &BTreeMap<String, ExecutionEvidence>,
    children: &Children<'_>,
    evidence: &Evidence<'_>,
    gone: &BTreeMap<String, Deletion>,
    violations: &mut Violations,
) {
    let owners = evidence.owners;
    for (name, child) in children {
        let Child { parent, started, ends } = child;
        let [(end, ended)] = ends[..] else {
            violations.push(format!("{name} ended {} times for {parent}", ends.len()));
            continue;
        };
        let Some(kept_child) = kept.get(name) else {
            if gone.contains_key(name) {
                violations.extend(deleted_child(name, ended, evidence.observed));
                continue;
            }
            match &ended.end {
                Some(End::Failure(_)) => trace::count("children that could not be started"),
                other => violations.push(format!("{name} was started by {parent} and is gone: {other:?}")),
            }
            continue;
        };
        let execution = &kept_child.execution;
        let step = format!("{parent}/steps/{}", started.step_id);
        if execution.parent_step != step {
            violations.push(format!("{name} was started by {step}, and says {:?}", execution.parent_step));
        }
        if created(kept_child).zip(kept.get(*parent)).is_some_and(|(created, parent)| {
            let specs = parent.execution.plan.iter().flat_map(|plan| &plan.steps);
            // A step for an entry of a list has the plan of the step whose list it is.
            let of_plan = started.step_id.split('~').next().unwrap_or_default();
            let mut specs = specs.filter(|spec| spec.id == of_plan);
            let outline = created.plan.as_ref().map(outline);
            !specs.any(|spec| matches!(&spec.kind, Some(step_spec::Kind::Plan(step)) if step.plan.as_ref().map(self::outline) == outline))
        }) {
            violations.push(format!("{name} carries out another plan than {step} has"));
        }
        // It ends before its step does, in true time.
        let own_end = owners.stored_at(name, execution.last_sequence);
        let known = owners.stored_at(parent, end.sequence);
        if own_end.zip(known).is_some_and(|(own_end, known)| own_end > known) {
            violations.push(format!("{name} ended at {own_end:?}, and its step in {parent} before, at {known:?}"));
        }
        inputs(kept_child, started, violations);
        if !is_terminal(execution.state()) {
            violations.push(format!("{name} is {:?}, and {parent} has ended", execution.state()));
        }
        match &ended.end {
            Some(End::Output(_)) if execution.state() != execution::State::Completed => {
                violations.push(format!("{name} is {:?}, and completed {step}", execution.state()));
            }
            Some(End::Output(_)) => trace::count("children completed"),
            // Its outputs may be too large.
            Some(End::Failure(failure))
                if execution.state() == execution::State::Completed && failure.reason != "CHILD_REFUSED" =>
            {
                violations.push(format!("{name} completed, and {parent} has recorded that it failed: {failure:?}"));
            }
            Some(End::Failure(_)) => trace::count("children failed"),
            Some(End::Cancelled(_)) => trace::count("children cancelled"),
            None => violations.push(format!("{name} ended {step} in no way")),
        }
    }
}

/// Checks that a parent has recorded the end of a deleted child as a client saw it last.
fn deleted_child(name: &str, ended: &v1::ChildEnded, observed: &Observations) -> Option<String> {
    use execution::State as S;
    if let Some(End::Failure(failure)) = &ended.end
        && failure.reason == "CHILD_LOST"
    {
        return Some(format!("{name} had ended and was deleted, and its parent has lost it"));
    }
    let seen = observed.last_state(name).filter(|state| is_terminal(*state))?;
    let fits = match &ended.end {
        Some(End::Output(_)) => seen == S::Completed,
        // Its outputs may be too large.
        Some(End::Failure(failure)) => seen != S::Completed || failure.reason == "CHILD_REFUSED",
        Some(End::Cancelled(_)) => seen == S::Cancelled,
        None => false,
    };
    trace::count("children deleted after their ends");
    (!fits).then(|| format!("{name} was {seen:?} when it was deleted, and its parent has recorded {:?}", ended.end))
}

/// The values of its inputs are those that its step has handed over, and the defaults of its plan.
fn inputs(kept: &ExecutionEvidence, started: &v1::ExecutionEvent, violations: &mut Violations) {
    let Some(Kind::ChildStarted(started)) = &started.kind else { return };
    let json = |payload: &Option<v1::Payload>| calls::json(payload.as_ref(), &kept.blobs);
    let Some(created) = created(kept) else { return };
    let plan = created.plan.clone().unwrap_or_default();
    let values = inputs::values(&plan, &json(&started.inputs));
    let is_none = plan.inputs.is_empty() && created.inputs.is_none();
    if !is_none && json(&created.inputs) != values {
        violations.push(format!("{} was given {values}, and has {:?}", kept.execution.name, created.inputs));
    }
}

/// The names of all executions that it was started for: its own, and those of the steps above it.
pub(super) fn line<'a>(name: &'a str, parents: &Parents<'a>) -> Vec<&'a str> {
    let mut line = vec![name];
    while let Some(parent) = line.last().and_then(|name| parents.get(name)) {
        line.push(parent);
    }
    line
}

/// The tools of the executions of its steps' plans, however deep, work in the folder that an execution was accepted with.
pub(super) fn one_folder(
    kept: &BTreeMap<String, ExecutionEvidence>,
    parents: &Parents<'_>,
    runs: &[Run],
    violations: &mut Violations,
) {
    for run in runs {
        let Some(effect) = &run.effect else { continue };
        let execution = run.call.split("/steps/").next().unwrap_or_default();
        let line = line(execution, parents);
        let Some(root) = line.last().and_then(|root| kept.get(*root)) else { continue };
        let accepted = hosts::workspace(&root.execution);
        if effect.workspace != accepted {
            let (call, elsewhere) = (&run.call, effect.workspace.display());
            violations.push(format!("{call} worked in {elsewhere}, and its request was accepted for {accepted:?}"));
        } else if line.len() > 1 && !root.execution.made_folder.is_empty() {
            trace::count("runs of children in a folder that was made");
        }
    }
}

/// Checks that nothing runs in the execution of a step's plan, however deep, once the step has its end.
pub(super) fn no_late_runs(
    children: &Children<'_>,
    parents: &Parents<'_>,
    owners: &Owners,
    runs: &[Run],
    violations: &mut Violations,
) {
    for run in runs {
        let execution = run.call.split("/steps/").next().unwrap_or_default();
        for name in line(execution, parents) {
            let Some(child) = children.get(name) else { continue };
            let [(end, _)] = child.ends[..] else { continue };
            let ended = owners.stored_at(child.parent, end.sequence);
            if ended.is_some_and(|ended| run.began > ended + SKEW) {
                violations.push(format!("{} ran after {} had taken note of the end of {name}", run.call, child.parent));
            }
        }
    }
}

/// The outline of a step: its id, its tool, and what it depends on.
type StepOutline<'a> = (&'a str, &'a str, Vec<String>);

/// The plan's id, and its steps.
fn outline(plan: &v1::Plan) -> (&str, Vec<StepOutline<'_>>) {
    let steps = plan.steps.iter().map(|step| {
        let tool = match &step.kind {
            Some(step_spec::Kind::Tool(tool)) => tool.tool.as_str(),
            _ => "",
        };
        (step.id.as_str(), tool, plans::dependencies(step))
    });
    (&plan.id, steps.collect())
}

fn created(kept: &ExecutionEvidence) -> Option<&v1::ExecutionCreated> {
    match &kept.events.first()?.kind {
        Some(Kind::ExecutionCreated(created)) => Some(created),
        _ => None,
    }
}

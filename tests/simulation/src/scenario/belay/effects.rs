//! Audits the workspaces at the end: every effect is there once and complete, and none without its call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use belay_proto::v1::execution_event::Kind;

use super::audit::{Evidence, Violations};
use super::calls::Call;
use super::decisions::Calls;
use super::outside::{Effect, Run};
use super::plans;
use super::tools::{self, APPEND, FIND};
use super::workspaces::{self, Change};
use crate::trace;

/// Invariant 4 of REQUIREMENTS: a workspace changes by commits only. S2-FR-057, S2-FR-058, B-01, B-06: each is there once if its call
/// completed, and not at all if it did not.
pub(super) fn audit(evidence: &Evidence<'_>, runs: &[Run], calls: &Calls<'_>) -> Violations {
    let mut violations = Violations::new();
    // The commit by which each call has changed something.
    let mut commits = BTreeMap::<&str, &str>::new();
    let mut steps = step_commits(runs, calls);
    for (workspace, changes) in evidence.workspaces {
        for commit in in_order(changes) {
            let wrong = |what: String| format!("{}: {what}", workspace.display());
            let of_run = |(_, run): &(usize, &Run)| {
                run.effect.as_ref().is_some_and(|effect| effect.commit == commit && effect.workspace == *workspace)
            };
            let Some((number, run)) = runs.iter().enumerate().find(of_run) else {
                let of_step =
                    steps.iter_mut().find(|step| step.workspace == *workspace && step.has_made(changes, commit));
                match of_step {
                    Some(step) if step.in_place => violations.push(wrong(format!("{} is in place twice", step.call))),
                    Some(step) => step.in_place = true,
                    None => violations.push(wrong(format!("no run did what {commit} put in place"))),
                }
                continue;
            };
            if calls.get(&run.call).is_some_and(|(_, call)| call.request.layers.is_some()) {
                violations.push(wrong(format!("{} is of a step with one effect, and in place by itself", run.call)));
            }
            if let Some(before) = commits.insert(&run.call, commit) {
                let how = calls.get(&run.call).map_or("", |(_, call)| call.twice());
                violations.push(wrong(format!(
                    "{} was executed again: {before} and {commit} are both in place{how}",
                    run.call
                )));
            }
            let row_lost = evidence.row_lost(&run.call);
            if row_lost && calls.get(&run.call).is_some_and(|(_, call)| is_in_doubt(call)) {
                // Its row was lost, and the reason says so: its effect may be there completely, in part, or not at all.
                trace::count("effects in place of which nothing is known");
                continue;
            }
            // The power loss removed part of an effect that was not synced yet, and its row was lost with the ledger.
            let may_be_half = row_lost && !evidence.outside.is_synced(commit);
            violations.extend(whole(changes, commit, run).err().filter(|_| !may_be_half).map(wrong));
            match calls.get(&run.call) {
                Some((_, call)) if call.completed_with() == Some(number) => trace::count("effects in place"),
                // The ledger was lost before the result was copied; the failure says that the effect is in place.
                Some((_, call)) if row_lost && has_lost_its_result(call) => {
                    trace::count("effects in place whose result is lost");
                }
                Some((_, call)) => violations.push(wrong(format!(
                    "what run {number} of {} did is in place, and the call ended with {:?}",
                    run.call,
                    call.end()
                ))),
                // Reported as a call whose intent is gone.
                None => {}
            }
        }
        violations.extend(lost_updates(changes, runs).map(|what| format!("{}: {what}", workspace.display())));
    }
    for step in steps.iter().filter(|step| step.has_completed && step.puts_something && !step.in_place) {
        if !evidence.row_lost(step.call) {
            violations.push(format!("{} completed, and what its step did is gone", step.call));
        }
    }
    for (name, (_, call)) in calls.iter().filter(|(_, (_, call))| call.request.layers.is_none()) {
        let effect = call.completed_with().and_then(|run| runs.get(run)?.effect.as_ref());
        let Some(effect) = effect.filter(|effect| !effect.after.is_empty()) else { continue };
        // The row keeps an effect that is not synced yet: it can be lost only with the ledger.
        let may_be_gone = evidence.row_lost(name) && !evidence.outside.is_synced(&effect.commit);
        if !commits.contains_key(name.as_str()) && !may_be_gone {
            violations.push(format!("{name} completed, and what it did is gone"));
        }
    }
    violations.extend(runs.iter().filter_map(|run| disturbed(evidence, runs, run, calls)));
    violations.extend(runs.iter().filter_map(|run| found_nothing(evidence, run)));
    violations
}

/// The effect of a step whose calls have one, as what these did.
struct StepCommit<'a> {
    /// The call that commits it.
    call: &'a str,
    workspace: &'a Path,
    /// The content of each file after the calls, in the order in which their layers are.
    meant: BTreeMap<&'a str, &'a Option<String>>,
    /// The lines that the calls added to files which none of them did anything else to.
    added: BTreeMap<&'a str, String>,
    has_completed: bool,
    /// Whether some of what they did cannot have been undone by others of them.
    puts_something: bool,
    in_place: bool,
}

/// B-34: a step commits what its calls did, all of it and as one.
fn step_commits<'a>(runs: &'a [Run], calls: &'a Calls<'a>) -> Vec<StepCommit<'a>> {
    let mut steps = Vec::new();
    let dropped = dropped_paths(calls);
    for (name, (_, call)) in calls.iter().filter(|(_, (_, call))| call.request.tool == plans::COMMIT) {
        let layers = call.request.layers.iter().flat_map(|layers| &layers.layers);
        let (mut meant, mut added, mut workspace) = (BTreeMap::new(), BTreeMap::<&str, String>::new(), None);
        let mut other = BTreeSet::new();
        for layer in layers {
            let id = layer.split('.').next().unwrap_or_default();
            for path in dropped.get(id).into_iter().flatten() {
                meant.remove(&**path);
                added.remove(&**path);
                other.remove(&**path);
            }
            let of_layer = |(_, run): &(usize, &'a Run)| run.effect.as_ref().is_some_and(|effect| effect.commit == id);
            let Some((number, run)) = runs.iter().enumerate().find(of_layer) else { continue };
            let effect = run.effect.as_ref().expect("it was found by it");
            workspace = Some(effect.workspace.as_path());
            for (path, content) in &effect.after {
                meant.insert(path.as_str(), content);
                if run.tool == APPEND {
                    added.entry(path.as_str()).or_default().push_str(&tools::line(number, &run.call));
                } else {
                    other.insert(path.as_str());
                }
            }
        }
        added.retain(|path, _| !other.contains(path));
        let Some(workspace) = workspace else { continue };
        let has_completed = matches!(call.end(), Some(Kind::ToolCallCompleted(_)));
        let puts_something = meant.values().any(|content| content.is_some());
        steps.push(StepCommit { call: name, workspace, meant, added, has_completed, puts_something, in_place: false });
    }
    steps
}

/// The paths at which calls have dropped what those before them had changed, by the ids of their layers.
fn dropped_paths(calls: &Calls<'_>) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for (_, call) in calls.values().filter(|(_, call)| call.request.tool == plans::REBASE) {
        let Some(Kind::ToolCallCompleted(completed)) = call.end() else { continue };
        let layer = completed.receipt.as_ref().map(|receipt| receipt.layer.as_str()).unwrap_or_default();
        let id = layer.split('.').next().unwrap_or_default().to_owned();
        let result = call.json(completed.result.as_ref());
        let paths = result["files"].as_array().into_iter().flatten().filter_map(|file| file["path"].as_str());
        found.insert(id, paths.map(str::to_owned).collect());
    }
    found
}

impl StepCommit<'_> {
    /// Whether a commit put in place what the calls did, on top of what there was.
    fn has_made(&self, changes: &[Change], commit: &str) -> bool {
        let first = changes.iter().position(|change| change.commit == commit).unwrap_or_default();
        let before = workspaces::contents(&changes[..first]);
        let done = changes.iter().filter(|change| change.commit == commit);
        let put: BTreeMap<&str, &Option<String>> = done.map(|change| (change.path.as_str(), &change.content)).collect();
        let is_change = |(path, content): &(&&str, &&Option<String>)| before.get(**path) != content.as_ref();
        let meant: BTreeMap<&str, &Option<String>> =
            self.meant.iter().filter(is_change).map(|(path, content)| (*path, *content)).collect();
        let follows = |(path, lines): (&&str, &String)| {
            let content = before.get(*path).cloned().unwrap_or_default() + lines;
            put.get(*path).is_none_or(|put| put.as_ref() == Some(&content))
        };
        put == meant && self.added.iter().all(follows)
    }
}

/// A file was found that no commit had put there: a check held that did not.
fn found_nothing(evidence: &Evidence<'_>, run: &Run) -> Option<String> {
    let ended = run.ended.filter(|_| run.tool == FIND && run.succeeded == Some(true))?;
    let (path, workspace) = (run.arguments["path"].as_str()?, &run.effect.as_ref()?.workspace);
    trace::count("files found by checks");
    // One without a time was applied when the runner started.
    let is_before = |change: &Change| evidence.outside.applied_at(&change.commit).is_none_or(|applied| applied < ended);
    let puts = |change: &Change| change.path == path && change.content.is_some() && is_before(change);
    let is_there = evidence.workspaces.get(workspace).is_some_and(|changes| changes.iter().any(puts));
    (!is_there).then(|| format!("{} found {path} in {}, where nothing had put it", run.call, workspace.display()))
}

fn is_in_doubt(call: &Call<'_>) -> bool {
    matches!(call.end(), Some(Kind::ToolCallOutcomeUnknown(_)))
}

/// Whether the call failed because its result is lost, with a receipt of its effect.
fn has_lost_its_result(call: &Call<'_>) -> bool {
    let Some(Kind::ToolCallFailed(failed)) = call.end() else { return false };
    failed.failure.as_ref().is_some_and(|failure| failure.reason == "RESULT_LOST")
        && failed.receipt.as_ref().is_some_and(|receipt| !receipt.effect_digest.is_empty())
}

/// Commits in a workspace while an exclusive call ran there.
fn disturbed(evidence: &Evidence<'_>, runs: &[Run], run: &Run, calls: &Calls<'_>) -> Option<String> {
    calls.get(&run.call).filter(|(_, call)| call.exclusive)?;
    let (own, ended) = (run.effect.as_ref()?, run.ended?);
    trace::count("runs that had the workspace to themselves");
    let is_between = |effect: &&Effect| {
        let applied = evidence.outside.applied_at(&effect.commit);
        effect.workspace == own.workspace && applied.is_some_and(|applied| (run.order + 1..ended).contains(&applied))
    };
    let other = runs.iter().filter_map(|run| run.effect.as_ref()).find(is_between)?;
    Some(format!("{} had the workspace to itself, and {} was put in place meanwhile", run.call, other.commit))
}

/// The distinct commits.
fn in_order(changes: &[Change]) -> Vec<&str> {
    let mut commits: Vec<&str> = Vec::new();
    for change in changes {
        if !commits.contains(&&*change.commit) {
            commits.push(&change.commit);
        }
    }
    commits
}

/// Whether a commit applied exactly what its run changed in its view.
fn whole(changes: &[Change], commit: &str, run: &Run) -> Result<(), String> {
    let done: Vec<_> = changes.iter().filter(|change| change.commit == commit).collect();
    let put: BTreeMap<_, _> = done.iter().map(|change| (change.path.clone(), change.content.clone())).collect();
    let meant = run.effect.as_ref().map(|effect| &effect.after);
    if meant != Some(&put) {
        return Err(format!("{commit} stands half in place: {put:?}, and {} did {meant:?}", run.call));
    }
    if done.len() != put.len() {
        return Err(format!("{commit} was put in place twice"));
    }
    Ok(())
}

/// An appended line follows the previous content: no commit was overwritten by one that had not seen it.
fn lost_updates<'a>(changes: &'a [Change], runs: &'a [Run]) -> impl Iterator<Item = String> + 'a {
    let lost = |(place, change): (usize, &Change)| {
        let found = |(_, run): &(usize, &Run)| run.effect.as_ref().is_some_and(|effect| effect.commit == change.commit);
        let (number, run) = runs.iter().enumerate().find(found)?;
        let own = tools::line(number, &run.call);
        let content = change.content.as_ref()?;
        let mut before = workspaces::contents(&changes[..place]);
        let expected = before.remove(&change.path).unwrap_or_default() + &own;
        let is_append = run.tool == APPEND;
        (is_append && *content != expected)
            .then(|| format!("{} added to {:?} what was {expected:?}, and is {content:?}", run.call, change.path))
    };
    changes.iter().enumerate().filter_map(lost)
}

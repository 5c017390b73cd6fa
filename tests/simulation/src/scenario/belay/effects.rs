//! What stands in the workspaces at the end: every effect once and whole, and none that has no call to answer for it.

use std::collections::BTreeMap;

use super::audit::Violations;
use super::decisions::Calls;
use super::hosts::Inventoried;
use super::outside::Run;
use super::tools::{self, APPEND};
use super::workspaces::{self, Change};
use crate::trace;

/// Invariant 4 of REQUIREMENTS: a workspace changes by commits only. S2-FR-057, S2-FR-058, B-01, B-06: each is there once if its call
/// completed, and not at all if it did not.
pub(super) fn audit(workspaces: &Inventoried, runs: &[Run], calls: &Calls<'_>) -> Violations {
    let mut violations = Violations::new();
    // The commit by which each call has changed something.
    let mut commits = BTreeMap::<&str, &str>::new();
    for (workspace, changes) in workspaces {
        for commit in in_order(changes) {
            let wrong = |what: String| format!("{}: {what}", workspace.display());
            let of_run = |(_, run): &(usize, &Run)| {
                run.effect.as_ref().is_some_and(|effect| effect.commit == commit && effect.workspace == *workspace)
            };
            let Some((number, run)) = runs.iter().enumerate().find(of_run) else {
                violations.push(wrong(format!("nobody did what {commit} put in place")));
                continue;
            };
            if let Some(before) = commits.insert(&run.call, commit) {
                let how = calls.get(&run.call).map_or("", |(_, call)| call.twice());
                violations.push(wrong(format!(
                    "{} was executed again: {before} and {commit} are both in place{how}",
                    run.call
                )));
            }
            violations.extend(whole(changes, commit, run).err().map(wrong));
            match calls.get(&run.call) {
                Some((_, call)) if call.completed_with() == Some(number) => trace::count("effects in place"),
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
    for (name, (_, call)) in calls {
        let effect = call.completed_with().and_then(|run| runs.get(run)?.effect.as_ref());
        if effect.is_some_and(|effect| !effect.after.is_empty()) && !commits.contains_key(name.as_str()) {
            violations.push(format!("{name} completed, and what it did is gone"));
        }
    }
    violations
}

/// The commits, each once.
fn in_order(changes: &[Change]) -> Vec<&str> {
    let mut commits: Vec<&str> = Vec::new();
    for change in changes {
        if !commits.contains(&&*change.commit) {
            commits.push(&change.commit);
        }
    }
    commits
}

/// Whether a commit did all that its run had done in its view, and nothing else.
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

/// An added line stands after what was there: whoever wrote meanwhile was not overwritten.
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

//! Forks: the part of an execution that another of the same plan carries over.

use belay_execution::{CarriedOver, Execution, Refused, StepId};

use crate::support::{is, story};

fn kept(execution: &Execution, from: Option<&str>) -> Result<Vec<String>, Refused> {
    let from = from.map(Into::into);
    let kept = execution.carried_over_by_fork(from.as_ref())?;
    let word = |(step, kept): (&StepId, CarriedOver<'_>)| match kept {
        CarriedOver::Output(output) => format!("{step} {}", output.inline().unwrap().as_str()),
        CarriedOver::Skipped => format!("{step} skipped"),
    };
    Ok(kept.into_iter().map(word).collect())
}

fn ids(execution: &Execution, from: Option<&str>) -> Vec<String> {
    kept(execution, from).unwrap().iter().map(|kept| kept.split(' ').next().unwrap().to_owned()).collect()
}

// What has completed is taken over, in the plan's order, unless it depends on what runs.
#[test]
fn what_has_completed_is_taken_over() {
    let play = story("a; b after a; c after b; d").replies("b: transient").play();
    assert_eq!(ids(&play.execution, None), ["a", "d"]);
    assert_eq!(ids(&play.execution, Some("a")), ["d"]);
    assert_eq!(ids(&play.execution, Some("d")), ["a"]);
    assert_eq!(ids(&play.execution, Some("c")), ["a", "d"]);
}

// Of one that has completed, only what depends on a step that is named runs again.
#[test]
fn nothing_runs_of_what_has_completed_unless_it_is_named() {
    let play = story("a; b after a; c").play();
    assert_eq!(kept(&play.execution, None), Err(Refused::NothingToRetry));
    assert_eq!(ids(&play.execution, Some("b")), ["a", "c"]);
    assert_eq!(kept(&play.execution, Some("z")), Err(Refused::NoStep("z".into())));
}

// Of one that runs or is paused, what has completed by now; and what a person has skipped is skipped again.
#[test]
fn one_that_goes_on_can_be_forked() {
    let play = story("a; b after a; c after b").acts("0.5s skip-step b 0; 1.5s pause; 9s resume").play();
    let paused = play.just_after(is::paused);
    assert_eq!(kept(&paused, None).unwrap()[1..], ["b skipped"]);
    assert_eq!(ids(&paused, None), ["a", "b"]);
}

// What was undone is to be done, and the steps for the entries of a list are those of their step.
#[test]
fn what_was_undone_runs_again_and_a_list_is_taken_over_as_a_whole() {
    let play = story("a; b after a; c").compensated("a").replies("b: transient").play();
    assert_eq!(ids(&play.execution, None), ["c"]);
    let list = story("a; b after a").for_each("a", serde_json::json!([1, 2])).replies("b: transient").play();
    assert_eq!(ids(&list.execution, None), ["a"]);
    assert_eq!(ids(&list.execution, Some("a~1")), [""; 0]);
}

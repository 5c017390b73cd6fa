//! Groups of steps: steps that an author writes under one id, with what all of them share.
//!
//! An execution carries out steps and knows no groups. Here what a group says is given to its steps: its dependencies, `run_when` and `condition` to those
//! with which it begins, the others as their defaults; and a step that depends on a group depends on the group's steps.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    time::Duration,
};

use serde_json::Value as Json;

use crate::{
    Dependency, Outcome, RetryPolicy, RunWhen, StepDraft, Template,
    check::{Place, Places, id_problem},
    limits::{MAX_GROUP_DEPENDENCIES, MAX_STEP_ID_CHARS},
    nearest,
    path::shown,
    template::StepValue,
};

use super::{
    fields::{Report, Value},
    locate::other_names,
};

/// A step as it was read.
pub(super) struct ReadStep<'n> {
    pub(super) value: Value<'n>,
    pub(super) place: Place,
    pub(super) draft: StepDraft,
}

/// A group as it was read.
pub(super) struct Group<'n> {
    pub(super) value: Value<'n>,
    pub(super) id: String,
    pub(super) depends_on: Vec<Dependency>,
    pub(super) run_when: RunWhen,
    pub(super) condition: String,
    pub(super) retry: Option<RetryPolicy>,
    /// From the start of the first of its steps.
    pub(super) timeout: Option<Duration>,
    /// Whether none of its steps starts once one of them has failed.
    pub(super) fail_fast: bool,
    pub(super) attempt_timeout: Option<Duration>,
    /// Its steps, and those of the groups in it.
    pub(super) steps: Range<usize>,
}

impl Group<'_> {
    /// Whether it names the outcomes of a step that its steps depend on.
    pub(super) fn names_outcomes(&self) -> bool {
        self.depends_on.iter().any(|on| on.on.is_some())
    }
}

/// The steps of a plan in their order, and its groups, each after those that stand in it.
#[derive(Default)]
pub(super) struct StepsAndGroups<'n> {
    pub(super) steps: Vec<ReadStep<'n>>,
    pub(super) groups: Vec<Group<'n>>,
}

impl<'n> StepsAndGroups<'n> {
    /// Adds a group with what was read of its steps.
    pub(super) fn add_group(&mut self, mut group: Group<'n>, within: Self) {
        let begin = self.steps.len();
        self.steps.extend(within.steps);
        self.groups.extend(within.groups.into_iter().map(|mut inner| {
            inner.steps = inner.steps.start + begin..inner.steps.end + begin;
            inner
        }));
        group.steps = begin..self.steps.len();
        self.groups.push(group);
    }

    /// The steps with what their groups say.
    pub(super) fn resolve(mut self, report: &mut Report) -> (Vec<StepDraft>, Places) {
        let names = self.groups.iter().map(|group| group.id.clone()).collect();
        if !self.groups.is_empty() {
            self.check_ids(report);
            self.name_steps(report);
            self.hand_down(report);
        }
        let (steps, drafts) = self.steps.into_iter().map(|step| (step.place, step.draft)).unzip();
        (drafts, Places { steps, groups: names })
    }

    /// Steps and groups share their ids, so that `depends_on` can name either.
    fn check_ids(&self, report: &mut Report) {
        let mut taken: HashMap<&str, &Value<'n>> = HashMap::new();
        for step in &self.steps {
            taken.entry(&step.draft.id).or_insert(&step.value);
        }
        for group in &self.groups {
            let path = group.value.path.key("id");
            let offset = group.value.node.field("id").map_or(group.value.node.offset, |entry| entry.value.offset);
            if let Some(problem) = id_problem(&group.id, MAX_STEP_ID_CHARS) {
                report.refuse(&path, offset, || problem);
            } else if let Some(first) = taken.insert(&group.id, &group.value) {
                report.refuse(&path, offset, || {
                    format!("`{}` is already the id of {}: ids must be unique", shown(&group.id), first.path)
                });
            }
        }
    }

    /// Puts the steps of a group in the place of its id in every `depends_on`.
    fn name_steps(&mut self, report: &mut Report) {
        // Those of its steps that run only when not all goes well are not waited for: they are skipped when it does.
        let of_groups: HashMap<String, (Vec<String>, Range<usize>)> = self
            .groups
            .iter()
            .map(|group| {
                let steps = &self.steps[group.steps.clone()];
                let all = || steps.iter().map(|step| &step.draft);
                let mut named: Vec<String> =
                    all().filter(|step| step.runs_when_all_goes_well()).map(|step| step.id.clone()).collect();
                if named.is_empty() {
                    named = all().map(|step| step.id.clone()).collect();
                }
                (group.id.clone(), (named, group.steps.clone()))
            })
            .collect();
        let mut expander = Expander { of_groups: &of_groups, left: MAX_GROUP_DEPENDENCIES };
        for (position, step) in self.steps.iter_mut().enumerate() {
            expander.expand(&step.value, &mut step.draft.depends_on, &(position..position + 1), report);
        }
        let ids: HashSet<String> = self.steps.iter().map(|step| step.draft.id.clone()).collect();
        for group in &mut self.groups {
            let own: HashSet<&str> =
                self.steps[group.steps.clone()].iter().map(|step| step.draft.id.as_str()).collect();
            for (entry, id) in group.depends_on.iter().map(|on| &on.step).enumerate() {
                if own.contains(id.as_str()) {
                    refuse_entry(&group.value, entry, report, || {
                        format!("`{}` is a step of the group itself", shown(id))
                    });
                } else if !ids.contains(id) && !of_groups.contains_key(id) {
                    refuse_entry(&group.value, entry, report, || {
                        let near = nearest(id, ids.iter().chain(of_groups.keys()).map(String::as_str));
                        let near = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
                        format!("there is no step and no group `{}`{near}", shown(id))
                    });
                }
            }
            expander.expand(&group.value, &mut group.depends_on, &group.steps, report);
            // What was refused is not handed down: it would be refused again for each step.
            let mut named = HashSet::new();
            group.depends_on.retain(|Dependency { step, .. }| {
                ids.contains(step) && !own.contains(step.as_str()) && named.insert(step.clone())
            });
        }
    }

    /// Gives the steps of each group what it says, those of inner groups first.
    fn hand_down(&mut self, report: &mut Report) {
        let mut left = MAX_GROUP_DEPENDENCIES;
        for group in &self.groups {
            let mut is_too_much = false;
            let steps = &mut self.steps[group.steps.clone()];
            let own: HashSet<String> = steps.iter().map(|step| step.draft.id.clone()).collect();
            for step in steps {
                let draft = &mut step.draft;
                // Inner groups come first, so that the outermost one stays.
                draft.group.clone_from(&group.id);
                if let Some(timeout) = group.timeout {
                    draft.group_timeouts.insert(group.id.clone(), timeout);
                }
                if group.fail_fast {
                    draft.fail_fast_groups.push(group.id.clone());
                }
                // What undoes a step, and what is checked after its call, may name the step itself.
                let begins = !draft.depends_on.iter().any(|on| own.contains(&on.step))
                    && !named_steps(draft).any(|id| id != draft.id && own.contains(&id));
                // After which ends it runs is said in one way only.
                let own_outcomes =
                    (group.run_when != RunWhen::default() && draft.names_outcomes()).then_some("depends_on");
                let own_run_when =
                    (draft.run_when != RunWhen::default() && group.names_outcomes()).then_some("run_when");
                if let Some(field) = own_outcomes.or(own_run_when).filter(|_| begins) {
                    let of_group = if own_outcomes.is_some() { "`run_when`" } else { "`on`" };
                    report.refuse(&step.value.path.key(field), offset_of(&step.value, field), || {
                        format!(
                            "says after which ends the step runs, and its group `{}` says it by {of_group}: say it for each step of the group by `on`, or \
                             take the step out of the group",
                            shown(&group.id)
                        )
                    });
                    continue;
                }
                // What is too much is refused, and not handed down any further.
                if begins && !is_too_much {
                    let known: HashSet<String> = draft.depends_on.iter().map(|on| on.step.clone()).collect();
                    let more: Vec<&Dependency> =
                        group.depends_on.iter().filter(|on| !known.contains(&on.step)).collect();
                    is_too_much |= more.len() > left;
                    if !is_too_much {
                        left -= more.len();
                        draft.depends_on.extend(more.into_iter().cloned());
                    }
                    if draft.run_when == RunWhen::default() {
                        draft.run_when = group.run_when;
                    }
                }
                // The others are skipped with those that they depend on, unless they run although those were skipped.
                if !group.condition.is_empty() && (begins || draft.may_follow_skipped()) {
                    draft.condition = match draft.condition.is_empty() {
                        true => group.condition.clone(),
                        false => format!("({}) && ({})", group.condition, draft.condition),
                    };
                }
                if draft.kind.retried_as().is_some() {
                    draft.retry = draft.retry.take().or_else(|| group.retry.clone());
                    draft.attempt_timeout = draft.attempt_timeout.or(group.attempt_timeout);
                }
            }
            if is_too_much {
                let path = group.value.path.key("depends_on");
                report.refuse(&path, group.value.node.offset, || {
                    format!(
                        "the plan's groups stand for more than {MAX_GROUP_DEPENDENCIES} dependencies: let `{}` begin with one step, \
                         on which its others depend",
                        shown(&group.id)
                    )
                });
            }
        }
    }
}

/// Puts steps in the place of groups, up to a number of them in one plan.
struct Expander<'g> {
    of_groups: &'g HashMap<String, (Vec<String>, Range<usize>)>,
    left: usize,
}

impl Expander<'_> {
    /// `depends_on` belongs to the step or the group at `value`, whose steps are these.
    fn expand(
        &mut self,
        value: &Value<'_>,
        depends_on: &mut Vec<Dependency>,
        steps: &Range<usize>,
        report: &mut Report,
    ) {
        for entry in 0..depends_on.len() {
            let Some((named, of_group)) = self.of_groups.get(&depends_on[entry].step) else { continue };
            if of_group.start < steps.end && steps.start < of_group.end {
                refuse_entry(value, entry, report, || {
                    format!(
                        "`{}` is the group that this stands in, or is in it: name a step",
                        shown(&depends_on[entry].step)
                    )
                });
                continue;
            }
            let on = depends_on[entry].on.clone();
            if on.as_ref().is_some_and(|on| !on.is_empty() && !on.contains(&Outcome::Success)) {
                // For each of its steps it would be wanted, which is hardly what is meant.
                refuse_entry(value, entry, report, || {
                    format!(
                        "`{}` is a group, each of whose steps would have to end so: name one of its steps, add success, or name the group alone and \
                         write `run_when: failure` to run when one of its steps has failed",
                        shown(&depends_on[entry].step)
                    )
                });
                continue;
            }
            if named.len() > self.left {
                refuse_entry(value, entry, report, || {
                    format!(
                        "the plan's groups stand for more than {MAX_GROUP_DEPENDENCIES} dependencies: let one step depend on \
                         `{}`, and the others on that step",
                        shown(&depends_on[entry].step)
                    )
                });
                continue;
            }
            self.left -= named.len();
            // The first takes the place of the group's id, so that the entries keep theirs.
            let mut named = named.iter().map(|step| Dependency { step: step.clone(), on: on.clone() });
            let Some(first) = named.next() else { continue };
            depends_on[entry] = first;
            depends_on.extend(named);
        }
    }
}

/// Where a field of a step or a group stands; where that stands when it has no such field.
pub(super) fn offset_of(value: &Value<'_>, name: &str) -> usize {
    let names = [name].into_iter().chain(other_names(name).iter().copied());
    names.into_iter().find_map(|name| value.node.field(name)).map_or(value.node.offset, |field| field.value.offset)
}

fn refuse_entry(value: &Value<'_>, entry: usize, report: &mut Report, message: impl FnOnce() -> String) {
    let names = ["depends_on"].into_iter().chain(other_names("depends_on").iter().copied());
    let found = names.into_iter().find_map(|name| Some((name, value.node.field(name)?)));
    let (name, offset) = found.map_or(("depends_on", value.node.offset), |(name, field)| {
        (name, field.value.entry(entry).map_or(field.value.offset, |node| node.offset))
    });
    report.refuse(&value.path.key(name).index(entry), offset, message);
}

/// The ids that the step's templates and expressions name in the place of a step.
fn named_steps(draft: &StepDraft) -> impl Iterator<Item = String> {
    let mut written = serde_json::to_value(draft).unwrap_or_default();
    if let Some(arguments) = written.get_mut("arguments").and_then(Json::as_object_mut) {
        arguments.retain(|name, _| !draft.verbatim.contains(name));
    }
    let (template, _) = Template::read(&written, &[]);
    let named: Vec<String> = template
        .values()
        .filter(|(_, value)| !matches!(value, StepValue::Input | StepValue::Item))
        .map(|(step, _)| step.to_owned())
        .collect();
    named.into_iter()
}

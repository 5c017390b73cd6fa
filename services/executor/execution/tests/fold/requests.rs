//! Any request at any moment of any execution: it is carried out whole, or refused and nothing has changed.

use std::time::Duration;

use belay_execution::{
    Actor, Control, DecideContext, Event, Execution, Json, NewPlan, Resolution, RetryChange, RetryRequest, StepId,
    Timestamp,
};
use proptest::{collection::vec, option, prelude::*, sample::Index};

use crate::{
    support::{Conditions, edited},
    worlds::lists,
};

/// A request of any kind, about any step: one of the plan, one for an entry of a list, one that undoes another, or none at all.
#[derive(Clone, Debug)]
struct Request {
    kind: Kind,
    /// The step; past the last one it is a step that does not exist.
    step: Index,
    flags: [bool; 2],
    /// How the plan changes, for an update and a retry.
    edit: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Pause,
    Resume,
    Cancel,
    Signal,
    Resolve,
    Retry,
    RetryFrom,
    Update,
    Skip,
    SetOutput,
    ChangeRetry,
}

fn requests() -> impl Strategy<Value = Request> {
    let kinds = prop_oneof![
        1 => Just(Kind::Pause),
        1 => Just(Kind::Resume),
        1 => Just(Kind::Cancel),
        1 => Just(Kind::Signal),
        1 => Just(Kind::Resolve),
        2 => Just(Kind::Retry),
        4 => Just(Kind::RetryFrom),
        2 => Just(Kind::Update),
        1 => Just(Kind::Skip),
        1 => Just(Kind::SetOutput),
        1 => Just(Kind::ChangeRetry),
    ];
    let edits = prop::sample::select(vec!["drop", "rename", "recall", "raise", "cap"]);
    (kinds, any::<Index>(), any::<[bool; 2]>(), option::of(edits)).prop_map(|(kind, step, flags, edit)| Request {
        kind,
        step,
        flags,
        edit,
    })
}

impl Request {
    /// The request to this execution.
    fn to(&self, execution: &Execution, now: Timestamp) -> Control {
        let steps: Vec<&StepId> = execution.steps().map(|step| step.id()).collect();
        let nobody = StepId::from("nobody");
        let step = (*steps.get(self.step.index(steps.len() + 1)).unwrap_or(&&nobody)).clone();
        let [one, other] = self.flags;
        let reason = "because".to_owned();
        let plan = || {
            let plan = edited(execution.plan(), &format!("{} {step}", self.edit.unwrap_or("rename")));
            NewPlan { plan: Box::new(plan), tools: execution.tools().to_vec() }
        };
        match self.kind {
            Kind::Pause => {
                let resume_at = other.then(|| now.saturating_add(Duration::from_secs(3)));
                Control::Pause { reason, discard_calls: one, resume_at }
            }
            Kind::Resume => Control::Resume,
            Kind::Cancel => Control::Cancel { reason, kill: one },
            Kind::Signal => Control::Signal { signal: "go".to_owned(), payload: Json::from_text("1") },
            Kind::Resolve => {
                let resolution = match self.flags {
                    [true, _] => Resolution::Again,
                    [false, true] => Resolution::Failed,
                    [false, false] => Resolution::Completed(Json::from_text("{}")),
                };
                Control::ResolveStep { step, resolution, reason }
            }
            Kind::Retry | Kind::RetryFrom => {
                let from = matches!(self.kind, Kind::RetryFrom).then(|| step.clone());
                let request = RetryRequest { from, skip_failed: one, start_paused: other, ..RetryRequest::default() };
                Control::Retry { request, plan: self.edit.map(|_| plan()) }
            }
            Kind::Update => Control::UpdatePlan { plan: plan(), revision: None, reason },
            Kind::Skip => Control::SkipStep { step, reason },
            Kind::SetOutput => Control::SetStepOutput { step, output: Json::from_text("{}"), reason },
            Kind::ChangeRetry => {
                let change = match self.flags {
                    [true, _] => RetryChange::Now,
                    [false, true] => RetryChange::Cancel,
                    [false, false] => RetryChange::Fallback,
                };
                Control::ChangeRetry { step, change, reason }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    // B-12: what `apply` does not accept is refused, with nothing changed, and what it accepts is in the log: a replay is the same.
    #[test]
    fn a_request_is_carried_out_whole_or_changes_nothing(
        events in lists(),
        moments in vec((any::<Index>(), vec(requests(), 1..6)), 1..8),
    ) {
        for (moment, requests) in moments {
            let before = 1 + moment.index(events.len());
            let mut log: Vec<Event> = events[..before].to_vec();
            let mut execution = Execution::replay(log.iter().cloned()).unwrap();
            let now = execution.last_time();
            for (number, request) in requests.iter().enumerate() {
                let control = request.to(&execution, now);
                let (unchanged, actor) = (execution.clone(), Actor { request_id: number.to_string(), ..Actor::new("person") });
                match execution.control(now, actor, control) {
                    Ok(recorded) => log.extend(recorded),
                    Err(_) => prop_assert_eq!(&execution, &unchanged, "a refused request has changed something"),
                }
                log.extend(execution.advance_with(DecideContext { now, ledger_id: "ledger" }, &Conditions::FREE));
                prop_assert!(execution.is_index_consistent() && execution.are_budgets_consistent());
            }
            prop_assert_eq!(&Execution::replay(log).unwrap(), &execution);
        }
    }
}

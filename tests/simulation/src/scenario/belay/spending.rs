//! B-35: what calls use never exceeds the budget of their plan, counted from the events alone; and what stands in the store of the budget of a namespace is
//! what the events of its executions say.

use std::collections::{BTreeMap, BTreeSet};

use belay_proto::v1::{self, execution_event::Kind};

use super::plans;
use super::records::ExecutionEvidence;
use crate::trace;

/// The end of the id of a step that undoes another, whose calls are not counted.
const UNDOES: &str = "~compensate";

/// The calls of one execution so far.
#[derive(Default)]
pub(super) struct Spending {
    /// The allotment of its parent, and the limit of its plan.
    given: Option<i64>,
    limit: Option<i64>,
    spent: i64,
    /// How many calls each operation in flight may make.
    held: BTreeMap<String, i64>,
    /// Calls that wait for a person before they run, and those that were sent after that.
    waits: BTreeSet<String>,
}

impl Spending {
    /// A description of the limit that an event breaks; `None` when it breaks none. `operation`: the name of the call or the child that it is about.
    pub(super) fn of(&mut self, event: &v1::ExecutionEvent, operation: &str) -> Option<String> {
        let limit_of = |plan: &Option<v1::Plan>| plan.as_ref()?.budget.as_ref()?.calls;
        let is_counted = !event.step_id.ends_with(UNDOES);
        match event.kind.as_ref()? {
            Kind::ExecutionCreated(created) => {
                let given = created.allotment.as_ref().and_then(|given| given.calls);
                (self.given, self.limit) = (given, limit_of(&created.plan).into_iter().chain(given).min());
                self.spent = created.spent.map_or(0, |spent| spent.calls);
            }
            Kind::ExecutionPlanUpdated(updated) => {
                self.limit = limit_of(&updated.plan).into_iter().chain(self.given).min();
            }
            // What commits the effect of a step is not counted either: the calls that made it are.
            Kind::ToolCallRequested(request)
                if is_counted && ![plans::COMMIT, plans::REBASE].contains(&&*request.tool) =>
            {
                self.held.insert(operation.to_owned(), 1);
            }
            Kind::ChildStarted(started) => {
                let calls = started.allotment.as_ref().and_then(|given| given.calls);
                self.held.insert(operation.to_owned(), calls.unwrap_or_default());
            }
            Kind::ToolCallApprovalRequired(_) => drop(self.waits.insert(operation.to_owned())),
            Kind::ToolCallDispatched(_) => drop(self.waits.remove(operation)),
            Kind::ToolCallCompleted(_)
            | Kind::ToolCallFailed(_)
            | Kind::ToolCallDenied(_)
            | Kind::ToolCallCancelled(_)
            | Kind::ToolCallOutcomeUnknown(_)
                if is_counted =>
            {
                let ran = !self.waits.remove(operation);
                self.spent += self.held.remove(operation).filter(|_| ran).unwrap_or_default();
            }
            Kind::ChildEnded(ended) => {
                let given = self.held.remove(operation).unwrap_or_default();
                self.spent += ended.spent.map_or(given, |spent| spent.calls);
            }
            Kind::BudgetExceeded(_) => trace::count("budgets used up"),
            _ => {}
        }
        let taken = self.spent + self.held.values().sum::<i64>();
        let limit = self.limit.filter(|limit| taken > *limit)?;
        Some(format!("event {}: {taken} calls are made or under way, and the budget is {limit}", event.sequence))
    }
}

/// Amounts that the calls of a namespace hold and have used in one window, by the events.
#[derive(Default)]
struct InWindow {
    used: i64,
    /// The calls under way that hold something, and whether each waits for a person before it runs.
    held: BTreeMap<String, bool>,
}

impl InWindow {
    fn read(&mut self, event: &v1::ExecutionEvent, call: &str, window: Option<&pbjson_types::Timestamp>) {
        let Some(kind) = &event.kind else { return };
        match kind {
            Kind::ToolCallRequested(request) => {
                let hold = request.namespace_hold.as_ref();
                if hold.is_some_and(|hold| hold.window_start_time.as_ref() == window) {
                    self.held.insert(call.to_owned(), false);
                }
            }
            Kind::ToolCallApprovalRequired(_) | Kind::ToolCallEffectProposed(_) | Kind::ToolCallDispatched(_) => {
                if let Some(waits) = self.held.get_mut(call) {
                    *waits = matches!(kind, Kind::ToolCallApprovalRequired(_));
                }
            }
            Kind::ToolCallCompleted(_)
            | Kind::ToolCallFailed(_)
            | Kind::ToolCallDenied(_)
            | Kind::ToolCallCancelled(_)
            | Kind::ToolCallOutcomeUnknown(_) => {
                self.used += i64::from(self.held.remove(call) == Some(false));
            }
            _ => {}
        }
    }
}

/// The problem of the store's account of the budget of a namespace. Deleted executions give nothing back, and have no events any more.
pub(super) fn of_namespace(
    namespace: &v1::Namespace,
    executions: &BTreeMap<String, ExecutionEvidence>,
    has_deleted: bool,
) -> Option<String> {
    let usage = namespace.usage.as_ref()?;
    let mut counted = InWindow::default();
    let inside = executions.iter().filter(|(name, _)| name.starts_with(&format!("{}/executions/", namespace.name)));
    for (name, kept) in inside {
        for event in &kept.events {
            counted.read(event, &belay_proto::call_name(name, event), usage.window_start_time.as_ref());
        }
    }
    trace::count("budgets of namespaces compared");
    let (used, held) = (usage.used.unwrap_or_default().calls, usage.held.unwrap_or_default().calls);
    let by_events = i64::try_from(counted.held.len()).unwrap_or(i64::MAX);
    let is_right = held == by_events && (used == counted.used || has_deleted && used > counted.used);
    let limit = usage.limit.and_then(|limit| limit.calls).unwrap_or(i64::MAX);
    (!is_right || used + held > limit).then(|| {
        format!(
            "{}: of its budget {used} calls are used and {held} held in the store, and by the events {} and {by_events}",
            namespace.name, counted.used
        )
    })
}

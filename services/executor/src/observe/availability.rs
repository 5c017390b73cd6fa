//! Services that are unavailable, as observed by the watches that are always open: detected within a moment, even when no call is running.

use std::sync::{Mutex, PoisonError};

use belay_execution::{Execution, Timestamp, Waiting};
use belay_proto::v1::{self, execution::State, waiting_reason::Kind};
use belay_reading::explanation::{Blocker, BlockerKind, Service};

use crate::wire;

/// Since when each service is unavailable.
#[derive(Debug, Default)]
pub(crate) struct Availability {
    runner: Since,
    gate: Since,
}

/// Since when one service is unavailable; `None` while it is available.
#[derive(Debug, Default)]
pub(crate) struct Since(Mutex<Option<Timestamp>>);

impl Since {
    /// Records that the service responds.
    pub(crate) fn set_available(&self) {
        *self.lock() = None;
    }

    /// Records that the service does not respond.
    pub(crate) fn set_unavailable(&self, now: Timestamp) {
        self.lock().get_or_insert(now);
    }

    fn get(&self) -> Option<Timestamp> {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Availability {
    /// The tool runner.
    pub(crate) fn runner(&self) -> &Since {
        &self.runner
    }

    /// The approval gate.
    pub(crate) fn gate(&self) -> &Since {
        &self.gate
    }

    /// Adds the unavailable services that an execution needs to what it waits for. An ended execution needs none; one that waits for a decision
    /// needs the gate.
    pub(crate) fn add_to(&self, execution: &mut v1::Execution) {
        let is_open = matches!(
            execution.state(),
            State::Pending | State::Running | State::AwaitingApproval | State::Paused | State::Cancelling
        );
        let waits_for = |kind: Kind| execution.waiting.iter().any(|waiting| waiting.kind() == kind);
        let gate_away = wire::blocker(&service_away(Service::ApprovalGate, Timestamp::from_micros(0))).who;
        let says_gate = execution.waiting.iter().any(|waiting| waiting.who == gate_away);
        let needs = Needs {
            runner: is_open && !waits_for(Kind::Runner),
            gate: is_open && waits_for(Kind::Approval) && !says_gate,
        };
        execution.waiting.extend(self.blockers(needs).iter().map(wire::blocker));
    }

    /// The same for an explanation: the unavailable services that an execution needs, of those that it is not known to wait for.
    pub(crate) fn beside(&self, execution: &Execution, known: &[Blocker]) -> Vec<Blocker> {
        let is_open = !execution.state().is_terminal();
        let says = |kinds: &dyn Fn(&BlockerKind) -> bool| known.iter().any(|blocker| kinds(&blocker.kind));
        let is_of_runner = |kind: &BlockerKind| {
            matches!(
                kind,
                BlockerKind::ServiceAway(Service::ToolRunner)
                    | BlockerKind::RunnerAnswer(_)
                    | BlockerKind::ClockDifference
                    | BlockerKind::SandboxUnavailable
            )
        };
        let says_gate = says(&|kind| *kind == BlockerKind::ServiceAway(Service::ApprovalGate));
        let asks = || execution.waiting().iter().any(|waiting| matches!(waiting, Waiting::Approval { .. }));
        self.blockers(Needs { runner: is_open && !says(&is_of_runner), gate: is_open && !says_gate && asks() })
    }

    fn blockers(&self, needs: Needs) -> Vec<Blocker> {
        let runner = self.runner.get().filter(|_| needs.runner).map(|since| service_away(Service::ToolRunner, since));
        let gate = self.gate.get().filter(|_| needs.gate).map(|since| service_away(Service::ApprovalGate, since));
        runner.into_iter().chain(gate).collect()
    }
}

/// Services that an execution needs.
struct Needs {
    runner: bool,
    gate: bool,
}

fn service_away(service: Service, since: Timestamp) -> Blocker {
    Blocker { since, kind: BlockerKind::ServiceAway(service) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATE_AWAY: &str = "the approval gate, which does not answer";

    fn waits(away: &Availability, state: State, waiting: Vec<v1::WaitingReason>) -> Vec<String> {
        let mut execution = v1::Execution { state: state.into(), waiting, ..v1::Execution::default() };
        away.add_to(&mut execution);
        execution.waiting.into_iter().map(|waiting| waiting.who).collect()
    }

    #[test]
    fn an_execution_waits_for_the_unavailable_services_that_it_needs() {
        let (away, now) = (Availability::default(), Timestamp::from_micros(5));
        let asked = || v1::WaitingReason { kind: Kind::Approval.into(), who: "a person".into(), ..Default::default() };
        assert!(waits(&away, State::Running, vec![]).is_empty());
        away.runner().set_unavailable(now);
        away.gate().set_unavailable(now);
        assert_eq!(waits(&away, State::Running, vec![]), ["the tool runner, which does not answer"]);
        assert_eq!(
            waits(&away, State::Running, vec![wire::blocker(&service_away(Service::ToolRunner, now))]).len(),
            1,
            "listed once"
        );
        assert_eq!(
            waits(&away, State::AwaitingApproval, vec![asked()]),
            ["a person", "the tool runner, which does not answer", GATE_AWAY]
        );
        assert!(waits(&away, State::Completed, vec![]).is_empty());
        away.runner().set_available();
        away.gate().set_available();
        assert_eq!(waits(&away, State::AwaitingApproval, vec![asked()]), ["a person"]);
    }
}

//! Which services are unavailable, as observed by the watches that are always open: detected within a moment, even when no call is running.

use std::sync::{Mutex, PoisonError};

use belay_execution::Timestamp;
use belay_proto::v1::{self, execution::State, waiting_reason::Kind};

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
        let says_gate = execution.waiting.iter().any(|waiting| waiting.who == GATE_AWAY);
        let mut found = Vec::new();
        if let Some(since) = self.runner.get().filter(|_| is_open && !waits_for(Kind::Runner)) {
            found.push(runner_away(since));
        }
        if let Some(since) = self.gate.get().filter(|_| is_open && waits_for(Kind::Approval) && !says_gate) {
            found.push(gate_away(since));
        }
        execution.waiting.extend(found);
    }
}

const GATE_AWAY: &str = "the approval gate, which does not answer";

/// The tool runner is unavailable.
pub(crate) fn runner_away(since: Timestamp) -> v1::WaitingReason {
    reason(Kind::Runner, since, "the tool runner, which does not answer")
}

/// The tool runner gives this answer, from which nothing follows.
pub(crate) fn runner_answers(since: Timestamp, answer: &str) -> v1::WaitingReason {
    reason(Kind::Runner, since, &format!("the tool runner, which answers {answer}"))
}

/// The approval gate is unavailable.
pub(crate) fn gate_away(since: Timestamp) -> v1::WaitingReason {
    reason(Kind::Approval, since, GATE_AWAY)
}

/// A reason that names no command and ends by itself.
pub(crate) fn reason(kind: Kind, since: Timestamp, who: &str) -> v1::WaitingReason {
    v1::WaitingReason {
        kind: kind.into(),
        begin_time: Some(wire::time(since)),
        until_time: None,
        who: who.to_owned(),
        next_command: String::new(),
        principal: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(waits(&away, State::Running, vec![runner_away(now)]).len(), 1, "listed once");
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

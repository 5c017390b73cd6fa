//! Reasons for waiting that are in no event: services that do not answer or are at their limit, a machine that cannot carry out calls now, calls that
//! wait for others.

use std::collections::BTreeMap;

use belay_execution::{OperationKey, StepKey, Timestamp};
use belay_reading::explanation::{Blocker, BlockerKind, Service};

use super::call_end::MachineBlocker;
use crate::{feeds::LiveWaits, runners::operation::Busy};

/// Blockers that an execution has now.
#[derive(Debug, Default)]
pub(super) struct Blockers {
    /// The runner is unavailable, or gives this answer, from which nothing follows.
    runner_away: Option<(Timestamp, Option<String>)>,
    gate_away: Option<Timestamp>,
    /// The runner's clock rejects a grant.
    clocks_differ: Option<Timestamp>,
    /// Steps whose last call found that the runner's machine cannot carry it out now, such as on a full disk.
    machine: BTreeMap<StepKey, (Timestamp, MachineBlocker)>,
    /// Calls that wait for a service at its limit.
    busy: BTreeMap<OperationKey, (Timestamp, Busy)>,
    /// The step whose list has no room for its steps in memory.
    without_room: Option<(Timestamp, StepKey)>,
    /// Calls of the namespace in flight hold what its budget has left, in words.
    namespace_held: Option<(Timestamp, String)>,
    /// Calls that wait for an exclusive call, and that call.
    behind: BTreeMap<OperationKey, (Timestamp, String)>,
}

impl Blockers {
    pub(super) fn set_runner_away(&mut self, answer: Option<String>, now: Timestamp) {
        self.runner_away.get_or_insert((now, None)).1 = answer;
    }

    pub(super) fn set_gate_away(&mut self, now: Timestamp) {
        self.gate_away.get_or_insert(now);
    }

    pub(super) fn set_clocks_differ(&mut self, now: Timestamp) {
        self.clocks_differ.get_or_insert(now);
    }

    /// Both services answer, and their clocks agree.
    pub(super) fn clear_services(&mut self) {
        (self.runner_away, self.gate_away, self.clocks_differ) = (None, None, None);
    }

    /// The list of this step has no room; `None`: none waits for room.
    pub(super) fn set_without_room(&mut self, step: Option<StepKey>, now: Timestamp) {
        let since = self.without_room.map_or(now, |(since, _)| since);
        self.without_room = step.map(|step| (since, step));
    }

    /// Calls of the namespace hold what the next call needs, in these words; `None`: no call waits for that.
    pub(super) fn set_namespace_held(&mut self, reason: Option<String>, now: Timestamp) {
        let since = self.namespace_held.as_ref().map_or(now, |(since, _)| *since);
        self.namespace_held = reason.map(|reason| (since, reason));
    }

    pub(super) fn is_without_room(&self) -> bool {
        self.without_room.is_some()
    }

    /// A service at its limit has refused the call for now.
    pub(super) fn set_busy(&mut self, call: OperationKey, service: Busy, now: Timestamp) {
        self.busy.entry(call).or_insert((now, service));
    }

    /// Keeps only those calls waiting for a service that are still being sent.
    pub(super) fn retain_busy(&mut self, is_sent: impl Fn(&OperationKey) -> bool) {
        self.busy.retain(|call, _| is_sent(call));
    }

    /// The runner has accepted the call, which waits there for another one, or no longer does if `other` is empty.
    pub(super) fn set_behind(&mut self, call: OperationKey, other: String, now: Timestamp) {
        self.remove(call);
        if !other.is_empty() {
            self.behind.insert(call, (now, other));
        }
    }

    /// The call waits for nothing here.
    pub(super) fn remove(&mut self, call: OperationKey) {
        self.busy.remove(&call);
        self.behind.remove(&call);
    }

    /// Notes what the step's last call found of the runner's machine.
    pub(super) fn set_machine(&mut self, step: StepKey, found: Option<MachineBlocker>, now: Timestamp) {
        match found {
            Some(found) => self.machine.entry(step).or_insert((now, found)).1 = found,
            None => drop(self.machine.remove(&step)),
        }
    }

    pub(super) fn waits_for_machine(&self, step: StepKey) -> bool {
        self.machine.contains_key(&step)
    }

    /// The reasons as readers see them: of the execution, each kind once and since the first of its calls waits, and of each step.
    pub(super) fn reasons(&self) -> LiveWaits {
        let mut waits = LiveWaits::default();
        let found = |since: Timestamp, kind: BlockerKind| Blocker { since, kind };
        waits.execution.extend(self.runner_away.as_ref().map(|(since, answer)| match answer {
            Some(answer) => found(*since, BlockerKind::RunnerAnswer(answer.clone())),
            None => found(*since, BlockerKind::ServiceAway(Service::ToolRunner)),
        }));
        waits.execution.extend(self.clocks_differ.map(|since| found(since, BlockerKind::ClockDifference)));
        for (blocker, kind) in [
            (MachineBlocker::Full, BlockerKind::WorkspaceFull),
            (MachineBlocker::ReadOnly, BlockerKind::WorkspaceReadOnly),
            (MachineBlocker::Sandbox, BlockerKind::SandboxUnavailable),
        ] {
            let since = self.machine.values().filter(|(_, found)| *found == blocker).map(|(since, _)| *since).min();
            waits.execution.extend(since.map(|since| found(since, kind)));
        }
        let gate_away = self.gate_away.map(|since| found(since, BlockerKind::ServiceAway(Service::ApprovalGate)));
        waits.execution.extend(gate_away);
        if let Some((since, step)) = self.without_room {
            let limit = limit_reached(Busy::Steps, since);
            waits.execution.push(limit.clone());
            waits.steps.push((step, limit));
        }
        let namespace_held = self.namespace_held.as_ref();
        waits
            .execution
            .extend(namespace_held.map(|(since, reason)| found(*since, BlockerKind::NamespaceBudget(reason.clone()))));
        for service in [Busy::Runner, Busy::Gate, Busy::Steps] {
            let waiting = || self.busy.iter().filter(|(_, (_, busy))| *busy == service);
            let longest = waiting().map(|(_, (since, _))| *since).min();
            waits.execution.extend(longest.map(|since| limit_reached(service, since)));
            waits.steps.extend(waiting().map(|(call, (since, _))| (call.step, limit_reached(service, *since))));
        }
        for (call, (since, other)) in &self.behind {
            let behind = found(*since, BlockerKind::ExclusiveCall(other.clone()));
            waits.execution.push(behind.clone());
            waits.steps.push((call.step, behind));
        }
        waits
    }
}

fn limit_reached(service: Busy, since: Timestamp) -> Blocker {
    let service = match service {
        Busy::Runner => Service::ToolRunner,
        Busy::Gate => Service::ApprovalGate,
        Busy::Steps => Service::Executor,
    };
    Blocker { since, kind: BlockerKind::Limit(service) }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{WaitingReason, waiting_reason::Kind};

    use super::*;
    use crate::wire;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn call(step: usize) -> OperationKey {
        OperationKey { step: StepKey::new(step), attempt: 1, number: 1 }
    }

    /// The kind, the second and a word of a reason.
    type Reason = (Kind, i64, &'static str);

    /// The reasons of the execution; and the step and the second of each reason of a step.
    fn seen(blockers: &Blockers, words: &[&'static str]) -> (Vec<Reason>, Vec<(StepKey, i64)>) {
        let LiveWaits { execution, steps } = blockers.reasons();
        let second = |reason: &WaitingReason| reason.begin_time.as_ref().map_or(-1, |since| since.seconds);
        let word = |reason: &WaitingReason| *words.iter().find(|word| reason.who.contains(**word)).unwrap_or(&"?");
        (
            execution.iter().map(wire::blocker).map(|reason| (reason.kind(), second(&reason), word(&reason))).collect(),
            steps.iter().map(|(step, reason)| (*step, second(&wire::blocker(reason)))).collect(),
        )
    }

    #[test]
    fn a_service_is_away_since_it_was_first_noticed_until_both_answer() {
        let mut blockers = Blockers::default();
        for second in [3, 4] {
            blockers.set_runner_away(None, at(second));
            blockers.set_clocks_differ(at(second + 10));
            blockers.set_gate_away(at(second + 20));
        }
        let words = ["the tool runner and", "tool runner", "approval gate"];
        let (execution, steps) = seen(&blockers, &words);
        let [(Kind::Runner, 3, "tool runner"), (Kind::Runner, 13, "the tool runner and"), (_, 23, "approval gate")] =
            execution[..]
        else {
            panic!("{execution:?}")
        };
        assert_eq!(steps, []);
        blockers.set_runner_away(Some("POLICY_MISSING: no policy".to_owned()), at(30));
        let named = "the tool runner, which answers POLICY_MISSING: no policy";
        assert_eq!(seen(&blockers, &[named]).0[0], (Kind::Runner, 3, named));
        blockers.clear_services();
        assert_eq!(blockers.reasons(), LiveWaits::default());
    }

    #[test]
    fn each_limit_is_shown_with_its_setting_since_the_first_call_waits_for_it_and_at_each_step() {
        let mut blockers = Blockers::default();
        for (step, service, second) in
            [(0, Busy::Gate, 9), (1, Busy::Runner, 5), (2, Busy::Runner, 4), (2, Busy::Gate, 1)]
        {
            blockers.set_busy(call(step), service, at(second));
        }
        let words = ["`services.runner.calls`", "`services.gate`"];
        let runner = (Kind::Limit, 4, "`services.runner.calls`");
        let gate = (Kind::Limit, 9, "`services.gate`");
        let [first, second, third] = [0, 1, 2].map(StepKey::new);
        assert_eq!(seen(&blockers, &words), (vec![runner, gate], vec![(second, 5), (third, 4), (first, 9)]));
        blockers.retain_busy(|call| call.step != third);
        assert_eq!(seen(&blockers, &words).1, [(second, 5), (first, 9)]);
        blockers.remove(call(1));
        assert_eq!(seen(&blockers, &words), (vec![gate], vec![(first, 9)]));
    }

    #[test]
    fn a_call_behind_another_names_it_until_it_is_past() {
        let mut blockers = Blockers::default();
        blockers.set_busy(call(1), Busy::Runner, at(1));
        blockers.set_behind(call(1), "calls/other".into(), at(2));
        let behind = (Kind::Call, 2, "calls/other, which");
        assert_eq!(seen(&blockers, &["calls/other, which"]), (vec![behind], vec![(StepKey::new(1), 2)]));
        blockers.set_behind(call(1), String::new(), at(3));
        assert_eq!(blockers.reasons(), LiveWaits::default());
        blockers.set_behind(call(1), "calls/other".into(), at(4));
        blockers.remove(call(1));
        assert_eq!(blockers.reasons(), LiveWaits::default());
    }

    #[test]
    fn what_others_hold_of_a_budget_is_shown_until_nothing_waits_for_it() {
        let mut blockers = Blockers::default();
        for second in [3, 4] {
            blockers.set_namespace_held(Some("calls of namespace `n` in flight".to_owned()), at(second));
        }
        assert_eq!(seen(&blockers, &["namespace `n`"]), (vec![(Kind::Limit, 3, "namespace `n`")], vec![]));
        blockers.set_namespace_held(None, at(5));
        assert_eq!(blockers.reasons(), LiveWaits::default());
    }

    #[test]
    fn a_blocker_is_shown_since_the_first_step_found_it_until_none_does() {
        let mut blockers = Blockers::default();
        let [first, second] = [0, 1].map(StepKey::new);
        let (full, read_only) = (Some(MachineBlocker::Full), Some(MachineBlocker::ReadOnly));
        blockers.set_machine(first, full, at(8));
        blockers.set_machine(second, full, at(6));
        blockers.set_machine(second, full, at(9));
        let words = ["which is full", "remount it"];
        assert_eq!(seen(&blockers, &words), (vec![(Kind::Workspace, 6, words[0])], vec![]));
        blockers.set_machine(second, read_only, at(10));
        let both = vec![(Kind::Workspace, 8, words[0]), (Kind::Workspace, 6, words[1])];
        assert_eq!(seen(&blockers, &words), (both, vec![]));
        blockers.set_machine(second, None, at(11));
        assert_eq!((blockers.waits_for_machine(first), blockers.waits_for_machine(second)), (true, false));
        blockers.set_machine(second, Some(MachineBlocker::Sandbox), at(12));
        let (execution, _) = seen(&blockers, &["which is full", "its sandbox"]);
        assert_eq!(execution[1], (Kind::Runner, 12, "its sandbox"));
        blockers.set_machine(second, None, at(13));
        assert_eq!(seen(&blockers, &words), (vec![(Kind::Workspace, 8, words[0])], vec![]));
    }
}

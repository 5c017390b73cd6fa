//! The calls that the runner knows. Of a call that waits for approval it keeps the name, and the ledger everything else, while no caller asks about it: a
//! million of them may wait for days.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    ops::Bound,
};

use super::call::Call;

/// The calls that the runner knows, by their names.
#[derive(Default)]
pub(super) struct KnownCalls {
    /// The calls in memory: they run, have ended, or a caller asks about them.
    pub(super) calls: HashMap<String, Call>,
    /// The calls that wait for approval and are in the ledger only, in order, so that those of an execution are together.
    held: BTreeSet<Box<str>>,
}

/// Where a call is.
pub(super) enum CallLookup {
    InMemory(Call),
    InLedger,
    Nowhere,
}

impl KnownCalls {
    /// Adds a call that waits for approval and is in the ledger.
    pub(super) fn add_held(&mut self, name: &str) {
        self.held.insert(name.into());
    }

    pub(super) fn look_up(&self, name: &str) -> CallLookup {
        match self.calls.get(name) {
            Some(call) => CallLookup::InMemory(call.clone()),
            None if self.held.contains(name) => CallLookup::InLedger,
            None => CallLookup::Nowhere,
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.calls.contains_key(name) || self.held.contains(name)
    }

    /// Adds a call, unless one of its name is known.
    pub(super) fn add_new(&mut self, name: &str, call: &Call) -> bool {
        if self.held.contains(name) {
            return false;
        }
        match self.calls.entry(name.to_owned()) {
            Entry::Vacant(slot) => {
                slot.insert(call.clone());
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Takes a call into memory that was read from the ledger.
    pub(super) fn load(&mut self, name: &str, call: Call) {
        self.held.remove(name);
        self.calls.insert(name.to_owned(), call);
    }

    /// Drops a call from memory if it waits for approval and no caller asks about it now. Those who follow it have its last progress, and read the rest
    /// of its output; for who comes later the output is gone, as after a start of the runner.
    pub(super) fn unload(&mut self, name: &str) {
        if self.calls.get(name).is_some_and(Call::can_be_unloaded) {
            self.calls.remove(name);
            self.add_held(name);
        }
    }

    /// The names of the calls in the ledger only that begin with a prefix.
    pub(super) fn held_below(&self, prefix: &str) -> impl Iterator<Item = &str> {
        let from = self.held.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.map(|name| &**name).take_while(move |name| name.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belay_proto::runner_v1::ToolCall;
    use belay_redaction::{MasterKey, Redactor};

    use super::{super::call::Progress, *};
    use crate::{Registry, Secrets};

    fn call(progress: Progress) -> Call {
        let registry = Registry::new(Vec::new()).unwrap();
        let secrets = Secrets::new(Redactor::new(), MasterKey::new([8; 32]), registry, || [1; 32]);
        Call::new("".into(), progress, ToolCall::default(), Arc::new(secrets.of_call("", "")))
    }

    fn held() -> Call {
        call(Progress::AwaitingApproval(Arc::default()))
    }

    #[test]
    fn a_call_that_waits_leaves_memory_when_nobody_asks_about_it() {
        let mut known = KnownCalls::default();
        assert!(known.add_new("held", &held()));
        let asking = known.look_up("held");
        known.unload("held");
        assert!(matches!(known.look_up("held"), CallLookup::InMemory(_)), "a person may be about to decide it");
        drop(asking);
        known.unload("held");
        assert!(matches!(known.look_up("held"), CallLookup::InLedger));
        assert!(known.contains("held") && known.calls.is_empty());
        assert!(!known.add_new("held", &held()), "it is the same call");

        known.load("held", held());
        assert!(matches!(known.look_up("held"), CallLookup::InMemory(_)));
        known.calls.remove("held");
        assert!(matches!(known.look_up("held"), CallLookup::Nowhere), "it has ended, and its end was acknowledged");
    }

    #[test]
    fn a_call_that_does_not_wait_stays_in_memory() {
        for progress in [Progress::Running, Progress::Resolving, Progress::Unresolved] {
            let mut known = KnownCalls::default();
            assert!(known.add_new("a", &call(progress)));
            known.unload("a");
            assert!(known.calls.contains_key("a"));
        }
    }

    #[test]
    fn the_calls_of_an_execution_are_found_among_others() {
        let mut known = KnownCalls::default();
        for name in ["e1/steps/a/calls/1.1", "e1/steps/b/calls/1.1", "e10/steps/a/calls/1.1", "e2/steps/a/calls/1.1"] {
            known.add_held(name);
        }
        let of_one: Vec<&str> = known.held_below("e1/steps/").collect();
        assert_eq!(of_one, ["e1/steps/a/calls/1.1", "e1/steps/b/calls/1.1"]);
        assert_eq!(known.held_below("e3/steps/").count(), 0);
    }
}

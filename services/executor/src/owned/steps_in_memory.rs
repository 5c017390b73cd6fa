//! Limits how many steps executions have in memory together, so that a small plan whose lists and nested plans become millions of steps does not fill it.
//!
//! An execution is in memory with all its steps. It asks before it gets more: when it starts, when a step's plan becomes an execution, and when a list has
//! been read. What does not fit waits until others have left memory. One principal gets at most half of the limit, and one tree (an execution with those of
//! its steps' plans) a quarter, so that nobody takes it from all others. An execution that comes back to memory is counted and never refused: it may have to
//! end a call or take a decision.
//!
//! Executions that wait keep what they have, so two may each have what the other needs, or an execution what its own children need. Therefore one
//! execution of each principal and each height (the levels of plans below it) may go beyond the limit until it leaves memory. An execution without
//! plans below it needs no other and continues; hence an execution that waits for such ones does; and so on. The steps in memory are at most the
//! limit, a quarter of it for each of these, and what came back.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use belay_plan::Plan;
use belay_service_kit::Limit;
use tokio::sync::Notify;
use tonic::Status;

/// The setting, for messages.
pub(crate) const SETTING: &str = "services.executor.steps";

/// Why an execution with so many steps can never be in memory.
pub(crate) fn too_many_steps(steps: usize, most: usize) -> String {
    format!(
        "The plan has {steps} steps, and an execution may have {most}, a quarter of the operator's limit for those in memory (`{SETTING}`): split it."
    )
}

/// The owner of an execution's steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The principal that started it, or the execution that it belongs to.
    pub(crate) principal: Arc<str>,
    /// The name of the execution that it belongs to in the end: of itself when it has no parent.
    pub(crate) tree: Arc<str>,
    /// The levels of plans below it.
    pub(crate) height: usize,
}

impl Owner {
    /// The owner of the steps of an execution with this plan.
    pub(crate) fn of(principal: &str, tree: Arc<str>, plan: &Plan) -> Self {
        Self { principal: principal.into(), tree, height: plan.nested_levels() }
    }
}

/// The executions of which one may go beyond the limit: those of a principal with one height.
type Turn = (Arc<str>, usize);

impl Owner {
    fn turn(&self) -> Turn {
        (Arc::clone(&self.principal), self.height)
    }
}

/// The steps that one execution has in memory.
#[derive(Debug)]
struct Entry {
    owner: Owner,
    steps: usize,
    /// How many it will have once there is room.
    wanted: Option<usize>,
    granted: Arc<Notify>,
}

/// The steps in memory.
#[derive(Debug)]
struct Counts {
    allowed: usize,
    entered: u64,
    entries: HashMap<u64, Entry>,
    /// Executions that wait, in the order in which they have asked: by [`Counts::asked`].
    waiting: BTreeMap<u64, u64>,
    asked: u64,
    all: usize,
    principals: HashMap<Arc<str>, usize>,
    trees: HashMap<Arc<str>, usize>,
    /// Executions that may go beyond the limit.
    beyond: HashMap<Turn, u64>,
}

fn add(counts: &mut HashMap<Arc<str>, usize>, name: &Arc<str>, before: usize, after: usize) {
    let count = counts.entry(Arc::clone(name)).or_default();
    *count = *count + after - before;
    if *count == 0 {
        counts.remove(name);
    }
}

impl Counts {
    fn new(allowed: usize) -> Self {
        Self {
            allowed,
            entered: 0,
            entries: HashMap::new(),
            waiting: BTreeMap::new(),
            asked: 0,
            all: 0,
            principals: HashMap::new(),
            trees: HashMap::new(),
            beyond: HashMap::new(),
        }
    }

    /// How many steps one tree may have, and so one execution.
    fn of_tree(&self) -> usize {
        self.allowed.div_ceil(4)
    }

    fn of_principal(&self) -> usize {
        self.allowed.div_ceil(2)
    }

    fn enter(&mut self, owner: Owner) -> u64 {
        self.entered += 1;
        self.entries.insert(self.entered, Entry { owner, steps: 0, wanted: None, granted: Arc::default() });
        self.entered
    }

    /// The execution has this many now, and asks for no more.
    fn set(&mut self, id: u64, steps: usize) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (before, owner) = (std::mem::replace(&mut entry.steps, steps), entry.owner.clone());
        let waited = entry.wanted.take().is_some();
        if waited {
            self.waiting.retain(|_, waiting| *waiting != id);
        }
        self.all = self.all + steps - before;
        add(&mut self.principals, &owner.principal, before, steps);
        add(&mut self.trees, &owner.tree, before, steps);
        if steps < before || waited {
            self.serve();
        }
    }

    /// The execution needs this many steps. Returns whether it has them now; otherwise it waits for them.
    fn ask(&mut self, id: u64, steps: usize) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return true };
        if steps <= entry.steps {
            return true;
        }
        let turn = entry.owner.turn();
        if entry.wanted.replace(steps).is_none() {
            self.asked += 1;
            self.waiting.insert(self.asked, id);
        }
        let is_before = |other: &u64| *other != id && self.entries[other].owner.turn() == turn;
        let others_wait = self.waiting.values().take_while(|other| **other != id).any(is_before);
        if self.beyond.get(&turn) == Some(&id) || !others_wait {
            self.grant(id);
        }
        self.entries[&id].wanted.is_none()
    }

    /// Gives an execution what it waits for, if it may have it. Returns whether it has.
    fn grant(&mut self, id: u64) -> bool {
        let Entry { owner, steps, wanted: Some(wanted), granted } = &self.entries[&id] else { return true };
        let (more, wanted) = (wanted - steps, *wanted);
        let of = |counts: &HashMap<Arc<str>, usize>, name| counts.get(name).copied().unwrap_or(0);
        let fits = self.all + more <= self.allowed
            && of(&self.principals, &owner.principal) + more <= self.of_principal()
            && of(&self.trees, &owner.tree) + more <= self.of_tree();
        if !fits && *self.beyond.entry(owner.turn()).or_insert(id) != id {
            return false;
        }
        let granted = Arc::clone(granted);
        self.waiting.retain(|_, waiting| *waiting != id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.wanted = None;
        }
        self.set(id, wanted);
        granted.notify_one();
        true
    }

    /// Gives those that wait what there is room for; of those with one turn in the order in which they have asked.
    fn serve(&mut self) {
        let mut later = HashSet::new();
        let waiting: Vec<u64> = self.waiting.values().copied().collect();
        for id in waiting {
            let turn = self.entries[&id].owner.turn();
            if !later.contains(&turn) && !self.grant(id) {
                later.insert(turn);
            }
        }
    }

    fn leave(&mut self, id: u64) {
        let Some(turn) = self.entries.get(&id).map(|entry| entry.owner.turn()) else { return };
        if self.beyond.get(&turn) == Some(&id) {
            self.beyond.remove(&turn);
        }
        self.set(id, 0);
        self.entries.remove(&id);
        self.serve();
    }
}

/// The steps in memory of all executions.
#[derive(Clone, Debug)]
pub(crate) struct StepsInMemory(Arc<Mutex<Counts>>);

impl StepsInMemory {
    /// At most `allowed` steps.
    pub(crate) fn new(allowed: u32) -> Self {
        let allowed = usize::try_from(allowed).unwrap_or(usize::MAX / 2);
        Self(Arc::new(Mutex::new(Counts::new(allowed))))
    }

    /// The share of one execution, which has no steps yet.
    pub(crate) fn enter(&self, owner: Owner) -> StepShare {
        let mut counts = lock(&self.0);
        let tree = Arc::clone(&owner.tree);
        let id = counts.enter(owner);
        let (most, granted) = (counts.of_tree(), Arc::clone(&counts.entries[&id].granted));
        StepShare { counts: Arc::clone(&self.0), id, tree, most, steps: 0, waited: false, granted }
    }

    /// The refusal of an execution whose steps do not fit now: RESOURCE_EXHAUSTED with the limit and a delay.
    pub(crate) fn reached(&self) -> Status {
        let what = "steps of executions in memory, or half of them for one principal";
        Limit::reached(SETTING, what, lock(&self.0).allowed)
    }

    /// How many steps are in memory.
    pub(crate) fn count(&self) -> usize {
        lock(&self.0).all
    }
}

/// The steps of one execution in memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct StepShare {
    counts: Arc<Mutex<Counts>>,
    id: u64,
    tree: Arc<str>,
    most: usize,
    /// How many steps it has, as of the last call; more may have been granted since, if it waited then.
    steps: usize,
    waited: bool,
    granted: Arc<Notify>,
}

impl StepShare {
    /// The execution has this many steps, whatever the limit; it asks for no more.
    pub(crate) fn set(&mut self, steps: usize) {
        if self.waited || self.steps != steps {
            lock(&self.counts).set(self.id, steps);
            (self.steps, self.waited) = (steps, false);
        }
    }

    /// Asks for this many steps in all. Returns whether the execution has them; otherwise it waits for them.
    pub(crate) fn ask(&mut self, steps: usize) -> bool {
        let mut counts = lock(&self.counts);
        let has = counts.ask(self.id, steps);
        (self.steps, self.waited) = (counts.entries[&self.id].steps, !has);
        has
    }

    /// How many steps it has, or may have.
    pub(crate) fn steps(&self) -> usize {
        if self.waited { lock(&self.counts).entries[&self.id].steps } else { self.steps }
    }

    /// See [`Owner::tree`].
    pub(crate) fn tree(&self) -> &Arc<str> {
        &self.tree
    }

    /// The most steps that it may ever have.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Returns once the execution has what it has asked for. Dropping this and calling it again loses nothing.
    pub(crate) async fn granted(&self) {
        while self.waited && lock(&self.counts).entries[&self.id].wanted.is_some() {
            self.granted.notified().await;
        }
    }
}

impl Drop for StepShare {
    fn drop(&mut self) {
        lock(&self.counts).leave(self.id);
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    fn owner(principal: &str, tree: &str, height: usize) -> Owner {
        Owner { principal: principal.into(), tree: tree.into(), height }
    }

    fn has(share: &StepShare) -> bool {
        share.granted().now_or_never().is_some()
    }

    #[test]
    fn a_principal_gets_half_and_a_tree_a_quarter() {
        let steps = StepsInMemory::new(400);
        let mut first = steps.enter(owner("ann", "t1", 0));
        assert!(first.ask(100));
        // Beyond a quarter for one tree: the one execution of this principal and height that may.
        let mut second = steps.enter(owner("ann", "t1", 0));
        assert!(second.ask(20));
        let mut third = steps.enter(owner("ann", "t1", 0));
        assert!(!third.ask(1) && !has(&third));
        let (mut other_tree, mut other) = (steps.enter(owner("ann", "t2", 1)), steps.enter(owner("bob", "t3", 0)));
        assert!(other_tree.ask(80) && other.ask(100), "others have room of their own");
        assert_eq!(steps.count(), 300);
        drop(second);
        assert!(has(&third), "it goes on once another has left");
    }

    #[test]
    fn one_of_each_height_goes_beyond_the_limit_so_that_those_that_wait_for_each_other_go_on() {
        let steps = StepsInMemory::new(40);
        let mut parents: Vec<_> = (0..5).map(|n| steps.enter(owner("ann", &format!("t{n}"), 1))).collect();
        assert_eq!(
            parents.iter_mut().map(|parent| parent.ask(10)).filter(|has| *has).count(),
            3,
            "two fit, and one goes beyond"
        );
        let mut children: Vec<_> = (0..2).map(|_| steps.enter(owner("ann", "t0", 0))).collect();
        assert!(children[0].ask(10), "it needs nobody");
        assert!(!children[1].ask(10));
        let [first, second] = children.try_into().unwrap();
        drop(first);
        assert!(has(&second));
        drop(second);
        assert!(!has(&parents[3]));
        drop(parents.remove(2));
        assert!(has(&parents[2]) && !has(&parents[3]), "the next goes beyond the limit");
        assert_eq!(steps.count(), 30);
    }

    #[test]
    fn what_comes_back_is_counted_and_one_that_needs_no_more_gives_up_its_place() {
        let steps = StepsInMemory::new(40);
        let mut back = steps.enter(owner("ann", "t1", 0));
        back.set(1000);
        assert_eq!((steps.count(), back.most()), (1000, 10));
        let (mut first, mut second, mut third) = (
            steps.enter(owner("ann", "t2", 0)),
            steps.enter(owner("ann", "t3", 0)),
            steps.enter(owner("ann", "t4", 0)),
        );
        assert!(first.ask(5), "one goes beyond");
        assert!(!second.ask(5) && !third.ask(5));
        second.set(1);
        assert!(has(&second) && !has(&third), "it was cancelled");
        drop(back);
        assert!(has(&third));
        assert_eq!(steps.count(), 11);
    }

    proptest! {
        /// Whatever executions of a tree of plans ask for, all of them get it in the end, when each leaves memory once it has what it needs and its children
        /// have ended; and what is in memory stays below the limit and a quarter of it for each height.
        #[test]
        fn all_end(wants in prop::collection::vec((0..3usize, 0..3usize, 1..=25usize, 1..=25usize), 1..60)) {
            let steps = StepsInMemory::new(100);
            let names = ["ann", "bob", "eve"];
            // Height, and what it needs at first and later.
            let mut shares: Vec<(StepShare, usize, usize, usize)> = wants
                .iter()
                .map(|(principal, height, first, more)| {
                    let mut share = steps.enter(owner(names[*principal], &format!("{principal}"), *height));
                    share.ask(*first);
                    let most = share.most();
                    (share, *height, *first, (*first + *more).min(most))
                })
                .collect();
            while !shares.is_empty() {
                let before = (shares.len(), steps.count());
                for (share, _, first, all) in &mut shares {
                    if share.steps() == *first {
                        share.ask(*all);
                    }
                }
                let count = steps.count();
                prop_assert!(count <= 100 + 3 * 3 * 25, "{count}");
                // One with executions below it ends after all of these.
                let lowest = shares.iter().map(|(_, height, ..)| *height).min().unwrap_or(0);
                let ended = shares.iter().position(|(share, height, _, all)| *height == lowest && share.steps() >= *all);
                if let Some(ended) = ended {
                    shares.swap_remove(ended);
                }
                prop_assert!((shares.len(), steps.count()) != before, "{shares:?}");
            }
            prop_assert_eq!(steps.count(), 0);
        }
    }
}

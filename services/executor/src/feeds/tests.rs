//! Guarantees about what readers are shown, whatever they ask and however commits, readers and rounds interleave.

use std::collections::BTreeMap;

use belay_execution::{Actor, ApprovalMode, Body, Control, Created, DecideContext, Execution, RetryRequest, Timestamp};
use belay_journal::{
    ExecutionSummary, Fence, JournalWriter as _, NewExecution, OpenedStore, Order, Refused, StoreError, Transition,
};
use belay_journal_memory::{Memory as MemoryJournal, MemoryWriter};
use belay_plan::{Format, Plan};
use belay_redaction::MasterKey;
use belay_sqlite::Threads;

use super::*;
use crate::{
    store::secrets::{SealedEvents, Sealer, Secrets},
    wire,
};

impl Follower {
    /// A follower of a store without blobs.
    pub(crate) fn of(reader: Arc<dyn JournalReader>, sealer: Arc<Sealer>) -> Self {
        let blobs: Arc<dyn belay_blobs::BlobStore> = Arc::new(belay_blobs::Folder::new("/nonexistent"));
        Self::new(JournalReads::new(reader, &sealer, &blobs, Threads::Inline), 4)
    }
}

/// A sequence of numbers that a seed determines (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % most
    }
}

/// A store with a follower, whose commits are published when the test says so: between the two, readers of the store are ahead of it. Another follower
/// is beside it, as in a process that drives nothing.
struct World {
    journal: OpenedStore<MemoryWriter>,
    sealer: Arc<Sealer>,
    follower: Follower,
    beside: Follower,
    unpublished: Vec<(StoreWrite, Option<Push>, StoreWriteOutcome)>,
}

/// An execution whose events are committed one by one.
struct Driven {
    execution: Execution,
    first: Box<Created>,
    secrets: Secrets,
    key: Option<ExecutionKey>,
    name: ExecutionName,
    /// The last summary that was written.
    summary: ExecutionSummary,
    /// Sequences from which on it may be shown, as the readers of each follower were shown it.
    shown: [u64; 2],
    /// How often it may still be retried.
    retries: u32,
}

fn name(id: u64) -> ExecutionName {
    ExecutionName { namespace: "n".into(), id: format!("e{id}") }
}

/// A plan of so many steps that wait.
fn plan(steps: usize) -> Plan {
    let steps: Vec<String> = (0..steps).map(|step| format!("{{id: s{step}, wait: {{signal: go}}}}")).collect();
    Plan::parse(Format::Yaml, &format!("{{id: p, steps: [{}]}}", steps.join(", "))).unwrap()
}

fn created(plan: Plan) -> Created {
    Created {
        uid: "8x4k2m9q1p7r3s5t6v8w".into(),
        plan,
        inputs: belay_execution::Json::from_text("{}"),
        start_at: None,
        parent_step: String::new(),
        forked_from: String::new(),
        allotment: None,
        spent: belay_execution::Amounts::default(),
        approval_mode: ApprovalMode::Wait,
        workspace: belay_execution::Workspace::MadeFolder("e".into()),
        labels: BTreeMap::new(),
        tools: Vec::new(),
        deadline: None,
        trace: (String::new(), String::new()),
        shard: 0,
        limits: Vec::new(),
    }
}

impl World {
    async fn new() -> Self {
        let memory = MemoryJournal::new("a store");
        let journal = memory.open();
        let sealer = Arc::new(Sealer { redactor: Redactor::new(), master_key: MasterKey::new([7; 32]) });
        let follower = Follower::of(Arc::clone(&journal.client_reader), Arc::clone(&sealer));
        let blobs: Arc<dyn belay_blobs::BlobStore> = Arc::new(belay_blobs::Folder::new("/nonexistent"));
        let reads = JournalReads::new(memory.open_to_read().reader, &sealer, &blobs, Threads::Inline);
        let beside = Follower::of_another(reads).await.unwrap();
        Self { journal, sealer, follower, beside, unpublished: Vec::new() }
    }

    /// The follower of the process that drives executions, or of the one beside it.
    fn follower(&self, which: usize) -> &Follower {
        [&self.follower, &self.beside][which]
    }

    /// An execution that is not committed yet.
    fn begin(&self, number: u64, plan: Plan) -> Driven {
        let (time, actor) = (Timestamp::from_micros(0), Some(Actor::new("ann")));
        let first = Box::new(created(plan));
        let body = belay_execution::ExecutionEvent::Created(first.clone()).into();
        let execution = Execution::create(Event { sequence: 1, time, actor, body }).unwrap();
        let (secrets, name, summary) = (self.sealer.secrets(), name(number), ExecutionSummary::default());
        Driven { execution, first, secrets, key: None, name, summary, shown: [0; 2], retries: 3 }
    }

    /// Commits what an execution does next; the follower does not know of it yet.
    async fn commit(&mut self, driven: &mut Driven, random: &mut Random) {
        let now = Timestamp::from_micros(i64::try_from(driven.execution.last_sequence()).unwrap());
        let mut events = Vec::new();
        if driven.key.is_none() {
            let (actor, body) =
                (Some(Actor::new("ann")), Body::from(belay_execution::ExecutionEvent::Created(driven.first.clone())));
            events.push(Event { sequence: 1, time: now, actor, body });
        } else {
            let control = match random.below(4) {
                _ if driven.execution.state().is_terminal() => {
                    if driven.retries == 0 {
                        return;
                    }
                    driven.retries -= 1;
                    let request = RetryRequest::default();
                    Control::Retry { request, plan: None }
                }
                0 => Control::Cancel { reason: String::new(), kill: false },
                1 if driven.execution.paused_by().is_none() => {
                    Control::Pause { reason: String::new(), discard_calls: false, resume_at: None }
                }
                _ => Control::Resume,
            };
            events.extend(driven.execution.control(now, Actor::new("ann"), control).unwrap_or_default());
        }
        let context = DecideContext { now, ledger_id: "l" };
        events.extend(driven.execution.advance(context));
        if events.is_empty() {
            return;
        }
        let mut messages: Vec<_> = events.iter().map(wire::encode).collect();
        let SealedEvents { mut transition, .. } =
            self.sealer.seal(&mut driven.secrets, "8x4k2m9q1p7r3s5t6v8w", &mut messages, &|| [1; 32]);
        transition.facts = wire::facts_beside(&events);
        let ended = driven.execution.state().is_terminal();
        let ended_at = driven.execution.ended_at().filter(|_| ended).map(Timestamp::as_micros);
        let state = wire::state_number(&driven.execution);
        let summary = ExecutionSummary { state, ended, ended_at, ..ExecutionSummary::default() };
        let fence = Fence { shard: 0, token: self.journal.fence };
        let before = std::mem::replace(&mut driven.summary, summary.clone());
        let operation = match driven.key {
            None => {
                let execution = new(&driven.name);
                StoreWrite::Create {
                    execution,
                    transition,
                    summary,
                    seal_key: None,
                    outbox: Vec::new(),
                    inbox: Default::default(),
                    folder: None,
                    limits: Vec::new(),
                    fence,
                }
            }
            Some(key) => {
                // What changes with every step is not worth a write of the row.
                let summary = (ended || before.is_outdated_by(&summary)).then_some(summary);
                StoreWrite::Append {
                    key,
                    transition,
                    summary,
                    seal_key: None,
                    outbox: Vec::new(),
                    inbox: Default::default(),
                    usage: Vec::new(),
                    limits: Vec::new(),
                    fence,
                }
            }
        };
        let answers: Result<Vec<Result<StoreWriteOutcome, Refused>>, StoreError> =
            self.journal.writer.commit(std::slice::from_ref(&operation)).await;
        let done = answers.unwrap().remove(0).unwrap();
        if let StoreWriteOutcome::Created(key) = done {
            driven.key = Some(key);
        }
        let feed = driven.key.map(|key| self.follower.feed(key));
        // Some commits bring nothing along, as those of another process would not.
        let brings = random.below(3) > 0 && feed.as_ref().is_some_and(|feed| feed.is_followed());
        let push = Push { feed, events: brings.then(|| (events.into(), Redactor::new())), end: None, child: None };
        self.unpublished.push((operation, Some(push), done));
    }

    fn publish(&mut self) {
        for (operation, push, done) in self.unpublished.drain(..) {
            self.follower.committed(operation, push, &done);
        }
    }
}

fn new(name: &ExecutionName) -> NewExecution {
    NewExecution {
        namespace: name.namespace.clone(),
        id: name.id.clone(),
        shard: 0,
        created_at: 1,
        plan_id: "p".into(),
        labels: BTreeMap::new(),
        principal: "ann".into(),
        request_id: String::new(),
        request_hash: String::new(),
        parent: None,
    }
}

/// Checks a row that is read, and remembers what it shows.
fn see(driven: &mut [Driven], which: usize, row: &ExecutionRow) -> bool {
    let Some(of) = driven.iter_mut().find(|driven| driven.key == Some(row.key)) else { return false };
    of.shown[which] = of.shown[which].max(row.revision);
    row.summary.ended
}

/// B-22, B-28, B-38: a row that says that an execution has ended is never followed by a view of it that has not, and no reader is shown less than any
/// reader before; whether or not the follower has heard of the commit, whether or not commits bring their events, and whatever was given up meanwhile;
/// in the process that drives executions and in one that drives none, which is never behind what was committed.
#[tokio::test]
async fn no_reader_is_shown_less_than_was_shown() {
    for seed in 1..=300 {
        let mut random = Random(seed * 0x9E37_79B9);
        let mut world = World::new().await;
        let mut driven: Vec<Driven> = Vec::new();
        for _ in 0..90 {
            let at = usize::try_from(random.below(3)).unwrap();
            let which = usize::try_from(random.below(2)).unwrap();
            match random.below(8) {
                0 | 1 if at >= driven.len() && driven.len() < 3 => {
                    let mut new = world.begin(driven.len() as u64, plan(1));
                    world.commit(&mut new, &mut random).await;
                    driven.push(new);
                }
                0 | 1 => {
                    if let Some(of) = driven.get_mut(at) {
                        world.commit(of, &mut random).await;
                    }
                }
                2 if which == 0 => world.publish(),
                2 => {
                    world.beside.catch_up().await.unwrap();
                    for of in &driven {
                        // Also one that nobody has looked at yet.
                        let feed = world.beside.feed_in_use(of.key.unwrap());
                        let revision = feed.map(|feed| feed.revision());
                        let last = of.execution.last_sequence();
                        assert!(revision.is_none_or(|known| known == last), "seed {seed}: {revision:?} of {last}");
                    }
                }
                3 => {
                    world.follower(which).sweep();
                }
                4 => {
                    let query = Query {
                        namespace: None,
                        filter: Vec::new(),
                        order: Order::NEWEST_FIRST,
                        after: None,
                        limit: 9,
                    };
                    for row in &world.follower(which).list(&query).await.unwrap().rows {
                        see(&mut driven, which, row);
                    }
                }
                kind => {
                    let Some(name) = driven.get(at).map(|of| of.name.clone()) else { continue };
                    let mut row_ended = false;
                    if kind == 5 {
                        row_ended = see(&mut driven, which, &world.follower(which).find(&name).await.unwrap());
                    }
                    let looked = world
                        .follower(which)
                        .look(&name, |seen| (seen.execution.last_sequence(), seen.execution.state().is_terminal()));
                    let (revision, ended) = looked.await.unwrap();
                    let of = &mut driven[at];
                    let shown = &mut of.shown[which];
                    assert!(revision >= *shown, "seed {seed}: {revision} after {shown}");
                    assert!(ended || !row_ended, "seed {seed}: its row said that it had ended");
                    *shown = revision;
                    let last = of.execution.last_sequence();
                    assert!(
                        which == 0 || revision == last,
                        "seed {seed}: beside the owner {revision} of {last} is shown"
                    );
                    let known = of.key.map(|key| world.follower(which).feed(key).revision());
                    assert!(
                        known >= Some(revision),
                        "seed {seed}: watchers are told of {known:?}, and {revision} was shown"
                    );
                }
            }
        }
    }
}

/// B-38: beside the owner, an end that nobody waits for any more is known no longer once the execution has gone on; and one that ended and was deleted
/// before it was seen is known to be gone.
#[tokio::test]
async fn an_end_beside_the_owner_is_that_of_the_store() {
    let (mut world, mut random) = (World::new().await, Random(5));
    let mut driven = world.begin(0, plan(1));
    world.commit(&mut driven, &mut random).await;
    let key = driven.key.unwrap();
    let feed = world.beside.feed(key);
    let waiting = feed.subscribe_end();
    let until = async |world: &mut World, driven: &mut Driven, random: &mut Random, ended: bool| {
        while driven.execution.state().is_terminal() != ended {
            world.commit(driven, random).await;
        }
    };
    until(&mut world, &mut driven, &mut random, true).await;
    assert!(!feed.has_end() && world.beside.catch_up().await.unwrap() && feed.has_end());
    drop(waiting);
    until(&mut world, &mut driven, &mut random, false).await;
    assert!(world.beside.catch_up().await.unwrap() && !feed.has_end(), "it runs again");
    until(&mut world, &mut driven, &mut random, true).await;
    let fence = Fence { shard: 0, token: world.journal.fence };
    let delete = StoreWrite::Delete { key, deleted_at: 1, request: belay_journal::DeleteRequest::default(), fence };
    assert!(!world.beside.has_lost(key).await.unwrap());
    world.journal.writer.commit(&[delete]).await.unwrap()[0].as_ref().unwrap();
    assert!(world.beside.catch_up().await.unwrap(), "those who follow all executions are told");
    assert!(world.beside.has_lost(key).await.unwrap() && !world.beside.catch_up().await.unwrap());
}

/// An execution that has ended and that a reader has looked at, and its deletion as the store has it.
async fn deleted_in_the_store() -> (World, Driven, StoreWrite, StoreWriteOutcome) {
    let (mut world, mut random) = (World::new().await, Random(5));
    let mut driven = world.begin(0, plan(1));
    while !driven.execution.state().is_terminal() {
        world.commit(&mut driven, &mut random).await;
    }
    for (operation, push, done) in std::mem::take(&mut world.unpublished) {
        world.follower.committed(operation, push, &done);
    }
    world.follower.look(&driven.name, |_| ()).await.unwrap();
    let (key, request) = (driven.key.unwrap(), belay_journal::DeleteRequest::default());
    let fence = Fence { shard: 0, token: world.journal.fence };
    let delete = StoreWrite::Delete { key, deleted_at: 1, request, fence };
    let done = world.journal.writer.commit(std::slice::from_ref(&delete)).await.unwrap().remove(0).unwrap();
    (world, driven, delete, done)
}

/// Before the answer to the commit that deletes it comes, an execution is gone for all as soon as one reader has asked the store.
#[tokio::test]
async fn what_is_deleted_in_the_store_does_not_come_back() {
    let (world, driven, ..) = deleted_in_the_store().await;
    assert!(world.follower.look(&driven.name, |_| ()).await.is_ok(), "nobody knows");
    assert_eq!(world.follower.find(&driven.name).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(world.follower.look(&driven.name, |_| ()).await.unwrap_err().code(), Code::NotFound);
}

/// An execution that is deleted while a reader looks at it is shown to no later reader, also when that has found its row before.
#[tokio::test]
async fn what_is_deleted_while_it_is_looked_at_is_gone() {
    let (world, driven, delete, done) = deleted_in_the_store().await;
    let (key, name) = (driven.key.unwrap(), &driven.name);
    let _in_use = world.follower.feed(key);
    let looked = world.follower.look(name, |_| {
        world.follower.committed(delete, None, &done);
        // As one does that has found the row before.
        lock(&world.follower.feeds).keep_view(name.clone(), key);
    });
    assert_eq!(looked.await.unwrap_err().code(), Code::NotFound);
    lock(&world.follower.feeds).keep_view(name.clone(), key);
    assert_eq!(world.follower.look(name, |_| ()).await.unwrap_err().code(), Code::NotFound);
}

/// A transition of which a test of follower and store needs only the sequences.
fn transition(first_sequence: u64) -> Transition {
    Transition { first_sequence, count: 1, version: 1, shown: vec![0], sealed: None, facts: None }
}

/// B-22: what readers see is bounded, whatever they look at; what is left goes, and what is being read stays.
#[test]
fn the_executions_that_were_looked_at_for_longest_are_given_up() {
    let memory = Arc::<Memory>::default();
    let mut feeds = Feeds::new(256, &memory);
    let key = |n: usize| ExecutionKey(n.try_into().unwrap());
    let most = MAX_VIEWED_BYTES / MIN_VIEW_BYTES;
    for n in 0..most {
        feeds.keep_view(name(n as u64), key(n));
    }
    assert_eq!(feeds.viewed(&name(0)).map(|(key, _)| key), Some(key(0)), "looked at again");
    feeds.keep_view(name(most as u64), key(most));
    assert!(feeds.viewed(&name(0)).is_some() && feeds.viewed(&name(most as u64)).is_some());
    assert!(feeds.viewed(&name(1)).is_none() && feeds.viewed.len() == most / 8 * 7);
    feeds.forget(key(0));
    assert!(feeds.viewed(&name(0)).is_none());
    assert!(!feeds.sweep(memory.next_round() + 2), "no reader looks any more");
    assert!(feeds.viewed.is_empty());
}

/// B-22: a fold or an index that could not be given up while a reader looked at it is given up later, also where its feed is only held by the execution's driver.
#[tokio::test]
async fn a_fold_that_was_being_read_is_given_up_later() {
    let (mut world, mut random) = (World::new().await, Random(7));
    let mut driven = world.begin(0, plan(1));
    world.commit(&mut driven, &mut random).await;
    world.publish();
    let feed = world.follower.feed(driven.key.unwrap());
    let looked = world.follower.look(&driven.name, |_| {
        // While it is being read.
        world.follower.forget(driven.key.unwrap());
        feed.view.weight()
    });
    assert!(looked.await.unwrap() > 0);
    assert!(feed.is_followed() && feed.view.weight() > 0);
    let folded = feed.view.weight();
    let last = world.follower.select(driven.key.unwrap(), 4, |index, is_complete| {
        world.follower.forget(driven.key.unwrap());
        is_complete.then(|| index.last())
    });
    assert_eq!(last.await.unwrap(), driven.execution.last_sequence());
    assert!(feed.is_followed() && feed.view.weight() > folded);
    for _ in 0..3 {
        world.follower.sweep();
    }
    assert_eq!((feed.is_followed(), feed.view.weight()), (false, 0));
}

/// B-31 (readers), B-22: however many executions are watched by clients that never read, and looked at meanwhile, no reader is refused, what is kept for
/// all of them together stays below its bounds, and it is given up when they have gone.
#[tokio::test]
async fn readers_of_many_executions_do_not_exhaust_memory() {
    let (mut world, mut random, plan) = (World::new().await, Random(11), plan(100));
    let mut watchers = Vec::new();
    for number in 0..300 {
        let mut driven = world.begin(number, plan.clone());
        world.commit(&mut driven, &mut random).await;
        let feed = world.follower.feed(driven.key.unwrap());
        watchers.push(feed.subscribe());
        for _ in 0..3 {
            world.publish();
            let looked = world.follower.look(&driven.name, |seen| seen.execution.last_sequence());
            assert_eq!(looked.await.unwrap(), driven.execution.last_sequence());
            world.commit(&mut driven, &mut random).await;
        }
        world.publish();
    }
    let kept = |world: &World| {
        let viewed: usize = lock(&world.follower.feeds).viewed.values().map(ViewedExecution::weight).sum();
        (viewed, world.follower.memory.recent().of_all(), world.follower.memory.pending().of_all())
    };
    let (viewed, recent, pending) = kept(&world);
    assert!((MAX_VIEWED_BYTES / 2..=MAX_VIEWED_BYTES).contains(&viewed), "{viewed} bytes of folds");
    assert!(recent > 0 && recent <= event_feed::MAX_RECENT_BYTES_OF_ALL, "{recent} bytes of transitions");
    assert!(pending <= view::MAX_PENDING_BYTES_OF_ALL, "{pending} bytes of events");
    for watcher in &watchers {
        assert!(watcher.borrow().last > 0, "each was told of its execution");
    }
    drop(watchers);
    for _ in 0..3 {
        world.follower.sweep();
    }
    assert_eq!(kept(&world), (0, 0, 0), "they have gone");
}

#[test]
fn a_feed_lives_as_long_as_it_is_used() {
    let mut feeds = Feeds::new(256, &Arc::default());
    let held = feeds.of(ExecutionKey(0));
    for key in 1..10 * MIN_SWEEP_ENTRIES {
        drop(feeds.of(ExecutionKey(key.try_into().unwrap())));
    }
    assert!(feeds.known.len() <= MIN_SWEEP_ENTRIES, "the others are not kept");
    assert!(Arc::ptr_eq(&held, &feeds.of(ExecutionKey(0))));
}

/// B-22: an execution that has left memory leaves nothing of its feed there, also when none comes after it.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_the_feed_of_a_driver_that_has_left() {
    let world = World::new().await;
    let leaves = async {
        let driven = world.follower.feed(ExecutionKey(7));
        tokio::time::sleep(3 * ROUND).await;
        drop(driven);
        world.follower.driver_leaves();
        tokio::time::sleep(2 * ROUND).await;
    };
    tokio::select! {
        () = leaves => {}
        () = world.follower.give_up_left_overs() => unreachable!("it has no end"),
    }
    assert!(lock(&world.follower.feeds).known.is_empty(), "its entry holds as much as the feed");
}

#[tokio::test]
async fn a_commit_of_an_execution_without_a_feed_needs_none() {
    let world = World::new().await;
    let fence = Fence { shard: 0, token: 1 };
    let key = ExecutionKey(7);
    let operation = StoreWrite::Append {
        key,
        transition: transition(5),
        summary: None,
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        usage: Vec::new(),
        limits: Vec::new(),
        fence,
    };
    world.follower.committed(operation, None, &StoreWriteOutcome::Appended);
    assert_eq!(world.follower.feed(key).revision(), 0, "it is read from the journal");
}

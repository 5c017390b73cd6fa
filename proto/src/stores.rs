//! The positions of the services' stores, which the services report to each other.
//!
//! Every request and response between services carries, in the metadata [`STORES`] and [`COMMITS`], the position of the sender's own store and
//! the latest positions of the others' stores that it has seen. A service detects by them that its own store was truncated, replaced or restored from a
//! backup: the others have seen a later position. Positions are stored with the next ordinary commit, without a flush of their own.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use tonic::codegen::http::{HeaderName, HeaderValue};

/// The metadata key of the stores. Its value is a list of `SERVICE ID GENERATION OPENED`, separated by `,`: the sender's own store first, then those
/// it has seen. It stays the same while processes run, so that HTTP/2 sends it once a connection.
pub static STORES: HeaderName = HeaderName::from_static("belay-stores");
/// The metadata key of their commits: a list of numbers in the order of [`STORES`], separated by `,`. It differs in nearly every message.
pub static COMMITS: HeaderName = HeaderName::from_static("belay-commits");

/// How many different values of [`STORES`] are kept parsed: more than a service has peers.
const PARSED: usize = 8;

/// The metadata of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The value of [`STORES`].
    pub stores: HeaderValue,
    /// The value of [`COMMITS`].
    pub commits: HeaderValue,
}

/// Whose store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// The executor's journal.
    Executor,
    /// The tool runner's ledger.
    Runner,
    /// The approval gate's store of approvals.
    Gate,
}

impl Service {
    /// Its name in metadata and in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::Runner => "runner",
            Self::Gate => "gate",
        }
    }

    /// The store's name in messages.
    fn store(self) -> &'static str {
        match self {
            Self::Executor => "the executor's journal.db",
            Self::Runner => "the tool runner's ledger.db",
            Self::Gate => "the approval gate's gate.db",
        }
    }
}

impl FromStr for Service {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Executor, Self::Runner, Self::Gate].into_iter().find(|service| service.as_str() == text).ok_or(())
    }
}

/// The position of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The random identity of the store's file.
    pub store_id: String,
    /// Increases when an operator accepts a store that is behind; initially 0.
    pub generation: i64,
    /// The number of commits when the current process opened the store. It distinguishes processes: messages of one process may arrive out of
    /// order, and a process that continues from an old copy soon has more commits than the one before.
    pub opened: i64,
    /// The number of commits.
    pub commit: i64,
}

impl Position {
    /// The name of the store's content: another one after it was accepted although it is behind, since what follows differs from what was there.
    #[must_use]
    pub fn identity(&self) -> String {
        match self.generation {
            0 => self.store_id.clone(),
            generation => format!("{}.{generation}", self.store_id),
        }
    }

    /// Whether a store at this position lacks commits that a store at `known` had.
    pub fn is_behind(&self, known: &Self) -> bool {
        self.is_other_run_behind(known) || self.is_same_run(known) && self.commit < known.commit
    }

    fn is_same_run(&self, known: &Self) -> bool {
        (self.generation, self.opened) == (known.generation, known.opened) && self.store_id == known.store_id
    }

    /// The same, when `self` may be older than `known` only because messages of one process arrived out of order.
    fn is_other_run_behind(&self, known: &Self) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        match self.generation.cmp(&known.generation) {
            Less => true,
            Greater => false,
            Equal => self.store_id != known.store_id || self.opened != known.opened && self.opened < known.commit,
        }
    }

    fn order(&self) -> (i64, i64, i64) {
        (self.generation, self.opened, self.commit)
    }
}

/// A store is behind the position that another service has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Whose store it is.
    pub service: Service,
    /// The service that has seen a later position.
    pub remembered_by: Service,
    /// Its position.
    pub found: Position,
    /// The later position.
    pub known: Position,
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, remembered_by, found, known } = self;
        let (store, witness) = (service.store(), remembered_by.as_str());
        if found.store_id == known.store_id {
            let (opened, seen) = (found.opened, known.commit);
            write!(
                f,
                "{store} ended at commit {opened} when it was opened, and the {witness} has seen commit {seen} of it"
            )?;
        } else {
            write!(
                f,
                "{store} is a different file ({}) from the one that the {witness} has seen ({})",
                found.store_id, known.store_id
            )?;
        }
        f.write_str(": it was truncated, removed, or restored from a backup")
    }
}

impl std::error::Error for Behind {}

/// The positions of a service's own store and of the others', as far as it has seen them.
#[derive(Debug)]
pub struct Stores {
    service: Service,
    state: Mutex<State>,
    behind: watch::Sender<Option<Behind>>,
}

#[derive(Debug)]
struct State {
    own: Position,
    known: BTreeMap<Service, Position>,
    /// Services whose latest position is not stored yet.
    unsaved: Vec<Service>,
    /// The current value of [`STORES`]. Like `received`, it is kept because it is the same in nearly every message, of which there are several a
    /// step.
    written: Option<HeaderValue>,
    /// The latest values of [`STORES`] that were received, at most [`PARSED`].
    received: Vec<Received>,
}

impl State {
    /// Where in `received` this value of [`STORES`] is.
    fn received(&mut self, stores: &str) -> usize {
        self.received.iter().position(|received| received.stores == stores).unwrap_or_else(|| {
            if self.received.len() == PARSED {
                self.received.remove(0);
            }
            self.received.push(Received { stores: stores.to_owned(), entries: stores.split(',').map(entry).collect() });
            self.received.len() - 1
        })
    }
}

/// A value of [`STORES`], parsed.
#[derive(Debug)]
struct Received {
    stores: String,
    /// `None` for what cannot be parsed. The numbers of commits are those of the latest message.
    entries: Vec<Option<(Service, Position)>>,
}

impl Stores {
    /// The state of a service whose store is at `own`, with the stored positions of the others.
    pub fn new(service: Service, own: Position, known: BTreeMap<Service, Position>) -> Self {
        let state = State { own, known, unsaved: Vec::new(), written: None, received: Vec::new() };
        Self { service, state: Mutex::new(state), behind: watch::Sender::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service that this belongs to.
    pub fn service(&self) -> Service {
        self.service
    }

    /// The position of the service's own store.
    pub fn own(&self) -> Position {
        self.state().own.clone()
    }

    /// The latest position of another service's store that was seen.
    pub fn known(&self, service: Service) -> Option<Position> {
        self.state().known.get(&service).cloned()
    }

    /// Sets the number of durable commits of the service's own store.
    pub fn committed(&self, commit: i64) {
        let own = &mut self.state().own;
        own.commit = own.commit.max(commit);
    }

    /// Returns the positions to store with the next commit. The caller must store them, or stop committing.
    pub fn take_updates(&self) -> Vec<(Service, Position)> {
        let mut state = self.state();
        let unsaved = std::mem::take(&mut state.unsaved);
        unsaved.into_iter().filter_map(|service| Some((service, state.known.get(&service)?.clone()))).collect()
    }

    /// The metadata of requests to other services and of responses to them.
    pub fn report(&self) -> Report {
        use fmt::Write as _;
        let mut state = self.state();
        let State { own, known, written, .. } = &mut *state;
        let stores = written.get_or_insert_with(|| {
            let mut stores = describe(self.service, own);
            for (service, position) in &*known {
                write!(stores, ",{}", describe(*service, position)).expect("writing to a String does not fail");
            }
            // An id that a damaged store holds may be no header: nothing is reported then, and the service continues.
            HeaderValue::try_from(stores).unwrap_or(HeaderValue::from_static(""))
        });
        let mut commits = own.commit.to_string();
        for position in known.values() {
            write!(commits, ",{}", position.commit).expect("writing to a String does not fail");
        }
        let mut commits = HeaderValue::try_from(commits).expect("numbers are ASCII");
        // In the connection's header table it would evict headers that repeat.
        commits.set_sensitive(true);
        Report { stores: stores.clone(), commits }
    }

    /// Records the positions that another service has sent: the values of [`STORES`] and [`COMMITS`]. Entries that cannot be parsed are skipped.
    ///
    /// # Errors
    /// [`Behind`] when the sender's store is behind the position seen here, or the own store is behind the position that the sender has seen, now
    /// or earlier. The caller must then reject the sender's request.
    pub fn observe(&self, stores: &str, commits: &str) -> Result<(), Behind> {
        let mut state = self.state();
        let index = state.received(stores);
        let State { own, known, unsaved, written, received } = &mut *state;
        let mut entries = received[index].entries.iter_mut().zip(commits.split(',')).filter_map(|(entry, commit)| {
            let (service, position) = entry.as_mut()?;
            position.commit = commit.parse().ok()?;
            Some((*service, position))
        });
        let Some((sender, theirs)) = entries.next().filter(|(sender, _)| *sender != self.service) else {
            return self.refuse_if_behind();
        };
        for (service, known) in entries {
            if service == self.service && own.is_behind(known) {
                let behind = Behind { service, remembered_by: sender, found: own.clone(), known: known.clone() };
                self.behind.send_if_modified(|first| {
                    first.is_none() && {
                        *first = Some(behind);
                        true
                    }
                });
            }
        }
        self.refuse_if_behind()?;
        match known.get_mut(&sender) {
            Some(known) if theirs.is_other_run_behind(known) => {
                let (found, known) = (theirs.clone(), known.clone());
                return Err(Behind { service: sender, remembered_by: self.service, found, known });
            }
            Some(known) if theirs.order() <= known.order() => return Ok(()),
            Some(known) if theirs.is_same_run(known) => known.commit = theirs.commit,
            Some(_) | None => {
                known.insert(sender, theirs.clone());
                *written = None;
            }
        }
        if !unsaved.contains(&sender) {
            unsaved.push(sender);
        }
        Ok(())
    }

    fn refuse_if_behind(&self) -> Result<(), Behind> {
        self.behind.borrow().clone().map_or(Ok(()), Err)
    }

    /// Compares two services' records in both directions.
    pub fn compare(&self, other: &Self) -> Result<(), Behind> {
        let (mine, theirs) = (self.state(), other.state());
        let check = |service, found: &Position, known: Option<&Position>, remembered_by| match known {
            Some(known) if found.is_behind(known) => {
                Err(Behind { service, remembered_by, found: found.clone(), known: known.clone() })
            }
            _ => Ok(()),
        };
        check(self.service, &mine.own, theirs.known.get(&self.service), other.service)?;
        check(other.service, &theirs.own, mine.known.get(&other.service), self.service)
    }

    /// Returns when another service has seen a later position of the own store than it has: the service has to stop.
    pub async fn behind(&self) -> Behind {
        let mut behind = self.behind.subscribe();
        let reason = behind.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            // Unreachable: the sender lives in `self`, which is borrowed here.
            None => std::future::pending().await,
        }
    }
}

/// Writes an entry of [`STORES`].
fn describe(service: Service, position: &Position) -> String {
    let Position { store_id, generation, opened, commit: _ } = position;
    format!("{} {store_id} {generation} {opened}", service.as_str())
}

/// Parses what [`describe`] has written; the number of commits is not in it.
fn entry(text: &str) -> Option<(Service, Position)> {
    let mut words = text.split(' ');
    let service = words.next()?.parse().ok()?;
    let store_id = words.next()?.to_owned();
    let mut number = || words.next()?.parse().ok();
    let (generation, opened) = (number()?, number()?);
    Some((service, Position { store_id, generation, opened, commit: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(store_id: &str, generation: i64, opened: i64, commit: i64) -> Position {
        Position { store_id: store_id.into(), generation, opened, commit }
    }

    fn stores(service: Service, own: Position) -> Stores {
        Stores::new(service, own, BTreeMap::new())
    }

    fn text(value: &HeaderValue) -> &str {
        value.to_str().unwrap()
    }

    fn observe(stores: &Stores, report: &Report) -> Result<(), Behind> {
        stores.observe(text(&report.stores), text(&report.commits))
    }

    #[test]
    fn what_is_behind_lacks_something() {
        for (found, known, expected) in [
            (at("a", 0, 0, 5), at("a", 0, 0, 5), false),
            (at("a", 0, 0, 6), at("a", 0, 0, 5), false),
            (at("a", 0, 0, 4), at("a", 0, 0, 5), true),
            (at("a", 0, 5, 5), at("a", 0, 0, 5), false),
            // It continued from an old copy, and made more commits than the one before.
            (at("a", 0, 4, 9), at("a", 0, 0, 5), true),
            (at("b", 0, 0, 9), at("a", 0, 0, 5), true),
            (at("b", 1, 0, 0), at("a", 0, 0, 5), false),
            (at("a", 0, 9, 9), at("a", 1, 2, 2), true),
        ] {
            assert_eq!(found.is_behind(&known), expected, "{found:?} and {known:?}");
        }
    }

    #[test]
    fn a_store_that_went_back_is_noticed_by_both_sides() {
        let executor = stores(Service::Executor, at("j", 0, 7, 7));
        let runner = stores(Service::Runner, at("l", 0, 100, 100));
        let early = runner.report();
        observe(&executor, &early).unwrap();
        observe(&runner, &executor.report()).unwrap();
        runner.committed(103);
        let report = runner.report();
        assert_eq!(text(&report.stores), format!("{},executor j 0 7", text(&early.stores)));
        assert_eq!(text(&report.commits), "103,7");
        observe(&executor, &runner.report()).unwrap();
        observe(&executor, &early).expect("a message that arrives late proves nothing");
        assert_eq!(executor.take_updates(), [(Service::Runner, at("l", 0, 100, 103))]);
        assert_eq!(executor.take_updates(), []);
        executor.compare(&stores(Service::Runner, at("l", 0, 103, 103))).expect("it was restarted");

        let cut = stores(Service::Runner, at("l", 0, 102, 110));
        let behind = observe(&cut, &executor.report()).unwrap_err();
        assert_eq!((behind.service, behind.known.commit), (Service::Runner, 103));
        assert!(
            behind.to_string().contains("ended at commit 102 when it was opened, and the executor has seen commit 103")
        );
        assert!(cut.observe("", "").is_err(), "every request is rejected from now on");
        assert_eq!(observe(&executor, &cut.report()).unwrap_err().service, Service::Runner);
        assert_eq!(executor.compare(&cut).unwrap_err().service, Service::Runner);
        assert_eq!(cut.compare(&executor).unwrap_err().service, Service::Runner);

        let accepted = stores(Service::Runner, at("l", 1, 102, 102));
        observe(&accepted, &executor.report()).unwrap();
        observe(&executor, &accepted.report()).unwrap();
        assert_eq!(executor.take_updates(), [(Service::Runner, at("l", 1, 102, 102))]);
        assert!(observe(&executor, &cut.report()).is_err(), "the old copy is rejected");
        assert!(
            observe(&executor, &stores(Service::Runner, at("m", 0, 0, 0)).report()).is_err(),
            "and so is another file"
        );
    }

    #[test]
    fn what_is_kept_between_messages_follows_every_change() {
        let executor = stores(Service::Executor, at("j", 0, 7, 7));
        assert_eq!(text(&executor.report().stores), "executor j 0 7");
        for opened in (1..=2 * PARSED as i64).map(|run| run * 100) {
            // The runner's process is started again and again, and each process sends several messages.
            let runner = stores(Service::Runner, at("l", 0, opened, opened));
            for commit in opened..opened + 3 {
                runner.committed(commit);
                observe(&executor, &runner.report()).unwrap();
                observe(&runner, &executor.report()).unwrap();
                let report = executor.report();
                assert_eq!(text(&report.stores), format!("executor j 0 7,runner l 0 {opened}"));
                assert_eq!(text(&report.commits), format!("7,{commit}"));
                assert_eq!(executor.take_updates(), [(Service::Runner, at("l", 0, opened, commit))]);
            }
        }
        assert!(executor.state().received.len() <= PARSED);
        let cut = stores(Service::Runner, at("l", 0, 100, 150));
        assert!(observe(&executor, &cut.report()).is_err());
        let back = stores(Service::Runner, at("l", 0, 1602, 1602));
        observe(&executor, &back.report()).unwrap();
    }

    #[test]
    fn an_id_that_is_no_header_is_not_reported() {
        let damaged = stores(Service::Runner, at("l\n", 0, 7, 7)).report();
        assert_eq!(text(&damaged.stores), "");
        let executor = stores(Service::Executor, at("j", 0, 7, 7));
        observe(&executor, &damaged).unwrap();
        assert_eq!(executor.take_updates(), []);
    }

    #[test]
    fn nonsense_is_passed_over() {
        let executor = stores(Service::Executor, at("j", 0, 7, 7));
        for (stores, commits) in [
            ("", ""),
            ("x", "1"),
            ("runner", "1"),
            ("runner l 0", "1"),
            ("runner l x 1", "1"),
            ("runner l 0 0", "x"),
            ("runner l 0 0", ""),
            ("runner l 0 0 1 2 3,gate", "1,2"),
            (",,,", ",,,,,"),
            ("executor j 0 0", "900"),
        ] {
            assert!(executor.observe(stores, commits).is_ok(), "{stores} {commits}");
        }
    }
}

//! How far each service's store has come, as the services tell each other.
//!
//! Every request between services, and every response, carries the position of the sender's own store and what the sender remembers of the
//! others' in the metadata [`HEADER`]. So each service finds out when its own store was cut off, replaced or restored from a backup: the
//! others remember more of it than it holds. What is remembered is stored with the next ordinary commit, and costs none of its own.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

/// The key of the metadata: `SERVICE ID GENERATION OPENED COMMIT`, first of the sender's own store, then of those it remembers, with `,` between.
pub const HEADER: &str = "belay-stores";

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

    /// What its store is called for people.
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

/// How far a store has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The random identity of the store's file.
    pub store_id: String,
    /// Rises when an operator accepts a store that is behind; 0 before the first time.
    pub generation: i64,
    /// How many commits the store had had when the process opened it that has it open. Tells what an earlier process did from what this
    /// one did: messages of one process may overtake each other, and one that goes on from an old copy soon has had more commits than the
    /// one before.
    pub opened: i64,
    /// How many commits the store has had.
    pub commit: i64,
}

impl Position {
    /// Whether a store at this position lacks what a store at `known` had.
    pub fn is_behind(&self, known: &Self) -> bool {
        self.is_other_run_behind(known) || self.is_same_run(known) && self.commit < known.commit
    }

    fn is_same_run(&self, known: &Self) -> bool {
        (self.generation, self.opened) == (known.generation, known.opened) && self.store_id == known.store_id
    }

    /// The same, where `self` may be older than `known` because messages of one process came in another order.
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

/// A store that is behind what another service remembers of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Whose store it is.
    pub service: Service,
    /// Who remembers more of it.
    pub remembered_by: Service,
    /// Where it is.
    pub found: Position,
    /// Where it was.
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
                "{store} is another file ({}) than the one that the {witness} knows ({})",
                found.store_id, known.store_id
            )?;
        }
        f.write_str(": it was cut off, removed, or restored from a backup")
    }
}

impl std::error::Error for Behind {}

/// What a service knows of its own store and of the others'.
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
    /// Those of which more is known than is stored.
    news: Vec<Service>,
}

impl Stores {
    /// A service whose store is at `own`, with what it remembers of the others'.
    pub fn new(service: Service, own: Position, known: BTreeMap<Service, Position>) -> Self {
        Self { service, state: Mutex::new(State { own, known, news: Vec::new() }), behind: watch::Sender::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose this is.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Where the service's own store is.
    pub fn own(&self) -> Position {
        self.state().own.clone()
    }

    /// The service's own store has had so many commits, all of them durable.
    pub fn committed(&self, commit: i64) {
        let own = &mut self.state().own;
        own.commit = own.commit.max(commit);
    }

    /// What is to be stored of the others with the next commit. Whoever takes it stores it, or takes no commit any more.
    pub fn take_news(&self) -> Vec<(Service, Position)> {
        let mut state = self.state();
        let news = std::mem::take(&mut state.news);
        news.into_iter().filter_map(|service| Some((service, state.known.get(&service)?.clone()))).collect()
    }

    /// What goes with every request to another service, and with every response to one.
    pub fn header(&self) -> String {
        use fmt::Write as _;
        let state = self.state();
        let mut text = String::with_capacity(96);
        let own = [(self.service, &state.own)];
        for (service, position) in own.into_iter().chain(state.known.iter().map(|(service, known)| (*service, known))) {
            let separator = if text.is_empty() { "" } else { "," };
            let Position { store_id, generation, opened, commit } = position;
            write!(text, "{separator}{} {store_id} {generation} {opened} {commit}", service.as_str())
                .expect("a text grows");
        }
        text
    }

    /// Takes what another service has sent. What cannot be read is passed over.
    ///
    /// # Errors
    /// [`Behind`] when the sender's store is behind what is remembered of it, or the own store is behind what the sender remembers, now or
    /// at any time before. Nothing may be done for the sender then.
    pub fn hear(&self, header: &str) -> Result<(), Behind> {
        let mut told = header.split(',').filter_map(entry);
        let Some((sender, theirs)) = told.next().filter(|(sender, _)| *sender != self.service) else {
            return self.refuse_if_behind();
        };
        let mut state = self.state();
        for (service, known) in told {
            if service == self.service && state.own.is_behind(&known) {
                let behind = Behind { service, remembered_by: sender, found: state.own.clone(), known };
                self.behind.send_if_modified(|first| {
                    first.is_none() && {
                        *first = Some(behind.clone());
                        true
                    }
                });
            }
        }
        self.refuse_if_behind()?;
        if let Some(known) = state.known.get(&sender) {
            if theirs.is_other_run_behind(known) {
                let known = known.clone();
                return Err(Behind { service: sender, remembered_by: self.service, found: theirs, known });
            }
            if theirs.order() <= known.order() {
                return Ok(());
            }
        }
        state.known.insert(sender, theirs);
        if !state.news.contains(&sender) {
            state.news.push(sender);
        }
        Ok(())
    }

    fn refuse_if_behind(&self) -> Result<(), Behind> {
        self.behind.borrow().clone().map_or(Ok(()), Err)
    }

    /// The first of the two stores that is behind what the other remembers of it.
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

    /// Returns when another service remembers more of the own store than it holds: the service has to stop.
    pub async fn behind(&self) -> Behind {
        let mut behind = self.behind.subscribe();
        let reason = behind.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            // The value was dropped, and cannot be: it is borrowed here.
            None => std::future::pending().await,
        }
    }
}

fn entry(text: &str) -> Option<(Service, Position)> {
    let mut words = text.split(' ');
    let service = words.next()?.parse().ok()?;
    let store_id = words.next()?.to_owned();
    let mut number = || words.next()?.parse().ok();
    let (generation, opened, commit) = (number()?, number()?, number()?);
    Some((service, Position { store_id, generation, opened, commit }))
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

    #[test]
    fn what_is_behind_lacks_something() {
        for (found, known, expected) in [
            (at("a", 0, 0, 5), at("a", 0, 0, 5), false),
            (at("a", 0, 0, 6), at("a", 0, 0, 5), false),
            (at("a", 0, 0, 4), at("a", 0, 0, 5), true),
            (at("a", 0, 5, 5), at("a", 0, 0, 5), false),
            // It went on from an old copy, and further than the one before.
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
        let early = runner.header();
        executor.hear(&early).unwrap();
        runner.hear(&executor.header()).unwrap();
        runner.committed(103);
        executor.hear(&runner.header()).unwrap();
        executor.hear(&early).expect("an answer that was overtaken is no sign of anything");
        assert_eq!(executor.take_news(), [(Service::Runner, at("l", 0, 100, 103))]);
        assert_eq!(executor.take_news(), []);
        executor.compare(&stores(Service::Runner, at("l", 0, 103, 103))).expect("it was restarted");

        let cut = stores(Service::Runner, at("l", 0, 102, 110));
        let behind = cut.hear(&executor.header()).unwrap_err();
        assert_eq!((behind.service, behind.known.commit), (Service::Runner, 103));
        assert!(
            behind.to_string().contains("ended at commit 102 when it was opened, and the executor has seen commit 103")
        );
        assert!(cut.hear("").is_err(), "nobody is served any more");
        assert_eq!(executor.hear(&cut.header()).unwrap_err().service, Service::Runner);
        assert_eq!(executor.compare(&cut).unwrap_err().service, Service::Runner);
        assert_eq!(cut.compare(&executor).unwrap_err().service, Service::Runner);

        let accepted = stores(Service::Runner, at("l", 1, 102, 102));
        accepted.hear(&executor.header()).unwrap();
        executor.hear(&accepted.header()).unwrap();
        assert_eq!(executor.take_news(), [(Service::Runner, at("l", 1, 102, 102))]);
        assert!(executor.hear(&cut.header()).is_err(), "the one from before is not taken any more");
        assert!(executor.hear(&stores(Service::Runner, at("m", 0, 0, 0)).header()).is_err(), "and no other one");
    }

    #[test]
    fn nonsense_is_passed_over() {
        let executor = stores(Service::Executor, at("j", 0, 7, 7));
        for header in
            ["", "x", "runner", "runner l 0", "runner l x 1 1", "runner l 0 0 1 2 3,gate", ",,,", "executor j 0 0 900"]
        {
            assert!(executor.hear(header).is_ok(), "{header}");
        }
    }
}

//! Cursors of watches: where a watcher that has lost its connection continues. All watches have them from here, so that they are alike.
//!
//! A cursor is opaque to clients. It has the store that its place is of, the place, and a check of both with what the watch is of. So one that was cut short or
//! changed, or is of another watch, is told from one of this watch; and one of another store from one of this store.

use belay_proto::v1::watch_reset::Reason;
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};
use tonic::Status;

use crate::status;

/// The first byte of a cursor: what the others are.
const FORMAT: u8 = 1;

/// How many bytes the name of a source and the check have.
const TAG: usize = 8;

/// The source of the places of a watch: a store, or what a store has of one execution. Places of different sources have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source([u8; TAG]);

impl Source {
    /// The source that these texts identify together.
    pub fn new(parts: &[&str]) -> Self {
        Self(first(digest("source", parts)))
    }
}

/// A cursor of a watch with places of `N` numbers. The first number of a place grows with everything that a watcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor<const N: usize> {
    /// The source of the place.
    pub source: Source,
    /// The place: everything up to it has been told.
    pub place: [i64; N],
}

impl<const N: usize> Cursor<N> {
    /// Whether a watch can continue from here, where the source is this one and its first number has come to `last`.
    ///
    /// # Errors
    /// The reason of the reset with which it begins instead.
    pub fn check(&self, source: Source, last: i64) -> Result<(), Reason> {
        let is_there = self.source == source && self.place.first().is_some_and(|place| (0..=last).contains(place));
        if is_there { Ok(()) } else { Err(Reason::Lost) }
    }
}

/// The identity of a watch: the method, and everything of its request by which another watch would be told something else. Its cursors are of no other watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchIdentity {
    id: [u8; 2 * TAG],
    /// The fields of the request, for people.
    fields: &'static str,
}

impl WatchIdentity {
    /// A watch of one execution.
    pub fn execution(name: &str) -> Self {
        Self::new("WatchExecution", "`name`", &[name])
    }

    /// A watch of executions.
    pub fn executions(parent: &str, filter: &str, include_children: bool) -> Self {
        let children = if include_children { "with children" } else { "" };
        Self::new("WatchExecutions", "`parent`, `filter` and `include_children`", &[parent, filter, children])
    }

    /// A watch of approvals, those of one execution where `execution` is not empty.
    pub fn approvals(parent: &str, execution: &str) -> Self {
        Self::new("WatchApprovals", "`parent` and `execution`", &[parent, execution])
    }

    fn new(method: &str, fields: &'static str, of: &[&str]) -> Self {
        Self { id: first(digest(method, of)), fields }
    }

    /// A cursor as clients get it.
    pub fn write<const N: usize>(&self, cursor: &Cursor<N>) -> String {
        let mut bytes = Vec::with_capacity(size(N));
        bytes.push(FORMAT);
        bytes.extend(cursor.source.0);
        bytes.extend(cursor.place.iter().flat_map(|number| number.to_be_bytes()));
        bytes.extend(self.check(&bytes));
        BASE64URL_NOPAD.encode(&bytes)
    }

    /// The cursor of a request; `None` where it is empty.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when it is none that [`WatchIdentity::write`] has made for a watch of the same.
    pub fn read<const N: usize>(&self, cursor: &str) -> Result<Option<Cursor<N>>, Status> {
        if cursor.is_empty() {
            return Ok(None);
        }
        self.parse(cursor).map(Some).ok_or_else(|| {
            let fields = self.fields;
            let message = format!(
                "is not of this watch: use the last `cursor` of a watch with the same {fields}, or leave it empty"
            );
            status::invalid("cursor", message).into()
        })
    }

    fn parse<const N: usize>(&self, cursor: &str) -> Option<Cursor<N>> {
        let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).ok().filter(|bytes| bytes.len() == size(N))?;
        let (bytes, check) = bytes.split_last_chunk::<TAG>()?;
        let (format, rest) = bytes.split_first()?;
        let (source, numbers) = rest.split_first_chunk::<TAG>()?;
        if *format != FORMAT || *check != self.check(bytes) {
            return None;
        }
        let mut place = [0; N];
        for (number, bytes) in place.iter_mut().zip(numbers.chunks_exact(TAG)) {
            *number = i64::from_be_bytes(bytes.try_into().ok()?);
        }
        Some(Cursor { source: Source(*source), place })
    }

    fn check(&self, bytes: &[u8]) -> [u8; TAG] {
        first(Sha256::new_with_prefix(self.id).chain_update(bytes).finalize().into())
    }
}

/// How many bytes a cursor has.
const fn size(numbers: usize) -> usize {
    1 + TAG + numbers * size_of::<i64>() + TAG
}

/// A digest of texts, each told from its neighbours.
fn digest(about: &str, parts: &[&str]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in std::iter::once(&about).chain(parts) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// The first bytes of a digest.
fn first<const N: usize>(digest: [u8; 32]) -> [u8; N] {
    std::array::from_fn(|place| digest[place])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn watched() -> impl Strategy<Value = WatchIdentity> {
        // Few texts, so that often two of them differ in little.
        let text = || "[ab:]{0,2}";
        prop_oneof![
            text().prop_map(|name| WatchIdentity::execution(&name)),
            (text(), text(), any::<bool>())
                .prop_map(|(parent, filter, children)| WatchIdentity::executions(&parent, &filter, children)),
            (text(), text()).prop_map(|(parent, execution)| WatchIdentity::approvals(&parent, &execution)),
        ]
    }

    fn cursor<const N: usize>() -> impl Strategy<Value = Cursor<N>> {
        let source = any::<[u8; TAG]>().prop_map(Source);
        (source, any::<[i64; N]>()).prop_map(|(source, place)| Cursor { source, place })
    }

    proptest! {
        #[test]
        fn a_cursor_comes_back_as_it_was(watched in watched(), one in cursor::<1>(), two in cursor::<2>()) {
            prop_assert_eq!(watched.read(&watched.write(&one)).unwrap(), Some(one));
            prop_assert_eq!(watched.read(&watched.write(&two)).unwrap(), Some(two));
            prop_assert!(watched.read::<2>(&watched.write(&one)).is_err(), "of another method");
            prop_assert!(watched.read::<1>(&watched.write(&two)).is_err(), "of another method");
        }

        #[test]
        fn a_cursor_of_another_watch_is_refused(watched in watched(), other in watched(), cursor in cursor::<1>()) {
            let read = other.read::<1>(&watched.write(&cursor));
            prop_assert_eq!(read.is_ok(), watched == other);
        }

        #[test]
        fn a_cursor_that_was_changed_is_refused(
            watched in watched(),
            cursor in cursor::<2>(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let text = watched.write(&cursor);
            let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
            let at = at.index(bytes.len());
            let same = std::mem::replace(&mut bytes[at], byte) == byte;
            prop_assert_eq!(watched.read::<2>(&BASE64URL_NOPAD.encode(&bytes)).is_ok(), same);
            prop_assert_eq!(watched.read::<2>(&text[..at]).is_ok(), at == 0);
            let longer = text + "A";
            prop_assert!(watched.read::<2>(&longer).is_err());
        }

        #[test]
        fn garbage_is_refused(watched in watched(), garbage in ".{1,60}", bytes in any::<Vec<u8>>()) {
            let refused = watched.read::<1>(&garbage).unwrap_err();
            prop_assert_eq!(refused.code(), Code::InvalidArgument);
            prop_assert!(refused.message().starts_with("cursor: is not of this watch: use "), "{}", refused);
            prop_assert!(bytes.is_empty() || watched.read::<2>(&BASE64URL_NOPAD.encode(&bytes)).is_err());
        }
    }

    #[test]
    fn a_watch_goes_on_within_what_its_source_has() {
        let (here, elsewhere) = (Source::new(&["store", "execution"]), Source::new(&["storee", "xecution"]));
        assert_ne!(here, elsewhere);
        let at = |place| Cursor { source: here, place: [place, -1] };
        for (cursor, source, last, expected) in [
            (at(0), here, 0, Ok(())),
            (at(7), here, 7, Ok(())),
            (at(8), here, 7, Err(Reason::Lost)),
            (at(-1), here, 7, Err(Reason::Lost)),
            (at(7), elsewhere, 7, Err(Reason::Lost)),
            (at(0), elsewhere, 0, Err(Reason::Lost)),
        ] {
            assert_eq!(cursor.check(source, last), expected, "{cursor:?} up to {last}");
        }
    }

    #[test]
    fn what_is_refused_is_said_with_what_to_do() {
        let refused = WatchIdentity::approvals("namespaces/-", "").read::<1>("17").unwrap_err();
        let expected = "cursor: is not of this watch: use the last `cursor` of a watch with the same `parent` and `execution`, or leave it empty";
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, expected));
        assert_eq!(WatchIdentity::execution("e").read::<1>("").unwrap(), None, "from the current state");
    }
}

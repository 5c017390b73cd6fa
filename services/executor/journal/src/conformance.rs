//! The conformance suite that every store has to pass.

mod common;
mod contents;
mod creation;
mod deletion;
mod following;
mod inbox;
mod limits;
mod lists;
mod log;
mod outbox;
mod reopening;
mod schedule;
mod schedules;
mod seal_key;
mod snapshot;
mod usage;

use contents::{changes, everything};

use crate::{JournalWriter, OpenedStore};

/// Checks a store's guarantees. `open` opens the same store each time, after the previous handle was dropped.
///
/// # Panics
/// When a guarantee does not hold; the message names it.
pub async fn check<W: JournalWriter>(open: &mut dyn FnMut() -> OpenedStore<W>) {
    let mut store = open();
    let key = creation::creates_and_finds(&mut store).await;
    creation::keeps_parents(&mut store, key).await;
    creation::refuses_what_exists(&mut store, key).await;
    log::appends_without_a_gap(&mut store, key).await;
    log::refuses_one_and_keeps_the_others(&mut store, key).await;
    log::reads_in_pages(&mut store).await;
    lists::lists_by_filter(&mut store).await;
    lists::lists_page_by_page(&mut store).await;
    schedule::finds_what_to_drive(&mut store).await;
    lists::lists_namespaces(&mut store).await;
    seal_key::keeps_one_key(&mut store).await;
    snapshot::keeps_the_last_snapshot(&mut store).await;
    schedule::finds_what_has_ended(&mut store).await;
    outbox::keeps_messages_with_their_transition(&mut store).await;
    following::follows_what_is_committed(&mut store).await;
    deletion::keeps_folders_in_use(&mut store).await;
    usage::adds_what_is_used(&mut store).await;
    limits::keeps_the_order(&mut store).await;
    schedules::keeps_whole_rows(&mut store).await;
    deletion::deletes_in_steps(&mut store).await;

    let (fence, store_id) = (store.fence, store.store_id.clone());
    let (before, changes, latest) =
        (everything(&store).await, changes(&store, 1000).await, store.reader.latest().await.unwrap());
    drop(store);
    let mut store = open();
    assert_eq!(everything(&store).await, before, "what was committed is there after opening again");
    assert_eq!(self::changes(&store, 1000).await, changes, "in its order");
    assert_eq!(store.reader.latest().await.unwrap(), latest, "a cursor stays valid");
    assert_eq!(store.store_id, store_id, "a store keeps its identity");
    assert!(store.fence > fence, "the fence rises whenever the store is opened");
    assert_eq!(store.reader.newest_token().await.unwrap(), store.fence, "readers know the newest owner");
    reopening::refuses_an_older_fence(&mut store, key, fence).await;
    outbox::has_what_is_left(&store).await;
    deletion::continues_a_deletion(&mut store).await;
    reopening::continues_after_opening_again(&mut store, key).await;
    inbox::keeps_messages_until_they_are_taken(&mut store).await;
    usage::has_what_is_left(&mut store).await;
    limits::has_what_is_left(&mut store).await;
    limits::counts_starts(&mut store).await;
    schedules::has_what_is_left(&mut store).await;
}

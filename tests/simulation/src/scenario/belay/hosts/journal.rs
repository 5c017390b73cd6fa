//! The executor's journal: opened, refused to older owners, and replaced by a copy from before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use belay_journal::{JournalWriter as _, OpenedStore, Refused, StoreError, StoreWrite};
use belay_journal_memory::LostAnswers;
use belay_journal_sqlite::SqliteWriter;
use belay_sqlite::Location;

use super::super::shared_journal::{SharedJournal, SharedWriter};
use super::super::site::HORIZON;
use super::super::slow_journal::{SlowWriter, slow};
use super::clock::now_micros;
use super::places::FOLDER;
use super::process::{THREADS, location};
use super::site::Site;
use crate::checker::Checker;
use crate::{disk, machine, trace};

const JOURNAL: &str = "journal.db";

pub(super) async fn open_journal(
    site: &Site,
    shared: &SharedJournal,
) -> Result<OpenedStore<SlowWriter<LostAnswers<SharedWriter>>>, StoreError> {
    if site.bugs.restores_journal {
        restore_journal(site);
    }
    // Until an executor has opened the copy: a start that fails has accepted nothing.
    let accepted = site.owners.with(|owned| owned.accepting).then(now_micros);
    let location = Location { accepted, ..location(JOURNAL, site.bugs.journal, site.knobs.store_batch) };
    let open = async || {
        let mut journal =
            belay_journal_sqlite::open_with(&location, THREADS, site.knobs.journal, || "store".to_owned())?;
        let (before, stale) = site.owners.with(|owned| {
            owned.accepting = false;
            let before = std::mem::replace(&mut owned.newest_fence, journal.fence);
            (before, owned.last_operation.take())
        });
        match stale {
            _ if journal.fence <= before => {
                let now = journal.fence;
                site.checker.violation(format_args!("fence {before} is gone: the journal opens with {now}"));
            }
            // Those that are replaced write themselves.
            Some(_) if site.bugs.replaces_executors => {}
            Some(operation) => refuse_stale(&mut journal.writer, operation, &site.checker).await?,
            None => {}
        }
        Ok(journal)
    };
    let OpenedStore { store_id, stores, fence, .. } = shared.open(&site.bugs, open).await?;
    let seed = site.seed.wrapping_mul(53).wrapping_add(fence.cast_unsigned());
    let (journal, owners, checker) = (shared.clone(), site.owners.clone(), site.checker.clone());
    let taken = site.bugs.retains.then(|| site.taken.clone());
    let mailbox = site.bugs.webhooks.then(|| site.mailbox.clone());
    let writer = SharedWriter { journal, owners, fence, checker, taken, mailbox };
    // A fault like the others: those who wait for a time wait no longer than these last.
    let writer = LostAnswers::new(writer, seed, site.knobs.max_lost_answers)
        .until(|| turmoil::sim_elapsed().is_some_and(|elapsed| elapsed >= HORIZON));
    let (writer, reader) = slow(writer, shared.clone(), seed);
    Ok(OpenedStore { writer, client_reader: Arc::clone(&reader), reader, store_id, stores, fence })
}

/// Copies the executor's journal at its second start, and restores the copy at its fourth.
fn restore_journal(site: &Site) {
    let files = [JOURNAL.to_owned(), format!("{JOURNAL}-wal")].map(|name| Path::new(FOLDER).join(name));
    let run = site.owners.with(|owned| {
        owned.executors += 1;
        owned.executors
    });
    machine::without_faults(|| match run {
        2 => {
            let copy = files.each_ref().map(|path| disk::read(path).unwrap_or_default());
            site.owners.with(|owned| owned.journal_copy = Some(copy));
        }
        4 => {
            let Some(copy) = site.owners.with(|owned| owned.journal_copy.take()) else { return };
            for (path, bytes) in files.iter().zip(&copy) {
                disk::replace(path, bytes).expect("a calm disk does not fail");
            }
            site.owners.with(|owned| {
                (owned.last_operation, owned.names, owned.accepting) = (None, BTreeMap::new(), true);
            });
            trace::event("the journal is replaced by a copy from before");
            trace::count("journals restored");
        }
        _ => {}
    });
}

/// A replaced owner that does not know about it repeats its last write. S2-NFR-005, B-08.
async fn refuse_stale(writer: &mut SqliteWriter, operation: StoreWrite, checker: &Checker) -> Result<(), StoreError> {
    match writer.commit(&[operation]).await?.as_slice() {
        [Err(Refused::Fenced { .. })] => trace::count("stale owners refused"),
        answers => checker.violation(format_args!("the write of an owner that was replaced was answered {answers:?}")),
    }
    Ok(())
}

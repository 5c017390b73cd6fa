//! Deletes executions: the row and the key at once, the events in small steps.

use std::sync::LazyLock;

use belay_defects::{Defect, is_planted};
use belay_journal::{
    DeleteRequest, ExecutionKey, Fence, Folder, NewExecution, Refused, StoreWriteOutcome, start_request,
};
use rusqlite::{OptionalExtension as _, params};

use super::Transaction;
use crate::{
    inbox, outbox,
    rows::{COLUMNS, execution_row},
    schema::{DELETION, LOG},
};

/// The most bytes of events that one step of erasing removes: SQLite overwrites them, and other executions wait for the commit.
const MAX_ERASED_BYTES: u64 = 4 << 20;

/// How many closed deletions are dropped at once.
const MAX_DROPPED: usize = 1000;

type Outcome = Result<Result<StoreWriteOutcome, Refused>, rusqlite::Error>;

impl Transaction<'_> {
    /// Removes an execution from everything that names it, and keeps where its events end.
    pub(super) fn delete(
        &mut self,
        key: ExecutionKey,
        deleted_at: i64,
        request: &DeleteRequest,
        fence: Fence,
    ) -> Outcome {
        if let Err(refused) = self.check_fence(fence) {
            return Ok(Err(refused));
        }
        let damaged = |row: belay_sqlite::DamagedRow| Ok(Err(Refused::Damaged(row.to_string())));
        let row = self
            .connection
            .prepare_cached(&format!("SELECT {} FROM execution WHERE exec = ?1", *COLUMNS))?
            .query_row([key.0], execution_row)
            .optional()?;
        let row = match row {
            None => return Ok(Err(Refused::Missing(key))),
            Some(Err(row)) => return damaged(row),
            Some(Ok(row)) if !row.summary.ended => return Ok(Err(Refused::NotEnded(key))),
            Some(Ok(row)) => row,
        };
        if let Some(parent) = inbox::waiting_for(&self.connection, key)?
            && !is_planted(Defect::UnrecordedChildDeleted)
            && !is_planted(Defect::LostChildStartedAgain)
        {
            return Ok(Err(Refused::Unrecorded { key, parent }));
        }
        let last_log = match self.head(key)? {
            Ok(head) => head.map_or(0, |head| head.row),
            Err(row) => return damaged(row),
        };
        let NewExecution { namespace, id, shard, created_at, labels, principal, request_id, .. } = row.execution;
        let folder: Option<String> = self
            .connection
            .prepare_cached("SELECT folder FROM execution WHERE exec = ?1")?
            .query_row([key.0], |row| row.get(0))?;
        for (label, value) in &labels {
            self.connection
                .prepare_cached(
                    "DELETE FROM label WHERE namespace = ?1 AND key = ?2 AND value = ?3 AND created_at = ?4 AND exec = ?5",
                )?
                .execute(params![namespace, label, value, created_at, key.0])?;
        }
        self.connection.prepare_cached("DELETE FROM seal_key WHERE exec = ?1")?.execute([key.0])?;
        self.connection.prepare_cached("DELETE FROM snapshot WHERE exec = ?1")?.execute([key.0])?;
        outbox::remove_all(&self.connection, key)?;
        inbox::remove_all(&self.connection, key)?;
        self.connection.prepare_cached("DELETE FROM execution WHERE exec = ?1")?.execute([key.0])?;
        let folder = match folder {
            Some(folder) if !self.is_in_use(&namespace, &folder)? => Some(folder),
            Some(_) | None => None,
        };
        static INSERT: LazyLock<String> = LazyLock::new(|| DELETION.insert());
        self.connection.prepare_cached(&INSERT)?.execute(params![
            key.0,
            namespace,
            id,
            shard,
            deleted_at,
            request.id,
            request.hash,
            start_request(&principal, &request_id),
            folder,
            last_log,
            None::<i64>
        ])?;
        self.changed.remove(&key);
        self.deleted.insert(key);
        // A number of its own: a copy of the store from before the deletion is behind.
        self.last_row += 1;
        Ok(Ok(StoreWriteOutcome::Deleted))
    }

    /// Whether an execution uses a folder; a damaged one does as well.
    fn is_in_use(&self, namespace: &str, folder: &str) -> Result<bool, rusqlite::Error> {
        self.connection
            .prepare_cached("SELECT 1 FROM execution WHERE namespace = ?1 AND folder = ?2")?
            .exists([namespace, folder])
    }

    /// Refuses a new folder that is in use or being removed, and a shared one that no execution uses any more.
    pub(super) fn check_folder(
        &self,
        namespace: &str,
        folder: &Folder,
    ) -> Result<Result<(), Refused>, rusqlite::Error> {
        const REMOVED: &str = "SELECT 1 FROM deletion WHERE namespace = ?1 AND folder = ?2 AND reusable_at IS NULL";
        let is_in_use = self.is_in_use(namespace, folder.id())?;
        Ok(match folder {
            Folder::New(id) if is_in_use || self.connection.prepare_cached(REMOVED)?.exists([namespace, id])? => {
                Err(Refused::FolderInUse(id.clone()))
            }
            Folder::Shared(id) if !is_in_use => Err(Refused::FolderGone(id.clone())),
            Folder::New(_) | Folder::Shared(_) => Ok(()),
        })
    }

    /// Removes the newest events that are left, and remembers where the others end.
    pub(super) fn erase(&mut self, key: ExecutionKey, max_transitions: usize, fence: Fence) -> Outcome {
        static ROW: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT previous, first_seq, length(shown) + coalesce(length(sealed), 0), exec = ?2 AND {} FROM log WHERE id = ?1",
                LOG.intact()
            )
        });
        if let Err(refused) = self.check_fence(fence) {
            return Ok(Err(refused));
        }
        let last_log = match self.open_deletion(key)? {
            Ok(last_log) => last_log,
            Err(refused) => return Ok(Err(refused)),
        };
        let (mut next, mut removed, mut bytes, mut lowest) = (last_log, 0, 0, i64::MAX);
        let mut is_whole = true;
        {
            let mut read = self.connection.prepare_cached(&ROW)?;
            let mut remove = self.connection.prepare_cached("DELETE FROM log WHERE id = ?1")?;
            while next != 0 && removed < max_transitions && bytes < MAX_ERASED_BYTES {
                let row = read
                    .query_row([next, key.0], |row| {
                        Ok((
                            row.get::<_, i64>(0)?,
                            row.get::<_, i64>(1)?,
                            row.get::<_, u64>(2)?,
                            row.get::<_, bool>(3)?,
                        ))
                    })
                    .optional()?;
                let Some((previous, first_sequence, length, true)) = row else {
                    is_whole = false;
                    break;
                };
                remove.execute([next])?;
                (next, removed, bytes, lowest) = (previous, removed + 1, bytes + length, first_sequence);
            }
        }
        if !is_whole {
            // A damaged row does not tell which one is before it. Reading the whole log is slow, and rare.
            tracing::warn!(
                row = next,
                "Events of a deleted execution are damaged; the whole log is searched for the others"
            );
            self.connection.execute("DELETE FROM log WHERE exec = ?1", [key.0])?;
            next = 0;
        }
        let lowest = if next == 0 { 0 } else { lowest };
        self.connection
            .prepare_cached("DELETE FROM waypoint WHERE exec = ?1 AND first_seq >= ?2")?
            .execute([key.0, lowest])?;
        self.connection.prepare_cached("UPDATE deletion SET last_log = ?2 WHERE exec = ?1")?.execute([key.0, next])?;
        self.connection.prepare_cached(&DELETION.stamp("exec = ?1"))?.execute([key.0])?;
        Ok(Ok(StoreWriteOutcome::Erased { complete: next == 0 }))
    }

    pub(super) fn close_deletion(&mut self, key: ExecutionKey, reusable_at: i64, fence: Fence) -> Outcome {
        if let Err(refused) = self.check_fence(fence) {
            return Ok(Err(refused));
        }
        match self.open_deletion(key)? {
            Ok(0) => {}
            Ok(_) => return Ok(Err(Refused::NotErased(key))),
            Err(refused) => return Ok(Err(refused)),
        }
        self.connection
            .prepare_cached("UPDATE deletion SET reusable_at = ?2 WHERE exec = ?1")?
            .execute([key.0, reusable_at])?;
        self.connection.prepare_cached(&DELETION.stamp("exec = ?1"))?.execute([key.0])?;
        Ok(Ok(StoreWriteOutcome::Closed))
    }

    pub(super) fn drop_deletions(&self, now: i64, latest: i64) -> Result<usize, rusqlite::Error> {
        static LATEST: LazyLock<String> = LazyLock::new(|| {
            let columns = DELETION.columns.iter().map(|column| if *column == "reusable_at" { "?1" } else { column });
            format!(
                "UPDATE deletion INDEXED BY deletion_closed SET reusable_at = ?1, sum = {} WHERE reusable_at > ?1 AND {}",
                DELETION.sum_of(columns),
                DELETION.intact()
            )
        });
        self.connection.prepare_cached(&LATEST)?.execute([latest])?;
        let due = "DELETE FROM deletion WHERE exec IN
                   (SELECT exec FROM deletion INDEXED BY deletion_closed WHERE reusable_at IS NOT NULL AND reusable_at <= ?1 LIMIT ?2)";
        self.connection.prepare_cached(due)?.execute(params![now, i64::try_from(MAX_DROPPED).unwrap_or(i64::MAX)])
    }

    /// The last row of the log that is left of a deleted execution; 0 when none is.
    fn open_deletion(&self, key: ExecutionKey) -> Result<Result<i64, Refused>, rusqlite::Error> {
        static READ: LazyLock<String> =
            LazyLock::new(|| format!("SELECT last_log, {} FROM deletion WHERE exec = ?1", DELETION.intact()));
        let found = self
            .connection
            .prepare_cached(&READ)?
            .query_row([key.0], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)))
            .optional()?;
        Ok(match found {
            None => Err(Refused::Missing(key)),
            Some((_, false)) => Err(Refused::Damaged(DELETION.damaged(key.0).to_string())),
            Some((last_log, true)) => Ok(last_log),
        })
    }

    /// Refuses an id that was deleted recently; drops the deletion when its time is over.
    pub(super) fn check_id_is_free(&self, execution: &NewExecution) -> Result<Result<(), Refused>, rusqlite::Error> {
        let found: Option<(i64, Option<i64>)> = self
            .connection
            .prepare_cached("SELECT exec, reusable_at FROM deletion WHERE namespace = ?1 AND id = ?2")?
            .query_row([&execution.namespace, &execution.id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match found {
            None => Ok(Ok(())),
            Some((key, reusable_at))
                if reusable_at.is_some_and(|reusable_at| reusable_at <= execution.created_at)
                    || is_planted(Defect::LostChildStartedAgain) =>
            {
                self.connection.prepare_cached("DELETE FROM deletion WHERE exec = ?1")?.execute([key])?;
                Ok(Ok(()))
            }
            Some((_, reusable_at)) => Ok(Err(Refused::IdDeleted { id: execution.id.clone(), reusable_at })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use belay_journal::{DeleteRequest, ExecutionSummary, StoreWrite, Transition};
    use belay_sqlite::{Location, Threads};

    use super::*;

    const SECRET: &str = "hidden-in-the-key-of-one-execution";

    fn bytes_of(folder: &Path) -> Vec<u8> {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.flat_map(|path| std::fs::read(path).unwrap()).collect()
    }

    fn contains(folder: &Path, text: &str) -> bool {
        bytes_of(folder).windows(text.len()).any(|window| window == text.as_bytes())
    }

    fn done(opened: &mut crate::Journal, operation: StoreWrite) -> StoreWriteOutcome {
        opened.writer.write(&[operation]).unwrap().remove(0).unwrap()
    }

    /// B-26: neither the database nor its write-ahead log has a byte of a deleted execution, and the store's position does not go back.
    #[tokio::test]
    async fn what_was_deleted_is_in_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let open = || crate::open(&location, Threads::Inline, || "a store".into()).unwrap();
        let mut opened = open();
        let fence = Fence { shard: 3, token: opened.fence };
        // Over several pages, and next to another execution.
        let transition = |first_sequence, text: &str| Transition {
            first_sequence,
            count: 1,
            version: 1,
            shown: text.repeat(300).into_bytes(),
            sealed: Some(text.repeat(3).into_bytes()),
            facts: (first_sequence == 1).then(|| text.repeat(2).into_bytes()),
        };
        let mut keys = Vec::new();
        for (id, text) in [("kept", "something else"), ("deleted-id", SECRET)] {
            let execution = NewExecution {
                namespace: "n".into(),
                id: id.into(),
                shard: 3,
                created_at: 1,
                plan_id: text.into(),
                labels: BTreeMap::from([("label".into(), text.into())]),
                principal: String::new(),
                request_id: text.into(),
                request_hash: text.into(),
                parent: None,
            };
            let summary = ExecutionSummary {
                ended: true,
                ended_at: Some(2),
                failure_reason: Some(text.into()),
                ..Default::default()
            };
            let seal_key = Some(text.as_bytes().to_vec());
            let create = StoreWrite::Create {
                execution,
                transition: transition(1, text),
                summary,
                seal_key,
                outbox: Vec::new(),
                inbox: Default::default(),
                folder: None,
                limits: Vec::new(),
                fence,
            };
            let StoreWriteOutcome::Created(key) = done(&mut opened, create) else { panic!("it is created") };
            keys.push(key);
        }
        for sequence in 2..200 {
            for (key, text) in keys.iter().zip(["something else", SECRET]) {
                let transition = transition(sequence, text);
                let append = StoreWrite::Append {
                    key: *key,
                    transition,
                    summary: None,
                    seal_key: None,
                    outbox: Vec::new(),
                    usage: Vec::new(),
                    inbox: Default::default(),
                    limits: Vec::new(),
                    fence,
                };
                assert_eq!(done(&mut opened, append), StoreWriteOutcome::Appended);
            }
        }
        assert!(contains(folder.path(), SECRET), "it is found while it is there");
        let key = keys[1];
        let delete = StoreWrite::Delete { key, deleted_at: 3, request: DeleteRequest::default(), fence };
        assert_eq!(done(&mut opened, delete), StoreWriteOutcome::Deleted);
        while done(&mut opened, StoreWrite::Erase { key, max_transitions: 64, fence })
            != (StoreWriteOutcome::Erased { complete: true })
        {}
        assert_eq!(
            done(&mut opened, StoreWrite::CloseDeletion { key, reusable_at: 4, fence }),
            StoreWriteOutcome::Closed
        );
        assert!(!contains(folder.path(), SECRET), "nothing is left of it");
        assert!(contains(folder.path(), "deleted-id"), "its id is kept until it may be used again");
        assert_eq!(
            done(&mut opened, StoreWrite::DropDeletions { now: 4, latest: i64::MAX }),
            StoreWriteOutcome::Dropped(1)
        );
        assert!(!contains(folder.path(), "deleted-id"));
        assert_eq!(opened.reader.read(keys[0], 0, 1000).await.unwrap().len(), 199, "the other one is whole");
        let position = opened.stores.own().commit;
        drop(opened);
        let reopened = open();
        assert_eq!(reopened.stores.own().commit, position, "its last rows were deleted");
        drop(reopened);
        assert_eq!(crate::check(&location).unwrap(), Some(belay_sqlite::CheckReport::default()));
    }
}

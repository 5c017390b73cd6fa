//! Whether an operation of unknown outcome was committed.

use crate::{
    Deletion, ExecutionKey, Fence, JournalReader, StoreError, StoreWrite, StoreWriteOutcome, StoredTransition,
    Transition,
};

/// Evidence in a store of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The execution with the name or the key of the operation's.
    pub key: Option<ExecutionKey>,
    /// The transition of that execution that begins with the operation's first event.
    pub transition: Option<StoredTransition>,
    /// The open deletion of that execution.
    pub deletion: Option<Deletion>,
}

impl Evidence {
    /// Reads what a store has of an operation.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read. A damaged execution is evidence of nothing: it accepts nothing more.
    pub async fn read(reader: &dyn JournalReader, operation: &StoreWrite) -> Result<Self, StoreError> {
        match read(reader, operation).await {
            Err(StoreError::Damaged(_) | StoreError::Missing(_)) => Ok(Self::default()),
            read => read,
        }
    }
}

async fn read(reader: &dyn JournalReader, operation: &StoreWrite) -> Result<Evidence, StoreError> {
    let (key, first_sequence) = match operation {
        StoreWrite::Create { execution, transition, .. } => {
            let row = reader.find(&execution.namespace, &execution.id).await?;
            (row.map(|row| row.key), transition.first_sequence)
        }
        StoreWrite::Append { key, transition, .. } => (Some(*key), transition.first_sequence),
        StoreWrite::Delete { key, .. } => {
            let open = reader.open_deletions(ExecutionKey(key.0 - 1), 1).await?;
            let deletion = open.into_iter().find(|deletion| deletion.key == *key);
            return Ok(Evidence { deletion, ..Evidence::default() });
        }
        StoreWrite::Summarize { .. }
        | StoreWrite::TakeMessages { .. }
        | StoreWrite::KeepSnapshot { .. }
        | StoreWrite::Erase { .. }
        | StoreWrite::CloseDeletion { .. }
        | StoreWrite::DropDeletions { .. }
        | StoreWrite::RemoveMessage { .. }
        | StoreWrite::PostponeMessage { .. }
        | StoreWrite::RescheduleMessages { .. }
        | StoreWrite::ResetLimitTimes { .. }
        | StoreWrite::DropMessages { .. }
        | StoreWrite::PutSchedule { .. }
        | StoreWrite::DeleteSchedule { .. } => return Ok(Evidence::default()),
    };
    let Some(key) = key else { return Ok(Evidence::default()) };
    let transition = reader.stored(key, first_sequence).await?;
    Ok(Evidence { key: Some(key), transition, deletion: None })
}

impl StoreWrite {
    /// The outcome of this operation, of which the store has `evidence`; `None` when it was not committed. It was committed when what it writes is
    /// there and has its fence, and what is there is what it writes: a driver that is taken up again may decide other events in the same place.
    ///
    /// Operations that can be repeated without another effect are not looked for: their outcome is always `None`.
    pub fn outcome(&self, evidence: &Evidence) -> Option<StoreWriteOutcome> {
        let is_written = |transition: &Transition, fence: &Fence| {
            let written = evidence.transition.as_ref();
            written.is_some_and(|written| written.token == fence.token && written.transition == *transition)
        };
        match self {
            Self::Create { transition, fence, .. } => {
                evidence.key.filter(|_| is_written(transition, fence)).map(StoreWriteOutcome::Created)
            }
            Self::Append { key, transition, fence, .. } => {
                (evidence.key == Some(*key) && is_written(transition, fence)).then_some(StoreWriteOutcome::Appended)
            }
            Self::Delete { key, deleted_at, request, .. } => {
                let is_this = |deletion: &Deletion| {
                    (deletion.key, deletion.deleted_at, &deletion.request) == (*key, *deleted_at, request)
                };
                evidence.deletion.as_ref().filter(|deletion| is_this(deletion)).map(|_| StoreWriteOutcome::Deleted)
            }
            Self::Summarize { .. }
            | Self::TakeMessages { .. }
            | Self::KeepSnapshot { .. }
            | Self::Erase { .. }
            | Self::CloseDeletion { .. }
            | Self::DropDeletions { .. }
            | Self::RemoveMessage { .. }
            | Self::PostponeMessage { .. }
            | Self::RescheduleMessages { .. }
            | Self::ResetLimitTimes { .. }
            | Self::DropMessages { .. }
            | Self::PutSchedule { .. }
            | Self::DeleteSchedule { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{DeleteRequest, ExecutionSummary, NewExecution, Snapshot};

    const KEY: ExecutionKey = ExecutionKey(7);
    const FENCE: Fence = Fence { shard: 3, token: 5 };

    fn transition() -> Transition {
        Transition {
            first_sequence: 4,
            count: 2,
            version: 1,
            shown: b"shown".to_vec(),
            sealed: Some(b"sealed".to_vec()),
            facts: None,
        }
    }

    fn append() -> StoreWrite {
        StoreWrite::Append {
            key: KEY,
            transition: transition(),
            summary: None,
            seal_key: None,
            outbox: Vec::new(),
            inbox: Default::default(),
            usage: Vec::new(),
            limits: Vec::new(),
            fence: FENCE,
        }
    }

    fn create() -> StoreWrite {
        let execution = NewExecution {
            namespace: "n".into(),
            id: "e".into(),
            shard: 3,
            created_at: 1,
            plan_id: String::new(),
            labels: BTreeMap::new(),
            principal: String::new(),
            request_id: String::new(),
            request_hash: String::new(),
            parent: None,
        };
        let summary = ExecutionSummary::default();
        StoreWrite::Create {
            execution,
            transition: transition(),
            summary,
            seal_key: None,
            outbox: Vec::new(),
            inbox: Default::default(),
            folder: None,
            limits: Vec::new(),
            fence: FENCE,
        }
    }

    fn written(transition: Transition, token: i64) -> Evidence {
        Evidence { key: Some(KEY), transition: Some(StoredTransition { transition, token }), deletion: None }
    }

    #[test]
    fn what_is_there_with_its_fence_was_committed() {
        assert_eq!(append().outcome(&written(transition(), 5)), Some(StoreWriteOutcome::Appended));
        assert_eq!(create().outcome(&written(transition(), 5)), Some(StoreWriteOutcome::Created(KEY)));
        for operation in [append(), create()] {
            assert_eq!(operation.outcome(&Evidence::default()), None, "nothing is there");
            assert_eq!(
                operation.outcome(&Evidence { key: Some(KEY), ..Evidence::default() }),
                None,
                "no transition is"
            );
        }
    }

    #[test]
    fn what_another_wrote_in_its_place_is_not_it() {
        let other = |change: &dyn Fn(&mut Transition)| {
            let mut other = transition();
            change(&mut other);
            other
        };
        let others = [
            written(transition(), 4),
            written(transition(), 6),
            written(other(&|other| other.count = 1), 5),
            written(other(&|other| other.version = 2), 5),
            written(other(&|other| other.shown = b"else".to_vec()), 5),
            written(other(&|other| other.sealed = None), 5),
        ];
        for evidence in others {
            assert_eq!((append().outcome(&evidence), create().outcome(&evidence)), (None, None), "{evidence:?}");
        }
        let elsewhere = Evidence { key: Some(ExecutionKey(8)), ..written(transition(), 5) };
        assert_eq!(append().outcome(&elsewhere), None);
    }

    #[test]
    fn a_deletion_is_that_of_its_request() {
        let request = DeleteRequest { id: "r".into(), hash: "h".into() };
        let delete = StoreWrite::Delete { key: KEY, deleted_at: 9, request: request.clone(), fence: FENCE };
        let deletion = Deletion {
            key: KEY,
            namespace: "n".into(),
            id: "e".into(),
            shard: 3,
            deleted_at: 9,
            request,
            start_request: None,
            folder: None,
            reusable_at: None,
        };
        let found = |deletion| Evidence { key: Some(KEY), transition: None, deletion: Some(deletion) };
        assert_eq!(delete.outcome(&found(deletion.clone())), Some(StoreWriteOutcome::Deleted));
        assert_eq!(delete.outcome(&Evidence::default()), None);
        assert_eq!(delete.outcome(&found(Deletion { deleted_at: 8, ..deletion.clone() })), None);
        assert_eq!(delete.outcome(&found(Deletion { request: DeleteRequest::default(), ..deletion })), None);
    }

    #[test]
    fn what_can_be_repeated_is_not_looked_for() {
        let snapshot = Snapshot { sequence: 4, version: 1, content: Vec::new(), is_sealed: false };
        let repeatable = [
            StoreWrite::KeepSnapshot { key: KEY, snapshot, fence: FENCE },
            StoreWrite::Erase { key: KEY, max_transitions: 1, fence: FENCE },
            StoreWrite::CloseDeletion { key: KEY, reusable_at: 1, fence: FENCE },
            StoreWrite::DropDeletions { now: 1, latest: 2 },
        ];
        for operation in repeatable {
            assert_eq!(operation.outcome(&written(transition(), 5)), None);
        }
    }
}

//! Schedules as they are stored.

use std::sync::Arc;

use belay_journal::{Refused, ScheduleRow, StoreWrite};
use belay_proto::v1;
use belay_reasons as reasons;
use belay_schedule::{Specification, State};
use belay_service_kit::status;
use prost::Message as _;
use tonic::{Code, Status};

use super::definition;
use crate::{
    ExecutionReader, ExecutionRegistry,
    names::{ExecutionName, shard_of},
    owned::{registry::unwritable, schedule_changes::ScheduleKey},
    store::journal_reads::unreadable,
};

/// A schedule with everything that is known of it.
pub(super) struct StoredSchedule {
    /// The definition, as it was created.
    pub(super) definition: v1::Schedule,
    /// The definition, checked.
    pub(super) specification: Specification,
    /// The state.
    pub(super) state: State,
    /// The row that it was read from.
    row: ScheduleRow,
}

impl StoredSchedule {
    /// A new schedule, which is not stored.
    pub(super) fn new(
        (namespace, id): ScheduleKey,
        definition: v1::Schedule,
        specification: Specification,
        state: State,
    ) -> Self {
        let row = ScheduleRow { namespace, id, revision: 0, content: definition.encode_to_vec(), state: Vec::new() };
        Self { definition, specification, state, row }
    }

    /// Reads a row.
    ///
    /// # Errors
    /// DATA_LOSS when it is not what this version writes.
    pub(super) fn read(row: ScheduleRow) -> Result<Self, Status> {
        let damaged = |why: String| {
            let message = format!("Schedule `{}` cannot be read: {why}.", row.id);
            Status::from(status::error(Code::DataLoss, reasons::STORE_CORRUPT, message))
        };
        let definition = v1::Schedule::decode(row.content.as_slice()).map_err(|error| damaged(error.to_string()))?;
        let state: State = serde_json::from_slice(&row.state).map_err(|error| damaged(error.to_string()))?;
        // Checked as of then: what was valid once is not refused later.
        let created = definition.create_time.as_ref().map_or(0, |time| time.seconds);
        let draft = definition::draft(&row.id, &definition)?;
        let specification = draft.check(created).map_err(|error| damaged(error.to_string()))?;
        Ok(Self { definition, specification, state, row })
    }

    /// The name.
    pub(super) fn key(&self) -> ScheduleKey {
        (self.row.namespace.clone(), self.row.id.clone())
    }

    /// Its namespace's id.
    pub(super) fn namespace(&self) -> &str {
        &self.row.namespace
    }

    /// Its own id.
    pub(super) fn id(&self) -> &str {
        &self.row.id
    }

    /// Stores the state, if it has changed. The caller has the turn.
    ///
    /// # Errors
    /// ABORTED when another process has written; the status of the store when it cannot be written.
    pub(super) async fn store(&mut self, registry: &Arc<ExecutionRegistry>) -> Result<(), Status> {
        let state = serde_json::to_vec(&self.state).map_err(|error| Status::internal(error.to_string()))?;
        if self.row.revision > 0 && state == self.row.state {
            return Ok(());
        }
        let schedule = ScheduleRow { revision: self.row.revision + 1, state, ..self.row.clone() };
        let fence = registry.fence(shard_of(&schedule.namespace, &schedule.id));
        write(registry, StoreWrite::PutSchedule { schedule: schedule.clone(), fence }).await?;
        self.row = schedule;
        Ok(())
    }

    /// Deletes it. The caller has the turn.
    pub(super) async fn delete(self, registry: &Arc<ExecutionRegistry>) -> Result<(), Status> {
        let ScheduleRow { namespace, id, revision, .. } = self.row;
        let fence = registry.fence(shard_of(&namespace, &id));
        write(registry, StoreWrite::DeleteSchedule { namespace, id, revision, fence }).await
    }
}

/// Finds a schedule.
///
/// # Errors
/// NOT_FOUND when there is none of this name.
pub(super) async fn find(reading: &ExecutionReader, key: &ScheduleKey) -> Result<StoredSchedule, Status> {
    let missing = || {
        let name = definition::name(key);
        let message = format!("There is no schedule `{}`.", key.1);
        Status::from(status::error(Code::NotFound, reasons::SCHEDULE_NOT_FOUND, message).with("name", name))
    };
    StoredSchedule::read(row(reading, key).await?.ok_or_else(missing)?)
}

/// The row of a schedule; `None` when there is none of this name.
pub(super) async fn row(
    reading: &ExecutionReader,
    (namespace, id): &ScheduleKey,
) -> Result<Option<ScheduleRow>, Status> {
    let (namespace, id) = (namespace.clone(), id.clone());
    let row = reading.follower.read(move |reader| reader.schedule(&namespace, &id)).await;
    row.map_err(|error| unreadable(&error))
}

/// A page of the rows of a namespace, or of all when it is empty.
pub(super) async fn rows(
    reading: &ExecutionReader,
    namespace: &str,
    (after_namespace, after_id): &ScheduleKey,
    limit: usize,
) -> Result<Vec<ScheduleRow>, Status> {
    let namespace = namespace.to_owned();
    let after = (after_namespace.clone(), after_id.clone());
    let rows = reading.follower.read(move |reader| reader.schedules(&namespace, (&after.0, &after.1), limit)).await;
    rows.map_err(|error| unreadable(&error))
}

/// Whether the execution has ended, or is there no more.
pub(super) async fn has_ended(reading: &ExecutionReader, name: &ExecutionName) -> Result<bool, Status> {
    match reading.follower.find(name).await {
        Ok(row) => Ok(row.summary.ended),
        Err(missing) if missing.code() == Code::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

async fn write(registry: &Arc<ExecutionRegistry>, write: StoreWrite) -> Result<(), Status> {
    match registry.commit(write).await.map_err(|error| unwritable(&error))? {
        Ok(_) => Ok(()),
        Err(Refused::Damaged(row)) => {
            let message = format!("Nothing was changed: {row}.");
            Err(status::error(Code::DataLoss, reasons::STORE_CORRUPT, message).into())
        }
        Err(refused) => {
            Err(status::error(Code::Aborted, reasons::FENCED, format!("Nothing was changed: {refused}.")).into())
        }
    }
}

//! The methods of `ScheduleService`, and the task that fires.

mod definition;
pub(crate) mod fire;
mod messages;
mod start;
mod stored;

use std::sync::Arc;

use belay_execution::digest;
use belay_proto::v1::{
    self,
    schedule_service_server::{ScheduleService, ScheduleServiceServer},
    start_execution_request,
};
use belay_reasons as reasons;
use belay_schedule::{Firing, State, backfill, decide};
use belay_service_kit::{HostedServices, Principal, Role, host::MAX_MESSAGE_BYTES, status};
use tonic::{Code, Request, Response, Status, service::Routes};

use self::stored::StoredSchedule;
use super::{
    list_executions::{DEFAULT_PAGE_SIZE, page_size},
    read_only::read_only,
    requests::check,
    start_execution::start_execution,
};
use crate::{
    ExecutionReader, ExecutionRegistry,
    intake::submitted::{Source, accepted},
    names::namespace,
    owned::schedule_changes::ScheduleKey,
    store::secrets::shown,
};

/// How many schedules there are at most, in all namespaces together.
const MAX_SCHEDULES: usize = 1000;

/// The service, ready to be served.
pub(super) fn hosted(reading: Arc<ExecutionReader>, registry: Option<Arc<ExecutionRegistry>>) -> HostedServices {
    let service = ScheduleServiceServer::new(Schedules { reading, registry })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    HostedServices::new(Routes::new(service), "belay.v1.ScheduleService", belay_proto::FILE_DESCRIPTOR_SET)
}

struct Schedules {
    reading: Arc<ExecutionReader>,
    /// `None` in a process that drives no execution.
    registry: Option<Arc<ExecutionRegistry>>,
}

impl Schedules {
    fn registry(&self) -> Result<&Arc<ExecutionRegistry>, Status> {
        self.registry.as_ref().ok_or_else(read_only)
    }

    fn now(&self) -> i64 {
        self.reading.clock.now_micros().div_euclid(1_000_000)
    }

    async fn show(&self, schedule: StoredSchedule) -> Result<Response<v1::Schedule>, Status> {
        messages::show(&self.reading, schedule, self.now()).await.map(Response::new)
    }

    /// Reads a schedule that the caller may change, brings it up to now, changes it, and stores it.
    async fn change<T>(
        &self,
        caller: &Principal,
        name: &str,
        change: impl FnOnce(&mut StoredSchedule, i64) -> Result<T, Status>,
    ) -> Result<(StoredSchedule, T), Status> {
        let (registry, key) = (self.registry()?, definition::key(name)?);
        let _turn = registry.schedules.turn().await;
        let mut schedule = stored::find(&self.reading, &key).await?;
        check_may_change(caller, &schedule.definition.principal)?;
        let now = self.now();
        schedule.state = decide(&schedule.specification, &schedule.state, now).state;
        let changed = change(&mut schedule, now)?;
        schedule.store(registry).await?;
        registry.schedules.changed(key);
        Ok((schedule, changed))
    }

    async fn create(
        &self,
        caller: &Principal,
        request: v1::CreateScheduleRequest,
    ) -> Result<Response<v1::Schedule>, Status> {
        let registry = self.registry()?;
        let v1::CreateScheduleRequest { parent, schedule_id, schedule, validate_only, request_id } = request;
        check("request_id", &request_id)?;
        let key = (namespace("parent", &parent)?, schedule_id);
        let Some(given) = schedule else {
            return Err(status::invalid("schedule", "is needed").into());
        };
        let now = self.now();
        let draft = definition::draft(&key.1, &given)?;
        let specification = draft.check(now).map_err(|error| definition::invalid(&error))?;
        check("schedule.pause_reason", &given.pause_reason)?;
        let paused = given.paused.then(|| given.pause_reason.clone());
        let execution = self.checked_execution(registry, caller, &key, given.execution.clone()).await?;
        let principal = caller.to_string();
        let uid = match request_id.as_str() {
            "" => registry.ids.next_id(),
            // A repeated request finds by it that the schedule is its own.
            _ => digest(format!("{}\n{principal}\n{request_id}", definition::name(&key)).as_bytes())["sha256:".len()..]
                [..32]
                .to_owned(),
        };
        let definition = v1::Schedule {
            name: definition::name(&key),
            cron: given.cron,
            interval: given.interval,
            anchor_time: given.anchor_time,
            time_zone: given.time_zone,
            jitter: given.jitter,
            overlap: given.overlap,
            catch_up_window: given.catch_up_window,
            execution: Some(execution),
            uid,
            principal,
            create_time: Some(definition::time(now)),
            ..Default::default()
        };
        let mut schedule =
            StoredSchedule::new(key.clone(), definition, specification, State { paused, ..State::new(now) });
        let turn = registry.schedules.turn().await;
        if let Some(existing) = stored::row(&self.reading, &key).await? {
            return self.created_before(schedule, StoredSchedule::read(existing)?, &request_id).await;
        }
        if validate_only {
            drop(turn);
            return self.show(schedule).await;
        }
        if stored::rows(&self.reading, "", &ScheduleKey::default(), MAX_SCHEDULES).await?.len() >= MAX_SCHEDULES {
            let message = format!(
                "There are {MAX_SCHEDULES} schedules, as many as there may be; nothing was created. Delete one that is not needed any more."
            );
            return Err(status::error(Code::ResourceExhausted, reasons::TOO_MANY_SCHEDULES, message).into());
        }
        schedule.store(registry).await?;
        drop(turn);
        registry.schedules.changed(key.clone());
        tracing::info!(schedule = definition::name(&key), principal = %caller, "A schedule was created");
        self.show(schedule).await
    }

    /// Replies to a repeated request with the schedule that it has created, and refuses any other with this name.
    async fn created_before(
        &self,
        new: StoredSchedule,
        existing: StoredSchedule,
        request_id: &str,
    ) -> Result<Response<v1::Schedule>, Status> {
        let without_time = |definition: &v1::Schedule| v1::Schedule { create_time: None, ..definition.clone() };
        if !request_id.is_empty() && without_time(&new.definition) == without_time(&existing.definition) {
            return self.show(existing).await;
        }
        let message = format!(
            "Schedule `{}` exists already; nothing was created. Choose another name, or delete that one first.",
            existing.id()
        );
        let existing = definition::name(&existing.key());
        Err(status::error(Code::AlreadyExists, reasons::SCHEDULE_EXISTS, message).with("existing", existing).into())
    }

    /// The executions of a new schedule, checked as if one started now, with the id of the plan.
    async fn checked_execution(
        &self,
        registry: &Arc<ExecutionRegistry>,
        caller: &Principal,
        (namespace, id): &ScheduleKey,
        execution: Option<v1::ScheduledExecution>,
    ) -> Result<v1::ScheduledExecution, Status> {
        let Some(execution) = execution else {
            return Err(status::invalid("schedule.execution", "is needed, with the plan that is carried out").into());
        };
        if execution.approval_mode() == v1::ApprovalMode::Auto {
            let message = "cannot be AUTO: a schedule acts for nobody who could answer for it. Allow what it does with rules of the policy";
            return Err(status::invalid("schedule.execution.approval_mode", message).into());
        }
        // A schedule is kept in clear, and its executions are sealed each by itself.
        if shown(&registry.reading.sealer.redactor, execution.clone()) != execution {
            let message = "has what looks like a secret in its plan, its inputs or its labels, and a schedule would keep it readable: name a secret of the settings instead, or read it from a file when the step runs";
            return Err(status::invalid("schedule.execution", message).into());
        }
        let request = v1::StartExecutionRequest { validate_only: true, ..start::request(namespace, id, &execution) };
        let source = match request.source.clone() {
            Some(start_execution_request::Source::Plan(plan)) => Some(Source::Message(plan)),
            Some(start_execution_request::Source::Document(document)) => Some(Source::Document(document)),
            None => None,
        };
        if let Some(source) = source
            && accepted(registry, &source).await?.0.is_dry_run()
        {
            let message = "has a plan with `dry_run: true`, which never starts an execution: take that out of the plan";
            return Err(status::invalid("schedule.execution", message).into());
        }
        let mut request = Request::new(request);
        request.extensions_mut().insert(start::planner(&caller.to_string()));
        let started = start_execution(registry, request).await?;
        Ok(v1::ScheduledExecution { plan_id: started.plan_id, ..execution })
    }
}

/// An operator may change every schedule, a planner only those it has created.
fn check_may_change(caller: &Principal, created_by: &str) -> Result<(), Status> {
    if caller.has(Role::Operator) || caller.to_string() == created_by {
        return Ok(());
    }
    let message = format!(
        "`{created_by}` created this schedule, and `{caller}` may change only its own. The role operator may do so for every schedule."
    );
    Err(status::error(Code::PermissionDenied, reasons::ROLE_MISSING, message).with("role", Role::Operator).into())
}

#[tonic::async_trait]
impl ScheduleService for Schedules {
    async fn create_schedule(
        &self,
        request: Request<v1::CreateScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        let caller = Principal::of(&request)?;
        self.create(&caller, request.into_inner()).await
    }

    async fn get_schedule(&self, request: Request<v1::GetScheduleRequest>) -> Result<Response<v1::Schedule>, Status> {
        let key = definition::key(&request.into_inner().name)?;
        self.show(stored::find(&self.reading, &key).await?).await
    }

    async fn list_schedules(
        &self,
        request: Request<v1::ListSchedulesRequest>,
    ) -> Result<Response<v1::ListSchedulesResponse>, Status> {
        let request = request.into_inner();
        let (namespace, size) =
            (namespace("parent", &request.parent)?, page_size(request.page_size, DEFAULT_PAGE_SIZE)?);
        // The token is the last id of the previous page.
        let after = (namespace.clone(), request.page_token);
        let mut rows = stored::rows(&self.reading, &namespace, &after, size + 1).await?;
        let more = rows.len() > size;
        rows.truncate(size);
        let next_page_token = rows.last().filter(|_| more).map(|row| row.id.clone()).unwrap_or_default();
        let mut schedules = Vec::with_capacity(rows.len());
        for row in rows {
            schedules.push(messages::show(&self.reading, StoredSchedule::read(row)?, self.now()).await?);
        }
        Ok(Response::new(v1::ListSchedulesResponse { schedules, next_page_token }))
    }

    async fn pause_schedule(
        &self,
        request: Request<v1::PauseScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        let caller = Principal::of(&request)?;
        let v1::PauseScheduleRequest { name, reason } = request.into_inner();
        check("reason", &reason)?;
        let reason = self.reading.sealer.shown(reason);
        let paused = self.change(&caller, &name, |schedule, _| {
            schedule.state.paused.get_or_insert(reason);
            Ok(())
        });
        self.show(paused.await?.0).await
    }

    async fn resume_schedule(
        &self,
        request: Request<v1::ResumeScheduleRequest>,
    ) -> Result<Response<v1::Schedule>, Status> {
        let caller = Principal::of(&request)?;
        let name = request.into_inner().name;
        let resumed = self.change(&caller, &name, |schedule, _| {
            schedule.state.paused = None;
            Ok(())
        });
        self.show(resumed.await?.0).await
    }

    async fn trigger_schedule(
        &self,
        request: Request<v1::TriggerScheduleRequest>,
    ) -> Result<Response<v1::TriggerScheduleResponse>, Status> {
        let caller = Principal::of(&request)?;
        let v1::TriggerScheduleRequest { name, request_id } = request.into_inner();
        check("request_id", &request_id)?;
        let triggered = self.change(&caller, &name, |schedule, now| Ok(schedule.state.trigger(&request_id, now)));
        let (schedule, firing): (StoredSchedule, Firing) = triggered.await?;
        let execution =
            format!("namespaces/{}/executions/{}", schedule.namespace(), firing.execution_id(schedule.id()));
        Ok(Response::new(v1::TriggerScheduleResponse { execution }))
    }

    async fn backfill_schedule(
        &self,
        request: Request<v1::BackfillScheduleRequest>,
    ) -> Result<Response<v1::BackfillScheduleResponse>, Status> {
        let caller = Principal::of(&request)?;
        let v1::BackfillScheduleRequest { name, start_time, end_time, request_id } = request.into_inner();
        check("request_id", &request_id)?;
        let needed = |field, time: Option<pbjson_types::Timestamp>| {
            time.map(|time| time.seconds).ok_or_else(|| Status::from(status::invalid(field, "is needed")))
        };
        let range = (needed("start_time", start_time)?, needed("end_time", end_time)?);
        let filled = self.change(&caller, &name, |schedule, now| {
            let StoredSchedule { specification, state, .. } = schedule;
            backfill(specification, state, &request_id, range, now).map_err(|error| definition::invalid(&error))
        });
        let (_, count) = filled.await?;
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        Ok(Response::new(v1::BackfillScheduleResponse { count }))
    }

    async fn delete_schedule(
        &self,
        request: Request<v1::DeleteScheduleRequest>,
    ) -> Result<Response<v1::DeleteScheduleResponse>, Status> {
        let caller = Principal::of(&request)?;
        let (registry, key) = (self.registry()?, definition::key(&request.into_inner().name)?);
        let _turn = registry.schedules.turn().await;
        let schedule = stored::find(&self.reading, &key).await?;
        check_may_change(&caller, &schedule.definition.principal)?;
        schedule.delete(registry).await?;
        registry.schedules.changed(key.clone());
        tracing::info!(schedule = definition::name(&key), principal = %caller, "A schedule was deleted");
        Ok(Response::new(v1::DeleteScheduleResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-19: a planner may change the schedules it has created, and no others.
    #[test]
    fn a_planner_changes_its_own_schedules_and_an_operator_all() {
        let planner = Principal::person("bot", [Role::Planner]);
        assert!(check_may_change(&planner, "person:bot").is_ok());
        for other in ["person:bot2", "person:owner", "bot", ""] {
            let refused = check_may_change(&planner, other).unwrap_err();
            assert_eq!(status::reason(&refused).as_deref(), Some("ROLE_MISSING"), "{other}");
        }
        assert!(check_may_change(&Principal::owner(), "person:bot").is_ok());
    }
}

//! The methods of `ExecutorService`, one file each.

mod artifacts;
mod compare_executions;
mod delete_execution;
mod explain_execution;
mod filter;
mod fork_execution;
mod fork_turn;
mod get_artifact;
mod get_execution;
mod get_provenance;
mod get_step;
mod get_timeline;
mod history;
mod list_artifacts;
mod list_audit_entries;
mod list_capabilities;
mod list_events;
mod list_executions;
mod list_namespaces;
mod list_steps;
mod list_tool_calls;
mod models;
mod planned_calls;
mod read_blob;
mod read_only;
mod requests;
mod retries;
mod room;
pub(crate) mod schedules;
mod start_execution;
mod wait_execution;
mod watch_execution;
mod watch_executions;

use std::sync::Arc;

use belay_proto::{
    v1::{
        self,
        executor_service_server::{ExecutorService, ExecutorServiceServer},
    },
    watch::WatchMessage,
};
use belay_service_kit::{HostedServices, Principal, host::MAX_MESSAGE_BYTES};
use tonic::{Request, Response, Status, service::Routes};

use self::{read_only::read_only, watch_execution::Messages};
use crate::{ExecutionReader, ExecutionRegistry};

/// The service, ready to be served.
pub fn hosted(registry: Arc<ExecutionRegistry>) -> HostedServices {
    let measured = Arc::clone(&registry);
    let schedules = schedules::hosted(Arc::clone(&registry.reading), Some(Arc::clone(&registry)));
    let models = models::hosted(Some(Arc::clone(&registry)));
    host(Service { reading: Arc::clone(&registry.reading), registry: Some(registry) })
        .with_metrics(measured)
        .and(schedules)
        .and(models)
}

/// The service of a process that drives no execution, ready to be served: it answers what changes nothing, and refuses everything else with READ_ONLY.
pub fn hosted_to_read(reading: Arc<ExecutionReader>) -> HostedServices {
    let schedules = schedules::hosted(Arc::clone(&reading), None);
    host(Service { reading, registry: None }).and(schedules).and(models::hosted(None))
}

fn host(service: Service) -> HostedServices {
    let service = ExecutorServiceServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    HostedServices::new(Routes::new(service), "belay.v1.ExecutorService", belay_proto::FILE_DESCRIPTOR_SET)
}

struct Service {
    /// Answers requests that look.
    reading: Arc<ExecutionReader>,
    /// Carries out requests that change something, or need the tool runner; `None` in a process that drives no execution.
    registry: Option<Arc<ExecutionRegistry>>,
}

impl Service {
    fn registry(&self) -> Result<&Arc<ExecutionRegistry>, Status> {
        self.registry.as_ref().ok_or_else(read_only)
    }
}

#[tonic::async_trait]
impl ExecutorService for Service {
    type GetArtifactStream = Messages<v1::GetArtifactResponse>;
    type ReadBlobStream = Messages<v1::ReadBlobResponse>;
    type WatchExecutionStream = Messages<WatchMessage>;
    type WatchExecutionsStream = Messages<v1::WatchExecutionsResponse>;

    async fn validate_plan(
        &self,
        request: Request<v1::ValidatePlanRequest>,
    ) -> Result<Response<v1::ValidatePlanResponse>, Status> {
        start_execution::validate_plan(self.registry()?, request.into_inner()).await.map(Response::new)
    }

    async fn start_execution(
        &self,
        request: Request<v1::StartExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        start_execution::start_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn get_execution(
        &self,
        request: Request<v1::GetExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        get_execution::get_execution(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn get_step(&self, request: Request<v1::GetStepRequest>) -> Result<Response<v1::Step>, Status> {
        get_step::get_step(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn read_blob(&self, request: Request<v1::ReadBlobRequest>) -> Result<Response<Self::ReadBlobStream>, Status> {
        read_blob::read_blob(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn list_steps(
        &self,
        request: Request<v1::ListStepsRequest>,
    ) -> Result<Response<v1::ListStepsResponse>, Status> {
        list_steps::list_steps(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn list_tool_calls(
        &self,
        request: Request<v1::ListToolCallsRequest>,
    ) -> Result<Response<v1::ListToolCallsResponse>, Status> {
        list_tool_calls::list_tool_calls(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn list_artifacts(
        &self,
        request: Request<v1::ListArtifactsRequest>,
    ) -> Result<Response<v1::ListArtifactsResponse>, Status> {
        list_artifacts::list_artifacts(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn get_artifact(
        &self,
        request: Request<v1::GetArtifactRequest>,
    ) -> Result<Response<Self::GetArtifactStream>, Status> {
        get_artifact::get_artifact(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn get_provenance(
        &self,
        request: Request<v1::GetProvenanceRequest>,
    ) -> Result<Response<v1::GetProvenanceResponse>, Status> {
        get_provenance::get_provenance(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn list_audit_entries(
        &self,
        request: Request<v1::ListAuditEntriesRequest>,
    ) -> Result<Response<v1::ListAuditEntriesResponse>, Status> {
        list_audit_entries::list_audit_entries(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        list_events::list_events(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn explain_execution(
        &self,
        request: Request<v1::ExplainExecutionRequest>,
    ) -> Result<Response<v1::ExplainExecutionResponse>, Status> {
        explain_execution::explain_execution(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn get_timeline(&self, request: Request<v1::GetTimelineRequest>) -> Result<Response<v1::Timeline>, Status> {
        get_timeline::get_timeline(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn compare_executions(
        &self,
        request: Request<v1::CompareExecutionsRequest>,
    ) -> Result<Response<v1::CompareExecutionsResponse>, Status> {
        compare_executions::compare_executions(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn list_executions(
        &self,
        request: Request<v1::ListExecutionsRequest>,
    ) -> Result<Response<v1::ListExecutionsResponse>, Status> {
        list_executions::list_executions(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        list_namespaces::list_namespaces(&self.reading, request.into_inner()).await.map(Response::new)
    }

    async fn watch_execution(
        &self,
        request: Request<v1::WatchExecutionRequest>,
    ) -> Result<Response<Self::WatchExecutionStream>, Status> {
        let caller = Principal::of(&request)?;
        watch_execution::watch_execution(&self.reading, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn watch_executions(
        &self,
        request: Request<v1::WatchExecutionsRequest>,
    ) -> Result<Response<Self::WatchExecutionsStream>, Status> {
        let caller = Principal::of(&request)?;
        watch_executions::watch_executions(&self.reading, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn wait_execution(
        &self,
        request: Request<v1::WaitExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        let caller = Principal::of(&request)?;
        wait_execution::wait_execution(&self.reading, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn cancel_execution(
        &self,
        request: Request<v1::CancelExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::cancel_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn pause_execution(
        &self,
        request: Request<v1::PauseExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::pause_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn resume_execution(
        &self,
        request: Request<v1::ResumeExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::resume_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn retry_execution(
        &self,
        request: Request<v1::RetryExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        retries::retry_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn fork_execution(
        &self,
        request: Request<v1::ForkExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        fork_execution::fork_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn update_plan(&self, request: Request<v1::UpdatePlanRequest>) -> Result<Response<v1::Execution>, Status> {
        retries::update_plan(self.registry()?, request).await.map(Response::new)
    }

    async fn retry_step(&self, request: Request<v1::RetryStepRequest>) -> Result<Response<v1::Execution>, Status> {
        retries::retry_step(self.registry()?, request).await.map(Response::new)
    }

    async fn skip_step(&self, request: Request<v1::SkipStepRequest>) -> Result<Response<v1::Execution>, Status> {
        retries::skip_step(self.registry()?, request).await.map(Response::new)
    }

    async fn set_step_output(
        &self,
        request: Request<v1::SetStepOutputRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        retries::set_step_output(self.registry()?, request).await.map(Response::new)
    }

    async fn resolve_step(&self, request: Request<v1::ResolveStepRequest>) -> Result<Response<v1::Execution>, Status> {
        requests::resolve_step(self.registry()?, request).await.map(Response::new)
    }

    async fn signal_execution(
        &self,
        request: Request<v1::SignalExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::signal_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn delete_execution(
        &self,
        request: Request<v1::DeleteExecutionRequest>,
    ) -> Result<Response<v1::DeleteExecutionResponse>, Status> {
        delete_execution::delete_execution(self.registry()?, request).await.map(Response::new)
    }

    async fn list_capabilities(
        &self,
        request: Request<v1::ListCapabilitiesRequest>,
    ) -> Result<Response<v1::ListCapabilitiesResponse>, Status> {
        list_capabilities::list_capabilities(self.registry()?, request.into_inner()).await.map(Response::new)
    }
}

#[cfg(test)]
mod pages_tests;

//! The methods of `ExecutorService`, one file each.

mod delete_execution;
mod filter;
mod list_capabilities;
mod list_executions;
mod list_namespaces;
mod requests;
mod start_execution;
mod wait_execution;
mod watch_execution;

use std::{pin::Pin, sync::Arc};

use belay_journal::ExecutionRow;
use belay_proto::v1::{
    self,
    executor_service_server::{ExecutorService, ExecutorServiceServer},
};
use belay_service_kit::{Hosted, host::MAX_MESSAGE_BYTES};
use futures::Stream;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status, service::Routes};

use crate::{ExecutionRegistry, driver::Command, names::ExecutionName};

/// The service, ready to be served.
pub fn hosted(registry: Arc<ExecutionRegistry>) -> Hosted {
    let service = ExecutorServiceServer::new(Service { registry })
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    Hosted::new(Routes::new(service), "belay.v1.ExecutorService", belay_proto::FILE_DESCRIPTOR_SET)
}

struct Service {
    registry: Arc<ExecutionRegistry>,
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ExecutorService for Service {
    type WatchExecutionStream = Messages<v1::WatchExecutionResponse>;

    async fn validate_plan(
        &self,
        request: Request<v1::ValidatePlanRequest>,
    ) -> Result<Response<v1::ValidatePlanResponse>, Status> {
        start_execution::validate_plan(&self.registry, request.into_inner()).await.map(Response::new)
    }

    async fn start_execution(
        &self,
        request: Request<v1::StartExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        start_execution::start_execution(&self.registry, request).await.map(Response::new)
    }

    async fn get_execution(
        &self,
        request: Request<v1::GetExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        let request = request.into_inner();
        let name = ExecutionName::parse("name", &request.name)?;
        let row = self.registry.client_reads.find(&name).await?;
        match request.view() {
            v1::ExecutionView::Basic => summarize(&self.registry, &name, &row).await,
            v1::ExecutionView::Unspecified | v1::ExecutionView::Full => describe(&self.registry, &name, &row).await,
        }
        .map(Response::new)
    }

    async fn list_executions(
        &self,
        request: Request<v1::ListExecutionsRequest>,
    ) -> Result<Response<v1::ListExecutionsResponse>, Status> {
        list_executions::list_executions(&self.registry, request.into_inner()).await.map(Response::new)
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        list_namespaces::list_namespaces(&self.registry, request.into_inner()).await.map(Response::new)
    }

    async fn watch_execution(
        &self,
        request: Request<v1::WatchExecutionRequest>,
    ) -> Result<Response<Self::WatchExecutionStream>, Status> {
        watch_execution::watch_execution(&self.registry, request.into_inner()).await.map(Response::new)
    }

    async fn wait_execution(
        &self,
        request: Request<v1::WaitExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        wait_execution::wait_execution(&self.registry, request.into_inner()).await.map(Response::new)
    }

    async fn cancel_execution(
        &self,
        request: Request<v1::CancelExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::cancel_execution(&self.registry, request).await.map(Response::new)
    }

    async fn pause_execution(
        &self,
        request: Request<v1::PauseExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::pause_execution(&self.registry, request).await.map(Response::new)
    }

    async fn resume_execution(
        &self,
        request: Request<v1::ResumeExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::resume_execution(&self.registry, request).await.map(Response::new)
    }

    async fn signal_execution(
        &self,
        request: Request<v1::SignalExecutionRequest>,
    ) -> Result<Response<v1::Execution>, Status> {
        requests::signal_execution(&self.registry, request).await.map(Response::new)
    }

    async fn delete_execution(
        &self,
        request: Request<v1::DeleteExecutionRequest>,
    ) -> Result<Response<v1::DeleteExecutionResponse>, Status> {
        delete_execution::delete_execution(&self.registry, request).await.map(Response::new)
    }

    async fn list_capabilities(
        &self,
        request: Request<v1::ListCapabilitiesRequest>,
    ) -> Result<Response<v1::ListCapabilitiesResponse>, Status> {
        list_capabilities::list_capabilities(&self.registry, request.into_inner()).await.map(Response::new)
    }
}

/// Describes an execution: from memory if it is there, else from the store, which no driver is changing then.
async fn describe(
    registry: &Arc<ExecutionRegistry>,
    name: &ExecutionName,
    row: &ExecutionRow,
) -> Result<v1::Execution, Status> {
    let (reply, received) = oneshot::channel();
    if registry.try_send(row.key, Command::Describe { reply })
        && let Ok(described) = received.await
    {
        return with_waits(registry, described);
    }
    let (execution, secrets) = registry.client_reads.replay(row.key).await?;
    with_waits(registry, Ok(Box::new(secrets.describe(name, &execution))))
}

/// The same without the plan and the steps.
async fn summarize(
    registry: &Arc<ExecutionRegistry>,
    name: &ExecutionName,
    row: &ExecutionRow,
) -> Result<v1::Execution, Status> {
    let (reply, received) = oneshot::channel();
    if registry.try_send(row.key, Command::Summarize { reply })
        && let Ok(summarized) = received.await
    {
        return with_waits(registry, summarized);
    }
    let (execution, secrets) = registry.client_reads.replay(row.key).await?;
    with_waits(registry, Ok(Box::new(secrets.summarize(name, &execution))))
}

/// Adds the unavailable services that the execution needs, whether or not one of its calls has tried them.
fn with_waits(
    registry: &ExecutionRegistry,
    described: Result<Box<v1::Execution>, Status>,
) -> Result<v1::Execution, Status> {
    let mut execution = *described?;
    registry.availability.add_to(&mut execution);
    Ok(execution)
}

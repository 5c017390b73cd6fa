//! A client of the contract that retries while a service is unavailable.

use std::{path::Path, time::Duration};

use belay_proto::v1::{self, executor_service_client::ExecutorServiceClient};
use tokio::{net::UnixStream, time::Instant};
use tonic::{
    Code, Status, Streaming,
    transport::{Channel, Endpoint, Uri},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::folded_execution::FoldedExecution;

/// The maximum time of a request with its repetitions, and of a start of a service.
const LONGEST: Duration = Duration::from_secs(180);

/// A channel to a unix socket that reconnects when the connection is lost. A request that is not answered for three minutes fails.
pub fn channel(socket: &Path) -> Channel {
    connect(socket, Endpoint::from_static("http://localhost"))
}

/// A channel of a client that takes nothing of its streams.
pub fn unread_channel(socket: &Path) -> Channel {
    connect(socket, Endpoint::from_static("http://localhost").initial_stream_window_size(0))
}

fn connect(socket: &Path, endpoint: Endpoint) -> Channel {
    let socket = socket.to_owned();
    endpoint.timeout(LONGEST).connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
    }))
}

/// A client of one executor.
#[derive(Clone, Debug)]
pub struct Client {
    executor: ExecutorServiceClient<Channel>,
}

impl Client {
    /// A client of the executor on this socket.
    pub fn new(socket: &Path) -> Self {
        Self { executor: ExecutorServiceClient::new(channel(socket)) }
    }

    /// The bare client.
    pub fn raw(&self) -> ExecutorServiceClient<Channel> {
        self.executor.clone()
    }

    /// Starts a YAML plan with a request id, and retries until there is a response.
    ///
    /// # Panics
    /// When the plan is refused.
    pub async fn start(&self, id: &str, plan: &str) -> v1::Execution {
        self.start_with(id, plan, v1::StartExecutionRequest::default()).await
    }

    /// The same in a workspace.
    ///
    /// # Panics
    /// When the plan or the workspace is refused.
    pub async fn start_in(&self, id: &str, plan: &str, workspace: &Path) -> v1::Execution {
        let workspace = workspace.to_str().expect("temporary folders have plain names").to_owned();
        self.start_with(id, plan, v1::StartExecutionRequest { workspace, ..Default::default() }).await
    }

    /// The same with the other fields of `request`.
    ///
    /// # Panics
    /// When the plan is refused.
    pub async fn start_with(&self, id: &str, plan: &str, request: v1::StartExecutionRequest) -> v1::Execution {
        let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: plan.into() };
        let request = v1::StartExecutionRequest {
            parent: "namespaces/default".into(),
            execution_id: id.into(),
            request_id: format!("start-{id}"),
            source: Some(v1::start_execution_request::Source::Document(document)),
            ..request
        };
        retry(|| async { self.raw().start_execution(request.clone()).await }).await.expect("the plan is accepted")
    }

    /// The execution in its current state.
    ///
    /// # Panics
    /// When there is none.
    pub async fn get(&self, id: &str) -> v1::Execution {
        let request = v1::GetExecutionRequest { name: name(id), view: v1::ExecutionView::Full.into() };
        retry(|| async { self.raw().get_execution(request.clone()).await }).await.expect("the execution is there")
    }

    /// Its steps with their outputs; at most 1,000.
    ///
    /// # Panics
    /// When there is no such execution.
    pub async fn steps(&self, id: &str) -> Vec<v1::Step> {
        let view = v1::StepView::Full.into();
        let request = v1::ListStepsRequest { parent: name(id), page_size: 1_000, view, ..Default::default() };
        let page =
            retry(|| async { self.raw().list_steps(request.clone()).await }).await.expect("the execution is there");
        assert_eq!(page.next_page_token, "", "all of them");
        page.steps
    }

    /// Begins to watch where an earlier watch was at this cursor; with an empty one, from the first event on.
    ///
    /// # Errors
    /// The service's error.
    pub async fn watch(&self, id: &str, cursor: &str) -> Result<Streaming<v1::WatchExecutionResponse>, Status> {
        let request = v1::WatchExecutionRequest {
            name: name(id),
            cursor: cursor.into(),
            heartbeat_interval: Some(belay_proto::duration(Duration::from_millis(200))),
            include_earlier_events: true,
            ..Default::default()
        };
        self.raw().watch_execution(request).await.map(tonic::Response::into_inner)
    }

    /// Watches to the end, reconnecting as needed, and returns every event once.
    ///
    /// # Panics
    /// When there is a gap or a repetition, or the end does not come within two minutes.
    pub async fn watch_to_the_end(&self, id: &str) -> FoldedExecution {
        let watched = async {
            let mut folded = FoldedExecution::default();
            while !folded.ended() {
                let Ok(mut stream) = self.watch(id, folded.cursor()).await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                while let Ok(Some(message)) = stream.message().await {
                    folded.read(message);
                }
            }
            folded
        };
        tokio::time::timeout(Duration::from_secs(120), watched).await.expect("the execution ends within two minutes")
    }
}

/// The full name of an execution in the default namespace.
pub fn name(id: &str) -> String {
    format!("namespaces/default/executions/{id}")
}

/// Returns when a service reports at its socket that it serves.
///
/// # Panics
/// When it does not within three minutes.
pub async fn serving(socket: &Path, service: &str) {
    let mut health = HealthClient::new(channel(socket));
    let asked = HealthCheckRequest { service: service.into() };
    let served = async {
        while health.check(asked.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let within = tokio::time::timeout(LONGEST, served).await;
    within.unwrap_or_else(|_| panic!("{service} does not serve at {}", socket.display()));
}

/// Retries while the service is unavailable, for three minutes.
///
/// # Errors
/// The status of the service.
pub async fn retry<T, F>(mut ask: impl FnMut() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<tonic::Response<T>, Status>>,
{
    let began = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status)
                if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal)
                    && began.elapsed() < LONGEST =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(status) => return Err(status),
        }
    }
}

//! A scripted runner and a scripted gate, and the executor between them.

mod executor;
mod gate;
mod runner;
mod server;
mod session;

pub(crate) use executor::{Executor, kinds, plan};
pub(crate) use gate::{Gate, GateState};
pub(crate) use runner::{Runner, RunnerState};
pub(crate) use server::{Server, TIMEOUT, eventually};

use belay_proto::{
    gate_v1::approval_gate_service_server::ApprovalGateServiceServer,
    runner_v1::tool_runner_service_server::ToolRunnerServiceServer,
};
use belay_service_kit::{Access, HostedServices};
use tempfile::TempDir;
use tonic::service::Routes;

/// A folder with sockets, and the services that listen there.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) runner: Runner,
    pub(crate) gate: Gate,
    runner_server: Option<Server>,
    gate_server: Option<Server>,
}

fn scripted(routes: Routes) -> HostedServices {
    HostedServices::new(routes, "script", belay_proto::FILE_DESCRIPTOR_SET)
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (runner, gate) = (Runner::default(), Gate::default());
        let mut world = Self { folder, runner, gate, runner_server: None, gate_server: None };
        world.start_runner().await;
        world.start_gate().await;
        world
    }

    pub(crate) async fn start_runner(&mut self) {
        let hosted = scripted(Routes::new(ToolRunnerServiceServer::new(self.runner.clone())));
        self.runner_server =
            Some(Server::start(&self.folder.path().join("runner"), hosted, Access::unauthenticated_executor()).await);
    }

    pub(crate) async fn start_gate(&mut self) {
        let hosted = scripted(Routes::new(ApprovalGateServiceServer::new(self.gate.clone())));
        self.gate_server =
            Some(Server::start(&self.folder.path().join("gate"), hosted, Access::unauthenticated_executor()).await);
    }

    pub(crate) fn stop_runner(&mut self) {
        self.runner_server.take().expect("it runs").stop();
    }

    pub(crate) fn stop_gate(&mut self) {
        self.gate_server.take().expect("it runs").stop();
    }

    pub(crate) async fn executor(&self) -> Executor {
        Executor::start(self.folder.path()).await
    }
}

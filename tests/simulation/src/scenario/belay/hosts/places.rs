//! Where the services are, and the folders of workspaces.

use std::path::{Path, PathBuf};

use belay_proto::runner_v1;
use belay_proto::v1;

pub(super) const EXECUTOR_PORT: u16 = 7000;
pub(super) const READER_PORT: u16 = 7001;
pub(super) const RUNNER_PORT: u16 = 7100;
pub(super) const PEOPLE_PORT: u16 = 7200;
pub(super) const SERVICES_PORT: u16 = 7201;

/// The runner's endpoint.
pub(in super::super) const RUNNER_URI: &str = "http://runner:7100";
/// The executor's endpoint.
pub(in super::super) const EXECUTOR_URI: &str = "http://executor:7000";
/// The endpoint of the reader of the executor's journal.
pub(in super::super) const READER_URI: &str = "http://executor:7001";
/// The gate's endpoint for people.
pub(in super::super) const PEOPLE_URI: &str = "http://gate:7200";
/// The gate's endpoint for services.
pub(in super::super) const SERVICES_URI: &str = "http://gate:7201";

/// The folder of the runner's own workspaces.
pub(super) const OWN_WORKSPACES: &str = "/work";
/// A workspace that several executions use at once.
pub(in super::super) const SHARED_WORKSPACE: &str = "/shared/one";

/// The workspace that the runner makes for an execution that names none.
pub(in super::super) fn own_workspace(execution: &str) -> Option<PathBuf> {
    match execution.split('/').collect::<Vec<_>>()[..] {
        ["namespaces", namespace, "executions", id] => Some(Path::new(OWN_WORKSPACES).join(namespace).join(id)),
        _ => None,
    }
}

pub(super) const FOLDER: &str = "/data";

/// The path of an execution's workspace.
pub(in super::super) fn workspace(execution: &v1::Execution) -> PathBuf {
    let namespace = execution.name.split('/').nth(1).unwrap_or_default();
    match execution.workspace.as_str() {
        "" => [OWN_WORKSPACES, namespace, &execution.made_folder].iter().collect(),
        directory => directory.into(),
    }
}

/// The folder of the runner's own at a path.
pub(in super::super) fn made_folder(path: &str) -> runner_v1::MadeFolder {
    let mut ids = path.rsplit('/').map(str::to_owned);
    let (id, namespace) = (ids.next().unwrap_or_default(), ids.next().unwrap_or_default());
    runner_v1::MadeFolder { namespace, id }
}

/// The shard of the execution with this name.
pub(in super::super) fn shard(execution: &str) -> i32 {
    let shard = match execution.split('/').collect::<Vec<_>>()[..] {
        ["namespaces", namespace, "executions", id] => belay_executor::shard_of(namespace, id),
        _ => 0,
    };
    i32::try_from(shard).expect("there are 64")
}

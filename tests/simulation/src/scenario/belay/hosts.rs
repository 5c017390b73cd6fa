//! The three services as processes: their `main` on the simulated machine.

mod clock;
mod executor;
mod gate;
mod inventory;
mod journal;
mod owners;
mod places;
mod process;
mod runner;
mod site;

pub(super) use self::clock::now_micros;
pub(super) use self::executor::executor;
pub(super) use self::gate::gate;
pub(super) use self::inventory::{Inventory, WorkspaceChanges};
pub(super) use self::owners::{Owners, Write, is_fenced};
pub(super) use self::places::{
    EXECUTOR_URI, PEOPLE_URI, READER_URI, RUNNER_URI, SERVICES_URI, SHARED_WORKSPACE, made_folder, own_workspace,
    shard, workspace,
};
pub(super) use self::process::channel;
pub(super) use self::runner::runner;
pub(super) use self::site::Site;

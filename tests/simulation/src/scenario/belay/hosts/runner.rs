//! The tool runner.

use belay_journal::StoreFault;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;

use belay_proto::runner_v1::EnforcementReport;
use belay_service_kit::{Access, Ids, Principal, Service, Shutdown};
use belay_sqlite::{Location, SqliteError};
use belay_tool_runner::{
    AllowedWorkspaces, Calls, Enforcement, GateChannel, Ledger, LedgerError, Registry, Secrets, Workspaces,
};

use super::super::bugs::Memory;
use super::super::workspaces::{self, ModelDirectories};
use super::super::{site::RUNNER, tools};
use super::clock::{WallClock, now_micros};
use super::places::{FOLDER, OWN_WORKSPACES, RUNNER_PORT, SERVICES_URI, SHARED_WORKSPACE};
use super::process::{Outcome, REDACTOR, THREADS, channel, location, no_spans, serve, supervise};
use super::site::Site;
use crate::disk;

/// The tool runner; at the end, the inventory of its disk instead.
pub(in super::super) async fn runner(site: Site) -> turmoil::Result {
    if site.inventory.stock().is_due {
        let stock = site.outside.workspaces().into_iter().map(|path| {
            let changes = workspaces::changes(&path)?;
            Ok((path, changes))
        });
        let found = stock.collect::<std::io::Result<_>>()?;
        site.inventory.stock().found = Some(found);
        return pending().await;
    }
    site.backup.attend(RUNNER).await;
    supervise(RUNNER, run_runner(site)).await
}

async fn run_runner(site: Site) -> Outcome {
    let run = site.owners.with(|owned| {
        owned.runners += 1;
        owned.runners
    });
    let (file, id) = match site.bugs.calls {
        Memory::Kept => ("calls.db".to_owned(), format!("ledger-{run}")),
        Memory::Lost => (format!("calls-{run}.db"), format!("ledger-{run}")),
        Memory::Replaced => (format!("calls-{run}.db"), "the-one-ledger".to_owned()),
    };
    let registry = Registry::new(tools::all(&site.outside))?;
    // A new seed each time, so that no nonce is generated twice.
    let ids = Ids::seeded(site.seed.wrapping_mul(41).wrapping_add(run));
    let secrets =
        Secrets::new(REDACTOR.clone(), belay_executor::MasterKey::new([7; 32]), registry.clone(), move || {
            ids.next_key()
        });
    // A ledger that was lost on purpose is accepted, as an operator would do.
    let accepted = matches!(site.bugs.calls, Memory::Lost).then(now_micros);
    let location = Location { accepted, ..location(&file, site.bugs.ledger, site.knobs.store_batch) };
    if site.bugs.damages_a_row {
        site.damaged.damage_one(&location.path, site.seed)?;
    }
    let opened = Ledger::open(&location, THREADS, secrets, || id);
    let ledger = opened.inspect_err(|error| {
        use SqliteError as E;
        // What SQLite's adapter says of a value that is not what it should be; a disk that fails says something else.
        let is_about_a_row = matches!(error, LedgerError::Store(E::Fault(StoreFault::Other(why))) if why.starts_with("Conversion error"));
        let is_broken =
            matches!(error, LedgerError::KeyLost | LedgerError::Store(E::Fault(StoreFault::Corrupt(_) | StoreFault::Locked | StoreFault::Newer { .. })));
        if is_broken || is_about_a_row {
            site.checker.violation(format_args!("the ledger cannot be opened: {error}"));
        }
    })?;
    disk::make_folder(Path::new(SHARED_WORKSPACE)).map_err(std::io::Error::from)?;
    let calls = Calls::recover(belay_tool_runner::Parts {
        registry,
        ledger,
        clock: Arc::new(WallClock),
        keys: site.keys(),
        workspaces: Workspaces {
            own: OWN_WORKSPACES.into(),
            allowed: AllowedWorkspaces::Roots(vec![SHARED_WORKSPACE.into()]),
            forbidden: vec![FOLDER.into()],
        },
        directories: Arc::new(ModelDirectories::new(site.bugs.workspaces, &site.outside)),
        enforcement: Enforcement::reported(EnforcementReport::default()),
        threads: THREADS,
        thresholds: site.knobs.runner,
        telemetry: no_spans(site.seed),
        limits: Default::default(),
    })
    .await?;
    let policy = Arc::clone(calls.policy());
    let gate = GateChannel::new(site.bugs.channel(channel(SERVICES_URI), calls.stores()), None)?;
    let delays = Ids::seeded(site.seed.wrapping_mul(43).wrapping_add(run));
    tokio::spawn(async move { policy.follow_gate(gate, &delays).await });
    let (_trigger, stop) = Shutdown::new();
    let access = Access::Unauthenticated(Principal::Service(Service::SameUser));
    let hosted = belay_tool_runner::hosted(Arc::clone(&calls), stop.clone());
    tokio::select! {
        biased;
        error = calls.failed() => Err(match error {
            SqliteError::Fault(StoreFault::Behind(why)) => site.behind(why),
            error => error.into(),
        }),
        served = serve(RUNNER_PORT, hosted, access, stop) => served,
    }
}

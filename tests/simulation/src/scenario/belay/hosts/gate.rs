//! The approval gate.

use belay_journal::StoreFault;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use belay_approval_gate::RunnerClient;
use belay_policy::Policies;
use belay_service_kit::{Access, Ids, Principal, Service, Shutdown};
use belay_sqlite::{Location, SqliteError, Synchronous};
use turmoil::fs::shim::std::fs;

use super::super::bugs::Memory;
use super::super::people::PERSON_NAME;
use super::super::site::GATE;
use super::clock::{WallClock, now_micros};
use super::places::{FOLDER, PEOPLE_PORT, RUNNER_URI, SERVICES_PORT};
use super::process::{Outcome, REDACTOR, THREADS, channel, location, no_spans, serve, supervise};
use super::site::Site;
use crate::trace;

/// The approval gate.
pub(in super::super) async fn gate(site: Site) -> turmoil::Result {
    site.backup.attend(GATE).await;
    supervise(GATE, run_gate(site)).await
}

async fn run_gate(site: Site) -> Outcome {
    let run = site.owners.with(|owned| {
        owned.gates += 1;
        owned.gates
    });
    let losses = gate_losses(&site, run)?;
    // A store that was lost on purpose is accepted, as an operator would do.
    let accepted = (losses > 0).then(now_micros);
    let location = location(&gate_file(losses), Synchronous::Full, site.knobs.store_batch);
    let location = Location { accepted, ..location };
    let store = belay_approval_gate::Store::open(&location, THREADS, || format!("store-{losses}"));
    let store = store.inspect_err(|belay_approval_gate::StoreError(error)| {
        if matches!(
            error,
            SqliteError::Fault(StoreFault::Corrupt(_))
                | SqliteError::Fault(StoreFault::Locked)
                | SqliteError::Fault(StoreFault::Newer { .. })
        ) {
            site.checker.violation(format_args!("the gate's store cannot be opened: {error}"));
        }
    })?;
    let runner = site.bugs.channel(channel(RUNNER_URI), store.stores());
    let policies = Policies::from_yaml(&site.policies[usize::from(run > 1)]);
    let policies = policies.map_err(|violations| format!("{violations:?}"))?;
    let (_trigger, shutdown) = Shutdown::new();
    let gate = belay_approval_gate::Gate::open(belay_approval_gate::Parts {
        store,
        key: site.signing_key(),
        policies,
        runner: RunnerClient::new(runner, None)?,
        clock: Arc::new(WallClock),
        // A new seed each time, so that no nonce is generated twice.
        ids: Ids::seeded(site.seed.wrapping_mul(31).wrapping_add(run)),
        redactor: REDACTOR.clone(),
        telemetry: no_spans(site.seed),
        shutdown: shutdown.clone(),
        limits: Default::default(),
    })
    .await?;
    trace::count("gate starts");
    let people = Access::unauthenticated_person(PERSON_NAME);
    let services = Access::Unauthenticated(Principal::Service(Service::SameUser));
    tokio::try_join!(
        serve(PEOPLE_PORT, belay_approval_gate::hosted(Arc::clone(&gate)), people, shutdown.clone()),
        serve(SERVICES_PORT, belay_approval_gate::hosted_for_services(Arc::clone(&gate)), services, shutdown),
        async { Err::<(), Box<dyn Error>>(site.behind(gate.failed().await.to_string())) },
    )?;
    Ok(())
}

fn gate_file(losses: u64) -> String {
    format!("gate-{losses}.db")
}

/// The number of times the gate has lost its store; if the scenario loses it, about every second start does.
fn gate_losses(site: &Site, run: u64) -> Result<u64, rusqlite::Error> {
    let losses = site.owners.with(|owned| owned.gate_losses);
    let is_lost = site.bugs.gate == Memory::Lost && run > 1 && (site.seed >> (run % 64)) & 1 == 1;
    if !is_lost {
        return Ok(losses);
    }
    let path = Path::new(FOLDER).join(gate_file(losses));
    if fs::exists(&path) {
        site.archive.take_over(&path)?;
    }
    trace::event("the gate has lost its store");
    trace::count("stores of the gate lost");
    site.owners.with(|owned| owned.gate_losses += 1);
    Ok(losses + 1)
}

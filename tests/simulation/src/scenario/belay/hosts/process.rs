//! Parts of every process of a service: its channels, its store's place, its server, and who restarts it.

use std::error::Error;
use std::future::{Future, pending};
use std::path::Path;
use std::time::Duration;

use belay_service_kit::{Access, HostedServices, Ids, Shutdown, host};
use belay_sqlite::{Location, Synchronous, Threads};
use belay_telemetry::Telemetry;
use tonic::transport::{Channel, Endpoint};
use turmoil::fs::shim::std::fs;

use super::places::FOLDER;
use crate::{kill_points, machine, net, trace, vfs};

/// The supervisor's delay before it restarts a failed process.
const RESTART_AFTER: Duration = Duration::from_millis(30);
/// The same for one that failed at once, as on a full disk: each of its starts reads the whole store, which costs the simulated disk seconds when nothing is synced.
const RESTART_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The interval and the timeout of HTTP/2 keep-alive pings. Belay's own channels have 20 s.
const KEEP_ALIVE: Duration = Duration::from_millis(400);

/// Work that blocks, and all that runs beside it, is interrupted as the seed says.
pub(super) const THREADS: Threads = Threads::Interleaved(machine::PAUSES);

pub(super) type Outcome = Result<(), Box<dyn Error>>;

/// A channel to `uri`, like Belay's own, with shorter timeouts.
pub(in super::super) fn channel(uri: &'static str) -> Channel {
    Endpoint::from_static(uri)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .connect_timeout(KEEP_ALIVE)
        .connect_with_connector_lazy(net::Connector)
}

/// Runs a process, and restarts it when it fails.
pub(super) async fn supervise(name: &str, process: impl Future<Output = Outcome>) -> turmoil::Result {
    let begun = tokio::time::Instant::now();
    if let Err(error) = process.await {
        trace::event(format_args!("{name}: {error}"));
    }
    let at_once = begun.elapsed() < RESTART_AFTER;
    tokio::time::sleep(if at_once { RESTART_AGAIN_AFTER } else { RESTART_AFTER }).await;
    machine::exit();
    pending().await
}

pub(super) fn location(file: &str, synchronous: Synchronous, max_batch: usize) -> Location {
    fs::create_dir_all(FOLDER).and_then(|()| fs::sync_dir("/")).expect("turmoil's folders do not fail");
    let vfs = Some(vfs::NAME.to_string_lossy().into_owned());
    Location { path: Path::new(FOLDER).join(file), vfs, synchronous, accepted: None, max_batch }
}

/// Compiled once, because an executor starts many times.
pub(super) static REDACTOR: std::sync::LazyLock<belay_executor::Redactor> =
    std::sync::LazyLock::new(belay_executor::Redactor::new);

/// No spans are collected; trace ids come from the seed.
pub(super) fn no_spans(seed: u64) -> Telemetry {
    let ids = Ids::seeded(seed.wrapping_mul(37));
    Telemetry::off(move |bytes| ids.fill(bytes))
}

pub(super) async fn serve(port: u16, service: HostedServices, access: Access, shutdown: Shutdown) -> Outcome {
    let incoming = net::listen(port).await?;
    host::serve(incoming, service.map_routes(kill_points::around), access, shutdown).await?;
    Ok(())
}

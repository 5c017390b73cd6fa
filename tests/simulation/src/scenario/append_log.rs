//! The basis of the services without the services: a host appends rows to SQLite on the simulated disk and acknowledges them over tonic, while
//! power, processes, network and disk fail.
//!
//! Every acknowledged row must be there, whole, after every restart.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::PathAndQuery;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rusqlite::{Connection, ErrorCode, params};
use tonic::body::Body;
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::Service;
use turmoil::fs::shim::std::fs;

use crate::checker::Checker;
use crate::fault::{self, Conditions, Site};
use crate::world::World;
use crate::{machine, net, trace, vfs};

const STORE: &str = "store";
const CLIENTS: [&str; 2] = ["alice", "bob"];
const SITE: Site =
    Site { servers: &[STORE], everyone: &[STORE, CLIENTS[0], CLIENTS[1]], requests: &[], for_good: false };

const PORT: u16 = 7000;
const FOLDER: &str = "/data";
const DATABASE: &str = "/data/log.db";
const APPEND: &str = "/simulation.AppendLog/Append";

/// Faults begin within this time.
const HORIZON: Duration = Duration::from_secs(4);
/// The clients must be done within this time, whatever faults happen.
const MAX_DURATION: Duration = Duration::from_secs(60);
const ROWS_PER_CLIENT: u64 = 25;
const ATTEMPTS: u32 = 4;
const RPC_TIMEOUT: Duration = Duration::from_millis(300);
/// How long a store whose disk fails waits before it tries to open it again.
const REOPEN_AFTER: Duration = Duration::from_millis(20);
/// The maximum length of a row, in bytes: several pages, so that a commit can be torn.
const MAX_ROW_BYTES: u64 = 9000;

/// SQLite with Belay's settings: nothing may be lost.
///
/// # Errors
/// A description of the violation.
pub fn synchronous_full(seed: u64) -> Result<(), String> {
    run(seed, "FULL")
}

/// A planted bug: commits are acknowledged before they are synced.
///
/// # Errors
/// A description of the violation.
pub fn synchronous_normal(seed: u64) -> Result<(), String> {
    run(seed, "NORMAL")
}

fn run(seed: u64, synchronous: &'static str) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let conditions = Conditions::generate(&mut random);
    let mut world = World::new(seed, &conditions, MAX_DURATION);
    let checker = Checker::default();

    let checked = checker.clone();
    world.host(STORE, move || serve(checked.clone(), synchronous));
    for (index, name) in (0..).zip(CLIENTS) {
        world.client(name, append_rows(index, random.random(), checker.clone()));
    }
    world.schedule(fault::generate(&mut random, SITE, HORIZON));

    world.run().map_err(|error| error.to_string())?;
    world.heal();
    world.power_cycle(STORE);
    let before = checker.recoveries();
    let is_up = world.run_until(MAX_DURATION, || checker.recoveries() > before).map_err(|error| error.to_string())?;
    if !is_up {
        checker.violation("the store did not come up after the last power loss");
    }
    checker.verdict()
}

/// The content of row `id`: every part of it identifies the row.
fn content(id: u64) -> Vec<u8> {
    let length = 1 + id * 7919 % MAX_ROW_BYTES;
    (0..length).map(|position| (id * 31 + position) as u8).collect()
}

/// A row's value for the checker.
fn describe(id: u64, content_found: &[u8]) -> String {
    match content_found == content(id) {
        true => "whole".to_owned(),
        false => format!("torn ({} bytes)", content_found.len()),
    }
}

async fn append_rows(client: u64, seed: u64, checker: Checker) -> turmoil::Result {
    let mut random = StdRng::seed_from_u64(seed);
    let mut channel = connect();
    for row in 0..ROWS_PER_CLIENT {
        let id = row * CLIENTS.len() as u64 + client;
        for _ in 0..ATTEMPTS {
            match tokio::time::timeout(RPC_TIMEOUT, append(&channel, id)).await {
                Ok(Ok(())) => {
                    checker.acknowledged(id, describe(id, &content(id)));
                    break;
                }
                Ok(Err(status)) => trace::event(format_args!("{id} is refused: {:?}", status.code())),
                Err(_) => {
                    trace::event(format_args!("{id} is not answered"));
                    // turmoil's TCP does not retransmit what a partition dropped, so such a connection is lost.
                    channel = connect();
                }
            }
            tokio::time::sleep(Duration::from_millis(random.random_range(1..100))).await;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
    }
    Ok(())
}

fn connect() -> Channel {
    Endpoint::from_static("http://store:7000").connect_timeout(RPC_TIMEOUT).connect_with_connector_lazy(net::Connector)
}

async fn append(channel: &Channel, id: u64) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(APPEND);
    let answer: Response<u64> = client.unary(Request::new(id), path, ProstCodec::<u64, u64>::default()).await?;
    match answer.into_inner() == id {
        true => Ok(()),
        false => Err(Status::internal("another row was acknowledged")),
    }
}

async fn serve(checker: Checker, synchronous: &'static str) -> turmoil::Result {
    let connection = loop {
        match open(synchronous).and_then(|connection| check(&connection, &checker).map(|()| connection)) {
            Ok(connection) => break connection,
            Err(error) if is_disk_fault(&error) => trace::event(format_args!("store: cannot open: {error}")),
            Err(error) => {
                checker.violation(format_args!("the store cannot be opened: {error}"));
                return Ok(());
            }
        }
        tokio::time::sleep(REOPEN_AFTER).await;
    };
    let service = AppendLog { connection: Arc::new(Mutex::new(connection)), checker };
    Server::builder().add_service(service).serve_with_incoming(net::listen(PORT).await?).await?;
    Ok(())
}

fn is_disk_fault(error: &rusqlite::Error) -> bool {
    let faults = [ErrorCode::SystemIoFailure, ErrorCode::DiskFull, ErrorCode::CannotOpen];
    error.sqlite_error_code().is_some_and(|code| faults.contains(&code))
}

fn open(synchronous: &str) -> rusqlite::Result<Connection> {
    fs::create_dir_all(FOLDER).and_then(|()| fs::sync_dir("/")).expect("turmoil's folders do not fail");
    let connection = Connection::open_with_flags_and_vfs(Path::new(DATABASE), Default::default(), vfs::NAME)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Pages: small, so that checkpoints happen in every run.
    connection.pragma_update(None, "wal_autocheckpoint", 20)?;
    // What a killed process left in the page cache is read as committed but may not be synced: tests/ground.rs.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    connection
        .execute_batch("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT")?;
    Ok(connection)
}

fn check(connection: &Connection, checker: &Checker) -> rusqlite::Result<()> {
    machine::without_faults(|| {
        let integrity: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if integrity != "ok" {
            checker.violation(format_args!("the database is damaged: {integrity}"));
        }
        let mut select = connection.prepare("SELECT id, content FROM log")?;
        let rows = select.query_map([], |row| {
            let (id, content): (u64, Vec<u8>) = (row.get(0)?, row.get(1)?);
            Ok((id, describe(id, &content)))
        })?;
        let rows: BTreeMap<u64, String> = rows.collect::<rusqlite::Result<_>>()?;
        for (id, description) in rows.iter().filter(|(_, description)| *description != "whole") {
            checker.violation(format_args!("row {id} is {description}"));
        }
        checker.recovered(&rows);
        Ok(())
    })
}

/// The service, written by hand, because one method needs no `.proto`.
#[derive(Clone)]
struct AppendLog {
    connection: Arc<Mutex<Connection>>,
    checker: Checker,
}

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<u64> for AppendLog {
    type Response = u64;
    type Future = Answer<Response<u64>, Status>;

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let id = request.into_inner();
            let connection = service.connection.lock().map_err(|_| Status::internal("an append panicked"))?;
            let inserted = connection
                .prepare_cached("INSERT INTO log (id, content) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
                .and_then(|mut insert| insert.execute(params![id, content(id)]));
            match inserted {
                Ok(_) => Ok(Response::new(id)),
                Err(error) if is_disk_fault(&error) => Err(Status::unavailable(error.to_string())),
                Err(error) => {
                    service.checker.violation(format_args!("row {id} cannot be appended: {error}"));
                    Err(Status::internal(error.to_string()))
                }
            }
        })
    }
}

impl Service<http::Request<Body>> for AppendLog {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                APPEND => tonic::server::Grpc::new(ProstCodec::default()).unary(service, request).await,
                _ => Status::unimplemented("only Append").into_http(),
            })
        })
    }
}

impl NamedService for AppendLog {
    const NAME: &'static str = "simulation.AppendLog";
}

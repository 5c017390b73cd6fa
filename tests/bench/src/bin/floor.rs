//! The floor: the minimum cost of a durable step on this machine. A loop calls a tool in another process, then stores one row.
//!
//! It has no checks, no policy and no events; the difference is the cost of Belay. It has the same kind of transport, store and group commit: tonic
//! on
//! a unix socket, SQLite in WAL mode with synchronous=FULL, one writer thread.

use std::{
    error::Error,
    io::Write as _,
    iter,
    path::{Path, PathBuf},
    str::FromStr,
    sync::mpsc,
};

use belay_bench::stats;
use belay_service_kit::net::{self, Address, UnixSocket};
use clap::Parser;
use futures::future;
use rusqlite::Connection;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, stdin},
    sync::oneshot,
    time::Instant,
};
use tonic::{
    Request, Response, Status,
    transport::{Channel, Server},
};

use proto::{
    CallRequest, CallResponse,
    tool_client::ToolClient,
    tool_server::{Tool, ToolServer},
};

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod proto {
    tonic::include_proto!("belay.bench.floor");
}

type Failure = Box<dyn Error + Send + Sync>;

/// The floor that Belay is measured against: one tonic call and one durable row a step.
#[derive(Debug, Parser)]
#[command(name = "belay-floor")]
enum Role {
    /// Returns from calls at once. Prints `ready` to stdout when it listens.
    Tool {
        /// Where to listen.
        #[arg(long, value_name = "unix:PATH", value_parser = socket)]
        listen: PathBuf,
    },
    /// Prints `ready` to stdout, then runs a load for each line `EXECUTIONS STEPS` on stdin and prints its result as a line of JSON.
    Executor {
        /// Where the tool listens.
        #[arg(long)]
        tool: Address,
        /// The database file, which is created if it does not exist.
        #[arg(long)]
        store: PathBuf,
    },
}

fn socket(text: &str) -> Result<PathBuf, String> {
    match Address::from_str(text) {
        Ok(Address::Unix(path)) => Ok(path),
        _ => Err("write unix:/path/to/socket".into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match Role::parse() {
        Role::Tool { listen } => serve(&listen).await,
        Role::Executor { tool, store } => execute(&tool, &store).await,
    }
}

struct Noop;

#[tonic::async_trait]
impl Tool for Noop {
    async fn call(&self, _: Request<CallRequest>) -> Result<Response<CallResponse>, Status> {
        Ok(Response::new(CallResponse { result: "null".into() }))
    }
}

async fn serve(listen: &Path) -> Result<(), Failure> {
    let socket = UnixSocket::bind(listen)?;
    say("ready")?;
    Ok(Server::builder().add_service(ToolServer::new(Noop)).serve_with_incoming(socket.incoming()).await?)
}

/// Several loads run in one process, so that each finds it as warm as Belay's executor is.
async fn execute(tool: &Address, store: &Path) -> Result<(), Failure> {
    let mut connection = Connection::open(store)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS log (
            id INTEGER PRIMARY KEY, execution INTEGER NOT NULL, seq INTEGER NOT NULL, kind INTEGER NOT NULL, body TEXT NOT NULL
        ) STRICT",
    )?;
    let (rows, queue) = mpsc::channel();
    let writer = std::thread::spawn(move || write(&mut connection, &queue));

    let client = ToolClient::new(net::connect_lazy(tool));
    say("ready")?;
    let mut loads = BufReader::new(stdin()).lines();
    while let Some(line) = loads.next_line().await? {
        let load = load(&line).ok_or_else(|| format!("`{line}` is no load: write EXECUTIONS STEPS, such as 64 100"))?;
        say(&run(load, &client, &rows).await?)?;
    }
    drop(rows);
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(())
}

fn load(line: &str) -> Option<(u32, u32)> {
    let (executions, steps) = line.split_once(' ')?;
    Some((executions.parse().ok()?, steps.parse().ok()?))
}

fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

async fn run((executions, steps): (u32, u32), client: &ToolClient<Channel>, rows: &Queue) -> Result<String, Failure> {
    let began = Instant::now();
    let loops = (0..executions).map(|execution| tokio::spawn(run_one(execution, steps, client.clone(), rows.clone())));
    let mut latencies = Vec::new();
    for ended in future::join_all(loops).await {
        latencies.extend(ended??);
    }
    let elapsed = began.elapsed().as_secs_f64();
    Ok(serde_json::json!({
        "p50_us": stats::percentile(&mut latencies, 50),
        "p99_us": stats::percentile(&mut latencies, 99),
        "steps_per_second": latencies.len() as f64 / elapsed,
    })
    .to_string())
}

/// Runs one execution; returns each step's latency in microseconds.
async fn run_one(
    execution: u32,
    steps: u32,
    mut client: ToolClient<Channel>,
    rows: Queue,
) -> Result<Vec<u64>, Failure> {
    let mut latencies = Vec::new();
    for seq in 0..steps {
        let began = Instant::now();
        let name = format!("namespaces/default/executions/{execution}/steps/{seq}/calls/1.1");
        let request = CallRequest { name, arguments: "{}".into() };
        let response = client.call(request.clone()).await?.into_inner();
        // As long as what Belay stores of a step that does nothing.
        let body = format!("{} {:<240}", request.name, response.result);
        let (stored, durable) = oneshot::channel();
        rows.send((execution, seq, body, stored))?;
        durable.await?;
        latencies.push(u64::try_from(began.elapsed().as_micros())?);
    }
    Ok(latencies)
}

/// A row's execution, sequence and body, and who waits for it.
type Row = (u32, u32, String, oneshot::Sender<()>);
type Queue = mpsc::Sender<Row>;

/// The writer, with group commit.
fn write(connection: &mut Connection, queue: &mpsc::Receiver<Row>) -> Result<(), rusqlite::Error> {
    while let Ok(first) = queue.recv() {
        let mut waiting = Vec::new();
        let transaction = connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO log (execution, seq, kind, body) VALUES (?1, ?2, 1, ?3)")?;
            for (execution, seq, body, stored) in iter::once(first).chain(queue.try_iter()) {
                insert.execute((execution, seq, &body))?;
                waiting.push(stored);
            }
        }
        transaction.commit()?;
        for stored in waiting {
            // A loop that has ended reports its failure itself.
            let _ = stored.send(());
        }
    }
    Ok(())
}

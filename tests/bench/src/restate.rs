//! Restate's server and a service on its SDK, and the client that drives them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use belay_service_kit::{Clock as _, SystemClock};
use futures::future;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt as _, BufReader, Lines},
    net::UnixStream,
    process::{ChildStdin, ChildStdout},
};

use crate::{
    Failure, Result,
    place::Place,
    process::Process,
    restate_programs::Programs,
    subject::{Load, Speed, Subject, Work, within},
};

/// The interval of requests to a server that starts.
const START_INTERVAL: Duration = Duration::from_millis(5);

/// Restate, running: its server with a data folder of its own, and the service that it calls.
///
/// Both are in a network of their own, in which there is only the loopback interface: at each start the server asks the internet for its latest
/// release, and no setting prevents that.
pub(crate) struct Restate {
    server: Process,
    service: Process,
    program: PathBuf,
    client: Client,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// After which a request for the end of an execution is sent again: a server that has just started does not answer all of them.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// How to reach the server, with which executions can be waited for side by side.
#[derive(Clone)]
pub(crate) struct Client {
    admin: PathBuf,
    ingress: PathBuf,
}

/// When a plan ran, and how long its steps took, as the service says.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Times {
    began_us: u64,
    ended_us: u64,
    pub(crate) p50_us: u64,
    p99_us: u64,
    pub(crate) first_us: u64,
    pub(crate) last_us: u64,
}

/// The bodies that have run in the service.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct ServiceReport {
    /// How many bodies of steps, those that ran again included.
    pub(crate) bodies: u64,
    /// When the first body ran in an attempt that began after the time asked for.
    pub(crate) first_us: Option<u64>,
}

impl Restate {
    /// Starts the service and the server on a new data folder, and returns when a first execution has ended.
    pub(crate) async fn start(programs: &Programs, place: &Place) -> Result<Self> {
        let name = "restate-service";
        let script = "ip link set lo up && exec \"$0\"";
        let service = programs.service.display().to_string();
        let arguments = [own_network(), &["--", "sh", "-c", script, &service]].concat();
        let (service, input, mut output) =
            Process::start_talking(name, Path::new("unshare"), &arguments, place.state())?;
        let port = next_line(&mut output, &service).await?;
        let server = start_server(&programs.server, &service, place)?;
        let sockets = place.file("restate").join("bench");
        let client = Client { admin: sockets.join("admin.sock"), ingress: sockets.join("ingress.sock") };
        let mut restate = Self { server, service, program: programs.server.clone(), client, input, output };
        restate.serves().await?;
        let deployment = json!({"uri": format!("http://127.0.0.1:{port}")});
        let _: Value = send(&restate.client.admin, Method::POST, "/deployments", Some(&deployment)).await?;
        let plan = steps(1, 0);
        let first = within("a first execution of Restate", restate.client.call("steps", &plan));
        first.await.map_err(|error| restate.server.explain(error))?;
        Ok(restate)
    }

    /// Kills the server with SIGKILL and starts it again on the same data. Returns when it was killed.
    pub(crate) async fn lose_server(&mut self, place: &Place) -> Result<u64> {
        let killed_at = u64::try_from(SystemClock.now_micros())?;
        self.server.kill().await?;
        self.server = start_server(&self.program, &self.service, place)?;
        self.serves().await?;
        Ok(killed_at)
    }

    /// Asks for the bodies that have run, and when the first step ran in an attempt that began after `since`.
    pub(crate) async fn ran(&mut self, since: u64) -> Result<ServiceReport> {
        self.input.write_all(format!("{since}\n").as_bytes()).await?;
        Ok(serde_json::from_str(&next_line(&mut self.output, &self.service).await?)?)
    }

    /// The error, and what the server said last.
    pub(crate) fn explain(&self, error: Failure) -> Failure {
        self.server.explain(error)
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Waits until the server answers.
    async fn serves(&mut self) -> Result<()> {
        let asking = async {
            loop {
                self.server.check()?;
                if send::<Value>(&self.client.admin, Method::GET, "/health", None).await.is_ok() {
                    return Ok(());
                }
                tokio::time::sleep(START_INTERVAL).await;
            }
        };
        within("the start of Restate", asking).await
    }
}

impl Client {
    /// Runs a handler to its end.
    pub(crate) async fn call(&self, handler: &str, plan: &Value) -> Result<Times> {
        send(&self.ingress, Method::POST, &format!("/restate/call/Bench/{handler}"), Some(plan)).await
    }

    /// Has an execution of a handler accepted, and returns its id.
    pub(crate) async fn begin(&self, handler: &str, plan: &Value) -> Result<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct AcceptedInvocation {
            invocation_id: String,
        }
        let path = format!("/restate/send/Bench/{handler}");
        Ok(send::<AcceptedInvocation>(&self.ingress, Method::POST, &path, Some(plan)).await?.invocation_id)
    }

    /// Waits until an execution has ended. A server that starts answers other requests sooner than this one.
    pub(crate) async fn finish(&self, id: &str) -> Result<Times> {
        let path = format!("/restate/invocation/{id}/attach");
        let mut last = String::new();
        let asking = async {
            loop {
                let attached = send(&self.ingress, Method::GET, &path, None);
                match tokio::time::timeout(ATTACH_TIMEOUT, attached).await {
                    Ok(Ok(times)) => return Ok(times),
                    Ok(Err(error)) => last = error.to_string(),
                    Err(_) => last = "it has not ended".to_owned(),
                }
                tokio::time::sleep(START_INTERVAL).await;
            }
        };
        let ended = within(&format!("the end of {id}"), asking).await;
        ended.map_err(|error| format!("{error}: {last}").into())
    }
}

impl Subject for Restate {
    fn pids(&self) -> Vec<u32> {
        vec![self.server.pid(), self.service.pid()]
    }

    /// The clock runs from the beginning of the first handler to the end of the last one, in the service: neither accepting nor answering is in it.
    async fn run(&mut self, load: Load) -> Result<Speed> {
        if load.work != Work::Nothing {
            return Err("the service for Restate knows no other work than none".into());
        }
        let plan = steps(load.steps, 0);
        let calls = (0..load.executions).map(|_| self.client.call("steps", &plan));
        let ended = future::try_join_all(calls).await.map_err(|error| self.server.explain(error))?;
        let first = ended.iter().map(|times| times.began_us).min();
        let last = ended.iter().map(|times| times.ended_us).max();
        let micros = last.zip(first).and_then(|(last, first)| last.checked_sub(first)).filter(|micros| *micros > 0);
        let micros = micros.ok_or("no time passed")?;
        let one = match ended.as_slice() {
            [one] => Some(*one),
            _ => None,
        };
        Ok(Speed {
            p50_us: one.map(|times| times.p50_us),
            p99_us: one.map(|times| times.p99_us),
            steps_per_second: load.total() * 1e6 / micros as f64,
        })
    }
}

/// A plan of steps one after the other; so many of the first and last ones are compared.
pub(crate) fn steps(steps: u32, compared: usize) -> Value {
    json!({"steps": steps, "compared": compared})
}

/// The arguments of unshare for a network of its own; who is not root needs a user namespace for it.
fn own_network() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() { &["--net"] } else { &["--user", "--map-root-user", "--net"] }
}

/// Starts the server in the network of the service.
fn start_server(program: &Path, service: &Process, place: &Place) -> Result<Process> {
    let settings = place.file("restate.toml");
    fs::write(&settings, settings_of_server(&std::path::absolute(place.file("restate"))?))?;
    let pid = service.pid();
    let network = format!("--net=/proc/{pid}/ns/net");
    let user = format!("--user=/proc/{pid}/ns/user");
    let (program, settings) = (program.display().to_string(), settings.display().to_string());
    let mut arguments = vec![network.as_str()];
    if !rustix::process::geteuid().is_root() {
        arguments.extend([user.as_str(), "--preserve-credentials"]);
    }
    arguments.extend(["--", &program, "--no-logo", "--config-file", &settings]);
    Process::start_program("restate-server", Path::new("nsenter"), &arguments, place.state())
}

/// Its own defaults, but for what has nothing to do with its work. That each write to its log is flushed is a default too.
fn settings_of_server(data: &Path) -> String {
    let data = Value::from(data.display().to_string());
    format!(
        "base-dir = {data}\nnode-name = \"bench\"\ncluster-name = \"bench\"\nlisten-mode = \"all\"\nbind-ip = \"127.0.0.1\"\n\
         disable-telemetry = true\nlog-filter = \"warn\"\nlog-disable-ansi-codes = true\n\n\
         [admin]\ndisable-web-ui = true\n\n[log-server]\nrocksdb-disable-wal-fsync = false\n"
    )
}

/// Sends a request on a connection of its own.
async fn send<T: DeserializeOwned>(socket: &Path, method: Method, path: &str, body: Option<&Value>) -> Result<T> {
    let stream = UnixStream::connect(socket).await.map_err(|error| format!("{}: {error}", socket.display()))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender. What fails on it is also the request's error.
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        return Err(format!("Restate answers {path} with {status}: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(serde_json::from_slice(if body.is_empty() { b"null" } else { &body })?)
}

async fn next_line(output: &mut Lines<BufReader<ChildStdout>>, process: &Process) -> Result<String> {
    let line = within("an answer of the service for Restate", async { Ok(output.next_line().await?) }).await?;
    line.ok_or_else(|| process.explain("the service for Restate ended too early".into()))
}

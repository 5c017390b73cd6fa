//! Finds the services: the named server, the `belay` that holds the state directory, or services started in this process.

use std::{
    env, io,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use belay_all_in_one::{
    ConfigSource, EmbeddedServices, Endpoint, Options, PolicyChoice, StateDir, StateOpening, TraceContext,
};
use belay_proto::{
    contract,
    v1::{
        Execution, approval_service_client::ApprovalServiceClient, executor_service_client::ExecutorServiceClient,
        model_service_client::ModelServiceClient, policy_service_client::PolicyServiceClient,
        schedule_service_client::ScheduleServiceClient,
    },
};
use belay_reasons as reasons;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::{
    address::Address,
    failure::{Failure, Report},
    next,
};

/// The longest wait for a connection, and for the answer to one request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A dead connection is noticed after this much silence, even while nothing is asked.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The codec limit that both sides of the contract keep, in bytes: above it the server's own error is better than the codec's.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// How often a holder of the state directory that does not answer is asked again: it may be starting, or just gone.
const HOLDER_TRIES: u32 = 6;

/// A connection that shows the token, the trace and the contract's revision.
pub(crate) type Wire = InterceptedService<Channel, CallMetadata>;

/// The executor's client.
pub(crate) type Client = ExecutorServiceClient<Wire>;

/// The client of the approval gate's approvals.
pub(crate) type Gate = ApprovalServiceClient<Wire>;

/// The client of the approval gate's policy.
pub(crate) type Policy = PolicyServiceClient<Wire>;

/// The client of the executor's models.
pub(crate) type Models = ModelServiceClient<Wire>;

/// The client of the executor's schedules.
pub(crate) type Schedules = ScheduleServiceClient<Wire>;

/// Where to look for the services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Target {
    /// The server, if one is named.
    pub(crate) server: Option<Address>,
    /// The token to show it.
    pub(crate) token: Option<String>,
    /// The state directory, if one is named.
    pub(crate) state_dir: Option<PathBuf>,
    /// The approval gate, where it is not reached by the same way as the executor.
    pub(crate) gate: Option<Address>,
    /// The policy, where the services start in this process.
    pub(crate) policy: PolicyChoice,
    /// The operator's settings, where the services start in this process.
    pub(crate) config: ConfigSource,
    /// The span that requests are made in.
    pub(crate) trace: Option<TraceContext>,
}

impl Target {
    /// Whether paths mean the same to the services as to this process.
    pub(crate) fn is_local(&self) -> bool {
        !matches!(self.server, Some(Address::Http(_)))
    }

    /// Adds where the folder is that the services have made for the execution, if that is known here.
    pub(crate) fn with_workspace(&self, mut execution: Execution) -> Execution {
        if let (false, None, Ok(state_dir)) = (execution.made_folder.is_empty(), &self.server, self.state_dir()) {
            let namespace = execution.name.split('/').nth(1).unwrap_or_default();
            let folder = belay_all_in_one::made_folder(&state_dir, namespace, &execution.made_folder);
            execution.workspace = std::path::absolute(&folder).unwrap_or(folder).display().to_string();
        }
        execution
    }

    /// The named state directory, or the user's.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, Failure> {
        Ok(StateDir::resolve(self.state_dir.as_deref(), &|name| env::var_os(name))?)
    }
}

/// The way to the approval gate; cheap to clone.
#[derive(Clone)]
pub(crate) struct GateConnector {
    beside_executor: Wire,
    elsewhere: Option<(Address, Option<String>)>,
    trace: Option<TraceContext>,
}

impl GateConnector {
    /// The client of its approvals.
    pub(crate) async fn client(&self) -> Result<Gate, Failure> {
        Ok(Gate::new(self.wire().await?).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// The client of its policy.
    pub(crate) async fn policy(&self) -> Result<Policy, Failure> {
        Ok(Policy::new(self.wire().await?).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }

    /// A gate that is named is connected to now, since most commands need none.
    pub(crate) async fn wire(&self) -> Result<Wire, Failure> {
        match &self.elsewhere {
            Some((address, token)) => connect(address, token.as_deref(), self.trace.as_ref()).await,
            None => Ok(self.beside_executor.clone()),
        }
    }
}

/// The parts of the services, and so of the state directory, that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// A state directory; created if it does not exist.
    StateDir,
    /// The records of an existing state directory: without one the command is refused, and none is created.
    Records,
    /// The services without their records: where there is no state directory, they get a temporary one, removed with the command.
    Services,
}

/// The services that a command uses, for its duration.
pub(crate) struct Session {
    /// The executor's client; cheap to clone.
    pub(crate) client: Client,
    wire: Wire,
    target: Target,
    embedded: Option<Rc<EmbeddedServices>>,
    /// The temporary state directory of services that keep nothing after the command.
    passing: Option<TempDir>,
}

impl Session {
    /// Connects to the server that is named. Without one, to the holder of the state directory, or becomes its holder.
    pub(crate) async fn open(target: &Target, needs: Requirement) -> Result<Session, Failure> {
        if let Some(address) = &target.server {
            let wire = connect(address, target.token.as_deref(), target.trace.as_ref()).await?;
            return Ok(Session::over(wire, target, None));
        }
        let mut state_dir = target.state_dir()?;
        let mut passing = None;
        if needs != Requirement::StateDir && !belay_all_in_one::is_state_dir(&state_dir) {
            if needs == Requirement::Records {
                return Err(nothing_kept(&state_dir).into());
            }
            let folder = tempfile::Builder::new().prefix("belay-").tempdir();
            let folder =
                folder.map_err(|error| Failure::internal(format!("no temporary folder can be made: {error}")))?;
            folder.path().clone_into(&mut state_dir);
            passing = Some(folder);
        }
        let mut tries = 0;
        loop {
            let policy = target.policy.clone();
            let options = Options {
                state_dir: state_dir.clone(),
                listen: None,
                insecure_listen_beyond_loopback: false,
                drive_all: false,
                policy,
                config: target.config.clone(),
                accept_older_store: false,
            };
            match belay_all_in_one::open(options).await? {
                StateOpening::Holder(embedded) => {
                    let wire = connect_to(embedded.endpoint(), target.trace.as_ref()).await?;
                    return Ok(Session { passing, ..Session::over(wire, target, Some(Rc::new(embedded))) });
                }
                StateOpening::Held(endpoint) => match connect_to(&endpoint, target.trace.as_ref()).await {
                    Ok(wire) => return Ok(Session::over(wire, target, None)),
                    Err(failure) if tries == HOLDER_TRIES => return Err(failure),
                    Err(_) => tries += 1,
                },
            }
            tokio::time::sleep(Duration::from_millis(25_u64 << tries)).await;
        }
    }

    /// Connects to the server that is named, or to the process that holds the state directory. `None` where no process holds it: none is started.
    pub(crate) async fn running(target: &Target) -> Result<Option<Session>, Failure> {
        let wire = match &target.server {
            Some(address) => connect(address, target.token.as_deref(), target.trace.as_ref()).await?,
            None => match belay_all_in_one::find_running(&target.state_dir()?) {
                Some(endpoint) => connect_to(&endpoint, target.trace.as_ref()).await?,
                None => return Ok(None),
            },
        };
        Ok(Some(Session::over(wire, target, None)))
    }

    fn over(wire: Wire, target: &Target, embedded: Option<Rc<EmbeddedServices>>) -> Session {
        let client = Client::new(wire.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Session { client, wire, target: target.clone(), embedded, passing: None }
    }

    /// The connection to the executor; cheap to clone.
    pub(crate) fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// The client of the models.
    pub(crate) fn models(&self) -> Models {
        Models::new(self.wire.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The client of the schedules.
    pub(crate) fn schedules(&self) -> Schedules {
        Schedules::new(self.wire.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The way to the approval gate.
    pub(crate) fn to_gate(&self) -> GateConnector {
        let elsewhere = self.target.gate.clone().map(|address| (address, self.target.token.clone()));
        GateConnector { beside_executor: self.wire.clone(), elsewhere, trace: self.target.trace.clone() }
    }

    /// Whether the services run in this process, and end with it.
    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// The services in this process; drop the result before [`Session::close`].
    pub(crate) fn embedded(&self) -> Option<Rc<EmbeddedServices>> {
        self.embedded.clone()
    }

    /// Reconnects. A named server's channel reconnects automatically. The holder of a state directory may have another socket now; if there
    /// is no holder and `take_its_place` is set, this process becomes it.
    pub(crate) async fn reconnect(&mut self, take_its_place: bool) -> Result<(), Failure> {
        if self.target.server.is_some() || self.embedded.is_some() {
            return Ok(());
        }
        match belay_all_in_one::find_running(&self.target.state_dir()?) {
            Some(endpoint) => {
                *self = Session::over(connect_to(&endpoint, self.target.trace.as_ref()).await?, &self.target, None)
            }
            None if take_its_place => *self = Session::open(&self.target, Requirement::Records).await?,
            None => {}
        }
        Ok(())
    }

    /// Shuts the embedded services down gracefully, if there are any.
    pub(crate) async fn close(self) {
        if let Some(embedded) = self.embedded.and_then(Rc::into_inner) {
            embedded.shutdown().await;
        }
        // Its services have ended: only now is the directory unused.
        drop(self.passing);
    }
}

/// A command needs an existing state directory, and there is none.
fn nothing_kept(state_dir: &Path) -> Report {
    let message = format!("nothing is kept in {}: no plan has been run with this state directory", state_dir.display());
    Report::new(reasons::STATE_DIR_MISSING, message).advice().next(next::command(&["run", "--help"]))
}

/// Adds the bearer token and the command's place in its trace to every request.
#[derive(Clone)]
pub(crate) struct CallMetadata {
    token: Option<MetadataValue<Ascii>>,
    trace: Option<TraceContext>,
}

impl Interceptor for CallMetadata {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        if let Some(trace) = &self.trace {
            trace.put(request.metadata_mut());
        }
        request.metadata_mut().insert(contract::NAME, MetadataValue::from_static(contract::TEXT));
        Ok(request)
    }
}

async fn connect_to(endpoint: &Endpoint, trace: Option<&TraceContext>) -> Result<Wire, Failure> {
    match endpoint {
        Endpoint::Unix(path) => connect(&Address::Unix(path.clone()), None, trace).await,
        Endpoint::Tcp { url, token } => connect(&Address::Http(url.clone()), token.as_deref(), trace).await,
    }
}

async fn connect(address: &Address, token: Option<&str>, trace: Option<&TraceContext>) -> Result<Wire, Failure> {
    let token = token.map(bearer).transpose()?;
    // The name is for the `:authority` header; a socket has none.
    let url = match address {
        Address::Unix(_) => "http://localhost",
        Address::Http(url) => url,
    };
    let endpoint = Channel::from_shared(url.to_owned())
        .map_err(|error| Report::new(reasons::INVALID_USAGE, format!("`{address}` is not an address: {error}")))?
        .user_agent(concat!("belay-cli/", env!("CARGO_PKG_VERSION")))
        .map_err(|error| Failure::internal(format!("no connection can be prepared: {error}")))?
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    let channel = match address {
        Address::Http(_) => endpoint.connect().await,
        Address::Unix(path) => {
            let path = path.clone();
            let connector = tower::service_fn(move |_| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            });
            endpoint.connect_with_connector(connector).await
        }
    };
    let channel = channel.map_err(|error| unreachable(address, &error))?;
    Ok(InterceptedService::new(channel, CallMetadata { token, trace: trace.cloned() }))
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, Failure> {
    let mut value = MetadataValue::try_from(format!("Bearer {token}")).map_err(|_| {
        Report::new(reasons::INVALID_USAGE, "the token has characters that no token has")
            .detail("set BELAY_TOKEN again")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn unreachable(address: &Address, error: &tonic::transport::Error) -> Report {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut kind = None;
    while let Some(next) = cause.source() {
        cause = next;
        kind = cause.downcast_ref::<io::Error>().map(io::Error::kind).or(kind);
    }
    no_answer(address, kind, &cause.to_string())
}

/// Reports a server that does not answer: how far the connection got, and the command that starts a server.
fn no_answer(address: &Address, kind: Option<io::ErrorKind>, cause: &str) -> Report {
    let far = match (address, kind) {
        (Address::Unix(_), Some(io::ErrorKind::NotFound)) => "there is no such socket: no server runs there",
        (Address::Unix(_), Some(io::ErrorKind::ConnectionRefused)) => {
            "the socket exists, but no server listens on it: the server has ended"
        }
        (Address::Unix(_), Some(io::ErrorKind::PermissionDenied)) => "the socket belongs to another user",
        (Address::Http(_), Some(io::ErrorKind::ConnectionRefused)) => {
            "the machine was reached, but nothing listens at that port"
        }
        (Address::Http(_), Some(io::ErrorKind::TimedOut)) => {
            "nothing came back: is the machine up, and its port open in the firewall?"
        }
        (Address::Http(_), _) => {
            "check: is the host's name right, its port reachable, and plain HTTP/2 (no TLS) spoken there?"
        }
        (Address::Unix(_), _) => "check: is it the socket of a `belay serve`?",
    };
    let mut report =
        Report::new(reasons::SERVER_UNREACHABLE, format!("no server answers at {address}: {cause}")).detail(far);
    report.retryable = true;
    match next::serve(Some(address)) {
        Some(serve) => report.next(serve),
        None => match address {
            Address::Http(_) => report.detail("`belay serve --listen ADDR` on that machine starts one"),
            Address::Unix(_) => report.detail("`belay serve` starts one, and prints where it listens"),
        },
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::ListCapabilitiesRequest;

    use super::*;

    #[test]
    fn a_token_never_shows_in_debug_output() {
        assert!(!format!("{:?}", bearer("s3cret").unwrap()).contains("s3cret"));
        assert!(bearer("a\nb").is_err());
    }

    #[test]
    fn a_server_that_is_not_there_is_explained() {
        let report = no_answer(
            &Address::Http("http://h:1".to_owned()),
            Some(io::ErrorKind::ConnectionRefused),
            "Connection refused",
        );
        assert_eq!(report.message, "no server answers at http://h:1: Connection refused");
        assert_eq!(
            report.details,
            [
                "the machine was reached, but nothing listens at that port",
                "`belay serve --listen ADDR` on that machine starts one"
            ]
        );
        assert_eq!(report.json()["nextCommand"], "belay explain SERVER_UNREACHABLE");
        assert!(report.retryable);
    }

    #[tokio::test]
    async fn a_missing_socket_is_told_from_a_dead_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let detail = async || match connect(&Address::Unix(path.clone()), None, None).await {
            Err(Failure::Report(report)) => report.details.join(""),
            _ => panic!("a connection without a server"),
        };
        assert!(detail().await.starts_with("there is no such socket"));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(detail().await.starts_with("the socket exists, but no server listens on it"));
    }

    /// The holder of a state directory is killed just after a command found it: the error is not the kernel's.
    #[tokio::test]
    async fn a_server_that_ends_before_it_is_asked_is_told_as_that() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address = Address::Unix(path.clone());
        let (wire, accepted) = tokio::join!(connect(&address, None, None), listener.accept());
        drop((accepted, listener));
        std::fs::remove_file(&path).unwrap();
        let mut client = Client::new(wire.unwrap_or_else(|_| panic!("the listener was there")));
        let status = loop {
            let status =
                client.list_capabilities(ListCapabilitiesRequest::default()).await.expect_err("the server has ended");
            // The end of the first connection may be seen by the first request.
            if status.message().contains("No such file") {
                break status;
            }
        };
        let report = Report::of_status(&status);
        assert_eq!(
            (report.code.as_str(), report.exit, report.retryable),
            ("SERVER_UNREACHABLE", crate::exit::Exit::INTERNAL, true)
        );
        assert_eq!(report.message, "the server ended before the request was sent, and no other has taken its place");
        assert!(report.details[1].contains("give the command again"), "{:?}", report.details);
    }
}

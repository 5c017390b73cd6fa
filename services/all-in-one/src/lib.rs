//! The services in one process, still talking gRPC, on SQLite: what a laptop runs.
//!
//! Everything is kept in one state directory, under one lock. Whoever finds the lock held becomes a client of the holder.

mod error;
mod state_dir;

pub use error::StartError;
pub use state_dir::{StateDir, find_running};

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use belay_executor::{Executions, Runner};
use belay_service_kit::{Access, Ids, ServeError, Shutdown, SystemClock, Trigger, net};
use belay_sqlite::{Location, Threads};
use belay_tool_runner::{Calls, Enforcement, Ledger, Registry, SandboxSettings, tools};
use tokio::task::JoinHandle;

// The first call of whoever's `main` hosts the services: commands run behind walls that this binary, executed again, puts up.
pub use belay_tool_runner::take_over_if_asked;

use state_dir::Held;

/// How to reach the services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP, with the token to show.
    Tcp {
        /// `http://host:port`.
        url: String,
        /// The token to show.
        token: Option<String>,
    },
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where everything is kept.
    pub state_dir: PathBuf,
    /// A TCP address to listen on as well.
    pub listen: Option<SocketAddr>,
    /// Take up every execution that has not ended. Without it only those that are started or resumed run.
    pub drive_all: bool,
}

/// What came of opening a state directory.
pub enum Opened {
    /// It is ours, and the services run.
    Holder(Embedded),
    /// Another process has it; its services answer here.
    Held(Endpoint),
}

/// The services, running.
pub struct Embedded {
    endpoint: Endpoint,
    listening: Option<(SocketAddr, String)>,
    executions: Arc<Executions>,
    drive_all: bool,
    trigger: Trigger,
    serving: Vec<JoinHandle<Result<(), ServeError>>>,
    _held: Held,
}

/// Opens a state directory, making it if it is not there, and starts the services unless another process runs them.
///
/// # Errors
/// [`StartError`], which says what to do.
pub async fn open(options: Options) -> Result<Opened, StartError> {
    let state_dir = StateDir::prepare(&options.state_dir)?;
    let held = match state_dir.lock()? {
        Some(held) => held,
        None => return state_dir.wait_for_holder().await.map(Opened::Held),
    };
    let ids = Ids::from_system();
    let (trigger, stop) = Shutdown::new();
    let clock = Arc::new(SystemClock);

    let ledger = Ledger::open(&Location::file(state_dir.ledger()), Threads::Real, || ids.next_id())
        .map_err(|error| StartError::ledger(&state_dir.ledger(), error))?;
    let enforcement = Enforcement::tried_out(SandboxSettings::default());
    let registry =
        Registry::new(tools::built_in(&enforcement)).map_err(|error| StartError::Internal(error.to_string()))?;
    let calls = Calls::recover(belay_tool_runner::Parts { registry, ledger, clock: clock.clone() })
        .await
        .map_err(|status| StartError::Internal(status.message().to_owned()))?;
    let journal = belay_journal_sqlite::open(&Location::file(state_dir.journal()), || ids.next_id())
        .map_err(|error| StartError::journal(&state_dir.journal(), error))?;

    let own_user = || Access::UnixUser(rustix::process::geteuid().as_raw());
    let runner_socket = net::Address::Unix(state_dir.runner_socket());
    let executor_socket = net::Address::Unix(state_dir.executor_socket());
    let runner_listener = net::bind(&runner_socket).await.map_err(StartError::Bind)?;
    let executor_listener = net::bind(&executor_socket).await.map_err(StartError::Bind)?;
    let tcp = match options.listen {
        Some(address) => {
            Some((net::bind(&net::Address::Tcp(address)).await.map_err(StartError::Bind)?, state_dir.token(&ids)?))
        }
        None => None,
    };

    let runner = Runner::new(net::connect_lazy(&runner_socket), None)
        .map_err(|error| StartError::Internal(error.to_string()))?;
    let executions = Executions::new(belay_executor::Parts {
        journal,
        threads: Threads::Real,
        runner,
        clock,
        ids,
        shutdown: stop.clone(),
    });
    let mut serving = vec![tokio::spawn(runner_listener.serve(
        belay_tool_runner::hosted(calls, stop.clone()),
        own_user(),
        stop.clone(),
    ))];
    if options.drive_all {
        executions.drive_all().await.map_err(|error| StartError::journal(&state_dir.journal(), error))?;
    }
    let hosted = || belay_executor::hosted(Arc::clone(&executions));
    let listening = match tcp {
        Some((listener, token)) => {
            let net::Address::Tcp(address) = listener.address() else {
                return Err(StartError::Internal("a TCP listener has no TCP address".into()));
            };
            serving.push(tokio::spawn(listener.serve(hosted(), Access::Token(token.as_str().into()), stop.clone())));
            Some((address, token))
        }
        None => None,
    };
    serving.push(tokio::spawn(executor_listener.serve(hosted(), own_user(), stop)));
    Ok(Opened::Holder(Embedded {
        endpoint: Endpoint::Unix(state_dir.executor_socket()),
        listening,
        executions,
        drive_all: options.drive_all,
        trigger,
        serving,
        _held: held,
    }))
}

impl Embedded {
    /// How to reach the executor.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The TCP address it listens on, and the token that callers have to show there.
    pub fn listening(&self) -> Option<&(SocketAddr, String)> {
        self.listening.as_ref()
    }

    /// Answers when the store has failed and the services should stop, with the reason.
    pub async fn failed(&self) -> StartError {
        let reason = self.executions.broken().await;
        StartError::Store { code: belay_executor::store_reason(&reason), message: reason.to_string() }
    }

    /// Stops. What was started here and nobody else drives is paused first, its running calls discarded: no attempt is burnt, and it
    /// goes on when somebody resumes it. What `drive_all` took up goes on by itself at the next start.
    pub async fn shutdown(self) {
        if !self.drive_all {
            self.executions.pause_all("belay", "the process that drove it stopped").await;
        }
        self.trigger.pull();
        for service in self.serving {
            match service.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "A service did not stop kindly"),
                Err(error) => tracing::warn!(%error, "A service did not stop kindly"),
            }
        }
    }
}

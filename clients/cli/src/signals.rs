//! Ctrl-C and SIGTERM, as a value to wait for.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Somebody wants the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Stop {
    /// How a process that was stopped so ends.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Stop::Interrupt => Exit::INTERRUPTED,
            Stop::Terminate => Exit::TERMINATED,
        }
    }
}

/// Both signals; from its making on, neither kills the process by itself.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Begins to listen. Needs a running tokio runtime.
    pub(crate) fn listen() -> io::Result<Signals> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next wish to stop. Safe to drop and ask again.
    pub(crate) async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
        }
    }
}

//! Ctrl-C and SIGTERM: the first is a wish, the second an order.

use std::io;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

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

/// The wish to stop, once it is there.
pub(crate) struct Signals {
    wish: watch::Receiver<Option<Stop>>,
}

impl Signals {
    /// Begins to listen: the first signal becomes a wish, the second ends the process at once, whatever it is doing (everything that was
    /// recorded survives that). Needs a running tokio runtime.
    pub(crate) fn listen() -> io::Result<Signals> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (wish, received) = watch::channel(None);
        tokio::spawn(async move {
            wish.send_replace(Some(either(&mut interrupt, &mut terminate).await));
            let order = either(&mut interrupt, &mut terminate).await;
            std::process::exit(order.exit().0.into());
        });
        Ok(Signals { wish: received })
    }

    /// Answers when somebody wants the process to stop; from then on at once.
    pub(crate) async fn next(&mut self) -> Stop {
        match self.wish.wait_for(Option::is_some).await.map(|wish| *wish) {
            Ok(Some(stop)) => stop,
            _ => std::future::pending().await,
        }
    }
}

async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> Stop {
    tokio::select! {
        biased;
        _ = interrupt.recv() => Stop::Interrupt,
        _ = terminate.recv() => Stop::Terminate,
    }
}

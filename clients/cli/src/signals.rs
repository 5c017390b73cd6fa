//! Ctrl-C, SIGTERM and a closed terminal: the first asks the command to stop, the second ends the process at once.

use std::{future::poll_fn, io, task::Poll};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::exit::Exit;

/// Why the process is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal was closed, or its connection was lost.
    HangUp,
}

impl Stop {
    const ALL: [Stop; 3] = [Stop::Interrupt, Stop::Terminate, Stop::HangUp];

    /// The exit code of a process that was stopped so.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Stop::Interrupt => Exit::INTERRUPTED,
            Stop::Terminate => Exit::TERMINATED,
            Stop::HangUp => Exit::HUNG_UP,
        }
    }

    fn kind(self) -> SignalKind {
        match self {
            Stop::Interrupt => SignalKind::interrupt(),
            Stop::Terminate => SignalKind::terminate(),
            Stop::HangUp => SignalKind::hangup(),
        }
    }
}

/// The request to stop, once there is one.
pub(crate) struct Signals {
    wish: watch::Receiver<Option<Stop>>,
}

impl Signals {
    /// Begins to listen: the first signal asks the command to stop, the second ends the process at once (everything
    /// that was recorded survives that). SIGHUP stays ignored where the process was started to ignore it, which is what `nohup` is for;
    /// SIGINT is taken in any case, because scripts start commands with SIGINT ignored (`belay run … &`) and send it to stop them. Needs a
    /// running tokio runtime.
    pub(crate) fn listen() -> io::Result<Signals> {
        let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let mut listeners = Stop::ALL
            .into_iter()
            .filter(|stop| *stop != Stop::HangUp || ignored >> (stop.kind().as_raw_value() - 1) & 1 == 0)
            .map(|stop| Ok((stop, signal(stop.kind())?)))
            .collect::<io::Result<Vec<_>>>()?;
        let (wish, received) = watch::channel(None);
        tokio::spawn(async move {
            wish.send_replace(Some(first(&mut listeners).await));
            let order = first(&mut listeners).await;
            std::process::exit(order.exit().0.into());
        });
        Ok(Signals { wish: received })
    }

    /// Returns when the process has been asked to stop; from then on at once.
    pub(crate) async fn next(&mut self) -> Stop {
        match self.wish.wait_for(Option::is_some).await.map(|wish| *wish) {
            Ok(Some(stop)) => stop,
            _ => std::future::pending().await,
        }
    }
}

/// The next signal.
async fn first(listeners: &mut [(Stop, Signal)]) -> Stop {
    poll_fn(|context| {
        let came =
            listeners.iter_mut().find_map(|(stop, signal)| signal.poll_recv(context).is_ready().then_some(*stop));
        came.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The set of ignored signals from `/proc/self/status`: bit n - 1 stands for signal n. Empty where the kernel does not say.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_read_from_the_status() {
        assert_eq!(ignored("Name:\tbelay\nSigIgn:\t0000000000001001\nSigCgt:\t00000001\n"), 0x1001);
        assert_eq!(ignored("Name:\tbelay\n"), 0);
    }
}

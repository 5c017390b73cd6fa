//! Passes bytes between two connections, without a buffer while nothing waits.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, atomic::Ordering},
};

use rustix::net::Shutdown;
use tokio::{
    net::TcpStream,
    time::{Duration, sleep_until},
};

use crate::{call_network::CallNetwork, filter::Filter as _, foreign::Foreign, log::Counters};

/// The bytes that are read at a time, which is also the most that wait in one direction.
const BUFFER: usize = 64 << 10;

thread_local! {
    /// All connections share one buffer: what is read is written before anything else happens, and only what the receiver does not take is copied.
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// Counts what passes through one connection.
#[derive(Clone)]
pub(crate) struct Meter {
    pub(crate) network: Arc<CallNetwork>,
    pub(crate) counters: Arc<Counters>,
}

impl Meter {
    /// Counts bytes. Fails when the call has no bytes left.
    pub(crate) fn count(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        let counter = match direction {
            Direction::Sent => &self.counters.sent,
            Direction::Received => &self.counters.received,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        self.counters.active.store(self.network.log.milliseconds(), Ordering::Relaxed);
        if self.network.spend(bytes) { Ok(()) } else { Err(io::Error::other("the call has used all its bytes")) }
    }

    /// Returns when nothing has passed for the budget's time.
    pub(crate) async fn idle(&self) {
        loop {
            let active = self.counters.active.load(Ordering::Relaxed);
            let at = self.network.log.begun() + Duration::from_millis(active) + self.network.budget.idle_time;
            sleep_until(at).await;
            if self.counters.active.load(Ordering::Relaxed) == active {
                return;
            }
        }
    }
}

/// Passes bytes in both directions until both are closed, one fails, or nothing has passed for long. `to_host` and `to_client` are sent first.
pub(crate) async fn splice(
    client: &TcpStream,
    host: &TcpStream,
    to_host: Vec<u8>,
    to_client: Vec<u8>,
    meter: &Meter,
) -> io::Result<()> {
    let both = async {
        tokio::try_join!(
            pump(client, host, to_host, Direction::Sent, meter),
            pump(host, client, to_client, Direction::Received, meter)
        )
    };
    until_idle(both, meter).await
}

/// The same for bytes in clear text of a call with credentials: ends before a placeholder reaches the host.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] when there was one.
pub(crate) async fn splice_watched(
    client: &TcpStream,
    host: &TcpStream,
    to_host: Vec<u8>,
    meter: &Meter,
    mut watch: Foreign,
) -> io::Result<()> {
    let denied = |_| io::Error::from(io::ErrorKind::PermissionDenied);
    let sent = async {
        let (mut piece, mut is_over) = (to_host, false);
        loop {
            meter.count(Direction::Sent, piece.len())?;
            let mut passes = watch.push(&piece).map_err(denied)?;
            if is_over {
                passes.extend(watch.finish());
            }
            write_all(host, &passes).await?;
            if is_over {
                return Ok(rustix::net::shutdown(host, Shutdown::Write)?);
            }
            client.readable().await?;
            piece = Vec::with_capacity(BUFFER);
            match client.try_read_buf(&mut piece) {
                Ok(length) => is_over = length == 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    let both = async { tokio::try_join!(sent, pump(host, client, Vec::new(), Direction::Received, meter)) };
    until_idle(both, meter).await
}

async fn until_idle<T>(both: impl Future<Output = io::Result<T>>, meter: &Meter) -> io::Result<()> {
    tokio::select! {
        done = both => done.map(|_| ()),
        () = meter.idle() => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Passes bytes in one direction until it is closed, and closes the other side's half then.
async fn pump(from: &TcpStream, to: &TcpStream, first: Vec<u8>, direction: Direction, meter: &Meter) -> io::Result<()> {
    let mut waiting = first;
    meter.count(direction, waiting.len())?;
    loop {
        write_all(to, &waiting).await?;
        waiting = Vec::new();
        tokio::task::coop::consume_budget().await;
        from.readable().await?;
        let passed = SHARED.with_borrow_mut(|buffer| pass(from, to, buffer, direction, meter));
        match passed {
            Ok(None) => return Ok(rustix::net::shutdown(to, Shutdown::Write)?),
            Ok(Some(rest)) => waiting = rest,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads once and writes what the receiver takes. Returns what it did not take; `None`: the sender has closed.
fn pass(
    from: &TcpStream,
    to: &TcpStream,
    buffer: &mut [u8],
    direction: Direction,
    meter: &Meter,
) -> io::Result<Option<Vec<u8>>> {
    let read = from.try_read(buffer)?;
    if read == 0 {
        return Ok(None);
    }
    meter.count(direction, read)?;
    let mut rest = buffer.get(..read).unwrap_or_default();
    while !rest.is_empty() {
        match to.try_write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Some(rest.to_vec()))
}

/// Writes all bytes.
pub(crate) async fn write_all(to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

//! Bounds the connections of a listener, and the time in which one has to say whose it is, so that nobody can take the descriptors of the process away.
//!
//! A connection is known once a request on it has been authenticated. Of those that are not, the oldest gives way to a new one: a caller who has a
//! credential sends it with the first request, some milliseconds after connecting.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{Stream, StreamExt as _, task::AtomicWaker};
use http::{Request, Response};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tonic::{body::Body, transport::server::Connected};

use crate::middleware::{Middleware, ResponseFuture};

/// How long a connection may take until a request on it has been authenticated.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// The most connections of a listener, if the process may open enough files.
const MAX_CONNECTIONS: usize = 16_384;

/// The limits of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// All connections. More are closed as they come.
    pub(crate) all: usize,
    /// The connections of callers that are not known yet. The oldest is closed for one more.
    pub(crate) unknown: usize,
    pub(crate) first_request: Duration,
}

impl Bounds {
    /// A process has up to four listeners and needs files for its work: each gets an eighth of the files that it may open, and a quarter of that for
    /// callers that are not known.
    pub(crate) fn of_files(files: usize) -> Self {
        let all = (files / 8).clamp(16, MAX_CONNECTIONS);
        Self { all, unknown: (all / 4).min(1_024), first_request: FIRST_REQUEST }
    }

    /// By what this process may open now.
    pub(crate) fn of_process() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Self::of_files(files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX))
    }
}

/// The knowledge about one connection.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    is_known: AtomicBool,
    is_closing: AtomicBool,
    waker: AtomicWaker,
}

impl Admission {
    /// A request on it has been authenticated.
    pub(crate) fn admit(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Ends the connection, whatever is open on it.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Whether it was told to end.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }
}

/// The connections of a listener.
#[derive(Debug)]
struct Connections {
    bounds: Bounds,
    count: AtomicUsize,
    /// The connections whose callers were not known when they were last looked at, the oldest first.
    unknown: Mutex<VecDeque<Weak<Admission>>>,
}

impl Connections {
    /// A place for one more; `None` when there is none.
    fn enter(self: &Arc<Self>) -> Option<(ConnectionSlot, Arc<Admission>)> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.bounds.all {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let admission = Arc::new(Admission::default());
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.retain(|one| one.upgrade().is_some_and(|one| !one.is_known()));
        if unknown.len() >= self.bounds.unknown
            && let Some(oldest) = unknown.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.close();
        }
        unknown.push_back(Arc::downgrade(&admission));
        Some((ConnectionSlot(Arc::clone(self)), admission))
    }
}

/// A connection's place, until this is dropped.
#[derive(Debug)]
struct ConnectionSlot(Arc<Connections>);

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connections of a listener within the bounds.
pub(crate) fn bounded<C>(
    incoming: impl Stream<Item = io::Result<C>>,
    bounds: Bounds,
) -> impl Stream<Item = io::Result<BoundedConnection<C>>> {
    let connections = Arc::new(Connections { bounds, count: AtomicUsize::new(0), unknown: Mutex::default() });
    incoming.filter_map(move |accepted| {
        let bounded = match accepted {
            Err(error) => Some(Err(error)),
            Ok(inner) => match connections.enter() {
                Some((place, admission)) => {
                    let until = Some(Box::pin(tokio::time::sleep(bounds.first_request)));
                    Some(Ok(BoundedConnection { inner, until, admission, _place: place }))
                }
                None => {
                    tracing::warn!(
                        limit = bounds.all,
                        "A listener has as many connections as it may; one more is closed"
                    );
                    None
                }
            },
        };
        std::future::ready(bounded)
    })
}

/// A connection that ends when its caller does not become known in time.
pub(crate) struct BoundedConnection<C> {
    inner: C,
    /// Until the connection is known.
    until: Option<Pin<Box<Sleep>>>,
    admission: Arc<Admission>,
    _place: ConnectionSlot,
}

impl<C> BoundedConnection<C> {
    /// Fails when the connection was told to end; otherwise it is polled again then.
    fn check(&self, context: &mut Context<'_>) -> io::Result<()> {
        self.admission.waker.register(context.waker());
        if self.admission.is_closing() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for BoundedConnection<C> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check(context)?;
        if this.admission.is_known() {
            this.until = None;
        } else if let Some(until) = &mut this.until
            && until.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut this.inner).poll_read(context, buffer)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for BoundedConnection<C> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

/// The transport's information on a connection, and whether its caller is known.
#[derive(Clone, Debug)]
pub(crate) struct BoundedInfo<I> {
    info: I,
    admission: Arc<Admission>,
}

impl<C: Connected> Connected for BoundedConnection<C> {
    type ConnectInfo = BoundedInfo<C::ConnectInfo>;

    fn connect_info(&self) -> Self::ConnectInfo {
        BoundedInfo { info: self.inner.connect_info(), admission: Arc::clone(&self.admission) }
    }
}

/// Gives requests what the transport says of their connection, and the connection's [`Admission`], whose type is the same for all transports.
#[derive(Debug)]
pub(crate) struct PassInfo<I>(pub(crate) std::marker::PhantomData<fn() -> I>);

impl<I> Clone for PassInfo<I> {
    fn clone(&self) -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<I: Clone + Send + Sync + 'static> Middleware for PassInfo<I> {
    fn handle<F, E>(&self, mut request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        if let Some(BoundedInfo { info, admission }) = request.extensions_mut().remove::<BoundedInfo<I>>() {
            request.extensions_mut().insert(info);
            request.extensions_mut().insert(admission);
        }
        Box::pin(next(request))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    use super::*;

    fn bounds(all: usize, unknown: usize) -> Bounds {
        Bounds { all, unknown, first_request: FIRST_REQUEST }
    }

    async fn accepted(count: usize, bounds: Bounds) -> (Vec<BoundedConnection<DuplexStream>>, Vec<DuplexStream>) {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..count).map(|_| duplex(64)).unzip();
        let incoming = futures::stream::iter(ours.into_iter().map(Ok));
        let accepted: Vec<_> = bounded(incoming, bounds).map(|one| one.unwrap()).collect().await;
        (accepted, theirs)
    }

    /// Whether reading it says that it is over.
    async fn is_over(connection: &mut BoundedConnection<DuplexStream>) -> bool {
        let read = tokio::time::timeout(Duration::from_millis(1), connection.read_u8()).await;
        read.is_ok_and(|read| read.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut))
    }

    #[test]
    fn listeners_leave_files_for_the_work() {
        let bounds = [1_024, 4_096, 524_288, usize::MAX].map(Bounds::of_files);
        assert_eq!(
            bounds.map(|bounds| (bounds.all, bounds.unknown)),
            [(128, 32), (512, 128), (16_384, 1_024), (16_384, 1_024)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_stays_unknown_ends() {
        let (mut accepted, _theirs) = accepted(2, bounds(10, 10)).await;
        accepted[1].admission.admit();
        tokio::time::sleep(FIRST_REQUEST / 2).await;
        assert!(!is_over(&mut accepted[0]).await && !is_over(&mut accepted[1]).await);
        tokio::time::sleep(FIRST_REQUEST / 2).await;
        assert!(is_over(&mut accepted[0]).await, "its time is over");
        assert!(!is_over(&mut accepted[1]).await, "it is known");
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_unknown_one_gives_way_and_known_ones_stay() {
        let (ours, _theirs): (Vec<_>, Vec<_>) = (0..5).map(|_| duplex(64)).unzip();
        let mut incoming = Box::pin(bounded(futures::stream::iter(ours.into_iter().map(Ok)), bounds(10, 2)));
        let mut accepted = Vec::new();
        while let Some(one) = incoming.next().await {
            let one = one.unwrap();
            if accepted.is_empty() {
                one.admission.admit();
            }
            accepted.push(one);
        }
        let mut over = Vec::new();
        for one in &mut accepted {
            over.push(is_over(one).await);
        }
        assert_eq!(over, [false, true, true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn more_connections_than_the_limit_are_closed_until_one_ends() {
        let (ours, mut theirs): (Vec<_>, Vec<_>) = (0..4).map(|_| duplex(64)).unzip();
        let mut incoming = Box::pin(bounded(futures::stream::iter(ours.into_iter().map(Ok)), bounds(2, 2)));
        let first = incoming.next().await.unwrap().unwrap();
        let _second = incoming.next().await.unwrap().unwrap();
        drop(first);
        let _third = incoming.next().await.expect("the place of the first is free").unwrap();
        assert!(incoming.next().await.is_none(), "the fourth is not passed on");
        assert_eq!(theirs[3].read(&mut [0; 1]).await.unwrap(), 0, "and closed");
    }
}

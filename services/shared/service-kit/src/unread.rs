//! Bounds the memory that holds answers which a caller asked for and does not read.
//!
//! A transport asks a body for more when its peer has taken what came before. A part that is handed to it and not followed by a request for more is in this
//! process's memory for as long as the peer likes. Of each principal that is at most [`MAX_UNREAD`] on one listener: beyond it, the connection that holds the
//! most of it is closed. A caller that comes back continues at its cursor; nothing is lost.

use std::{
    collections::HashMap,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body, codegen::Bytes};

use crate::{
    connections::Admission,
    middleware::{Middleware, ResponseFuture},
    principal::Principal,
};

/// How many bytes one principal may leave unread on one listener: eight of the largest messages.
const MAX_UNREAD: usize = 8 * crate::limits::MAX_MESSAGE_BYTES;

/// The size of an unread answer beside the part that was handed to the transport, in bytes: the page that a watch has read.
const OVERHEAD: usize = 64 * 1024;

/// Counts what each principal does not read. Services are not counted: they read what they ask each other.
#[derive(Clone, Debug)]
pub(crate) struct UnreadCounter {
    max: usize,
    principals: Arc<Mutex<HashMap<String, Weak<Share>>>>,
}

impl Default for UnreadCounter {
    fn default() -> Self {
        Self { max: MAX_UNREAD, principals: Arc::default() }
    }
}

/// The unread bytes of one principal.
#[derive(Debug)]
struct Share {
    principal: String,
    max: usize,
    unread: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    bytes: usize,
    /// By the address of each, those connections that hold some.
    connections: HashMap<usize, (Arc<Admission>, usize)>,
}

impl UnreadCounter {
    fn share(&self, principal: String) -> Arc<Share> {
        let mut principals = lock(&self.principals);
        if let Some(share) = principals.get(&principal).and_then(Weak::upgrade) {
            return share;
        }
        principals.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Share { principal: principal.clone(), max: self.max, unread: Mutex::default() });
        principals.insert(principal, Arc::downgrade(&share));
        share
    }
}

impl Share {
    /// An answer on this connection holds `after` bytes instead of `before`.
    fn change(&self, connection: &Arc<Admission>, before: usize, after: usize) {
        let mut unread = lock(&self.unread);
        let Parts { bytes, connections } = &mut *unread;
        *bytes = *bytes + after - before;
        let key = Arc::as_ptr(connection).addr();
        let of_connection = connections.entry(key).or_insert_with(|| (Arc::clone(connection), 0));
        of_connection.1 = of_connection.1 + after - before;
        if of_connection.1 == 0 {
            connections.remove(&key);
        }
        if after < before || *bytes <= self.max {
            return;
        }
        // What a connection holds that is being closed, comes back by itself.
        let open = || connections.values().filter(|(connection, _)| !connection.is_closing());
        if open().map(|(_, held)| held).sum::<usize>() <= self.max {
            return;
        }
        let Some((largest, held)) = open().max_by_key(|(_, held)| *held) else { return };
        tracing::warn!(
            principal = self.principal,
            unread = held,
            limit = self.max,
            "A client does not read what it has asked for; its connection is closed"
        );
        largest.close();
    }
}

impl Middleware for UnreadCounter {
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let connection = request.extensions().get::<Arc<Admission>>().cloned();
        let principal = request.extensions().get::<Principal>().filter(|one| !matches!(one, Principal::Service(_)));
        let counted = principal.map(|principal| self.share(principal.to_string())).zip(connection);
        let answer = next(request);
        let Some((share, connection)) = counted else { return Box::pin(answer) };
        Box::pin(async move {
            let (head, inner) = answer.await?.into_parts();
            let mut body = CountedBody { inner, first: None, share, connection, held: 0 };
            // What the method has answered is encoded, and counted, also when the peer takes nothing of it.
            poll_fn(|context| {
                body.first = match Pin::new(&mut body).poll_next(context) {
                    Poll::Ready(first) => Some(first),
                    Poll::Pending => None,
                };
                Poll::Ready(())
            })
            .await;
            Ok(Response::from_parts(head, Body::new(body)))
        })
    }
}

/// An answer whose unread part is counted.
struct CountedBody {
    inner: Body,
    /// The first frame of the answer, until it is taken.
    first: Option<Option<Result<Frame<Bytes>, Status>>>,
    share: Arc<Share>,
    connection: Arc<Admission>,
    held: usize,
}

impl CountedBody {
    fn hold(&mut self, bytes: usize) {
        if bytes != self.held {
            self.share.change(&self.connection, self.held, bytes);
            self.held = bytes;
        }
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(context);
        let data = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref(),
            Poll::Ready(_) | Poll::Pending => None,
        };
        let bytes = data.map_or(0, |bytes| bytes.len() + OVERHEAD);
        this.hold(bytes);
        polled
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(first),
            None => self.poll_next(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.first {
            None => self.inner.is_end_stream(),
            // Polled already: a refusal has no body, and has to end with its head. A client of gRPC's C core takes a status for lost whose stream ends later.
            Some(first) => first.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.hold(0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::principal::Service;

    /// An answer with these parts.
    struct Answer(Vec<usize>);

    impl HttpBody for Answer {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.0.is_empty() {
                true => Poll::Pending,
                false => Poll::Ready(Some(Ok(Frame::data(vec![0; self.0.remove(0)].into())))),
            }
        }
    }

    fn ask(unread: &UnreadCounter, principal: Principal, connection: &Arc<Admission>, parts: &[usize]) -> Body {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(principal);
        request.extensions_mut().insert(Arc::clone(connection));
        let parts = parts.to_vec();
        let next = |_| async move { Ok::<_, Status>(Response::new(Body::new(Answer(parts)))) };
        unread.handle(request, next).now_or_never().unwrap().unwrap().into_body()
    }

    fn read(body: &mut Body) -> Option<usize> {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).now_or_never()?;
        Some(frame.unwrap().unwrap().into_data().unwrap().len())
    }

    fn person(name: &str) -> Principal {
        Principal::person(name, [])
    }

    const PART: usize = 1_000_000;

    #[test]
    fn an_answer_without_a_body_ends_with_its_head() {
        let (unread, connection) = (UnreadCounter::default(), Arc::<Admission>::default());
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(person("ann"));
        request.extensions_mut().insert(connection);
        let next = |_| async move { Ok::<_, Status>(Status::not_found("gone").into_http::<Body>()) };
        let refused = unread.handle(request, next).now_or_never().unwrap().unwrap();
        assert_eq!(refused.headers()["grpc-status"], "5");
        assert!(refused.body().is_end_stream());
        // One with a body goes on.
        let answered = ask(&unread, person("ann"), &Arc::default(), &[1]);
        assert!(!answered.is_end_stream());
    }

    #[test]
    fn the_connection_that_reads_least_is_closed_and_no_other() {
        let unread = UnreadCounter { max: 10 * PART, principals: Arc::default() };
        let connections: [Arc<Admission>; 4] = Default::default();
        let [idle, busy, of_another, of_a_service] = &connections;
        let mut bodies: Vec<Body> = (0..7).map(|_| ask(&unread, person("ann"), idle, &[PART; 3])).collect();
        let mut read_on = ask(&unread, person("ann"), busy, &[PART; 100]);
        for _ in 0..100 {
            assert_eq!(read(&mut read_on), Some(PART));
        }
        assert_eq!(read(&mut read_on), None, "all was read, and is counted no more");
        let others: Vec<Body> = (0..9).map(|_| ask(&unread, person("bob"), of_another, &[PART])).collect();
        let services: Vec<Body> =
            (0..30).map(|_| ask(&unread, Principal::Service(Service::Executor), of_a_service, &[PART])).collect();
        assert!(connections.iter().all(|connection| !connection.is_closing()));
        bodies.extend((0..2).map(|_| ask(&unread, person("ann"), busy, &[PART])));
        bodies.extend((0..2).map(|_| ask(&unread, person("ann"), idle, &[PART])));
        let closing: Vec<bool> = connections.iter().map(|connection| connection.is_closing()).collect();
        assert_eq!(closing, [true, false, false, false]);
        drop((bodies, others, services, read_on));
        let again = ask(&unread, person("ann"), busy, &[PART]);
        assert_eq!(lock(&unread.share("person:ann".into()).unread).bytes, PART + OVERHEAD, "the rest was given back");
        drop(again);
    }
}

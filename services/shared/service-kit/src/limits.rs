//! Limits of one listener: messages up to [`MAX_MESSAGE_BYTES`], and a memory budget for all messages together.
//!
//! A request beyond the budget is rejected with RESOURCE_EXHAUSTED and a delay before any of its message is buffered, so a caller that sends
//! much at once delays other callers but cannot exhaust memory. tonic reports a message that cannot be decoded as INTERNAL; here it becomes
//! INVALID_ARGUMENT, because the caller is at fault.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use belay_reasons as reasons;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Status, body::Body, codegen::Bytes};

use crate::{
    contract,
    middleware::{Middleware, ResponseFuture, refuse},
    principal::Principal,
    status,
};

/// The largest message that is decoded, in bytes: above every limit on a field, so that the error names the field.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// The bytes of messages that requests may hold at once on one listener: eight of the largest.
const BUDGET: usize = 8 * MAX_MESSAGE_BYTES;
/// The fixed cost of each request in addition to its message, in bytes.
const OVERHEAD: usize = 1024;
/// The retry delay for a caller beyond the budget.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A message's header: whether it is compressed, and its length.
const HEADER: usize = 5;

/// Bounds the memory that the requests of one listener hold together.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    budget: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { budget: Arc::new(Semaphore::new(BUDGET)) }
    }
}

/// The part of the budget that a request holds for the message being read or served.
type HeldBudget = Arc<Mutex<Option<OwnedSemaphorePermit>>>;

impl Middleware for Limits {
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let Ok(counts) = take(&self.budget, OVERHEAD) else { return refuse(overloaded()) };
        let revision = request.headers().get(&belay_proto::contract::HEADER).cloned();
        let held = HeldBudget::default();
        let request = request.map(|inner| {
            let (budget, held) = (Arc::clone(&self.budget), Arc::clone(&held));
            Body::new(BudgetedBody { inner, budget, held, header: [0; HEADER], read: 0, left: 0 })
        });
        let answer = next(request);
        Box::pin(async move {
            let answer = answer.await;
            // A streamed response no longer holds the caller's message.
            held.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(counts);
            answer.map(|response| contract::respond(rephrased(response), revision.as_ref()))
        })
    }
}

fn take(budget: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, Status> {
    let permits = u32::try_from(bytes).expect("a message is smaller than 4 GiB");
    Arc::clone(budget).try_acquire_many_owned(permits).map_err(|_| overloaded())
}

fn overloaded() -> Status {
    let message = format!(
        "The service is already processing {BUDGET} bytes of requests, which is its limit: retry in {} s.",
        RETRY_AFTER.as_secs()
    );
    status::error(Code::ResourceExhausted, reasons::OVERLOADED, message).retry_after(RETRY_AFTER).into()
}

/// A limit on how many of something exist at once, from the operator's settings.
#[derive(Clone, Debug)]
pub struct Limit {
    setting: &'static str,
    what: &'static str,
    allowed: usize,
    free: Arc<Semaphore>,
    /// How many each principal has, of those that have some.
    principals: Arc<Mutex<HashMap<String, usize>>>,
}

/// A unit of a [`Limit`], held until it is dropped.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
    _by: Option<PrincipalSlot>,
}

/// A unit that a principal has.
#[derive(Debug)]
struct PrincipalSlot {
    principal: String,
    principals: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for PrincipalSlot {
    fn drop(&mut self) {
        let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = principals.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                principals.remove(&self.principal);
            }
        }
    }
}

impl Limit {
    /// `setting` names the limit in the operator's settings, `what` in a sentence: "calls", "open approvals".
    #[must_use]
    pub fn new(setting: &'static str, what: &'static str, allowed: u32) -> Self {
        let allowed = usize::try_from(allowed).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        Self { setting, what, allowed, free: Arc::new(Semaphore::new(allowed)), principals: Arc::default() }
    }

    /// Takes one unit.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the limit and a delay.
    pub fn take(&self) -> Result<Permit, Status> {
        match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => Ok(Permit { _permit: permit, _by: None }),
            Err(_) => Err(self.is_reached()),
        }
    }

    /// Takes one unit for a principal, who may have three quarters of them, so that the rest is left for others.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the limit and a delay.
    pub fn take_for(&self, principal: &Principal) -> Result<Permit, Status> {
        let taken = self.take()?;
        if matches!(principal, Principal::Service(_)) {
            return Ok(taken);
        }
        let (principal, most) = (principal.to_string(), self.allowed.saturating_mul(3).div_ceil(4));
        let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        let count = principals.entry(principal.clone()).or_default();
        if *count >= most {
            let Self { setting, what, .. } = self;
            let message = format!(
                "`{principal}` has {most} {what}, three quarters of the service's limit (`{setting}`), which is all that one principal gets: end some \
                 of them, or retry in {} s.",
                RETRY_AFTER.as_secs()
            );
            return Err(refusal(setting, most, message));
        }
        *count += 1;
        drop(principals);
        let by = PrincipalSlot { principal, principals: Arc::clone(&self.principals) };
        Ok(Permit { _by: Some(by), ..taken })
    }

    /// Checks a count that the caller keeps itself: `now` exist already.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the limit and a delay.
    pub fn check(&self, now: usize) -> Result<(), Status> {
        if now < self.allowed { Ok(()) } else { Err(self.is_reached()) }
    }

    fn is_reached(&self) -> Status {
        Self::reached(self.setting, self.what, self.allowed)
    }

    /// The refusal of one more than the limit `setting` allows: RESOURCE_EXHAUSTED with the limit and a delay.
    #[must_use]
    pub fn reached(setting: &str, what: &str, allowed: usize) -> Status {
        let message = format!(
            "The service has {allowed} {what}, which is its limit (`{setting}`): retry in {} s.",
            RETRY_AFTER.as_secs()
        );
        refusal(setting, allowed, message)
    }
}

fn refusal(setting: &str, allowed: usize, message: String) -> Status {
    let error = status::error(Code::ResourceExhausted, reasons::LIMIT_REACHED, message).retry_after(RETRY_AFTER);
    error.with("limit", setting).with("allowed", allowed).into()
}

fn too_large(length: usize) -> Status {
    let message = format!("The message has {length} bytes and the limit is {MAX_MESSAGE_BYTES}: send less at once.");
    let error = status::error(Code::ResourceExhausted, reasons::MESSAGE_TOO_LARGE, message);
    error.with("limit_bytes", MAX_MESSAGE_BYTES).into()
}

/// Replaces code and reason of a response that tonic created about the caller's message.
fn rephrased(answer: Response<Body>) -> Response<Body> {
    let status = Status::from_header_map(answer.headers());
    status.as_ref().and_then(rephrased_status).map_or(answer, Status::into_http)
}

/// The status with code and reason, if `status` is tonic's own about a message of the caller that cannot be decoded or is too large. Streams of
/// requests need it: their errors are not in a response's headers.
pub fn rephrased_status(status: &Status) -> Option<Status> {
    /// How tonic's messages begin when a request's message cannot be decoded.
    const UNREADABLE: [&str; 4] = [
        "failed to decode Protobuf message",
        "protocol error: received message",
        "Unexpected EOF decoding stream",
        "Missing request message",
    ];
    if !status.details().is_empty() {
        return None;
    }
    let message = status.message();
    match status.code() {
        Code::Internal if UNREADABLE.iter().any(|begins| message.starts_with(begins)) => {
            let message = format!("The message is not a valid request of this method: {message}.");
            Some(status::error(Code::InvalidArgument, reasons::MESSAGE_MALFORMED, message).into())
        }
        // A service with a lower limit, or a compressed message: tonic's message names both numbers.
        Code::OutOfRange if message.contains("decoded message length too large") => {
            Some(status::error(Code::ResourceExhausted, reasons::MESSAGE_TOO_LARGE, format!("{message}.")).into())
        }
        _ => None,
    }
}

/// A request body that counts the bytes of its messages as they arrive.
struct BudgetedBody {
    inner: Body,
    budget: Arc<Semaphore>,
    held: HeldBudget,
    header: [u8; HEADER],
    /// How much of the header has arrived.
    read: usize,
    /// How much of the message is still to come.
    left: usize,
}

impl BudgetedBody {
    fn count(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        while !bytes.is_empty() {
            let of_message = self.left.min(bytes.len());
            self.left -= of_message;
            bytes = &bytes[of_message..];
            let of_header = (HEADER - self.read).min(bytes.len());
            self.header[self.read..self.read + of_header].copy_from_slice(&bytes[..of_header]);
            self.read += of_header;
            bytes = &bytes[of_header..];
            if self.read == HEADER {
                let [_, length @ ..] = self.header;
                let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                if length > MAX_MESSAGE_BYTES {
                    return Err(too_large(length));
                }
                let permit = take(&self.budget, length)?;
                *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
                (self.left, self.read) = (length, 0);
            }
        }
        Ok(())
    }
}

impl HttpBody for BudgetedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            if let Some(bytes) = frame.data_ref() {
                this.count(bytes)?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tonic::{body::Body, transport::Channel};
    use tonic_types::StatusExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{Access, HostedServices, Shutdown, net};

    /// The first bytes of a request, after which nothing comes any more; or the whole of it.
    struct SentRequest {
        first: Option<Bytes>,
        whole: bool,
    }

    impl HttpBody for SentRequest {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.first.take() {
                Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
                None if self.whole => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    fn message(length: usize, content: &[u8]) -> Bytes {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
        bytes.extend(content);
        bytes.into()
    }

    /// Sends these bytes as a request to the health service, which is hosted behind the same limits as any other.
    async fn send(channel: Channel, first: Bytes, whole: bool) -> Result<(), Status> {
        let request = Request::post("http://localhost/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(SentRequest { first: Some(first), whole }))
            .unwrap();
        let answer = channel.oneshot(request).await.map_err(|error| Status::unknown(error.to_string()))?;
        Status::from_header_map(answer.headers()).filter(|status| status.code() != Code::Ok).map_or(Ok(()), Err)
    }

    fn listen(folder: &std::path::Path) -> (Channel, crate::Trigger) {
        let path = folder.join("s");
        let incoming = net::UnixSocket::bind(&path).unwrap().incoming();
        let (trigger, stop) = Shutdown::new();
        let nothing = HostedServices::new(
            tonic::service::Routes::default(),
            "test.Nothing",
            tonic_health::pb::FILE_DESCRIPTOR_SET,
        );
        tokio::spawn(crate::host::serve(incoming, nothing, Access::unauthenticated_person("test"), stop));
        (net::connect_lazy(&net::Address::Unix(path)), trigger)
    }

    fn refusal(result: Result<(), Status>) -> (Code, String) {
        let status = result.unwrap_err();
        (status.code(), status::reason(&status).unwrap_or_default())
    }

    #[tokio::test]
    async fn what_is_too_large_or_cannot_be_read_is_the_callers_fault() {
        let folder = tempfile::tempdir().unwrap();
        let (channel, _trigger) = listen(folder.path());
        assert!(send(channel.clone(), message(0, b""), true).await.is_ok());
        let large = send(channel.clone(), message(MAX_MESSAGE_BYTES + 1, b"x"), false).await.unwrap_err();
        assert!(large.message().contains("16777217 bytes and the limit is 16777216"), "{large:?}");
        assert_eq!(refusal(Err(large)), (Code::ResourceExhausted, "MESSAGE_TOO_LARGE".into()));
        let (huge, nothing) = (message(u32::MAX as usize, b""), Bytes::new());
        assert_eq!(refusal(send(channel.clone(), huge, false).await).1, "MESSAGE_TOO_LARGE");
        let malformed = (Code::InvalidArgument, "MESSAGE_MALFORMED".to_owned());
        for bytes in [
            // A field that ends before it has begun; text that is not UTF-8; less than was announced; an unknown flag; nothing at all.
            message(2, &[0x0a, 0x7f]),
            message(3, &[0x0a, 0x01, 0xff]),
            message(9, b"x"),
            Bytes::from_static(&[7, 0, 0, 0, 0]),
            nothing,
        ] {
            assert_eq!(refusal(send(channel.clone(), bytes.clone(), true).await), malformed, "{bytes:?}");
        }
        assert!(send(channel, message(0, b""), true).await.is_ok(), "the connection is as good as before");
    }

    #[tokio::test]
    async fn a_hundred_large_requests_at_once_are_rejected_and_release_their_budget() {
        let folder = tempfile::tempdir().unwrap();
        let (channel, _trigger) = listen(folder.path());
        // As large as the health service takes.
        const LARGE: usize = 4 << 20;
        let large = || Box::pin(send(channel.clone(), message(LARGE, b"x"), false));
        let mut asked: Vec<_> = (0..100).map(|_| large()).collect();
        let mut refused = 0;
        // Those that fit wait for the rest of their message; all others are answered.
        while refused < 100 - (BUDGET / LARGE - 1) {
            let (status, _, rest) = futures::future::select_all(asked).await;
            let status = status.unwrap_err();
            assert_eq!(
                (status.code(), status::reason(&status).as_deref()),
                (Code::ResourceExhausted, Some("OVERLOADED"))
            );
            assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(RETRY_AFTER));
            refused += 1;
            asked = rest;
        }
        assert!(send(channel.clone(), message(0, b""), true).await.is_ok(), "small ones still pass");
        drop(asked);
        // What they held is free again as soon as their streams are reset.
        let mut again = large();
        loop {
            tokio::select! {
                status = &mut again => {
                    assert_eq!(refusal(status).1, "OVERLOADED");
                    again = large();
                }
                answer = send(channel.clone(), message(3, &[0x0a, 0x01, 0xff]), true) => {
                    assert_eq!(refusal(answer).1, "MESSAGE_MALFORMED");
                    break;
                }
            }
        }
    }
}

//! Cuts refusals to what clients take.
//!
//! A status travels in headers, and a client ends the whole connection for headers that are larger than it takes: 16 KiB, and 8 KiB with gRPC for Java
//! or Python. A message repeats what its caller wrote, which may be as large as a request. So this stands around everything that answers, also around what
//! tonic and other middleware refuse, and no message needs a limit of its own.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body, codegen::Bytes};
use tonic_types::{FieldViolation, StatusExt as _};

use crate::middleware::{Middleware, ResponseFuture};

/// How long a status may be as headers, in bytes: 8 KiB without what else is in the headers.
const MAX_BYTES: usize = 7 * 1024;
/// The lengths to which each text of a status is cut in turn, in characters, until it fits.
const LENGTHS: [usize; 3] = [600, 150, 40];
/// The text in place of the violations that do not fit.
const NOT_LISTED: &str = "more problems are not listed, because the refusal would be too large";

/// Cuts the refusals of all that it wraps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fitting;

impl Middleware for Fitting {
    fn handle<F, E>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> ResponseFuture<E>
    where
        F: Future<Output = Result<Response<Body>, E>> + Send + 'static,
        E: Send + 'static,
    {
        let answer = next(request);
        Box::pin(async move {
            let (mut head, inner) = answer.await?.into_parts();
            let is_refused = head.headers.contains_key(Status::GRPC_STATUS);
            fit(&mut head.headers);
            // After a status in the headers nothing follows.
            let body = if is_refused { inner } else { Body::new(FittedBody(inner)) };
            Ok(Response::from_parts(head, body))
        })
    }
}

/// An answer whose status fits, if it ends with one.
struct FittedBody(Body);

impl HttpBody for FittedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = ready!(Pin::new(&mut self.0).poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            fit(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Cuts the status in these headers, if they have one that is too large.
fn fit(headers: &mut HeaderMap) {
    if length(headers) <= MAX_BYTES {
        return;
    }
    let Some(status) = Status::from_header_map(headers) else { return };
    for name in [Status::GRPC_MESSAGE, Status::GRPC_STATUS_DETAILS] {
        headers.remove(name);
    }
    headers.extend(fitted(&status));
}

/// How long the status in these headers is there.
fn length(headers: &HeaderMap) -> usize {
    let lengths =
        [Status::GRPC_MESSAGE, Status::GRPC_STATUS_DETAILS].map(|name| headers.get(name).map(|value| value.len()));
    lengths.into_iter().flatten().sum()
}

/// The headers of a status, with its texts cut and as many violations as fit.
fn fitted(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for longest in LENGTHS {
        let all = violations(status).len();
        // The more of them, the longer: the most that fit are found by halves.
        let (mut fits, mut too_many) = (0, all + 1);
        while too_many - fits > 1 {
            let count = usize::midpoint(fits, too_many);
            if length(&cut(status, longest, count)) <= MAX_BYTES { fits = count } else { too_many = count }
        }
        headers = cut(status, longest, fits);
        if length(&headers) <= MAX_BYTES && (fits > 0 || all == 0) {
            break;
        }
    }
    headers
}

fn violations(status: &Status) -> Vec<FieldViolation> {
    status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default()
}

/// The headers of a status in which each text has at most `longest` characters, with the first `count` violations.
fn cut(status: &Status, longest: usize, count: usize) -> HeaderMap {
    let mut details = status.get_error_details();
    if let Some(info) = details.error_info().cloned() {
        let metadata: Vec<_> =
            info.metadata.into_iter().map(|(key, value)| (key, shortened(&value, longest))).collect();
        details.set_error_info(
            info.reason,
            info.domain,
            metadata.into_iter().collect::<std::collections::HashMap<_, _>>(),
        );
    }
    let all = violations(status);
    if !all.is_empty() {
        let mut kept: Vec<FieldViolation> = all.iter().take(count).cloned().collect();
        for violation in &mut kept {
            violation.field = shortened(&violation.field, longest);
            violation.description = shortened(&violation.description, longest);
        }
        if count < all.len() {
            kept.push(FieldViolation::new("", NOT_LISTED));
        }
        details.set_bad_request(kept);
    }
    let message = shortened(status.message(), longest);
    let status = match status.details().is_empty() {
        true => Status::new(status.code(), message),
        false => Status::with_error_details(status.code(), message, details),
    };
    let mut headers = HeaderMap::new();
    if let Err(invalid) = status.add_header(&mut headers) {
        tracing::error!(%invalid, "A status cannot be sent");
    }
    headers
}

/// A text without its middle: it begins with what is wrong, and ends with what to do.
fn shortened(text: &str, longest: usize) -> String {
    let count = text.chars().count();
    if count <= longest {
        return text.to_owned();
    }
    let (first, last) = (longest * 2 / 3, longest / 3);
    let at = |index| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    let left_out = count - first - last;
    format!("{} … {left_out} characters … {}", &text[..at(first)], &text[at(count - last)..])
}

#[cfg(test)]
mod tests {
    use belay_reasons as reasons;
    use futures::FutureExt as _;
    use tonic::Code;

    use super::*;
    use crate::status;

    fn sent(status: Status) -> (usize, Status) {
        let next = |_| async move { Ok::<_, Status>(status.into_http()) };
        let answer = Fitting.handle(Request::new(Body::empty()), next).now_or_never().unwrap().unwrap();
        (length(answer.headers()), Status::from_header_map(answer.headers()).unwrap())
    }

    #[test]
    fn what_fits_is_sent_as_it_is() {
        let message = "ä".repeat(300);
        let refused = Status::from(status::invalid("name", &message).with("name", &message));
        let (_, received) = sent(refused.clone());
        assert_eq!((received.message(), received.details()), (refused.message(), refused.details()));
    }

    #[test]
    fn a_word_of_any_length_is_cut_in_every_text_of_a_refusal() {
        for letter in ["a", "ä", "\u{1f600}", "\n", "%"] {
            let word = letter.repeat(1 << 20);
            let message = format!("`{word}` does not exist: look at the list.");
            let error = status::error(Code::NotFound, reasons::EXECUTION_NOT_FOUND, &message);
            let facts = ["name", "parent", "step", "path", "tool"];
            let error = facts.iter().fold(error, |error, fact| error.with(fact, &word));
            let error = error.field(format!("labels[{word}]"), &message).retry_after(std::time::Duration::from_secs(3));
            let (bytes, received) = sent(error.into());
            assert!(bytes <= MAX_BYTES, "{letter:?}: {bytes}");
            assert_eq!(
                (received.code(), status::reason(&received).as_deref()),
                (Code::NotFound, Some("EXECUTION_NOT_FOUND"))
            );
            assert!(received.message().starts_with(&format!("`{letter}{letter}")), "{}", received.message());
            assert!(received.message().ends_with("the list.") && received.message().contains(" characters … "));
            assert!(status::fact(&received, "name").unwrap().starts_with(letter));
            let [violation] = &violations(&received)[..] else { panic!("{received:?}") };
            assert!(violation.field.starts_with("labels["), "{violation:?}");
            assert!(status::retry_after(&received).is_some());
        }
        let (bytes, received) = sent(Status::internal("x".repeat(1 << 20)));
        assert!(bytes <= MAX_BYTES && received.details().is_empty() && received.message().contains(" … "));
    }

    #[test]
    fn as_many_violations_are_listed_as_fit() {
        let error = status::error(Code::InvalidArgument, reasons::PLAN_REFUSED, "The plan has problems.");
        let error = (0..100)
            .fold(error, |error, step| error.field(format!("steps[{step}].tool"), "no tool has this name. ".repeat(4)));
        let (bytes, received) = sent(error.into());
        let listed = violations(&received);
        assert!(bytes <= MAX_BYTES && listed.len() > 30, "{bytes} bytes, {} violations", listed.len());
        assert_eq!(
            (listed[0].field.as_str(), listed[listed.len() - 1].description.as_str()),
            ("steps[0].tool", NOT_LISTED)
        );
        assert_eq!(received.message(), "The plan has problems.");
    }

    #[test]
    fn the_status_at_the_end_of_a_stream_is_cut_too() {
        struct BodyEnd(Option<HeaderMap>);
        impl HttpBody for BodyEnd {
            type Data = Bytes;
            type Error = Status;

            fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Ready(self.0.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
        let mut trailers = HeaderMap::new();
        Status::aborted("x".repeat(1 << 20)).add_header(&mut trailers).unwrap();
        let next = |_| async move { Ok::<_, Status>(Response::new(Body::new(BodyEnd(Some(trailers))))) };
        let answer = Fitting.handle(Request::new(Body::empty()), next).now_or_never().unwrap().unwrap();
        let mut body = answer.into_body();
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).now_or_never().unwrap();
        let trailers = frame.unwrap().unwrap().into_trailers().unwrap();
        assert!(length(&trailers) <= MAX_BYTES);
        assert_eq!(Status::from_header_map(&trailers).unwrap().code(), Code::Aborted);
    }
}

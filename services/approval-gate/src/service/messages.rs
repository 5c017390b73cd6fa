//! The messages of a watch.

use std::pin::Pin;

use futures::Stream;
use tonic::Status;

pub(super) type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

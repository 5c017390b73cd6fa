//! What `http_request` and `fetch_url` share: requests that the proxy judges and makes. The runner resolves no name, opens no connection and speaks no TLS.

mod headers;
mod host;
mod session;
mod status;
mod url;

use std::time::Duration;

pub(super) use headers::{header, shown_headers};
pub(super) use host::HttpHost;
pub(super) use session::{Answered, Asked, Session, SessionWork};
pub(super) use status::{failed_status, is_failed};
pub(super) use url::HttpUrl;

/// The bytes of a body that a call gets unless it asks for others.
pub(super) const DEFAULT_BYTES: usize = 1 << 20;
/// How long a call that is stopped has to close its connection, and to have its account.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(2);

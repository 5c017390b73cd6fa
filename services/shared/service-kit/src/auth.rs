//! Who is asking. Every service asks this before anything else, on every method.

use std::{fmt, sync::Arc};

use thiserror::Error;
use tonic::{Request, Status, transport::server::UdsConnectInfo};

use crate::{net::Address, status};

/// Who is asking, as proved and not as claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal(pub String);

impl Principal {
    /// How the principals of services begin; those of persons do not.
    pub const SERVICE: &str = "service:";

    /// The principal of a request that has passed [`Access`].
    pub fn of<T>(request: &Request<T>) -> String {
        request.extensions().get::<Self>().map_or_else(|| "anonymous".to_owned(), |principal| principal.0.clone())
    }
}

/// Who may come in.
#[derive(Clone)]
pub enum Access {
    /// Whoever owns the process on the other end of the unix socket, if this is their uid. The kernel vouches for it.
    UnixUser(u32),
    /// Whoever shows this token as `authorization: Bearer …`.
    Token(Arc<str>),
    /// Everybody, under this name: tests and simulations.
    Everybody(Arc<str>),
    /// Whoever passes this check acts as this service, not as the person who started it: a door that only services know. Made by
    /// [`Access::for_service`].
    Service(Box<Access>, Arc<str>),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnixUser(uid) => write!(f, "UnixUser({uid})"),
            Self::Token(_) => f.write_str("Token([REDACTED])"),
            Self::Everybody(name) => write!(f, "Everybody({name})"),
            Self::Service(access, name) => write!(f, "Service({access:?}, {name})"),
        }
    }
}

/// A TCP listener without a token: every local user could reach it.
#[derive(Clone, Copy, Debug, Error)]
#[error(
    "listening on TCP needs a token that callers have to show, since every user of this machine can reach the port"
)]
pub struct TokenNeeded;

impl Access {
    /// What guards a listener: the token if there is one, else on a unix socket this process's own user.
    ///
    /// # Errors
    /// [`TokenNeeded`] for a TCP listener without a token.
    pub fn for_listener(address: &Address, token: Option<String>) -> Result<Self, TokenNeeded> {
        match (address, token) {
            (_, Some(token)) => Ok(Self::Token(token.into())),
            (Address::Unix(_), None) => Ok(Self::UnixUser(rustix::process::geteuid().as_raw())),
            (Address::Tcp(_), None) => Err(TokenNeeded),
        }
    }

    /// The same check, after which the caller is `service:NAME` and no person.
    #[must_use]
    pub fn for_service(self, name: &str) -> Self {
        Self::Service(Box::new(self), format!("{}{name}", Principal::SERVICE).into())
    }

    /// Lets a request in, with its principal in the extensions, or refuses it.
    ///
    /// # Errors
    /// UNAUTHENTICATED, saying what was missing.
    pub fn check(&self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let principal = self.principal(&request)?;
        request.extensions_mut().insert(Principal(principal));
        Ok(request)
    }

    fn principal(&self, request: &Request<()>) -> Result<String, Status> {
        Ok(match self {
            Self::UnixUser(uid) => {
                let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
                match peer.map(|peer| peer.uid()) {
                    // Root can read the state directory anyway.
                    Some(peer) if peer == *uid || peer == 0 => format!("unix:{peer}"),
                    Some(peer) => {
                        return Err(refused(&format!("The socket belongs to uid {uid}, and uid {peer} is asking.")));
                    }
                    None => return Err(refused("The connection does not say which user it comes from.")),
                }
            }
            Self::Token(token) => {
                let shown = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
                match shown.and_then(|value| value.strip_prefix("Bearer ")) {
                    Some(shown) if same(shown.as_bytes(), token.as_bytes()) => "token:local".to_owned(),
                    Some(_) => return Err(refused("The token is not the server's.")),
                    None => return Err(refused("Send the server's token as `authorization: Bearer …`.")),
                }
            }
            Self::Everybody(name) => name.to_string(),
            Self::Service(access, name) => {
                access.principal(request)?;
                name.to_string()
            }
        })
    }
}

fn refused(message: &str) -> Status {
    status::error(tonic::Code::Unauthenticated, "UNAUTHENTICATED", message).into()
}

/// Compares without telling by its time how much was right.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(authorization: Option<&str>) -> Request<()> {
        let mut request = Request::new(());
        if let Some(value) = authorization {
            request.metadata_mut().insert("authorization", value.parse().unwrap());
        }
        request
    }

    #[test]
    fn a_token_is_needed_and_has_to_be_right() {
        let access = Access::Token("secret".into());
        let request = access.check(with(Some("Bearer secret"))).unwrap();
        assert_eq!(Principal::of(&request), "token:local");
        for wrong in [None, Some("Bearer secre"), Some("Bearer secrex"), Some("secret"), Some("Bearer secrets")] {
            assert_eq!(access.check(with(wrong)).unwrap_err().code(), tonic::Code::Unauthenticated, "{wrong:?}");
        }
        assert!(!format!("{access:?}").contains("secret"));
    }

    #[test]
    fn whoever_passes_a_service_s_door_is_that_service() {
        let access = Access::Token("secret".into()).for_service("executor");
        assert_eq!(Principal::of(&access.check(with(Some("Bearer secret"))).unwrap()), "service:executor");
        assert_eq!(access.check(with(None)).unwrap_err().code(), tonic::Code::Unauthenticated);
        assert!(!format!("{access:?}").contains("secret"));
    }

    #[test]
    fn a_connection_that_is_no_unix_socket_has_no_user() {
        assert_eq!(Access::UnixUser(0).check(with(None)).unwrap_err().code(), tonic::Code::Unauthenticated);
    }
}

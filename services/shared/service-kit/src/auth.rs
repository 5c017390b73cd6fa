//! Authenticates callers by the credentials they present. Every service does this first, on every method but health.

use std::{fmt, path::PathBuf, sync::Arc};

use belay_reasons as reasons;
use thiserror::Error;
use tonic::{Code, Status};

use crate::{
    address::Address,
    principal::{Principal, Service},
    register::{Register, TokenDigest},
    register_file::{LiveRegister, RegisterError},
    status,
};

/// The credentials that a caller presents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The user of the process on the other end of a unix socket: the kernel vouches for it.
    pub(crate) uid: Option<u32>,
    /// The digest of the token in `authorization: Bearer …`.
    pub(crate) token: Option<TokenDigest>,
}

/// Why a caller is not authenticated.
#[derive(Debug, Error)]
pub(crate) enum AuthenticationError {
    #[error("Send your token as `authorization: Bearer …`.")]
    NoToken,
    #[error("The token is not valid: it is wrong, or was revoked or replaced.")]
    Token,
    #[error(
        "User id {0} is not known here. The owner of the state directory can bind it: `belay principals add NAME --role ROLE --uid {0}`."
    )]
    User(u32),
    #[error("Only Belay's own services may call this endpoint, and user id {0} does not belong to one of them.")]
    NotAService(u32),
    #[error(
        "Your process is in another user namespace than this service, such as a sandbox or a container, or has ended, so its user does not identify \
         you. Send a token as `authorization: Bearer …`."
    )]
    ForeignPeer,
    #[error("The `authorization` header must be `Bearer`, a space and a token, and be sent once.")]
    Malformed,
    #[error("Callers cannot be authenticated: {0}")]
    Unreadable(#[from] RegisterError),
}

impl From<AuthenticationError> for Status {
    fn from(unknown: AuthenticationError) -> Self {
        let message = unknown.to_string();
        match unknown {
            // The server's fault; the caller may retry once the file is repaired.
            AuthenticationError::Unreadable(_) => {
                status::error(Code::Unavailable, reasons::PRINCIPALS_UNUSABLE, message).into()
            }
            _ => status::error(Code::Unauthenticated, reasons::UNAUTHENTICATED, message).into(),
        }
    }
}

/// The people who may call: the owner of the state directory, and those in the register.
#[derive(Debug)]
pub struct People {
    owner_uid: u32,
    owner_token: Option<TokenDigest>,
    register: Option<LiveRegister>,
}

impl People {
    /// The user of this process is the owner. `owner_token` authenticates the owner over TCP, where the kernel reports no user. `register` is the
    /// file
    /// of further principals; it may not exist yet.
    ///
    /// # Errors
    /// [`RegisterError`] when the file exists and cannot be used.
    pub fn new(owner_token: Option<&str>, register: Option<PathBuf>) -> Result<Self, RegisterError> {
        Ok(Self {
            owner_uid: rustix::process::geteuid().as_raw(),
            owner_token: owner_token.map(TokenDigest::of),
            register: register.map(LiveRegister::open).transpose()?,
        })
    }

    fn identify(&self, shown: Credentials) -> Result<Principal, AuthenticationError> {
        let register = self.register.as_ref().map(LiveRegister::current).transpose()?;
        person(register.as_deref().unwrap_or(&Register::default()), self.owner_uid, self.owner_token, shown)
    }
}

/// The person whom these credentials belong to. A token takes precedence over the user, so that a program can act for a person other than the user it
/// runs as.
///
/// The user who owns the state directory, root, and the token in that directory are one person: the owner, or the
/// principal that the owner's user is bound to. So each person is one principal on every endpoint. Only root may be bound to another principal.
fn person(
    register: &Register,
    owner_uid: u32,
    owner_token: Option<TokenDigest>,
    shown: Credentials,
) -> Result<Principal, AuthenticationError> {
    let owner = || register.by_uid(owner_uid).unwrap_or_else(Principal::owner);
    match shown {
        Credentials { token: Some(token), .. } if owner_token == Some(token) => Ok(owner()),
        Credentials { token: Some(token), .. } => register.by_token(token).ok_or(AuthenticationError::Token),
        Credentials { uid: Some(uid), .. } => match register.by_uid(uid) {
            Some(person) => Ok(person),
            // Root can read the state directory anyway.
            None if uid == owner_uid || uid == 0 => Ok(owner()),
            None => Err(AuthenticationError::User(uid)),
        },
        Credentials { uid: None, token: None } => Err(AuthenticationError::NoToken),
    }
}

/// The services that may call, each by its user or its token.
#[derive(Debug)]
pub struct Services {
    users: Vec<(u32, Service)>,
    tokens: Vec<(TokenDigest, Service)>,
}

impl Services {
    /// The services by the users they run as, and by their tokens. When both are empty, every process of this process's own user is accepted, as
    /// [`Service::SameUser`].
    pub fn new(users: impl IntoIterator<Item = (Service, u32)>, tokens: &[(Service, &str)]) -> Self {
        let mut users: Vec<_> = users.into_iter().map(|(service, uid)| (uid, service)).collect();
        if users.is_empty() && tokens.is_empty() {
            users.push((rustix::process::geteuid().as_raw(), Service::SameUser));
        }
        let tokens = tokens.iter().map(|(service, token)| (TokenDigest::of(token), *service)).collect();
        Self { users, tokens }
    }

    fn identify(&self, shown: Credentials) -> Result<Principal, AuthenticationError> {
        let service = match shown {
            Credentials { token: Some(token), .. } => {
                let known = self.tokens.iter().find(|(known, _)| *known == token);
                known.ok_or(AuthenticationError::Token)?.1
            }
            Credentials { uid: Some(uid), .. } => {
                let known = self.users.iter().find(|(known, _)| *known == uid);
                known.ok_or(AuthenticationError::NotAService(uid))?.1
            }
            Credentials { uid: None, token: None } => return Err(AuthenticationError::NoToken),
        };
        Ok(Principal::Service(service))
    }
}

/// The callers of a listener.
#[derive(Clone)]
pub enum Access {
    /// People.
    People(Arc<People>),
    /// Belay's own services.
    Services(Arc<Services>),
    /// Every caller, without authentication, as this principal: for tests and simulations.
    Unauthenticated(Principal),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::People(_) => f.write_str("People"),
            Self::Services(_) => f.write_str("Services"),
            Self::Unauthenticated(principal) => write!(f, "Unauthenticated({principal})"),
        }
    }
}

/// A TCP listener has no credential by which a caller could authenticate.
#[derive(Clone, Copy, Debug, Error)]
#[error("listening on TCP requires a token, because every user of this machine can connect to the port")]
pub struct TokenRequired;

impl Access {
    /// People at this address: the owner by the token, if there is one, and by the user of this process; others by the register.
    ///
    /// # Errors
    /// [`TokenRequired`] for TCP with neither a token nor a register.
    pub fn people(address: &Address, people: People) -> Result<Self, TokenRequired> {
        let has_no_credentials = people.owner_token.is_none() && people.register.is_none();
        if matches!(address, Address::Tcp(_)) && has_no_credentials {
            return Err(TokenRequired);
        }
        Ok(Self::People(Arc::new(people)))
    }

    /// Services at this address.
    ///
    /// # Errors
    /// [`TokenRequired`] for TCP without a token.
    pub fn services(address: &Address, services: Services) -> Result<Self, TokenRequired> {
        if matches!(address, Address::Tcp(_)) && services.tokens.is_empty() {
            return Err(TokenRequired);
        }
        Ok(Self::Services(Arc::new(services)))
    }

    /// Every caller is the executor, without authentication: for tests and simulations.
    pub fn unauthenticated_executor() -> Self {
        Self::Unauthenticated(Principal::Service(Service::Executor))
    }

    /// Every caller is this person with every role, without authentication: for tests and simulations.
    pub fn unauthenticated_person(name: &str) -> Self {
        Self::Unauthenticated(Principal::person(name, crate::principal::Role::ALL))
    }

    pub(crate) fn identify(&self, shown: Credentials) -> Result<Principal, AuthenticationError> {
        match self {
            Self::People(people) => people.identify(shown),
            Self::Services(services) => services.identify(shown),
            Self::Unauthenticated(principal) => Ok(principal.clone()),
        }
    }

    /// Whether a caller's permission can change while its request is served.
    pub(crate) fn can_change(&self) -> bool {
        matches!(self, Self::People(people) if people.register.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Role;

    const OWNER_UID: u32 = 1000;

    fn token(text: &str) -> Credentials {
        Credentials { uid: None, token: Some(TokenDigest::of(text)) }
    }

    fn user(uid: u32) -> Credentials {
        Credentials { uid: Some(uid), token: None }
    }

    fn who(register: &Register, shown: Credentials) -> Result<String, String> {
        let found = person(register, OWNER_UID, Some(TokenDigest::of("in the folder")), shown);
        found.map(|person| person.to_string()).map_err(|unknown| unknown.to_string())
    }

    fn with(name: &str, uids: &[u32]) -> Register {
        let mut register = Register::default();
        let roles = [Role::Planner].into_iter().collect();
        register.add(name, roles, uids, Some(TokenDigest::of("ann's")), 1).unwrap();
        register
    }

    /// B-19: the owner's user, root and the token in the state directory are one person.
    #[test]
    fn the_owner_is_one_person_whichever_way_they_come() {
        let nobody_else = Register::default();
        for shown in [user(OWNER_UID), user(0), token("in the folder")] {
            assert_eq!(who(&nobody_else, shown), Ok("person:owner".into()), "{shown:?}");
        }
        // A bound user is the principal it is bound to; so is the owner's token.
        let ann = with("ann", &[OWNER_UID]);
        for shown in [user(OWNER_UID), user(0), token("in the folder"), token("ann's")] {
            assert_eq!(who(&ann, shown), Ok("person:ann".into()), "{shown:?}");
        }
        let root_is_ann = with("ann", &[0]);
        assert_eq!(who(&root_is_ann, user(0)), Ok("person:ann".into()));
        assert_eq!(who(&root_is_ann, token("ann's")), Ok("person:ann".into()));
        assert_eq!(who(&root_is_ann, user(OWNER_UID)), Ok("person:owner".into()));
    }

    #[test]
    fn a_missing_or_unknown_credential_is_refused() {
        let ann = with("ann", &[1001]);
        assert_eq!(who(&ann, user(1001)), Ok("person:ann".into()));
        assert!(who(&ann, user(1002)).unwrap_err().contains("--uid 1002"));
        assert!(who(&ann, Credentials::default()).unwrap_err().contains("authorization: Bearer"));
        assert!(who(&ann, token("")).unwrap_err().contains("revoked or replaced"));
        // An invalid token is rejected even when the user would be accepted without it.
        let both = Credentials { token: Some(TokenDigest::of("old")), ..user(OWNER_UID) };
        assert!(who(&ann, both).is_err());
        let for_ann = Credentials { token: Some(TokenDigest::of("ann's")), ..user(OWNER_UID) };
        assert_eq!(who(&ann, for_ann), Ok("person:ann".into()));
    }

    /// B-05: a person is not accepted as a service, and a service not as another one.
    #[test]
    fn a_service_is_known_by_its_user_or_its_token() {
        let services = Services::new([(Service::Executor, 901)], &[(Service::ToolRunner, "r")]);
        let who = |shown| services.identify(shown).ok();
        assert_eq!(who(user(901)), Some(Principal::Service(Service::Executor)));
        assert_eq!(who(token("r")), Some(Principal::Service(Service::ToolRunner)));
        let own = rustix::process::geteuid().as_raw();
        for other in [user(own), user(0), user(902), token("x"), Credentials::default()] {
            assert_eq!(who(other), None, "{other:?}");
        }
        let undivided = Services::new([], &[]);
        assert_eq!(undivided.identify(user(own)).unwrap(), Principal::Service(Service::SameUser));
        assert!(undivided.identify(user(own.wrapping_add(1))).is_err());
    }

    #[test]
    fn a_tcp_listener_needs_a_way_to_authenticate() {
        let tcp = Address::Tcp(([127, 0, 0, 1], 0).into());
        let unix = Address::Unix("/s".into());
        let people = |token| People::new(token, None).unwrap();
        assert!(Access::people(&tcp, people(None)).is_err() && Access::people(&tcp, people(Some("t"))).is_ok());
        assert!(Access::people(&unix, people(None)).is_ok());
        let folder = tempfile::tempdir().unwrap();
        let registered = People::new(None, Some(folder.path().join("principals.json"))).unwrap();
        assert!(Access::people(&tcp, registered).is_ok());
        assert!(Access::services(&tcp, Services::new([(Service::Executor, 1)], &[])).is_err());
        assert!(Access::services(&tcp, Services::new([], &[(Service::Executor, "t")])).is_ok());
        let access = Access::people(&unix, people(Some("s3cret"))).unwrap();
        assert!(!format!("{access:?}").contains("s3cret"));
    }
}

//! The caller: a person or a service, whichever endpoint and credential the call came by.

use std::{fmt, str::FromStr, sync::Arc};

use belay_reasons as reasons;
use thiserror::Error;
use tonic::{Request, Status};

use crate::status;

/// A role of a person. A person may have several; `methods.rs` says which method needs which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Starts executions and watches them; cancels, pauses and resumes its own. Does not decide.
    Planner,
    /// Reads only.
    Viewer,
    /// Decides approvals.
    Approver,
    /// Does everything that a person can do.
    Operator,
}

impl Role {
    /// All of them, as lists show them.
    pub const ALL: [Self; 4] = [Self::Planner, Self::Viewer, Self::Approver, Self::Operator];

    /// The word for it on the command line and in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Text that names no role.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a role: use planner, viewer, approver or operator")]
pub struct InvalidRole(String);

impl FromStr for Role {
    type Err = InvalidRole;

    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| InvalidRole(text.to_owned()))
    }
}

/// The roles of one person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Every role.
    pub fn all() -> Self {
        Role::ALL.into_iter().collect()
    }

    /// Whether this role is among them.
    pub fn has(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each role, in the order of [`Role::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.has(*role))
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |set, role| set | 1 << role as u8))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Role::as_str).collect();
        f.write_str(&words.join(", "))
    }
}

/// A service of Belay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Carries plans out.
    Executor,
    /// Runs tools.
    ToolRunner,
    /// Asks people.
    ApprovalGate,
    /// Any of the three, running as the same user as the service that it calls, so that it cannot be told apart from the others.
    SameUser,
}

impl Service {
    /// Its name in principals.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Executor => "executor",
            Self::ToolRunner => "tool-runner",
            Self::ApprovalGate => "approval-gate",
            Self::SameUser => "same-user",
        }
    }
}

/// The caller, as authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// A person, or a program that acts for one.
    Person {
        /// The name, which stands in events and approvals as `person:NAME`.
        name: Arc<str>,
        /// The roles of the person.
        roles: Roles,
    },
    /// A service of Belay. It has no roles, so it never decides.
    Service(Service),
}

/// The prefix of persons' names in events, approvals and grants.
const PERSON: &str = "person:";

impl Principal {
    /// The person who owns the state directory: that user over a unix socket, root, and every caller with the token in it.
    pub const OWNER: &str = "owner";

    /// A person with these roles.
    pub fn person(name: &str, roles: impl IntoIterator<Item = Role>) -> Self {
        Self::Person { name: name.into(), roles: roles.into_iter().collect() }
    }

    /// The owner of the state directory, with every role.
    pub fn owner() -> Self {
        Self::person(Self::OWNER, Role::ALL)
    }

    /// Whether this is a person who has the role.
    pub fn has(&self, role: Role) -> bool {
        matches!(self, Self::Person { roles, .. } if roles.has(role))
    }

    /// Whether this is a person who may decide approvals.
    pub fn may_decide(&self) -> bool {
        self.has(Role::Approver) || self.has(Role::Operator)
    }

    /// Whether a name that was made by [`Principal`]'s `Display` is a person's.
    pub fn names_a_person(name: &str) -> bool {
        name.strip_prefix(PERSON).is_some_and(|name| !name.is_empty())
    }

    /// The caller of a request.
    ///
    /// # Errors
    /// UNAUTHENTICATED when the request did not pass [`crate::Access`].
    pub fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        request.extensions().get::<Self>().cloned().ok_or_else(|| {
            status::error(tonic::Code::Unauthenticated, reasons::UNAUTHENTICATED, "The request was not authenticated.")
                .into()
        })
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { name, .. } => write!(f, "{PERSON}{name}"),
            Self::Service(service) => write!(f, "service:{}", service.as_str()),
        }
    }
}

/// Text that cannot be a person's name.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a valid name: use 1 to 64 lower-case letters, digits, `-`, `_`, `.` and `@`, beginning with a letter or a digit"
)]
pub struct InvalidName(String);

/// Checks a person's name.
///
/// # Errors
/// [`InvalidName`], with the rule for names.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let good = name.len() <= 64
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(byte) || b"-_.@".contains(&byte));
    if good { Ok(()) } else { Err(InvalidName(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_written() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("admin".parse::<Role>().unwrap_err().to_string().contains("planner, viewer, approver or operator"));
        let two: Roles = [Role::Approver, Role::Planner, Role::Approver].into_iter().collect();
        assert_eq!(two.to_string(), "planner, approver");
        assert!(two.has(Role::Planner) && !two.has(Role::Operator) && !two.is_empty() && Roles::default().is_empty());
        assert!(Role::ALL.into_iter().all(|role| Roles::all().has(role)));
    }

    /// B-19: a service's name is never a person's, and a caller without proof is neither.
    #[test]
    fn persons_and_services_have_different_names() {
        assert_eq!(Principal::person("ann", []).to_string(), "person:ann");
        assert!(Principal::names_a_person("person:ann"));
        for other in ["", "person:", "ann", "policy", "anonymous", "unix:0", "token:local", "service:executor"] {
            assert!(!Principal::names_a_person(other), "{other}");
        }
        for service in [Service::Executor, Service::ToolRunner, Service::ApprovalGate, Service::SameUser] {
            let principal = Principal::Service(service);
            assert!(!Principal::names_a_person(&principal.to_string()), "{principal}");
            assert!(Role::ALL.into_iter().all(|role| !principal.has(role)), "{principal} has no role");
        }
    }

    #[test]
    fn names_are_plain() {
        for good in ["ann", "a", "7", "ci-bot_2", "ann@example.org", &"a".repeat(64)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "Ann", "-a", "@a", "a b", "a/b", "a:b", "ä", "a\n", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}

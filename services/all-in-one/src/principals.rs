//! The principals of a state directory, as the command line keeps them: a server that runs sees each change with its next request.

use std::path::{Path, PathBuf};

use belay_service_kit::{
    Ids,
    principal::Roles,
    register::{self, Entry, InvalidChange, Register, TokenDigest},
    register_file,
};
pub use belay_service_kit::{Role, register::Entry as PrincipalEntry};

use crate::{StartError, StateDir};

/// The principals in one file.
#[derive(Clone, Debug)]
pub struct PrincipalsFile(PathBuf);

/// A principal, and the token that was made for it; it is kept nowhere else.
#[derive(Debug)]
pub struct WithToken {
    /// The principal.
    pub entry: Entry,
    /// The token, if one was made.
    pub token: Option<String>,
}

impl PrincipalsFile {
    /// The file at a path that somebody chose, such as that of services in separate processes.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The file of a state directory.
    pub fn of_state_dir(state_dir: &Path) -> Self {
        Self(state_dir.join(register_file::FILE))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the state directory of the file, where there is none.
    ///
    /// # Errors
    /// [`StartError`] when the folder cannot be Belay's.
    pub fn prepare_state_dir(&self) -> Result<(), StartError> {
        self.0.parent().map_or(Ok(()), |folder| StateDir::prepare(folder).map(drop))
    }

    /// Everybody, revoked principals included.
    ///
    /// # Errors
    /// [`StartError`] when the file is there and cannot be used.
    pub fn list(&self) -> Result<Vec<Entry>, StartError> {
        register_file::read(&self.0).map(|register| register.entries().to_vec()).map_err(StartError::Principals)
    }

    /// Adds a principal, with a token if one is wanted. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`StartError`], and nothing is changed.
    pub fn add(
        &self,
        name: &str,
        roles: &[Role],
        uids: &[u32],
        with_token: bool,
        now: i64,
    ) -> Result<WithToken, StartError> {
        let token = with_token.then(new_token);
        let digest = token.as_deref().map(TokenDigest::of);
        let entry = self.change(|register| register.add(name, roles_of(roles), uids, digest, now).cloned())?;
        Ok(WithToken { entry, token })
    }

    /// Gives a principal other roles, other users, or both.
    ///
    /// # Errors
    /// [`StartError`], and nothing is changed.
    pub fn update(&self, name: &str, roles: Option<&[Role]>, uids: Option<&[u32]>) -> Result<Entry, StartError> {
        self.change(|register| register.update(name, roles.map(roles_of), uids).cloned())
    }

    /// Gives a principal another token; the one before is worth nothing from the next request on.
    ///
    /// # Errors
    /// [`StartError`], and nothing is changed.
    pub fn rotate(&self, name: &str, now: i64) -> Result<WithToken, StartError> {
        let token = new_token();
        let digest = TokenDigest::of(&token);
        let entry = self.change(|register| register.rotate(name, digest, now).cloned())?;
        Ok(WithToken { entry, token: Some(token) })
    }

    /// Lets a principal in no more.
    ///
    /// # Errors
    /// [`StartError`], and nothing is changed.
    pub fn revoke(&self, name: &str, now: i64) -> Result<Entry, StartError> {
        self.change(|register| register.revoke(name, now).cloned())
    }

    fn change<T>(&self, change: impl FnOnce(&mut Register) -> Result<T, InvalidChange>) -> Result<T, StartError> {
        register_file::change(&self.0, change).map_err(StartError::Principals)
    }
}

fn roles_of(roles: &[Role]) -> Roles {
    roles.iter().copied().collect()
}

fn new_token() -> String {
    register::token(Ids::from_system().next_key())
}

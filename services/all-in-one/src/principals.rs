//! The principals of a state directory, for the command line: a running server sees each change at the next request.

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

/// A principal and its new token, which is stored nowhere else.
#[derive(Debug)]
pub struct IssuedToken {
    /// The principal.
    pub entry: Entry,
    /// The token, if one was created.
    pub token: Option<String>,
}

impl PrincipalsFile {
    /// The file at a given path, such as that of services in separate processes.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The file of a state directory.
    pub fn of_state_dir(state_dir: &Path) -> Self {
        Self(state_dir.join(register_file::FILE))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the state directory of the file if needed.
    ///
    /// # Errors
    /// [`StartError`] if Belay cannot use the directory.
    pub fn prepare_state_dir(&self) -> Result<(), StartError> {
        self.0.parent().map_or(Ok(()), |folder| StateDir::prepare(folder).map(drop))
    }

    /// All principals, including revoked ones.
    ///
    /// # Errors
    /// [`StartError`] if the file exists and cannot be used.
    pub fn list(&self) -> Result<Vec<Entry>, StartError> {
        register_file::read(&self.0).map(|register| register.entries().to_vec()).map_err(StartError::Principals)
    }

    /// Adds a principal, with a token on request. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`StartError`]; nothing is changed then.
    pub fn add(
        &self,
        name: &str,
        roles: &[Role],
        uids: &[u32],
        with_token: bool,
        now: i64,
    ) -> Result<IssuedToken, StartError> {
        let token = with_token.then(new_token);
        let digest = token.as_deref().map(TokenDigest::of);
        let entry = self.change(|register| register.add(name, roles_of(roles), uids, digest, now).cloned())?;
        Ok(IssuedToken { entry, token })
    }

    /// Changes the roles or users of a principal.
    ///
    /// # Errors
    /// [`StartError`]; nothing is changed then.
    pub fn update(&self, name: &str, roles: Option<&[Role]>, uids: Option<&[u32]>) -> Result<Entry, StartError> {
        self.change(|register| register.update(name, roles.map(roles_of), uids).cloned())
    }

    /// Replaces the token of a principal; the old token is invalid from the next request on.
    ///
    /// # Errors
    /// [`StartError`]; nothing is changed then.
    pub fn rotate(&self, name: &str, now: i64) -> Result<IssuedToken, StartError> {
        let token = new_token();
        let digest = TokenDigest::of(&token);
        let entry = self.change(|register| register.rotate(name, digest, now).cloned())?;
        Ok(IssuedToken { entry, token: Some(token) })
    }

    /// Revokes a principal.
    ///
    /// # Errors
    /// [`StartError`]; nothing is changed then.
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

//! The principals that a server knows besides its owner: their roles, the digests of their tokens, the users bound to them.
//!
//! Everything here is pure; [`crate::register_file`] keeps a register in a file.

use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::principal::{InvalidName, Principal, Role, Roles, check_name};

/// The version of the file's format; any other is refused.
pub const FORMAT: u32 = 1;

/// The most principals that a register holds. Each request looks through all of them.
const MAX_PRINCIPALS: usize = 1_000;

/// The SHA-256 digest of a token. A token has 256 random bits, so it cannot be guessed from its digest. A slow, salted hash, as for passwords,
/// would add no protection and would slow down each request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenDigest(…)")
    }
}

/// The prefix of tokens, by which people and secret scanners recognize them.
pub const TOKEN_PREFIX: &str = "belay-token-";

/// The least length of a token that a person chooses, in bytes. Failed attempts are not counted, so a short one can be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;

/// The problem with a token that a person has chosen. `name`: the flag or the file that it is from. The message does not contain the token.
pub fn token_problem(name: &str, token: &str) -> Option<String> {
    let fix = "use 32 random bytes, such as from `openssl rand -hex 32`";
    if token.len() < MIN_TOKEN_BYTES {
        return Some(format!("{name} is shorter than {MIN_TOKEN_BYTES} characters, so it can be guessed: {fix}"));
    }
    let is_sendable = token.bytes().all(|byte| byte.is_ascii_graphic());
    (!is_sendable).then(|| format!("{name} has a space or a character that no header can have: {fix}"))
}

/// A token from 32 random bytes.
pub fn token(random: [u8; 32]) -> String {
    format!("{TOKEN_PREFIX}{}", HEXLOWER.encode(&random))
}

/// A principal in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name, which is never reused.
    pub name: String,
    /// The names of its roles.
    pub roles: Vec<String>,
    /// The users of this machine that authenticate as this principal over a unix socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uids: Vec<u32>,
    /// The token's SHA-256 as hexadecimal digits; `None` when it authenticates by user only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_sha256: Option<String>,
    /// When it was added, in seconds since 1970.
    pub added_at: i64,
    /// When the token was made, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_made_at: Option<i64>,
    /// When it was revoked, in seconds since 1970. The entry stays, so that the name stays taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
}

impl Entry {
    /// Whether it can authenticate.
    pub fn is_active(&self) -> bool {
        self.revoked_at.is_none()
    }

    fn roles(&self) -> Roles {
        self.roles.iter().filter_map(|role| role.parse().ok()).collect()
    }

    fn principal(&self) -> Principal {
        Principal::person(&self.name, self.roles().iter())
    }
}

/// All principals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    format: u32,
    principals: Vec<Entry>,
}

impl Default for Register {
    fn default() -> Self {
        Self { format: FORMAT, principals: Vec::new() }
    }
}

/// Why a register cannot be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unreadable {
    /// It has another format.
    #[error("it has format {found}, and this version of Belay reads format {FORMAT}")]
    OtherFormat {
        /// The format.
        found: u64,
    },
    /// It is not a register.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// Why a change of a register is rejected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvalidChange {
    /// The name is not valid.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The owner needs no entry.
    #[error("`{}` is the owner of the state directory, who has every role: choose another name", Principal::OWNER)]
    Owner,
    /// The name is taken.
    #[error("`{0}` exists already")]
    Exists(String),
    /// The name was taken.
    #[error("`{0}` was revoked, and its name stays taken: past executions and approvals carry it. Choose another name")]
    WasRevoked(String),
    /// No principal has this name.
    #[error("there is no principal `{0}`")]
    Unknown(String),
    /// A principal without a role.
    #[error("a principal needs at least one role: planner, viewer, approver or operator")]
    NoRole,
    /// It has no credential.
    #[error("`{0}` needs a token or a user id: otherwise no caller can authenticate as it")]
    NoCredential(String),
    /// The user is bound to another principal.
    #[error("user id {uid} is bound to `{name}` already")]
    UidTaken {
        /// The user.
        uid: u32,
        /// The principal's name.
        name: String,
    },
    /// The register is full.
    #[error("there are already {MAX_PRINCIPALS} principals, which is the limit")]
    TooMany,
}

impl Register {
    /// Reads a register.
    ///
    /// # Errors
    /// [`Unreadable`] for another format, and for anything that this version would not write: a register that is read in part could authenticate
    /// the wrong callers.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let damaged = |why: String| Unreadable::Damaged(why);
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        let found = value["format"].as_u64().ok_or_else(|| damaged("`format` is missing".into()))?;
        if found != u64::from(FORMAT) {
            return Err(Unreadable::OtherFormat { found });
        }
        let read: Self = serde_json::from_value(value).map_err(|error| damaged(error.to_string()))?;
        let mut checked = Self::default();
        for entry in read.principals {
            let of = |why: String| damaged(format!("`{}`: {why}", entry.name));
            for role in &entry.roles {
                role.parse::<Role>().map_err(|error| of(error.to_string()))?;
            }
            let is_digest =
                |text: &String| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if entry.token_sha256.as_ref().is_some_and(|digest| !is_digest(digest)) {
                return Err(of("`token_sha256` is not a SHA-256 digest".into()));
            }
            checked.check_new(&entry.name).map_err(|refused| of(refused.to_string()))?;
            if entry.is_active() {
                checked.check(&entry).map_err(|refused| of(refused.to_string()))?;
            }
            let same_token = |other: &Entry| other.token_sha256.is_some() && other.token_sha256 == entry.token_sha256;
            if checked.principals.iter().any(same_token) {
                return Err(of("another principal has the same token".into()));
            }
            checked.principals.push(entry);
        }
        Ok(checked)
    }

    /// The register as text, ending with a line break.
    pub fn to_text(&self) -> String {
        // A struct of texts and numbers always serialises.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Every entry, revoked ones included, in the order in which they were added.
    pub fn entries(&self) -> &[Entry] {
        &self.principals
    }

    /// The principal whose token has this digest.
    pub fn by_token(&self, digest: TokenDigest) -> Option<Principal> {
        let hex = digest.to_hex();
        self.active().find(|entry| entry.token_sha256.as_ref() == Some(&hex)).map(Entry::principal)
    }

    /// The principal that this user of the machine is bound to.
    pub fn by_uid(&self, uid: u32) -> Option<Principal> {
        self.active().find(|entry| entry.uids.contains(&uid)).map(Entry::principal)
    }

    /// Adds a principal; `token` is its token's digest.
    ///
    /// # Errors
    /// [`InvalidChange`].
    pub fn add(
        &mut self,
        name: &str,
        roles: Roles,
        uids: &[u32],
        token: Option<TokenDigest>,
        now: i64,
    ) -> Result<&Entry, InvalidChange> {
        self.check_new(name)?;
        if self.principals.len() >= MAX_PRINCIPALS {
            return Err(InvalidChange::TooMany);
        }
        let entry = Entry {
            name: name.to_owned(),
            roles: words(roles),
            uids: sorted(uids),
            token_sha256: token.map(TokenDigest::to_hex),
            added_at: now,
            token_made_at: token.map(|_| now),
            revoked_at: None,
        };
        self.check(&entry)?;
        self.principals.push(entry);
        Ok(&self.principals[self.principals.len() - 1])
    }

    /// Replaces a principal's roles, its users, or both.
    ///
    /// # Errors
    /// [`InvalidChange`].
    pub fn update(&mut self, name: &str, roles: Option<Roles>, uids: Option<&[u32]>) -> Result<&Entry, InvalidChange> {
        let place = self.find(name)?;
        let mut entry = self.principals[place].clone();
        if let Some(roles) = roles {
            entry.roles = words(roles);
        }
        if let Some(uids) = uids {
            entry.uids = sorted(uids);
        }
        self.check(&entry)?;
        self.principals[place] = entry;
        Ok(&self.principals[place])
    }

    /// Replaces a principal's token; the previous one becomes invalid.
    ///
    /// # Errors
    /// [`InvalidChange`].
    pub fn rotate(&mut self, name: &str, token: TokenDigest, now: i64) -> Result<&Entry, InvalidChange> {
        let place = self.find(name)?;
        let entry = &mut self.principals[place];
        entry.token_sha256 = Some(token.to_hex());
        entry.token_made_at = Some(now);
        Ok(&self.principals[place])
    }

    /// Revokes a principal: its token and its users no longer authenticate, and the users can be bound to others. Idempotent.
    ///
    /// # Errors
    /// [`InvalidChange::Unknown`].
    pub fn revoke(&mut self, name: &str, now: i64) -> Result<&Entry, InvalidChange> {
        let place = self.principals.iter().position(|entry| entry.name == name);
        let place = place.ok_or_else(|| InvalidChange::Unknown(name.to_owned()))?;
        self.principals[place].revoked_at.get_or_insert(now);
        Ok(&self.principals[place])
    }

    fn active(&self) -> impl Iterator<Item = &Entry> {
        self.principals.iter().filter(|entry| entry.is_active())
    }

    fn find(&self, name: &str) -> Result<usize, InvalidChange> {
        match self.principals.iter().position(|entry| entry.name == name) {
            Some(place) if self.principals[place].is_active() => Ok(place),
            Some(_) => Err(InvalidChange::WasRevoked(name.to_owned())),
            None => Err(InvalidChange::Unknown(name.to_owned())),
        }
    }

    fn check_new(&self, name: &str) -> Result<(), InvalidChange> {
        check_name(name)?;
        if name == Principal::OWNER {
            return Err(InvalidChange::Owner);
        }
        match self.principals.iter().find(|entry| entry.name == name) {
            Some(entry) if entry.is_active() => Err(InvalidChange::Exists(name.to_owned())),
            Some(_) => Err(InvalidChange::WasRevoked(name.to_owned())),
            None => Ok(()),
        }
    }

    /// The invariants of every active entry.
    fn check(&self, entry: &Entry) -> Result<(), InvalidChange> {
        if entry.roles.is_empty() {
            return Err(InvalidChange::NoRole);
        }
        if entry.token_sha256.is_none() && entry.uids.is_empty() {
            return Err(InvalidChange::NoCredential(entry.name.clone()));
        }
        for uid in &entry.uids {
            if let Some(other) = self.active().find(|other| other.name != entry.name && other.uids.contains(uid)) {
                return Err(InvalidChange::UidTaken { uid: *uid, name: other.name.clone() });
            }
        }
        Ok(())
    }
}

fn words(roles: Roles) -> Vec<String> {
    roles.iter().map(|role| role.to_string()).collect()
}

fn sorted(uids: &[u32]) -> Vec<u32> {
    let mut uids = uids.to_vec();
    uids.sort_unstable();
    uids.dedup();
    uids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(of: &[Role]) -> Roles {
        of.iter().copied().collect()
    }

    fn digest(text: &str) -> Option<TokenDigest> {
        Some(TokenDigest::of(text))
    }

    /// The register stores a token's digest, never the token.
    #[test]
    fn a_token_is_random_and_only_its_digest_is_kept() {
        let shown = token([0xab; 32]);
        assert_eq!(shown, format!("belay-token-{}", "ab".repeat(32)));
        let mut register = Register::default();
        register.add("ann", roles(&[Role::Planner]), &[], digest(&shown), 1).unwrap();
        assert!(!register.to_text().contains("abab"), "{}", register.to_text());
        assert!(!format!("{:?}", TokenDigest::of(&shown)).contains(&TokenDigest::of(&shown).to_hex()));
        assert_eq!(register.by_token(TokenDigest::of(&shown)), Some(Principal::person("ann", [Role::Planner])));
        assert_eq!(register.by_token(TokenDigest::of("another")), None);
    }

    /// B-19: a principal can authenticate by its token and by its users.
    #[test]
    fn one_principal_authenticates_by_its_token_and_by_its_users() {
        let mut register = Register::default();
        register.add("ann", roles(&[Role::Planner, Role::Approver]), &[1001, 0, 1001], digest("t"), 1).unwrap();
        let ann = Principal::person("ann", [Role::Planner, Role::Approver]);
        assert_eq!(register.entries()[0].uids, [0, 1001]);
        for found in [register.by_uid(0), register.by_uid(1001), register.by_token(TokenDigest::of("t"))] {
            assert_eq!(found.as_ref(), Some(&ann));
        }
        assert_eq!(register.by_uid(1002), None);
    }

    #[test]
    fn a_revoked_or_replaced_token_is_refused() {
        let mut register = Register::default();
        register.add("ann", roles(&[Role::Viewer]), &[7], digest("old"), 1).unwrap();
        register.rotate("ann", TokenDigest::of("new"), 2).unwrap();
        assert!(register.by_token(TokenDigest::of("old")).is_none());
        assert!(register.by_token(TokenDigest::of("new")).is_some());
        register.revoke("ann", 3).unwrap();
        assert!(register.by_token(TokenDigest::of("new")).is_none() && register.by_uid(7).is_none());
        assert_eq!(register.revoke("ann", 9).unwrap().revoked_at, Some(3), "the first time counts");
        let again = InvalidChange::WasRevoked("ann".into());
        assert_eq!(register.rotate("ann", TokenDigest::of("x"), 4), Err(again.clone()));
        assert_eq!(register.update("ann", Some(Roles::all()), None), Err(again.clone()));
        assert_eq!(register.add("ann", Roles::all(), &[], digest("x"), 4), Err(again));
        register.add("bob", roles(&[Role::Viewer]), &[7], None, 4).expect("the user is free again");
    }

    #[test]
    fn a_principal_without_a_credential_and_a_credential_of_two_are_refused() {
        let mut register = Register::default();
        let viewer = roles(&[Role::Viewer]);
        register.add("ann", viewer, &[7], None, 1).unwrap();
        assert_eq!(register.add("ann", viewer, &[], digest("x"), 1), Err(InvalidChange::Exists("ann".into())));
        assert_eq!(register.add("owner", viewer, &[], digest("x"), 1), Err(InvalidChange::Owner));
        assert_eq!(register.add("bob", Roles::default(), &[], digest("x"), 1), Err(InvalidChange::NoRole));
        assert_eq!(register.add("bob", viewer, &[], None, 1), Err(InvalidChange::NoCredential("bob".into())));
        let taken = InvalidChange::UidTaken { uid: 7, name: "ann".into() };
        assert_eq!(register.add("bob", viewer, &[7], digest("x"), 1), Err(taken));
        assert!(matches!(register.add("Bob", viewer, &[], digest("x"), 1), Err(InvalidChange::InvalidName(_))));
        assert_eq!(register.update("ann", None, Some(&[])), Err(InvalidChange::NoCredential("ann".into())));
        assert_eq!(register.update("cat", None, None), Err(InvalidChange::Unknown("cat".into())));
        assert_eq!(register.update("ann", Some(Roles::all()), Some(&[8])).unwrap().uids, [8]);
        assert_eq!(register.entries().len(), 1);
    }

    #[test]
    fn a_register_is_read_whole_or_not_at_all() {
        let mut register = Register::default();
        register.add("ann", roles(&[Role::Approver]), &[1], digest("t"), 5).unwrap();
        register.add("bob", roles(&[Role::Viewer]), &[], digest("u"), 6).unwrap();
        register.revoke("bob", 7).unwrap();
        let text = register.to_text();
        assert_eq!(Register::parse(&text), Ok(register));

        let other = Register::parse(&text.replace("\"format\": 1", "\"format\": 2"));
        assert_eq!(other, Err(Unreadable::OtherFormat { found: 2 }));
        for (wrong, why) in [
            (String::new(), "EOF"),
            ("{}".into(), "`format` is missing"),
            (text.replace("approver", "admin"), "`admin` is not a role"),
            (text.replace("\"ann\"", "\"owner\""), "`owner` is the owner"),
            (text.replace("\"ann\"", "\"bob\""), "`bob` exists already"),
            (text.replace("added_at", "added_on"), "unknown field"),
            (text.replace(&TokenDigest::of("t").to_hex(), "t"), "not a SHA-256 digest"),
            (text.replace(&TokenDigest::of("t").to_hex(), &TokenDigest::of("u").to_hex()), "same token"),
        ] {
            let refused = Register::parse(&wrong).unwrap_err().to_string();
            assert!(refused.contains(why), "{why}: {refused}");
        }
    }
}

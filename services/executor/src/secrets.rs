//! What is shown of an execution, and what is kept sealed.
//!
//! Events become messages with their secrets in place, since the fold and the tools need them. Before a message is stored or shown to
//! anybody it passes [`Secrets`]: what is a secret becomes `[REDACTED]`, and where that changed a message the original goes into the
//! transition's sealed part. A replay puts the originals back before the fold sees them. Nothing else reads sealed parts.

mod hide;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use belay_execution::Execution;
use belay_journal::Transition;
use belay_proto::v1::{self, execution_event::Kind};
use belay_redaction::{Bound, MasterKey, NotOpened, Redactor, SealKey, is_telling, open, seal};
use belay_service_kit::key_file::{self, KeyFileError};
use prost::Message as _;
use thiserror::Error;

use crate::{
    names::ExecutionName,
    wire::{self, DecodeError, texts},
};

/// The file of the key that wraps the executions' keys, in the state directory.
const SEAL_KEY_FILE: &str = "seal.key";

/// The key that wraps the executions' keys, from `seal.key` in the state directory; made at the first start from the 32 random bytes that
/// `random` gives.
///
/// # Errors
/// [`KeyFileError`] when it is damaged, or readable by others.
pub fn open_seal_key(state_dir: &Path, random: impl FnOnce() -> [u8; 32]) -> Result<MasterKey, KeyFileError> {
    key_file::open(&state_dir.join(SEAL_KEY_FILE), key_file::SEAL, random).map(MasterKey::new)
}

/// What the secrets of all executions have in common.
pub(crate) struct Vault {
    pub(crate) redactor: Redactor,
    pub(crate) master_key: MasterKey,
}

/// The secrets of one execution, as far as it has come.
pub(crate) struct Secrets {
    redactor: Redactor,
    /// Values that were secrets once, by their shape or by what they were called: they are wherever they come again.
    known: BTreeSet<String>,
    /// Made with the first transition that has something to seal.
    key: Option<SealKey>,
}

/// Events in their stored form.
pub(crate) struct Sealed {
    pub(crate) transition: Transition,
    /// The execution's key, wrapped, when this is the first transition that it seals.
    pub(crate) new_key: Option<Vec<u8>>,
}

/// Why a sealed part cannot be opened.
#[derive(Debug, Error)]
pub(crate) enum SecretsError {
    /// The key is gone, or another master key wrapped it.
    #[error("its secrets are sealed, and the key to them is not the one in seal.key")]
    KeyLost,
    /// A newer Belay sealed it.
    #[error("its secrets were sealed by a newer Belay: {0}")]
    Newer(NotOpened),
    /// Somebody changed what is stored.
    #[error("the sealed part of event {0} does not open: {1}")]
    Changed(u64, NotOpened),
    /// What is stored makes no sense.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    /// An original that belongs to no event of its transition.
    #[error("the sealed part of event {0} belongs to another event")]
    Misplaced(u64),
}

impl Vault {
    /// An execution of which nothing has been seen yet.
    pub(crate) fn secrets(&self) -> Secrets {
        Secrets { redactor: self.redactor.clone(), known: BTreeSet::new(), key: None }
    }

    /// Makes messages what they are shown as, and the transition that stores them. `uid` is the execution's, `random` gives 32 random bytes.
    ///
    /// A message without secrets is encoded once and looked at once, in place.
    pub(crate) fn seal(
        &self,
        secrets: &mut Secrets,
        uid: &str,
        messages: &mut [v1::ExecutionEvent],
        random: impl Fn() -> [u8; 32],
    ) -> Sealed {
        let mut shown = Vec::with_capacity(messages.iter().map(|message| message.encoded_len() + 4).sum());
        let mut originals = Vec::new();
        for message in &mut *messages {
            let start = shown.len();
            message.encode_length_delimited(&mut shown).expect("a vector grows");
            if secrets.hide(message) {
                originals.extend_from_slice(&shown[start..]);
                shown.truncate(start);
                message.encode_length_delimited(&mut shown).expect("a vector grows");
            }
        }
        let first_sequence = messages.first().map_or(0, sequence);
        let count = u32::try_from(messages.len()).expect("far fewer events than that are decided at once");
        let mut new_key = None;
        let sealed = (!originals.is_empty()).then(|| {
            let key = secrets.key.get_or_insert_with(|| {
                let key = SealKey::new(random());
                new_key = Some(self.master_key.wrap(uid, &key, nonce(&random())));
                key
            });
            seal(key, place(uid, first_sequence), &originals, nonce(&random()))
        });
        Sealed { transition: Transition { first_sequence, count, version: wire::VERSION, shown, sealed }, new_key }
    }

    /// The messages of stored transitions as they were before anything was hidden, and what has to be hidden from now on. `wrapped` reads
    /// the execution's key; it is asked only where something is sealed.
    pub(crate) fn open<E: From<SecretsError>>(
        &self,
        transitions: &[Transition],
        wrapped: impl FnOnce() -> Result<Option<Vec<u8>>, E>,
    ) -> Result<(Vec<v1::ExecutionEvent>, Secrets), E> {
        let mut secrets = self.secrets();
        let mut messages = Vec::new();
        let mut wrapped = Some(wrapped);
        for transition in transitions {
            let from = messages.len();
            messages.extend(wire::decode_all(transition).map_err(SecretsError::from)?);
            let Some(sealed) = &transition.sealed else { continue };
            let uid = uid(&messages).to_owned();
            if let Some(wrapped) = wrapped.take() {
                secrets.key = Some(self.unwrap(&uid, wrapped()?)?);
            }
            let key = secrets.key.as_ref().expect("it was just unwrapped");
            let first = transition.first_sequence;
            let originals = open(key, place(&uid, first), sealed).map_err(|error| match error {
                NotOpened::Version(_) => SecretsError::Newer(error),
                _ => SecretsError::Changed(first, error),
            })?;
            for original in wire::decode_bytes(&originals).map_err(SecretsError::from)? {
                let shown = messages[from..].iter_mut().find(|shown| shown.sequence == original.sequence);
                let shown = shown.ok_or(SecretsError::Misplaced(sequence(&original)))?;
                secrets.hide(&mut original.clone());
                *shown = original;
            }
        }
        Ok((messages, secrets))
    }

    fn unwrap(&self, uid: &str, wrapped: Option<Vec<u8>>) -> Result<SealKey, SecretsError> {
        let wrapped = wrapped.ok_or(SecretsError::KeyLost)?;
        self.master_key.unwrap(uid, &wrapped).map_err(|error| match error {
            NotOpened::Version(_) => SecretsError::Newer(error),
            _ => SecretsError::KeyLost,
        })
    }

    /// Words that are shown and belong to no execution.
    pub(crate) fn shown(&self, mut words: String) -> String {
        hide::show(&self.redactor, texts::Text::Words(&mut words));
        words
    }

    /// Labels as they are stored and searched for.
    pub(crate) fn labels(&self, mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
        hide::show(&self.redactor, texts::Text::Labels(&mut labels));
        labels
    }

    /// A plan that belongs to no execution, as it is shown.
    pub(crate) fn plan(&self, mut plan: v1::Plan) -> v1::Plan {
        texts::of_plan(&mut plan, &mut |text| hide::show(&self.redactor, text));
        plan
    }
}

impl Secrets {
    /// The execution as it is shown.
    pub(crate) fn describe(&self, name: &ExecutionName, execution: &Execution) -> v1::Execution {
        let mut described = wire::full(name, execution);
        texts::of_execution(&mut described, &mut |text| hide::show(&self.redactor, text));
        described
    }

    /// What hides this execution's secrets in what its tools say.
    pub(crate) fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }

    /// Makes a message what it is shown as; true when that is something else.
    fn hide(&mut self, message: &mut v1::ExecutionEvent) -> bool {
        let mut found = Vec::new();
        let mut changed = false;
        texts::of_event(message, &mut |text| changed |= hide::hide(&self.redactor, text, &mut found));
        if self.learn(found) {
            // What was found in one text may stand in an earlier one, where only its value tells.
            texts::of_event(message, &mut |text| changed |= hide::hide(&self.redactor, text, &mut Vec::new()));
        }
        changed
    }

    /// Keeps new values in mind; false when there are none.
    fn learn(&mut self, found: Vec<String>) -> bool {
        let mut new = Vec::new();
        for value in found {
            if is_telling(&value) && self.known.insert(value.clone()) {
                new.push(value);
            }
        }
        if new.is_empty() {
            return false;
        }
        self.redactor = self.redactor.with_literals(&new).expect("their lengths are within what is taken");
        true
    }
}

/// The uid that the first message gives the execution.
fn uid(messages: &[v1::ExecutionEvent]) -> &str {
    match messages.first().and_then(|message| message.kind.as_ref()) {
        Some(Kind::ExecutionCreated(created)) => &created.uid,
        // Under this one nothing opens.
        _ => "",
    }
}

fn place(uid: &str, first_sequence: u64) -> Bound<'_> {
    Bound { execution: uid, sequence: i64::try_from(first_sequence).unwrap_or(i64::MAX) }
}

fn sequence(message: &v1::ExecutionEvent) -> u64 {
    u64::try_from(message.sequence).unwrap_or(0)
}

fn nonce(random: &[u8; 32]) -> [u8; 24] {
    *random.first_chunk().expect("24 is less than 32")
}

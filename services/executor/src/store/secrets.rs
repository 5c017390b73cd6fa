//! Hides an execution's secrets, and seals the originals.
//!
//! Events are encoded with their secrets, since the execution and the tools need them. Before a message is stored or shown it passes
//! [`Secrets`]: secrets become `[REDACTED]`, and the original of a changed message goes into the transition's sealed part. A replay
//! restores the originals first. Nothing else reads sealed parts.

mod hide;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use belay_execution::{Execution, Json};
use belay_journal::{Snapshot, Transition};
use belay_proto::{
    texts::{Text, Texts},
    v1,
};
use belay_redaction::{Bound, MasterKey, NotOpened, Redactor, SealKey, is_telling, open, seal};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    names::ExecutionName,
    store::blobs::{NewBlob, seal_blob},
    wire::{self, DecodeError},
};

/// The largest snapshot that is kept, in bytes. Writing it holds up the commits of other executions for as long as writing a batch of that size.
const MAX_SNAPSHOT_BYTES: usize = 16 * 1024 * 1024;

/// The file of the key that wraps the executions' keys, in the state directory.
pub(crate) const SEAL_KEY_FILE: &str = belay_service_kit::state_files::SEAL_KEY;

/// Hides and seals the secrets of all executions.
pub(crate) struct Sealer {
    pub(crate) redactor: Redactor,
    pub(crate) master_key: MasterKey,
}

/// The secrets of one execution, as far as its events go.
pub(crate) struct Secrets {
    redactor: Redactor,
    /// Values that were found to be secrets, by their form, their field's name or a tool's schema. They are hidden wherever they occur; those that are too short or
    /// too ordinary for that, which only a schema marks, where they are the whole of a value.
    known: BTreeSet<String>,
    /// Values that a tool's schema or output has marked since the last transition: they are stored with the next.
    marked: Vec<String>,
    /// Created with the first blob or the first transition that has something to seal.
    key: Option<SealKey>,
    /// Whether the journal has the key, or is about to.
    is_key_stored: bool,
}

/// The secrets of an execution at one moment, with which a value can be hidden and sealed apart from its driver.
pub(crate) struct SecretsSnapshot {
    secrets: Secrets,
    /// How many secret values were known at that moment.
    known: usize,
    /// Whether the execution had no key, so that this one has another.
    has_new_key: bool,
}

/// Events in their stored form.
pub(crate) struct SealedEvents {
    pub(crate) transition: Transition,
    /// The execution's wrapped key, if this transition is the first that it seals.
    pub(crate) new_key: Option<Vec<u8>>,
}

/// The content of a snapshot.
#[derive(Serialize, Deserialize)]
struct SnapshotContent {
    /// [`Secrets::known`].
    known: BTreeSet<String>,
    /// The execution's state.
    state: Vec<u8>,
}

/// Why a sealed part cannot be opened.
#[derive(Debug, Error)]
pub(crate) enum SecretsError {
    /// The key is lost, or was wrapped by another master key.
    #[error("its secrets were sealed with another key than the one in seal.key: restore that key")]
    KeyLost,
    /// A newer version of Belay sealed it.
    #[error("its secrets were sealed by a newer version of Belay: {0}")]
    Newer(NotOpened),
    /// The stored bytes were changed.
    #[error("the sealed part of event {0} cannot be opened: {1}")]
    Changed(u64, NotOpened),
    /// The stored bytes cannot be decoded.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    /// An original that belongs to no event of its transition.
    #[error("the sealed part of event {0} belongs to another event")]
    Misplaced(u64),
}

impl Sealer {
    /// The secrets of an execution without events.
    pub(crate) fn secrets(&self) -> Secrets {
        Secrets {
            redactor: self.redactor.clone(),
            known: BTreeSet::new(),
            marked: Vec::new(),
            key: None,
            is_key_stored: false,
        }
    }

    /// Hides the secrets in messages, and returns the transition to store. `uid` is the execution's; `random` returns 32 random bytes.
    ///
    /// A message without secrets is encoded and scanned once, in place.
    pub(crate) fn seal(
        &self,
        secrets: &mut Secrets,
        uid: &str,
        messages: &mut [v1::ExecutionEvent],
        random: &dyn Fn() -> [u8; 32],
    ) -> SealedEvents {
        let mut shown = Vec::with_capacity(messages.iter().map(|message| message.encoded_len() + 4).sum());
        let mut originals = Vec::new();
        if let Some(first) = messages.first_mut() {
            first.secrets = std::mem::take(&mut secrets.marked);
        }
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
        let count = u32::try_from(messages.len()).expect("one transition has fewer than 2^32 events");
        let sealed = (!originals.is_empty())
            .then(|| seal(secrets.key(random), place(uid, first_sequence), &originals, nonce(&random())));
        let unstored = secrets.key.as_ref().filter(|_| !secrets.is_key_stored);
        let new_key = unstored.map(|key| self.master_key.wrap(uid, key, nonce(&random())));
        secrets.is_key_stored = secrets.key.is_some();
        let transition = Transition { first_sequence, count, version: wire::VERSION, shown, sealed, facts: None };
        SealedEvents { transition, new_key }
    }

    /// The messages of stored transitions with their secrets restored, and the secrets to hide from now on. `wrapped` is the execution's key, if
    /// it has one.
    pub(crate) fn open(
        &self,
        transitions: &[Transition],
        wrapped: Option<&[u8]>,
    ) -> Result<(Vec<v1::ExecutionEvent>, Secrets), SecretsError> {
        let mut secrets = self.secrets();
        let mut messages = Vec::new();
        for transition in transitions {
            let from = messages.len();
            messages.extend(wire::decode_all(transition).map_err(SecretsError::from)?);
            wire::check_known(&transition.shown).map_err(SecretsError::from)?;
            let Some(sealed) = &transition.sealed else { continue };
            let uid = uid(&messages).to_owned();
            if secrets.key.is_none() {
                secrets.has_key(self.unwrap(&uid, wrapped)?);
            }
            let key = secrets.key.as_ref().expect("it was just unwrapped");
            let first = transition.first_sequence;
            let originals = open(key, place(&uid, first), sealed).map_err(|error| match error {
                NotOpened::Version(_) => SecretsError::Newer(error),
                _ => SecretsError::Changed(first, error),
            })?;
            wire::check_known(&originals).map_err(SecretsError::from)?;
            for original in wire::decode_bytes(&originals).map_err(SecretsError::from)? {
                let shown = messages[from..].iter_mut().find(|shown| shown.sequence == original.sequence);
                let shown = shown.ok_or(SecretsError::Misplaced(sequence(&original)))?;
                secrets.hide(&mut original.clone());
                *shown = v1::ExecutionEvent { secrets: Vec::new(), ..original };
            }
        }
        Ok((messages, secrets))
    }

    /// The execution's state as a snapshot, sealed if the execution has secrets; `None` when that is too large to be worth it. `random` returns 32
    /// random bytes.
    pub(crate) fn snapshot(
        &self,
        secrets: &Secrets,
        execution: &Execution,
        random: impl Fn() -> [u8; 32],
    ) -> Option<Snapshot> {
        let sequence = execution.last_sequence();
        let content = SnapshotContent { known: secrets.known.clone(), state: execution.snapshot()? };
        let content = postcard::to_stdvec(&content).ok()?;
        if content.len() > MAX_SNAPSHOT_BYTES || (secrets.key.is_none() && !secrets.known.is_empty()) {
            return None;
        }
        let place = place_of_snapshot(&execution.created().uid, sequence);
        let sealed = secrets.key.as_ref().map(|key| seal(key, place, &content, nonce(&random())));
        let (content, is_sealed) = sealed.map_or((content, false), |sealed| (sealed, true));
        Some(Snapshot { sequence, version: wire::VERSION, content, is_sealed })
    }

    /// Opens an execution's first transition and those after a snapshot as [`Self::open`] does, and the state of the snapshot.
    pub(crate) fn open_snapshot(
        &self,
        transitions: &[Transition],
        snapshot: &Snapshot,
        wrapped: Option<&[u8]>,
    ) -> Result<(Vec<v1::ExecutionEvent>, Vec<u8>, Secrets), SecretsError> {
        let (messages, mut secrets) = self.open(transitions, wrapped)?;
        let changed = |error| SecretsError::Changed(snapshot.sequence, error);
        let opened;
        let content = match snapshot.is_sealed {
            false => &snapshot.content,
            true => {
                let uid = uid(&messages);
                let key = match secrets.key.take() {
                    Some(key) => key,
                    None => self.unwrap(uid, wrapped)?,
                };
                opened = open(&key, place_of_snapshot(uid, snapshot.sequence), &snapshot.content).map_err(changed)?;
                secrets.has_key(key);
                &opened
            }
        };
        let content: SnapshotContent = postcard::from_bytes(content).map_err(|error| {
            SecretsError::Undecodable(DecodeError::Damaged(format!("the snapshot cannot be decoded: {error}")))
        })?;
        secrets.learn_all(content.known);
        Ok((messages, content.state, secrets))
    }

    /// The key of an execution, as the journal has it.
    pub(crate) fn unwrap(&self, uid: &str, wrapped: Option<&[u8]>) -> Result<SealKey, SecretsError> {
        let wrapped = wrapped.ok_or(SecretsError::KeyLost)?;
        self.master_key.unwrap(uid, wrapped).map_err(|error| match error {
            NotOpened::Version(_) => SecretsError::Newer(error),
            _ => SecretsError::KeyLost,
        })
    }

    /// Hides secrets in a text that belongs to no execution.
    pub(crate) fn shown(&self, mut words: String) -> String {
        hide::show(&self.redactor, Text::Words(&mut words));
        words
    }

    /// Labels as they are stored and searched.
    pub(crate) fn labels(&self, mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
        hide::show(&self.redactor, Text::Labels(&mut labels));
        labels
    }

    /// Hides secrets in a plan that belongs to no execution.
    pub(crate) fn plan(&self, plan: v1::Plan) -> v1::Plan {
        shown(&self.redactor, plan)
    }
}

/// The values in an output that a redactor hides wherever they stand, and not only for the name of their member.
pub(crate) fn found_in(redactor: &Redactor, output: &Json) -> Vec<String> {
    let (mut shown, mut found) = (output.as_str().to_owned(), Vec::new());
    hide::hide(redactor, Text::Json(&mut shown), &mut found);
    found.retain(|value| !redactor.redact_json::<&str>(&value.as_str().into(), &[]).hidden.is_empty());
    found
}

/// A message with its secrets hidden.
pub(crate) fn shown<M: Texts>(redactor: &Redactor, mut message: M) -> M {
    message.texts(&mut |text| hide::show(redactor, text));
    message
}

impl Secrets {
    /// The execution in BASIC view, with its secrets hidden.
    pub(crate) fn summarize(&self, name: &ExecutionName, execution: &Execution) -> v1::Execution {
        shown(&self.redactor, wire::brief(name, execution))
    }

    /// A text of the execution as it is shown.
    pub(crate) fn shown(&self, mut words: String) -> String {
        hide::show(&self.redactor, Text::Words(&mut words));
        words
    }

    /// A JSON value of the execution as it is shown.
    pub(crate) fn shown_json(&self, mut json: String) -> String {
        hide::show(&self.redactor, Text::Json(&mut json));
        json
    }

    /// Hides the execution's secrets, as far as its events go.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The execution's key, which is created when it has none.
    fn key(&mut self, random: &dyn Fn() -> [u8; 32]) -> &SealKey {
        self.key.get_or_insert_with(|| SealKey::new(random()))
    }

    /// The journal has this key of the execution.
    pub(crate) fn has_key(&mut self, key: SealKey) {
        (self.key, self.is_key_stored) = (Some(key), true);
    }

    /// The execution's key; `None` as long as nothing is sealed.
    pub(crate) fn own_key(&self) -> Option<&SealKey> {
        self.key.as_ref()
    }

    /// Hides the secrets in a value that becomes a blob, and seals both forms.
    pub(crate) fn blob(&mut self, uid: &str, original: &Json, random: &dyn Fn() -> [u8; 32]) -> NewBlob {
        let mut shown = original.as_str().to_owned();
        let is_redacted = self.hide_json(&mut shown);
        let original = is_redacted.then(|| original.as_str());
        seal_blob(self.key(random), uid, &shown, original, random)
    }

    /// A copy with which a value can be hidden and sealed elsewhere. An execution without a key has none until [`Self::join`]: a key that is stored
    /// before anything is sealed with it would not be found again.
    pub(crate) fn fork(&self) -> SecretsSnapshot {
        let (redactor, known, key) = (self.redactor.clone(), self.known.clone(), self.key.clone());
        let (count, has_new_key) = (known.len(), key.is_none());
        SecretsSnapshot {
            secrets: Self { redactor, known, marked: Vec::new(), key, is_key_stored: false },
            known: count,
            has_new_key,
        }
    }

    /// Whether what a fork has sealed can be used: with the execution's key, and no secret shown that has become known since.
    pub(crate) fn agrees(&self, fork: &SecretsSnapshot) -> bool {
        fork.known == self.known.len() && (!fork.has_new_key || self.key.is_none())
    }

    /// Learns what a fork that agrees has learned, and takes its key if it has none: what was sealed with it is stored with the next events.
    pub(crate) fn join(&mut self, fork: SecretsSnapshot) {
        let SecretsSnapshot { secrets, has_new_key, known: _ } = fork;
        if has_new_key {
            self.key = secrets.key;
        }
        self.learn_all(secrets.known);
    }

    /// Learns the secrets in the original of a blob.
    pub(crate) fn learn_from(&mut self, mut original: String) {
        self.hide_json(&mut original);
    }

    fn hide_json(&mut self, json: &mut String) -> bool {
        let mut found = Vec::new();
        let mut changed = hide::hide(&self.redactor, Text::Json(json), &mut found);
        if self.learn(found) {
            changed |= hide::hide(&self.redactor, Text::Json(json), &mut Vec::new());
        }
        changed
    }

    /// Hides the secrets in a message; returns whether that changed it.
    fn hide(&mut self, message: &mut v1::ExecutionEvent) -> bool {
        let marked = std::mem::take(&mut message.secrets);
        let (mut found, mut changed) = (Vec::new(), !marked.is_empty());
        self.learn_all(marked);
        message.texts(&mut |text| changed |= hide::hide(&self.redactor, text, &mut found));
        if self.learn(found) {
            // A value found in one text may occur in an earlier one, where only the value identifies it.
            message.texts(&mut |text| changed |= hide::hide(&self.redactor, text, &mut Vec::new()));
        }
        changed
    }

    /// Learns values that are secrets wherever they occur, whatever they look like. They are stored with the next transition.
    pub(crate) fn mark(&mut self, values: Vec<String>) {
        let new: BTreeSet<String> = values.into_iter().filter(|value| !value.is_empty()).collect();
        let new: Vec<String> = new.difference(&self.known).cloned().collect();
        self.learn_all(new.iter().cloned());
        self.marked.extend(new);
    }

    /// The same for values that output has shown, as far as they can be looked for in texts.
    pub(crate) fn mark_telling(&mut self, mut values: Vec<String>) {
        values.retain(|value| is_telling(value));
        self.mark(values);
    }

    /// The values that are known to be secrets.
    pub(crate) fn known(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(String::as_str)
    }

    /// Remembers values, those that are too short or too ordinary to be looked for in texts as well.
    fn learn_all(&mut self, values: impl IntoIterator<Item = String>) {
        let (telling, other): (Vec<String>, Vec<String>) = values.into_iter().partition(|value| is_telling(value));
        self.learn(telling);
        if !other.is_empty() {
            self.known.extend(other.iter().cloned());
            self.redactor = self.redactor.with_whole_values(other);
        }
    }

    /// Remembers new secret values; returns whether there were any.
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
        self.redactor = self.redactor.with_literals(&new).expect("their lengths are within the limits");
        true
    }
}

impl SecretsSnapshot {
    /// As [`Secrets::blob`].
    pub(crate) fn blob(&mut self, uid: &str, original: &Json, random: &dyn Fn() -> [u8; 32]) -> NewBlob {
        self.secrets.blob(uid, original, random)
    }
}

/// The execution's uid, from the first message.
fn uid(messages: &[v1::ExecutionEvent]) -> &str {
    // With an empty uid, nothing can be opened.
    messages.first().and_then(wire::uid_of).unwrap_or_default()
}

fn place(uid: &str, first_sequence: u64) -> Bound<'_> {
    Bound { execution: uid, sequence: i64::try_from(first_sequence).unwrap_or(i64::MAX) }
}

/// The place of a snapshot, which is none of an event.
fn place_of_snapshot(uid: &str, sequence: u64) -> Bound<'_> {
    Bound { execution: uid, sequence: i64::try_from(sequence).map_or(i64::MIN, |sequence| -sequence) }
}

fn sequence(message: &v1::ExecutionEvent) -> u64 {
    u64::try_from(message.sequence).unwrap_or(0)
}

fn nonce(random: &[u8; 32]) -> [u8; 24] {
    *random.first_chunk().expect("24 is less than 32")
}

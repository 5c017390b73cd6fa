//! Blobs: the values of an execution that are too large for its events.
//!
//! A blob is kept in two forms, as an event is: with its secrets hidden, for readers, and as the original, for templates and tools. When it has no
//! secrets, they are one. Both are sealed under the execution's key in chunks of 64 KiB, so that a reader can begin anywhere; a deleted execution's
//! blobs cannot be opened, wherever a copy of them is. The digest that names a blob is taken under that key as well.
//!
//! A blob is durable before the event that refers to it is committed. What a crash leaves without an event is removed when the
//! execution is loaded.

use belay_reasons::StoreFault;
use std::{collections::HashSet, sync::Arc};

use belay_blobs::{BlobError, BlobFile, BlobStore, Owner};
use belay_execution::{BlobRef, Json};
use belay_journal::StoreError;
use belay_reasons as reasons;
use belay_redaction::{ChunkPlace, NotOpened, SEALED_LONGER, SealKey, open_chunk, seal_chunk};
use belay_service_kit::status;
use belay_sqlite::{Lane, Threads};
use data_encoding::HEXLOWER;
use serde_json::Value;
use thiserror::Error;
use tonic::{Code, Status};

use crate::{names::ExecutionName, owned::ownership::Ownership};

/// How many bytes of a blob are sealed together.
const CHUNK: usize = 64 * 1024;

/// Prefix of a digest.
const ALGORITHM: &str = "hmac-sha256:";

/// The end of the name of an original's file.
const ORIGINAL: &str = ".original";

/// How many blobs drivers read and write at a time, and how many clients read.
const LANE: usize = 8;

/// The blobs of all executions.
pub(crate) struct Blobs {
    store: Arc<dyn BlobStore>,
    /// Where drivers read and write.
    drivers: Lane,
    /// Where clients read.
    clients: Lane,
}

/// A blob that is not stored yet.
pub(crate) struct NewBlob {
    pub(crate) reference: BlobRef,
    files: Vec<BlobFile>,
}

impl NewBlob {
    /// The names of its files.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.files.iter().map(|file| file.name.clone())
    }
}

/// The form of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Shown,
    Original,
}

/// Opens an execution's blobs.
#[derive(Clone)]
pub(crate) struct Opener {
    pub(crate) owner: Owner,
    /// The execution's uid.
    pub(crate) uid: Arc<str>,
    pub(crate) key: SealKey,
}

/// Why a blob cannot be read.
#[derive(Debug, Error)]
pub(crate) enum Unreadable {
    /// There is no such file.
    #[error("its file is missing")]
    Missing,
    /// It is not what was written.
    #[error("its file was changed: {0}")]
    Changed(NotOpened),
    /// It is authentic, and not JSON.
    #[error("it is not JSON")]
    NotJson,
    /// A newer version of Belay sealed it.
    #[error("it was sealed by a newer version of Belay: {0}")]
    Newer(NotOpened),
    /// The disk failed; it may be readable later.
    #[error("the store of blobs cannot be read: {0}")]
    Failed(BlobError),
}

impl Unreadable {
    /// Whether reading it again may succeed.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Missing | Self::Changed(_) | Self::NotJson | Self::Newer(_) => false,
        }
    }

    /// The error about this blob.
    pub(crate) fn status(&self, digest: &str) -> Status {
        let message = format!("The blob {digest} cannot be read: {self}.");
        let (code, reason) = match self {
            Self::Failed(_) => (Code::Unavailable, reasons::STORE_FAILED),
            Self::Newer(_) => (Code::FailedPrecondition, reasons::STORE_NEWER),
            Self::Missing | Self::Changed(_) | Self::NotJson => (Code::DataLoss, reasons::BLOB_DAMAGED),
        };
        status::error(code, reason, message).into()
    }
}

impl From<BlobError> for Unreadable {
    fn from(error: BlobError) -> Self {
        match error {
            BlobError::Missing => Self::Missing,
            error @ (BlobError::Full | BlobError::Failed(_)) => Self::Failed(error),
        }
    }
}

impl From<NotOpened> for Unreadable {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Version(_) => Self::Newer(error),
            NotOpened::CutOff(_) | NotOpened::NotAuthentic => Self::Changed(error),
        }
    }
}

/// The error of a blob that could not be written: nothing can be made durable any more.
pub(crate) fn unwritten(error: &BlobError) -> StoreError {
    match error {
        BlobError::Full => StoreError::Fault(StoreFault::Full),
        BlobError::Missing | BlobError::Failed(_) => {
            StoreError::Fault(StoreFault::Other(format!("a blob could not be written: {error}")))
        }
    }
}

pub(crate) fn owner(name: &ExecutionName) -> Owner {
    Owner { namespace: name.namespace.clone(), id: name.id.clone() }
}

/// The digest with these bytes, as events have it.
fn digest(bytes: &[u8; 32]) -> String {
    format!("{ALGORITHM}{}", HEXLOWER.encode(bytes))
}

/// The digest of which a name has the digits; `None` when they are not those of one.
pub(crate) fn digest_of(digits: &str) -> Option<String> {
    let bytes = HEXLOWER.decode(digits.as_bytes()).ok()?;
    <[u8; 32]>::try_from(bytes).ok().map(|bytes| digest(&bytes))
}

/// The bytes of a digest; `None` when it is not one of a blob.
pub(crate) fn digest_bytes(digest: &str) -> Option<[u8; 32]> {
    let digits = digest.strip_prefix(ALGORITHM)?;
    HEXLOWER.decode(digits.as_bytes()).ok()?.try_into().ok()
}

/// The name of the file of one form.
fn file_name(digest: &[u8; 32], form: Form) -> String {
    let digits = HEXLOWER.encode(digest);
    match form {
        Form::Shown => digits,
        Form::Original => format!("{digits}{ORIGINAL}"),
    }
}

/// The names of a blob's files.
pub(crate) fn file_names(blob: &BlobRef) -> impl Iterator<Item = String> {
    let original = blob.redacted.then_some(Form::Original);
    let bytes = digest_bytes(&blob.digest);
    [Form::Shown].into_iter().chain(original).filter_map(move |form| Some(file_name(&bytes?, form)))
}

/// Seals a value that becomes a blob. `original` is `None` when nothing of it is hidden. `random` returns 32 random bytes.
pub(crate) fn seal_blob(
    key: &SealKey,
    uid: &str,
    shown: &str,
    original: Option<&str>,
    random: &dyn Fn() -> [u8; 32],
) -> NewBlob {
    let bytes = belay_redaction::blob_digest(key, shown.as_bytes(), original.map(str::as_bytes));
    let file = |form, text: &str| {
        let count = chunk_count(text.len() as u64, CHUNK);
        let mut sealed = Vec::with_capacity(text.len() + text.len().div_ceil(CHUNK) * SEALED_LONGER);
        for (number, chunk) in (0_u32..).zip(text.as_bytes().chunks(CHUNK)) {
            let place = place(uid, &bytes, form, number, count);
            sealed.extend(seal_chunk(key, place, chunk, *random().first_chunk().expect("24 is less than 32")));
        }
        BlobFile { name: file_name(&bytes, form), bytes: sealed }
    };
    let mut files = vec![file(Form::Shown, shown)];
    files.extend(original.map(|original| file(Form::Original, original)));
    let reference = BlobRef { digest: digest(&bytes).into(), size: shown.len() as u64, redacted: original.is_some() };
    NewBlob { reference, files }
}

fn place<'a>(uid: &'a str, blob: &'a [u8; 32], form: Form, number: u32, count: u64) -> ChunkPlace<'a> {
    let last = u64::from(number) + 1 == count;
    ChunkPlace { execution: uid, blob, original: form == Form::Original, number, last }
}

/// How many chunks of this size a length has; at least one.
fn chunk_count(length: u64, chunk: usize) -> u64 {
    length.div_ceil(chunk as u64).max(1)
}

impl Opener {
    /// The piece of a blob from `offset` to the end of its chunk; empty at its end, and `None` after that.
    fn piece(
        &self,
        store: &dyn BlobStore,
        blob: &[u8; 32],
        form: Form,
        offset: u64,
    ) -> Result<Option<Vec<u8>>, Unreadable> {
        let name = file_name(blob, form);
        let length = store.length(&self.owner, &name)?;
        let count = chunk_count(length, CHUNK + SEALED_LONGER);
        let size = length.checked_sub(count * SEALED_LONGER as u64).ok_or(Unreadable::Changed(NotOpened::CutOff(0)))?;
        if offset >= size {
            return Ok((offset == size).then(Vec::new));
        }
        let number = u32::try_from(offset / CHUNK as u64).map_err(|_| Unreadable::Missing)?;
        let start = u64::from(number) * (CHUNK + SEALED_LONGER) as u64;
        let sealed = store.read(&self.owner, &name, start, CHUNK + SEALED_LONGER)?;
        let mut chunk = open_chunk(&self.key, place(&self.uid, blob, form, number, count), &sealed)?;
        let skipped = usize::try_from(offset % CHUNK as u64).unwrap_or(0);
        Ok(Some(chunk.split_off(skipped.min(chunk.len()))))
    }

    /// A whole blob as the tools get it.
    pub(crate) fn original(&self, store: &dyn BlobStore, blob: &BlobRef) -> Result<String, Unreadable> {
        self.whole(store, blob, if blob.redacted { Form::Original } else { Form::Shown })
    }

    /// A whole blob in one form.
    pub(crate) fn whole(&self, store: &dyn BlobStore, blob: &BlobRef, form: Form) -> Result<String, Unreadable> {
        let bytes = digest_bytes(&blob.digest).ok_or(Unreadable::Missing)?;
        let mut text = Vec::new();
        while let Some(piece) = self.piece(store, &bytes, form, text.len() as u64)?.filter(|piece| !piece.is_empty()) {
            text.extend(piece);
        }
        String::from_utf8(text).map_err(|_| Unreadable::NotJson)
    }
}

impl Blobs {
    pub(crate) fn new(store: Arc<dyn BlobStore>, threads: Threads) -> Self {
        Self { store, drivers: Lane::new(threads, LANE), clients: Lane::new(threads, LANE) }
    }

    /// Writes new blobs, durably.
    pub(crate) async fn write(&self, owner: Owner, new: Vec<NewBlob>) -> Result<(), BlobError> {
        let store = Arc::clone(&self.store);
        let files: Vec<BlobFile> = new.into_iter().flat_map(|blob| blob.files).collect();
        self.drivers.run(move || store.write(&owner, &files)).await
    }

    /// Does work about large values where drivers read and write, and not in a driver's task.
    pub(crate) async fn run_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.drivers.run(work).await
    }

    /// The value of a blob as the tools get it.
    pub(crate) async fn value(&self, opener: &Opener, blob: &BlobRef) -> Result<Value, Unreadable> {
        let (store, opener, blob) = (Arc::clone(&self.store), opener.clone(), blob.clone());
        let read = move || {
            let text = opener.original(&*store, &blob)?;
            serde_json::from_str(&text).map_err(|_| Unreadable::NotJson)
        };
        self.drivers.run(read).await
    }

    /// A blob as the tools get it.
    pub(crate) async fn original(&self, opener: &Opener, blob: &BlobRef) -> Result<Json, Unreadable> {
        let (store, opener, blob) = (Arc::clone(&self.store), opener.clone(), blob.clone());
        self.drivers.run(move || opener.original(&*store, &blob)).await.map(Json::from_text)
    }

    /// A piece of a blob as readers get it: see [`Opener::piece`].
    pub(crate) async fn shown(
        &self,
        opener: &Opener,
        digest: [u8; 32],
        offset: u64,
    ) -> Result<Option<Vec<u8>>, Unreadable> {
        let (store, opener) = (Arc::clone(&self.store), opener.clone());
        self.clients.run(move || opener.piece(&*store, &digest, Form::Shown, offset)).await
    }

    /// Removes the files of an execution that no event of it names: a crash left them. Only the owner of the execution may do so: a newer one may have
    /// written some of them for events that this process does not know. `ownership` is asked once the files are listed, so that those that a newer owner
    /// writes from then on are not among them.
    pub(crate) async fn remove_unnamed(
        &self,
        owner: Owner,
        named: HashSet<String>,
        ownership: Ownership,
    ) -> Result<usize, BlobError> {
        let (store, of) = (Arc::clone(&self.store), owner.clone());
        let mut unnamed = self.drivers.run(move || store.names(&of)).await?;
        unnamed.retain(|name| !named.contains(name));
        if unnamed.is_empty() || !ownership.is_still_owner().await {
            return Ok(0);
        }
        let store = Arc::clone(&self.store);
        self.drivers.run(move || store.remove_files(&owner, &unnamed).map(|()| unnamed.len())).await
    }

    /// Removes these files of an execution that was not created.
    pub(crate) async fn remove_files(&self, owner: Owner, names: Vec<String>) -> Result<(), BlobError> {
        let store = Arc::clone(&self.store);
        self.drivers.run(move || store.remove_files(&owner, &names)).await
    }

    /// Removes all blobs of an execution.
    pub(crate) async fn remove(&self, owner: Owner) -> Result<(), BlobError> {
        let store = Arc::clone(&self.store);
        self.drivers.run(move || store.remove(&owner)).await
    }
}

#[cfg(test)]
mod tests {
    use belay_blobs::Folder;

    use super::*;

    const KEY: SealKey = SealKey::new([7; 32]);

    fn stored(shown: &str, original: Option<&str>) -> (tempfile::TempDir, Folder, Opener, BlobRef) {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path());
        let owner = Owner { namespace: "n".into(), id: "e".into() };
        let NewBlob { reference, files } = seal_blob(&KEY, "uid", shown, original, &|| [3; 32]);
        store.write(&owner, &files).unwrap();
        (folder, store, Opener { owner, uid: "uid".into(), key: KEY }, reference)
    }

    fn read(opener: &Opener, store: &Folder, blob: &BlobRef, offset: u64) -> Option<Vec<u8>> {
        opener.piece(store, &digest_bytes(&blob.digest).unwrap(), Form::Shown, offset).unwrap()
    }

    /// B-09: a reader can begin at any byte, also at the limits of chunks and at the end.
    #[test]
    fn a_blob_is_read_from_any_offset() {
        for length in [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 17] {
            let text: String = ('a'..='z').cycle().take(length).collect();
            let (_folder, store, opener, blob) = stored(&text, None);
            assert_eq!(blob.size, length as u64);
            assert_eq!(opener.original(&store, &blob).unwrap(), text);
            for offset in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, length - 1, length].into_iter().filter(|at| *at <= length)
            {
                let piece = read(&opener, &store, &blob, offset as u64).unwrap();
                let end = if offset == length { length } else { length.min((offset / CHUNK + 1) * CHUNK) };
                assert_eq!(piece, text.as_bytes()[offset..end], "{offset} of {length}");
            }
            assert_eq!(read(&opener, &store, &blob, length as u64 + 1), None);
        }
    }

    #[test]
    fn both_forms_are_sealed_and_each_has_its_reader() {
        let (folder, store, opener, blob) = stored("[REDACTED]", Some("hunter2hunter2"));
        assert!(blob.redacted && blob.size == 10);
        assert_eq!(opener.original(&store, &blob).unwrap(), "hunter2hunter2");
        assert_eq!(read(&opener, &store, &blob, 0).unwrap(), b"[REDACTED]");
        let names: Vec<String> = file_names(&blob).collect();
        assert_eq!(names.len(), 2);
        for name in names {
            let bytes = std::fs::read(folder.path().join("n/e").join(name)).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("hunter2") && !bytes.ends_with(b"]"));
        }
    }

    /// B-21: what was changed, cut off, lengthened or put in another's place is damage, and never a value.
    #[test]
    fn a_changed_file_is_never_a_value() {
        let text = "x".repeat(2 * CHUNK + 5);
        let (folder, store, opener, blob) = stored(&text, None);
        let path = folder.path().join("n/e").join(file_names(&blob).next().unwrap());
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[CHUNK + 500] ^= 1;
        let chunk = CHUNK + SEALED_LONGER;
        let swapped = [&whole[chunk..2 * chunk], &whole[..chunk], &whole[2 * chunk..]].concat();
        for bytes in [
            flipped,
            whole[..whole.len() - 1].to_vec(),
            whole[..2 * chunk].to_vec(),
            whole[..20].to_vec(),
            Vec::new(),
            [&whole[..], &whole[..chunk]].concat(),
            swapped,
        ] {
            std::fs::write(&path, &bytes).unwrap();
            let error = opener.original(&store, &blob).unwrap_err();
            assert!(matches!(error, Unreadable::Changed(_)), "{} bytes: {error}", bytes.len());
            assert_eq!(error.status("d").code(), Code::DataLoss);
        }
        std::fs::write(&path, &whole).unwrap();
        let other = Opener { uid: "other".into(), ..opener.clone() };
        assert!(matches!(other.original(&store, &blob), Err(Unreadable::Changed(_))));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(opener.original(&store, &blob), Err(Unreadable::Missing)));
    }

    #[test]
    fn a_digest_comes_back_from_its_digits() {
        let digits = "ab".repeat(32);
        let digest = digest_of(&digits).unwrap();
        assert_eq!(digest, format!("hmac-sha256:{digits}"));
        assert_eq!(digest_bytes(&digest), Some([0xab; 32]));
        for bad in ["", "ab", &"AB".repeat(32), &"../".repeat(21), &"ab".repeat(33)] {
            assert_eq!(digest_of(bad), None, "{bad}");
        }
    }
}

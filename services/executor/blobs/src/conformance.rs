//! The conformance suite that every store of blobs has to pass.

use crate::{BlobError, BlobFile, BlobStore, Owner};

/// Checks a store's guarantees. `open` opens the same empty store each time, after the previous handle was dropped.
///
/// # Panics
/// When a guarantee does not hold; the message names it.
pub fn check(open: &mut dyn FnMut() -> Box<dyn BlobStore>) {
    let owner = |id: &str| Owner { namespace: "n".into(), id: id.into() };
    let (one, two) = (owner("one"), owner("two"));
    let store = open();
    let all = |store: &dyn BlobStore, owner: &Owner, name: &str| store.read(owner, name, 0, 1 << 20);
    let is_missing = |read: Result<Vec<u8>, BlobError>| matches!(read, Err(BlobError::Missing));

    assert!(is_missing(all(&*store, &one, "a")), "what was not written does not exist");
    assert!(matches!(store.length(&one, "a"), Err(BlobError::Missing)));
    assert!(store.names(&one).unwrap().is_empty());
    store.remove_files(&one, &["a".into()]).expect("an execution without blobs has none to remove");
    store.remove(&one).expect("an execution without blobs can be removed");

    let large: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let file = |name: &str, bytes: &[u8]| BlobFile { name: name.into(), bytes: bytes.to_vec() };
    store.write(&one, &[file("a", &large), file("a.original", b"secret"), file("empty", b"")]).unwrap();
    store.write(&two, &[file("a", b"other")]).unwrap();
    store.write(&one, &[file("b", b"later")]).unwrap();
    store.write(&one, &[file("b", b"later")]).expect("a name can be written again");
    drop(store);

    let store = open();
    assert_eq!(all(&*store, &one, "a").unwrap(), large, "what was written is there after opening again");
    assert_eq!(store.length(&one, "a").unwrap(), large.len() as u64);
    assert_eq!(all(&*store, &two, "a").unwrap(), b"other", "each execution has its own");
    assert_eq!(all(&*store, &one, "empty").unwrap(), b"");
    let piece = |offset, length| store.read(&one, "a", offset, length).unwrap();
    assert_eq!(piece(256, 3), [0, 1, 2]);
    assert_eq!(piece(299_999, 10), large[299_999..], "a read ends with the file");
    assert!(piece(300_000, 10).is_empty() && piece(400_000, 10).is_empty());

    let names = || {
        let mut names = store.names(&one).unwrap();
        names.sort_unstable();
        names
    };
    assert_eq!(names(), ["a", "a.original", "b", "empty"]);
    store.remove_files(&one, &["b".into(), "empty".into(), "c".into()]).unwrap();
    assert_eq!(names(), ["a", "a.original"], "the others are there");
    assert!(is_missing(all(&*store, &one, "b")));
    assert_eq!(all(&*store, &one, "a.original").unwrap(), b"secret");
    store.remove(&one).unwrap();
    store.remove(&one).expect("a removal can be repeated");
    drop(store);

    let store = open();
    assert!(is_missing(all(&*store, &one, "a")), "what was removed stays so");
    assert_eq!(all(&*store, &two, "a").unwrap(), b"other");
}

//! A full-text index of documents, in SQLite's FTS5.
//!
//! It has the words of the documents and where their pieces are, but not their text: a finding is read from its file, and only if that is still what was indexed.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use belay_workspace::{FolderEntry, RelPath};
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::words::{pieces, spaced, split_names};

/// Identifies the file of an index: `BlRs`.
const APPLICATION: i32 = 0x426c_5273;
/// The format of the file. Another one is made anew.
const FORMAT: i64 = 1;
/// The largest file of an index, in bytes.
const MAX_FILE: i64 = 1 << 30;
/// The most memory of an index without a file, in bytes.
const MAX_MEMORY: i64 = 256 << 20;
const PAGE: i64 = 4096;
/// The memory that a connection uses for pages, in KiB.
const CACHE: i64 = 8 * 1024;

const SCHEMA: &str = "
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL UNIQUE,
    state TEXT NOT NULL,
    digest TEXT NOT NULL,
    -- Why it has no words; empty when it has.
    without TEXT NOT NULL,
    size INTEGER NOT NULL
) STRICT;
CREATE TABLE pieces (id INTEGER PRIMARY KEY, document INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL, line INTEGER NOT NULL) STRICT;
CREATE INDEX pieces_of_document ON pieces (document);
CREATE VIRTUAL TABLE words USING fts5(text, parts, name, content='', contentless_delete=1, tokenize=\"porter unicode61 remove_diacritics 2\");
";

/// Why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl IndexError {
    /// Whether the file is no index, or a damaged one: it is made anew.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                // A table that is missing or has other columns, and a value of another type, are damage as well.
                Some(
                    ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown | ErrorCode::TypeMismatch
                ) | None
            ),
            Self::Io(_) => false,
        }
    }

    /// Whether the index, or its disk, has no more room.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull))
    }
}

/// A document as the index knows it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    id: i64,
    /// Whether it has words.
    pub(super) is_text: bool,
    /// What it was when it was read: see [`state_of`].
    pub(super) state: String,
}

/// A piece of a document that a question has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) path: Vec<u8>,
    pub(super) digest: String,
    pub(super) start: usize,
    pub(super) length: usize,
    pub(super) line: usize,
}

/// A document to index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document<'a> {
    pub(super) path: &'a RelPath,
    pub(super) state: &'a str,
    pub(super) size: u64,
    pub(super) content: Content<'a>,
}

/// What a document has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// Text, with its digest.
    Text(&'a [u8], &'a str),
    /// No words, for this reason.
    Without(&'a str),
}

/// An index.
#[derive(Debug)]
pub(super) struct Index {
    connection: Connection,
}

impl Index {
    /// An index that is gone with this value.
    pub(super) fn in_memory() -> Result<Self, IndexError> {
        let connection = Connection::open_in_memory()?;
        connection.pragma_update(None, "max_page_count", MAX_MEMORY / PAGE)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection })
    }

    /// Opens the index in a file, and makes it if there is none. The file is its owner's alone.
    pub(super) fn open(path: &Path) -> Result<Self, IndexError> {
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let connection =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        // It can be made again at any time: what counts is that a power loss does not damage it, not that it loses nothing.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "secure_delete", true)?;
        connection.pragma_update(None, "cache_size", -CACHE)?;
        connection.pragma_update(None, "max_page_count", MAX_FILE / PAGE)?;
        let is_empty = || {
            let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
            tables.map(|tables| tables == 0)
        };
        if is_empty()? {
            connection.execute_batch("BEGIN IMMEDIATE")?;
            // Another one may have made it meanwhile.
            if is_empty()? {
                let named = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};");
                connection.execute_batch(&[SCHEMA, &named].concat())?;
            }
            connection.execute_batch("COMMIT")?;
        }
        let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        if (pragma("application_id")?, pragma("user_version")?) != (i64::from(APPLICATION), FORMAT) {
            let other = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB);
            return Err(rusqlite::Error::SqliteFailure(other, None).into());
        }
        Ok(Self { connection })
    }

    /// Removes the files of an index.
    pub(super) fn remove(path: &Path) -> io::Result<()> {
        for end in ["", "-wal", "-shm", "-journal"] {
            let mut file = path.as_os_str().to_owned();
            file.push(end);
            match fs::remove_file(PathBuf::from(file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Begins a change, which is there for others once it is committed.
    pub(super) fn begin(&self) -> Result<(), IndexError> {
        Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
    }

    pub(super) fn commit(&self) -> Result<(), IndexError> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    /// Takes back what was not committed.
    pub(super) fn take_back(&self) {
        if !self.connection.is_autocommit() {
            // A connection that cannot even do this is closed by its owner.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// All documents by their paths.
    pub(super) fn known(&self) -> Result<HashMap<Vec<u8>, Known>, IndexError> {
        let mut statement = self.connection.prepare("SELECT path, id, state, without = '' FROM documents")?;
        let rows = statement.query_map([], |row| {
            Ok((row.get(0)?, Known { id: row.get(1)?, state: row.get(2)?, is_text: row.get(3)? }))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Adds a document that is not known.
    pub(super) fn add(&self, document: Document<'_>) -> Result<(), IndexError> {
        let Document { path, state, size, content } = document;
        let (digest, without) = match content {
            Content::Text(_, digest) => (digest, ""),
            Content::Without(why) => ("", why),
        };
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let mut add = self
            .connection
            .prepare_cached("INSERT INTO documents (path, state, digest, without, size) VALUES (?, ?, ?, ?, ?)")?;
        let document = add.insert(params![path.as_bytes(), state, digest, without, size])?;
        let Content::Text(bytes, _) = content else { return Ok(()) };
        let mut piece_of =
            self.connection.prepare_cached("INSERT INTO pieces (document, start, length, line) VALUES (?, ?, ?, ?)")?;
        let mut words_of =
            self.connection.prepare_cached("INSERT INTO words (rowid, text, parts, name) VALUES (?, ?, ?, ?)")?;
        let name = path.as_text();
        let name = format!("{} {}", spaced(&name), split_names(&name));
        for piece in pieces(bytes) {
            let text = String::from_utf8_lossy(&bytes[piece.start..piece.start + piece.length]);
            let id = piece_of.insert(params![document, piece.start, piece.length, piece.line])?;
            words_of.execute(params![id, spaced(&text), split_names(&text), name])?;
        }
        Ok(())
    }

    /// Removes a document.
    pub(super) fn forget(&self, known: &Known) -> Result<(), IndexError> {
        let mut words = self
            .connection
            .prepare_cached("DELETE FROM words WHERE rowid IN (SELECT id FROM pieces WHERE document = ?)")?;
        words.execute([known.id])?;
        self.connection.prepare_cached("DELETE FROM pieces WHERE document = ?")?.execute([known.id])?;
        self.connection.prepare_cached("DELETE FROM documents WHERE id = ?")?.execute([known.id])?;
        Ok(())
    }

    /// How many documents have words, and how many bytes they have.
    pub(super) fn extent(&self) -> Result<(u64, u64), IndexError> {
        let count = "SELECT count(*), coalesce(sum(size), 0) FROM documents WHERE without = ''";
        let (files, bytes) =
            self.connection.query_row(count, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        Ok((files.unsigned_abs(), bytes.unsigned_abs()))
    }

    /// How many documents have no words, by their reason, with one of them.
    pub(super) fn without_words(&self) -> Result<Vec<(String, u64, Vec<u8>)>, IndexError> {
        let count = "SELECT without, count(*), min(path) FROM documents WHERE without <> '' GROUP BY without";
        let mut statement = self.connection.prepare(count)?;
        let rows =
            statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs(), row.get(2)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The pieces that a query finds, the best first.
    pub(super) fn search(&self, query: &str, most: usize) -> Result<Vec<Hit>, IndexError> {
        // A word of the text counts most but for one of the path; the parts of names a little less than whole words. What is equally good is in the order of paths.
        let search = "
SELECT documents.path, documents.digest, pieces.start, pieces.length, pieces.line
FROM (SELECT rowid, bm25(words, 1.0, 0.8, 1.5) AS badness FROM words WHERE words MATCH ?1 ORDER BY badness LIMIT ?2) AS found
JOIN pieces ON pieces.id = found.rowid JOIN documents ON documents.id = pieces.document
ORDER BY found.badness, documents.path, pieces.start";
        let mut statement = self.connection.prepare_cached(search)?;
        let hits = statement.query_map(params![query, i64::try_from(most).unwrap_or(i64::MAX)], |row| {
            Ok(Hit {
                path: row.get(0)?,
                digest: row.get(1)?,
                start: row.get(2)?,
                length: row.get(3)?,
                line: row.get(4)?,
            })
        })?;
        Ok(hits.collect::<Result<_, _>>()?)
    }
}

/// What tells that a file has changed: size, inode, and both times.
pub(super) fn state_of(entry: &FolderEntry) -> String {
    let FolderEntry { size, inode, modified, changed, .. } = entry;
    format!("{size} {inode} {}.{:09} {}.{:09}", modified.0, modified.1, changed.0, changed.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn with(files: &[(&str, &str)]) -> Index {
        let index = Index::in_memory().unwrap();
        for (name, text) in files {
            let content = Content::Text(text.as_bytes(), "sha256:x");
            index.add(Document { path: &path(name), state: "", size: text.len() as u64, content }).unwrap();
        }
        index
    }

    fn found(index: &Index, question: &str) -> Vec<String> {
        use super::super::question::{Form, Question};
        let asked = Question::new(question).asked(&[Form::Phrase, Form::All]);
        let mut paths: Vec<String> = Vec::new();
        for (_, query) in asked {
            for hit in index.search(&query, 10).unwrap() {
                let path = String::from_utf8(hit.path).unwrap();
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        paths.sort();
        paths
    }

    /// S3-13: identifiers are found by their parts and as a whole, words by their stems.
    #[test]
    fn names_and_words_are_found() {
        let index = with(&[
            ("a.rs", "fn get_user_name() {}"),
            ("b.ts", "const userName = getUserName(); // HTTPServer"),
            ("c.md", "The approvals of a person."),
            ("d/retry_policy.md", "nothing"),
            ("e.md", "設定ファイルの場所"),
            ("f.md", "Café naïve"),
        ]);
        assert_eq!(found(&index, "user name"), ["a.rs", "b.ts"]);
        assert_eq!(found(&index, "getUserName"), ["a.rs", "b.ts"]);
        assert_eq!(found(&index, "get_user_name"), ["a.rs", "b.ts"]);
        assert_eq!(found(&index, "http server"), ["b.ts"]);
        assert_eq!(found(&index, "approve"), ["c.md"]);
        assert_eq!(found(&index, "retry policy"), ["d/retry_policy.md"]);
        assert_eq!(found(&index, "ファイル"), ["e.md"]);
        assert_eq!(found(&index, "cafe naive"), ["f.md"]);
        assert_eq!(found(&index, "absent"), Vec::<String>::new());
    }

    /// S3-13: a question is never an error of syntax.
    #[test]
    fn every_question_can_be_asked() {
        use super::super::question::{Form, Question};
        let index = with(&[("a", "one AND two OR three NEAR four")]);
        let long = "long ".repeat(2000);
        let one = "x".repeat(10_000);
        let deep = "(".repeat(5000) + "a";
        for question in [
            "AND",
            "OR NOT",
            "NEAR(one two, 3)",
            "\"",
            "\"one",
            "one\" OR \"two",
            "*",
            "one*",
            "text:one",
            "{text parts}: one",
            "-one",
            "^one",
            "a+b",
            "'; DROP TABLE words",
            "🦀",
            "one 🦀 two",
            "\u{301}",
            "\u{200b}",
            "कि",
            "\u{0}",
            &long,
            &one,
            &deep,
        ] {
            let forms = [Form::Phrase, Form::All, Form::Any, Form::Beginnings];
            for (form, query) in Question::new(question).asked(&forms) {
                index.search(&query, 5).unwrap_or_else(|error| panic!("{question} {form:?} {query}: {error}"));
            }
        }
    }

    #[test]
    fn a_document_is_forgotten_with_its_words() {
        let index = with(&[("a", "one"), ("b", "one")]);
        let known = index.known().unwrap();
        index.forget(&known[b"a".as_slice()]).unwrap();
        assert_eq!(found(&index, "one"), ["b"]);
        assert_eq!(index.extent().unwrap(), (1, 3));
        let without = Content::Without("binary");
        index.add(Document { path: &path("c"), state: "", size: 1, content: without }).unwrap();
        assert_eq!(index.without_words().unwrap(), [("binary".to_owned(), 1, b"c".to_vec())]);
        assert_eq!(index.extent().unwrap(), (1, 3));
    }

    #[test]
    fn a_file_is_opened_again_and_what_is_no_index_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("index.db");
        let content = Content::Text(b"one", "sha256:x");
        let first = Index::open(&file).unwrap();
        first.add(Document { path: &path("a"), state: "s", size: 3, content }).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions(), std::os::unix::fs::PermissionsExt::from_mode(0o100_600));
        drop(first);
        let again = Index::open(&file).unwrap();
        assert_eq!(
            (found(&again, "one"), again.known().unwrap()[b"a".as_slice()].state.as_str()),
            (vec!["a".to_owned()], "s")
        );
        drop(again);
        for damage in [
            |file: &Path| fs::write(file, "not a database, and long enough to be read as one").unwrap(),
            |file: &Path| Connection::open(file).unwrap().execute_batch("CREATE TABLE other (x)").unwrap(),
        ] {
            Index::remove(&file).unwrap();
            damage(&file);
            assert!(Index::open(&file).unwrap_err().is_damage());
        }
        Index::remove(&file).unwrap();
        assert!(Index::open(&file).unwrap().known().unwrap().is_empty());
        assert!(!Index::open(folder.path()).unwrap_err().is_damage(), "a folder");
    }
}

//! Checksums of rows: a bit that flipped on the disk never becomes a result.
//!
//! Each row has a checksum (XXH3, 64 bits) over the table's name and all columns, the key included. The SQL function `row_sum` computes it, where
//! a row is written and where it is read; every connection of [`crate::open`] has it.

use std::{fmt, hash::Hasher as _};

use rusqlite::{
    Connection,
    functions::FunctionFlags,
    types::{Value, ValueRef},
};
use twox_hash::XxHash3_64;

/// A table whose rows have a checksum, or a part of the columns of one.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The table's name.
    pub name: &'static str,
    /// The columns that the checksum covers; the first is the key that names the row.
    pub columns: &'static [&'static str],
    /// The column of the checksum.
    pub sum: &'static str,
    /// The object that a damaged row affects, as in `… is affected`.
    pub affects: &'static str,
}

/// A row whose content is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// Its table.
    pub table: String,
    /// Its key as it is found, which may be what is damaged.
    pub key: String,
    /// The affected object.
    pub affects: String,
}

impl fmt::Display for DamagedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, affects } = self;
        write!(f, "the row `{key}` of table `{table}` is damaged, and {affects} is affected; see `belay store check`")
    }
}

impl Table {
    /// An SQL expression: the checksum of the row's columns.
    pub fn computed(&self) -> String {
        self.sum_of(self.columns.iter().map(|column| format!("{}.{column}", self.name)))
    }

    /// An SQL expression: whether the row is as it was written.
    pub fn intact(&self) -> String {
        format!("({}.{} IS {})", self.name, self.sum, self.computed())
    }

    /// An SQL expression: the checksum of a row with these values, each an SQL expression, in the order of the columns.
    pub fn sum_of(&self, values: impl IntoIterator<Item = impl fmt::Display>) -> String {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        assert_eq!(values.len(), self.columns.len(), "one value for each column of {}", self.name);
        format!("row_sum('{}.{}', {})", self.name, self.sum, values.join(", "))
    }

    /// A statement that inserts a row. Its parameters are the columns, in order.
    pub fn insert(&self) -> String {
        let values: Vec<String> = (1..=self.columns.len()).map(|number| format!("?{number}")).collect();
        format!(
            "INSERT INTO {} ({}, {}) VALUES ({}, {})",
            self.name,
            self.columns.join(", "),
            self.sum,
            values.join(", "),
            self.sum_of(&values)
        )
    }

    /// A statement that gives the rows that meet a condition the checksum of what they contain. Only for rows that the same transaction has
    /// written, or read and found intact.
    pub fn stamp(&self, condition: &str) -> String {
        format!("UPDATE {} SET {} = {} WHERE {condition}", self.name, self.sum, self.computed())
    }

    /// The key with which the checksum of a damaged row holds: what was written, where a single bit of the key is damaged and nothing else. `key`
    /// has the bytes of the key, a text, as they are found, and `rest` the values of the other columns.
    pub fn original_key(&self, key: &[u8], rest: &[Value], sum: i64) -> Option<String> {
        let name = Value::Text(format!("{}.{}", self.name, self.sum));
        let mut bytes = key.to_vec();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut hasher = XxHash3_64::new();
            add(&mut hasher, (&name).into());
            add(&mut hasher, ValueRef::Text(&bytes));
            rest.iter().for_each(|value| add(&mut hasher, value.into()));
            if hasher.finish().cast_signed() == sum {
                return String::from_utf8(bytes).ok();
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    /// The damaged row with this key.
    pub fn damaged(&self, key: impl fmt::Display) -> DamagedRow {
        DamagedRow { table: self.name.to_owned(), key: key.to_string(), affects: self.affects.to_owned() }
    }

    /// Reads every row, and returns those that are damaged.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn damaged_rows(&self, connection: &Connection) -> Result<Vec<DamagedRow>, rusqlite::Error> {
        // Not by an index, which has copies of columns.
        let rows = format!("SELECT {} FROM {} NOT INDEXED WHERE NOT {}", self.columns[0], self.name, self.intact());
        let mut statement = connection.prepare(&rows)?;
        let mut rows = statement.query([])?;
        let mut damaged = Vec::new();
        while let Some(row) = rows.next()? {
            damaged.push(self.damaged(shown(row.get_ref(0)?)));
        }
        Ok(damaged)
    }
}

fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Adds the function `row_sum` to a connection that was opened otherwise than by [`crate::open`].
///
/// # Errors
/// When SQLite refuses it.
pub fn add_row_sum(connection: &Connection) -> Result<(), rusqlite::Error> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("row_sum", -1, flags, |arguments| {
        let mut hasher = XxHash3_64::new();
        for index in 0..arguments.len() {
            add(&mut hasher, arguments.get_raw(index));
        }
        Ok(hasher.finish().cast_signed())
    })
}

/// A value with its type and its length, so that no bytes can move from one column to the next.
fn add(hasher: &mut XxHash3_64, value: ValueRef<'_>) {
    let (kind, bytes): (u8, &[u8]) = match value {
        ValueRef::Null => (0, &[]),
        ValueRef::Integer(number) => (1, &number.to_le_bytes()),
        ValueRef::Real(number) => (2, &number.to_le_bytes()),
        ValueRef::Text(bytes) => (3, bytes),
        ValueRef::Blob(bytes) => (4, bytes),
    };
    let mut head = [kind; 9];
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    hasher.write(&head);
    hasher.write(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Table = Table { name: "t", columns: &["key", "number", "text", "bytes"], sum: "sum", affects: "a test" };

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        add_row_sum(&connection).unwrap();
        connection
            .execute_batch("CREATE TABLE t (key TEXT PRIMARY KEY, number INTEGER, text TEXT, bytes BLOB, sum INTEGER NOT NULL) STRICT")
            .unwrap();
        connection.execute(&T.insert(), ("a", Some(7), "words", Some([1_u8, 2]))).unwrap();
        connection.execute(&T.insert(), ("b", None::<i64>, "", None::<Vec<u8>>)).unwrap();
        connection
    }

    #[test]
    fn any_change_of_a_row_is_found() {
        for change in [
            "key = 'c'",
            "number = 6",
            "number = NULL",
            "text = 'wordz'",
            "text = ''",
            "bytes = x'0103'",
            "bytes = NULL",
            "bytes = x''",
            "sum = sum + 1",
            // The bytes of one column in the next.
            "text = '', bytes = CAST(text || CAST(bytes AS TEXT) AS BLOB)",
        ] {
            let connection = database();
            assert_eq!(T.damaged_rows(&connection).unwrap(), []);
            connection.execute(&format!("UPDATE t SET {change} WHERE key = 'a'"), []).unwrap();
            let key = if change.starts_with("key") { "c" } else { "a" };
            assert_eq!(T.damaged_rows(&connection).unwrap(), [T.damaged(key)], "{change}");
            connection.execute(&T.stamp(&format!("key = '{key}'")), []).unwrap();
            assert_eq!(T.damaged_rows(&connection).unwrap(), []);
        }
    }

    /// Stored checksums depend on it.
    #[test]
    fn the_checksum_of_a_row_stays_what_it_is() {
        let sum: i64 = database().query_row("SELECT sum FROM t WHERE key = 'a'", [], |row| row.get(0)).unwrap();
        assert_eq!(sum, 3_366_313_293_989_334_582);
    }

    #[test]
    fn a_damaged_key_is_found_by_the_checksum() {
        let sum: i64 = database().query_row("SELECT sum FROM t WHERE key = 'a'", [], |row| row.get(0)).unwrap();
        let rest = |number: i64| [number.into(), Value::from("words".to_owned()), Value::from(vec![1_u8, 2])];
        assert_eq!(T.original_key(b"c", &rest(7), sum).as_deref(), Some("a"));
        assert_eq!(T.original_key(&[b'a' | 0x80], &rest(7), sum).as_deref(), Some("a"), "which is no UTF-8");
        assert_eq!(T.original_key(b"b", &rest(7), sum), None, "two bits");
        assert_eq!(T.original_key(b"c", &rest(8), sum), None, "not only the key");
    }
}

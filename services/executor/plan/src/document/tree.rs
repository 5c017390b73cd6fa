//! A document as a tree with the position of each value. Both formats are parsed through serde into the same tree.

use std::{collections::HashSet, fmt, marker::PhantomData};

use serde::de::{Deserialize, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// A value and the byte of the text at which it begins.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) offset: usize,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A field of an object. Keys are unique.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) value: Node,
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) offset: usize,
    pub(super) name: String,
}

/// A text that could not be read into a tree.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) message: String,
    /// Line and column in characters, counted from 1; 0 when not known.
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Node {
    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<&Entry> {
        self.entries()?.iter().find(|entry| entry.key.name == name)
    }

    pub(super) fn entry(&self, index: usize) -> Option<&Node> {
        match &self.kind {
            Kind::List(entries) => entries.get(index),
            _ => None,
        }
    }

    /// The same value without places.
    pub(super) fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(entries) => entries.iter().map(Node::to_value).collect(),
            Kind::Map(entries) => {
                entries.iter().map(|entry| (entry.key.name.clone(), entry.value.to_value())).collect()
            }
        }
    }
}

/// Builds one level of the tree; `N` and `K` are a format's types for a value and a key with their positions.
pub(super) struct KindVisitor<N, K>(PhantomData<(N, K)>);

impl<N, K> KindVisitor<N, K> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, N: Deserialize<'de> + Into<Node>, K: Deserialize<'de> + Into<Key>> Visitor<'de> for KindVisitor<N, K> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON supports")
    }

    fn visit_unit<E: Error>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Kind, E> {
        Number::from_f64(value).map(Kind::Number).ok_or_else(|| E::custom("JSON does not support NaN and infinity"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Kind, E> {
        Ok(Kind::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Kind, E> {
        Ok(Kind::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element::<N>()? {
            entries.push(entry.into());
        }
        Ok(Kind::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        while let Some(key) = map.next_key::<K>()? {
            let key: Key = key.into();
            if !names.insert(key.name.clone()) {
                return Err(A::Error::custom(format_args!("`{}` is given twice", crate::path::shown(&key.name))));
            }
            entries.push(Entry { key, value: map.next_value::<N>()?.into() });
        }
        Ok(Kind::Map(entries))
    }
}

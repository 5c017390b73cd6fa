//! Reads the protobuf encoding: tags, and values without what is in them. Never allocates, whatever a length claims.

use std::fmt;

/// The largest number of a field.
const MAX_NUMBER: u64 = (1 << 29) - 1;

/// How a value is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Varint,
    Fixed64,
    /// With its length before it.
    Delimited,
    Fixed32,
}

/// Why bytes are not an encoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// They end within a value.
    Cut,
    /// A number of more than 64 bits.
    LongNumber,
    /// No field has this number.
    Number(u64),
    /// A group, or a type that protobuf does not have.
    Type(u8),
    /// A value of another type than the field's.
    Mismatch(u32),
    /// Nested too deep.
    Deep,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("the bytes end within a field"),
            Self::LongNumber => f.write_str("a number has more than 64 bits"),
            Self::Number(number) => write!(f, "{number} is not the number of a field"),
            Self::Type(number) => write!(f, "wire type {number} is not used"),
            Self::Mismatch(number) => write!(f, "field {number} has another type"),
            Self::Deep => f.write_str("messages are nested too deep"),
        }
    }
}

/// Reads bytes from the front.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

/// An encoded value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    One(u64),
    Delimited(&'a [u8]),
    Fixed,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, length: bytes.len() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes have been read.
    pub(super) fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// A field's number and the type of the value that follows.
    pub(super) fn tag(&mut self) -> Result<(u32, Type), Malformed> {
        let tag = self.varint()?;
        let number = tag >> 3;
        let wire_type = match tag & 7 {
            0 => Type::Varint,
            1 => Type::Fixed64,
            2 => Type::Delimited,
            5 => Type::Fixed32,
            #[expect(clippy::cast_possible_truncation, reason = "three bits")]
            other => return Err(Malformed::Type(other as u8)),
        };
        if number == 0 || number > MAX_NUMBER {
            return Err(Malformed::Number(number));
        }
        Ok((u32::try_from(number).expect("it has 29 bits"), wire_type))
    }

    /// The value after a tag. A list of numbers may be packed: one delimited value with all of them.
    pub(super) fn value(&mut self, number: u32, found: Type, of: Type, is_list: bool) -> Result<Value<'a>, Malformed> {
        if found != of && !(is_list && found == Type::Delimited) {
            return Err(Malformed::Mismatch(number));
        }
        match found {
            Type::Varint => self.varint().map(Value::One),
            Type::Fixed64 => self.take(8).map(|_| Value::Fixed),
            Type::Fixed32 => self.take(4).map(|_| Value::Fixed),
            Type::Delimited => {
                let length = self.varint()?;
                let bytes = self.take(usize::try_from(length).map_err(|_| Malformed::Cut)?)?;
                if found != of {
                    check_packed(bytes, of)?;
                }
                Ok(Value::Delimited(bytes))
            }
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Cut)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for (index, byte) in self.rest.iter().enumerate() {
            // The tenth byte has the 64th bit.
            if index == 9 && *byte > 1 {
                return Err(Malformed::LongNumber);
            }
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(number);
            }
        }
        Err(Malformed::Cut)
    }
}

/// Checks that packed numbers end with the last byte.
fn check_packed(bytes: &[u8], of: Type) -> Result<(), Malformed> {
    let width = match of {
        Type::Fixed32 => 4,
        Type::Fixed64 => 8,
        Type::Varint | Type::Delimited => {
            let mut reader = Reader::new(bytes);
            while !reader.is_empty() {
                reader.varint()?;
            }
            return Ok(());
        }
    };
    if bytes.len().is_multiple_of(width) { Ok(()) } else { Err(Malformed::Cut) }
}

impl<'a> Value<'a> {
    /// The bytes of a delimited value; empty for others.
    pub(super) fn bytes(self) -> &'a [u8] {
        if let Self::Delimited(bytes) = self { bytes } else { &[] }
    }

    /// The numbers of a value: one, or those that are packed.
    pub(super) fn varints(self) -> impl Iterator<Item = Result<u64, Malformed>> {
        let mut one = if let Self::One(number) = self { Some(number) } else { None };
        let mut packed = Reader::new(self.bytes());
        std::iter::from_fn(move || match one.take() {
            Some(number) => Some(Ok(number)),
            None => (!packed.is_empty()).then(|| packed.varint()),
        })
    }
}

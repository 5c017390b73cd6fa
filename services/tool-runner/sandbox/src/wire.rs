//! The encoding between launcher and runner. Both are the same binary, so there is no versioning.

use std::{
    ffi::OsString,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
    time::Duration,
};

/// A value that can be encoded to and decoded from bytes.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// Decodes a value from the front. `None`: the bytes are invalid.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Encodes a value as a frame: its length (four bytes, little-endian), then its bytes.
pub(crate) fn frame(value: &impl Wire) -> Vec<u8> {
    let mut out = vec![0; 4];
    value.put(&mut out);
    let length = u32::try_from(out.len() - 4).expect("argument vectors are far below 4 GiB");
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

/// The length in a frame's header.
pub(crate) fn frame_length(header: [u8; 4]) -> usize {
    u32::from_le_bytes(header) as usize
}

/// Decodes the body of a frame, which has to be used up.
pub(crate) fn unframe<T: Wire>(mut body: &[u8]) -> Option<T> {
    let value = T::take(&mut body)?;
    body.is_empty().then_some(value)
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl Wire for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                let (bytes, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_le_bytes(*bytes))
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, u128, i32);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(u8::take(from)? != 0)
    }
}

impl Wire for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(Self::new(u64::take(from)?, u32::take(from)?))
    }
}

impl Wire for OsString {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let length = usize::try_from(u64::take(from)?).ok()?;
        let (bytes, rest) = from.split_at_checked(length)?;
        *from = rest;
        Some(Self::from_vec(bytes.to_vec()))
    }
}

impl Wire for PathBuf {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_os_str().to_owned().put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        OsString::take(from).map(Self::from)
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        OsString::from(self).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        OsString::take(from)?.into_string().ok()
    }
}

impl Wire for SocketAddr {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ipv4().put(out);
        match self.ip() {
            IpAddr::V4(address) => address.to_bits().put(out),
            IpAddr::V6(address) => address.to_bits().put(out),
        }
        self.port().put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let address = match bool::take(from)? {
            true => IpAddr::V4(u32::take(from)?.into()),
            false => IpAddr::V6(u128::take(from)?.into()),
        };
        Some(Self::new(address, u16::take(from)?))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        for item in self {
            item.put(out);
        }
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        (0..u64::take(from)?).map(|_| T::take(from)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

/// `wire_struct!(Name { field, … })`: encodes the fields in order.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::wire::Wire::put(&self.$field, out);)*
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::wire::Wire::take(from)?),* })
            }
        }
    };
}

/// `wire_enum!(Name { 0 = Unit, 1 = Variant(a, b), … })`: encodes the number, then the fields.
macro_rules! wire_enum {
    ($name:ident { $($tag:literal = $variant:ident $(($($field:ident),*))?),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $(($($field),*))? => {
                        $crate::wire::Wire::put(&($tag as u8), out);
                        $($($crate::wire::Wire::put($field, out);)*)?
                    })*
                }
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                match <u8 as $crate::wire::Wire>::take(from)? {
                    $($tag => {
                        $($(let $field = $crate::wire::Wire::take(from)?;)*)?
                        Some(Self::$variant $(($($field),*))?)
                    })*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use {wire_enum, wire_struct};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_round_trips() {
        let value = (vec![(Some(OsString::from_vec(vec![0xff, b'a'])), 7_u32)], Duration::from_millis(1500));
        let framed = frame(&value);
        assert_eq!(frame_length(*framed.first_chunk().unwrap()), framed.len() - 4);
        assert_eq!(unframe(&framed[4..]), Some(value));
    }

    #[test]
    fn a_truncated_or_overlong_body_is_invalid() {
        let body = &frame(&vec![1_u64, 2])[4..];
        assert_eq!(unframe::<Vec<u64>>(&body[..body.len() - 1]), None);
        assert_eq!(unframe::<Vec<u64>>(&[body, &[0]].concat()), None);
    }
}

//! How launcher and runner put values into bytes. Both ends are the same binary, so there are no versions to keep apart.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
    time::Duration,
};

/// A value that can be written to and read back from a run of bytes.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// Takes the value off the front. `None`: the bytes are not one.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// The frame of a value: its length (four bytes, little-endian), then its bytes.
pub(crate) fn frame(value: &impl Wire) -> Vec<u8> {
    let mut out = vec![0; 4];
    value.put(&mut out);
    let length = u32::try_from(out.len() - 4).expect("argument vectors are far below 4 GiB");
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

/// The length announced by a frame's first four bytes.
pub(crate) fn frame_length(header: [u8; 4]) -> usize {
    u32::from_le_bytes(header) as usize
}

/// The value of a frame's body, which has to be used up.
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
integers!(u8, u32, u64, i32);

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

/// `wire_struct!(Name { field, … })`: the fields one after the other.
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

/// `wire_enum!(Name { 0 = Unit, 1 = Variant(a, b), … })`: the number, then the fields.
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
    fn comes_back_as_it_was() {
        let value = (vec![(Some(OsString::from_vec(vec![0xff, b'a'])), 7_u32)], Duration::from_millis(1500));
        let framed = frame(&value);
        assert_eq!(frame_length(*framed.first_chunk().unwrap()), framed.len() - 4);
        assert_eq!(unframe(&framed[4..]), Some(value));
    }

    #[test]
    fn a_body_that_is_cut_or_too_long_is_no_value() {
        let body = &frame(&vec![1_u64, 2])[4..];
        assert_eq!(unframe::<Vec<u64>>(&body[..body.len() - 1]), None);
        assert_eq!(unframe::<Vec<u64>>(&[body, &[0]].concat()), None);
    }
}

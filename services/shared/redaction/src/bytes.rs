//! Classes of bytes, which the engine, the streams and the kinds of secrets share.

/// Whether a token can continue with this byte.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=_-.~%".contains(&byte)
}

pub(crate) fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

//! The value of a credential in memory.

use std::fmt;

use zeroize::Zeroizing;

/// The value of a credential. It is neither shown nor serialized, and its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// The shortest value, in bytes: a shorter one occurs in answers by chance, and could not be removed from them.
pub const MIN_SECRET: usize = 8;
/// The longest value, in bytes.
pub const MAX_SECRET: usize = 8 * 1024;

/// Why bytes are not the value of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretProblem {
    /// It is empty.
    Empty,
    /// It is too short to be removed from answers.
    Short,
    /// It is too long for a header.
    Long,
    /// It has a character that a header cannot have.
    Character,
}

impl fmt::Display for SecretProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::Short => {
                write!(f, "it has fewer than {MIN_SECRET} characters, which occur in answers by chance: use a longer one")
            }
            Self::Long => write!(f, "it has more than {MAX_SECRET} bytes"),
            Self::Character => {
                f.write_str("it has a character that is not visible ASCII, such as a line break or a blank: a header cannot carry it")
            }
        }
    }
}

impl Secret {
    /// Takes a value as it was read: blanks and line ends around it do not belong to it.
    ///
    /// # Errors
    /// [`SecretProblem`].
    pub fn new(read: Vec<u8>) -> Result<Self, SecretProblem> {
        let read = Zeroizing::new(read);
        let value = read.trim_ascii();
        match value.len() {
            0 => Err(SecretProblem::Empty),
            length if length < MIN_SECRET => Err(SecretProblem::Short),
            length if length > MAX_SECRET => Err(SecretProblem::Long),
            _ if !value.iter().all(u8::is_ascii_graphic) => Err(SecretProblem::Character),
            _ => Ok(Self(Zeroizing::new(value.to_vec()))),
        }
    }

    /// The value, for whoever puts it into a request.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_without_the_line_end_of_its_file_and_is_never_shown() {
        let secret = Secret::new(b" ghp_0123456789\r\n".to_vec()).unwrap();
        assert_eq!(secret.expose(), b"ghp_0123456789");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }

    #[test]
    fn what_a_header_cannot_carry_or_an_answer_has_by_chance_is_refused() {
        let problem = |text: &str| Secret::new(text.as_bytes().to_vec()).unwrap_err();
        assert_eq!((problem(""), problem(" \n")), (SecretProblem::Empty, SecretProblem::Empty));
        assert_eq!(problem("1234567"), SecretProblem::Short);
        assert_eq!(problem(&"a".repeat(MAX_SECRET + 1)), SecretProblem::Long);
        for text in ["first line\nsecond", "two words", "tab\tinside", "grün-0123", "nul\0inside"] {
            assert_eq!(problem(text), SecretProblem::Character, "{text:?}");
        }
    }
}

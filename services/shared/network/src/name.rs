//! The names of profiles and credentials, and the length of lists.

/// The maximum length of the name of a profile, in characters.
pub const MAX_PROFILE_NAME: usize = 64;
/// The most methods and paths of a rule or a credential, and the most hosts of a credential.
pub(crate) const MAX_LIST: usize = 100;

/// Whether a text can be the name of a profile: 1 to [`MAX_PROFILE_NAME`] letters, digits, `-`, `_` and `.`, beginning with a letter or a digit.
pub fn is_profile_name(text: &str) -> bool {
    text.len() <= MAX_PROFILE_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

//! The detected secrets that are searched for as literal values in later text.

/// The minimum length of a secret that is searched for by its value, in bytes: shorter ones occur in ordinary words.
const SHORTEST: usize = 6;
/// Up to this length, in bytes, lower-case letters are an ordinary word: a schema may call `string` a password.
const LONGEST_WORD: usize = 9;
/// The longest, in bytes.
const LONGEST: usize = 4 * 1024;

/// The workspace's mount point, and folders of every machine: they occur in most outputs.
const PLACES: &[&str] = &["/workspace", "/tmp/home"];

/// Whether a value that was a secret in one place is to be hidden in all others. If so,
/// [`Redactor::with_literals`](crate::Redactor::with_literals) accepts it.
pub fn is_telling(value: &str) -> bool {
    let is_word = value.len() <= LONGEST_WORD && value.bytes().all(|byte| byte.is_ascii_lowercase());
    (SHORTEST..=LONGEST).contains(&value.len()) && !is_word && !PLACES.contains(&value.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_words_are_not_looked_for() {
        let longest = "x".repeat(LONGEST);
        let longer = "x".repeat(LONGEST + 1);
        for (value, telling) in [
            ("", false),
            ("a1b2c", false),
            ("a1b2c3", true),
            ("string", false),
            ("passwords", false),
            ("passphrases", true),
            ("Secret", true),
            ("/workspace", false),
            ("/workspace/", false),
            ("/workspace1", true),
            (&longest, true),
            (&longer, false),
        ] {
            assert_eq!(is_telling(value), telling, "{value}");
        }
        assert!(crate::Redactor::new().with_literals(["a1b2c3", &longest]).is_ok());
    }
}

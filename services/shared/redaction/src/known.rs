//! Which values that were secrets once are looked for wherever they come again.

/// The shortest secret that is looked for where only its value shows that it is one, in bytes: shorter ones stand in ordinary words.
const SHORTEST: usize = 6;
/// Up to this length, in bytes, letters without a capital are an ordinary word: `string` may be called a password in a schema.
const LONGEST_WORD: usize = 9;
/// The longest, in bytes.
const LONGEST: usize = 4 * 1024;

/// Where commands see their workspace, and folders that every machine has: they stand in most outputs.
const PLACES: &[&str] = &["/workspace", "/tmp/home"];

/// Whether a value that was a secret in one place is to be hidden in every other, where only its value shows it. Then
/// [`Redactor::with_literals`](crate::Redactor::with_literals) takes it.
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

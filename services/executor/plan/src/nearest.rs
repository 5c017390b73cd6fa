//! "Did you mean": suggests a known word for a mistyped one.

/// Longer words are not compared: they are rarely mistyped, and comparing costs the product of the lengths.
const MAX_COMPARED_BYTES: usize = 128;

/// The known word nearest to `word`, if at most a third of the letters differ (swapped neighbours count once, case does not matter). Of equally
/// near words the first.
///
/// ```
/// assert_eq!(belay_plan::nearest("dependson", ["id", "depends_on"]), Some("depends_on"));
/// assert_eq!(belay_plan::nearest("colour", ["id", "depends_on"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let folded = folded(word);
    let letters = folded.chars().count();
    let allowed = (letters / 3).max(1);
    known
        .into_iter()
        .filter(|candidate| {
            candidate.len() <= MAX_COMPARED_BYTES && candidate.chars().count().abs_diff(letters) <= allowed
        })
        .map(|candidate| (strsim::osa_distance(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters of other alphabets that look like those after them.
const LOOK_ALIKES: [(&str, char); 14] = [
    ("аα", 'a'),
    ("с", 'c'),
    ("ԁ", 'd'),
    ("еε", 'e'),
    ("һ", 'h'),
    ("іι", 'i'),
    ("ј", 'j'),
    ("к", 'k'),
    ("оο", 'o'),
    ("рρ", 'p'),
    ("ѕ", 's'),
    ("т", 't'),
    ("ху", 'x'),
    ("υ", 'u'),
];

/// A word as it looks: in lower case, with ASCII in the place of what looks like it, and without what is no letter at all.
fn folded(word: &str) -> String {
    let ascii = |c: char| {
        // The full-width forms of ASCII stand in its order.
        let full_width =
            ('\u{ff01}'..='\u{ff5e}').contains(&c).then(|| char::from_u32(u32::from(c) - 0xfee0)).flatten();
        let look_alike = || LOOK_ALIKES.iter().find(|(letters, _)| letters.contains(c)).map(|(_, letter)| *letter);
        full_width.or_else(look_alike).unwrap_or(c)
    };
    let lower = word.to_lowercase();
    lower.chars().map(ascii).filter(|c| c.is_ascii() || c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found() {
        for (word, expected) in [
            ("tol", Some("tool")),
            ("toool", Some("tool")),
            ("otol", Some("tool")),
            ("TOOL", Some("tool")),
            ("skilId", Some("skillId")),
            ("depend_on", Some("depends_on")),
            ("tооl", Some("tool")),
            ("ｔｏｏｌ", Some("tool")),
            ("“tool”", Some("tool")),
            ("xyz", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, ["id", "tool", "skillId", "depends_on"]), expected, "{word}");
        }
    }

    #[test]
    fn the_first_of_equals_and_nothing_for_giants() {
        assert_eq!(nearest("step-3", ["step-1", "step-2"]), Some("step-1"));
        assert_eq!(nearest(&"a".repeat(1 << 20), ["a"]), None);
    }
}

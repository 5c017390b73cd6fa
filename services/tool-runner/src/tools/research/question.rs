//! The question of a call, in the forms in which it is asked of an index. Pure.
//!
//! Nothing of the question is syntax of FTS5: only letters and digits are taken from it, and each word is quoted.

use super::words::{is_of_word, spaced, split_case};

/// The most words of a question that are looked for: the first ones.
const MAX_WORDS: usize = 32;
/// The longest word that is looked for, in characters; a longer one is cut.
const MAX_WORD: usize = 64;
/// The longest phrase, in words: a longer question stands nowhere as it is.
const MAX_PHRASE: usize = 16;
/// The shortest word whose beginning is looked for.
const MIN_BEGINNING: usize = 4;

/// Words that say nothing about the subject of an English question. They are left out unless there are no others.
const COMMON: [&str; 56] = [
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "by", "can", "could", "do", "does", "for",
    "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or",
    "our", "should", "so", "than", "that", "the", "their", "there", "these", "this", "to", "was", "we", "were", "what",
    "when", "where", "which", "who", "why", "will", "with", "you",
];

/// A form in which a question is asked of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// Its words stand next to each other.
    Phrase,
    /// A piece of a document has all its words.
    All,
    /// A piece has some of its words.
    Any,
    /// A piece has a word that begins as one of its words.
    Beginnings,
}

impl Form {
    /// Its name in results.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Phrase => "phrase",
            Self::All => "all_words",
            Self::Any => "any_word",
            Self::Beginnings => "beginnings",
        }
    }

    /// How much a place in its list counts.
    pub(super) fn weight(self) -> f64 {
        match self {
            Self::Phrase => 4.0,
            Self::All => 2.0,
            Self::Any => 1.0,
            Self::Beginnings => 0.5,
        }
    }
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The question as it was asked, without space around it.
    pub(super) text: String,
    /// Its words in their order.
    all: Vec<String>,
    /// Those that say something, each once.
    telling: Vec<String>,
}

impl Question {
    /// Reads a question.
    pub(super) fn new(text: &str) -> Self {
        let all: Vec<String> = text
            .split(|character| !is_of_word(character))
            .filter(|word| !word.is_empty())
            .map(|word| word.chars().take(MAX_WORD).collect())
            .collect();
        let mut seen = Vec::new();
        for word in &all {
            if seen.len() < MAX_WORDS && !seen.iter().any(|known: &String| known.eq_ignore_ascii_case(word)) {
                seen.push(word.clone());
            }
        }
        let says = |word: &&String| !COMMON.contains(&word.to_lowercase().as_str());
        let telling: Vec<String> = seen.iter().filter(says).cloned().collect();
        Self { text: text.trim().to_owned(), all, telling: if telling.is_empty() { seen } else { telling } }
    }

    /// Whether there is a word to look for.
    pub(super) fn has_words(&self) -> bool {
        !self.telling.is_empty()
    }

    /// The words that say something.
    pub(super) fn telling(&self) -> &[String] {
        &self.telling
    }

    /// The question in these forms, as FTS5 reads them. A form that asks the same as an earlier one, or nothing, is left out.
    pub(super) fn asked(&self, forms: &[Form]) -> Vec<(Form, String)> {
        let mut asked: Vec<(Form, String)> = Vec::new();
        for form in forms {
            let words = || self.telling.iter();
            let text = match form {
                Form::Phrase if self.all.is_empty() || self.all.len() > MAX_PHRASE => continue,
                Form::Phrase => as_it_is(&self.all.join(" ")),
                Form::All => words().map(|word| as_it_is(word)).collect::<Vec<_>>().join(" AND "),
                Form::Any => words().map(|word| as_it_is(word)).collect::<Vec<_>>().join(" OR "),
                Form::Beginnings => {
                    let long = words().filter(|word| word.chars().count() >= MIN_BEGINNING);
                    long.map(|word| format!("{}*", quoted(word))).collect::<Vec<_>>().join(" OR ")
                }
            };
            if !text.is_empty() && !asked.iter().any(|(_, earlier)| *earlier == text) {
                asked.push((*form, text));
            }
        }
        asked
    }
}

/// Words that stand next to each other: as they are, or as the parts of names.
fn as_it_is(words: &str) -> String {
    let (whole, parts) = (quoted(words), quoted(&split_case(words)));
    if whole == parts { whole } else { format!("({whole} OR {parts})") }
}

/// A text as FTS5 takes it: nothing in it is syntax.
fn quoted(text: &str) -> String {
    format!("\"{}\"", spaced(text).trim().replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Vec<String> {
        use Form::{All, Any, Beginnings, Phrase};
        Question::new(text).asked(&[Phrase, All, Any, Beginnings]).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn a_question_is_asked_from_strict_to_loose() {
        assert_eq!(
            asked("How are sessions resumed?"),
            [
                r#""How are sessions resumed""#,
                r#""sessions" AND "resumed""#,
                r#""sessions" OR "resumed""#,
                r#""sessions"* OR "resumed"*"#
            ]
        );
        assert_eq!(asked("lock"), [r#""lock""#, r#""lock"*"#]);
        assert_eq!(asked("to be or"), [r#""to be or""#, r#""to" AND "be" AND "or""#, r#""to" OR "be" OR "or""#]);
        assert_eq!(asked("getUserName")[0], r#"("getUserName" OR "get User Name")"#);
        assert_eq!(asked("user_name")[1], r#""user" AND "name""#);
    }

    #[test]
    fn nothing_of_a_question_is_syntax() {
        for text in ["a\" OR b*", "NEAR(a b, 5)", "text : a", "^a -b +c {d}", "'; DROP TABLE words; --", "\"", "a\0b"] {
            for (_, query) in Question::new(text).asked(&[Form::Phrase, Form::All, Form::Any]) {
                let outside: String = query.split('"').step_by(2).collect();
                assert!(
                    outside.replace("AND", "").replace("OR", "").trim_matches([' ', '(', ')']).trim().is_empty(),
                    "{query}"
                );
            }
        }
        for text in ["", " \n", "?!…", "🦀🦀", "\"\"", "* - ()"] {
            assert!(!Question::new(text).has_words() && asked(text).is_empty(), "{text}");
        }
        let long = Question::new(&"word1 word2 ".repeat(1000));
        assert_eq!(long.telling(), ["word1", "word2"]);
        let many: String = (0..1000).map(|n| format!("w{n} ")).collect();
        assert_eq!(Question::new(&many).telling().len(), MAX_WORDS);
        assert_eq!(Question::new(&"x".repeat(10_000)).telling()[0].len(), MAX_WORD);
    }
}

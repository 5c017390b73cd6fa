//! Findings: which pieces are cited, in which order, and what is shown of each. Pure.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    index::Hit,
    left_out::Place,
    question::{Form, Question},
    words::cut,
};

/// The most findings of one document.
const MAX_OF_DOCUMENT: usize = 3;
/// The longest extract, in bytes and in lines.
pub(super) const MAX_EXTRACT: usize = 700;
const MAX_LINES: usize = 8;
/// What is shown of a longer line, in bytes.
const MAX_LINE: usize = 400;
/// How little the places at the end of a list differ from each other: the usual constant of reciprocal rank fusion.
const FLATNESS: f64 = 60.0;

/// A finding: what it says, and where that stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) place: Place,
    /// The path, or the URL.
    pub(super) at: String,
    /// The title of a page.
    pub(super) title: Option<String>,
    /// The first and the last line of the extract.
    pub(super) lines: Option<(usize, usize)>,
    /// The digest of the file or of the page's text; of a page that was not read, that of the extract.
    pub(super) digest: String,
    pub(super) extract: String,
    /// The strictest form of the question that has found it; `None` for a search endpoint, which does not say.
    pub(super) form: Option<Form>,
    pub(super) score: f64,
}

impl Finding {
    /// As results have it.
    pub(super) fn shown(&self) -> Value {
        let Self { place, at, title, lines, digest, extract, form, score } = self;
        let mut shown = json!({
            "source": if *place == Place::Web { "web" } else { "documentation" },
            "digest": digest,
            "extract": extract,
            "matched": form.map_or("search", Form::word),
            "score": (score * 1e6).round() / 1e6,
        });
        shown[if *place == Place::Web { "url" } else { "path" }] = at.as_str().into();
        if let Place::Root(name) = place {
            shown["root"] = name.as_str().into();
        }
        if let Some(title) = title {
            shown["title"] = title.as_str().into();
        }
        if let Some((start, end)) = lines {
            shown["lines"] = json!({"start": start, "end": end});
        }
        shown
    }
}

/// A piece that may be cited.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) hit: Hit,
    pub(super) form: Form,
    pub(super) score: f64,
}

/// What a place in a list is worth. Scores of different indexes cannot be compared, and places can (reciprocal rank fusion).
pub(super) fn worth(weight: f64, place: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "lists are short")]
    let place = place as f64;
    weight / (FLATNESS + 1.0 + place)
}

/// The best pieces of an index, by their places in the lists of all forms.
pub(super) fn best(lists: Vec<(Form, Vec<Hit>)>, most: usize) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut known: HashMap<(Vec<u8>, usize), usize> = HashMap::new();
    for (form, hits) in lists {
        for (place, hit) in hits.into_iter().enumerate() {
            let worth = worth(form.weight(), place);
            let at = *known.entry((hit.path.clone(), hit.start)).or_insert(candidates.len());
            match candidates.get_mut(at) {
                Some(candidate) => candidate.score += worth,
                None => candidates.push(Candidate { hit, form, score: worth }),
            }
        }
    }
    // Stable: what is equally good stays in the order of the strictest list.
    candidates.sort_by(|one, other| other.score.total_cmp(&one.score));
    let mut of_document: HashMap<Vec<u8>, usize> = HashMap::new();
    candidates.retain(|candidate| {
        let count = of_document.entry(candidate.hit.path.clone()).or_default();
        *count += 1;
        *count <= MAX_OF_DOCUMENT
    });
    candidates.truncate(most);
    candidates
}

/// The part of a piece that says most about the question, with its first and last line. `None` when the piece is not in these bytes.
pub(super) fn extract(bytes: &[u8], hit: &Hit, question: &Question) -> Option<(String, (usize, usize))> {
    let piece = bytes.get(hit.start..hit.start.checked_add(hit.length)?)?;
    let text = String::from_utf8_lossy(piece);
    let lines: Vec<&str> = text.lines().collect();
    let stems: Vec<String> = question.telling().iter().map(|word| stem(word)).collect();
    let said = |line: &str| {
        let line = line.to_lowercase();
        stems.iter().filter(|stem| line.contains(stem.as_str())).count()
    };
    let best = (0..lines.len()).rev().max_by_key(|at| said(lines[*at]))?;
    if lines[best].len() > MAX_EXTRACT {
        let line = hit.line + best;
        return Some((around(lines[best], &stems).to_owned(), (line, line)));
    }
    let is_empty = |at: usize| lines[at].trim().is_empty();
    let (mut first, mut last) = (best, best);
    let mut length = lines[best].len();
    // A line before it, for what it is about; then what follows.
    if best > 0 && !is_empty(best - 1) && length + lines[best - 1].len() < MAX_EXTRACT {
        first = best - 1;
        length += lines[first].len() + 1;
    }
    while last + 1 < lines.len() && last + 1 - first < MAX_LINES && length + lines[last + 1].len() < MAX_EXTRACT {
        last += 1;
        length += lines[last].len() + 1;
    }
    while last > best && is_empty(last) {
        last -= 1;
    }
    Some((lines[first..=last].join("\n"), (hit.line + first, hit.line + last)))
}

/// What begins a word in most of its forms, in small letters.
fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    let count = word.chars().count();
    word.chars().take((count * 3 / 4).max(4)).collect()
}

/// The part of a long line around the first word of the question.
fn around<'a>(line: &'a str, stems: &[String]) -> &'a str {
    // Of letters whose small form has another length, the place may be a little off.
    let lower = line.to_lowercase();
    let found = stems.iter().filter_map(|stem| lower.find(stem.as_str())).min().unwrap_or(0);
    let from = line.floor_char_boundary(found.saturating_sub(MAX_LINE / 4).min(line.len().saturating_sub(MAX_LINE)));
    &line[from..from + cut(&line.as_bytes()[from..], MAX_LINE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(path: &str, start: usize, length: usize, line: usize) -> Hit {
        Hit { path: path.as_bytes().to_vec(), digest: String::new(), start, length, line }
    }

    #[test]
    fn what_several_forms_find_comes_first_and_no_document_has_all_places() {
        let hits =
            |names: &[(&str, usize)]| names.iter().map(|(path, start)| hit(path, *start, 1, 1)).collect::<Vec<_>>();
        let lists = vec![
            (Form::Phrase, hits(&[("b", 0)])),
            (Form::Any, hits(&[("a", 0), ("a", 10), ("a", 20), ("a", 30), ("b", 0), ("c", 0)])),
        ];
        let best = |most| {
            let best = super::best(lists.clone(), most);
            best.into_iter()
                .map(|found| (String::from_utf8(found.hit.path).unwrap(), found.hit.start, found.form))
                .collect::<Vec<_>>()
        };
        let all = [
            ("b", 0, Form::Phrase),
            ("a", 0, Form::Any),
            ("a", 10, Form::Any),
            ("a", 20, Form::Any),
            ("c", 0, Form::Any),
        ];
        assert_eq!(best(10), all.map(|(path, start, form)| (path.to_owned(), start, form)));
        assert_eq!(best(1).len(), 1);
    }

    #[test]
    fn an_extract_has_the_line_that_says_most() {
        let text = "# Locks\n\nA lock is held.\nThe second holder waits.\nUntil then\n\n";
        let question = Question::new("who waits as second holder?");
        let (shown, lines) = extract(text.as_bytes(), &hit("a", 0, text.len(), 7), &question).unwrap();
        assert_eq!((shown.as_str(), lines), ("A lock is held.\nThe second holder waits.\nUntil then", (9, 11)));
        let long = format!("{}é needle {}", "a".repeat(3000), "b".repeat(3000));
        let (shown, lines) = extract(long.as_bytes(), &hit("a", 0, long.len(), 3), &Question::new("needle")).unwrap();
        assert!(shown.contains("needle") && shown.len() <= MAX_LINE && lines == (3, 3), "{shown}");
        let many = "word\n".repeat(400);
        let (shown, lines) = extract(many.as_bytes(), &hit("a", 0, many.len(), 1), &Question::new("word")).unwrap();
        assert_eq!((shown.lines().count(), lines), (MAX_LINES, (1, MAX_LINES)));
        assert_eq!(extract(b"short", &hit("a", 3, 9, 1), &question), None, "the file is another one");
        let latin = b"caf\xe9 word\n";
        assert_eq!(extract(latin, &hit("a", 0, latin.len(), 1), &Question::new("word")).unwrap().0, "caf\u{fffd} word");
    }
}

//! The shape of a requirement's id: `S2-FR-006`, `S2-FR-077a`, `S4-14`, `B-01`.

/// Every id in the text. `S2-FR-068 to S2-FR-072` and `S2-FR-068..072` name the five of them.
pub(super) fn named(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    // The last id, and where the text after it begins: a range goes on there.
    let mut last: Option<(String, usize)> = None;
    let mut at = 0;
    while at < text.len() {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let begin = at + text[at..].find(part).unwrap_or(text.len() - at);
        let end = begin + text[begin..].find(|c| !part(c)).unwrap_or(text.len() - begin);
        let word = text[begin..end].trim_end_matches('-');
        at = end;
        let since = last.as_ref().map_or("", |(_, after)| &text[*after..begin]).trim();
        let id = match &last {
            Some((first, _)) if since == ".." => first.rsplit_once('-').map(|(family, _)| format!("{family}-{word}")),
            _ => Some(word.to_owned()),
        };
        let Some(id) = id.filter(|id| is_id(id)) else {
            last = last.filter(|_| word == "to");
            continue;
        };
        if let Some((first, _)) = &last
            && ["to", ".."].contains(&since)
        {
            found.extend(between(first, &id));
        }
        found.push(id.clone());
        last = Some((id, end));
    }
    found
}

/// Whether the whole word is an id.
pub(super) fn is_id(word: &str) -> bool {
    let mut parts = word.split('-');
    let source = parts.next().unwrap_or_default();
    let known = match source.as_bytes() {
        [b'B'] => true,
        [b'S', digit] => digit.is_ascii_digit(),
        _ => false,
    };
    let Some(number) = parts.next_back().filter(|_| known) else { return false };
    let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let is_number = (2..=3).contains(&digits.len())
        && digits.bytes().all(|b| b.is_ascii_digit())
        && number.len() - digits.len() <= 1;
    is_number && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_uppercase()))
}

/// The ids strictly between two of one family; none for any other pair.
fn between(first: &str, last: &str) -> Vec<String> {
    let split =
        |id: &str| id.rsplit_once('-').map(|(family, number)| (family.to_owned(), number.parse::<u32>(), number.len()));
    let (Some((family, Ok(low), width)), Some((other, Ok(high), _))) = (split(first), split(last)) else {
        return Vec::new();
    };
    if family != other {
        return Vec::new();
    }
    (low + 1..high).map(|number| format!("{family}-{number:0width$}")).collect()
}

#[test]
fn ids_are_found_in_comments() {
    let text = "// S9-FR-077a, S9-14; B-99: see (S9-NFR-001) and number 8, X12, UTF-8, B-tree, S9-x-01, S91-02.";
    assert_eq!(named(text), ["S9-FR-077a", "S9-14", "B-99", "S9-NFR-001"]);
}

#[test]
fn a_range_names_what_lies_between() {
    assert_eq!(named("S9-FR-008 to S9-FR-011: x"), ["S9-FR-008", "S9-FR-009", "S9-FR-010", "S9-FR-011"]);
    assert_eq!(named("S9-FR-008..010, 012"), ["S9-FR-008", "S9-FR-009", "S9-FR-010"]);
    assert_eq!(named("S9-01 is close to S9-03, B-01 to S9-03"), ["S9-01", "S9-03", "B-01", "S9-03"]);
}

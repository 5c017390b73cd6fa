//! "Did you mean": suggests a known word for a mistyped one.

/// The nearest known word of which at most a third of the letters differ; of equally near ones the first in the list.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are not typing errors, and a comparison costs the product of the lengths.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    let near = known.into_iter().map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate));
    let near = near.filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.len());
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

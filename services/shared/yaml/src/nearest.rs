//! "Did you mean": the known word that a mistyped one was probably meant to be.

/// The known word of which at most a third of the letters differ, the nearest first, and of equally near ones the first in the list.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Nobody mistypes a word of this length, and comparing costs the product of the lengths.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    let near = known.into_iter().map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate));
    let near = near.filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.len());
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

//! Ids of steps that a plan does not name: those for entries of lists and for calls, and those that undo others. No author can give such an id.

/// Stands between a step's id and what is derived from it.
const SEPARATOR: char = '~';

/// Follows the separator in the id of a step that undoes another.
const COMPENSATE: &str = "compensate";

/// The id of the step for one entry of the list of `step`, or for one of its calls, from 0.
pub fn entry_id(step: &str, index: usize) -> String {
    format!("{step}{SEPARATOR}{index}")
}

/// The id of the step that undoes what `step` has done.
pub fn compensation_id(step: &str) -> String {
    format!("{step}{SEPARATOR}{COMPENSATE}")
}

/// The step that the step with this id undoes; `None` for one that undoes none.
pub fn compensated_step(id: &str) -> Option<&str> {
    id.strip_suffix(COMPENSATE)?.strip_suffix(SEPARATOR)
}

/// The step of the plan that the id is derived from: itself for one that the plan names.
pub fn planned_step(id: &str) -> &str {
    id.split_once(SEPARATOR).map_or(id, |(planned, _)| planned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_derived_from_an_id_leads_back_to_it() {
        let entry = entry_id("build", 7);
        assert_eq!((planned_step(&entry), compensated_step(&entry)), ("build", None));
        let undoes = compensation_id(&entry);
        assert_eq!((planned_step(&undoes), compensated_step(&undoes)), ("build", Some("build~7")));
        assert_eq!((planned_step("build"), compensated_step("compensate")), ("build", None));
    }
}

//! The conditions of loops.

/// The number of rounds of a loop that counts them: `$.loop['iteration'] < 3`, also as `if (…) { true; } else { false; }`. In
/// `$.loop['iteration'] < $.value` a parameter has the number.
pub(super) fn rounds(condition: &str, parameter: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let condition = condition.replace(['\n', '\t'], " ");
    let inner = match condition.trim().strip_prefix("if") {
        None => condition.trim().trim_end_matches(';').to_owned(),
        Some(rest) => {
            let (test, branches) = rest.trim().strip_prefix('(')?.split_once(')')?;
            let branches: String = branches.chars().filter(|c| !c.is_whitespace()).collect();
            (branches.trim_end_matches(';') == "{true;}else{false;}" || branches == "{returntrue;}else{returnfalse;}")
                .then(|| test.trim().to_owned())?
        }
    };
    let (left, right, more) = match inner.split_once("<=") {
        Some((left, right)) => (left, right, 1),
        None => {
            let (left, right) = inner.split_once('<')?;
            (left, right, 0)
        }
    };
    let counts = left.trim().starts_with("$.")
        && (left.trim().ends_with("['iteration']") || left.trim().ends_with(".iteration"));
    let right = right.trim();
    let number = right.parse().ok().or_else(|| parameter(right.strip_prefix("$.")?))?;
    // The condition is asked after each round, so there is always one.
    counts.then(|| (number + more).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_that_count_are_known() {
        let parameter = |name: &str| (name == "value").then_some(4);
        assert_eq!(rounds("if ( $.loop_ref['iteration'] < $.value ) { true; } else { false; }", parameter), Some(4));
        assert_eq!(rounds("$.loop['iteration'] <= 2", parameter), Some(3));
        assert_eq!(rounds("$.loop.iteration < 3;", parameter), Some(3));
        assert_eq!(rounds("$.check['done'] == false", parameter), None);
        assert_eq!(rounds("if ($.loop['iteration'] < $.other) { true; } else { false; }", parameter), None);
    }
}

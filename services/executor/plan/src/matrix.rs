//! The list of a `for_each` as a matrix: every combination of the values of its dimensions, with combinations left out and others added.
//!
//! `include` and `exclude` mean what they do in the workflow files of GitHub Actions, whose authors know them.

use serde_json::{Map, Value};

use crate::{
    limits::MAX_ITEMS,
    nearest,
    path::{FieldPath, shown},
};

/// The key of a `for_each` that is a matrix.
pub(crate) const MATRIX: &str = "matrix";
const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";

/// The problem of a matrix: the field below `for_each` at which it is, and a clause.
pub(crate) struct Problem {
    pub(crate) field: FieldPath,
    pub(crate) message: String,
}

fn problem(field: FieldPath, message: impl Into<String>) -> Problem {
    Problem { field, message: message.into() }
}

/// The entries of a `for_each`: those of the list, or the combinations of a matrix, in the order of the dimensions' names, the last of which changes with
/// every entry; what `include` adds comes last. `source` is the reference that became the value, if one did.
///
/// # Errors
/// A sentence that names the field, for a value that is neither, and for a matrix that is none or has more than [`MAX_ITEMS`] combinations.
pub fn entries(list: Value, source: &str) -> Result<Vec<Value>, String> {
    let kind = match list {
        Value::Array(entries) => return Ok(entries),
        Value::Object(fields) if fields.len() == 1 && fields.contains_key(MATRIX) => {
            return combinations(&fields[MATRIX]).map_err(|Problem { field, message }| {
                format!("{}: {message}.", FieldPath::root().key("for_each").join(&field))
            });
        }
        other => kind_of(&other),
    };
    Err(format!("for_each: `{source}` is {kind}, and must be a list."))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The problems of a matrix as it is written: whatever is a reference is known when its step starts.
pub(crate) fn check(list: &Map<String, Value>, has_references: bool) -> Option<Problem> {
    let Some(matrix) = list.get(MATRIX).filter(|_| list.len() == 1) else {
        let message = "must be a list, a reference that becomes a list, or {matrix: {NAME: [VALUE, …]}}";
        return Some(problem(FieldPath::root(), message));
    };
    if !has_references {
        return combinations(matrix).err();
    }
    let path = FieldPath::root().key(MATRIX);
    let Some(fields) = matrix.as_object() else { return Some(not_a_matrix(path)) };
    let is_known = |value: &Value| matches!(value, Value::Array(_)) || value.as_str().is_some_and(is_reference);
    let odd = fields.iter().find(|(_, value)| !is_known(value));
    odd.map(|(name, _)| problem(path.key(name.clone()), "must be a list, or one reference that becomes a list"))
}

/// Whether a text may be one reference.
fn is_reference(text: &str) -> bool {
    text.starts_with("${") && text.ends_with('}')
}

fn not_a_matrix(path: FieldPath) -> Problem {
    problem(
        path,
        "must be an object with a list of values for each dimension, such as {os: [linux, macos], version: [1, 2]}",
    )
}

/// The combinations of a matrix.
fn combinations(matrix: &Value) -> Result<Vec<Value>, Problem> {
    let path = FieldPath::root().key(MATRIX);
    let Value::Object(fields) = matrix else { return Err(not_a_matrix(path)) };
    let list = |name: &str, value: &'_ Value| {
        let message = || format!("is {}, and must be a list", kind_of(value));
        value.as_array().cloned().ok_or_else(|| problem(path.key(name.to_owned()), message()))
    };
    let mut dimensions: Vec<(&str, Vec<Value>)> = Vec::new();
    for (name, value) in fields.iter().filter(|(name, _)| ![INCLUDE, EXCLUDE].contains(&name.as_str())) {
        dimensions.push((name, list(name, value)?));
    }
    let objects = |name: &str| -> Result<Vec<Map<String, Value>>, Problem> {
        let given = fields.get(name).map(|value| list(name, value)).transpose()?.unwrap_or_default();
        let object = |(place, entry): (usize, Value)| match entry {
            Value::Object(pairs) if !pairs.is_empty() => Ok(pairs),
            _ => Err(problem(path.key(name.to_owned()).index(place), "must be an object with values by name")),
        };
        given.into_iter().enumerate().map(object).collect()
    };
    let (included, excluded) = (objects(INCLUDE)?, objects(EXCLUDE)?);
    dimensions.sort_unstable_by_key(|(name, _)| *name);
    if dimensions.is_empty() && included.is_empty() {
        return Err(not_a_matrix(path));
    }
    for (place, pairs) in excluded.iter().enumerate() {
        if let Some(name) = pairs.keys().find(|name| dimensions.iter().all(|(dimension, _)| dimension != name)) {
            let near = nearest(name, dimensions.iter().map(|(name, _)| *name));
            let near = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
            let field = path.key(EXCLUDE).index(place).key(name.clone());
            return Err(problem(field, format!("the matrix has no dimension `{}`{near}", shown(name))));
        }
    }
    let mut sizes = dimensions.iter().map(|(_, values)| values.len());
    let product = if dimensions.is_empty() { Some(0) } else { sizes.try_fold(1_usize, usize::checked_mul) };
    if product.is_none_or(|product| product > MAX_ITEMS) {
        let message =
            format!("has more than {MAX_ITEMS} combinations: leave out values, or give each entry more to do");
        return Err(problem(path, message));
    }
    let mut all: Vec<Map<String, Value>> = if dimensions.is_empty() { Vec::new() } else { vec![Map::new()] };
    for (name, values) in &dimensions {
        let with = |before: &Map<String, Value>, value: &Value| {
            let mut pairs = before.clone();
            pairs.insert((*name).to_owned(), value.clone());
            pairs
        };
        all = all.iter().flat_map(|before| values.iter().map(|value| with(before, value))).collect();
    }
    let has_all = |of: &Map<String, Value>, pairs: &Map<String, Value>| {
        pairs.iter().all(|(name, value)| of.get(name) == Some(value))
    };
    all.retain(|of| !excluded.iter().any(|pairs| has_all(of, pairs)));
    let is_dimension = |name: &str| dimensions.iter().any(|(dimension, _)| *dimension == name);
    let written = all.len();
    for pairs in included {
        let of_dimensions: Map<String, Value> = pairs
            .iter()
            .filter(|(name, _)| is_dimension(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let mut is_added = false;
        for of in all.iter_mut().take(written).filter(|of| has_all(of, &of_dimensions)) {
            of.extend(pairs.clone());
            is_added = true;
        }
        if !is_added {
            all.push(pairs);
        }
    }
    if all.len() > MAX_ITEMS {
        let message = format!("has more than {MAX_ITEMS} combinations with those of `{INCLUDE}`: leave some out");
        return Err(problem(path.key(INCLUDE), message));
    }
    Ok(all.into_iter().map(Value::Object).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(matrix: Value) -> Result<Vec<Value>, String> {
        entries(json!({"matrix": matrix}), "")
    }

    #[test]
    fn a_matrix_is_every_combination() {
        let all = of(json!({"version": [1, 2], "os": ["linux", "mac"]})).unwrap();
        let expected = json!([
            {"os": "linux", "version": 1}, {"os": "linux", "version": 2},
            {"os": "mac", "version": 1}, {"os": "mac", "version": 2},
        ]);
        assert_eq!(Value::Array(all), expected);
        assert_eq!(of(json!({"os": ["linux"], "version": []})), Ok(vec![]));
        assert_eq!(entries(json!([1, {"a": 2}]), ""), Ok(vec![json!(1), json!({"a": 2})]));
    }

    #[test]
    fn combinations_are_left_out_by_all_the_pairs_that_are_named() {
        let all = of(
            json!({"os": ["linux", "mac"], "version": [1, 2], "exclude": [{"os": "mac", "version": 1}, {"version": 3}]}),
        );
        let expected = [
            json!({"os": "linux", "version": 1}),
            json!({"os": "linux", "version": 2}),
            json!({"os": "mac", "version": 2}),
        ];
        assert_eq!(all.unwrap(), expected);
    }

    /// The example of GitHub's documentation of `include`.
    #[test]
    fn what_is_included_is_added_to_combinations_or_is_one_more() {
        let all = of(json!({
            "animal": ["cat", "dog"],
            "fruit": ["apple", "pear"],
            "include": [
                {"color": "green"},
                {"color": "pink", "animal": "cat"},
                {"fruit": "apple", "shape": "circle"},
                {"fruit": "banana"},
                {"fruit": "banana", "animal": "cat"},
            ],
        }));
        let expected = json!([
            {"fruit": "apple", "animal": "cat", "color": "pink", "shape": "circle"},
            {"fruit": "pear", "animal": "cat", "color": "pink"},
            {"fruit": "apple", "animal": "dog", "color": "green", "shape": "circle"},
            {"fruit": "pear", "animal": "dog", "color": "green"},
            {"fruit": "banana"},
            {"fruit": "banana", "animal": "cat"},
        ]);
        assert_eq!(Value::Array(all.unwrap()), expected);
        assert_eq!(of(json!({"include": [{"site": "a"}, {"site": "b"}]})).unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_matrix_is_refused_at_its_field() {
        let digits: Vec<u32> = (0..10).collect();
        for (matrix, refused) in [
            (json!([1]), "for_each.matrix: must be an object"),
            (json!({}), "for_each.matrix: must be an object"),
            (json!({"os": "linux"}), "for_each.matrix.os: is text, and must be a list."),
            (json!({"os": ["linux"], "include": {}}), "for_each.matrix.include: is an object, and must be a list."),
            (
                json!({"os": ["linux"], "exclude": [1]}),
                "for_each.matrix.exclude[0]: must be an object with values by name.",
            ),
            (
                json!({"version": [1], "exclude": [{"versoin": 1}]}),
                "for_each.matrix.exclude[0].versoin: the matrix has no dimension `versoin`; did you mean `version`?.",
            ),
            (
                json!({"a": digits, "b": digits, "c": digits, "d": digits, "e": digits}),
                "for_each.matrix: has more than 10000 combinations",
            ),
        ] {
            let problem = of(matrix.clone()).unwrap_err();
            assert!(problem.starts_with(refused), "{matrix}: {problem}");
        }
    }
}

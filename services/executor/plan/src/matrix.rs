//! The list of a `for_each` as a matrix: every combination of the values of its dimensions, with combinations left out and others added.
//!
//! `include` and `exclude` mean what they do in the workflow files of GitHub Actions, whose authors know them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    Template,
    limits::{MAX_ITEMS, MAX_LIST_BYTES},
    nearest,
    path::{FieldPath, shown},
    template::{json_size, type_name},
};

/// The key of a `for_each` that is a matrix.
pub(crate) const MATRIX: &str = "matrix";
const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";

/// The most entries of `include` and of `exclude`: each is compared with every combination.
const MAX_RULES: usize = 256;

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
/// A sentence that names the field, for a value that is neither, and for a matrix that is none, or has more than [`MAX_ITEMS`] combinations or more than
/// [`MAX_LIST_BYTES`] in them.
pub fn entries(list: Value, source: &str) -> Result<Vec<Value>, String> {
    let kind = match list {
        Value::Array(entries) => return Ok(entries),
        Value::Object(fields) if fields.len() == 1 && fields.contains_key(MATRIX) => {
            return Matrix::read(&fields[MATRIX]).and_then(Matrix::combinations).map_err(
                |Problem { field, message }| format!("{}: {message}.", FieldPath::root().key("for_each").join(&field)),
            );
        }
        other => type_name(&other),
    };
    Err(format!("for_each: `{source}` is {kind}, and must be a list."))
}

/// The problems of a matrix as it is written: whatever is a reference is known when its step starts.
pub(crate) fn check(list: &Map<String, Value>, has_references: bool) -> Option<Problem> {
    let Some(matrix) = list.get(MATRIX).filter(|_| list.len() == 1) else {
        let message = "must be a list, a reference that becomes a list, or {matrix: {NAME: [VALUE, …]}}";
        return Some(problem(FieldPath::root(), message));
    };
    if !has_references {
        return Matrix::read(matrix).err();
    }
    let path = FieldPath::root().key(MATRIX);
    let Some(fields) = matrix.as_object() else { return Some(not_a_matrix(path)) };
    let is_known = |value: &Value| value.is_array() || Template::read(value, &[]).0.is_one_reference();
    if let Some((name, _)) = fields.iter().find(|(_, value)| !is_known(value)) {
        return Some(problem(path.key(name.clone()), "must be a list, or one reference that becomes a list"));
    }
    // The names are written here, whatever the values become.
    let dimensions: Vec<&str> = dimensions_of(fields).map(|(name, _)| name.as_str()).collect();
    let excluded = fields.get(EXCLUDE).and_then(Value::as_array).into_iter().flatten().enumerate();
    let mut named = excluded.filter_map(|(place, entry)| Some((place, entry.as_object()?)));
    named.find_map(|(place, pairs)| unknown_dimension(place, pairs, &dimensions))
}

/// The dimensions of a matrix, by their names.
fn dimensions_of(fields: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    fields.iter().filter(|(name, _)| ![INCLUDE, EXCLUDE].contains(&name.as_str()))
}

/// The problem of combinations to leave out that name a dimension which the matrix does not have.
fn unknown_dimension(place: usize, pairs: &Map<String, Value>, dimensions: &[&str]) -> Option<Problem> {
    let name = pairs.keys().find(|name| !dimensions.contains(&name.as_str()))?;
    let near = nearest(name, dimensions.iter().copied());
    let near = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
    let field = FieldPath::root().key(MATRIX).key(EXCLUDE).index(place).key(name.clone());
    Some(problem(field, format!("the matrix has no dimension `{}`{near}", shown(name))))
}

fn not_a_matrix(path: FieldPath) -> Problem {
    problem(
        path,
        "must be an object with a list of values for each dimension, such as {os: [linux, macos], version: [1, 2]}",
    )
}

/// A matrix that has been read, with the combinations to leave out and to add.
struct Matrix<'a> {
    /// By name.
    dimensions: BTreeMap<&'a str, &'a [Value]>,
    excluded: Vec<&'a Map<String, Value>>,
    included: Vec<&'a Map<String, Value>>,
    /// The number of all combinations of the dimensions.
    product: usize,
}

impl<'a> Matrix<'a> {
    /// Reads a matrix. What it takes grows with its text, and not with the number of combinations.
    fn read(matrix: &'a Value) -> Result<Self, Problem> {
        let path = FieldPath::root().key(MATRIX);
        let Value::Object(fields) = matrix else { return Err(not_a_matrix(path)) };
        let list = |name: &str, value: &'a Value| {
            let message = || format!("is {}, and must be a list", type_name(value));
            value.as_array().map(Vec::as_slice).ok_or_else(|| problem(path.key(name.to_owned()), message()))
        };
        let mut dimensions = BTreeMap::new();
        for (name, value) in dimensions_of(fields) {
            dimensions.insert(name.as_str(), list(name, value)?);
        }
        let objects = |name: &str| -> Result<Vec<&'a Map<String, Value>>, Problem> {
            let given = fields.get(name).map(|value| list(name, value)).transpose()?.unwrap_or_default();
            if given.len() > MAX_RULES {
                let message = format!("has {} entries and the limit is {MAX_RULES}", given.len());
                return Err(problem(path.key(name.to_owned()), message));
            }
            let object = |(place, entry): (usize, &'a Value)| match entry {
                Value::Object(pairs) if !pairs.is_empty() => Ok(pairs),
                _ => Err(problem(path.key(name.to_owned()).index(place), "must be an object with values by name")),
            };
            given.iter().enumerate().map(object).collect()
        };
        let (included, excluded) = (objects(INCLUDE)?, objects(EXCLUDE)?);
        if dimensions.is_empty() && included.is_empty() {
            return Err(not_a_matrix(path));
        }
        let names: Vec<&str> = dimensions.keys().copied().collect();
        let mut named = excluded.iter().enumerate();
        if let Some(problem) = named.find_map(|(place, pairs)| unknown_dimension(place, pairs, &names)) {
            return Err(problem);
        }
        let mut sizes = dimensions.values().map(|values| values.len());
        let product = match sizes.clone().any(|size| size == 0) || dimensions.is_empty() {
            true => Some(0),
            false => sizes.try_fold(1_usize, usize::checked_mul),
        };
        let product = product.filter(|product| *product <= MAX_ITEMS).ok_or_else(|| {
            let message =
                format!("has more than {MAX_ITEMS} combinations: leave out values, or give each entry more to do");
            problem(path.clone(), message)
        })?;
        // Each value stands in as many combinations as the other dimensions have.
        let bytes = dimensions.values().filter(|_| product > 0).map(|values| {
            let copies = product / values.len();
            values.iter().map(json_size).fold(0, usize::saturating_add).saturating_mul(copies)
        });
        if bytes.fold(0, usize::saturating_add) > MAX_LIST_BYTES {
            return Err(problem(path, too_long()));
        }
        Ok(Self { dimensions, excluded, included, product })
    }

    fn combinations(self) -> Result<Vec<Value>, Problem> {
        let path = FieldPath::root().key(MATRIX);
        let mut all: Vec<Map<String, Value>> = if self.product > 0 { vec![Map::new()] } else { Vec::new() };
        for (name, values) in self.dimensions.iter().filter(|_| self.product > 0) {
            let with = |before: &Map<String, Value>, value: &Value| {
                let mut pairs = before.clone();
                pairs.insert((*name).to_owned(), value.clone());
                pairs
            };
            all = all.iter().flat_map(|before| values.iter().map(|value| with(before, value))).collect();
        }
        let has = |of: &Map<String, Value>, (name, value): (&String, &Value)| of.get(name) == Some(value);
        all.retain(|of| !self.excluded.iter().any(|pairs| pairs.iter().all(|pair| has(of, pair))));
        let (written, mut added) = (all.len(), 0_usize);
        for pairs in self.included {
            let names_it = |of: &Map<String, Value>| {
                let mut named = pairs.iter().filter(|(name, _)| self.dimensions.contains_key(name.as_str()));
                named.all(|pair| has(of, pair))
            };
            let size: usize = pairs.iter().map(|(name, value)| name.len() + json_size(value)).sum();
            let copies = all.iter().take(written).filter(|of| names_it(of)).count();
            added = added.saturating_add(size.saturating_mul(copies.max(1)));
            if added > MAX_LIST_BYTES {
                return Err(problem(path.key(INCLUDE), too_long()));
            }
            all.iter_mut().take(written).filter(|of| names_it(of)).for_each(|of| of.extend(pairs.clone()));
            if copies == 0 {
                all.push(pairs.clone());
            }
        }
        if all.len() > MAX_ITEMS {
            let message = format!("has more than {MAX_ITEMS} combinations with those of `{INCLUDE}`: leave some out");
            return Err(problem(path.key(INCLUDE), message));
        }
        Ok(all.into_iter().map(Value::Object).collect())
    }
}

fn too_long() -> String {
    format!(
        "has more than {MAX_LIST_BYTES} bytes with all its combinations: put long values into files, and let the values be their paths"
    )
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
        assert_eq!(of(json!({"none": [], "many": vec![0; 1_000_000]})), Ok(vec![]));
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
                json!({"a": digits, "b": digits, "long": ["x".repeat(20_000)]}),
                "for_each.matrix: has more than 1048576 bytes with all its combinations",
            ),
            (
                json!({"a": digits, "b": digits, "include": [{"long": "x".repeat(20_000)}]}),
                "for_each.matrix.include: has more than 1048576 bytes with all its combinations",
            ),
            (
                json!({"a": digits, "exclude": vec![json!({"a": 1}); 257]}),
                "for_each.matrix.exclude: has 257 entries and the limit is 256.",
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

//! The meaning of expressions in a plan: references, and conditions in CEL.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::expression::{Expression, parse, pieces};
use crate::{
    fields::Field,
    left_out::Report,
    plan::{RunWhen, cel_text},
    scope::Scope,
    text::Text,
};

/// The values of `github` that an execution is started with, as inputs.
const GITHUB: [&str; 18] = [
    "event_name",
    "ref",
    "ref_name",
    "ref_type",
    "sha",
    "repository",
    "repository_owner",
    "actor",
    "triggering_actor",
    "run_id",
    "run_number",
    "run_attempt",
    "head_ref",
    "base_ref",
    "server_url",
    "job",
    "action",
    "api_url",
];

/// Values that are the same in every execution.
const FIXED: [(&str, &str); 5] = [
    ("github.workspace", "/workspace"),
    ("runner.os", "Linux"),
    ("runner.temp", "/tmp"),
    ("runner.tool_cache", "/tmp"),
    ("strategy.job-total", ""),
];

/// The most characters of a step's id in the name of an input.
const MAX_ID_IN_INPUT: usize = 60;

/// A job that others need.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The last step of the job, on which those depend that need the job.
    pub(super) end: String,
    /// The steps of the job.
    pub(super) steps: Vec<String>,
    /// Whether its outputs are the results of that last step; not so for a matrix, where each combination has its own.
    pub(super) has_outputs: bool,
}

/// Values that are known where an expression stands.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// The places of references.
    pub(super) scope: Scope,
    /// The name of the workflow.
    pub(super) workflow: String,
    /// Whether a combination of a matrix is known there.
    pub(super) has_matrix: bool,
    /// The jobs that this one needs.
    pub(super) needs: BTreeMap<String, Job>,
    /// The earlier steps of the job that have an id: their ids in the plan.
    pub(super) steps: BTreeMap<String, String>,
    /// The steps among them whose failure does not count.
    pub(super) unchecked: BTreeSet<String>,
    /// Variables of the workflow, the job and the step.
    pub(super) env: BTreeMap<String, Text>,
    /// The names of declared inputs whose values are booleans or numbers, as JSON Schema calls them.
    pub(super) input_types: BTreeMap<String, &'static str>,
    /// Inputs that stand for what an execution does not know of its origin, by name, with a description.
    pub(super) added_inputs: BTreeMap<String, Value>,
}

/// A value that is known when the plan runs.
pub(super) struct Reference {
    /// The part between `${` and `}`.
    pub(super) text: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Boolean,
    /// Any value that the matrix or the caller has.
    Any,
}

/// A condition: after which ends, and an expression.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Condition {
    pub(super) run_when: Option<RunWhen>,
    pub(super) cel: Option<String>,
}

impl Context {
    /// Converts a text with expressions. Those that have no place are reported, and stay as they are written.
    pub(super) fn text(&mut self, text: &str, field: &Field<'_>, report: &mut Report) -> Text {
        let (whole, unknown) = self.try_text(text);
        for expression in unknown {
            report.add(
                field,
                format!("expression {}", root(&expression)),
                format!("`${{{{ {expression} }}}}` has no value in a plan, and stays as it is written"),
                "write the value, or declare an input and write `${inputs.NAME}`",
            );
        }
        self.report_inputs(text, field, report);
        whole
    }

    /// Converts a text, and returns the expressions in it that have no place.
    pub(super) fn try_text(&mut self, text: &str) -> (Text, Vec<String>) {
        let (mut whole, mut unknown) = (Text::default(), Vec::new());
        for piece in pieces(text) {
            match piece {
                Ok(literal) => whole.push_literal(literal),
                Err(expression) => match parse(expression).and_then(|parsed| self.value(&parsed)) {
                    Some(value) if value.constant().is_some() || whole.takes_reference() => whole.push(&value),
                    _ => {
                        whole.push_literal(&format!("${{{{ {expression} }}}}"));
                        unknown.push(expression.to_owned());
                    }
                },
            }
        }
        (whole, unknown)
    }

    /// The value of an expression as text.
    pub(super) fn value(&mut self, expression: &Expression) -> Option<Text> {
        match expression {
            Expression::Text(text) | Expression::Number(text) => Some(Text::literal(text)),
            Expression::Bool(value) => Some(Text::literal(value.to_string())),
            Expression::Null => Some(Text::default()),
            Expression::Path(path) => self.path(path),
            _ => None,
        }
    }

    fn path(&mut self, path: &[String]) -> Option<Text> {
        let dotted = path.join(".");
        if let Some((_, fixed)) = FIXED.iter().find(|(name, value)| *name == dotted && !value.is_empty()) {
            return Some(Text::literal(*fixed));
        }
        if dotted == "github.workflow" {
            return Some(Text::literal(&self.workflow));
        }
        if let [first, name] = path
            && first == "env"
        {
            return self.env.get(name).cloned();
        }
        let reference = self.reference(path)?;
        Some(Text::reference(format!("{} ?? \"\"", reference.text)))
    }

    fn reference(&mut self, path: &[String]) -> Option<Reference> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["matrix", rest @ ..] if self.has_matrix && !rest.is_empty() => {
                Some(Reference { text: format!("inputs.matrix{}", accessors(rest)), kind: Kind::Any })
            }
            ["inputs", name] | ["github", "event", "inputs", name] => {
                let kind = match *self.input_types.get(*name)? {
                    "boolean" => Kind::Boolean,
                    "string" => Kind::Text,
                    _ => Kind::Any,
                };
                Some(Reference { text: self.scope.import(&format!("inputs.{name}")), kind })
            }
            ["steps", step, "outputs", name] => {
                let step = self.steps.get(*step)?;
                Some(Reference { text: format!("{step}.outputs{}", accessors(&[name])), kind: Kind::Text })
            }
            ["needs", job, "outputs", name] => {
                let job = self.needs.get(*job).filter(|job| job.has_outputs)?;
                let reference = format!("{}.result{}", job.end, accessors(&[name]));
                Some(Reference { text: self.scope.import(&reference), kind: Kind::Text })
            }
            ["github", name] if GITHUB.contains(name) => {
                Some(self.added(format!("github_{name}"), format!("`github.{name}` of the workflow file")))
            }
            ["vars", name] => {
                Some(self.added(format!("vars_{name}"), format!("the variable `{name}` of the repository")))
            }
            _ => None,
        }
    }

    /// Adds an input that stands for what the plan cannot know, and returns a reference to it.
    pub(super) fn added(&mut self, name: String, description: String) -> Reference {
        self.added_inputs
            .insert(name.clone(), json!({"description": description, "schema": {"type": "string"}, "default": ""}));
        Reference { text: self.scope.import(&format!("inputs.{name}")), kind: Kind::Text }
    }

    /// Reports the inputs that stand for values of the event, the runner or the repository.
    pub(super) fn report_inputs(&self, text: &str, field: &Field<'_>, report: &mut Report) {
        for name in self.added_inputs.keys() {
            let source = name.replacen('_', ".", 1);
            let uses =
                |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.');
            if !name.starts_with("if_")
                && text.match_indices(&source).any(|(at, found)| uses(&text[at + found.len()..]))
            {
                report.add(
                    field,
                    source.clone(),
                    format!("no event has started the execution: it is the input `{name}`, which is empty by default"),
                    format!("start with `--input {name}=VALUE`"),
                );
            }
        }
    }

    /// Converts an `if`. What cannot be said in a plan becomes an input that switches the step on, and is reported.
    pub(super) fn condition(&mut self, id: &str, field: &Field<'_>, report: &mut Report) -> Condition {
        let text = field.text().unwrap_or_default();
        let inner: String = match pieces(&text).as_slice() {
            [Err(expression)] => (*expression).to_owned(),
            _ => text.trim().to_owned(),
        };
        self.report_inputs_after(&inner, field, report, |context| {
            let parsed = parse(&inner)?;
            context.split(&parsed)
        })
        .unwrap_or_else(|| {
            // The end of an id is what tells it from others.
            let tail: String = id.chars().skip(id.chars().count().saturating_sub(MAX_ID_IN_INPUT)).collect();
            let name = format!("if_{}", tail.replace('-', "_"));
            let description = format!("whether this holds: {inner}");
            self.added_inputs.insert(
                name.clone(),
                json!({"description": description, "schema": {"type": "boolean"}, "default": false}),
            );
            report.add(
                field,
                "condition",
                format!("`{inner}` cannot be asked in a plan: it is the input `{name}`, which is false by default"),
                format!("start with `--input {name}=true` when it holds"),
            );
            let run_when =
                ["always()", "!cancelled()"].iter().any(|word| inner.contains(word)).then_some(RunWhen::Always);
            let run_when = if inner.contains("failure()") { Some(RunWhen::Failure) } else { run_when };
            Condition { run_when, cel: Some(format!("${{{}}}", self.scope.import(&format!("inputs.{name}")))) }
        })
    }

    fn report_inputs_after<T>(
        &mut self,
        text: &str,
        field: &Field<'_>,
        report: &mut Report,
        convert: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let before = self.added_inputs.clone();
        let converted = convert(self);
        match &converted {
            Some(_) => self.report_inputs(text, field, report),
            None => self.added_inputs = before,
        }
        converted
    }

    /// Takes the functions about the job's state out of an expression: they are `run_when`.
    fn split(&mut self, expression: &Expression) -> Option<Condition> {
        if let Some(run_when) = status(expression) {
            return Some(Condition { run_when, cel: None });
        }
        if let Expression::Binary("&&", left, right) = expression {
            let (left, right) = (self.split(left)?, self.split(right)?);
            // Two of them do not stand together: `always() && failure()` is `failure()`.
            let run_when = match (left.run_when, right.run_when) {
                (Some(RunWhen::Failure), _) | (_, Some(RunWhen::Failure)) => Some(RunWhen::Failure),
                (left, right) => left.or(right),
            };
            let cel = match (left.cel, right.cel) {
                (Some(left), Some(right)) => Some(format!("{left} && {right}")),
                (left, right) => left.or(right),
            };
            return Some(Condition { run_when, cel });
        }
        let cel = self.truth(expression)?;
        Some(Condition { run_when: None, cel: Some(cel) })
    }

    /// The expression as one that is true or false in CEL.
    fn truth(&mut self, expression: &Expression) -> Option<String> {
        match expression {
            Expression::Bool(value) => Some(value.to_string()),
            Expression::Null => Some("false".to_owned()),
            Expression::Text(text) => Some((!text.is_empty()).to_string()),
            Expression::Number(number) => Some((number.parse() != Ok(0.0)).to_string()),
            Expression::Not(inner) => Some(format!("!({})", self.truth(inner)?)),
            Expression::Binary(operator @ ("&&" | "||"), left, right) => {
                Some(format!("({} {operator} {})", self.truth(left)?, self.truth(right)?))
            }
            Expression::Binary(operator, left, right) => self.comparison(operator, left, right),
            Expression::Call(name, arguments) => self.call(name, arguments),
            Expression::Path(path) => match self.path(path)?.constant() {
                Some(constant) => Some((!constant.is_empty()).to_string()),
                None => {
                    let reference = self.reference(path)?;
                    Some(match reference.kind {
                        Kind::Boolean => format!("${{{}}}", reference.text),
                        Kind::Text => format!("${{{} ?? \"\"}} != \"\"", reference.text),
                        Kind::Any => format!("!(string(${{{} ?? \"\"}}) in [\"\", \"false\", \"0\"])", reference.text),
                    })
                }
            },
        }
    }

    fn comparison(&mut self, operator: &str, left: &Expression, right: &Expression) -> Option<String> {
        for (one, other) in [(left, right), (right, left)] {
            if let (Expression::Path(path), Expression::Text(result)) = (one, other)
                && let Some(cel) = self.result_is(path, result)
            {
                return match operator {
                    "==" => Some(cel),
                    "!=" => Some(format!("!({cel})")),
                    _ => None,
                };
            }
        }
        let is_text = |expression: &Expression| matches!(expression, Expression::Text(_));
        let texts = is_text(left) || is_text(right);
        Some(format!("{} {operator} {}", self.operand(left, texts)?, self.operand(right, texts)?))
    }

    /// A value in CEL, as text where it is compared with text.
    fn operand(&mut self, expression: &Expression, as_text: bool) -> Option<String> {
        match expression {
            Expression::Text(text) => Some(cel_text(text)),
            Expression::Number(number) if as_text => Some(cel_text(number)),
            Expression::Number(number) => Some(number.clone()),
            Expression::Bool(value) if as_text => Some(cel_text(&value.to_string())),
            Expression::Bool(value) => Some(value.to_string()),
            Expression::Null => Some("\"\"".to_owned()),
            Expression::Path(path) => match self.path(path)?.constant() {
                Some(constant) => Some(cel_text(constant)),
                None => {
                    let reference = self.reference(path)?;
                    let value = format!("${{{} ?? \"\"}}", reference.text);
                    Some(if as_text && reference.kind != Kind::Text { format!("string({value})") } else { value })
                }
            },
            Expression::Call(..) | Expression::Not(_) | Expression::Binary(..) => None,
        }
    }

    fn call(&mut self, name: &str, arguments: &[Expression]) -> Option<String> {
        match (name.to_lowercase().as_str(), arguments) {
            ("contains", [Expression::Path(path), Expression::Text(result)])
                if path.last().is_some_and(|last| last == "result") =>
            {
                self.result_is(path, result)
            }
            ("contains", [Expression::Call(from, json), one]) if from.eq_ignore_ascii_case("fromJSON") => {
                let [Expression::Text(json)] = json.as_slice() else { return None };
                let list: Vec<String> = serde_json::from_str(json).ok()?;
                Some(format!("{} in {}", self.operand(one, true)?, json!(list)))
            }
            ("contains", [text, part]) => {
                Some(format!("{}.contains({})", self.operand(text, true)?, self.operand(part, true)?))
            }
            ("startswith", [text, part]) => {
                Some(format!("{}.startsWith({})", self.operand(text, true)?, self.operand(part, true)?))
            }
            ("endswith", [text, part]) => {
                Some(format!("{}.endsWith({})", self.operand(text, true)?, self.operand(part, true)?))
            }
            _ => None,
        }
    }

    /// Whether a needed job, or for `needs.*.result` one of them, has ended so; or an earlier step of this job.
    fn result_is(&mut self, path: &[String], result: &str) -> Option<String> {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let jobs: Vec<Job> = match path.as_slice() {
            ["needs", "*", "result"] => self.needs.values().cloned().collect(),
            ["needs", job, "result"] => vec![self.needs.get(*job)?.clone()],
            ["steps", step, field @ ("outcome" | "conclusion")] => {
                let id = self.steps.get(*step)?.clone();
                if *field == "outcome" && self.unchecked.contains(&id) {
                    // Its failure is no failure of the step, and stands in its result.
                    let operator = match result {
                        "success" => "==",
                        "failure" => "!=",
                        _ => return None,
                    };
                    return Some(format!("${{{id}.result.exit_code ?? 0}} {operator} 0"));
                }
                vec![Job { end: id.clone(), steps: vec![id], has_outputs: false }]
            }
            _ => return None,
        };
        let mut one_has = Vec::new();
        for job in jobs {
            let (ids, state) = match result {
                "success" => (vec![job.end], "completed"),
                "failure" => (job.steps, "failed"),
                "skipped" => (job.steps.into_iter().take(1).collect(), "skipped"),
                "cancelled" => (Vec::new(), ""),
                _ => return None,
            };
            for id in ids {
                one_has.push(format!("${{{}}} == \"{state}\"", self.scope.import(&format!("{id}.state"))));
            }
        }
        Some(match one_has.as_slice() {
            [] => "false".to_owned(),
            [one] => one.clone(),
            more => format!("({})", more.join(" || ")),
        })
    }
}

/// The `run_when` of an expression that is about the state of the job alone.
fn status(expression: &Expression) -> Option<Option<RunWhen>> {
    match expression {
        Expression::Call(name, arguments) if arguments.is_empty() => match name.to_lowercase().as_str() {
            "always" => Some(Some(RunWhen::Always)),
            "failure" => Some(Some(RunWhen::Failure)),
            "success" => Some(None),
            _ => None,
        },
        Expression::Not(inner) => match inner.as_ref() {
            Expression::Call(name, _) if name.eq_ignore_ascii_case("cancelled") => Some(Some(RunWhen::Always)),
            Expression::Call(name, _) if name.eq_ignore_ascii_case("failure") => Some(None),
            _ => None,
        },
        // After a cancellation nothing starts, so that only the others are left.
        Expression::Binary("||", left, right) => {
            match (status(left), status(right), is_cancelled(left) || is_cancelled(right)) {
                (Some(one), None, true) | (None, Some(one), true) => Some(one),
                (Some(one), Some(other), _) if one != other => Some(Some(RunWhen::Always)),
                (Some(one), Some(_), _) => Some(one),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_cancelled(expression: &Expression) -> bool {
    matches!(expression, Expression::Call(name, _) if name.eq_ignore_ascii_case("cancelled"))
}

/// Names after a reference: with a dot, in brackets where they have other characters, or as an index.
fn accessors(names: &[&str]) -> String {
    let is_name =
        |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') && !name.is_empty();
    names.iter().fold(String::new(), |path, name| match name {
        name if name.bytes().all(|byte| byte.is_ascii_digit()) => format!("{path}[{name}]"),
        name if is_name(name) => format!("{path}.{name}"),
        name => format!("{path}[{}]", json!(name)),
    })
}

/// The beginning of an expression, to count by: `secrets`, `github.event`, `hashFiles`.
fn root(expression: &str) -> String {
    let end = expression.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '-'));
    let word = &expression[..end.unwrap_or(expression.len())];
    let names: Vec<&str> = word.split('.').collect();
    match names.as_slice() {
        ["github", second, ..] => format!("github.{second}"),
        [first, ..] if !first.is_empty() => (*first).to_owned(),
        _ => "of several parts".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The `run_when` and the condition of an `if`; `None` for one that becomes an input.
    fn converted(text: &str) -> Option<(Option<RunWhen>, Option<String>)> {
        let job = Job { end: "build-end".to_owned(), steps: vec!["compile".to_owned()], has_outputs: true };
        let mut context = Context {
            has_matrix: true,
            needs: BTreeMap::from([("build".to_owned(), job)]),
            steps: BTreeMap::from([
                ("read".to_owned(), "job-read".to_owned()),
                ("may".to_owned(), "job-may".to_owned()),
            ]),
            unchecked: BTreeSet::from(["job-may".to_owned()]),
            env: BTreeMap::from([("MODE".to_owned(), Text::literal("fast"))]),
            input_types: BTreeMap::from([("deploy".to_owned(), "boolean"), ("channel".to_owned(), "string")]),
            ..Context::default()
        };
        let condition = context.split(&parse(text)?)?;
        Some((condition.run_when, condition.cel))
    }

    #[test]
    fn an_if_is_an_end_of_what_came_before_and_a_condition() {
        let of = |text: &str| converted(text).unwrap_or_else(|| panic!("{text}"));
        for (text, run_when) in [
            ("success()", None),
            ("always()", Some(RunWhen::Always)),
            ("!cancelled()", Some(RunWhen::Always)),
            ("failure()", Some(RunWhen::Failure)),
            ("failure() || cancelled()", Some(RunWhen::Failure)),
            ("success() || failure()", Some(RunWhen::Always)),
            ("always() && failure()", Some(RunWhen::Failure)),
        ] {
            assert_eq!(of(text), (run_when, None), "{text}");
        }
        for (text, cel) in [
            ("inputs.deploy", "${inputs.deploy}"),
            ("!inputs.deploy", "!(${inputs.deploy})"),
            ("inputs.channel == 'beta'", r#"${inputs.channel ?? ""} == "beta""#),
            ("matrix.n == 1", r#"${inputs.matrix.n ?? ""} == 1"#),
            ("matrix.n == '1'", r#"string(${inputs.matrix.n ?? ""}) == "1""#),
            ("steps.read.outputs.v", r#"${job-read.outputs.v ?? ""} != """#),
            ("steps.read.outcome == 'failure'", r#"${job-read.state} == "failed""#),
            ("steps.may.outcome == 'failure'", "${job-may.result.exit_code ?? 0} != 0"),
            ("steps.may.conclusion == 'success'", r#"${job-may.state} == "completed""#),
            ("needs.build.result == 'success'", r#"${build-end.state} == "completed""#),
            ("needs.build.result != 'failure'", r#"!(${compile.state} == "failed")"#),
            ("contains(needs.*.result, 'cancelled')", "false"),
            (
                "needs.build.outputs.v == 'x' || env.MODE == 'slow'",
                r#"(${build-end.result.v ?? ""} == "x" || "fast" == "slow")"#,
            ),
            ("contains(fromJSON('[\"a\", \"b\"]'), inputs.channel)", r#"${inputs.channel ?? ""} in ["a","b"]"#),
            ("startsWith(github.ref, 'refs/tags/')", r#"${inputs.github_ref ?? ""}.startsWith("refs/tags/")"#),
            ("runner.os == 'Linux'", r#""Linux" == "Linux""#),
            ("always() && inputs.deploy", "${inputs.deploy}"),
        ] {
            assert_eq!(of(text).1.as_deref(), Some(cel), "{text}");
        }
    }

    #[test]
    fn what_an_execution_does_not_know_becomes_an_input() {
        for text in [
            "github.event.number > 3",
            "secrets.TOKEN",
            "hashFiles('x') == 'y'",
            "cancelled()",
            "always() || inputs.deploy",
            "inputs.unknown",
            "a b",
        ] {
            assert_eq!(converted(text), None, "{text}");
        }
    }
}

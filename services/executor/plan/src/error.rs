//! The violations of a plan, field by field.

use std::fmt;

use crate::{
    limits::MAX_VIOLATIONS,
    path::{FieldPath, Segment},
};

/// Why a plan was refused: at least one violation. Those of a text are in the order of its lines, those of a draft in the order of its
/// steps, after those of the plan as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidPlan {
    /// The violations; never empty. At most [`MAX_VIOLATIONS`] are listed; one more entry without a field then has the number of the others.
    pub violations: Vec<Violation>,
}

/// A problem of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field as the author wrote it, such as `steps[2].depends_on[0]`; empty for the plan as a whole.
    pub field: String,
    /// The problem, and what to do about it.
    pub message: String,
    /// The line in the document, counted from 1; 0 when not known.
    pub line: u32,
    /// The column in the document in characters, counted from 1; 0 when not known.
    pub column: u32,
}

impl fmt::Display for InvalidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the plan must be valid: ")?;
        for (index, violation) in self.violations.iter().enumerate() {
            write!(f, "{}{violation}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if self.line > 0 {
            write!(f, " (line {}, column {})", self.line, self.column)?;
        }
        Ok(())
    }
}

/// A violation before it has the names and the positions of the author's document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The field, by the names of [`crate::PlanDraft`].
    pub(crate) path: FieldPath,
    pub(crate) message: String,
}

/// A problem of a step that was found with knowledge that is not in the plan: the tools and their arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepProblem {
    /// The step's index in the checked plan, from 0.
    pub step: usize,
    /// The field of the step, by the names of [`crate::StepDraft`], as an RFC 6901 JSON pointer: `/tool`, `/arguments/path`.
    pub pointer: String,
    /// The problem, and what to do about it.
    pub message: String,
}

impl Problem {
    /// The step that it is about, for the order in which problems of a draft are listed.
    pub(crate) fn step(&self) -> Option<usize> {
        match self.path.segments() {
            [Segment::Key(steps), Segment::Index(step), ..] if steps == "steps" => Some(*step),
            _ => None,
        }
    }
}

impl From<StepProblem> for Problem {
    fn from(problem: StepProblem) -> Self {
        let mut path = FieldPath::root().key("steps").index(problem.step);
        for part in problem.pointer.split('/').skip(1) {
            path.push(match part.parse() {
                Ok(index) => Segment::Index(index),
                Err(_) => Segment::Key(part.replace("~1", "/").replace("~0", "~").into()),
            });
        }
        Self { path, message: problem.message }
    }
}

impl From<StepProblem> for Violation {
    fn from(problem: StepProblem) -> Self {
        Problem::from(problem).into()
    }
}

impl From<Problem> for Violation {
    fn from(problem: Problem) -> Self {
        Self { field: problem.path.to_string(), message: problem.message, line: 0, column: 0 }
    }
}

/// Collects findings up to the limit, and counts the rest.
#[derive(Debug)]
pub(crate) struct Findings<T> {
    kept: Vec<T>,
    omitted: usize,
}

impl<T> Default for Findings<T> {
    fn default() -> Self {
        Self { kept: Vec::new(), omitted: 0 }
    }
}

impl<T> Findings<T> {
    /// Adds a finding; `finding` is called only below the limit.
    pub(crate) fn add(&mut self, finding: impl FnOnce() -> T) {
        if self.kept.len() < MAX_VIOLATIONS {
            self.kept.push(finding());
        } else {
            self.omitted += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many there are, those beyond the limit included.
    pub(crate) fn len(&self) -> usize {
        self.kept.len() + self.omitted
    }

    /// Converts the findings; those that become `None` are dropped.
    pub(crate) fn filter_map<U>(self, f: impl FnMut(T) -> Option<U>) -> Findings<U> {
        Findings { kept: self.kept.into_iter().filter_map(f).collect(), omitted: self.omitted }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.kept.iter()
    }

    pub(crate) fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        self.kept.sort_by_key(key);
    }

    /// Adds all of another's.
    pub(crate) fn extend(&mut self, other: Findings<T>) {
        for finding in other.kept {
            self.add(|| finding);
        }
        self.omitted += other.omitted;
    }
}

impl From<Findings<Violation>> for InvalidPlan {
    fn from(findings: Findings<Violation>) -> Self {
        let Findings { kept: mut violations, omitted } = findings;
        if omitted > 0 {
            violations.push(Violation {
                field: String::new(),
                message: format!("{omitted} more problems are not listed"),
                line: 0,
                column: 0,
            });
        }
        Self { violations }
    }
}

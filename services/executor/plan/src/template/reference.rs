//! The grammar of one string: literal text, references, escapes.

use std::fmt;

use serde_json::Value;

use super::StepValue;
use crate::path::{look_alikes, shown};

/// A part of a string.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Literal(String),
    Choice(Choice),
}

/// Contents of one `${…}`: references and a default, of which the first that leads somewhere, and not to null, is used: `${a.result ?? b.result ??
/// 0}`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// At least one.
    references: Vec<Reference>,
    /// The value when none of the references leads anywhere.
    default: Option<Value>,
}

impl Choice {
    /// The references, the first one first.
    pub(crate) fn references(&self) -> &[Reference] {
        &self.references
    }

    /// The value when none of the references leads anywhere.
    pub(super) fn default(&self) -> Option<&Value> {
        self.default.as_ref()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, reference) in self.references.iter().enumerate() {
            let between = if place == 0 { "" } else { " ?? " };
            write!(f, "{between}{reference}")?;
        }
        self.default.as_ref().map_or(Ok(()), |default| write!(f, " ?? {default}"))
    }
}

/// A `${STEP.result.path}`, taken apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reference {
    step: String,
    /// Whether the step was written as `["id"]`, which can be no other step.
    is_quoted: bool,
    /// `result`, `results`, `output`, `outputs`, `state` or `failure`, as it was written; empty when no step is named.
    root: String,
    path: Vec<Accessor>,
}

/// Values of a step that a reference can name.
const ROOTS: [&str; 6] = ["result", "results", "output", OUTPUTS, "state", "failure"];

/// The outputs that a command has appended to its file: a member of its result.
const OUTPUTS: &str = "outputs";

/// A step down into a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Accessor {
    /// `.name` or `["name"]`.
    Name(String),
    /// `[0]`.
    Index(usize),
}

/// The first name of a reference to an input, in the place of a step's id.
const INPUTS: &str = "inputs";

/// The first name of a reference to the entry of the list for which a step runs, in the place of a step's id.
const ITEM: &str = "item";

/// The first name of a reference to a value of the input `context`, in the place of a step's id, where no step's value is named.
const CONTEXT: &str = "context";

/// Values of an entry that a reference can name. No step has a value of these names, so that a step may have the id `item`.
const OF_ITEM: [&str; 2] = ["value", "index"];

impl Reference {
    /// The name of the input that it names; `None` when it names a step.
    pub(crate) fn input(&self) -> Option<&str> {
        match self.path.first() {
            Some(Accessor::Name(name)) if self.value() == StepValue::Input => Some(name),
            _ => None,
        }
    }

    /// Whether it names the entry of a list for which its step runs.
    pub(crate) fn is_item(&self) -> bool {
        self.value() == StepValue::Item
    }

    /// The id of the step whose output is named.
    pub(crate) fn step(&self) -> &str {
        &self.step
    }

    /// The id of another step that the same text would name if ids with dots needed no quotes: the plan must not have it.
    pub(crate) fn dotted_step(&self) -> Option<String> {
        (!self.is_quoted && !self.root.is_empty()).then(|| format!("{}.{}", self.step, self.root))
    }

    /// The value that is named of the step.
    pub(crate) fn value(&self) -> StepValue {
        match self.root.as_str() {
            "" if self.step == ITEM => StepValue::Item,
            "" => StepValue::Input,
            "state" => StepValue::State,
            "results" => StepValue::Results,
            "outputs" => StepValue::Outputs,
            "failure" => StepValue::Failure,
            _ => StepValue::Result,
        }
    }

    /// The member of the value that the path begins with; `None` for the value itself, and for an entry of a list.
    pub(crate) fn first_name(&self) -> Option<&str> {
        match self.path.first() {
            Some(Accessor::Name(name)) => Some(name),
            Some(Accessor::Index(_)) | None => None,
        }
    }

    pub(super) fn path(&self) -> &[Accessor] {
        &self.path
    }

    /// The first `depth` parts of the path as text for messages, such as `step-1.result.list[0]`.
    pub(super) fn prefix(&self, depth: usize) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            if self.root.is_empty() {
                f.write_str(&self.step)?;
            } else if self.step.contains('.') {
                write!(f, "[\"{}\"].{}", self.step, self.root)?;
            } else {
                write!(f, "{}.{}", self.step, self.root)?;
            }
            for accessor in &self.path[..depth] {
                match accessor {
                    Accessor::Index(index) => write!(f, "[{index}]")?,
                    Accessor::Name(name) if !name.is_empty() && name.chars().all(is_name_char) => {
                        write!(f, ".{}", shown(name))?;
                    }
                    Accessor::Name(name) => write!(f, "[{}]", serde_json::Value::from(shown(name)))?,
                }
            }
            Ok(())
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix(self.path.len()).fmt(f)
    }
}

/// Whether a character may stand in a name without quotes.
fn is_name_char(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !".[]{}$\"'`?".contains(c)
}

fn is_step_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

/// Takes a string apart, or says what is wrong with its first reference that cannot be understood.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        literal.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$${") {
            literal.push_str("${");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("${") {
            let mut scanner = Scanner { rest: after };
            let choice = scanner.choice().map_err(|fault| fault.message(after))?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Choice(choice));
            rest = scanner.rest;
        } else {
            literal.push('$');
            rest = &rest[1..];
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// Why the text after `${` is not a reference.
enum Fault {
    Unclosed,
    Secret,
    NoStep,
    NoPath,
    NotAResult { step: String, name: String },
    NotOfItem,
    Path,
    NoAlternative,
}

impl Fault {
    /// The message; `after` is everything that follows the `${`.
    fn message(&self, after: &str) -> String {
        let inner = after.find('}').map_or(after, |end| &after[..end]);
        let inner = shown(inner);
        let literal = format!("`$${{{inner}}}` for that text itself{}", look_alikes(&inner));
        match self {
            Fault::Unclosed => {
                format!("`${{{inner}` is not closed: add the `}}`, or write `$${{` for the text `${{` itself")
            }
            Fault::Secret => format!(
                "`${{{inner}}}`: no plan has secrets: ask for a network profile whose rules have the credential (`network: PROFILE`), and have the command use the placeholder in its variable"
            ),
            Fault::NoStep => {
                format!("`${{{inner}}}` names no step: write `${{STEP.result}}` with the id of a step, or {literal}")
            }
            Fault::NoPath => format!(
                "`${{{inner}}}` is not a reference to a step's result: write `${{STEP.result}}` for the output of a step, or {literal} \
                 (plans cannot read environment variables or secrets)"
            ),
            Fault::NotAResult { step, name } => format!(
                "`${{{inner}}}` must continue with `result`, which is the step's output, `outputs`, `results`, `state` or `failure`: write `${{{}.result.{}}}`, or {literal}",
                shown(step),
                shown(name),
            ),
            Fault::NotOfItem => format!(
                "`${{{inner}}}` must continue with `value`, the entry of the list for which the step runs, or `index`, its position: write \
                 `${{item.value}}`, or {literal}"
            ),
            Fault::NoAlternative => format!(
                "`${{{inner}}}` needs a reference or a JSON value after `??`, such as `${{a.result ?? b.result ?? 0}}`"
            ),
            Fault::Path => format!(
                "`${{{inner}}}` has a path that cannot be understood: after `result` come `.name`, `[0]` or `[\"odd key\"]`, and then `}}`"
            ),
        }
    }
}

/// Reads one reference from the text after its `${`.
struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn choice(&mut self) -> Result<Choice, Fault> {
        let mut choice = Choice { references: vec![self.reference()?], default: None };
        loop {
            if self.take("}") {
                return Ok(choice);
            }
            // `at_end` has seen to it that this stands here.
            self.skip_blanks();
            self.take("??");
            self.skip_blanks();
            if self.begins_json() {
                let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
                let value = values.next().and_then(Result::ok).ok_or(Fault::NoAlternative)?;
                self.rest = &self.rest[values.byte_offset()..];
                self.skip_blanks();
                choice.default = Some(value);
                return if self.take("}") { Ok(choice) } else { Err(self.fault()) };
            }
            if self.rest.starts_with(['}', '?']) || self.rest.is_empty() {
                return Err(Fault::NoAlternative);
            }
            choice.references.push(self.reference()?);
        }
    }

    /// Whether a JSON value begins here, and no reference: an id may begin as a number or a word of JSON does, and continues with its path.
    fn begins_json(&self) -> bool {
        if self.rest.starts_with(['"', '{', '-']) || (self.rest.starts_with('[') && !self.rest.starts_with("[\"")) {
            return true;
        }
        if self.rest.starts_with("[\"") {
            // `["id"].result` is a reference, and `["a", "b"]` a list.
            let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
            let is_value = matches!(values.next(), Some(Ok(_)));
            return is_value && !self.rest[values.byte_offset()..].starts_with('.');
        }
        let word = &self.rest[..self.rest.find(|c: char| !is_step_char(c)).unwrap_or(self.rest.len())];
        let after = &self.rest[word.len()..];
        match word {
            "true" | "false" | "null" => !after.starts_with(['.', '[']),
            _ => {
                let names_a_value = |rest: &str| ROOTS.iter().any(|root| rest.starts_with(root));
                word.starts_with(|c: char| c.is_ascii_digit()) && !after.strip_prefix('.').is_some_and(names_a_value)
            }
        }
    }

    /// Whether the path of a reference ends here: at the brace, or where another one may take its place.
    fn at_end(&self) -> bool {
        self.rest.starts_with('}') || self.rest.trim_start_matches(' ').starts_with("??")
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    fn reference(&mut self) -> Result<Reference, Fault> {
        if self.rest.starts_with("secret:") {
            return Err(Fault::Secret);
        }
        // Without quotes an id contains `-` and no `.` or `[`: it is everything before the path, never a subtraction.
        let (step, is_quoted) = match self.rest.starts_with("[\"") {
            true => match self.accessor()? {
                Accessor::Name(step) => (step, true),
                Accessor::Index(_) => return Err(Fault::NoStep),
            },
            false => (self.take_while(is_step_char).to_owned(), false),
        };
        match self.rest.chars().next() {
            None => return Err(Fault::Unclosed),
            Some('.' | '[') if !step.is_empty() => {}
            Some(_) if step == ITEM && !is_quoted && self.at_end() => return Err(Fault::NotOfItem),
            Some(_) if !step.is_empty() && self.at_end() => return Err(Fault::NoPath),
            Some('}') if !step.is_empty() => return Err(Fault::NoPath),
            Some(_) => return Err(Fault::NoStep),
        }
        if step == INPUTS && !is_quoted {
            let mut path = Vec::new();
            while !self.at_end() {
                path.push(self.accessor()?);
            }
            return match path.first() {
                Some(Accessor::Name(_)) => Ok(Reference { step, is_quoted, root: String::new(), path }),
                Some(Accessor::Index(_)) | None => Err(Fault::Path),
            };
        }
        let root = match self.accessor()? {
            Accessor::Name(name) if step == ITEM && !is_quoted && OF_ITEM.contains(&name.as_str()) => {
                let mut path = vec![Accessor::Name(name)];
                while !self.at_end() {
                    path.push(self.accessor()?);
                }
                return Ok(Reference { step, is_quoted, root: String::new(), path });
            }
            Accessor::Name(name) if ROOTS.contains(&name.as_str()) => name,
            Accessor::Name(name) if step == CONTEXT && !is_quoted => {
                let mut path = vec![Accessor::Name(CONTEXT.to_owned()), Accessor::Name(name)];
                while !self.at_end() {
                    path.push(self.accessor()?);
                }
                return Ok(Reference { step: INPUTS.to_owned(), is_quoted, root: String::new(), path });
            }
            Accessor::Name(_) if step == ITEM && !is_quoted => return Err(Fault::NotOfItem),
            Accessor::Name(name) => {
                return Err(Fault::NotAResult { step, name });
            }
            Accessor::Index(_) => return Err(Fault::Path),
        };
        let mut path = Vec::new();
        while !self.at_end() {
            path.push(self.accessor()?);
        }
        Ok(Reference { step, is_quoted, root, path })
    }

    fn accessor(&mut self) -> Result<Accessor, Fault> {
        if self.take(".") {
            let name = self.take_while(is_name_char);
            return if name.is_empty() { Err(self.fault()) } else { Ok(Accessor::Name(name.to_owned())) };
        }
        if !self.take("[") {
            return Err(self.fault());
        }
        let accessor = if self.rest.starts_with('"') {
            // The key is a JSON string, so that every key can be written.
            let mut keys = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
            let key = keys.next().and_then(Result::ok).ok_or_else(|| self.fault())?;
            self.rest = &self.rest[keys.byte_offset()..];
            Accessor::Name(key)
        } else {
            let digits = self.take_while(|c| c.is_ascii_digit());
            Accessor::Index(digits.parse().map_err(|_| self.fault())?)
        };
        if self.take("]") { Ok(accessor) } else { Err(self.fault()) }
    }

    /// The fault here, where the path should have continued.
    fn fault(&self) -> Fault {
        if self.rest.contains('}') { Fault::Path } else { Fault::Unclosed }
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !accept(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}

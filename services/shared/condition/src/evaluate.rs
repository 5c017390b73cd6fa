//! Evaluates an expression, and counts what that costs.

use std::{borrow::Cow, cmp::Ordering, collections::HashMap};

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::{ConditionError, MAX_STEPS, number::Num};

/// A value: one of a variable, or one that was made.
type Val<'v> = Cow<'v, Value>;

type Result<T> = std::result::Result<T, ConditionError>;

/// How many bytes of text are one step.
const BYTES_A_STEP: usize = 64;

/// The steps that a regular expression costs before it looks at anything, the first time: compiling a large one takes milliseconds.
const PATTERN_STEPS: u64 = 50_000;
/// The largest compiled regular expression, in bytes.
const MAX_PATTERN_BYTES: usize = 256 * 1024;

pub(crate) fn evaluate(expression: &IdedExpr, variables: &[(&str, &Value)], absent: &[(&str, &str)]) -> Result<bool> {
    let scope = variables.iter().map(|(name, value)| Variable {
        name,
        value: Some(Cow::Borrowed(*value)),
        error: None,
        moves: false,
    });
    let absent = absent.iter().map(|(name, why)| Variable {
        name,
        value: None,
        error: Some(ConditionError::Absent((*why).to_owned())),
        moves: false,
    });
    let mut evaluation = Evaluation { scope: scope.chain(absent).collect(), patterns: HashMap::new(), left: MAX_STEPS };
    match &*evaluation.value(expression)? {
        Value::Bool(holds) => Ok(*holds),
        other => failed(format!("is {}, and has to be true or false", kind(other))),
    }
}

fn failed<T>(message: impl Into<String>) -> Result<T> {
    Err(ConditionError::Failed(message.into()))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// A name that has a value.
struct Variable<'v> {
    name: &'v str,
    /// `None` while it is being computed from the one before.
    value: Option<Val<'v>>,
    /// Why it has no value: one entry of a list may have none, and another one decide.
    error: Option<ConditionError>,
    /// Reading it takes it: what a comprehension has gathered is never copied.
    moves: bool,
}

struct Evaluation<'v> {
    /// The names, the innermost last.
    scope: Vec<Variable<'v>>,
    /// The regular expressions that were compiled.
    patterns: HashMap<String, Regex>,
    left: u64,
}

impl<'v> Evaluation<'v> {
    fn spend(&mut self, steps: u64) -> Result<()> {
        self.left = self.left.checked_sub(steps).ok_or(ConditionError::TooMuch)?;
        Ok(())
    }

    fn spend_text(&mut self, text: &str) -> Result<()> {
        self.spend((text.len() / BYTES_A_STEP) as u64)
    }

    fn value(&mut self, expression: &'v IdedExpr) -> Result<Val<'v>> {
        self.spend(1)?;
        match &expression.expr {
            Expr::Unspecified | Expr::Struct(_) => failed("is not an expression of conditions"),
            Expr::Ident(name) => self.variable(name),
            Expr::Literal(literal) => self::literal(literal).map(Cow::Owned),
            Expr::Select(select) => {
                let of = match self.value(&select.operand) {
                    Err(ConditionError::Absent(_)) if select.test => return Ok(Cow::Owned(false.into())),
                    of => of?,
                };
                if select.test {
                    return match &*of {
                        Value::Object(members) => Ok(Cow::Owned(members.contains_key(&select.field).into())),
                        other => {
                            failed(format!("asks whether {} has `{}`, which only a map can", kind(other), select.field))
                        }
                    };
                }
                self.member(of, &select.field)
            }
            Expr::List(list) => {
                let entries: Result<Vec<Value>> =
                    list.elements.iter().map(|element| self.value(element)?.owned(self)).collect();
                Ok(Cow::Owned(Value::Array(entries?)))
            }
            Expr::Map(map) => {
                let mut members = Map::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return failed("is not a map") };
                    let key = match &*self.value(&entry.key)? {
                        Value::String(key) => key.clone(),
                        other => return failed(format!("has {} for the key of a map, and keys are text", kind(other))),
                    };
                    let value = self.value(&entry.value)?.owned(self)?;
                    if members.insert(key.clone(), value).is_some() {
                        return failed(format!("has the key `{key}` twice in one map"));
                    }
                }
                Ok(Cow::Owned(Value::Object(members)))
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(each) => self.comprehension(each),
        }
    }

    fn variable(&mut self, name: &str) -> Result<Val<'v>> {
        let Some(at) = self.scope.iter().rposition(|variable| variable.name == name) else {
            return failed(format!("`{name}` is not known"));
        };
        let variable = &mut self.scope[at];
        if let Some(error) = &variable.error {
            return Err(error.clone());
        }
        let value = if variable.moves { variable.value.take() } else { None };
        match value.or_else(|| variable.value.as_ref().and_then(borrowed)) {
            Some(value) => Ok(value),
            None => {
                let Some(value) = self.scope[at].value.clone() else { return failed(format!("`{name}` is not known")) };
                let size = size(&value);
                self.spend(size)?;
                Ok(value)
            }
        }
    }

    fn member(&mut self, of: Val<'v>, name: &str) -> Result<Val<'v>> {
        let missing = |what: &Value| match what {
            Value::Object(_) => format!("there is no `{name}`: ask with has() whether there is"),
            other => format!("takes `{name}` of {}, and only a map has that", kind(other)),
        };
        match of {
            Cow::Borrowed(value) => match value.get(name) {
                Some(member) if value.is_object() => Ok(Cow::Borrowed(member)),
                _ => failed(missing(value)),
            },
            Cow::Owned(Value::Object(mut members)) => match members.remove(name) {
                Some(member) => Ok(Cow::Owned(member)),
                None => failed(missing(&Value::Object(members))),
            },
            Cow::Owned(other) => failed(missing(&other)),
        }
    }

    fn index(&mut self, of: Val<'v>, at: &Value) -> Result<Val<'v>> {
        match (&*of, at) {
            (Value::Object(_), Value::String(name)) => self.member(of, name),
            (Value::Array(entries), Value::Number(_)) => {
                let count = entries.len();
                let position = match Num::of(at) {
                    Some(Num::Whole(whole)) => usize::try_from(whole).ok().filter(|at| *at < count),
                    _ => None,
                };
                let Some(position) = position else {
                    return failed(format!("takes the entry {at} of a list that has {count}, counted from 0"));
                };
                Ok(match of {
                    Cow::Borrowed(list) => Cow::Borrowed(&list[position]),
                    Cow::Owned(mut list) => Cow::Owned(list[position].take()),
                })
            }
            (of, at) => failed(format!("takes an entry of {} by {}", kind(of), kind(at))),
        }
    }

    fn boolean(&mut self, expression: &'v IdedExpr) -> Result<bool> {
        match &*self.value(expression)? {
            Value::Bool(value) => Ok(*value),
            other => failed(format!("has {} where true or false is needed", kind(other))),
        }
    }

    /// `a && b` and `a || b`: one that decides is enough, also when the other has no value.
    fn either(&mut self, call: &'v CallExpr, decides: bool) -> Result<Val<'v>> {
        let mut first_error = None;
        for part in &call.args {
            match self.boolean(part) {
                Ok(value) if value == decides => return Ok(Cow::Owned(decides.into())),
                Ok(_) => {}
                Err(ConditionError::TooMuch) => return Err(ConditionError::TooMuch),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(Cow::Owned((!decides).into())), Err)
    }

    fn call(&mut self, call: &'v CallExpr) -> Result<Val<'v>> {
        match call.func_name.as_str() {
            operators::LOGICAL_AND => return self.either(call, false),
            operators::LOGICAL_OR => return self.either(call, true),
            operators::CONDITIONAL => {
                let [condition, yes, no] = &call.args[..] else { return failed("is not a choice of two") };
                return if self.boolean(condition)? { self.value(yes) } else { self.value(no) };
            }
            operators::NOT_STRICTLY_FALSE => {
                let [part] = &call.args[..] else { return failed("is not a condition") };
                return Ok(Cow::Owned(match self.boolean(part) {
                    Ok(value) => value.into(),
                    Err(ConditionError::TooMuch) => return Err(ConditionError::TooMuch),
                    Err(_) => true.into(),
                }));
            }
            _ => {}
        }
        let parts: Result<Vec<Val<'v>>> =
            call.target.as_deref().into_iter().chain(&call.args).map(|part| self.value(part)).collect();
        let mut parts = parts?.into_iter();
        match (parts.next(), parts.next()) {
            (Some(one), None) => self.one(&call.func_name, one),
            (Some(one), Some(other)) => self.two(&call.func_name, one, other),
            (None, _) => failed(format!("`{}` is called without a value", call.func_name)),
        }
    }

    fn one(&mut self, function: &str, of: Val<'v>) -> Result<Val<'v>> {
        if let Value::String(text) = &*of {
            self.spend_text(text)?;
        }
        let not_for = |of: &Value| failed(format!("`{function}` is not for {}", kind(of)));
        let made = match (function, &*of) {
            (operators::LOGICAL_NOT, Value::Bool(value)) => (!value).into(),
            (operators::NEGATE, number @ Value::Number(_)) => Num::Whole(0).calculate('-', num(number)?)?.value()?,
            ("size", Value::String(text)) => text.chars().count().into(),
            ("size", Value::Array(entries)) => entries.len().into(),
            ("size", Value::Object(members)) => members.len().into(),
            ("int", number @ Value::Number(_)) => match num(number)? {
                whole @ Num::Whole(_) => whole.value()?,
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "`int` cuts off, and what is too large is not JSON"
                )]
                Num::Other(other) => Num::Whole(other as i128).value()?,
            },
            ("int", Value::String(text)) => match text.parse::<i64>() {
                Ok(number) => number.into(),
                Err(_) => return failed("reads a whole number out of a text that has none"),
            },
            ("double", number @ Value::Number(_)) => Num::Other(num(number)?.as_f64()).value()?,
            ("double", Value::String(text)) => match text.parse::<f64>() {
                Ok(number) => Num::Other(number).value()?,
                Err(_) => return failed("reads a number out of a text that has none"),
            },
            ("string", Value::String(_)) | ("bool", Value::Bool(_)) => return Ok(of),
            ("string", Value::Bool(_) | Value::Number(_)) => of.to_string().into(),
            ("bool", Value::String(text)) if text == "true" || text == "false" => (text == "true").into(),
            (_, other) => return not_for(other),
        };
        Ok(Cow::Owned(made))
    }

    fn two(&mut self, function: &str, one: Val<'v>, other: Val<'v>) -> Result<Val<'v>> {
        let made = match function {
            operators::EQUALS => self.equal(&one, &other)?.into(),
            operators::NOT_EQUALS => (!self.equal(&one, &other)?).into(),
            operators::LESS => (self.compare(&one, &other)? == Some(Ordering::Less)).into(),
            operators::LESS_EQUALS => self.compare(&one, &other)?.is_some_and(Ordering::is_le).into(),
            operators::GREATER => (self.compare(&one, &other)? == Some(Ordering::Greater)).into(),
            operators::GREATER_EQUALS => self.compare(&one, &other)?.is_some_and(Ordering::is_ge).into(),
            operators::INDEX => return self.index(one, &other),
            operators::IN => self.contains(&other, &one)?.into(),
            operators::ADD => return self.add(one, other),
            operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO => {
                let sign = function.trim_matches('_').chars().next().unwrap_or('-');
                match (&*one, &*other) {
                    (Value::Number(_), Value::Number(_)) => num(&one)?.calculate(sign, num(&other)?)?.value()?,
                    (one, other) => {
                        return failed(format!("`{sign}` is for numbers, not for {} and {}", kind(one), kind(other)));
                    }
                }
            }
            "contains" | "startsWith" | "endsWith" | "matches" => {
                let (Value::String(text), Value::String(part)) = (&*one, &*other) else {
                    return failed(format!("`{function}` is for text, not for {} and {}", kind(&one), kind(&other)));
                };
                self.text(function, text, part)?.into()
            }
            _ => return failed(format!("there is no function `{function}` of two values")),
        };
        Ok(Cow::Owned(made))
    }

    fn text(&mut self, function: &str, text: &str, part: &str) -> Result<bool> {
        self.spend_text(text)?;
        self.spend_text(part)?;
        Ok(match function {
            "contains" => text.contains(part),
            "startsWith" => text.starts_with(part),
            "endsWith" => text.ends_with(part),
            _ => {
                if !self.patterns.contains_key(part) {
                    self.spend(PATTERN_STEPS)?;
                    let pattern = RegexBuilder::new(part).size_limit(MAX_PATTERN_BYTES).build();
                    let pattern = pattern.map_err(|_| {
                        ConditionError::Failed("`matches` has a pattern that is none, or too large".to_owned())
                    })?;
                    self.patterns.insert(part.to_owned(), pattern);
                }
                self.patterns.get(part).is_some_and(|pattern| pattern.is_match(text))
            }
        })
    }

    fn add(&mut self, one: Val<'v>, other: Val<'v>) -> Result<Val<'v>> {
        match (&*one, &*other) {
            (Value::Number(_), Value::Number(_)) => Ok(Cow::Owned(num(&one)?.calculate('+', num(&other)?)?.value()?)),
            (Value::String(first), Value::String(second)) => {
                self.spend_text(first)?;
                self.spend_text(second)?;
                Ok(Cow::Owned(format!("{first}{second}").into()))
            }
            (Value::Array(_), Value::Array(_)) => {
                let Value::Array(mut entries) = one.owned(self)? else { return failed("is not a list") };
                let Value::Array(more) = other.owned(self)? else { return failed("is not a list") };
                entries.extend(more);
                Ok(Cow::Owned(Value::Array(entries)))
            }
            (one, other) => failed(format!("`+` is not for {} and {}", kind(one), kind(other))),
        }
    }

    /// `in`: an entry of a list, or a key of a map.
    fn contains(&mut self, of: &Value, what: &Value) -> Result<bool> {
        match (of, what) {
            (Value::Array(entries), what) => {
                for entry in entries {
                    if self.equal(entry, what)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Value::Object(members), Value::String(name)) => Ok(members.contains_key(name)),
            (of, what) => failed(format!("`in` looks for {} in {}", kind(what), kind(of))),
        }
    }

    fn equal(&mut self, one: &Value, other: &Value) -> Result<bool> {
        self.spend(1)?;
        Ok(match (one, other) {
            (Value::Number(_), Value::Number(_)) => num(one)?.compare(num(other)?) == Some(Ordering::Equal),
            (Value::String(one), Value::String(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                self.spend_text(one)?;
                one == other
            }
            (Value::Array(one), Value::Array(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(other) {
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Object(one), Value::Object(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (name, one) in one {
                    let Some(other) = other.get(name) else { return Ok(false) };
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                true
            }
            (one, other) => one == other,
        })
    }

    fn compare(&mut self, one: &Value, other: &Value) -> Result<Option<Ordering>> {
        match (one, other) {
            (Value::Number(_), Value::Number(_)) => Ok(num(one)?.compare(num(other)?)),
            (Value::String(one), Value::String(other)) => {
                self.spend_text(if one.len() < other.len() { one } else { other })?;
                Ok(Some(one.cmp(other)))
            }
            (Value::Bool(one), Value::Bool(other)) => Ok(Some(one.cmp(other))),
            (one, other) => failed(format!("compares {} with {}", kind(one), kind(other))),
        }
    }

    fn comprehension(&mut self, each: &'v ComprehensionExpr) -> Result<Val<'v>> {
        if each.iter_var2.is_some() {
            return failed("goes through a list with two names, and there is one");
        }
        let range = self.value(&each.iter_range)?;
        let entries: Vec<Val<'v>> = match range {
            Cow::Borrowed(Value::Array(entries)) => entries.iter().map(Cow::Borrowed).collect(),
            Cow::Owned(Value::Array(entries)) => entries.into_iter().map(Cow::Owned).collect(),
            Cow::Borrowed(Value::Object(members)) => {
                members.keys().map(|name| Cow::Owned(name.clone().into())).collect()
            }
            Cow::Owned(Value::Object(members)) => {
                members.into_iter().map(|(name, _)| Cow::Owned(name.into())).collect()
            }
            other => return failed(format!("goes through {}, and only a list or a map has entries", kind(&other))),
        };
        self.spend(entries.len() as u64)?;
        let gathered = self.value(&each.accu_init)?;
        let at = self.scope.len();
        self.scope.push(Variable { name: &each.accu_var, value: Some(gathered), error: None, moves: false });
        let result = self.go_through(each, entries, at);
        self.scope.truncate(at);
        result
    }

    fn go_through(&mut self, each: &'v ComprehensionExpr, entries: Vec<Val<'v>>, at: usize) -> Result<Val<'v>> {
        for entry in entries {
            // What is asked before each entry is a boolean, if anything.
            if !self.boolean(&each.loop_cond)? {
                break;
            }
            self.scope.push(Variable { name: &each.iter_var, value: Some(entry), error: None, moves: false });
            self.scope[at].moves = true;
            let gathered = self.value(&each.loop_step);
            self.scope.truncate(at + 1);
            let (value, error) = match gathered {
                Ok(value) => (Some(value), None),
                Err(ConditionError::TooMuch) => return Err(ConditionError::TooMuch),
                Err(error) => (None, Some(error)),
            };
            self.scope[at] = Variable { name: &each.accu_var, value, error, moves: false };
        }
        self.scope[at].moves = true;
        self.value(&each.result)
    }
}

/// A value of a variable again, if that costs nothing.
fn borrowed<'v>(value: &Val<'v>) -> Option<Val<'v>> {
    match value {
        Cow::Borrowed(value) => Some(Cow::Borrowed(value)),
        Cow::Owned(value) if !value.is_array() && !value.is_object() && !value.is_string() => {
            Some(Cow::Owned(value.clone()))
        }
        Cow::Owned(_) => None,
    }
}

/// The cost of a copy of a value.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(entries) => 1 + entries.iter().map(size).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(|value| 1 + size(value)).sum::<u64>(),
        Value::String(text) => 1 + (text.len() / BYTES_A_STEP) as u64,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// A value to keep, which is copied if it belongs to a variable.
trait KeptValue {
    fn owned(self, evaluation: &mut Evaluation<'_>) -> Result<Value>;
}

impl KeptValue for Val<'_> {
    fn owned(self, evaluation: &mut Evaluation<'_>) -> Result<Value> {
        match self {
            Cow::Owned(value) => Ok(value),
            Cow::Borrowed(value) => {
                evaluation.spend(size(value))?;
                Ok(value.clone())
            }
        }
    }
}

fn num(value: &Value) -> Result<Num> {
    Num::of(value).ok_or_else(|| ConditionError::Failed(format!("has {} where a number is needed", kind(value))))
}

fn literal(literal: &LiteralValue) -> Result<Value> {
    match literal {
        LiteralValue::Null => Ok(Value::Null),
        LiteralValue::Boolean(value) => Ok((*value.inner()).into()),
        LiteralValue::Int(value) => Ok((*value.inner()).into()),
        LiteralValue::UInt(value) => Ok((*value.inner()).into()),
        LiteralValue::Double(value) => Num::Other(*value.inner()).value(),
        LiteralValue::String(value) => Ok(value.inner().into()),
        LiteralValue::Bytes(_) => failed("has bytes"),
    }
}

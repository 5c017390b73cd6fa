//! The words of a filter, its restrictions, and what is wrong with them.

use belay_journal::{Comparison, Condition};
use belay_proto::v1::{execution::State, waiting_reason::Kind};
use thiserror::Error;

const FIELDS: &str = "state, labels.KEY, plan_id, create_time, end_time, waits_for, failure_reason, parent or id";

/// An error in a filter, and where it is.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("at character {at}: {what}")]
pub(crate) struct FilterError {
    /// The place, counted in characters from 1.
    pub(super) at: usize,
    pub(super) what: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Text(String),
    Operator(&'a str),
    End,
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    /// In bytes.
    pub(super) at: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn error(&self, what: impl Into<String>) -> FilterError {
        let rest = &self.text[self.at..];
        let place = self.at + (rest.len() - rest.trim_start().len());
        FilterError { at: self.text[..place].chars().count() + 1, what: what.into() }
    }

    pub(super) fn expected(&self, what: &str, found: &Token<'_>) -> FilterError {
        let found = match found {
            Token::Word(word @ ("(" | ")")) => return self.error(format!("`{word}`: parentheses are not supported")),
            Token::Word("NOT" | "-") => return self.error("NOT is not supported: use !="),
            Token::Word(word) | Token::Operator(word) => format!("`{word}`"),
            Token::Text(text) => format!("\"{text}\""),
            Token::End => "the end".to_owned(),
        };
        self.error(format!("expected {what}, found {found}"))
    }

    pub(super) fn peek(&mut self) -> Result<Token<'a>, FilterError> {
        let before = self.at;
        let token = self.next();
        self.at = before;
        token
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, FilterError> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if let Some(operator) = ["!=", "<=", ">=", "=", "<", ">", ":"].into_iter().find(|word| rest.starts_with(word)) {
            self.at += operator.len();
            return Ok(Token::Operator(operator));
        }
        match first {
            '"' | '\'' => self.quoted(first).map(Token::Text),
            '(' | ')' => {
                self.at += 1;
                Ok(Token::Word(&rest[..1]))
            }
            _ => {
                let is_end = |c: char| c.is_whitespace() || "=!<>:\"'()".contains(c);
                let end = rest.find(is_end).unwrap_or(rest.len()).max(first.len_utf8());
                self.at += end;
                Ok(Token::Word(&rest[..end]))
            }
        }
    }

    /// A text in quotes; a backslash keeps the next character as it is.
    fn quoted(&mut self, quote: char) -> Result<String, FilterError> {
        let mut text = String::new();
        let mut characters = self.text[self.at + 1..].char_indices();
        while let Some((index, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, escaped)) => text.push(escaped),
                    None => break,
                },
                _ if character == quote => {
                    self.at += 1 + index + 1;
                    return Ok(text);
                }
                _ => text.push(character),
            }
        }
        Err(self.error(format!("the text that begins with {quote} has no end")))
    }

    pub(super) fn restriction(&mut self) -> Result<Condition, FilterError> {
        let start = self.at;
        let field = match self.next()? {
            Token::Word(word) if !matches!(word, "AND" | "OR" | "NOT" | "(" | ")") && !word.starts_with('-') => word,
            other => {
                self.at = start;
                return Err(self.expected(FIELDS, &other));
            }
        };
        let label = match field.strip_prefix("labels.") {
            // The key is quoted.
            Some("") => match self.next()? {
                Token::Text(key) => Some(key),
                _ => {
                    self.at = start;
                    return Err(self.error("labels. needs a key, such as labels.team"));
                }
            },
            Some(key) => Some(key.to_owned()),
            None => None,
        };
        if label.is_none()
            && !["state", "plan_id", "create_time", "end_time", "waits_for", "failure_reason", "parent", "id"]
                .contains(&field)
        {
            self.at = start;
            return Err(self.error(match field {
                "labels" => "labels needs a key, such as labels.team".to_owned(),
                field => format!("`{field}` is not a field: use {FIELDS}"),
            }));
        }
        let before_operator = self.at;
        let operator = match self.next()? {
            Token::Operator(operator) => operator,
            other => {
                self.at = before_operator;
                return Err(self.expected("=, !=, <, <=, >, >= or :", &other));
            }
        };
        let before_value = self.at;
        let value = match self.next()? {
            Token::Word(word) if !matches!(word, "AND" | "OR" | "(" | ")") => word.to_owned(),
            Token::Text(text) => text,
            other => {
                self.at = before_value;
                return Err(self.expected("a value", &other));
            }
        };
        let end = self.at;
        self.at = before_value;
        let invalid = |what: String| Err(self.error(what));
        let equal = match operator {
            "=" => Some(true),
            "!=" => Some(false),
            _ => None,
        };
        let condition = match (field, label, equal) {
            (_, Some(key), Some(equal)) => Condition::Label(equal, key, value),
            (_, Some(key), None) if operator == ":" => match value.as_str() {
                "*" => Condition::HasLabel(key),
                _ => Condition::Label(true, key, value),
            },
            ("state", _, Some(equal)) => {
                match State::from_str_name(&format!("STATE_{}", value.trim_start_matches("STATE_"))) {
                    Some(state) if state != State::Unspecified => Condition::State(equal, state.into()),
                    _ => return invalid(format!("`{value}` is not a state, such as RUNNING or FAILED")),
                }
            }
            ("waits_for", _, _) if equal.is_some() || operator == ":" => {
                match Kind::from_str_name(&format!("KIND_{}", value.trim_start_matches("KIND_"))) {
                    Some(kind) if kind != Kind::Unspecified => Condition::WaitsFor(equal.unwrap_or(true), kind.into()),
                    _ => {
                        return invalid(format!("`{value}` is nothing to wait for, such as APPROVAL, RESUME or TIMER"));
                    }
                }
            }
            ("plan_id", _, Some(equal)) => Condition::PlanId(equal, value),
            ("failure_reason", _, Some(equal)) => Condition::FailureReason(equal, value),
            ("parent", _, Some(true)) => Condition::Parent(value),
            ("parent", _, None) if operator == ":" && value == "*" => Condition::HasParent(true),
            ("parent", _, _) => {
                return invalid("`parent` is followed by `= ID`, or by `:*` for all that have one".to_owned());
            }
            ("id", _, Some(equal)) => match value.strip_suffix('*') {
                Some(prefix) if equal => Condition::IdPrefix(prefix.to_owned()),
                Some(_) => return invalid("`*` is supported after `id =` only".to_owned()),
                None => Condition::Id(equal, value),
            },
            ("create_time" | "end_time", _, _) if operator != ":" => {
                let Some(time) = micros(&value) else {
                    return invalid(format!("`{value}` is not a time, such as \"2026-01-31T12:00:00Z\""));
                };
                let comparison = match operator {
                    "=" => Comparison::Equal,
                    "!=" => Comparison::NotEqual,
                    "<" => Comparison::Less,
                    "<=" => Comparison::AtMost,
                    ">" => Comparison::Greater,
                    _ => Comparison::AtLeast,
                };
                match field {
                    "create_time" => Condition::CreateTime(comparison, time),
                    _ => Condition::EndTime(comparison, time),
                }
            }
            _ => {
                self.at = before_operator;
                return Err(self.error(format!("`{operator}` is not supported for {field}")));
            }
        };
        self.at = end;
        Ok(condition)
    }
}

/// An RFC 3339 time in microseconds since the Unix epoch.
fn micros(text: &str) -> Option<i64> {
    let timestamp: pbjson_types::Timestamp = serde_json::from_value(text.into()).ok()?;
    Some(belay_proto::micros(&timestamp))
}

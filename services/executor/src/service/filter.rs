//! The `filter` and `order_by` of lists of executions: a subset of AIP-160 and AIP-132.
//!
//! ```text
//! filter      = any { "AND" any }
//! any         = restriction { "OR" restriction }        OR binds more tightly than AND, as in AIP-160
//! restriction = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" | ":" ) value
//! value       = word | "text" | 'text'
//! ```

use belay_journal::{AnyOf, Comparison, Condition, Order, OrderBy};
use belay_proto::v1::{execution::State, waiting_reason::Kind};
use thiserror::Error;

use crate::wire;

/// The longest filter, in bytes.
const MAX_BYTES: usize = 4096;

/// The maximum number of restrictions.
const MAX_RESTRICTIONS: usize = 64;

/// How many choices among alternatives are tried in the search for a contradiction.
const MAX_CHOICES: usize = 1_000;

const FIELDS: &str = "state, labels.KEY, plan_id, create_time, end_time, waits_for, failure_reason, parent or id";

/// What is wrong with a filter, and where.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("at character {at}: {what}")]
pub(super) struct FilterError {
    /// The place, counted in characters from 1.
    at: usize,
    what: String,
}

/// Reads a filter; an empty one matches everything.
pub(super) fn parse(text: &str) -> Result<Vec<AnyOf>, FilterError> {
    if text.len() > MAX_BYTES {
        return Err(FilterError { at: 1, what: format!("it has {} bytes and the limit is {MAX_BYTES}", text.len()) });
    }
    let mut parser = Parser { text, at: 0 };
    let (mut all, mut count) = (Vec::new(), 0);
    if parser.peek()? == Token::End {
        return Ok(all);
    }
    loop {
        let mut any = Vec::new();
        let joined_by_and = loop {
            count += 1;
            if count > MAX_RESTRICTIONS {
                return Err(parser.error(format!("the limit is {MAX_RESTRICTIONS} restrictions")));
            }
            any.push(parser.restriction()?);
            let before = parser.at;
            match parser.next()? {
                Token::Word("OR") => {}
                Token::Word("AND") => break true,
                Token::End => break false,
                other => {
                    parser.at = before;
                    return Err(parser.expected("AND, OR or the end", &other));
                }
            }
        };
        all.push(AnyOf(any));
        if !joined_by_and {
            return Ok(all);
        }
    }
}

/// Reads an order. The default is the newest first, or the last to end first when the filter compares `end_time`.
pub(super) fn order(text: &str, filter: &[AnyOf]) -> Result<Order, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (field, descending) = match words[..] {
        [] => {
            let by_end = filter.iter().flat_map(|any| &any.0).any(|one| matches!(one, Condition::EndTime(..)));
            let by = if by_end { OrderBy::EndTime } else { OrderBy::CreateTime };
            return Ok(Order { by, descending: true });
        }
        [field] => (field, false),
        [field, "desc"] => (field, true),
        [field, "asc"] => (field, false),
        _ => return Err(format!("`{text}` is not an order: use create_time or end_time, each with or without desc")),
    };
    match field {
        "create_time" => Ok(Order { by: OrderBy::CreateTime, descending }),
        "end_time" => Ok(Order { by: OrderBy::EndTime, descending }),
        other => Err(format!("`{other}` cannot be sorted by: use create_time or end_time, each with or without desc")),
    }
}

/// Whether no execution can be in a list, since parts of its filter contradict each other, or its order: found without looking at any. Not every such
/// filter is found.
pub(super) fn matches_nothing(filter: &[AnyOf], order: Order) -> bool {
    let has_ended = Condition::EndTime(Comparison::NotEqual, i64::MIN);
    let mut chosen = if order.by == OrderBy::EndTime { vec![&has_ended] } else { Vec::new() };
    let mut choices = MAX_CHOICES;
    !can_match(&mut chosen, filter, &mut choices)
}

/// Whether a condition can be chosen of each part so that none excludes another, nor one of those that are chosen already; `true` after too many choices.
fn can_match<'f>(chosen: &mut Vec<&'f Condition>, filter: &'f [AnyOf], choices: &mut usize) -> bool {
    let Some((any, rest)) = filter.split_first() else { return true };
    for one in &any.0 {
        if *choices == 0 {
            return true;
        }
        *choices -= 1;
        if chosen.iter().any(|other| excludes(other, one) || excludes(one, other)) {
            continue;
        }
        chosen.push(one);
        if can_match(chosen, rest, choices) {
            return true;
        }
        chosen.pop();
    }
    false
}

/// Whether no execution matches both. It is asked both ways round.
fn excludes(one: &Condition, other: &Condition) -> bool {
    use Condition as C;
    let differ = |left: &str, right: &str, equal: bool| (left != right) == equal;
    let disjoint = |(one, time): (Comparison, i64), (other, than): (Comparison, i64)| {
        let ((least, most), (low, high)) = (one.bounds(time), other.bounds(than));
        least.max(low) > most.min(high) || one == Comparison::Equal && !other.holds(time, than)
    };
    match (one, other) {
        (C::State(true, state), C::State(equal, other)) => (state != other) == *equal,
        (C::WaitsFor(true, kind), C::WaitsFor(false, other)) => kind == other,
        (C::PlanId(true, plan), C::PlanId(equal, other)) => differ(plan, other, *equal),
        (C::FailureReason(true, reason), C::FailureReason(equal, other)) => differ(reason, other, *equal),
        (C::Label(true, key, value), C::Label(equal, other, than)) => key == other && differ(value, than, *equal),
        (C::Id(true, id), C::Id(equal, other)) => differ(id, other, *equal),
        (C::Id(true, id), C::IdPrefix(prefix)) => !id.starts_with(prefix),
        (C::IdPrefix(prefix), C::IdPrefix(other)) => !prefix.starts_with(other) && !other.starts_with(prefix),
        (C::Parent(id), C::Parent(other)) => id != other,
        (C::Parent(_) | C::HasParent(true), C::HasParent(false)) => true,
        (C::CreateTime(one, time), C::CreateTime(other, than)) | (C::EndTime(one, time), C::EndTime(other, than)) => {
            disjoint((*one, *time), (*other, *than))
        }
        (ended, live) => has_ended(ended) == Some(true) && has_ended(live) == Some(false),
    }
}

/// Whether every execution that matches has ended (`true`), or none has (`false`).
fn has_ended(condition: &Condition) -> Option<bool> {
    match condition {
        Condition::State(true, number) => {
            let state = State::try_from(*number).ok().and_then(wire::state_from)?;
            Some(state.is_terminal())
        }
        Condition::EndTime(..) | Condition::FailureReason(true, _) => Some(true),
        // What has ended waits for nothing.
        Condition::WaitsFor(true, _) => Some(false),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Text(String),
    Operator(&'a str),
    End,
}

struct Parser<'a> {
    text: &'a str,
    /// In bytes.
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, what: impl Into<String>) -> FilterError {
        let rest = &self.text[self.at..];
        let place = self.at + (rest.len() - rest.trim_start().len());
        FilterError { at: self.text[..place].chars().count() + 1, what: what.into() }
    }

    fn expected(&self, what: &str, found: &Token<'_>) -> FilterError {
        let found = match found {
            Token::Word(word @ ("(" | ")")) => return self.error(format!("`{word}`: parentheses are not supported")),
            Token::Word("NOT" | "-") => return self.error("NOT is not supported: use !="),
            Token::Word(word) | Token::Operator(word) => format!("`{word}`"),
            Token::Text(text) => format!("\"{text}\""),
            Token::End => "the end".to_owned(),
        };
        self.error(format!("expected {what}, found {found}"))
    }

    fn peek(&mut self) -> Result<Token<'a>, FilterError> {
        let before = self.at;
        let token = self.next();
        self.at = before;
        token
    }

    fn next(&mut self) -> Result<Token<'a>, FilterError> {
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

    fn restriction(&mut self) -> Result<Condition, FilterError> {
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

#[cfg(test)]
mod tests {
    use belay_journal::{ExecutionKey, ExecutionRow, ExecutionSummary, NewExecution, ParentStep, Query, Waits};

    use super::*;

    fn one(text: &str) -> Condition {
        let [AnyOf(any)] = parse(text).unwrap().try_into().unwrap();
        let [one] = any.try_into().unwrap();
        one
    }

    #[test]
    fn each_field_has_its_operators() {
        let text = str::to_owned;
        assert_eq!(one("state = RUNNING"), Condition::State(true, State::Running.into()));
        assert_eq!(one("state!=STATE_TIMED_OUT"), Condition::State(false, State::TimedOut.into()));
        assert_eq!(one("waits_for:APPROVAL"), Condition::WaitsFor(true, Kind::Approval.into()));
        assert_eq!(one("waits_for != TIMER"), Condition::WaitsFor(false, Kind::Timer.into()));
        assert_eq!(one("plan_id = deploy"), Condition::PlanId(true, text("deploy")));
        assert_eq!(one("failure_reason != DENIED"), Condition::FailureReason(false, text("DENIED")));
        assert_eq!(one("labels.team = a"), Condition::Label(true, text("team"), text("a")));
        assert_eq!(one("labels.a.b/c != \"x = \\\"y\\\"\""), Condition::Label(false, text("a.b/c"), text("x = \"y\"")));
        assert_eq!(one("labels.\"a b\" = 'AND'"), Condition::Label(true, text("a b"), text("AND")));
        assert_eq!(one("labels.team:*"), Condition::HasLabel(text("team")));
        assert_eq!(one("labels.team:a"), Condition::Label(true, text("team"), text("a")));
        assert_eq!(one("id = a-1"), Condition::Id(true, text("a-1")));
        assert_eq!(one("id=\"a-*\""), Condition::IdPrefix(text("a-")));
        assert_eq!(one("parent = release"), Condition::Parent(text("release")));
        assert_eq!(one("parent:*"), Condition::HasParent(true));
        for (operator, comparison) in [
            ("=", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<", Comparison::Less),
            ("<=", Comparison::AtMost),
            (">", Comparison::Greater),
            (">=", Comparison::AtLeast),
        ] {
            let time = "\"1970-01-01T01:00:00.5+01:00\"";
            assert_eq!(one(&format!("create_time {operator} {time}")), Condition::CreateTime(comparison, 500_000));
            assert_eq!(one(&format!("end_time{operator}{time}")), Condition::EndTime(comparison, 500_000));
        }
    }

    #[test]
    fn or_binds_more_tightly_than_and() {
        let sizes = |text: &str| parse(text).unwrap().iter().map(|any| any.0.len()).collect::<Vec<_>>();
        assert_eq!(sizes(""), [0; 0]);
        assert_eq!(sizes("  "), [0; 0]);
        assert_eq!(sizes("state = FAILED AND id = a OR id = b AND id != c"), [1, 2, 1]);
    }

    #[test]
    fn errors_name_the_place() {
        for (filter, error) in [
            ("stat = RUNNING", "at character 1: `stat` is not a field: use state, labels.KEY, plan_id, "),
            ("id = a AND labels = b", "at character 12: labels needs a key, such as labels.team"),
            ("labels. = b", "at character 1: labels. needs a key"),
            ("state = RUN", "at character 9: `RUN` is not a state, such as RUNNING or FAILED"),
            ("state = UNSPECIFIED", "at character 9: `UNSPECIFIED` is not a state"),
            ("state > RUNNING", "at character 7: `>` is not supported for state"),
            ("ünd = x", "at character 1: `ünd` is not a field"),
            ("labels.ü = \"ü\" und", "at character 16: expected AND, OR or the end, found `und`"),
            ("waits_for = GODOT", "at character 13: `GODOT` is nothing to wait for"),
            ("create_time > yesterday", "at character 15: `yesterday` is not a time, such as"),
            ("create_time > 2026-01-01T00:00:00Z", "at character 15: `2026-01-01T00` is not a time"),
            ("create_time : \"2026-01-01T00:00:00Z\"", "at character 13: `:` is not supported for create_time"),
            ("id", "at character 3: expected =, !=, <, <=, >, >= or :, found the end"),
            ("id =", "at character 5: expected a value, found the end"),
            ("id = AND", "at character 6: expected a value, found `AND`"),
            ("id = a AND", "at character 11: expected state, labels.KEY,"),
            ("id = a id = b", "at character 8: expected AND, OR or the end, found `id`"),
            ("(id = a)", "at character 1: `(`: parentheses are not supported"),
            ("NOT id = a", "at character 1: NOT is not supported: use !="),
            ("-id = a", "at character 1: expected state"),
            ("id = \"a", "at character 6: the text that begins with \" has no end"),
            ("parent != a", "at character 11: `parent` is followed by `= ID`, or by `:*`"),
            ("parent:a", "at character 8: `parent` is followed by `= ID`, or by `:*`"),
            ("id != a*", "at character 7: `*` is supported after `id =` only"),
            ("= a", "at character 1: expected state"),
        ] {
            let found = parse(filter).unwrap_err().to_string();
            assert!(found.starts_with(error), "{filter}: {found}");
        }
        assert!(parse(&"x".repeat(5000)).unwrap_err().to_string().contains("the limit is 4096"));
        assert!(parse(&vec!["id = a"; 65].join(" OR ")).unwrap_err().to_string().contains("64 restrictions"));
    }

    /// Whatever the bytes, there is an answer.
    #[test]
    fn nothing_makes_it_panic() {
        let pieces =
            ["labels.", "\"", "'", "\\", "=", "!", "!=", " ", "AND", "(", "ü", "id", "*", ":", "-", "\u{0}", "state"];
        let mut seed = 1_u32;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..seed % 9 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                text.push_str(pieces[(seed >> 16) as usize % pieces.len()]);
            }
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let _ = parse(&text);
        }
    }

    const BY_END: Order = Order { by: OrderBy::EndTime, descending: true };

    #[test]
    fn a_filter_that_contradicts_itself_or_its_order_matches_nothing() {
        let time = |second: u32| format!("\"2026-01-01T00:00:{second:02}Z\"");
        let nothing = |text: &str, order| matches_nothing(&parse(text).unwrap(), order);
        for text in [
            "state = RUNNING AND state = FAILED",
            "state = FAILED AND state != FAILED",
            "state = RUNNING AND failure_reason = X",
            "state = COMPLETED AND waits_for = APPROVAL",
            "waits_for = TIMER AND waits_for != TIMER",
            "waits_for = TIMER AND failure_reason = X",
            "plan_id = a AND plan_id = b",
            "labels.k = a AND labels.k = b",
            "labels.k = a AND labels.k != a",
            "id = a AND id = b",
            "id = a AND id = \"b*\"",
            "id = \"a*\" AND id = \"b*\"",
            "parent = a AND parent = b",
            "state = RUNNING OR state = PAUSED AND state = FAILED OR state = PARTIAL",
            "state = RUNNING OR waits_for = TIMER AND failure_reason = X",
            &format!("create_time < {0} AND create_time >= {0}", time(5)),
            &format!("create_time = {0} AND create_time != {0}", time(5)),
            &format!("create_time < {} AND create_time > {}", time(4), time(6)),
            &format!("end_time > {} AND state = RUNNING", time(5)),
        ] {
            assert!(nothing(text, Order::NEWEST_FIRST) && nothing(text, BY_END), "{text}");
        }
        for text in
            ["state = RUNNING", "state = RUNNING OR state = PENDING", "waits_for = TIMER", "state = PAUSED AND id = a"]
        {
            assert!(!nothing(text, Order::NEWEST_FIRST), "{text}");
            assert!(nothing(text, BY_END), "{text}: what is sorted by its end has ended");
        }
        for text in [
            "",
            "waits_for = TIMER AND waits_for = APPROVAL",
            "state = RUNNING OR state = FAILED AND failure_reason = X",
            "state != RUNNING AND state != FAILED",
            "labels.k = a AND labels.l = b AND labels.k:*",
            "id = \"a*\" AND id = \"ab*\" AND id != abc",
            "id = \"a*\" AND id = ab",
            "failure_reason != X AND waits_for != TIMER",
        ] {
            assert!(!nothing(text, Order::NEWEST_FIRST), "{text}");
        }
    }

    /// Whatever the filter: where it is said that nothing matches, none of very different executions does.
    #[test]
    fn what_is_said_to_match_nothing_matches_nothing() {
        let mut seed = 1_u32;
        let mut below = |most: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % most
        };
        let rows: Vec<ExecutionRow> = (0..400)
            .map(|n| {
                let state = State::try_from(1 + n % 10).unwrap();
                let ended = wire::state_from(state).unwrap().is_terminal();
                let mut text = |of: &[&str]| of[below(of.len() as u32) as usize].to_owned();
                let parent = [None, Some("a"), Some("b")][n as usize % 3];
                ExecutionRow {
                    key: ExecutionKey(n.into()),
                    execution: NewExecution {
                        namespace: "n".into(),
                        id: text(&["a", "ab", "abc", "b"]),
                        shard: 0,
                        created_at: i64::from(n % 4),
                        plan_id: text(&["a", "b"]),
                        labels: [("k".to_owned(), text(&["a", "b"]))].into(),
                        principal: String::new(),
                        request_id: String::new(),
                        request_hash: String::new(),
                        parent: parent.map(|parent| ParentStep {
                            execution: ExecutionKey(1),
                            execution_id: parent.into(),
                            step_id: "s".into(),
                        }),
                    },
                    summary: ExecutionSummary {
                        state: state.into(),
                        ended,
                        ended_at: ended.then_some(i64::from(n % 5)),
                        failure_reason: (ended && n % 3 > 0).then(|| text(&["a", "b"])),
                        waits_for: if ended { Waits::default() } else { Waits(n as u32 % 8 * 2) },
                        ..ExecutionSummary::default()
                    },
                    revision: 1,
                }
            })
            .collect();
        let comparisons = [
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::AtMost,
            Comparison::Greater,
            Comparison::AtLeast,
        ];
        let (mut found, mut contradictions) = (0, 0);
        for _ in 0..20_000 {
            let mut condition = || {
                let text = ["a", "ab", "b"][below(3) as usize].to_owned();
                let (equal, number) = (below(2) == 0, below(5));
                let comparison = comparisons[below(6) as usize];
                match below(11) {
                    0 => Condition::State(equal, 1 + below(10) as i32),
                    1 => Condition::WaitsFor(equal, 1 + below(3) as i32),
                    2 => Condition::PlanId(equal, text),
                    3 => Condition::FailureReason(equal, text),
                    4 => Condition::Label(equal, "k".into(), text),
                    5 => Condition::Id(equal, text),
                    6 => Condition::IdPrefix(text),
                    7 => Condition::Parent(text),
                    8 => Condition::HasParent(equal),
                    9 => Condition::CreateTime(comparison, number.into()),
                    _ => Condition::EndTime(comparison, number.into()),
                }
            };
            let filter: Vec<AnyOf> =
                [1, 2, 1].map(|alternatives| AnyOf((0..alternatives).map(|_| condition()).collect())).into();
            for order in [Order::NEWEST_FIRST, BY_END] {
                let query = Query { namespace: None, filter: filter.clone(), order, after: None, limit: 1 };
                let matching = rows.iter().find(|row| query.matches(row));
                let is_contradiction = matches_nothing(&filter, order);
                assert!(!is_contradiction || matching.is_none(), "{filter:?} {order:?}: {matching:?}");
                found += usize::from(matching.is_some());
                contradictions += usize::from(is_contradiction);
            }
        }
        assert!(found > 1_000 && contradictions > 1_000, "{found} {contradictions}");
    }

    #[test]
    fn an_order_names_a_time() {
        let by = |text: &str| order(text, &[]).map(|order| (order.by, order.descending));
        assert_eq!(by(""), Ok((OrderBy::CreateTime, true)));
        assert_eq!(by(" create_time "), Ok((OrderBy::CreateTime, false)));
        assert_eq!(by("end_time desc"), Ok((OrderBy::EndTime, true)));
        let ended = parse("end_time > \"2026-01-01T00:00:00Z\"").unwrap();
        assert_eq!(order("", &ended), Ok(Order { by: OrderBy::EndTime, descending: true }));
        assert!(by("state").unwrap_err().starts_with("`state` cannot be sorted by"));
        assert!(by("create_time, end_time").is_err());
        assert!(by("create_time down").is_err());
    }
}

//! The `filter` and `order_by` of lists of executions: a subset of AIP-160 and AIP-132.
//!
//! ```text
//! filter      = any { "AND" any }
//! any         = restriction { "OR" restriction }        OR binds more tightly than AND, as in AIP-160
//! restriction = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" | ":" ) value
//! value       = word | "text" | 'text'
//! ```

mod contradiction;
mod parser;

use belay_journal::{AnyOf, Condition, Order, OrderBy};

use self::parser::{Parser, Token};

pub(super) use contradiction::matches_nothing;
pub(super) use parser::FilterError;

/// The longest filter, in bytes.
const MAX_BYTES: usize = 4096;

/// The maximum number of restrictions.
const MAX_RESTRICTIONS: usize = 64;

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

#[cfg(test)]
mod tests;

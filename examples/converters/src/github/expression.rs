//! The grammar of `${{ … }}`.

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Null,
    Bool(bool),
    /// A number, as it is written.
    Number(String),
    Text(String),
    /// Names with dots or in brackets between them: `needs.build.outputs.version`, `needs.*.result`.
    Path(Vec<String>),
    Call(String, Vec<Expression>),
    Not(Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
}

/// Binary operators, from those that bind weakest; within a level, the longer ones first.
const LEVELS: [&[&str]; 4] = [&["||"], &["&&"], &["==", "!="], &["<=", ">=", "<", ">"]];

/// The deepest nesting that is read.
const MAX_DEPTH: usize = 40;

/// Reads an expression; `None` when it is none.
pub(super) fn parse(text: &str) -> Option<Expression> {
    let mut parser = Parser { rest: text, depth: 0 };
    let expression = parser.binary(0)?;
    parser.skip_blanks();
    parser.rest.is_empty().then_some(expression)
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl Parser<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn skip(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn binary(&mut self, level: usize) -> Option<Expression> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.skip(operator)) {
            left = Expression::Binary(operator, Box::new(left), Box::new(self.binary(level + 1)?));
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        self.skip_blanks();
        let found = if self.skip("!") {
            Expression::Not(Box::new(self.unary()?))
        } else if self.skip("(") {
            let inner = self.binary(0)?;
            self.skip(")").then_some(inner)?
        } else if self.rest.starts_with('\'') {
            self.text()?
        } else {
            self.word()?
        };
        self.depth -= 1;
        Some(found)
    }

    /// A text in single quotes, of which two stand for one.
    fn text(&mut self) -> Option<Expression> {
        let mut text = String::new();
        let mut rest = &self.rest[1..];
        loop {
            let end = rest.find('\'')?;
            text.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            if !rest.starts_with('\'') {
                break;
            }
            text.push('\'');
            rest = &rest[1..];
        }
        self.rest = rest;
        Some(Expression::Text(text))
    }

    /// A number, a constant, a path or a call.
    fn word(&mut self) -> Option<Expression> {
        let name = self.name()?;
        if name.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return name.parse::<f64>().is_ok().then_some(Expression::Number(name));
        }
        match name.as_str() {
            "true" => return Some(Expression::Bool(true)),
            "false" => return Some(Expression::Bool(false)),
            "null" => return Some(Expression::Null),
            _ => {}
        }
        if self.skip("(") {
            let mut arguments = Vec::new();
            while !self.skip(")") {
                if !arguments.is_empty() && !self.skip(",") {
                    return None;
                }
                arguments.push(self.binary(0)?);
            }
            return Some(Expression::Call(name, arguments));
        }
        let mut path = vec![name];
        loop {
            if self.skip(".") {
                path.push(if self.skip("*") { "*".to_owned() } else { self.name()? });
            } else if self.skip("[") {
                self.skip_blanks();
                let key = if self.rest.starts_with('\'') { self.text()? } else { self.word()? };
                path.push(match key {
                    Expression::Text(key) | Expression::Number(key) => key,
                    _ => return None,
                });
                self.skip("]").then_some(())?;
            } else {
                return Some(Expression::Path(path));
            }
        }
    }

    fn name(&mut self) -> Option<String> {
        let is_number = self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let belongs = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || (is_number && c == '.');
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!name.is_empty()).then(|| name.to_owned())
    }
}

/// A text apart: literal parts and the expressions between `${{` and `}}`.
pub(super) fn pieces(text: &str) -> Vec<Result<&str, &str>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${{") {
        let Some(length) = end_of_expression(&rest[start + 3..]) else { break };
        if start > 0 {
            pieces.push(Ok(&rest[..start]));
        }
        pieces.push(Err(rest[start + 3..start + 3 + length].trim()));
        rest = &rest[start + 3 + length + 2..];
    }
    if !rest.is_empty() {
        pieces.push(Ok(rest));
    }
    pieces
}

/// The length up to `}}`, which may stand in a text of the expression.
fn end_of_expression(text: &str) -> Option<usize> {
    let mut in_text = false;
    text.char_indices().find_map(|(at, c)| {
        in_text ^= c == '\'';
        (!in_text && text[at..].starts_with("}}")).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::{Expression::*, *};

    fn path(text: &str) -> Expression {
        Path(text.split('/').map(str::to_owned).collect())
    }

    #[test]
    fn operators_bind_as_in_workflow_files() {
        let equal = Binary("==", Box::new(path("github/ref")), Box::new(Text("it's".to_owned())));
        let both = Binary("&&", Box::new(Not(Box::new(path("a")))), Box::new(equal));
        let all = Binary("||", Box::new(both), Box::new(Call("always".to_owned(), Vec::new())));
        assert_eq!(parse("!a && github.ref == 'it''s' || always()"), Some(all));
        assert_eq!(parse("needs.*.result"), Some(path("needs/*/result")));
        assert_eq!(parse("matrix['node-version']"), Some(path("matrix/node-version")));
        assert_eq!(parse("github.event.pull_request.labels[0]"), Some(path("github/event/pull_request/labels/0")));
        assert_eq!(parse("1.5"), Some(Number("1.5".to_owned())));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in ["", "a ==", "a b", "'open", "f(a", "a.", "(((a)", &"(".repeat(5000), &"!".repeat(5000)] {
            assert_eq!(parse(text), None, "{text:.20}");
        }
    }

    #[test]
    fn a_text_is_taken_apart() {
        assert_eq!(pieces("a ${{ b }}c${{'}}'}}"), [Ok("a "), Err("b"), Ok("c"), Err("'}}'")]);
        assert_eq!(pieces("${HOME} ${{ open"), [Ok("${HOME} ${{ open")]);
    }
}

//! Texts of a plan: literal parts, and references to values that are known later.

/// A text that is put together from literal parts and references.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    /// The part between `${` and `}`.
    Reference(String),
}

impl Text {
    /// A text without references.
    pub fn literal(text: impl Into<String>) -> Self {
        let mut whole = Self::default();
        whole.push_literal(&text.into());
        whole
    }

    /// A text that is one reference.
    pub fn reference(reference: impl Into<String>) -> Self {
        Self { pieces: vec![Piece::Reference(reference.into())] }
    }

    /// Appends a literal part.
    pub fn push_literal(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Literal(before)) => before.push_str(text),
            _ => self.pieces.push(Piece::Literal(text.to_owned())),
        }
    }

    /// Whether a reference can follow: behind a `$` it would be read as an escaped one.
    #[must_use]
    pub fn takes_reference(&self) -> bool {
        !matches!(self.pieces.last(), Some(Piece::Literal(before)) if before.ends_with('$'))
    }

    /// Appends another text.
    pub fn push(&mut self, other: &Self) {
        for piece in &other.pieces {
            match piece {
                Piece::Literal(text) => self.push_literal(text),
                Piece::Reference(_) => self.pieces.push(piece.clone()),
            }
        }
    }

    /// The text, when it has no references.
    #[must_use]
    pub fn constant(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// The reference, when it is nothing else.
    #[must_use]
    pub fn single_reference(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Reference(reference)] => Some(reference),
            _ => None,
        }
    }

    /// The number of characters that are no references.
    #[must_use]
    pub fn literal_chars(&self) -> usize {
        let chars = |piece: &Piece| match piece {
            Piece::Literal(text) => text.chars().count(),
            Piece::Reference(_) => 0,
        };
        self.pieces.iter().map(chars).sum()
    }

    /// The names of the inputs that its references read, a reference that reads a part of one with that part.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Reference(reference) => without_default(reference).strip_prefix("inputs."),
        })
    }

    /// The text as the key of a limit. Blanks and characters that no screen shows are `-`, since a key has none at its ends. An input that is read as a whole is
    /// always there, and has no default.
    #[must_use]
    pub fn key(&self) -> String {
        let shown = |c: char| if c.is_alphanumeric() || c.is_ascii_graphic() { c } else { '-' };
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => Piece::Literal(text.chars().map(shown).collect()),
            Piece::Reference(reference) => {
                let path = without_default(reference);
                let is_whole = path.strip_prefix("inputs.").is_some_and(|name| !name.contains(['.', '[']));
                Piece::Reference(if is_whole { path.to_owned() } else { reference.clone() })
            }
        };
        Self { pieces: self.pieces.iter().map(piece).collect() }.template()
    }

    /// The text as a template of a plan, in which `$${` stands for `${`.
    #[must_use]
    pub fn template(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Literal(text) => text.replace("${", "$${"),
            Piece::Reference(reference) => format!("${{{reference}}}"),
        };
        self.pieces.iter().map(piece).collect()
    }
}

fn without_default(reference: &str) -> &str {
    reference.split_once(" ?? ").map_or(reference, |(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_variables_are_escaped_and_references_are_not() {
        let mut text = Text::literal("echo ${HOME} $x ");
        assert_eq!(text.constant(), Some("echo ${HOME} $x "));
        text.push(&Text::reference("inputs.os"));
        assert_eq!(text.template(), "echo $${HOME} $x ${inputs.os}");
        assert_eq!(text.constant(), None);
        assert!(text.takes_reference());
        text.push_literal("$");
        assert!(!text.takes_reference());
    }
}

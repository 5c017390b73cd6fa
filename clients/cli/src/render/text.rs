//! A line of text for people, made of cleaned pieces: nothing a server says can move the cursor, ring the bell or reorder the line.

use unicode_width::UnicodeWidthStr;

/// How a piece of a line looks where colours are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// As it comes.
    Plain,
    /// What one looks for first: names, headings.
    Strong,
    /// Ended well.
    Good,
    /// Ended badly.
    Bad,
    /// Needs attention: retries, waits.
    Warn,
    /// Beside the point.
    Dim,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Strong => "1",
            Style::Good => "32",
            Style::Bad => "31",
            Style::Warn => "33",
            Style::Dim => "2",
        }
    }
}

/// One line. Its pieces are cleaned when they are added, so a `Line` is always safe to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pieces: Vec<(Style, String)>,
}

impl Line {
    /// A line that begins with plain text.
    pub(crate) fn new(text: impl AsRef<str>) -> Line {
        Line::default().and(Style::Plain, text)
    }

    /// The line with another line's pieces at its end.
    pub(crate) fn with(mut self, other: Line) -> Line {
        self.pieces.extend(other.pieces);
        self
    }

    /// The line with another piece at its end.
    pub(crate) fn and(mut self, style: Style, text: impl AsRef<str>) -> Line {
        self.pieces.push((style, clean(text.as_ref())));
        self
    }

    /// The line with another piece at its end, filled with spaces to `columns` columns.
    pub(crate) fn column(self, style: Style, text: impl AsRef<str>, columns: usize) -> Line {
        let text = clean(text.as_ref());
        let fill = " ".repeat(columns.saturating_sub(text.width()));
        self.and(style, text).and(Style::Plain, fill)
    }

    /// The text, with colours if they are wanted, without spaces at its end.
    pub(crate) fn render(&self, colours: bool) -> String {
        let mut out = String::new();
        for (style, text) in &self.pieces {
            match style.code() {
                code if colours && !code.is_empty() => {
                    out.push_str("\x1b[");
                    out.push_str(code);
                    out.push('m');
                    out.push_str(text);
                    out.push_str("\x1b[0m");
                }
                _ => out.push_str(text),
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out
    }
}

/// Whether a terminal could take the character for a command, or a reader the line for another one: C0 and C1 controls,
/// line separators, and the marks that reorder text.
pub(crate) fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The text on one line and harmless: tabs and line breaks become spaces, everything else dangerous goes.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if matches!(c, '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .filter(|c| !is_dangerous(*c))
        .collect()
}

/// Whether a character takes no room on the screen, so that text can hide in it: joiners, fillers, tags.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text on one line with all that steers or hides written out, such as `\u{202e}`: for what a person decides about. Tabs become four
/// spaces; spaces at the end become dots, since a change of them is a change.
pub(crate) fn visible(text: &str) -> String {
    let kept = text.trim_end_matches(' ');
    let mut out = String::with_capacity(text.len());
    for c in kept.chars() {
        match c {
            '\t' => out.push_str("    "),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if is_dangerous(c) || is_unseen(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.extend(std::iter::repeat_n('·', text.len() - kept.len()));
    out
}

/// The text cut to at most `longest` characters, with a mark where something is missing.
pub(crate) fn shorten(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some(_) => text.chars().take(longest.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Rows with their columns aligned; the last column is as wide as it is. Each line is indented by two spaces.
pub(crate) fn table(rows: &[Vec<(Style, String)>]) -> Vec<Line> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|(_, text)| clean(text).width()).max().unwrap_or(0)
        })
        .collect();
    rows.iter()
        .map(|row| {
            row.iter()
                .zip(&widths)
                .fold(Line::new("  "), |line, ((style, text), width)| line.column(*style, text, width + 2))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        let hostile = "a\x1b[2Jb\u{9b}31mc\u{202e}d\u{2066}e\x07f\x7fg\r\nh\ti\u{2028}j";
        let line = Line::new(hostile).and(Style::Bad, hostile);
        assert_eq!(line.render(false), "a[2Jb31mcdefg  h i ja[2Jb31mcdefg  h i j");
        assert_eq!(line.render(true).matches('\x1b').count(), 2, "only the two colour codes of our own");
    }

    // S2-X-17: what is shown for a decision is all that is there.
    #[test]
    fn nothing_hides_from_whoever_decides() {
        assert_eq!(visible("a\tb\r"), "a    b\\r");
        assert_eq!(visible("rm\u{200b}\u{202e}txt.\u{e0041}\x1b[2K"), "rm\\u{200b}\\u{202e}txt.\\u{e0041}\\u{1b}[2K");
        assert_eq!(visible("x  "), "x··");
        assert_eq!(visible("größe 日本 👍"), "größe 日本 👍");
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        assert!(!visible(&all).contains(is_dangerous));
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let line = Line::new("a ").and(Style::Good, "b");
        assert_eq!(line.render(false), "a b");
        assert_eq!(line.render(true), "a \x1b[32mb\x1b[0m");
    }

    #[test]
    fn columns_stand_under_each_other_whatever_the_width_of_their_letters() {
        let row = |a: &str, b: &str| vec![(Style::Plain, a.to_owned()), (Style::Plain, b.to_owned())];
        let lines: Vec<String> =
            table(&[row("日本", "x"), row("abcde", "y")]).iter().map(|line| line.render(false)).collect();
        assert_eq!(lines, ["  日本   x", "  abcde  y"]);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }
}

//! A line of text for people, made of cleaned pieces: nothing a server says can move the cursor, ring the bell or reorder the line.

use belay_text::steers;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

/// The fewest columns beside an indent; with less room a line continues near the left edge.
const MIN_COLUMNS: usize = 24;

/// The text that services show in place of a secret.
pub(crate) const REDACTED: &str = "[REDACTED]";

/// How a piece of a line looks where colours are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// As it comes.
    Plain,
    /// Text that one looks for first: names, headings.
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

/// A line. Its pieces are cleaned when they are added, so a `Line` is always safe to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pieces: Vec<(Style, String)>,
    /// The column at which a folded line continues; `None` for two columns after its beginning.
    hang: Option<usize>,
    /// The terminal wraps it: a program's output and commands are not folded.
    verbatim: bool,
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

    /// The line, which continues at this column where it is folded.
    pub(crate) fn hanging(mut self, column: usize) -> Line {
        self.hang = Some(column);
        self
    }

    /// The line as it is, in a window of any width.
    pub(crate) fn verbatim(mut self) -> Line {
        self.verbatim = true;
        self
    }

    /// How many columns it takes, without the spaces at its end.
    pub(crate) fn width(&self) -> usize {
        let (mut width, mut ends) = (0, 0);
        for (_, c) in self.cells() {
            width += columns_of(c);
            ends = if c == ' ' { ends } else { width };
        }
        ends
    }

    /// The line without the spaces at its end.
    pub(crate) fn trimmed(mut self) -> Line {
        while let Some((_, text)) = self.pieces.last_mut() {
            text.truncate(text.trim_end_matches(' ').len());
            if !text.is_empty() {
                break;
            }
            self.pieces.pop();
        }
        self
    }

    fn cells(&self) -> impl Iterator<Item = (Style, char)> {
        self.pieces.iter().flat_map(|(style, text)| text.chars().map(|c| (*style, c)))
    }

    fn of_cells(cells: &[(Style, char)]) -> Line {
        let mut line = Line::default();
        for (style, c) in cells {
            match line.pieces.last_mut() {
                Some((last, text)) if last == style => text.push(*c),
                _ => line.pieces.push((*style, c.to_string())),
            }
        }
        line
    }

    /// The line cut to this many columns, with a mark where something is missing.
    pub(crate) fn cut(self, columns: usize) -> Line {
        if self.width() <= columns {
            return self;
        }
        let mut left = columns.saturating_sub(1);
        let mut kept: Vec<(Style, char)> = self
            .cells()
            .take_while(|(_, c)| {
                let fits = columns_of(*c) <= left;
                left = left.saturating_sub(columns_of(*c));
                fits
            })
            .collect();
        if columns > 0 {
            kept.push((Style::Dim, '…'));
        }
        Line::of_cells(&kept)
    }

    /// The line with another one at the right edge of this many columns; below it if both do not fit.
    pub(crate) fn with_right(self, right: Line, columns: usize) -> Vec<Line> {
        let gap = columns.saturating_sub(self.width() + right.width());
        match gap {
            0 | 1 => vec![self, Line::new("  ").with(right)],
            _ => vec![self.and(Style::Plain, " ".repeat(gap)).with(right)],
        }
    }

    /// The line on as many rows of this many columns as it needs. It breaks at spaces where it can, and continues under its beginning; the
    /// spaces that align columns shrink where they would cost a row.
    pub(crate) fn fold(self, columns: usize) -> Vec<Line> {
        if self.verbatim || self.width() <= columns {
            return vec![self];
        }
        let indent = self.cells().take_while(|(_, c)| *c == ' ').count();
        let hangs = self.hang.filter(|hang| hang + MIN_COLUMNS <= columns);
        let hang = hangs.unwrap_or(indent + 2).min(columns / 2);
        let mut rest: Vec<(Style, char)> = match hangs {
            Some(_) => self.cells().collect(),
            None => closer(&self.cells().collect::<Vec<_>>(), indent),
        };
        let mut rows: Vec<Line> = Vec::new();
        let mut room = columns.max(1);
        loop {
            let end = fitting(&rest, room);
            let row = match rows.is_empty() {
                true => Line::default(),
                false => Line::new(" ".repeat(hang)),
            };
            rows.push(row.with(Line::of_cells(&rest[..end])));
            let next = rest[end..].iter().position(|(_, c)| *c != ' ').map(|skip| end + skip);
            let Some(next) = next else { return rows };
            rest.drain(..next);
            room = columns.saturating_sub(hang).max(1);
        }
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

/// How many columns a character takes.
fn columns_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// How many of the cells fit on a row of this many columns: up to the last space that fits, else as many as fit, and at least one.
fn fitting(cells: &[(Style, char)], room: usize) -> usize {
    let mut width = 0;
    let over = cells.iter().position(|(_, c)| {
        width += columns_of(*c);
        width > room
    });
    let Some(over) = over else { return cells.len() };
    let indent = cells.iter().take_while(|(_, c)| *c == ' ').count();
    let space = (indent + 1..=over).rev().find(|place| cells[*place].1 == ' ');
    space.unwrap_or(over).max(1)
}

/// The cells with at most two spaces in a row behind the indent.
fn closer(cells: &[(Style, char)], indent: usize) -> Vec<(Style, char)> {
    let mut spaces = 0;
    let kept = cells.iter().enumerate().filter(|(place, (_, c))| {
        spaces = if *c == ' ' { spaces + 1 } else { 0 };
        *place < indent || spaces <= 2
    });
    kept.map(|(_, cell)| *cell).collect()
}

/// The lines as rows of a window with this many columns; unchanged without a window.
pub(crate) fn rows(lines: &[Line], columns: Option<usize>) -> Vec<Line> {
    match columns {
        Some(columns) => lines.iter().flat_map(|line| line.clone().fold(columns)).collect(),
        None => lines.to_vec(),
    }
}

/// The text on one line and harmless: tabs and line breaks become spaces, and everything that is not seen is written out.
pub(crate) fn clean(text: &str) -> String {
    belay_text::harmless(text)
}

/// The name of a file, as a service gives it: as it is. Two names never read alike.
pub(crate) fn name(path: &str) -> String {
    belay_text::visible(path)
}

/// The output of a program, with its lines and tabs, and without all that steers a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrintableText(String);

impl PrintableText {
    /// Cleans what a program printed. A carriage return within a line writes over what stood there, as progress bars do.
    pub(crate) fn of_program(text: &str) -> PrintableText {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            for c in without_escapes(visible_end(line)).chars() {
                match c {
                    '\t' => out.push('\t'),
                    // What is left of sequences, and bells.
                    c if c.is_control() => {}
                    c if steers(c) => out.push_str(&belay_text::visible(c.encode_utf8(&mut [0; 4]))),
                    c => out.push(c),
                }
            }
            out.extend(line.ends_with('\n').then_some('\n'));
        }
        PrintableText(out)
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text with each line two columns to the right.
    pub(crate) fn indented(&self) -> PrintableText {
        let indent = |line: &str| if line == "\n" { line.to_owned() } else { format!("  {line}") };
        PrintableText(self.0.split_inclusive('\n').map(indent).collect())
    }
}

/// The part of a line that stays visible: a carriage return writes over what stood there, as progress bars do.
fn visible_end(line: &str) -> &str {
    let text = line.trim_end_matches(['\n', '\r']);
    text.rsplit('\r').next().unwrap_or(text)
}

/// A line without the sequences by which a program colours and moves on a terminal (ECMA-48 control sequences).
fn without_escapes(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut rest = part.trim_start_matches(|c| matches!(c, ' '..='?')).chars();
        // The final byte.
        rest.next();
        plain += rest.as_str();
    }
    plain
}

/// A text that a service has made visible for the decision about an approval, on one line. Tabs become four spaces; spaces at the end become dots, since a change
/// of them is a change.
pub(crate) fn visible(text: &str) -> String {
    let kept = text.trim_end_matches(' ');
    let mut out = belay_text::visible_again(&kept.replace('\t', "    "));
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
    let last: usize = 2 + widths.iter().rev().skip(1).map(|width| width + 2).sum::<usize>();
    rows.iter()
        .map(|row| {
            row.iter()
                .zip(&widths)
                .fold(Line::new("  "), |line, ((style, text), width)| line.column(*style, text, width + 2))
                .hanging(last)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        let hostile = "a\x1b[2Jb\u{9b}31mc\u{202e}d\u{2066}e\x07f\x7fg\r\nh\ti\u{2028}j";
        let shown = "a<U+001B>[2Jb<U+009B>31mc<U+202E>d<U+2066>e<U+0007>f<U+007F>g  h i j";
        let line = Line::new(hostile).and(Style::Bad, hostile);
        assert_eq!(line.render(false), format!("{shown}{shown}"));
        assert_eq!(line.render(true).matches('\x1b').count(), 2, "only the two colour codes of our own");
    }

    #[test]
    fn what_a_program_printed_keeps_its_lines_and_tabs_and_steers_nothing() {
        let printed =
            "a\tb\n\u{1b}[31mred\u{1b}[0m\r\n\n10%\r\u{1b}[2K20%\nx\u{9b}2J\u{202e}\u{1b}]0;title\u{7}\u{1b}[üo";
        let harmless = PrintableText::of_program(printed);
        assert_eq!(harmless.as_str(), "a\tb\nred\n\n20%\nx2J<U+202E>]0;titleo");
        assert_eq!(harmless.indented().as_str(), "  a\tb\n  red\n\n  20%\n  x2J<U+202E>]0;titleo");
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        let is_kept = |c: char| c == '\n' || c == '\t';
        assert!(!PrintableText::of_program(&all).as_str().contains(|c| steers(c) && !is_kept(c)));
    }

    // S2-X-17: what is shown for a decision hides nothing.
    #[test]
    fn nothing_is_hidden_from_the_person_who_decides() {
        assert_eq!(visible("a\tb\r"), "a    b<U+000D>");
        assert_eq!(visible("rm\u{200b}\u{202e}txt.\u{e0041}\x1b[2K"), "rm<U+200B><U+202E>txt.<U+E0041><U+001B>[2K");
        assert_eq!(visible("x  "), "x··");
        assert_eq!(visible("größe 日本 👍"), "größe 日本 👍");
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        assert!(visible(&all).chars().all(belay_text::is_plain));
    }

    #[test]
    fn colours_only_where_they_are_wanted() {
        let line = Line::new("a ").and(Style::Good, "b");
        assert_eq!(line.render(false), "a b");
        assert_eq!(line.render(true), "a \x1b[32mb\x1b[0m");
    }

    #[test]
    fn columns_are_aligned_with_wide_letters_too() {
        let row = |a: &str, b: &str| vec![(Style::Plain, a.to_owned()), (Style::Plain, b.to_owned())];
        let lines: Vec<String> =
            table(&[row("日本", "x"), row("abcde", "y")]).iter().map(|line| line.render(false)).collect();
        assert_eq!(lines, ["  日本   x", "  abcde  y"]);
    }

    fn folded(line: Line, columns: usize) -> Vec<String> {
        let rows = line.fold(columns);
        assert!(rows.iter().all(|row| row.width() <= columns), "{rows:?}");
        rows.iter().map(|row| row.render(false)).collect()
    }

    #[test]
    fn a_folded_line_continues_under_its_beginning() {
        let line = || Line::new("  next: ").and(Style::Strong, "belay executions watch e1 --after 12");
        assert_eq!(folded(line(), 80), ["  next: belay executions watch e1 --after 12"]);
        assert_eq!(folded(line(), 30), ["  next: belay executions watch", "    e1 --after 12"]);
        assert_eq!(folded(Line::new("日本日本日本"), 5), ["日本", "  日", "  本", "  日", "  本"]);
        assert_eq!(folded(Line::new("x".repeat(9)), 4), ["xxxx", "  xx", "  xx", "  x"]);
        for columns in 1..12 {
            folded(line(), columns);
        }
        let long = "y".repeat(200);
        assert_eq!(folded_all(&[Line::new(&long).verbatim()], 40), [long]);
    }

    fn folded_all(lines: &[Line], columns: usize) -> Vec<String> {
        rows(lines, Some(columns)).iter().map(|row| row.render(false)).collect()
    }

    #[test]
    fn a_table_folds_in_its_last_column_and_closes_up_where_that_is_too_narrow() {
        let row = |a: &str, b: &str, c: &str| [a, b, c].map(|text| (Style::Plain, text.to_owned())).to_vec();
        let lines = table(&[
            row("completed", "a", "ran for three seconds and a bit, once"),
            row("failed", "long-name", "no such file"),
        ]);
        assert_eq!(
            folded_all(&lines, 52),
            [
                "  completed  a          ran for three seconds and a",
                "                        bit, once",
                "  failed     long-name  no such file",
            ]
        );
        assert_eq!(
            folded_all(&lines, 28),
            [
                "  completed  a  ran for",
                "    three seconds and a bit,",
                "    once",
                "  failed  long-name  no such",
                "    file"
            ]
        );
    }

    #[test]
    fn a_cut_line_says_so_and_keeps_its_colours() {
        let line = Line::new("ab").and(Style::Good, "cdef");
        assert_eq!(line.clone().cut(6).render(false), "abcdef");
        assert_eq!(line.clone().cut(4).render(true), "ab\x1b[32mc\x1b[0m\x1b[2m…\x1b[0m");
        assert_eq!(Line::new("日本").cut(3).render(false), "日…");
        assert_eq!(line.cut(0).render(false), "");
    }

    #[test]
    fn two_ends_of_a_row_stand_apart() {
        let beside = |columns| folded_all(&Line::new("left").with_right(Line::new("right"), columns), 40);
        assert_eq!(beside(12), ["left   right"]);
        assert_eq!(beside(10), ["left", "  right"]);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
    }
}

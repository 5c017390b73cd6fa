//! Standard output for data, standard error for messages, and what kind of terminals they are.

use std::{
    borrow::Cow,
    env,
    io::{self, IsTerminal as _, Write as _},
    os::fd::AsFd,
};

use serde_json::Value;

use crate::{
    args::Format,
    failure::{Failure, Report},
    render::{
        json,
        text::{self, Line, PrintableText},
    },
};

/// The two streams, and how to write to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// The format of standard output.
    pub(crate) format: Format,
    /// Whether standard output is a terminal that can redraw.
    pub(crate) output_moves: bool,
    /// Whether standard error is a terminal that can redraw.
    pub(crate) talk_moves: bool,
    /// Whether output is coloured.
    pub(crate) output_colours: bool,
    /// Whether talk is coloured.
    pub(crate) talk_colours: bool,
}

/// The window for which rows are drawn where a terminal does not know its own.
const USUAL_SIZE: (usize, usize) = (80, 24);

/// A stream of this process that is a terminal which can redraw.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Terminal {
    /// Standard output.
    Output,
    /// Standard error.
    Talk,
}

impl Terminal {
    /// How many columns and rows it has now.
    pub(crate) fn size(self) -> (usize, usize) {
        let size = match self {
            Terminal::Output => size(io::stdout()),
            Terminal::Talk => size(io::stderr()),
        };
        size.unwrap_or(USUAL_SIZE)
    }
}

impl io::Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Terminal::Output => io::stdout().write(bytes),
            Terminal::Talk => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Terminal::Output => io::stdout().flush(),
            Terminal::Talk => io::stderr().flush(),
        }
    }
}

/// How many columns and rows a terminal has now; `None` where the stream is none, or does not know.
fn size(stream: impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    (size.0 > 0 && size.1 > 0).then_some(size)
}

fn columns(stream: impl AsFd) -> Option<usize> {
    size(stream).map(|(columns, _)| columns)
}

impl Screen {
    /// Looks at the process's streams and environment.
    pub(crate) fn of_process(format: Format) -> Screen {
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let output_moves = io::stdout().is_terminal() && !dumb;
        let talk_moves = io::stderr().is_terminal() && !dumb;
        Screen {
            format,
            output_moves,
            talk_moves,
            output_colours: output_moves && colours,
            talk_colours: talk_moves && colours,
        }
    }

    /// Data for people, folded to the window.
    pub(crate) fn print(&self, lines: &[Line]) -> io::Result<()> {
        let rows = text::rows(lines, columns(io::stdout()));
        let text: String = rows.iter().map(|line| line.render(self.output_colours) + "\n").collect();
        put(&text)
    }

    /// How many columns standard output has; `None` where it is not a terminal.
    pub(crate) fn output_columns(&self) -> Option<usize> {
        columns(io::stdout())
    }

    /// How many columns standard error has; `None` where it is not a terminal.
    pub(crate) fn talk_columns(&self) -> Option<usize> {
        columns(io::stderr())
    }

    /// Data for programs: one value, indented for `json`, on one line for `jsonl`.
    pub(crate) fn print_json(&self, value: &Value) -> io::Result<()> {
        put(&(json::text(value, self.format == Format::Json) + "\n"))
    }

    /// Data for programs where the output has no other form: indented, but on one line for `jsonl`.
    pub(crate) fn print_json_indented(&self, value: &Value) -> io::Result<()> {
        put(&(json::text(value, self.format != Format::Jsonl) + "\n"))
    }

    /// Data for programs, of which more follow: a value on one line, whatever the format.
    pub(crate) fn print_json_line(&self, value: &Value) -> io::Result<()> {
        put(&(json::text(value, false) + "\n"))
    }

    /// Writes to standard error. A closed standard error does not stop the command.
    pub(crate) fn say(&self, line: &Line) {
        let rows = text::rows(std::slice::from_ref(line), columns(io::stderr()));
        let text: String = rows.iter().map(|row| row.render(self.talk_colours) + "\n").collect();
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// Data as a program printed it, not folded.
    pub(crate) fn print_text(&self, text: &PrintableText) -> io::Result<()> {
        put(&ended(text.as_str()))
    }

    /// The same as talk.
    pub(crate) fn say_text(&self, text: &PrintableText) {
        let _ = io::stderr().write_all(ended(text.as_str()).as_bytes());
    }

    /// A question: talk that the answer stands behind.
    pub(crate) fn ask(&self, question: &Line) {
        let mut output = io::stderr().lock();
        let _ = write!(output, "{} ", question.render(self.talk_colours));
        let _ = output.flush();
    }

    /// Reports a failure: a screen for people on standard error, an object for programs on standard output.
    pub(crate) fn report(&self, report: &Report) {
        match self.format {
            Format::Text => report.lines().iter().for_each(|line| self.say(line)),
            // The reader has closed the output; there is no other place to report to.
            Format::Json | Format::Jsonl => drop(self.print_json(&report.json())),
        }
    }

    /// Shows a message: as lines for people, in its canonical form for programs.
    pub(crate) fn show<T: serde::Serialize>(
        &self,
        message: &T,
        lines: impl FnOnce() -> Vec<Line>,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Text => self.print(&lines())?,
            Format::Json | Format::Jsonl => self.print_json(&json::of(message)?)?,
        }
        Ok(())
    }
}

/// The text with a line break at its end, so that nothing stands behind it on its line.
fn ended(text: &str) -> Cow<'_, str> {
    match text.is_empty() || text.ends_with('\n') {
        true => text.into(),
        false => format!("{text}\n").into(),
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

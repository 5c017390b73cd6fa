//! Standard output for data, standard error for talk, and who looks at them.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
};

use serde_json::Value;

use crate::{
    args::Format,
    failure::{Failure, Report},
    render::{json, text::Line},
};

/// The two streams, and how to write to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// What is asked for on standard output.
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

    /// Data for people.
    pub(crate) fn print(&self, lines: &[Line]) -> io::Result<()> {
        let text: String = lines.iter().map(|line| line.render(self.output_colours) + "\n").collect();
        put(&text)
    }

    /// Data for programs: one value, indented for `json`, on a line of its own for `jsonl`.
    pub(crate) fn print_json(&self, value: &Value) -> io::Result<()> {
        put(&(json::text(value, self.format == Format::Json) + "\n"))
    }

    /// Talk. Nobody listening is no reason to stop.
    pub(crate) fn say(&self, line: &Line) {
        let _ = writeln!(io::stderr(), "{}", line.render(self.talk_colours));
    }

    /// A question: talk that the answer stands behind.
    pub(crate) fn ask(&self, question: &Line) {
        let mut output = io::stderr().lock();
        let _ = write!(output, "{} ", question.render(self.talk_colours));
        let _ = output.flush();
    }

    /// What went wrong: a screen for people on standard error, an object for programs on standard output.
    pub(crate) fn report(&self, report: &Report) {
        match self.format {
            Format::Text => report.lines().iter().for_each(|line| self.say(line)),
            // Whoever should read it has gone, and nothing is left to try.
            Format::Json | Format::Jsonl => drop(self.print_json(&report.json())),
        }
    }

    /// One message: as lines for people, in its canonical form for programs.
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

fn put(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

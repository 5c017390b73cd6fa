//! Lines at the bottom of a terminal that are redrawn in place, below lines that stay.

use std::io;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::text::Line;

/// The moving part of a screen. Gone without a trace when it is dropped.
pub(crate) struct Live {
    area: MultiProgress,
    lines: Vec<ProgressBar>,
    style: ProgressStyle,
    colours: bool,
}

impl Live {
    /// Draws on a terminal. Lines longer than the window is wide are cut.
    pub(crate) fn new(target: ProgressDrawTarget, colours: bool) -> Live {
        let style = ProgressStyle::with_template("{wide_msg}").expect("the template is a constant that parses");
        Live { area: MultiProgress::with_draw_target(target), lines: Vec::new(), style, colours }
    }

    /// Adds a line that stays.
    pub(crate) fn print(&self, line: &Line) -> io::Result<()> {
        self.area.println(line.render(self.colours))
    }

    /// Replaces the moving lines.
    pub(crate) fn draw(&mut self, lines: &[Line]) {
        while self.lines.len() > lines.len() {
            if let Some(surplus) = self.lines.pop() {
                surplus.finish_and_clear();
                self.area.remove(&surplus);
            }
        }
        while self.lines.len() < lines.len() {
            let line = self.area.add(ProgressBar::no_length());
            line.set_style(self.style.clone());
            self.lines.push(line);
        }
        for (place, line) in self.lines.iter().zip(lines) {
            place.set_message(line.render(self.colours));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for line in &self.lines {
            line.finish_and_clear();
        }
        // A terminal that has gone away needs no clearing.
        let _ = self.area.clear();
    }
}

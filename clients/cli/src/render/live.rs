//! Rows at the bottom of a terminal that are redrawn in place, below lines that stay.
//!
//! The cursor rests at the beginning of the first of these rows. To redraw, everything from there on is erased, so that nothing has to be
//! known of how the terminal has broken the rows since: one that was made narrower or wider keeps the cursor on its text.

use std::io::{self, Write};

use super::text::{self, Line};

/// To the beginning of the row, and everything from there on erased.
const ERASE: &str = "\r\x1b[J";
/// No row takes two, even if the window has become narrower since it was measured.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// The size of a window: its columns and rows.
pub(crate) type Size = (usize, usize);

/// The moving part of a screen. Gone without a trace when it is dropped.
pub(crate) struct LiveRows<W: Write> {
    out: W,
    colours: bool,
    /// The rows that stand on the screen, and the window they were drawn for.
    drawn: (Vec<String>, Size),
}

impl<W: Write> LiveRows<W> {
    /// Draws on a terminal.
    pub(crate) fn new(out: W, colours: bool) -> LiveRows<W> {
        LiveRows { out, colours, drawn: (Vec::new(), (0, 0)) }
    }

    /// Adds lines that stay, above the moving rows.
    pub(crate) fn print(&mut self, lines: &[Line], size: Size) -> io::Result<()> {
        let (drawn, _) = std::mem::take(&mut self.drawn);
        let mut frame = if drawn.is_empty() { String::new() } else { ERASE.to_owned() };
        for line in text::rows(lines, Some(size.0)) {
            frame += &line.render(self.colours);
            frame.push('\n');
        }
        self.put(frame, drawn, size)
    }

    /// Replaces the live rows: lines are cut at the window's edge, and lines that do not fit its height are left out.
    pub(crate) fn draw(&mut self, lines: &[Line], size: Size) -> io::Result<()> {
        let (columns, rows) = size;
        // The last column stays free: some terminals go to the next row as soon as it is filled.
        let fits = |line: &Line| line.clone().cut(columns.saturating_sub(1)).render(self.colours);
        let rows: Vec<String> = lines.iter().take(rows.saturating_sub(1)).map(fits).collect();
        if self.drawn == (rows.clone(), size) {
            return Ok(());
        }
        let frame = if self.drawn.0.is_empty() { String::new() } else { ERASE.to_owned() };
        self.put(frame, rows, size)
    }

    /// Takes the moving rows away.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let (drawn, size) = std::mem::take(&mut self.drawn);
        if drawn.is_empty() { Ok(()) } else { self.put(ERASE.to_owned(), Vec::new(), size) }
    }

    fn put(&mut self, mut frame: String, rows: Vec<String>, size: Size) -> io::Result<()> {
        if !rows.is_empty() {
            frame += NO_WRAP;
            frame += &rows.join("\n");
            frame += WRAP;
            frame.push('\r');
            if rows.len() > 1 {
                frame += &format!("\x1b[{}A", rows.len() - 1);
            }
        }
        self.drawn = (rows, size);
        // In one piece, so that no half of a frame is ever seen.
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for LiveRows<W> {
    fn drop(&mut self) {
        // A closed terminal needs no clearing.
        let _ = self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    /// A terminal that breaks its rows anew when its window changes, and one that has lost what its window did not show.
    #[derive(Clone)]
    struct Glass(Rc<RefCell<avt::Terminal>>);

    impl Glass {
        fn new((columns, rows): Size) -> Glass {
            Glass(Rc::new(RefCell::new(avt::Terminal::with_scrollback(columns, rows, None).unwrap())))
        }

        fn resize(&self, (columns, rows): Size) {
            self.0.borrow_mut().resize(columns, rows);
        }

        /// All that was ever on it, without the empty rows at the end.
        fn text(&self) -> Vec<String> {
            let mut rows: Vec<String> =
                self.0.borrow().screen().all_lines().map(|line| line.text().trim_end().to_owned()).collect();
            while rows.last().is_some_and(String::is_empty) {
                rows.pop();
            }
            rows
        }
    }

    impl Write for Glass {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // As the kernel's line discipline does.
            self.0.borrow_mut().feed(std::str::from_utf8(bytes).unwrap().replace('\n', "\r\n").as_str());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(rows: &[&str]) -> Vec<Line> {
        rows.iter().map(Line::new).collect()
    }

    #[test]
    fn rows_that_stay_stand_above_those_that_move() {
        let size = (40, 10);
        let glass = Glass::new(size);
        let mut live = LiveRows::new(glass.clone(), true);
        live.draw(&lines(&["0 of 2", "a 1s"]), size).unwrap();
        live.print(&lines(&["a is done"]), size).unwrap();
        live.draw(&lines(&["1 of 2", "b 1s", "c 1s"]), size).unwrap();
        assert_eq!(glass.text(), ["a is done", "1 of 2", "b 1s", "c 1s"]);
        live.draw(&lines(&["2 of 2"]), size).unwrap();
        live.print(&lines(&["b is done"]), size).unwrap();
        assert_eq!(glass.text(), ["a is done", "b is done", "2 of 2"]);
        drop(live);
        assert_eq!(glass.text(), ["a is done", "b is done"]);
    }

    #[test]
    fn a_window_that_changes_leaves_no_stale_rows() {
        let usual = (80, 12);
        let glass = Glass::new(usual);
        let mut live = LiveRows::new(glass.clone(), false);
        let wide: Vec<String> = (0..4).map(|row| format!("{row} {}", "x".repeat(70))).collect();
        let wide: Vec<Line> = wide.iter().map(Line::new).collect();
        live.print(&lines(&["before"]), usual).unwrap();
        for size in [(80, 12), (40, 12), (23, 12), (120, 12), (79, 30), (60, 9), (80, 12)] {
            glass.resize(size);
            live.draw(&wide, size).unwrap();
            let shown: Vec<Line> = wide.iter().map(|line| line.clone().cut(size.0 - 1)).collect();
            let shown: Vec<String> = shown.iter().map(|line| line.render(false)).collect();
            assert_eq!(glass.text()[0], "before");
            assert_eq!(glass.text()[1..], shown, "{size:?}");
        }
        live.print(&lines(&["after"]), (80, 12)).unwrap();
        live.clear().unwrap();
        assert_eq!(glass.text(), ["before", "after"]);
    }

    #[test]
    fn a_picture_that_is_higher_than_the_window_fits_it() {
        let size = (20, 4);
        let glass = Glass::new(size);
        let mut live = LiveRows::new(glass.clone(), false);
        for turn in 0..3 {
            let rows: Vec<Line> = (0..9).map(|row| Line::new(format!("{turn} {row}"))).collect();
            live.draw(&rows, size).unwrap();
        }
        assert_eq!(glass.text(), ["2 0", "2 1", "2 2"]);
    }

    #[test]
    fn nothing_is_written_where_nothing_has_changed() {
        let size = (20, 4);
        let glass = Glass::new(size);
        let mut live = LiveRows::new(glass.clone(), false);
        live.draw(&lines(&["a"]), size).unwrap();
        glass.0.borrow_mut().feed("typed");
        live.draw(&lines(&["a"]), size).unwrap();
        assert_eq!(glass.text(), ["typed"]);
        live.draw(&lines(&["b"]), size).unwrap();
        assert_eq!(glass.text(), ["b"]);
    }
}

//! A timeline as rows of a window: a bar for each step on one scale, in ASCII, with times at the side.

use std::time::Duration;

use belay_proto::v1::{Timeline, TimelineRow, TimelineSegment, step::State, timeline_segment::Kind};
use pbjson_types::Timestamp;

use super::{
    text::{Line, Style},
    time, words,
};

/// The fewest columns of a bar that is worth times beside it.
const MIN_BAR: usize = 16;
/// The widest column of step ids, and the part of the window that it may take.
const MAX_ID: usize = 24;
const ID_PART: usize = 4;

/// How a segment is drawn, and what that means.
const MARKS: [(Kind, char, Style, &str); 4] = [
    (Kind::Running, '#', Style::Good, "running"),
    (Kind::Person, '?', Style::Warn, "waiting for a person"),
    (Kind::Waiting, '~', Style::Plain, "waiting"),
    (Kind::Backoff, '.', Style::Dim, "before the next attempt"),
];

fn mark(kind: Kind) -> (char, Style) {
    let found = MARKS.iter().find(|(known, ..)| *known == kind);
    found.map_or((' ', Style::Plain), |(_, mark, style, _)| (*mark, *style))
}

/// The text beside a bar.
struct RightColumn {
    style: Style,
    start: String,
    took: String,
    note: String,
}

/// How many columns each part takes.
struct Widths {
    id: usize,
    bar: usize,
    start: usize,
    took: usize,
    note: usize,
}

/// The timeline for a window of so many columns, with at most `max_rows` steps: those in the middle are left out. What has not ended
/// lasts until `now`.
pub(crate) fn lines(timeline: &Timeline, columns: usize, max_rows: usize, now: Duration) -> Vec<Line> {
    let start = since_epoch(timeline.create_time.as_ref()).unwrap_or_default();
    let end = since_epoch(timeline.end_time.as_ref()).unwrap_or(now).max(start);
    let (first, left_out) = elided(timeline.rows.len(), max_rows);
    let shown: Vec<&TimelineRow> =
        timeline.rows.iter().enumerate().filter(|(place, _)| !left_out.contains(place)).map(|(_, row)| row).collect();
    let beside: Vec<RightColumn> = shown.iter().map(|row| right_column(row, start, end)).collect();
    let widths = widths(&shown, &beside, columns);
    let mut lines = vec![axis(end - start, &widths)];
    for (place, (row, beside)) in shown.iter().zip(&beside).enumerate() {
        if place == first && !left_out.is_empty() {
            lines.push(missing(&timeline.rows[left_out.clone()]));
        }
        lines.push(line(row, beside, start, end, &widths));
    }
    lines.extend(legend(&shown));
    lines
}

/// How many rows stand before those that are left out, and which are.
fn elided(rows: usize, max_rows: usize) -> (usize, std::ops::Range<usize>) {
    if rows <= max_rows {
        return (rows, 0..0);
    }
    let first = max_rows.div_ceil(2);
    (first, first..rows - (max_rows - first))
}

/// `... 260 steps left out (2 failed); --all shows them`.
fn missing(rows: &[TimelineRow]) -> Line {
    let failed = rows.iter().filter(|row| row.state() == State::Failed).count();
    let failed = if failed == 0 { String::new() } else { format!(" ({failed} failed)") };
    Line::default().and(Style::Dim, format!("... {} left out{failed}; --all shows them", words::steps(rows.len())))
}

fn right_column(row: &TimelineRow, start: Duration, end: Duration) -> RightColumn {
    let attempts = row.segments.last().map_or(0, |last| last.attempt);
    let attempts = if attempts > 1 { Some(format!("{attempts} attempts")) } else { None };
    let state = match row.state() {
        State::Completed => None,
        State::Running => row.segments.last().map(|last| {
            match last.kind() {
                Kind::Unspecified | Kind::Running => "running",
                Kind::Person => "waits for a person",
                Kind::Waiting => "waiting",
                Kind::Backoff => "retrying",
            }
            .to_owned()
        }),
        state => Some(words::step_state(state)),
    };
    let begin = row.segments.first().map(begin_of);
    let until = row.segments.last().map(|last| end_of(last, end));
    let took = begin.zip(until).map(|(begin, until)| time::short(until.saturating_sub(begin)));
    RightColumn {
        style: words::step_style(row.state()),
        start: begin.map(|begin| time::short(begin.saturating_sub(start))).unwrap_or_default(),
        took: took.unwrap_or_default(),
        note: state.into_iter().chain(attempts).collect::<Vec<_>>().join(", "),
    }
}

/// The times and notes give way to the bars in a narrow window.
fn widths(rows: &[&TimelineRow], beside: &[RightColumn], columns: usize) -> Widths {
    let widest = |of: &dyn Fn(&RightColumn) -> &str, heading: &str| {
        beside.iter().map(|beside| of(beside).len()).max().unwrap_or(0).max(heading.len())
    };
    let ids = rows.iter().map(|row| row.step_id.len()).max().unwrap_or(0);
    let mut widths = Widths {
        id: ids.min(MAX_ID).min((columns / ID_PART).max(1)),
        bar: 0,
        start: widest(&|beside| &beside.start, START),
        took: widest(&|beside| &beside.took, TOOK),
        note: widest(&|beside| &beside.note, ""),
    };
    // The last column stays free: some terminals go to the next row as soon as it is filled.
    let room = |widths: &Widths| {
        let sides = [widths.start, widths.took, widths.note].into_iter().filter(|side| *side > 0).map(|side| side + 2);
        columns.saturating_sub(widths.id + "  ||".len() + sides.sum::<usize>() + 1)
    };
    let give_way: [fn(&mut Widths); 3] =
        [|widths| widths.note = 0, |widths| widths.start = 0, |widths| widths.took = 0];
    for give_way in give_way {
        if room(&widths) >= MIN_BAR {
            break;
        }
        give_way(&mut widths);
    }
    widths.bar = room(&widths).max(1);
    widths
}

const START: &str = "START";
const TOOK: &str = "TOOK";

/// The scale above the bars: its beginning, its middle and its end.
fn axis(whole: Duration, widths: &Widths) -> Line {
    let (half, end) = (time::short(whole / 2), time::short(whole));
    let bar = widths.bar;
    let mut scale = "0s".to_owned();
    for (text, place) in [(&half, bar / 2), (&end, bar.saturating_sub(end.len()))] {
        // A label that would touch the one before it is left out.
        if place > scale.len() {
            scale = format!("{scale:place$}{text}");
        }
    }
    let scale: String = scale.chars().take(bar).collect();
    let line = Line::new(" ".repeat(widths.id + 3)).column(Style::Dim, scale, bar + 1);
    sides(line, widths, (Style::Dim, START), (Style::Dim, TOOK), (Style::Plain, ""))
}

fn line(row: &TimelineRow, beside: &RightColumn, start: Duration, end: Duration, widths: &Widths) -> Line {
    let mut line = Line::default()
        .column(Style::Strong, fitting(&row.step_id, widths.id), widths.id)
        .and(Style::Plain, "  ")
        .and(Style::Dim, "|");
    let ends_badly = row.state() == State::Failed;
    let cells = bar(&row.segments, start, end, widths.bar);
    for same in cells.chunk_by(|one, other| one == other) {
        let (mark, style) = same[0].map_or((' ', Style::Plain), mark);
        let style = if ends_badly && same[0] == Some(Kind::Running) { Style::Bad } else { style };
        line = line.and(style, mark.to_string().repeat(same.len()));
    }
    let line = line.and(Style::Dim, "|");
    sides(line, widths, (Style::Dim, &beside.start), (Style::Plain, &beside.took), (beside.style, &beside.note))
}

/// The line with its times and its note, as far as there is room for them.
fn sides(line: Line, widths: &Widths, start: (Style, &str), took: (Style, &str), note: (Style, &str)) -> Line {
    let right = |line: Line, width: usize, (style, text): (Style, &str)| match width {
        0 => line,
        _ => line.and(Style::Plain, "  ").and(style, format!("{text:>width$}")),
    };
    let line = right(right(line, widths.start, start), widths.took, took);
    if widths.note == 0 || note.1.is_empty() { line } else { line.and(Style::Plain, "  ").and(note.0, note.1) }
}

/// The id, cut in ASCII where it is too long.
fn fitting(id: &str, columns: usize) -> String {
    match id.len() <= columns {
        true => id.to_owned(),
        false => id.chars().take(columns.saturating_sub(2)).chain("..".chars()).take(columns).collect(),
    }
}

/// The content of each of the bar's cells: what the step did longest in it. A step that did something is never invisible.
fn bar(segments: &[TimelineSegment], start: Duration, end: Duration, cells: usize) -> Vec<Option<Kind>> {
    let whole = end.saturating_sub(start).as_nanos().max(1);
    let count = cells as u128;
    let mut shown: Vec<(u128, Option<Kind>)> = vec![(0, None); cells];
    for segment in segments {
        let from = begin_of(segment).saturating_sub(start).as_nanos().min(whole);
        let to = end_of(segment, end).saturating_sub(start).as_nanos().clamp(from, whole);
        let first = (from * count / whole).min(count.saturating_sub(1));
        let last = (to * count).div_ceil(whole).clamp(first + 1, count.max(first + 1));
        for (place, cell) in shown.iter_mut().enumerate().take(last as usize).skip(first as usize) {
            let (cell_from, cell_to) = (whole * place as u128 / count, whole * (place as u128 + 1) / count);
            let covered = to.min(cell_to).saturating_sub(from.max(cell_from));
            if cell.1.is_none() || covered > cell.0 {
                *cell = (covered, Some(segment.kind()));
            }
        }
    }
    shown.into_iter().map(|(_, kind)| kind).collect()
}

/// `# running  ? waiting for a person`, for the marks that are there.
fn legend(rows: &[&TimelineRow]) -> Option<Line> {
    let is_there = |kind: Kind| rows.iter().flat_map(|row| &row.segments).any(|segment| segment.kind() == kind);
    let mut line = Line::default();
    for (_, mark, style, what) in MARKS.iter().filter(|(kind, ..)| is_there(*kind)) {
        line = line.and(*style, mark.to_string()).and(Style::Dim, format!(" {what}  "));
    }
    (line.width() > 0).then_some(line)
}

fn since_epoch(time: Option<&Timestamp>) -> Option<Duration> {
    time.and_then(time::since_epoch)
}

fn begin_of(segment: &TimelineSegment) -> Duration {
    since_epoch(segment.begin_time.as_ref()).unwrap_or_default()
}

/// When it ended; one that continues lasts until the end of the scale.
fn end_of(segment: &TimelineSegment, end: Duration) -> Duration {
    since_epoch(segment.end_time.as_ref()).unwrap_or(end)
}

#[cfg(test)]
mod tests;

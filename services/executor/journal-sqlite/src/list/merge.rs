//! Pages that are merged: of walks in the order of the list, read a part at a time.

use std::collections::VecDeque;

use belay_journal::{ExecutionKey, ExecutionRow, MAX_EXAMINED, Page, Position, Query};
use rusqlite::{Connection, OptionalExtension as _, Result as Sql, Row, params_from_iter, types::Value};

use super::{examined_page::ExaminedPage, sql_filter::SqlFilter, walk::Walk};
use crate::rows::{execution_row, report};

/// The most executions that a walk reads at once.
pub(super) const MAX_CHUNK: usize = 512;

/// The number of executions that a walk passes over for a page at most. Each costs one to three microseconds, most of it to find its row.
pub(super) const MAX_PASSED: usize = 16_384;

/// A page of the executions that the walks find, each in the order of the list.
pub(super) fn merge(connection: &Connection, query: &Query, walks: Vec<Walk>) -> Sql<ExaminedPage> {
    let chunk = (query.limit / walks.len().max(1) + 1).clamp(8, 256);
    let filter = SqlFilter::by(query);
    let mut walks: Vec<Walking<'_>> =
        walks.into_iter().map(|walk| Walking::new(connection, query, walk, &filter, chunk)).collect();
    let mut may_pass = MAX_PASSED;
    let most = MAX_EXAMINED.max(query.limit + 1);
    let (mut page, mut examined, mut last) = (Page::default(), 0, None);
    loop {
        let mut first: Option<(Ahead, usize)> = None;
        for (index, walk) in walks.iter_mut().enumerate() {
            if let Some(ahead) = walk.peek(&mut may_pass)?
                && first.is_none_or(|(first, _)| query.order.compare(ahead.position(), first.position()).is_lt())
            {
                first = Some((ahead, index));
            }
        }
        let (position, index) = match first {
            None => break,
            Some((Ahead::Row(position), index)) => (position, index),
            // Whatever comes before it was examined, in every walk.
            Some((Ahead::Unread(position), _)) => {
                page.next = Some(position);
                break;
            }
        };
        let row = walks[index].found.pop_front().expect("peeked");
        let matches = query.matches(&row);
        if matches && page.rows.len() == query.limit {
            page.next = last;
            break;
        }
        page.rows.extend(matches.then_some(row));
        last = Some(position);
        examined += 1;
        if examined == most {
            page.next = last;
            break;
        }
    }
    Ok(ExaminedPage { page, rows: walks.iter().map(|walk| walk.read).sum() })
}

/// The next place in a walk.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    /// An execution at this position.
    Row(Position),
    /// It has passed over enough for this page, up to and with this position.
    Unread(Position),
}

impl Ahead {
    fn position(self) -> Position {
        match self {
            Self::Row(position) | Self::Unread(position) => position,
        }
    }
}

/// A walk that is under way.
struct Walking<'a> {
    connection: &'a Connection,
    query: &'a Query,
    walk: Walk,
    filter: &'a SqlFilter,
    found: VecDeque<ExecutionRow>,
    /// The ends of what is still to be found, both exclusive.
    between: (Position, Position),
    /// The last execution that it has looked at.
    passed: Option<Position>,
    chunk: usize,
    is_at_end: bool,
    /// The number of rows that were read.
    read: usize,
}

impl<'a> Walking<'a> {
    fn new(connection: &'a Connection, query: &'a Query, walk: Walk, filter: &'a SqlFilter, chunk: usize) -> Self {
        let (least, most) = query.bounds();
        let mut between = (Position { time: least, ..Position::START }, Position::after(most));
        if let Some(after) = query.after {
            match query.order.descending {
                true => between.1 = between.1.min(after),
                false => between.0 = between.0.max(after),
            }
        }
        let found = VecDeque::new();
        Self { connection, query, walk, filter, found, between, passed: None, chunk, is_at_end: false, read: 0 }
    }

    /// Finds what comes next. Looks at most at so many executions more.
    fn peek(&mut self, may_pass: &mut usize) -> Sql<Option<Ahead>> {
        while self.found.is_empty() && !self.is_at_end {
            if let Some(passed) = self.passed.filter(|_| *may_pass == 0) {
                return Ok(Some(Ahead::Unread(passed)));
            }
            *may_pass = may_pass.saturating_sub(self.chunk);
            self.read()?;
        }
        Ok(self.found.front().and_then(|row| self.query.position(row)).map(Ahead::Row))
    }

    /// Reads what may match of the next executions: the index says where these end.
    fn read(&mut self) -> Sql<()> {
        let descending = self.query.order.descending;
        let chunk = i64::try_from(self.chunk).unwrap_or(i64::MAX);
        let end = {
            let mut statement = self.connection.prepare_cached(&self.walk.skip(descending))?;
            let bounds = bounds(self.between, chunk - 1);
            let values = self.walk.values.iter().chain(&bounds);
            let position = |row: &Row<'_>| Ok(Position { time: row.get(0)?, key: ExecutionKey(row.get(1)?) });
            statement.query_row(params_from_iter(values), position).optional()?
        };
        let (after, before) = self.between;
        let part = match (end, descending) {
            (None, _) => self.between,
            // With the last one.
            (Some(end), true) => (Position { key: ExecutionKey(end.key.0.saturating_sub(1)), ..end }, before),
            (Some(end), false) => (after, Position { key: ExecutionKey(end.key.0.saturating_add(1)), ..end }),
        };
        let mut statement = self.connection.prepare_cached(&self.walk.select(self.filter, descending))?;
        let bounds = bounds(part, chunk);
        let values = self.walk.values.iter().chain(&self.filter.values).chain(&bounds);
        for row in statement.query_map(params_from_iter(values), execution_row)? {
            self.read += 1;
            self.found.extend(row?.inspect_err(report).ok());
        }
        match end {
            None => self.is_at_end = true,
            Some(end) if descending => self.between.1 = end,
            Some(end) => self.between.0 = end,
        }
        self.passed = end;
        // The next part is longer: nothing that matched was in this one, or the page is long.
        self.chunk = (self.chunk * 2).min(MAX_CHUNK);
        Ok(())
    }
}

/// The last parameters of a statement of a walk.
fn bounds((after, before): (Position, Position), number: i64) -> [Value; 5] {
    [after.time, after.key.0, before.time, before.key.0, number].map(Value::from)
}

//! Schedules as text.

use std::time::Duration;

use belay_proto::v1::{
    Schedule, ScheduleRecord,
    schedule::Overlap,
    schedule_record::{Origin, Outcome},
};

use super::{
    text::{Line, Style, clean},
    time,
};
use crate::names;

/// The width of the column of names, and of that of titles.
const NAME_COLUMNS: usize = 24;
const TITLE_COLUMNS: usize = 12;

/// A line for each: its name, when it fires, and its next time.
pub(crate) fn list(schedules: &[Schedule]) -> Vec<Line> {
    let line = |schedule: &Schedule| {
        let line = Line::default().column(Style::Strong, clean(names::id(&schedule.name)), NAME_COLUMNS).column(
            Style::Plain,
            timing(schedule),
            2 * NAME_COLUMNS,
        );
        match schedule.next_times.first() {
            _ if schedule.paused => line.and(Style::Warn, "paused"),
            Some(next) => line.and(Style::Plain, format!("next {}", time::date_and_time(next))),
            None => line.and(Style::Dim, "no next time"),
        }
    };
    schedules.iter().map(line).collect()
}

/// A schedule with its next times, and what became of the last ones.
pub(crate) fn one(schedule: &Schedule, now: Duration) -> Vec<Line> {
    let row =
        |title: &str, text: String| Line::default().column(Style::Dim, title, TITLE_COLUMNS).and(Style::Plain, text);
    let mut lines = vec![
        Line::default()
            .column(Style::Dim, "schedule", TITLE_COLUMNS)
            .and(Style::Strong, clean(names::id(&schedule.name))),
        row("fires", timing(schedule)),
    ];
    if let Some(execution) = &schedule.execution {
        lines.push(row("plan", clean(&execution.plan_id)));
    }
    lines.push(row("overlap", overlap(schedule.overlap()).to_owned()));
    if let Some(window) = &schedule.catch_up_window {
        lines.push(row("catch-up", format!("up to {} late", time::short(time::duration(window)))));
    }
    if schedule.paused {
        let reason = match schedule.pause_reason.as_str() {
            "" => "its times are skipped".to_owned(),
            reason => clean(reason),
        };
        lines.push(row("paused", reason));
    }
    for (number, next) in schedule.next_times.iter().enumerate() {
        let title = if number == 0 { "next" } else { "" };
        let wait = time::since_epoch(next).map(|at| time::short(at.saturating_sub(now))).unwrap_or_default();
        lines.push(row(title, format!("{} (in {wait})", time::date_and_time(next))));
    }
    if !schedule.running.is_empty() {
        lines.push(row("running", schedule.running.iter().map(|id| clean(id)).collect::<Vec<_>>().join(", ")));
    }
    if schedule.waiting > 0 {
        lines.push(row("waiting", schedule.waiting.to_string()));
    }
    let Schedule { started, skipped, failed, .. } = schedule;
    lines.push(row("so far", format!("{started} started, {skipped} skipped, {failed} failed")));
    for (number, record) in schedule.records.iter().rev().enumerate() {
        let title = if number == 0 { "last" } else { "" };
        lines.push(row(title, what_became(record)));
    }
    lines
}

/// `30 2 * * * (Europe/Berlin)` or `every 15m`.
fn timing(schedule: &Schedule) -> String {
    let zone = match schedule.time_zone.as_str() {
        "" => "UTC",
        zone => zone,
    };
    let fires = match &schedule.interval {
        Some(interval) => format!("every {}", time::short(time::duration(interval))),
        None => format!("{} ({zone})", schedule.cron),
    };
    match &schedule.jitter {
        Some(jitter) => clean(&format!("{fires}, delayed by up to {}", time::short(time::duration(jitter)))),
        None => clean(&fires),
    }
}

fn overlap(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Unspecified | Overlap::Skip => "skip",
        Overlap::Queue => "queue",
        Overlap::CancelOlder => "cancel-older",
        Overlap::Allow => "allow",
    }
}

/// `2026-03-29 00:30:00Z  started nightly-20260329t003000z`.
fn what_became(record: &ScheduleRecord) -> String {
    let at = |time: &Option<_>| time.as_ref().map(time::date_and_time).unwrap_or_default();
    let when = match record.count {
        1 => at(&record.first_time),
        count => format!("{} to {}, {count} times", at(&record.first_time), at(&record.last_time)),
    };
    let origin = match record.origin() {
        Origin::Unspecified | Origin::Schedule => "",
        Origin::Backfill => " (backfill)",
        Origin::Trigger => " (triggered)",
    };
    let outcome = match record.outcome() {
        Outcome::Unspecified => "unknown".to_owned(),
        Outcome::Started => format!("started {}", record.execution_id),
        Outcome::Missed => "skipped: later than the catch-up window".to_owned(),
        Outcome::Paused => "skipped: paused".to_owned(),
        Outcome::Overlap => "skipped: an execution had not ended".to_owned(),
        Outcome::QueueFull => "skipped: 100 times waited already".to_owned(),
        Outcome::Superseded => "skipped: a later one took its place".to_owned(),
        Outcome::Failed => format!("could not be started: {}", record.problem),
    };
    clean(&format!("{when}  {outcome}{origin}"))
}

#[cfg(test)]
mod tests {
    use pbjson_types::Timestamp;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.render(false)).collect()
    }

    #[test]
    fn a_schedule_shows_its_times_and_what_became_of_them() {
        let schedule = Schedule {
            name: "namespaces/default/schedules/nightly".to_owned(),
            cron: "30 2 * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned(),
            next_times: vec![at(7_200), at(93_600)],
            started: 1,
            skipped: 3,
            records: vec![
                ScheduleRecord {
                    first_time: Some(at(0)),
                    last_time: Some(at(0)),
                    count: 1,
                    origin: Origin::Trigger.into(),
                    outcome: Outcome::Started.into(),
                    execution_id: "nightly-x".to_owned(),
                    ..Default::default()
                },
                ScheduleRecord {
                    first_time: Some(at(60)),
                    last_time: Some(at(180)),
                    count: 3,
                    outcome: Outcome::Missed.into(),
                    ..Default::default()
                },
            ],
            ..Default::default()
        };
        let shown = text(&one(&schedule, Duration::from_secs(3_600)));
        assert_eq!(shown[1], "fires       30 2 * * * (Europe/Berlin)");
        assert_eq!(shown[3], "next        1970-01-01 02:00:00Z (in 1h)");
        assert_eq!(shown[5], "so far      1 started, 3 skipped, 0 failed");
        assert!(shown[6].ends_with(
            "1970-01-01 00:01:00Z to 1970-01-01 00:03:00Z, 3 times  skipped: later than the catch-up window"
        ));
        assert!(shown[7].ends_with("started nightly-x (triggered)"));
        assert!(text(&list(&[schedule]))[0].ends_with("next 1970-01-01 02:00:00Z"));
    }
}

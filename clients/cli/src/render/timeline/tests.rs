use super::*;

fn at(seconds: u64) -> Option<Timestamp> {
    Some(Timestamp { seconds: i64::try_from(seconds).unwrap(), nanos: 0 })
}

/// A segment of a step; one that ends at 0 continues.
fn segment(attempt: i32, kind: Kind, begin: u64, end: u64) -> TimelineSegment {
    let (begin_time, end_time) = (at(begin), at(end).filter(|_| end > 0));
    TimelineSegment { kind: kind.into(), attempt, operation: 1, begin_time, end_time }
}

fn row(step: &str, state: State, segments: Vec<TimelineSegment>) -> TimelineRow {
    TimelineRow { step_id: step.to_owned(), state: state.into(), segments }
}

/// A step that is tried twice and approved, one that waits and asks, one whose call is made again after a pause, and one that is skipped.
fn timeline() -> Timeline {
    use Kind::{Backoff, Person, Running, Waiting};
    let build = vec![
        segment(1, Running, 100, 110),
        segment(1, Backoff, 110, 120),
        segment(2, Running, 120, 130),
        segment(2, Person, 130, 140),
        segment(2, Running, 140, 150),
    ];
    let again = vec![segment(1, Running, 125, 130), segment(1, Waiting, 130, 135), segment(1, Running, 135, 0)];
    let rows = vec![
        row("build", State::Failed, build),
        row("sleep", State::Completed, vec![segment(1, Waiting, 100, 120)]),
        row("again", State::Running, again),
        row("skip", State::Skipped, vec![]),
        row("quick", State::Completed, vec![segment(1, Running, 150, 150)]),
        row("ask", State::Running, vec![segment(1, Person, 160, 0)]),
    ];
    Timeline { create_time: at(100), rows, ..Timeline::default() }
}

fn screen(timeline: &Timeline, columns: usize, rows: usize, now: u64) -> Vec<String> {
    lines(timeline, columns, rows, Duration::from_secs(now)).iter().map(|line| line.render(false)).collect()
}

#[test]
fn a_bar_for_each_step_on_one_scale() {
    assert_eq!(
        screen(&timeline(), 80, 9, 200),
        [
            "        0s               50s         1m 40s   START    TOOK",
            "build  |####...####???####                 |     0s     50s  failed, 2 attempts",
            "sleep  |~~~~~~~                            |     0s     20s",
            "again  |        ###~#######################|    25s  1m 15s  running",
            "skip   |                                   |                 skipped",
            "quick  |                 #                 |    50s      0s",
            "ask    |                     ??????????????|     1m     40s  waits for a person",
            "# running  ? waiting for a person  ~ waiting  . before the next attempt",
        ]
    );
}

#[test]
fn what_has_ended_has_a_scale_of_its_own() {
    let ended = Timeline { end_time: at(170), ..timeline() };
    assert_eq!(screen(&ended, 80, 9, 170), screen(&ended, 80, 9, 999_999));
}

#[test]
fn no_window_is_too_narrow_and_everything_is_ascii() {
    let timeline = timeline();
    for columns in 1..200 {
        let lines = lines(&timeline, columns, 9, Duration::from_secs(200));
        let bars = &lines[..lines.len() - 1];
        assert!(columns < 24 || bars.iter().all(|line| line.width() < columns), "{columns}: {bars:#?}");
        assert!(lines.iter().all(|line| line.render(false).is_ascii()));
    }
    let at_40 = screen(&timeline, 40, 9, 200);
    assert_eq!(at_40[1], "build  |##..###??##           |     50s");
    let mut long = timeline;
    long.rows[0].step_id = "a-very-long-name-of-a-step-which-nobody-reads".to_owned();
    assert!(screen(&long, 80, 9, 200)[1].starts_with("a-very-long-name-o..  |"), "{:#?}", screen(&long, 80, 9, 200));
}

#[test]
fn of_many_steps_those_in_the_middle_are_left_out() {
    let rows = (0..10_000).map(|n| {
        let state = if n % 5_000 == 100 { State::Failed } else { State::Completed };
        row(&format!("s{n}"), state, vec![segment(1, Kind::Running, n, n + 1)])
    });
    let many = Timeline { rows: rows.collect(), ..Timeline::default() };
    let shown = screen(&many, 80, 5, 10_000);
    assert_eq!(shown.len(), 1 + 5 + 1 + 1, "the scale, the steps, what is left out, the legend");
    assert!(shown[3].starts_with("s2 ") && shown[5].starts_with("s9998 ") && shown[6].contains('#'), "{shown:#?}");
    assert_eq!(shown[4], "... 9995 steps left out (2 failed); --all shows them");
    assert_eq!(screen(&many, 80, usize::MAX, 10_000).len(), 10_002);
    assert!(screen(&Timeline::default(), 80, 5, 0).len() == 1, "nothing has started");
}

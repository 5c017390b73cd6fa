use belay_proto::v1::{
    ApprovalDecided, ExecutionCreated, ExecutionFinished, Form, StepCompleted, StepFailed, StepRetryScheduled,
    StepSkipped, StepStarted, ToolCallCancelled, ToolCallEffectProposed, ToolCallRequested, WaitEnded, WaitStarted,
};
use pbjson_types::Timestamp;

use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn event(seconds: i64, step: &str, attempt: i32, kind: Event) -> ExecutionEvent {
    let time = Some(Timestamp { seconds, nanos: 0 });
    ExecutionEvent { record_time: time, step_id: step.to_owned(), attempt, kind: Some(kind), ..Default::default() }
}

fn starts() -> Event {
    Event::StepStarted(StepStarted {})
}

fn completes() -> Event {
    Event::StepCompleted(StepCompleted::default())
}

/// A step that is tried twice and approved, one that waits and asks, one whose call is made again after a pause, and one that is skipped.
fn events() -> Vec<ExecutionEvent> {
    let form = WaitStarted { form: Some(Form::default()), ..Default::default() };
    vec![
        event(100, "", 0, Event::ExecutionCreated(ExecutionCreated::default())),
        event(100, "build", 1, starts()),
        event(100, "build", 1, Event::ToolCallRequested(ToolCallRequested::default())),
        event(100, "sleep", 1, starts()),
        event(100, "sleep", 1, Event::WaitStarted(WaitStarted::default())),
        event(110, "build", 1, Event::StepRetryScheduled(StepRetryScheduled::default())),
        event(120, "build", 2, starts()),
        event(120, "sleep", 1, Event::WaitEnded(WaitEnded::default())),
        event(120, "sleep", 1, completes()),
        event(125, "again", 1, starts()),
        event(130, "build", 2, Event::ToolCallEffectProposed(ToolCallEffectProposed::default())),
        event(130, "again", 1, Event::ToolCallCancelled(ToolCallCancelled::default())),
        event(135, "again", 1, Event::ToolCallRequested(ToolCallRequested::default())),
        event(140, "build", 2, Event::ApprovalDecided(ApprovalDecided::default())),
        event(150, "build", 2, Event::StepFailed(StepFailed::default())),
        event(150, "skip", 0, Event::StepSkipped(StepSkipped::default())),
        event(150, "quick", 1, starts()),
        event(150, "quick", 1, completes()),
        event(160, "ask", 1, starts()),
        event(160, "ask", 1, Event::WaitStarted(form)),
    ]
}

fn timeline() -> Timeline {
    let mut timeline = Timeline::default();
    events().iter().for_each(|event| timeline.see(event));
    timeline
}

fn screen(timeline: &Timeline, columns: usize, rows: usize, now: u64) -> Vec<String> {
    lines(timeline, columns, rows, at(now)).iter().map(|line| line.render(false)).collect()
}

#[test]
fn events_become_what_each_step_did_when() {
    use Kind::{Approval, Backoff, Running, Waiting};
    let timeline = timeline();
    let segment = |attempt, kind, start, end: u64| Segment {
        attempt,
        kind,
        start: at(start),
        end: Some(at(end)).filter(|_| end > 0),
    };
    let rows: Vec<_> =
        timeline.rows.iter().map(|row| (row.step_id.as_str(), row.state, row.segments.clone())).collect();
    assert_eq!(
        rows,
        [
            (
                "build",
                State::Failed,
                vec![
                    segment(1, Running, 100, 110),
                    segment(1, Backoff, 110, 120),
                    segment(2, Running, 120, 130),
                    segment(2, Approval, 130, 140),
                    segment(2, Running, 140, 150),
                ]
            ),
            ("sleep", State::Completed, vec![segment(1, Waiting, 100, 120)]),
            (
                "again",
                State::Running,
                vec![segment(1, Running, 125, 130), segment(1, Waiting, 130, 135), segment(1, Running, 135, 0)]
            ),
            ("skip", State::Skipped, vec![]),
            ("quick", State::Completed, vec![segment(1, Running, 150, 150)]),
            ("ask", State::Running, vec![segment(1, Approval, 160, 0)]),
        ]
    );
    let json = timeline.segments();
    assert_eq!((json.len(), &json[1]["kind"], &json[1]["attempt"]), (11, &"backoff".into(), &1.into()));
    assert!(json[10].get("endTime").is_none(), "{}", json[10]);
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
    let mut ended = timeline();
    ended.see(&event(170, "", 0, Event::ExecutionFinished(ExecutionFinished::default())));
    assert_eq!(screen(&ended, 80, 9, 170), screen(&ended, 80, 9, 999_999));
}

#[test]
fn no_window_is_too_narrow_and_everything_is_ascii() {
    let timeline = timeline();
    for columns in 1..200 {
        let lines = lines(&timeline, columns, 9, at(200));
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
    let mut many = Timeline::default();
    for n in 0..10_000 {
        let step = format!("s{n}");
        many.see(&event(n, &step, 1, starts()));
        let end = if n % 5_000 == 100 { Event::StepFailed(StepFailed::default()) } else { completes() };
        many.see(&event(n + 1, &step, 1, end));
    }
    let shown = screen(&many, 80, 5, 10_000);
    assert_eq!(shown.len(), 1 + 5 + 1 + 1, "the scale, the steps, what is left out, the legend");
    assert!(shown[3].starts_with("s2 ") && shown[5].starts_with("s9998 ") && shown[6].contains('#'), "{shown:#?}");
    assert_eq!(shown[4], "... 9995 steps left out (2 failed); --all shows them");
    assert_eq!(screen(&many, 80, usize::MAX, 10_000).len(), 10_002);
    assert!(screen(&Timeline::default(), 80, 5, 0).len() == 1, "nothing has started");
}

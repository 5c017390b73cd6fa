//! Bad specifications are refused with the field, the cause and the way out.

use belay_schedule::{Draft, Firing, Origin, State, backfill, decide};

use crate::{at, checked, cron, every};

#[test]
fn bad_specifications_name_the_field_and_what_to_do() {
    let cases = [
        (Draft { name: "s".into(), ..Draft::default() }, "cron: is needed, or `interval`"),
        (Draft { name: "A".into(), ..every(60) }, "schedule_id: `A` is not valid: use 1 to 39 lower-case letters"),
        (Draft { name: "a".repeat(40), ..every(60) }, "schedule_id: "),
        (Draft { interval: Some(60), ..cron("* * * * *", "") }, "interval: cannot be given together with `cron`"),
        (every(0), "interval: is 0 s: use 1 s to 365 days"),
        (every(-5), "interval: is -5 s"),
        (every(i64::MAX), "interval: is 9223372036854775807 s"),
        (Draft { time_zone: "UTC".into(), ..every(60) }, "time_zone: belongs to `cron`"),
        (Draft { anchor: Some(1), ..cron("* * * * *", "") }, "anchor_time: belongs to `interval`"),
        (cron("0 0 31 2 *", ""), "cron: `0 0 31 2 *` never fires"),
        (
            cron("* * * * *", "Europe/Berln"),
            "time_zone: `Europe/Berln` is not a time zone: use a name of the IANA database, such as `Europe/Berlin` or `UTC`; did you mean `Europe/Berlin`?",
        ),
        (cron("* * * * *", "../../etc/passwd"), "time_zone: `../../etc/passwd` is not a time zone"),
        (
            Draft { jitter: 61, ..every(60) },
            "jitter: is 61 s, longer than the 60 s between two firings, so that one could come after the next: use at most 60 s",
        ),
        (Draft { jitter: 3601, ..cron("0 1,2 * * *", "") }, "jitter: is 3601 s, longer than the 3600 s"),
        (Draft { jitter: -1, ..every(60) }, "jitter: is -1 s: use 0 s"),
        (Draft { catch_up: Some(0), ..every(60) }, "catch_up_window: is 0 s: use 10 s to 365 days"),
        (Draft { catch_up: Some(i64::MAX), ..every(60) }, "catch_up_window: "),
    ];
    for (draft, expected) in cases {
        let error = draft.check(0).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
    assert!(Draft { jitter: 60, ..every(60) }.check(0).is_ok(), "an interval's jitter may be as long as it");
}

#[test]
fn a_backfill_is_of_times_that_are_over_and_not_too_many() {
    let specification = checked(&every(60));
    let now = at("2026-01-01T00:00:00Z");
    let refused = |state: &mut State, range| backfill(&specification, state, "", range, now).unwrap_err().to_string();
    let state = &mut State::new(now);
    assert!(refused(state, (now, now - 1)).starts_with("end_time: is before `start_time`: exchange the two"));
    assert!(refused(state, (now, now + 1)).starts_with("end_time: is in the future"));
    assert!(refused(state, (now - 59, now - 1)).starts_with("start_time: to `end_time` has no time of this schedule"));
    assert!(refused(state, (0, now)).starts_with("start_time: to `end_time` has more than 1000 times"));
    assert_eq!(backfill(&specification, state, "a", (now - 600, now), now), Ok(11));
    assert_eq!(backfill(&specification, state, "a", (now - 600, now), now), Ok(11), "a repeated request");
    assert_eq!(state.queue.len(), 11);
    assert_eq!(backfill(&specification, state, "b", (now - 600, now), now), Ok(0), "they wait already");
    let refused = refused(state, (now - 60 * 995, now));
    assert!(refused.contains("and 11 do already: ask again when they have started"), "{refused}");
    let next = decide(&specification, state, now).state;
    assert_eq!(next.starting, [Firing { nominal: now - 600, origin: Origin::Backfill }], "one after the other");
}

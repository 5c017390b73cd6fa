//! Schedules: what fires, once, whatever happens to the server.

use std::collections::BTreeSet;

use belay_e2e::Home;
use rustix::process::Signal;
use serde_json::Value;

const TICK: &str = "{id: tick, steps: [{id: a, tool: noop}]}";
const SLOW: &str = "{id: slow, steps: [{id: a, wait: {signal: go}}]}";

fn number(schedule: &Value, field: &str) -> i64 {
    schedule[field].as_str().map_or(0, |text| text.parse().unwrap())
}

fn ids(home: &Home) -> Vec<String> {
    let (_, listed) = home.json(&["executions", "list", "--all"]);
    let id = |execution: &Value| execution["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let mut ids: Vec<String> =
        listed["executions"].as_array().map(|all| all.iter().map(id).collect()).unwrap_or_default();
    ids.sort();
    ids
}

/// The second in the id of an execution: `tick-20261128t232204z`.
fn second(id: &str) -> i64 {
    let digits: String = id.rsplit('-').next().unwrap().chars().filter(char::is_ascii_digit).collect();
    let part = |range: std::ops::Range<usize>| digits[range].parse::<i64>().unwrap();
    ((part(6..8) * 24 + part(8..10)) * 60 + part(10..12)) * 60 + part(12..14)
}

fn create(home: &Home, name: &str, plan: &str, more: &[&str]) {
    let created = home.run([&["schedules", "create", name, plan], more].concat());
    assert_eq!(created.code, 0, "{created:?}");
}

/// A server that is killed again and again, and is away for a while, loses no time and carries out none twice.
#[test]
fn no_time_is_lost_or_doubled_by_kills() {
    let home = Home::new();
    let plan = home.file("plan.yaml", TICK);
    let mut server = home.serve();
    create(&home, "tick", &plan, &["--every", "1s", "--overlap", "allow"]);
    for round in 1..=4 {
        home.json_until(&["schedules", "get", "tick"], |shown| number(shown, "started") >= round * 2);
        server.kill();
        server = home.serve();
    }
    let paused = home.json(&["schedules", "pause", "tick"]).1;
    assert_eq!(paused["paused"], true, "{paused}");
    let settled = home
        .json_until(&["schedules", "get", "tick"], |shown| shown["waiting"].is_null() && shown["running"].is_null());
    let ids = ids(&home);
    let seconds: BTreeSet<i64> = ids.iter().map(|id| second(id)).collect();
    assert_eq!(seconds.len(), ids.len(), "none twice: {ids:?}");
    let (first, last) = (seconds.first().unwrap(), seconds.last().unwrap());
    assert!((0..=last - first).all(|n| seconds.contains(&(first + n))), "none is lost: {ids:?}");
    assert_eq!(number(&settled, "started"), i64::try_from(ids.len()).unwrap(), "{settled}");
    server.signal(Signal::TERM);
    server.end();
}

/// A time at which an execution runs is skipped, queued, or cancels it.
#[test]
fn overlapping_times_follow_the_policy() {
    let home = Home::new();
    let (slow, server) = (home.file("slow.yaml", SLOW), home.serve());
    for overlap in ["skip", "queue", "cancel-older"] {
        create(&home, overlap, &slow, &["--every", "1s", "--overlap", overlap]);
    }
    let skip = home.json_until(&["schedules", "get", "skip"], |shown| number(shown, "skipped") >= 2);
    assert_eq!((number(&skip, "started"), skip["running"].as_array().unwrap().len()), (1, 1), "{skip}");
    let queue = home.json_until(&["schedules", "get", "queue"], |shown| shown["waiting"].as_i64() >= Some(2));
    let first = queue["running"][0].as_str().unwrap().to_owned();
    assert_eq!(home.run(["executions", "signal", &first, "go"]).code, 0);
    home.json_until(&["schedules", "get", "queue"], |shown| {
        number(shown, "started") == 2 && shown["running"][0] != first
    });
    home.json_until(&["schedules", "get", "cancel-older"], |shown| number(shown, "started") >= 3);
    let newest_first = ids(&home).into_iter().filter(|id| id.starts_with("cancel-older-")).collect::<Vec<_>>();
    home.json_until(&["executions", "get", &newest_first[0]], |shown| shown["state"] == "STATE_CANCELLED");
    server.signal(Signal::TERM);
    server.end();
}

/// Pausing, resuming, triggering, backfilling and deleting do what they say, and a time is never carried out again.
#[test]
fn people_control_schedules() {
    let home = Home::new();
    let (plan, server) = (home.file("plan.yaml", TICK), home.serve());
    create(&home, "yearly", &plan, &["--cron", "0 3 1 JAN *", "--time-zone", "Europe/Berlin", "--paused"]);
    let shown = home.json(&["schedules", "get", "yearly"]).1;
    assert_eq!((&shown["paused"], &shown["nextTimes"]), (&Value::Bool(true), &Value::Null), "{shown}");
    assert_eq!(shown["execution"]["planId"], "tick", "{shown}");
    let resumed = home.json(&["schedules", "resume", "yearly"]).1;
    let next = resumed["nextTimes"].as_array().unwrap();
    assert_eq!(next.len(), 10, "{resumed}");
    assert!(next[0].as_str().unwrap().contains("-01-01T02:00:00"), "three in Berlin: {resumed}");

    let trigger = || home.json(&["schedules", "trigger", "yearly", "--request-id", "r1"]).1["execution"].clone();
    assert_eq!(trigger(), trigger(), "a repeated request starts nothing more");
    home.json_until(&["schedules", "get", "yearly"], |shown| number(shown, "started") == 1);

    let backfill = || {
        let range = ["--from", "2024-12-31T00:00:00Z", "--to", "2025-06-01T00:00:00Z"];
        home.json(&[&["schedules", "backfill", "yearly"][..], &range].concat()).1
    };
    assert_eq!(backfill()["count"], 1);
    home.json_until(&["executions", "get", "yearly-20250101t020000z"], |shown| shown["state"] == "STATE_COMPLETED");
    backfill();
    home.json_until(&["schedules", "get", "yearly"], |shown| shown["waiting"].is_null() && shown["running"].is_null());
    assert_eq!(ids(&home).len(), 2, "the trigger and one time: {:?}", ids(&home));

    let kept = home.run(["schedules", "delete", "yearly"]);
    assert!(kept.code == 2 && kept.talk.contains("--yes"), "{kept:?}");
    assert_eq!(home.run(["schedules", "delete", "yearly", "--yes"]).code, 0);
    let gone = home.run(["schedules", "get", "yearly"]);
    assert!(gone.code == 2 && gone.talk.contains("SCHEDULE_NOT_FOUND"), "{gone:?}");
    assert_eq!(ids(&home).len(), 2, "its executions stay");
    server.signal(Signal::TERM);
    server.end();
}

/// Bad input is refused with the field, the cause and the way out, and nothing is created.
#[test]
fn bad_schedules_are_refused() {
    let home = Home::new();
    let (plan, bad) = (home.file("plan.yaml", TICK), home.file("bad.yaml", "{id: bad, steps: [{id: a, tool: nope}]}"));
    let secret = home.file(
        "secret.yaml",
        "{id: s, steps: [{id: a, tool: noop, arguments: {output: ghp_1234567890abcdefghijklmnopqrstuvwxyz}}]}",
    );
    let server = home.serve();
    create(&home, "twice", &plan, &["--every", "1d"]);
    let cases: [(&str, &str, &[&str], &str); 11] = [
        ("twice", &plan, &["--every", "1d"], "exists already; nothing was created. Choose another name"),
        ("UP", &plan, &["--every", "1d"], "schedule_id: `UP` is not valid"),
        ("a", &plan, &["--every", "0s"], "schedule.interval: is 0 s: use 1 s to 365 days"),
        ("a", &plan, &["--every", "1m", "--jitter", "2m"], "schedule.jitter: is 120 s, longer than the 60 s"),
        ("a", &plan, &["--cron", "0 0 31 2 *"], "never fires"),
        ("a", &plan, &["--cron", "61 * * * *"], "schedule.cron: `61` (minute) is not valid"),
        (
            "a",
            &plan,
            &["--cron", "0 0 * * *", "--time-zone", "Mars/Base"],
            "schedule.time_zone: `Mars/Base` is not a time zone",
        ),
        ("a", &plan, &["--every", "1m", "--catch-up", "1s"], "schedule.catch_up_window: is 1 s: use 10 s to 365 days"),
        ("a", &plan, &["--every", "500ms"], "schedule.interval: has a fraction of a second"),
        ("a", &bad, &["--every", "1d"], "nope"),
        ("a", &secret, &["--every", "1d"], "looks like a secret"),
    ];
    for (name, plan, more, expected) in cases {
        let refused = home.run([&["schedules", "create", name, plan], more].concat());
        assert!(refused.code == 2 && refused.talk.contains(expected), "{expected}: {refused:?}");
    }
    let range = ["--from", "1970-01-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z"];
    let refused = home.run([&["schedules", "backfill", "twice"][..], &range].concat());
    assert!(refused.code == 2 && refused.talk.contains("has more than 1000 times"), "{refused:?}");
    let (_, listed) = home.json(&["schedules", "list"]);
    assert_eq!(listed["schedules"].as_array().unwrap().len(), 1, "{listed}");
    server.signal(Signal::TERM);
    server.end();
}

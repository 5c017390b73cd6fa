//! Changes of the offset: public ones, in both hemispheres, and of zones whose rule has changed.

use crate::{at, checked, cron, every, fires};

#[test]
fn berlin_skips_an_hour_and_repeats_one() {
    let zone = "Europe/Berlin";
    let spring = "2026-03-28T00:00:00Z";
    assert_eq!(fires("30 2 * * *", zone, spring, 3), ["03-28 02:30+01", "03-29 03:00+02", "03-30 02:30+02"]);
    assert_eq!(
        fires("0 * * * *", zone, "2026-03-28T23:30:00Z", 4),
        ["03-29 01:00+01", "03-29 03:00+02", "03-29 04:00+02", "03-29 05:00+02"]
    );
    assert_eq!(fires("*/30 2 * * *", zone, spring, 3), ["03-28 02:00+01", "03-28 02:30+01", "03-30 02:00+02"]);
    let autumn = "2026-10-24T12:00:00Z";
    assert_eq!(fires("30 2 * * *", zone, autumn, 2), ["10-25 02:30+02", "10-26 02:30+01"]);
    assert_eq!(
        fires("30 * * * *", zone, "2026-10-24T23:00:00Z", 4),
        ["10-25 01:30+02", "10-25 02:30+02", "10-25 02:30+01", "10-25 03:30+01"]
    );
}

#[test]
fn several_missing_times_are_one_firing_at_the_end_of_the_gap() {
    let fired = fires("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T22:00:00Z", 3);
    assert_eq!(fired, ["03-29 03:00+02", "03-29 03:30+02", "03-30 02:00+02"]);
}

#[test]
fn new_york_changes_on_other_days() {
    let zone = "America/New_York";
    assert_eq!(fires("30 2 * * *", zone, "2026-03-07T12:00:00Z", 2), ["03-08 03:00-04", "03-09 02:30-04"]);
    assert_eq!(fires("30 1 * * *", zone, "2026-10-31T12:00:00Z", 2), ["11-01 01:30-04", "11-02 01:30-05"]);
    assert_eq!(
        fires("*/30 1 * * *", zone, "2026-10-31T12:00:00Z", 4),
        ["11-01 01:00-04", "11-01 01:30-04", "11-01 01:00-05", "11-01 01:30-05"]
    );
}

#[test]
fn sydney_is_on_the_other_hemisphere() {
    let zone = "Australia/Sydney";
    assert_eq!(fires("30 2 * * *", zone, "2026-10-03T00:00:00Z", 2), ["10-04 03:00+11", "10-05 02:30+11"]);
    assert_eq!(fires("30 2 * * *", zone, "2026-04-04T00:00:00Z", 2), ["04-05 02:30+11", "04-06 02:30+10"]);
}

#[test]
fn lord_howe_changes_by_half_an_hour() {
    let zone = "Australia/Lord_Howe";
    assert_eq!(fires("15 2 * * *", zone, "2026-10-03T00:00:00Z", 2), ["10-04 02:30+11", "10-05 02:15+11"]);
    assert_eq!(fires("45 1 * * *", zone, "2026-04-04T00:00:00Z", 2), ["04-05 01:45+11", "04-06 01:45+10:30"]);
    assert_eq!(
        fires("*/15 1 * * *", zone, "2026-04-04T14:20:00Z", 5),
        ["04-05 01:30+11", "04-05 01:45+11", "04-05 01:30+10:30", "04-05 01:45+10:30", "04-06 01:00+10:30"]
    );
}

#[test]
fn zones_that_changed_their_rule_go_by_it() {
    // Turkey stayed on summer time in 2016.
    let fired = fires("30 3 * * *", "Europe/Istanbul", "2016-10-29T12:00:00Z", 2);
    assert_eq!(fired, ["10-30 03:30+03", "10-31 03:30+03"]);
    let fired = fires("30 3 * * *", "Europe/Istanbul", "2016-03-26T12:00:00Z", 2);
    assert_eq!(fired, ["03-27 04:00+03", "03-28 03:30+03"]);
    // Brazil has had no summer time since 2019; its changes were at midnight.
    let fired = fires("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", 2);
    assert_eq!(fired, ["11-04 01:00-02", "11-05 00:00-02"]);
    let fired = fires("0 0 * * *", "America/Sao_Paulo", "2019-11-02T12:00:00Z", 2);
    assert_eq!(fired, ["11-03 00:00-03", "11-04 00:00-03"]);
    // Egypt began again in 2023, on a Friday at midnight.
    let fired = fires("30 0 * * *", "Africa/Cairo", "2023-04-27T12:00:00Z", 2);
    assert_eq!(fired, ["04-28 01:00+03", "04-29 00:30+03"]);
    let fired = fires("30 0 * * *", "Africa/Cairo", "2022-04-28T12:00:00Z", 2);
    assert_eq!(fired, ["04-29 00:30+02", "04-30 00:30+02"]);
}

#[test]
fn a_day_that_a_zone_left_out_fires_at_its_end() {
    // Samoa crossed the date line: there was no 30 December 2011.
    let fired = fires("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3);
    assert_eq!(fired, ["12-29 09:00-10", "12-31 00:00+14", "12-31 09:00+14"]);
}

#[test]
fn leap_days_and_ends_of_months_are_found() {
    let times = |line: &str, after: &str| -> Vec<i64> { checked(&cron(line, "UTC")).upcoming(at(after), 2).collect() };
    let expected = [at("2096-02-29T00:00:00Z"), at("2104-02-29T00:00:00Z")];
    assert_eq!(times("0 0 29 2 *", "2092-03-01T00:00:00Z"), expected);
    let expected = [at("2026-01-31T06:05:00Z"), at("2026-03-31T06:05:00Z")];
    assert_eq!(times("5 6 31 * *", "2026-01-01T00:00:00Z"), expected);
}

#[test]
fn intervals_count_elapsed_time_from_their_anchor() {
    let draft = belay_schedule::Draft { anchor: Some(100), ..every(60) };
    let times: Vec<i64> = checked(&draft).upcoming(99, 3).collect();
    assert_eq!(times, [100, 160, 220]);
    assert_eq!(checked(&draft).next_after(-25), Some(-20), "before the anchor too");
}

/// Each day of ten years has one firing of a daily line, at the wall time or at the end of a gap, in every zone here.
#[test]
fn a_daily_line_fires_once_a_day_whatever_the_zone_does() {
    let zones =
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Africa/Cairo", "Asia/Gaza"];
    for zone in zones {
        for line in ["30 0 * * *", "30 1 * * *", "30 2 * * *", "30 3 * * *"] {
            let tz = jiff::tz::TimeZone::get(zone).unwrap();
            let days: Vec<_> = checked(&cron(line, zone))
                .upcoming(at("2020-01-01T12:00:00Z"), 3650)
                .map(|second| tz.to_datetime(jiff::Timestamp::from_second(second).unwrap()).date())
                .collect();
            for pair in days.windows(2) {
                assert_eq!(pair[0].tomorrow().unwrap(), pair[1], "{zone} {line}");
            }
        }
    }
}

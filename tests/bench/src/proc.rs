//! The kernel's numbers for a process.

use std::{fs, time::Duration};

use crate::Result;

/// The CPU time that processes have used so far, in user and system mode, threads that ended included.
/// From `/proc/PID/stat`, so to the clock tick (10 ms).
pub(crate) fn cpu_time(pids: &[u32]) -> Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let stat = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        ticks += cpu_ticks(&stat).ok_or_else(|| format!("{path} has no CPU times: {stat}"))?;
    }
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Fields 14 and 15, `utime` and `stime`. The second field is a name in parentheses that may itself hold spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// The resident memory of processes in KiB, pages that several share counted in part (PSS). From `/proc/PID/smaps_rollup`.
pub(crate) fn resident_kib(pids: &[u32]) -> Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/smaps_rollup");
        let rollup = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        sum += pss_kib(&rollup).ok_or_else(|| format!("{path} has no line `Pss:`"))?;
    }
    Ok(sum)
}

fn pss_kib(rollup: &str) -> Option<u64> {
    let value = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_found_behind_a_strange_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 37 5 900 900 20 0 4 0 100 1 2";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("42 (short) S 1"), None);
    }

    #[test]
    fn the_whole_share_is_read_and_not_a_part_of_it() {
        let rollup = "00400000-7fff rollup\nRss:  9000 kB\nPss:  4321 kB\nPss_Dirty:  7 kB\n";
        assert_eq!(pss_kib(rollup), Some(4321));
        assert_eq!(pss_kib("Pss_Dirty:  7 kB\n"), None);
    }
}

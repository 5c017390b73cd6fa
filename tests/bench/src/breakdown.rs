//! Where the CPU time of a step goes: samples of perf by the code that ran, as microseconds of a step.

use std::{
    collections::{BTreeMap, HashMap},
    io::ErrorKind,
    path::Path,
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::{
    Result,
    belay::Belay,
    place::Place,
    proc,
    subject::{Load, Subject as _, within},
};

/// Samples in a second of CPU time. Not a round number, so that they do not fall in step with timers.
const SAMPLES_PER_SECOND: &str = "3989";

/// Microseconds of a step by what ran, of each process in the order of [`Subject::pids`](crate::subject::Subject::pids).
pub(crate) type Breakdown = BTreeMap<&'static str, Vec<f64>>;

/// Runs a load after a warm-up, with perf at all of Belay's processes.
///
/// # Errors
/// When perf is missing or may not look at processes, or the load fails.
pub(crate) async fn measure(binaries: &Path, root: &Path, warm_up: Load, load: Load) -> Result<Breakdown> {
    let place = Place::new(root)?;
    let mut belay = Belay::start(binaries, &place).await?;
    belay.run(warm_up).await?;
    let pids = belay.pids();
    let data = place.file("perf.data");
    let ids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-e", "cpu-clock", "-F", SAMPLES_PER_SECOND, "-p", &ids.join(","), "-o"]).arg(&data);
    let spawned = record.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn();
    let mut perf = spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => "install perf (Debian: linux-perf)".to_owned(),
        _ => format!("perf could not be started: {error}"),
    })?;
    within("perf", async {
        // It opens the file when it has attached; shares of the time do not depend on the first samples.
        while !data.exists() {
            if let Some(ended) = perf.try_wait()? {
                return Err(format!("perf ended with {ended}: see above").into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    })
    .await?;

    let before = each(&pids)?;
    within("a load under perf", belay.run(load)).await?;
    let after = each(&pids)?;
    let id =
        perf.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or("perf ended before it was stopped")?;
    kill_process(id, Signal::INT)?;
    within("perf's end", async { Ok(perf.wait().await?) }).await?;
    let script = Command::new("perf").args(["script", "-F", "pid,ip,sym,dso", "-i"]).arg(&data).output().await?;
    let samples = String::from_utf8_lossy(&script.stdout);

    let of_each: Vec<f64> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| (*after - *before).as_secs_f64() * 1e6 / load.total())
        .collect();
    shares(&samples, &pids, &of_each).ok_or_else(|| {
        let said = String::from_utf8_lossy(&script.stderr);
        format!("perf has no samples:\n{said}").into()
    })
}

fn each(pids: &[u32]) -> Result<Vec<Duration>> {
    pids.iter().map(|pid| proc::cpu_time(&[*pid])).collect()
}

/// Distributes the time of each process over what its samples say; `None` without any. The gate is hardly needed, and may have none.
fn shares(samples: &str, pids: &[u32], of_each: &[f64]) -> Option<Breakdown> {
    let mut counted: HashMap<(usize, &'static str), u32> = HashMap::new();
    let mut totals = vec![0_u32; pids.len()];
    for (pid, symbol, object) in samples.lines().filter_map(sample) {
        let Some(process) = pids.iter().position(|known| *known == pid) else { continue };
        *counted.entry((process, kind(symbol, object))).or_default() += 1;
        totals[process] += 1;
    }
    if totals.iter().all(|total| *total == 0) {
        return None;
    }
    let mut breakdown = Breakdown::new();
    for ((process, kind), count) in counted {
        let of_kind = breakdown.entry(kind).or_insert_with(|| vec![0.0; pids.len()]);
        of_kind[process] = of_each[process] * f64::from(count) / f64::from(totals[process]);
    }
    Some(breakdown)
}

/// The process, the function and the file of a line such as `29093  7fe62d2230c0 do_lookup_x (/usr/lib/ld.so)`.
fn sample(line: &str) -> Option<(u32, &str, &str)> {
    let (pid, rest) = line.trim_start().split_once(' ')?;
    let (_, rest) = rest.trim_start().split_once(' ')?;
    let (symbol, object) = rest.rsplit_once(" (")?;
    Some((pid.parse().ok()?, symbol.trim(), object.trim_end().trim_end_matches(')')))
}

/// Crates, or the beginnings of their names, and what they do.
const CRATES: &[(&str, &str)] = &[
    ("belay_execution", "deciding and applying events (belay-execution)"),
    ("belay_executor", "the executor's drivers and session"),
    ("belay_tool_runner", "the runner's calls, ledger and session"),
    ("belay_approval_gate", "the approval gate"),
    ("belay_redaction", "search for secrets"),
    ("aho_corasick", "search for secrets"),
    ("regex", "search for secrets"),
    ("belay_proto", "protobuf"),
    ("prost", "protobuf"),
    ("belay_sqlite", "SQLite"),
    ("belay_journal", "SQLite"),
    ("rusqlite", "SQLite"),
    ("belay", "other crates of Belay"),
    ("serde", "JSON"),
    ("jsonschema", "JSON"),
    ("postcard", "JSON"),
    ("h2", "HTTP/2 and gRPC"),
    ("hyper", "HTTP/2 and gRPC"),
    ("http", "HTTP/2 and gRPC"),
    ("tonic", "HTTP/2 and gRPC"),
    ("tower", "HTTP/2 and gRPC"),
    ("axum", "HTTP/2 and gRPC"),
    ("bytes", "HTTP/2 and gRPC"),
    ("tokio", "tasks, timers and wake-ups"),
    ("mio", "tasks, timers and wake-ups"),
    ("futures", "tasks, timers and wake-ups"),
    ("parking_lot", "tasks, timers and wake-ups"),
    ("sha2", "digests, seals and signatures"),
    ("hmac", "digests, seals and signatures"),
    ("digest", "digests, seals and signatures"),
    ("chacha20", "digests, seals and signatures"),
    ("poly1305", "digests, seals and signatures"),
    ("ed25519", "digests, seals and signatures"),
    ("curve25519", "digests, seals and signatures"),
    ("twox_hash", "digests, seals and signatures"),
    ("tracing", "spans and logs"),
    ("opentelemetry", "spans and logs"),
];

/// The purpose of a function, by its name and the file that it is in.
fn kind(symbol: &str, object: &str) -> &'static str {
    if object.starts_with('[') && object != "[vdso]" {
        return "the kernel";
    }
    let plain = symbol.trim_start_matches('_');
    if plain.starts_with("mi_") || ["malloc", "free", "realloc", "calloc"].contains(&plain) {
        return "allocating and freeing";
    }
    if ["mem", "bcmp"].iter().any(|word| plain.starts_with(word)) {
        return "copying and comparing";
    }
    // Rust's names have paths; what has none in the program is C: SQLite.
    if !symbol.contains("::") {
        return if object.ends_with("/belay") && !symbol.starts_with('[') { "SQLite" } else { "system libraries" };
    }
    let crates = symbol
        .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .filter_map(|path| path.split("::").next());
    let mut does = crates.filter_map(|name| CRATES.iter().find(|(known, _)| name.starts_with(known)));
    does.next().map_or("the standard library", |(_, does)| does)
}

/// The breakdown as a table, the largest first.
pub(crate) fn draw(breakdown: &Breakdown) -> String {
    let sum = |of_each: &[f64]| of_each.iter().sum::<f64>();
    let mut rows: Vec<(&str, Vec<f64>)> = breakdown.iter().map(|(kind, of_each)| (*kind, of_each.clone())).collect();
    rows.sort_by(|a, b| sum(&b.1).total_cmp(&sum(&a.1)));
    let processes = rows.first().map_or(0, |row| row.1.len());
    rows.push(("all", (0..processes).map(|n| rows.iter().map(|row| row.1[n]).sum()).collect()));
    let mut table =
        format!("{:<50}{:>8}{:>8}{:>9}{:>8}\n", "µs of CPU for each step", "gate", "runner", "executor", "all");
    for (kind, of_each) in rows {
        let mut line = format!("{kind:<50}");
        for (n, micros) in of_each.iter().enumerate() {
            line += &format!("{micros:>width$.1}", width = if n == 2 { 9 } else { 8 });
        }
        table += &format!("{line}{:>8.1}\n", sum(&of_each));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_told_by_what_ran() {
        for (symbol, object, expected) in [
            ("do_syscall_64", "[kernel.kallsyms]", "the kernel"),
            ("_mi_page_malloc", "/x/belay", "allocating and freeing"),
            ("__memmove_avx_unaligned_erms", "/usr/lib/libc.so.6", "copying and comparing"),
            ("pthread_mutex_lock", "/usr/lib/libc.so.6", "system libraries"),
            ("[unknown]", "/x/belay", "system libraries"),
            ("sqlite3VdbeExec", "/x/belay", "SQLite"),
            ("walFrames", "/x/belay", "SQLite"),
            ("h2::proto::streams::send::Send::send_data", "/x/belay", "HTTP/2 and gRPC"),
            ("core::ptr::drop_in_place<tokio::task::Task>", "/x/belay", "tasks, timers and wake-ups"),
            ("<belay_proto::v1::Event as prost::message::Message>::encode_raw", "/x/belay", "protobuf"),
            ("alloc::raw_vec::finish_grow", "/x/belay", "the standard library"),
            ("belay_execution::apply::apply", "/x/belay", "deciding and applying events (belay-execution)"),
        ] {
            assert_eq!(kind(symbol, object), expected, "{symbol}");
        }
    }

    #[test]
    fn the_time_of_a_process_is_distributed_over_its_samples() {
        let samples = "  7  55aa walFrames (/x/belay)\n  7  55ab walIndex (/x/belay)\n 7 ffff copy_to (kernel) ([kernel.kallsyms])\n\
                       \n  9  55ac mi_free (/x/belay)\n 11  1 other (/x/belay)\n";
        let breakdown = shares(samples, &[7, 9], &[30.0, 4.0]).unwrap();
        let expected =
            [("SQLite", vec![20.0, 0.0]), ("allocating and freeing", vec![0.0, 4.0]), ("the kernel", vec![10.0, 0.0])];
        assert_eq!(breakdown, expected.into());
        assert_eq!(shares(samples, &[8], &[1.0]), None, "no samples");
        let idle = shares(samples, &[9, 8], &[4.0, 0.1]).unwrap();
        assert_eq!(idle, [("allocating and freeing", vec![4.0, 0.0])].into(), "a process that did next to nothing");
    }
}

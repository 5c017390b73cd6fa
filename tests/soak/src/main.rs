//! The soak: one `belay serve` carries out a mix of executions under pressure for minutes or hours, while clients read. Whatever ends is compared:
//! the events with each other, children with their parents, lists with their entries, steps with the files that they changed, and each answer to a
//! reader with the ones before it. One difference fails the run.
//!
//! ```text
//! cargo test --workspace --test soak                      2 minutes
//! cargo test --workspace --test soak -- --minutes 60      an hour
//! cargo test --workspace --test soak -- --seed 17         the same choices again; the operating system's schedule is another one
//! ```

mod check;
mod mix;
mod pressure;
mod readers;
mod server;
mod soak;
mod wrong;

use std::{
    hash::{BuildHasher as _, RandomState},
    process::ExitCode,
    time::Duration,
};

use crate::{pressure::Pressure, server::Server, soak::Soak, wrong::Wrong};

/// The duration without `--minutes`.
const MINUTES: f64 = 2.0;

/// The number of clients that start executions.
const WORKERS: u64 = 4;

/// The longest time in which the executions end that run when the time is over.
const LAST_ENDS: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            println!("soak: test");
        }
        return ExitCode::SUCCESS;
    }
    let (minutes, seed) = match (number(&arguments, "--minutes"), number(&arguments, "--seed")) {
        (Ok(minutes), Ok(seed)) => (minutes.unwrap_or(MINUTES), seed),
        (Err(problem), _) | (_, Err(problem)) => {
            eprintln!("soak: {problem}");
            return ExitCode::from(2);
        }
    };
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0) % 1_000_000);
    println!(
        "\nrunning 1 test\nsoak: {minutes} minutes; again with: cargo test --workspace --test soak -- --minutes {minutes} --seed {seed}"
    );

    // Before the runtime's threads, which are to have this thread's priority and not that of the busy ones.
    let pressure = Pressure::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let is_passed = runtime.expect("a runtime can be made").block_on(run(minutes, seed, pressure));
    let (verdict, passed, failed) = if is_passed { ("ok", 1, 0) } else { ("FAILED", 0, 1) };
    println!("test soak ... {verdict}");
    println!("\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out\n");
    if is_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The value of a flag, as `--flag N` or `--flag=N`.
fn number<T: std::str::FromStr>(arguments: &[String], flag: &str) -> Result<Option<T>, String> {
    let Some(at) = arguments.iter().position(|argument| argument.split('=').next() == Some(flag)) else {
        return Ok(None);
    };
    let value = arguments[at].split_once('=').map(|(_, value)| value).or(arguments.get(at + 1).map(String::as_str));
    let value = value.and_then(|value| value.parse().ok()).ok_or_else(|| format!("{flag} needs a number"))?;
    Ok(Some(value))
}

/// Runs the mix for these minutes, and prints what was wrong. Returns whether nothing was.
async fn run(minutes: f64, seed: u64, pressure: Pressure) -> bool {
    let server = Server::start().await;
    let soak = Soak::new(&server, seed);
    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        let soak = soak.clone();
        workers.spawn(async move { mix::work(&soak, number).await });
    }
    let readers = readers::start(&soak);
    let pressing = tokio::spawn(pressure.alternate(server.id()));

    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs_f64(minutes * 60.0)) => {}
        () = soak.failed() => {}
    }
    soak.stop();
    let all_ended = async { while workers.join_next().await.is_some() {} };
    tokio::select! {
        () = all_ended => {}
        () = soak.failed() => {}
        () = tokio::time::sleep(LAST_ENDS) => {
            soak.report(Wrong::new("", "", format!("executions run {LAST_ENDS:?} after the last was started")));
        }
    }
    soak.require_all_counted();
    // What a server that stops answers is not compared.
    workers.abort_all();
    pressing.abort();
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    let mut wrongs = soak.take_wrongs();
    let (server, wrong) = server.stop().await;
    wrongs.extend(wrong);
    println!("{}", soak.counts());
    for wrong in wrongs.iter().take(5) {
        println!("\n{}", wrong.shown(&server));
    }
    if wrongs.len() > 5 {
        println!("\nand {} more", wrongs.len() - 5);
    }
    if !wrongs.is_empty() {
        println!("\nstate and log are kept in {}", server.keep().display());
    }
    wrongs.is_empty()
}

//! Checks that all randomness in a process is a function of the seed, and that its clock is stopped.

use std::collections::HashSet;

use rand::Rng;

use crate::{entropy, trace};

/// Observes the clock and every source of randomness that the services' dependencies use: equal seeds must observe the same.
///
/// # Errors
/// When a caller of `getrandom` would reach libc's own.
pub fn run(_seed: u64) -> Result<(), String> {
    if !entropy::is_interposed() {
        return Err("dlsym finds another getrandom than this crate's".to_owned());
    }
    let order: Vec<u32> = (0..64).collect::<HashSet<_>>().into_iter().collect();
    trace::event(format_args!("the order of a HashSet: {order:?}"));
    let mut bytes = [0; 100];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    trace::event(format_args!("the getrandom crate: {bytes:?}"));
    trace::event(format_args!("rand's thread generator: {}", rand::rng().random::<u64>()));
    trace::event(format_args!("tokio's select!: {:?}", selections()?));
    trace::event(format_args!("SQLite: {}", sqlite()?));
    #[expect(clippy::disallowed_methods, reason = "the test checks whether this clock is stopped")]
    let (now, uptime) = (std::time::SystemTime::now(), std::time::Instant::now());
    trace::event(format_args!("the clock: {now:?}, {uptime:?}"));
    Ok(())
}

/// Records which of two ready branches tokio takes, many times.
fn selections() -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    let select = || async {
        tokio::select! {
            () = std::future::ready(()) => 0,
            () = std::future::ready(()) => 1,
        }
    };
    Ok((0..64).map(|_| runtime.block_on(select())).collect())
}

fn sqlite() -> Result<String, String> {
    crate::vfs::register();
    rusqlite::Connection::open_in_memory()
        .and_then(|memory| memory.query_row("SELECT hex(randomblob(32))", [], |row| row.get(0)))
        .map_err(|error| error.to_string())
}

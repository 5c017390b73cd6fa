//! Names a test that never ends: a test program that hangs says nothing else about it.
//!
//! A test waits for what it sees, often without a limit of its own. What it waits for may never come; then the program ends here, with the name of the test.

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{
        Mutex, MutexGuard, Once, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::time::Instant;

/// More than any test has taken beside another run of all of them on one core.
const LONGEST: Duration = Duration::from_secs(600);

/// The tests under way, by the order in which they began.
static UNDER_WAY: Mutex<BTreeMap<u64, RunningTest>> = Mutex::new(BTreeMap::new());

/// How many tests have begun.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A test that has begun.
struct RunningTest {
    name: String,
    at: Instant,
}

/// A test under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(u64);

impl UnderWay {
    /// The test of this thread.
    pub(crate) fn begin() -> Self {
        static WATCHES: Once = Once::new();
        WATCHES.call_once(|| drop(thread::spawn(watch)));
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        under_way().insert(number, RunningTest { name, at: Instant::now() });
        Self(number)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        under_way().remove(&self.0);
    }
}

fn under_way() -> MutexGuard<'static, BTreeMap<u64, RunningTest>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch() {
    loop {
        thread::sleep(Duration::from_secs(1));
        if let Some(RunningTest { name, .. }) = under_way().values().find(|begun| begun.at.elapsed() > LONGEST) {
            // In the words of the test runner, and past what it captures.
            let line = format!("test {name} ... FAILED\n{name} has not ended within {} s\n", LONGEST.as_secs());
            drop(std::io::stdout().write_all(line.as_bytes()));
            std::process::exit(101);
        }
    }
}

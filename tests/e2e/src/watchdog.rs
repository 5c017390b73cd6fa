//! Names a test that never ends: a test program that hangs says nothing else about it.
//!
//! A test waits for what it sees, often without a limit of its own. What it waits for may never come; then the program ends here, with the name of the test.

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{Mutex, Once, PoisonError},
    thread,
    time::Duration,
};

use tokio::time::Instant;

/// Twice what the slowest test takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(600);

/// The tests under way: their names, and when they began.
static UNDER_WAY: Mutex<(u64, BTreeMap<u64, (String, Instant)>)> = Mutex::new((0, BTreeMap::new()));

/// A test under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay(u64);

impl UnderWay {
    /// The test of this thread.
    pub(crate) fn begin() -> Self {
        static WATCHES: Once = Once::new();
        WATCHES.call_once(|| drop(thread::spawn(watch)));
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.0 += 1;
        let number = under_way.0;
        under_way.1.insert(number, (name, Instant::now()));
        Self(number)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.0);
    }
}

fn watch() {
    loop {
        thread::sleep(Duration::from_secs(1));
        let under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, _)) = under_way.1.values().find(|(_, began)| began.elapsed() > LONGEST) {
            // In the words of the test runner, and past what it captures.
            let line = format!("test {name} ... FAILED\n{name} has not ended within {} s\n", LONGEST.as_secs());
            drop(std::io::stdout().write_all(line.as_bytes()));
            std::process::exit(101);
        }
    }
}

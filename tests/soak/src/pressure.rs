//! Pressure on the processor: in turns, threads of this process keep it busy, the server and its clients run at real-time priority, or neither.
//!
//! Busy threads stop the server in the middle of whatever it does. At real-time priority a commit wakes whoever waits for it before the one who has
//! committed continues, as on an idle machine with many cores. Between them they show orders in which two tasks of one process seldom run.

use std::{
    process::{Command, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::Duration,
};

/// The number of busy threads.
const BUSY_THREADS: usize = 8;

/// The nice value of the busy threads: the server is preferred to each of them, and has less than half of the processor beside all.
const NICE: i32 = 4;

/// How long each kind of pressure lasts.
const TURN: Duration = Duration::from_secs(8);

/// Busy threads, which wait for their turn.
pub(crate) struct Pressure {
    turn: Arc<(Mutex<bool>, Condvar)>,
    is_real_time_allowed: bool,
}

impl Pressure {
    /// Starts the busy threads, and tries whether real-time priority is allowed.
    pub(crate) fn new() -> Self {
        let turn = Arc::new((Mutex::new(false), Condvar::new()));
        for _ in 0..BUSY_THREADS {
            let turn = Arc::clone(&turn);
            std::thread::spawn(move || {
                // An error means that it has this process' priority.
                let _ = rustix::process::setpriority_process(None, NICE);
                loop {
                    drop(turn.1.wait_while(lock(&turn.0), |is_busy| !*is_busy));
                    for number in 0..10_000_000_u64 {
                        std::hint::black_box(number);
                    }
                }
            });
        }
        let is_real_time_allowed = chrt(&["-r", "1", "true"]);
        if !is_real_time_allowed {
            println!("soak: real-time priority is not allowed here, or there is no `chrt`: only busy threads press");
        }
        Self { turn, is_real_time_allowed }
    }

    /// Presses, each kind in turn, until it is aborted.
    pub(crate) async fn alternate(self, server: u32) {
        let processes = [server, std::process::id()].map(|id| id.to_string());
        let schedule = |policy: &str, priority: &str| {
            for id in &processes {
                // A process may have ended.
                chrt(&["-a", policy, "-p", priority, id]);
            }
        };
        loop {
            if self.is_real_time_allowed {
                schedule("-r", "1");
                tokio::time::sleep(TURN).await;
                schedule("-o", "0");
            }
            self.set_busy(true);
            tokio::time::sleep(TURN).await;
            self.set_busy(false);
            tokio::time::sleep(TURN / 4).await;
        }
    }

    fn set_busy(&self, is_busy: bool) {
        *lock(&self.turn.0) = is_busy;
        self.turn.1.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `chrt`; returns whether it succeeded.
fn chrt(arguments: &[&str]) -> bool {
    let status = Command::new("chrt").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

//! The allocator of the process, and the runtime whose threads give free memory back while the process is idle.
#![allow(unsafe_code)]

use std::{
    cell::Cell,
    convert::Infallible,
    io, mem,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::runtime::{Builder, Handle, Runtime, RuntimeMetrics};

/// Steps allocate and free hundreds of small objects on all threads; mimalloc takes a fifth less time for that than glibc's allocator. Huge pages
/// stay off: they would raise memory use by half.
///
/// Under load mimalloc keeps what is free for some milliseconds, or for as long as `MIMALLOC_PURGE_DELAY` says. A thread without work keeps what
/// its last work took: each thread has a heap that only this thread can clear. [`block_on`] has the threads do so when the process is idle.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The interval at which [`block_on`] looks at the work of the threads.
const INTERVAL: Duration = Duration::from_secs(1);

/// The work of all threads in an interval below which the process is idle: 2 % of a core. Timers and health checks stay below it.
const IDLE_BELOW: Duration = Duration::from_millis(20);

/// How long a thread for blocking work stays without any. It gives its memory back when it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// The number of times that the threads were asked to give back what is free.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The request that this thread has followed last.
    static FOLLOWED: Cell<u64> = const { Cell::new(0) };
}

/// A runtime for [`block_on`].
///
/// # Errors
/// When the operating system gives no threads.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().thread_keep_alive(KEEP_ALIVE).on_thread_park(follow_request).build()
}

/// Runs the work to its end. While the runtime is idle, its threads and this one give free memory back to the system.
pub(crate) fn block_on<F: Future>(runtime: &Runtime, work: F) -> F::Output {
    runtime.block_on(async {
        tokio::select! {
            biased;
            outcome = work => outcome,
            never = give_back_when_idle(runtime.handle()) => match never {},
        }
    })
}

async fn give_back_when_idle(runtime: &Handle) -> Infallible {
    let mut idleness = Idleness::default();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if idleness.is_due(busy(&runtime.metrics())) {
            // Before what is free is given back: these are.
            belay_all_in_one::release_page_caches();
            request(runtime);
            follow_request();
        }
    }
}

/// How long the threads have worked since the runtime began.
fn busy(metrics: &RuntimeMetrics) -> Duration {
    (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum()
}

/// Asks the threads to give back what is free. Each follows before it next waits for work, and is woken for that.
fn request(runtime: &Handle) {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
    for _ in 0..runtime.metrics().num_workers() {
        runtime.spawn(async {});
    }
}

/// Gives back what this thread has free, if it was asked to and has not done so.
fn follow_request() {
    let requests = REQUESTS.load(Ordering::Relaxed);
    if FOLLOWED.replace(requests) != requests {
        // SAFETY: it frees only what nobody holds, and has no other requirement.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}

/// How long the process has been idle.
#[derive(Debug, Default)]
struct Idleness {
    busy: Duration,
    idle_intervals: u32,
}

impl Idleness {
    /// Whether memory is to be given back at the end of an interval, by how long the threads have worked since the beginning: after the first idle
    /// interval, the second, the fourth and so on. The later times are for threads that have ended meanwhile, and for what little work leaves.
    fn is_due(&mut self, busy: Duration) -> bool {
        let worked = busy.saturating_sub(mem::replace(&mut self.busy, busy));
        self.idle_intervals = if worked < IDLE_BELOW { self.idle_intervals.saturating_add(1) } else { 0 };
        self.idle_intervals.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const BUSY: Duration = Duration::from_millis(600);
    const IDLE: Duration = Duration::from_millis(1);

    fn due(intervals: impl IntoIterator<Item = Duration>) -> Vec<usize> {
        let (mut idleness, mut busy) = (Idleness::default(), Duration::ZERO);
        let at_ends = intervals.into_iter().map(|worked| {
            busy += worked;
            idleness.is_due(busy)
        });
        (1..).zip(at_ends.collect::<Vec<_>>()).filter_map(|(number, is_due)| is_due.then_some(number)).collect()
    }

    #[test]
    fn memory_goes_back_when_the_process_is_idle_and_never_under_load() {
        assert_eq!(due([BUSY; 50]), [0; 0]);
        assert_eq!(due([BUSY, BUSY, IDLE, IDLE, IDLE, IDLE, IDLE, BUSY, BUSY, IDLE]), [3, 4, 6, 10]);
        assert_eq!(due([IDLE; 20]), [1, 2, 4, 8, 16]);
        assert_eq!(due([IDLE_BELOW; 4]), [0; 0]);
    }

    #[test]
    fn the_operators_delay_holds_or_else_that_of_mimalloc() {
        // `mi_option_purge_delay` of mimalloc 2, which the bindings do not name.
        const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
        let chosen = std::env::var("MIMALLOC_PURGE_DELAY").ok().and_then(|delay| delay.parse().ok());
        let runtime = runtime().unwrap();
        block_on(&runtime, async {});
        // SAFETY: the option is read as a number, and one that does not exist is 0.
        assert_eq!(unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) }, chosen.unwrap_or(10));
    }

    /// The resident memory of this process, in bytes.
    fn resident() -> usize {
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    fn each_thread_gives_back_what_its_work_has_left() {
        const BLOCKS: usize = 32 << 10;
        const BLOCK: usize = 4 << 10;
        let runtime = runtime().unwrap();
        runtime.block_on(async {
            // While it holds them: on a busy machine mimalloc may have given them back before this thread looks.
            let work = async {
                let blocks: Vec<_> = (0..BLOCKS).map(|_| vec![1_u8; BLOCK]).collect();
                let held = resident();
                drop(blocks);
                held
            };
            let held = tokio::spawn(work).await.unwrap();
            // An error of this test shows as a time-out. A busy machine may wake one thread for all requests; the process asks again, too.
            while resident() + BLOCKS * BLOCK / 2 > held {
                request(runtime.handle());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
}

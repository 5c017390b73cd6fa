//! The simulation itself: hosts, clients, and the effects of faults on them.

use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use turmoil::{Builder, Sim};

use crate::clock::EPOCH_SECONDS;
use crate::fault::{Conditions, Fault, Schedule};
use crate::machine::{self, Disk};
use crate::{trace, vfs};

/// The granularity of the network and of faults. With smaller steps, most of the run time goes into steps in which nothing happens.
pub const TICK: Duration = Duration::from_millis(2);

/// A running simulation.
pub struct World {
    sim: Sim<'static>,
    machines: Vec<&'static str>,
    /// The pending actions, by time and then in the order of scheduling.
    agenda: BTreeMap<(Duration, u64), Action>,
    decided: u64,
    /// The cut directions, by the number of the cut.
    cuts: BTreeMap<u64, (&'static str, &'static str)>,
    /// How long a host with a scheduled power loss will be down.
    downtimes: BTreeMap<&'static str, Duration>,
}

enum Action {
    Begin(Fault),
    Boot(&'static str),
    RepairLink(u64),
    RepairDisk(&'static str),
    SetRight(&'static str),
}

impl World {
    /// A world without machines, whose randomness is a function of `seed`. Running it fails when its clients are not done after `longest` of
    /// simulated time.
    pub fn new(seed: u64, conditions: &Conditions, longest: Duration) -> Self {
        vfs::register();
        machine::reset(seed);
        trace::event(format_args!("{conditions:?}"));
        let mut builder = Builder::new();
        builder
            .rng_seed(seed)
            .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(EPOCH_SECONDS.into()))
            .tick_duration(TICK)
            .simulation_duration(longest)
            .max_message_latency(conditions.max_latency)
            .enable_random_order();
        builder.fs().sync_probability(conditions.spontaneous_sync);
        if let Some(block) = conditions.torn_block {
            builder.fs().block_size(block);
        }
        Self {
            sim: builder.build(),
            machines: Vec::new(),
            agenda: BTreeMap::new(),
            decided: 0,
            cuts: BTreeMap::new(),
            downtimes: BTreeMap::new(),
        }
    }

    /// Adds a host that runs `software` now and after every restart.
    pub fn host<F, Fut>(&mut self, name: &'static str, software: F)
    where
        F: Fn() -> Fut + 'static,
        Fut: Future<Output = turmoil::Result> + 'static,
    {
        self.machines.push(name);
        let software = Rc::new(software);
        self.sim.host(name, move || {
            let software = Rc::clone(&software);
            async move {
                machine::boot(name);
                software().await
            }
        });
    }

    /// Adds a client: no fault affects it, and the simulation runs until all clients are done.
    pub fn client(&mut self, name: &'static str, work: impl Future<Output = turmoil::Result> + 'static) {
        self.machines.push(name);
        self.sim.client(name, async move {
            machine::boot(name);
            work.await
        });
    }

    /// Schedules faults, relative to the current time.
    pub fn schedule(&mut self, schedule: Schedule) {
        for (after, fault) in schedule {
            trace::event(format_args!("planned at {after:?}: {fault}"));
            self.decide(after, Action::Begin(fault));
        }
    }

    /// Runs until all clients are done.
    ///
    /// # Errors
    /// When a host or client failed, or the time is up.
    pub fn run(&mut self) -> turmoil::Result {
        while !self.step()? {}
        Ok(())
    }

    /// Runs until `reached` returns true; returns false when it did not within `longest` of simulated time.
    ///
    /// # Errors
    /// When a host or client failed.
    pub fn run_until(&mut self, longest: Duration, reached: impl Fn() -> bool) -> turmoil::Result<bool> {
        let end = self.sim.elapsed() + longest;
        while !reached() {
            if self.sim.elapsed() >= end {
                return Ok(false);
            }
            self.step()?;
        }
        Ok(true)
    }

    /// The true time in microseconds since the Unix epoch.
    pub fn now_micros(&self) -> i64 {
        let now = Duration::from_secs(EPOCH_SECONDS.into()) + self.sim.elapsed();
        i64::try_from(now.as_micros()).expect("a simulation ends before the year 292471")
    }

    /// Ends all current and scheduled faults; a host that is down starts.
    pub fn heal(&mut self) {
        for action in std::mem::take(&mut self.agenda).into_values() {
            if let Action::Boot(host) = action {
                self.boot(host);
            }
        }
        for cut in std::mem::take(&mut self.cuts).into_values() {
            self.sim.repair(cut.0, cut.1);
        }
        machine::clear_kill_points();
        for &host in &self.machines {
            machine::set_disk(host, Disk::Well);
            machine::set_clock(host, 0);
        }
    }

    /// Kills the process of `host`, if it has power, and starts it again at once.
    pub fn kill(&mut self, host: &'static str) {
        if self.sim.is_host_running(host) {
            self.restart(host);
        }
    }

    /// Cuts the power of `host` and starts it again at once.
    pub fn power_cycle(&mut self, host: &'static str) {
        self.lose_power(host, Duration::ZERO);
    }

    fn step(&mut self) -> turmoil::Result<bool> {
        trace::set_now(self.sim.elapsed());
        while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= self.sim.elapsed()) {
            match entry.remove() {
                Action::Begin(fault) => self.begin(fault),
                Action::Boot(host) => self.boot(host),
                Action::RepairLink(cut) => self.repair_link(cut),
                Action::RepairDisk(host) => {
                    trace::event(format_args!("{host}: disk well"));
                    machine::set_disk(host, Disk::Well);
                }
                Action::SetRight(host) => {
                    trace::event(format_args!("{host}: clock right"));
                    machine::set_clock(host, 0);
                }
            }
        }
        let done = self.sim.step()?;
        for host in machine::without_power() {
            trace::count("power losses in a commit");
            let down = self.downtimes.remove(host).unwrap_or_default();
            self.lose_power(host, down);
        }
        for host in machine::exiting() {
            trace::event(format_args!("{host}: its process ends and is started again"));
            trace::count("restarts of a failed process");
            self.restart(host);
        }
        Ok(done)
    }

    fn decide(&mut self, after: Duration, action: Action) -> u64 {
        self.decided += 1;
        self.agenda.insert((self.sim.elapsed() + after, self.decided), action);
        self.decided
    }

    fn begin(&mut self, fault: Fault) {
        trace::event(fault);
        match fault {
            Fault::PowerLoss { host, down } => self.lose_power(host, down),
            Fault::PowerLossAtChange { host, changes, down } => {
                self.downtimes.insert(host, down);
                machine::fail_power_after(host, changes);
            }
            Fault::Kill { host } if self.sim.is_host_running(host) => {
                trace::count("kills");
                self.restart(host);
            }
            Fault::Kill { host } => trace::event(format_args!("{host}: is down already")),
            Fault::KillAtRequest(point) => machine::set_kill_point(point),
            Fault::Partition { a, b, lasts } => {
                self.cut(a, b, lasts);
                self.cut(b, a, lasts);
            }
            Fault::OneWayPartition { from, to, lasts } => self.cut(from, to, lasts),
            Fault::Disk { host, disk, lasts } => {
                trace::count("disk faults");
                machine::set_disk(host, disk);
                self.decide(lasts, Action::RepairDisk(host));
            }
            Fault::Clock { host, ahead, lasts } => {
                trace::count(if ahead < 0 { "clocks set back" } else { "clocks set forward" });
                machine::set_clock(host, ahead * 1_000_000);
                self.decide(lasts, Action::SetRight(host));
            }
        }
    }

    fn lose_power(&mut self, host: &'static str, down: Duration) {
        if !self.sim.is_host_running(host) {
            trace::event(format_args!("{host}: is down already"));
            return;
        }
        trace::event(format_args!("{host}: no power for {down:?}"));
        trace::count("power losses");
        machine::halt(host);
        // A dropped socket resets its connection; a machine without power sends nothing.
        let peers: Vec<_> = self.machines.iter().copied().filter(|&peer| peer != host).collect();
        for peer in &peers {
            self.sim.partition(host, *peer);
        }
        self.sim.crash(host);
        for peer in peers {
            self.repair(host, peer);
        }
        self.decide(down, Action::Boot(host));
    }

    /// Kills the process of `host`, and starts it again.
    fn restart(&mut self, host: &'static str) {
        machine::halt(host);
        self.sim.bounce(host);
    }

    fn boot(&mut self, host: &'static str) {
        if !self.sim.is_host_running(host) {
            trace::event(format_args!("{host}: starts"));
            self.sim.bounce(host);
        }
    }

    fn cut(&mut self, from: &'static str, to: &'static str, lasts: Duration) {
        trace::count("cuts of the network");
        self.sim.partition_oneway(from, to);
        let cut = self.decided + 1;
        self.decide(lasts, Action::RepairLink(cut));
        self.cuts.insert(cut, (from, to));
    }

    fn repair_link(&mut self, cut: u64) {
        if let Some((from, to)) = self.cuts.remove(&cut) {
            trace::event(format_args!("{from} is heard by {to} again"));
            self.repair(from, to);
        }
    }

    /// Repairs the link of `a` and `b`, except directions that another cut still covers.
    fn repair(&mut self, a: &'static str, b: &'static str) {
        self.sim.repair(a, b);
        for &(from, to) in self.cuts.values() {
            if [(a, b), (b, a)].contains(&(from, to)) {
                self.sim.partition_oneway(from, to);
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for host in &self.machines {
            machine::halt(host);
        }
    }
}

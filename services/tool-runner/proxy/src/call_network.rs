//! The network of one call: its profile, its bounds, and what it has used of them.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use belay_network::{Host, Profile};

use crate::{
    asking::HostQuestions,
    budget::Budget,
    injection::{CallCredential, CallCredentials},
    log::Log,
    outside::Outside,
};

/// The first address that the name server gives; the others follow it, up to the end of 127.78.0.0/15.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 78, 0, 1);
/// The number of addresses that there are to give.
const ADDRESSES: usize = (1 << 17) - 2;

/// The network of one call.
pub(crate) struct CallNetwork {
    pub(crate) profile: Profile,
    pub(crate) budget: Budget,
    pub(crate) outside: Outside,
    pub(crate) credentials: CallCredentials,
    pub(crate) questions: HostQuestions,
    pub(crate) log: Arc<Log>,
    names: Mutex<Names>,
    bytes: AtomicU64,
    connections: AtomicU64,
    open: AtomicU32,
}

#[derive(Default)]
struct Names {
    by_host: HashMap<Host, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, Host>,
}

/// A place among the open connections, free again when this is dropped.
pub(crate) struct OpenPlace(Arc<CallNetwork>);

/// The connections of all calls of this process.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// The maximum number of them: each has two descriptors, and a new call needs some as well.
static MAX_OPEN: AtomicU32 = AtomicU32::new(u32::MAX);

/// Bounds the connections of all calls of this process, which may have so many descriptors.
pub(crate) fn bound_connections(descriptors: u64) {
    let connections = descriptors.saturating_sub(RESERVED_DESCRIPTORS) / 2;
    MAX_OPEN.store(u32::try_from(connections).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
}

/// The descriptors that connections leave free: for the sockets of some calls that begin, and for those of the process itself.
const RESERVED_DESCRIPTORS: u64 = 256;

/// The bound that stands in the way of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReachedLimit {
    Open,
    Process,
    Total,
    Bytes,
}

impl CallNetwork {
    pub(crate) fn new(
        profile: Profile,
        credentials: Vec<CallCredential>,
        budget: Budget,
        outside: Outside,
    ) -> Arc<Self> {
        let log = Log::new(budget.listed);
        Arc::new(Self {
            profile,
            budget,
            outside,
            credentials: CallCredentials::new(credentials),
            questions: HostQuestions::default(),
            log,
            names: Mutex::default(),
            bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: AtomicU32::new(0),
        })
    }

    /// The address that stands for a host in this call, the same at each call. `None`: all are given.
    pub(crate) fn address_of(&self, host: &Host) -> Option<Ipv4Addr> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = names.by_host.get(host) {
            return Some(*address);
        }
        let given = names.by_host.len();
        if given >= self.budget.names.min(ADDRESSES) {
            return None;
        }
        let address = Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + u32::try_from(given).ok()?);
        names.by_host.insert(host.clone(), address);
        names.by_address.insert(address, host.clone());
        Some(address)
    }

    /// The host for which an address stands in this call.
    pub(crate) fn host_at(&self, address: IpAddr) -> Option<Host> {
        let IpAddr::V4(address) = address else { return None };
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.by_address.get(&address).cloned()
    }

    /// Takes a place among the open connections.
    pub(crate) fn take_place(self: &Arc<Self>) -> Result<OpenPlace, ReachedLimit> {
        if self.bytes.load(Ordering::Relaxed) >= self.budget.bytes {
            return Err(ReachedLimit::Bytes);
        }
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        let open_in_process = OPEN.fetch_add(1, Ordering::Relaxed);
        let place = OpenPlace(Arc::clone(self));
        if open_in_process >= MAX_OPEN.load(Ordering::Relaxed) {
            return Err(ReachedLimit::Process);
        }
        if open >= self.budget.open_connections {
            return Err(ReachedLimit::Open);
        }
        if self.connections.fetch_add(1, Ordering::Relaxed) >= self.budget.connections {
            return Err(ReachedLimit::Total);
        }
        Ok(place)
    }

    /// Counts bytes. Returns whether they were within the budget.
    pub(crate) fn spend(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let is_within = before.saturating_add(bytes as u64) <= self.budget.bytes;
        if !is_within {
            self.log.is_over_budget();
        }
        is_within
    }

    /// The sentence with which a connection beyond a bound is refused.
    pub(crate) fn sentence(&self, exhausted: ReachedLimit) -> String {
        let Budget { bytes, connections, open_connections, .. } = &self.budget;
        match exhausted {
            ReachedLimit::Open => {
                format!("the command has {open_connections} open connections, which is the limit (`network.limits.open_connections`): close some first")
            }
            ReachedLimit::Process => {
                "the commands of this machine have as many open connections as the proxy may have: try again later, or raise the limit of open files of the tool runner".to_owned()
            }
            ReachedLimit::Total => format!("the command has made {connections} connections, which is the limit (`network.limits.connections`)"),
            ReachedLimit::Bytes => format!("the command has sent and received {bytes} bytes, which is the limit (`network.limits.bytes`)"),
        }
    }
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

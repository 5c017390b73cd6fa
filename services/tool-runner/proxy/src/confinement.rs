//! The restrictions that the proxy applies to itself before it serves anything, and the attacks that show them.

use std::{fs::File, io, net::TcpListener, os::unix::net::UnixStream, path::PathBuf, process::Command, thread};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, LandlockStatus, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetError, Scope,
};
use rustix::{
    net::{AddressFamily, SocketType},
    process::{DumpableBehavior, Gid, Resource, Rlimit, Uid, getrlimit, getuid, set_dumpable_behavior, setrlimit},
    thread::{
        CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
        set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};

use crate::call_network::bound_connections;
use crate::seccomp;

/// The oldest ABI of Landlock that is accepted.
const MINIMUM: ABI = ABI::V3;
/// The newest one that is known.
const KNOWN: ABI = ABI::V9;

/// Restricts this process, which has to have one thread: limits, user, capabilities, Landlock, seccomp. Returns the names of what is in force.
pub(crate) fn confine(uid: u32, gid: u32) -> io::Result<Vec<String>> {
    let failed = |doing: &'static str| move |error: io::Error| io::Error::other(format!("{doing}: {error}"));
    limits().map_err(failed("setting limits"))?;
    let mut enforced = Vec::new();
    let is_root = getuid().is_root();
    drop_privileges(is_root.then_some((uid, gid))).map_err(failed("dropping privileges"))?;
    if is_root {
        enforced.push(format!("proxy user {uid}"));
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let abi = landlock().map_err(failed("Landlock"))?;
    // The filter refuses these as well: here Landlock is alone.
    if let Some(name) = successful(&FILE_ATTACKS).first() {
        return Err(io::Error::other(format!("Landlock: the proxy could still {name}")));
    }
    enforced.push(format!("proxy landlock (ABI {abi})"));
    seccomp::restrict().map_err(failed("seccomp"))?;
    enforced.push("proxy seccomp".to_owned());
    Ok(enforced)
}

fn limits() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    bound_connections(maximum.unwrap_or(u64::MAX));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Drops all capabilities and every way to gain one, and becomes another user.
fn drop_privileges(user: Option<(u32, u32)>) -> io::Result<()> {
    if let Some((uid, gid)) = user {
        for bit in 0..u64::BITS {
            match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
                // Beyond the last capability of this kernel, or root without the right to.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => break,
                dropped => dropped?,
            }
        }
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(set_no_new_privs(true)?)
}

/// Refuses every access to files, to listen on new ports, and to sockets and processes outside. Returns the ABI in force.
fn landlock() -> io::Result<u8> {
    let create = || -> Result<RulesetCreated, RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(MINIMUM))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::from_all(KNOWN))?
            .create()
    };
    // Without a rule nothing is allowed.
    let status = create().and_then(RulesetCreated::restrict_self).map_err(io::Error::other)?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= MINIMUM => Ok(effective_abi as u8),
        _ => Err(io::Error::other(format!("the kernel's Landlock is older than ABI {MINIMUM}"))),
    }
}

/// An attack: its name, and whether it succeeds.
type Attack = (&'static str, fn() -> bool);

/// The attacks that Landlock refuses.
const FILE_ATTACKS: [Attack; 3] = [
    ("open a directory", || File::open("/").is_ok()),
    ("open a file", || File::open("/proc/self/status").is_ok()),
    ("execute a program", executes),
];

/// The attacks that only the filter refuses, or on older kernels.
const CALL_ATTACKS: [Attack; 5] = [
    ("start a thread", || thread::Builder::new().spawn(|| {}).is_ok()),
    ("make a Unix socket", || rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).is_ok()),
    ("make a netlink socket", || rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None).is_ok()),
    ("listen on a port", || TcpListener::bind("127.0.0.1:0").is_ok()),
    ("signal another process", || rustix::process::test_kill_process(rustix::process::Pid::INIT).is_ok()),
];

/// Tries what a confined process cannot do. Returns the names of the attacks that succeeded.
pub(crate) fn successful_attacks() -> Vec<&'static str> {
    [successful(&FILE_ATTACKS), successful(&CALL_ATTACKS)].concat()
}

fn successful(attacks: &[Attack]) -> Vec<&'static str> {
    attacks.iter().filter(|(_, attack)| attack()).map(|(name, _)| *name).collect()
}

/// Tries to open each of these files, or to connect to it. Returns the attacks that succeeded.
pub(crate) fn opened(paths: &[PathBuf]) -> Vec<String> {
    let is_open = |path: &&PathBuf| File::open(path).is_ok() || UnixStream::connect(path).is_ok();
    paths.iter().filter(is_open).map(|path| format!("open {}", path.display())).collect()
}

/// Whether a program can be executed.
fn executes() -> bool {
    Command::new("/bin/true").env_clear().spawn().and_then(|mut child| child.wait()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attacks succeed in a process without restrictions, so they are real ones.
    #[test]
    fn the_attacks_succeed_without_the_confinement() {
        let succeeded = successful_attacks();
        let unprivileged = succeeded.iter().filter(|name| **name != "signal another process");
        assert_eq!(unprivileged.count(), 7, "{succeeded:?}");
    }
}

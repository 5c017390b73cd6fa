//! The restrictions that a process applies to itself before it executes the program: limits, privileges, Landlock.

use std::{
    io,
    path::{Path, PathBuf},
};

use belay_defects::{Defect, is_planted};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs},
};

use crate::{
    limits::Limits,
    mounts::MountKind,
    protocol::Command,
    sources::{DEVICES, PROCESSORS},
};

/// Lowers the resource limits; a lower limit of the runner stays.
pub(crate) fn limit(limits: &Limits) -> io::Result<()> {
    // Rounded up, because a limit of 0 seconds would mean none.
    let cpu = limits.cpu.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    lower(Resource::Core, Some(0))?;
    // Message queues are in the namespace of the command; this is the kernel's default per user.
    lower(Resource::Msgqueue, Some(800 << 10))?;
    // The default of systemd.
    lower(Resource::Memlock, Some(8 << 20))?;
    limit_open_files(limits)?;
    lower(Resource::Fsize, limits.file_size)?;
    lower(Resource::As, limits.address_space)?;
    // Counted per user namespace since Linux 5.14, including init.
    lower(Resource::Nproc, Some(u64::from(limits.processes) + 1))?;
    if let Some(seconds) = cpu {
        // SIGXCPU first, and SIGKILL a second later.
        setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    }
    Ok(())
}

fn lower(resource: Resource, to: Option<u64>) -> io::Result<()> {
    let Some(to) = to else { return Ok(()) };
    let to = getrlimit(resource).maximum.map_or(to, |hard| hard.min(to));
    Ok(setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) })?)
}

/// A program may raise its soft limit up to the hard one.
fn limit_open_files(limits: &Limits) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // The kernel counts the descriptors in flight over unix sockets per user, and refuses more to a process than its own limit of open files.
    // With half of the runner's, commands cannot put so many in flight that the runner and its launchers can send none.
    let share = if is_planted(Defect::RunnersOpenFiles) { 1 } else { 2 };
    let hard = maximum.map_or(limits.open_files, |hard| (hard / share).min(limits.open_files));
    let soft = limits.open_files_at_start.or(current).map_or(hard, |soft| soft.min(hard));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(hard) })?)
}

/// Drops all capabilities, and every way to gain one.
pub(crate) fn drop_privileges() -> io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            // Beyond the last capability of this kernel.
            Err(rustix::io::Errno::INVAL) => break,
            dropped => dropped?,
        }
    }
    let none = CapabilitySet::empty();
    // Also empties the ambient set, which is limited to permitted ones.
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(set_no_new_privs(true)?)
}

/// The newest ABI known to the rules below. Further rights of newer kernels stay unrestricted.
const KNOWN: ABI = ABI::V9;

/// Restricts this process with all rights that the kernel's Landlock supports. Returns the active ABI; fails if it is below the minimum.
///
/// Must run after all mounts: a rule on a directory that is covered later has no effect.
pub(crate) fn landlock(command: Command<'_>) -> Result<u8, io::Error> {
    let floor = ABI::from(i32::from(command.armed.landlock_floor));
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(floor))
        .and_then(|ruleset| {
            let ruleset =
                ruleset.set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(KNOWN))?;
            // TCP is unrestricted, because the network of the command contains no one else. Abstract sockets and signals are limited to the
            // command's own processes.
            ruleset.scope(Scope::from_all(KNOWN))?.create()
        })
        .map_err(why)?;

    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let running = reading | AccessFs::Execute;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    // No devices, even where everything else is allowed.
    let anything = AccessFs::from_all(KNOWN) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);

    let workspace = if command.call.staging.is_some() { anything } else { running };
    // Terminals are the only device whose ioctls (window size, modes) programs need.
    let terminal = reading | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = vec![
        // Listing is allowed everywhere: everything in the view may be seen.
        ("/".into(), AccessFs::ReadDir.into()),
        ("/etc".into(), reading),
        ("/proc".into(), reading),
        ("/tmp".into(), anything),
        (crate::HOME.into(), anything),
        ("/dev/shm".into(), anything),
        ("/dev/pts".into(), terminal),
        ("/dev/tty".into(), terminal),
        (crate::WORKSPACE.into(), workspace),
    ];
    rules.extend(crate::sources::system_folders().map(|folder| (folder, running)));
    rules.extend(DEVICES.map(|place| (place.into(), device)));
    rules.extend(Path::new(PROCESSORS).is_dir().then(|| (PROCESSORS.into(), reading)));
    rules.extend(command.mounts().map(|mount| {
        let rights = if mount.kind == MountKind::ReadOnly { running } else { anything };
        (mount.target.clone(), rights)
    }));
    rules.extend(command.armed.attacks.iter().map(|_| (crate::protocol::ATTACKS.into(), running)));

    let mut ruleset = ruleset;
    for (path, rights) in rules {
        let place = PathFd::new(&path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        // Rights for directories are dropped from a rule on a file, not rejected.
        ruleset = ruleset.add_rule(PathBeneath::new(place, rights)).map_err(why)?;
    }
    let status = ruleset.restrict_self().map_err(why)?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= floor => Ok(effective_abi as u8),
        _ => Err(io::Error::other(format!("the kernel's Landlock is older than ABI {floor}"))),
    }
}

fn why(error: RulesetError) -> io::Error {
    io::Error::other(error)
}

//! What a process does to itself before it lets the command's program in: limits, privileges, Landlock.

use std::{
    io,
    path::{Path, PathBuf},
};

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
    order::Command,
    sources::{DEVICES, PROCESSORS},
};

/// Lowers the resource limits; a limit the runner itself is under stays where it is lower.
pub(crate) fn limit(limits: &Limits) -> io::Result<()> {
    // Rounded up: a limit below a second would be none at all.
    let cpu = limits.cpu.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    lower(Resource::Core, Some(0))?;
    // Message queues are the command's own; the kernel's default for one user.
    lower(Resource::Msgqueue, Some(800 << 10))?;
    // What systemd gives to everybody.
    lower(Resource::Memlock, Some(8 << 20))?;
    limit_open_files(limits)?;
    lower(Resource::Fsize, limits.file_size)?;
    lower(Resource::As, limits.address_space)?;
    // Counted per user namespace since Linux 5.14, where init is one as well.
    lower(Resource::Nproc, Some(u64::from(limits.processes) + 1))?;
    if let Some(seconds) = cpu {
        // SIGXCPU first, and SIGKILL a second later for those who ignore it.
        setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    }
    Ok(())
}

fn lower(resource: Resource, to: Option<u64>) -> io::Result<()> {
    let Some(to) = to else { return Ok(()) };
    let to = getrlimit(resource).maximum.map_or(to, |hard| hard.min(to));
    Ok(setrlimit(resource, Rlimit { current: Some(to), maximum: Some(to) })?)
}

/// A program may raise its own limit up to the hard one; it starts with what it would outside, where nobody says otherwise.
fn limit_open_files(limits: &Limits) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let hard = maximum.map_or(limits.open_files, |hard| hard.min(limits.open_files));
    let soft = limits.open_files_at_start.or(current).map_or(hard, |soft| soft.min(hard));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(hard) })?)
}

/// Gives up every capability, and every way to gain one.
pub(crate) fn drop_privileges() -> io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(capability) {
            // Past the last capability this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            dropped => dropped?,
        }
    }
    let none = CapabilitySet::empty();
    // Empties the ambient set as well, which never holds what is not permitted.
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(set_no_new_privs(true)?)
}

/// The newest ABI the rules below were written against. A newer kernel's further rights stay as they are.
const KNOWN: ABI = ABI::V9;

/// Confines this process with all that the kernel's Landlock has. Gives the ABI in force; fails where it is below the floor.
///
/// Comes after all mounts: a rule on a folder that a later mount covers does not count.
pub(crate) fn landlock(command: &Command) -> Result<u8, io::Error> {
    let floor = ABI::from(i32::from(command.landlock_floor));
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(floor))
        .and_then(|ruleset| {
            let ruleset =
                ruleset.set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(KNOWN))?;
            // TCP is left free: the command's network has nobody else in it. No abstract sockets and no signals beyond the
            // command's own processes.
            ruleset.scope(Scope::from_all(KNOWN))?.create()
        })
        .map_err(why)?;

    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let running = reading | AccessFs::Execute;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    // The walls keep it from devices even where it may do anything else.
    let anything = AccessFs::from_all(KNOWN) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);

    let workspace = if command.staging.is_some() { anything } else { running };
    // Terminals are the one device whose own requests (window size, modes) programs need.
    let terminal = reading | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = vec![
        // Names only, everywhere: there is nothing in the view that is not meant to be seen.
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
    rules.extend(command.mounts.iter().map(|mount| {
        let rights = if mount.kind == MountKind::ReadOnly { running } else { anything };
        (mount.target.clone(), rights)
    }));
    rules.extend(command.attacks.iter().map(|_| (crate::order::ATTACKS.into(), running)));

    let mut ruleset = ruleset;
    for (path, rights) in rules {
        let place = PathFd::new(&path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        // Rights that make sense for folders only are taken off a rule on a file, not refused.
        ruleset = ruleset.add_rule(PathBeneath::new(place, rights)).map_err(why)?;
    }
    let status = ruleset.restrict_self().map_err(why)?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= floor => Ok(effective_abi as u8),
        _ => Err(io::Error::other(format!("the kernel's Landlock is below ABI {floor}"))),
    }
}

fn why(error: RulesetError) -> io::Error {
    io::Error::other(error)
}

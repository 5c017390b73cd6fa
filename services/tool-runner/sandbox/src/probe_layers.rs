//! The launcher's side of the probe: tries each layer in a process of its own.

use std::{io, os::fd::OwnedFd};

use landlock::{ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};
use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsmount,
        fsopen, mount, move_mount, open_tree,
    },
};

use crate::{
    error::KILLED,
    host_ids::{HostIds, drop_root},
    init,
    layer::Layer,
    protocol::LayerProbe,
    seccomp, sources,
    sys::{self, Side, SingleThreaded},
};

/// Probes the layers, as the service user if it is root.
pub(crate) fn layers(one: SingleThreaded, uid: u32, gid: u32) -> Vec<LayerProbe> {
    let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let root = own_uid.is_root();
    let host_ids = if root { HostIds { uid, gid } } else { HostIds { uid: own_uid.as_raw(), gid: own_gid.as_raw() } };
    let inside = |test: &dyn Fn() -> io::Result<()>| in_namespaces(one, root.then_some(host_ids), host_ids, test);

    let mut probed = Vec::new();
    let mut record = |layer, error| probed.push(LayerProbe { layer, error });
    if root {
        record(Layer::ServiceUser, in_child(one, 0, || Ok(drop_root(host_ids)?)));
        record(Layer::IdMappedWorkspace, in_child(one, 0, || map_owner(one, host_ids)));
    }
    record(Layer::UserNamespace, inside(&|| Ok(())));
    record(
        Layer::View,
        inside(&|| {
            mount_on_scaffold(&open_tree(CWD, SCAFFOLD, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::AT_RECURSIVE)?)
        }),
    );
    record(Layer::Proc, inside(&|| mount_on_scaffold(&fresh_proc()?)));
    record(Layer::Workspace, inside(&overlay));
    record(Layer::ProcessLimit, inside(&limit_processes));
    record(Layer::Landlock, in_child(one, 0, landlock));
    record(Layer::Seccomp, in_child(one, 0, filter));
    probed
}

/// A directory that always exists and may be covered in a private namespace.
const SCAFFOLD: &str = "/usr";

/// Runs a test in a child in new namespaces. Returns the error number, or 0.
fn in_child(one: SingleThreaded, namespaces: i32, test: impl FnOnce() -> io::Result<()>) -> i32 {
    let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    match sys::clone(one, namespaces) {
        // The error numbers of the kernel fit into an exit code.
        Ok(Side::Child) => sys::exit(test().map_or_else(number, |()| 0)),
        Ok(Side::Parent { pid, .. }) => match sys::wait(pid) {
            Ok(Some(reaped)) if libc::WIFEXITED(reaped.status) => libc::WEXITSTATUS(reaped.status),
            // A child that was killed has shown nothing.
            _ => KILLED,
        },
        Err(error) => number(error),
    }
}

/// Runs a test in the position of a command's init, as the same user.
fn in_namespaces(
    one: SingleThreaded,
    drop_to: Option<HostIds>,
    host_ids: HostIds,
    test: &dyn Fn() -> io::Result<()>,
) -> i32 {
    in_child(one, 0, || {
        if let Some(user) = drop_to {
            drop_root(user)?;
        }
        let error = in_child(one, init::NAMESPACES, || {
            init::enter(host_ids)?;
            // AppArmor may allow the namespace but strip its capabilities; this call needs one.
            rustix::system::sethostname(b"sandbox")?;
            test()
        });
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    })
}

fn mount_on_scaffold(mount: &OwnedFd) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, SCAFFOLD, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

fn fresh_proc() -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn overlay() -> io::Result<()> {
    Ok(mount("overlay", SCAFFOLD, "overlay", MountFlags::empty(), c"lowerdir=/usr/bin:/usr/lib,userxattr")?)
}

fn limit_processes() -> io::Result<()> {
    mount_on_scaffold(&fresh_proc()?)?;
    std::fs::write(format!("{SCAFFOLD}/sys/kernel/pid_max"), "301")
}

/// Uses the directory of temporary files as the best guess at the file system of workspaces.
fn map_owner(one: SingleThreaded, to: HostIds) -> io::Result<()> {
    sources::map_owner(one, &std::env::temp_dir(), to)
}

fn landlock() -> io::Result<()> {
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(ABI::V1));
    // The error of the crate hides that of the kernel, but there is only one cause.
    ruleset.and_then(Ruleset::create).map(drop).map_err(|_| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

fn filter() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    sys::install_filter(&seccomp::for_command(true))
}

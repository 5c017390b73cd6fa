//! The system calls that a command and its init may use.

use libc::{c_long, sock_filter};

use super::{Action, Condition, Rule, compile};

/// Calls that fail with ENOSYS, so that programs fall back to calls that the filter can check.
const ABSENT: &[c_long] = &[
    // Its flags are in memory, which a filter cannot read; the C library falls back to clone.
    libc::SYS_clone3,
    // Performs other calls without making them.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory that neither a debugger nor the OOM killer sees.
    libc::SYS_memfd_secret,
];

/// Calls that administer the machine, change mounts, inspect other processes, or expose much of the kernel for little use.
const REFUSED: &[c_long] = &[
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Programs and probes inside the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Keyrings are not namespaced.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // The kernel itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Handles bypass path-based restrictions.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    // The clock.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Placement of memory.
    libc::SYS_mbind,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_vmsplice,
];

/// The same, for calls that exist on x86_64 only.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs];
#[cfg(target_arch = "aarch64")]
const REFUSED_HERE: &[c_long] = &[];

/// Since Linux 6.15; not in the libc crate yet. The number is the same on all architectures.
const OPEN_TREE_ATTR: c_long = 467;

/// The calls of a restricted init: reap, kill, report, and what its allocator needs.
const INIT: &[c_long] = &[
    libc::SYS_wait4,
    libc::SYS_getpid,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_sendto,
    libc::SYS_close,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
];

/// The internet protocols that programs use on loopback: the default of each type, ICMP (both), TCP, UDP, and multipath TCP, which Go
/// listens with. Others load kernel modules that nothing here needs.
const INTERNET_PROTOCOLS: [i32; 6] =
    [0, libc::IPPROTO_ICMP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6, libc::IPPROTO_MPTCP];

/// The filter of a command: allows everything except the lists above. An allow list would keep breaking toolchains.
///
/// `loopback`: whether it has its own network for internet sockets.
pub(crate) fn for_command(loopback: bool) -> Vec<sock_filter> {
    let refused = REFUSED.iter().chain(REFUSED_HERE).map(|call| (call, Action::Fail(libc::EPERM)));
    let absent = ABSENT.iter().map(|call| (call, Action::Fail(libc::ENOSYS)));
    let mut rules: Vec<Rule> = refused.chain(absent).map(|(call, then)| rule(*call, &[], then)).collect();

    let refuse = |call, condition| rule(call, &[condition], Action::Fail(libc::EPERM));
    let family = |family: i32| is(0, u32::MAX, family as u32);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.push(rule(call, &[family(libc::AF_UNIX)], Action::Allow));
        if loopback && call == libc::SYS_socket {
            for internet in [libc::AF_INET, libc::AF_INET6] {
                rules.extend(
                    INTERNET_PROTOCOLS.map(|protocol| {
                        rule(call, &[family(internet), is(2, u32::MAX, protocol as u32)], Action::Allow)
                    }),
                );
            }
            // Lists interfaces and addresses.
            let route = is(2, u32::MAX, libc::NETLINK_ROUTE as u32);
            rules.push(rule(call, &[family(libc::AF_NETLINK), route], Action::Allow));
        }
        // The error of a kernel built without the family, which programs handle.
        rules.push(rule(call, &[], Action::Fail(libc::EAFNOSUPPORT)));
    }
    const NAMESPACES: [i32; 7] = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let namespaces = NAMESPACES.iter().fold(0, |all, flag| all | *flag as u32);
    rules.push(refuse(libc::SYS_clone, has_any(0, namespaces)));
    for request in [libc::TIOCSTI, TIOCLINUX, libc::TIOCSETD, libc::TIOCCONS] {
        rules.push(refuse(libc::SYS_ioctl, is(1, u32::MAX, request as u32)));
    }
    // Preallocation takes gigabytes faster than the disk monitor can react. Programs and the C library fall back to writing.
    rules.push(rule(libc::SYS_fallocate, &[has_any(1, GIVES_BACK)], Action::Allow));
    rules.push(rule(libc::SYS_fallocate, &[], Action::Fail(libc::EOPNOTSUPP)));
    for request in PREALLOCATES {
        rules.push(rule(libc::SYS_ioctl, &[is(1, u32::MAX, request)], Action::Fail(libc::EOPNOTSUPP)));
    }
    // Querying the personality is harmless; setting another one changes the memory layout.
    rules.push(rule(libc::SYS_personality, &[is(0, u32::MAX, u32::MAX)], Action::Allow));
    rules.push(refuse(libc::SYS_personality, is_not(0, 0)));
    for (call, mode) in MAKES_NODES {
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            rules.push(refuse(*call, is(*mode, libc::S_IFMT, kind)));
        }
    }
    for (call, mode) in CHANGES_MODES {
        rules.push(refuse(*call, has_any(*mode, libc::S_ISUID | libc::S_ISGID)));
    }
    compile(&rules, Action::Allow)
}

/// The filter of init: kills it for any call that is not listed.
pub(crate) fn for_init() -> Vec<sock_filter> {
    let mut rules: Vec<Rule> = INIT.iter().map(|call| rule(*call, &[], Action::Allow)).collect();
    // Only kill(-1), for all processes of the namespace.
    rules.push(rule(libc::SYS_kill, &[is(0, u32::MAX, u32::MAX)], Action::Allow));
    // Debug builds of the standard library check a descriptor before they close it.
    rules.push(rule(libc::SYS_fcntl, &[is(1, u32::MAX, libc::F_GETFD as u32)], Action::Allow));
    compile(&rules, Action::Kill)
}

/// Not in the libc crate: controls the console, and can inject input.
const TIOCLINUX: u64 = 0x541C;

/// The modes of `fallocate` that free blocks: punching a hole, and collapsing a range.
const GIVES_BACK: u32 = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_COLLAPSE_RANGE) as u32;

/// Requests that allocate like `fallocate`: FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE, which the kernel supports on every file
/// system, and XFS_IOC_ALLOCSP and XFS_IOC_ALLOCSP64, which it supported until 5.17.
const PREALLOCATES: [u32; 5] = [0x4030_5828, 0x4030_582A, 0x4030_5839, 0x4030_580A, 0x4030_5824];

/// Calls that create nodes, with the index of the mode argument.
const MAKES_NODES: &[(c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];

/// Calls that change a mode, with the index of the mode argument.
const CHANGES_MODES: &[(c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
];

/// Since Linux 6.6; the number is the same on all architectures.
const FCHMODAT2: c_long = 452;

fn rule(call: c_long, when: &[Condition], then: Action) -> Rule {
    Rule { call: call as u32, when: when.to_vec(), then }
}

fn is(argument: u8, mask: u32, value: u32) -> Condition {
    Condition { argument, mask, value, equal: true }
}

fn is_not(argument: u8, value: u32) -> Condition {
    Condition { argument, mask: u32::MAX, value, equal: false }
}

fn has_any(argument: u8, bits: u32) -> Condition {
    Condition { argument, mask: bits, value: 0, equal: false }
}

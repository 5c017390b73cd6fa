//! The system calls of the proxy: those of an event loop with TCP and UDP, and nothing else.

use std::{collections::BTreeMap, io};

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Calls that are allowed with any arguments. They concern memory, time, descriptors that are open, and this thread.
const ALLOWED: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Restricts this thread, which has to be the only one, to the calls of the proxy. Every other call fails with `EPERM`.
pub(crate) fn restrict() -> io::Result<()> {
    let program = program().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            // Without the flags that are part of the type. The protocol is that of the type.
            let conditions = vec![is(0, family)?, masked(1, 0xf, kind)?, is(2, 0)?];
            sockets.push(SeccompRule::new(conditions)?);
        }
    }
    rules.insert(libc::SYS_socket, sockets);
    // Memory is never made executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![masked(2, libc::PROT_EXEC, 0)?])?]);
    }
    let commands = [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC];
    let commands: Result<Vec<_>, _> =
        commands.into_iter().map(|command| SeccompRule::new(vec![is(1, command)?])).collect();
    rules.insert(libc::SYS_fcntl, commands?);
    // FIONBIO, with which the standard library makes a socket non-blocking.
    let request = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(FIONBIO))?;
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(vec![request])?]);
    let architecture = std::env::consts::ARCH.try_into()?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

/// The same on all architectures that are supported.
const FIONBIO: u32 = 0x5421;

fn is(argument: u8, value: c_int) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value as u32))
}

fn masked(argument: u8, mask: c_int, value: c_int) -> Result<SeccompCondition, seccompiler::BackendError> {
    let test = SeccompCmpOp::MaskedEq(u64::from(mask as u32));
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, test, u64::from(value as u32))
}

//! Attacks by system calls.
#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_long},
    fs, io,
    os::fd::AsRawFd as _,
};

use super::attack::{Attack, Targets, Verdict};
use crate::sys::{self, Side};

pub(super) const ATTACKS: &[Attack] = &[
    ("make a user namespace", |_| {
        Verdict::any([
            filtered(libc::SYS_unshare, [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0]),
            filtered(libc::SYS_clone, [(libc::CLONE_NEWUSER | libc::SIGCHLD) as usize, 0, 0, 0, 0]),
            filtered(libc::SYS_clone3, [0; 5]),
            filtered(libc::SYS_setns, [usize::MAX, 0, 0, 0, 0]),
        ])
    }),
    ("mount", |_| {
        let calls = [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_fsopen,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
        ];
        Verdict::any(calls.map(|call| filtered(call, [0; 5])))
    }),
    ("change the root", |_| filtered(libc::SYS_chroot, [0; 5])),
    ("trace a process", |_| {
        let calls = [
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_kcmp,
        ];
        // ptrace has no request 0xffff, and -1 is neither a process nor a descriptor.
        Verdict::any(calls.map(|call| filtered(call, [0xffff, usize::MAX, 0, 0, 0])))
    }),
    ("load programs into the kernel", |_| {
        let calls = [libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_io_uring_setup];
        Verdict::any(calls.map(|call| filtered(call, [usize::MAX, 0, usize::MAX, usize::MAX, usize::MAX])))
    }),
    ("use keyrings", |_| {
        Verdict::any(
            [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key]
                .map(|call| filtered(call, [usize::MAX, 0, 0, 0, 0])),
        )
    }),
    ("load modules or another kernel", |_| {
        let calls = [
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
        ];
        Verdict::any(calls.map(|call| filtered(call, [0; 5])))
    }),
    ("open files by handle", |_| {
        Verdict::any(
            [libc::SYS_open_by_handle_at, libc::SYS_name_to_handle_at]
                .map(|call| filtered(call, [usize::MAX, 0, 0, 0, 0])),
        )
    }),
    ("type into a terminal", |_| filtered(libc::SYS_ioctl, [0, libc::TIOCSTI as usize, 0, 0, 0])),
    ("type into a terminal of its own", |_| {
        // The command may own this terminal, but someone may still look at what it injects there.
        let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx");
        match terminal {
            Ok(terminal) => filtered(libc::SYS_ioctl, [terminal.as_raw_fd() as usize, libc::TIOCSTI as usize, 0, 0, 0]),
            Err(error) => Verdict::Possible(format!("no terminal to attack: {error}")),
        }
    }),
    ("set the clock", |_| {
        Verdict::any([libc::SYS_settimeofday, libc::SYS_clock_settime].map(|call| filtered(call, [0; 5])))
    }),
    ("change the memory layout", |_| filtered(libc::SYS_personality, [libc::ADDR_NO_RANDOMIZE as usize, 0, 0, 0, 0])),
    ("become root", |_| {
        Verdict::any([
            Verdict::of(rustix::thread::set_thread_uid(rustix::fs::Uid::ROOT).map_err(io::Error::from)),
            Verdict::of(rustix::thread::set_thread_groups(&[]).map_err(io::Error::from)),
        ])
    }),
    ("make calls of other architectures", other_architectures),
    ("be root outside", |_| {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let fields: Vec<&str> = map.split_whitespace().collect();
        Verdict::expect(fields.len() == 3 && fields[1] != "0" && fields[2] == "1", fields.join(" "))
    }),
    ("hold capabilities, or run unfiltered", |_| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim)).unwrap_or("?")
        };
        let capabilities = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(field);
        let fine = capabilities == ["0000000000000000"; 5] && field("NoNewPrivs") == "1" && field("Seccomp") == "2";
        Verdict::expect(
            fine,
            format!("{capabilities:?}, no_new_privs {}, seccomp {}", field("NoNewPrivs"), field("Seccomp")),
        )
    }),
];

/// Expects the filter to refuse the call. Any other error means that the call reached the kernel.
fn filtered(call: c_long, [a, b, c, d, e]: [usize; 5]) -> Verdict {
    // SAFETY: the rows above pass null pointers, descriptors and processes that do not exist, and no flag that could take effect on
    // this process's memory: whatever the kernel makes of them, it writes to none of ours. A clone without a stack is a fork.
    let result = unsafe { libc::syscall(call, a, b, c, d, e) };
    if call == libc::SYS_clone && result == 0 {
        sys::exit(0);
    }
    let error = io::Error::last_os_error();
    match (result, error.raw_os_error()) {
        (-1, Some(libc::EPERM | libc::ENOSYS)) => Verdict::Blocked(format!("call {call}: {error}")),
        (-1, _) => Verdict::Possible(format!("call {call} reached the kernel: {error}")),
        _ => Verdict::Possible(format!("call {call} worked")),
    }
}

#[cfg(target_arch = "x86_64")]
fn other_architectures(targets: &Targets) -> Verdict {
    Verdict::any([
        killed(targets, || {
            const X32: c_long = 0x4000_0000;
            // SAFETY: getpid takes no arguments, under whatever number.
            unsafe { libc::syscall(X32 | libc::SYS_getpid) };
        }),
        killed(targets, || {
            // SAFETY: call 20 of i386 is getpid, which takes no arguments; the registers a 32-bit call may change are declared.
            unsafe {
                std::arch::asm!("int 0x80", inlateout("eax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
            }
        }),
    ])
}

#[cfg(target_arch = "aarch64")]
fn other_architectures(_: &Targets) -> Verdict {
    Verdict::Blocked("the filter's first check refuses 32-bit calls".to_owned())
}

/// Expects a child that does this to be killed.
#[cfg(target_arch = "x86_64")]
fn killed(targets: &Targets, attack: impl FnOnce()) -> Verdict {
    match sys::clone(targets.one, 0) {
        Ok(Side::Child) => {
            attack();
            sys::exit(0)
        }
        Ok(Side::Parent { pid, .. }) => match sys::wait(pid) {
            Ok(Some(reaped)) => {
                let signal: c_int = if libc::WIFSIGNALED(reaped.status) { libc::WTERMSIG(reaped.status) } else { 0 };
                Verdict::expect(signal == libc::SIGSYS, format!("signal {signal}"))
            }
            _ => Verdict::Possible("the child could not be reaped".to_owned()),
        },
        Err(error) => Verdict::Possible(format!("could not be attempted: {error}")),
    }
}

//! System calls without a safe wrapper in a crate.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong},
    io,
    net::Ipv4Addr,
    os::{
        fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    ptr,
    time::Duration,
};

use crate::ended::Usage;

/// Proof that this process is single-threaded, which makes it sound to run Rust code after a fork.
#[derive(Clone, Copy)]
pub(crate) struct SingleThreaded(());

impl SingleThreaded {
    /// Counts the threads: `/proc/self/task` has one link for itself, one for its parent and one per thread.
    pub(crate) fn check() -> io::Result<Self> {
        match std::fs::metadata("/proc/self/task")?.nlink() {
            3 => Ok(Self(())),
            _ => Err(io::Error::other("take_over_if_asked() must be called before any thread is started")),
        }
    }
}

/// The side of a [`clone`].
pub(crate) enum Side {
    Child,
    Parent { pid: i32, pidfd: OwnedFd },
}

/// Creates a child in new namespaces, or forks if `flags == 0`. The child sends SIGCHLD when it exits.
pub(crate) fn clone(_: SingleThreaded, flags: c_int) -> io::Result<Side> {
    let mut pidfd: c_int = -1;
    // Not clone3, which containers answer with ENOSYS. Both architectures take the pidfd in the third argument.
    let flags = (flags | libc::CLONE_PIDFD | libc::SIGCHLD) as c_ulong;
    // SAFETY: no stack is given and no memory is shared, so this is a fork; with one thread no lock can be held by another.
    // `pidfd` outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, &raw mut pidfd, 0_usize, 0_usize) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Ok(Side::Parent {
            pid: pid as i32,
            // SAFETY: the kernel has just made this descriptor for us and no other code knows it.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// Exits at once, without flushing or running anything copied from the parent.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// A reaped child: its raw wait status, and the usage of it and of the children that it waited for.
pub(crate) struct ReapedChild {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    pub(crate) usage: Usage,
}

/// Waits for one child, or for any with `pid == -1`. `None`: there is no child left.
pub(crate) fn wait(pid: i32) -> io::Result<Option<ReapedChild>> {
    let mut status = 0;
    // SAFETY: all zeroes is a valid rusage, a struct of integers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live values of the right type.
        let pid = unsafe { libc::wait4(pid, &raw mut status, libc::__WALL, &raw mut used) };
        if pid >= 0 {
            return Ok(Some(ReapedChild { pid, status, usage: usage(&used) }));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

fn usage(used: &libc::rusage) -> Usage {
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Usage { user: time(used.ru_utime), system: time(used.ru_stime), max_resident_bytes: used.ru_maxrss as u64 * 1024 }
}

/// From now on the kernel reaps the children of this process, which cannot wait for them.
pub(crate) fn leave_children_to_the_kernel() {
    // SAFETY: installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// From now on this process waits for its children itself.
pub(crate) fn wait_for_children() {
    // SAFETY: installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Kills all processes of this pid namespace except init, which has to be the caller.
pub(crate) fn kill_all_others() {
    // SAFETY: takes no arguments.
    let first = unsafe { libc::getpid() } == 1;
    assert!(first, "only the init of a pid namespace may kill everything it can see");
    // SAFETY: takes two integers. That no process is left is no failure.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// From now on passes SIGTERM on to all other processes of this pid namespace, whose init has to be the caller. Init is cloned with all signals
/// blocked.
pub(crate) fn pass_on_sigterm() -> io::Result<()> {
    extern "C" fn pass_on(_signal: libc::c_int) {
        // SAFETY: takes two integers, and may be called by a handler. That no process is left is no failure.
        unsafe { libc::kill(-1, libc::SIGTERM) };
    }
    // SAFETY: takes no arguments.
    let first = unsafe { libc::getpid() } == 1;
    assert!(first, "only the init of a pid namespace may signal everything it can see");
    // SAFETY: all zeroes is a valid sigaction: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = pass_on as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the pointer is to a live value of the right type; the old action is not asked for.
    let handled = unsafe { libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut()) };
    if handled != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeroes is a valid set, and both calls get a pointer to this live one.
    let unblocked = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut signals, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut())
    };
    if unblocked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// The mounts at a descriptor that are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    One,
    Tree,
}

/// Sets attributes (`MOUNT_ATTR_*`) on a mount, takes it out of propagation, and maps its owners through `userns` if given.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    reach: Reach,
    attributes: u64,
    userns: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attr = MountAttr {
        set: attributes | userns.map_or(0, |_| libc::MOUNT_ATTR_IDMAP),
        clear: 0,
        propagation: libc::MS_PRIVATE,
        userns: userns.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let mut flags = libc::AT_EMPTY_PATH;
    if reach == Reach::Tree {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the path is a C string, the struct has the layout of `struct mount_attr` and its size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags as c_uint,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    done(result)
}

/// Brings up the loopback interface of this network namespace; the kernel adds its addresses.
pub(crate) fn bring_up_loopback() -> io::Result<()> {
    let mut request = interface(b"lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
    set_interface(libc::SIOCSIFFLAGS as _, &request)
}

/// Gives the loopback interface of this network namespace one more address.
pub(crate) fn add_loopback_address(address: Ipv4Addr) -> io::Result<()> {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    // An interface has one address per label.
    let mut request = interface(b"lo:1");
    // SAFETY: an address of the internet is a socket address of the same size, made of integers.
    request.ifr_ifru.ifru_addr = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address) };
    set_interface(libc::SIOCSIFADDR as _, &request)
}

/// A request about this interface.
fn interface(name: &[u8]) -> libc::ifreq {
    // SAFETY: all zeroes is a valid ifreq: a name without letters, and a union of integers and addresses.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as c_char;
    }
    request
}

/// Changes an interface of this network namespace.
fn set_interface(what: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: the request is an ifreq that outlives the call, which is what such an ioctl reads.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), what, std::ptr::from_ref(request)) };
    done(result.into())
}

/// Marks every descriptor from `first` on to be closed by the next `execve`.
pub(crate) fn close_on_exec_from(first: c_uint) -> io::Result<()> {
    // SAFETY: takes three integers, and changes a flag of descriptors only.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    done(result)
}

/// Gives a descriptor this number, whatever has it, and keeps it open in the program that is executed next.
pub(crate) fn place(fd: OwnedFd, number: c_int) -> io::Result<()> {
    // SAFETY: takes two integers. The caller knows that nothing else uses the number: this process is about to become another program.
    let result = unsafe { libc::dup2(fd.as_raw_fd(), number) };
    done(result.into())
}

/// Resets all signals to their defaults and unblocks them: ignored and blocked signals survive `execve`, and Rust ignores SIGPIPE.
pub(crate) fn reset_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: installs no handler. The few that cannot be changed answer EINVAL, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: all zeroes is a valid set, sigemptyset makes it the empty one, and the old one is not asked for.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// While this exists, no signal reaches the thread that created it, nor, for its whole life, a process that the thread starts meanwhile:
/// the mask is inherited. SIGKILL and SIGSTOP cannot be blocked.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
    /// The mask is that of a thread.
    _same_thread: std::marker::PhantomData<*const ()>,
}

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        // SAFETY: all zeroes are valid sets, which these calls fill in. Blocking signals cannot fail with a valid set.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Self { before, _same_thread: std::marker::PhantomData }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was filled in by the same call, and the old one is not asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }
}

/// Installs a seccomp program for this process and its descendants. Needs `no_new_privs`.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies `len` instructions from a live slice of that length and writes nothing.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0 as c_ulong, &raw const program) };
    done(result)
}

/// Executes a program. Returns only on an error.
pub(crate) fn execve(program: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| -> Vec<*const c_char> {
        list.iter().map(|item| item.as_ptr()).chain([ptr::null()]).collect()
    };
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: all strings end in NUL, both lists end in a null pointer, and all of them outlive the call.
    unsafe { libc::execve(program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

fn done(result: c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

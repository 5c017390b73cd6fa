//! The user that a command runs as, seen from the host.

use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

/// The ids of init outside its user namespace.
#[derive(Clone, Copy)]
pub(crate) struct HostIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Switches to an ordinary user irrevocably.
pub(crate) fn drop_root(to: HostIds) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(to.uid), Gid::from_raw(to.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

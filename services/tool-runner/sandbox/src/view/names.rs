//! The files of the view that say how names are resolved, for a command with a name server.

use std::{io::Write as _, net::IpAddr, os::fd::BorrowedFd, path::Path};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::places::inside;
use crate::network::RESOLVER_FILES;

/// Has the command ask this name server.
pub(super) fn ask(root: BorrowedFd<'_>, server: IpAddr) -> std::io::Result<()> {
    let contents = [resolv_conf(server), NSSWITCH.to_owned()];
    for (place, text) in RESOLVER_FILES.iter().zip(contents) {
        let place = Path::new(place);
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        // A mount in its place is a file of the host.
        let resolve = inside() | ResolveFlags::NO_XDEV;
        let file = openat2(root, place.strip_prefix("/").unwrap_or(place), flags, Mode::empty(), resolve)?;
        std::fs::File::from(file).write_all(text.as_bytes())?;
    }
    Ok(())
}

const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The server is on this machine, so a question is repeated only if the machine is slow.
fn resolv_conf(server: IpAddr) -> String {
    format!("nameserver {server}\noptions timeout:5 attempts:2\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_named_without_its_port() {
        let text = resolv_conf("127.77.0.1".parse().unwrap());
        assert!(text.starts_with("nameserver 127.77.0.1\noptions "), "{text}");
        assert!(resolv_conf("::1".parse().unwrap()).starts_with("nameserver ::1\n"));
    }
}

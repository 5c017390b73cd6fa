//! The users that can change a file that Belay obeys.

/// Why a file with this owner and mode is unsafe: other users can change it.
pub(crate) fn exposed(owner: u32, mode: u32, own: u32) -> Option<String> {
    if owner != 0 && owner != own {
        Some(format!("belongs to another user (uid {owner}): change its owner to yourself or root"))
    } else if mode & 0o002 != 0 {
        Some(format!("is writable by all users (mode {:04o}): run chmod o-w", mode & 0o7777))
    } else {
        None
    }
}

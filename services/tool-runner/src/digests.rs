//! The digests by which the runner recognizes a request.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// The identity of a request: tool, workspace as named (`None`: the runner's own), arguments, its place among the calls of its step, and its network profile.
pub(crate) fn request_digest(
    tool: &str,
    workspace: Option<&Path>,
    arguments: &str,
    (layers, network): (&str, &str),
) -> String {
    let workspace = workspace.map_or(&[][..], |path| path.as_os_str().as_bytes());
    let network = Some(network.as_bytes()).filter(|network| !network.is_empty());
    let parts = [tool.as_bytes(), workspace, arguments.as_bytes(), layers.as_bytes()].into_iter().chain(network);
    // Names and paths contain no NUL.
    hex(parts.fold(Sha256::new(), |digest, part| digest.chain_update(part).chain_update([0])))
}

/// The digest of arguments as calls show it.
pub(crate) fn arguments_digest(arguments: &str) -> String {
    format!("sha256:{}", hex(Sha256::new().chain_update(arguments)))
}

/// The digest of a content.
pub(crate) fn content_digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(Sha256::new().chain_update(bytes)))
}

fn hex(digest: Sha256) -> String {
    HEXLOWER.encode(&digest.finalize())
}

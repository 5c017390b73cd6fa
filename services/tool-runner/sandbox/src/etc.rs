//! The part of the host's `/etc` that a command sees. Files about the host's users, network and secrets are not listed; where programs need
//! them, they are generated.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The visible paths, if they exist, and what needs them.
const SHOWN: &[(&str, &str)] = &[
    // How programs and libraries are found.
    ("/etc/ld.so.cache", "the dynamic loader finds libraries by it"),
    ("/etc/ld.so.conf", "programs that look for libraries themselves (Python's ctypes, linkers)"),
    ("/etc/ld.so.conf.d", "the same"),
    ("/etc/alternatives", "/usr/bin/java, cc, editor and others are links into it"),
    // Which certificates are trusted; not /etc/ssl as a whole, which holds private keys.
    ("/etc/ssl/certs", "OpenSSL, Java, curl, Go"),
    ("/etc/ssl/cert.pem", "LibreSSL and Alpine's OpenSSL"),
    ("/etc/ssl/openssl.cnf", "OpenSSL refuses some operations without it"),
    ("/etc/ca-certificates", "links from /etc/ssl/certs"),
    ("/etc/pki/ca-trust", "Fedora's certificates"),
    ("/etc/pki/java", "the same, for Java"),
    ("/etc/pki/tls/certs", "the same, for OpenSSL"),
    ("/etc/pki/tls/cert.pem", "the same"),
    ("/etc/pki/tls/openssl.cnf", "the same"),
    ("/etc/crypto-policies", "Fedora's OpenSSL and GnuTLS read it at each start"),
    ("/etc/gnutls", "GnuTLS reads it at each start"),
    ("/etc/gcrypt", "libgcrypt reads it at each start"),
    // Toolchains whose packages keep part of themselves in /etc.
    ("/etc/java-*", "Debian's JDKs link their conf folder into it: without it no class compiles"),
    ("/etc/jvm-*", "the same, for which virtual machine to start"),
    ("/etc/java", "Fedora's the same"),
    ("/etc/maven", "Debian's Maven links its start-up configuration into it"),
    ("/etc/ant", "the same, for Ant"),
    ("/etc/ant.d", "the same"),
    ("/etc/python3", "Debian's Python packages"),
    ("/etc/python3.*", "the same: sitecustomize is a link into it"),
    ("/etc/perl", "stands in Perl's search path"),
    ("/etc/php", "PHP loads its extensions by it"),
    ("/etc/php.ini", "the same"),
    ("/etc/php.d", "the same"),
    ("/etc/R", "R does not start without it"),
    ("/etc/mono", "Mono maps native libraries by it"),
    ("/etc/fonts", "fontconfig, which headless Java and plotting libraries use"),
    ("/etc/ImageMagick-*", "ImageMagick's type and policy tables"),
    ("/etc/OpenCL", "which compute libraries there are"),
    ("/etc/manpath.config", "man finds no page without it"),
    ("/etc/man_db.conf", "the same, on Fedora"),
    ("/etc/xml", "catalogues of XML schemas"),
    ("/etc/sgml", "the same for SGML"),
    // Tables.
    ("/etc/localtime", "the time zone, for programs that do not look at TZ"),
    ("/etc/timezone", "its name"),
    ("/etc/locale.alias", "names of locales"),
    ("/etc/mime.types", "Python's mimetypes and others"),
    ("/etc/magic", "file(1)"),
    ("/etc/magic.mime", "the same"),
    ("/etc/protocols", "getprotobyname"),
    ("/etc/services", "getservbyname"),
    ("/etc/rpc", "getrpcbyname"),
    ("/etc/gai.conf", "the order of addresses"),
    ("/etc/shells", "getusershell"),
    ("/etc/terminfo", "local descriptions of terminals"),
    ("/etc/inputrc", "readline, in programs that are tested on a terminal"),
    // The distribution, by which builds choose.
    ("/etc/os-release", "nearly everything that asks"),
    ("/etc/lsb-release", "the same"),
    ("/etc/debian_version", "the same"),
    ("/etc/redhat-release", "the same"),
    ("/etc/alpine-release", "the same"),
];

/// A visible part of the host's `/etc`.
pub(crate) enum EtcEntry {
    /// A symbolic link into `/usr`, which is visible.
    Link { place: PathBuf, target: PathBuf },
    /// A small world-readable file, copied: much cheaper than a mount.
    Copy { place: PathBuf, contents: Vec<u8> },
    /// Another file or directory of the host, mounted.
    HostMount { place: PathBuf, source: PathBuf },
}

/// The largest file that is copied, in bytes. The listed caches and tables have some tens of kilobytes.
const MAX_COPY: u64 = 128 << 10;

/// All listed paths that exist.
pub(crate) fn shown() -> Vec<EtcEntry> {
    listed().filter_map(|place| look(&place)).collect()
}

/// All listed paths, also some that do not exist.
pub(crate) fn listed() -> impl Iterator<Item = PathBuf> {
    // Read once for all listed names.
    let names: Vec<String> = fs::read_dir("/etc")
        .map(|entries| entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
        .unwrap_or_default();
    SHOWN.iter().flat_map(move |(pattern, _)| expand(pattern, &names))
}

/// Expands a listed name.
fn expand(pattern: &str, names: &[String]) -> Vec<PathBuf> {
    let below = pattern.strip_prefix("/etc/").unwrap_or(pattern);
    match below.strip_suffix('*') {
        Some(start) => {
            names.iter().filter(|name| name.starts_with(start)).map(|name| Path::new("/etc").join(name)).collect()
        }
        // Most listed names do not exist: checking the listing saves a system call for each.
        None if names.iter().any(|name| Some(name.as_str()) == below.split('/').next()) => vec![pattern.into()],
        None => Vec::new(),
    }
}

fn look(place: &Path) -> Option<EtcEntry> {
    let metadata = fs::symlink_metadata(place).ok()?;
    if metadata.is_file()
        && metadata.mode() & 0o004 != 0
        && metadata.len() <= MAX_COPY
        && let Ok(contents) = fs::read(place)
    {
        return Some(EtcEntry::Copy { place: place.to_owned(), contents });
    }
    if !metadata.is_symlink() {
        return Some(EtcEntry::HostMount { place: place.to_owned(), source: place.to_owned() });
    }
    // A link to elsewhere, such as a package store, is resolved here because its target is not visible.
    let source = fs::canonicalize(place).ok()?;
    Some(if source.starts_with("/usr") {
        EtcEntry::Link { place: place.to_owned(), target: source }
    } else {
        EtcEntry::HostMount { place: place.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_expand_to_existing_names() {
        let names = ["java-17-openjdk", "java-21-openjdk", "javascript", "ssl"].map(str::to_owned);
        assert_eq!(
            expand("/etc/java-*", &names),
            [Path::new("/etc/java-17-openjdk"), Path::new("/etc/java-21-openjdk")]
        );
        assert_eq!(expand("/etc/ssl/certs", &names), [Path::new("/etc/ssl/certs")]);
        assert!(expand("/etc/maven", &names).is_empty());
    }

    #[test]
    fn no_listed_name_exposes_secrets_or_users() {
        let closed = [
            "shadow",
            "gshadow",
            "passwd",
            "group",
            "sudoers",
            "ssh",
            "ssl/private",
            "pki/tls/private",
            "hosts",
            "resolv.conf",
            "machine-id",
            "npmrc",
            "pip.conf",
            "gitconfig",
            "environment",
            "profile",
            "wgetrc",
        ];
        for (pattern, _) in SHOWN {
            let start = pattern.trim_end_matches('*');
            for name in closed {
                let secret = Path::new("/etc").join(name);
                let shown = if pattern.ends_with('*') {
                    secret.to_string_lossy().starts_with(start)
                } else {
                    secret.starts_with(start)
                };
                assert!(!shown, "{pattern} shows {}", secret.display());
            }
        }
    }
}

//! The certificates that commands trust where the proxy answers for hosts: those of this machine, the operator's own, and the proxy's authority.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use belay_sandbox::{Mount, MountKind};

use crate::owned_files;

/// The files with the certificates of this machine, of which commands see the first one that is there.
pub(crate) const OF_MACHINE: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The places of the files in the view of a command.
pub(crate) const PEM: &str = "/run/belay/certificates.pem";
pub(crate) const JKS: &str = "/run/belay/certificates.jks";

/// The files of one proxy.
#[derive(Debug)]
pub(crate) struct TrustFiles {
    directory: PathBuf,
    pem: PathBuf,
    jks: PathBuf,
}

impl TrustFiles {
    /// Writes the files into a new directory below one of the runner. They go when this is dropped.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(crate) fn write(directory: &Path, bundle: &str) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        owned_files::remove_left_over(directory);
        // Commands of an earlier proxy have theirs until they end.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = &directory.join(format!("{}-{number}", owned_files::prefix()));
        // Commands reach the files by their mounts only, and read them as another user.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        // Mounts are opened without following links, of which the path of the state directory may have some.
        let directory = fs::canonicalize(directory)?;
        let files = Self {
            directory: directory.clone(),
            pem: directory.join("certificates.pem"),
            jks: directory.join("certificates.jks"),
        };
        for (file, contents) in [(&files.pem, bundle.as_bytes()), (&files.jks, &java_key_store(bundle))] {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(file)?;
            file.write_all(contents)?;
        }
        Ok(files)
    }

    /// The mounts by which a command sees them.
    pub(crate) fn mounts(&self) -> [Mount; 2] {
        let mount = |source: &Path, target: &str| Mount {
            source: source.to_owned(),
            target: target.into(),
            kind: MountKind::ReadOnly,
        };
        [mount(&self.pem, PEM), mount(&self.jks, JKS)]
    }
}

impl Drop for TrustFiles {
    fn drop(&mut self) {
        // What a killed process leaves behind is removed when the next one writes.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The certificates of a text in PEM, in DER. What is no certificate is left out.
pub(crate) fn certificates(pem: &str) -> Vec<Vec<u8>> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let body = |block: &str| {
        let body = block.split("-----END CERTIFICATE-----").next().unwrap_or_default();
        STANDARD.decode(body.chars().filter(|c| !c.is_ascii_whitespace()).collect::<String>()).ok()
    };
    blocks.filter_map(body).filter(|der| !der.is_empty()).collect()
}

/// Certificates in PEM.
pub(crate) fn pem_of(certificates: &[Vec<u8>]) -> String {
    let mut pem = String::new();
    for der in certificates {
        pem += "-----BEGIN CERTIFICATE-----\n";
        let text = STANDARD.encode(der);
        for line in text.as_bytes().chunks(64) {
            pem.extend(line.iter().map(|byte| char::from(*byte)));
            pem.push('\n');
        }
        pem += "-----END CERTIFICATE-----\n";
    }
    pem
}

/// Whether a text has a private key, which nobody may be shown.
pub(crate) fn has_key(pem: &str) -> bool {
    pem.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains("PRIVATE KEY"))
}

/// Why a text is not that of certificate authorities. `None`: it is.
pub(crate) fn problem(pem: &str) -> Option<&'static str> {
    if has_key(pem) {
        Some("has a private key, which is nobody's business here: write the certificates alone into a file")
    } else if certificates(pem).is_empty() {
        Some("has no certificate in PEM")
    } else {
        None
    }
}

/// A key store of Java with the certificates of a text in PEM, without a password: the format JKS, which every version reads (`sun.security.provider.JavaKeyStore`).
fn java_key_store(pem: &str) -> Vec<u8> {
    let certificates = certificates(pem);
    let mut store = Vec::new();
    let utf = |store: &mut Vec<u8>, text: &str| {
        store.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
        store.extend(text.as_bytes());
    };
    store.extend(0xfeed_feed_u32.to_be_bytes());
    store.extend(2_u32.to_be_bytes());
    store.extend(u32::try_from(certificates.len()).unwrap_or(0).to_be_bytes());
    for (number, der) in certificates.iter().enumerate() {
        // A trusted certificate, with the time at which it was added.
        store.extend(2_u32.to_be_bytes());
        utf(&mut store, &format!("belay-{number}"));
        store.extend(0_u64.to_be_bytes());
        utf(&mut store, "X.509");
        store.extend(u32::try_from(der.len()).unwrap_or(0).to_be_bytes());
        store.extend(der);
    }
    // The digest over password and contents, which is read only with a password.
    store.extend([0; 20]);
    store
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A runner that is killed leaves its files, and the next one may have its process number, as in a container.
    #[test]
    fn files_of_an_earlier_process_with_this_number_are_in_no_way() {
        let directory = tempfile::tempdir().unwrap();
        let left: Vec<PathBuf> = (0..50)
            .flat_map(|n| [format!("{}-{n}", std::process::id()), format!("{}.1-{n}", std::process::id())])
            .map(|name| directory.path().join(name))
            .collect();
        for folder in &left {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("certificates.pem"), "of another proxy").unwrap();
        }
        let files = TrustFiles::write(directory.path(), "").unwrap();
        assert!(files.pem.exists() && left.iter().all(|folder| !folder.exists()));
    }

    const TWO: &str = "text\n-----BEGIN CERTIFICATE-----\nAQID\nBA==\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nBQ==\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nBQ==\n-----END PRIVATE KEY-----\n";

    #[test]
    fn a_bundle_has_its_certificates_and_nothing_else() {
        assert_eq!(certificates(TWO), [vec![1, 2, 3, 4], vec![5]]);
        assert!(certificates("-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----").is_empty());
        let pem = pem_of(&certificates(TWO));
        assert!(certificates(&pem) == certificates(TWO) && !has_key(&pem) && has_key(TWO));
    }

    #[test]
    fn each_proxy_has_files_of_its_own_and_commands_may_read_them_only() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("certificates");
        let old = TrustFiles::write(&directory, "old").unwrap();
        let files = TrustFiles::write(&directory, TWO).unwrap();
        let mounts = files.mounts();
        assert_eq!(fs::read_to_string(&old.mounts()[0].source).unwrap(), "old");
        drop(old);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(&mounts[0].source).unwrap(), TWO);
        let store = fs::read(&mounts[1].source).unwrap();
        assert_eq!((&store[..4], &store[8..12]), (&[0xfe, 0xed, 0xfe, 0xed][..], &[0, 0, 0, 2][..]));
        assert!(mounts.iter().all(|mount| mount.kind == MountKind::ReadOnly));
    }
}

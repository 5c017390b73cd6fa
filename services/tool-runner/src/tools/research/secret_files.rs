//! Files that hold keys or passwords by their names. Pure.
//!
//! A search that nobody has aimed at such a file must not hand out a line of it. Who needs one names it, with `read_file`, and the policy judges that.

use belay_workspace::RelPath;

/// Names of files.
const NAMES: [&str; 22] = [
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".yarnrc.yml",
    ".htpasswd",
    ".git-credentials",
    ".vault-token",
    ".terraformrc",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "client_secret.json",
    "service-account.json",
    "shadow",
    "secring.gpg",
    "kubeconfig",
    "terraform.tfstate",
];
/// Beginnings of names.
const BEGINNINGS: [&str; 6] = [".env.", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss"];
/// Ends of names.
const ENDS: [&str; 14] = [
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".keystore",
    ".kdbx",
    ".ppk",
    ".asc",
    ".gpg",
    ".age",
    ".tfvars",
    ".token",
    ".secret",
];
/// Folders of nothing else.
const FOLDERS: [&str; 6] = [".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"];
/// Ends of names of files that show how such a file is written, and public halves of keys.
const HARMLESS: [&str; 6] = [".example", ".sample", ".template", ".dist", ".md", ".pub"];

/// Whether a file of this path holds keys or passwords by its name.
pub(super) fn is_secret(path: &RelPath) -> bool {
    let Some(name) = path.name() else { return false };
    let name = name.to_string_lossy().to_ascii_lowercase();
    if HARMLESS.iter().any(|end| name.ends_with(end)) {
        return false;
    }
    let in_folder = path.names().rev().skip(1).any(|folder| {
        let folder = folder.to_string_lossy().to_ascii_lowercase();
        FOLDERS.contains(&folder.as_str())
    });
    in_folder
        || NAMES.contains(&name.as_str())
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_keys_and_passwords_are_known_by_name() {
        let secret = |path: &str| is_secret(&RelPath::parse(path).unwrap());
        for path in [
            ".env",
            "a/.ENV",
            ".env.production",
            "deploy/tls.key",
            "id_ed25519",
            ".aws/config",
            "home/.ssh/known_hosts",
            ".npmrc",
        ] {
            assert!(secret(path), "{path}");
        }
        for path in [
            ".env.example",
            "id_rsa.pub",
            "docs/keys.md",
            "env",
            "src/key.rs",
            ".awsome/config",
            "environment",
            "tokens.ts",
            ".ssh.md",
        ] {
            assert!(!secret(path), "{path}");
        }
    }
}

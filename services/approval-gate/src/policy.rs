//! The active policy: from a file or built in, signed, and numbered so that runners recognize the newer one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use belay_grant::{Keys, SignedBytes, SigningKey, key_id};
use belay_policy::{Policies, RevisedPolicies, Violation};
use belay_proto::v1;
use thiserror::Error;

/// The policies as they were published.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivePolicy {
    /// The policies with their revision.
    pub revised: RevisedPolicies,
    /// The signed form, for runners.
    pub signed: v1::SignedPolicy,
}

/// Why a policy file is rejected. The active policy stays active.
#[derive(Debug, Error)]
pub enum PolicyFileError {
    /// It cannot be read.
    #[error("the policy file {path} cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not hold a valid policy.
    #[error("the policy file {path} is not valid:{}", listed(violations))]
    Refused {
        /// The file.
        path: PathBuf,
        /// All violations, each with its field and line.
        violations: Vec<Violation>,
    },
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n  {violation}")).collect()
}

/// Reads a policy file (YAML).
///
/// # Errors
/// [`PolicyFileError`] with all violations.
pub fn load(path: &Path) -> Result<Policies, PolicyFileError> {
    let text =
        fs::read_to_string(path).map_err(|source| PolicyFileError::Unreadable { path: path.to_owned(), source })?;
    Policies::from_yaml(&text).map_err(|violations| PolicyFileError::Refused { path: path.to_owned(), violations })
}

/// Why the stored policy cannot be replaced.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoredPolicyError {
    /// This gate's key signed it, and the signature does not match.
    #[error("the stored policy with revision {0} was changed after it was signed")]
    Tampered(i64),
    /// The revisions are used up.
    #[error("the stored policy has the highest possible revision, {0}")]
    LastRevision(i64),
}

/// The policies to publish: the stored ones if they are equal and signed by this key, else the next revision, which is at least `least`.
///
/// # Errors
/// [`StoredPolicyError`] when the stored policy was tampered with.
pub(crate) fn next(
    stored: Option<v1::SignedPolicy>,
    policies: &Policies,
    key: &SigningKey,
    least: i64,
) -> Result<ActivePolicy, StoredPolicyError> {
    let last = stored.as_ref().map_or(0, |stored| stored.revision);
    if let Some(signed) = stored.filter(|stored| stored.key_id == key_id(&key.verifying_key())) {
        let tampered = StoredPolicyError::Tampered(last);
        let bytes = SignedBytes { body: signed.body, signature: signed.signature, key_id: signed.key_id };
        bytes.verify_policy(&Keys::new([key.verifying_key()])).map_err(|_| tampered.clone())?;
        // A policy that this version cannot parse was written by another version, and is replaced.
        if let Ok(revised) = RevisedPolicies::from_bytes(&bytes.body) {
            if revised.revision != last {
                return Err(tampered);
            }
            if revised.policies == *policies && last >= least {
                return Ok(ActivePolicy { revised, signed: message(last, bytes) });
            }
        }
    }
    let revision = last.checked_add(1).ok_or(StoredPolicyError::LastRevision(last))?.max(least);
    let revised = RevisedPolicies { revision, policies: policies.clone() };
    let signed = message(revision, SignedBytes::policy(key, revised.to_bytes()));
    Ok(ActivePolicy { revised, signed })
}

fn message(revision: i64, SignedBytes { body, signature, key_id }: SignedBytes) -> v1::SignedPolicy {
    v1::SignedPolicy { revision, body, signature, key_id }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SigningKey {
        SigningKey::from_bytes(&[n; 32])
    }

    fn strict() -> Policies {
        Policies::from_yaml("file_write: prompt\n").unwrap()
    }

    /// S2-FR-049: every runner recognizes the active policy, and that the gate signed it.
    #[test]
    fn a_revision_increases_when_the_policy_changes_and_not_at_every_start() {
        let first = next(None, &Policies::preset(), &key(1), 0).unwrap();
        assert_eq!(first.signed.revision, 1);
        let again = next(Some(first.signed.clone()), &Policies::preset(), &key(1), 0).unwrap();
        assert_eq!(again, first);
        let second = next(Some(first.signed.clone()), &strict(), &key(1), 0).unwrap();
        assert_eq!((second.signed.revision, second.revised.revision), (2, 2));
        let signed = second.signed.clone();
        let signed = SignedBytes { body: signed.body, signature: signed.signature, key_id: signed.key_id };
        assert!(signed.verify_policy(&Keys::new([key(1).verifying_key()])).is_ok());
        assert_eq!(RevisedPolicies::from_bytes(&signed.body).unwrap().policies, strict());

        let resigned = next(Some(second.signed), &strict(), &key(2), 0).unwrap();
        assert_eq!(resigned.signed.revision, 3, "another key signs it again, under a higher revision");
    }

    #[test]
    fn a_stored_policy_that_was_changed_is_not_followed() {
        let first = next(None, &strict(), &key(1), 0).unwrap().signed;
        let milder = RevisedPolicies { revision: 1, policies: Policies::preset() }.to_bytes();
        for changed in [
            v1::SignedPolicy { body: milder, ..first.clone() },
            v1::SignedPolicy { revision: 7, ..first.clone() },
            v1::SignedPolicy { signature: vec![0; 64], ..first.clone() },
        ] {
            let revision = changed.revision;
            assert_eq!(next(Some(changed), &strict(), &key(1), 0), Err(StoredPolicyError::Tampered(revision)));
        }
        let last = v1::SignedPolicy { revision: i64::MAX, key_id: "another".into(), ..first };
        assert_eq!(next(Some(last), &strict(), &key(1), 0), Err(StoredPolicyError::LastRevision(i64::MAX)));
    }

    #[test]
    fn a_broken_file_names_field_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        assert!(matches!(load(&path), Err(PolicyFileError::Unreadable { .. })));
        fs::write(&path, "file_write: auto\nfile_wriite: deny\n").unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("policy.yaml") && error.contains("line 2") && error.contains("file_wriite"), "{error}");
        fs::write(&path, "file_write: prompt\n").unwrap();
        assert_eq!(load(&path).unwrap(), strict());
    }
}

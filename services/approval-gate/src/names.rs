//! Parses the names of approvals, which the gate assigns; those of calls and executions are the executor's.

pub(crate) use belay_service_kit::names::{CallName, check_execution};
use belay_service_kit::{ids::id_of, names::is_id, status};
use tonic::Status;

/// The name of the approval for one subject of one call. It is derived from both, so creating an approval is idempotent.
pub(crate) fn approval_of(namespace: &str, call: &str, subject_digest: &str) -> String {
    let digest = belay_grant::digest_of(format!("{call}\n{subject_digest}").as_bytes());
    let bits = digest.rsplit(':').next().and_then(|digits| u128::from_str_radix(&digits[..32], 16).ok());
    format!("namespaces/{namespace}/approvals/{}", id_of(bits.expect("a digest has hexadecimal digits")))
}

/// The namespace of a name that has been checked.
pub(crate) fn namespace_of(name: &str) -> &str {
    name.split('/').nth(1).unwrap_or_default()
}

/// Whether this is `namespaces/*/approvals/*`.
pub(crate) fn check_approval(field: &str, name: &str) -> Result<(), Status> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["namespaces", namespace, "approvals", id] if is_id(namespace) && is_id(id) => Ok(()),
        _ => {
            let message = format!("`{name}` is not the name of an approval: write namespaces/NAMESPACE/approvals/ID");
            Err(status::invalid(field, message).into())
        }
    }
}

/// The namespace in a list's `parent`, `namespaces/*`; `None` for `namespaces/-`, which means all.
pub(crate) fn parent(parent: &str) -> Result<Option<String>, Status> {
    let wrong = |message| Err(status::invalid("parent", message).into());
    match parent.strip_prefix("namespaces/") {
        Some("-") => Ok(None),
        Some(namespace) if is_id(namespace) => Ok(Some(namespace.into())),
        _ if parent.is_empty() => wrong("is required: write namespaces/NAMESPACE, or namespaces/- for all".to_owned()),
        _ => wrong(format!("`{parent}` is not a namespace: write namespaces/NAMESPACE, or namespaces/- for all")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_s_name_is_derived_from_call_and_subject() {
        let name = approval_of("default", "call", "sha256:aa");
        assert_eq!(name, approval_of("default", "call", "sha256:aa"));
        assert_ne!(name, approval_of("default", "call", "sha256:ab"));
        assert_ne!(name, approval_of("default", "other", "sha256:aa"));
        assert!(check_approval("name", &name).is_ok());
        assert_eq!(name.rsplit('/').next().map(str::len), Some(20));
        for bad in [
            "",
            "approvals/a",
            "namespaces/default/approvals/",
            "namespaces/-/approvals/a",
            "namespaces/a/approvals/b/c",
        ] {
            assert!(check_approval("name", bad).unwrap_err().message().starts_with("name: "), "{bad:?}");
        }
    }

    #[test]
    fn a_list_names_its_namespace_or_all() {
        assert_eq!(parent("namespaces/default").unwrap().as_deref(), Some("default"));
        assert_eq!(parent("namespaces/-").unwrap(), None);
        for bad in ["", "default", "namespaces/", "namespaces/A", "namespaces/a/executions/b"] {
            assert!(parent(bad).unwrap_err().message().starts_with("parent: "), "{bad:?}");
        }
        assert!(parent("").unwrap_err().message().contains("is required"));
    }
}

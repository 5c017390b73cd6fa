//! The names of resources in the contract: `namespaces/NAMESPACE/executions/ID`.

/// The namespace that is meant where none is named.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// The id at the end of a name.
pub(crate) fn id(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// `namespaces/NAMESPACE`.
pub(crate) fn parent(namespace: &str) -> String {
    format!("namespaces/{namespace}")
}

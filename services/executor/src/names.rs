//! Resource names: `namespaces/*/executions/*/steps/*/calls/*`.

use belay_execution::digest;
use belay_journal::SHARDS;
pub(crate) use belay_service_kit::names::is_id;
use belay_service_kit::status;
use tonic::Status;

/// The parts of an execution's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExecutionName {
    pub(crate) namespace: String,
    pub(crate) id: String,
}

impl ExecutionName {
    pub(crate) fn parse(field: &str, name: &str) -> Result<Self, Status> {
        let parts: Vec<&str> = name.split('/').collect();
        match parts[..] {
            ["namespaces", namespace, "executions", id] if is_id(namespace) && is_id(id) => {
                Ok(Self { namespace: namespace.into(), id: id.into() })
            }
            _ => {
                let message =
                    format!("`{name}` is not the name of an execution: use namespaces/NAMESPACE/executions/ID");
                Err(status::invalid(field, message).into())
            }
        }
    }
}

impl std::fmt::Display for ExecutionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "namespaces/{}/executions/{}", self.namespace, self.id)
    }
}

/// The shard of an execution, derived from its name: the first bytes of a digest. It never changes.
pub fn shard_of(namespace: &str, id: &str) -> u32 {
    let digest = digest(format!("{namespace}/{id}").as_bytes());
    u32::from_str_radix(&digest["sha256:".len()..][..8], 16).unwrap_or(0) % SHARDS
}

/// The parts of a step's name: its execution's name, and its id.
pub(crate) fn step_name(field: &str, name: &str) -> Result<(ExecutionName, String), Status> {
    let parts = name.rsplit_once("/steps/").filter(|(_, step)| !step.is_empty() && !step.contains('/'));
    let (execution, step) = parts.ok_or_else(|| {
        let message = format!("`{name}` is not the name of a step: use namespaces/NAMESPACE/executions/ID/steps/STEP");
        Status::from(status::invalid(field, message))
    })?;
    Ok((ExecutionName::parse(field, execution)?, step.to_owned()))
}

/// The parts of a blob's name: its execution's name, and the digits of its digest.
pub(crate) fn blob_name(field: &str, name: &str) -> Result<(ExecutionName, String), Status> {
    let parts = name.rsplit_once("/blobs/").filter(|(_, digits)| !digits.is_empty() && !digits.contains('/'));
    let (execution, digits) = parts.ok_or_else(|| {
        let message =
            format!("`{name}` is not the name of a blob: use namespaces/NAMESPACE/executions/ID/blobs/DIGITS");
        Status::from(status::invalid(field, message))
    })?;
    Ok((ExecutionName::parse(field, execution)?, digits.to_owned()))
}

/// The parts of an artifact's name: its execution's name, and its id.
pub(crate) fn artifact_name(field: &str, name: &str) -> Result<(ExecutionName, String), Status> {
    let parts = name.rsplit_once("/artifacts/").filter(|(_, id)| !id.is_empty() && !id.contains('/'));
    let (execution, id) = parts.ok_or_else(|| {
        let message = format!(
            "`{name}` is not the name of an artifact: use namespaces/NAMESPACE/executions/ID/artifacts/ARTIFACT"
        );
        Status::from(status::invalid(field, message))
    })?;
    Ok((ExecutionName::parse(field, execution)?, id.to_owned()))
}

/// An execution's name, or that of one of its steps.
pub(crate) fn execution_or_step(field: &str, parent: &str) -> Result<(ExecutionName, Option<String>), Status> {
    match parent.contains("/steps/") {
        true => step_name(field, parent).map(|(name, step)| (name, Some(step))),
        false => Ok((ExecutionName::parse(field, parent)?, None)),
    }
}

/// The namespace in `namespaces/*`.
pub(crate) fn namespace(field: &str, parent: &str) -> Result<String, Status> {
    match parent.strip_prefix("namespaces/") {
        _ if parent.is_empty() => {
            let message = "is required: use namespaces/NAMESPACE, such as namespaces/default";
            Err(status::invalid(field, message).into())
        }
        Some(namespace) if is_id(namespace) => Ok(namespace.into()),
        _ => Err(status::invalid(field, format!("`{parent}` is not a namespace: use namespaces/NAMESPACE")).into()),
    }
}

#[cfg(test)]
mod tests {
    use belay_execution::OperationId;
    use belay_plan::{compensation_id, entry_id, limits::MAX_STEP_ID_CHARS};
    use belay_service_kit::names::CallName;

    use super::*;
    use crate::wire::call_name;

    #[test]
    fn a_name_comes_back_as_it_was_and_others_are_refused() {
        let name = "namespaces/default/executions/a-1";
        assert_eq!(ExecutionName::parse("name", name).unwrap().to_string(), name);
        for bad in [
            "",
            "a",
            "executions/a",
            "namespaces/default/executions/",
            "namespaces/D/executions/a",
            "namespaces/d/executions/a/b",
        ] {
            let status = ExecutionName::parse("name", bad).unwrap_err();
            assert!(status.message().starts_with("name: "), "{status}");
        }
        let (execution, step) = step_name("name", &format!("{name}/steps/a.b")).unwrap();
        assert_eq!((execution.to_string().as_str(), step.as_str()), (name, "a.b"));
        for bad in ["", name, "steps/a", &format!("{name}/steps/"), &format!("{name}/steps/a/calls/1.1")] {
            assert!(step_name("name", bad).unwrap_err().message().starts_with("name: "), "{bad}");
        }
        let missing = namespace("parent", "").unwrap_err();
        assert!(missing.message().starts_with("parent: is required"), "{missing}");
        assert_eq!(namespace("parent", "namespaces/x").unwrap(), "x");
        assert!(namespace("parent", "x").is_err());
    }

    // The gate and the tool runner check the names of calls with the rules of service-kit, which cannot import those of plans.
    #[test]
    fn other_services_accept_the_call_names_of_every_step_and_no_others() {
        let parse = |step: &str| {
            let call = OperationId { step: step.into(), attempt: 1, number: 1 };
            CallName::parse("call", &call_name("namespaces/n/executions/e", &call))
        };
        let longest = "s".repeat(MAX_STEP_ID_CHARS);
        for planned in ["a", "0", "Build.it_2-x", &longest] {
            let entry = entry_id(planned, 9_999);
            for step in [planned, &entry, &entry_id(planned, 0), &compensation_id(planned), &compensation_id(&entry)] {
                assert_eq!(parse(step).unwrap().step, step);
            }
        }
        let too_long = "s".repeat(MAX_STEP_ID_CHARS + 1);
        for step in [&too_long, &entry_id(&too_long, 0), &compensation_id(""), &(entry_id("a", 0) + "x")] {
            assert!(parse(step).is_err(), "{step}");
        }
    }

    #[test]
    fn shards_are_in_range_and_stay_what_they_are() {
        assert_eq!(shard_of("default", "a"), shard_of("default", "a"));
        let used: std::collections::BTreeSet<u32> = (0..2000).map(|n| shard_of("default", &n.to_string())).collect();
        assert_eq!(used, (0..SHARDS).collect());
    }
}

//! The request of a call, and the command that follows from it.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use belay_network::{Profile, Secret};
use belay_proto::v1::TraceContext;
use belay_sandbox::{Dialogue, Spec, WorkspaceMount};
use serde::Deserialize;

use super::{ending, network::NetworkOfCall};
use crate::{CommandSettings, Mount, ToolFailure, subject, tools::files::path};

#[derive(Deserialize)]
pub(super) struct Arguments {
    pub(super) command: Vec<String>,
    pub(super) cwd: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) check: Option<bool>,
}

/// The variable with the context in which the plan was asked for.
const CONTEXT: &str = "BELAY_CONTEXT";

/// The longest value of it, in bytes: `MAX_ARG_STRLEN` of Linux, without the name, `=` and the NUL at its end.
const MAX_CONTEXT_BYTES: usize = 128 * 1024 - 1 - CONTEXT.len() - 1;

/// What a command has beside its arguments.
#[derive(Default)]
pub(crate) struct Additions {
    /// Files and directories of the host that it sees.
    pub(crate) mounts: Vec<belay_sandbox::Mount>,
    /// Variables that it gets; those of its arguments come after them.
    pub(crate) env: Vec<(String, OsString)>,
    /// The most tokens of models behind base URLs of its network; `None` for no bound.
    pub(crate) max_tokens: Option<u64>,
}

/// The request of a call.
pub(super) struct CommandRequest {
    pub(super) name: String,
    pub(super) arguments: Arguments,
    pub(super) trace: TraceContext,
    pub(super) context: Option<String>,
    pub(super) limit: Duration,
    /// The pipes over which it exchanges messages while it runs.
    pub(super) dialogue: Option<Dialogue>,
    /// Its network profile; `None` for its own loopback alone.
    pub(super) network: Option<Arc<Profile>>,
    /// The credentials whose values the program gets, by name.
    pub(super) reveals: Vec<String>,
    /// What it has beside its arguments.
    pub(super) additions: Additions,
}

/// The command that the sandbox is to run.
pub(super) fn spec(
    asked: CommandRequest,
    mount: Mount,
    settings: &CommandSettings,
    network: Option<&NetworkOfCall>,
    revealed: &[(String, Secret)],
) -> Result<Spec, ToolFailure> {
    let CommandRequest { name, arguments, trace, context, limit, dialogue, additions, .. } = asked;
    let Arguments { command, cwd, env, .. } = arguments;
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let Mount { lower, staging, hidden } = mount;
    let namespace = subject::namespace(&name);
    let workspace = lower.last().map(PathBuf::as_path).unwrap_or(Path::new(""));
    let caches = settings.caches(namespace, workspace).map_err(|error| ending::no_cache(&error))?;
    let mut spec = Spec::new(program, words, WorkspaceMount { lower, staging: Some(staging), hidden });
    spec.common_mounts = settings.toolchains();
    spec.mounts = caches;
    spec.mounts.extend(additions.mounts);
    spec.env.extend(additions.env);
    if let Some(cwd) = cwd {
        spec.cwd = PathBuf::from(path("cwd", &cwd)?.as_ref());
    }
    let trace = [("TRACEPARENT", &trace.traceparent), ("TRACESTATE", &trace.tracestate)];
    let of_trace = trace.into_iter().filter(|(_, value)| !value.is_empty());
    spec.env.extend(of_trace.map(|(name, value)| (name.to_owned(), value.into())));
    // A longer one has no place in an environment.
    if let Some(context) = context.filter(|context| context.len() <= MAX_CONTEXT_BYTES) {
        spec.env.push((CONTEXT.to_owned(), context.into()));
    }
    spec.env.extend(env.into_iter().map(|(name, value)| (name, value.into())));
    // After those of the call, which the operator's word overrides.
    let value = |secret: &Secret| OsString::from_vec(secret.expose().to_vec());
    spec.env.extend(revealed.iter().map(|(name, secret)| (name.clone(), value(secret))));
    spec.timeout = Some(limit);
    spec.dialogue = dialogue;
    spec.outputs = true;
    if let Some(network) = network {
        spec.mounts.extend(network.mounts());
        let mut network = network.command(|file| Path::new(file).is_file());
        network.env.retain(|(name, _)| revealed.iter().all(|(known, _)| known != name));
        spec.network = Some(network);
    }
    Ok(spec)
}

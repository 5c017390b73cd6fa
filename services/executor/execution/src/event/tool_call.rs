//! Calls of tools: their requests and ends.

use belay_plan::{CheckPlace, asks_model, is_own_tool};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Amounts, ChangeKind, EffectSummary, Failure, NamespaceHold, Payload, PolicyDecision, StepId};

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolCallEnd {
    /// With a result.
    Completed {
        /// The result.
        result: Payload,
        /// The receipt of the runner.
        receipt: Box<Receipt>,
    },
    /// With a failure.
    Failed {
        /// The failure.
        failure: Failure,
        /// The receipt of the runner.
        receipt: Box<Receipt>,
    },
    /// A policy or a person denied it; nothing of it is left.
    Denied {
        /// The failure: who denied the call, and why.
        failure: Failure,
        /// The receipt of the runner.
        receipt: Box<Receipt>,
    },
    /// It was cancelled and left no changes.
    Cancelled {
        /// Why, when the executor did not request it.
        failure: Option<Failure>,
        /// The nonce of the grant that was spent on it nevertheless; empty when none was.
        grant_nonce: String,
    },
    /// Its outcome cannot be known.
    OutcomeUnknown {
        /// The facts that are known about the call.
        failure: Failure,
        /// The nonce of the grant that was spent on it; empty when none was.
        grant_nonce: String,
        /// The use of the network profile that its command had, as far as it is known; `None` for its own loopback alone.
        network: Option<Box<NetworkUse>>,
    },
}

impl ToolCallEnd {
    /// How many bytes it returned.
    pub fn output_bytes(&self) -> u64 {
        match self {
            Self::Completed { receipt, .. } | Self::Failed { receipt, .. } | Self::Denied { receipt, .. } => {
                receipt.output_bytes
            }
            Self::Cancelled { .. } | Self::OutcomeUnknown { .. } => 0,
        }
    }

    /// What a model's server has counted; `None` for the call of a tool, and where nobody knows.
    pub fn usage(&self) -> Option<ModelUsage> {
        match self {
            Self::Completed { receipt, .. } | Self::Failed { receipt, .. } | Self::Denied { receipt, .. } => {
                receipt.usage
            }
            Self::Cancelled { .. } | Self::OutcomeUnknown { .. } => None,
        }
    }

    /// The amounts that a call of this tool has used: of a model's what its server has counted, and all that was held for it where nobody knows.
    pub fn used(&self, tool: &str, held: Amounts) -> Amounts {
        if !is_own_tool(tool) {
            return Amounts { calls: 1, output_bytes: self.output_bytes(), ..Amounts::default() };
        }
        match self.usage() {
            Some(usage) => Amounts {
                tokens: usage.tokens(),
                cost_micros: usage.cost_micros.unwrap_or_default(),
                ..Amounts::default()
            },
            None if asks_model(tool) => {
                Amounts { tokens: held.tokens, cost_micros: held.cost_micros, ..Amounts::default() }
            }
            None => Amounts::default(),
        }
    }

    /// The nonce of the grant that was spent on the call; empty when none was.
    pub fn grant_nonce(&self) -> &str {
        match self {
            Self::Completed { receipt, .. } | Self::Failed { receipt, .. } | Self::Denied { receipt, .. } => {
                &receipt.grant_nonce
            }
            Self::Cancelled { grant_nonce, .. } | Self::OutcomeUnknown { grant_nonce, .. } => grant_nonce,
        }
    }
}

/// The tokens of a model's request and its answer, as its server has counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Those of the prompt, the cached ones included.
    pub input_tokens: u64,
    /// Those of the prompt that the server had in its cache.
    pub cached_input_tokens: u64,
    /// Those of the answer, its reasoning included.
    pub output_tokens: u64,
    /// Those of the answer in which the model thought, where the server counts them.
    pub reasoning_tokens: u64,
    /// What it cost by the settings, in millionths of a US dollar; `None` where no price is known.
    pub cost_micros: Option<u64>,
}

impl ModelUsage {
    /// All tokens of the request and its answer.
    pub fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// The intent to make a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCallRequest {
    /// The tool's canonical name.
    pub tool: String,
    /// The arguments, templates resolved, canonical.
    pub arguments: Payload,
    /// The digest of the arguments.
    pub arguments_digest: String,
    /// The ledger that is expected to record the call.
    pub ledger_id: String,
    /// The time limit of the call.
    pub timeout: Duration,
    /// The check that takes the call; `None` for the step's own.
    pub check: Option<CheckPlace>,
    /// The amounts that are held for it of the budgets of its step and its plan, of units that they limit.
    pub held: Amounts,
    /// Its place among the calls of a step that have one effect; `None` for any other call.
    pub layers: Option<StepLayers>,
    /// The hold of the call on the budget of its namespace; `None` when that has none.
    pub namespace_hold: Option<NamespaceHold>,
}

/// The place of a call among those of a step that have one effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLayers {
    /// The step of the plan.
    pub step: StepId,
    /// The attempt at that step.
    pub round: u32,
    /// The layers that the call begins with ([`Receipt::layer`]), in the order in which they were kept.
    pub begin_with: Vec<String>,
    /// Whose layer it leaves, by its position among the calls; `None` for the call that commits.
    pub entry: Option<u32>,
    /// The layers of another execution that it takes over: it begins with them, and all that they change is part of its own layer.
    pub carried: Option<CarriedLayers>,
}

/// The changes that the calls of a step have made in another execution, where they were not committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedLayers {
    /// The name of that execution.
    pub execution: String,
    /// The attempt at the step there.
    pub round: u32,
    /// The layers ([`Receipt::layer`]), in the order in which they were kept.
    pub layers: Vec<String>,
}

/// A runner's receipt for a finished call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The ledger that records the call.
    pub ledger_id: String,
    /// How long the tool ran.
    pub duration: Duration,
    /// The policy decision that allowed it.
    pub decision: Option<PolicyDecision>,
    /// The digest of what it changed and committed; empty when it changed nothing.
    pub effect_digest: String,
    /// The tokens that it has used of a model; `None` for a call that asks none, and where nobody has counted.
    pub usage: Option<ModelUsage>,
    /// The bytes of its result as JSON, or of the output of a call that failed as far as that is kept.
    pub output_bytes: u64,
    /// The changes that it committed.
    pub effect: Option<EffectSummary>,
    /// The nonce of the grant that was spent on it; empty when none was needed.
    pub grant_nonce: String,
    /// The sandbox layers that were active, by name.
    pub enforced: Vec<String>,
    /// Whether the workspace is a directory in which people work as well.
    pub live_base: bool,
    /// The last of the calls that committed in the workspace while this one ran.
    pub concurrent_commits: Vec<String>,
    /// The number of those commits.
    pub concurrent_commit_count: i64,
    /// The special files that the call left and that were not committed, the first of them only.
    pub left_out: Vec<String>,
    /// How many those were.
    pub left_out_count: i64,
    /// The bounds on what it could write.
    pub write_bounds: Vec<WriteBound>,
    /// The paths that it committed, up to a limit.
    pub files: Vec<CommittedFile>,
    /// How many entries it committed that are not in `files`.
    pub unlisted_files: u64,
    /// The layer that has what it changed, when that is committed with the effect of its step; empty otherwise.
    pub layer: String,
    /// The intent that the policy judged before the call ran; `None` when its arguments name nothing that a policy sees.
    pub intent: Option<CallIntent>,
    /// The use of the network profile that its command had; `None` for its own loopback alone.
    pub network: Option<NetworkUse>,
}

/// The use that a command made of its network profile, as the runner's proxy saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkUse {
    /// The profile's name.
    pub profile: String,
    /// Its connections and its questions to the name server, in their order.
    pub connections: Vec<NetworkConnection>,
    /// The number of connections and questions beyond these.
    pub unlisted: u64,
    /// The number of refused ones, listed or not.
    pub refused: u64,
    /// Whether the connection to the proxy was lost, so that not all of them are known.
    pub is_lost: bool,
    /// The credentials that its requests carried.
    pub credentials: Vec<CredentialUse>,
}

/// The use of a credential: requests to a host that carried its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialUse {
    /// Its name.
    pub credential: String,
    /// The host to which the value went.
    pub host: String,
    /// The number of requests.
    pub requests: u64,
}

/// A connection of a command to a host, or its question for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConnection {
    /// The host as it was asked for.
    pub host: String,
    /// The port; 0 for a question to the name server.
    pub port: u16,
    /// The route by which it was asked for.
    pub route: NetworkRoute,
    /// Whether the profile allowed it.
    pub is_allowed: bool,
    /// The rule that allowed it, or the sentence with which it was refused.
    pub rule: String,
    /// The bytes that the command sent.
    pub sent: u64,
    /// The bytes that it received.
    pub received: u64,
    /// The time for which it was open.
    pub duration: Duration,
    /// The reason why an allowed host was not reached; empty for one that was, and for what was refused.
    pub failure: String,
}

/// The route by which a command asks for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkRoute {
    /// The HTTP proxy that its environment names.
    Proxy,
    /// The address that the name server gave.
    Address,
    /// A question to the name server.
    NameServer,
    /// A service of the runner's machine.
    Service,
    /// A base URL that its environment names.
    BaseUrl,
}

/// The intent of a call, as a policy sees it before the call runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallIntent {
    /// The argument vector of a command; empty for other tools.
    pub command: Vec<String>,
    /// The name of the program that the command starts, when it lies on the `PATH` outside the workspace; empty for any other program.
    pub program: String,
    /// The directory in which the command runs, relative to the workspace; empty for its root.
    pub working_directory: String,
    /// The names of the environment variables that the call sets.
    pub environment: Vec<String>,
    /// The paths that the arguments name.
    pub paths: Vec<String>,
    /// Whether some of it is left out, because it is too long.
    pub is_cut: bool,
    /// The hosts of the network profile that the call asked for.
    pub hosts: Vec<String>,
    /// The network profile that the call asked for; empty for its own loopback alone.
    pub network: String,
    /// The names of the credentials that it would use.
    pub credentials: Vec<String>,
}

/// The change of a call to one path, as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedFile {
    /// The path, relative to the workspace.
    pub path: String,
    /// How it changed.
    pub change: ChangeKind,
    /// The type of the entry; its former type, when it was deleted.
    pub file_type: FileType,
    /// The digest of a regular file's content; empty for everything else, and when it was deleted.
    pub digest: String,
    /// The size of that content.
    pub size: u64,
    /// The permission bits; 0 when it was deleted.
    pub mode: u32,
    /// The digest of the regular file that was there before; empty when there was none.
    pub previous_digest: String,
}

/// The type of the entry at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something else, or not said.
    Other,
}

/// A bound on what a call could write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBound {
    /// The place that is bounded.
    pub place: String,
    /// The mechanism that enforced the bound.
    pub mechanism: WriteMechanism,
    /// Bytes; 0 means relative to the disk.
    pub bytes: i64,
    /// Files, folders and links; 0 means relative to the disk.
    pub files: i64,
}

/// The mechanism that enforces a bound on what a call writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMechanism {
    /// Not said, or by a runner of a later version.
    Unknown,
    /// The size of a file system in memory.
    Tmpfs,
    /// A launcher that measures and ends.
    Watcher,
}

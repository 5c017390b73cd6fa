//! Approvals, policy decisions, effects and receipts.

use belay_execution::{
    ApprovalRequirement, CallIntent, CarriedLayers, ChangeKind, CommittedFile, CredentialUse, Decision, EffectSummary,
    FileType, ModelUsage, NetworkConnection, NetworkRoute, NetworkUse, PathChange, PolicyDecision, Receipt, Risk,
    StepLayers, SubjectKind, Verdict, WriteBound, WriteMechanism,
};
use belay_proto::v1::{
    self, approval::State, approval_need::Kind, committed_file::Type, network_connection::Route,
    path_change::Kind as Change, policy_decision::Verdict as WireVerdict, write_bound,
};

use super::{NotUnderstood, known};

fn count(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn uncount(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

pub(crate) fn requirement_to(requirement: &ApprovalRequirement) -> v1::ApprovalNeed {
    let kind = match requirement.kind {
        SubjectKind::Call => Kind::Call,
        SubjectKind::Effect => Kind::Effect,
    };
    v1::ApprovalNeed {
        kind: kind.into(),
        subject_digest: requirement.subject_digest.clone(),
        decision: Some(policy_to(&requirement.decision)),
        effect: Some(effect_to(&requirement.effect)),
        allowing_rules: requirement.allowing_rules.clone(),
        risk: match requirement.risk {
            Risk::Low => v1::Risk::Low,
            Risk::Medium => v1::Risk::Medium,
            Risk::High => v1::Risk::High,
        }
        .into(),
    }
}

/// `kind` follows from the event that carries the requirement.
pub(crate) fn requirement_from(
    need: v1::ApprovalNeed,
    kind: SubjectKind,
) -> Result<ApprovalRequirement, NotUnderstood> {
    Ok(ApprovalRequirement {
        kind,
        subject_digest: need.subject_digest,
        decision: policy_from(need.decision.unwrap_or_default())?,
        effect: effect_from(need.effect.unwrap_or_default())?,
        allowing_rules: need.allowing_rules,
        risk: match known(need.risk, "the risk of a call")? {
            v1::Risk::Low => Risk::Low,
            v1::Risk::Medium => Risk::Medium,
            // What is not known is taken for the worst.
            v1::Risk::High | v1::Risk::Unspecified => Risk::High,
        },
    })
}

/// The subject of a runner's requirement.
pub(crate) fn subject_kind(need: &v1::ApprovalNeed) -> Result<SubjectKind, NotUnderstood> {
    let what = "the subject of an approval";
    match known(need.kind, what)? {
        Kind::Call => Ok(SubjectKind::Call),
        Kind::Effect => Ok(SubjectKind::Effect),
        // No call needs an answer.
        Kind::Form | Kind::Unspecified => Err(NotUnderstood::Missing(what)),
    }
}

/// Checks that this version knows the state of a gate's approval.
pub(crate) fn check_approval(approval: &v1::Approval) -> Result<(), NotUnderstood> {
    let what = "the state of an approval";
    match known(approval.state, what)? {
        State::Unspecified => Err(NotUnderstood::Missing(what)),
        State::Pending
        | State::Approved
        | State::Denied
        | State::Skipped
        | State::Expired
        | State::Cancelled
        | State::Consumed
        | State::Stale
        | State::Answered => Ok(()),
    }
}

pub(crate) fn decision_to(decision: Decision) -> v1::Decision {
    match decision {
        Decision::Approved => v1::Decision::Approve,
        Decision::Denied => v1::Decision::Deny,
        Decision::Skipped => v1::Decision::Skip,
        Decision::Expired => v1::Decision::Expire,
    }
}

/// The decision of an event; `None` for one that this version does not know.
pub(crate) fn decided_from(decision: v1::Decision) -> Option<Decision> {
    match decision {
        v1::Decision::Unspecified => None,
        v1::Decision::Approve => Some(Decision::Approved),
        v1::Decision::Deny => Some(Decision::Denied),
        v1::Decision::Skip => Some(Decision::Skipped),
        v1::Decision::Expire => Some(Decision::Expired),
    }
}

/// The decision of an approval in this state; `None` while it is pending, and for a form that was answered, which is no decision. One that can no longer be decided or used counts as expired. A
/// consumed one was approved; the runner knows the outcome.
pub(crate) fn decision_from(state: State) -> Option<Decision> {
    match state {
        State::Unspecified | State::Pending | State::Answered => None,
        State::Approved | State::Consumed => Some(Decision::Approved),
        State::Denied => Some(Decision::Denied),
        State::Skipped => Some(Decision::Skipped),
        State::Expired | State::Cancelled | State::Stale => Some(Decision::Expired),
    }
}

/// Whether it still waits for a person.
pub(crate) fn is_pending(state: State) -> bool {
    match state {
        State::Unspecified | State::Pending => true,
        State::Approved
        | State::Denied
        | State::Skipped
        | State::Expired
        | State::Cancelled
        | State::Consumed
        | State::Stale
        | State::Answered => false,
    }
}

pub(crate) fn receipt_to(receipt: &Receipt) -> v1::Receipt {
    v1::Receipt {
        ledger_id: receipt.ledger_id.clone(),
        duration: Some(belay_proto::duration(receipt.duration)),
        decision: receipt.decision.as_ref().map(policy_to),
        effect_digest: receipt.effect_digest.clone(),
        effect: receipt.effect.as_ref().map(effect_to),
        grant_nonce: receipt.grant_nonce.clone(),
        enforced: receipt.enforced.clone(),
        live_base: receipt.live_base,
        concurrent_commits: receipt.concurrent_commits.clone(),
        concurrent_commit_count: receipt.concurrent_commit_count,
        left_out: receipt.left_out.clone(),
        left_out_count: receipt.left_out_count,
        write_bounds: receipt.write_bounds.iter().map(write_bound_to).collect(),
        files: receipt.files.iter().map(file_to).collect(),
        unlisted_file_count: i64::try_from(receipt.unlisted_files).unwrap_or(i64::MAX),
        layer: receipt.layer.clone(),
        output_bytes: i64::try_from(receipt.output_bytes).unwrap_or(i64::MAX),
        intent: receipt.intent.clone().map(intent_to),
        network: receipt.network.as_ref().map(network_to),
        usage: receipt.usage.map(usage_to),
    }
}

/// The tokens that were used of a model.
pub(crate) fn usage_to(usage: ModelUsage) -> v1::ModelUsage {
    let amount = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    v1::ModelUsage {
        input_tokens: amount(usage.input_tokens),
        cached_input_tokens: amount(usage.cached_input_tokens),
        output_tokens: amount(usage.output_tokens),
        reasoning_tokens: amount(usage.reasoning_tokens),
        cost_micros: usage.cost_micros.map(amount),
    }
}

fn usage_from(usage: v1::ModelUsage) -> ModelUsage {
    let amount = |number: i64| u64::try_from(number).unwrap_or(0);
    ModelUsage {
        input_tokens: amount(usage.input_tokens),
        cached_input_tokens: amount(usage.cached_input_tokens),
        output_tokens: amount(usage.output_tokens),
        reasoning_tokens: amount(usage.reasoning_tokens),
        cost_micros: usage.cost_micros.map(amount),
    }
}

fn intent_to(intent: CallIntent) -> v1::CallIntent {
    let CallIntent { command, program, working_directory, environment, paths, is_cut, hosts, network, credentials } =
        intent;
    v1::CallIntent { command, program, working_directory, environment, paths, is_cut, hosts, network, credentials }
}

fn intent_from(intent: v1::CallIntent) -> CallIntent {
    let v1::CallIntent { command, program, working_directory, environment, paths, is_cut, hosts, network, credentials } =
        intent;
    CallIntent { command, program, working_directory, environment, paths, is_cut, hosts, network, credentials }
}

/// The use of a network profile.
pub(crate) fn network_to(network: &NetworkUse) -> v1::NetworkUse {
    let amount = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let connection = |connection: &NetworkConnection| v1::NetworkConnection {
        host: connection.host.clone(),
        port: connection.port.into(),
        route: match connection.route {
            NetworkRoute::Proxy => Route::Proxy,
            NetworkRoute::Address => Route::Address,
            NetworkRoute::NameServer => Route::NameServer,
            NetworkRoute::Service => Route::Service,
            NetworkRoute::BaseUrl => Route::BaseUrl,
        }
        .into(),
        is_allowed: connection.is_allowed,
        rule: connection.rule.clone(),
        sent_bytes: amount(connection.sent),
        received_bytes: amount(connection.received),
        duration: Some(belay_proto::duration(connection.duration)),
        failure: connection.failure.clone(),
    };
    let credential = |used: &CredentialUse| v1::CredentialUse {
        credential: used.credential.clone(),
        host: used.host.clone(),
        request_count: amount(used.requests),
    };
    v1::NetworkUse {
        profile: network.profile.clone(),
        connections: network.connections.iter().map(connection).collect(),
        unlisted_connection_count: amount(network.unlisted),
        refused_count: amount(network.refused),
        is_lost: network.is_lost,
        credentials: network.credentials.iter().map(credential).collect(),
    }
}

/// Reads it.
///
/// # Errors
/// When it names a way that this version does not know.
pub(crate) fn network_from(network: v1::NetworkUse) -> Result<NetworkUse, NotUnderstood> {
    let amount = |number: i64| u64::try_from(number).unwrap_or(0);
    let connection = |connection: v1::NetworkConnection| {
        let what = "the way to a host";
        let route = match known(connection.route, what)? {
            Route::Unspecified => return Err(NotUnderstood::Missing(what)),
            Route::Proxy => NetworkRoute::Proxy,
            Route::Address => NetworkRoute::Address,
            Route::NameServer => NetworkRoute::NameServer,
            Route::Service => NetworkRoute::Service,
            Route::BaseUrl => NetworkRoute::BaseUrl,
        };
        Ok(NetworkConnection {
            host: connection.host,
            port: u16::try_from(connection.port).unwrap_or(0),
            route,
            is_allowed: connection.is_allowed,
            rule: connection.rule,
            sent: amount(connection.sent_bytes),
            received: amount(connection.received_bytes),
            duration: connection.duration.as_ref().and_then(belay_proto::to_duration).unwrap_or_default(),
            failure: connection.failure,
        })
    };
    let credential = |used: v1::CredentialUse| CredentialUse {
        credential: used.credential,
        host: used.host,
        requests: amount(used.request_count),
    };
    Ok(NetworkUse {
        profile: network.profile,
        connections: network.connections.into_iter().map(connection).collect::<Result<_, _>>()?,
        unlisted: amount(network.unlisted_connection_count),
        refused: amount(network.refused_count),
        is_lost: network.is_lost,
        credentials: network.credentials.into_iter().map(credential).collect(),
    })
}

fn write_bound_to(bound: &WriteBound) -> v1::WriteBound {
    let mechanism = match bound.mechanism {
        WriteMechanism::Unknown => write_bound::Mechanism::Unspecified,
        WriteMechanism::Tmpfs => write_bound::Mechanism::Tmpfs,
        WriteMechanism::Watcher => write_bound::Mechanism::Watcher,
    };
    let WriteBound { place, bytes, files, .. } = bound.clone();
    v1::WriteBound { place, mechanism: mechanism.into(), bytes, files }
}

fn write_bound_from(bound: v1::WriteBound) -> Result<WriteBound, NotUnderstood> {
    let mechanism = match known(bound.mechanism, "what enforces a bound on writing")? {
        write_bound::Mechanism::Unspecified => WriteMechanism::Unknown,
        write_bound::Mechanism::Tmpfs => WriteMechanism::Tmpfs,
        write_bound::Mechanism::Watcher => WriteMechanism::Watcher,
    };
    let v1::WriteBound { place, bytes, files, .. } = bound;
    Ok(WriteBound { place, mechanism, bytes, files })
}

/// The place of a call among those of its step.
pub(crate) fn layers_to(layers: &StepLayers) -> v1::StepLayers {
    v1::StepLayers {
        step: layers.step.to_string(),
        round: i32::try_from(layers.round).unwrap_or(i32::MAX),
        layers: layers.begin_with.clone(),
        entry: layers.entry.map(|entry| entry.to_string()).unwrap_or_default(),
        carried: layers.carried.as_ref().map(carried_to),
    }
}

/// Reads it.
///
/// # Errors
/// When the entry is no position.
pub(crate) fn layers_from(layers: v1::StepLayers) -> Result<StepLayers, NotUnderstood> {
    let v1::StepLayers { step, round, layers: begin_with, entry, carried } = layers;
    let entry = match entry.as_str() {
        "" => None,
        entry => Some(entry.parse().map_err(|_| NotUnderstood::Missing("the entry of a step's layers"))?),
    };
    let carried = carried.map(carried_from);
    Ok(StepLayers { step: step.into(), round: u32::try_from(round).unwrap_or(0), begin_with, entry, carried })
}

/// What the calls of a step have changed in another execution.
pub(super) fn carried_to(carried: &CarriedLayers) -> v1::CarriedLayers {
    v1::CarriedLayers {
        execution: carried.execution.clone(),
        round: i32::try_from(carried.round).unwrap_or(i32::MAX),
        layers: carried.layers.clone(),
    }
}

/// Reads it.
pub(super) fn carried_from(carried: v1::CarriedLayers) -> CarriedLayers {
    let v1::CarriedLayers { execution, round, layers } = carried;
    CarriedLayers { execution, round: u32::try_from(round).unwrap_or(0), layers }
}

pub(crate) fn receipt_from(receipt: v1::Receipt) -> Result<Receipt, NotUnderstood> {
    Ok(Receipt {
        ledger_id: receipt.ledger_id,
        duration: receipt.duration.as_ref().and_then(belay_proto::to_duration).unwrap_or_default(),
        decision: receipt.decision.map(policy_from).transpose()?,
        effect_digest: receipt.effect_digest,
        effect: receipt.effect.map(effect_from).transpose()?,
        grant_nonce: receipt.grant_nonce,
        enforced: receipt.enforced,
        live_base: receipt.live_base,
        concurrent_commits: receipt.concurrent_commits,
        concurrent_commit_count: receipt.concurrent_commit_count,
        left_out: receipt.left_out,
        left_out_count: receipt.left_out_count,
        write_bounds: receipt.write_bounds.into_iter().map(write_bound_from).collect::<Result<_, _>>()?,
        files: receipt.files.into_iter().map(file_from).collect::<Result<_, _>>()?,
        unlisted_files: u64::try_from(receipt.unlisted_file_count).unwrap_or(0),
        layer: receipt.layer,
        output_bytes: u64::try_from(receipt.output_bytes).unwrap_or(0),
        intent: receipt.intent.map(intent_from),
        network: receipt.network.map(network_from).transpose()?,
        usage: receipt.usage.map(usage_from),
    })
}

fn file_to(file: &CommittedFile) -> v1::CommittedFile {
    let CommittedFile { path, change, file_type, digest, size, mode, previous_digest } = file.clone();
    v1::CommittedFile {
        path,
        change: change_to(change).into(),
        file_type: file_type_to(file_type).into(),
        digest,
        size_bytes: i64::try_from(size).unwrap_or(i64::MAX),
        mode: i32::try_from(mode).unwrap_or_default(),
        previous_digest,
    }
}

fn file_from(file: v1::CommittedFile) -> Result<CommittedFile, NotUnderstood> {
    let file_type = match known(file.file_type, "what is at a committed path")? {
        Type::File => FileType::File,
        Type::Directory => FileType::Directory,
        Type::Symlink => FileType::Symlink,
        Type::Unspecified => FileType::Other,
    };
    let change = change_from(file.change)?;
    let v1::CommittedFile { path, digest, size_bytes, mode, previous_digest, .. } = file;
    let (size, mode) = (u64::try_from(size_bytes).unwrap_or(0), u32::try_from(mode).unwrap_or(0));
    Ok(CommittedFile { path, change, file_type, digest, size, mode, previous_digest })
}

pub(crate) fn file_type_to(file_type: FileType) -> Type {
    match file_type {
        FileType::File => Type::File,
        FileType::Directory => Type::Directory,
        FileType::Symlink => Type::Symlink,
        FileType::Other => Type::Unspecified,
    }
}

pub(crate) fn change_to(change: ChangeKind) -> Change {
    match change {
        ChangeKind::Created => Change::Created,
        ChangeKind::Modified => Change::Modified,
        ChangeKind::Deleted => Change::Deleted,
    }
}

fn change_from(change: i32) -> Result<ChangeKind, NotUnderstood> {
    Ok(match known(change, "the kind of a change")? {
        Change::Created => ChangeKind::Created,
        Change::Deleted => ChangeKind::Deleted,
        Change::Modified | Change::Unspecified => ChangeKind::Modified,
    })
}

pub(super) fn policy_to(decision: &PolicyDecision) -> v1::PolicyDecision {
    let verdict = match decision.verdict {
        Verdict::Auto => WireVerdict::Auto,
        Verdict::Preview => WireVerdict::Preview,
        Verdict::Prompt => WireVerdict::Prompt,
        Verdict::Deny => WireVerdict::Deny,
    };
    v1::PolicyDecision {
        verdict: verdict.into(),
        rule: decision.rule.clone(),
        reason: decision.reason.clone(),
        policy_revision: decision.policy_revision,
    }
}

fn policy_from(decision: v1::PolicyDecision) -> Result<PolicyDecision, NotUnderstood> {
    let verdict = match known(decision.verdict, "the verdict of a policy")? {
        WireVerdict::Auto => Verdict::Auto,
        WireVerdict::Preview => Verdict::Preview,
        WireVerdict::Prompt => Verdict::Prompt,
        // An unset verdict is treated as the strictest.
        WireVerdict::Deny | WireVerdict::Unspecified => Verdict::Deny,
    };
    let v1::PolicyDecision { rule, reason, policy_revision, .. } = decision;
    Ok(PolicyDecision { verdict, rule, reason, policy_revision })
}

fn effect_to(effect: &EffectSummary) -> v1::EffectSummary {
    // The runner lists the first of an effect's changes, in their order.
    let change = |(change, index): (&PathChange, i32)| v1::PathChange {
        path: change.path.clone(),
        kind: change_to(change.kind).into(),
        flags: change.flags.clone(),
        index,
    };
    v1::EffectSummary {
        created: count(effect.created),
        modified: count(effect.modified),
        deleted: count(effect.deleted),
        changes: effect.changes.iter().zip(0..).map(change).collect(),
    }
}

fn effect_from(effect: v1::EffectSummary) -> Result<EffectSummary, NotUnderstood> {
    let change = |change: v1::PathChange| {
        let kind = change_from(change.kind)?;
        Ok(PathChange { path: change.path, kind, flags: change.flags })
    };
    Ok(EffectSummary {
        created: uncount(effect.created),
        modified: uncount(effect.modified),
        deleted: uncount(effect.deleted),
        changes: effect.changes.into_iter().map(change).collect::<Result<_, _>>()?,
    })
}

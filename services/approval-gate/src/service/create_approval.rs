use belay_grant::{Gravity, Kind, Risk, Subject, digest_of};
use belay_policy::{NonInteractive, Policy};
use belay_proto::{
    gate_v1,
    v1::{self, Approval, approval::State},
};
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_telemetry::TraceContext;
use tonic::{Code, Status};

use crate::{
    Gate,
    decide::{self, POLICY},
    form::Form,
    gate::{no_approval, unreadable, unwritable},
    names::{CallName, approval_of, namespace_of},
    preview::{self, preview, shown},
    store::{ApprovalContent, NewApproval},
};

/// The maximum length of `requested_by`, in characters.
const MAX_PRINCIPAL_CHARS: usize = 256;

/// The maximum length of `request_reason`, in characters: that of a step's description.
const MAX_REASON_CHARS: usize = 4096;

pub(super) async fn create_approval(
    gate: &Gate,
    request: gate_v1::CreateApprovalRequest,
    trace: Option<TraceContext>,
) -> Result<Approval, Status> {
    let call = CallName::parse("call", &request.call)?;
    check_digest(&request.subject_digest)?;
    if request.requested_by.chars().count() > MAX_PRINCIPAL_CHARS {
        return Err(status::invalid("requested_by", format!("has more than {MAX_PRINCIPAL_CHARS} characters")).into());
    }
    let said = request.request_reason.chars().count();
    if said > MAX_REASON_CHARS {
        let message = format!("has {said} characters and the limit is {MAX_REASON_CHARS}: shorten it");
        return Err(status::invalid("request_reason", message).into());
    }
    gate.expire_due().await?;
    let name = approval_of(&call.namespace, &request.call, &request.subject_digest);
    if let Some(there) = gate.store.get(&name).await.map_err(|error| unreadable(&error))? {
        let there = the_same(there, &request)?;
        let asks_again = match (there.kind(), there.state()) {
            (_, State::Answered) => is_answer_lost(gate, &there).await?,
            // The executor has lost with its journal that it had cancelled the form.
            (v1::approval_need::Kind::Form, State::Cancelled) => true,
            _ => false,
        };
        let revision = asks_again.then_some(there.revision);
        let attached = gate.store.attach(&name, request.fencing_token, revision).await;
        let attached = attached.map_err(|error| unwritable(&error))??.ok_or_else(|| no_approval(&name))?;
        if asks_again && attached.state() == State::Pending {
            tracing::warn!(
                approval = name,
                "The executor asks for a form whose end it has lost; a person is asked again"
            );
        }
        return Ok(attached);
    }

    if request.approval_mode() != v1::ApprovalMode::Auto {
        gate.approvals.check(gate.store.count_open().await.map_err(|error| unreadable(&error))?)?;
    }
    if !request.form.is_empty() {
        return create_form(gate, request, trace.as_ref(), name, call).await;
    }
    let _taken = gate.previews.take()?;
    let held = gate.runner.held(&request.call).await?;
    let (subject, bytes, contents) = held.verified(&call, &request.subject_digest)?;
    let rendered = subject.clone();
    let redactor = gate.redactor.clone();
    let render = move || {
        let mut preview = preview(&redactor, &rendered, &contents);
        preview::hide_texts(&redactor, &mut preview);
        preview
    };
    let preview = gate.store.work(render).await;
    let mut basic = asked(gate, name, &request, trace.as_ref(), &subject);
    preview::hide_texts(&gate.redactor, &mut basic);
    let rendered = ApprovalContent::Preview(preview);
    let fence = request.fencing_token;
    let new = NewApproval { basic, namespace: call.namespace, fence, subject: bytes, rendered };
    let kept = gate.store.create(new).await.map_err(|error| unwritable(&error))??;
    the_same(kept, &request)
}

/// Creates the request for an answer to a form. Whether a person may answer is not a question of policy: an answer authorizes nothing, so no
/// rule asks for it, it does not expire, and the person who started the execution may give it.
async fn create_form(
    gate: &Gate,
    request: gate_v1::CreateApprovalRequest,
    trace: Option<&TraceContext>,
    name: String,
    call: CallName,
) -> Result<Approval, Status> {
    if digest_of(&request.form) != request.subject_digest {
        return Err(status::invalid("subject_digest", "is not the digest of `form`").into());
    }
    let form = Form::parse(&request.form).map_err(|why| Status::from(status::invalid("form", why)))?;
    let rendered = form.shown(&gate.redactor);
    let mut basic = Approval {
        name,
        state: State::Pending.into(),
        kind: v1::approval_need::Kind::Form.into(),
        execution: call.execution,
        step_id: shown(&call.step),
        call: request.call.clone(),
        operation: form.title.clone(),
        subject_digest: request.subject_digest.clone(),
        requested_by: shown(&request.requested_by),
        create_time: Some(belay_proto::timestamp(gate.clock.now_micros())),
        trace: trace.map(trace_message),
        ..Approval::default()
    };
    preview::hide_texts(&gate.redactor, &mut basic);
    basic.operation.clone_from(&rendered.title);
    let new = NewApproval {
        basic,
        namespace: call.namespace,
        fence: request.fencing_token,
        subject: request.form.clone(),
        rendered: ApprovalContent::Form(rendered),
    };
    let kept = gate.store.create(new).await.map_err(|error| unwritable(&error))??;
    the_same(kept, &request)
}

/// Whether the answer to a form is gone: the executor acknowledged it and asks nevertheless, so it has lost the answer with its journal; or the gate
/// can no longer open it.
async fn is_answer_lost(gate: &Gate, form: &Approval) -> Result<bool, Status> {
    let sealed = gate.store.sealed_answer(&form.name).await.map_err(|error| unreadable(&error))?;
    Ok(sealed.is_none_or(|sealed| gate.answer_key.open(&form.name, &sealed).is_none()))
}

fn trace_message(trace: &TraceContext) -> v1::TraceContext {
    v1::TraceContext { traceparent: trace.traceparent(), tracestate: trace.tracestate().to_owned() }
}

/// Checks that an existing approval is for the same request: names derived from call and digest could collide, and an approval that names
/// another requester is not this one's.
fn the_same(approval: Approval, request: &gate_v1::CreateApprovalRequest) -> Result<Approval, Status> {
    let requested_by = shown(&request.requested_by);
    let what = if (&approval.call, &approval.subject_digest) != (&request.call, &request.subject_digest) {
        "for another call"
    } else if approval.requested_by != requested_by {
        "and names another requester"
    } else {
        return Ok(approval);
    };
    let message = format!("`{}` exists already {what}, so no approval can be created for this request.", approval.name);
    Err(status::error(Code::AlreadyExists, reasons::ALREADY_EXISTS, message).into())
}

/// The initial approval: pending, or decided by the policy when the execution was started without a person and the policy decides then.
fn asked(
    gate: &Gate,
    name: String,
    request: &gate_v1::CreateApprovalRequest,
    trace: Option<&TraceContext>,
    subject: &Subject,
) -> Approval {
    let now = gate.clock.now_micros();
    let active = gate.policy();
    let policy = active.revised.policies.of(namespace_of(&name));
    let expires = policy.approvals_expire_after().map(|after| {
        let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
        belay_proto::timestamp(now.saturating_add(after))
    });
    let kind = match subject.kind {
        Kind::Call => v1::approval_need::Kind::Call,
        Kind::Effect => v1::approval_need::Kind::Effect,
    };
    let decision = v1::PolicyDecision {
        verdict: v1::policy_decision::Verdict::Prompt.into(),
        rule: shown(&subject.rule),
        reason: shown(&subject.reason),
        policy_revision: subject.policy_revision,
    };
    let approval = Approval {
        name,
        state: State::Pending.into(),
        kind: kind.into(),
        execution: subject.execution.clone(),
        step_id: shown(&subject.step),
        call: request.call.clone(),
        tool: shown(&subject.tool),
        operation: preview::operation(subject),
        subject_digest: request.subject_digest.clone(),
        decision: Some(decision),
        effect: (subject.kind == Kind::Effect).then(|| preview::summary(subject)),
        risk: match subject.risk {
            Risk::Low => v1::Risk::Low,
            Risk::Medium => v1::Risk::Medium,
            Risk::High => v1::Risk::High,
        }
        .into(),
        request_reason: request.request_reason.clone(),
        requested_by: shown(&request.requested_by),
        create_time: Some(belay_proto::timestamp(now)),
        trace: trace.map(trace_message),
        ..Approval::default()
    };
    if request.approval_mode() != v1::ApprovalMode::Auto {
        return Approval { expire_time: expires, ..approval };
    }
    let (state, word) = match policy.non_interactive() {
        NonInteractive::Auto => (State::Approved, "auto"),
        NonInteractive::Skip => (State::Skipped, "skip"),
        NonInteractive::Fail => (State::Denied, "fail"),
    };
    // An approval in advance does not cover unexpected changes.
    let grave = preview::gravest(subject).filter(|change| needs_a_person(change.gravity, policy));
    match grave.filter(|_| state == State::Approved) {
        None => decide::resolved(&approval, state, POLICY, &format!("non_interactive_policy: {word}"), now),
        Some(change) => {
            let reason = format!(
                "`{}` is protected or flagged, and non_interactive_policy: auto does not approve such a change. Run with `--approve prompt`, \
                 or add to the policy the rules that the step's failure names, if it names any.",
                shown(&change.path)
            );
            decide::resolved(&approval, State::Denied, POLICY, &reason, now)
        }
    }
}

/// Whether a change requires a person's approval.
fn needs_a_person(gravity: Gravity, policy: &Policy) -> bool {
    match gravity {
        Gravity::Protected => policy.protects(),
        Gravity::Flagged => true,
        Gravity::Deleted | Gravity::Modified | Gravity::Remarkable | Gravity::Created => false,
    }
}

fn check_digest(digest: &str) -> Result<(), Status> {
    let digits = digest.strip_prefix("sha256:").unwrap_or_default();
    let right = digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    match right {
        true => Ok(()),
        false => {
            let message = format!("`{digest}` is not a digest: write `sha256:` and 64 lower-case hexadecimal digits");
            Err(status::invalid("subject_digest", message).into())
        }
    }
}

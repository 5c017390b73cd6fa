use belay_proto::v1::{self, Approval, payload::Content};
use belay_reasons as reasons;
use belay_service_kit::{Principal, status};
use prost::Message as _;
use serde_json::Value;
use tonic::{Code, Status};

use super::decide_approval::MAX_REQUEST_ID_CHARS;
use crate::{
    Gate, decide,
    form::{Form, MAX_ANSWER_BYTES},
    gate::{no_approval, unreadable, unwritable},
    names::check_approval,
    store::RequestId,
};

/// The maximum number of violations of a schema that an error lists.
const MAX_VIOLATIONS: usize = 50;

pub(super) async fn answer_form(
    gate: &Gate,
    by: Principal,
    request: v1::AnswerFormRequest,
) -> Result<Approval, Status> {
    check_approval("name", &request.name)?;
    if request.request_id.chars().count() > MAX_REQUEST_ID_CHARS {
        return Err(status::invalid("request_id", format!("has more than {MAX_REQUEST_ID_CHARS} characters")).into());
    }
    let answer = value_of(request.answer.as_ref())?;
    let form = gate.store.get_full(&request.name).await.map_err(|error| unreadable(&error))?;
    let form = form.ok_or_else(|| no_approval(&request.name))?;
    if form.kind() != v1::approval_need::Kind::Form {
        return Err(decide::Refusal::NoForm.into());
    }
    let corrupt = |why: String| {
        let message = format!("The form `{}` cannot be read: {why}.", request.name);
        Status::from(status::error(Code::DataLoss, reasons::STORE_CORRUPT, message))
    };
    let violations = Form::parse(&form.subject).and_then(|form| form.violations(&answer)).map_err(corrupt)?;
    if !violations.is_empty() {
        return Err(invalid(&violations));
    }
    let request_id = (!request.request_id.is_empty()).then(|| RequestId {
        id: format!("{by} {}", request.request_id),
        digest: gate.answer_key.digest(&[b"AnswerForm ".as_slice(), &request.encode_to_vec()].concat()),
    });
    let sealed = gate.answer_key.seal(&request.name, &answer.to_string(), gate.ids.next_key());
    let (by, digest, now) = (by.to_string(), request.subject_digest, gate.clock.now_micros());
    let answered = gate.store.answer(&request.name, now, request_id, sealed, move |approval| {
        decide::answer(approval, &by, &digest, now).map(Some)
    });
    let approval = answered.await.map_err(|error| unwritable(&error))??.ok_or_else(|| no_approval(&request.name))?;
    tracing::info!(approval = approval.name, by = approval.decided_by, "A form was answered");
    Ok(approval)
}

fn value_of(answer: Option<&v1::Payload>) -> Result<Value, Status> {
    let text = match answer.and_then(|answer| answer.content.as_ref()) {
        None => return Err(status::invalid("answer", "is required: send the answer as `answer.json`").into()),
        Some(Content::Json(text)) => text,
        Some(Content::Blob(_)) => {
            return Err(status::invalid("answer.blob", "cannot be sent: give the answer as `answer.json`").into());
        }
    };
    if text.len() > MAX_ANSWER_BYTES {
        let message = format!("has {} bytes and the limit is {MAX_ANSWER_BYTES}", text.len());
        return Err(status::invalid("answer.json", message).into());
    }
    belay_json::read(text).map_err(|refused| status::invalid("answer.json", refused.to_string()).into())
}

/// Each violation at its JSON pointer below `answer`.
fn invalid(violations: &[belay_json_schema::Violation]) -> Status {
    let named = |violation: &belay_json_schema::Violation| {
        let at = if violation.pointer.is_empty() { "the answer" } else { &violation.pointer };
        format!("{at}: {}", violation.message)
    };
    let listed = &violations[..violations.len().min(MAX_VIOLATIONS)];
    let all: Vec<String> = listed.iter().map(named).collect();
    let message = format!("The answer does not match the form: {}.", all.join("; "));
    let error = status::error(Code::InvalidArgument, reasons::ANSWER_INVALID, message);
    listed
        .iter()
        .fold(error, |error, violation| error.field(format!("answer{}", violation.pointer), violation.message.clone()))
        .into()
}

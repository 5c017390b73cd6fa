//! People: they watch approvals and decide sooner or later, sometimes twice, sometimes with a wrong digest.

use std::collections::BTreeMap;
use std::time::Duration;

use belay_proto::v1::Decision;
use belay_proto::v1::approval_service_client::ApprovalServiceClient;
use belay_proto::v1::{self, approval, approval_need, watch_approvals_response::Content};
use belay_service_kit::status;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::client::RPC_TIMEOUT;
use super::hosts;
use super::records::Observations;
use crate::trace;

/// How long a person watches before sending the decisions that are due.
const WATCH_TIME: Duration = Duration::from_millis(150);

/// The principal of all callers of the gate's endpoint for people.
pub(super) const PERSON: &str = "person:ann";

/// The same without its prefix.
pub(super) const PERSON_NAME: &str = "ann";

/// Expected reasons: another person decided first, or the gate cannot store a decision now.
const EXPECTED: [&str; 5] = ["ALREADY_DECIDED", "GATE_STOPPING", "STORE_FAILED", "STORE_FULL", "STOPPING"];

/// A person's intended decision about one approval.
struct Intention {
    subject_digest: String,
    /// When to send it; `None`: after the last fault.
    after: Option<Instant>,
    decision: Decision,
    /// Whether it is a form: APPROVE means to answer it.
    is_form: bool,
    /// Whether to send a wrong digest first.
    is_confused: bool,
    /// Whether to send the decision twice.
    is_repeated: bool,
}

/// Watches and decides for as long as the simulation lasts.
pub(super) async fn decide(seed: u64, observed: Observations) -> turmoil::Result {
    let random = StdRng::seed_from_u64(seed);
    let mut restores = observed.restores();
    let mut person =
        Person { observed, random, gate: connect(), watched: None, cursor: String::new(), intentions: BTreeMap::new() };
    loop {
        if std::mem::replace(&mut restores, person.observed.restores()) != restores {
            (person.watched, person.cursor) = (None, String::new());
            person.intentions.clear();
        }
        person.watch_for_a_while().await;
        person.decide().await;
    }
}

fn connect() -> ApprovalServiceClient<Channel> {
    ApprovalServiceClient::new(hosts::channel(hosts::PEOPLE_URI))
}

struct Person {
    observed: Observations,
    random: StdRng,
    gate: ApprovalServiceClient<Channel>,
    watched: Option<Streaming<v1::WatchApprovalsResponse>>,
    /// Where the last watch was.
    cursor: String,
    /// By the approval's name.
    intentions: BTreeMap<String, Intention>,
}

impl Person {
    /// Watches approvals for a short time.
    async fn watch_for_a_while(&mut self) {
        if self.watched.is_none() || self.random.random_bool(0.02) {
            self.watch().await;
        }
        let until = Instant::now() + WATCH_TIME;
        while let Some(watched) = &mut self.watched {
            match tokio::time::timeout_at(until, watched.message()).await {
                Ok(Ok(Some(v1::WatchApprovalsResponse { cursor, content }))) => {
                    self.cursor = cursor;
                    match content {
                        Some(Content::Approval(approval)) => self.see(approval),
                        Some(Content::Reset(_)) => trace::count("watches of approvals reset"),
                        Some(Content::Heartbeat(_) | Content::Listed(_)) | None => {}
                    }
                }
                Ok(ended) => {
                    if let Err(status) = ended {
                        refused(&self.observed, &status);
                    }
                    (self.watched, self.gate) = (None, connect());
                }
                Err(_) => return,
            }
        }
        tokio::time::sleep_until(until).await;
    }

    /// Starts or restarts the watch.
    async fn watch(&mut self) {
        let request = v1::WatchApprovalsRequest {
            parent: "namespaces/-".to_owned(),
            heartbeat_interval: Some(belay_proto::duration(WATCH_TIME * 2)),
            ..v1::WatchApprovalsRequest::default()
        };
        let request = match self.random.random_bool(0.8) {
            true => v1::WatchApprovalsRequest { cursor: self.cursor.clone(), ..request },
            false => request,
        };
        self.watched = match tokio::time::timeout(RPC_TIMEOUT, self.gate.watch_approvals(request)).await {
            Ok(Ok(answer)) => {
                trace::count("watches of approvals");
                Some(answer.into_inner())
            }
            Ok(Err(status)) => {
                refused(&self.observed, &status);
                None
            }
            Err(_) => None,
        };
        if self.watched.is_none() {
            self.gate = connect();
        }
    }

    /// Handles an approval, and chooses a decision for a pending one.
    fn see(&mut self, approval: v1::Approval) {
        let random = &mut self.random;
        let is_form = approval.kind() == approval_need::Kind::Form;
        if approval.state() == approval::State::Pending {
            self.intentions.entry(approval.name.clone()).or_insert_with(|| Intention {
                subject_digest: approval.subject_digest.clone(),
                after: match random.random_range(0..100) {
                    0..55 => Some(Instant::now() + Duration::from_millis(random.random_range(10..300))),
                    55..85 => Some(Instant::now() + Duration::from_millis(random.random_range(300..3000))),
                    _ => None,
                },
                decision: match random.random_range(0..100) {
                    0..70 => Decision::Approve,
                    70..85 => Decision::Deny,
                    _ => Decision::Skip,
                },
                is_form,
                is_confused: random.random_bool(0.15),
                // Few forms are asked for, and fewer are answered before they close.
                is_repeated: random.random_bool(if is_form { 0.6 } else { 0.2 }),
            });
        } else {
            self.intentions.remove(&approval.name);
        }
        self.observed.saw_approval(approval);
    }

    /// Sends the decisions that are due.
    async fn decide(&mut self) {
        let now = Instant::now();
        let is_due =
            |intention: &Intention| self.observed.is_healed() || intention.after.is_some_and(|after| after <= now);
        let due: Vec<_> =
            self.intentions.iter().filter(|(_, intention)| is_due(intention)).map(|(name, _)| name.clone()).collect();
        for name in due {
            if let Some(intention) = self.intentions.remove(&name)
                && !self.send(&name, &intention).await
            {
                self.intentions.insert(name, intention);
            }
        }
    }

    /// Answers a form; returns whether that is final. A wrong digest, an answer that does not match and a second answer are refused; the same
    /// request again is not.
    async fn answer(&mut self, name: &str, intention: &Intention) -> bool {
        let answer = format!(r#"{{"run":{}}}"#, self.random.random_range(0..1_000_000));
        let request = v1::AnswerFormRequest {
            name: name.to_owned(),
            subject_digest: intention.subject_digest.clone(),
            answer: Some(v1::Payload::of_json(answer.clone())),
            request_id: format!("answer-{}", self.random.random::<u64>()),
        };
        if intention.is_confused {
            let subject_digest = format!("sha256:{}", "0".repeat(64));
            let answer = Some(v1::Payload::of_json(r#"{"run":"many"}"#));
            for wrong in [
                v1::AnswerFormRequest { subject_digest, request_id: String::new(), ..request.clone() },
                v1::AnswerFormRequest { answer, request_id: String::new(), ..request.clone() },
            ] {
                match self.ask_form(wrong).await {
                    Ok(_) => self.observed.violation(format_args!("{name} took an answer that it must not take")),
                    Err(Some(reason)) if matches!(&*reason, "DIGEST_MISMATCH" | "ANSWER_INVALID") => {
                        trace::count("answers refused");
                    }
                    Err(_) => {}
                }
            }
        }
        for _ in 0..=u8::from(intention.is_repeated) {
            match self.ask_form(request.clone()).await {
                Ok(approval) => {
                    trace::count("forms answered");
                    self.observed.answered(&approval, &answer);
                }
                Err(Some(reason)) if reason == "ALREADY_DECIDED" => return true,
                Err(_) => return false,
            }
        }
        if intention.is_repeated {
            let other = v1::AnswerFormRequest { request_id: format!("{}-other", request.request_id), ..request };
            match self.ask_form(other).await {
                Ok(_) => self.observed.violation(format_args!("{name} was answered twice")),
                Err(Some(reason)) if reason == "ALREADY_DECIDED" => trace::count("second answers refused"),
                Err(_) => {}
            }
        }
        true
    }

    async fn ask_form(&mut self, request: v1::AnswerFormRequest) -> Result<v1::Approval, Option<String>> {
        trace::event(format_args!("{} is to be answered", request.name));
        match tokio::time::timeout(RPC_TIMEOUT, self.gate.answer_form(request)).await {
            Ok(Ok(approval)) => Ok(approval.into_inner()),
            Ok(Err(status)) => {
                refused(&self.observed, &status);
                Err(status::reason(&status))
            }
            Err(_) => {
                self.gate = connect();
                Err(None)
            }
        }
    }

    /// Sends a decision; returns whether it is final.
    async fn send(&mut self, name: &str, intention: &Intention) -> bool {
        if intention.is_form && intention.decision == Decision::Approve {
            return self.answer(name, intention).await;
        }
        let mut request = v1::DecideApprovalRequest {
            name: name.to_owned(),
            subject_digest: intention.subject_digest.clone(),
            decision: intention.decision.into(),
            reason: "the seed said so".to_owned(),
            ..Default::default()
        };
        if intention.is_confused {
            // B-03: a decision with a wrong digest is rejected.
            let subject_digest = format!("sha256:{}", "0".repeat(64));
            let wrong = v1::DecideApprovalRequest { subject_digest, ..request.clone() };
            match self.ask(wrong).await {
                Ok(_) => self.observed.violation(format_args!("{name} was decided by a person who saw something else")),
                Err(Some(reason)) if reason == "DIGEST_MISMATCH" => {
                    trace::count("decisions about something else refused");
                }
                Err(_) => {}
            }
        }
        for _ in 0..=u8::from(intention.is_repeated) {
            match self.ask(request.clone()).await {
                Ok(approval) => {
                    trace::count(match intention.decision {
                        Decision::Approve => "approvals approved",
                        Decision::Deny => "approvals denied",
                        Decision::Skip | Decision::Expire | Decision::Unspecified => "approvals skipped",
                    });
                    self.observed.decided(intention.decision, &approval);
                    // The second request has another reason.
                    request.reason = "as said before".to_owned();
                }
                // Another person has decided.
                Err(Some(reason)) if reason == "ALREADY_DECIDED" => return true,
                Err(_) => return false,
            }
        }
        true
    }

    /// The response, or the reason of a refusal if it has one.
    async fn ask(&mut self, request: v1::DecideApprovalRequest) -> Result<v1::Approval, Option<String>> {
        trace::event(format_args!("{} is to be {:?}", request.name, request.decision()));
        match tokio::time::timeout(RPC_TIMEOUT, self.gate.decide_approval(request)).await {
            Ok(Ok(approval)) => Ok(approval.into_inner()),
            Ok(Err(status)) => {
                refused(&self.observed, &status);
                Err(status::reason(&status))
            }
            Err(_) => {
                self.gate = connect();
                Err(None)
            }
        }
    }
}

/// Records a refusal, which is a violation unless it is expected.
fn refused(observed: &Observations, status: &Status) {
    let (code, message) = (status.code(), status.message());
    trace::event(format_args!("a person is refused: {code:?} {message}"));
    let is_ours = std::error::Error::source(status).is_none();
    match status::reason(status).as_deref() {
        Some(reason) if EXPECTED.contains(&reason) || matches!(reason, "DIGEST_MISMATCH" | "ANSWER_INVALID") => {}
        Some("APPROVAL_NOT_FOUND") => observed.approval_is_gone(message),
        Some(reason) => observed.violation(format_args!("{reason}: {message}")),
        None if is_ours && matches!(code, Code::Internal | Code::DataLoss | Code::InvalidArgument) => {
            observed.violation(format_args!("{code:?}: {message}"));
        }
        None => {}
    }
}

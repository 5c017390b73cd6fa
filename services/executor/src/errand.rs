//! One call's way to the runner and the gate and back, however often they have to be asked.

use std::{sync::Arc, time::Duration};

use belay_execution::{Action, ApprovalMode, CallId, CallRequest, ErrorClass, EventKind, Failure, Hold, Need, Receipt};
use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_telemetry::TraceContext;
use tokio::{sync::mpsc, task::AbortHandle};
use tracing::Span;

use crate::{
    answer::{Answer, without_ledger},
    core::Executions,
    gate::{self, NoAnswer},
    output::Voice,
    wire,
};

/// How long to wait before one who is away is asked again: doubles from the first to the last.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How often a runner may go on holding a call whose grant it was given: for about a minute.
const MOST_HELD_AGAIN: u32 = 32;

/// What a driver hears from its calls.
pub(crate) enum News {
    Ended(EventKind),
    /// The runner holds the call.
    Held(CallId, Need),
    /// The call that has the workspace to itself, for whose end this one waits; empty when it waits no more.
    Waits(CallId, String),
    /// The gate holds the question.
    Asked(CallId, Box<v1::Approval>),
    /// A service has as much to do as it takes on: the call waits to be asked about again.
    Busy(CallId, Busy),
    /// The runner does not answer.
    RunnerAway,
    /// The gate does not answer.
    GateAway,
    /// By the runner's clock no grant of the gate's holds now.
    ClocksDiffer,
    /// Another executor owns the shard.
    Fenced,
}

/// Which service has as much to do as it takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Busy {
    Runner,
    Gate,
}

/// What the gate says when it is asked for a grant.
enum Granted {
    Yes(v1::Grant),
    /// It does not know of the decision, because its store was restored or lost: a person has to be asked again.
    AskAgain,
    /// It refuses for good; the reason.
    No(String),
}

/// What an errand is to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Send,
    Stop,
    Ask,
    Commit,
    Discard,
}

impl Purpose {
    /// The errand that an action comes to; a time to wake up at is none.
    pub(crate) fn of(action: Action) -> Option<(CallId, Self)> {
        Some(match action {
            Action::Send(call) => (call, Self::Send),
            Action::Stop(call) => (call, Self::Stop),
            Action::Ask(call) => (call, Self::Ask),
            Action::Commit(call) => (call, Self::Commit),
            Action::Discard(call) => (call, Self::Discard),
            Action::WakeAt(_) => return None,
        })
    }
}

/// A task on its way. When this is dropped it sends nothing more: the runner forgets a call once its end is stored here, so whoever
/// still asked for it after that would have it run again.
pub(crate) struct Underway {
    pub(crate) purpose: Purpose,
    task: AbortHandle,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One call's way, until there is an answer.
pub(crate) struct Errand {
    pub(crate) executions: Arc<Executions>,
    /// The call's name.
    pub(crate) name: String,
    pub(crate) workspace: String,
    /// The call's span.
    pub(crate) trace: TraceContext,
    pub(crate) request: Arc<CallRequest>,
    /// Nobody else is to commit in the workspace while it runs.
    pub(crate) exclusive: bool,
    pub(crate) hold: Option<Hold>,
    pub(crate) mode: ApprovalMode,
    /// Who started the execution.
    pub(crate) principal: String,
    pub(crate) fence: v1::Fence,
    /// Whether somebody may have been on the same errand before.
    pub(crate) maybe_sent: bool,
    pub(crate) heard: mpsc::UnboundedSender<News>,
    /// What the tool says goes here.
    pub(crate) voice: Voice,
    pub(crate) patience: Duration,
    /// Whether the driver knows that the call waits for a service that has as much to do as it takes on.
    pub(crate) is_busy: bool,
    /// How long a call waits before it is sent.
    pub(crate) delay: Duration,
    /// What log lines carry. Entered for those only, which are few.
    pub(crate) log_span: Span,
}

/// The driver is gone: the service stops, and the next one asks again.
struct Gone;

impl Errand {
    /// The shortest wait.
    pub(crate) const PATIENCE: Duration = PATIENCE.0;

    pub(crate) fn start(self, purpose: Purpose) -> Underway {
        let task = tokio::spawn(Box::pin(Box::new(self).run(purpose)));
        Underway { purpose, task: task.abort_handle() }
    }

    async fn run(mut self: Box<Self>, purpose: Purpose) {
        if purpose == Purpose::Send && !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let news = match purpose {
            Purpose::Send => self.send().await,
            // What is rare stays out of the future, which is moved when its task is started: for each call.
            Purpose::Stop => Box::pin(self.stop()).await,
            Purpose::Ask => Box::pin(self.ask()).await,
            Purpose::Commit => Box::pin(self.commit()).await,
            Purpose::Discard => Box::pin(self.discard()).await,
        };
        self.voice.end(self.executions.now());
        if let Ok(news) = news {
            // An error means that the driver is gone.
            drop(self.heard.send(news));
        }
    }

    async fn send(&mut self) -> Result<News, Gone> {
        let mut ledger_id = self.request.ledger_id.clone();
        let mut grant = match self.approval() {
            Some(approval) => match Box::pin(self.grant(approval)).await? {
                Granted::Yes(grant) => Some(grant),
                Granted::AskAgain => return Ok(self.ask_again()),
                Granted::No(why) => return Box::pin(self.give_up(why)).await,
            },
            None => None,
        };
        let mut held_again = 0;
        loop {
            match self.call(&ledger_id, grant.clone()).await {
                Answer::Ended(end) => return Ok(News::Ended(end)),
                Answer::Held(need) if grant.is_some() && self.is_held_for(&need) => {
                    // A runner that could not write down that it goes on has done nothing, and still has the call.
                    held_again += 1;
                    if held_again == MOST_HELD_AGAIN {
                        let why = "the runner asks again about what was approved".to_owned();
                        return Box::pin(self.give_up(why)).await;
                    }
                    let status = tonic::Status::unavailable("the runner could not go on with the call");
                    Box::pin(self.runner_away(&status)).await?;
                }
                Answer::Held(need) => return Ok(News::Held(self.request.call, need)),
                Answer::Fenced => return Ok(News::Fenced),
                Answer::GrantRefused(why) => return Box::pin(self.give_up(why)).await,
                Answer::GrantOutOfTime(status) => match Box::pin(self.another_grant(&status)).await? {
                    Granted::Yes(another) => grant = Some(another),
                    Granted::AskAgain => return Ok(self.ask_again()),
                    Granted::No(why) => return Box::pin(self.give_up(why)).await,
                },
                Answer::LedgerChanged => match Box::pin(self.other_ledger(&mut ledger_id)).await {
                    Some(unknown) => return Ok(News::Ended(unknown)),
                    None => continue,
                },
                Answer::Away(status) => Box::pin(self.runner_away(&status)).await?,
                Answer::Busy(status) => Box::pin(self.busy(Busy::Runner, &status)).await?,
                Answer::NotFound => {
                    let status = tonic::Status::internal("the runner does not take the call");
                    Box::pin(self.runner_away(&status)).await?;
                }
            }
        }
    }

    async fn stop(&mut self) -> Result<News, Gone> {
        let mut ledger_id = self.request.ledger_id.clone();
        loop {
            let runner = &self.executions.runner;
            match runner.stop(self.name.clone(), &self.request, self.fence, &ledger_id).await {
                Answer::Ended(end) => return Ok(News::Ended(end)),
                Answer::Fenced => return Ok(News::Fenced),
                Answer::LedgerChanged => match self.other_ledger(&mut ledger_id).await {
                    Some(unknown) => return Ok(News::Ended(unknown)),
                    None => continue,
                },
                Answer::Away(status) | Answer::Busy(status) => self.runner_away(&status).await?,
                Answer::Held(_) | Answer::NotFound | Answer::GrantRefused(_) | Answer::GrantOutOfTime(_) => {
                    self.runner_away(&tonic::Status::internal("the runner does not stop the call")).await?;
                }
            }
        }
    }

    async fn ask(&mut self) -> Result<News, Gone> {
        let subject_digest = self.hold.as_ref().map(|hold| hold.need.subject_digest.clone()).unwrap_or_default();
        loop {
            let asked = v1::CreateApprovalRequest {
                call: self.name.clone(),
                subject_digest: subject_digest.clone(),
                requested_by: self.principal.clone(),
                approval_mode: wire::approval_mode_to(self.mode).into(),
            };
            match self.executions.gate.create(asked, &self.trace).await {
                Ok(approval) => return Ok(News::Asked(self.request.call, Box::new(approval))),
                Err(NoAnswer::Away(status)) => self.gate_away(&status).await?,
                Err(NoAnswer::Busy(status)) => self.busy(Busy::Gate, &status).await?,
                // The gate says that the runner holds something else: the runner knows.
                Err(NoAnswer::Refused(status)) => match self.call(&self.request.ledger_id, None).await {
                    Answer::Ended(end) => return Ok(News::Ended(end)),
                    Answer::Held(need) if !self.is_held_for(&need) => return Ok(News::Held(self.request.call, need)),
                    Answer::Fenced => return Ok(News::Fenced),
                    Answer::LedgerChanged | Answer::NotFound => return Ok(News::Ended(self.lost_hold())),
                    Answer::Away(status) | Answer::Busy(status) => self.runner_away(&status).await?,
                    Answer::Held(_) | Answer::GrantRefused(_) | Answer::GrantOutOfTime(_) => {
                        self.gate_away(&status).await?
                    }
                },
            }
        }
    }

    async fn commit(&mut self) -> Result<News, Gone> {
        let approval = self.approval().unwrap_or_default();
        let mut grant = match self.grant(approval).await? {
            Granted::Yes(grant) => grant,
            Granted::AskAgain => return Ok(self.ask_again()),
            Granted::No(why) => return self.give_up(why).await,
        };
        loop {
            let runner = &self.executions.runner;
            match runner.commit(self.name.clone(), &self.request, self.fence, grant.clone(), &self.trace).await {
                Answer::Ended(end) => return Ok(News::Ended(end)),
                Answer::Held(need) if self.is_held_for(&need) => {
                    return self.give_up("the runner asks again about what was approved".to_owned()).await;
                }
                Answer::Held(need) => return Ok(News::Held(self.request.call, need)),
                Answer::Fenced => return Ok(News::Fenced),
                Answer::GrantRefused(why) => return self.give_up(why).await,
                Answer::GrantOutOfTime(status) => match self.another_grant(&status).await? {
                    Granted::Yes(another) => grant = another,
                    Granted::AskAgain => return Ok(self.ask_again()),
                    Granted::No(why) => return self.give_up(why).await,
                },
                Answer::LedgerChanged | Answer::NotFound if self.maybe_sent => {
                    let message = "The runner that held the call keeps another ledger now; whether its effect was put in \
                                   place before cannot be known.";
                    let failure = Failure::new(ErrorClass::OutcomeUnknown, reasons::LEDGER_CHANGED, message);
                    let (call, grant_nonce) = (self.request.call, String::new());
                    return Ok(News::Ended(EventKind::CallOutcomeUnknown { call, failure, grant_nonce }));
                }
                Answer::LedgerChanged | Answer::NotFound => return Ok(News::Ended(self.lost_hold())),
                Answer::Away(status) | Answer::Busy(status) => self.runner_away(&status).await?,
            }
        }
    }

    async fn discard(&mut self) -> Result<News, Gone> {
        let Some(failure) = self.hold.as_ref().and_then(|hold| hold.denial(self.mode)) else {
            unreachable!("only what was turned down is given up")
        };
        let end = self.discarded(&failure).await?;
        Ok(end.map_or(News::Fenced, News::Ended))
    }

    /// The runner does not take the grant, or there is none: the call is given up, and that is a fault of Belay's.
    async fn give_up(&mut self, why: String) -> Result<News, Gone> {
        let message = format!("The approval of this call could not be used: {why}.");
        let failure = Failure::new(ErrorClass::Internal, reasons::GRANT_REFUSED, message);
        let Some(end) = self.discarded(&failure).await? else { return Ok(News::Fenced) };
        Ok(News::Ended(match end {
            EventKind::CallDenied { call, receipt, .. } => EventKind::CallFailed { call, failure, receipt },
            _ => end,
        }))
    }

    /// Has a held call given up; nothing when another executor owns the shard. One that the runner does not know any more, or has
    /// stopped, is as good as given up.
    async fn discarded(&mut self, failure: &Failure) -> Result<Option<EventKind>, Gone> {
        let call = self.request.call;
        let denied = || EventKind::CallDenied { call, failure: failure.clone(), receipt: Receipt::default() };
        loop {
            let runner = &self.executions.runner;
            match runner.discard(self.name.clone(), &self.request, self.fence, failure, &self.trace).await {
                Answer::Ended(EventKind::CallCancelled { .. }) | Answer::LedgerChanged | Answer::NotFound => {
                    return Ok(Some(denied()));
                }
                Answer::Ended(end) => return Ok(Some(end)),
                Answer::Fenced => return Ok(None),
                Answer::Away(status) | Answer::Busy(status) => self.runner_away(&status).await?,
                Answer::Held(_) | Answer::GrantRefused(_) | Answer::GrantOutOfTime(_) => {
                    self.runner_away(&tonic::Status::internal("the runner does not give the call up")).await?;
                }
            }
        }
    }

    async fn call(&self, ledger_id: &str, grant: Option<v1::Grant>) -> Answer {
        let trace = &self.trace;
        let message = v1::CallToolRequest {
            name: self.name.clone(),
            tool: self.request.tool.clone(),
            arguments: Some(wire::payload(&self.request.arguments)),
            timeout: Some(belay_proto::duration(self.request.timeout)),
            fence: Some(self.fence),
            ledger_id: ledger_id.to_owned(),
            workspace: self.workspace.clone(),
            exclusive: self.exclusive,
            grant,
            trace: Some(v1::TraceContext { traceparent: trace.traceparent(), tracestate: trace.tracestate().into() }),
        };
        let say = |output| self.voice.say(self.executions.now(), output);
        let call = self.request.call;
        // An error means that the driver is gone.
        let waits = |other| drop(self.heard.send(News::Waits(call, other)));
        let accepted = || {
            if self.is_busy {
                drop(self.heard.send(News::Waits(call, String::new())));
            }
        };
        self.executions.runner.call(message, &self.request, accepted, say, waits).await
    }

    /// The grant of the approval, or why there is none.
    async fn grant(&mut self, approval: String) -> Result<Granted, Gone> {
        loop {
            match self.executions.gate.grant(approval.clone()).await {
                Ok(grant) => return Ok(Granted::Yes(grant)),
                Err(NoAnswer::Refused(status)) if gate::has_forgotten(&status) => return Ok(Granted::AskAgain),
                Err(NoAnswer::Refused(status)) => {
                    return Ok(Granted::No(status.message().trim_end_matches('.').to_owned()));
                }
                Err(NoAnswer::Away(status) | NoAnswer::Busy(status)) => self.gate_away(&status).await?,
            }
        }
    }

    /// A grant for one that does not hold by the runner's clock: the gate signs it anew where its time is over. Where the clocks differ too
    /// much for that, the call waits: what was approved is not thrown away because of a clock.
    async fn another_grant(&mut self, status: &tonic::Status) -> Result<Granted, Gone> {
        self.log(status, "The runner's clock does not agree with the grant, asking for another");
        self.wait(News::ClocksDiffer).await?;
        let approval = self.approval().unwrap_or_default();
        self.grant(approval).await
    }

    /// The call is held as before, and nobody has decided: the gate does not know that somebody has.
    fn ask_again(&self) -> News {
        let need = self.hold.as_ref().map(|hold| hold.need.clone()).expect("only what is held has an approval");
        News::Held(self.request.call, need)
    }

    fn approval(&self) -> Option<String> {
        self.hold.as_ref()?.approval.clone()
    }

    fn is_held_for(&self, need: &Need) -> bool {
        let known = self.hold.as_ref().map(|hold| (hold.need.kind, hold.need.subject_digest.as_str()));
        known == Some((need.kind, need.subject_digest.as_str()))
    }

    /// The runner has lost a call that it held: nothing of it is left, and it can run again.
    fn lost_hold(&self) -> EventKind {
        let message = "The runner that held the call keeps another ledger now; nothing of the call is left.";
        let failure = Some(Failure::new(ErrorClass::Transient, reasons::LEDGER_CHANGED, message));
        EventKind::CallCancelled { call: self.request.call, failure, grant_nonce: String::new() }
    }

    /// The runner keeps another ledger: either what became of the call cannot be known, or it goes to the new ledger.
    async fn other_ledger(&mut self, ledger_id: &mut String) -> Option<EventKind> {
        // Heard anew for the intents to come.
        let catalogue = self.executions.runner.catalogue(true).await;
        if let Some(unknown) = without_ledger(&self.request).filter(|_| self.maybe_sent) {
            return Some(unknown);
        }
        // Not any ledger: were it lost too, the next would have the call run again.
        match catalogue {
            Ok(catalogue) => ledger_id.clone_from(&catalogue.ledger_id),
            Err(_) => tokio::time::sleep(self.patience).await,
        }
        None
    }

    async fn runner_away(&mut self, status: &tonic::Status) -> Result<(), Gone> {
        self.maybe_sent = true;
        self.log(status, "The runner does not answer, asking again");
        self.wait(News::RunnerAway).await
    }

    async fn gate_away(&mut self, status: &tonic::Status) -> Result<(), Gone> {
        self.log(status, "The approval gate does not answer, asking again");
        self.wait(News::GateAway).await
    }

    /// The service has taken nothing of the call on: it is asked again after the delay that the service names.
    async fn busy(&mut self, service: Busy, status: &tonic::Status) -> Result<(), Gone> {
        self.log(status, "The service has as much to do as it takes on, asking again");
        self.is_busy = true;
        self.patience = self.patience.max(status::retry_after(status).unwrap_or_default());
        self.wait(News::Busy(self.request.call, service)).await
    }

    fn log(&self, status: &tonic::Status, what: &'static str) {
        let call = &self.name;
        self.log_span.in_scope(|| tracing::debug!(call, status = self.shown(status), "{what}"));
    }

    /// What a log says of a refusal, which may quote the call.
    fn shown(&self, status: &tonic::Status) -> String {
        self.executions.vault.shown(format!("{:?}: {}", status.code(), status.message()))
    }

    async fn wait(&mut self, news: News) -> Result<(), Gone> {
        self.heard.send(news).map_err(|_| Gone)?;
        tokio::time::sleep(self.patience).await;
        self.patience = (self.patience * 2).min(PATIENCE.1);
        Ok(())
    }
}

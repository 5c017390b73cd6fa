//! How a call runs, from its intent to its end or to the question that it waits with.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_policy::{Decision, Intent, Revised, ToolKind};
use belay_proto::v1::{self, ErrorClass, tool_call::State};
use belay_reasons as reasons;
use belay_service_kit::Taken;
use belay_telemetry::TraceContext;
use belay_workspace::{LeftOut, RelPath};
use futures::FutureExt as _;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tracing::Instrument as _;

use super::{
    Call, Calls, Order, Progress,
    commit::{Commit, Committed, Running},
    decide::{self, Before},
    effect::{Examination, Examined, Judge, Proposal, Stopped},
    record,
    span::Stretch,
    stop_asked,
    work::{self, Unfinished, Why},
};
use crate::{
    Operation, Recovery, ToolFailure, Touches, View, ViewHandle,
    commit_log::{self, Beside},
    ledger::{Basis, Row, Spent, Written},
    subject::{parts, summary},
    tier,
    workspace_locks::{Presence, Turn, Visit},
};

/// The time that examining an effect has in any case, also of a call that ended its work in the last instant of its own.
const LEAST_EXAMINATION: Duration = Duration::from_secs(1);

/// How many of the special files that were left out a receipt names.
const MAX_LEFT_OUT: usize = 16;

/// A yes to a call that was held back before its work.
pub(super) struct Approved {
    pub(super) spends: Spent,
    /// Whether a person said so, and not the policy in the place of one.
    pub(super) by_person: bool,
    /// How it stood while it waited.
    pub(super) held: Arc<v1::ToolCall>,
}

/// A call at work.
pub(super) struct Job {
    pub(super) call: Call,
    pub(super) order: Order,
    pub(super) policy: Arc<Revised>,
    approved: Option<Approved>,
}

/// Where a call has run, and beside whom.
struct Alongside<'a> {
    visit: &'a Arc<Visit>,
    presence: &'a Presence,
    /// Where it had the folder to itself.
    turn: Option<Turn>,
}

/// What was asked, as the policy and people see it.
pub(super) struct Asked {
    pub(super) operation: Operation,
    pub(super) decision: Decision,
}

impl Job {
    pub(super) fn judge(&self, asked: &Asked) -> Judge {
        let spec = &self.order.tool.spec;
        // Only a person who has seen the paths frees them: where the policy itself said yes, they are judged like any others.
        let by_person = self.approved.as_ref().is_some_and(|approved| approved.by_person);
        let covered = if by_person { asked.operation.paths.clone() } else { Vec::new() };
        let basis = Basis { intent: asked.decision.verdict, covered };
        Judge { policy: Arc::clone(&self.policy), tool: spec.name.to_owned(), kind: spec.kind, basis }
    }

    pub(super) fn decision(&self, decision: &Decision) -> v1::PolicyDecision {
        record::decision(decision, self.policy.revision)
    }

    /// The grant that a call used up which ends in this state: none when it came to nothing.
    fn used(&self, state: State) -> Option<&Spent> {
        let came_to_nothing = matches!(state, State::Cancelled | State::Denied);
        self.approved.as_ref().map(|approved| &approved.spends).filter(|_| !came_to_nothing)
    }

    /// A row about it. A call that reaches out has spent its grant when it began, any other spends it with this row.
    pub(super) fn row(&self, call: v1::ToolCall, ended: bool) -> Row {
        let reaches_out = self.order.tool.spec.recovery == Recovery::Manual;
        let spends = self.used(call.state()).filter(|_| !reaches_out).cloned();
        Row { digest: self.call.digest.to_string(), ended, call, staged: None, held: None, spends }
    }
}

impl Calls {
    /// Has a call run, in a task of its own.
    pub(super) fn spawn_run(
        self: &Arc<Self>,
        call: Call,
        mut order: Order,
        policy: Arc<Revised>,
        approved: Option<Approved>,
        taken: Option<Taken>,
    ) {
        let calls = Arc::clone(self);
        let now = self.clock.now_micros();
        let stretch = order.trace.take().map(|parent| Stretch::begin(&self.telemetry, parent, now));
        order.trace = stretch.as_ref().map(|stretch| stretch.context().clone());
        let trace_id = order.trace.as_ref().map(TraceContext::trace_id);
        let execution = parts(&order.name).0;
        let log_span = tracing::error_span!("call", execution, call = order.name, trace_id);
        let work = async move {
            let job = Job { call, order, policy, approved };
            let progress = match AssertUnwindSafe(calls.carry_out(&job)).catch_unwind().await {
                Ok(progress) => progress,
                Err(_) => calls.broke_off(&job),
            };
            let read_only = job.order.tool.spec.recovery == Recovery::ReadOnly;
            if read_only && job.approved.is_none() && matches!(progress, Progress::Ended(_)) {
                // Whoever waits holds the outcome; whoever asks later may have it run again.
                calls.known().remove(&job.order.name);
            }
            if let Some(stretch) = stretch {
                stretch.end(&progress, calls.clock.now_micros());
            }
            // Before anybody hears of its end, who may send the next.
            drop(taken);
            job.call.progress.send_replace(progress);
        };
        // Boxed, because it is large and would be moved several times on its way to a task.
        tokio::spawn(Box::pin(work).instrument(log_span));
    }

    async fn carry_out(self: &Arc<Self>, job: &Job) -> Progress {
        let order = &job.order;
        let spec = &order.tool.spec;
        let mut receipt = v1::Receipt { ledger_id: self.ledger.id().into(), ..v1::Receipt::default() };
        let arguments = match work::arguments(order) {
            Ok(arguments) => arguments,
            Err(failure) => return self.end(job, receipt, Err((State::Failed, failure)), false).await,
        };
        let asked = asked(job, &arguments);
        receipt.decision = Some(job.decision(&asked.decision));
        let approved = job.approved.is_some();
        let next = decide::before(asked.decision.verdict, spec.recovery, spec.touches, approved);
        if next == Before::Refuse {
            return self.end(job, receipt, Err((State::Denied, record::denied(&asked.decision))), false).await;
        }
        if spec.kind == ToolKind::Terminal
            && let Err(failure) = tier::check(&self.enforcement, job.policy.policy.min_tier())
        {
            return self.end(job, receipt, Err((State::Failed, failure)), false).await;
        }
        if next == Before::Ask {
            return Box::pin(self.hold_call(job, receipt, &asked)).await;
        }
        if spec.recovery == Recovery::Manual {
            // What it does cannot be taken back, so that it began has to outlive the runner.
            let started = job.row((*job.call.started).clone(), false);
            match self.write(Row { spends: job.used(State::Running).cloned(), ..started }).await {
                Ok(Written::Done) => {}
                Ok(Written::GrantSpent) => return self.stays_held(job),
                Err(_) => return Progress::Unresolved,
            }
        }
        let mut cancelled = job.call.cancel.subscribe();
        if spec.touches == Touches::Nothing {
            let (outcome, receipt) = self.work(job, receipt, arguments, None, &mut cancelled).await;
            return self.end(job, receipt, outcome, true).await;
        }
        Box::pin(self.in_workspace(job, receipt, arguments, &asked, &mut cancelled)).await
    }

    /// The work, with what the receipt says of it.
    async fn work(
        &self,
        job: &Job,
        mut receipt: v1::Receipt,
        arguments: Value,
        view: Option<ViewHandle>,
        cancelled: &mut watch::Receiver<bool>,
    ) -> (Result<Value, Unfinished>, v1::Receipt) {
        let began = Instant::now();
        let (output, enforced) = (Arc::clone(&job.call.output), Arc::<OnceLock<Vec<String>>>::default());
        let outcome = work::work(&job.order, arguments, view, output, Arc::clone(&enforced), cancelled).await;
        job.call.output.finish();
        receipt.duration = Some(belay_proto::duration(began.elapsed()));
        receipt.enforced = enforced.get().cloned().unwrap_or_default();
        // Nothing was bounded where nothing ran.
        if enforced.get().is_some() {
            receipt.write_bounds = job.order.tool.tool.write_bounds();
        }
        (outcome, receipt)
    }

    async fn in_workspace(
        self: &Arc<Self>,
        job: &Job,
        mut receipt: v1::Receipt,
        arguments: Value,
        asked: &Asked,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Progress {
        // Then its row says already that it has begun.
        let begun = job.order.tool.spec.recovery == Recovery::Manual;
        let visit = match self.rooms.enter(job.order.workspace.clone()).await {
            Ok(visit) => Arc::new(visit),
            Err(closed) => return self.end(job, receipt, Err(record::unfinished(closed.into())), begun).await,
        };
        receipt.live_base = visit.live && job.order.tool.spec.touches == Touches::Changes;
        let turn = if job.order.exclusive || asked.decision.exclusive {
            tokio::select! {
                biased;
                () = stop_asked(cancelled) => {
                    return self.end(job, receipt, Err((State::Cancelled, record::cancelled())), begun).await;
                }
                turn = visit.turn_alone(&job.order.name, &job.call.waits_for) => Some(turn),
            }
        } else {
            None
        };
        let presence = Arc::new(visit.begin());
        let view_id = visit.view_id(self.clock.now_micros());
        let view = {
            let (visit, id) = (Arc::clone(&visit), view_id.clone());
            self.lanes.quick.run(move || visit.place().view(&id)).await
        };
        let view = match view {
            Ok(view) => ViewHandle::new(view, self.lanes.tools.clone()),
            Err(error) => {
                return self.end(job, receipt, Err(record::workspace_failed(&error)), begun).await;
            }
        };
        let deadline = Instant::now() + work::limit_of(&job.order);
        let (outcome, mut receipt) = self.work(job, receipt, arguments, Some(view.clone()), cancelled).await;
        // Nobody works in it any more once it is here.
        let view = view.take().await;
        let examined = match (&outcome, view) {
            (Ok(_), Some(view)) if job.order.tool.spec.touches == Touches::Changes => {
                let at = (&visit, &presence);
                match self.examine(at, view, view_id, job.judge(asked), cancelled, deadline).await {
                    Ok((examined, left_out)) => {
                        receipt.left_out_count = i64::try_from(left_out.len()).unwrap_or(i64::MAX);
                        receipt.left_out = left_out.iter().take(MAX_LEFT_OUT).map(record::left_out).collect();
                        examined
                    }
                    Err(why) => Examined::Failed(work::broken_off(&job.order, why)),
                }
            }
            (_, view) => {
                self.lanes.effects.run(move || drop(view)).await;
                Examined::Nothing
            }
        };
        self.clear_later(&visit);
        let Beside { calls, count } = presence.beside();
        (receipt.commits_beside, receipt.commit_count_beside) = (calls, i64::try_from(count).unwrap_or(i64::MAX));
        match (outcome, examined) {
            (Err(unfinished), _) | (Ok(_), Examined::Failed(unfinished)) => {
                self.end(job, receipt, Err(unfinished), true).await
            }
            (Ok(result), Examined::Nothing) => self.end(job, receipt, Ok(result), true).await,
            (Ok(_), Examined::Refused(decision)) => {
                let receipt = v1::Receipt { decision: Some(job.decision(&decision)), ..receipt };
                self.end(job, receipt, Err((State::Denied, record::denied(&decision))), true).await
            }
            (Ok(result), Examined::Staged(proposal)) if proposal.asks() => {
                // Whoever waits for a person keeps nobody from committing.
                drop(turn);
                self.hold_effect(job, receipt, asked, &visit, result, *proposal).await
            }
            (Ok(result), Examined::Staged(proposal)) => {
                let beside = Alongside { visit: &visit, presence: &presence, turn };
                self.commit_now(job, receipt, beside, result, *proposal, cancelled).await
            }
        }
    }

    /// Examines what a call changed, until it is cancelled or its time is up.
    async fn examine(
        &self,
        (visit, presence): (&Arc<Visit>, &Arc<Presence>),
        view: Box<dyn View>,
        view_id: String,
        judge: Judge,
        cancelled: &mut watch::Receiver<bool>,
        deadline: Instant,
    ) -> Result<(Examined, Vec<LeftOut>), Why> {
        let stop = Arc::new(AtomicBool::new(false));
        let applied = visit.applied_by_now();
        let examining = {
            let (visit, presence, stop) = (Arc::clone(visit), Arc::clone(presence), Arc::clone(&stop));
            self.lanes.effects.run(move || {
                let (place, stop) = (visit.place(), || stop.load(Ordering::Relaxed));
                let (place, view_id, judge, presence) = (&*place, &*view_id, &judge, &*presence);
                Examination { place, view_id, judge, presence, stop: &stop }.run(view)
            })
        };
        let mut examining = pin!(examining);
        let why = tokio::select! {
            biased;
            done = &mut examining => Err(done),
            () = stop_asked(cancelled) => Ok(Why::Cancelled),
            () = sleep_until(deadline.max(Instant::now() + LEAST_EXAMINATION)) => Ok(Why::OutOfTime),
        };
        let (done, why) = match why {
            Err(done) => (done, Why::Cancelled),
            Ok(why) => {
                stop.store(true, Ordering::Relaxed);
                (examining.await, why)
            }
        };
        let (examined, left_out) = done.map_err(|Stopped| why)?;
        if let Examined::Staged(_) = examined {
            visit.was_staged(applied);
        }
        Ok((examined, left_out))
    }

    /// Commits what the policy lets pass.
    async fn commit_now(
        self: &Arc<Self>,
        job: &Job,
        mut receipt: v1::Receipt,
        Alongside { visit, presence, turn }: Alongside<'_>,
        result: Value,
        Proposal { staged, did, decision, .. }: Proposal,
        cancelled: &mut watch::Receiver<bool>,
    ) -> Progress {
        let not_in_place = receipt.clone();
        if !decision.follows_the_intent() {
            receipt.decision = Some(job.decision(&decision));
        }
        receipt.effect_digest.clone_from(&did.digest);
        receipt.effect = Some(summary(&did.changes));
        let call = self.ended(job, receipt, Ok(result));
        let touched = commit_log::touched(&did.changes);
        let running = Some(Running { presence, turn, did: &did });
        let commit = Commit { staged: &staged, touched, call: &job.call, running };
        match self.commit(visit, commit, job.row(call.clone(), true), cancelled).await {
            Committed::Done => Progress::Ended(Arc::new(call)),
            Committed::Refused(unfinished) => {
                self.discard(visit, &staged).await;
                self.end(job, not_in_place, Err(unfinished), true).await
            }
            Committed::Undone(unfinished) => {
                let end = self.ended(job, not_in_place, Err(unfinished));
                // The grant, if there was one, goes with the row that is taken back.
                let row = Row { spends: None, ..job.row(end.clone(), true) };
                match self.take_back(visit, &staged, row).await {
                    Ok(()) => Progress::Ended(Arc::new(end)),
                    Err(_) => Progress::Unresolved,
                }
            }
            Committed::GrantSpent => {
                self.discard(visit, &staged).await;
                self.stays_held(job)
            }
            Committed::NotWritten(_) if is_planted(Defect::DoubtsWhatDidNotHappen) => {
                let doubt = ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, "Planted.");
                Progress::Ended(Arc::new(self.ended(job, not_in_place, Err((State::OutcomeUnknown, doubt)))))
            }
            Committed::NotWritten(_) => Progress::Unresolved,
        }
    }

    pub(super) fn stays_held(&self, job: &Job) -> Progress {
        let approved = job.approved.as_ref().expect("only an approved call spends a grant");
        Progress::Held(Arc::clone(&approved.held))
    }

    /// Ends a call that commits nothing. `ran`: the tool has begun its work, or the ledger says so.
    pub(super) async fn end(
        &self,
        job: &Job,
        receipt: v1::Receipt,
        outcome: Result<Value, Unfinished>,
        ran: bool,
    ) -> Progress {
        let call = self.ended(job, receipt, outcome);
        let recovery = job.order.tool.spec.recovery;
        if job.approved.is_none() && !(ran && decide::ends_with_a_row(recovery)) {
            return Progress::Ended(Arc::new(call));
        }
        match self.write(job.row(call.clone(), true)).await {
            Ok(Written::Done) => Progress::Ended(Arc::new(call)),
            Ok(Written::GrantSpent) => self.stays_held(job),
            // Its row may still say that it waits.
            Err(_) if job.approved.is_some() => Progress::Unresolved,
            // It is the truth, whatever the ledger says of it later: that it is not known, or nothing, and then it runs again.
            Err(_) => Progress::Ended(Arc::new(call)),
        }
    }

    /// The call as it ends.
    fn ended(&self, job: &Job, mut receipt: v1::Receipt, outcome: Result<Value, Unfinished>) -> v1::ToolCall {
        let (state, result, failed) = match outcome {
            Ok(result) => (State::Completed, Some(record::payload(result.to_string())), None),
            Err((state, mut failed)) => {
                failed.message = job.call.secrets.words(&failed.message);
                // Whoever stopped a call does not ask why it ended.
                let last_output = job.call.output.last().filter(|_| state != State::Cancelled);
                (state, None, Some(v1::Failure { last_output, ..record::failure(failed) }))
            }
        };
        if let Some(used) = job.used(state) {
            receipt.grant_nonce.clone_from(&used.nonce);
        }
        v1::ToolCall {
            state: state.into(),
            result,
            failure: failed,
            end_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            receipt: Some(receipt),
            ..(*job.call.started).clone()
        }
    }

    /// After a fault in the runner itself. What was written by then is not known here.
    fn broke_off(&self, job: &Job) -> Progress {
        let message = "The tool runner broke off the call: a fault in Belay.";
        let unfinished = if job.order.tool.spec.recovery == Recovery::ReadOnly {
            (State::Failed, ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, message))
        } else {
            (State::OutcomeUnknown, ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message))
        };
        let receipt = v1::Receipt { ledger_id: self.ledger.id().into(), ..v1::Receipt::default() };
        Progress::Ended(Arc::new(self.ended(job, receipt, Err(unfinished))))
    }
}

/// What a call is asked to do, and what the policy says of it. Paths are judged by what they lead to, not by their spelling.
fn asked(job: &Job, arguments: &Value) -> Asked {
    let tool = &job.order.tool;
    let mut operation = tool.tool.operation(arguments);
    for path in operation.paths.iter_mut().chain([&mut operation.working_directory]) {
        if let Ok(plain) = RelPath::parse(path) {
            *path = plain.to_string();
        }
    }
    let decision = job.policy.policy.intent(&Intent {
        tool: tool.spec.name,
        kind: tool.spec.kind,
        command: &operation.command,
        program: operation.program.as_deref(),
        working_directory: &operation.working_directory,
        environment: &operation.environment,
        paths: &operation.paths,
    });
    Asked { operation, decision }
}

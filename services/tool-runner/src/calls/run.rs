//! Runs a call, from the check of its intent to its end or to the approval that it waits for.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Waker},
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_policy::ToolKind;
use belay_proto::{
    runner_v1,
    v1::{self, ErrorClass, tool_call::State},
};
use belay_reasons as reasons;
use belay_service_kit::Permit;
use belay_telemetry::TraceContext;
use belay_workspace::SpecialFile;
use futures::FutureExt as _;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tracing::Instrument as _;

use super::{
    Call, CallRequest, Calls, Progress, cancel_requested,
    commit::{Commit, CommitOutcome, DirectCommit},
    decide::{self, Admission},
    effect::{EffectOutcome, Examination, ExaminationStopped, Layering, NewLayer, Proposal},
    job::{Job, JudgedIntent, VerifiedApproval, judge_intent},
    judge::Judge,
    record::{self, Unsuccessful},
    span::CallSpan,
    stoppable::until_stopped,
    work::{self, StopCause},
};
use crate::{
    Recovery, StagedEffect, ToolFailure, Touches, View, ViewHandle,
    commit_log::{self, ChangedPath, ConcurrentCommits},
    ledger::{Row, WriteOutcome},
    policy::CallPolicy,
    questions::Questions,
    secrets::CallSecrets,
    stop::Stop,
    subject::{self, parts, summary},
    tier,
    workspace_locks::{CommitLock, CommitWindow, WorkspaceGuard},
};

/// Minimum time for examining an effect, even if the tool used up the time limit of the call.
const MIN_EXAMINATION: Duration = Duration::from_secs(1);

/// The longest arguments of a call that begins to run before it has a task: checking them takes microseconds.
const MAX_QUICK_ARGUMENTS_BYTES: usize = 4096;

/// How many skipped special files a receipt names.
const MAX_LEFT_OUT: usize = 16;

/// The workspace that a call has run in.
struct CallWorkspace<'a> {
    guard: &'a Arc<WorkspaceGuard>,
    window: &'a CommitWindow,
    /// The commit lock, if the call is exclusive.
    lock: Option<CommitLock>,
}

impl Calls {
    /// Starts to run the call. A call that may be quick runs here up to where it has to wait, and only then has a task of its own: most such calls
    /// end before that.
    pub(super) fn spawn_run(
        self: &Arc<Self>,
        call: Call,
        mut request: CallRequest,
        policy: CallPolicy,
        approved: Option<VerifiedApproval>,
        taken: Option<Permit>,
    ) {
        let calls = Arc::clone(self);
        let is_quick =
            request.tool.spec.touches == Touches::Nothing && request.arguments.len() <= MAX_QUICK_ARGUMENTS_BYTES;
        let now = self.clock.now_micros();
        let call_span = request.trace.take().map(|parent| CallSpan::begin(&self.telemetry, parent, now));
        request.trace = call_span.as_ref().map(|call_span| call_span.context().clone());
        let trace_id = request.trace.as_ref().map(TraceContext::trace_id);
        let execution = parts(&request.name).0;
        let log_span = tracing::error_span!("call", execution, call = request.name, trace_id);
        let work = async move {
            let job = Job { call, request, policy, approved };
            let progress = match AssertUnwindSafe(calls.execute(&job)).catch_unwind().await {
                Ok(progress) => progress,
                Err(_) => calls.unknown_outcome(&job),
            };
            let read_only = job.request.recovery() == Recovery::ReadOnly;
            if read_only
                && job.approved.is_none()
                && let Progress::Ended(ended) = &progress
            {
                calls.drop_unless_read_later(&job.request.name, ended);
            }
            if let Some(call_span) = call_span {
                call_span.end(&progress, calls.clock.now_micros());
            }
            // Released before the end is published: a subscriber may send its next call at once.
            drop(taken);
            let Job { call, request, .. } = job;
            let is_held = matches!(progress, Progress::AwaitingApproval(_));
            call.progress.send_replace(progress);
            drop(call);
            if is_held {
                calls.unload(&request.name);
            }
        };
        // Boxed: the future is large and would be copied several times on its way to a task.
        let mut work = Box::pin(work).instrument(log_span);
        // Whatever it waits for is asked again by the task.
        let mut once = Context::from_waker(Waker::noop());
        if !is_quick || Pin::new(&mut work).poll(&mut once).is_pending() {
            tokio::spawn(work);
        }
    }

    async fn execute(self: &Arc<Self>, job: &Job) -> Progress {
        let request = &job.request;
        let spec = &request.tool.spec;
        let mut receipt = v1::Receipt { ledger_id: self.ledger.id().into(), ..v1::Receipt::default() };
        let arguments = match work::arguments(request) {
            Ok(arguments) => arguments,
            Err(failure) => return self.end(job, receipt, Err((State::Failed, failure)), false).await,
        };
        // The operator may have changed the profile since a person saw what it reaches, or whether its commands only fetch: the row says how the call is
        // recovered.
        if let Some(approved) = &job.approved
            && (approved.network != subject::network(request.network())
                || approved.reveals != request.tool.tool.reveals()
                || request.recovery().to_proto() != job.call.started.recovery())
        {
            return self.end(job, receipt, Err((State::Cancelled, record::profile_changed())), false).await;
        }
        let intent = judge_intent(&job.policy.policy, &request.tool, &arguments, request.network());
        receipt.decision = Some(job.decision(&intent.decision));
        receipt.intent = record::intent(&intent.intent);
        let approved = job.approved.is_some();
        let next = decide::admit(intent.decision.verdict, spec.recovery, spec.touches, approved);
        if next == Admission::Refuse {
            let denied = record::denied(&intent.decision, &job.rules_for_intent(&intent));
            return self.end(job, receipt, Err((State::Denied, denied)), false).await;
        }
        if spec.kind == ToolKind::Terminal
            && let Err(unsuccessful) = self.check_sandbox(job).await
        {
            return self.end(job, receipt, Err(unsuccessful), false).await;
        }
        if next == Admission::Ask {
            return Box::pin(self.require_call_approval(job, receipt, &intent)).await;
        }
        if request.recovery() == Recovery::Manual {
            // A MANUAL call cannot be undone, so its start must be durable before it runs.
            let started = job.row((*job.call.started).clone(), false);
            match self.write(Row { spends: job.used(State::Running).cloned(), ..started }).await {
                Ok(WriteOutcome::Done) => {}
                Ok(WriteOutcome::GrantSpent) => return self.restore_pending(job),
                Err(_) => return Progress::Unresolved,
            }
        }
        let mut cancelled = job.call.cancel.subscribe();
        if spec.touches == Touches::Nothing {
            let (outcome, mut receipt, network_use) = self.work(job, receipt, arguments, None, &mut cancelled).await;
            receipt.network = network_use.get().cloned();
            return self.end(job, receipt, outcome, true).await;
        }
        Box::pin(self.run_in_workspace(job, receipt, arguments, &intent, &mut cancelled)).await
    }

    /// Checks that the sandbox suffices. If the tests of it were lost, waits for another one, or until the call is cancelled.
    async fn check_sandbox(&self, job: &Job) -> Result<(), Unsuccessful> {
        let mut cancelled = job.call.cancel.subscribe();
        let tested = tokio::select! {
            biased;
            () = cancel_requested(&mut cancelled) => return Err((State::Cancelled, record::cancelled())),
            tested = self.enforcement.tested() => tested.map_err(record::unsuccessful)?,
        };
        tier::check(tested.report(), tested.refusal(), job.policy.policy.min_tier())
            .map_err(|failure| (State::Failed, failure))
    }

    /// Runs the tool and fills in the receipt, but for the use of its network, which is set once the tool has released its view.
    async fn work(
        &self,
        job: &Job,
        mut receipt: v1::Receipt,
        arguments: Value,
        view: Option<ViewHandle>,
        cancelled: &mut watch::Receiver<Stop>,
    ) -> (Result<Value, Unsuccessful>, v1::Receipt, Arc<OnceLock<v1::NetworkUse>>) {
        let began = Instant::now();
        let (output, enforced) = (Arc::clone(&job.call.output), Arc::<OnceLock<Vec<String>>>::default());
        let network_use = Arc::<OnceLock<v1::NetworkUse>>::default();
        let outcome = work::work(
            &job.request,
            arguments,
            (view, job.may_read()),
            output,
            job.call.questions.clone(),
            (Arc::clone(&enforced), Arc::clone(&network_use)),
            cancelled,
        )
        .await;
        job.call.output.finish();
        receipt.duration = Some(belay_proto::duration(began.elapsed()));
        receipt.enforced = enforced.get().cloned().unwrap_or_default();
        // If nothing ran in the sandbox, nothing was bounded.
        if enforced.get().is_some() {
            receipt.write_bounds = job.request.tool.tool.write_bounds();
        }
        (outcome, receipt, network_use)
    }

    async fn run_in_workspace(
        self: &Arc<Self>,
        job: &Job,
        mut receipt: v1::Receipt,
        arguments: Value,
        intent: &JudgedIntent,
        cancelled: &mut watch::Receiver<Stop>,
    ) -> Progress {
        // A MANUAL call has a row already.
        let has_row = job.request.recovery() == Recovery::Manual;
        let guard = match self.workspaces.open(job.request.workspace.clone()).await {
            Ok(guard) => Arc::new(guard),
            Err(unavailable) => {
                return self.end(job, receipt, Err(record::unsuccessful(unavailable.into())), has_row).await;
            }
        };
        receipt.live_base = guard.live && job.request.tool.spec.touches == Touches::Changes;
        let lock = if job.request.exclusive || intent.decision.exclusive {
            tokio::select! {
                biased;
                () = cancel_requested(cancelled) => {
                    return self.end(job, receipt, Err((State::Cancelled, record::cancelled())), has_row).await;
                }
                lock = guard.exclusive_lock(&job.request.name, &job.call.waits_for) => Some(lock),
            }
        } else {
            None
        };
        let window = Arc::new(guard.commit_window());
        let view_id = guard.view_id(self.clock.now_micros());
        let limit = work::limit_of(&job.request);
        let begun_until = Instant::now() + limit;
        let begun = match &job.request.layers {
            None => {
                let (guard, id) = (Arc::clone(&guard), view_id.clone());
                let view = self.lanes.quick.run(move || guard.directory().view(&id)).await;
                view.map(|view| (view, Layering::None)).map_err(|error| record::workspace_failed(&error))
            }
            Some(layers) => self.view_over(&guard, (&job.request, &view_id), layers, cancelled, begun_until).await,
        };
        let begun = begun.and_then(|(view, layering)| match &layering {
            Layering::Commits(effect) => self.secrets_of(&effect.notes).map(|secrets| (view, layering, secrets)),
            Layering::Leaves(leaving) => self.secrets_of(&leaving.taken_over).map(|secrets| (view, layering, secrets)),
            Layering::None => Ok((view, layering, Vec::new())),
        });
        let (view, mut layering, told) = match begun {
            Ok((view, layering, told)) => (ViewHandle::new(view, self.lanes.tools.clone()), layering, told),
            Err(unsuccessful) => return self.end(job, receipt, Err(unsuccessful), has_row).await,
        };
        let told = job.hiding(&told);
        let deadline = Instant::now() + limit;
        let (outcome, mut receipt, network_use) =
            self.work(&told, receipt, arguments, Some(view.clone()), cancelled).await;
        let found = told.hiding(&told.call.output.found());
        let job = &*found;
        if let Layering::Leaves(leaving) = &mut layering {
            leaving.secrets = self.ledger.seal_secrets(&job.request.name, job.call.secrets.known());
        }
        let commits_set = match &layering {
            Layering::Commits(effect) => Some(effect.set.clone()),
            Layering::None | Layering::Leaves(_) => None,
        };
        let deadline = deadline + job.call.questions.as_ref().map(Questions::stood_still).unwrap_or_default();
        // Waits until the tool has released the view.
        let mut view = view.take().await;
        receipt.network = network_use.get().cloned();
        let caches = Self::kept_caches(&job.request.tool, &job.request.name, &guard);
        if let Some(changed) = view.take_if(|_| !caches.is_empty()) {
            view = Some(self.stage_caches(&guard, changed).await);
        }
        let cached = view_id.clone();
        let examined = match (&outcome, view) {
            (Ok(_), Some(view)) if job.request.tool.spec.touches == Touches::Changes => {
                let at = (&guard, &window);
                let judge = (job.judge(intent), Arc::clone(&job.call.secrets));
                match self.examine(at, (view, view_id, layering), judge, cancelled, deadline).await {
                    Ok((examined, left_out)) => {
                        receipt.left_out_count = i64::try_from(left_out.len()).unwrap_or(i64::MAX);
                        receipt.left_out = left_out.iter().take(MAX_LEFT_OUT).map(record::left_out).collect();
                        examined
                    }
                    Err(why) => EffectOutcome::Failed(work::stopped_by(&job.request, why, false)),
                }
            }
            (_, view) => {
                self.lanes.effects.run(move || drop(view)).await;
                EffectOutcome::Nothing
            }
        };
        self.clear_later(&guard);
        let ConcurrentCommits { calls, count } = window.concurrent();
        (receipt.concurrent_commits, receipt.concurrent_commit_count) =
            (calls, i64::try_from(count).unwrap_or(i64::MAX));
        // What a call that commits an effect leaves in its caches is merged with the commit.
        let commits = matches!(examined, EffectOutcome::Staged(_));
        // What a call of a step has left in caches may come from files that are never committed.
        let succeeds = outcome.is_ok() && matches!(examined, EffectOutcome::Nothing) && job.request.layers.is_none();
        let progress = match (outcome, examined) {
            (Err(unsuccessful), _) => self.end(job, receipt, Err(unsuccessful), true).await,
            (Ok(_), EffectOutcome::Failed(unsuccessful)) => {
                let unsuccessful = record::not_committed(unsuccessful, job.is_manual());
                self.end(job, receipt, Err(unsuccessful), true).await
            }
            (Ok(result), EffectOutcome::Nothing) => match &commits_set {
                None => self.end(job, receipt, Ok(result), true).await,
                Some(set) => self.end_without_layers(job, receipt, result, set).await,
            },
            (Ok(_), EffectOutcome::Refused { decision, allowing }) => {
                let receipt = v1::Receipt { decision: Some(job.decision(&decision)), ..receipt };
                self.end(job, receipt, Err((State::Denied, record::denied(&decision, &job.unhidden(allowing)))), true)
                    .await
            }
            (Ok(result), EffectOutcome::Layer(layer)) => {
                let ran_in = CallWorkspace { guard: &guard, window: &window, lock };
                self.keep_layer(job, receipt, ran_in, result, *layer, cancelled).await
            }
            (Ok(result), EffectOutcome::Staged(proposal)) if proposal.asks() => {
                // A call that waits for approval does not block other commits.
                drop(lock);
                self.require_effect_approval(job, receipt, intent, &guard, result, *proposal).await
            }
            (Ok(result), EffectOutcome::Staged(proposal)) => {
                let ran_in = CallWorkspace { guard: &guard, window: &window, lock };
                self.commit_now(job, receipt, ran_in, result, *proposal, cancelled).await
            }
        };
        match &progress {
            _ if caches.is_empty() || commits => {}
            Progress::Ended(_) if succeeds => self.merge_caches(&guard, cached, caches).await,
            _ => self.drop_caches(&guard, cached).await,
        }
        progress
    }

    /// Examines what a call changed. Stops when the call is cancelled or its time is up.
    async fn examine(
        &self,
        (guard, window): (&Arc<WorkspaceGuard>, &Arc<CommitWindow>),
        (view, view_id, layering): (Box<dyn View>, String, Layering),
        (judge, secrets): (Judge, Arc<CallSecrets>),
        cancelled: &mut watch::Receiver<Stop>,
        deadline: Instant,
    ) -> Result<(EffectOutcome, Vec<SpecialFile>), StopCause> {
        let applied = guard.applied_count();
        let examine = {
            let (guard, window) = (Arc::clone(guard), Arc::clone(window));
            move |stop: belay_workspace::Stop<'_>| {
                let directory = guard.directory();
                let (directory, view_id, judge, window) = (&*directory, &*view_id, &judge, &*window);
                let (secrets, layering) = (&*secrets, &layering);
                Examination { directory, view_id, judge, layering, secrets, window, stop }.run(view)
            }
        };
        let deadline = deadline.max(Instant::now() + MIN_EXAMINATION);
        let (done, why) = until_stopped(&self.lanes.effects, examine, cancelled, deadline).await;
        let (examined, left_out) = done.map_err(|ExaminationStopped| why.unwrap_or(StopCause::Cancelled))?;
        if let EffectOutcome::Staged(_) | EffectOutcome::Layer(_) = examined {
            guard.staged_after(applied);
        }
        Ok((examined, left_out))
    }

    /// Commits an effect that the policy allows.
    async fn commit_now(
        self: &Arc<Self>,
        job: &Job,
        mut receipt: v1::Receipt,
        CallWorkspace { guard, window, lock }: CallWorkspace<'_>,
        result: Value,
        Proposal { staged, observed, decision, of_step, .. }: Proposal,
        cancelled: &mut watch::Receiver<Stop>,
    ) -> Progress {
        let unapplied = receipt.clone();
        if !decision.follows_the_intent() {
            receipt.decision = Some(job.decision(&decision));
        }
        receipt.effect_digest.clone_from(&observed.digest);
        receipt.effect = Some(summary(&observed.changes.list));
        receipt.files.clone_from(&observed.committed.files);
        receipt.unlisted_file_count = observed.committed.unlisted;
        let touched = commit_log::touched(&observed.changes.list);
        let running = DirectCommit { window, lock, observed: &observed };
        let removes = of_step.map(|effect| effect.set);
        let commit = (&staged, touched, running, removes);
        self.commit_ended(job, (receipt, unapplied), guard, commit, result, cancelled).await
    }

    /// Ends a call of a step whose changes stay a layer until the step commits them.
    async fn keep_layer(
        self: &Arc<Self>,
        job: &Job,
        receipt: v1::Receipt,
        CallWorkspace { guard, window, lock }: CallWorkspace<'_>,
        result: Value,
        NewLayer { staged, reference, observed }: NewLayer,
        cancelled: &mut watch::Receiver<Stop>,
    ) -> Progress {
        let layers = job.request.layers.as_ref().expect("only a call of a step leaves a layer");
        if let Err(status) = self.use_layer_set(&job.request.name, layers, guard).await {
            tracing::error!(%status, "Cannot record that layers of a step are in use");
            self.discard(guard, &staged).await;
            return Progress::Unresolved;
        }
        let kept = v1::Receipt { layer: reference, ..receipt.clone() };
        // Others do not see it: it has touched nothing of the workspace.
        let running = DirectCommit { window, lock, observed: &observed };
        self.commit_ended(job, (kept, receipt), guard, (&staged, Vec::new(), running, None), result, cancelled).await
    }

    /// Ends a call with the commit of its effect. `unapplied`: its receipt when that fails. `removes`: the set of layers that is committed with it.
    async fn commit_ended(
        self: &Arc<Self>,
        job: &Job,
        (receipt, unapplied): (v1::Receipt, v1::Receipt),
        guard: &Arc<WorkspaceGuard>,
        (staged, touched, running, removes): (&StagedEffect, Vec<ChangedPath>, DirectCommit<'_>, Option<String>),
        result: Value,
        cancelled: &mut watch::Receiver<Stop>,
    ) -> Progress {
        let call = self.ended(job, receipt, Ok(result));
        let commit = Commit { staged, touched, call: &job.call, running: Some(running) };
        let row = Row { removes: removes.clone(), ..job.row(call.clone(), true) };
        match self.commit(guard, commit, row, cancelled).await {
            CommitOutcome::Done => {
                if let Some(set) = &removes {
                    self.remove_later(set);
                }
                Progress::Ended(self.ended_call(call))
            }
            CommitOutcome::Refused(unsuccessful) => {
                self.discard(guard, staged).await;
                let unsuccessful = record::not_committed(unsuccessful, job.is_manual());
                self.end(job, unapplied, Err(unsuccessful), true).await
            }
            CommitOutcome::NotApplied(unsuccessful) => {
                let unsuccessful = record::not_committed(unsuccessful, job.is_manual());
                let end = self.ended(job, unapplied, Err(unsuccessful));
                // The grant was spent with the row that this one replaces.
                let row = Row { spends: None, ..job.row(end.clone(), true) };
                match self.revert(guard, staged, row, removes.as_deref()).await {
                    Ok(()) => Progress::Ended(self.ended_call(end)),
                    Err(_) => Progress::Unresolved,
                }
            }
            CommitOutcome::GrantSpent => {
                self.discard(guard, staged).await;
                self.restore_pending(job)
            }
            CommitOutcome::NotWritten(_) if is_planted(Defect::UncommittedReportedUnknown) => {
                let doubt = ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, "Planted.");
                Progress::Ended(self.ended_call(self.ended(job, unapplied, Err((State::OutcomeUnknown, doubt)))))
            }
            CommitOutcome::NotWritten(_) => Progress::Unresolved,
        }
    }

    /// Ends a call that commits the effect of a step whose calls have changed nothing together. It has a row in any case: to run again it would need the
    /// layers, which that row removes.
    async fn end_without_layers(
        self: &Arc<Self>,
        job: &Job,
        receipt: v1::Receipt,
        result: Value,
        set: &str,
    ) -> Progress {
        let call = self.ended(job, receipt, Ok(result));
        let row = Row { removes: Some(set.to_owned()), ..job.row(call.clone(), true) };
        match self.write(row).await {
            Ok(WriteOutcome::Done) => {
                self.remove_later(set);
                Progress::Ended(self.ended_call(call))
            }
            Ok(WriteOutcome::GrantSpent) => self.restore_pending(job),
            Err(_) => Progress::Unresolved,
        }
    }

    pub(super) fn restore_pending(&self, job: &Job) -> Progress {
        let approved = job.approved.as_ref().expect("only an approved call spends a grant");
        Progress::AwaitingApproval(Arc::clone(&approved.waiting))
    }

    /// Ends a call that commits nothing. `ran`: the tool has started, or the ledger says so.
    pub(super) async fn end(
        &self,
        job: &Job,
        receipt: v1::Receipt,
        outcome: Result<Value, Unsuccessful>,
        ran: bool,
    ) -> Progress {
        let call = self.ended(job, receipt, outcome);
        let recovery = job.request.recovery();
        if job.approved.is_none() && !(ran && decide::ends_with_a_row(recovery)) {
            return Progress::Ended(self.ended_call(call));
        }
        match self.write(job.row(call.clone(), true)).await {
            Ok(WriteOutcome::Done) => Progress::Ended(self.ended_call(call)),
            Ok(WriteOutcome::GrantSpent) => self.restore_pending(job),
            // The ledger may still hold the row that waits for approval.
            Err(_) if job.approved.is_some() => Progress::Unresolved,
            // The outcome is true even if the ledger does not hold it: recovery reports an unknown outcome or runs the call again.
            Err(_) => Progress::Ended(self.ended_call(call)),
        }
    }

    /// Builds the message of the ended call.
    fn ended(&self, job: &Job, mut receipt: v1::Receipt, outcome: Result<Value, Unsuccessful>) -> runner_v1::ToolCall {
        let mut secrets = job.call.output.found();
        secrets.extend(
            job.call.started.secrets.iter().filter(|known| !secrets.contains(known)).cloned().collect::<Vec<_>>(),
        );
        let (state, result, failed) = match outcome {
            Ok(result) => (State::Completed, Some(record::payload(result.to_string())), None),
            Err((state, mut failed)) => {
                let call_secrets = job.call.secrets.with_found(&secrets);
                failed.message = call_secrets.text(&failed.message);
                failed.metadata.values_mut().for_each(|fact| *fact = call_secrets.text(fact));
                // Output does not explain a cancellation.
                let last_output = job.call.output.tail().filter(|_| state != State::Cancelled);
                (state, None, Some(v1::Failure { last_output, ..record::failure(failed) }))
            }
        };
        if let Some(used) = job.used(state) {
            receipt.grant_nonce.clone_from(&used.nonce);
        }
        runner_v1::ToolCall {
            state: state.into(),
            result,
            failure: failed,
            end_time: Some(belay_proto::timestamp(self.clock.now_micros())),
            receipt: Some(Box::new(receipt)),
            secrets,
            ..(*job.call.started).clone()
        }
    }

    /// The outcome after a panic. What was written before it is unknown here.
    fn unknown_outcome(&self, job: &Job) -> Progress {
        let message = "The tool runner failed while it ran the call. This is a bug in Belay.";
        let unsuccessful = if job.request.recovery() == Recovery::ReadOnly {
            (State::Failed, ToolFailure::new(ErrorClass::Internal, reasons::INTERNAL, message))
        } else {
            (State::OutcomeUnknown, ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message))
        };
        let receipt = v1::Receipt { ledger_id: self.ledger.id().into(), ..v1::Receipt::default() };
        Progress::Ended(self.ended_call(self.ended(job, receipt, Err(unsuccessful))))
    }
}

//! Stories in words: the steps, what their calls come to, and what people ask for when.

use std::{collections::HashMap, sync::Arc, time::Duration};

use belay_execution::{
    Actor, ApprovalMode, ApprovalRequirement, Body, Created, Decision, EffectSummary, ErrorClass, Execution,
    ExecutionEvent, Failure, Json, LastOutput, OperationEnd, OperationEvent, OperationId, PauseCause, PlanUpdated,
    PolicyDecision, RequiredAction, Resolution, Retried, RetryRequest, SignalReceived, StepEvent, SubjectKind,
    ToolCallRequest, Verdict, WaitEnd, Work,
};
use belay_plan::{
    AgentDraft, Backoff, Budget, CallDraft, Dependency, Effects, Escalation, FormDraft, Input, LimitBound, LimitClaim,
    OnError, Outcome as StepOutcome, Plan, PlanDraft, RecoveryStrategy, RepeatDraft, RetryPolicy, RunWhen, StepDraft,
    StepKindDraft, Then, WaitDraft, WhenFull,
};
use serde_json::{Value, json};

use super::{
    play::{Happening, Play, START, created},
    runner::{Outcome, Question, Reply},
};

/// A story before it is played.
pub(crate) struct Story {
    pub(crate) plan: PlanDraft,
    /// By step, one after the other; then `ok 1s`.
    replies: HashMap<String, Vec<Reply>>,
    acts: Vec<(Duration, Happening)>,
    mode: ApprovalMode,
    start_after: Option<Duration>,
    limits: Vec<LimitClaim>,
    full: Vec<(Duration, Duration)>,
    crowded: Option<(u64, u64)>,
    forked_from: &'static str,
}

/// Steps such as `draft; publish after draft, review`. They run one by one, once each, for a second.
pub(crate) fn story(steps: &str) -> Story {
    let steps = steps.split(';').map(|words| {
        let (id, after) = words.split_once(" after ").unwrap_or((words, ""));
        StepDraft {
            group: String::new(),
            id: id.trim().to_owned(),
            description: String::new(),
            title: String::new(),
            depends_on: after.split(',').map(str::trim).filter(|id| !id.is_empty()).map(Dependency::from).collect(),
            run_when: RunWhen::Success,
            condition: String::new(),
            for_each: None,
            repeat: None,
            fail_fast: false,
            group_timeouts: Default::default(),
            fail_fast_groups: Vec::new(),
            fallback: Vec::new(),
            compensate: None,
            resources: Vec::new(),
            preconditions: Vec::new(),
            postconditions: Vec::new(),
            output_schema: None,
            budget: None,
            timeout: None,
            attempt_timeout: None,
            exclusive: false,
            network: None,
            verbatim: Vec::new(),
            retry: None,
            on_error: OnError::new(),
            kind: StepKindDraft::Tool { tool: "work".to_owned(), arguments: json!({}) },
        }
    });
    let plan = PlanDraft { id: "story".to_owned(), steps: steps.collect(), ..PlanDraft::default() };
    Story {
        plan,
        replies: HashMap::new(),
        acts: Vec::new(),
        mode: ApprovalMode::Wait,
        start_after: None,
        limits: Vec::new(),
        full: Vec::new(),
        crowded: None,
        forked_from: "",
    }
}

impl Story {
    pub(crate) fn parallelism(mut self, parallelism: u32) -> Self {
        self.plan.parallelism = parallelism;
        self
    }

    /// The result of the execution, by the names of its parts.
    pub(crate) fn outputs(mut self, outputs: Value) -> Self {
        self.plan.outputs = outputs.as_object().cloned().into_iter().flatten().collect();
        self
    }

    pub(crate) fn stop_on_error(mut self) -> Self {
        self.plan.stop_on_error = true;
        self
    }

    /// Sets the budget of all steps' calls.
    pub(crate) fn budget(mut self, budget: Budget) -> Self {
        self.plan.budget = Some(budget);
        self
    }

    /// Sets the budget of a step's calls.
    pub(crate) fn step_budget(mut self, id: &str, budget: Budget) -> Self {
        self.step(id).budget = Some(budget);
        self
    }

    /// Sets the approval mode.
    pub(crate) fn mode(mut self, mode: ApprovalMode) -> Self {
        self.mode = mode;
        self
    }

    /// It starts this much later than it was accepted.
    pub(crate) fn starts_after(mut self, delay: &str) -> Self {
        self.start_after = Some(seconds(delay));
        self
    }

    /// A time limit for the whole execution.
    pub(crate) fn limit(mut self, limit: &str) -> Self {
        self.plan.timeout = Some(seconds(limit));
        self
    }

    /// A time limit for a step with all its attempts.
    pub(crate) fn step_limit(mut self, id: &str, limit: &str) -> Self {
        self.step(id).timeout = Some(seconds(limit));
        self
    }

    /// A time limit for each attempt at a step.
    pub(crate) fn attempt_limit(mut self, id: &str, limit: &str) -> Self {
        self.step(id).attempt_timeout = Some(seconds(limit));
        self
    }

    /// How often a step is tried, and the waits between, such as `1s 2s 4s`.
    pub(crate) fn tries(self, id: &str, max_attempts: u32, delays: &str) -> Self {
        self.retry(
            id,
            RetryPolicy {
                max_attempts,
                backoff: Backoff::List(delays.split_whitespace().map(seconds).collect()),
                ..RetryPolicy::default()
            },
        )
    }

    pub(crate) fn retry(mut self, id: &str, retry: RetryPolicy) -> Self {
        self.step(id).retry = Some(retry);
        self
    }

    pub(crate) fn arguments(mut self, id: &str, value: Value) -> Self {
        match &mut self.step(id).kind {
            StepKindDraft::Tool { arguments, .. } => *arguments = value,
            StepKindDraft::Plan { inputs, .. } => *inputs = value,
            StepKindDraft::Calls { calls, .. } => calls.iter_mut().for_each(|call| call.arguments = value.clone()),
            StepKindDraft::Wait { .. } | StepKindDraft::Agent { .. } => panic!("{id} has no arguments"),
        }
        self
    }

    /// A step carries out a plan, with these inputs; see [`super::children`].
    pub(crate) fn carries_out(mut self, id: &str, inputs: Value) -> Self {
        let mut plan = PlanDraft { id: "inner".to_owned(), ..PlanDraft::default() };
        let kind = StepKindDraft::Tool { tool: "work".to_owned(), arguments: json!({}) };
        plan.steps = vec![StepDraft { id: "inside".to_owned(), kind, ..self.step(id).clone() }];
        plan.steps[0].depends_on.clear();
        let input = || Input { default: Some(Value::Null), ..Input::default() };
        plan.inputs = ["takes", "fails", "times", "of"].map(|name| (name.to_owned(), input())).into();
        self.step(id).kind = StepKindDraft::Plan { plan: Box::new(plan), inputs };
        self
    }

    pub(crate) fn condition(mut self, id: &str, condition: &str) -> Self {
        self.step(id).condition = condition.to_owned();
        self
    }

    /// A step runs for each entry of this list.
    pub(crate) fn for_each(mut self, id: &str, list: Value) -> Self {
        self.step(id).for_each = Some(list);
        self
    }

    /// Steps stand in a group with this time limit, in seconds.
    pub(crate) fn in_group(mut self, group: &str, seconds: u64, steps: &str) -> Self {
        for id in steps.split_whitespace() {
            self.step(id).group_timeouts.insert(group.to_owned(), Duration::from_secs(seconds));
        }
        self
    }

    /// The steps stand in a group of which no step starts once one of them has failed.
    pub(crate) fn fail_fast_group(mut self, group: &str, steps: &str) -> Self {
        for id in steps.split_whitespace() {
            self.step(id).fail_fast_groups.push(group.to_owned());
        }
        self
    }

    /// No more entries or calls of a step start once one has failed.
    pub(crate) fn fail_fast(mut self, id: &str) -> Self {
        self.step(id).fail_fast = true;
        self
    }

    /// A step runs again until this holds, at most so often.
    pub(crate) fn repeat(mut self, id: &str, until: &str, max: u32) -> Self {
        self.step(id).repeat = Some(RepeatDraft { until: until.to_owned(), max, delay: None });
        self
    }

    /// The time between the rounds of a step.
    pub(crate) fn delay(mut self, id: &str, seconds: u64) -> Self {
        let repeat = self.step(id).repeat.as_mut().expect("it repeats");
        repeat.delay = Some(Duration::from_secs(seconds));
        self
    }

    /// A step makes calls of these tools, side by side.
    pub(crate) fn calls(mut self, id: &str, tools: &str) -> Self {
        let calls = tools.split_whitespace().map(|tool| CallDraft {
            tool: tool.to_owned(),
            arguments: json!({}),
            verbatim: Vec::new(),
        });
        self.step(id).kind = StepKindDraft::Calls { calls: calls.collect(), effects: Effects::default() };
        self
    }

    /// A model works towards a goal in a step, with these tools and at most so many turns; what fails for a while is tried again as by default.
    pub(crate) fn agent(mut self, id: &str, model: &str, tools: &[&str], max_turns: u32) -> Self {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        let agent = AgentDraft {
            model: model.to_owned(),
            task: "Do it.".to_owned(),
            tools,
            max_turns,
            ..AgentDraft::default()
        };
        self.step(id).kind = StepKindDraft::Agent { agent, effects: Effects::default() };
        self
    }

    /// Lets these models take over from a step's model.
    pub(crate) fn fallback_models(mut self, id: &str, models: &[&str]) -> Self {
        let StepKindDraft::Agent { agent, .. } = &mut self.step(id).kind else { panic!("no model works in {id}") };
        agent.fallback = models.iter().map(|model| (*model).to_owned()).collect();
        self
    }

    /// Lets a step's prompt have so many percent of the model's window.
    pub(crate) fn prompt_percent(mut self, id: &str, percent: u32) -> Self {
        let StepKindDraft::Agent { agent, .. } = &mut self.step(id).kind else { panic!("no model works in {id}") };
        agent.prompt_percent = percent;
        self
    }

    /// Shows a step's model these files.
    pub(crate) fn files(mut self, id: &str, files: &[&str]) -> Self {
        let StepKindDraft::Agent { agent, .. } = &mut self.step(id).kind else { panic!("no model works in {id}") };
        agent.files = files.iter().map(|file| (*file).to_owned()).collect();
        self
    }

    /// Commits the changes of a step's calls as one.
    pub(crate) fn one_effect(mut self, id: &str) -> Self {
        match &mut self.step(id).kind {
            StepKindDraft::Calls { effects, .. } | StepKindDraft::Agent { effects, .. } => *effects = Effects::PerStep,
            other => panic!("{id} makes one call at most: {other:?}"),
        }
        self
    }

    /// Sets the arguments of one of a step's calls.
    pub(crate) fn call_arguments(mut self, id: &str, index: usize, arguments: Value) -> Self {
        match &mut self.step(id).kind {
            StepKindDraft::Calls { calls, .. } => calls[index].arguments = arguments,
            StepKindDraft::Tool { .. }
            | StepKindDraft::Agent { .. }
            | StepKindDraft::Wait { .. }
            | StepKindDraft::Plan { .. } => {
                panic!("{id} makes one call at most")
            }
        }
        self
    }

    /// Calls of these tools take the place of a step's own.
    pub(crate) fn fallback(mut self, id: &str, tools: &str) -> Self {
        let calls = tools.split_whitespace().map(|tool| CallDraft {
            tool: tool.to_owned(),
            arguments: json!({}),
            verbatim: Vec::new(),
        });
        self.step(id).fallback = calls.collect();
        self
    }

    /// A step calls this tool: `look` changes nothing.
    pub(crate) fn tool(mut self, id: &str, name: &str) -> Self {
        match &mut self.step(id).kind {
            StepKindDraft::Tool { tool, .. } => *tool = name.to_owned(),
            StepKindDraft::Calls { .. }
            | StepKindDraft::Agent { .. }
            | StepKindDraft::Wait { .. }
            | StepKindDraft::Plan { .. } => {
                panic!("{id} is not one call")
            }
        }
        self
    }

    /// Sets the strategy for a failure of this class in a step.
    pub(crate) fn on_error(mut self, id: &str, class: ErrorClass, strategy: RecoveryStrategy) -> Self {
        self.step(id).on_error.insert(class, strategy);
        self
    }

    /// Steps are undone by a call of a tool, which names what they have done.
    pub(crate) fn compensated(mut self, ids: &str) -> Self {
        for id in ids.split_whitespace() {
            let arguments = json!({"undo": format!("${{{id}.result}}")});
            self.step(id).compensate = Some(CallDraft { tool: "undo".to_owned(), arguments, verbatim: Vec::new() });
        }
        self
    }

    /// Sets the resources that no other step may use at the same time.
    pub(crate) fn resources(mut self, id: &str, names: &str) -> Self {
        self.step(id).resources = names.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// Sets the escalation for failed steps: the delays are in seconds.
    pub(crate) fn escalation(mut self, retries: u32, delays: &[u64], then: Then) -> Self {
        let backoff = Backoff::List(delays.iter().map(|&delay| Duration::from_secs(delay)).collect());
        self.plan.escalation = Some(Escalation { retries, backoff, then });
        self
    }

    /// How many steps may use a resource at the same time.
    pub(crate) fn capacity(mut self, resource: &str, steps: u32) -> Self {
        self.plan.resources.insert(resource.to_owned(), steps);
        self
    }

    /// Sets the checks before a step's call, and after it.
    pub(crate) fn checks(mut self, id: &str, before: Value, after: Value) -> Self {
        let read = |checks| serde_json::from_value(checks).expect("a list of checks");
        let step = self.step(id);
        (step.preconditions, step.postconditions) = (read(before), read(after));
        self
    }

    /// The schema of a step's output.
    pub(crate) fn output_schema(mut self, id: &str, schema: Value) -> Self {
        self.step(id).output_schema = Some(schema);
        self
    }

    /// After which outcomes of another a step runs, such as `skipped, success`.
    pub(crate) fn on(mut self, id: &str, step: &str, outcomes: &str) -> Self {
        let outcomes = outcomes.split(',').map(|word| match word.trim() {
            "success" => StepOutcome::Success,
            "failure" => StepOutcome::Failure,
            "skipped" => StepOutcome::Skipped,
            word => panic!("no outcome is called `{word}`"),
        });
        let on = self.step(id).depends_on.iter_mut().find(|on| on.step == step).expect("a step that it depends on");
        on.on = Some(outcomes.collect());
        self
    }

    pub(crate) fn run_when(mut self, id: &str, run_when: RunWhen) -> Self {
        self.step(id).run_when = run_when;
        self
    }

    /// A step waits: for `2s`, or for the signal of this name.
    pub(crate) fn waits(mut self, id: &str, what: &str) -> Self {
        let duration = what.strip_suffix('s').and_then(|number| number.parse().ok()).map(Duration::from_secs);
        let signal = if duration.is_some() { String::new() } else { what.to_owned() };
        self.step(id).kind = StepKindDraft::Wait { wait: WaitDraft { duration, signal, ..WaitDraft::default() } };
        self
    }

    /// A step waits for a person's answer to a form with this title.
    pub(crate) fn asks(mut self, id: &str, title: &str) -> Self {
        let form = FormDraft { title: title.to_owned(), schema: json!({"type": "object"}), ..FormDraft::default() };
        self.step(id).kind = StepKindDraft::Wait { wait: WaitDraft { form: Some(form), ..WaitDraft::default() } };
        self
    }

    /// Sets the outcomes of calls: `draft: transient 2s, ok; publish: ok! 5s`. A call with `!` cannot be stopped. `ok call:approved:2s effect`
    /// is held before its work, approved two seconds after the asking, then held with its effect, and nobody answers; an effect with
    /// `:conflict` conflicts when it is committed.
    pub(crate) fn replies(mut self, words: &str) -> Self {
        for step in words.split(';') {
            let (id, replies) = step.split_once(':').expect("`step: reply, reply`");
            self.replies.insert(id.trim().to_owned(), replies.split(',').map(reply).collect());
        }
        self
    }

    /// Sets the outcomes of a step's first calls, each after a second.
    pub(crate) fn outcomes(mut self, id: &str, outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        let replies = outcomes.into_iter().map(|outcome| Reply { outcome, ..reply("ok") });
        self.replies.insert(id.to_owned(), replies.collect());
        self
    }

    /// A step's call completes with this, after a second.
    pub(crate) fn output(self, id: &str, output: &Value) -> Self {
        self.outcomes(id, [Outcome::Completed(Json::canonical(output))])
    }

    /// Sets the requests of people: `2s pause; 3s resume; 3s pause discarding; 4s cancel`.
    pub(crate) fn acts(mut self, words: &str) -> Self {
        for act in words.split(';') {
            let (at, what) = act.trim().split_once(' ').expect("`2s pause`");
            self.acts.push((seconds(at), act_of(what)));
        }
        self
    }

    /// It has a limit over executions that others hold from the first time until the second, in seconds.
    pub(crate) fn limited(mut self, when_full: WhenFull, full: &[(u64, u64)]) -> Self {
        self.limits = vec![LimitClaim { key: "deploy".to_owned(), bound: LimitBound::AtOnce(1), when_full }];
        self.full =
            full.iter().map(|(from, until)| (Duration::from_secs(*from), Duration::from_secs(*until))).collect();
        self
    }

    /// From the first second until the second, steps of other executions are in the way of entries of its lists.
    pub(crate) fn crowded(mut self, from: u64, until: u64) -> Self {
        self.crowded = Some((from, until));
        self
    }

    /// It is a fork, whose step begins with a conversation of another execution.
    pub(crate) fn carries_over(mut self, step: &str, event: StepEvent) -> Self {
        self.forked_from = "namespaces/default/executions/origin";
        let body = Body::Step { step: step.into(), attempt: 0, event };
        self.acts.push((Duration::ZERO, (Some(Actor::new("person")), body)));
        self
    }

    /// The play before its first turn.
    pub(crate) fn rehearse(self) -> Play {
        let Story { plan, replies, acts, mode, start_after, limits, full, crowded, forked_from } = self;
        let plan = Plan::new(plan).unwrap();
        // The steps for the entries of a list come later.
        let is_known = |id: &String| plan.step_index(id.split('~').next().unwrap_or_default()).is_some();
        assert!(replies.keys().all(is_known), "a reply for a step that is not there");
        let script = move |call: &OperationId, before: usize| {
            let of_step = replies.get(&*call.step).and_then(|replies| replies.get(before));
            of_step.cloned().unwrap_or_else(|| reply("ok"))
        };
        let start_at = start_after.map(|after| START.saturating_add(after));
        let forked_from = forked_from.to_owned();
        let created = Created { approval_mode: mode, start_at, limits, forked_from, ..created(plan) };
        let mut play = Play::new(created, Box::new(script));
        let at = |after: Duration| START.saturating_add(after);
        play.full = full.into_iter().map(|(from, until)| (at(from), at(until))).collect();
        let second = |second| at(Duration::from_secs(second));
        play.crowded = crowded.map(|(from, until)| (second(from), second(until)));
        play.acts = acts.into_iter().map(|(at, act)| (START.saturating_add(at), act)).collect();
        play
    }

    /// Plays it until it has ended or waits for somebody.
    pub(crate) fn play(self) -> Play {
        let mut play = self.rehearse();
        play.run();
        play
    }

    /// Plays it, and what happened then.
    pub(crate) fn picture(self) -> Vec<String> {
        self.play().picture()
    }

    fn step(&mut self, id: &str) -> &mut StepDraft {
        self.plan.steps.iter_mut().find(|step| step.id == id).expect("a step of the story")
    }
}

/// A request of a person, by its words. `signal go 7` sends the signal `go` with 7; `answer a 7` answers the form of the step `a`.
pub(crate) fn act_of(words: &str) -> Happening {
    let reason = String::new();
    let ended = |step: &str, end| {
        let body = Body::Operation { id: call(step, 1, 1), event: OperationEvent::Ended(OperationEnd::Wait(end)) };
        (Some(Actor::new("person")), body)
    };
    let event = match words.split(' ').collect::<Vec<_>>()[..] {
        ["pause"] => {
            ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Request }
        }
        ["pause", "until", at] => ExecutionEvent::Paused {
            reason,
            discard_calls: false,
            resume_at: Some(START.saturating_add(seconds(at))),
            cause: PauseCause::Request,
        },
        ["pause", "discarding"] => {
            ExecutionEvent::Paused { reason, discard_calls: true, resume_at: None, cause: PauseCause::Request }
        }
        ["resume"] => ExecutionEvent::Resumed,
        ["cancel"] => ExecutionEvent::CancelRequested { reason, kill: false },
        ["kill"] => ExecutionEvent::CancelRequested { reason, kill: true },
        ["signal", signal, payload] => {
            let (signal, payload) = (signal.to_owned(), Json::from_text(payload));
            ExecutionEvent::SignalReceived(SignalReceived { signal, payload })
        }
        ["answer", step, answer] => return ended(step, WaitEnd::Answered { answer: Json::from_text(answer) }),
        ["resolve", name, how] => {
            let resolution = match how {
                "completed" => Resolution::Completed(Json::from_text(r#"{"n":1}"#)),
                "failed" => Resolution::Failed,
                _ => Resolution::Again,
            };
            return (Some(Actor::new("person")), self::step(name, 1, StepEvent::Resolved { resolution, reason }));
        }
        ["retry", ref how @ ..] => {
            let mut request = RetryRequest::default();
            for word in how {
                match *word {
                    "skipping" => request.skip_failed = true,
                    "paused" => request.start_paused = true,
                    step => request.from = Some(step.into()),
                }
            }
            ExecutionEvent::Retried(Box::new(Retried { steps: Vec::new(), request, deadline: None, escalation: None }))
        }
        ["update", what, step] => {
            let plan = Plan::new(story("a").plan).unwrap();
            let updated =
                PlanUpdated { plan, tools: Vec::new(), revision: 0, deadline: None, reason: format!("{what} {step}") };
            ExecutionEvent::PlanUpdated(Box::new(updated))
        }
        ["skip-step", name, attempt] => {
            let event = StepEvent::SkipRequested { reason };
            return (Some(Actor::new("person")), self::step(name, attempt.parse().unwrap(), event));
        }
        ["set-output", name, attempt, output] => {
            let event = StepEvent::OutputSet { output: Json::from_text(output), reason };
            return (Some(Actor::new("person")), self::step(name, attempt.parse().unwrap(), event));
        }
        ["retry-now", name, attempt] => {
            let event = StepEvent::RetryAdvanced { reason };
            return (Some(Actor::new("person")), self::step(name, attempt.parse().unwrap(), event));
        }
        ["force-fallback", name, attempt, from, to, failed] => {
            let (from, to) = (from.to_owned(), to.to_owned());
            let event = StepEvent::FallbackSwitched { failure: failure(failed), from, to, reason };
            return (Some(Actor::new("person")), self::step(name, attempt.parse().unwrap(), event));
        }
        ["cancel-retry", name, attempt] => {
            let event = StepEvent::RetryCancelled { reason };
            return (Some(Actor::new("person")), self::step(name, attempt.parse().unwrap(), event));
        }
        ["deny", step] => return ended(step, WaitEnd::Declined { decision: Decision::Denied, reason }),
        ["skip", step] => return ended(step, WaitEnd::Declined { decision: Decision::Skipped, reason }),
        _ => panic!("nobody can ask for `{words}`"),
    };
    (Some(Actor::new("person")), event.into())
}

/// A call of a step: its attempt, and its number within it.
pub(crate) fn call(step: &str, attempt: u32, number: u32) -> OperationId {
    OperationId { step: step.into(), attempt, number }
}

/// An event about a step.
pub(crate) fn step(step: &str, attempt: u32, event: StepEvent) -> Body {
    Body::Step { step: step.into(), attempt, event }
}

/// A call that fails with this.
pub(crate) fn failed(class: ErrorClass, reason: &'static str, message: &str) -> Outcome {
    Outcome::Failed(Failure::new(class, reason, message))
}

/// A failure by the word for its class; its reason is the word in capitals.
pub(crate) fn failure(word: &str) -> Failure {
    let class = match word {
        "crash" => ErrorClass::Crash,
        "rate-limit" | "used-up" => ErrorClass::RateLimit,
        "fatal" => ErrorClass::Fatal,
        "transient" => ErrorClass::Transient,
        "timeout" => ErrorClass::Timeout,
        "unavailable" => ErrorClass::AgentUnavailable,
        "invalid" => ErrorClass::InvalidArguments,
        "denied" => ErrorClass::PolicyDenied,
        "unknown" => ErrorClass::OutcomeUnknown,
        "says-429" | "says-key" => ErrorClass::Transient,
        _ => panic!("no failure is called `{word}`"),
    };
    let failure = Failure::new(class, word.to_uppercase(), format!("The call ended with {word}."));
    let printed = match word {
        "says-429" => Some("HTTP 429"),
        "says-key" => Some("Invalid API key"),
        _ => None,
    };
    let mut failure = failure;
    if let Some(stderr) = printed {
        failure.metadata.insert("exit_code".to_owned(), "1".to_owned());
        failure.last_output = Some(Arc::new(LastOutput { stderr: stderr.to_owned(), ..LastOutput::default() }));
    }
    Failure { retry_after: (word == "used-up").then_some(Duration::from_secs(30)), ..failure }
}

fn reply(words: &str) -> Reply {
    let (questions, words): (Vec<&str>, Vec<&str>) =
        words.split_whitespace().partition(|word| word.starts_with("call") || word.starts_with("effect"));
    let mut words = words.into_iter();
    let outcome = words.next().expect("a reply has an outcome");
    let latency = words.next().map_or(Duration::from_secs(1), seconds);
    let stops_in = if outcome.ends_with('!') { None } else { Some(Duration::ZERO) };
    let outcome = match outcome.trim_end_matches('!') {
        "ok" => Outcome::Completed(Json::from_text("{}")),
        "cancelled" => Outcome::Cancelled(None),
        "denied" => Outcome::Denied(failure("denied")),
        "unknown" => Outcome::Unknown(failure("unknown")),
        word => Outcome::Failed(failure(word)),
    };
    Reply { outcome, latency, stops_in, questions: questions.into_iter().map(question).collect() }
}

fn question(words: &str) -> Question {
    let mut words = words.split(':');
    let kind = if words.next() == Some("call") { SubjectKind::Call } else { SubjectKind::Effect };
    let decision = words.next().map(|word| match word {
        "approved" => Decision::Approved,
        "denied" => Decision::Denied,
        "skipped" => Decision::Skipped,
        "expired" => Decision::Expired,
        _ => panic!("nobody can decide `{word}`"),
    });
    let after = words.next().map_or(Duration::ZERO, seconds);
    Question { kind, answer: decision.map(|decision| (decision, after)), conflicts: words.next() == Some("conflict") }
}

fn seconds(text: &str) -> Duration {
    let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
    Duration::from_secs_f64(number.unwrap_or_else(|| panic!("`{text}` is not like `2s`")))
}

/// A call's intent, with nothing in it that matters.
pub(crate) fn request(call: OperationId) -> Body {
    let request = ToolCallRequest {
        tool: "work".to_owned(),
        arguments: Json::from_text("{}").into(),
        arguments_digest: String::new(),
        ledger_id: "ledger".to_owned(),
        timeout: Duration::from_secs(1),
        check: None,
        held: belay_execution::Amounts::default(),
        layers: None,
        namespace_hold: None,
    };
    Body::Operation { id: call, event: OperationEvent::Requested(Work::ToolCall(Arc::new(request))) }
}

/// Returns the requirement for which a call is held, with nothing in it that matters but its digest.
pub(crate) fn requirement(subject_digest: &str) -> ApprovalRequirement {
    let decision = PolicyDecision {
        verdict: Verdict::Prompt,
        rule: "rule".to_owned(),
        reason: "because".to_owned(),
        policy_revision: 1,
    };
    let (kind, effect) = (SubjectKind::Effect, EffectSummary::default());
    ApprovalRequirement {
        kind,
        subject_digest: subject_digest.to_owned(),
        decision,
        effect,
        allowing_rules: vec!["{id: x}".to_owned(), "{id: y}".to_owned()],
        risk: belay_execution::Risk::Medium,
    }
}

/// The only thing that the driver has to do.
#[track_caller]
pub(crate) fn action(execution: &Execution) -> (OperationId, RequiredAction) {
    let [action] = execution.actions()[..] else { panic!("to do: {:?}", execution.actions()) };
    (execution.operation_id(action.operation), action.required)
}

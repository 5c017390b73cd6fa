//! Any plan, any answers, any interference: the rules hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use belay_execution::{
    Actor, ApprovalMode, Body, Created, DecideContext, Decision, ErrorClass, Event, Execution, ExecutionState, Json,
    NotRestored, SNAPSHOT_VERSION, StepId, SubjectKind,
};
use belay_plan::{
    Backoff, Budget, CallDraft, CheckDraft, Dependency, Effects, Escalation, FormDraft, Input, LimitBound, LimitClaim,
    OnError, OnExhausted, Outcome as StepOutcome, Plan, PlanDraft, RecoveryStrategy, RepeatDraft, RetryPolicy, RunWhen,
    StepDraft, StepKindDraft, Then, WaitDraft, WhenFull,
};
use proptest::{collection::vec, option, prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::support::{
    Conditions, Crash, Happening, Outcome, Play, Question, Reply, START, act_of, created, failure, story,
    without_recoveries,
};

const MAX_STEPS: usize = 12;

/// Requests of people about the forms of steps.
const ABOUT_FORMS: &[&str] = &[
    r#"answer s0 {"n":1}"#,
    r#"answer s1 {"n":2}"#,
    "answer s2 7",
    "answer s3 null",
    "answer s4 {}",
    "deny s0",
    "deny s2",
    "skip s1",
    "skip s3",
];

/// Outcomes that people find of calls whose outcome was unknown.
const ABOUT_OUTCOMES: &[&str] = &[
    "resolve s0 completed",
    "resolve s1 failed",
    "resolve s1 again",
    "resolve s2 again",
    "resolve s3 completed",
    "resolve s4 again",
    "resolve s0~0 completed",
    "resolve s1~0 again",
    "resolve s1~1 failed",
    "resolve s0~compensate completed",
    "resolve s1~compensate failed",
    "resolve s2~compensate again",
];

/// Requests of people about steps that have ended, or that wait.
const ABOUT_STEPS: &[&str] = &[
    "retry",
    "retry",
    "retry",
    "retry s0",
    "retry s1",
    "retry s3",
    "retry s0~0",
    "retry s1~1",
    "update drop s0",
    "update drop s2",
    "update drop s4",
    "update rename s1",
    "update free s2",
    "update free s3",
    "update join s2",
    "update join s4",
    "update succeed s3",
    "update add s0",
    "update add s2",
    "update add s9",
    "update raise all",
    "update cap all",
    "update raise all",
    "skip-step s0 0",
    "skip-step s0~0 0",
    "skip-step s1~1 0",
    "skip-step s2~0 1",
    "set-output s0~1 0 {}",
    "set-output s1~0 0 7",
    "retry-now s0~0 1",
    "cancel-retry s1~0 1",
    "skip-step s0~compensate 0",
    "skip-step s1~compensate 1",
    "set-output s2~compensate 0 {}",
    "retry-now s1~compensate 1",
    "retry s0~compensate",
    "skip-step s1 0",
    "skip-step s2 1",
    "skip-step s3 2",
    "set-output s0 0 {}",
    "set-output s1 1 7",
    r#"set-output s2 0 {"n":1}"#,
    "retry-now s0 1",
    "retry-now s1 1",
    "retry-now s2 2",
    "cancel-retry s0 1",
    "cancel-retry s1 1",
    "cancel-retry s3 2",
];

/// Calls after which a step's runner no longer gives up by itself, so that every play ends.
const PATIENCE: usize = 8;

/// Everything that decides how a play goes.
#[derive(Clone, Debug)]
struct World {
    plan: PlanDraft,
    replies: Vec<Reply>,
    acts: Vec<(Duration, &'static str)>,
    mode: ApprovalMode,
    batches: bool,
    start_after: Option<Duration>,
    limit: Option<Limit>,
}

/// A limit over executions: whether it refuses, and when others hold it, from and for how long.
type Limit = (bool, Vec<(Duration, Duration)>);

impl World {
    fn play(&self, crashes: &[Option<Crash>]) -> Play {
        let plan = Plan::new(self.plan.clone()).unwrap();
        let replies = self.replies.clone();
        let script = move |call: &belay_execution::OperationId, before: usize| {
            let step: usize = call.step[1..].split('~').next().unwrap().parse().unwrap();
            let mut reply = replies[(step * 5 + before) % replies.len()].clone();
            if before >= PATIENCE {
                if matches!(reply.outcome, Outcome::Cancelled(_)) {
                    reply.outcome = Outcome::Completed(Json::from_text("{}"));
                }
                reply.questions.iter_mut().for_each(|question| question.conflicts = false);
            }
            reply
        };
        let start_at = self.start_after.map(|after| START.saturating_add(after));
        let limits = self.limit.iter().map(|(refuses, _)| LimitClaim {
            key: "any".to_owned(),
            bound: LimitBound::AtOnce(1),
            when_full: if *refuses { WhenFull::Refuse } else { WhenFull::Wait },
        });
        let created = Created { approval_mode: self.mode, start_at, limits: limits.collect(), ..created(plan) };
        let mut play = Play::new(created, Box::new(script));
        let full = self.limit.iter().flat_map(|(_, full)| full);
        let at = |after: Duration| START.saturating_add(after);
        play.full = full.map(|(from, length)| (at(*from), at(*from + *length))).collect();
        play.acts = self.acts.iter().map(|&(at, words)| (START.saturating_add(at), act_of(words))).collect();
        play.batches = self.batches;
        play.crashes = crashes.to_vec().into();
        play.run();
        play
    }
}

/// Half seconds, so that much happens at the same moment.
fn moments(most: u64) -> impl Strategy<Value = Duration> {
    (0..=most).prop_map(|halves| Duration::from_millis(halves * 500))
}

fn limits(most: u64) -> impl Strategy<Value = Option<Duration>> {
    option::weighted(0.2, moments(most).prop_map(|limit| limit + Duration::from_millis(500)))
}

/// A step, by what it depends on: `rank` makes the graph acyclic, `wishes` has a bit for each step that it would depend on.
#[derive(Clone, Debug)]
struct Seed {
    rank: u8,
    wishes: u16,
    reads: bool,
    retry: Option<RetryPolicy>,
    timeout: Option<Duration>,
    attempt_timeout: Option<Duration>,
    /// It waits, instead of calling a tool.
    wait: Option<Wait>,
    run_when: RunWhen,
    /// The outcomes that it names of the steps that it depends on, in turn: a bit for each outcome, and none for a step whose outcomes it does not name.
    outcomes: Vec<u8>,
    /// The condition, about FIRST: the first step that it depends on.
    condition: &'static str,
    budget: Option<Budget>,
    /// How many calls it makes, when it makes several, and how what they change becomes the workspace's.
    calls: Option<(usize, Effects)>,
    /// A list, which may be one of that step's.
    for_each: Option<&'static str>,
    /// Until when it runs again, the most rounds, and the seconds between them.
    repeat: Option<(&'static str, u32, u64)>,
    on_error: &'static [(ErrorClass, RecoveryStrategy)],
    fallback: usize,
    compensates: bool,
    resources: &'static [&'static str],
    /// The checks before and after its call, by their letters: a command, an expression that holds, one that does not, one about its own output.
    checks: (&'static str, &'static str),
}

#[derive(Clone, Debug)]
enum Wait {
    For(Duration),
    Signal(&'static str),
    Form,
    /// No wait: a plan of its own, with these inputs.
    Plan(Value),
}

fn waits() -> impl Strategy<Value = Wait> {
    prop_oneof![
        1 => moments(10).prop_map(|duration| Wait::For(duration + Duration::from_millis(500))),
        1 => Just(Wait::Signal("go")),
        1 => Just(Wait::Signal("stop")),
        2 => Just(Wait::Form),
        2 => Just(Wait::Plan(json!({"takes": 2}))),
        1 => Just(Wait::Plan(json!({"takes": 3, "fails": "fatal"}))),
        1 => Just(Wait::Plan(json!({"fails": "transient", "times": 1}))),
    ]
}

fn seeds() -> impl Strategy<Value = Seed> {
    let delays = vec(moments(6).prop_map(|delay| delay + Duration::from_millis(500)), 0..3);
    let retry = (1_u32..=4, delays).prop_map(|(max_attempts, delays)| RetryPolicy {
        max_attempts,
        backoff: Backoff::List(delays),
        ..RetryPolicy::default()
    });
    // Two wishes at once are rare enough for graphs with some width.
    let wishes = (any::<u16>(), any::<u16>()).prop_map(|(some, others)| some & others);
    let run_when = prop_oneof![4 => Just(RunWhen::Success), 1 => Just(RunWhen::Failure), 1 => Just(RunWhen::Always), 1 => Just(RunWhen::NoneFailed)];
    let outcomes = option::weighted(0.3, vec(0_u8..8, 1..=3)).prop_map(Option::unwrap_or_default);
    let conditions = [
        "",
        "",
        "",
        "${FIRST.result.n} == 1",
        "${FIRST.result.n} > 1",
        "${FIRST.state} != 'completed'",
        "${FIRST.failure} == null || ${FIRST.failure.class} == 'TRANSIENT'",
        "${FIRST.result}",
    ];
    let condition = prop::sample::select(conditions.to_vec());
    let wait = option::weighted(0.2, waits());
    let lists = ["[1, 2, 3]", "[]", r#"["a"]"#, r#""${FIRST.result.list}""#, r#"[1, "${FIRST.result.n}"]"#];
    let for_each = option::weighted(0.25, prop::sample::select(lists.to_vec()));
    let until = [
        "${SELF.result.n ?? 0} == 1",
        "${SELF.result ?? null} == null",
        "${item.index} >= 1 || ${SELF.result ?? null} == 'never'",
        "${SELF.result.missing}",
    ];
    let repeat = option::weighted(0.2, (prop::sample::select(until.to_vec()), 1_u32..=3, 0_u64..=2));
    let fallback = prop_oneof![5 => Just(0_usize), 1 => Just(1), 1 => Just(2)];
    let resources: [&'static [&'static str]; 5] = [&[], &[], &["db"], &["cache"], &["cache", "db"]];
    let checks =
        prop::sample::select(vec![("", ""), ("", ""), ("c", ""), ("tcc", "c"), ("", "c"), ("", "ocno"), ("n", "")]);
    let used = &[(ErrorClass::Transient, RecoveryStrategy::UseCache), (ErrorClass::Crash, RecoveryStrategy::UseCache)];
    let undone = &[
        (ErrorClass::InvalidArguments, RecoveryStrategy::Compensate),
        (ErrorClass::Crash, RecoveryStrategy::UseCache),
    ];
    let queued = &[(ErrorClass::RateLimit, RecoveryStrategy::QueueForLater)];
    let on_error: [&'static [_]; 6] = [&[], &[], &[], used, undone, queued];
    let on_error = prop::sample::select(on_error.to_vec());
    let resources = prop::sample::select(resources.to_vec());
    let calls = (
        option::weighted(0.2, (1_usize..=4, prop::sample::select(vec![Effects::PerCall, Effects::PerStep]))),
        option::weighted(0.2, budgets(4)),
        repeat,
    );
    let more = (for_each, fallback, resources, prop::bool::weighted(0.3), checks, on_error, calls, outcomes);
    let parts =
        (any::<u8>(), wishes, any::<bool>(), option::of(retry), limits(30), limits(8), wait, run_when, condition, more);
    parts.prop_map(|(rank, wishes, reads, retry, timeout, attempt_timeout, wait, run_when, condition, more)| Seed {
        for_each: more.0.filter(|_| more.6.0.is_none() || wait.is_some()),
        repeat: more.6.2.filter(|_| more.0.is_none() && (more.6.0.is_none() || wait.is_some())),
        calls: more.6.0,
        budget: more.6.1,
        fallback: more.1,
        resources: more.2,
        checks: more.4,
        on_error: more.5,
        compensates: more.3,
        run_when: if more.7.is_empty() { run_when } else { RunWhen::Success },
        outcomes: more.7,
        condition,
        rank,
        wishes,
        reads,
        retry,
        timeout,
        attempt_timeout,
        wait,
    })
}

/// Returns budgets of up to this many calls, and of so little output that it matters.
fn budgets(calls: u64) -> impl Strategy<Value = Budget> {
    let follows = prop::sample::select(vec![OnExhausted::Pause, OnExhausted::Fail]);
    (1..=calls, option::weighted(0.3, 1_u64..=60), any::<bool>(), follows).prop_map(
        |(calls, output_bytes, counts, on_exhausted)| Budget {
            calls: (counts || output_bytes.is_none()).then_some(calls),
            output_bytes,
            on_exhausted,
        },
    )
}

/// The step `s{other}`, with the outcomes that the seed names in this turn.
fn dependency(seed: &Seed, turn: usize, other: usize) -> Dependency {
    let bits = seed.outcomes.get(turn % seed.outcomes.len().max(1)).copied().unwrap_or_default();
    let all = [StepOutcome::Success, StepOutcome::Failure, StepOutcome::Skipped].into_iter().enumerate();
    let named: BTreeSet<StepOutcome> =
        all.filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, outcome)| outcome).collect();
    Dependency { step: format!("s{other}"), on: (!named.is_empty()).then_some(named) }
}

fn steps(seeds: &[Seed]) -> Vec<StepDraft> {
    let draft = |(place, seed): (usize, &Seed)| {
        let granted =
            |other: &usize| seed.wishes & (1 << other) != 0 && (seeds[*other].rank, *other) < (seed.rank, place);
        let depends_on: Vec<Dependency> =
            (0..seeds.len()).filter(granted).enumerate().map(|(turn, other)| dependency(seed, turn, other)).collect();
        let depends_first = depends_on.first().map(|on| on.step.clone());
        let list = seed.for_each.and_then(|list| match &depends_first {
            Some(first) => Some(list.replace("FIRST", first)),
            None => Some(list.to_owned()).filter(|list| !list.contains("FIRST")),
        });
        let for_each = list.map(|list| serde_json::from_str(&list).unwrap());
        let tools = ["other", "third"].into_iter().take(seed.fallback);
        let fallback =
            tools.map(|tool| CallDraft { tool: tool.to_owned(), arguments: json!({}), verbatim: Vec::new() });
        let arguments = match &depends_first {
            _ if seed.repeat.is_some() => {
                json!({"round": "${item.value.round}", "before": format!("${{s{place}.result ?? null}}")})
            }
            _ if for_each.is_some() => json!({"item": "${item.value}", "index": "${item.index}"}),
            Some(first) if seed.reads => json!({"n": format!("${{{first}.result.n}}")}),
            _ => json!({}),
        };
        let step = StepDraft {
            group: String::new(),
            id: format!("s{place}"),
            description: String::new(),
            title: String::new(),
            run_when: if depends_on.is_empty() { RunWhen::Success } else { seed.run_when },
            condition: match depends_first.as_deref() {
                Some(first) => seed.condition.replace("FIRST", first),
                None => String::new(),
            },
            depends_on,
            for_each,
            fail_fast: false,
            group_timeouts: Default::default(),
            fail_fast_groups: Vec::new(),
            repeat: seed.repeat.map(|(until, max, delay)| RepeatDraft {
                until: until.replace("SELF", &format!("s{place}")),
                max,
                delay: (delay > 0).then(|| Duration::from_secs(delay)),
            }),
            fallback: fallback.collect(),
            compensate: seed.compensates.then(|| CallDraft {
                tool: "undo".to_owned(),
                arguments: json!({"undo": format!("${{s{place}.result}}")}),
                verbatim: Vec::new(),
            }),
            resources: seed.resources.iter().map(|&name| name.to_owned()).collect(),
            preconditions: checks_of(seed.checks.0, place),
            postconditions: checks_of(seed.checks.1, place),
            output_schema: None,
            budget: seed.budget,
            timeout: seed.timeout,
            attempt_timeout: seed.attempt_timeout,
            exclusive: false,
            verbatim: Vec::new(),
            retry: seed.retry.clone(),
            on_error: seed.on_error.iter().copied().collect(),
            kind: StepKindDraft::Tool {
                tool: if seed.on_error.is_empty() { "work" } else { "look" }.to_owned(),
                arguments,
            },
        };
        let waits = |wait| {
            let kind = StepKindDraft::Wait { wait };
            let (fallback, resources) = (Vec::new(), Vec::new());
            StepDraft {
                preconditions: Vec::new(),
                postconditions: Vec::new(),
                attempt_timeout: None,
                retry: None,
                on_error: OnError::new(),
                compensate: None,
                budget: None,
                fallback,
                resources,
                kind,
                ..step.clone()
            }
        };
        match &seed.wait {
            None => match seed.calls {
                None => step,
                Some((count, effects)) => {
                    let StepKindDraft::Tool { tool, arguments } = &step.kind else { unreachable!("it calls a tool") };
                    let calls = (0..count).map(|place| CallDraft {
                        tool: if place == 1 { "other".to_owned() } else { tool.clone() },
                        arguments: arguments.clone(),
                        verbatim: Vec::new(),
                    });
                    let kind = StepKindDraft::Calls { calls: calls.collect(), effects };
                    let step = match effects {
                        Effects::PerCall => step,
                        Effects::PerStep => StepDraft { preconditions: Vec::new(), postconditions: Vec::new(), ..step },
                    };
                    StepDraft { kind, fallback: Vec::new(), compensate: None, ..step }
                }
            },
            Some(Wait::For(duration)) => {
                let wait = waits(WaitDraft { duration: Some(*duration), ..WaitDraft::default() });
                StepDraft { timeout: None, ..wait }
            }
            Some(Wait::Form) => {
                let reads = depends_first.filter(|_| seed.reads);
                let title = reads.map_or_else(String::new, |first| format!("${{{first}.result.n}}?"));
                let form = FormDraft { title, schema: json!({}), ..FormDraft::default() };
                waits(WaitDraft { form: Some(form), ..WaitDraft::default() })
            }
            Some(Wait::Plan(inputs)) => {
                let inner = || StepDraft {
                    id: "inside".to_owned(),
                    depends_on: Vec::new(),
                    kind: StepKindDraft::Tool { tool: "work".to_owned(), arguments: json!({}) },
                    ..waits(WaitDraft::default())
                };
                let inner = StepDraft {
                    run_when: RunWhen::Success,
                    condition: String::new(),
                    for_each: None,
                    repeat: None,
                    ..inner()
                };
                let input = || Input { default: Some(Value::Null), ..Input::default() };
                let plan = PlanDraft {
                    id: "inner".to_owned(),
                    inputs: ["takes", "fails", "times"].map(|name| (name.to_owned(), input())).into(),
                    steps: vec![inner],
                    ..PlanDraft::default()
                };
                StepDraft {
                    fallback: Vec::new(),
                    preconditions: Vec::new(),
                    postconditions: Vec::new(),
                    on_error: OnError::new(),
                    budget: step.budget,
                    kind: StepKindDraft::Plan { plan: Box::new(plan), inputs: inputs.clone() },
                    ..step.clone()
                }
            }
            Some(Wait::Signal(signal)) => waits(WaitDraft { signal: (*signal).to_owned(), ..WaitDraft::default() }),
        }
    };
    let mut steps: Vec<StepDraft> = seeds.iter().enumerate().map(draft).collect();
    for (step, seed) in steps.iter_mut().zip(seeds) {
        step.fail_fast = seed.compensates && step.repeat.is_none() && has_entries(step);
        if seed.rank % 5 == 0 {
            step.group_timeouts = [("g".to_owned(), Duration::from_secs(9))].into();
        }
        // Most steps stand in a group that fails fast, some of these in one within it.
        let groups: &[&str] = match seed.rank % 4 {
            0 => &["inner", "outer"],
            1 | 2 => &["outer"],
            _ => &[],
        };
        step.fail_fast_groups = groups.iter().map(|group| (*group).to_owned()).collect();
    }
    let have_entries: BTreeSet<String> =
        steps.iter().filter(|step| has_entries(step)).map(|step| step.id.clone()).collect();
    // What became of the entries is read where there are some.
    for (step, seed) in steps.iter_mut().zip(seeds).filter(|(_, seed)| seed.reads) {
        let first = step.depends_on.first().map(|on| on.step.clone()).filter(|first| have_entries.contains(first));
        if let (Some(first), None, StepKindDraft::Tool { arguments, .. }) = (first, &seed.for_each, &mut step.kind) {
            *arguments = json!({"all": format!("${{{first}.results ?? null}}")});
        }
    }
    steps
}

/// Outputs that name what the steps that read others have, and how they end.
fn outputs(seeds: &[Seed]) -> BTreeMap<String, Value> {
    let reads = seeds.iter().enumerate().filter(|(_, seed)| seed.reads);
    let outputs = reads.flat_map(|(place, _)| {
        ["result", "state", "result.n"]
            .map(|what| (format!("{place}-{}", what.len()), json!(format!("${{s{place}.{what}}}"))))
    });
    outputs.collect()
}

fn has_entries(step: &StepDraft) -> bool {
    step.for_each.is_some() || step.repeat.is_some() || matches!(step.kind, StepKindDraft::Calls { .. })
}

fn plans() -> impl Strategy<Value = PlanDraft> {
    let capacity = prop::sample::select(vec![1_u32, 1, 2, 3]);
    let then = prop_oneof![Just(Then::Fail), Just(Then::Pause)];
    let escalation = (1_u32..=2, moments(6), then).prop_map(|(retries, delay, then)| Escalation {
        retries,
        backoff: Backoff::List(vec![delay + Duration::from_millis(500)]),
        then,
    });
    let more = (capacity, option::weighted(0.3, escalation), option::weighted(0.3, budgets(8)));
    let parts = (vec(seeds(), 1..=MAX_STEPS), prop::bool::weighted(0.3), 0_u32..=4, limits(60), more);
    parts.prop_map(|(seeds, stop_on_error, parallelism, timeout, (capacity, escalation, budget))| PlanDraft {
        outputs: outputs(&seeds),
        budget,
        escalation,
        id: "any".to_owned(),
        resources: [("db".to_owned(), capacity)].into(),
        steps: steps(&seeds),
        stop_on_error,
        parallelism,
        timeout,
        ..PlanDraft::default()
    })
}

fn replies() -> impl Strategy<Value = Reply> {
    let failed = |word| Just(Outcome::Failed(failure(word)));
    let outcome = prop_oneof![
        6 => Just(Outcome::Completed(Json::from_text(r#"{"n":1}"#))),
        2 => Just(Outcome::Completed(Json::from_text(r#"{"list":[1,2],"n":1}"#))),
        1 => Just(Outcome::Completed(Json::from_text(r#"{"list":[3],"n":1}"#))),
        1 => failed("unavailable"),
        1 => Just(Outcome::Completed(Json::from_text("{}"))),
        3 => failed("transient"),
        1 => failed("crash"),
        1 => failed("rate-limit"),
        1 => failed("invalid"),
        1 => failed("fatal"),
        1 => Just(Outcome::Cancelled(None)),
        1 => Just(Outcome::Denied(failure("denied"))),
        1 => Just(Outcome::Unknown(failure("unknown"))),
    ];
    (outcome, moments(8), option::weighted(0.7, moments(3)), questions())
        .prop_map(|(outcome, latency, stops_in, questions)| Reply { outcome, latency, stops_in, questions })
}

/// At most one before the work and one before the commit.
fn questions() -> impl Strategy<Value = Vec<Question>> {
    let question = |kind| {
        (option::weighted(0.9, (decisions(), moments(8))), prop::bool::weighted(0.2))
            .prop_map(move |(answer, conflicts)| Question { kind, answer, conflicts })
    };
    let before_work = option::weighted(0.15, question(SubjectKind::Call));
    let before_commit = option::weighted(0.3, question(SubjectKind::Effect));
    (before_work, before_commit).prop_map(|(work, commit)| work.into_iter().chain(commit).collect())
}

fn decisions() -> impl Strategy<Value = Decision> {
    prop_oneof![
        4 => Just(Decision::Approved),
        1 => Just(Decision::Denied),
        1 => Just(Decision::Skipped),
        1 => Just(Decision::Expired),
    ]
}

fn modes() -> impl Strategy<Value = ApprovalMode> {
    prop_oneof![
        4 => Just(ApprovalMode::Wait),
        1 => Just(ApprovalMode::Fail),
        1 => Just(ApprovalMode::Skip),
        1 => Just(ApprovalMode::Auto),
    ]
}

fn acts() -> impl Strategy<Value = Vec<(Duration, &'static str)>> {
    let words = prop_oneof![
        3 => Just("pause"),
        3 => Just("pause discarding"),
        8 => Just("resume"),
        1 => Just("cancel"),
        1 => Just("kill"),
        5 => Just("signal go 1"),
        2 => Just("signal stop 2"),
        6 => proptest::sample::select(ABOUT_FORMS),
        6 => proptest::sample::select(ABOUT_OUTCOMES),
        8 => proptest::sample::select(ABOUT_STEPS),
    ];
    vec((moments(40), words), 0..12).prop_map(|mut acts| {
        acts.sort_by_key(|(at, _)| *at);
        acts
    })
}

fn worlds() -> impl Strategy<Value = World> {
    let start_after = option::weighted(0.2, moments(20));
    let limit = option::weighted(0.3, (prop::bool::weighted(0.2), vec((moments(30), moments(20)), 0..4)));
    let parts = (plans(), vec(replies(), 1..24), acts(), modes(), any::<bool>(), start_after, limit);
    parts.prop_map(|(plan, replies, acts, mode, batches, start_after, limit)| World {
        plan,
        replies,
        acts,
        mode,
        batches,
        start_after,
        limit,
    })
}

/// A step whose calls have one effect, and one that reads it, in a world where most calls succeed: the commit is reached, approved, denied, skipped and retried.
fn worlds_of_one_effect() -> impl Strategy<Value = World> {
    let tools = prop::sample::select(vec!["write", "write look", "write look write"]);
    let plan = (tools, 1_u32..=2).prop_map(|(tools, attempts)| {
        let story = story("s0; s1 after s0").parallelism(2).calls("s0", tools).one_effect("s0");
        story.tries("s0", attempts, "1s").arguments("s1", json!({"all": "${s0.result}"})).plan
    });
    let ok = Outcome::Completed(Json::from_text(r#"{"n":1}"#));
    let outcome = prop_oneof![8 => Just(ok), 1 => Just(Outcome::Failed(failure("transient")))];
    let question = (option::weighted(0.9, (decisions(), moments(4))), prop::bool::weighted(0.1))
        .prop_map(|(answer, conflicts)| Question { kind: SubjectKind::Effect, answer, conflicts });
    let replies = (outcome, moments(3), option::weighted(0.5, question)).prop_map(|(outcome, latency, question)| {
        Reply { outcome, latency, stops_in: None, questions: question.into_iter().collect() }
    });
    let words = prop_oneof![
        Just("skip-step s0~1 1"),
        Just("skip-step s0~2 1"),
        Just("skip-step s0~2 2"),
        Just("retry s0"),
        Just("retry"),
        Just("pause"),
        Just("resume"),
    ];
    let acts = vec((moments(20), words), 0..4).prop_map(|mut acts| {
        acts.sort_by_key(|(at, _)| *at);
        acts
    });
    (plan, vec(replies, 1..12), acts, modes(), any::<bool>()).prop_map(|(plan, replies, acts, mode, batches)| World {
        plan,
        replies,
        acts,
        mode,
        batches,
        start_after: None,
        limit: None,
    })
}

fn crashes() -> impl Strategy<Value = Vec<Option<Crash>>> {
    vec(option::weighted(0.4, 0_usize..6), 0..40)
}

/// The events of any play.
pub(crate) fn lists() -> impl Strategy<Value = Vec<Event>> {
    worlds().prop_map(|world| world.play(&[]).events)
}

/// Something done to a list that nothing does to a journal.
#[derive(Clone, Debug)]
enum Tampering {
    Omit(Index),
    Repeat(Index),
    Exchange(Index, Index),
    /// Put one event in the place of another.
    Replace(Index, Index),
    /// Make one event about another step, which the plan may not have.
    Redirect(Index, usize),
    Cut(Index),
}

fn tamperings() -> impl Strategy<Value = Tampering> {
    let place = any::<Index>;
    prop_oneof![
        place().prop_map(Tampering::Omit),
        place().prop_map(Tampering::Repeat),
        (place(), place()).prop_map(|(one, other)| Tampering::Exchange(one, other)),
        (place(), place()).prop_map(|(place, by)| Tampering::Replace(place, by)),
        (place(), 0..=MAX_STEPS).prop_map(|(place, step)| Tampering::Redirect(place, step)),
        place().prop_map(Tampering::Cut),
    ]
}

impl Tampering {
    fn apply(&self, bodies: &mut Vec<Happening>) {
        let length = bodies.len();
        match self {
            Self::Omit(place) => {
                bodies.remove(place.index(length));
            }
            Self::Repeat(place) => bodies.insert(place.index(length), bodies[place.index(length)].clone()),
            Self::Exchange(one, other) => bodies.swap(one.index(length), other.index(length)),
            Self::Replace(place, by) => bodies[place.index(length)] = bodies[by.index(length)].clone(),
            Self::Redirect(place, step) => redirect(&mut bodies[place.index(length)].1, *step),
            Self::Cut(place) => bodies.truncate(1 + place.index(length)),
        }
    }
}

fn redirect(body: &mut Body, to: usize) {
    let to = StepId::from(format!("s{to}"));
    match body {
        Body::Execution(_) => {}
        Body::Step { step, .. } => *step = to,
        Body::Operation { id, .. } => id.step = to,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // REQUIREMENTS section 4, numbers 1, 2, 3, 5, 6, 8 and 12, which every play checks at every event; and whatever happened, a person can
    // bring it to an end. B-01, B-12, S2-NFR-005, S2-NFR-006: the same world twice makes the same list, and so it does for an executor that
    // dies again and again.
    #[test]
    fn the_rules_hold_and_crashes_change_nothing(world in worlds(), crashes in crashes()) {
        let mut play = world.play(&[]);
        prop_assert_eq!(&world.play(&[]).events, &play.events);

        let disturbed = world.play(&crashes);
        prop_assert_eq!(without_recoveries(&disturbed.events), without_recoveries(&play.events));
        prop_assert_eq!(disturbed.refused, play.refused.clone());

        if play.state() == ExecutionState::Paused {
            play.act(act_of("resume"));
        }
        // What was done is undone after the first, which may wait for people too; the second leaves that out.
        for _ in 0..2 {
            if !play.state().is_terminal() {
                play.act(act_of("cancel"));
            }
        }
        prop_assert!(play.state().is_terminal());
    }

    // B-34: what the calls of a step have changed is committed as one or not at all, and a step is what its commit is; the audit sees to it at every event.
    #[test]
    fn a_step_with_one_effect_is_what_its_commit_is(world in worlds_of_one_effect(), crashes in crashes()) {
        let play = world.play(&[]);
        let disturbed = world.play(&crashes);
        prop_assert_eq!(without_recoveries(&disturbed.events), without_recoveries(&play.events));
    }

    // A gap, a repetition or another order is seen at once.
    #[test]
    fn a_list_whose_numbers_do_not_fit_is_refused(events in lists(), place: Index) {
        let place = place.index(events.len());
        let mut repeated = events.clone();
        repeated.insert(place, events[place].clone());
        prop_assert!(Execution::replay(repeated).is_err());
        if place + 1 < events.len() {
            let mut omitted = events.clone();
            omitted.remove(place);
            prop_assert!(Execution::replay(omitted).is_err());
            let mut exchanged = events;
            exchanged.swap(place, place + 1);
            prop_assert!(Execution::replay(exchanged).is_err());
        }
    }

    // With new numbers, a list that was tampered with is refused, or is a history that can be gone on with: it never panics, and it never
    // leads to a decision that cannot be made.
    #[test]
    fn a_list_that_was_tampered_with_is_refused_or_lived_with(events in lists(), tamperings in vec(tamperings(), 1..4)) {
        let times: Vec<_> = events.iter().map(|event| event.time).collect();
        let mut bodies: Vec<Happening> = events.into_iter().map(|event| (event.actor, event.body)).collect();
        for tampering in tamperings {
            if !bodies.is_empty() {
                tampering.apply(&mut bodies);
            }
        }
        let time = |place: usize| times[place.min(times.len() - 1)];
        let numbered = bodies.into_iter().zip(1..).enumerate();
        let event = |(place, ((actor, body), sequence)): (usize, ((Option<Actor>, Body), u64))| {
            Event { sequence, time: time(place), actor, body }
        };
        go_on(Execution::replay(numbered.map(event)).ok());
    }

    // B-24: a snapshot that is not what was written is refused, or is a state; it never ends the process.
    #[test]
    fn a_snapshot_of_any_bytes_is_refused_or_restored(events in lists(), cut: Index, flipped: Option<(Index, u8)>, other: u32) {
        let first = events[0].clone();
        let execution = Execution::replay(events).unwrap();
        let Some(snapshot) = execution.snapshot() else { return Ok(()) };
        prop_assert_eq!(&Execution::restore(first.clone(), &snapshot).unwrap(), &execution);
        prop_assert!(Execution::restore(first.clone(), &snapshot[..cut.index(snapshot.len())]).is_err());
        let longer = [&snapshot[..], &[0]].concat();
        prop_assert!(matches!(Execution::restore(first.clone(), &longer), Err(NotRestored::Undecodable(_))));
        let mut of_other = vec![u8::try_from(SNAPSHOT_VERSION).unwrap() + 1];
        of_other.extend(&snapshot[1..]);
        let found = SNAPSHOT_VERSION + 1;
        prop_assert_eq!(Execution::restore(first.clone(), &of_other), Err(NotRestored::OtherVersion { found }));
        let Some((place, bits)) = flipped else { return Ok(()) };
        let (mut damaged, place) = (snapshot, place.index(other as usize % 1000 + 1));
        if let Some(byte) = damaged.get_mut(place) {
            *byte ^= bits;
        }
        drop(Execution::restore(first, &damaged));
    }

    // Events of one play, in any order: those that are accepted make a history that can be gone on with.
    #[test]
    fn what_is_accepted_can_be_gone_on_with(events in lists(), order in vec((any::<Index>(), 0..=MAX_STEPS), 0..200)) {
        let mut execution = Execution::create(events[0].clone()).unwrap();
        for (place, step) in order {
            let mut event = events[place.index(events.len())].clone();
            event.sequence = execution.last_sequence() + 1;
            redirect(&mut event.body, step);
            let mut next = execution.clone();
            if next.apply(&event).is_ok() {
                execution = next;
            }
        }
        go_on(Some(execution));
    }
}

/// Decides what can be decided now, much later, and once everything is to stop.
fn go_on(execution: Option<Execution>) {
    let Some(mut execution) = execution else { return };
    assert!(execution.is_index_consistent() && execution.are_budgets_consistent());
    stop(execution.clone());
    for hours in [0, 1] {
        let now = START.saturating_add(Duration::from_secs(hours * 3_600));
        execution.advance_with(DecideContext { now, ledger_id: "ledger" }, &Conditions::FREE);
        let waiting = execution.steps().filter_map(|step| step.waiting()).chain(execution.waiting()).count();
        let owned = waiting > 0 || execution.operations().len() > 0 || execution.state().is_terminal();
        assert!(owned, "nobody goes on with {execution:?}");
    }
    stop(execution);
}

fn stop(mut execution: Execution) {
    let (actor, cancel) = act_of("cancel");
    if execution.record(START, actor, cancel).is_ok() {
        execution.advance_with(DecideContext { now: START, ledger_id: "ledger" }, &Conditions::FREE);
        assert!(execution.state().is_terminal() || execution.operations().len() > 0, "nothing ends {execution:?}");
    }
}

fn checks_of(letters: &str, place: usize) -> Vec<CheckDraft> {
    let condition = |text: String| CheckDraft { condition: text, ..CheckDraft::default() };
    let checks = letters.chars().map(|letter| match letter {
        'c' => CheckDraft { command: vec!["check".to_owned()], ..CheckDraft::default() },
        't' => condition("1 < 2".to_owned()),
        'n' => condition("1 > 2".to_owned()),
        'o' => condition(format!("${{s{place}.result}} != null")),
        _ => panic!("no check has the letter {letter}"),
    });
    checks.collect()
}

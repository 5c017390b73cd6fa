//! Plans for the properties of the fold.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use belay_execution::ErrorClass;
use belay_plan::{
    AgentDraft, Backoff, Budget, CallDraft, CheckDraft, Dependency, Effects, Escalation, FormDraft, Input, OnError,
    OnExhausted, Outcome as StepOutcome, PlanDraft, RecoveryStrategy, RepeatDraft, RetryPolicy, RunWhen, StepDraft,
    StepKindDraft, Then, WaitDraft,
};
use proptest::{collection::vec, option, prelude::*};
use serde_json::{Value, json};

pub(crate) const MAX_STEPS: usize = 12;
/// Half seconds, so that much happens at the same moment.
pub(crate) fn moments(most: u64) -> impl Strategy<Value = Duration> {
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
    /// No wait: a goal that a model works towards, in at most so many turns.
    Agent(u32, Effects),
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
        2 => (1_u32..=5, prop::sample::select(vec![Effects::PerCall, Effects::PerStep])).prop_map(|(turns, effects)| Wait::Agent(turns, effects)),
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
    let of_models = (option::weighted(0.3, 1_000_u64..=12_000), option::weighted(0.2, 2_000_u64..=20_000));
    (1..=calls, option::weighted(0.3, 1_u64..=60), any::<bool>(), of_models, follows).prop_map(
        |(calls, output_bytes, counts, (tokens, cost_micros), on_exhausted)| Budget {
            calls: (counts || output_bytes.or(tokens).or(cost_micros).is_none()).then_some(calls),
            output_bytes,
            tokens,
            cost_micros,
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
            network: None,
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
            Some(Wait::Agent(max_turns, effects)) => {
                let tools = vec!["work".to_owned(), "look".to_owned()];
                let files = (0..max_turns % 3).map(|file| format!("{file}.md")).collect();
                let agent = AgentDraft {
                    model: "m".to_owned(),
                    task: "Do it.".to_owned(),
                    tools,
                    max_turns: *max_turns,
                    files,
                    fallback: (0..max_turns % 2).map(|place| format!("other-{place}")).collect(),
                    prompt_percent: 0,
                };
                StepDraft {
                    fallback: Vec::new(),
                    for_each: None,
                    repeat: None,
                    compensate: None,
                    on_error: OnError::new(),
                    kind: StepKindDraft::Agent { agent, effects: *effects },
                    ..step
                }
            }
            Some(Wait::Signal(signal)) => waits(WaitDraft { signal: (*signal).to_owned(), ..WaitDraft::default() }),
        }
    };
    let mut steps: Vec<StepDraft> = seeds.iter().enumerate().map(draft).collect();
    for (step, seed) in steps.iter_mut().zip(seeds) {
        let is_agent = matches!(step.kind, StepKindDraft::Agent { .. });
        step.fail_fast = seed.compensates && step.repeat.is_none() && has_entries(step) && !is_agent;
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
    step.for_each.is_some()
        || step.repeat.is_some()
        || matches!(step.kind, StepKindDraft::Calls { .. } | StepKindDraft::Agent { .. })
}

pub(crate) fn plans() -> impl Strategy<Value = PlanDraft> {
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

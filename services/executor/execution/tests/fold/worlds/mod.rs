//! Worlds for the properties of the fold: a plan, what its calls come to, what people ask for, and when others hold its limits.

mod plans;

use std::time::Duration;

use belay_execution::{ApprovalMode, Created, Decision, Event, Json, SubjectKind};
use belay_plan::{LimitBound, LimitClaim, Plan, PlanDraft, WhenFull};
use proptest::{collection::vec, option, prelude::*};
use serde_json::json;

use crate::support::{Crash, Outcome, Play, Question, Reply, START, act_of, created, failure, story};

use plans::{moments, plans};

pub(crate) use plans::MAX_STEPS;

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
const MAX_TRIES: usize = 8;
/// Everything that decides how a play goes.
#[derive(Clone, Debug)]
pub(crate) struct World {
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
    pub(crate) fn play(&self, crashes: &[Option<Crash>]) -> Play {
        let plan = Plan::new(self.plan.clone()).unwrap();
        let replies = self.replies.clone();
        let script = move |call: &belay_execution::OperationId, before: usize| {
            let step: usize = call.step[1..].split('~').next().unwrap().parse().unwrap();
            let mut reply = replies[(step * 5 + before) % replies.len()].clone();
            if before >= MAX_TRIES {
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
        // Others that hold the limits have steps as well.
        play.crowded = play.full.first().copied();
        play.acts = self.acts.iter().map(|&(at, words)| (START.saturating_add(at), act_of(words))).collect();
        play.batches = self.batches;
        play.crashes = crashes.to_vec().into();
        play.run();
        play
    }
}

/// Answers of a model: calls, also of a tool that it was not offered, completions, and words. To any other call they are a result like any.
fn answers() -> impl Strategy<Value = Outcome> {
    let call = |tool: &str| json!({"id": "t0001c001", "tool": tool, "arguments": {"result": 1, "id": "t0001c001"}});
    let calls = [
        vec![call("work")],
        vec![call("look"), call("work"), call("work")],
        vec![call("nothing")],
        vec![call("read_result"), call("look")],
        vec![call("work"), call("complete_step")],
        vec![call("complete_step")],
        vec![call("complete_step")],
        vec![],
    ];
    prop::sample::select(calls.to_vec())
        .prop_map(|calls| Outcome::Completed(Json::canonical(&json!({"text": "x", "calls": calls}))))
}

fn replies() -> impl Strategy<Value = Reply> {
    let failed = |word| Just(Outcome::Failed(failure(word)));
    let outcome = prop_oneof![
        6 => Just(Outcome::Completed(Json::from_text(r#"{"n":1}"#))),
        2 => Just(Outcome::Completed(Json::from_text(r#"{"list":[1,2],"n":1}"#))),
        1 => Just(Outcome::Completed(Json::from_text(r#"{"list":[3],"n":1}"#))),
        3 => answers(),
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

pub(crate) fn worlds() -> impl Strategy<Value = World> {
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
pub(crate) fn worlds_of_one_effect() -> impl Strategy<Value = World> {
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

pub(crate) fn crashes() -> impl Strategy<Value = Vec<Option<Crash>>> {
    vec(option::weighted(0.4, 0_usize..6), 0..40)
}

/// The events of any play.
pub(crate) fn lists() -> impl Strategy<Value = Vec<Event>> {
    worlds().prop_map(|world| world.play(&[]).events)
}

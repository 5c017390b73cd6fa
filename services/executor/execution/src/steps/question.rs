//! Questions of calls that run: what a person is asked, and what the call is told.
//!
//! A question is an operation of its own beside the call that asks, and a wait: it is asked and answered as the form of a step is. It ends with an answer, when
//! nobody will answer, when its time limit runs out, or when the call does not wait for it any more: it has ended, or runs anew. The step does not wait, and
//! nothing but the call learns what became of it. An answer that a person has given for the execution ends the same question of every later call, too.

use std::sync::Arc;

use crate::{
    Actor, Body, Execution, Form, MAX_HELD_ANSWERS, MAX_OPEN_QUESTIONS, MAX_QUESTIONS, OperationEnd, OperationEvent,
    OperationId, OperationKey, Phase, QuestionReply, Timestamp, Violation, WaitCondition, WaitEnd, Work,
    event::holds_for_execution,
    steps::wait::{insert, may_decline},
};

/// A call that runs asks.
pub(super) fn started(
    execution: &mut Execution,
    id: &OperationId,
    condition: &WaitCondition,
    time: Timestamp,
) -> Result<(), Violation> {
    let Some((call, question)) = condition.question() else { return Err(Violation::NotAQuestion(id.clone())) };
    let key = OperationKey { step: execution.named(&id.step)?, attempt: id.attempt, number: id.number };
    execution.check_not_stopped(id)?;
    let record = &execution.steps[key.step];
    if key != execution.next_operation(key.step) || call >= key.number {
        let (attempt, last) = (record.attempt, record.operations);
        return Err(Violation::NotNextOperation { operation: id.clone(), attempt, last });
    }
    let asking = OperationKey { number: call, ..key };
    if !runs(execution, asking) {
        return Err(Violation::CallNotRunning { call, question: id.clone() });
    }
    if question.is_empty() {
        return Err(Violation::QuestionWithoutId(id.clone()));
    }
    let open = of_call(execution, asking).count();
    let replies = execution.operations.get(asking).map_or(0, |call| call.replies.len());
    if open >= MAX_OPEN_QUESTIONS || open + replies >= MAX_QUESTIONS {
        return Err(Violation::TooManyQuestions(call));
    }
    if is_known(execution, asking, question) {
        return Err(Violation::AskedBefore { call, question: question.to_string() });
    }
    execution.update_step(key.step, |record| {
        record.operations = key.number;
        record.questions += 1;
    });
    insert(execution, key, condition, time);
    Ok(())
}

/// A question has an answer, or will have none.
pub(super) fn ended(
    execution: &mut Execution,
    id: &OperationId,
    end: &WaitEnd,
    actor: Option<&Actor>,
    time: Timestamp,
) -> Result<(), Violation> {
    let operation = execution.in_flight(id)?;
    let key = operation.key;
    let Some(WaitCondition::Question { call, question, form, until, may_hold }) = operation.wait() else {
        return Err(Violation::NotAQuestion(id.clone()));
    };
    let (asking, question, until) = (OperationKey { number: *call, ..key }, Arc::clone(question), *until);
    let (form, may_hold) = (Arc::clone(form), *may_hold);
    let approval = operation.requested_answer().map(str::to_owned);
    let continues = runs(execution, asking) && execution.stop.is_none();
    let reply = match end {
        WaitEnd::Answered { answer } if continues && actor.is_some() && approval.is_some() => {
            let held = &mut execution.progress.held_answers;
            if may_hold && holds_for_execution(answer) && held.len() < MAX_HELD_ANSWERS {
                let sequence = execution.progress.last_sequence + 1;
                held.entry(form.subject_digest.clone()).or_insert_with(|| (sequence, answer.clone()));
            }
            Some(QuestionReply::Answered(answer.clone()))
        }
        WaitEnd::Held { sequence } if continues && may_hold && actor.is_none() => {
            match execution.held_answers.get(&form.subject_digest) {
                Some((of, answer)) if of == sequence => Some(QuestionReply::Answered(answer.clone())),
                _ => return Err(Violation::OtherEnd { operation: id.clone(), end: end.word() }),
            }
        }
        WaitEnd::Declined { decision, reason }
            if continues && may_decline(execution, actor, approval.as_deref(), *decision) =>
        {
            Some(QuestionReply::Declined { reason: reason.clone() })
        }
        WaitEnd::Refused { message } if continues && actor.is_none() => {
            Some(QuestionReply::Declined { reason: message.clone() })
        }
        WaitEnd::TimedOut if continues && until.is_some_and(|until| until <= time) => Some(QuestionReply::TimedOut),
        // The call has ended or runs anew.
        WaitEnd::Cancelled if actor.is_none() => None,
        end => return Err(Violation::OtherEnd { operation: id.clone(), end: end.word() }),
    };
    if let Some(reply) = reply {
        execution.update_operation(asking, |call| drop(call.replies.insert(question, reply)));
    }
    execution.drop_operation(key, time)
}

/// The end of the first question whose answer is given: a person has answered the same one of another call for the execution.
pub(crate) fn held(execution: &Execution) -> Option<Body> {
    if execution.held_answers.is_empty() || execution.stop.is_some() {
        return None;
    }
    let (key, sequence) = execution.index.questions.iter().copied().find_map(|key| {
        let WaitCondition::Question { form, may_hold: true, .. } = execution.operations.get(key)?.wait()? else {
            return None;
        };
        execution.held_answers.get(&form.subject_digest).map(|(sequence, _)| (key, *sequence))
    })?;
    Some(Body::Operation {
        id: execution.operation_id(key),
        event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Held { sequence })),
    })
}

/// The end of the first question whose call does not run any more.
pub(crate) fn withdrawn(execution: &Execution) -> Option<Body> {
    let key = execution.index.questions.iter().copied().find(|&key| {
        let question = execution.operations.get(key).and_then(|operation| operation.wait()?.question());
        question.is_some_and(|(call, _)| !runs(execution, OperationKey { number: call, ..key }))
    })?;
    Some(Body::Operation {
        id: execution.operation_id(key),
        event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Cancelled)),
    })
}

/// Whether a call runs, as far as is known.
fn runs(execution: &Execution, call: OperationKey) -> bool {
    execution.operations.get(call).is_some_and(|call| call.tool_call().is_some() && call.phase == Phase::Dispatched)
}

/// The open questions of a call, each with its id.
fn of_call(execution: &Execution, call: OperationKey) -> impl Iterator<Item = (OperationKey, &Arc<str>)> {
    execution.operations.of_step(call.step).filter_map(move |operation| {
        let (asking, question) = operation.wait()?.question()?;
        (operation.key.attempt == call.attempt && asking == call.number).then_some((operation.key, question))
    })
}

/// Whether a call has asked a question already.
fn is_known(execution: &Execution, call: OperationKey, question: &str) -> bool {
    let has_reply = execution.operations.get(call).is_some_and(|call| call.replies.contains_key(question));
    has_reply || of_call(execution, call).any(|(_, open)| &**open == question)
}

impl Execution {
    /// The event with which a call that runs asks a question; `None` when it has asked it before. `may_hold`: whether an answer may hold for the execution.
    pub fn ask(
        &self,
        call: OperationKey,
        question: &str,
        form: Form,
        until: Option<Timestamp>,
        may_hold: bool,
    ) -> Option<Body> {
        if is_known(self, call, question) {
            return None;
        }
        // The step's time limit holds for its calls' questions as for its own.
        let until = until.into_iter().chain(self.step_deadline(call.step)).min();
        let (question, form) = (question.into(), form.into());
        let condition = WaitCondition::Question { call: call.number, question, form, until, may_hold };
        let wait = self.operation_id(self.next_operation(call.step));
        Some(Body::Operation { id: wait, event: OperationEvent::Requested(Work::Wait(condition)) })
    }

    /// The outcome of a question of a call in flight; `None` while it is open.
    pub fn reply_to(&self, call: OperationKey, question: &str) -> Option<&QuestionReply> {
        self.operations.get(call)?.replies.get(question)
    }

    /// The ends of the open questions of a call that are none of these: it does not wait for them any more.
    pub fn forgotten_questions(&self, call: OperationKey, open: &[&str]) -> Vec<Body> {
        let forgotten = of_call(self, call).filter(|(_, question)| !open.contains(&&***question));
        let ended = |(key, _)| Body::Operation {
            id: self.operation_id(key),
            event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Cancelled)),
        };
        forgotten.map(ended).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::PauseCause;
    use crate::{
        DecideContext, Event, ExecutionEvent, Form, Json, OperationEvent, Receipt, RequiredAction, StepState,
        ToolCallEnd, test_support::started,
    };

    const NOW: Timestamp = Timestamp::from_micros(5);
    const LATER: Timestamp = Timestamp::from_micros(9);

    fn call(number: u32) -> OperationId {
        OperationId { step: "a".into(), attempt: 1, number }
    }

    fn key(execution: &Execution, number: u32) -> OperationKey {
        execution.operation_key(&call(number)).unwrap()
    }

    fn form(title: &str) -> Form {
        Form::new(title.into(), String::new(), &json!({}))
    }

    fn asks(execution: &mut Execution, question: usize, until: Option<Timestamp>) -> Result<(), String> {
        let body = execution.ask(key(execution, 1), &question.to_string(), form("t"), until, false).expect("it is new");
        execution.record(NOW, None, body).map(drop).map_err(|error| error.to_string())
    }

    fn advance(execution: &mut Execution, now: Timestamp) -> Vec<Event> {
        let events = execution.advance(DecideContext { now, ledger_id: "l" });
        assert!(execution.is_index_consistent() && execution.are_budgets_consistent());
        events
    }

    fn end(execution: &mut Execution, number: u32, end: WaitEnd, actor: Option<&str>) -> Result<Event, String> {
        let body = Body::Operation { id: call(number), event: OperationEvent::Ended(OperationEnd::Wait(end)) };
        execution.record(NOW, actor.map(Actor::new), body).map_err(|error| error.to_string())
    }

    fn requested(execution: &mut Execution, number: u32) {
        let event = OperationEvent::Asked { approval: format!("f{number}"), subject_digest: form("t").subject_digest };
        execution.record(NOW, None, Body::Operation { id: call(number), event }).unwrap();
    }

    fn completed() -> OperationEvent {
        OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Completed {
            result: Json::from_text("1").into(),
            receipt: Box::new(Receipt::default()),
        }))
    }

    fn required(execution: &Execution) -> Vec<(u32, RequiredAction)> {
        execution.actions().into_iter().map(|action| (action.operation.number, action.required)).collect()
    }

    // B-25: a call and its questions are in flight side by side, each with an end of its own; the step runs all the while.
    #[test]
    fn a_call_that_runs_asks_and_continues() {
        let mut execution = started("id: p\nsteps: [{id: a, tool: t}, {id: b, tool: t}]", NOW);
        for question in [1, 2] {
            asks(&mut execution, question, None).unwrap();
        }
        assert!(advance(&mut execution, NOW).is_empty());
        let step = execution.steps().next().unwrap();
        assert_eq!((step.state(), step.waiting().is_some()), (StepState::Running, true));
        let wanted =
            [(1, RequiredAction::Dispatch), (2, RequiredAction::RequestApproval), (3, RequiredAction::RequestApproval)];
        assert_eq!(required(&execution), wanted);
        assert!(
            execution.ask(key(&execution, 1), "2", form("t"), None, false).is_none(),
            "the runner repeats what is open"
        );
        assert!(!execution.is_parked(), "the call runs");

        requested(&mut execution, 3);
        end(&mut execution, 3, WaitEnd::Answered { answer: Json::from_text("7") }, Some("ann")).unwrap();
        let asking = key(&execution, 1);
        assert_eq!(execution.reply_to(asking, "2"), Some(&QuestionReply::Answered(Json::from_text("7"))));
        assert_eq!(execution.reply_to(asking, "1"), None);
        assert!(execution.ask(asking, "2", form("t"), None, false).is_none(), "nor when it has its reply");
        let mut refused = execution.clone();
        assert!(
            end(&mut refused, 2, WaitEnd::Answered { answer: Json::from_text("7") }, Some("ann")).is_err(),
            "nobody was asked"
        );

        // The end of the call withdraws what is open, before it means anything for the step.
        execution.record(NOW, None, Body::Operation { id: call(1), event: completed() }).unwrap();
        let events = advance(&mut execution, NOW);
        assert!(
            matches!(&events[0].body, Body::Operation { id: wait, event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Cancelled)) } if *wait == call(2)),
            "{events:?}"
        );
        assert_eq!(execution.steps().next().unwrap().state(), StepState::Completed);
        assert!(execution.operations().all(|operation| operation.key.step != asking.step));
    }

    #[test]
    fn a_question_is_of_a_call_that_runs_and_bounded() {
        let mut execution = started("id: p\nsteps: [{id: a, tool: t}]", NOW);
        for question in 1..=MAX_OPEN_QUESTIONS {
            asks(&mut execution, question, None).unwrap();
        }
        assert!(asks(&mut execution.clone(), 11, None).is_err(), "too many are open");
        let condition = |call, question: &str| {
            let (question, form) = (question.into(), form("t").into());
            WaitCondition::Question { call, question, form, until: None, may_hold: false }
        };
        let of = |execution: &mut Execution, call_number, question: &str, number| {
            let event = OperationEvent::Requested(Work::Wait(condition(call_number, question)));
            execution.record(NOW, None, Body::Operation { id: call(number), event }).map(drop)
        };
        assert!(of(&mut execution.clone(), 2, "1", 12).is_err(), "a question does not ask");
        assert!(of(&mut execution.clone(), 1, "12", 14).is_err(), "its number is not the next");
        execution.record(NOW, None, Body::Operation { id: call(1), event: completed() }).unwrap();
        assert!(of(&mut execution, 1, "12", 12).is_err(), "the call has ended");
    }

    #[test]
    fn a_question_ends_without_an_answer() {
        let mut execution = started("id: p\nsteps: [{id: a, tool: t}]", NOW);
        for (question, until) in [(1, None), (2, None), (3, Some(LATER))] {
            asks(&mut execution, question, until).unwrap();
        }
        let asking = key(&execution, 1);
        requested(&mut execution, 2);
        let denied = WaitEnd::Declined { decision: crate::Decision::Denied, reason: "no".into() };
        end(&mut execution, 2, denied, Some("ann")).unwrap();
        end(&mut execution, 3, WaitEnd::Refused { message: "no form".into() }, None).unwrap();
        assert!(end(&mut execution.clone(), 4, WaitEnd::Cancelled, Some("ann")).is_err(), "only the call forgets it");
        assert_eq!(execution.wake_at(), Some(LATER));
        advance(&mut execution, LATER);
        let declined = |reason: &str| Some(QuestionReply::Declined { reason: reason.into() });
        let replies = [1, 2, 3].map(|question| execution.reply_to(asking, &question.to_string()).cloned());
        assert_eq!(replies, [declined("no"), declined("no form"), Some(QuestionReply::TimedOut)]);
    }

    // The call runs on while its execution is paused: what it asks ends in time all the same, and when nobody is to be asked any more.
    #[test]
    fn a_question_ends_while_the_execution_is_paused() {
        let mut execution = started("id: p\nsteps: [{id: a, tool: t}]", NOW);
        asks(&mut execution, 1, Some(LATER)).unwrap();
        let pause = ExecutionEvent::Paused {
            reason: String::new(),
            discard_calls: false,
            resume_at: None,
            cause: PauseCause::Request,
        };
        execution.record(NOW, None, Body::from(pause)).unwrap();
        assert_eq!(execution.wake_at(), Some(LATER));
        assert!(advance(&mut execution, NOW).is_empty());
        advance(&mut execution, LATER);
        assert_eq!(execution.reply_to(key(&execution, 1), "1"), Some(&QuestionReply::TimedOut));
        assert_eq!(execution.wake_at(), None);
    }

    // A runner that was restarted runs the call anew: what the one before asked is nobody's question any more, and a new one is not answered by its answer.
    #[test]
    fn a_call_that_runs_anew_asks_anew() {
        let mut execution = started("id: p\nsteps: [{id: a, tool: t}]", NOW);
        asks(&mut execution, 1, None).unwrap();
        asks(&mut execution, 2, None).unwrap();
        let asking = key(&execution, 1);
        assert!(execution.forgotten_questions(asking, &["1", "2"]).is_empty());
        let forgotten = execution.forgotten_questions(asking, &["2", "another"]);
        assert_eq!(forgotten.len(), 1);
        for body in forgotten {
            execution.record(NOW, None, body).unwrap();
        }
        assert_eq!(execution.reply_to(asking, "1"), None);
        let body = execution.ask(asking, "another", form("t"), None, false).unwrap();
        execution.record(NOW, None, body).unwrap();
        assert!(advance(&mut execution, NOW).is_empty());
    }

    // A call that conflicted is made again: its questions count as no tries of it.
    #[test]
    fn the_questions_of_a_call_are_no_tries_of_the_next() {
        let mut execution = started("id: p\nsteps: [{id: a, tool: t}]", NOW);
        asks(&mut execution, 1, None).unwrap();
        asks(&mut execution, 2, None).unwrap();
        assert_eq!(execution.calls_for_purpose(key(&execution, 1)), 1);
        let end = ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() };
        execution
            .record(
                NOW,
                None,
                Body::Operation { id: call(1), event: OperationEvent::Ended(OperationEnd::ToolCall(end)) },
            )
            .unwrap();
        advance(&mut execution, NOW);
        assert_eq!(execution.calls_for_purpose(key(&execution, 4)), 2);
    }

    /// The number of an operation of step `b`, and of one of `a`.
    fn of(step: &str, number: u32) -> OperationId {
        OperationId { step: step.into(), attempt: 1, number }
    }

    /// Has the call of a step ask a form whose answer may hold for the execution.
    fn asks_for_execution(execution: &mut Execution, step: &str, question: &str, title: &str) {
        let asking = execution.operation_key(&of(step, 1)).unwrap();
        let body = execution.ask(asking, question, form(title), None, true).unwrap();
        execution.record(NOW, None, body).unwrap();
    }

    fn answer(execution: &mut Execution, wait: OperationId, title: &str, answer: &str) -> Event {
        let (approval, subject_digest) = (format!("f-{}-{}", wait.step, wait.number), form(title).subject_digest);
        let asked = OperationEvent::Asked { approval, subject_digest };
        execution.record(NOW, None, Body::Operation { id: wait.clone(), event: asked }).unwrap();
        let end = OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Answered { answer: Json::from_text(answer) }));
        execution.record(NOW, Some(Actor::new("ann")), Body::Operation { id: wait, event: end }).unwrap()
    }

    fn held_by(events: &[Event]) -> Vec<(OperationId, u64, bool)> {
        let of_event = |event: &Event| match &event.body {
            Body::Operation { id, event: OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Held { sequence })) } => {
                Some((id.clone(), *sequence, event.actor.is_none()))
            }
            _ => None,
        };
        events.iter().filter_map(of_event).collect()
    }

    const TWO_STEPS: &str = "id: p\nparallelism: 2\nsteps: [{id: a, tool: t}, {id: b, tool: t, depends_on: []}]";
    const FOR_EXECUTION: &str = r#"{"approve":true,"for":"execution"}"#;

    /// B-32: a person who has answered for the execution is not asked again, whichever of its calls asks, and only about the same.
    #[test]
    fn an_answer_for_the_execution_is_that_to_every_later_call() {
        let mut execution = started(TWO_STEPS, NOW);
        asks_for_execution(&mut execution, "a", "q1", "t");
        asks_for_execution(&mut execution, "b", "q2", "t");
        let answered = answer(&mut execution, of("a", 2), "t", FOR_EXECUTION);
        let open = advance(&mut execution, NOW);
        assert_eq!(held_by(&open), [(of("b", 2), answered.sequence, true)], "the same one that was open");
        let asking = execution.operation_key(&of("b", 1)).unwrap();
        let reply = QuestionReply::Answered(Json::from_text(FOR_EXECUTION));
        assert_eq!(execution.reply_to(asking, "q2"), Some(&reply));

        // Also after a restart that began with a snapshot.
        let body = ExecutionEvent::Created(Box::new(execution.created().clone())).into();
        let first = Event { sequence: 1, time: NOW, actor: None, body };
        let mut execution = Execution::restore(first, &execution.snapshot().unwrap()).unwrap();
        asks_for_execution(&mut execution, "b", "q3", "t");
        assert_eq!(held_by(&advance(&mut execution, NOW)), [(of("b", 3), answered.sequence, true)]);
        asks_for_execution(&mut execution, "b", "q4", "u");
        assert_eq!(advance(&mut execution, NOW), [], "another form is asked");
        let asking = execution.operation_key(&of("b", 1)).unwrap();
        let alone = execution.ask(asking, "q5", form("t"), None, false).unwrap();
        execution.record(NOW, None, alone).unwrap();
        assert_eq!(advance(&mut execution, NOW), [], "and one whose answer is for its call alone");
    }

    /// An answer was given to what the plan said then.
    #[test]
    fn no_answer_holds_beyond_an_update_of_the_plan() {
        let mut execution = started(TWO_STEPS, NOW);
        asks_for_execution(&mut execution, "a", "q1", "t");
        answer(&mut execution, of("a", 2), "t", FOR_EXECUTION);
        let text = TWO_STEPS.replace("depends_on: []}", "depends_on: []}, {id: c, tool: t}");
        let plan = Box::new(belay_plan::Plan::parse(belay_plan::Format::Yaml, &text).unwrap());
        let new = crate::NewPlan { plan, tools: execution.tools().to_vec() };
        let change = crate::Control::UpdatePlan { plan: new, revision: None, reason: String::new() };
        execution.control(NOW, Actor::new("ann"), change).unwrap();
        asks_for_execution(&mut execution, "b", "q2", "t");
        assert_eq!(held_by(&advance(&mut execution, NOW)), []);
    }

    /// Answers for one call hold for no other.
    #[test]
    fn an_answer_for_a_call_holds_for_no_other() {
        for said in
            ["true", r#"{"approve":true}"#, r#"{"approve":true,"for":"call"}"#, r#"["execution"]"#, "\"execution\""]
        {
            let mut execution = started(TWO_STEPS, NOW);
            asks_for_execution(&mut execution, "a", "q1", "t");
            answer(&mut execution, of("a", 2), "t", said);
            asks_for_execution(&mut execution, "b", "q2", "t");
            assert_eq!(held_by(&advance(&mut execution, NOW)), [], "{said}");
        }
        // The call that asks decides whether an answer may hold.
        let mut execution = started(TWO_STEPS, NOW);
        asks(&mut execution, 1, None).unwrap();
        answer(&mut execution, of("a", 2), "t", FOR_EXECUTION);
        asks_for_execution(&mut execution, "b", "q2", "t");
        assert_eq!(held_by(&advance(&mut execution, NOW)), []);
    }

    /// A log in which an answer holds that nobody has given is refused.
    #[test]
    fn only_an_answer_that_was_given_holds() {
        let mut execution = started(TWO_STEPS, NOW);
        asks_for_execution(&mut execution, "b", "q1", "t");
        let held = |execution: &Execution, sequence, actor: Option<&str>| {
            let event = OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Held { sequence }));
            let body = Body::Operation { id: of("b", 2), event };
            execution.clone().record(NOW, actor.map(Actor::new), body).is_ok()
        };
        assert!(!held(&execution, 3, None), "nobody has answered");
        asks_for_execution(&mut execution, "a", "q2", "t");
        let answered = answer(&mut execution, of("a", 2), "t", FOR_EXECUTION);
        assert!(held(&execution, answered.sequence, None));
        assert!(!held(&execution, answered.sequence - 1, None), "another event");
        assert!(!held(&execution, answered.sequence, Some("ann")), "nobody answers that");
        execution.record(NOW, None, Body::Operation { id: of("b", 1), event: completed() }).unwrap();
        assert!(!held(&execution, answered.sequence, None), "the call has ended");
    }

    /// Answers beyond the limit hold for their calls.
    #[test]
    fn answers_that_hold_are_bounded() {
        let mut execution = started(TWO_STEPS, NOW);
        let held = &mut execution.progress.held_answers;
        held.extend((0..MAX_HELD_ANSWERS).map(|n| (n.to_string(), (1, Json::from_text("1")))));
        asks_for_execution(&mut execution, "a", "q1", "t");
        answer(&mut execution, of("a", 2), "t", FOR_EXECUTION);
        let asking = execution.operation_key(&of("a", 1)).unwrap();
        assert!(execution.reply_to(asking, "q1").is_some());
        assert_eq!(execution.held_answers.len(), MAX_HELD_ANSWERS);
    }
}

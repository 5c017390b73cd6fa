//! The messages that peers may send, and those that they may not.

use belay_proto::{
    check::Refused,
    runner_v1::{self, CancelToolCallRequest, session_operation::Operation},
    v1,
};

use super::*;

fn hello() -> ReceivedRequest {
    let hello = SessionHello { contract_revision: 1, output_window: 100, ..SessionHello::default() };
    ReceivedRequest { hello: Some(hello), ..ReceivedRequest::default() }
}

fn operations(ids: &[i64]) -> ReceivedRequest {
    let operation = |id: &i64| {
        let operation = Some(Operation::CancelToolCall(CancelToolCallRequest::default()));
        ReceivedOperation::Known(Box::new(SessionOperation { id: *id, operation, ..Default::default() }))
    };
    ReceivedRequest { operations: ids.iter().map(operation).collect(), ..ReceivedRequest::default() }
}

fn credit(operation: i64, bytes: i64) -> ReceivedRequest {
    ReceivedRequest { credits: vec![OutputCredit { operation, bytes }], ..ReceivedRequest::default() }
}

fn begun() -> Session {
    let mut session = Session::default();
    assert!(session.receive(hello()).unwrap().is_first);
    session
}

fn result(session: &mut Session, id: i64, length: usize) {
    let result = Some(v1::Payload { content: Some(v1::payload::Content::Json("x".repeat(length))) });
    session.reply(id, Reply::Result(runner_v1::ToolCall { result, ..runner_v1::ToolCall::default() }));
}

fn output(session: &mut Session, id: i64, length: usize) {
    session.reply(id, Reply::Output(v1::ToolCallOutput { text: "x".repeat(length), ..Default::default() }));
}

fn ids(replies: &[SessionReply]) -> Vec<i64> {
    replies.iter().map(|reply| reply.operation).collect()
}

#[test]
fn what_breaks_the_rules_ends_the_session() {
    let cases: Vec<(&str, Vec<ReceivedRequest>)> = vec![
        ("hello", vec![operations(&[1])]),
        ("hello", vec![ReceivedRequest::default()]),
        ("hello", vec![hello(), hello()]),
        ("operations.id", vec![hello(), operations(&[0])]),
        ("operations.id", vec![hello(), operations(&[-1])]),
        ("operations.id", vec![hello(), operations(&[7, 7])]),
        ("operations.id", vec![hello(), operations(&[7]), operations(&[7])]),
        ("credits.operation", vec![hello(), credit(1, 1)]),
        ("credits.operation", vec![hello(), operations(&[1]), credit(2, 1)]),
        ("credits.operation", vec![hello(), operations(&[1]), credit(-1, 1)]),
        ("credits.bytes", vec![hello(), operations(&[1]), credit(1, 0)]),
        ("credits.bytes", vec![hello(), operations(&[1]), credit(1, -5)]),
        ("credits.bytes", vec![hello(), operations(&[1]), credit(1, MAX_OUTPUT_WINDOW)]),
        ("credits.bytes", vec![hello(), operations(&[1]), credit(1, i64::MAX)]),
    ];
    for (field, messages) in cases {
        let mut session = Session::default();
        let last = messages.len() - 1;
        for (at, message) in messages.into_iter().enumerate() {
            let received = session.receive(message);
            assert_eq!(received.is_err(), at == last, "{field} {at}: {received:?}");
            if let Err(status) = received {
                assert_eq!(status.code(), Code::InvalidArgument, "{field}");
                assert!(status.message().starts_with(&format!("{field}: ")), "{status:?}");
            }
        }
    }
    for window in [0, -1, MAX_OUTPUT_WINDOW + 1] {
        let hello = SessionHello { output_window: window, ..SessionHello::default() };
        let received = Session::default().receive(ReceivedRequest { hello: Some(hello), ..Default::default() });
        assert!(received.unwrap_err().message().starts_with("hello.output_window: "), "{window}");
    }
}

#[test]
fn a_credit_for_an_operation_that_has_ended_is_late_and_harmless() {
    let mut session = begun();
    session.receive(operations(&[1])).unwrap();
    result(&mut session, 1, 1);
    session.receive(credit(1, 5)).unwrap();
    session.receive(ReceivedRequest { forgotten: vec![1, 99, -3], ..Default::default() }).unwrap();
    assert_eq!(ids(&session.take_replies()), [1]);
}

#[test]
fn credit_adds_to_what_is_left() {
    let mut session = begun();
    session.receive(operations(&[1])).unwrap();
    let allowance = session.allowance(1);
    assert!(!allowance.spend(130), "a chunk may go beyond what was left, and then there is no other");
    session.receive(credit(1, 30)).unwrap();
    assert!(!allowance.is_left(), "nothing is left yet");
    session.receive(credit(1, 1)).unwrap();
    assert!(allowance.is_left());
}

#[test]
fn a_forgotten_operation_is_not_followed_any_more() {
    let mut session = begun();
    session.receive(operations(&[1])).unwrap();
    let (abort, registration) = AbortHandle::new_pair();
    session.follow(1, abort);
    session.receive(ReceivedRequest { forgotten: vec![1], ..Default::default() }).unwrap();
    assert!(registration.handle().is_aborted());
    session.receive(operations(&[1])).expect("its id is free");
}

#[test]
fn one_operation_too_many_is_refused_and_the_session_goes_on() {
    let mut session = begun();
    let all: Vec<i64> = (1..=i64::try_from(MAX_OPEN).unwrap()).collect();
    for some in all.chunks(4096) {
        assert_eq!(session.receive(operations(some)).unwrap().operations.len(), some.len());
    }
    let next = all.len() as i64 + 1;
    assert!(session.receive(operations(&[next])).unwrap().operations.is_empty());
    let replies = session.take_replies();
    let Some(Reply::Refused(refusal)) = &replies[0].reply else { panic!("{replies:?}") };
    assert_eq!((ids(&replies), refusal.code), (vec![next], Code::ResourceExhausted as i32));
    result(&mut session, 1, 1);
    assert_eq!(session.receive(operations(&[next + 1])).unwrap().operations.len(), 1);
}

/// Messages that wait to be sent are bounded by their bytes: a thousand large results of calls that are attached to again are not all in memory at once.
#[test]
fn large_ends_fill_a_message_until_they_are_taken() {
    let mut session = begun();
    session.receive(operations(&[1, 2, 3])).unwrap();
    result(&mut session, 1, 1000);
    assert!(!session.is_full());
    result(&mut session, 2, FULL_MESSAGE_BYTES);
    assert!(session.is_full(), "nothing else is begun before these are taken");
    assert_eq!(ids(&session.take_replies()), [1]);
    assert!(session.is_full(), "one is left");
    assert_eq!(ids(&session.take_replies()), [2]);
    assert!(!session.is_full());
    output(&mut session, 3, FULL_MESSAGE_BYTES);
    assert!(session.is_full(), "output counts as well");
}

#[test]
fn ends_are_sent_before_output_and_a_message_has_a_bound() {
    let mut session = begun();
    session.receive(operations(&[1, 2, 3, 4])).unwrap();
    output(&mut session, 1, 1000);
    result(&mut session, 2, FULL_MESSAGE_BYTES - 1000);
    result(&mut session, 3, 5000);
    assert_eq!(ids(&session.take_replies()), [2], "the next end is for the next message");
    result(&mut session, 4, 10);
    assert_eq!(ids(&session.take_replies()), [3, 4, 1]);
    assert!(session.take_replies().is_empty());
    session.receive(operations(&[5, 6])).unwrap();
    output(&mut session, 5, 10);
    result(&mut session, 5, 10);
    result(&mut session, 6, 10);
    let replies = session.take_replies();
    assert_eq!(ids(&replies), [6, 5, 5], "an end does not overtake its own output");
    assert!(matches!(replies[2].reply, Some(Reply::Result(_))));
    output(&mut session, 1, FULL_MESSAGE_BYTES);
    assert!(session.is_full(), "no more is read of calls until this was sent");
}

#[test]
fn a_reply_that_no_message_can_carry_is_a_refusal() {
    let mut session = begun();
    session.receive(operations(&[1])).unwrap();
    result(&mut session, 1, MAX_MESSAGE_BYTES);
    let replies = session.take_replies();
    let Some(Reply::Refused(refusal)) = &replies[0].reply else { panic!("it is too large") };
    assert_eq!(refusal.code, Code::OutOfRange as i32);
    session.receive(operations(&[1])).expect("it has ended");
}

#[test]
fn what_a_newer_executor_asks_is_refused_for_itself() {
    let mut session = begun();
    let problem = belay_proto::check::Problem::UnknownField(16);
    let refused = Refused { path: "call_tool".into(), message: "belay.runner.v1.CallToolRequest", problem };
    let mut message = operations(&[1]);
    message.operations.push(ReceivedOperation::Refused { id: 2, refused: Box::new(refused.clone()) });
    assert_eq!(session.receive(message).unwrap().operations.len(), 1);
    let replies = session.take_replies();
    let Some(Reply::Refused(refusal)) = &replies[0].reply else { panic!("{replies:?}") };
    assert_eq!((replies[0].operation, refusal.code), (2, Code::InvalidArgument as i32));
    assert!(refusal.message.contains("field 16 of belay.runner.v1.CallToolRequest"), "{}", refusal.message);
    let whole = ReceivedRequest { refused: Some(Box::new(refused)), ..ReceivedRequest::default() };
    assert_eq!(session.receive(whole).unwrap_err().code(), Code::InvalidArgument);
}

//! Order of the messages in a session, and to whom each reply belongs.

use belay_proto::runner_v1::{CancelToolCallRequest, SessionRefusal, ToolCallStarted};

use super::*;

type Waiting = Session<&'static str>;

fn cancel(name: &str) -> SessionOperation {
    let cancel = CancelToolCallRequest { name: name.to_owned(), ..Default::default() };
    SessionOperation { operation: Some(Operation::CancelToolCall(cancel)), ..SessionOperation::default() }
}

fn add(session: &mut Waiting, name: &'static str, urgency: Urgency) -> i64 {
    session.add(name.to_owned(), cancel(name), urgency, name).unwrap()
}

fn sent(message: &SessionRequest) -> Vec<i64> {
    message.operations.iter().map(|operation| operation.id).collect()
}

fn ended(operation: i64, name: &str) -> SessionReply {
    let call = runner_v1::ToolCall { name: name.to_owned(), ..runner_v1::ToolCall::default() };
    SessionReply { operation, reply: Some(Reply::Result(call)) }
}

fn refusal(code: Code) -> Reply {
    Reply::Refused(SessionRefusal { code: code as i32, message: "no".into(), details: Vec::new() })
}

#[test]
fn a_session_begins_with_hello_and_sends_all_that_is_ready_with_what_stops_something_first() {
    let mut session = Waiting::default();
    assert!(session.is_ready(), "hello waits for nothing");
    let [a, b, stop] = [("a", Urgency::Usual), ("b", Urgency::Usual), ("stop", Urgency::First)]
        .map(|(name, urgency)| add(&mut session, name, urgency));
    session.acknowledge(Fence { shard: 3, token: 9 }, "done".into()).unwrap();
    let message = session.next();
    assert_eq!(message.hello.as_ref().map(|hello| hello.output_window), Some(OUTPUT_WINDOW));
    assert_eq!(sent(&message), [stop, b + 2, a, b], "the acknowledgement has the next id");
    let Some(Operation::AcknowledgeToolCalls(done)) = &message.operations[1].operation else { panic!("{message:?}") };
    assert_eq!((done.names.as_slice(), done.fence), (&["done".to_owned()][..], Some(Fence { shard: 3, token: 9 })));
    assert!(!session.is_ready());
    let id = add(&mut session, "c", Urgency::Usual);
    let message = session.next();
    assert_eq!((message.hello, message.operations.len(), message.operations[0].id), (None, 1, id));
}

#[test]
fn an_operation_that_nobody_waits_for_is_not_sent_and_one_that_was_sent_is_forgotten() {
    let mut session = Waiting::default();
    let [a, b] = ["a", "b"].map(|name| add(&mut session, name, Urgency::Usual));
    session.forget(a);
    let message = session.next();
    assert_eq!((sent(&message), message.forgotten), (vec![b], vec![]));
    session.forget(b);
    assert_eq!(session.next().forgotten, [b]);
    assert!(session.deliver(ended(b, "b")).is_none(), "its end comes too late");
    session.forget(b);
    assert!(!session.is_ready());
}

#[test]
fn an_end_goes_to_the_operation_that_asked_and_only_if_it_is_about_its_call() {
    let mut session = Waiting::default();
    let [a, b, c] = ["a", "b", "c"].map(|name| add(&mut session, name, Urgency::Usual));
    session.next();
    let delivery = session.deliver(ended(b, "b")).unwrap();
    assert_eq!((delivery.id, delivery.waiter), (b, "b"));
    assert!(matches!(delivery.report, Report::Ended(Ok(_))));
    assert!(session.deliver(ended(b, "b")).is_none(), "it has ended");
    let Report::Ended(Err(status)) = session.deliver(ended(a, "c")).unwrap().report else {
        panic!("c is another call")
    };
    assert_eq!(status.code(), Code::Internal);
    assert!(session.deliver(ended(99, "a")).is_none());
    assert!(session.deliver(SessionReply { operation: c, reply: None }).is_none(), "a newer runner's kind of reply");
    let refused = session.deliver(SessionReply { operation: c, reply: Some(refusal(Code::NotFound)) }).unwrap();
    assert!(matches!(refused.report, Report::Ended(Err(status)) if status.code() == Code::NotFound));
    assert!(session.end().is_empty());
}

#[test]
fn a_refusal_with_ok_is_no_success() {
    let Report::Ended(Err(status)) = Report::of(refusal(Code::Ok)) else { panic!("it is refused") };
    assert_eq!(status.code(), Code::Unknown);
}

#[test]
fn a_waiter_is_kept_between_reports_unless_it_was_forgotten_meanwhile() {
    let mut session = Waiting::default();
    let a = add(&mut session, "a", Urgency::Usual);
    session.next();
    let started = || SessionReply { operation: a, reply: Some(Reply::Started(ToolCallStarted::default())) };
    let waiter = session.deliver(started()).unwrap().waiter;
    assert_eq!(session.give_back(a, waiter), None);
    let waiter = session.deliver(started()).unwrap().waiter;
    session.forget(a);
    assert_eq!(session.give_back(a, waiter), Some("a"));
}

#[test]
fn output_beyond_the_credit_is_left_out_and_credit_is_given_for_what_was_read() {
    let mut session = Waiting::default();
    let a = add(&mut session, "a", Urgency::Usual);
    session.next();
    let says = |session: &mut Waiting, length: i64| {
        let text = "x".repeat(usize::try_from(length).unwrap());
        let reply = Some(Reply::Output(v1::ToolCallOutput { text, ..v1::ToolCallOutput::default() }));
        let delivery = session.deliver(SessionReply { operation: a, reply });
        let is_delivered = delivery.is_some();
        delivery.into_iter().for_each(|delivery| assert_eq!(session.give_back(a, delivery.waiter), None));
        is_delivered
    };
    assert!(says(&mut session, OUTPUT_WINDOW));
    assert!(says(&mut session, OUTPUT_WINDOW), "a chunk may go beyond what was left");
    assert!(!says(&mut session, 1), "and no further");
    session.credit(a, 10);
    session.credit(a, 0);
    assert_eq!(session.next().credits, [OutputCredit { operation: a, bytes: 10 }]);
    assert!(says(&mut session, 10));
    session.forget(a);
    session.credit(a, 5);
    assert!(session.next().credits.is_empty());
}

#[test]
fn the_end_of_a_session_tells_everyone_and_keeps_what_was_not_acknowledged_yet() {
    let mut session = Waiting::default();
    let [a, b] = ["a", "b"].map(|name| add(&mut session, name, Urgency::Usual));
    session.next();
    let c = add(&mut session, "c", Urgency::Usual);
    session.acknowledge(Fence { shard: 1, token: 2 }, "done".into()).unwrap();
    session.on_hello().unwrap();
    assert!(session.on_hello().is_err(), "a runner says hello once");
    assert_eq!(session.end(), [(a, "a"), (b, "b"), (c, "c")]);
    assert!(!session.has_received_hello());
    let message = session.next();
    assert!(message.hello.is_some());
    assert_eq!(message.operations.len(), 1, "the acknowledgement alone");
    assert!(sent(&message)[0] > c, "no id is used twice");
}

#[test]
fn a_refused_acknowledgement_comes_back() {
    let mut session = Waiting::default();
    session.next();
    session.acknowledge(Fence { shard: 1, token: 2 }, "done".into()).unwrap();
    let id = sent(&session.next())[0];
    let refused = SessionReply { operation: id, reply: Some(refusal(Code::Unavailable)) };
    let Some(AcknowledgementReply::Refused(request, status)) = session.confirm(&refused) else {
        panic!("it was refused")
    };
    assert_eq!((request.names.as_slice(), status.code()), (&["done".to_owned()][..], Code::Unavailable));
    assert!(session.confirm(&refused).is_none(), "it is known no more");
    let a = add(&mut session, "a", Urgency::Usual);
    assert!(session.confirm(&ended(a, "a")).is_none(), "it is about another operation");
}

#[test]
fn one_message_has_a_bound_and_a_request_that_none_can_carry_is_refused_at_once() {
    let mut session = Waiting::default();
    let large = |bytes: usize| cancel(&"x".repeat(bytes));
    let (status, waiter) =
        session.add("a".into(), large(MAX_MESSAGE_BYTES), Urgency::Usual, "a").expect_err("it is too large");
    assert_eq!((status.code(), waiter), (Code::OutOfRange, "a"));
    for name in ["b", "c"] {
        session.add(name.into(), large(FULL_MESSAGE_BYTES - 100), Urgency::Usual, name).unwrap();
    }
    assert_eq!([session.next(), session.next()].map(|message| message.operations.len()), [1, 1]);
    for _ in 0..=MAX_OPERATIONS {
        add(&mut session, "d", Urgency::Usual);
    }
    assert_eq!([session.next(), session.next()].map(|message| message.operations.len()), [MAX_OPERATIONS, 1]);
}

#[test]
fn so_many_acknowledgements_wait_and_no_more() {
    let mut session = Waiting::default();
    let fence = Fence { shard: 1, token: 2 };
    (0..MAX_ACKNOWLEDGEMENTS).for_each(|n| session.acknowledge(fence, n.to_string()).unwrap());
    assert_eq!(session.acknowledge(fence, "more".into()), Err("more".into()));
    let names = |message: &SessionRequest| message.operations.len();
    assert_eq!(names(&session.next()), MAX_ACKNOWLEDGEMENTS / MAX_NAMES);
    assert_eq!(session.acknowledge(fence, "more".into()), Ok(()));
}

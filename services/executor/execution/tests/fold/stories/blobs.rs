//! Outputs that are too large to be inline.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use belay_execution::{
    BlobRef, BlobValue, Blobs, Body, ConditionResult, DecideContext, Execution, ExecutionState, Json, OperationEnd,
    OperationEvent, OperationId, OperationKind, Payload, Receipt, RequiredAction, StepState, ToolCallEnd, Work,
};
use belay_plan::{CheckPlace, Condition, ConditionValues};
use serde_json::{Value, json};

use crate::support::{START, story};

/// Values of more than this are blobs.
const MAX_INLINE: usize = 100;

/// A store of blobs in memory.
#[derive(Default)]
struct Memory {
    stored: RefCell<BTreeMap<String, Value>>,
    at_hand: BTreeMap<String, Value>,
    wanted: RefCell<BTreeSet<String>>,
    is_damaged: bool,
}

impl Memory {
    /// Gets what was wanted; returns how many those were.
    fn get(&mut self) -> usize {
        let wanted = self.wanted.take();
        let stored = self.stored.borrow();
        self.at_hand.extend(wanted.iter().map(|digest| (digest.clone(), stored[digest].clone())));
        wanted.len()
    }
}

impl Blobs for Memory {
    fn value(&self, blob: &BlobRef) -> BlobValue<'_> {
        match self.at_hand.get(&*blob.digest) {
            _ if self.is_damaged => BlobValue::Unreadable("its file is missing"),
            Some(value) => BlobValue::Known(value),
            None => {
                self.wanted.borrow_mut().insert(blob.digest.to_string());
                BlobValue::Wanted
            }
        }
    }

    fn payload(&self, json: Json) -> Payload {
        if json.as_str().len() <= MAX_INLINE {
            return json.into();
        }
        let mut stored = self.stored.borrow_mut();
        let digest = format!("blob-{}", stored.len());
        stored.insert(digest.clone(), json.value());
        Payload::Blob(BlobRef { digest: digest.into(), size: json.as_str().len() as u64, redacted: false })
    }

    fn evaluate(&self, _: &str, _: Option<CheckPlace>, condition: &Condition, _: ConditionValues) -> ConditionResult {
        panic!("no step here has the condition {}", condition.source())
    }

    fn validate(&self, step: &str, _: &Value, _: Value) -> ConditionResult {
        panic!("the output of {step} has no schema")
    }
}

const CONTEXT: DecideContext<'_> = DecideContext { now: START, ledger_id: "ledger" };

/// Ends the first call of a step with this result.
fn complete(execution: &mut Execution, step: &str, result: Payload) {
    let end = ToolCallEnd::Completed { result, receipt: Box::new(Receipt::default()) };
    let call = OperationId { step: step.into(), attempt: 1, number: 1 };
    execution
        .record(START, None, Body::Operation { id: call, event: OperationEvent::Ended(OperationEnd::ToolCall(end)) })
        .unwrap();
}

/// An execution whose steps `a` and `b` have completed with large outputs, and whose step `c` reads them both.
fn started(blobs: &Memory) -> Execution {
    let story = story("a; b; c")
        .parallelism(2)
        .arguments("c", json!({"both": "${a.result.text} ${b.result.text}", "n": "${a.result.n}"}));
    let mut execution = story.rehearse().execution;
    execution.advance_with(CONTEXT, blobs);
    for (step, n) in [("a", 1), ("b", 2)] {
        let value = json!({"text": step.repeat(MAX_INLINE), "n": n});
        let output = blobs.payload(Json::canonical(&value));
        complete(&mut execution, step, output);
    }
    execution
}

/// B-09: what a template reads out of a blob is got before anything is decided that needs it, and what becomes too large is a blob again.
#[test]
fn a_template_reads_out_of_blobs_once_they_are_at_hand() {
    let mut blobs = Memory::default();
    let mut execution = started(&blobs);
    execution.advance_with(CONTEXT, &blobs);
    let c = execution.step_key("c").unwrap();
    assert!(execution.actions().is_empty(), "no call is made without them");
    assert_eq!(execution.step(c).attempt(), 1);
    assert_eq!(blobs.get(), 2, "both are asked for at once");
    let events = execution.advance_with(CONTEXT, &blobs);
    let [Body::Operation { event: OperationEvent::Requested(Work::ToolCall(request)), .. }] =
        events.iter().map(|event| &event.body).collect::<Vec<_>>()[..]
    else {
        panic!("{events:?}")
    };
    let Some(arguments) = request.arguments.blob() else { panic!("{request:?}") };
    let written = blobs.stored.borrow()[&*arguments.digest].clone();
    assert_eq!(written, json!({"both": format!("{} {}", "a".repeat(MAX_INLINE), "b".repeat(MAX_INLINE)), "n": 1}));
    assert_eq!(
        execution.actions().iter().map(|action| action.required).collect::<Vec<_>>(),
        [RequiredAction::Dispatch]
    );
}

/// The outputs of a plan read out of blobs before the execution ends, and become one themselves when they are too large to be inline.
#[test]
fn outputs_of_a_plan_read_out_of_blobs() {
    let told = |outputs: Value| {
        let mut blobs = Memory::default();
        let mut execution = story("a").outputs(outputs).rehearse().execution;
        execution.advance_with(CONTEXT, &blobs);
        let value = json!({"text": "a".repeat(MAX_INLINE), "n": 1});
        let output = blobs.payload(Json::canonical(&value));
        complete(&mut execution, "a", output);
        execution.advance_with(CONTEXT, &blobs);
        assert!(!execution.state().is_terminal(), "it does not end without them");
        assert_eq!(blobs.get(), 1);
        let events = execution.advance_with(CONTEXT, &blobs);
        assert!(execution.state().is_terminal());
        let outputs = execution.outputs().unwrap().unwrap().clone();
        assert_eq!(events.last().unwrap().body.blob(), outputs.blob(), "the event names the blob");
        (outputs, blobs.stored.into_inner())
    };
    let (outputs, _) = told(json!({"n": "${a.result.n}"}));
    assert_eq!(outputs.inline().unwrap().value(), json!({"n": 1}));
    let (outputs, stored) = told(json!({"text": "${a.result.text}"}));
    assert_eq!(stored[&*outputs.blob().unwrap().digest], json!({"text": "a".repeat(MAX_INLINE)}));
}

/// Outputs that need a damaged blob are none: the execution ends as it would, and says why.
#[test]
fn outputs_that_need_a_damaged_blob_are_refused() {
    let blobs = Memory { is_damaged: true, ..Memory::default() };
    let mut execution = story("a").outputs(json!({"n": "${a.result.n}"})).rehearse().execution;
    execution.advance_with(CONTEXT, &blobs);
    complete(&mut execution, "a", Payload::Blob(BlobRef { digest: "lost".into(), size: 1, redacted: false }));
    execution.advance_with(CONTEXT, &blobs);
    let failure = execution.outputs().unwrap().unwrap_err();
    assert_eq!((execution.state(), failure.reason.as_str()), (ExecutionState::Completed, "BLOB_DAMAGED"));
}

/// B-09, B-21: a blob that cannot be read is named, and nothing stands in for it.
#[test]
fn a_step_that_needs_a_damaged_blob_fails_and_names_it() {
    let blobs = Memory { is_damaged: true, ..Memory::default() };
    let mut execution = started(&blobs);
    execution.advance_with(CONTEXT, &blobs);
    let c = execution.step(execution.step_key("c").unwrap());
    let failure = c.failure().unwrap();
    assert_eq!((c.state(), failure.reason.as_str()), (StepState::Failed, "BLOB_DAMAGED"));
    assert_eq!(failure.message, "The output of step `a`, the blob blob-0, cannot be read: its file is missing.");
}

/// A step cannot make the executor hold more than a bounded amount at once.
#[test]
fn what_one_step_reads_is_bounded() {
    let blobs = Memory::default();
    for (size, fails) in [(32 << 20, false), ((32 << 20) + 1, true)] {
        let arguments = json!({"n": "${a.result.n}${b.result.n}${a.result.n}"});
        let mut execution = story("a; b; c").parallelism(2).arguments("c", arguments).rehearse().execution;
        execution.advance_with(CONTEXT, &blobs);
        for step in ["a", "b"] {
            let blob = BlobRef { digest: step.into(), size, redacted: false };
            complete(&mut execution, step, Payload::Blob(blob));
        }
        execution.advance_with(CONTEXT, &blobs);
        let c = execution.step(execution.step_key("c").unwrap());
        let message = c.failure().map(|failure| failure.message.as_str());
        let expected = "The templates read more than 67108864 bytes of outputs, which is the limit, with that of step `b`: read fewer \
                        of them in one place.";
        assert_eq!(message, fails.then_some(expected));
    }
}

/// Results of a list's entries have all their outputs, also those that are blobs; none is read in part.
#[test]
fn results_of_entries_are_read_out_of_blobs() {
    let mut blobs = Memory::default();
    let story = story("g; c after g").parallelism(3).for_each("g", json!([1, 2, 3]));
    let story = story.arguments("c", json!({"n": "${g.results[2].value.n}", "of": "${g.results[1].value}"}));
    let mut execution = story.rehearse().execution;
    execution.advance_with(CONTEXT, &blobs);
    for (step, text) in [("g~0", "x"), ("g~1", "y"), ("g~2", "z")] {
        let long = if step == "g~1" { text.to_owned() } else { text.repeat(MAX_INLINE) };
        let output = blobs.payload(Json::canonical(&json!({"text": long, "n": text})));
        complete(&mut execution, step, output);
    }
    while execution.operations().next().is_none() {
        execution.advance_with(CONTEXT, &blobs);
        let is_decided = execution.operations().next().is_some();
        assert!(blobs.get() > 0 || is_decided, "it waits for nothing");
    }
    let operation = execution.operations().next().unwrap();
    let OperationKind::ToolCall(request) = &operation.kind else { panic!("{operation:?}") };
    assert_eq!(
        request.arguments.inline().map(Json::value),
        Some(json!({"n": "z", "of": {"text": "y", "n": "y"}})),
        "the blobs of both ends of the list are at hand"
    );
}

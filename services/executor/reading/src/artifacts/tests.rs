use std::{collections::BTreeMap, time::Duration};

use belay_execution::{
    Actor, ApprovalMode, ChangeKind, Created, EffectSummary, FileType, Form, Json, OperationEnd, OperationEvent,
    PlanUpdated, Progress, Receipt, Retried, RetryRequest, SignalReceived, SkipReason, ToolCallEnd, WaitCondition,
    WaitEnd, Work,
};
use belay_plan::Format;

use super::*;

/// Records events of an execution, and what they make.
struct Story {
    sequence: u64,
    artifacts: Artifacts,
    graph: Graph,
    events: Vec<Event>,
}

impl Story {
    fn of(plan: &str) -> Self {
        let created = Created {
            uid: "u".into(),
            plan: Plan::parse(Format::Yaml, plan).unwrap(),
            inputs: Json::from_text("{}"),
            start_at: None,
            parent_step: String::new(),
            forked_from: String::new(),
            allotment: None,
            spent: belay_execution::Amounts::default(),
            approval_mode: ApprovalMode::Wait,
            workspace: belay_execution::Workspace::MadeFolder("e".into()),
            labels: BTreeMap::new(),
            tools: Vec::new(),
            deadline: None,
            trace: (String::new(), String::new()),
            shard: 0,
            limits: Vec::new(),
        };
        let (artifacts, graph) = <(Artifacts, Graph)>::default();
        let mut story = Self { sequence: 0, artifacts, graph, events: Vec::new() };
        story.record(ExecutionEvent::Created(Box::new(created)).into());
        story
    }

    fn record(&mut self, body: Body) -> u64 {
        self.sequence += 1;
        let time = Timestamp::from_micros(i64::try_from(self.sequence).unwrap());
        let event = Event { sequence: self.sequence, time, actor: Some(Actor::new("unix:1")), body };
        if let Some(entry) = self.artifacts.apply(&event) {
            self.graph.add(event.sequence, entry);
        }
        self.events.push(event);
        self.sequence
    }

    fn step(&mut self, step: &str, attempt: u32, event: StepEvent) -> u64 {
        self.record(Body::Step { step: step.into(), attempt, event })
    }

    fn call_ended(&mut self, step: &str, attempt: u32, files: Vec<CommittedFile>) -> u64 {
        let call = OperationId { step: step.into(), attempt, number: 1 };
        let effect = (!files.is_empty()).then(EffectSummary::default);
        let receipt = Receipt { files, effect, ..Receipt::default() };
        let result = Json::from_text(format!("{{\"by\":\"{step}\"}}")).into();
        let event = OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Completed {
            result,
            receipt: Box::new(receipt),
        }));
        self.record(Body::Operation { id: call, event })
    }

    fn completed(&mut self, step: &str, attempt: u32) -> u64 {
        self.step(step, attempt, StepEvent::Completed { progress: Progress::default(), duration: Duration::ZERO })
    }

    /// A step that runs and completes, with the events of its files and its output.
    fn run(&mut self, step: &str, attempt: u32, files: Vec<CommittedFile>) -> (u64, u64) {
        self.step(step, attempt, StepEvent::Started);
        (self.call_ended(step, attempt, files), self.completed(step, attempt))
    }

    /// Each artifact with what it derives from.
    fn lineage(&self) -> Vec<String> {
        let words = |artifact: &Artifact| {
            let from: Vec<String> = artifact.derives_from().map(|id| id.to_string()).collect();
            format!("{} {} <- {}", artifact.id, artifact.step, from.join(" "))
        };
        self.artifacts().iter().map(words).collect()
    }

    /// All artifacts, each from nothing but the events that the index names.
    fn artifacts(&self) -> Vec<Artifact> {
        let all = Selection::of(&self.graph, self.graph.candidates(&ArtifactFilter::default()));
        all.parts(3).flat_map(|part| self.artifacts_of(&part)).collect()
    }

    fn artifacts_of(&self, selection: &Selection) -> Vec<Artifact> {
        let sequences = selection.sequences();
        let named = self.events.iter().filter(|event| sequences.contains(&event.sequence));
        let events = named.map(|event| (event.sequence, event.clone())).collect();
        selection.artifacts(&events).map(Option::unwrap).collect()
    }

    /// A page, on which each artifact has 120 bytes.
    fn list(&self, filter: ArtifactFilter, size: usize, max_bytes: usize) -> ArtifactPage<Artifact> {
        let selection = Selection::of(&self.graph, self.graph.candidates(&filter));
        let mut page = Page::new(filter, size, max_bytes);
        let _ = self
            .artifacts_of(&selection)
            .iter()
            .any(|artifact| page.apply(artifact, |artifact| (artifact.clone(), 120)));
        page.finish(7)
    }
}

fn file(path: &str, change: ChangeKind, digest: &str, previous: &str) -> CommittedFile {
    CommittedFile {
        path: path.into(),
        change,
        file_type: FileType::File,
        digest: digest.into(),
        size: 1,
        mode: 0o644,
        previous_digest: previous.into(),
    }
}

fn written(path: &str) -> CommittedFile {
    file(path, ChangeKind::Created, "sha256:1", "")
}

const CHAIN: &str = r"
id: p
steps:
  - {id: write, tool: t}
  - {id: read, tool: t, arguments: {text: '${write.result.by}'}}
  - {id: never, tool: t, depends_on: [read]}
  - {id: last, tool: t, depends_on: [write, never], run_when: always}
";

/// S3-14: an output derives from those of the steps that its step names in templates or depends on, and so do the files of its call.
#[test]
fn outputs_and_files_derive_from_the_outputs_that_their_step_depends_on() {
    let mut story = Story::of(CHAIN);
    let (files, write) = story.run("write", 1, vec![written("a"), written("b")]);
    let (changed, read) = story.run("read", 1, vec![file("b", ChangeKind::Modified, "sha256:2", "sha256:1")]);
    let skipped =
        StepEvent::Skipped { reason: SkipReason::Requested, because: None, group: None, progress: Progress::default() };
    story.step("never", 0, skipped);
    let (_, last) = story.run("last", 1, Vec::new());
    assert_eq!(
        story.lineage(),
        [
            format!("{files}.1 write <- "),
            format!("{files}.2 write <- "),
            format!("{write} write <- "),
            format!("{changed}.1 read <- {write} {files}.2"),
            format!("{read} read <- {write}"),
            format!("{last} last <- {write}"),
        ]
    );
    let graph = &story.graph;
    let ids = |lineage: Lineage| lineage.artifacts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let id = |text: &str| ArtifactId::parse(text).unwrap();
    let up = |text: &str| ids(graph.ancestors(id(text), 9, usize::MAX, 1));
    let down = |text: &str| ids(graph.descendants(id(text), 9, usize::MAX, 1));
    assert_eq!(down(&write.to_string()), format!("{changed}.1 {read} {last}"));
    assert_eq!(up(&format!("{changed}.1")), format!("{files}.2 {write}"));
    assert_eq!(down(&format!("{files}.2")), format!("{changed}.1"));
    assert_eq!((up(&write.to_string()), down(&format!("{files}.1"))), (String::new(), String::new()));
    let there = [write.to_string(), format!("{files}.2")].map(|text| graph.has(id(&text)));
    let missing = [files.to_string(), format!("{files}.3"), format!("{write}.1"), "99".to_owned()];
    assert_eq!((there, missing.map(|text| graph.has(id(&text)))), ([true; 2], [false; 4]));
}

/// S3-14: a step that runs again makes new artifacts, which derive from what there is then; those before it stay as they are.
#[test]
fn a_retry_makes_new_artifacts_of_what_there_is_then() {
    let mut story = Story::of(CHAIN);
    let (_, write) = story.run("write", 1, Vec::new());
    let (_, read) = story.run("read", 1, Vec::new());
    let steps = vec!["write".into(), "read".into()];
    let retried = Retried { steps, request: RetryRequest::default(), deadline: None, escalation: None };
    story.record(ExecutionEvent::Retried(Box::new(retried)).into());
    let (_, again) = story.run("write", 2, Vec::new());
    let (_, read_again) = story.run("read", 2, Vec::new());
    let expected = [
        format!("{write} write <- "),
        format!("{read} read <- {write}"),
        format!("{again} write <- "),
        format!("{read_again} read <- {again}"),
    ];
    assert_eq!(story.lineage(), expected);
    assert_eq!(story.artifacts().iter().map(|artifact| artifact.attempt).collect::<Vec<_>>(), [1, 1, 2, 2]);
}

/// A retry may bring another plan: what the steps depend on from then on is what that says.
#[test]
fn a_changed_plan_changes_what_later_attempts_derive_from() {
    let mut story = Story::of(CHAIN);
    story.run("write", 1, Vec::new());
    let plan = Plan::parse(Format::Yaml, "{id: p, steps: [{id: write, tool: t}, {id: read, tool: t}]}").unwrap();
    let updated = PlanUpdated { plan, tools: Vec::new(), revision: 1, deadline: None, reason: String::new() };
    story.record(ExecutionEvent::PlanUpdated(Box::new(updated)).into());
    let (_, read) = story.run("read", 1, Vec::new());
    assert_eq!(story.lineage()[1], format!("{read} read <- "));
}

/// Outputs that a principal gives derive from nothing that Belay knows, and no call made them. The same attempt can have two such outputs.
#[test]
fn an_output_that_a_principal_gave_has_no_call_and_no_sources() {
    let mut story = Story::of(CHAIN);
    story.run("write", 1, Vec::new());
    let given = |text: &str| StepEvent::OutputSet { output: Json::from_text(text), reason: String::new() };
    story.step("read", 0, given("1"));
    let first = story.completed("read", 0);
    let retried =
        Retried { steps: vec!["read".into()], request: RetryRequest::default(), deadline: None, escalation: None };
    story.record(ExecutionEvent::Retried(Box::new(retried)).into());
    story.step("read", 0, given("2"));
    let second = story.completed("read", 0);
    assert_eq!(story.lineage()[1..], [format!("{first} read <- "), format!("{second} read <- ")]);
    assert!(story.artifacts()[1..].iter().all(|artifact| artifact.call.is_none() && artifact.attempt == 0));

    let resolution = Resolution::Completed(Json::from_text("3"));
    story.step("last", 1, StepEvent::Started);
    story.step("last", 1, StepEvent::Resolved { resolution, reason: String::new() });
    story.completed("last", 1);
    assert_eq!(story.artifacts()[3].content, Content::Output(Json::from_text("3").into()));
    assert!(story.artifacts()[3].call.is_none());
}

/// The output of a step that runs for each entry of a list derives from those of the entries, and these from what the list's step depends on.
#[test]
fn the_outputs_for_the_entries_of_a_list_are_collected() {
    let mut story =
        Story::of("{id: p, steps: [{id: list, tool: t}, {id: each, tool: t, for_each: '${list.result.by}'}]}");
    let (_, list) = story.run("list", 1, Vec::new());
    story.step("each", 1, StepEvent::Started);
    let items = ["1", "2"].map(Json::from_text).to_vec();
    story.step("each", 1, StepEvent::ItemsListed { first: 0, items });
    let entries = ["each~0", "each~1"].map(|entry| story.run(entry, 1, Vec::new()).1);
    story.step("each", 1, StepEvent::ItemsCollected { output: Json::from_text("[1,2]").into() });
    let each = story.completed("each", 1);
    let [first, second] = entries;
    let expected = [
        format!("{list} list <- "),
        format!("{first} each~0 <- {list}"),
        format!("{second} each~1 <- {list}"),
        format!("{each} each <- {list} {first} {second}"),
    ];
    assert_eq!(story.lineage(), expected);
}

#[test]
fn what_a_wait_ends_with_is_its_output() {
    let mut story =
        Story::of("{id: p, steps: [{id: w, wait: {signal: go}}, {id: x, wait: {for: 1s}, depends_on: [w]}]}");
    let signal = SignalReceived { signal: "go".into(), payload: Json::from_text("{\"n\":7}") };
    let sequence = story.record(ExecutionEvent::SignalReceived(signal).into());
    for (step, end) in [("w", WaitEnd::Signalled { sequence }), ("x", WaitEnd::Elapsed)] {
        story.step(step, 1, StepEvent::Started);
        let wait = OperationId { step: step.into(), attempt: 1, number: 1 };
        story.record(Body::Operation { id: wait, event: OperationEvent::Ended(OperationEnd::Wait(end)) });
        story.completed(step, 1);
    }
    let outputs = ["{\"n\":7}", "null"].map(|text| Content::Output(Json::from_text(text).into()));
    assert_eq!(story.artifacts().iter().map(|artifact| artifact.content.clone()).collect::<Vec<_>>(), outputs);
    assert_eq!(*story.artifacts()[1].outputs, [story.artifacts()[0].id.sequence()]);
    assert!(story.artifacts.signals.is_empty(), "nothing is kept that was taken");
}

/// A postcondition that asks a person is answered between the step's own call and its end.
#[test]
fn the_answer_to_a_question_is_no_output_of_the_step() {
    let mut story = Story::of("{id: p, steps: [{id: s, tool: t}]}");
    story.step("s", 1, StepEvent::Started);
    story.call_ended("s", 1, vec![]);
    let question = OperationId { step: "s".into(), attempt: 1, number: 3 };
    let form = Form::new("t".to_owned(), String::new(), &serde_json::json!({})).into();
    let asked = WaitCondition::Question { call: 2, question: "q".into(), form, until: None, may_hold: false };
    let answered = WaitEnd::Answered { answer: Json::from_text("true") };
    for event in [OperationEvent::Requested(Work::Wait(asked)), OperationEvent::Ended(OperationEnd::Wait(answered))] {
        story.record(Body::Operation { id: question.clone(), event });
    }
    story.completed("s", 1);
    assert_eq!(story.artifacts()[0].content, Content::Output(Json::from_text(r#"{"by":"s"}"#).into()));
    assert!(story.artifacts.without_output.is_empty(), "nothing is kept that has ended");
}

/// A file derives from the one before it only where the runner certifies that it replaced exactly that.
#[test]
fn a_file_that_was_changed_by_others_in_between_derives_from_no_file() {
    let mut story = Story::of(CHAIN);
    story.run("write", 1, vec![written("a"), written("b"), written("c")]);
    let changes = vec![
        file("a", ChangeKind::Modified, "sha256:2", "sha256:other"),
        file("b", ChangeKind::Deleted, "", "sha256:1"),
        file("c", ChangeKind::Modified, "sha256:1", "sha256:1"),
    ];
    story.run("read", 1, changes);
    story.run("last", 1, vec![file("b", ChangeKind::Created, "sha256:3", "")]);
    let replaces: Vec<_> =
        story.artifacts().iter().filter_map(|artifact| Some((artifact.id.file, artifact.replaces?.file))).collect();
    assert_eq!(replaces, [(2, 2), (3, 3)], "the deletion, and the change of the permissions");
}

/// S3-16: the list is the same in pages of every size, and its filters leave out and keep the order.
#[test]
fn a_list_is_the_same_in_pages_of_every_size() {
    let mut story = Story::of(CHAIN);
    story.run("write", 1, vec![written("out/a"), written("out/b"), written("z")]);
    story.run("read", 1, vec![written("out/c")]);
    let all = story.list(ArtifactFilter::default(), 100, usize::MAX);
    assert_eq!((all.artifacts.len(), all.next), (6, None));
    for (size, max_bytes) in [(1, usize::MAX), (2, usize::MAX), (5, usize::MAX), (100, 1), (100, 300)] {
        let (mut found, mut filter) = (Vec::new(), ArtifactFilter::default());
        loop {
            let page = story.list(filter.clone(), size, max_bytes);
            assert!(!page.artifacts.is_empty() && page.artifacts.len() <= size);
            found.extend(page.artifacts);
            if page.next.is_none() {
                break;
            }
            filter.after = page.next;
        }
        assert_eq!(found, all.artifacts, "{size}, {max_bytes} bytes");
    }
    let path = |artifact: Artifact| match artifact.content {
        Content::Output(_) => String::new(),
        Content::File(file) => file.path,
    };
    let paths = |filter| story.list(filter, 100, usize::MAX).artifacts.into_iter().map(path);
    let of_prefix = ArtifactFilter { path_prefix: "out/".into(), ..ArtifactFilter::default() };
    assert_eq!(paths(of_prefix.clone()).collect::<Vec<_>>(), ["out/a", "out/b", "out/c"]);
    let of_step = ArtifactFilter { step: Some("read".into()), ..of_prefix };
    assert_eq!(paths(of_step).collect::<Vec<_>>(), ["out/c"]);
    assert_eq!(
        paths(ArtifactFilter { kind: Some(Kind::Output), ..ArtifactFilter::default() }).collect::<Vec<_>>(),
        ["", ""]
    );
    assert_eq!(paths(ArtifactFilter { kind: Some(Kind::File), ..ArtifactFilter::default() }).count(), 4);
}

#[test]
fn what_no_artifact_stands_for_is_counted_on_the_last_page() {
    let mut story = Story::of(CHAIN);
    story.run("write", 1, vec![written("a"), written("b")]);
    let counted = |size| story.list(ArtifactFilter::default(), size, usize::MAX).unlisted;
    assert_eq!((counted(1), counted(9)), (0, 7));
}

/// S3-14: one query returns the lineage within a bound, the nearest first, and says when there is more.
#[test]
fn a_lineage_that_is_too_long_is_cut_at_its_far_end() {
    let steps: Vec<String> = (0..50)
        .map(|n| match n {
            0 => "{id: s0, tool: t}".to_owned(),
            n => format!("{{id: s{n}, tool: t, depends_on: [s{}]}}", n - 1),
        })
        .collect();
    let mut story = Story::of(&format!("{{id: p, steps: [{}]}}", steps.join(", ")));
    let outputs: Vec<u64> = (0..50).map(|n| story.run(&format!("s{n}"), 1, Vec::new()).1).collect();
    let graph = &story.graph;
    let sequences = |found: &Lineage| found.artifacts.iter().map(|id| id.sequence()).collect::<Vec<_>>();
    let (middle, all) = (ArtifactId::output(outputs[25]), usize::MAX);
    let up = graph.ancestors(middle, 3, all, 10);
    assert_eq!((sequences(&up), up.is_truncated), (vec![outputs[24], outputs[23], outputs[22]], true));
    let down = graph.descendants(middle, 24, all, 10);
    assert_eq!((sequences(&down), down.is_truncated), (outputs[26..].to_vec(), false));
    assert!(graph.descendants(middle, 23, all, 10).is_truncated);
    let few_bytes = graph.descendants(middle, 24, 2 * FIXED, 10);
    assert_eq!((few_bytes.artifacts.len(), few_bytes.is_truncated), (1, true));
    assert_eq!(graph.ancestors(middle, 9, 1, 10).artifacts.len(), 1, "one alone may have more");
}

/// More than the fixed part of one artifact's message and less than that of two.
const FIXED: usize = 700;

#[test]
fn an_id_comes_back_as_it_was_and_others_are_none() {
    for id in ["1", "42", "42.1", "9007199254740993.1000"] {
        assert_eq!(ArtifactId::parse(id).map(|id| id.to_string()).as_deref(), Some(id));
    }
    for bad in
        ["", "a", "1.", ".1", "1.0", "01", "1.01", "+1", "1.1.1", "-1", "1 ", "99999999999999999999", "1.4294967296"]
    {
        assert_eq!(ArtifactId::parse(bad), None, "{bad}");
    }
}

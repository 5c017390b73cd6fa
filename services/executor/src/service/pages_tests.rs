//! Reads of the journal for a page of an execution: the same for one with few steps and one with many.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use belay_execution::{
    ApprovalMode, Body, ChangeKind, CommittedFile, Created, DecideContext, EffectSummary, Execution, ExecutionEvent,
    FileType, Json, OperationEnd, OperationEvent, OperationId, Receipt, RecoveryClass, Timestamp, ToolCallEnd,
    ToolFacts,
};
use belay_journal::{
    ExecutionSummary, Fence, InboxChanges, JournalWriter as _, NewExecution, OpenedStore, StoreWrite, Transition,
};
use belay_journal_memory::{Memory, MemoryWriter};
use belay_plan::{Format, Plan};
use belay_proto::{
    kinds,
    v1::{self, AuditLevel, artifact::Kind},
};
use belay_redaction::{MasterKey, Redactor};
use belay_service_kit::{Ids, Shutdown, SystemClock, net, shutdown::Trigger};
use belay_sqlite::Threads;
use belay_telemetry::Telemetry;
use tonic::Code;

use super::{
    get_artifact::get_artifact, get_provenance::get_provenance, list_artifacts::list_artifacts,
    list_audit_entries::list_audit_entries, list_events::list_events, list_tool_calls::list_tool_calls,
};
use crate::{
    ExecutionRegistry, Gate, Parts, Runner, Thresholds, names::ExecutionName, store::secrets::SealedEvents, wire,
};

const NAME: &str = "namespaces/n/executions/e";

const PAGE: usize = 10;

/// The transitions that a reader of the journal asks for at once.
const READ: usize = 16;

/// A service whose tasks do not run: nothing is given up by time.
struct World {
    memory: Memory,
    registry: Arc<ExecutionRegistry>,
    _trigger: Trigger,
}

impl World {
    /// A service with one execution that has completed this many steps, each with a file, one after the other; each change is a transition.
    async fn of(steps: usize) -> Self {
        let path = |n| format!("out/{}", n % 100);
        Self::with(steps, |n| file(path(n), if n < 100 { "" } else { "sha256:1" })).await
    }

    async fn with(steps: usize, file: impl Fn(usize) -> CommittedFile) -> Self {
        let memory = Memory::new("a store");
        let mut journal = memory.open();
        let (trigger, shutdown) = Shutdown::new();
        let channel = || net::connect_lazy(&net::Address::Unix("/nonexistent".into()));
        let (transitions, seal_key) = events(steps, file);
        commit(&mut journal, transitions, seal_key).await;
        let (registry, ..) = ExecutionRegistry::open(Parts {
            journal,
            blobs: Arc::new(belay_blobs::Folder::new("/nonexistent")),
            threads: Threads::Inline,
            runner: Runner::new(channel(), None).unwrap(),
            gate: Gate::new(channel(), None).unwrap(),
            clock: Arc::new(SystemClock),
            ids: Ids::seeded(1),
            redactor: Redactor::new(),
            master_key: MasterKey::new([7; 32]),
            telemetry: Telemetry::off(|bytes| bytes.fill(1)),
            shutdown,
            limits: Default::default(),
            retention: Default::default(),
            budgets: Default::default(),
            webhooks: Vec::new(),
            models: crate::Models::default(),
            thresholds: Thresholds { watch_page: READ, ..Thresholds::default() },
        });
        Self { memory, registry, _trigger: trigger }
    }

    /// The transitions that were read by what is asked, and its answer.
    async fn reads<T>(&self, ask: impl Future<Output = Result<T, tonic::Status>>) -> (usize, T) {
        let before = self.memory.transitions_read();
        let answer = ask.await.unwrap();
        (self.memory.transitions_read() - before, answer)
    }

    /// How many transitions each page of a list reads, and how many items there are.
    async fn pages(&self, page: impl AsyncFn(String) -> Result<(usize, String), tonic::Status>) -> (Vec<usize>, usize) {
        let (mut reads, mut items, mut token) = (Vec::new(), 0, String::new());
        loop {
            let (read, (listed, next)) = self.reads(page(token)).await;
            reads.push(read);
            items += listed;
            token = next;
            if token.is_empty() {
                return (reads, items);
            }
        }
    }

    async fn artifacts(&self, request: v1::ListArtifactsRequest) -> (Vec<usize>, usize) {
        let page = async |page_token| {
            let request =
                v1::ListArtifactsRequest { parent: NAME.into(), page_size: 10, page_token, ..request.clone() };
            let page = list_artifacts(&self.registry.reading, request).await?;
            Ok((page.artifacts.len(), page.next_page_token))
        };
        self.pages(page).await
    }

    async fn entries(&self, level: AuditLevel) -> (Vec<usize>, usize) {
        let page = async |page_token| {
            let (parent, level) = (NAME.to_owned(), level.into());
            let request =
                v1::ListAuditEntriesRequest { parent, page_size: 10, page_token, level, ..Default::default() };
            let page = list_audit_entries(&self.registry.reading, request).await?;
            Ok((page.entries.len(), page.next_page_token))
        };
        self.pages(page).await
    }

    async fn calls(&self) -> (Vec<usize>, usize) {
        let page = async |page_token| {
            let request = v1::ListToolCallsRequest { parent: NAME.into(), page_size: 10, page_token };
            let page = list_tool_calls(&self.registry.reading, request).await?;
            Ok((page.tool_calls.len(), page.next_page_token))
        };
        self.pages(page).await
    }

    /// How many transitions each page of the events reads, and the events.
    async fn events(&self, request: v1::ListEventsRequest) -> (Vec<usize>, Vec<v1::ExecutionEvent>) {
        let parent = if request.parent.is_empty() { NAME.to_owned() } else { request.parent.clone() };
        let events = RefCell::new(Vec::new());
        let page = async |page_token| {
            let request = v1::ListEventsRequest { parent: parent.clone(), page_token, ..request.clone() };
            let page = list_events(&self.registry.reading, request).await?;
            let listed = page.events.len();
            events.borrow_mut().extend(page.events);
            Ok((listed, page.next_page_token))
        };
        let (reads, _) = self.pages(page).await;
        (reads, events.into_inner())
    }

    /// The events as the journal has them.
    async fn stored_events(&self) -> Vec<v1::ExecutionEvent> {
        let key = self.registry.reading.follower.find(&ExecutionName::parse("name", NAME).unwrap()).await.unwrap().key;
        let all = self.registry.reading.follower.read(move |reader| reader.read(key, 0, usize::MAX)).await.unwrap();
        all.iter().flat_map(|transition| wire::decode_all(transition).unwrap()).collect()
    }
}

fn file(path: String, previous_digest: &str) -> CommittedFile {
    CommittedFile {
        path,
        change: ChangeKind::Created,
        file_type: FileType::File,
        digest: "sha256:1".into(),
        size: 1,
        mode: 0o644,
        previous_digest: previous_digest.into(),
    }
}

/// The transitions of an execution whose steps run one after the other, and its key.
fn events(steps: usize, file: impl Fn(usize) -> CommittedFile) -> (Vec<Transition>, Option<Vec<u8>>) {
    let step = |n: usize| match n {
        0 => "{id: s0, tool: t}".to_owned(),
        n => format!("{{id: s{n}, tool: t, depends_on: [s{}]}}", n - 1),
    };
    let plan = format!("{{id: p, steps: [{}]}}", (0..steps).map(step).collect::<Vec<_>>().join(", "));
    let tool = ToolFacts {
        used_as: "t".into(),
        tool: "t".into(),
        recovery: RecoveryClass::Transactional,
        default_timeout: Duration::from_secs(60),
        secret_arguments: Vec::new(),
        secret_result: Vec::new(),
        ..ToolFacts::default()
    };
    let created = Created {
        uid: "8x4k2m9q1p7r3s5t6v8w".into(),
        plan: Plan::parse(Format::Yaml, &plan).unwrap(),
        inputs: Json::from_text("{}"),
        start_at: None,
        parent_step: String::new(),
        forked_from: String::new(),
        allotment: None,
        spent: belay_execution::Amounts::default(),
        approval_mode: ApprovalMode::Wait,
        workspace: belay_execution::Workspace::MadeFolder("e".into()),
        labels: BTreeMap::new(),
        tools: vec![tool],
        deadline: None,
        trace: (String::new(), String::new()),
        shard: 0,
        limits: Vec::new(),
    };
    let sealer = crate::store::secrets::Sealer { redactor: Redactor::new(), master_key: MasterKey::new([7; 32]) };
    let (mut secrets, mut seal_key) = (sealer.secrets(), None);
    let now = Timestamp::from_micros(1);
    let first = belay_execution::Event {
        sequence: 1,
        time: now,
        actor: Some(belay_execution::Actor::new("ann")),
        body: ExecutionEvent::Created(Box::new(created)).into(),
    };
    let mut execution = Execution::create(first.clone()).unwrap();
    let (mut events, mut transitions) = (vec![first], Vec::new());
    for n in 0.. {
        events.extend(execution.advance(DecideContext { now, ledger_id: "l" }));
        let mut messages: Vec<_> = events.iter().map(wire::encode).collect();
        let SealedEvents { mut transition, new_key } =
            sealer.seal(&mut secrets, "8x4k2m9q1p7r3s5t6v8w", &mut messages, &|| [1; 32]);
        transition.facts = wire::facts_beside(&events);
        transitions.push(transition);
        seal_key = seal_key.or(new_key);
        if execution.state().is_terminal() {
            break;
        }
        let call = OperationId { step: format!("s{n}").into(), attempt: 1, number: 1 };
        let receipt = Receipt { files: vec![file(n)], effect: Some(EffectSummary::default()), ..Receipt::default() };
        let end = ToolCallEnd::Completed { result: Json::from_text("{}").into(), receipt: Box::new(receipt) };
        events = vec![
            execution
                .record(
                    now,
                    None,
                    Body::Operation { id: call, event: OperationEvent::Ended(OperationEnd::ToolCall(end)) },
                )
                .unwrap(),
        ];
    }
    (transitions, seal_key)
}

async fn commit(journal: &mut OpenedStore<MemoryWriter>, transitions: Vec<Transition>, mut new_key: Option<Vec<u8>>) {
    let fence = Fence { shard: 0, token: journal.fence };
    let last = transitions.len() - 1;
    let mut key = None;
    for (n, transition) in transitions.into_iter().enumerate() {
        let ended_at = (n == last).then_some(1);
        let summary = ExecutionSummary { ended: n == last, ended_at, ..ExecutionSummary::default() };
        let (seal_key, outbox, inbox) = (new_key.take(), Vec::new(), InboxChanges::default());
        let operation = match key {
            None => {
                let execution = NewExecution {
                    namespace: "n".into(),
                    id: "e".into(),
                    shard: 0,
                    created_at: 1,
                    plan_id: "p".into(),
                    labels: BTreeMap::new(),
                    principal: "ann".into(),
                    request_id: String::new(),
                    request_hash: String::new(),
                    parent: None,
                };
                StoreWrite::Create {
                    execution,
                    transition,
                    summary,
                    seal_key,
                    outbox,
                    inbox,
                    folder: None,
                    limits: Vec::new(),
                    fence,
                }
            }
            Some(key) => {
                let summary = (n == last).then_some(summary);
                StoreWrite::Append {
                    key,
                    transition,
                    summary,
                    seal_key,
                    outbox,
                    inbox,
                    usage: Vec::new(),
                    limits: Vec::new(),
                    fence,
                }
            }
        };
        let done = journal.writer.commit(&[operation]).await.unwrap().remove(0).unwrap();
        if let belay_journal::StoreWriteOutcome::Created(created) = done {
            key = Some(created);
        }
    }
}

/// No page after the first reads more than this, whatever is before or after it.
fn assert_bounded(what: &str, reads: &[usize], most: usize) {
    let most_read = reads[1..].iter().copied().max().unwrap_or(0);
    assert!(most_read <= most, "{what}: a page read {most_read} transitions, {most} are allowed: {reads:?}");
}

/// B-22: the cost of a page does not grow with its number. What is before it was read once.
#[tokio::test]
async fn a_page_reads_what_is_on_it() {
    const STEPS: usize = 600;
    let world = World::of(STEPS).await;
    // One step is one transition. A page extends the index by what it needs, which is read once, and reads its own events.
    let most = 2 * (PAGE + 1) + 2 * READ;

    let (reads, listed) = world.artifacts(v1::ListArtifactsRequest::default()).await;
    assert_eq!(listed, 2 * STEPS);
    assert_bounded("artifacts", &reads, most);
    let again = world.artifacts(v1::ListArtifactsRequest::default()).await;
    assert_eq!((again.0.len(), again.1), (reads.len(), listed));
    assert!(again.0[0] <= most, "the first page neither: {:?}", again.0);

    let files = v1::ListArtifactsRequest { path_prefix: "out/7".into(), ..Default::default() };
    let (reads, listed) = world.artifacts(files).await;
    assert_eq!(listed, STEPS / 100 * 11);
    assert!(reads.iter().sum::<usize>() < 2 * STEPS + most * reads.len(), "each event is read once: {reads:?}");

    let (reads, listed) = world.calls().await;
    assert_eq!(listed, STEPS);
    assert_bounded("calls", &reads, most);

    let (reads, listed) = world.entries(AuditLevel::Verbose).await;
    assert!(listed > 3 * STEPS);
    assert_bounded("entries", &reads, most);
    let (reads, _) = world.entries(AuditLevel::Minimal).await;
    assert_bounded("entries", &reads, most);
}

/// Reading one artifact reads its own events, and reading a lineage the events of the artifacts in it.
#[tokio::test]
async fn an_artifact_is_found_without_the_events_before_it() {
    const STEPS: usize = 300;
    let world = World::of(STEPS).await;
    let request = v1::ListArtifactsRequest { parent: NAME.into(), page_size: 1_000, ..Default::default() };
    let all = list_artifacts(&world.registry.reading, request).await.unwrap().artifacts;
    for artifact in [&all[0], &all[STEPS], &all[2 * STEPS - 1]] {
        let request = v1::GetProvenanceRequest { name: artifact.name.clone(), max_artifacts: 3 };
        let (read, found) = world.reads(get_provenance(&world.registry.reading, request)).await;
        assert_eq!(found.artifact.as_ref(), Some(artifact));
        assert!(read <= 2 * 7 * 2, "{read}");
        let request = v1::GetArtifactRequest { name: artifact.name.clone(), offset: 0 };
        // The content of a file is not kept, which is found out by its event.
        let before = world.memory.transitions_read();
        let _ = get_artifact(&world.registry.reading, request).await.map(drop);
        let read = world.memory.transitions_read() - before;
        assert!((1..=2).contains(&read), "{read}");
    }
}

/// Two files whose paths differ in a secret alone are two: none derives from the other.
#[tokio::test]
async fn files_are_told_apart_by_their_paths_and_not_by_how_these_are_shown() {
    let token = |n: usize| ["ghp_FAKE0fake1Belay2Not3Real4FAKE0fake", &format!("{n}B")].concat();
    let world = World::with(3, |n| file(format!("out/{}", token(n % 2)), if n == 0 { "" } else { "sha256:1" })).await;
    let request = v1::ListArtifactsRequest { parent: NAME.into(), kind: Kind::File.into(), ..Default::default() };
    let files = list_artifacts(&world.registry.reading, request).await.unwrap().artifacts;
    assert!(files.iter().all(|file| file.path == files[0].path && !file.path.contains("ghp_")), "{files:?}");
    let replaces = |n: usize| files[n].derives_from.iter().any(|from| *from == files[0].name);
    assert_eq!([1, 2].map(replaces), [false, true]);
}

/// Every event is on exactly one page, in order, whatever the size of the pages; and a page reads no more than is on it.
#[tokio::test]
async fn the_events_are_listed_without_a_gap() {
    const STEPS: usize = 300;
    let world = World::of(STEPS).await;
    let stored = world.stored_events().await;
    assert!(stored.len() > 1_000, "{}", stored.len());
    for page_size in [7, 100, 1_000] {
        let (reads, events) = world.events(v1::ListEventsRequest { page_size, ..Default::default() }).await;
        assert_eq!(events, stored, "{page_size} a page");
        let pages = stored.len().div_ceil(usize::try_from(page_size).unwrap());
        assert_eq!(reads.len(), pages);
        // No transition has less than one event.
        assert_bounded("events", &reads, usize::try_from(page_size).unwrap() + 1 + READ);
    }
}

/// Events are chosen by their step and by their kind. What is passed over has been looked at, so that a page may be short.
#[tokio::test]
async fn events_are_listed_by_step_and_kind() {
    const STEPS: usize = 600;
    let world = World::of(STEPS).await;
    let stored = world.stored_events().await;
    let listed = async |parent: &str, kinds: &[&str]| {
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        let request = v1::ListEventsRequest { parent: parent.to_owned(), kinds, page_size: 50, ..Default::default() };
        world.events(request).await.1
    };
    let of_step = |step: &str| stored.iter().filter(|event| event.step_id == step).cloned().collect::<Vec<_>>();
    assert_eq!(listed(&format!("{NAME}/steps/s300"), &[]).await, of_step("s300"));
    let of_kind = |kinds: &[&str]| {
        let is_wanted = |event: &&v1::ExecutionEvent| kinds.contains(&kinds::name(event.kind.as_ref().unwrap()));
        stored.iter().filter(is_wanted).cloned().collect::<Vec<_>>()
    };
    for wanted in [&["step_completed"][..], &["execution_finished", "step_started"], &["execution_paused"]] {
        assert_eq!(listed(NAME, wanted).await, of_kind(wanted), "{wanted:?}");
    }
    assert_eq!(of_kind(&["step_completed"]).len(), STEPS);
    let both = listed(&format!("{NAME}/steps/s7"), &["tool_call_completed"]).await;
    let [both] = both.as_slice() else { panic!("{both:?}") };
    assert_eq!((both.step_id.as_str(), kinds::name(both.kind.as_ref().unwrap())), ("s7", "tool_call_completed"));
}

/// Requests that make no sense are refused with what would be valid.
#[tokio::test]
async fn steps_kinds_and_tokens_that_there_are_not_are_refused() {
    let world = World::of(30).await;
    let refused = async |parent: &str, kind: &str, page_token: &str| {
        let kinds = if kind.is_empty() { Vec::new() } else { vec!["step_started".to_owned(), kind.to_owned()] };
        let (parent, page_token) = (parent.to_owned(), page_token.to_owned());
        let request = v1::ListEventsRequest { parent, page_token, kinds, page_size: 10 };
        list_events(&world.registry.reading, request).await.unwrap_err()
    };
    let no_step = refused(&format!("{NAME}/steps/s30"), "", "").await;
    assert_eq!((no_step.code(), no_step.message()), (Code::NotFound, "Execution `e` has no step `s30`."));
    let no_execution = refused("namespaces/n/executions/other", "", "").await;
    assert_eq!(no_execution.code(), Code::NotFound);

    for kind in ["step_finished", "StepFailed", "tool_call_output"] {
        let no_kind = refused(NAME, kind, "").await;
        assert_eq!(no_kind.code(), Code::InvalidArgument);
        let message = no_kind.message();
        assert!(message.starts_with(&format!("kinds[1]: `{kind}` is not a kind of event")), "{message}");
        assert!(message.contains("use one of execution_created, execution_started,"), "{message}");
        assert!(message.ends_with(", approval_decided") && !message.contains("output,"), "{message}");
    }

    let of = async |kinds: Vec<String>, parent: &str| {
        let request = v1::ListEventsRequest { parent: parent.to_owned(), kinds, page_size: 2, ..Default::default() };
        list_events(&world.registry.reading, request).await.unwrap().next_page_token
    };
    let request = v1::ListToolCallsRequest { parent: NAME.into(), page_size: 2, ..Default::default() };
    let of_calls = list_tool_calls(&world.registry.reading, request).await.unwrap().next_page_token;
    let request = v1::ListArtifactsRequest { parent: NAME.into(), page_size: 2, ..Default::default() };
    let of_artifacts = list_artifacts(&world.registry.reading, request).await.unwrap().next_page_token;
    let of_kind = of(vec!["step_completed".into()], NAME).await;
    let of_step = of(Vec::new(), &format!("{NAME}/steps/s3")).await;
    let own = of(Vec::new(), NAME).await;
    for token in [&of_calls, &of_artifacts, &of_kind, &of_step, "1", &format!("{own}0x"), "."] {
        assert!(!token.is_empty());
        let refused = refused(NAME, "", token).await;
        assert_eq!(refused.code(), Code::InvalidArgument, "{token}");
        assert!(refused.message().starts_with("page_token: is not valid"), "{}", refused.message());
    }
    let request = v1::ListEventsRequest { parent: NAME.into(), page_token: own, ..Default::default() };
    assert_eq!(list_events(&world.registry.reading, request).await.unwrap().events[0].sequence, 3);
}

/// Events are listed as they are stored: with the secrets hidden, which is how watchers get them.
#[tokio::test]
async fn events_are_listed_with_their_secrets_hidden() {
    let token = ["ghp_FAKE0fake1Belay2Not3Real4FAKE0fake", "0B"].concat();
    let world = World::with(1, |_| file(format!("out/{token}"), "")).await;
    let (_, events) = world.events(v1::ListEventsRequest::default()).await;
    assert_eq!(events, world.stored_events().await);
    let text = format!("{events:?}");
    assert!(text.contains("out/") && !text.contains("ghp_"), "{text}");
    assert!(events.iter().all(|event| event.secrets.is_empty()));
}

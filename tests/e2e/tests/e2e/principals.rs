//! The principals that may call a server, and what each may do, over the real program.

use std::{path::Path, time::Duration};

use belay_e2e::{
    Home,
    belay::RunningCommand,
    client::{channel, name, retry},
    runner::reason,
};
use belay_proto::{
    gate_v1::{self, approval_gate_service_client::ApprovalGateServiceClient as Gate},
    runner_v1::{self, tool_runner_service_client::ToolRunnerServiceClient},
    v1::{
        self, Approval, Decision, approval_service_client::ApprovalServiceClient as Approvals,
        executor_service_client::ExecutorServiceClient as Executor,
    },
};
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// A plan whose only step needs approval before a file is written.
const ASKS: &str = "id: asks\nsteps: [{id: w, tool: write_file, arguments: {path: a.txt, content: new}}]\n";

/// A server on a unix socket and on TCP, whose policy requires approval for writing files.
pub(crate) struct Server {
    pub(crate) home: Home,
    url: String,
    _running: RunningCommand,
}

impl Server {
    pub(crate) fn start(more_policy: &str) -> Self {
        let home = Home::new();
        let policy = home.file("policy.yaml", format!("file_write: prompt\n{more_policy}"));
        let mut running = home.start(["serve", "--listen", "127.0.0.1:0", "--policy", &policy]);
        let url = running.wait_for("and at").split_whitespace().last().unwrap().to_owned();
        running.wait_for("keeps data in");
        Self { home, url, _running: running }
    }

    pub(crate) fn tcp(&self) -> Channel {
        Endpoint::from_shared(self.url.clone()).unwrap().connect_lazy()
    }

    fn unix(&self) -> Channel {
        channel(&self.home.state().join("executor.sock"))
    }

    /// Where it listens on TCP.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Adds a principal, and gives its token.
    pub(crate) fn add(&self, name: &str, role: &str) -> String {
        let (code, added) = self.home.json(&["principals", "add", name, "--role", role]);
        assert_eq!((code, added["name"].as_str()), (0, Some(name)), "{added}");
        added["token"].as_str().expect("it is shown once").to_owned()
    }

    fn own_token(&self) -> String {
        std::fs::read_to_string(self.home.state().join("token")).unwrap().trim().to_owned()
    }
}

/// A request with a token.
fn with<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    request
}

fn start_request(id: &str) -> v1::StartExecutionRequest {
    let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: ASKS.into() };
    v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        execution_id: id.into(),
        source: Some(v1::start_execution_request::Source::Document(document)),
        ..Default::default()
    }
}

async fn start(channel: Channel, token: &str, id: &str) -> Result<v1::Execution, Status> {
    Executor::new(channel).start_execution(with(token, start_request(id))).await.map(tonic::Response::into_inner)
}

/// The pending approval of an execution, as soon as there is one.
pub(crate) async fn question(channel: &Channel, token: &str, execution: &str) -> Approval {
    let request =
        v1::ListApprovalsRequest { parent: "namespaces/-".into(), execution: execution.into(), ..Default::default() };
    loop {
        let listed = retry(|| {
            let (mut approvals, request) = (Approvals::new(channel.clone()), with(token, request.clone()));
            async move { approvals.list_approvals(request).await }
        });
        if let Some(asked) = listed.await.unwrap().approvals.pop() {
            return asked;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn approve(channel: Channel, token: &str, asked: &Approval) -> Result<Approval, Status> {
    let request = v1::DecideApprovalRequest {
        name: asked.name.clone(),
        subject_digest: asked.subject_digest.clone(),
        decision: Decision::Approve.into(),
        reason: String::new(),
        ..Default::default()
    };
    Approvals::new(channel).decide_approval(with(token, request)).await.map(tonic::Response::into_inner)
}

async fn get(channel: Channel, token: &str, id: &str) -> Result<v1::Execution, Status> {
    let request = v1::GetExecutionRequest { name: name(id), ..Default::default() };
    Executor::new(channel).get_execution(with(token, request)).await.map(tonic::Response::into_inner)
}

/// B-19: a planner's credential starts and watches executions, and cannot approve; the error names the missing role, and how to grant it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planner_starts_and_watches_and_does_not_approve() {
    let server = Server::start("");
    let bot = server.add("bot", "planner");
    let started = start(server.tcp(), &bot, "e1").await.unwrap();
    assert_eq!(started.principal, "person:bot");
    let watch = v1::WatchExecutionRequest { name: started.name.clone(), ..Default::default() };
    let mut events = Executor::new(server.tcp()).watch_execution(with(&bot, watch)).await.unwrap().into_inner();
    assert!(events.message().await.unwrap().is_some(), "it watches");

    let asked = question(&server.tcp(), &bot, &started.name).await;
    for channel in [server.tcp(), server.unix()] {
        let refused = approve(channel, &bot, &asked).await.unwrap_err();
        assert_eq!(reason(&refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
        assert!(refused.message().contains("requires the role approver"), "{}", refused.message());
    }
    let id = asked.name.rsplit('/').next().unwrap();
    let told = server.home.run(["approve", id, "--yes", "--server", &server.url, "--token", &bot]);
    assert_eq!(told.code, 2, "{told:?}");
    let next = "next: belay principals update bot --role planner --role approver";
    assert!(told.talk.contains(next) && told.talk.contains("code: ROLE_MISSING"), "{}", told.talk);

    // The command does what it says, and the server sees it with the next request.
    let update = server.home.run(["principals", "update", "bot", "--role", "planner", "--role", "approver"]);
    assert_eq!(update.code, 0, "{update:?}");
    assert_eq!(approve(server.tcp(), &bot, &asked).await.unwrap().decided_by, "person:bot");
}

/// B-19: a viewer only reads, an approver only decides, a planner controls only its own executions, an operator controls all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_does_its_own() {
    let server = Server::start("");
    let [viewer, approver, planner, operator] =
        ["viewer", "approver", "planner", "operator"].map(|role| server.add(&format!("a-{role}"), role));
    let denied = (Code::PermissionDenied, "ROLE_MISSING".to_owned());
    for token in [&viewer, &approver] {
        assert_eq!(reason(&start(server.tcp(), token, "no").await.unwrap_err()), denied);
    }
    let started = start(server.unix(), "", "e1").await.unwrap();
    assert_eq!(started.principal, "person:owner");
    for token in [&viewer, &approver, &planner, &operator] {
        assert_eq!(get(server.tcp(), token, "e1").await.unwrap().name, started.name);
    }
    let pause = |token: &str| {
        let request = v1::PauseExecutionRequest { name: started.name.clone(), ..Default::default() };
        let (mut executor, request) = (Executor::new(server.tcp()), with(token, request));
        async move { executor.pause_execution(request).await }
    };
    for token in [&viewer, &approver, &planner] {
        assert_eq!(reason(&pause(token).await.unwrap_err()), denied);
    }
    let asked = question(&server.tcp(), &viewer, &started.name).await;
    assert_eq!(reason(&approve(server.tcp(), &viewer, &asked).await.unwrap_err()), denied);
    assert_eq!(approve(server.tcp(), &approver, &asked).await.unwrap().decided_by, "person:a-approver");

    let own = start(server.tcp(), &planner, "e2").await.unwrap();
    let cancel = v1::CancelExecutionRequest { name: own.name, ..Default::default() };
    Executor::new(server.tcp()).cancel_execution(with(&planner, cancel)).await.expect("it is its own");
    start(server.tcp(), &planner, "e3").await.unwrap();
    let request = v1::PauseExecutionRequest { name: name("e3"), ..Default::default() };
    Executor::new(server.tcp()).pause_execution(with(&operator, request)).await.expect("an operator steers all");
}

/// B-19: a revoked principal or a replaced token is rejected from the next request on; streams end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_is_worth_nothing() {
    let server = Server::start("");
    let old = server.add("bot", "planner");
    let (code, rotated) = server.home.json(&["principals", "rotate", "bot"]);
    assert_eq!(code, 0);
    let token = rotated["token"].as_str().unwrap().to_owned();
    let unauthenticated = (Code::Unauthenticated, "UNAUTHENTICATED".to_owned());
    assert_eq!(reason(&start(server.tcp(), &old, "e0").await.unwrap_err()), unauthenticated);

    let started = start(server.tcp(), &token, "e1").await.unwrap();
    let watch = v1::WatchExecutionRequest { name: started.name, ..Default::default() };
    let mut events = Executor::new(server.tcp()).watch_execution(with(&token, watch)).await.unwrap().into_inner();
    assert!(events.message().await.unwrap().is_some());
    assert_eq!(server.home.run(["principals", "revoke", "bot"]).code, 0);
    for channel in [server.tcp(), server.unix()] {
        assert_eq!(reason(&get(channel, &token, "e1").await.unwrap_err()), unauthenticated);
    }
    let ended = async {
        loop {
            if let Err(status) = events.message().await {
                return status.code();
            }
        }
    };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), ended).await;
    assert_eq!(ended.expect("the stream ends by itself"), Code::Unauthenticated);

    let (_, listed) = server.home.json(&["principals", "list"]);
    let bot = &listed["principals"][0];
    assert!(bot["revokeTime"].is_string() && !listed.to_string().contains(&token), "{listed}");
    assert!(server.home.run(["principals", "list"]).out.contains("revoked"));
    let again = server.home.run(["principals", "add", "bot", "--role", "viewer"]);
    assert!(again.code != 0 && again.talk.contains("its name stays taken"), "{again:?}");
}

/// B-19: with separate duties, the person who started an execution cannot decide about it, over any endpoint and with any credential.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_person_is_one_over_every_endpoint() {
    let server = Server::start("approvals: {separate_duties: true}\n");
    let own_token = server.own_token();
    let own_request = (Code::PermissionDenied, "OWN_REQUEST".to_owned());
    let started = start(server.unix(), "", "e1").await.unwrap();
    let asked = question(&server.unix(), "", &started.name).await;
    assert_eq!(reason(&approve(server.unix(), "", &asked).await.unwrap_err()), own_request);
    assert_eq!(reason(&approve(server.tcp(), &own_token, &asked).await.unwrap_err()), own_request);

    // The owner's user is Ann from now on: her token, the user and the token in the state directory are one person.
    let uid = rustix::process::geteuid().as_raw().to_string();
    let (_, added) = server.home.json(&["principals", "add", "ann", "--role", "operator", "--uid", &uid]);
    let ann = added["token"].as_str().unwrap().to_owned();
    let started = start(server.tcp(), &ann, "e2").await.unwrap();
    assert_eq!(started.principal, "person:ann");
    let asked = question(&server.unix(), "", &started.name).await;
    for (channel, token) in [(server.unix(), ""), (server.tcp(), &*own_token), (server.tcp(), &*ann)] {
        assert_eq!(reason(&approve(channel, token, &asked).await.unwrap_err()), own_request);
    }
    let bob = server.add("bob", "approver");
    assert_eq!(approve(server.tcp(), &bob, &asked).await.unwrap().decided_by, "person:bob");
}

/// B-19, S2-X-18: that the policy approves is for those to choose who may approve; a planner cannot have it by starting or forking an execution.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_decide_has_the_policy_approve() {
    // As without a policy file, where what is started with this mode is approved.
    let server = Server::start("non_interactive_policy: auto\n");
    let auto =
        |id: &str| v1::StartExecutionRequest { approval_mode: v1::ApprovalMode::Auto.into(), ..start_request(id) };
    let planner = server.add("planner", "planner");
    let refused = Executor::new(server.tcp()).start_execution(with(&planner, auto("e1"))).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
    assert!(refused.message().contains("AUTO") && refused.message().contains("approver or operator"), "{refused:?}");
    assert_eq!(reason(&get(server.tcp(), &planner, "e1").await.unwrap_err()).1, "EXECUTION_NOT_FOUND");
    start(server.tcp(), &planner, "asks").await.expect("a planner starts what asks");

    let (_, added) = server.home.json(&["principals", "add", "both", "--role", "planner", "--role", "approver"]);
    let both = added["token"].as_str().unwrap();
    let request = |id: &str| with(both, auto(id));
    Executor::new(server.tcp()).start_execution(request("e2")).await.expect("an approver chooses it");
    let name = "namespaces/default/executions/e2".to_owned();
    let wait = v1::WaitExecutionRequest { name: name.clone(), ..Default::default() };
    let ended = Executor::new(server.tcp()).wait_execution(with(both, wait)).await.unwrap().into_inner();
    assert_eq!(ended.state(), v1::execution::State::Completed);
    let fork = || v1::ForkExecutionRequest { name: name.clone(), from_step: "w".into(), ..Default::default() };
    Executor::new(server.tcp()).fork_execution(with(both, fork())).await.expect("and forks it");
    assert_eq!(server.home.run(["principals", "update", "both", "--role", "planner"]).code, 0);
    let refused = loop {
        // The change is noticed within a second.
        match Executor::new(server.tcp()).fork_execution(with(both, fork())).await {
            Err(refused) => break refused,
            Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    };
    assert_eq!(reason(&refused), (Code::PermissionDenied, "ROLE_MISSING".into()));
}

/// Supervisors have no token. Everyone else needs one over TCP; and listening beyond loopback requires consent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tcp_health_alone_needs_no_token() {
    let server = Server::start("");
    let asked = HealthCheckRequest { service: "belay.v1.ExecutorService".into() };
    HealthClient::new(server.tcp()).check(asked).await.expect("health answers everybody");
    for token in ["", "wrong"] {
        let refused = get(server.tcp(), token, "e1").await.unwrap_err();
        assert_eq!(reason(&refused), (Code::Unauthenticated, "UNAUTHENTICATED".into()));
    }
    let other = Home::new();
    let refused = other.run(["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let named = refused.talk.contains("--insecure-listen-beyond-loopback") && refused.talk.contains("INSECURE_LISTEN");
    assert!(named, "{}", refused.talk);
    let mut meant = other.start(["serve", "--listen", "0.0.0.0:0", "--insecure-listen-beyond-loopback"]);
    meant.wait_for("and at");
}

/// B-05: the bundled services authenticate each other with tokens that only they have, so a program of the same user is not accepted as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_program_is_accepted_as_a_bundled_service() {
    let server = Server::start("");
    let unauthenticated = (Code::Unauthenticated, "UNAUTHENTICATED".to_owned());
    let socket = |name: &str| channel(&Path::new(&server.home.state()).join(name));
    for token in ["", &*server.own_token()] {
        let request = with(token, runner_v1::ListToolsRequest::default());
        let refused = ToolRunnerServiceClient::new(socket("runner.sock")).list_tools(request).await.unwrap_err();
        assert_eq!(reason(&refused), unauthenticated);
        let request = with(token, gate_v1::GetGrantRequest { approval: "namespaces/default/approvals/a".into() });
        let refused = Gate::new(socket("gate-service.sock")).get_grant(request).await.unwrap_err();
        assert_eq!(reason(&refused), unauthenticated);
        let request = with(token, gate_v1::GetGrantRequest { approval: "namespaces/default/approvals/a".into() });
        let refused = Gate::new(socket("gate.sock")).get_grant(request).await.unwrap_err();
        assert_eq!(reason(&refused), (Code::PermissionDenied, "NOT_A_SERVICE".into()), "not even the owner");
    }
}

/// B-31, S2-NFR-003: a viewer whose streams take nothing delays nobody, whatever it streams and whoever asks; and where it leaves more unread than one principal may, its
/// connection ends and the memory comes back. It can come back itself, with the cursor that it had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_viewer_does_not_read_delays_nobody_and_is_bounded() {
    let server = Server::start("");
    let (own, viewer) = (server.own_token(), server.add("eve", "viewer"));
    let executor = Executor::new(server.unix());
    let document = |id: &str, steps: &str| v1::StartExecutionRequest {
        execution_id: id.into(),
        source: Some(v1::start_execution_request::Source::Document(v1::PlanDocument {
            format: v1::PlanFormat::Yaml.into(),
            text: format!("id: {id}\nsteps:\n{steps}"),
        })),
        ..start_request(id)
    };
    // Many events, each large: more than the memory keeps for watchers.
    let output = "x".repeat(20_000);
    let steps: String =
        (0..100).map(|n| format!("  - {{id: s{n}, tool: noop, arguments: {{output: {output}}}}}\n")).collect();
    let mut own_executor = executor.clone();
    own_executor.start_execution(with(&own, document("long", &steps))).await.unwrap();
    own_executor.start_execution(with(&own, start_request("asks"))).await.unwrap();
    let wait = v1::WaitExecutionRequest { name: name("long"), ..Default::default() };
    own_executor.wait_execution(with(&own, wait.clone())).await.unwrap();

    let taking_nothing =
        Endpoint::from_shared(server.url.clone()).unwrap().initial_stream_window_size(0).connect_lazy();
    let mut unread = Executor::new(taking_nothing.clone());
    let mut streams = Vec::new();
    let all = v1::WatchExecutionRequest { name: name("long"), include_earlier_events: true, ..Default::default() };
    for _ in 0..16 {
        streams.push(unread.watch_execution(with(&viewer, all.clone())).await.unwrap().into_inner());
    }
    let (mut of_lists, mut of_approvals) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let list = v1::WatchExecutionsRequest { parent: "namespaces/default".into(), ..Default::default() };
        of_lists.push(unread.watch_executions(with(&viewer, list)).await.unwrap().into_inner());
        let approvals = v1::WatchApprovalsRequest { parent: "namespaces/default".into(), ..Default::default() };
        let watched = Approvals::new(taking_nothing.clone()).watch_approvals(with(&viewer, approvals)).await;
        of_approvals.push(watched.unwrap().into_inner());
    }
    let others = async |round: u32| {
        for (channel, token) in [(server.unix(), &own), (server.tcp(), &own), (server.tcp(), &viewer)] {
            let mut client = Executor::new(channel.clone());
            let get = v1::GetExecutionRequest { name: name("long"), ..Default::default() };
            client.get_execution(with(token, get)).await.unwrap();
            let list = v1::ListExecutionsRequest { parent: "namespaces/default".into(), ..Default::default() };
            client.list_executions(with(token, list)).await.unwrap();
            let mut watched = client.watch_execution(with(token, all.clone())).await.unwrap().into_inner();
            while watched.message().await.unwrap().is_some() {}
            let listed = v1::ListApprovalsRequest { parent: "namespaces/default".into(), ..Default::default() };
            Approvals::new(channel).list_approvals(with(token, listed)).await.unwrap();
        }
        let id = format!("soon-over-{round}");
        let mut client = Executor::new(server.unix());
        client.start_execution(with(&own, start_request(&id))).await.unwrap();
        let cancel = v1::CancelExecutionRequest { name: name(&id), ..Default::default() };
        client.cancel_execution(with(&own, cancel)).await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(100), others(1)).await.expect("all others are answered meanwhile");

    // Until the server ends the connection: what it holds for each of these is a page of events.
    let mut ended = None;
    let small = v1::WatchExecutionRequest { name: name("asks"), ..all.clone() };
    for number in 0..6_000 {
        let asked = unread.watch_execution(with(&viewer, small.clone()));
        match tokio::time::timeout(Duration::from_secs(100), asked)
            .await
            .expect("it is answered, or its connection ends")
        {
            Ok(stream) => streams.push(stream.into_inner()),
            Err(status) => {
                ended = Some((number, status));
                break;
            }
        }
    }
    let (number, status) = ended.expect("what one principal does not read is bounded");
    assert!(number > 500, "{number}: {status:?}");
    let last = tokio::time::timeout(Duration::from_secs(100), streams[0].message()).await;
    assert!(matches!(last, Ok(Err(_))), "{last:?}, after {number} and {status:?}");
    tokio::time::timeout(Duration::from_secs(100), others(2)).await.expect("all others are answered");
    let mut back = Executor::new(server.tcp());
    let mut again = back.watch_execution(with(&viewer, all.clone())).await.unwrap().into_inner();
    let cursor = again.message().await.unwrap().unwrap().cursor;
    let from_there = v1::WatchExecutionRequest { cursor, ..all.clone() };
    assert!(back.watch_execution(with(&viewer, from_there)).await.unwrap().into_inner().message().await.is_ok());
}
